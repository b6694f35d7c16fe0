//! Ends the pauses of an event loop whose port has no interrupts.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A flag that another thread sets.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    pauses: AtomicBool,
}

impl Bell {
    /// Ends the current or the next pause.
    pub(super) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.heard.notify_one();
    }

    /// Ends the current pause. Call it after the change that the sleeper looks for in `has_work`.
    /// Cheap while there is no pause.
    pub(super) fn ring_sleeper(&self) {
        // With the fence in `pause`: either the sleeper sees the change, or this sees the sleeper.
        fence(Ordering::SeqCst);
        if self.pauses.load(Ordering::Relaxed) && self.pauses.swap(false, Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Pauses for `time`, until the bell rings, or not at all if there is work.
    pub(super) fn pause(&self, time: Duration, has_work: impl FnOnce() -> bool) {
        self.pauses.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            if !*rung {
                let waited = self.heard.wait_timeout(rung, time);
                rung = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            *rung = false;
        }
        self.pauses.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the sleeper is on a thread of its own")]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    #[test]
    fn every_change_ends_a_pause() {
        const CHANGES: u32 = 20_000;
        let (bell, changes, seen) = (Bell::default(), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while seen.load(Ordering::Relaxed) < CHANGES {
                    let old = seen.load(Ordering::Relaxed);
                    let has_work = || changes.load(Ordering::Relaxed) != old;
                    let begun = std::time::Instant::now();
                    bell.pause(Duration::from_secs(20), has_work);
                    assert!(begun.elapsed() < Duration::from_secs(10), "a change was not heard");
                    seen.store(changes.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
            for change in 1..=CHANGES {
                changes.store(change, Ordering::Relaxed);
                bell.ring_sleeper();
                while seen.load(Ordering::Relaxed) < change {
                    std::hint::spin_loop();
                }
            }
        });
    }
}
