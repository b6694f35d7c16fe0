//! Tasks of one thread that wait for a change.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The tasks that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters(RefCell<Vec<Waker>>);

impl Waiters {
    /// Waits until the next [`wake`](Self::wake).
    pub(crate) async fn wait(&self) {
        let mut is_first = true;
        poll_fn(|cx| {
            if !std::mem::take(&mut is_first) {
                return Poll::Ready(());
            }
            self.0.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Wakes all that wait.
    #[inline]
    pub(crate) fn wake(&self) {
        if !self.0.borrow().is_empty() {
            self.0.take().into_iter().for_each(Waker::wake);
        }
    }
}
