//! Room in the logs that store a coordinator's records.

use std::cell::{Cell, RefCell};

use smallvec::SmallVec;

use crate::mutants::mutant;
use crate::waiters::Waiters;

/// What the coordinator has stored in its log at one node.
///
/// Only this coordinator writes to the log, so it knows how full the log is, and waits for room
/// before it sends a record. A log never refuses a record of a transaction that holds locks.
#[derive(Debug, Default)]
pub(super) struct Space {
    bytes: Cell<usize>,
    records: Cell<usize>,
    /// Transactions that have ended, and whose records the node does not know to be free.
    ended: RefCell<Ended>,
    waiting: Waiters,
}

/// Transactions that have ended: sequence number and length of the record. Few as a rule, because each
/// record tells a log of those before it.
pub(super) type Ended = SmallVec<[(u64, usize); 4]>;

/// The most transactions that one message tells a node of.
pub(super) const MAX_TOLD: usize = 512;

/// Bounds of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) records: usize,
}

impl Space {
    /// Takes room for a record, if there is some.
    pub(super) fn take(&self, len: usize, bounds: Bounds) -> bool {
        let (bytes, records) = (self.bytes.get() + len, self.records.get() + 1);
        let fits = bytes <= bounds.bytes && records <= bounds.records;
        if fits {
            self.bytes.set(bytes);
            self.records.set(records);
        }
        fits
    }

    /// Gives back the room of records that the log has freed.
    pub(super) fn give_back(&self, freed: &[(u64, usize)]) {
        if mutant!(RoomNotGivenBack) {
            return;
        }
        let bytes: usize = freed.iter().map(|(_, len)| len).sum();
        self.bytes.set(self.bytes.get() - bytes);
        self.records.set(self.records.get() - freed.len());
        self.waiting.wake();
    }

    /// A transaction with a record of this length has ended.
    pub(super) fn end(&self, sequence: u64, len: usize) {
        self.ended.borrow_mut().push((sequence, len));
        self.waiting.wake();
    }

    /// Takes transactions that have ended, to tell the node. If the node does not learn of them,
    /// [`put_back`](Self::put_back) them.
    pub(super) fn take_ended(&self) -> Ended {
        let mut ended = self.ended.borrow_mut();
        if ended.len() <= MAX_TOLD {
            return std::mem::take(&mut *ended);
        }
        let from = ended.len() - MAX_TOLD;
        ended.drain(from..).collect()
    }

    pub(super) fn put_back(&self, ended: Ended) {
        self.ended.borrow_mut().extend(ended);
        self.waiting.wake();
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.ended.borrow().is_empty()
    }

    /// The number of records for which room is taken.
    pub(super) fn records(&self) -> usize {
        self.records.get()
    }

    /// Waits until something has changed.
    pub(super) async fn change(&self) {
        self.waiting.wait().await;
    }
}
