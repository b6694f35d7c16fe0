//! What will happen when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use erpc_core::time::Instant;

/// Events in order of time, those of one time in the order in which they were put here.
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Entry<E>>,
    sequence: u64,
}

struct Entry<E> {
    key: Reverse<(Instant, u64)>,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub(crate) fn put(&mut self, at: Instant, event: E) {
        self.sequence += 1;
        self.heap.push(Entry { key: Reverse((at, self.sequence)), event });
    }

    /// When the next event is due.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.key.0.0)
    }

    /// The next event.
    pub(crate) fn take(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|entry| (entry.key.0.0, entry.event))
    }
}
