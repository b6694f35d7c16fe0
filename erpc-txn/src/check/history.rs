//! What transactions did, as their coordinators recorded it.

use std::collections::BTreeMap;
use std::fmt;

use super::{Summary, Violation, buckets};

/// A bucket: the unit of locks and versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Item {
    /// The table.
    pub table: u16,
    /// The partition.
    pub partition: u16,
    /// The index of the bucket in its table, from 0.
    pub bucket: u32,
}

/// A key that a transaction read. Reads of the transaction's own writes are not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observed {
    /// The bucket of the key.
    pub item: Item,
    /// The key.
    pub key: u64,
    /// The version of the bucket.
    pub version: u64,
    /// The [`fingerprint`] of the value, none if the key was absent.
    pub value: Option<u64>,
}

/// The writes of a transaction to one bucket. A transaction has at most one of them per bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The bucket.
    pub item: Item,
    /// The version that the transaction locked, below `u64::MAX`. The writes make the one after it.
    pub base: u64,
    /// Keys with the [`fingerprint`]s of their new values, none if the key was deleted. If a key is
    /// there more than once, the last entry counts, and the earlier ones are values that only the
    /// transaction itself may see.
    pub entries: Vec<(u64, Option<u64>)>,
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was reported as committed.
    Committed,
    /// It was reported as aborted, so it changed nothing.
    Aborted,
    /// Its coordinator does not know. It may have committed, or may still do so.
    Unknown,
}

/// What one transaction did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Its id. No two transactions of a history have the same.
    pub id: u64,
    /// When its caller began it, in nanoseconds of a clock that all callers share.
    pub began: u64,
    /// When its caller learned the outcome, in nanoseconds of the same clock, not before `began`. Not
    /// looked at if the outcome is unknown: such a transaction never ends.
    pub ended: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it read. Not looked at if the transaction aborted.
    pub reads: Vec<Observed>,
    /// What it wrote, or was about to write if it aborted. A coordinator that does not know the
    /// outcome must record all writes that it may have sent.
    pub writes: Vec<Written>,
}

/// The contents of a bucket when the history begins.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Contents {
    pub(super) version: u64,
    pub(super) entries: Vec<(u64, u64)>,
}

/// All transactions of a run, and the contents of the store before them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct History {
    pub(super) initial: BTreeMap<Item, Contents>,
    pub(super) transactions: Vec<Transaction>,
}

impl History {
    /// A history without transactions, of a store with empty buckets at version 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says what a bucket contains before the history begins: its version, and keys with the
    /// [`fingerprint`]s of their values. It replaces what was said about the bucket before. Buckets
    /// that are not named are empty and have version 0.
    pub fn set_initial(
        &mut self,
        item: Item,
        version: u64,
        entries: impl IntoIterator<Item = (u64, u64)>,
    ) {
        let entries = entries.into_iter().collect();
        self.initial.insert(item, Contents { version, entries });
    }

    /// Adds a transaction. Their order has no meaning.
    pub fn push(&mut self, transaction: Transaction) {
        self.transactions.push(transaction);
    }

    /// The transactions so far.
    #[must_use]
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// Checks that the history is strictly serializable; see the [module](super) for what this
    /// means and what it costs.
    ///
    /// # Errors
    ///
    /// A [`Violation`] if it is not.
    pub fn check(&self) -> Result<Summary, Violation> {
        buckets::check(&self.initial, &self.transactions)
    }
}

impl Extend<Transaction> for History {
    fn extend<T: IntoIterator<Item = Transaction>>(&mut self, transactions: T) {
        self.transactions.extend(transactions);
    }
}

/// A number that stands for a value in a history. The same bytes have the same number in all
/// processes on all machines. Different values of the same length up to 8 bytes have different
/// numbers. Other values have equal numbers by chance once in 2⁶⁴ pairs, unless somebody constructs
/// them.
#[must_use]
pub fn fingerprint(value: &[u8]) -> u64 {
    // Each step is a bijection of the state for a given word, and of the word for a given state.
    let mut state = mix(value.len() as u64 ^ 0x243f_6a88_85a3_08d3);
    for word in value.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        state = mix(state ^ u64::from_le_bytes(bytes));
    }
    state
}

/// The finalizer of SplitMix64.
fn mix(mut state: u64) -> u64 {
    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, partition, bucket } = self;
        write!(f, "bucket {bucket} of table {table}, partition {partition}")
    }
}
