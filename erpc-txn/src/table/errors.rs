//! Why an operation on the table failed.

use std::fmt;

use super::ids::{Bucket, Owner, Version};

/// Another transaction holds the lock of the key's bucket. Abort, and try again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other transaction; none while a thread changes the bucket at this moment.
    pub owner: Option<Owner>,
}

/// The table has no room for another entry. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// All overflow blocks are in use: the table holds more than its capacity.
    Table,
    /// The bucket has as many overflow blocks as a bucket may have. The keys were chosen for this
    /// seed, or the capacity is far too small.
    Bucket,
    /// The bucket has its last version.
    Versions,
}

/// Why a key was not locked. The bucket is locked as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockError {
    /// See [`Conflict`].
    Conflict(Conflict),
    /// The key to update or delete is absent, as of this version.
    Absent(Version),
    /// The key to insert is present, as of this version.
    Present(Version),
    /// There is no room for the key.
    Full(Full),
}

/// Why a read is no longer valid. Abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// Another transaction is about to change the bucket.
    Conflict(Conflict),
    /// A commit has changed the bucket, which now has this version.
    Changed(Version),
}

/// Why writes were not committed or applied. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The caller does not own the bucket's lock; this transaction does, if any. Of a commit: its
    /// lock was never taken, was released, or was used by an earlier commit.
    NotOwner(Option<Owner>),
    /// Of [`apply`](super::Table::apply) and [`load`](super::Table::load): the bucket is locked.
    Conflict(Conflict),
    /// Of `apply`: the replica has only this version, so it has missed a commit.
    Missed(Version),
    /// The table has no such bucket.
    NoBucket(Bucket),
    /// The key is in another bucket.
    Foreign {
        /// The key.
        key: u64,
        /// Its bucket.
        bucket: Bucket,
    },
    /// Two writes are of this key.
    Repeated(u64),
    /// A value is longer than the table's [`max_value`](super::Config::max_value).
    TooLong {
        /// The key.
        key: u64,
        /// The length of its new value in bytes.
        len: usize,
    },
    /// There is no room. Cannot happen to keys that were locked for inserts.
    Full(Full),
}

impl From<Conflict> for LockError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl From<Full> for LockError {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

impl From<Full> for WriteError {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

impl From<Conflict> for WriteError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Some(owner) => write!(f, "transaction {owner} holds the lock; try again"),
            None => write!(f, "another thread changes the bucket; try again"),
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "the table is full; build it with a larger capacity",
            Self::Bucket => "the key's bucket is full; use a secret seed or a larger capacity",
            Self::Versions => "the bucket has used all its versions",
        })
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::Absent(version) => write!(f, "the key is absent at version {version}"),
            Self::Present(version) => write!(f, "the key is present at version {version}"),
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::Changed(version) => write!(f, "a commit made version {version}"),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOwner(Some(owner)) => write!(f, "transaction {owner} holds the lock"),
            Self::NotOwner(None) => write!(f, "the transaction does not hold the lock"),
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::Missed(version) => {
                write!(f, "the replica missed a commit: it has only version {version}")
            }
            Self::NoBucket(bucket) => write!(f, "the table has no bucket {bucket}"),
            Self::Foreign { key, bucket } => write!(f, "key {key} is in bucket {bucket}"),
            Self::Repeated(key) => write!(f, "key {key} has two writes"),
            Self::TooLong { key, len } => {
                write!(f, "the value of key {key} has {len} bytes, more than the table allows")
            }
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl std::error::Error for Conflict {}
impl std::error::Error for Full {}
impl std::error::Error for LockError {}
impl std::error::Error for Invalid {}
impl std::error::Error for WriteError {}
