//! Whether the last answer of a channel's resolver may be out of date.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use crate::executor::tasks::{Executor, WakeSlot};

/// Set when the resolver has to be asked again. The resolver's task waits for it.
#[derive(Default)]
pub(in crate::client) struct StaleFlag {
    set: Cell<bool>,
    waiter: Cell<WakeSlot>,
}

impl StaleFlag {
    pub(super) fn set(&self, executor: &Executor) {
        self.set.set(true);
        self.waiter.take().wake(executor);
    }

    pub(super) fn clear(&self) {
        self.set.set(false);
    }

    /// Waits until the flag is set. Only one task waits at a time.
    pub(super) async fn wait(&self, executor: &Executor) {
        poll_fn(|cx| {
            if self.set.get() {
                return Poll::Ready(());
            }
            // The previous waiter is this same task, so it needs no wake.
            drop(self.waiter.replace(executor.wake_slot(cx)));
            Poll::Pending
        })
        .await;
    }
}
