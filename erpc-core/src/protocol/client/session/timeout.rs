//! What happens when nothing comes: retransmission, probes, pings, the end.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::client::call::Call;
use crate::protocol::client::followup::Followup;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::method_times::notable;
use crate::protocol::client::retry::{PING_AFTER_RETRIES, RetryTimer, jitter};
use crate::protocol::client::slot::{Slot, SlotState};
use crate::protocol::endpoint::EndpointState;
use crate::protocol::index::SlotIndex;
use crate::protocol::stats::ResendCause;
use crate::protocol::turn::Turn;
use crate::protocol::{Cause, WINDOW};
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::Control;
use crate::wire::{Header, Kind, PacketNumber, RequestNumber, ShortPacket};

/// What a call's timeout says of its session.
enum Suspicion {
    /// Nothing.
    None,
    /// The peer may be gone: ask.
    Ping,
    /// The peer is there, for the session is not silent, and yet nothing of this call has got through
    /// for the liveness timeout: the path swallows its packets, most likely because they are too large.
    Blocked,
}

impl<R: Route> OpenSession<R> {
    /// This endpoint was away and cannot have heard the server: it counts as heard at `since`.
    pub(in crate::protocol::client) fn back(&mut self, since: Instant) {
        self.liveness.back(since);
        for retry in self.slots.iter_mut().filter_map(|(_, slot)| slot.retry_mut()) {
            retry.back(since);
        }
    }

    /// The session's timer has fired.
    pub(in crate::protocol::client) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) -> Followup {
        let config = &turn.endpoint.config;
        if self.liveness.is_dead(turn.read_until, config) {
            return Followup::End(Cause::PeerDead);
        }
        let reset_at = lines.probing(self.peer).reset_at();
        let mut ping = turn.read_until >= self.liveness.ping_at(config)
            || self.liveness.is_older_than(reset_at);
        let mut deadline = self.common.queue.deadline();
        for at in self.free.complement().iter() {
            let mut due = self.slot_due(turn.endpoint, lines, &self.slots[at], turn.now);
            if due <= turn.read_until {
                match self.on_slot_timeout(turn, lines, at) {
                    Suspicion::None => {}
                    Suspicion::Ping => ping = true,
                    Suspicion::Blocked => return Followup::End(Cause::NoProgress),
                }
                due = self.slot_due(turn.endpoint, lines, &self.slots[at], turn.now);
            }
            let late = self.slots[at].call().map_or(Instant::NEVER, Call::deadline);
            deadline = deadline.min(due).min(late);
        }
        if lines.probing(self.peer).is_out() && !self.overdue {
            self.overdue = true;
            lines.rouse_later(self.peer, self.index());
        }
        self.send_done(turn);
        if ping {
            self.send_ping(turn);
        }
        if !mutant!(TimerNotArmedAgain) {
            let liveness = self.liveness.due(turn.now, &turn.endpoint.config);
            let deadline = deadline.min(liveness);
            self.common.timer.arm_again(&mut turn.endpoint.timers, deadline, turn.now);
        }
        Followup::None
    }

    /// When the silence about what is in a slot becomes suspicious; [`Instant::NEVER`] if nothing is owed to it.
    pub(super) fn slot_due(
        &self,
        endpoint: &EndpointState,
        lines: &Lines<R>,
        slot: &Slot,
        now: Instant,
    ) -> Instant {
        let (retry, served) = match &slot.state {
            SlotState::Quarantine(quarantine) => (quarantine.retry(), 0),
            SlotState::Call(call) if call.awaits_packets() && !call.retry().is_forgotten() => {
                let is_served = call.awaits_handler();
                let served =
                    if is_served { lines.method_time(self.peer, now, call.method()) } else { 0 };
                (call.retry(), served)
            }
            SlotState::Free | SlotState::Call(_) => return Instant::NEVER,
        };
        if retry.is_accepted() {
            return self.probe_due(endpoint, retry);
        }
        let own_due = retry.due(self.rtt.rto(retry.retries()), self.common.id.generation);
        let own_due = own_due.plus_nanos(served);
        lines.probing(self.peer).due(now, own_due, retry.active_at())
    }

    /// When the server is asked whether it is still there, which executes a request.
    fn probe_due(&self, endpoint: &EndpointState, retry: &RetryTimer) -> Instant {
        let config = &endpoint.config;
        let answered = retry.retries() == 0;
        retry.active_at()
            + if answered { self.liveness.interval(config) } else { config.ping_again() }
    }

    /// The server tells that its handler took `nanos` for a method; `probes_unanswered` if it has answered no probe
    /// meanwhile.
    pub(super) fn on_handler_time(
        &self,
        now: Instant,
        lines: &mut Lines<R>,
        method: u32,
        nanos: u64,
        probes_unanswered: bool,
    ) {
        let floor = self.rtt.floor();
        if nanos > notable(floor) {
            let times = lines.method_times(self.peer);
            times.record(now, method, nanos, floor, probes_unanswered);
        }
    }

    /// A call's first packet was answered, which carries no stamp. If it was sent once, the answer tells of all that was
    /// sent before; else it may be the first copy's, which a server has had all the time.
    pub(super) fn first_packet_answered<X>(
        &self,
        turn: &Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        header: &Header,
    ) {
        let Some(call) = self.slots[at].call() else { return };
        let retry = call.retry();
        if retry.is_accepted() {
            return;
        }
        if retry.retries() > 0 {
            let processing = header.reply_info().processing_nanos();
            let rtt = self.rtt.smoothed().map_or(0, |rtt| rtt.as_nanos() as u64);
            let timeout = self.rtt.base();
            let since = retry.stalled_at();
            lines.on_ambiguous_answer(self.peer, turn.now, since, processing, rtt, timeout);
        } else if !call.recovery().was_retransmitted() && call.layout().packets() == 1 {
            self.answered(turn, lines, retry.active_at());
        }
    }

    /// The probe of the session's peer was answered: looks at the calls that wait for that.
    pub(in crate::protocol::client) fn rouse<X>(&mut self, turn: &mut Turn<'_, X>) {
        self.overdue = false;
        self.arm(turn, turn.now);
    }

    /// Nothing has come in time: retransmits a call, or says again that it was cancelled.
    fn on_slot_timeout<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
    ) -> Suspicion {
        let (rtt, generation) = (&self.rtt, self.common.id.generation);
        let slot = &mut self.slots[at];
        let Some(retry) = slot.retry_mut() else { return Suspicion::None };
        let probing = lines.probing_mut(self.peer);
        let mut is_passed = false;
        if !retry.is_accepted() {
            is_passed = probing.on_overdue(turn.now, retry.active_at(), |doublings| {
                let rto = rtt.rto(doublings);
                // Less than this call waits itself: the next probe is another call's, on a path that swallows this one's.
                rto + jitter(rto, generation, doublings) / 2
            });
        }
        let is_suspicious = probing.unanswered() >= PING_AFTER_RETRIES;
        if !retry.time_out(turn.now, turn.endpoint.config.liveness_timeout) {
            return Suspicion::Blocked;
        }
        let accepted = retry.is_accepted();
        let cause = if is_passed { ResendCause::Timeout } else { ResendCause::Probe };
        let stats = &mut turn.endpoint.stats;
        if accepted {
            stats.inquiries += 1;
        } else {
            stats.count_resent(&mut self.retransmissions, cause, 1);
        }
        let suspicion = if retry.is_suspicious() || !accepted && is_suspicious {
            Suspicion::Ping
        } else {
            Suspicion::None
        };
        // What is out may be lost, or waiting in the queue of a peer that was not scheduled: it keeps its
        // credits and room until something comes back, and one packet asks for that.
        let Some(call) = slot.call_mut() else {
            self.send_cancel(turn, at);
            return suspicion;
        };
        let (last, oldest) = (call.layout().packets() - 1, call.acked());
        let responding = call.response().is_some();
        if accepted {
            call.recovery_mut().inquire(turn.now);
            self.send_again(turn, at, last);
            return suspicion;
        }
        if is_passed {
            call.recovery_mut().inquire(turn.now);
        } else {
            call.recovery_mut().probe(turn.now);
        }
        self.pacer.on_loss(turn.now, turn.endpoint.config.bypasses);
        if responding {
            self.ask_again(turn, at);
        } else {
            self.send_again(turn, at, oldest);
        }
        suspicion
    }

    /// Tells the server which kept responses it may drop: after a timeout without a new request in
    /// their slots, and, in case that was lost, once more a ping interval later.
    fn send_done<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        if mutant!(DoneForgotten) {
            return;
        }
        let interval = self.liveness.interval(&turn.endpoint.config);
        let listed = self.kept.due(turn.now, interval, self.free);
        if listed.is_empty() {
            return;
        }
        let header = Header {
            connection: self.remote,
            kind: Kind::Done,
            packet: PacketNumber::default(),
            request: RequestNumber::default(),
            aux: 0,
            size: 0,
            flags: self.flags,
        };
        let mut body = [0; 4 * WINDOW];
        let mut len = 0;
        for at in listed.iter() {
            let number = self.slots[at].number.to_u32();
            body[len..len + 4].copy_from_slice(&number.to_le_bytes());
            len += 4;
        }
        let packet = ShortPacket::new(&header, &body[..len]);
        turn.tx.push_bytes(&self.common.route, packet.as_bytes());
    }

    fn send_ping<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        let nonce = u32::from(self.liveness.ping(turn.now));
        let sender = self.common.local_id(turn.endpoint);
        self.send_control(turn, Control::Ping { sender }, nonce);
    }
}
