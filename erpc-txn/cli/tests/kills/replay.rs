//! What recovery can rebuild from the holdings of survivors, without the store's tables.

use std::collections::{BTreeMap, BTreeSet};

use erpc_txn::cluster::{NodeId, Placement};
use erpc_txn::log::{Coordinator, Group, Operation};

use crate::callers::elements;
use crate::holdings::{Contents, Holdings, Place};

/// All lists, as the oldest replica of each bucket and the records of all logs give them.
///
/// # Errors
///
/// If some replica has more: then a record is missing.
pub(crate) fn lists(all: &[Holdings]) -> Result<BTreeMap<u64, Vec<u64>>, String> {
    let mut rebuilt = oldest(all);
    let decoded: Vec<_> = all.iter().map(Holdings::decoded).collect::<Result<_, _>>()?;
    let mut groups: Vec<&Group<'_>> =
        decoded.iter().flatten().flat_map(|record| &record.groups).collect();
    groups.sort_by_key(|group| group.base.get());
    for group in groups {
        // A partition of which no replica is left has no buckets here.
        let place = (group.partition, group.bucket.index());
        let contents = rebuilt.entry(place).or_default();
        if contents.version == group.base.get() {
            apply(contents, group);
        }
    }
    for holdings in all {
        for (place, has) in &holdings.buckets {
            let (node, got) = (holdings.node, &rebuilt[place]);
            if got.version < has.version {
                return Err(format!(
                    "node {node} has version {} of bucket {place:?}, but the oldest replica and the \
                     logs give only {}",
                    has.version, got.version
                ));
            }
            if got.version == has.version && got != has {
                return Err(format!("node {node} differs from the replay in bucket {place:?}"));
            }
        }
    }
    let values = rebuilt.values().flat_map(|contents| &contents.values);
    Ok(values.map(|(&key, value)| (key, elements(value))).collect())
}

/// The oldest version of each bucket among all replicas of its partition.
fn oldest(all: &[Holdings]) -> BTreeMap<Place, Contents> {
    let places: BTreeSet<Place> = all.iter().flat_map(|of| of.buckets.keys().copied()).collect();
    let oldest = |place: &Place| {
        // A replica that has no such bucket is at version 0.
        let holders = all.iter().filter(|of| of.replicas.contains(&place.0));
        let versions = holders.map(|of| of.buckets.get(place).cloned().unwrap_or_default());
        versions.min_by_key(|contents| contents.version).unwrap_or_default()
    };
    places.into_iter().map(|place| (place, oldest(&place))).collect()
}

fn apply(contents: &mut Contents, group: &Group<'_>) {
    contents.version = group.new.get();
    for entry in &group.entries {
        match entry.operation {
            Operation::Insert(value) | Operation::Update(value) => {
                contents.values.insert(entry.key, value.to_vec());
            }
            Operation::Delete => {
                contents.values.remove(&entry.key);
            }
        }
    }
}

/// Locks at survivors that only recovery may free, and the first lock that has no such reason.
///
/// A lock has a reason if its coordinator is dead, or if its transaction has a record, and a node that
/// must store or apply it is dead.
pub(crate) fn locks(
    all: &[Holdings],
    placement: &dyn Placement,
    dead: Option<NodeId>,
) -> Result<usize, String> {
    let mut count = 0;
    for holdings in all {
        for &(place, owner) in &holdings.locks {
            count += 1;
            let owner_id = erpc_txn::table::Owner::new(owner).ok_or("a lock without owner")?;
            let coordinator = NodeId(Coordinator::of(owner_id).0.node);
            if Some(coordinator) == dead {
                continue;
            }
            let own = all.iter().find(|of| of.node == coordinator);
            let records = own.map(Holdings::decoded).transpose()?.unwrap_or_default();
            let record = records.iter().find(|record| record.transaction == owner_id);
            let needs_dead = record.is_some_and(|record| {
                let replicas = record.partitions.iter().flat_map(|&of| placement.replicas(of));
                let logs = placement.log_replicas(coordinator);
                replicas.chain(logs).any(|&node| Some(node) == dead)
            });
            if !needs_dead {
                return Err(format!(
                    "node {}: bucket {place:?} is locked by {owner_id} of node {coordinator}, which \
                     lives; its record: {record:?}",
                    holdings.node
                ));
            }
        }
    }
    Ok(count)
}
