//! Requests that are not answered where they arrive: tasks of asynchronous handlers, and jobs of workers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::executor::tasks::TaskId;
use crate::protocol::RequestHandle;
use crate::status::Status;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::time::Instant;

/// Cancel flags that are kept for the next jobs and responders.
const SPARE_FLAGS: usize = 64;
/// Calls that may run as tasks unless the owner says otherwise.
const DEFAULT_TASK_LIMIT: usize = 65_536;

/// The calls of an endpoint that run elsewhere than in its turn, by request.
pub(crate) struct RunningRequests {
    calls: RefCell<HashMap<RequestHandle, Running, BuildHasherDefault<HandleHasher>>>,
    /// Calls that run as tasks, and how many may.
    tasks: Cell<usize>,
    task_limit: Cell<usize>,
    spare: RefCell<Vec<Arc<AtomicBool>>>,
    late: Cell<u64>,
    /// When the turn began in which tasks run; spares every answer a look at the clock.
    turn: Cell<Instant>,
    /// Whether a task has answered since [`RunningRequests::take_answered`].
    answered: Cell<bool>,
}

/// What works on a call.
#[derive(Default)]
struct Running {
    task: Option<TaskId>,
    /// What a worker or a responder looks at.
    cancelled: Option<Arc<AtomicBool>>,
}

impl Default for RunningRequests {
    fn default() -> Self {
        Self {
            calls: RefCell::default(),
            tasks: Cell::default(),
            task_limit: Cell::new(DEFAULT_TASK_LIMIT),
            spare: RefCell::default(),
            late: Cell::default(),
            turn: Cell::default(),
            answered: Cell::default(),
        }
    }
}

impl RunningRequests {
    /// Notes that a worker or a responder will answer the call; returns the flag that tells when the answer is not wanted any more.
    pub(crate) fn deferred(&self, call: RequestHandle) -> Arc<AtomicBool> {
        let mut calls = self.calls.borrow_mut();
        let flag = calls.entry(call).or_default().cancelled.get_or_insert_with(|| {
            let spare = self.spare.borrow_mut().pop();
            spare.unwrap_or_else(|| Arc::new(AtomicBool::new(false)))
        });
        Arc::clone(flag)
    }

    /// Sets how many calls may run as tasks.
    pub(crate) fn set_task_limit(&self, tasks: usize) {
        self.task_limit.set(tasks);
    }

    /// Whether one more call may run as a task.
    ///
    /// # Errors
    /// The status for the caller.
    pub(crate) fn admits_task(&self) -> Result<(), Status> {
        if self.tasks.get() < self.task_limit.get() {
            return Ok(());
        }
        Err(Status::resource_exhausted("the server runs as many calls at once as its limit allows"))
    }

    /// Notes that `task` works on the call.
    pub(crate) fn task(&self, call: RequestHandle, task: TaskId) {
        let before =
            self.calls.borrow_mut().insert(call, Running { task: Some(task), cancelled: None });
        debug_assert!(before.is_none(), "a request is handed out once");
        self.tasks.set(self.tasks.get() + 1);
    }

    /// Takes the call out.
    fn remove(&self, call: RequestHandle) -> Option<Running> {
        let running = self.calls.borrow_mut().remove(&call)?;
        self.tasks.set(self.tasks.get() - usize::from(running.task.is_some()));
        Some(running)
    }

    /// The call's task has ended, and a responder answers if it `is_deferred`; whether the call was still running: not if it
    /// was cancelled, and so answered, from within the task's own poll.
    pub(super) fn task_ended(&self, call: RequestHandle, is_deferred: bool) -> bool {
        let Some(Running { cancelled, .. }) = self.remove(call) else { return false };
        if is_deferred {
            self.calls.borrow_mut().insert(call, Running { task: None, cancelled });
        }
        self.answered.set(true);
        true
    }

    /// The call is cancelled: sets the flag of its worker or responder, and returns its task, which the caller ends.
    pub(crate) fn cancel(&self, call: RequestHandle) -> Option<TaskId> {
        if let Some(flag) = &self.calls.borrow().get(&call)?.cancelled {
            // A handler that reads the flag answers all the same. It is only a hint, so the order does not matter.
            flag.store(true, Ordering::Relaxed);
        }
        let task = self.calls.borrow().get(&call)?.task?;
        self.remove(call);
        Some(task)
    }

    /// When the turn began in which tasks run.
    pub(crate) fn turn(&self) -> Instant {
        self.turn.get()
    }

    /// The call is answered.
    pub(crate) fn ended(&self, call: RequestHandle) {
        let Some(mut flag) = self.remove(call).and_then(|running| running.cancelled) else {
            return;
        };
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

    /// Requests that came after their deadline, without the requests of workers.
    pub(crate) fn late(&self) -> u64 {
        self.late.get()
    }

    /// Tasks will be polled in the turn that began then.
    #[inline]
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.turn.set(now);
    }

    /// Whether tasks have answered since the last call.
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
