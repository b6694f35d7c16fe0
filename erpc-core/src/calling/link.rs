//! A session as this endpoint's handles see it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;

use crate::executor::tasks::{Executor, WakeSlot};
use crate::protocol::{Cause, SessionId};

/// Where a session is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkPhase {
    /// The handshake is under way, or about to start.
    Opening,
    Open,
    Closed(Cause),
}

/// What a session's handles and the event loop share.
pub(crate) struct Link<R> {
    pub(crate) peer: R,
    /// `None` until the loop has started the handshake.
    id: Cell<Option<SessionId>>,
    phase: Cell<LinkPhase>,
    /// Calls on the session that have not ended.
    calls: Cell<u32>,
    waiters: RefCell<Vec<WakeSlot>>,
}

impl<R> Link<R> {
    pub(crate) fn new(peer: R) -> Self {
        Self {
            peer,
            id: Cell::new(None),
            phase: Cell::new(LinkPhase::Opening),
            calls: Cell::new(0),
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

    /// Calls on the session that have not ended.
    #[inline]
    pub(crate) fn calls(&self) -> u32 {
        self.calls.get()
    }

    /// A call is made on the session.
    #[inline]
    pub(super) fn call_made(&self) {
        self.calls.set(self.calls.get() + 1);
    }

    /// A call on the session has ended.
    #[inline]
    pub(super) fn call_ended(&self) {
        debug_assert!(self.calls.get() > 0, "a call ends twice");
        self.calls.set(self.calls.get().saturating_sub(1));
    }

    /// The session to call on, or why there is none.
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

    /// Enters a phase, and wakes the tasks that wait for it.
    pub(crate) fn enter(&self, phase: LinkPhase, executor: &Executor) {
        self.phase.set(phase);
        let waiters = self.waiters.take();
        for waiter in waiters {
            waiter.wake(executor);
        }
    }

    /// Waits until the session leaves `phase`, and brings where it is then.
    pub(crate) async fn after(&self, phase: LinkPhase, executor: &Executor) -> LinkPhase {
        poll_fn(|cx| {
            let now = self.phase.get();
            if now != phase {
                return Poll::Ready(now);
            }
            self.wait(executor.wake_slot(cx));
            Poll::Pending
        })
        .await
    }

    /// Wakes `waiter` when the phase changes. A future that is polled again adds itself again; there
    /// is one entry per poll, and phases last as long as a handshake.
    pub(crate) fn wait(&self, waiter: WakeSlot) {
        self.waiters.borrow_mut().push(waiter);
    }
}
