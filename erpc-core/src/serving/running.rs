//! Requests that are answered later than they arrive: by tasks, workers or responders.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::executor::tasks::TaskId;
use crate::mutants::mutant;
use crate::protocol::RequestHandle;
use crate::status::Status;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::time::Instant;

/// Maximum number of cancel flags that are kept for reuse.
const SPARE_FLAGS: usize = 64;
/// Default limit of the calls that run as tasks.
const DEFAULT_TASK_LIMIT: usize = 65_536;

/// The requests that an endpoint's tasks, workers and responders will answer, by handle.
pub(crate) struct RunningRequests {
    calls: RefCell<HashMap<RequestHandle, Running, BuildHasherDefault<HandleHasher>>>,
    /// Number of calls that run as tasks, and the limit of this number.
    tasks: Cell<usize>,
    task_limit: Cell<usize>,
    /// The calls that were refused because too many run as tasks, or wait for a worker.
    beyond_tasks: Cell<RefusedCalls>,
    beyond_queue: Cell<RefusedCalls>,
    spare: RefCell<Vec<Arc<AtomicBool>>>,
    late: Cell<u64>,
    /// Time of the turn in which tasks run. Answers use it instead of reading the clock.
    turn: Cell<Instant>,
    /// Whether a task has answered since the last [`RunningRequests::take_answered`].
    answered: Cell<bool>,
}

/// The task or the deferred answer of a call.
#[derive(Default)]
struct Running {
    task: Option<TaskId>,
    /// The flag that a worker or a responder reads.
    cancelled: Option<Arc<AtomicBool>>,
}

/// The calls that a limit has refused, for the log.
#[derive(Clone, Copy, Default)]
pub(crate) struct RefusedCalls {
    pub(crate) total: u64,
    /// The method of the last one, and the limit.
    pub(crate) method: &'static str,
    pub(crate) limit: usize,
}

impl RefusedCalls {
    /// These calls, and one more.
    fn and(self, method: &'static str, limit: usize) -> Self {
        Self { total: self.total + 1, method, limit }
    }
}

impl Default for RunningRequests {
    fn default() -> Self {
        Self {
            calls: RefCell::default(),
            tasks: Cell::default(),
            task_limit: Cell::new(DEFAULT_TASK_LIMIT),
            beyond_tasks: Cell::default(),
            beyond_queue: Cell::default(),
            spare: RefCell::default(),
            late: Cell::default(),
            turn: Cell::default(),
            answered: Cell::default(),
        }
    }
}

impl RunningRequests {
    /// Records that a worker or a responder will answer the call. Returns the flag that is set when
    /// the answer is no longer wanted.
    pub(crate) fn deferred(&self, call: RequestHandle) -> Arc<AtomicBool> {
        let mut calls = self.calls.borrow_mut();
        let flag = calls.entry(call).or_default().cancelled.get_or_insert_with(|| {
            let spare = self.spare.borrow_mut().pop();
            spare.unwrap_or_else(|| Arc::new(AtomicBool::new(false)))
        });
        Arc::clone(flag)
    }

    /// Numbers of all calls, and of those that run as tasks.
    pub(crate) fn numbers(&self) -> (usize, usize) {
        (self.calls.borrow().len(), self.tasks.get())
    }

    /// Sets how many calls may run as tasks at the same time.
    pub(crate) fn set_task_limit(&self, tasks: usize) {
        self.task_limit.set(tasks);
    }

    /// Checks that one more call of `method` may run as a task, beside `outliving` handlers whose
    /// calls have ended.
    ///
    /// # Errors
    /// The status for the caller, if the limit is reached.
    pub(crate) fn admits_task(&self, method: &'static str, outliving: usize) -> Result<(), Status> {
        if self.tasks.get() + outliving < self.task_limit.get() {
            return Ok(());
        }
        self.beyond_tasks.set(self.beyond_tasks.get().and(method, self.task_limit.get()));
        Err(Status::resource_exhausted("the server already runs as many calls as its limit allows"))
    }

    /// Counts a call of `method` that was refused because `limit` requests wait for a worker.
    pub(super) fn beyond_queue(&self, method: &'static str, limit: usize) {
        self.beyond_queue.set(self.beyond_queue.get().and(method, limit));
    }

    /// The calls that were refused because too many run as tasks, and because too many wait for a
    /// worker.
    pub(super) fn refused(&self) -> [RefusedCalls; 2] {
        [self.beyond_tasks.get(), self.beyond_queue.get()]
    }

    /// Records that `task` works on the call.
    pub(crate) fn task(&self, call: RequestHandle, task: TaskId) {
        let before =
            self.calls.borrow_mut().insert(call, Running { task: Some(task), cancelled: None });
        debug_assert!(before.is_none(), "a request is dispatched once");
        self.tasks.set(self.tasks.get() + 1);
    }

    /// Removes the call.
    fn remove(&self, call: RequestHandle) -> Option<Running> {
        let running = self.calls.borrow_mut().remove(&call)?;
        if !mutant!(TaskCountLeak) {
            self.tasks.set(self.tasks.get() - usize::from(running.task.is_some()));
        }
        Some(running)
    }

    /// Records that the call's task has ended. If `is_deferred`, a responder answers the call
    /// later. False if the call was no longer running: a cancel from within the task's own poll has
    /// answered it.
    pub(super) fn task_ended(&self, call: RequestHandle, is_deferred: bool) -> bool {
        let Some(Running { cancelled, .. }) = self.remove(call) else { return false };
        if is_deferred {
            self.calls.borrow_mut().insert(call, Running { task: None, cancelled });
        }
        self.answered.set(true);
        true
    }

    /// Cancels a call: sets the flag of its worker or responder. Removes and returns its task,
    /// which the caller has to abort.
    pub(crate) fn cancel(&self, call: RequestHandle) -> Option<TaskId> {
        if let Some(flag) = &self.calls.borrow().get(&call)?.cancelled {
            // The flag is only a hint: a handler that reads it answers anyway. So relaxed ordering
            // suffices.
            flag.store(!mutant!(CancelFlagForgotten), Ordering::Relaxed);
        }
        let task = self.calls.borrow().get(&call)?.task?;
        self.remove(call);
        Some(task)
    }

    /// Removes all calls, sets the flags of their workers and responders, and returns the calls with
    /// their tasks, which the caller has to abort.
    pub(super) fn take_all(&self) -> Vec<(RequestHandle, Option<TaskId>)> {
        let calls = self.calls.take();
        self.tasks.set(0);
        let stop = |(call, running): (RequestHandle, Running)| {
            if let Some(flag) = running.cancelled {
                flag.store(true, Ordering::Relaxed);
            }
            (call, running.task)
        };
        calls.into_iter().map(stop).collect()
    }

    /// Time of the turn in which tasks run.
    pub(crate) fn turn(&self) -> Instant {
        self.turn.get()
    }

    /// Records that the call is answered, and keeps its flag for reuse.
    pub(crate) fn ended(&self, call: RequestHandle) {
        let Some(mut flag) = self.remove(call).and_then(|running| running.cancelled) else {
            return;
        };
        let mut spare = self.spare.borrow_mut();
        // A handler that answered through a responder may still hold its flag.
        if spare.len() < SPARE_FLAGS
            && let Some(unused) = Arc::get_mut(&mut flag)
        {
            if !mutant!(CancelFlagReused) {
                *unused = AtomicBool::new(false);
            }
            spare.push(flag);
        }
    }

    /// Whether a handler may start on a request with this deadline. Counts the request if not.
    pub(crate) fn in_time(
        &self,
        deadline: Instant,
        now: impl FnOnce() -> Instant,
    ) -> Result<(), Status> {
        let in_time = in_time(deadline, now);
        self.late.set(self.late.get() + u64::from(in_time.is_err()));
        in_time
    }

    /// Number of requests whose deadline passed before their handler could start, without those of
    /// workers.
    pub(crate) fn late(&self) -> u64 {
        self.late.get()
    }

    /// Sets the time of the turn in which tasks are polled.
    #[inline]
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.turn.set(now);
    }

    /// Whether tasks have answered since this function was last called.
    #[inline]
    pub(crate) fn take_answered(&self) -> bool {
        self.answered.get() && self.answered.replace(false)
    }
}

/// Whether the deadline has not passed. Reads the clock if there is a deadline: handlers may have
/// run since the turn began.
pub(crate) fn in_time(deadline: Instant, now: impl FnOnce() -> Instant) -> Result<(), Status> {
    if deadline != Instant::NEVER && now() >= deadline {
        return Err(Status::deadline_exceeded(
            "the deadline passed before the handler could start",
        ));
    }
    Ok(())
}

/// Mixes the three numbers of a [`RequestHandle`]. This endpoint chooses the session's index and
/// generation. The request number follows from the slot's previous number, so a client cannot
/// choose it. Therefore no peer can force collisions.
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
        // The map uses the lowest and the highest bits of the hash. The rotation moves the best
        // mixed bits to these positions.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_of_a_cancelled_call_is_clear_when_the_next_call_gets_it() {
        let (running, call) = (RunningRequests::default(), RequestHandle::for_tests());
        let flag = running.deferred(call);
        assert_eq!(running.cancel(call), None);
        assert!(flag.load(Ordering::Relaxed));
        let place = Arc::as_ptr(&flag);
        drop(flag);
        running.ended(call);
        let next = running.deferred(call);
        assert_eq!(Arc::as_ptr(&next), place, "the flag is reused");
        assert!(!next.load(Ordering::Relaxed), "the next call is not cancelled");
    }

    #[test]
    fn a_flag_that_a_handler_holds_is_not_reused() {
        let (running, call) = (RunningRequests::default(), RequestHandle::for_tests());
        let flag = running.deferred(call);
        running.ended(call);
        assert!(!Arc::ptr_eq(&running.deferred(call), &flag));
    }
}
