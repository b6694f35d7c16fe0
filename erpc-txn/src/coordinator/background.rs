//! Work that nothing waits for any more, and that must still be done.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

use erpc::Transport;

use super::Inner;
use crate::waiters::Waiters;

/// Work of futures that were dropped outside of the endpoint's loop. A task takes it.
#[derive(Default)]
pub(super) struct Left {
    work: RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>,
    waiting: Waiters,
}

impl Left {
    /// Starts the work that is left. The task owns the queue, so that work which is left when the
    /// endpoint has ended goes with it.
    pub(super) async fn run(self: Rc<Self>) {
        loop {
            let work = self.work.take();
            if work.is_empty() {
                self.waiting.wait().await;
            }
            for work in work {
                erpc::spawn(work);
            }
        }
    }
}

impl<T: Transport> Inner<T> {
    /// Does work as a task of the endpoint. It may be called outside of the endpoint's loop.
    pub(super) fn in_background(&self, work: impl Future<Output = ()> + 'static) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.spawn(work);
        } else if let Some(left) = self.left.upgrade() {
            left.work.borrow_mut().push(Box::pin(work));
            left.waiting.wake();
        }
    }
}

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Left").field("work", &self.work.borrow().len()).finish_non_exhaustive()
    }
}
