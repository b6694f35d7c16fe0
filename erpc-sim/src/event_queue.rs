//! Events, ordered by their due times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use erpc_core::time::Instant;
use slab::Slab;

/// Events in order of their times. Events with equal times keep the order in which they were added.
pub(crate) struct EventQueue<E> {
    /// Time, sequence number, and the index in `events`. The items are small because the heap moves
    /// them often.
    due: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    events: Slab<E>,
    sequence: u64,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> Self {
        Self { due: BinaryHeap::new(), events: Slab::new(), sequence: 0 }
    }

    pub(crate) fn push(&mut self, at: Instant, event: E) {
        self.sequence += 1;
        self.due.push(Reverse((at, self.sequence, self.events.insert(event))));
    }

    /// The time of the next event.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Removes the next event.
    pub(crate) fn pop(&mut self) -> Option<E> {
        self.due.pop().map(|Reverse((_, _, place))| self.events.remove(place))
    }
}
