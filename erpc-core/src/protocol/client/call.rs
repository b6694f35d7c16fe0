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
///
/// Nearly all calls are *simple* from beginning to end: one packet, sent at most once, nothing
/// received for it yet. A simple call needs only the fields of this struct, which fit a cache line
/// with the rest of the slot. The other fields are in [`Progress`].
pub(super) struct Call {
    request: MsgBuf,
    token: u64,
    method: u32,
    /// Whether the request is cut into the session's large packets.
    is_large: bool,
    /// Whether the request has an extension.
    is_extended: bool,
    /// Whether the packet of a simple call was sent.
    is_sent: bool,
    /// What the call waits for. The call is then in the line or list of that resource.
    waiting: Option<Blocked>,
    /// What the last request packet reserves. Cached.
    last_cost: Cost,
    /// When the call ends if it has no response. [`Instant::NEVER`] without an extension.
    deadline: Instant,
    /// When a simple call began or was sent.
    sent_at: Instant,
    /// `None` if the call is simple.
    progress: Option<Box<Progress>>,
}

/// What is known of a call that is not simple.
struct Progress {
    /// How the request is cut into packets.
    layout: PacketLayout,
    /// How much of the request the server may have received in packets of another size.
    before: Before,
    /// Request packets `0..sent` are acknowledged, or were sent since the last roll-back.
    sent: u32,
    /// Request packets `0..acked` are acknowledged, and their credits are released.
    acked: u32,
    /// The largest `sent` since the request was last cut into packets. If it equals the number of
    /// packets, the server may have the whole request.
    ever_sent: u32,
    retry: RetryTimer,
    recovery: Recovery,
    /// The response packets that were asked for before the response has begun.
    early: EarlyPull,
    /// The response, once it is known to have several packets or to be announced.
    response: Option<Box<Response>>,
}

/// The packets behind the first one that a call asks for before its response begins.
#[derive(Clone, Copy, Default)]
struct EarlyPull {
    packets: u32,
    /// What each of them reserves.
    cost: Cost,
    /// A packet of the request was sent again since. So the server may have received the request for
    /// response before the request, and dropped it.
    is_doubtful: bool,
}

impl Progress {
    /// A request of `layout`, of which no packet was sent.
    #[inline]
    fn new(layout: PacketLayout, now: Instant) -> Self {
        Self {
            layout,
            before: Before::Nothing,
            sent: 0,
            acked: 0,
            ever_sent: 0,
            retry: RetryTimer::new(now),
            recovery: Recovery::NONE,
            early: EarlyPull::default(),
            response: None,
        }
    }

    /// Whether the request is a single packet that was sent once, nothing was received for it yet,
    /// and no response packet was asked for.
    #[inline]
    fn is_plain(&self) -> bool {
        self.layout.packets() == 1
            && self.early.packets == 0
            && self.sent == 1
            && self.acked == 0
            && !self.retry.is_accepted()
            && !self.recovery.was_retransmitted()
            && self.response.is_none()
    }
}

/// Writes the remaining time until the deadline into a request's extension.
pub(super) fn write_remaining(request: &mut MsgBuf, deadline: Instant, now: Instant) {
    if request.len() >= EXTENSION_HEAD {
        request.write_at(DEADLINE_AT, &remaining(deadline, now).to_le_bytes());
    }
}

/// Drops what was known of a call. Not inlined, so that the path of plain calls stays short.
#[cold]
fn drop_cold(progress: Box<Progress>) {
    drop(progress);
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
        let is_simple = layout.packets() == 1;
        let progress = (!is_simple).then(|| Box::new(Progress::new(layout, now)));
        Self { is_sent: false, progress, ..Self::sent_whole(new, is_large, last_cost, now) }
    }

    /// A call whose only packet has just been sent.
    #[inline(always)]
    pub(super) fn sent_whole(new: NewCall, is_large: bool, last_cost: Cost, now: Instant) -> Self {
        let NewCall { request, token, method, extended, deadline } = new;
        Self {
            request,
            token,
            method,
            is_large,
            is_extended: extended,
            is_sent: true,
            waiting: None,
            last_cost,
            deadline,
            sent_at: now,
            progress: None,
        }
    }

    /// What is known of the call, which is not simple from now on.
    #[inline]
    fn progress(&mut self) -> &mut Progress {
        let (size, sent) = (self.request.len() as u32, u32::from(self.is_sent));
        let sent_at = self.sent_at;
        self.progress.get_or_insert_with(|| {
            let layout = PacketLayout::single(size);
            Box::new(Progress { sent, ever_sent: sent, ..Progress::new(layout, sent_at) })
        })
    }

    /// A property of the call, which is `simple` if the call is simple.
    #[inline(always)]
    fn of<T>(&self, simple: T, get: impl FnOnce(&Progress) -> T) -> T {
        match &self.progress {
            None => simple,
            Some(progress) => get(progress),
        }
    }

    /// Loads the first bytes of the request into the cache.
    #[inline]
    pub(super) fn prefetch_request(&self) {
        self.request.prefetch();
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
    pub(super) fn layout(&self) -> PacketLayout {
        self.of(PacketLayout::single(self.request.len() as u32), |progress| progress.layout)
    }

    /// Whether the request is cut into the session's large packets.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.is_large
    }

    #[inline]
    pub(super) fn retry(&self) -> RetryTimer {
        self.of(RetryTimer::new(self.sent_at), |progress| progress.retry)
    }

    #[inline]
    pub(super) fn retry_mut(&mut self) -> &mut RetryTimer {
        &mut self.progress().retry
    }

    pub(super) fn recovery(&self) -> Recovery {
        self.of(Recovery::NONE, |progress| progress.recovery)
    }

    pub(super) fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.progress().recovery
    }

    pub(super) fn response(&self) -> Option<&Response> {
        self.progress.as_ref()?.response.as_deref()
    }

    pub(super) fn response_mut(&mut self) -> Option<&mut Response> {
        self.progress.as_mut()?.response.as_deref_mut()
    }

    /// When the call ends if it has no response; [`Instant::NEVER`] for a request without an
    /// extension.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When a simple call was sent; `None` if it was not sent, or if the call is not simple.
    #[inline]
    pub(super) fn simple_sent_at(&self) -> Option<Instant> {
        (self.progress.is_none() && self.is_sent).then_some(self.sent_at)
    }

    /// Whether the request is a single packet that was sent once, nothing was received for it yet,
    /// and no response packet was asked for.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.of(self.is_sent, Progress::is_plain)
    }

    #[inline(always)]
    pub(super) fn finish_plain(self) -> FinishedPlain {
        let sent_at = self.of(self.sent_at, |progress| progress.retry.active_at());
        let Self { request, token, method, last_cost, progress, .. } = self;
        if let Some(progress) = progress {
            drop_cold(progress);
        }
        FinishedPlain { finished: Finished { token, request }, method, cost: last_cost, sent_at }
    }

    // Sending.

    /// The next request packet to send. `None` if all are sent, or the server has the request.
    #[inline]
    pub(super) fn next_to_send(&self) -> Option<u32> {
        let Some(progress) = &self.progress else { return (!self.is_sent).then_some(0) };
        let owes = progress.sent < progress.layout.packets()
            && !progress.retry.is_accepted()
            && progress.response.is_none();
        owes.then_some(progress.sent)
    }

    /// What a request packet reserves.
    #[inline]
    pub(super) fn cost(&self, charges: &Charges, packet: u32) -> Cost {
        let layout = self.layout();
        if packet + 1 == layout.packets() {
            return self.last_cost;
        }
        charges.packet(&layout, packet)
    }

    /// The header's `aux` word of a request packet: the method in packet 0, the time of sending in
    /// others.
    #[inline]
    pub(super) fn aux(&self, packet: u32, now: Instant) -> u32 {
        if packet == 0 { self.method } else { self.recovery().stamp_at(now).to_u32() }
    }

    #[inline]
    pub(super) fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// The request, of which the caller sends this packet. Before each copy of packet 0, the
    /// remaining time until the deadline is written into the extension.
    #[inline]
    pub(super) fn request_for(&mut self, packet: u32, now: Instant) -> &mut MsgBuf {
        let stale = mutant!(StampedOnce) && self.ever_sent() > 0;
        if packet == 0 && !stale && self.deadline != Instant::NEVER {
            write_remaining(&mut self.request, self.deadline, now);
        }
        &mut self.request
    }

    /// The next packet was sent. Returns whether this was the first copy of the packet.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant) -> bool {
        if self.progress.is_none() && !self.is_sent {
            (self.is_sent, self.sent_at) = (true, now);
            return true;
        }
        let progress = self.progress();
        progress.retry.restart(now);
        progress.sent += 1;
        debug_assert!(progress.sent <= progress.layout.packets());
        let first = progress.sent > progress.ever_sent;
        progress.ever_sent = progress.ever_sent.max(progress.sent);
        first
    }

    /// A packet was sent again. It uses the reservation of its first copy.
    pub(super) fn note_sent_again(&mut self, now: Instant) {
        let progress = self.progress();
        progress.retry.restart(now);
        progress.recovery.retransmitted();
        progress.early.is_doubtful = !mutant!(EarlyPullTrusted);
    }

    /// Response packets `1..=packets` were asked for, right behind the request. Each has reserved
    /// `cost`.
    pub(super) fn note_pulled_early(&mut self, packets: u32, cost: Cost) {
        self.progress().early = EarlyPull { packets, cost, is_doubtful: false };
    }

    /// Whether response packets were asked for before the response has begun.
    pub(super) fn is_pulled_early(&self) -> bool {
        self.of(false, |progress| progress.early.packets > 0)
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
        self.of(u32::from(!self.is_sent), |progress| match &progress.response {
            Some(response) => response.left(),
            None => progress.layout.packets() - progress.sent,
        })
    }

    /// Request packets that were sent and not acknowledged.
    pub(super) fn unanswered(&self) -> u32 {
        self.of(u32::from(self.is_sent), |progress| progress.sent - progress.acked)
    }

    /// Whether the call may time out: request or response packets are in flight, or the handler
    /// runs.
    pub(super) fn awaits_packets(&self) -> bool {
        self.of(self.is_sent, |progress| match &progress.response {
            Some(response) => response.on_their_way() > 0,
            None => progress.sent > progress.acked || progress.retry.is_accepted(),
        })
    }

    /// Whether all request packets except perhaps the last are acknowledged, and the response has
    /// not begun. The last packet may be lost, or the handler may run.
    pub(super) fn awaits_handler(&self) -> bool {
        self.of(true, |progress| {
            progress.response.is_none() && progress.acked + 1 >= progress.layout.packets()
        })
    }

    // Answers from the server.

    /// Whether the server may have the whole request.
    pub(super) fn maybe_executed(&self) -> bool {
        let sent = if mutant!(NotExecutedLie) { self.acked() } else { self.ever_sent() };
        sent == self.layout().packets()
            || self.before() == Before::Whole
            || mutant!(MaybeExecutedLie)
    }

    /// Whether the last request packet, which may be short, was ever sent.
    pub(super) fn is_last_sent(&self) -> bool {
        self.ever_sent() == self.layout().packets()
    }

    /// Whether the request continues a stream.
    pub(super) fn continues(&self) -> bool {
        self.is_extended() && continues(self.request.as_slice())
    }

    /// Whether any packet of the request was ever sent.
    pub(super) fn was_sent(&self) -> bool {
        self.ever_sent() > 0 || self.before() > Before::Nothing
    }

    /// Request packets acknowledged. The packet with this number is the oldest unacknowledged one.
    pub(super) fn acked(&self) -> u32 {
        self.of(0, |progress| progress.acked)
    }

    fn ever_sent(&self) -> u32 {
        self.of(u32::from(self.is_sent), |progress| progress.ever_sent)
    }

    fn before(&self) -> Before {
        self.of(Before::Nothing, |progress| progress.before)
    }

    /// Whether a credit return that expects packet `expected` next is valid.
    pub(super) fn may_expect(&self, expected: u32) -> bool {
        expected < self.layout().packets() && expected <= self.ever_sent()
    }

    /// The server has every packet before `expected`: releases their reservations.
    pub(super) fn acknowledge(
        &mut self,
        expected: u32,
        now: Instant,
        charges: &Charges,
        flow: &mut Flow<'_>,
    ) {
        let Progress { acked, sent, .. } = *self.progress();
        for packet in acked..expected.min(sent) {
            if mutant!(CreditLeak) && packet + 1 == expected {
                continue;
            }
            flow.release(self.cost(charges, packet));
        }
        // After a roll-back, the server may have received more packets than were sent again.
        let progress = self.progress();
        progress.acked = expected;
        progress.sent = sent.max(expected);
        progress.retry.progress(now);
    }

    /// Whether request packets were sent that are not acknowledged.
    pub(super) fn has_unacknowledged(&self) -> bool {
        self.unanswered() > 0
    }

    /// The server has the whole request and is executing it: releases the reservations of its
    /// packets.
    pub(super) fn accept(&mut self, charges: &Charges, flow: &mut Flow<'_>) {
        if mutant!(AcceptedKeepsCredits) {
            let progress = self.progress();
            progress.sent = progress.acked;
        }
        self.release_outstanding(charges, flow);
        let progress = self.progress();
        progress.acked = progress.layout.packets();
        progress.sent = progress.acked;
        progress.retry.accept();
    }

    /// The response starts, and has several packets or was `announced`. Releases the reservations of
    /// the request packets, and those of response packets that were asked for and do not come.
    pub(super) fn begin_response(
        &mut self,
        mut response: Response,
        announced: bool,
        now: Instant,
        charges: &Charges,
        flow: &mut Flow<'_>,
    ) {
        let Progress { acked, sent, early, .. } = *self.progress();
        for packet in acked..sent {
            flow.release(self.cost(charges, packet));
        }
        let is_coming = !announced && !early.is_doubtful && early.cost == response.cost();
        let coming = if is_coming { early.packets.min(response.left()) } else { 0 };
        for _ in coming..early.packets {
            flow.release(early.cost);
        }
        response.note_asked(coming);
        let progress = self.progress();
        progress.early = EarlyPull::default();
        progress.acked = progress.layout.packets();
        progress.sent = progress.acked;
        progress.ever_sent = progress.acked;
        progress.retry = RetryTimer::new(now);
        progress.recovery.forget_roll_back();
        progress.response = Some(Box::new(response));
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
        let lost = self.response().map_or(self.acked(), Response::next);
        if mutant!(RollbackKeepsCredits) && self.response().is_none() {
            let progress = self.progress();
            progress.sent = progress.acked;
        }
        if mutant!(PullRollbackKeepsCredits) {
            self.response_mut().into_iter().for_each(Response::forget_asked);
        }
        self.release_outstanding(charges, flow);
        self.progress().recovery.roll_back(lost, now, cause);
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
        let before = if self.was_sent() { self.before().max(before) } else { self.before() };
        self.release_outstanding(charges, flow);
        (self.is_large, self.last_cost) = (false, last_cost);
        let progress = self.progress();
        if let Some(response) = progress.response.take() {
            response.discard(pool);
        }
        (progress.before, progress.layout) = (before, layout);
        (progress.sent, progress.acked, progress.ever_sent) = (0, 0, 0);
        progress.retry = RetryTimer::new(now);
        progress.recovery.roll_back(0, now, ResendCause::Timeout);
    }

    // Reservations.

    /// Releases what the packets in flight have reserved: they are lost, or their answers do not
    /// matter.
    pub(super) fn release_outstanding(&mut self, charges: &Charges, flow: &mut Flow<'_>) {
        if self.progress.is_none() && !self.is_sent {
            return;
        }
        if let Some(response) = self.response_mut() {
            for _ in 0..response.on_their_way() {
                flow.release(response.cost());
            }
            response.forget_asked();
        }
        let Progress { acked, sent, early, .. } = *self.progress();
        for packet in acked..sent {
            flow.release(self.cost(charges, packet));
        }
        for _ in 0..early.packets {
            flow.release(early.cost);
        }
        let progress = self.progress();
        progress.sent = acked;
        progress.early = EarlyPull::default();
    }

    /// What the packets in flight have reserved: request packets, and response packets asked for.
    pub(super) fn outstanding(&self, charges: &Charges) -> Reserved {
        let mut reserved = Reserved::default();
        let acked = self.acked();
        for packet in acked..acked + self.unanswered() {
            reserved.add(self.cost(charges, packet));
        }
        let early = self.of(EarlyPull::default(), |progress| progress.early);
        for _ in 0..early.packets {
            reserved.add(early.cost);
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
        match self.response() {
            // A failure does not prove that the handler ran.
            Some(response) if !response.is_failure() => CallError::ResponseLost(cause),
            _ if self.maybe_executed() => CallError::MaybeExecuted(cause),
            _ => CallError::NotExecuted(cause),
        }
    }

    /// Releases what the packets in flight have reserved, and ends the call. Returns what belongs to
    /// its caller.
    #[inline]
    pub(super) fn finish_outstanding(
        self,
        charges: &Charges,
        flow: &mut Flow<'_>,
        pool: &mut Pool,
    ) -> Finished {
        flow.release_all(self.outstanding(charges));
        self.finish(pool)
    }

    /// Ends a call that has released its reservations. Returns what belongs to its caller.
    #[inline]
    pub(super) fn finish(self, pool: &mut Pool) -> Finished {
        if let Some(response) = self.progress.and_then(|progress| progress.response) {
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
        let response = &mut self.progress.as_mut()?.response;
        response.take_if(|response| response.is_complete()).map(|response| response.complete())
    }

    pub(super) fn check_invariants(&self) {
        if let Some(Progress { acked, sent, layout, .. }) = self.progress.as_deref() {
            assert!(acked <= sent && *sent <= layout.packets());
        }
        let pulls = self.response().is_some_and(Response::is_pull_pending);
        assert!(
            self.waiting().is_some() || self.awaits_packets() || pulls,
            "a call waits, has packets in flight, or has a pull pending"
        );
    }
}
