//! An open session as its client sees it, and the calls in its slots.
//!
//! | file | what happens there |
//! |---|---|
//! | `plain` | the common case, alone: one packet out, one packet back |
//! | `send` | a call takes a slot, its packets reserve what they need and go out, or it waits |
//! | `receive` | credit returns, acceptance, roll-back on a gap |
//! | `response` | responses of one packet or more |
//! | `timeout` | retransmission, liveness |
//! | `path` | probes of the path's size; messages are cut into packets of another size |
//! | `cancel` | calls that end before their answer comes, at their deadline for one, and what is left of them |

mod cancel;
mod path;
mod plain;
mod receive;
mod response;
mod send;
mod timeout;

use super::call::Call;
use super::common::Common;
use super::credit_limit::CreditLimit;
use super::credits::Credits;
use super::cut::Cut;
use super::followup::{Followup, Terms};
use super::kept::KeptResponses;
use super::lines::{LineId, Lines, Sums, Waiter};
use super::liveness::Liveness;
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
use crate::wire::{ConnectionId, Flags, Header, ReplyInfo, Stamp};

/// A timer may be left from a longer pause than the present one: at most the longest timeout and its jitter, the longest
/// time of a method, and the answer to a question about it, in nanoseconds.
const LONGEST_PAUSE: u64 = MAX_RTO + MAX_RTO / 4 + 2 * MAX_RTO;

/// Bytes that a cable carries besides a datagram: Ethernet, IPv4 and UDP headers and the frame's checksum.
const CABLE_HEADERS: u64 = 46;

/// Full packets that a link of this rate carries in a second.
fn packets_per_second(line_rate: Option<u64>, cut: &Cut) -> Option<u64> {
    line_rate.map(|line| line / (u64::from(cut.datagram()) + CABLE_HEADERS))
}

/// A session that its server has accepted.
///
/// Aligned to cache lines, so that its speed does not depend on where it happens to lie.
#[repr(align(64))]
pub(super) struct OpenSession<R> {
    common: Common<R>,
    /// The server's id for the session.
    remote: ConnectionId,
    /// Of every packet whether there is a trailer, and of new calls whether they are cut into large packets.
    flags: Flags,
    /// How new calls are cut.
    cut: Cut,
    /// Bytes that a response begins with at most, in packets of any size.
    eager: u32,
    max_request: u32,
    peer: PeerIndex,
    /// Slots that take a call.
    free: SlotSet,
    credits: Credits,
    credit_limit: CreditLimit,
    /// Of the link to the network, in bytes per second, if it is known.
    line_rate: Option<u64>,
    pacer: Pacer,
    rtt: RttEstimator,
    /// The longest time of a server's own that is not worth a note.
    notable: ReplyInfo,
    liveness: Liveness,
    kept: KeptResponses,
    /// Listed to be looked at when the peer's probe is answered.
    overdue: bool,
    slots: Slots<Slot>,
    retransmissions: Retransmissions,
    /// How calls are cut that are not cut like new ones.
    other_cut: Box<Cut>,
    path_size: Box<PathSize>,
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
        let credit_limit =
            CreditLimit::new(config.credits, most_credits, packets, terms.round_trip);
        let rtt = RttEstimator::new(turn.endpoint.min_rto(), terms.round_trip);
        let mut session = Self {
            remote: terms.server,
            flags: terms.flags.with_large(is_large),
            cut,
            eager: terms.eager,
            max_request: terms.max_request,
            peer: lines.join_peer(common.route, terms.steer, terms.window),
            free: SlotSet::ALL,
            credits: Credits::new(credit_limit.get()),
            credit_limit,
            line_rate: path.line_rate,
            pacer,
            notable: ReplyInfo::default().after(notable(rtt.floor())),
            rtt,
            overdue: false,
            liveness: Liveness::new(turn.now, common.id.generation),
            kept: KeptResponses::new(turn.now),
            slots: Slots::from_fn(Slot::new),
            retransmissions: Retransmissions::default(),
            other_cut: Box::new(other_cut),
            path_size: Box::new(PathSize::new(terms.max_datagram, terms.is_proven)),
            common,
        };
        let deadline = session.liveness.ping_at(config);
        session.common.timer.arm(&mut turn.endpoint.timers, deadline);
        session
    }

    /// The requests that were queued while it opened are sent, those that its server does not take fail.
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

    /// Whether no call is on its way or waits. Of calls that have ended early, the end of the session says
    /// all that there is to say.
    pub(super) fn is_drained(&self) -> bool {
        self.common.queue.is_empty() && self.slots.iter().all(|(_, slot)| slot.call().is_none())
    }

    /// Whether the end of a call makes no difference to others.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        !self.credits.is_short() && self.common.queue.is_empty() && !self.common.draining
    }

    /// The call in a slot as lines know it.
    fn waiter(&self, at: SlotIndex) -> Waiter {
        let id = self.common.id;
        Waiter { index: id.index, generation: id.generation, number: self.slots[at].number }
    }

    /// The slot of a waiter whose call is still there.
    pub(super) fn slot_of(&self, waiter: Waiter) -> Option<SlotIndex> {
        let at = SlotIndex::of(waiter.number);
        let slot = &self.slots[at];
        let same = self.common.id.generation == waiter.generation
            && slot.number == waiter.number
            && slot.call().is_some();
        same.then_some(at)
    }

    /// Whether the call behind a place in a line still waits there.
    pub(super) fn waits(&self, waiter: Waiter, lack: Blocked) -> bool {
        let call = self.slot_of(waiter).and_then(|at| self.slots[at].call());
        call.is_some_and(|call| call.waiting() == Some(lack))
    }

    /// A packet and its answer took `trip` nanoseconds. The server says that it had the packet for `served` of them; they may have
    /// `waited` for one loop or the other for as long as that. Timeouts are for the trip without the server's part. Of what is
    /// known as the most that it may have been, nothing is the network's for sure.
    #[inline(always)]
    fn measured<X>(
        &mut self,
        turn: &Turn<'_, X>,
        lines: &mut Lines<R>,
        trip: u64,
        served: u64,
        waited: u64,
        is_full: bool,
    ) {
        self.rtt.sample(trip.saturating_sub(served));
        let in_flight = u32::from(self.credits.taken());
        let waited = waited.saturating_add(served);
        let sample = Sample { now: turn.now, nanos: trip, waited, in_flight, is_full };
        if self.pacer.on_rtt(sample, turn.endpoint.config.bypasses) {
            self.limit_credits(lines);
        }
    }

    /// The same of a packet of a call whose packets may be larger than those of new calls: congestion control knows how long
    /// these should take.
    fn measured_call<X>(
        &mut self,
        turn: &Turn<'_, X>,
        lines: &mut Lines<R>,
        trip: u64,
        waited: u64,
        (is_full, is_large): (bool, bool),
    ) {
        if is_large && !self.flags.large() {
            self.rtt.sample(trip);
        } else {
            let is_full = is_full && is_large == self.flags.large();
            self.measured(turn, lines, trip, 0, waited, is_full);
        }
    }

    /// So many of a message's packets were answered.
    fn delivered<X>(&mut self, turn: &Turn<'_, X>, lines: &mut Lines<R>, packets: u32) {
        if self.credit_limit.answered(turn.now, packets) {
            let ran_out = self.credits.take_ran_out();
            let (rtt, rto) = (self.rtt.smoothed_nanos(), self.rtt.rto(0));
            self.credit_limit.end_round(turn.now, ran_out, rtt, rto);
            self.limit_credits(lines);
            self.limit_pace(turn);
        }
    }

    /// Congestion counts: a packet was lost.
    #[cold]
    fn note_loss<X>(&mut self, turn: &Turn<'_, X>, lines: &mut Lines<R>) {
        let in_flight = u32::from(self.credits.taken());
        if !mutant!(LossUntold) {
            self.pacer.on_loss(turn.now, in_flight, turn.endpoint.config.bypasses);
        }
        self.limit_credits(lines);
    }

    /// Packets are about to leave. After a pause the session has its first credits only, and congestion control begins anew.
    /// With nothing on its way, calls that wait for a credit are being fed, or will be at the end of the burst.
    #[inline]
    fn begin_to_send<X>(&mut self, turn: &Turn<'_, X>) {
        if self.credits.taken() > 0 {
            return;
        }
        let is_limited = self.pacer.on_begin(turn.now, turn.endpoint.config.bypasses);
        if self.credit_limit.begin(turn.now) | is_limited {
            self.set_credits();
            self.limit_pace(turn);
        }
    }

    /// Takes over how fast the path's packets may leave.
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

    /// Takes over the limits of the path and of congestion control.
    fn set_credits(&mut self) {
        self.credits.set_limit(self.credit_limit.get().min(self.pacer.window()));
    }

    /// The same. Calls that wait for a credit may get one.
    fn limit_credits(&mut self, lines: &mut Lines<R>) {
        self.set_credits();
        lines.feed_later(self.index(), &self.credits);
    }

    /// A packet that left at `sent_at` was answered: it was sent once, or the answer echoes its stamp.
    #[inline(always)]
    fn answered<X>(&self, turn: &Turn<'_, X>, lines: &mut Lines<R>, sent_at: Instant) {
        if lines.note_answer(self.peer, sent_at) {
            lines.on_answer(self.peer, turn.now, sent_at, self.rtt.base());
        }
    }

    /// What was sent `trip` nanoseconds ago was answered, by the stamp that the answer echoes. An answer that has waited in the
    /// receive queue for seconds seems to be a recent one, so it does not tell up to when the queue was read. A server that
    /// was away for more than 4.3 s deceives the client: calls are sent again that it is about to answer.
    fn echo_answered<X>(&self, turn: &Turn<'_, X>, lines: &mut Lines<R>, trip: u64) {
        let sent_at = turn.now.minus_nanos(trip);
        if turn.now.nanos_since(turn.endpoint.read_until) <= Stamp::MAX_TRIP {
            self.answered(turn, lines, sent_at);
        } else {
            self.copy_answered(turn, lines, sent_at);
        }
    }

    /// The second copy of something, sent at `sent_at`, was answered.
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

    /// A control message came from the server, in a datagram of so many bytes.
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
            // A copy of what has opened the session, that was long on its way: it proves the path's size.
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
                self.liveness.heard(turn.now);
                lines.on_reply_info(self.peer, header.reply_info());
                if let Some(asked_at) = asked_at {
                    self.copy_answered(turn, lines, asked_at);
                }
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
        let sender = self.common.local_id(turn.endpoint);
        self.send_control(turn, Control::Close { sender }, nonce);
    }

    /// Ends every call with `cause`, and gives back what the session has reserved. No queue refers to the requests any
    /// more that go back to the user (thesis section 6.3.2.2).
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
        for at in SlotIndex::all() {
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

    /// Whatever the session has reserved adds up, and whatever its calls wait for will come: a packet, or else a timer; or
    /// a release of what they stand in line for. Adds its part to the sums. `places` are those in all lines, sorted.
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
        let timer_at = self.common.timer.at();
        let armed = |due: Instant| timer_at <= due.plus_nanos(LONGEST_PAUSE);
        let mut outstanding = 0;
        for (at, slot) in self.slots.iter() {
            assert_eq!(self.free.contains(at), slot.is_free(), "the free slots are known");
            let waiting = slot.call().and_then(Call::waiting);
            let is_paced = waiting == Some(Blocked::Pace);
            assert_eq!(self.pacer.is_waiting(at), is_paced, "the paced calls are listed");
            let is_starved = waiting == Some(Blocked::Credits);
            assert_eq!(self.credits.is_waiting(at), is_starved, "the starved calls are listed");
            let reserved = match &slot.state {
                SlotState::Free => continue,
                SlotState::Quarantine(quarantine) => quarantine.reserved(),
                SlotState::Call(call) => call.outstanding(&self.cut.charges),
            };
            outstanding += reserved.credits();
            peer.window += reserved.cost().window;
            sums.room += reserved.cost().room;
            // At no time have times faded more than here: not at all.
            let due = self.slot_due(endpoint, lines, slot, Instant::ZERO, true);
            assert!(!is_open || armed(due), "a timer is armed for what may be lost");
            let Some(call) = slot.call() else { continue };
            assert_eq!(SlotIndex::of(slot.number), at, "a request is in its slot");
            assert!(armed(call.deadline()), "a timer is armed for the deadline");
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
            "a session whose calls wait for its time is in the wheel"
        );
    }

    /// The line in which a call waits that lacks this.
    fn line(&self, lack: Blocked) -> Option<LineId> {
        match lack {
            Blocked::Window => Some(LineId::Peer(self.peer)),
            Blocked::Room => Some(LineId::Room),
            Blocked::Pace | Blocked::Credits => None,
        }
    }
}
