//! The calls of an endpoint, and the queue of submissions to the protocol.
//!
//! The raw endpoint (`Rpc`) is borrowed while its turn runs, and handlers and callbacks run within
//! the turn. So a function that users call must not borrow the raw endpoint there. Instead, calls
//! become [`Submission`]s in a queue. The loop drains the queue at the start of a turn, right after
//! each handler or callback, and after the tasks, while it holds the raw endpoint. If code outside
//! of a turn makes many calls, the queue is drained without waiting for the next turn.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::callback::Callbacks;
use super::link::{Link, LinkPhase};
use super::streams::StreamCalls;
use super::submissions::Submission;
use super::table::CallTable;
use crate::buf::Pool;
use crate::event_loop::Context;
use crate::event_loop::wakes::WakeBatch;
use crate::executor::scheduler::Scheduler;
use crate::log;
use crate::mutants::mutant;
use crate::protocol::{CallError, Cause, SessionEvent, SessionId};
use crate::transport::Transport;

/// An endpoint's calls in progress, the submissions that are queued for the protocol, and the
/// sessions that calls are made on.
pub(crate) struct Calls<T: Transport> {
    scheduler: Rc<Scheduler>,
    /// Requests are encoded into buffers of this pool. It is separate from the raw endpoint's pool,
    /// which callbacks cannot borrow.
    pool: Rc<RefCell<Pool>>,
    table: RefCell<CallTable<T::Route>>,
    callbacks: Callbacks,
    pub(super) submissions: RefCell<VecDeque<Submission<T::Route>>>,
    /// Calls with callbacks whose last attempt failed before any packet of it was sent. The loop
    /// runs these callbacks, so that no callback runs within the function that it was passed to.
    pub(super) failures: RefCell<VecDeque<FailedCall>>,
    /// The state of each session that this endpoint opened, shared with the session's handles.
    pub(super) links: RefCell<HashMap<SessionId, Rc<Link<T::Route>>>>,
    streams: StreamCalls<T>,
    /// The tasks of other threads to wake at the end of the turn.
    wakes: WakeBatch,
}

/// A call with a callback, whose last attempt failed before any packet of it was sent.
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
            wakes: WakeBatch::default(),
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

    /// The tasks of other threads to wake at the end of the turn.
    #[inline]
    pub(crate) fn wakes(&self) -> &WakeBatch {
        &self.wakes
    }

    /// Whether a submission or a failed call waits for the next turn of the loop.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.queued() > 0 || !self.failures.borrow().is_empty()
    }

    /// Number of sessions that this endpoint has opened and that have not ended.
    pub(crate) fn open_links(&self) -> usize {
        self.links.borrow().len()
    }

    /// Records that a session has opened or closed, or that its server shuts down.
    pub(crate) fn session_event(
        &self,
        cx: &mut Context<'_, T>,
        session: SessionId,
        event: SessionEvent,
    ) {
        let link = match event {
            SessionEvent::Opened | SessionEvent::Draining => {
                self.links.borrow().get(&session).cloned()
            }
            SessionEvent::Closed(_) => {
                let link = self.links.borrow_mut().remove(&session);
                if let Some(link) = &link
                    && link.phase() == LinkPhase::Opening
                    && mutant!(LinkKept)
                {
                    self.links.borrow_mut().insert(session, Rc::clone(link));
                }
                link
            }
        };
        // A session that a peer opened has no link.
        let Some(link) = link else { return };
        let phase = match event {
            SessionEvent::Opened => LinkPhase::Open,
            SessionEvent::Draining => {
                // The server takes no more calls on the session, and waits until the session is
                // closed. If a stream uses the session, it is closed when the stream has ended.
                if !link.has_stream() {
                    cx.disconnect(session);
                }
                LinkPhase::Draining
            }
            SessionEvent::Closed(Cause::Disconnected) if link.phase() == LinkPhase::Draining => {
                LinkPhase::Closed(Cause::PeerDraining)
            }
            SessionEvent::Closed(cause) => LinkPhase::Closed(cause),
        };
        match phase {
            LinkPhase::Opening => {}
            LinkPhase::Open => log::session_opened(cx.now(), &link.peer),
            LinkPhase::Draining => log::session_draining(cx.now(), &link.peer),
            LinkPhase::Closed(cause) => log::session_ended(cx.now(), &link.peer, cause),
        }
        link.enter(phase, self.scheduler.executor());
    }

    /// Ends all remaining calls and sessions. The endpoint has ended, so the protocol reports
    /// nothing more.
    pub(crate) fn end_all(&self) {
        self.run_failures();
        // Callbacks may just have made further calls. These were never sent and are in `failures`,
        // so the second `run_failures` ends them.
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

    /// Drops the remaining callbacks without running them.
    pub(crate) fn drop_callbacks(&self) {
        self.failures.take();
        let left = self.table().take_callbacks();
        drop(left);
    }

    /// Drops a call with its callback, without running the callback: the endpoint's loop will never
    /// run again.
    #[cold]
    pub(super) fn drop_callback(&self, key: usize) {
        let left = self.table().remove(key);
        drop(left);
    }
}
