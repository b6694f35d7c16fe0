//! The client's side of an open session, and the calls in its slots.
//!
//! | file | what happens there |
//! |---|---|
//! | `plain` | fast path of the common case: one packet out, one packet back |
//! | `send` | a call takes a slot; its packets reserve capacity and are sent, or the call waits |
//! | `receive` | credit returns, acceptance, roll-back on a gap |
//! | `response` | responses of one or more packets |
//! | `early` | long responses are asked for before they begin |
//! | `short` | calls with short responses reserve less room |
//! | `timeout` | retransmission, liveness |
//! | `absence` | after a long silence: calls wait until the server has answered a ping |
//! | `path` | probes of the path's packet size; messages are cut again for another size |
//! | `undelivered` | reports that packets did not reach the server, and inquiries |
//! | `cancel` | calls that end before their answer (cancel, deadline), and their quarantine |

mod absence;
mod cancel;
mod early;
mod path;
mod plain;
mod receive;
mod response;
mod send;
mod short;
mod timeout;
mod undelivered;

use self::short::ResponseLengths;
use super::call::Call;
use super::common::Common;
use super::credit_limit::CreditLimit;
use super::credits::Credits;
use super::cut::Cut;
use super::followup::{Followup, Terms};
use super::inquiry::Inquiry;
use super::kept::{KEPT_SMALL, KeptResponses};
use super::lines::{LineId, Lines, Sums, Waiter};
use super::liveness::Liveness;
use super::long_responses::LongResponses;
use super::method_times::notable;
use super::pacer::Pacer;
use super::path_size::{BASE, PathSize};
use super::reservation::Blocked;
use super::slot::{Slot, SlotState};
use crate::mutants::mutant;
use crate::protocol::congestion::{Congestion, Path, Sample};
use crate::protocol::endpoint::EndpointState;
use crate::protocol::index::{PeerIndex, SessionIndex, SlotIndex, SlotSet, Slots};
use crate::protocol::rtt::{MAX_RTO, RttEstimator};
use crate::protocol::stats::{DropReason, Retransmissions};
use crate::protocol::turn::Turn;
use crate::protocol::{Cause, SessionStats};
use crate::time::Instant;
use crate::transport::{Link, Route, TxQueue};
use crate::wire::control::Control;
use crate::wire::{ConnectionId, Flags, Head, Header, Kind, ReplyInfo, Stamp};

/// The longest pause of a timer, in ns, for the check of invariants: a timer may still be armed for
/// an earlier, longer pause. This is the longest timeout with its jitter, plus the longest handler
/// time of a method, plus the longest wait for another call's retransmission to be answered.
const LONGEST_PAUSE: u64 = MAX_RTO + MAX_RTO / 4 + 2 * MAX_RTO;

/// Bytes on the wire besides a datagram: Ethernet, IPv4 and UDP headers and the frame's checksum.
const CABLE_HEADERS: u64 = 46;

/// Full packets per second on a link of this rate.
fn packets_per_second(line_rate: Option<u64>, cut: &Cut) -> Option<u64> {
    line_rate.map(|line| line / (u64::from(cut.datagram()) + CABLE_HEADERS))
}

/// A session that its server has accepted.
///
/// Aligned to cache lines, so that its speed does not depend on its address. The fields are in the
/// order in which they are declared: first the slots, each in a line of its own, then the other
/// fields that plain calls use, so that they share few cache lines.
#[repr(C, align(64))]
pub(super) struct OpenSession<R> {
    slots: Slots<Slot>,
    niche: Niche,
    /// This endpoint's id for the session.
    local: ConnectionId,
    /// The server's id for the session.
    remote: ConnectionId,
    heads: Heads,
    credits: Credits,
    peer: PeerIndex,
    /// The longest processing time of the server that is not recorded per method.
    notable: ReplyInfo,
    /// `trailer` applies to every packet, `large` only to new calls: whether they are cut into
    /// large packets, unless room is scarce ([`OpenSession::cuts_large`]).
    flags: Flags,
    /// Slots without a call or quarantine.
    free: SlotSet,
    /// Whether the session is in the peer's list of sessions with overdue calls.
    overdue: bool,
    /// Whether the server takes bundles.
    takes_bundles: bool,
    long_responses: LongResponses,
    common: Common<R>,
    kept: KeptResponses,
    rtt: RttEstimator,
    liveness: Liveness,
    /// How new calls are cut.
    cut: Cut,
    pacer: Pacer,
    /// Bytes: upper limit for the first packet of a response, in packets of any size.
    eager: u32,
    max_request: u32,
    credit_limit: CreditLimit,
    /// Rate of this endpoint's link, in bytes per second; `None` if unknown.
    line_rate: Option<u64>,
    response_lengths: ResponseLengths,
    retransmissions: Retransmissions,
    /// The inquiry in progress: the server is asked for a sign of life because a packet did not
    /// reach it. It may already be answered, which the next use of the inquiry notices.
    inquiry: Option<Box<Inquiry>>,
    /// The other way to cut: for calls whose packet size differs from that of new calls.
    other_cut: Box<Cut>,
    path_size: Box<PathSize>,
}

/// Has one value. The compiler keeps the discriminants of the enums around a session in the largest
/// niche (set of invalid values) of its fields. This one is in the cache line of the ids.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Niche {
    Open = 1,
}

/// What the headers of plain calls and of their responses have in common, besides the flag "large".
struct Heads {
    request: Head,
    response: Head,
    /// Bytes: the largest request and response of a plain call.
    max_request: u32,
    max_response: u32,
}

impl Heads {
    fn new(flags: Flags, cut: &Cut, max_request: u32) -> Self {
        let flags = flags.with_large(false);
        Self {
            request: Head::new(Kind::Request, flags),
            response: Head::new(Kind::Response, flags),
            max_request: cut.payload.min(max_request),
            max_response: cut.eager.min(KEPT_SMALL),
        }
    }
}

impl<R: Route> OpenSession<R> {
    /// A session on these terms. Arms its timer.
    pub(super) fn new<X>(
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        common: Common<R>,
        terms: &Terms,
    ) -> Self {
        let config = &turn.endpoint.config;
        let is_large = terms.is_proven && terms.max_datagram > BASE;
        let large = Cut::new(terms.max_datagram, terms.eager, &terms.charges);
        let small = Cut::new(terms.max_datagram.min(BASE), terms.eager, &terms.charges);
        let (cut, other_cut) = if is_large { (large, small) } else { (small, large) };
        let path = Path {
            line_rate: terms.link.rate(),
            noise: turn.endpoint.local.rtt_noise,
            datagram: cut.datagram(),
            round_trip: terms.round_trip,
        };
        let pacer = match terms.link {
            Link::Local => Pacer::unlimited(),
            Link::Unknown if mutant!(UnknownRateUncontrolled) => Pacer::unlimited(),
            Link::Rate(_) | Link::Unknown => {
                Pacer::new(Congestion::new(&config.congestion, &path), config.bypasses)
            }
        };
        let packets = packets_per_second(path.line_rate, &cut);
        let most_credits =
            if mutant!(GrantedCreditsIgnored) { config.max_credits } else { terms.credits };
        let credits = config.initial_credits(terms.slots, terms.link);
        let credit_limit = CreditLimit::new(credits, most_credits, packets, terms.round_trip);
        let rtt = RttEstimator::new(turn.endpoint.min_rto(), terms.round_trip);
        let flags = terms.flags.with_large(is_large);
        let mut session = Self {
            niche: Niche::Open,
            local: common.local_id(turn.endpoint),
            remote: terms.server,
            flags,
            heads: Heads::new(flags, &cut, terms.max_request),
            cut,
            eager: terms.eager,
            max_request: terms.max_request,
            peer: lines.join_peer(common.route, terms.steer, terms.window),
            free: terms.slots.all(),
            credits: Credits::new(credit_limit.get()),
            credit_limit,
            line_rate: path.line_rate,
            response_lengths: ResponseLengths::UNKNOWN,
            long_responses: LongResponses::default(),
            pacer,
            notable: ReplyInfo::default().after(notable(rtt.floor())),
            rtt,
            overdue: false,
            takes_bundles: terms.bundles,
            liveness: Liveness::new(turn.now, common.id.generation),
            kept: KeptResponses::new(turn.now),
            slots: Slots::new(terms.slots, |at| Slot::new(terms.slots.number_before_first(at))),
            retransmissions: Retransmissions::default(),
            inquiry: None,
            other_cut: Box::new(other_cut),
            path_size: Box::new(PathSize::new(terms.max_datagram, terms.is_proven)),
            common,
        };
        let deadline = session.liveness.ping_at(config);
        session.common.timer.arm(&mut turn.endpoint.timers, deadline);
        session
    }

    /// Sends the calls that were queued while the session opened. Calls that exceed the server's
    /// `max_request` fail.
    pub(super) fn begin<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        self.common.queue.fail_oversized(self.max_request, turn.endpoint);
        self.start_queued(turn, lines);
    }

    #[inline(always)]
    pub(super) fn common(&self) -> &Common<R> {
        &self.common
    }

    #[inline(always)]
    pub(super) fn common_mut(&mut self) -> &mut Common<R> {
        &mut self.common
    }

    #[inline(always)]
    fn index(&self) -> SessionIndex {
        self.common.id.index
    }

    pub(super) fn route(&self) -> &R {
        &self.common.route
    }

    pub(super) fn remote(&self) -> ConnectionId {
        self.remote
    }

    pub(super) fn max_request(&self) -> u32 {
        self.max_request
    }

    /// Whether no call is in a slot or in the queue. Quarantined slots do not count: the end of the
    /// session also ends their requests.
    pub(super) fn is_drained(&self) -> bool {
        let is_over = |at: SlotIndex| self.slots[at].call().is_none();
        self.common.queue.is_empty() && self.occupied().iter().all(is_over)
    }

    /// The slots with a call or quarantine.
    #[inline(always)]
    fn occupied(&self) -> SlotSet {
        self.slots.count().all().without(self.free)
    }

    /// Whether no call in a slot waits for a credit, and new calls start immediately.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        // Not short-circuit: one jump instead of two.
        !self.credits.is_short() & self.common.intake.is_free()
    }

    /// The call in a slot, as [`Lines`] refers to it.
    fn waiter(&self, at: SlotIndex) -> Waiter {
        let id = self.common.id;
        Waiter { index: id.index, generation: id.generation, number: self.slots[at].number }
    }

    /// The slot of a waiter, if it still holds that call.
    pub(super) fn slot_of(&self, waiter: Waiter) -> Option<SlotIndex> {
        let at = self.slots.of(waiter.number);
        let slot = &self.slots[at];
        let same = self.common.id.generation == waiter.generation
            && slot.number == waiter.number
            && slot.call().is_some();
        same.then_some(at)
    }

    /// The slot of the call that `waiter` names, if the call has not ended and still waits for
    /// `lack`.
    pub(super) fn waits_in(&self, waiter: Waiter, lack: Blocked) -> Option<SlotIndex> {
        let at = self.slot_of(waiter)?;
        (self.slots[at].call()?.waiting() == Some(lack)).then_some(at)
    }

    /// A packet was answered after `trip` ns. The server says that it processed the packet for
    /// `served` ns of that. The packet and its answer may also have waited up to `waited` ns for an
    /// event loop. The RTO estimate excludes `served`. Congestion control gets `served + waited` as
    /// an upper bound of the time that was not the network's. `in_flight` packets, the answered one
    /// included, were in flight until the answer.
    #[inline(always)]
    fn measured<X>(
        &mut self,
        turn: &Turn<'_, X>,
        lines: &mut Lines<R>,
        trip: u64,
        (served, waited): (u64, u64),
        in_flight: u32,
        is_full: bool,
    ) {
        self.rtt.sample(trip.saturating_sub(served));
        let waited = waited.saturating_add(served);
        let sample = Sample { now: turn.now, nanos: trip, waited, in_flight, is_full };
        if self.pacer.on_rtt(sample, turn.endpoint.config.bypasses) {
            self.limit_credits(lines);
        }
    }

    /// As [`Self::measured`], for a packet of a call. Samples of calls whose packets are larger
    /// than those of new calls only feed the RTO: congestion control expects the transmission time
    /// of the current packet size.
    fn measured_call<X>(
        &mut self,
        turn: &Turn<'_, X>,
        lines: &mut Lines<R>,
        trip: u64,
        (served, waited): (u64, u64),
        (is_full, is_large): (bool, bool),
    ) {
        if is_large && !self.flags.large() {
            self.rtt.sample(trip.saturating_sub(served));
        } else {
            let is_full = is_full && is_large == self.flags.large();
            let in_flight = u32::from(self.credits.taken());
            self.measured(turn, lines, trip, (served, waited), in_flight, is_full);
        }
    }

    /// `packets` packets of a message were answered.
    fn delivered<X>(&mut self, turn: &Turn<'_, X>, lines: &mut Lines<R>, packets: u32) {
        if self.credit_limit.answered(turn.now, packets) {
            let ran_out = self.credits.take_ran_out();
            let (rtt, rto) = (self.rtt.smoothed_nanos(), self.rtt.rto(0));
            self.credit_limit.end_round(turn.now, ran_out, rtt, rto);
            self.limit_credits(lines);
            self.limit_pace(turn);
        }
    }

    /// A packet was lost, which counts as congestion.
    #[cold]
    fn note_loss<X>(&mut self, turn: &Turn<'_, X>, lines: &mut Lines<R>) {
        let in_flight = u32::from(self.credits.taken());
        if !mutant!(LossUntold) {
            self.pacer.on_loss(turn.now, in_flight, turn.endpoint.config.bypasses);
        }
        self.limit_credits(lines);
    }

    /// Packets are about to be sent. After a pause the session falls back to its initial credits,
    /// and, if nothing is in flight, congestion control starts again. Calls that wait for a credit
    /// need no wake-up here. If nothing is in flight, they are resumed now or at the end of the
    /// burst. If packets are in flight, the limit does not rise.
    #[inline]
    fn begin_to_send<X>(&mut self, turn: &Turn<'_, X>) {
        let is_idle = self.credits.taken() == 0;
        let is_limited = is_idle && self.pacer.on_begin(turn.now, turn.endpoint.config.bypasses);
        if self.credit_limit.begin(turn.now) | is_limited {
            self.set_credits();
            self.limit_pace(turn);
        }
    }

    /// Updates the pacer's ceiling from the credit limit and the link rate.
    fn limit_pace<X>(&mut self, turn: &Turn<'_, X>) {
        let datagram = u64::from(self.cut.datagram());
        let mut ceiling = self.credit_limit.pace().saturating_mul(datagram);
        if let Some(line) = self.line_rate
            && ceiling < u64::MAX
        {
            ceiling = ceiling.min(line / (datagram + CABLE_HEADERS) * datagram);
        }
        self.pacer.set_ceiling(ceiling, turn.endpoint.config.bypasses);
    }

    /// Applies the limits of the path and of congestion control.
    fn set_credits(&mut self) {
        self.credits.set_limit(self.credit_limit.get().min(self.pacer.window()));
    }

    /// As [`Self::set_credits`]; calls that wait for a credit may get one at the end of the burst.
    fn limit_credits(&mut self, lines: &mut Lines<R>) {
        self.set_credits();
        lines.feed_later(self.index(), &self.credits);
    }

    /// A packet sent at `sent_at` was answered: it was sent only once, or the answer echoes its
    /// stamp.
    #[inline(always)]
    fn answered<X>(&self, turn: &Turn<'_, X>, lines: &mut Lines<R>, sent_at: Instant) {
        if lines.note_answer(self.peer, sent_at) {
            lines.on_answer(self.peer, turn.now, sent_at, self.rtt.base());
        }
    }

    /// A packet sent `trip` ns ago was answered, according to the echoed stamp. Stamps wrap: an
    /// answer that waited in the receive queue for seconds looks recent. So if this endpoint has
    /// not drained its receive queue recently, the answer does not show how far this queue was
    /// read. There is no such protection against a server that was away for more than 4.3 s: then
    /// the client retransmits calls that the server is about to answer.
    fn echo_answered<X>(&self, turn: &Turn<'_, X>, lines: &mut Lines<R>, trip: u64) {
        let sent_at = turn.now.minus_nanos(trip);
        if turn.now.nanos_since(turn.endpoint.read_until) <= Stamp::MAX_TRIP {
            self.answered(turn, lines, sent_at);
        } else {
            self.copy_answered(turn, lines, sent_at);
        }
    }

    /// The second copy of a packet, sent at `sent_at`, was answered.
    fn copy_answered<X>(&self, turn: &Turn<'_, X>, lines: &mut Lines<R>, sent_at: Instant) {
        if lines.note_copys_answer(self.peer, sent_at) {
            lines.on_answer(self.peer, turn.now, sent_at, self.rtt.base());
        }
    }

    /// Makes sure that the session's timer fires at `at` or earlier.
    #[inline(always)]
    fn arm<X>(&mut self, turn: &mut Turn<'_, X>, at: Instant) {
        self.common.timer.arm(&mut turn.endpoint.timers, at);
    }

    /// A control message came from the server, in a datagram of `datagram` bytes.
    pub(super) fn on_control<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        header: &Header,
        message: Control,
        datagram: u32,
    ) -> Result<Followup, DropReason> {
        let nonce = header.request.to_u32();
        match message {
            Control::Probed => {
                self.liveness.heard(turn.now);
                self.on_probed(turn, lines, nonce, datagram);
                Ok(Followup::None)
            }
            // A late copy of `Opened`, which may still prove the path's size.
            Control::Opened { server, .. } if server == self.remote => {
                self.on_opened_again(turn, lines, datagram).map(|()| Followup::None)
            }
            Control::Resized => {
                self.liveness.heard(turn.now);
                self.on_resized(turn, lines, nonce);
                Ok(Followup::None)
            }
            Control::Moved { .. } => Ok(Followup::End(Cause::AddressChanged)),
            Control::Ping { sender } if sender == self.remote => {
                self.liveness.heard(turn.now);
                lines.on_reply_info(self.peer, header.reply_info());
                self.send_control(turn, Control::Pong, nonce);
                Ok(Followup::None)
            }
            Control::Pong if mutant!(PongIgnored) => Ok(Followup::None),
            Control::Pong => {
                let asked_at = self.liveness.answered_ping(nonce);
                let is_known =
                    self.liveness.answers_check(nonce) && !self.was_away_since_ping(turn);
                self.liveness.heard(turn.now);
                lines.on_reply_info(self.peer, header.reply_info());
                if let Some(asked_at) = asked_at {
                    self.copy_answered(turn, lines, asked_at);
                }
                if is_known {
                    self.end_check(turn, lines);
                }
                Ok(Followup::None)
            }
            Control::GoAway { sender } if sender == self.remote => {
                self.liveness.heard(turn.now);
                self.send_control(turn, Control::Pong, nonce);
                self.on_server_draining(turn, lines);
                Ok(Followup::None)
            }
            Control::Close { sender } if sender == self.remote => {
                self.send_control(turn, Control::Closed, nonce);
                Ok(Followup::End(Cause::PeerClosed))
            }
            Control::Reset { unknown } if unknown == self.remote => {
                lines.on_reset(self.peer, turn.now);
                Ok(Followup::End(Cause::PeerReset))
            }
            _ => Err(DropReason::Handshake),
        }
    }

    fn send_control<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        message: Control,
        nonce: u32,
    ) {
        let packet = message.emit(self.remote, nonce, ReplyInfo::default());
        turn.tx.push_bytes(&self.common.route, packet.as_bytes());
    }

    pub(super) fn send_close<X: TxQueue<Route = R>>(&self, turn: &mut Turn<'_, X>, nonce: u32) {
        let sender = self.local;
        self.send_control(turn, Control::Close { sender }, nonce);
    }

    /// Ends every call with `cause`, and releases what the session has reserved. The requests go
    /// back to the user, so first the transmit queue is made to release them (thesis section
    /// 6.3.2.2).
    pub(super) fn end<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        cause: Cause,
    ) {
        turn.tx.reclaim();
        let is_queued = |slot: &Slot| slot.call().is_some_and(Call::is_queued);
        if self.slots.iter().any(|(_, slot)| is_queued(slot)) && !mutant!(FlushForgottenAtEnd) {
            turn.tx.flush();
        }
        for at in self.slots.count().all().iter() {
            self.stop_waiting(lines, at);
            let mut flow = lines.flow(&mut self.credits, self.peer);
            match std::mem::replace(&mut self.slots[at].state, SlotState::Free) {
                SlotState::Free => {}
                SlotState::Quarantine(mut quarantine) => quarantine.release(&mut flow),
                SlotState::Call(mut call) => {
                    if !mutant!(WindowLeakAtEnd) {
                        call.release_outstanding(&self.cut.charges, &mut flow);
                    }
                    let error = call.error(cause);
                    call.fail(turn.endpoint, error);
                }
            }
        }
        lines.note_release(self.peer);
        if self.overdue {
            lines.rouse_no_more(self.peer, self.index());
        }
        lines.leave_peer(self.peer);
        lines.cancel_departure(self.index());
        if !mutant!(QueuedCallsForgotten) {
            self.common.queue.fail_all(cause, turn.endpoint);
        }
    }

    pub(super) fn stats(&self, lines: &Lines<R>) -> SessionStats {
        let count = |is: fn(&Slot) -> bool| self.slots.iter().filter(|(_, slot)| is(slot)).count();
        SessionStats {
            rtt: self.rtt.smoothed(),
            rate: self.pacer.rate(),
            slots: self.slots.count().to_u8(),
            in_flight: count(|slot| slot.call().is_some()),
            quarantined: count(Slot::is_quarantined),
            queued: self.common.queue.len(),
            credits: self.credits.available(),
            window: lines.window(self.peer),
            payload: self.cut.payload,
            max_request: self.max_request,
            integrity: self.flags.trailer(),
            retransmissions: self.retransmissions,
        }
    }

    /// Checks that the session's reservations add up, and that every waiting call will be woken: by
    /// a packet, by a timer, or by a release in the line where it waits. Adds the session's part to
    /// the sums. `places` are the places in all lines, sorted.
    pub(super) fn check_invariants(
        &self,
        endpoint: &EndpointState,
        lines: &Lines<R>,
        places: &[(SessionIndex, u32)],
        is_open: bool,
        sums: &mut Sums,
    ) {
        let peer = sums.peers.entry(self.peer).or_default();
        peer.sessions += 1;
        assert!(matches!(self.niche, Niche::Open), "a session is in one piece");
        let timer_at = self.common.timer.at();
        let others_at = self.common.timer.others();
        let armed_for_all = |due: Instant| others_at <= due.plus_nanos(LONGEST_PAUSE);
        let armed = |due: Instant| timer_at <= due.plus_nanos(LONGEST_PAUSE);
        let is_checking = self.liveness.is_checking();
        assert_eq!(self.common.intake.holds(), is_checking, "calls are held during a check");
        assert!(
            !is_open || armed_for_all(self.liveness.ping_at(&endpoint.config)),
            "a timer is armed for the next ping"
        );
        let mut outstanding = 0;
        for (at, slot) in self.slots.iter() {
            assert_eq!(self.free.contains(at), slot.is_free(), "`free` lists the free slots");
            let waiting = slot.call().and_then(Call::waiting);
            let is_paced = waiting == Some(Blocked::Pace);
            assert_eq!(self.pacer.is_waiting(at), is_paced, "the pacer lists the paced calls");
            let is_starved = waiting == Some(Blocked::Credits);
            assert_eq!(self.credits.is_waiting(at), is_starved, "credits list starved calls");
            let reserved = match &slot.state {
                SlotState::Free => continue,
                SlotState::Quarantine(quarantine) => quarantine.reserved(),
                SlotState::Call(call) => call.outstanding(&self.cut.charges),
            };
            outstanding += reserved.credits();
            peer.window += reserved.cost().window;
            sums.room += reserved.cost().room;
            // At `Instant::ZERO`, no recorded handler time has faded, so `due` is the latest
            // possible time.
            let due = self.slot_due(endpoint, lines, slot, Instant::ZERO, true);
            assert!(!is_open || armed(due), "a timer is armed for what may be lost");
            let Some(call) = slot.call() else { continue };
            assert_eq!(self.slots.of(slot.number), at, "a request is in its slot");
            assert!(armed_for_all(call.deadline()), "a timer is armed for the deadline");
            let is_simple = call.simple_sent_at().is_some();
            assert!(!is_open || is_simple || armed_for_all(due), "a timer is armed for all calls");
            call.check_invariants();
            let place = (self.index(), slot.number.to_u32());
            let in_line = || places.binary_search(&place).is_ok();
            match waiting {
                None | Some(Blocked::Pace | Blocked::Credits) => {}
                Some(Blocked::Window) => {
                    peer.waiting += 1;
                    assert!(in_line(), "a call that waits for the window stands in line");
                }
                Some(Blocked::Room) => {
                    sums.waiting_for_room += 1;
                    assert!(in_line(), "a call that waits for room stands in line");
                }
            }
        }
        self.credits.check_invariants(outstanding, lines.is_fed_later(self.index()));
        self.credit_limit.check_invariants();
        assert!(
            !self.pacer.is_awaited() || lines.is_departing(self.index()),
            "a session with paced calls is in the pace wheel"
        );
    }

    /// The line in which a call waits for `lack`; `None` if it waits in its own session.
    fn line(&self, lack: Blocked) -> Option<LineId> {
        match lack {
            Blocked::Window => Some(LineId::Peer(self.peer)),
            Blocked::Room => Some(LineId::Room),
            Blocked::Pace | Blocked::Credits => None,
        }
    }
}

// A slot of a session lies in one cache line, and the ids of plain calls in one other.
const _: () = {
    use crate::transport::mem::MemRoute;
    assert!(size_of::<Slot>() == 64);
    assert!(std::mem::offset_of!(OpenSession<MemRoute>, slots) == 0);
    assert!(std::mem::offset_of!(OpenSession<MemRoute>, credits) == size_of::<[Slot; 9]>());
};
