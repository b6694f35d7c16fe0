//! The doorbell of an endpoint's loop, which other threads ring.
//!
//! The loop looks at the bell once per turn, which is one load of a line that is rarely written. Only a bell
//! that rings while the endpoint sleeps costs a system call.

use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use crate::transport::Waker;

/// Gets the attention of an endpoint's loop, asleep or not.
pub(crate) struct Bell {
    rung: AtomicU8,
    sleeping: AtomicBool,
    waker: Waker,
}

impl Bell {
    /// Replies of workers and continuations wait.
    pub(super) const REPLIES: u8 = 1;
    /// Tasks were woken.
    pub(crate) const WAKES: u8 = 2;
    /// Closures wait.
    pub(super) const JOBS: u8 = 4;
    /// Nothing waits in a queue; the condition of a loop, as of `run_until`, may have changed.
    const NUDGE: u8 = 8;

    pub(crate) fn new(waker: Waker) -> Self {
        Self { rung: AtomicU8::new(0), sleeping: AtomicBool::new(false), waker }
    }

    /// Tells the endpoint that there is something in the queue of kind `what`, put there before.
    pub(crate) fn ring(&self, what: u8) {
        // Rung already, and not answered: the loop clears the bit before it drains the queue. Had it drained
        // the queue before the item was there, the queue's lock would show the cleared bit here.
        if self.rung.load(Ordering::Relaxed) & what == 0 {
            self.ring_anew(what);
        }
    }

    /// Tells the endpoint that its loop's condition may have changed.
    pub(crate) fn nudge(&self) {
        self.ring_anew(Self::NUDGE);
    }

    fn ring_anew(&self, what: u8) {
        // One total order of this write, the load below and those of `sleep`: either the sleeper sees
        // the ring or the ringer sees the sleeper.
        self.rung.fetch_or(what, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Whether anything waits. Cheap; the queues' locks give the ordering.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed) != 0
    }

    /// Silences the bell for `kinds` and returns for which of them it had rung. Look into their
    /// queues afterwards.
    pub(crate) fn answer(&self, kinds: u8) -> u8 {
        self.rung.fetch_and(!kinds, Ordering::AcqRel) & kinds
    }

    /// Silences the bell for nudges, and says whether there was one: if so, the caller has to look at
    /// its condition before it sleeps.
    pub(crate) fn answer_nudge(&self) -> bool {
        self.answer(Self::NUDGE) != 0
    }

    /// Calls `wait`, during which rings use the waker, unless the bell has rung.
    pub(crate) fn sleep(&self, wait: impl FnOnce()) {
        if self.begin_sleep() {
            wait();
        }
        self.end_sleep();
    }

    /// From here on rings use the waker; false if the bell has rung already.
    pub(crate) fn begin_sleep(&self) -> bool {
        // A swap costs what the store would, and loom knows its place among those of the ringers.
        self.sleeping.swap(true, Ordering::SeqCst);
        self.rung.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn end_sleep(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn only_a_sleeper_is_woken_and_only_once() {
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
