//! What runs on an endpoint's thread besides its packets, and when.

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

/// How far the life of an endpoint has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Lifecycle {
    Running,
    /// Takes no more calls, and ends with the turn that is under way.
    Ending,
    /// The protocol has dropped all sessions and calls. The loop may still be run.
    Ended,
    /// No loop will run again, so nothing is kept for one.
    Orphaned,
}

/// The tasks and timers of an endpoint, its clock, and how far its life has come.
pub(crate) struct Scheduler {
    executor: Executor,
    timers: RefCell<Timers>,
    bell: Arc<Bell>,
    lifecycle: Cell<Lifecycle>,
    /// The time of a virtual clock; `None` if the system's is read.
    virtual_time: Cell<Option<Instant>>,
    /// For choices that are to be spread, not secret.
    random: Cell<SplitMix64>,
    /// The first panic of a callback or of a task of the runtime's own in this turn.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// The loop sleeps in a reactor, among tasks that may make calls meanwhile.
    in_reactor: Cell<bool>,
}

impl Scheduler {
    /// The scheduler of a loop that `bell` wakes. Peers give the endpoint up if it stands still for
    /// `liveness`.
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

    /// What time it is now.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.virtual_time.get().unwrap_or_else(clock::now)
    }

    /// Lets it be `now` until the next call; the system's clock is not read any more.
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

    /// Goes on to a later part of the endpoint's life.
    pub(crate) fn enter(&self, lifecycle: Lifecycle) {
        debug_assert!(lifecycle >= self.lifecycle.get(), "an endpoint does not come back to life");
        self.lifecycle.set(lifecycle);
    }

    /// The loop sleeps in a reactor from here on, or does not any more.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_in_reactor(&self, sleeps: bool) {
        self.in_reactor.set(sleeps);
    }

    /// There is something to do for the loop, from this thread: wakes a loop that sleeps in a reactor.
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

    /// Starts a task of the runtime's own. If what users gave it panics, that surfaces as the panic of a
    /// callback does.
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

    /// Runs a callback. A panic is kept until the turn is over: it must not interrupt the protocol's work.
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

    /// What a callback of the last turn panicked with.
    #[inline]
    pub(crate) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.take()
    }
}
