//! What the tests under loom sleep on. A wake-up that is lost shows as a deadlock.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};

use crate::event_loop::bell::Bell;
use crate::transport::Waker;

/// Sleeps and wakes as a transport's `wait` and waker do: a wake-up ends the present sleep or the next one.
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
