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
use crate::wire::extension::{DEADLINE_AT, EXTENSION_HEAD, continues, remaining};

/// A request in a slot.
pub(super) struct Call {
    request: MsgBuf,
    token: u64,
    method: u32,
    /// The deadline of an extended request; `None` if the request has no extension.
    extended: Option<Instant>,
    /// How the request is cut into packets, and whether these are the session's large packets.
    layout: PacketLayout,
    is_large: bool,
    /// How much of the request the server may have received in packets of another size.
    before: Before,
    /// What the last request packet reserves. Cached.
    last_cost: Cost,
    /// Request packets `0..sent` are acknowledged, or were sent since the last roll-back.
    sent: u32,
    /// Request packets `0..acked` are acknowledged, and their credits are released.
    acked: u32,
    /// The largest `sent` since the request was last cut into packets. If it equals the number of
    /// packets, the server may have the whole request.
    ever_sent: u32,
    retry: RetryTimer,
    recovery: Recovery,
    /// What the call waits for. The call is then in the line or list of that resource.
    waiting: Option<Blocked>,
    /// The response, once it is known to have several packets or to be announced.
    response: Option<Box<Response>>,
}

/// How much of a request was sent before it was cut into other packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Before {
    Nothing,
    Part,
    Whole,
}

/// What a call returns to its caller when it ends.
pub(in crate::protocol) struct Finished {
    pub(in crate::protocol) token: u64,
    pub(in crate::protocol) request: MsgBuf,
}

/// A finished plain call, the cost that its packet reserved, and when that packet was sent.
pub(super) struct FinishedPlain {
    pub(super) finished: Finished,
    pub(super) method: u32,
    pub(super) cost: Cost,
    pub(super) sent_at: Instant,
}

impl Call {
    /// A call of which no packet was sent.
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

    /// Whether the request is cut into the session's large packets.
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

    /// When the call ends if it has no response; [`Instant::NEVER`] for a request without an
    /// extension.
    pub(super) fn deadline(&self) -> Instant {
        self.extended.unwrap_or(Instant::NEVER)
    }

    /// Whether the request is a single packet that was sent once, and nothing was received for it
    /// yet.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.layout.packets() == 1
            && self.sent == 1
            && self.acked == 0
            && !self.retry.is_accepted()
            && !self.recovery.was_retransmitted()
            && self.response.is_none()
    }

    #[inline(always)]
    pub(super) fn finish_plain(self) -> FinishedPlain {
        let Self { request, token, method, last_cost, retry, response, .. } = self;
        // A plain call has no response in reassembly: `forget` skips no destructor.
        debug_assert!(response.is_none());
        std::mem::forget(response);
        let finished = Finished { token, request };
        FinishedPlain { finished, method, cost: last_cost, sent_at: retry.active_at() }
    }

    // Sending.

    /// The next request packet to send. `None` if all are sent, or the server has the request.
    #[inline]
    pub(super) fn next_to_send(&self) -> Option<u32> {
        let owes = self.sent < self.layout.packets()
            && !self.retry.is_accepted()
            && self.response.is_none();
        owes.then_some(self.sent)
    }

    /// What a request packet reserves.
    #[inline]
    pub(super) fn cost(&self, charges: &Charges, packet: u32) -> Cost {
        if packet + 1 == self.layout.packets() {
            return self.last_cost;
        }
        charges.packet(&self.layout, packet)
    }

    /// The header's `aux` word of a request packet: the method in packet 0, the time of sending in
    /// others.
    #[inline]
    pub(super) fn aux(&self, packet: u32, now: Instant) -> u32 {
        if packet == 0 { self.method } else { self.recovery.stamp_at(now).to_u32() }
    }

    #[inline]
    pub(super) fn is_extended(&self) -> bool {
        self.extended.is_some()
    }

    /// The request, of which the caller sends this packet. Before each copy of packet 0, the
    /// remaining time until the deadline is written into the extension.
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

    /// The next packet was sent. Returns whether this was the first copy of the packet.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant) -> bool {
        self.retry.restart(now);
        self.sent += 1;
        debug_assert!(self.sent <= self.layout.packets());
        let first = self.sent > self.ever_sent;
        self.ever_sent = self.ever_sent.max(self.sent);
        first
    }

    /// A packet was sent again. It uses the reservation of its first copy.
    pub(super) fn note_sent_again(&mut self, now: Instant) {
        self.retry.restart(now);
        self.recovery.retransmitted();
    }

    // Waiting.

    #[inline]
    pub(super) fn waiting(&self) -> Option<Blocked> {
        self.waiting
    }

    /// Sets what the call waits for; `None` if the call does not wait.
    #[inline]
    pub(super) fn set_waiting(&mut self, lack: Option<Blocked>) {
        self.waiting = lack;
    }

    /// Request packets not sent yet, or response packets not asked for yet.
    pub(super) fn left(&self) -> u32 {
        match &self.response {
            Some(response) => response.left(),
            None => self.layout.packets() - self.sent,
        }
    }

    /// Request packets that were sent and not acknowledged.
    pub(super) fn unanswered(&self) -> u32 {
        self.sent - self.acked
    }

    /// Whether the call may time out: request or response packets are in flight, or the handler
    /// runs.
    pub(super) fn awaits_packets(&self) -> bool {
        match &self.response {
            Some(response) => response.on_their_way() > 0,
            None => self.sent > self.acked || self.retry.is_accepted(),
        }
    }

    /// Whether all request packets except perhaps the last are acknowledged, and the response has
    /// not begun. The last packet may be lost, or the handler may run.
    pub(super) fn awaits_handler(&self) -> bool {
        self.response.is_none() && self.acked + 1 >= self.layout.packets()
    }

    // Answers from the server.

    /// Whether the server may have the whole request.
    pub(super) fn maybe_executed(&self) -> bool {
        let sent = if mutant!(NotExecutedLie) { self.acked } else { self.ever_sent };
        sent == self.layout.packets() || self.before == Before::Whole || mutant!(MaybeExecutedLie)
    }

    /// Whether the last request packet, which may be short, was ever sent.
    pub(super) fn is_last_sent(&self) -> bool {
        self.ever_sent == self.layout.packets()
    }

    /// Whether the request continues a stream.
    pub(super) fn continues(&self) -> bool {
        self.is_extended() && continues(self.request.as_slice())
    }

    /// Whether any packet of the request was ever sent.
    pub(super) fn was_sent(&self) -> bool {
        self.ever_sent > 0 || self.before > Before::Nothing
    }

    /// Request packets acknowledged. The packet with this number is the oldest unacknowledged one.
    pub(super) fn acked(&self) -> u32 {
        self.acked
    }

    /// Whether a credit return that expects packet `expected` next is valid.
    pub(super) fn may_expect(&self, expected: u32) -> bool {
        expected < self.layout.packets() && expected <= self.ever_sent
    }

    /// The server has every packet before `expected`: releases their reservations.
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
        // After a roll-back, the server may have received more packets than were sent again.
        self.acked = expected;
        self.sent = self.sent.max(expected);
        self.retry.progress(now);
    }

    /// Whether request packets were sent that are not acknowledged.
    pub(super) fn has_unacknowledged(&self) -> bool {
        self.sent > self.acked
    }

    /// The server has the whole request and is executing it: releases the reservations of its
    /// packets.
    pub(super) fn accept(&mut self, charges: &Charges, flow: &mut Flow<'_>) {
        if mutant!(AcceptedKeepsCredits) {
            self.sent = self.acked;
        }
        self.release_outstanding(charges, flow);
        self.acked = self.layout.packets();
        self.sent = self.acked;
        self.retry.accept();
    }

    /// The response starts, and has several packets or was announced. Releases the reservations of
    /// the request packets for use by response packets.
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

    /// Rolls back to the first request packet that is not acknowledged or, once the response has
    /// begun, to the first response packet that has not arrived. Releases the reservations of that
    /// packet and of all later ones.
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

    /// The path drops packets of the size that the call is cut into. The call starts again, in
    /// packets of `layout`. Releases the call's reservations, and discards what has arrived of a
    /// response.
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

    // Reservations.

    /// Releases what the packets in flight have reserved: they are lost, or their answers do not
    /// matter.
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

    /// What the packets in flight have reserved: request packets, and response packets asked for.
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

    /// Whether the transmit queue still refers to the request. Callers reclaim sent packets first.
    #[inline]
    pub(super) fn is_queued(&self) -> bool {
        !self.request.is_unique()
    }

    /// The call's error if it ends now with this cause.
    pub(super) fn error(&self, cause: Cause) -> CallError {
        match &self.response {
            // A failure does not prove that the handler ran.
            Some(response) if !response.is_failure() => CallError::ResponseLost(cause),
            _ if self.maybe_executed() => CallError::MaybeExecuted(cause),
            _ => CallError::NotExecuted(cause),
        }
    }

    /// Ends a call that has released its reservations. Returns what belongs to its caller.
    #[inline]
    pub(super) fn finish(mut self, pool: &mut Pool) -> Finished {
        if let Some(response) = self.response.take() {
            response.discard(pool);
        }
        Finished { token: self.token, request: self.request }
    }

    /// Ends a call that has released its reservations and has no answer. A notice reports `error`.
    pub(super) fn fail(self, endpoint: &mut EndpointState, error: CallError) {
        endpoint.stats.failures += 1;
        let Finished { token, request } = self.finish(&mut endpoint.pool);
        endpoint.notices.push_back(Notice::CallFailed { token, error, request });
    }

    /// Takes out the response if it is complete.
    pub(super) fn take_response(&mut self) -> Option<Complete> {
        self.response.take_if(|response| response.is_complete()).map(|response| response.complete())
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.acked <= self.sent && self.sent <= self.layout.packets());
        let pulls = self.response().is_some_and(Response::is_pull_pending);
        assert!(
            self.waiting.is_some() || self.awaits_packets() || pulls,
            "a call waits, has packets in flight, or has a pull pending"
        );
    }
}
