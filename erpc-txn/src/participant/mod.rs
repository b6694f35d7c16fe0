//! What a node does for coordinators in each phase of a commit, at the replicas that it holds.
//!
//! Each method is one request. It depends only on the participant's state and its arguments: nothing
//! here does I/O, waits or knows the time. A method that comes twice changes nothing the second time.
//! A request of another epoch, for an unknown table, or for a partition that the node does not hold in
//! this role is refused as a whole, before anything is changed.
//!
//! One rule is up to coordinators: no [`execute`](Participant::execute) may arrive after the end of its
//! transaction, because nobody would free its locks.
#![forbid(unsafe_code)]

mod errors;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use errors::{BuildError, Refusal};

use crate::cluster::{Node, Placement};
use crate::log::{Appended, Coordinator, Group, Index, Log, Operation, Record};
use crate::table::{
    Applied, Bucket, Config, Conflict, Invalid, LockError, Owner, Read, Table, Version, Write,
    WriteError,
};

/// What a participant holds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tables by id, and how each replica of a partition of them is built. The same at all nodes.
    pub tables: BTreeMap<u16, Config>,
    /// Coordinating threads of each node, numbered from 0.
    pub threads: u16,
    /// Bytes of the log of one coordinator.
    pub log_bytes: usize,
    /// Records of the log of one coordinator.
    pub log_records: usize,
}

/// The replicas and logs of one node. It is shared by the node's threads.
pub struct Participant {
    node: Node,
    placement: Arc<dyn Placement>,
    settings: Settings,
    /// By table and partition: those that this node is the primary or a backup of.
    tables: HashMap<(u16, u16), Table>,
    /// Of the coordinators that store their records here. Each has a lock of its own, which is free
    /// if the threads of different nodes talk in pairs.
    logs: HashMap<Coordinator, Mutex<Log>>,
}

/// A key of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The table.
    pub table: u16,
    /// The key.
    pub key: u64,
}

/// What to do with a key in the execute phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read it.
    Read,
    /// Read it and lock its bucket, to update or delete it.
    Update,
    /// Lock its bucket, to insert it.
    Insert,
}

/// A key to read or lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The key.
    pub place: Place,
    /// What to do with it.
    pub kind: Kind,
}

/// What an access found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The bucket of the key.
    pub bucket: Bucket,
    /// Its version and value. No value is read for an insert.
    pub read: Read,
}

/// A read to validate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The key.
    pub place: Place,
    /// The version at which it was read.
    pub version: Version,
}

/// A replica's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has the locks.
    Primary,
    /// It follows the primary.
    Backup,
}

impl Participant {
    /// The participant of `node`, with empty tables and logs.
    ///
    /// # Errors
    ///
    /// If the node is not a member, or a table cannot be built.
    pub fn new(
        node: Node,
        placement: Arc<dyn Placement>,
        settings: Settings,
    ) -> Result<Self, BuildError> {
        if !placement.nodes().contains(&node) {
            return Err(BuildError::NotMember(node));
        }
        let mut tables = HashMap::new();
        for partition in 0..placement.partitions() {
            if placement.replicas(partition).contains(&node) {
                for (&table, config) in &settings.tables {
                    let built = config.clone().build().map_err(BuildError::Table)?;
                    tables.insert((table, partition), built);
                }
            }
        }
        let mut logs = HashMap::new();
        for &of in placement.nodes() {
            if placement.log_replicas(of).contains(&node) {
                for thread in 0..settings.threads {
                    let log = Log::new(settings.log_bytes, settings.log_records);
                    logs.insert(Coordinator { node: of.0, thread }, Mutex::new(log));
                }
            }
        }
        Ok(Self { node, placement, settings, tables, logs })
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> Node {
        self.node
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.placement.epoch()
    }

    /// The replica of a table's partition, if the node holds it.
    #[must_use]
    pub fn replica(&self, table: u16, partition: u16) -> Option<&Table> {
        self.tables.get(&(table, partition))
    }

    /// The log of a coordinator, if the node stores its records.
    pub fn log(&self, coordinator: Coordinator) -> Option<MutexGuard<'_, Log>> {
        // A log has no state in between that a panic could leave.
        Some(self.logs.get(&coordinator)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads keys, and locks those that `me` will write. Each access has its own result. A failed one
    /// leaves the locks of the others; [`unlock`](Self::unlock) frees them.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if a key is not of a table and partition whose primary is here. Then nothing is
    /// locked.
    pub fn execute(
        &self,
        epoch: u32,
        me: Owner,
        accesses: &[Access],
    ) -> Result<Vec<Result<Found, LockError>>, Refusal> {
        let tables = self.primaries(epoch, accesses.iter().map(|access| access.place))?;
        let access = |(table, access): (&Table, &Access)| {
            let key = access.place.key;
            let read = match access.kind {
                Kind::Read => table.get(key, Some(me))?,
                Kind::Update => table.lock_for_update(key, me)?,
                Kind::Insert => Read { version: table.lock_for_insert(key, me)?, value: None },
            };
            Ok(Found { bucket: table.bucket(key), read })
        };
        Ok(tables.into_iter().zip(accesses).map(access).collect())
    }

    /// Checks that reads of `me` still hold. Returns the first that does not.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    pub fn validate(
        &self,
        epoch: u32,
        me: Owner,
        reads: &[Seen],
    ) -> Result<Result<(), (Place, Invalid)>, Refusal> {
        let tables = self.primaries(epoch, reads.iter().map(|seen| seen.place))?;
        let validate = |(table, seen): (&Table, &Seen)| {
            let bucket = table.bucket(seen.place.key);
            table.validate(bucket, seen.version, Some(me)).map_err(|why| (seen.place, why))
        };
        Ok(tables.into_iter().zip(reads).try_for_each(validate))
    }

    /// Stores the record of a transaction that is about to commit.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the record is malformed or of another epoch, the node does not store this
    /// coordinator's records, a table is unknown, a value is too long, or the log has no room.
    pub fn append(&self, index: Index, bytes: &[u8]) -> Result<Appended, Refusal> {
        let record = self.decode(bytes)?;
        let mut log =
            self.log(record.coordinator).ok_or(Refusal::Coordinator(record.coordinator))?;
        log.append(index, bytes).map_err(Refusal::Log)
    }

    /// Frees the records of a coordinator before `next`. Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the epoch is another, or the node does not store this coordinator's records.
    pub fn acknowledge(
        &self,
        epoch: u32,
        coordinator: Coordinator,
        next: Index,
    ) -> Result<usize, Refusal> {
        self.check_epoch(epoch)?;
        let mut log = self.log(coordinator).ok_or(Refusal::Coordinator(coordinator))?;
        Ok(log.acknowledge(next))
    }

    /// Applies the writes of a record at replicas in this role. All its groups must be of partitions
    /// that the node holds in it. A primary also unlocks their buckets.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the record is malformed, of another epoch, or not for this node: then nothing
    /// is changed. If a single group is refused because the transaction does not hold its lock or a
    /// commit was missed, the groups before it are applied.
    pub fn commit(&self, role: Role, bytes: &[u8]) -> Result<Applied, Refusal> {
        let record = self.decode(bytes)?;
        let mut tables = Vec::with_capacity(record.groups.len());
        for group in &record.groups {
            let table = self.held(group.table, group.partition, role)?;
            for entry in &group.entries {
                let of = self.placement.partition_of(entry.key);
                if of != group.partition {
                    return Err(Refusal::Partition { key: entry.key, partition: of });
                }
                if table.bucket(entry.key) != group.bucket {
                    let bucket = table.bucket(entry.key);
                    return Err(Refusal::Write(WriteError::Foreign { key: entry.key, bucket }));
                }
            }
            tables.push(table);
        }
        let mut applied = Applied::Before;
        for (table, group) in tables.into_iter().zip(&record.groups) {
            let writes: Vec<_> = group.entries.iter().map(|entry| entry.write()).collect();
            let now = match role {
                Role::Backup => table.apply(group.bucket, group.base, &writes),
                Role::Primary => commit_group(table, record.transaction, group, &writes),
            };
            if now.map_err(Refusal::Write)? == Applied::Now {
                applied = Applied::Now;
            }
        }
        Ok(applied)
    }

    /// Frees the locks that `me` holds of these keys' buckets. Returns how many it held.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    pub fn unlock(&self, epoch: u32, me: Owner, keys: &[Place]) -> Result<usize, Refusal> {
        let tables = self.primaries(epoch, keys.iter().copied())?;
        let held = |(table, place): &(&Table, &Place)| table.unlock(table.bucket(place.key), me);
        Ok(tables.into_iter().zip(keys).filter(held).count())
    }

    fn check_epoch(&self, epoch: u32) -> Result<(), Refusal> {
        if epoch == self.epoch() { Ok(()) } else { Err(Refusal::Epoch(self.epoch())) }
    }

    /// The tables of keys of which this node is the primary.
    fn primaries(
        &self,
        epoch: u32,
        places: impl Iterator<Item = Place>,
    ) -> Result<Vec<&Table>, Refusal> {
        self.check_epoch(epoch)?;
        let of = |place: Place| {
            self.held(place.table, self.placement.partition_of(place.key), Role::Primary)
        };
        places.map(of).collect()
    }

    fn held(&self, table: u16, partition: u16, role: Role) -> Result<&Table, Refusal> {
        if !self.settings.tables.contains_key(&table) {
            return Err(Refusal::Table(table));
        }
        let at = self.placement.replicas(partition).iter().position(|&node| node == self.node);
        if at.is_none_or(|at| (at == 0) != (role == Role::Primary)) {
            return Err(Refusal::Role { partition, role });
        }
        self.tables.get(&(table, partition)).ok_or(Refusal::Role { partition, role })
    }

    /// Decodes a record that is exactly these bytes, and checks what any member can check.
    fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Record<'a>, Refusal> {
        let (record, len) = Record::decode(bytes).map_err(Refusal::Record)?;
        if len != bytes.len() {
            return Err(Refusal::Trailing);
        }
        self.check_epoch(record.epoch)?;
        for group in &record.groups {
            let config = self.settings.tables.get(&group.table);
            let longest = config.ok_or(Refusal::Table(group.table))?.longest();
            for entry in &group.entries {
                if let Operation::Insert(value) | Operation::Update(value) = entry.operation
                    && value.len() > longest
                {
                    let (key, len) = (entry.key, value.len());
                    return Err(Refusal::Write(WriteError::TooLong { key, len }));
                }
            }
        }
        Ok(record)
    }
}

/// Commits a group at the primary, unless this was done before.
fn commit_group(
    table: &Table,
    me: Owner,
    group: &Group<'_>,
    writes: &[Write<'_>],
) -> Result<Applied, WriteError> {
    let refused = match table.validate(group.bucket, group.base, Some(me)) {
        Ok(()) => match table.commit(group.bucket, me, writes) {
            Ok(_) => return Ok(Applied::Now),
            Err(error) => error,
        },
        Err(Invalid::Changed(now)) if now < group.base => WriteError::Missed(now),
        Err(Invalid::Changed(_)) => WriteError::NotOwner(None),
        Err(Invalid::Conflict(Conflict { owner })) => WriteError::NotOwner(owner),
    };
    // Only the owner of the lock takes the bucket from `base` to the next version. So at a later
    // version the same commit came before, perhaps on another thread since the look above.
    match (refused, table.snapshot(group.bucket)?) {
        (WriteError::NotOwner(_), Some(now)) if now.version > group.base => Ok(Applied::Before),
        (refused, _) => Err(refused),
    }
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant")
            .field("node", &self.node)
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}
