//! Timeouts: retransmissions, probes, pings, and the end of a silent session.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::Cause;
use crate::protocol::client::call::Call;
use crate::protocol::client::followup::Followup;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::method_times::{Told, Wait, most_held};
use crate::protocol::client::probing::Probing;
use crate::protocol::client::retry::{PING_AFTER_RETRIES, RetryTimer, jitter};
use crate::protocol::client::slot::{Slot, SlotState};
use crate::protocol::endpoint::EndpointState;
use crate::protocol::index::SlotIndex;
use crate::protocol::stats::ResendCause;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::Control;
use crate::wire::{Header, Kind, MAX_DONE, PacketNumber, ReplyInfo, RequestNumber, ShortPacket};

/// Fewer silent calls than this do not suggest that the server is late.
const WIDESPREAD: usize = 4;

/// What a call's timeout suggests about its session.
enum Suspicion {
    None,
    /// The peer may be dead: ping it.
    Ping,
    /// The peer is alive, because other packets of the session arrive, but this call has made no
    /// progress for the liveness timeout: the path drops its packets.
    Blocked,
}

impl<R: Route> OpenSession<R> {
    /// This endpoint was stopped until now and could not receive. So the server counts as heard at
    /// `since`, and a call's time without progress counts from `since` at the earliest. `since` is
    /// an earlier time than now, from `EndpointConfig::back_since`. The server may have declared
    /// this endpoint dead meanwhile.
    pub(in crate::protocol::client) fn back<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        since: Instant,
    ) {
        self.liveness.back(since);
        self.check_anew(turn);
        for retry in self.slots.iter_mut().filter_map(|(_, slot)| slot.retry_mut()) {
            retry.back(since);
        }
    }

    /// The session's timer has fired. If the session needs it only for the timeouts of simple calls,
    /// and none has expired, arms it again and returns true. This is the common case by far: the
    /// calls for which the timer was armed were answered long ago.
    pub(in crate::protocol::client) fn is_only_waiting<X>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &Lines<R>,
    ) -> bool {
        let timer = &self.common.timer;
        let probing = lines.probing(self.peer);
        if turn.now >= timer.others()
            || turn.endpoint.config.back_since(turn.now, timer.at()).is_some()
            || self.liveness.is_older_than(probing.reset_at())
        {
            return false;
        }
        let read_until = turn.endpoint.read_until.max(probing.read_until());
        // A lower bound of the time at which a simple call is overdue: see `slot_due`.
        let timeout = self.rtt.rto(0);
        let mut next = timer.others();
        for at in self.occupied().iter() {
            let Some(sent_at) = self.slots[at].call().and_then(Call::simple_sent_at) else {
                return false;
            };
            let due = sent_at.plus_nanos(timeout);
            if due <= read_until && !mutant!(SimpleCallsWait) {
                return false;
            }
            next = next.min(due);
        }
        self.common.timer.fired_for_calls();
        self.common.timer.arm_again_for_call(&mut turn.endpoint.timers, next, turn.now);
        true
    }

    /// The session's timer has fired.
    pub(in crate::protocol::client) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) -> Followup {
        let (config, read_until) = (&turn.endpoint.config, turn.endpoint.read_until);
        if self.liveness.is_dead(read_until, config) {
            return Followup::End(Cause::PeerDead);
        }
        let next_inquiry = match self.inquire(turn) {
            Ok(next_at) => next_at,
            Err(end) => return end,
        };
        let (config, read_until) = (&turn.endpoint.config, turn.endpoint.read_until);
        if self.liveness.is_silent(read_until, config) {
            self.begin_check(turn);
        }
        self.look_at_path(turn, lines);
        let reset_at = lines.probing(self.peer).reset_at();
        let (config, read_until) = (&turn.endpoint.config, turn.endpoint.read_until);
        let mut ping =
            read_until >= self.liveness.ping_at(config) || self.liveness.is_older_than(reset_at);
        let mut deadline = self.common.queue.deadline().min(next_inquiry);
        let mut calls = Instant::NEVER;
        let is_widespread = self.is_widespread(lines.probing(self.peer));
        let read_until = read_until.max(lines.probing(self.peer).read_until());
        debug_assert!(read_until <= turn.now, "an answer came before now");
        let mut overdue_since = Instant::NEVER;
        for at in self.occupied().iter() {
            let slot = &self.slots[at];
            let mut due = self.slot_due(turn.endpoint, lines, slot, turn.now, is_widespread);
            if due <= read_until {
                match self.on_slot_timeout(turn, lines, at, is_widespread) {
                    Suspicion::None => {}
                    Suspicion::Ping => ping = true,
                    Suspicion::Blocked => return Followup::End(Cause::NoProgress),
                }
                let slot = &self.slots[at];
                due = self.slot_due(turn.endpoint, lines, slot, turn.now, is_widespread);
            } else if let Some((sent_at, own_due)) = self.unpassed(lines.probing(self.peer), slot) {
                if own_due <= read_until {
                    overdue_since = overdue_since.min(sent_at);
                } else {
                    due = due.min(own_due);
                }
            }
            let (mut late, mut is_simple) = (Instant::NEVER, false);
            if let Some(call) = self.slots[at].call() {
                (late, is_simple) = (call.deadline(), call.simple_sent_at().is_some());
            }
            deadline = deadline.min(late);
            if is_simple {
                calls = calls.min(due);
            } else {
                deadline = deadline.min(due);
            }
        }
        deadline = deadline.min(self.path_size.due());
        if lines.probing(self.peer).is_out() {
            overdue_since = Instant::ZERO;
        }
        if overdue_since < Instant::NEVER {
            let is_listed = std::mem::replace(&mut self.overdue, true);
            lines.rouse_later(self.peer, self.index(), is_listed, overdue_since);
        }
        self.send_done(turn);
        if ping {
            self.send_ping(turn);
        }
        if !mutant!(TimerNotArmedAgain) {
            let liveness = self.liveness.due(turn.now, &turn.endpoint.config);
            let deadline = deadline.min(liveness);
            let timer = &mut self.common.timer;
            timer.arm_again(&mut turn.endpoint.timers, deadline, turn.now);
            timer.arm_again_for_call(&mut turn.endpoint.timers, calls, turn.now);
        }
        Followup::None
    }

    /// Whether at least half of the occupied slots, and at least [`WIDESPREAD`], wait for an answer,
    /// and nothing sent later was answered. Then a late server is more likely than the loss of all
    /// these packets.
    fn is_widespread(&self, probing: &Probing) -> bool {
        let is_silent = |slot: &Slot| {
            let call =
                slot.call().filter(|call| call.awaits_packets() && !call.retry().is_accepted());
            call.is_some_and(|call| !probing.is_passed(call.retry().active_at()))
        };
        let occupied = self.occupied();
        let silent = || occupied.iter().filter(|at| is_silent(&self.slots[*at])).count();
        occupied.len() >= WIDESPREAD && silent() >= (occupied.len() / 2).max(WIDESPREAD)
    }

    /// For a call that no later call has passed: when it was last sent, and when its timeout
    /// expires. The call may wait longer than that, until an answer passes it.
    fn unpassed(&self, probing: &Probing, slot: &Slot) -> Option<(Instant, Instant)> {
        let retry = slot.call().filter(|call| call.awaits_packets())?.retry();
        let sent_at = retry.active_at();
        if retry.is_accepted() || retry.is_forgotten() || probing.is_passed(sent_at) {
            return None;
        }
        let timeout = self.rtt.rto(retry.retries());
        Some((sent_at, retry.due(timeout, self.common.id.generation)))
    }

    /// When the slot's timeout expires; [`Instant::NEVER`] if the slot waits for no answer.
    pub(super) fn slot_due(
        &self,
        endpoint: &EndpointState,
        lines: &Lines<R>,
        slot: &Slot,
        now: Instant,
        is_widespread: bool,
    ) -> Instant {
        let (retry, wait) = match &slot.state {
            SlotState::Quarantine(quarantine) => (quarantine.retry(), Wait::NONE),
            SlotState::Call(call) if call.awaits_packets() && !call.retry().is_forgotten() => {
                let (retry, peer, method) = (call.retry(), self.peer, call.method());
                let is_served = call.awaits_handler();
                let wait = || lines.method_wait(peer, now, method, retry.active_at());
                let wait = if is_served { wait() } else { Wait::NONE };
                // An answer releases the call's reservation, for which other calls may wait.
                let is_wanted = !lines.are_empty(peer) || self.credits.is_short();
                (retry, if is_wanted { wait.shortened(self.rtt.floor()) } else { wait })
            }
            SlotState::Free | SlotState::Call(_) => return Instant::NEVER,
        };
        if retry.is_accepted() {
            return self.probe_due(endpoint, &retry);
        }
        let (probing, sent_at) = (lines.probing(self.peer), retry.active_at());
        let own_due = retry.due(self.rtt.rto(retry.retries()), self.common.id.generation);
        let due = probing.due(now, own_due.plus_nanos(wait.nanos), sent_at, is_widespread);
        due.max(wait.until.min(due.plus_nanos(most_held(self.rtt.floor()))))
    }

    /// When to probe a server that is executing the request, to learn whether it is still alive.
    fn probe_due(&self, endpoint: &EndpointState, retry: &RetryTimer) -> Instant {
        let config = &endpoint.config;
        let answered = retry.retries() == 0;
        retry.active_at()
            + if answered { self.liveness.interval(config) } else { config.ping_again() }
    }

    /// Whether the server's processing time in `info` is recorded. `has_slow`: the server has slow
    /// methods.
    #[inline(always)]
    pub(super) fn is_notable(&self, info: ReplyInfo, has_slow: bool) -> bool {
        info.took_longer_than(self.notable) | has_slow
    }

    #[inline(never)]
    pub(super) fn note_handler_time(&self, now: Instant, lines: &mut Lines<R>, told: &Told) {
        lines.record_method(self.peer, now, told, self.rtt.floor());
    }

    /// An answer without a stamp has arrived: the first packet of a response, an announcement, or
    /// the credit return for packet 0 of a request. If the server has not accepted the call, there
    /// are three cases:
    ///
    /// * The call had a timeout since its last progress: the server may have answered the packet
    ///   that was sent after the timeout, or an earlier copy, which it may have had the whole time.
    ///   [`Probing::on_ambiguous_answer`] decides.
    /// * The request has one packet, which the client sent once: the server has read all packets
    ///   that the client sent before it.
    /// * Otherwise the answer shows nothing, because the client does not know when it sent the
    ///   answered packet.
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
            let rtt = self.rtt.smoothed_nanos();
            let timeout = self.rtt.base();
            let since = retry.stalled_at();
            lines.on_ambiguous_answer(self.peer, turn.now, since, processing, rtt, timeout);
        } else if !call.recovery().was_retransmitted() && call.layout().packets() == 1 {
            self.answered(turn, lines, retry.active_at());
        }
    }

    /// An answer of the peer may pass the session's overdue calls, or ends the wait for the answer
    /// to a probe: the session's timer checks these calls now.
    pub(in crate::protocol::client) fn rouse<X>(&mut self, turn: &mut Turn<'_, X>) {
        self.overdue = false;
        self.arm(turn, turn.now);
    }

    /// A slot's timeout has expired: retransmits a packet of the call, or repeats its `Cancel`.
    fn on_slot_timeout<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        is_widespread: bool,
    ) -> Suspicion {
        let (rtt, generation) = (&self.rtt, self.common.id.generation);
        let slot = &mut self.slots[at];
        let Some(retry) = slot.retry_mut() else { return Suspicion::None };
        let sent_at = retry.active_at();
        let probing = lines.probing_mut(self.peer);
        let mut is_passed = false;
        if !retry.is_accepted() {
            is_passed =
                probing.on_overdue(turn.now, retry.active_at(), is_widespread, |doublings| {
                    let rto = rtt.rto(doublings);
                    // This wait is shorter than the call's own next timeout. So if the path drops
                    // this call's packets, another call sends the next probe.
                    rto + jitter(rto, generation, doublings) / 2
                });
        }
        let is_suspicious = probing.unanswered() >= PING_AFTER_RETRIES;
        let EndpointState { read_until, ref config, .. } = *turn.endpoint;
        if !retry.time_out(turn.now, read_until, config.liveness_timeout) {
            return Suspicion::Blocked;
        }
        let accepted = retry.is_accepted();
        let is_stalled = retry.is_stalled() && self.liveness.was_heard_since(retry.stalled_at());
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
        if is_stalled {
            self.suspect_path(turn, at, sent_at);
        }
        let slot = &mut self.slots[at];
        // The packets in flight may be lost, or may wait in the queue of a server that was not
        // scheduled. They keep their reservation until an answer comes; one packet asks for that
        // answer.
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
            if call.awaits_handler() && !self.credits.is_short() {
                lines.ask_method(self.peer, turn.now, call.method(), self.rtt.smoothed_nanos());
            }
        } else {
            call.recovery_mut().probe(turn.now);
        }
        self.note_loss(turn, lines);
        if responding {
            self.ask_again(turn, at);
        } else {
            self.send_again(turn, at, oldest);
        }
        suspicion
    }

    /// Tells the server which kept responses it may drop: after at most one timeout without a new
    /// request in their slots, and again one ping interval later, in case that `Done` was lost.
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
        let mut listed = listed.iter().peekable();
        while listed.peek().is_some() {
            let mut body = [0; 4 * MAX_DONE];
            let mut len = 0;
            for at in listed.by_ref().take(MAX_DONE) {
                let number = self.slots[at].number.to_u32();
                body[len..len + 4].copy_from_slice(&number.to_le_bytes());
                len += 4;
            }
            let packet = ShortPacket::new(&header, &body[..len]);
            turn.tx.push_bytes(&self.common.route, packet.as_bytes());
            if mutant!(DoneNamesEight) {
                return;
            }
        }
    }

    /// Sends a ping. Returns its nonce.
    pub(super) fn send_ping<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) -> u32 {
        let nonce = self.liveness.ping(turn.now);
        let sender = self.local;
        self.send_control(turn, Control::Ping { sender }, nonce);
        nonce
    }
}
