//! Sequence numbers of a coordinator's transactions, and which of them may still be active.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::mutants::mutant;

/// The transactions from the oldest that has not ended.
#[derive(Debug)]
pub(super) struct Sequences {
    /// All transactions before this one have ended.
    floor: Cell<u64>,
    /// From `floor` on, whether each has ended. The first has not.
    ended: RefCell<VecDeque<bool>>,
}

impl Sequences {
    pub(super) fn new() -> Self {
        Self { floor: Cell::new(1), ended: RefCell::new(VecDeque::new()) }
    }

    /// The number of the next transaction.
    pub(super) fn begin(&self) -> u64 {
        let mut ended = self.ended.borrow_mut();
        ended.push_back(false);
        self.floor.get() + ended.len() as u64 - 1
    }

    /// No message of the transaction travels any more that changes anything.
    pub(super) fn end(&self, sequence: u64) {
        let mut ended = self.ended.borrow_mut();
        let at = (sequence - self.floor.get()) as usize;
        ended[at] = true;
        while ended.front() == Some(&true) {
            ended.pop_front();
            self.floor.set(self.floor.get() + 1);
        }
    }

    pub(super) fn floor(&self) -> u64 {
        if mutant!(FloorTooHigh) {
            return self.floor.get() + self.ended.borrow().len() as u64;
        }
        self.floor.get()
    }

    /// Transactions that have not ended.
    pub(super) fn active(&self) -> usize {
        self.ended.borrow().iter().filter(|ended| !**ended).count()
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
