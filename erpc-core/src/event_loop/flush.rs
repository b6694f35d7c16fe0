//! Sends at the end of a turn the data that was gathered during it.

use std::cell::RefCell;
use std::rc::Rc;

use super::rpc::Context;
use crate::transport::Transport;

/// An object that gathers data to send, such as a stream, and passes it to the protocol once per
/// turn.
pub(crate) trait Flush<T: Transport> {
    /// Passes the gathered data to the protocol. The object was removed from the [`FlushQueue`]
    /// before, and may be pushed again.
    fn flush(&self, cx: &mut Context<'_, T>);

    /// Called if the endpoint ends while this object is queued: nothing can be sent any more.
    fn shut_down(&self);
}

/// The objects to flush at the end of the turn. Each object must push itself only once before it is
/// flushed.
pub(crate) struct FlushQueue<T: Transport> {
    members: RefCell<Vec<Rc<dyn Flush<T>>>>,
}

impl<T: Transport> Default for FlushQueue<T> {
    fn default() -> Self {
        Self { members: RefCell::default() }
    }
}

impl<T: Transport> FlushQueue<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.members.borrow().is_empty()
    }

    pub(crate) fn push(&self, member: Rc<dyn Flush<T>>) {
        self.members.borrow_mut().push(member);
    }

    /// Flushes the queued members and returns their number. Members that are pushed during this
    /// call wait for the next call.
    pub(crate) fn flush(&self, cx: &mut Context<'_, T>) -> usize {
        let mut flushed = self.members.take();
        let count = flushed.len();
        for member in flushed.drain(..) {
            member.flush(cx);
        }
        let mut members = self.members.borrow_mut();
        // Reuse the vector's memory.
        flushed.append(&mut members);
        *members = flushed;
        count
    }

    /// Shuts all members down, because the endpoint has ended.
    pub(crate) fn shut_down(&self) {
        for member in self.members.take() {
            member.shut_down();
        }
    }
}
