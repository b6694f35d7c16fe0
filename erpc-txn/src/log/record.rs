//! What a record says.

use smallvec::SmallVec;

use crate::cluster::MAX_NODES;
use crate::table::{Bucket, Owner, Version, Write};

/// The thread of a node that coordinates a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Coordinator {
    /// The node, below [`MAX_NODES`](crate::cluster::MAX_NODES).
    pub node: u16,
    /// Its thread, below [`MAX_THREADS`].
    pub thread: u16,
}

/// The highest number of coordinating threads of a node.
pub const MAX_THREADS: u16 = 1 << 8;

/// A coordinator's transactions have the sequence numbers 1 to this one: two million transactions
/// per second for a year.
pub const MAX_SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;

const SEQUENCE_BITS: u32 = 46;
const THREAD_BITS: u32 = 8;

impl Coordinator {
    /// The id of this coordinator's transaction with a sequence number. None if a number is out of
    /// range.
    #[must_use]
    pub fn transaction(self, sequence: u64) -> Option<Owner> {
        if self.node >= MAX_NODES || self.thread >= MAX_THREADS {
            return None;
        }
        if sequence == 0 || sequence > MAX_SEQUENCE {
            return None;
        }
        let thread = (u64::from(self.node) << THREAD_BITS) | u64::from(self.thread);
        Owner::new((thread << SEQUENCE_BITS) | sequence)
    }

    /// The coordinator of a transaction, and the transaction's sequence number.
    #[must_use]
    pub fn of(transaction: Owner) -> (Self, u64) {
        let thread = transaction.get() >> SEQUENCE_BITS;
        let (node, thread) = ((thread >> THREAD_BITS) as u16, (thread % (1 << THREAD_BITS)) as u16);
        (Self { node, thread }, transaction.get() & MAX_SEQUENCE)
    }
}

/// The partitions of a record. A record of few writes needs no memory apart from its own.
pub type Partitions = SmallVec<[u16; 4]>;

/// The groups of a record.
pub type Groups<'a> = SmallVec<[Group<'a>; 2]>;

/// The writes of a group.
pub type Entries<'a> = SmallVec<[Entry<'a>; 1]>;

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
    pub partitions: Partitions,
    /// Its writes, by bucket. At least one.
    pub groups: Groups<'a>,
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
    pub entries: Entries<'a>,
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
