//! Sending at the end of a turn what was gathered within it.

use std::cell::RefCell;
use std::rc::Rc;

use super::rpc::Context;
use crate::transport::Transport;

/// Something that gathers what it sends, as a stream does, and hands it to the protocol once per turn.
pub(crate) trait Flush<T: Transport> {
    /// Hands over what was gathered. It is off the [`FlushQueue`] by then, and may go there again.
    fn flush(&self, cx: &mut Context<'_, T>);

    /// The endpoint has ended while this was on the queue: nothing can be sent any more.
    fn shut_down(&self);
}

/// What is to be flushed at the end of the turn. Each member makes sure that it is here once.
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

    /// Flushes the members that are here now; returns how many. Members that are pushed meanwhile wait for the
    /// next call.
    pub(crate) fn flush(&self, cx: &mut Context<'_, T>) -> usize {
        let mut flushed = self.members.take();
        let count = flushed.len();
        for member in flushed.drain(..) {
            member.flush(cx);
        }
        let mut members = self.members.borrow_mut();
        // The memory is used again.
        flushed.append(&mut members);
        *members = flushed;
        count
    }

    /// The endpoint has ended.
    pub(crate) fn shut_down(&self) {
        for member in self.members.take() {
            member.shut_down();
        }
    }
}
