//! What happens when nothing comes: retransmission, probes, pings, death.

use std::time::Duration;

use super::*;
use crate::mutants::mutant;
use crate::protocol::config::LEAST_PINGS;
use crate::transport::TxQueue;
use crate::wire::control::Control;
use crate::wire::{Header, Kind, PacketNumber, ReplyInfo, RequestNumber, ShortPacket};

/// Timeouts of a call without progress after which the peer is also asked whether it still knows the
/// session: if it restarted, it says so at once.
const PING_AFTER_RETRIES: u8 = 2;

/// Timeouts of a call without progress before the path is given up, however long they took: this side
/// may have been away itself.
const LEAST_RETRIES: u8 = 4;

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

/// Up to a quarter more, another part for each session and each repeat: clients that lost packets to the same
/// full queue must not come back to it in step, for ever.
fn jitter(rto: u64, generation: u32, retries: u8) -> u64 {
    let draw = generation.rotate_left(u32::from(retries) * 7) & 0xFF;
    if retries == 0 { 0 } else { rto / 1_024 * u64::from(draw) }
}

impl Patience {
    #[inline]
    pub(super) fn new(now: Instant) -> Self {
        Self { active_at: now, retries: 0, stalled_at: now, accepted: false }
    }

    /// Something came that says that the server has got further.
    pub(super) fn progress(&mut self, now: Instant) {
        self.active_at = now;
        self.retries = 0;
    }

    /// When the silence becomes suspicious.
    pub(super) fn due<R>(&self, endpoint: &EndpointState, session: &ClientSession<R>) -> Instant {
        if self.accepted {
            let config = &endpoint.config;
            let answered = self.retries == 0;
            return self.active_at
                + if answered { session.ping_interval(config) } else { config.ping_again() };
        }
        let rto = session.rtt.rto(self.retries);
        self.active_at.plus_nanos(rto + jitter(rto, session.generation, self.retries))
    }

    /// Counts a timeout, after which something is sent; false if there were enough of them.
    fn time_out(&mut self, now: Instant, liveness_timeout: Duration) -> bool {
        if self.retries == 0 {
            self.stalled_at = now;
        } else if self.retries >= LEAST_RETRIES && now - self.stalled_at >= liveness_timeout {
            return false;
        }
        self.retries = self.retries.saturating_add(1);
        self.active_at = now;
        true
    }
}

impl<R: Route> ClientSide<R> {
    /// The session's timer has fired.
    pub(in crate::protocol) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if let Some(since) = turn.endpoint.config.back_since(turn.now, session.timer_at) {
            session.last_heard = session.last_heard.max(since);
            session.repeats = if session.is_open() { 0 } else { session.repeats };
            for patience in session.slots.iter_mut().filter_map(|(_, slot)| slot.patience()) {
                patience.stalled_at = patience.stalled_at.max(since);
            }
        }
        session.timer_at = Instant::NEVER;
        self.end_late_calls(turn, index);
        let Some(session) = self.sessions.get(index) else { return };
        if !session.is_open() {
            self.handshake_timer(turn, index);
            return;
        }
        let config = &turn.endpoint.config;
        if turn.now >= session.death(config)
            && session.last_ping > session.last_heard
            && session.repeats >= LEAST_PINGS
        {
            self.remove(turn, index, Cause::PeerDead);
            return;
        }
        let mut ping = turn.now >= session.liveness_deadline(config);
        for at in session.free.complement().iter() {
            match self.slot_timer(turn, index, at) {
                Suspicion::None => {}
                Suspicion::Ping => ping = true,
                Suspicion::Blocked => {
                    self.remove(turn, index, Cause::NoProgress);
                    return;
                }
            }
        }
        self.done_timer(turn, index);
        if ping {
            self.ping(turn, index);
        }
        let session = &mut self.sessions[index];
        let mut deadline = session.liveness_deadline(&turn.endpoint.config);
        let death = session.death(&turn.endpoint.config);
        if death > turn.now {
            deadline = deadline.min(death);
        }
        deadline = deadline.min(session.queue_deadline);
        for (_, slot) in session.slots.iter() {
            if let Some(call) = &slot.call {
                let due = Self::due(turn.endpoint, session, call).unwrap_or(Instant::NEVER);
                deadline = deadline.min(due).min(call.deadline());
            }
            if let Some(quarantine) = &slot.quarantine {
                deadline = deadline.min(quarantine.patience.due(turn.endpoint, session));
            }
        }
        if !mutant!(TimerNotArmedAgain) {
            Self::arm(turn.endpoint, index, session, deadline);
        }
    }

    /// When a call's silence becomes suspicious; `None` if nothing is owed to it.
    pub(super) fn due(
        endpoint: &EndpointState,
        session: &ClientSession<R>,
        call: &Call,
    ) -> Option<Instant> {
        let forgotten = mutant!(ProbeForgotten) && call.patience.accepted;
        let served = if call.awaits_handler() { session.rtt.service() } else { 0 };
        (call.awaits_packets() && !forgotten)
            .then(|| call.patience.due(endpoint, session).plus_nanos(served))
    }

    /// Retransmits a call whose time is up, or what says that nobody waits for it any more.
    fn slot_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
    ) -> Suspicion {
        let session = &mut self.sessions[index];
        let slot = &session.slots[at];
        let due = match (&slot.call, &slot.quarantine) {
            (Some(call), _) => Self::due(turn.endpoint, session, call),
            (None, Some(quarantine)) => Some(quarantine.patience.due(turn.endpoint, session)),
            (None, None) => None,
        };
        if due.is_none_or(|due| due > turn.now) {
            return Suspicion::None;
        }
        turn.endpoint.stats.timeouts += 1;
        let slot = &mut session.slots[at];
        let Some(patience) = slot.patience() else { return Suspicion::None };
        if !patience.time_out(turn.now, turn.endpoint.config.liveness_timeout) {
            return Suspicion::Blocked;
        }
        let (accepted, retries) = (patience.accepted, patience.retries);
        let suspicious = retries >= PING_AFTER_RETRIES && !accepted;
        let suspicion = if suspicious { Suspicion::Ping } else { Suspicion::None };
        // What is out may be lost, or waiting in the queue of a peer that was not scheduled: it keeps its
        // credits and room until something comes back, and one packet asks for that.
        let Some(call) = &mut slot.call else {
            turn.endpoint.stats.retransmissions += 1;
            self.send_cancel(turn, index, at);
            return suspicion;
        };
        call.probe(turn.now);
        let (last, oldest) = (call.layout.packets() - 1, call.acked);
        let responding = call.response.is_some();
        if accepted {
            self.send_again(turn, index, at, last);
            return suspicion;
        }
        session.heed_loss(turn.now, turn.endpoint.config.bypasses);
        if responding {
            self.ask_again(turn, index, at);
        } else {
            self.send_again(turn, index, at, oldest);
        }
        suspicion
    }

    /// Tells the server which kept responses it may drop: after a timeout without a new request in
    /// their slots, and, in case that was lost, once more a ping interval later.
    fn done_timer<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, index: SessionIndex) {
        let session = &mut self.sessions[index];
        let fresh = session.owes_done.intersection(session.free);
        let is_old = turn.now >= session.told_at + session.ping_interval(&turn.endpoint.config);
        let told = session.told_done.intersection(session.free);
        let repeat = if is_old { told } else { SlotSet::EMPTY };
        let listed = fresh.union(repeat);
        if listed.is_empty() || mutant!(DoneForgotten) {
            return;
        }
        let header = Header {
            connection: session.remote,
            kind: Kind::Done,
            packet: PacketNumber::default(),
            request: RequestNumber::default(),
            aux: 0,
            size: 0,
            flags: session.flags,
        };
        let mut body = [0; 4 * WINDOW];
        let mut len = 0;
        for at in listed.iter() {
            let number = session.slots[at].number.to_u32();
            body[len..len + 4].copy_from_slice(&number.to_le_bytes());
            len += 4;
        }
        turn.tx.push_bytes(&session.route, ShortPacket::new(&header, &body[..len]).as_bytes());
        session.owes_done = session.owes_done.intersection(fresh.complement());
        session.told_done = session.told_done.intersection(repeat.complement()).union(fresh);
        session.told_at = turn.now;
    }

    fn ping<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, index: SessionIndex) {
        let session = &mut self.sessions[index];
        session.repeats = if session.last_ping > session.last_heard {
            session.repeats.saturating_add(1)
        } else {
            1
        };
        session.last_ping = turn.now;
        let sender = Self::local_id(turn.endpoint, index, session);
        let nonce = u32::from(session.repeats);
        let packet = Control::Ping { sender }.emit(session.remote, nonce, ReplyInfo::default());
        turn.tx.push_bytes(&session.route, packet.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_up_to_a_quarter_later_each_session_by_its_own_part() {
        let rto = 1_024_000;
        for retries in 1..12 {
            let mut parts: Vec<_> =
                (0..64u32).map(|at| jitter(rto, at.wrapping_mul(0x9E37_79B9), retries)).collect();
            assert!(parts.iter().all(|part| *part <= rto / 4), "{parts:?}");
            parts.sort_unstable();
            assert!(parts[8] < rto / 16 && parts[56] > rto * 3 / 16, "spread out: {parts:?}");
        }
        assert_eq!(jitter(rto, u32::MAX, 0), 0, "the first one is on time");
        assert_ne!(jitter(rto, 0x0102_0408, 1), jitter(rto, 0x0102_0408, 2));
    }
}
