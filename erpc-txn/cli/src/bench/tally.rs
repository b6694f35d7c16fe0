//! What the transactions of one lane did.

use std::time::Duration;

use erpc_txn::transaction::{Reason, TransactError};
use erpc_txn::workloads::Outcome;
use erpc_txn::workloads::ycsb::NoRoom;
use hdrhistogram::Histogram;

/// Transactions of one kind, while the lane measures.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Kind {
    pub(super) succeeded: u64,
    /// The workload's predicate did not hold.
    pub(super) failed: u64,
    /// Other transactions were in the way, at each attempt.
    pub(super) conflicted: u64,
    pub(super) unknown: u64,
}

impl Kind {
    pub(super) fn all(&self) -> u64 {
        self.succeeded + self.failed + self.conflicted + self.unknown
    }
}

pub(super) struct Tally {
    pub(super) kinds: Vec<Kind>,
    /// Of transactions that succeeded, in ns.
    pub(super) latencies: Histogram<u64>,
    /// Those of the present interval.
    recent: Histogram<u64>,
    /// Keys of transactions, and those of them whose primary is the lane's node.
    pub(super) keys: u64,
    pub(super) local_keys: u64,
    /// By how much all transactions changed the workload's total, those included that were not
    /// measured.
    pub(super) added: i64,
    /// An outcome was unknown, measured or not.
    pub(super) is_unsure: bool,
    /// Why the first transaction that could not run did not.
    pub(super) broken: Option<String>,
}

/// Longer latencies are counted as this one.
const LONGEST: Duration = Duration::from_secs(60);

impl Tally {
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            kinds: vec![Kind::default(); kinds],
            latencies: latencies(),
            recent: latencies(),
            keys: 0,
            local_keys: 0,
            added: 0,
            is_unsure: false,
            broken: None,
        }
    }

    /// The latencies since the last call.
    pub(super) fn take_recent(&mut self) -> Histogram<u64> {
        std::mem::replace(&mut self.recent, latencies())
    }

    /// Adds a transaction. Returns whether the lane may go on.
    pub(super) fn add(
        &mut self,
        kind: usize,
        outcome: &Outcome,
        took: Duration,
        measured: bool,
    ) -> bool {
        match outcome {
            Outcome::Succeeded(added) => self.added += added,
            Outcome::Failed | Outcome::Conflicted => {}
            Outcome::Unknown => self.is_unsure = true,
            Outcome::Broken(error) => {
                self.broken.get_or_insert_with(|| why(error));
            }
            other => {
                self.broken.get_or_insert_with(|| format!("a transaction failed: {other:?}"));
            }
        }
        if measured {
            let kind = &mut self.kinds[kind];
            match outcome {
                Outcome::Succeeded(_) => {
                    kind.succeeded += 1;
                    self.latencies.saturating_record(took.as_nanos() as u64);
                    self.recent.saturating_record(took.as_nanos() as u64);
                }
                Outcome::Failed => kind.failed += 1,
                Outcome::Conflicted => kind.conflicted += 1,
                Outcome::Unknown => kind.unknown += 1,
                // The run ends and says why.
                _ => {}
            }
        }
        self.broken.is_none()
    }
}

/// Why a transaction could not run, and what to do.
fn why(error: &TransactError) -> String {
    match error {
        TransactError::Aborted(Reason::Explicit(why)) if why.is::<NoRoom>() => {
            format!("{why}; raise --inserts or lower --secs")
        }
        _ => format!("a transaction failed: {error}"),
    }
}

/// An empty histogram with three significant digits.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST.as_nanos() as u64, 3).expect("the bounds are valid")
}
