//! A call in a slot.

use super::recovery::Recovery;
use super::reservation::{Blocked, Charges, Cost, Flow, Reserved};
use super::response::{Complete, Response};
use super::retry::RetryTimer;
use crate::buf::{MsgBuf, Pool};
use crate::mutants::mutant;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::stats::ResendCause;
use crate::protocol::{CallError, Cause, NewCall, Notice};
use crate::time::Instant;
use crate::wire::PacketLayout;
use crate::wire::extension::{DEADLINE_AT, EXTENSION_HEAD, remaining};

/// A request in a slot.
pub(super) struct Call {
    request: MsgBuf,
    token: u64,
    method: u32,
    /// The deadline of an extended request.
    extended: Option<Instant>,
    /// How it is cut, and whether into large packets.
    layout: PacketLayout,
    is_large: bool,
    /// The server may have got this much of it, cut into other packets.
    before: Before,
    /// What the last packet reserves: worked out once.
    last_cost: Cost,
    /// Request packets sent since the last roll-back, and before it up to `acked`.
    sent: u32,
    /// Request packets whose credit came back.
    acked: u32,
    /// Request packets that were ever sent: from here on the server may have it all.
    ever_sent: u32,
    retry: RetryTimer,
    recovery: Recovery,
    /// What it lacks, and stands in line for.
    waiting: Option<Blocked>,
    /// The response, once it turned out to be more than one packet.
    response: Option<Box<Response>>,
}

/// What was sent of a request before it was cut into other packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Before {
    Nothing,
    Part,
    Whole,
}

/// What a call gives back when its outcome is there.
pub(in crate::protocol) struct Finished {
    pub(in crate::protocol) token: u64,
    pub(in crate::protocol) request: MsgBuf,
}

/// What a plain call gives back, what its packet reserved, and when that was sent.
pub(super) struct FinishedPlain {
    pub(super) finished: Finished,
    pub(super) method: u32,
    pub(super) cost: Cost,
    pub(super) sent_at: Instant,
}

impl Call {
    /// A call of which nothing was sent.
    #[inline]
    pub(super) fn new(
        new: NewCall,
        layout: PacketLayout,
        is_large: bool,
        last_cost: Cost,
        now: Instant,
    ) -> Self {
        Self {
            request: new.request,
            token: new.token,
            method: new.method,
            extended: new.extended.then_some(new.deadline),
            layout,
            is_large,
            before: Before::Nothing,
            last_cost,
            sent: 0,
            acked: 0,
            ever_sent: 0,
            retry: RetryTimer::new(now),
            recovery: Recovery::NONE,
            waiting: None,
            response: None,
        }
    }

    /// A call whose only packet has just been sent.
    #[inline(always)]
    pub(super) fn sent_whole(
        new: NewCall,
        layout: PacketLayout,
        is_large: bool,
        last_cost: Cost,
        now: Instant,
    ) -> Self {
        debug_assert!(layout.packets() == 1 && !new.extended);
        let call = Self::new(new, layout, is_large, last_cost, now);
        Self { sent: 1, ever_sent: 1, extended: None, ..call }
    }

    #[inline]
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    #[inline]
    pub(super) fn method(&self) -> u32 {
        self.method
    }

    #[inline]
    pub(super) fn layout(&self) -> &PacketLayout {
        &self.layout
    }

    /// Whether it is cut into the session's large packets.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.is_large
    }

    #[inline]
    pub(super) fn retry(&self) -> &RetryTimer {
        &self.retry
    }

    #[inline]
    pub(super) fn retry_mut(&mut self) -> &mut RetryTimer {
        &mut self.retry
    }

    pub(super) fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    pub(super) fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    pub(super) fn response(&self) -> Option<&Response> {
        self.response.as_deref()
    }

    pub(super) fn response_mut(&mut self) -> Option<&mut Response> {
        self.response.as_deref_mut()
    }

    /// When it ends without a response.
    pub(super) fn deadline(&self) -> Instant {
        self.extended.unwrap_or(Instant::NEVER)
    }

    /// Whether the request is one packet that was sent once and is owed its response.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.layout.packets() == 1
            && self.sent == 1
            && self.acked == 0
            && !self.retry.is_accepted()
            && !self.recovery.was_retransmitted()
            && self.response.is_none()
    }

    /// Ends a plain call.
    #[inline(always)]
    pub(super) fn finish_plain(self) -> FinishedPlain {
        let Self { request, token, method, last_cost, retry, response, .. } = self;
        // A plain call has no response under way: there is nothing to drop.
        debug_assert!(response.is_none());
        std::mem::forget(response);
        let finished = Finished { token, request };
        FinishedPlain { finished, method, cost: last_cost, sent_at: retry.active_at() }
    }

    // What is sent.

    /// The next packet of the request to be sent, `None` if there is none: all are out, or the server has them.
    #[inline]
    pub(super) fn next_to_send(&self) -> Option<u32> {
        let owes = self.sent < self.layout.packets()
            && !self.retry.is_accepted()
            && self.response.is_none();
        owes.then_some(self.sent)
    }

    /// What a packet reserves.
    #[inline]
    pub(super) fn cost(&self, charges: &Charges, packet: u32) -> Cost {
        if packet + 1 == self.layout.packets() {
            return self.last_cost;
        }
        charges.packet(&self.layout, packet)
    }

    /// The word that travels with a packet of the request: the method, or the time it was sent.
    #[inline]
    pub(super) fn aux(&self, packet: u32, now: Instant) -> u32 {
        if packet == 0 { self.method } else { self.recovery.stamp_at(now).to_u32() }
    }

    #[inline]
    pub(super) fn is_extended(&self) -> bool {
        self.extended.is_some()
    }

    /// The request, to send one of its packets. Before the first one is sent, for the first time or again, the
    /// extension is told how much time is left.
    #[inline]
    pub(super) fn request_for(&mut self, packet: u32, now: Instant) -> &mut MsgBuf {
        let stale = mutant!(StampedOnce) && self.ever_sent > 0;
        if packet == 0
            && !stale
            && self.deadline() != Instant::NEVER
            && self.request.len() >= EXTENSION_HEAD
        {
            self.request.write_at(DEADLINE_AT, &remaining(self.deadline(), now).to_le_bytes());
        }
        &mut self.request
    }

    /// The next packet was sent. Returns whether for the first time.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant) -> bool {
        self.retry.restart(now);
        self.sent += 1;
        debug_assert!(self.sent <= self.layout.packets());
        let first = self.sent > self.ever_sent;
        self.ever_sent = self.ever_sent.max(self.sent);
        first
    }

    /// A packet was sent again, on the account of its first copy.
    pub(super) fn note_sent_again(&mut self, now: Instant) {
        self.retry.restart(now);
        self.recovery.retransmitted();
    }

    // What it waits for.

    #[inline]
    pub(super) fn waiting(&self) -> Option<Blocked> {
        self.waiting
    }

    /// It waits for this from now on, or for nothing.
    #[inline]
    pub(super) fn set_waiting(&mut self, lack: Option<Blocked>) {
        self.waiting = lack;
    }

    /// Packets of it that are to be sent, or asked for.
    pub(super) fn left(&self) -> u32 {
        match &self.response {
            Some(response) => response.left(),
            None => self.layout.packets() - self.sent,
        }
    }

    /// Packets of the request that were sent and not answered.
    pub(super) fn unanswered(&self) -> u32 {
        self.sent - self.acked
    }

    /// Whether a timeout would mean something: packets are out that owe an answer, or the response is.
    pub(super) fn awaits_packets(&self) -> bool {
        match &self.response {
            Some(response) => response.on_their_way() > 0,
            None => self.sent > self.acked || self.retry.is_accepted(),
        }
    }

    /// Whether nothing is missing but the handler's answer, as far as one can tell.
    pub(super) fn awaits_handler(&self) -> bool {
        self.response.is_none() && self.acked + 1 >= self.layout.packets()
    }

    // What the server has said.

    /// Whether the server may have the whole request.
    pub(super) fn maybe_executed(&self) -> bool {
        let sent = if mutant!(NotExecutedLie) { self.acked } else { self.ever_sent };
        sent == self.layout.packets() || self.before == Before::Whole || mutant!(MaybeExecutedLie)
    }

    /// Whether anything of the request was ever sent.
    pub(super) fn was_sent(&self) -> bool {
        self.ever_sent > 0 || self.before > Before::Nothing
    }

    /// Request packets that the server has; the next one is the oldest that was not acknowledged.
    pub(super) fn acked(&self) -> u32 {
        self.acked
    }

    /// Whether a credit return that expects packet `expected` next can be one of the server's.
    pub(super) fn may_expect(&self, expected: u32) -> bool {
        expected < self.layout.packets() && expected <= self.ever_sent
    }

    /// The server has every packet before `expected`: gives back what those took.
    pub(super) fn acknowledge(
        &mut self,
        expected: u32,
        now: Instant,
        charges: &Charges,
        flow: &mut Flow<'_>,
    ) {
        for packet in self.acked..expected.min(self.sent) {
            if mutant!(CreditLeak) && packet + 1 == expected {
                continue;
            }
            flow.release(self.cost(charges, packet));
        }
        // After a roll-back the server may be ahead of what was sent again.
        self.acked = expected;
        self.sent = self.sent.max(expected);
        self.retry.progress(now);
    }

    /// Whether request packets behind the acknowledged ones are out.
    pub(super) fn has_unacknowledged(&self) -> bool {
        self.sent > self.acked
    }

    /// The server has the whole request, and is executing it: nothing more is owed for its packets.
    pub(super) fn accept(&mut self, charges: &Charges, flow: &mut Flow<'_>) {
        if mutant!(AcceptedKeepsCredits) {
            self.sent = self.acked;
        }
        self.release_outstanding(charges, flow);
        self.acked = self.layout.packets();
        self.sent = self.acked;
        self.retry.accept();
    }

    /// The response begins, and is more than one packet: the request is done with, and what its packets took is free for
    /// response packets.
    pub(super) fn begin_response(
        &mut self,
        response: Response,
        now: Instant,
        charges: &Charges,
        flow: &mut Flow<'_>,
    ) {
        for packet in self.acked..self.sent {
            flow.release(self.cost(charges, packet));
        }
        self.acked = self.layout.packets();
        self.sent = self.acked;
        self.ever_sent = self.acked;
        self.retry = RetryTimer::new(now);
        self.recovery.forget_roll_back();
        self.response = Some(Box::new(response));
    }

    // Loss.

    /// Goes back to the first packet that was not acknowledged, of the request or of the response, and gives back what
    /// later ones took.
    pub(super) fn roll_back(
        &mut self,
        now: Instant,
        cause: ResendCause,
        charges: &Charges,
        flow: &mut Flow<'_>,
    ) {
        let lost = self.response().map_or(self.acked, Response::next);
        if mutant!(RollbackKeepsCredits) && self.response.is_none() {
            self.sent = self.acked;
        }
        if mutant!(PullRollbackKeepsCredits) {
            self.response_mut().into_iter().for_each(Response::forget_asked);
        }
        self.release_outstanding(charges, flow);
        self.recovery.roll_back(lost, now, cause);
    }

    /// The path swallows packets of the size that the call is cut into: it begins anew, in packets of this layout. What was
    /// out is given back, and what has come of a response goes.
    pub(super) fn cut_again(
        &mut self,
        layout: PacketLayout,
        last_cost: Cost,
        now: Instant,
        charges: &Charges,
        flow: &mut Flow<'_>,
        pool: &mut Pool,
    ) {
        let before = if self.maybe_executed() { Before::Whole } else { Before::Part };
        if self.was_sent() {
            self.before = self.before.max(before);
        }
        self.release_outstanding(charges, flow);
        if let Some(response) = self.response.take() {
            response.discard(pool);
        }
        (self.sent, self.acked, self.ever_sent) = (0, 0, 0);
        (self.layout, self.is_large, self.last_cost) = (layout, false, last_cost);
        self.retry = RetryTimer::new(now);
        self.recovery.roll_back(0, now, ResendCause::Timeout);
    }

    // Accounts.

    /// Gives back what the packets on their way have taken: they are lost, or their answers make no difference any more.
    pub(super) fn release_outstanding(&mut self, charges: &Charges, flow: &mut Flow<'_>) {
        if let Some(response) = &mut self.response {
            for _ in 0..response.on_their_way() {
                flow.release(response.cost());
            }
            response.forget_asked();
        }
        for packet in self.acked..self.sent {
            flow.release(self.cost(charges, packet));
        }
        self.sent = self.acked;
    }

    /// What the request packets that are on their way have taken, and a response's.
    pub(super) fn outstanding(&self, charges: &Charges) -> Reserved {
        let mut reserved = Reserved::default();
        for packet in self.acked..self.sent {
            reserved.add(self.cost(charges, packet));
        }
        if let Some(response) = self.response() {
            for _ in 0..response.on_their_way() {
                reserved.add(response.cost());
            }
        }
        reserved
    }

    // The end.

    /// Whether a queue still refers to the request. The queue reclaims first what its device has read.
    #[inline]
    pub(super) fn is_queued(&self) -> bool {
        !self.request.is_unique()
    }

    /// How the call ends if it ends now, with this cause.
    pub(super) fn error(&self, cause: Cause) -> CallError {
        match &self.response {
            // A failure does not say that the handler ran.
            Some(response) if !response.is_failure() => CallError::ResponseLost(cause),
            _ if self.maybe_executed() => CallError::MaybeExecuted(cause),
            _ => CallError::NotExecuted(cause),
        }
    }

    /// Ends a call that has given back what it took, and whose outcome is there.
    #[inline]
    pub(super) fn finish(mut self, pool: &mut Pool) -> Finished {
        if let Some(response) = self.response.take() {
            response.discard(pool);
        }
        Finished { token: self.token, request: self.request }
    }

    /// Ends a call that has given back what it took, without an answer.
    pub(super) fn fail(self, endpoint: &mut EndpointState, error: CallError) {
        endpoint.stats.failures += 1;
        let Finished { token, request } = self.finish(&mut endpoint.pool);
        endpoint.notices.push_back(Notice::CallFailed { token, error, request });
    }

    /// The response, which is complete.
    pub(super) fn take_response(&mut self) -> Option<Complete> {
        self.response.take_if(|response| response.is_complete()).map(|response| response.complete())
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.acked <= self.sent && self.sent <= self.layout.packets());
        let pulls = self.response().is_some_and(Response::is_pull_pending);
        assert!(
            self.waiting.is_some() || self.awaits_packets() || pulls,
            "a call owes nothing and waits for nothing"
        );
    }
}
