//! Ends the pauses of an event loop whose port has no interrupts.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A flag that another thread sets.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    /// Ends the current or the next pause.
    pub(super) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.heard.notify_one();
    }

    /// Pauses for `time`, or until the bell rings.
    pub(super) fn pause(&self, time: Duration) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            let waited = self.heard.wait_timeout(rung, time);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung = false;
    }
}
