//! The phases of a transaction at its participants.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::coordinators::Coordinated;
use super::{Access, Found, Kind, Participant, Place, Refusal, Role, Seen, Target};
use crate::log::{Appended, Coordinator, Group, Operation, Record, buckets};
use crate::mutants::mutant;
use crate::table::{
    Applied, Bucket, Conflict, Invalid, LockError, Owner, Read, Table, Write, WriteError,
};

/// The most buckets of one request that are prefetched, so that they do not displace each other.
const MAX_PREFETCHED: usize = 64;

/// The tables of the keys of a request, few as a rule.
type Tables<'a> = SmallVec<[&'a Table; 8]>;

impl Participant {
    /// Reads keys, and locks those that `me` will write. Each access has its own result, which goes to
    /// `found`, in the order of the accesses. A failed one leaves the locks of the others;
    /// [`unlock`](Self::unlock) frees them.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the request is for another member, a key is not of a table and partition whose
    /// primary is here, or the transaction has ended. Then nothing is locked.
    pub fn execute(
        &self,
        target: Target,
        me: Owner,
        accesses: &[Access],
        mut found: impl FnMut(Found),
    ) -> Result<(), Refusal> {
        let tables = self.primaries(target, accesses.iter().map(|access| access.place))?;
        let locks = accesses.iter().any(|access| access.kind != Kind::Read);
        let _live = if locks { Some(self.live(me)?) } else { None };
        if accesses.len() > 1 {
            // So the cache misses of all of them overlap.
            for (table, access) in tables.iter().zip(accesses).take(MAX_PREFETCHED) {
                prefetch(table, access);
            }
            for (table, access) in tables.iter().zip(accesses).take(MAX_PREFETCHED) {
                if access.kind != Kind::Insert {
                    table.prefetch_value(access.place.key);
                }
            }
        }
        for (table, access) in tables.into_iter().zip(accesses) {
            found(make(table, me, *access));
        }
        Ok(())
    }

    /// Starts to load what an [`execute`](Self::execute) that comes soon will need.
    pub(crate) fn prefetch(&self, access: &Access) {
        let Place { table, key } = access.place;
        let partition = self.placement.partition_of(key);
        if let Ok(table) = self.replicas.held(table, partition, Role::Primary) {
            prefetch(table, access);
        }
    }

    /// Starts to load the first keys of which this member is the primary: the buckets of all, then the
    /// values, so that the cache misses of each step overlap.
    pub(crate) fn prefetch_reads(&self, places: &[Place]) {
        let own = |place: &Place| {
            let partition = self.placement.partition_of(place.key);
            let table = self.replicas.held(place.table, partition, Role::Primary).ok()?;
            Some((table, place.key))
        };
        let own: SmallVec<[_; 16]> = places.iter().filter_map(own).take(MAX_PREFETCHED).collect();
        for (table, key) in &own {
            table.prefetch(*key);
        }
        for (table, key) in &own {
            table.prefetch_value(*key);
        }
    }

    /// Makes a single access, like [`execute`](Self::execute).
    ///
    /// # Errors
    ///
    /// As `execute`.
    pub fn execute_one(&self, target: Target, me: Owner, access: Access) -> Result<Found, Refusal> {
        self.check(target)?;
        let Place { table, key } = access.place;
        let table = self.replicas.held(table, self.placement.partition_of(key), Role::Primary)?;
        let _live = if access.kind == Kind::Read { None } else { Some(self.live(me)?) };
        Ok(make(table, me, access))
    }

    /// Reads a key for a transaction that this member coordinates: the key's partition, its bucket, and
    /// what was found. None if [`execute_one`](Self::execute_one) must read it, or say why it cannot.
    #[inline]
    pub(crate) fn read_own(&self, me: Owner, place: Place) -> Option<(u16, Bucket, Read)> {
        if !self.is_active.load(Ordering::Acquire) {
            return None;
        }
        let partition = self.placement.partition_of(place.key);
        let table = self.replicas.held(place.table, partition, Role::Primary).ok()?;
        let read = table.get(place.key, Some(me)).ok()?;
        Some((partition, table.bucket(place.key), read))
    }

    /// What is kept for the coordinator of a transaction that has not ended. Hold it while locks are
    /// taken, so that all of them come before an `unlock` that buries the transaction, or none.
    fn live(&self, me: Owner) -> Result<MutexGuard<'_, Coordinated>, Refusal> {
        let (coordinator, sequence) = Coordinator::of(me);
        let state = self.coordinated(coordinator)?;
        if state.has_ended(sequence) { Err(Refusal::Ended) } else { Ok(state) }
    }

    /// Checks that reads of `me` still hold. Returns the first that does not.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    pub fn validate(
        &self,
        target: Target,
        me: Owner,
        reads: &[Seen],
    ) -> Result<Result<(), (Place, Invalid)>, Refusal> {
        let tables = self.primaries(target, reads.iter().map(|seen| seen.place))?;
        let validate = |(table, seen): (&Table, &Seen)| {
            let bucket = table.bucket(seen.place.key);
            let valid = table.validate(bucket, seen.version, Some(me));
            if mutant!(LockedReadsValid) && matches!(valid, Err(Invalid::Conflict(_))) {
                return Ok(());
            }
            valid.map_err(|why| (seen.place, why))
        };
        Ok(tables.into_iter().zip(reads).try_for_each(validate))
    }

    /// Stores the record of a transaction that is about to commit. Before that, frees the records of
    /// the same coordinator before `floor`, and those in `ended`, as [`finish`](Self::finish) does;
    /// these stay free if the record is refused then.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the request is for another member, the record is malformed or of another epoch,
    /// the node does not store this coordinator's records, a table is unknown, a value is too long,
    /// the transaction has ended, or the log has no room.
    pub fn append(
        &self,
        target: Target,
        record: &[u8],
        floor: u64,
        ended: impl IntoIterator<Item = u64>,
    ) -> Result<Appended, Refusal> {
        let Record { coordinator, transaction, .. } = self.decode(target, record)?;
        let (_, sequence) = Coordinator::of(transaction);
        let mut state = self.coordinated(coordinator)?;
        state.end(floor, ended, false);
        if state.has_ended(sequence) {
            return Err(Refusal::Ended);
        }
        state.log(coordinator)?.append(sequence, record).map_err(Refusal::Log)
    }

    /// Applies the writes of a record at replicas in this role. All its groups must be of partitions
    /// that the node holds in it. A primary also unlocks their buckets.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the request is for another member, or the record is malformed, of another epoch
    /// or not for this node: then nothing is changed. If a single group is refused because the
    /// transaction does not hold its lock or a commit was missed, the groups before it are applied.
    pub fn commit(&self, target: Target, role: Role, record: &[u8]) -> Result<Applied, Refusal> {
        // What is to be changed comes from memory while the record is checked.
        for (table, partition, bucket) in buckets(record).take(MAX_PREFETCHED) {
            if let Some(table) = self.replicas.get(table, partition) {
                table.prefetch_bucket(bucket);
            }
        }
        let record = self.decode(target, record)?;
        let mut tables = Tables::with_capacity(record.groups.len());
        for group in &record.groups {
            let table = self.replicas.held(group.table, group.partition, role)?;
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
            let writes: SmallVec<[_; 2]> =
                group.entries.iter().map(|entry| entry.write()).collect();
            let now = match role {
                Role::Backup if mutant!(BackupAppliesAnything) => {
                    let now = table.snapshot(group.bucket).ok().flatten();
                    let version = now.map_or(group.base, |snapshot| snapshot.version);
                    table.apply(group.bucket, version, &writes)
                }
                Role::Backup => table.apply(group.bucket, group.base, &writes),
                Role::Primary => commit_group(table, record.transaction, group, &writes),
            };
            if now.map_err(Refusal::Write)? == Applied::Now {
                applied = Applied::Now;
            }
        }
        Ok(applied)
    }

    /// Frees the locks that `me` holds of these keys' buckets. Returns how many it held. If `bury` is
    /// set, an [`execute`](Self::execute) of the transaction that comes later is refused.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    pub fn unlock(
        &self,
        target: Target,
        me: Owner,
        keys: &[Place],
        bury: bool,
    ) -> Result<usize, Refusal> {
        let tables = self.primaries(target, keys.iter().copied())?;
        if bury {
            let (coordinator, sequence) = Coordinator::of(me);
            self.coordinated(coordinator)?.bury(sequence);
        }
        let held = |(table, place): &(&Table, &Place)| {
            let bucket = table.bucket(place.key);
            if mutant!(ForeignUnlock) {
                let lock = table.locks().find(|(locked, _)| *locked == bucket);
                return lock.is_some_and(|(_, owner)| table.unlock(bucket, owner));
            }
            table.unlock(bucket, me)
        };
        Ok(tables.into_iter().zip(keys).filter(held).count())
    }

    /// The tables of keys of which this node is the primary.
    fn primaries(
        &self,
        target: Target,
        places: impl Iterator<Item = Place>,
    ) -> Result<Tables<'_>, Refusal> {
        self.check(target)?;
        let of = |place: Place| {
            self.replicas.held(place.table, self.placement.partition_of(place.key), Role::Primary)
        };
        places.map(of).collect()
    }

    /// Decodes a record that is exactly these bytes, and checks what any member can check.
    fn decode<'a>(&self, target: Target, bytes: &'a [u8]) -> Result<Record<'a>, Refusal> {
        self.check(target)?;
        let (record, len) = Record::decode(bytes).map_err(Refusal::Record)?;
        if len != bytes.len() {
            return Err(Refusal::Trailing);
        }
        if record.epoch != self.epoch() {
            return Err(Refusal::Epoch(self.epoch()));
        }
        if Coordinator::of(record.transaction).0 != record.coordinator {
            return Err(Refusal::Coordinator(record.coordinator));
        }
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

fn prefetch(table: &Table, access: &Access) {
    match access.kind {
        Kind::Read => table.prefetch(access.place.key),
        Kind::Update | Kind::Insert => table.prefetch_lock(access.place.key),
    }
}

fn make(table: &Table, me: Owner, access: Access) -> Found {
    let key = access.place.key;
    let read = match access.kind {
        Kind::Read if mutant!(LockedReadsAllowed) => read_locked(table, key, me),
        Kind::Read => table.get(key, Some(me)).map_err(LockError::from),
        Kind::Update if mutant!(LockNotTaken) => table.get(key, Some(me)).map_err(LockError::from),
        Kind::Update => table.lock_for_update(key, me),
        Kind::Insert => table.lock_for_insert(key, me).map(|version| Read { version, value: None }),
    };
    Found { bucket: table.bucket(key), read }
}

/// A read of a bucket that another transaction may have locked, for the deliberate bug.
fn read_locked(table: &Table, key: u64, me: Owner) -> Result<Read, LockError> {
    table.get(key, Some(me)).or_else(|conflict| {
        let Ok(Some(now)) = table.snapshot(table.bucket(key)) else { return Err(conflict.into()) };
        let value = now.entries.into_iter().find(|(of, _)| *of == key).map(|(_, value)| value);
        Ok(Read { version: now.version, value })
    })
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
