//! What a coordinator has done.

use std::cell::Cell;

/// Counters of one coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Attempts that have ended: commits, aborts and unknown ones.
    pub attempts: u64,
    /// Attempts that have committed.
    pub commits: u64,
    /// Attempts that were aborted.
    pub aborts: u64,
    /// Attempts with an unknown outcome.
    pub unknown: u64,
    /// Requests as FaSST counts them, local ones included: one per key and phase, and one per record
    /// and other log replica. Unlocks of aborted attempts count, too.
    pub requests: u64,
    /// Requests sent to other nodes: one message for all keys of a phase at a node. Repetitions count
    /// again; the messages that only free records do not count.
    pub messages: u64,
    /// Messages that only free records of logs.
    pub freeing_messages: u64,
}

/// The counters of a coordinator.
#[derive(Debug, Default)]
pub(super) struct Counting(Cell<Counts>);

impl Counting {
    pub(super) fn get(&self) -> Counts {
        self.0.get()
    }

    pub(super) fn add(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.0.get();
        change(&mut counts);
        self.0.set(counts);
    }

    pub(super) fn requests(&self, count: usize) {
        self.add(|counts| counts.requests += count as u64);
    }
}
