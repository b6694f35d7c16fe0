//! The messages of a commit: which writes go where.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::cluster::{NodeId, Placement};
use crate::log::{Coordinator, EncodeError, Entry as RecordEntry, Group, Operation, Record};
use crate::participant::Place;
use crate::table::Owner;
use crate::transaction::accesses::{Change, Entry};

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
    pub(super) unlocks: Vec<(NodeId, Vec<Place>)>,
    /// All keys whose buckets are locked, by their primary.
    pub(super) locked: Vec<(NodeId, Vec<Place>)>,
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
    Ok(Some(Plan {
        backups: parts(backups)?,
        primaries: parts(primaries)?,
        unlocks: buckets(placement, entries, |is_written| !is_written),
        locked: buckets(placement, entries, |_| true),
        record,
        partitions,
        writes,
        backup_writes,
    }))
}

/// The writes by bucket, in the order of table, partition and bucket.
fn groups(entries: &[Entry]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for entry in entries {
        let Some(change) = &entry.change else { continue };
        let operation = match change {
            Change::Insert(value) => Operation::Insert(value),
            Change::Update(value) => Operation::Update(value),
            Change::Delete => Operation::Delete,
        };
        let write = RecordEntry { key: entry.place.key, operation };
        let key = (entry.place.table, entry.partition, entry.bucket);
        let of = |group: &Group<'_>| (group.table, group.partition, group.bucket);
        match groups.binary_search_by_key(&key, of) {
            Ok(at) => groups[at].entries.push(write),
            Err(at) => {
                let (table, partition, bucket) = key;
                let base = entry.version;
                // Locks are refused at the last version.
                let new = base.next().unwrap_or(base);
                let entries = vec![write];
                groups.insert(at, Group { table, partition, bucket, base, new, entries });
            }
        }
    }
    groups
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

/// A key of each locked bucket, by primary. `is_wanted` is asked whether to take a bucket that is
/// written, or is not.
fn buckets(
    placement: &dyn Placement,
    entries: &[Entry],
    is_wanted: impl Fn(bool) -> bool,
) -> Vec<(NodeId, Vec<Place>)> {
    let bucket = |entry: &Entry| (entry.place.table, entry.partition, entry.bucket);
    let mut buckets: BTreeMap<NodeId, Vec<Place>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.is_locked) {
        let same = |other: &Entry| bucket(other) == bucket(entry);
        let is_written = entries.iter().any(|other| same(other) && other.change.is_some());
        let is_first = !entries[..at].iter().any(|other| same(other) && other.is_locked);
        if is_first
            && is_wanted(is_written)
            && let Some(&primary) = placement.replicas(entry.partition).first()
        {
            buckets.entry(primary).or_default().push(entry.place);
        }
    }
    buckets.into_iter().collect()
}
