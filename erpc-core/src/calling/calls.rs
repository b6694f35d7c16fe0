//! The calls of an endpoint, and the queue of submissions to the protocol.
//!
//! The raw endpoint is borrowed while its turn runs, and handlers and callbacks run within the turn. So
//! nothing that a user calls borrows it on the spot: calls become [`Submission`]s in a queue, which the loop
//! drains at the start of a turn and right after each handler or callback, while it has the endpoint in hand.
//! Outside of the loop a long queue is drained early.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::callback::Callbacks;
use super::link::{Link, LinkPhase};
use super::streams::StreamCalls;
use super::submissions::Submission;
use super::table::CallTable;
use crate::buf::Pool;
use crate::executor::scheduler::Scheduler;
use crate::protocol::{CallError, Cause, SessionEvent, SessionId};
use crate::transport::Transport;

/// The calls of an endpoint: those in progress, those on their way to the protocol, and the sessions that
/// they are made on.
pub(crate) struct Calls<T: Transport> {
    scheduler: Rc<Scheduler>,
    /// Where requests are encoded; apart from the raw endpoint's, which is out of reach in callbacks.
    pool: Rc<RefCell<Pool>>,
    table: RefCell<CallTable<T::Route>>,
    callbacks: Callbacks,
    pub(super) submissions: RefCell<VecDeque<Submission<T::Route>>>,
    /// Callbacks that failed before anything was sent. They wait for the loop, so that no callback runs
    /// within the call that it was given to.
    pub(super) failures: RefCell<VecDeque<FailedCall>>,
    /// The sessions that the protocol has, as their handles see them.
    pub(super) links: RefCell<HashMap<SessionId, Rc<Link<T::Route>>>>,
    streams: StreamCalls<T>,
}

/// A call that failed before anything was sent.
pub(super) struct FailedCall {
    pub(super) key: usize,
    pub(super) error: CallError,
}

impl<T: Transport> Calls<T> {
    pub(crate) fn new(scheduler: Rc<Scheduler>, pool: Rc<RefCell<Pool>>) -> Self {
        Self {
            scheduler,
            pool,
            table: RefCell::new(CallTable::new()),
            callbacks: Callbacks::default(),
            submissions: RefCell::default(),
            failures: RefCell::default(),
            links: RefCell::default(),
            streams: StreamCalls::default(),
        }
    }

    #[inline]
    pub(super) fn scheduler(&self) -> &Rc<Scheduler> {
        &self.scheduler
    }

    #[inline]
    pub(crate) fn table(&self) -> RefMut<'_, CallTable<T::Route>> {
        self.table.borrow_mut()
    }

    #[inline]
    pub(crate) fn pool(&self) -> RefMut<'_, Pool> {
        self.pool.borrow_mut()
    }

    #[inline]
    pub(crate) fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    #[inline]
    pub(crate) fn streams(&self) -> &StreamCalls<T> {
        &self.streams
    }

    /// Whether something waits for the loop's next turn.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.queued() > 0 || !self.failures.borrow().is_empty()
    }

    /// A session has opened or closed.
    pub(crate) fn session_event(&self, session: SessionId, event: SessionEvent) {
        let link = match event {
            SessionEvent::Opened => self.links.borrow().get(&session).cloned(),
            SessionEvent::Closed(_) => self.links.borrow_mut().remove(&session),
        };
        // Sessions that peers opened have no link.
        let Some(link) = link else { return };
        let phase = match event {
            SessionEvent::Opened => LinkPhase::Open,
            SessionEvent::Closed(cause) => LinkPhase::Closed(cause),
        };
        link.enter(phase, self.scheduler.executor());
    }

    /// The endpoint has ended, and the protocol will report nothing more: ends all calls and sessions that
    /// are left.
    pub(crate) fn end_all(&self) {
        self.run_failures();
        // Calls that callbacks have made meanwhile wait among the failures: they were never sent.
        let unsent: Vec<usize> = self.failures.borrow().iter().map(|failed| failed.key).collect();
        let pending = self.table().pending();
        for key in pending.into_iter().filter(|key| !unsent.contains(key)) {
            self.abandon(key);
        }
        self.run_failures();
        for link in self.links.take().into_values() {
            link.enter(LinkPhase::Closed(Cause::Shutdown), self.scheduler.executor());
        }
    }

    /// Drops the callbacks that are left.
    pub(crate) fn drop_callbacks(&self) {
        self.failures.take();
        let left = self.table().take_callbacks();
        drop(left);
    }

    /// Drops the callback of a call that was made when no loop was left to run it.
    #[cold]
    pub(super) fn drop_callback(&self, key: usize) {
        let left = self.table().remove(key);
        drop(left);
    }
}
