//! The parts of an endpoint, which its handles share.

use std::cell::{Cell, RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::buf::Pool;
use crate::calling::calls::Calls;
use crate::calling::link::Link;
use crate::calling::options::PreparedCall;
use crate::calling::submissions::Submission;
use crate::calling::table::CallOutcome;
use crate::event_loop::Rpc;
use crate::event_loop::bell::Bell;
use crate::event_loop::flush::FlushQueue;
use crate::event_loop::mailbox::{Job, Mailbox};
use crate::executor::scheduler::Scheduler;
use crate::protocol::RejectReason;
use crate::serving::requests::{RequestParts, Requests};
use crate::time::Instant;
use crate::transport::Transport;

/// The parts of an endpoint. Each part owns its state; this struct owns the parts and lends them to
/// each other.
pub(crate) struct EndpointParts<T: Transport> {
    pub(super) rpc: Rc<RefCell<Rpc<T>>>,
    scheduler: Rc<Scheduler>,
    calls: Calls<T>,
    requests: Rc<Requests<T>>,
    /// The streams, of clients and servers, that may have data to send.
    flushes: Rc<FlushQueue<T>>,
    mailbox: Arc<Mailbox>,
    /// An empty buffer to swap with the mailbox's closures.
    jobs: Cell<Vec<Job>>,
    /// Whether calls were [passed](Self::hand_over) to the protocol since the last doorbell.
    has_handed_over: Cell<bool>,
}

impl<T: Transport> EndpointParts<T> {
    pub(super) fn new(rpc: Rpc<T>, memory: usize, seed: u64, liveness: Duration) -> Self {
        let bell = Arc::new(Bell::new(rpc.waker()));
        let pool = Pool::in_arena(memory, rpc.transport().arena());
        let parts = RequestParts {
            scheduler: Rc::new(Scheduler::new(Arc::clone(&bell), seed, liveness)),
            rpc: Rc::new(RefCell::new(rpc)),
            pool: Rc::new(RefCell::new(pool)),
            mailbox: Arc::new(Mailbox::new::<T>(bell)),
            flushes: Rc::default(),
        };
        Self {
            rpc: Rc::clone(&parts.rpc),
            scheduler: Rc::clone(&parts.scheduler),
            calls: Calls::new(Rc::clone(&parts.scheduler), Rc::clone(&parts.pool)),
            flushes: Rc::clone(&parts.flushes),
            mailbox: Arc::clone(&parts.mailbox),
            requests: Requests::new(parts),
            jobs: Cell::default(),
            has_handed_over: Cell::default(),
        }
    }

    #[inline]
    pub(crate) fn scheduler(&self) -> &Rc<Scheduler> {
        &self.scheduler
    }

    #[inline]
    pub(crate) fn calls(&self) -> &Calls<T> {
        &self.calls
    }

    #[inline]
    pub(super) fn requests(&self) -> &Requests<T> {
        &self.requests
    }

    #[inline]
    pub(crate) fn flushes(&self) -> &FlushQueue<T> {
        &self.flushes
    }

    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    #[inline]
    pub(crate) fn pool(&self) -> RefMut<'_, Pool> {
        self.calls.pool()
    }

    /// The raw endpoint. `None` while its turn runs.
    pub(crate) fn rpc(&self) -> Option<RefMut<'_, Rpc<T>>> {
        self.rpc.try_borrow_mut().ok()
    }

    /// Sends the packets that the last turn has left to later ones, and the calls that wait for these.
    /// Called when a loop ends.
    pub(super) fn send_held(&self) {
        if let Some(mut rpc) = self.rpc()
            && rpc.holds_packets()
        {
            let mut cx = rpc.context_at(self.scheduler.now());
            self.requests.take_answers(&mut cx);
            self.calls.drain(&mut cx);
            rpc.ring_doorbell();
        }
    }

    /// Whether calls were passed to the protocol since this function was last called.
    #[inline]
    pub(super) fn take_handed_over(&self) -> bool {
        self.has_handed_over.take()
    }

    /// Whether the endpoint has ended, or ends with this turn.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.scheduler.is_closed()
    }

    /// Makes a call on `link` and returns the call's key. A call of a task, a handler or a callback is
    /// sent with the turn that runs, or with one of the next three if that turn holds its packets.
    /// Another call is sent with the next turn.
    #[inline(always)]
    pub(crate) fn start(
        &self,
        link: Rc<Link<T::Route>>,
        call: Result<PreparedCall, RejectReason>,
        outcome: impl FnOnce() -> CallOutcome,
    ) -> usize {
        let key = self.calls.start(link, call, outcome);
        self.hand_over();
        key
    }

    /// Queues a submission.
    pub(crate) fn submit(&self, submission: Submission<T::Route>) {
        self.calls.submit(submission);
        self.hand_over();
    }

    /// Cancels a call and drops its outcome.
    pub(crate) fn cancel(&self, key: usize) {
        self.calls.cancel(key);
        self.hand_over();
    }

    /// Passes the queued submissions to the protocol if there are many, unless the endpoint's turn
    /// is running.
    #[inline(always)]
    pub(crate) fn hand_over(&self) {
        if self.calls.has_gathered() {
            self.hand_over_now();
        }
    }

    #[cold]
    fn hand_over_now(&self) {
        if let Some(mut rpc) = self.rpc() {
            self.calls.drain(&mut rpc.context_at(self.scheduler.now()));
            drop(rpc);
            self.has_handed_over.set(true);
            self.finish_ending();
        }
    }

    /// Runs the closures that other threads have submitted; returns their number. A panic of a
    /// closure does not reach the loop, because the closure is not from the loop's thread. The
    /// panic hook reports it.
    pub(super) fn run_jobs(&self) -> usize {
        if !self.mailbox.bell().is_rung() {
            return 0;
        }
        let mut jobs = self.jobs.take();
        self.mailbox.take_jobs(&mut jobs);
        let count = jobs.len();
        jobs.drain(..).for_each(|job| drop(catch_unwind(AssertUnwindSafe(job))));
        self.jobs.set(jobs);
        count
    }

    /// Wakes the tasks of other threads whose calls have ended in this turn, or the first of them.
    #[inline]
    pub(super) fn wake_tasks(&self) {
        self.calls.wakes().end_turn(self.mailbox.wakes());
    }

    /// Wakes all tasks of other threads whose calls have ended, because the loop stops or sleeps.
    /// Returns whether there may have been some that the turn had not woken.
    pub(super) fn wake_all_tasks(&self) -> bool {
        self.wake_tasks();
        self.calls.wakes().flush(self.mailbox.wakes())
    }

    /// Whether the next turn has work besides packets.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.is_busy() || !self.flushes.is_empty() || self.scheduler.executor().has_ready()
    }

    /// Sleeps until there may be work, for at most `limit`.
    pub(super) fn sleep(&self, limit: Option<Duration>) {
        if !self.is_busy()
            && let Some(mut rpc) = self.rpc()
        {
            let (now, timer) = (self.scheduler.now(), self.scheduler.timers().next());
            let until_timer = (timer != Instant::NEVER).then(|| timer - now);
            let limit = match (until_timer, limit) {
                (Some(timer), Some(limit)) => Some(timer.min(limit)),
                (timer, limit) => timer.or(limit),
            };
            self.mailbox.bell().sleep(|| rpc.wait_at(now, limit));
        }
    }

    /// The time at which there is work even if no packet arrives: when the earliest timer is due,
    /// or a time in the past if a handshake waits for the look-up of its path. [`Instant::NEVER`]
    /// if there is neither. The protocol is included only while no turn runs.
    pub(super) fn next_deadline(&self) -> Instant {
        let of_protocol = self.rpc().and_then(|rpc| rpc.next_deadline());
        of_protocol.unwrap_or(Instant::NEVER).min(self.scheduler.timers().next())
    }
}
