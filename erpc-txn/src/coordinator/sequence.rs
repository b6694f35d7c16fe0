//! Sequence numbers of a coordinator's transactions, and which of them may still be active.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::mutants::mutant;
use crate::waiters::Waiters;

/// The transactions that have not ended.
#[derive(Debug)]
pub(super) struct Sequences {
    /// The number of the next transaction.
    next: Cell<u64>,
    /// Ascending. Few, because each is a task or a commit that waits for a node.
    active: RefCell<VecDeque<u64>>,
    /// For the end of the last one.
    waiting: Waiters,
}

impl Sequences {
    pub(super) fn new() -> Self {
        Self { next: Cell::new(1), active: RefCell::default(), waiting: Waiters::default() }
    }

    /// The number of a new transaction.
    pub(super) fn begin(&self) -> u64 {
        let sequence = self.next.get();
        self.next.set(sequence + 1);
        self.active.borrow_mut().push_back(sequence);
        sequence
    }

    /// No message of the transaction travels any more that changes anything.
    pub(super) fn end(&self, sequence: u64) {
        let mut active = self.active.borrow_mut();
        if let Ok(at) = active.binary_search(&sequence) {
            active.remove(at);
        }
        if active.is_empty() {
            self.waiting.wake();
        }
    }

    /// Waits until all transactions have ended.
    pub(super) async fn idle(&self) {
        while self.active() > 0 {
            self.waiting.wait().await;
        }
    }

    /// All transactions before this one have ended.
    pub(super) fn floor(&self) -> u64 {
        if mutant!(FloorTooHigh) {
            return self.next.get();
        }
        self.active.borrow().front().copied().unwrap_or(self.next.get())
    }

    /// The number of transactions that have not ended.
    pub(super) fn active(&self) -> usize {
        self.active.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_oldest_active_transaction() {
        let sequences = Sequences::new();
        let [first, second, third] = [(); 3].map(|()| sequences.begin());
        assert_eq!((first, sequences.floor()), (1, 1));
        sequences.end(second);
        assert_eq!((sequences.floor(), sequences.active()), (1, 2));
        sequences.end(first);
        assert_eq!(sequences.floor(), third);
        sequences.end(third);
        assert_eq!((sequences.floor(), sequences.active()), (4, 0));
        assert_eq!(sequences.begin(), 4);
    }
}
