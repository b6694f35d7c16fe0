//! The hash table of one replica of a partition: keys of 64 bits, values of up to several MiB,
//! versions, and locks that transactions hold while their messages travel.
//!
//! All operations take `&self`, may be called from any thread, and never wait for a lock: who finds
//! a bucket locked gets a [`Conflict`] and aborts. `docs/design/txn-table.md` describes the memory
//! and the reasons.
//!
//! # Buckets
//!
//! Keys are in buckets of seven slots, with overflow blocks for buckets that have more entries. The
//! bucket is the unit of locks and versions:
//!
//! * The version of a key is that of its bucket, also if the key is absent. So whoever reads that a
//!   key is absent can [`validate`](Table::validate) this later: an insert changes the version.
//! * A commit increases the bucket's version by one, however many of its keys it changes. Locks and
//!   aborts leave the version alone. No version comes twice, whatever is deleted and inserted.
//! * A transaction that has locked one key has locked the bucket. It may lock further keys of it,
//!   and commits all its writes to the bucket in one call.
//!
//! Replicas that were built with the same [`Config`] have the same buckets, so they can be compared
//! bucket by bucket, and the version of a bucket orders the commits at all of them.
//!
//! # A transaction at the primary and at a backup
//!
//! ```
//! use erpc_txn::table::{Applied, Config, Owner, Write};
//!
//! let primary = Config::new(1000).build()?;
//! let backup = Config::new(1000).build()?;
//! let me = Owner::new(1).unwrap();
//!
//! // Execute: read and lock.
//! let version = primary.lock_for_insert(7, me)?;
//! let read = primary.get(8, Some(me))?;
//! assert!(read.value.is_none());
//!
//! // Validate what was read but not locked.
//! primary.validate(primary.bucket(8), read.version, Some(me))?;
//!
//! // Commit: first at the backup, then at the primary, which unlocks.
//! let writes = [Write::put(7, b"seven")];
//! let bucket = primary.bucket(7);
//! assert_eq!(backup.apply(bucket, version, &writes)?, Applied::Now);
//! primary.commit(bucket, me, &writes)?;
//! assert_eq!(&*primary.get(7, None)?.value.unwrap(), b"seven");
//!
//! // A repeated message changes nothing.
//! assert_eq!(backup.apply(bucket, version, &writes)?, Applied::Before);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod errors;
mod hash;
mod head;
mod ids;
mod layout;
mod lock;
mod memory;
mod read;
mod snapshot;
mod value;
mod write;

#[cfg(all(test, loom))]
mod schedules;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use errors::{Conflict, Full, Invalid, LockError, WriteError};
use hash::Hash;
pub use ids::{Bucket, Owner, Version};
use layout::Sizes;
pub use layout::{Config, ConfigError, MAX_INLINE, MAX_VALUE};
use memory::Memory;
pub use read::Read;
pub use snapshot::Snapshot;
pub use value::Value;
pub use write::{Applied, Change, Write};

/// See the [module](self).
pub struct Table {
    memory: Memory,
    hash: Hash,
    /// The longest value that fits into a slot, in bytes.
    inline: usize,
    max_value: usize,
}

/// What a table uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Overflow blocks in use, including those that are reserved for inserts.
    pub overflow_blocks: u64,
    /// Values that have an allocation of their own: those in the table, and older versions of which
    /// somebody still has a [`Value`].
    pub long_values: u64,
    /// Their bytes.
    pub long_bytes: u64,
}

impl Table {
    fn with_sizes(config: Config, sizes: Sizes) -> Result<Self, ConfigError> {
        Ok(Self {
            memory: Memory::new(&sizes).map_err(ConfigError::Memory)?,
            hash: Hash::new(config.seed, sizes.buckets),
            inline: config.inline,
            max_value: config.max_value,
        })
    }

    /// The bucket of a key.
    #[inline]
    pub fn bucket(&self, key: u64) -> Bucket {
        Bucket::new(self.hash.bucket(key))
    }

    /// The number of buckets.
    #[inline]
    pub fn buckets(&self) -> u32 {
        self.memory.buckets()
    }

    /// Starts to load a key's bucket into the cache, to read the key. For a burst of requests, call
    /// this for all their keys, then [`prefetch_value`](Table::prefetch_value) for all, then execute
    /// the requests. The loads of different keys then overlap.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        self.memory.prefetch(self.hash.bucket(key));
    }

    /// Starts to load a key's value into the cache, given that `prefetch` has loaded the bucket.
    #[inline]
    pub fn prefetch_value(&self, key: u64) {
        self.memory.prefetch_value(self.hash.bucket(key), key);
    }

    /// As [`prefetch`](Table::prefetch), for a key whose bucket is to be locked or committed. `apply`
    /// and `load` need only `prefetch`.
    #[inline]
    pub fn prefetch_lock(&self, key: u64) {
        self.memory.prefetch_lock(self.hash.bucket(key));
    }

    /// As [`prefetch_lock`](Table::prefetch_lock), for a bucket. Nothing for one that does not exist.
    #[inline]
    pub fn prefetch_bucket(&self, bucket: Bucket) {
        if let Some(index) = self.index(bucket) {
            self.memory.prefetch_lock(index);
        }
    }

    /// Bytes of the table's own memory, apart from long values. They do not change.
    pub fn footprint(&self) -> usize {
        self.memory.footprint()
    }

    /// What the table uses at this moment.
    pub fn usage(&self) -> Usage {
        let (long_values, long_bytes) = self.memory.account().totals();
        Usage { overflow_blocks: self.memory.overflow(), long_values, long_bytes }
    }

    fn account(&self) -> &Arc<memory::Account> {
        self.memory.account()
    }

    /// The index of the bucket, if the table has it.
    fn index(&self, bucket: Bucket) -> Option<u32> {
        (bucket.index() < self.buckets()).then_some(bucket.index())
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("buckets", &self.buckets())
            .field("footprint", &self.footprint())
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}
