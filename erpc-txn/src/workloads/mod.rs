//! The benchmarks of transaction stores: TATP, SmallBank, objects and YCSB.
//!
//! A [`Workload`] has a population, which [`load`] puts into the replicas of a participant without
//! transactions, and a mix of transactions. [`attempt`] runs one of them:
//!
//! ```text
//! choose ──> Choice ──> attempt ──> Workload::run, once per attempt ──> Outcome
//!   kind and keys          │
//!                          └─ predicate fails: `Failed`; other transactions: `Conflicted`
//! ```
//!
//! The definitions are those of FaSST and DrTM+H, where the modules do not say otherwise. All accesses
//! of a phase are one batch. Populations depend on the settings and the keys alone, so that all
//! nodes load the same.
#![forbid(unsafe_code)]

pub mod objects;
mod random;
pub mod smallbank;
pub mod tatp;
pub mod ycsb;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use erpc::Transport;

pub use random::{Random, Zipf};

use crate::cluster::Placement;
use crate::coordinator::Node;
use crate::participant::{Participant, Place};
use crate::table::{Config, WriteError};
use crate::transaction::{Abort, Backend, Limits, Reason, TransactError, Transaction};

/// A benchmark: tables, their population, and a mix of transactions.
pub trait Workload: Send + Sync + 'static {
    /// One transaction: its kind, its keys, and what it writes. The same for all of its attempts.
    type Choice: Clone + fmt::Debug + 'static;

    /// The kinds of transactions.
    const KINDS: &'static [&'static str];

    /// The tables, for [`Settings::tables`](crate::participant::Settings::tables), in a store with
    /// this many partitions.
    fn tables(&self, partitions: u16) -> BTreeMap<u16, Config>;

    /// Calls `put` with each row of the population: its table, key and value.
    ///
    /// # Errors
    ///
    /// The first error of `put`.
    fn rows<E>(&self, put: impl FnMut(u16, u64, &[u8]) -> Result<(), E>) -> Result<(), E>;

    /// Chooses a transaction.
    fn choose(&self, placement: &dyn Placement, random: &mut Random) -> Self::Choice;

    /// The index of the transaction's kind in [`KINDS`](Self::KINDS).
    fn kind(choice: &Self::Choice) -> usize;

    /// Calls `each` with the keys that the transaction is about to access. Keys that depend on what
    /// it reads are included as if the reads succeed. Comes before [`run`](Self::run), too, to prefetch.
    fn places(&self, choice: &Self::Choice, each: impl FnMut(Place));

    /// Runs one attempt, up to its commit. Returns by how much it changes the
    /// [`total`](Self::total).
    ///
    /// # Errors
    ///
    /// [`Abort`] if the attempt cannot commit, from [`Failed`] if the benchmark's predicate does not
    /// hold.
    fn run<B: Backend>(
        &self,
        tx: &Transaction<B>,
        choice: &Self::Choice,
    ) -> impl Future<Output = Result<i64, Abort>>;

    /// A sum over all rows, whose changes are known; none if the workload has no such sum.
    fn total(&self, rows: &mut dyn Iterator<Item = (u16, &[u8])>) -> Option<i64> {
        let _ = rows;
        None
    }
}

/// A benchmark's predicate does not hold: a row is missing, or there is too little money. The
/// transaction is aborted: it counts as an attempt, not as a commit, and is not tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the benchmark's predicate does not hold")
    }
}

impl Error for Failed {}

/// How a transaction of a workload ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It committed. By how much it changed the workload's [`total`](Workload::total).
    Succeeded(i64),
    /// Its predicate did not hold.
    Failed,
    /// Other transactions were in its way, at each attempt.
    Conflicted,
    /// It may commit later.
    Unknown,
    /// It could not run: a member is dead, or the workload has no room ([`ycsb::NoRoom`]).
    Broken(TransactError),
}

/// Runs a transaction. The benchmarks' figures are for one attempt, see [`Limits::attempts`].
pub async fn attempt<W: Workload, T: Transport>(
    node: &Node<T>,
    workload: &W,
    choice: &W::Choice,
    limits: Limits,
) -> Outcome {
    let done = node.transact_within(limits, async |tx| workload.run(&tx, choice).await).await;
    match done {
        Ok(added) => Outcome::Succeeded(added),
        Err(TransactError::Unknown { .. }) => Outcome::Unknown,
        Err(TransactError::Aborted(reason)) => match reason {
            Reason::Explicit(error) if error.is::<Failed>() => Outcome::Failed,
            Reason::Present(_) => Outcome::Failed,
            Reason::Conflict(_) | Reason::Changed(_) => Outcome::Conflicted,
            reason => Outcome::Broken(TransactError::Aborted(reason)),
        },
    }
}

/// Loads a workload's population into all replicas that a participant holds. Returns the number of
/// rows that it has loaded, those of backups included. Every participant must load before the first
/// transaction.
///
/// # Errors
///
/// If a table has no room or refuses a value: its settings are not those of the workload.
pub fn load<W: Workload>(workload: &W, into: &Participant) -> Result<u64, WriteError> {
    let mut rows = 0;
    workload.rows(|table, key, value| {
        let partition = into.placement().partition_of(key);
        if let Some(replica) = into.replica(table, partition) {
            replica.load(key, value)?;
            rows += 1;
        }
        Ok::<_, WriteError>(())
    })?;
    Ok(rows)
}

/// A table for its share of `rows`. Shares differ by chance, and some workloads insert.
fn table(rows: u64, partitions: u16, value: usize) -> Config {
    let share = rows.div_ceil(u64::from(partitions.max(1)));
    let capacity = usize::try_from(share.saturating_add(share / 20 + 200)).unwrap_or(usize::MAX);
    Config::new(capacity).inline(value.min(crate::table::MAX_INLINE)).max_value(value)
}
