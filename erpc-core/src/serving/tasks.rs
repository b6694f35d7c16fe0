//! Calls that do not end where they arrive: tasks of asynchronous handlers, and jobs of workers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::ready;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::buf::MsgBuf;
use crate::endpoint::state::Shared;
use crate::event_loop::Context;
use crate::executor::tasks::TaskId;
use crate::executor::timers::Sleep;
use crate::protocol::{ClientStats, RequestHandle};
use crate::service::{CallTask, HandlerOutcome, ReplySink, TaskPort, Timer};
use crate::serving::dispatch::{answer, no_memory};
use crate::status::Status;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::time::Instant;
use crate::transport::Transport;

/// Cancel flags that are kept for the next jobs.
const SPARE_FLAGS: usize = 64;

/// The calls of an endpoint that run elsewhere than in its turn, by request.
#[derive(Default)]
pub(crate) struct Running {
    calls: RefCell<HashMap<RequestHandle, Work, BuildHasherDefault<HandleHasher>>>,
    spare: RefCell<Vec<Arc<AtomicBool>>>,
    late: Cell<u64>,
    /// When the turn began in which tasks run; spares every answer a look at the clock.
    turn: Cell<Instant>,
    /// Whether a task has answered since somebody asked.
    answered: Cell<bool>,
}

/// Who works on a call.
enum Work {
    Task(TaskId),
    /// A worker, which looks at the flag.
    Worker(Arc<AtomicBool>),
}

impl Running {
    /// Notes that a worker will get the call; returns the flag that tells it when to stop.
    pub(crate) fn worker(&self, call: RequestHandle) -> Arc<AtomicBool> {
        let flag = self.spare.borrow_mut().pop();
        let flag = flag.unwrap_or_else(|| Arc::new(AtomicBool::new(false)));
        self.calls.borrow_mut().insert(call, Work::Worker(Arc::clone(&flag)));
        flag
    }

    /// The call is answered, from wherever.
    pub(crate) fn ended(&self, call: RequestHandle) {
        let Some(Work::Worker(mut flag)) = self.calls.borrow_mut().remove(&call) else { return };
        let mut spare = self.spare.borrow_mut();
        // A handler that answered through a responder may still look at its flag.
        if spare.len() < SPARE_FLAGS
            && let Some(unused) = Arc::get_mut(&mut flag)
        {
            *unused = AtomicBool::new(false);
            spare.push(flag);
        }
    }

    /// Whether a handler may start on a request with that deadline; counts it if not.
    pub(crate) fn in_time(
        &self,
        deadline: Instant,
        now: impl FnOnce() -> Instant,
    ) -> Result<(), Status> {
        let in_time = in_time(deadline, now);
        self.late.set(self.late.get() + u64::from(in_time.is_err()));
        in_time
    }

    /// Requests that came after their deadline, but for those that workers saw.
    pub(crate) fn late(&self) -> u64 {
        self.late.get()
    }

    /// Tasks will be polled in the turn that began then.
    #[inline]
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.turn.set(now);
    }

    /// Whether tasks have answered since this was asked last.
    #[inline]
    pub(crate) fn take_answered(&self) -> bool {
        self.answered.get() && self.answered.replace(false)
    }
}

/// Whether the deadline is still to come. Asks for the time, if there is a deadline: handlers that ran
/// since the turn began took theirs.
pub(crate) fn in_time(deadline: Instant, now: impl FnOnce() -> Instant) -> Result<(), Status> {
    if deadline != Instant::NEVER && now() >= deadline {
        return Err(Status::deadline_exceeded(
            "the deadline passed before the handler could start",
        ));
    }
    Ok(())
}

impl<T: Transport> Shared<T> {
    /// Starts the task of a call.
    pub(crate) fn start_call(&self, call: RequestHandle, task: CallTask) {
        let id = self.executor().start_boxed(task);
        self.running.calls.borrow_mut().insert(call, Work::Task(id));
    }

    /// Nobody waits for the answer any more: the call's task ends where it is, a worker is told.
    pub(crate) fn call_cancelled(&self, cx: &mut Context<'_, T>, call: RequestHandle) {
        let mut calls = self.running.calls.borrow_mut();
        let task = match calls.get(&call) {
            Some(Work::Task(task)) => *task,
            // It answers all the same. Only a hint, so no order is asked of it.
            Some(Work::Worker(flag)) => return flag.store(true, Ordering::Relaxed),
            None => return,
        };
        calls.remove(&call);
        drop(calls);
        // What a handler holds may panic when it is dropped; the panic hook has told.
        drop(catch_unwind(AssertUnwindSafe(|| self.executor().abort(task))));
        if cx.client_stats(call.client()).is_some() {
            cx.respond_status(call, &Status::cancelled("the caller has given the call up"));
        }
    }
}

/// What tasks see of their endpoint.
pub(crate) struct Port<T: Transport> {
    /// Weak, because the endpoint holds the tasks.
    shared: Weak<Shared<T>>,
    sink: Arc<dyn ReplySink>,
}

impl<T: Transport> Port<T> {
    pub(crate) fn new(shared: &Rc<Shared<T>>) -> Self {
        Self { shared: Rc::downgrade(shared), sink: Arc::clone(shared.mailbox()) as _ }
    }
}

// Tasks run behind the raw endpoint's turn, so that it is there for them; and if it were not, failing is
// better than a panic within a task.
impl<T: Transport> TaskPort for Port<T> {
    fn in_time(&self, deadline: Instant) -> Result<(), Status> {
        if deadline == Instant::NEVER {
            return Ok(());
        }
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        shared.running.in_time(deadline, || shared.now())
    }

    fn now(&self) -> Instant {
        self.shared.upgrade().map_or(Instant::NEVER, |shared| shared.now())
    }

    fn buffer(&self, _: &RequestHandle, len: usize) -> Result<MsgBuf, Status> {
        let shared = self.shared.upgrade().ok_or_else(no_memory)?;
        let mut rpc = shared.rpc().ok_or_else(no_memory)?;
        let mut cx = rpc.context_at(shared.running.turn.get());
        cx.response_buffer(None, len).map_err(|_| no_memory())
    }

    fn sleep(&self, until: Instant) -> Timer {
        match self.shared.upgrade() {
            Some(shared) => Box::pin(Sleep::new(&shared, until)),
            None => Box::pin(ready(())),
        }
    }

    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats> {
        let shared = self.shared.upgrade()?;
        shared.rpc()?.context_at(shared.running.turn.get()).client_stats(call.client())
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(&self.sink)
    }

    fn finish(&self, call: RequestHandle, outcome: HandlerOutcome) {
        let Some(shared) = self.shared.upgrade() else { return };
        // Gone if the call was cancelled, and so answered, from within its own poll.
        if shared.running.calls.borrow_mut().remove(&call).is_none() {
            return;
        }
        if let Some(mut rpc) = shared.rpc() {
            shared.running.answered.set(true);
            answer(&mut rpc.context_at(shared.running.turn.get()), call, outcome);
        }
    }
}

/// Mixes the three numbers of a [`RequestHandle`]. Two of them are this endpoint's own, and a client
/// picks none of the third: no peer can make handles that collide.
#[derive(Default)]
struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        // The map looks at the lowest bits and the highest ones; a rotation brings the best there.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}
