//! The transactions that have begun and not returned to their callers.

use std::cell::Cell;

use crate::waiters::Waiters;

#[derive(Debug, Default)]
pub(super) struct Running {
    count: Cell<usize>,
    /// For the end of the last one.
    waiting: Waiters,
}

/// A transaction that runs while this exists.
pub(super) struct Counted<'a>(&'a Running);

impl Running {
    pub(super) fn begin(&self) -> Counted<'_> {
        self.count.set(self.count.get() + 1);
        Counted(self)
    }

    /// Waits until none runs.
    pub(super) async fn idle(&self) {
        while self.count.get() > 0 {
            self.waiting.wait().await;
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let left = self.0.count.get() - 1;
        self.0.count.set(left);
        if left == 0 {
            self.0.waiting.wake();
        }
    }
}
