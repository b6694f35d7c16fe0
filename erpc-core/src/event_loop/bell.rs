//! The bell of an endpoint's loop, which other threads ring.
//!
//! The loop checks the bell once per turn, with one load of a cache line that is rarely written. A
//! ring costs a system call only while the endpoint sleeps.

use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use crate::transport::Waker;

/// Notifies an endpoint's loop, whether it sleeps or not.
pub(crate) struct Bell {
    rung: AtomicU8,
    sleeping: AtomicBool,
    waker: Waker,
}

impl Bell {
    /// Deferred answers, for example from workers, are queued.
    pub(crate) const REPLIES: u8 = 1;
    /// Tasks were woken.
    pub(crate) const WAKES: u8 = 2;
    /// Closures are queued.
    pub(super) const JOBS: u8 = 4;
    /// No queue has changed, but the condition of a loop such as `run_until` may have changed.
    const NUDGE: u8 = 8;

    pub(crate) fn new(waker: Waker) -> Self {
        Self { rung: AtomicU8::new(0), sleeping: AtomicBool::new(false), waker }
    }

    /// Tells the loop that the queue of kind `what` has a new item. Call it after the push.
    pub(crate) fn ring(&self, what: u8) {
        // If the bit is set, the loop will still drain the queue: it clears the bit before it
        // drains. If it had drained before this item was pushed, the queue's lock would make the
        // cleared bit visible here.
        if self.rung.load(Ordering::Relaxed) & what == 0 {
            self.ring_anew(what);
        }
    }

    /// Tells the loop that the condition of a function such as `run_until` may have changed.
    pub(crate) fn nudge(&self) {
        self.ring_anew(Self::NUDGE);
    }

    fn ring_anew(&self, what: u8) {
        // This write, the load below and the accesses in `begin_sleep` have one total order
        // (SeqCst): either the sleeper sees the ring, or the ringing thread sees the sleeper.
        self.rung.fetch_or(what, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Whether the bell has rung. Cheap; the queues' locks provide the ordering.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed) != 0
    }

    /// Whether the bell has rung for one of `kinds`. As cheap as [`Bell::is_rung`].
    #[inline]
    pub(crate) fn is_rung_for(&self, kinds: u8) -> bool {
        self.rung.load(Ordering::Relaxed) & kinds != 0
    }

    /// Clears the bell for `kinds` and returns for which of them it had rung. Drain their queues
    /// after this call, not before.
    pub(crate) fn answer(&self, kinds: u8) -> u8 {
        self.rung.fetch_and(!kinds, Ordering::AcqRel) & kinds
    }

    /// Clears nudges and returns whether there was one: if so, the caller must check its condition
    /// before it sleeps.
    pub(crate) fn answer_nudge(&self) -> bool {
        self.answer(Self::NUDGE) != 0
    }

    /// Calls `wait` unless the bell has rung. During `wait`, rings use the waker.
    pub(crate) fn sleep(&self, wait: impl FnOnce()) {
        if self.begin_sleep() {
            wait();
        }
        self.end_sleep();
    }

    /// From here on rings use the waker. False if the bell has already rung.
    pub(crate) fn begin_sleep(&self) -> bool {
        // A swap costs the same as a SeqCst store, and loom orders it correctly with the ringing
        // threads' accesses.
        self.sleeping.swap(true, Ordering::SeqCst);
        self.rung.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn end_sleep(&self) {
        // A swap, although a store would suffice: loom does not order a store with the swaps of
        // ringing threads (see `sync`). Beside a sleep it costs nothing.
        self.sleeping.swap(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn only_a_sleeping_loop_is_woken_and_only_once() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let bell = Bell::new(Waker::new({
            let wakes = Arc::clone(&wakes);
            move || {
                wakes.fetch_add(1, Ordering::Relaxed);
            }
        }));
        bell.ring(Bell::REPLIES);
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
        bell.sleep(|| panic!("the bell has rung"));
        assert_eq!(bell.answer(Bell::REPLIES | Bell::JOBS), Bell::REPLIES);
        bell.sleep(|| {
            bell.ring(Bell::JOBS);
            bell.ring(Bell::WAKES);
        });
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
        assert!(bell.is_rung());
    }
}
