//! Commits at a primary and at backups.

use super::Table;
use super::errors::{Full, WriteError};
use super::ids::{Bucket, Owner, Version};
use super::memory::{Edit, Exclusive, Payload, Shared};
use crate::mutants::mutant;

/// A change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The key.
    pub key: u64,
    /// What becomes of it.
    pub change: Change<'a>,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key is inserted or updated, and has this value.
    Put(&'a [u8]),
    /// The key is deleted, if it is there.
    Delete,
}

impl<'a> Write<'a> {
    /// An insert or update.
    #[inline]
    pub fn put(key: u64, value: &'a [u8]) -> Self {
        Self { key, change: Change::Put(value) }
    }

    /// A delete.
    #[inline]
    pub fn delete(key: u64) -> Self {
        Self { key, change: Change::Delete }
    }
}

/// What became of writes at a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// They were applied now.
    Now,
    /// They, or a later state, had been applied before. Nothing changed.
    Before,
}

impl Table {
    /// Commits all writes of transaction `me` to a bucket, and unlocks the bucket. Readers see all
    /// writes or none. Returns the new version, one above that at which the bucket was locked.
    ///
    /// # Errors
    ///
    /// If `me` does not hold the lock, or a write does not fit the table. Then nothing is changed,
    /// and a held lock stays.
    #[inline]
    pub fn commit(
        &self,
        bucket: Bucket,
        me: Owner,
        writes: &[Write<'_>],
    ) -> Result<Version, WriteError> {
        let (index, cells) = self.prepare(bucket, writes)?;
        let exclusive = self.memory.claim(index, me).map_err(WriteError::NotOwner)?;
        match change(exclusive, writes, cells, self.inline) {
            Ok(version) => Ok(version),
            Err((exclusive, full)) => {
                exclusive.keep(me);
                Err(full.into())
            }
        }
    }

    /// Applies at a backup what the primary commits, or will commit, to a bucket that has version
    /// `base` before. The same writes may come several times. After this the bucket has the version
    /// after `base`, or a later one.
    ///
    /// # Errors
    ///
    /// If the backup has missed a commit before this one, the bucket is locked, or a write does not
    /// fit the table. Then nothing is changed.
    #[inline]
    pub fn apply(
        &self,
        bucket: Bucket,
        base: Version,
        writes: &[Write<'_>],
    ) -> Result<Applied, WriteError> {
        let (index, cells) = self.prepare(bucket, writes)?;
        let exclusive = self.memory.lock(index)?;
        let version = exclusive.version();
        if version != base {
            exclusive.release();
            return if version > base {
                Ok(Applied::Before)
            } else {
                Err(WriteError::Missed(version))
            };
        }
        match change(exclusive, writes, cells, self.inline) {
            Ok(_) => Ok(Applied::Now),
            Err((exclusive, full)) => {
                exclusive.release();
                Err(full.into())
            }
        }
    }

    /// Puts one key outside of transactions, as a commit of its own. For the first load of a table:
    /// load the same keys in the same order at all replicas, and they have the same versions.
    ///
    /// # Errors
    ///
    /// If the bucket is locked, or the write does not fit the table. Then nothing is changed.
    #[inline]
    pub fn load(&self, key: u64, value: &[u8]) -> Result<Version, WriteError> {
        let writes = [Write::put(key, value)];
        let (index, cells) = self.prepare(self.bucket(key), &writes)?;
        change(self.memory.lock(index)?, &writes, cells, self.inline).map_err(
            |(exclusive, full)| {
                exclusive.release();
                full.into()
            },
        )
    }

    /// Checks writes, and makes the cells of their long values before any lock is taken.
    #[inline]
    fn prepare(
        &self,
        bucket: Bucket,
        writes: &[Write<'_>],
    ) -> Result<(u32, Vec<Shared>), WriteError> {
        let index = self.index(bucket).ok_or(WriteError::NoBucket(bucket))?;
        let mut long = false;
        for write in writes {
            let of = self.bucket(write.key);
            if of != bucket {
                return Err(WriteError::Foreign { key: write.key, bucket: of });
            }
            if let Change::Put(value) = write.change {
                let len = value.len();
                if len > self.max_value {
                    return Err(WriteError::TooLong { key: write.key, len });
                }
                long |= len > self.inline;
            }
        }
        if let Some(key) = repeated(writes) {
            return Err(WriteError::Repeated(key));
        }
        Ok((index, if long { self.cells(writes) } else { Vec::new() }))
    }

    /// A cell for each long value, the last first.
    #[cold]
    fn cells(&self, writes: &[Write<'_>]) -> Vec<Shared> {
        let values = writes.iter().rev().filter_map(|write| match write.change {
            Change::Put(value) if value.len() > self.inline => Some(value),
            _ => None,
        });
        values.map(|value| Shared::new(value, self.account())).collect()
    }
}

/// The first key with two writes.
#[inline]
fn repeated(writes: &[Write<'_>]) -> Option<u64> {
    const FEW: usize = 8;
    match writes {
        [_] => None,
        _ if writes.len() <= FEW => {
            let same = |(i, write): (usize, &Write<'_>)| {
                writes[..i].iter().any(|other| other.key == write.key).then_some(write.key)
            };
            writes.iter().enumerate().find_map(same)
        }
        _ => {
            let mut keys: Vec<_> = writes.iter().map(|write| write.key).collect();
            keys.sort_unstable();
            keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
        }
    }
}

/// Makes the writes and publishes the next version, or fails before any change.
#[inline(always)]
fn change<'t>(
    mut exclusive: Exclusive<'t>,
    writes: &[Write<'_>],
    cells: Vec<Shared>,
    inline: usize,
) -> Result<Version, (Exclusive<'t>, Full)> {
    let old = exclusive.version();
    let Some(version) = old.next() else {
        return Err((exclusive, Full::Versions));
    };
    let inserts = match writes {
        // Fails before any change if it has no room, so one search for the key is enough.
        [_] => 0,
        _ => {
            let is_insert = |write: &&Write<'_>| {
                matches!(write.change, Change::Put(_)) && !exclusive.contains(write.key)
            };
            writes.iter().filter(is_insert).count()
        }
    };
    if let Err(full) = exclusive.make_room_for(inserts) {
        return Err((exclusive, full));
    }
    let mut edit = Edit::new(exclusive);
    if let Err(full) = put_all(&mut edit, writes, cells, inline) {
        return Err((edit.give_up(), full));
    }
    // After the inserts. A delete can take a block from the chain, with slots that were counted as
    // room for the inserts.
    for write in writes {
        if write.change == Change::Delete {
            edit.delete(write.key);
        }
    }
    edit.publish(if mutant!(VersionReused) { old } else { version });
    Ok(version)
}

/// Makes the puts among the writes. Fails only at the first.
#[inline(always)]
fn put_all(
    edit: &mut Edit<'_>,
    writes: &[Write<'_>],
    mut cells: Vec<Shared>,
    inline: usize,
) -> Result<(), Full> {
    for write in writes {
        if let Change::Put(value) = write.change {
            let payload = if value.len() <= inline {
                Payload::Inline(value)
            } else {
                Payload::Shared(cells.pop().expect("a cell was made for each long value"))
            };
            edit.put(write.key, payload)?;
        }
    }
    Ok(())
}

impl Table {
    /// Replaces a bucket's contents, if `version` is newer than the bucket's. The entries are of
    /// this bucket, each key once.
    pub(super) fn replace(
        &self,
        bucket: Bucket,
        version: Version,
        entries: &[Write<'_>],
    ) -> Result<Applied, WriteError> {
        let (index, cells) = self.prepare(bucket, entries)?;
        let mut exclusive = self.memory.lock(index)?;
        if exclusive.version() >= version {
            exclusive.release();
            return Ok(Applied::Before);
        }
        let old = exclusive.keys();
        // Counts the slots that deleted keys leave as not free. So a bucket whose chain is full may
        // be refused, although the new contents would fit.
        let inserts = entries.iter().filter(|entry| !old.contains(&entry.key)).count();
        if let Err(full) = exclusive.make_room_for(inserts) {
            exclusive.release();
            return Err(full.into());
        }
        let mut edit = Edit::new(exclusive);
        if let Err(full) = put_all(&mut edit, entries, cells, self.inline) {
            edit.give_up().release();
            return Err(full.into());
        }
        for &key in old.iter().filter(|&&key| !entries.iter().any(|entry| entry.key == key)) {
            edit.delete(key);
        }
        edit.publish(version);
        Ok(Applied::Now)
    }
}
