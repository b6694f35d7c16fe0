//! Tasks, timers, the clock and the lifecycle of an endpoint.

use std::any::Any;
use std::cell::{Cell, RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::join::{JoinHandle, caught};
use super::tasks::{Executor, TaskId};
use super::timers::Timers;
use crate::clock;
use crate::event_loop::bell::Bell;
use crate::random::SplitMix64;
use crate::time::Instant;

/// The phases of an endpoint's life, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Lifecycle {
    Running,
    /// The endpoint accepts no more calls, and ends with the current turn.
    Ending,
    /// The protocol has dropped all sessions and calls. The loop may still run.
    Ended,
    /// The loop will not run again, so nothing is kept for it.
    Orphaned,
}

/// The tasks, timers and clock of an endpoint, and its phase of life.
pub(crate) struct Scheduler {
    executor: Executor,
    timers: RefCell<Timers>,
    bell: Arc<Bell>,
    lifecycle: Cell<Lifecycle>,
    /// The time of a virtual clock; `None` if the system's clock is used.
    virtual_time: Cell<Option<Instant>>,
    /// For choices that must be evenly spread, but need not be secret.
    random: Cell<SplitMix64>,
    /// The first panic of a callback or an internal task in this turn.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// Whether the loop sleeps in the reactor of an async runtime. During this sleep, other tasks
    /// of the thread may make calls.
    in_reactor: Cell<bool>,
}

impl Scheduler {
    /// The scheduler of a loop that `bell` wakes. Peers give the endpoint up if the loop stands
    /// still for `liveness`.
    pub(crate) fn new(bell: Arc<Bell>, seed: u64, liveness: Duration) -> Self {
        Self {
            executor: Executor::new(Arc::clone(&bell), liveness),
            timers: RefCell::default(),
            bell,
            lifecycle: Cell::new(Lifecycle::Running),
            virtual_time: Cell::new(None),
            random: Cell::new(SplitMix64::new(seed)),
            panic: Cell::new(None),
            in_reactor: Cell::new(false),
        }
    }

    #[inline]
    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    #[inline]
    pub(crate) fn timers(&self) -> RefMut<'_, Timers> {
        self.timers.borrow_mut()
    }

    /// The current time, in virtual time if that is set.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.virtual_time.get().unwrap_or_else(clock::now)
    }

    /// Sets the virtual time, which stays the same until the next call of this function. The
    /// system's clock is not read any more.
    pub(crate) fn set_time(&self, now: Instant) {
        self.virtual_time.set(Some(now));
    }

    #[inline]
    pub(crate) fn has_virtual_time(&self) -> bool {
        self.virtual_time.get().is_some()
    }

    /// A random number. Costs no system call.
    pub(crate) fn random(&self) -> u64 {
        let mut random = self.random.get();
        let number = random.next();
        self.random.set(random);
        number
    }

    /// Whether the endpoint has ended, or ends with this turn.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.lifecycle.get() != Lifecycle::Running
    }

    #[inline]
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.get()
    }

    /// Enters a later phase of the endpoint's life.
    pub(crate) fn enter(&self, lifecycle: Lifecycle) {
        debug_assert!(
            lifecycle >= self.lifecycle.get(),
            "an endpoint never returns to an earlier phase"
        );
        self.lifecycle.set(lifecycle);
    }

    /// Sets whether the loop sleeps in a reactor.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_in_reactor(&self, sleeps: bool) {
        self.in_reactor.set(sleeps);
    }

    /// Wakes a loop that sleeps in a reactor, because this thread has work for it.
    #[inline]
    pub(crate) fn wake_loop(&self) {
        if self.in_reactor.get() {
            self.in_reactor.set(false);
            self.bell.nudge();
        }
    }

    /// Starts a task.
    pub(crate) fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let handle = self.executor.spawn(future);
        self.wake_loop();
        handle
    }

    /// Starts an internal task. If user code in it panics, the panic is reported like that of a
    /// callback.
    pub(crate) fn spawn_internal(
        self: &Rc<Self>,
        task: impl Future<Output = ()> + 'static,
    ) -> TaskId {
        let scheduler = Rc::downgrade(self);
        let task = self.executor.start(async move {
            if let (Err(panic), Some(scheduler)) = (caught(task).await, scheduler.upgrade()) {
                scheduler.keep_panic(panic);
            }
        });
        self.wake_loop();
        task
    }

    /// Runs a callback. A panic is kept until the end of the turn: it must not interrupt the
    /// protocol.
    #[inline]
    pub(crate) fn run_callback(&self, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            self.keep_panic(panic);
        }
    }

    fn keep_panic(&self, panic: Box<dyn Any + Send>) {
        let first = self.panic.take().unwrap_or(panic);
        self.panic.set(Some(first));
    }

    /// Takes out the first panic of a callback or an internal task since this function was last
    /// called.
    #[inline]
    pub(crate) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.take()
    }
}
