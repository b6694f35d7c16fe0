//! What a session has in every phase of its life: id, address, timer, and the calls that wait for a
//! slot.

use std::collections::VecDeque;

use crate::mutants::mutant;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::index::SessionIndex;
use crate::protocol::wheel::{TimerId, Timers};
use crate::protocol::{CallError, Cause, NewCall, Notice, SessionId};
use crate::time::Instant;
use crate::wire::ConnectionId;

/// The part of a session that is kept through all phases.
#[derive(Debug)]
pub(super) struct Common<R> {
    pub(super) id: SessionId,
    /// Where the session's packets go.
    pub(super) route: R,
    pub(super) timer: SessionTimer,
    pub(super) queue: CallQueue,
    pub(super) intake: Intake,
}

/// Which new calls a session starts, and when. One byte, so that the common case takes one
/// comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Intake(u8);

impl Intake {
    const DISCONNECTS: u8 = 1;
    const HOLDS: u8 = 2;
    const SERVER_DRAINS: u8 = 4;

    /// New calls start immediately.
    #[inline(always)]
    pub(super) fn is_free(self) -> bool {
        self.0 == 0
    }

    /// `disconnect` was called: new calls are rejected, `Close` is sent when no call is left.
    pub(super) fn disconnects(self) -> bool {
        self.0 & Self::DISCONNECTS != 0
    }

    pub(super) fn disconnect(&mut self) {
        self.0 |= Self::DISCONNECTS;
    }

    /// The server shuts down: new calls are rejected, except those that continue a stream.
    pub(super) fn server_drains(self) -> bool {
        self.0 & Self::SERVER_DRAINS != 0
    }

    pub(super) fn begin_server_drain(&mut self) {
        self.0 |= Self::SERVER_DRAINS;
    }

    /// The server may have dropped the session: calls wait in the session's queue until the server
    /// has answered a ping.
    pub(super) fn holds(self) -> bool {
        self.0 & Self::HOLDS != 0
    }

    pub(super) fn hold(&mut self) {
        self.0 |= Self::HOLDS;
    }

    pub(super) fn release(&mut self) {
        self.0 &= !Self::HOLDS;
    }
}

impl<R: Copy> Common<R> {
    pub(super) fn new(id: SessionId, route: R) -> Self {
        Self {
            id,
            route,
            timer: SessionTimer::new(id.index),
            queue: CallQueue::default(),
            intake: Intake::default(),
        }
    }

    /// This endpoint's id of the session. The server puts this id into the packets that it sends
    /// to this session.
    pub(super) fn local_id(&self, endpoint: &EndpointState) -> ConnectionId {
        ConnectionId::new(endpoint.local.steer, false, self.id.index.get(), self.id.generation)
    }
}

/// A session's entry in the endpoint's timing wheel.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTimer {
    id: TimerId,
    /// When the timer fires. It may fire too early, if it was armed for an event that no longer
    /// matters.
    at: Instant,
    /// The earliest time at which the timer is needed for anything but the timeouts of simple
    /// calls; or an earlier time.
    others: Instant,
}

impl SessionTimer {
    fn new(index: SessionIndex) -> Self {
        Self { id: TimerId(index.get() * 2), at: Instant::NEVER, others: Instant::NEVER }
    }

    #[inline(always)]
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// See the field `others`.
    pub(super) fn others(&self) -> Instant {
        self.others
    }

    /// Makes sure that the timer fires at `at` or earlier.
    #[inline]
    pub(super) fn arm(&mut self, timers: &mut Timers, at: Instant) {
        self.others = self.others.min(at);
        self.arm_for_call(timers, at);
    }

    /// As [`Self::arm`], for the timeout of a simple call.
    #[inline]
    pub(super) fn arm_for_call(&mut self, timers: &mut Timers, at: Instant) {
        if at < self.at {
            self.at = at;
            timers.arm(self.id, at);
        }
    }

    /// Arms the timer after it has fired. Even if `at` is past, the timer fires in a later turn.
    /// Otherwise a timer that waits until the receive queue is read would fire again and again in
    /// this turn, in the place of other timers: a turn handles only 32 timers (`MAX_EXPIRED`).
    pub(super) fn arm_again(&mut self, timers: &mut Timers, at: Instant, now: Instant) {
        self.others = self.others.min(at);
        self.arm_again_for_call(timers, at, now);
    }

    /// As [`Self::arm_again`], for the timeout of a simple call.
    pub(super) fn arm_again_for_call(&mut self, timers: &mut Timers, at: Instant, now: Instant) {
        if at < self.at {
            self.at = at;
            timers.arm(self.id, at.max(now.plus_nanos(1)));
        }
    }

    /// Moves the timer to `at`, even if it was armed for an earlier time.
    pub(super) fn rearm(&mut self, timers: &mut Timers, at: Instant) {
        (self.at, self.others) = (Instant::NEVER, Instant::NEVER);
        self.arm(timers, at);
    }

    /// The timer has fired, and the session is about to look for everything that is due.
    pub(super) fn fired(&mut self) {
        self.fired_for_calls();
        self.others = Instant::NEVER;
    }

    /// The timer has fired, but only simple calls need it.
    pub(super) fn fired_for_calls(&mut self) {
        self.at = Instant::NEVER;
    }

    pub(super) fn cancel(&self, timers: &mut Timers) {
        timers.cancel(self.id);
    }
}

/// Calls that wait for a slot, or for the session to open.
#[derive(Debug)]
pub(super) struct CallQueue {
    calls: VecDeque<NewCall>,
    /// A lower bound of the deadlines in the queue.
    deadline: Instant,
}

impl Default for CallQueue {
    fn default() -> Self {
        Self { calls: VecDeque::new(), deadline: Instant::NEVER }
    }
}

impl CallQueue {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn push(&mut self, call: NewCall) {
        self.deadline = self.deadline.min(call.deadline);
        self.calls.push_back(call);
    }

    pub(super) fn pop(&mut self) -> Option<NewCall> {
        self.calls.pop_front()
    }

    /// Removes the call with this token. O(n) in the calls of the queue.
    pub(super) fn remove(&mut self, token: u64) -> Option<NewCall> {
        let place = self.calls.iter().position(|call| call.token == token)?;
        self.calls.remove(place)
    }

    /// Fails calls whose deadline has passed. O(n) in the calls of the queue, but only when
    /// `deadline` has passed.
    pub(super) fn fail_late(&mut self, now: Instant, endpoint: &mut EndpointState) {
        if now < self.deadline || mutant!(QueuedDeadlineForgotten) {
            return;
        }
        self.fail_some(endpoint, |call| (call.deadline <= now).then_some(Cause::DeadlineExceeded));
        self.deadline = self.calls.iter().map(|call| call.deadline).min().unwrap_or(Instant::NEVER);
    }

    /// Fails calls whose request is larger than `limit` bytes. They were queued before the limit
    /// was known.
    pub(super) fn fail_oversized(&mut self, limit: u32, endpoint: &mut EndpointState) {
        self.fail_some(endpoint, |call| {
            let size = call.request.len() as u32;
            (size > limit).then_some(Cause::RequestTooLarge(size))
        });
    }

    /// Fails the calls that a server that shuts down would refuse.
    pub(super) fn fail_beginning(&mut self, cause: Cause, endpoint: &mut EndpointState) {
        self.fail_some(endpoint, |call| (!call.continues()).then_some(cause));
    }

    /// Fails all calls.
    pub(super) fn fail_all(&mut self, cause: Cause, endpoint: &mut EndpointState) {
        self.fail_some(endpoint, |_| Some(cause));
    }

    /// Fails the calls for which `cause` returns a cause, in order. Keeps the others.
    fn fail_some(
        &mut self,
        endpoint: &mut EndpointState,
        cause: impl Fn(&NewCall) -> Option<Cause>,
    ) {
        for _ in 0..self.calls.len() {
            let Some(call) = self.calls.pop_front() else { return };
            match cause(&call) {
                Some(cause) => fail_unsent(call, cause, endpoint),
                None => self.calls.push_back(call),
            }
        }
    }
}

/// Ends a call of which no packet was sent.
pub(super) fn fail_unsent(call: NewCall, cause: Cause, endpoint: &mut EndpointState) {
    endpoint.stats.failures += 1;
    let NewCall { token, request, .. } = call;
    let error = CallError::NotExecuted(cause);
    endpoint.notices.push_back(Notice::CallFailed { token, error, request });
}
