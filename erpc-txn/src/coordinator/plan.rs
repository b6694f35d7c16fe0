//! The messages of a commit: which writes go where.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::cluster::{NodeId, Placement};
use crate::log::{Coordinator, EncodeError, Entry as RecordEntry, Group, Operation, Record};
use crate::participant::Place;
use crate::table::Owner;
use crate::transaction::accesses::{Change, Entry};

/// Keys by the node that has their locks.
type ByNode = Vec<(NodeId, Vec<Place>)>;

/// What a commit sends.
#[derive(Debug)]
pub(super) struct Plan {
    /// All writes, for the log.
    pub(super) record: Bytes,
    /// The writes for each node that holds backups of their partitions.
    pub(super) backups: Vec<(NodeId, Bytes)>,
    /// The writes for each primary.
    pub(super) primaries: Vec<(NodeId, Bytes)>,
    /// Keys whose buckets are locked and not written, by their primary.
    pub(super) unlocks: ByNode,
    /// All keys whose buckets are locked, by their primary.
    pub(super) locked: ByNode,
    /// Partitions that are written.
    pub(super) partitions: Vec<u16>,
    /// The number of keys that are written.
    pub(super) writes: usize,
    /// The number of keys that are written, times the backups of their partitions.
    pub(super) backup_writes: usize,
}

/// Plans the commit of a transaction. None if it writes nothing.
///
/// # Errors
///
/// If the record is too long.
pub(super) fn plan(
    placement: &dyn Placement,
    transaction: Owner,
    entries: &[Entry],
) -> Result<Option<Plan>, EncodeError> {
    let groups = groups(entries);
    if groups.is_empty() {
        return Ok(None);
    }
    let mut partitions: Vec<_> = groups.iter().map(|group| group.partition).collect();
    partitions.sort_unstable();
    partitions.dedup();
    let (coordinator, _) = Coordinator::of(transaction);
    let header = Record {
        epoch: placement.epoch(),
        coordinator,
        transaction,
        partitions: Vec::new(),
        groups: Vec::new(),
    };
    let record = encode(&header, &groups, |_| true)?;
    // The partitions of a node in a role. Often all of them; then the record is the same.
    let part = |of: &[u16]| {
        if of == partitions {
            Ok(record.clone())
        } else {
            encode(&header, &groups, |partition| of.contains(&partition))
        }
    };
    let mut backups: BTreeMap<NodeId, Vec<u16>> = BTreeMap::new();
    let mut primaries: BTreeMap<NodeId, Vec<u16>> = BTreeMap::new();
    for &partition in &partitions {
        for (at, &node) in placement.replicas(partition).iter().enumerate() {
            let role = if at == 0 { &mut primaries } else { &mut backups };
            role.entry(node).or_default().push(partition);
        }
    }
    let parts = |of: BTreeMap<NodeId, Vec<u16>>| {
        of.into_iter().map(|(node, of)| Ok((node, part(&of)?))).collect::<Result<Vec<_>, _>>()
    };
    let writes = groups.iter().map(|group| group.entries.len()).sum();
    let backup_writes = groups
        .iter()
        .map(|group| group.entries.len() * (placement.replicas(group.partition).len() - 1))
        .sum();
    let (unlocks, locked) = locked(placement, entries);
    Ok(Some(Plan {
        backups: parts(backups)?,
        primaries: parts(primaries)?,
        unlocks,
        locked,
        record,
        partitions,
        writes,
        backup_writes,
    }))
}

/// The writes by bucket, in the order of table, partition and bucket.
fn groups(entries: &[Entry]) -> Vec<Group<'_>> {
    let bucket = |entry: &Entry| (entry.place.table, entry.partition, entry.bucket);
    let mut written: Vec<_> =
        entries.iter().filter_map(|entry| Some((entry, entry.change.as_ref()?))).collect();
    written.sort_by_key(|(entry, _)| bucket(entry));
    let of_bucket = written.chunk_by(|(one, _), (other, _)| bucket(one) == bucket(other));
    of_bucket
        .map(|writes| {
            let (table, partition, bucket) = bucket(writes[0].0);
            let base = writes[0].0.version;
            // Locks are refused at the last version.
            let new = base.next().unwrap_or(base);
            let entries = writes.iter().map(|(entry, change)| write(entry, change)).collect();
            Group { table, partition, bucket, base, new, entries }
        })
        .collect()
}

fn write<'a>(entry: &Entry, change: &'a Change) -> RecordEntry<'a> {
    let operation = match change {
        Change::Insert(value) => Operation::Insert(value),
        Change::Update(value) => Operation::Update(value),
        Change::Delete => Operation::Delete,
    };
    RecordEntry { key: entry.place.key, operation }
}

fn encode(
    header: &Record<'_>,
    groups: &[Group<'_>],
    is_part: impl Fn(u16) -> bool,
) -> Result<Bytes, EncodeError> {
    let groups: Vec<_> = groups.iter().filter(|group| is_part(group.partition)).cloned().collect();
    let mut partitions: Vec<_> = groups.iter().map(|group| group.partition).collect();
    partitions.sort_unstable();
    partitions.dedup();
    let mut bytes = Vec::new();
    Record { partitions, groups, ..header.clone() }.encode(&mut bytes)?;
    Ok(bytes.into())
}

/// A key of each locked bucket, by primary: of those that are not written, and of all.
fn locked(placement: &dyn Placement, entries: &[Entry]) -> (ByNode, ByNode) {
    // A locked key of each bucket, and whether the bucket is written.
    let mut buckets: BTreeMap<_, (Option<Place>, bool)> = BTreeMap::new();
    for entry in entries {
        let bucket = (entry.place.table, entry.partition, entry.bucket);
        let (locked, is_written) = buckets.entry(bucket).or_default();
        if entry.is_locked {
            locked.get_or_insert(entry.place);
        }
        *is_written |= entry.change.is_some();
    }
    let (mut unwritten, mut all) = (BTreeMap::new(), BTreeMap::new());
    for ((_, partition, _), (locked, is_written)) in buckets {
        let primary = placement.replicas(partition).first();
        let (Some(place), Some(&primary)) = (locked, primary) else { continue };
        let add = |to: &mut BTreeMap<NodeId, Vec<Place>>| {
            to.entry(primary).or_default().push(place);
        };
        add(&mut all);
        if !is_written {
            add(&mut unwritten);
        }
    }
    (unwritten.into_iter().collect(), all.into_iter().collect())
}
