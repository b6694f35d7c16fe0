//! A session as this endpoint's handles see it.

use std::cell::{Cell, RefCell};

use super::executor::{Executor, WakeSlot};
use crate::protocol::{Cause, SessionId};

/// Where a session is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The handshake is under way, or about to start.
    Opening,
    Open,
    Closed(Cause),
}

/// What a session's handles and the event loop share.
pub(super) struct Link<R> {
    pub(super) peer: R,
    /// `None` until the loop has started the handshake.
    id: Cell<Option<SessionId>>,
    phase: Cell<Phase>,
    waiters: RefCell<Vec<WakeSlot>>,
}

impl<R> Link<R> {
    pub(super) fn new(peer: R) -> Self {
        Self {
            peer,
            id: Cell::new(None),
            phase: Cell::new(Phase::Opening),
            waiters: RefCell::default(),
        }
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    #[inline]
    pub(super) fn id(&self) -> Option<SessionId> {
        self.id.get()
    }

    /// The session to call on, or why there is none.
    #[inline]
    pub(super) fn usable(&self) -> Result<SessionId, Cause> {
        match (self.phase.get(), self.id.get()) {
            (Phase::Closed(cause), _) => Err(cause),
            (_, Some(id)) => Ok(id),
            (_, None) => Err(Cause::Disconnected),
        }
    }

    pub(super) fn started(&self, id: SessionId) {
        self.id.set(Some(id));
    }

    /// Moves on and wakes who waits for that.
    pub(super) fn enter(&self, phase: Phase, executor: &Executor) {
        self.phase.set(phase);
        let waiters = self.waiters.take();
        for waiter in waiters {
            waiter.wake(executor);
        }
    }

    /// Wakes `waiter` when the phase changes. A future that is polled again adds itself again; there
    /// is one entry per poll, and phases last as long as a handshake.
    pub(super) fn wait(&self, waiter: WakeSlot) {
        self.waiters.borrow_mut().push(waiter);
    }
}
