//! The requests that an endpoint serves.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::answer::answer;
use super::hooks::Notes;
use super::methods::Methods;
use super::running::{RefusedCalls, RunningRequests};
use super::stream::ServerStreams;
use crate::buf::Pool;
use crate::event_loop::flush::FlushQueue;
use crate::event_loop::mailbox::{Answer, Mailbox};
use crate::event_loop::{Context, Rpc};
use crate::executor::scheduler::Scheduler;
use crate::executor::waiters::Waiters;
use crate::mutants::mutant;
use crate::protocol::{ClientId, RequestHandle};
use crate::service::CallTask;
use crate::status::Status;
use crate::transport::Transport;

/// The parts of an endpoint that requests need.
pub(crate) struct RequestParts<T: Transport> {
    pub(crate) scheduler: Rc<Scheduler>,
    pub(crate) rpc: Rc<RefCell<Rpc<T>>>,
    pub(crate) pool: Rc<RefCell<Pool>>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) flushes: Rc<FlushQueue<T>>,
}

/// The methods that an endpoint serves, and the requests that are not answered yet.
pub(crate) struct Requests<T: Transport> {
    me: Weak<Self>,
    parts: RequestParts<T>,
    pub(super) methods: OnceCell<Methods>,
    pub(super) running: RunningRequests,
    /// The notes that burst hooks have left for the handlers of the current burst.
    pub(super) notes: Notes,
    /// The streams of each client session that has had a stream.
    pub(super) streams: RefCell<HashMap<ClientId, Rc<ServerStreams<T>>>>,
    /// The addresses of the clients, by session, for the log.
    pub(super) clients: RefCell<HashMap<ClientId, T::Route>>,
    /// True while the endpoint drains. Then a call of a stream is refused if the stream is not open.
    pub(super) draining: Cell<bool>,
    /// Tasks that wait until all clients have closed their sessions.
    pub(super) watchers: RefCell<Waiters>,
    /// A spare buffer, swapped with the mailbox's buffer of answers.
    answers: Cell<Vec<Answer>>,
}

impl<T: Transport> Requests<T> {
    pub(crate) fn new(parts: RequestParts<T>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            parts,
            methods: OnceCell::new(),
            running: RunningRequests::default(),
            notes: Notes::default(),
            streams: RefCell::default(),
            clients: RefCell::default(),
            draining: Cell::default(),
            watchers: RefCell::default(),
            answers: Cell::default(),
        })
    }

    /// A weak reference, for objects that the endpoint holds directly or through a task.
    pub(super) fn downgrade(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    #[inline]
    pub(super) fn scheduler(&self) -> &Rc<Scheduler> {
        &self.parts.scheduler
    }

    /// The endpoint's `Rpc`; `None` while its turn is running.
    pub(super) fn rpc(&self) -> Option<RefMut<'_, Rpc<T>>> {
        self.parts.rpc.try_borrow_mut().ok()
    }

    pub(super) fn pool(&self) -> RefMut<'_, Pool> {
        self.parts.pool.borrow_mut()
    }

    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.parts.mailbox
    }

    pub(super) fn flushes(&self) -> &FlushQueue<T> {
        &self.parts.flushes
    }

    /// Sets the time of the turn in which tasks are polled.
    #[inline]
    pub(crate) fn begin_turn(&self, now: crate::time::Instant) {
        self.running.begin_turn(now);
    }

    /// Whether tasks have answered since this function was last called.
    #[inline]
    pub(crate) fn take_answered(&self) -> bool {
        self.running.take_answered()
    }

    /// Number of requests whose deadline passed before their handler could start.
    pub(crate) fn late(&self) -> u64 {
        self.running.late() + self.mailbox().late()
    }

    /// Sends the answers that arrived through the mailbox. Returns their number.
    pub(crate) fn take_answers(&self, cx: &mut Context<'_, T>) -> usize {
        let Some(mut answers) = self.mailbox().take_answers(&self.answers) else { return 0 };
        let count = answers.len();
        for Answer { call, result } in answers.drain(..) {
            if !mutant!(WorkerCallKept) {
                self.running.ended(call);
            }
            answer(cx, call, result.into());
        }
        self.answers.set(answers);
        count
    }

    /// Numbers of the requests that are answered later, and of those that run as tasks.
    pub(crate) fn numbers(&self) -> (usize, usize) {
        self.running.numbers()
    }

    /// Sets how many calls may run as tasks at the same time.
    pub(crate) fn set_task_limit(&self, tasks: usize) {
        self.running.set_task_limit(tasks);
    }

    /// Forgets what burst hooks have left for the handlers of the burst before.
    #[inline(always)]
    pub(crate) fn begin_burst(&self) {
        self.notes.clear();
    }

    /// Whether the endpoint serves methods.
    pub(crate) fn serves(&self) -> bool {
        self.methods.get().is_some()
    }

    /// The calls that were refused because too many run as tasks, and because too many wait for a
    /// worker.
    pub(crate) fn refused(&self) -> [RefusedCalls; 2] {
        self.running.refused()
    }

    /// The full name of the method with this id, if the endpoint serves it.
    pub(crate) fn method_name(&self, method: u32) -> Option<&str> {
        Some(self.methods.get()?.routes.get(method)?.full_name())
    }

    /// Starts the task of a request.
    pub(super) fn start_task(&self, call: RequestHandle, task: CallTask) {
        let task = self.scheduler().executor().start_boxed(task);
        self.running.task(call, task);
    }

    /// Handles a cancel by the caller: drops the call's task, or sets the flag that the call's
    /// worker or responder reads.
    pub(crate) fn cancelled(&self, cx: &mut Context<'_, T>, call: RequestHandle) {
        if let Some(task) = self.running.cancel(call).filter(|_| !mutant!(CancelLeavesTask)) {
            // Dropping a handler's values may panic; the panic hook has reported it.
            let abort = || self.scheduler().executor().abort(task);
            drop(catch_unwind(AssertUnwindSafe(abort)));
            if cx.client_stats(call.client()).is_some() {
                cx.respond_status(call, &caller_cancelled());
            }
        }
        self.stream_cancelled(cx, call);
    }

    /// Drops the streams of all clients, because the endpoint has ended.
    pub(crate) fn end_streams(&self) {
        drop(self.streams.take());
    }
}

#[cold]
fn caller_cancelled() -> Status {
    Status::cancelled("the caller has cancelled the call")
}
