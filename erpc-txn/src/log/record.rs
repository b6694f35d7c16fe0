//! What a record says.

use crate::table::{Bucket, Owner, Version, Write};

/// The thread of a node that coordinates a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Coordinator {
    /// The node.
    pub node: u16,
    /// Its thread.
    pub thread: u16,
}

/// One transaction that is about to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The epoch of the configuration in which the transaction ran.
    pub epoch: u32,
    /// Who coordinates it.
    pub coordinator: Coordinator,
    /// Its id, which is also the owner of its locks.
    pub transaction: Owner,
    /// All partitions that it writes to, ascending, each once. Recovery asks these what became of
    /// the transaction.
    pub partitions: Vec<u16>,
    /// Its writes, by bucket. At least one.
    pub groups: Vec<Group<'a>>,
}

/// The writes to one bucket, which are applied together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// The table.
    pub table: u16,
    /// The partition, one of the record's.
    pub partition: u16,
    /// The bucket of all keys.
    pub bucket: Bucket,
    /// The version of the bucket that the transaction has locked.
    pub base: Version,
    /// The version of the bucket with these writes: the one after `base`.
    pub new: Version,
    /// The writes, at least one.
    pub entries: Vec<Entry<'a>>,
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: u64,
    /// What happens to it.
    pub operation: Operation<'a>,
}

/// What happens to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The key was absent, and gets this value.
    Insert(&'a [u8]),
    /// The key was present, and gets this value.
    Update(&'a [u8]),
    /// The key was present, and is deleted.
    Delete,
}

impl<'a> Entry<'a> {
    /// The write for a table.
    #[must_use]
    pub fn write(&self) -> Write<'a> {
        match self.operation {
            Operation::Insert(value) | Operation::Update(value) => Write::put(self.key, value),
            Operation::Delete => Write::delete(self.key),
        }
    }
}
