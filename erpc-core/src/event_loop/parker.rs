//! Sleeping and waking for the loom tests. A lost wake-up appears as a deadlock.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};

use crate::event_loop::bell::Bell;
use crate::transport::Waker;

/// Sleeps and wakes like a transport's `wait` and waker: a wake ends the current or the next sleep.
#[derive(Default)]
pub(crate) struct LoomParker {
    called: Mutex<bool>,
    changed: Condvar,
}

impl LoomParker {
    pub(crate) fn new() -> (Arc<Self>, Arc<Bell>) {
        let parker = Arc::new(Self::default());
        let caller = Arc::clone(&parker);
        let waker = Waker::new(move || {
            *caller.called.lock().expect("no panic") = true;
            caller.changed.notify_one();
        });
        (parker, Arc::new(Bell::new(waker)))
    }

    pub(crate) fn wait(&self) {
        let mut called = self.called.lock().expect("no panic");
        while !*called {
            called = self.changed.wait(called).expect("no panic");
        }
        *called = false;
    }
}
