//! What threads do to an endpoint and its workers, under every schedule. A wake-up that is lost shows
//! as a deadlock.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};

use crate::event_loop::mailbox::Bell;
use crate::transport::Waker;

/// Where an endpoint sleeps, as a transport's `wait` and waker do it: a call ends the present sleep or
/// the next one.
#[derive(Default)]
struct Bed {
    called: Mutex<bool>,
    changed: Condvar,
}

impl Bed {
    fn new() -> (Arc<Self>, Arc<Bell>) {
        let bed = Arc::new(Self::default());
        let caller = Arc::clone(&bed);
        let waker = Waker::new(move || {
            *caller.called.lock().expect("no panic") = true;
            caller.changed.notify_one();
        });
        (bed, Arc::new(Bell::new(waker)))
    }

    fn wait(&self) {
        let mut called = self.called.lock().expect("no panic");
        while !*called {
            called = self.changed.wait(called).expect("no panic");
        }
        *called = false;
    }
}
