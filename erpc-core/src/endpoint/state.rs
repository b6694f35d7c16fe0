//! What the handles of an endpoint share: the raw endpoint and what waits for it.
//!
//! The raw endpoint is borrowed while its turn runs, and handlers and callbacks run within the turn.
//! So nothing that a user calls ever borrows it on the spot: calls become [`Submission`]s in a queue,
//! which the loop drains at the start of a turn and right after each handler or callback, while it
//! has the endpoint in hand. Outside of the loop a long queue is drained early.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::buf::Pool;
use crate::calling::callback::Callbacks;
use crate::calling::link::{Link, Phase};
pub(crate) use crate::calling::submissions::Submission;
use crate::calling::table::Calls;
use crate::client::stream::Streams;
use crate::clock;
use crate::endpoint::ending::Life;
use crate::event_loop::mailbox::{Answer, Bell, Job, Mailbox};
use crate::event_loop::{Context, Rpc};
use crate::executor::join::caught;
use crate::executor::tasks::{Executor, TaskId};
use crate::executor::timers::{Alarm, Timers};
use crate::protocol::{CallError, SessionEvent, SessionId};
use crate::serving::dispatch::{Dispatch, Serving, answer};
use crate::serving::tasks::Running;
use crate::sync::atomic::Ordering;
use crate::time::Instant;
use crate::transport::Transport;

pub(crate) struct Shared<T: Transport> {
    pub(crate) rpc: RefCell<Rpc<T>>,
    /// Where requests are encoded; apart from the raw endpoint's, which is out of reach in callbacks.
    pub(crate) pool: RefCell<Pool>,
    pub(crate) calls: RefCell<Calls<T>>,
    pub(crate) callbacks: Callbacks,
    pub(crate) submissions: RefCell<VecDeque<Submission<T::Route>>>,
    /// Callbacks that failed before anything was sent. They wait for the loop, so that no callback runs
    /// within the call that it was given to.
    pub(crate) failures: RefCell<VecDeque<(usize, CallError)>>,
    pub(crate) links: RefCell<HashMap<SessionId, Rc<Link<T::Route>>>>,
    pub(crate) executor: Executor,
    pub(crate) timers: RefCell<Timers>,
    /// For choices that are to be spread, not secret: a counter that is mixed when it is read.
    pub(crate) dice: Cell<u64>,
    /// What time it is, if somebody else says so.
    pub(crate) time: Cell<Option<Instant>>,
    pub(crate) mailbox: Arc<Mailbox<T>>,
    /// The buffers that the mailbox's queues are exchanged for.
    pub(crate) replies: Cell<Vec<Answer>>,
    pub(crate) jobs: Cell<Vec<Job<T>>>,
    pub(crate) serving: OnceCell<Serving<T>>,
    pub(crate) running: Running,
    pub(crate) streams: Streams<T>,
    /// The first panic of a callback in this turn.
    pub(crate) panic: Cell<Option<Box<dyn Any + Send>>>,
    pub(crate) life: Cell<Life>,
    /// The loop waits among tasks of somebody else, which may ask for something meanwhile.
    pub(crate) dozing: Cell<bool>,
}

impl<T: Transport> Shared<T> {
    pub(crate) fn new(rpc: Rpc<T>, memory: usize, seed: u64, liveness: Duration) -> Self {
        let bell = Arc::new(Bell::new(rpc.waker()));
        let arena = rpc.transport().arena();
        Self {
            rpc: RefCell::new(rpc),
            pool: RefCell::new(Pool::in_arena(memory, arena)),
            calls: RefCell::new(Calls::new()),
            callbacks: Callbacks::default(),
            submissions: RefCell::default(),
            failures: RefCell::default(),
            links: RefCell::default(),
            executor: Executor::new(Arc::clone(&bell), liveness),
            timers: RefCell::default(),
            dice: Cell::new(seed),
            time: Cell::new(None),
            mailbox: Arc::new(Mailbox::new(bell)),
            replies: Cell::default(),
            jobs: Cell::default(),
            serving: OnceCell::new(),
            running: Running::default(),
            streams: Streams::default(),
            panic: Cell::new(None),
            life: Cell::new(Life::Running),
            dozing: Cell::new(false),
        }
    }

    #[inline]
    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox<T>> {
        &self.mailbox
    }

    #[inline]
    pub(crate) fn calls(&self) -> RefMut<'_, Calls<T>> {
        self.calls.borrow_mut()
    }

    #[inline]
    pub(crate) fn pool(&self) -> RefMut<'_, Pool> {
        self.pool.borrow_mut()
    }

    #[inline]
    pub(crate) fn timers(&self) -> RefMut<'_, Timers> {
        self.timers.borrow_mut()
    }

    /// A random number, by SplitMix64. Costs no system call.
    pub(crate) fn random(&self) -> u64 {
        let counter = self.dice.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.dice.set(counter);
        let mixed = (counter ^ (counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The raw endpoint, unless its turn is running.
    pub(crate) fn rpc(&self) -> Option<RefMut<'_, Rpc<T>>> {
        self.rpc.try_borrow_mut().ok()
    }

    /// There is something to do for the loop, from outside of it.
    #[inline]
    pub(crate) fn stir(&self) {
        if self.dozing.get() {
            self.dozing.set(false);
            self.mailbox.bell.nudge();
        }
    }

    /// Starts a task of the runtime's own. If what users gave it panics, that surfaces as the panic of a
    /// callback does.
    pub(crate) fn spawn_quietly(
        self: &Rc<Self>,
        task: impl Future<Output = ()> + 'static,
    ) -> TaskId {
        let shared = Rc::downgrade(self);
        let task = self.executor.start(async move {
            if let (Err(panic), Some(shared)) = (caught(task).await, shared.upgrade()) {
                shared.keep_panic(panic);
            }
        });
        self.stir();
        task
    }

    /// Runs a callback. A panic is kept until the turn is over: it must not tear the protocol's work.
    #[inline]
    pub(crate) fn guard(&self, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            self.keep_panic(panic);
        }
    }

    pub(crate) fn keep_panic(&self, panic: Box<dyn Any + Send>) {
        let first = self.panic.take().unwrap_or(panic);
        self.panic.set(Some(first));
    }

    /// What a callback of the last turn panicked with.
    #[inline]
    pub(crate) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.take()
    }

    pub(crate) fn session_event(&self, session: SessionId, event: SessionEvent) {
        let link = match event {
            SessionEvent::Opened => self.links.borrow().get(&session).cloned(),
            SessionEvent::Closed(_) => self.links.borrow_mut().remove(&session),
        };
        // Sessions that peers opened have no link.
        let Some(link) = link else { return };
        let phase = match event {
            SessionEvent::Opened => Phase::Open,
            SessionEvent::Closed(cause) => Phase::Closed(cause),
        };
        link.enter(phase, &self.executor);
    }

    /// After a handler or a callback: sends what it asked for.
    #[inline]
    pub(crate) fn after_upcall(&self, cx: &mut Context<'_, T>) {
        if !self.submissions.borrow().is_empty() {
            self.drain(cx);
        }
        if self.mailbox.bell.is_rung() {
            self.take_replies(cx);
        }
    }

    /// Sends the answers that came from outside of handlers; returns how many.
    pub(crate) fn take_replies(&self, cx: &mut Context<'_, T>) -> usize {
        if self.mailbox.bell.answer(Bell::REPLIES) == 0 {
            return 0;
        }
        let mut replies = self.replies.take();
        self.mailbox.replies.swap(&mut replies);
        let count = replies.len();
        for (call, result) in replies.drain(..) {
            self.running.ended(call);
            answer(cx, call, result.into());
        }
        self.replies.set(replies);
        count
    }

    /// The closures that other threads sent; `None` if there are none.
    pub(crate) fn take_jobs(&self) -> Option<Vec<Job<T>>> {
        if self.mailbox.bell.answer(Bell::JOBS) == 0 {
            return None;
        }
        let mut jobs = self.jobs.take();
        self.mailbox.jobs.swap(&mut jobs);
        Some(jobs)
    }

    /// Gives the emptied vector back.
    pub(crate) fn reuse_jobs(&self, jobs: Vec<Job<T>>) {
        self.jobs.set(jobs);
    }

    /// Everything of a turn but the closures of other threads; returns what there was to do.
    #[inline]
    pub(crate) fn turn(&self) -> usize {
        #[cfg(feature = "tokio")]
        self.executor.standstill.turn();
        let now = self.now();
        let mut work = 0;
        let mut rpc = self.rpc.try_borrow_mut().expect(
            "the endpoint's loop is run from within one of its handlers or callbacks; use callbacks or `spawn` there",
        );
        if self.mailbox.bell.is_rung() {
            // Work, so that the loop looks at its condition before it sleeps.
            work += usize::from(self.mailbox.bell.answer_nudge());
            if self.mailbox.bell.answer(Bell::WAKES) != 0 {
                self.executor.take_remote();
            }
            work += self.take_replies(&mut rpc.context_at(now));
        }
        let submitted = self.submissions.borrow().len();
        if submitted > 0 {
            work += submitted;
            self.drain(&mut rpc.context_at(now));
        }
        if self.streams.are_dirty() {
            work += self.flush_streams(&mut rpc.context_at(now));
        }
        work += rpc.turn(now, self.time.get().is_some(), &mut Dispatch { shared: self });
        drop(rpc);
        work += self.finish_ending();
        self.running.begin_turn(now);
        work += self.run_failures() + self.run_alarms(now) + self.executor.run_ready();
        if self.running.take_answered() || self.streams.are_dirty() {
            // Not with the next turn, which receives first.
            self.send_now(now);
        }
        work
    }

    /// Requests that came too late for their handlers.
    pub(crate) fn late_requests(&self) -> u64 {
        self.running.late() + self.mailbox.late.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn send_now(&self, now: Instant) {
        if let Some(mut rpc) = self.rpc() {
            let mut cx = rpc.context_at(now);
            self.drain(&mut cx);
            self.flush_streams(&mut cx);
            rpc.ring_doorbell();
        }
    }

    /// Runs what is due; returns how much. Bounded by the timers that there are.
    #[inline]
    pub(crate) fn run_alarms(&self, now: Instant) -> usize {
        let mut due = 0;
        while self.timers().next() <= now {
            let Some(alarm) = self.timers().pop(now) else { break };
            due += 1;
            match alarm {
                Alarm::Wake(waiter) => waiter.wake(&self.executor),
                Alarm::Call(key) => self.call_is_due(key),
            }
        }
        due
    }

    /// Whether the next turn has something to do that no packet brings.
    pub(crate) fn is_busy(&self) -> bool {
        !self.submissions.borrow().is_empty()
            || !self.failures.borrow().is_empty()
            || self.streams.are_dirty()
            || self.executor.has_ready()
    }

    /// Sleeps until there may be something to do, for at most `limit`.
    pub(crate) fn sleep(&self, limit: Option<Duration>) {
        if !self.is_busy()
            && let Some(mut rpc) = self.rpc()
        {
            let timer = self.timers().next();
            let until_timer = (timer != Instant::NEVER).then(|| timer - self.now());
            let limit = match (until_timer, limit) {
                (Some(timer), Some(limit)) => Some(timer.min(limit)),
                (timer, limit) => timer.or(limit),
            };
            self.mailbox.bell.sleep(|| rpc.wait(limit));
        }
    }

    /// When something is due that no packet brings; [`Instant::NEVER`] if nothing is.
    pub(crate) fn next_deadline(&self) -> Instant {
        let of_protocol = self.rpc().and_then(|rpc| rpc.next_deadline());
        of_protocol.unwrap_or(Instant::NEVER).min(self.timers().next())
    }

    /// Lets it be `now` until it is told otherwise.
    pub(crate) fn set_time(&self, now: Instant) {
        self.time.set(Some(now));
    }

    /// What time it is now.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.time.get().unwrap_or_else(clock::now)
    }
}
