//! A queue from several threads to one, without locks: Vyukov's bounded queue.
//!
//! Each slot has a turn. In round `r` (from 0) of a queue of `n` slots, slot `i` accepts an item at
//! turn `r*n + i` and hands it out at the next turn. A thread that is stopped between claiming a
//! slot and filling it delays the receiver, but no other sender.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

struct Slot<T> {
    turn: AtomicU32,
    item: UnsafeCell<MaybeUninit<T>>,
}

/// On a cache line of its own.
#[repr(align(64))]
struct Position(AtomicU32);

/// A bounded queue of plain values, which need no drop.
pub(super) struct Inbox<T: Copy> {
    slots: Box<[Slot<T>]>,
    tail: Position,
    head: Position,
}

// SAFETY: a slot's item is accessed only by the thread whose turn it is: the exchange of `tail` or
// `head` gives a turn to one thread, and `turn` orders the accesses of one turn and the next.
unsafe impl<T: Copy + Send> Sync for Inbox<T> {}

impl<T: Copy> Inbox<T> {
    /// A queue for `capacity` items, rounded up to a power of two; at least 2.
    pub(super) fn new(capacity: u32) -> Self {
        let slot = |turn| Slot {
            turn: AtomicU32::new(turn),
            item: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Self {
            slots: (0..capacity.max(2).next_power_of_two()).map(slot).collect(),
            tail: Position(AtomicU32::new(0)),
            head: Position(AtomicU32::new(0)),
        }
    }

    #[inline]
    fn slot(&self, at: u32) -> &Slot<T> {
        &self.slots[at as usize & (self.slots.len() - 1)]
    }

    /// Adds an item; false if the queue is full. Repeats only when another thread has added one.
    pub(super) fn push(&self, item: T) -> bool {
        let mut at = self.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(at);
            let turn = slot.turn.load(Ordering::Acquire);
            if turn != at {
                // An item of the last round lies in the slot, or another thread was faster.
                let now = self.tail.0.load(Ordering::Relaxed);
                if now == at {
                    return false;
                }
                at = now;
                continue;
            }
            let next = at.wrapping_add(1);
            match self.tail.0.compare_exchange_weak(at, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    // SAFETY: the exchange gave turn `at` to this thread alone, and the thread of
                    // the turn before has released the slot.
                    unsafe { (*slot.item.get()).write(item) };
                    slot.turn.store(next, Ordering::Release);
                    return true;
                }
                Err(now) => at = now,
            }
        }
    }

    /// Takes the oldest item.
    #[inline]
    pub(super) fn pop(&self) -> Option<T> {
        let mut at = self.head.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(at);
            let next = at.wrapping_add(1);
            if slot.turn.load(Ordering::Acquire) != next {
                let now = self.head.0.load(Ordering::Relaxed);
                if now == at {
                    return None;
                }
                at = now;
                continue;
            }
            match self.head.0.compare_exchange_weak(at, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    // SAFETY: the exchange gave this turn to this thread alone.
                    let item = unsafe { *slot.item.get() };
                    // SAFETY: the item was written before the turn was released.
                    let item = unsafe { item.assume_init() };
                    slot.turn.store(at.wrapping_add(self.slots.len() as u32), Ordering::Release);
                    return Some(item);
                }
                Err(now) => at = now,
            }
        }
    }

    /// Whether an item can be taken.
    #[inline]
    pub(super) fn has_item(&self) -> bool {
        let at = self.head.0.load(Ordering::Relaxed);
        self.slot(at).turn.load(Ordering::Acquire) == at.wrapping_add(1)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the queue is for several threads")]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_full_queue_refuses_and_an_empty_one_has_nothing() {
        let inbox = Inbox::new(3);
        for round in 0..5 {
            assert!(!inbox.has_item() && inbox.pop().is_none());
            for item in 0..4 {
                assert!(inbox.push(round * 4 + item));
            }
            assert!(!inbox.push(99), "four slots");
            for item in 0..4 {
                assert!(inbox.has_item());
                assert_eq!(inbox.pop(), Some(round * 4 + item));
            }
        }
    }

    #[test]
    fn every_item_arrives_once_and_in_the_order_of_its_sender() {
        const ITEMS: u32 = if cfg!(miri) { 200 } else { 200_000 };
        let inbox = Inbox::new(16);
        thread::scope(|scope| {
            for sender in 0..2 {
                let inbox = &inbox;
                scope.spawn(move || {
                    for item in 0..ITEMS {
                        while !inbox.push((sender, item)) {
                            thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0; 2];
            while next != [ITEMS; 2] {
                match inbox.pop() {
                    Some((sender, item)) => {
                        assert_eq!(item, next[sender as usize]);
                        next[sender as usize] += 1;
                    }
                    None => thread::yield_now(),
                }
            }
        });
        assert!(inbox.pop().is_none());
    }
}
