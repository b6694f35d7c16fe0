//! Ends the pauses of an event loop whose port has no interrupts.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::device::lock;

/// A flag that another thread sets.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    is_pausing: AtomicBool,
}

impl Bell {
    /// Ends the current or the next pause.
    pub(super) fn ring(&self) {
        *lock(&self.rung) = true;
        self.heard.notify_one();
    }

    /// Ends the current pause, if there is one. The caller has just given work to the loop, which
    /// the loop's `has_work` sees from now on.
    pub(super) fn ring_if_pausing(&self) {
        // With the fence in `pause`: the loop sees the work, or this thread sees the pause.
        fence(Ordering::SeqCst);
        if self.is_pausing.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Pauses for `time`, or until the bell rings, or not at all if the loop `has_work`.
    pub(super) fn pause(&self, time: Duration, has_work: impl Fn() -> bool) {
        self.is_pausing.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut rung = lock(&self.rung);
        if !*rung && !has_work() {
            let waited = self.heard.wait_timeout(rung, time);
            rung = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        *rung = false;
        self.is_pausing.store(false, Ordering::Relaxed);
    }
}
