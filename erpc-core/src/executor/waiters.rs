//! Tasks that wait for the same event.

use std::task::Context;

use super::tasks::{Executor, WakeSlot};

/// Tasks that wait for the same event: usually one, which costs no allocation. Each is stored once,
/// however often it is polled.
#[derive(Default)]
pub(crate) struct Waiters {
    first: WakeSlot,
    others: Vec<WakeSlot>,
}

impl Waiters {
    /// Adds the task that polls with `cx`.
    pub(crate) fn add(&mut self, executor: &Executor, cx: &Context<'_>) {
        let slot = executor.wake_slot(cx);
        if let WakeSlot::Empty = self.first {
            self.first = slot;
        } else if !self.slots().any(|there| there.is_same(&slot)) {
            self.others.push(slot);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots().filter(|slot| !matches!(slot, WakeSlot::Empty)).count()
    }

    fn slots(&self) -> impl Iterator<Item = &WakeSlot> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Wakes all waiting tasks.
    pub(crate) fn wake(self, executor: &Executor) {
        self.first.wake(executor);
        for waiter in self.others {
            waiter.wake(executor);
        }
    }
}

/// The tasks that wait for a stream. The code that wakes them first takes this value out of the
/// stream's state, and calls [`Self::wake`] when nothing is borrowed any more: a waker may run any
/// code.
#[derive(Default)]
pub(crate) struct StreamWaiters {
    pub(crate) reader: WakeSlot,
    pub(crate) writers: Waiters,
}

impl StreamWaiters {
    pub(crate) fn wake(self, executor: &Executor) {
        self.reader.wake(executor);
        self.writers.wake(executor);
    }
}
