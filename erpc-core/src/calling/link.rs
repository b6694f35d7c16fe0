//! A session's state that its handles and the event loop share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use super::plan::SessionSource;
use crate::executor::tasks::Executor;
use crate::executor::waiters::Waiters;
use crate::protocol::{Cause, SessionId};

/// Phase of a session's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkPhase {
    /// The handshake is in progress or about to start.
    Opening,
    Open,
    /// The server shuts down. It finishes the session's calls and stream, and takes no new ones.
    Draining,
    Closed(Cause),
}

/// The state that a session's handles and the event loop share.
pub(crate) struct Link<R> {
    pub(crate) peer: R,
    /// `None` until the loop has started the handshake.
    id: Cell<Option<SessionId>>,
    phase: Cell<LinkPhase>,
    /// Number of calls on the session that have not ended.
    calls: Cell<u32>,
    /// Whether a stream uses the session. If the server shuts down, such a session stays open until
    /// the stream has ended.
    has_stream: Cell<bool>,
    waiters: RefCell<Waiters>,
    /// The channel that keeps this session open. `None` if no channel does: the user has opened the
    /// session, or it is a session for streams.
    source: Option<Weak<dyn SessionSource<R>>>,
}

impl<R> Link<R> {
    pub(crate) fn new(peer: R, source: Option<Weak<dyn SessionSource<R>>>) -> Self {
        Self {
            source,
            peer,
            id: Cell::new(None),
            phase: Cell::new(LinkPhase::Opening),
            calls: Cell::new(0),
            has_stream: Cell::new(false),
            waiters: RefCell::default(),
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> LinkPhase {
        self.phase.get()
    }

    #[inline]
    pub(crate) fn id(&self) -> Option<SessionId> {
        self.id.get()
    }

    /// The channel that keeps this session open. `None` if no channel does, or if the channel was
    /// dropped.
    pub(super) fn source(&self) -> Option<Rc<dyn SessionSource<R>>> {
        self.source.as_ref()?.upgrade()
    }

    /// Number of calls on the session that have not ended.
    #[inline]
    pub(crate) fn calls(&self) -> u32 {
        self.calls.get()
    }

    /// Counts a new call on the session.
    #[inline]
    pub(super) fn call_made(&self) {
        self.calls.set(self.calls.get() + 1);
    }

    /// Counts the end of a call on the session.
    #[inline]
    pub(super) fn call_ended(&self) {
        debug_assert!(self.calls.get() > 0, "a call ended twice");
        self.calls.set(self.calls.get().saturating_sub(1));
    }

    pub(crate) fn has_stream(&self) -> bool {
        self.has_stream.get()
    }

    /// Called with true when a stream begins to use the session, and with false when it has ended.
    pub(crate) fn set_has_stream(&self, has: bool) {
        self.has_stream.set(has);
    }

    /// The session to call on; `Err` is why no call can be made.
    #[inline]
    pub(crate) fn usable(&self) -> Result<SessionId, Cause> {
        match (self.phase.get(), self.id.get()) {
            (LinkPhase::Closed(cause), _) => Err(cause),
            (_, Some(id)) => Ok(id),
            (_, None) => Err(Cause::Disconnected),
        }
    }

    pub(crate) fn started(&self, id: SessionId) {
        self.id.set(Some(id));
    }

    /// Enters a phase, and wakes the tasks that wait for a change.
    pub(crate) fn enter(&self, phase: LinkPhase, executor: &Executor) {
        self.phase.set(phase);
        let waiters = self.waiters.take();
        waiters.wake(executor);
    }

    /// Waits until the session leaves `phase`, and returns the new phase.
    pub(crate) async fn after(&self, phase: LinkPhase, executor: &Executor) -> LinkPhase {
        poll_fn(|cx| {
            let now = self.phase.get();
            if now != phase {
                return Poll::Ready(now);
            }
            self.wait(executor, cx);
            Poll::Pending
        })
        .await
    }

    /// Stores the task of `cx`, to be woken when the phase changes. A task is stored once, however
    /// often it polls: a session may stay in a phase for long.
    pub(crate) fn wait(&self, executor: &Executor, cx: &Context<'_>) {
        self.waiters.borrow_mut().add(executor, cx);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::event_loop::bell::Bell;
    use crate::transport::Waker as LoopWaker;

    #[test]
    fn a_task_that_polls_repeatedly_is_stored_once() {
        let bell = Arc::new(Bell::new(LoopWaker::new(|| {})));
        let (link, executor) = (Link::new((), None), Executor::new(bell, Duration::MAX));
        let mut waits = pin!(link.after(LinkPhase::Opening, &executor));
        for _ in 0..1_000 {
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(link.waiters.borrow().len(), 1);
        link.enter(LinkPhase::Open, &executor);
        assert_eq!(link.waiters.borrow().len(), 0);
    }
}
