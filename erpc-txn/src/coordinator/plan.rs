//! The messages of a commit: which writes go where.

use std::collections::BTreeMap;

use bytes::Bytes;
use smallvec::SmallVec;

use super::deliver::{Message, Messages, unlock};
use crate::cluster::{NodeId, Placement};
use crate::log::{
    Coordinator, EncodeError, Entry as RecordEntry, Group, Groups, Operation, Partitions, Record,
};
use crate::participant::{Place, Role};
use crate::table::Owner;
use crate::transaction::accesses::{Change, Entry};

/// What a commit sends.
#[derive(Debug)]
pub(super) struct Plan {
    /// All writes, for the log.
    pub(super) record: Bytes,
    /// The writes for each node that holds backups of their partitions.
    pub(super) backups: Messages,
    /// The writes for each primary.
    pub(super) primaries: Messages,
    /// What unlocks the buckets that are locked and not written.
    pub(super) unlocks: Messages,
    /// Partitions that are written.
    pub(super) partitions: Partitions,
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
) -> Result<Option<Box<Plan>>, EncodeError> {
    if entries.iter().all(|entry| entry.change.is_none()) {
        return Ok(None);
    }
    let groups = groups(entries);
    let (coordinator, _) = Coordinator::of(transaction);
    let partitions = partitions(&groups);
    let mut roles: SmallVec<[(NodeId, Role, Partitions); 4]> = SmallVec::new();
    for &partition in &partitions {
        for (at, &node) in placement.replicas(partition).iter().enumerate() {
            let role = if at == 0 { Role::Primary } else { Role::Backup };
            match roles.iter_mut().find(|(of, its, _)| (*of, *its) == (node, role)) {
                Some((_, _, partitions)) => partitions.push(partition),
                None => roles.push((node, role, Partitions::from_slice(&[partition]))),
            }
        }
    }
    let writes = groups.iter().map(|group| group.entries.len()).sum();
    let backup_writes = groups
        .iter()
        .map(|group| group.entries.len() * (placement.replicas(group.partition).len() - 1))
        .sum();
    let epoch = placement.epoch();
    let mut whole = Record { epoch, coordinator, transaction, partitions, groups };
    let record = encode(&whole)?;
    let (mut primaries, mut backups) = (Messages::new(), Messages::new());
    for (node, role, of) in roles {
        // Often all writes are for the node; then the record is the same.
        let part = if of == whole.partitions { record.clone() } else { part(&whole, of)? };
        let messages = if role == Role::Primary { &mut primaries } else { &mut backups };
        messages.push((node, Message::Commit(role, part)));
    }
    let partitions = std::mem::take(&mut whole.partitions);
    let unlocks = unlocks(placement, transaction, entries);
    // A box, because it is moved several times.
    let plan = Plan { record, backups, primaries, unlocks, partitions, writes, backup_writes };
    Ok(Some(Box::new(plan)))
}

/// The writes by bucket, in the order of table, partition and bucket.
fn groups(entries: &[Entry]) -> Groups<'_> {
    let bucket = |entry: &Entry| (entry.place.table, entry.partition, entry.bucket);
    let written = entries.iter().filter_map(|entry| Some((entry, entry.change.as_ref()?)));
    let mut written: SmallVec<[_; 4]> = written.collect();
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

/// The partitions of groups, ascending, each once.
fn partitions(groups: &[Group<'_>]) -> Partitions {
    let mut partitions: Partitions = groups.iter().map(|group| group.partition).collect();
    partitions.sort_unstable();
    partitions.dedup();
    partitions
}

/// The record with only the groups of some of its partitions.
fn part(whole: &Record<'_>, partitions: Partitions) -> Result<Bytes, EncodeError> {
    let is_part = |group: &&Group<'_>| partitions.contains(&group.partition);
    let groups = whole.groups.iter().filter(is_part).cloned().collect();
    encode(&Record { partitions, groups, ..*whole })
}

fn encode(record: &Record<'_>) -> Result<Bytes, EncodeError> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes)?;
    Ok(bytes.into())
}

/// What unlocks the buckets that are locked and not written, by a key of each.
fn unlocks(placement: &dyn Placement, transaction: Owner, entries: &[Entry]) -> Messages {
    let mut unlocks = Messages::new();
    if entries.iter().all(|entry| !entry.is_locked || entry.change.is_some()) {
        return unlocks;
    }
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
    let mut nodes: BTreeMap<NodeId, Vec<Place>> = BTreeMap::new();
    for ((_, partition, _), (locked, is_written)) in buckets {
        let primary = placement.replicas(partition).first();
        if let (Some(place), Some(&primary), false) = (locked, primary, is_written) {
            nodes.entry(primary).or_default().push(place);
        }
    }
    for (node, places) in nodes {
        unlocks.extend(unlock(node, transaction, &places, false));
    }
    unlocks
}
