//! Whole buckets: to compare replicas, and to copy one.

use super::errors::{Conflict, WriteError};
use super::ids::{Bucket, Version};
use super::memory::Access;
use super::write::{Applied, Write};
use super::{Table, Value};

/// The committed contents of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The bucket.
    pub bucket: Bucket,
    /// Its version.
    pub version: Version,
    /// Its keys and values, sorted by key.
    pub entries: Vec<(u64, Value)>,
}

impl Table {
    /// The contents of a bucket as they were committed together. Locks of transactions do not hinder
    /// it. None if the table has no such bucket.
    ///
    /// # Errors
    ///
    /// If commits change the bucket again and again during the read. Try again.
    pub fn snapshot(&self, bucket: Bucket) -> Result<Option<Snapshot>, Conflict> {
        let Some(index) = self.index(bucket) else { return Ok(None) };
        let contents = self.memory.contents(index, Access::Committed)?;
        let (version, entries) = (contents.version, contents.entries);
        Ok(Some(Snapshot { bucket, version, entries }))
    }

    /// Snapshots of all buckets that any commit has changed, in order. Each is of its own moment.
    pub fn snapshots(&self) -> impl Iterator<Item = Result<Snapshot, Conflict>> {
        let all = (0..self.buckets()).map(|index| self.snapshot(Bucket::new(index)).transpose());
        all.flatten().filter(|snapshot| !matches!(snapshot, Ok(s) if s.version == Version::ZERO))
    }

    /// Makes a bucket equal to another replica's, if that is newer.
    ///
    /// # Errors
    ///
    /// As [`apply`](Table::apply), except that no commit in between is missed.
    pub fn install(&self, snapshot: &Snapshot) -> Result<Applied, WriteError> {
        let writes: Vec<_> =
            snapshot.entries.iter().map(|(key, value)| Write::put(*key, value)).collect();
        self.replace(snapshot.bucket, snapshot.version, &writes)
    }
}
