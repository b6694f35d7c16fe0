//! What happens when nothing comes: retransmission, probes, pings, the end.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::client::call::Call;
use crate::protocol::client::followup::Followup;
use crate::protocol::client::retry::RetryTimer;
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
    ) -> Followup {
        let config = &turn.endpoint.config;
        if self.liveness.is_dead(turn.read_until, config) {
            return Followup::End(Cause::PeerDead);
        }
        let mut ping = turn.read_until >= self.liveness.ping_at(config);
        let mut deadline = self.common.queue.deadline();
        for at in self.free.complement().iter() {
            let mut due = self.slot_due(turn.endpoint, &self.slots[at]);
            if due <= turn.read_until {
                match self.on_slot_timeout(turn, at) {
                    Suspicion::None => {}
                    Suspicion::Ping => ping = true,
                    Suspicion::Blocked => return Followup::End(Cause::NoProgress),
                }
                due = self.slot_due(turn.endpoint, &self.slots[at]);
            }
            let late = self.slots[at].call().map_or(Instant::NEVER, Call::deadline);
            deadline = deadline.min(due).min(late);
        }
        self.send_done(turn);
        if ping {
            self.send_ping(turn);
        }
        if !mutant!(TimerNotArmedAgain) {
            let liveness = self.liveness.due(turn.now, &turn.endpoint.config);
            self.arm(turn, deadline.min(liveness));
        }
        Followup::None
    }

    /// When the silence about what is in a slot becomes suspicious; [`Instant::NEVER`] if nothing is owed to it.
    #[inline]
    pub(super) fn slot_due(&self, endpoint: &EndpointState, slot: &Slot) -> Instant {
        match &slot.state {
            SlotState::Quarantine(quarantine) => self.due(endpoint, quarantine.retry()),
            SlotState::Call(call) if call.awaits_packets() && !call.retry().is_forgotten() => {
                let served = if call.awaits_handler() { self.rtt.server_time() } else { 0 };
                self.due(endpoint, call.retry()).plus_nanos(served)
            }
            SlotState::Free | SlotState::Call(_) => Instant::NEVER,
        }
    }

    #[inline]
    fn due(&self, endpoint: &EndpointState, retry: &RetryTimer) -> Instant {
        if !retry.is_accepted() {
            return retry.due(self.rtt.rto(retry.retries()), self.common.id.generation);
        }
        let config = &endpoint.config;
        let answered = retry.retries() == 0;
        retry.active_at()
            + if answered { self.liveness.interval(config) } else { config.ping_again() }
    }

    /// Nothing has come in time: retransmits a call, or says again that it was cancelled.
    fn on_slot_timeout<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        at: SlotIndex,
    ) -> Suspicion {
        let slot = &mut self.slots[at];
        let Some(retry) = slot.retry_mut() else { return Suspicion::None };
        if !retry.time_out(turn.now, turn.endpoint.config.liveness_timeout) {
            return Suspicion::Blocked;
        }
        let accepted = retry.is_accepted();
        let stats = &mut turn.endpoint.stats;
        if accepted {
            stats.inquiries += 1;
        } else {
            stats.count_resent(&mut self.retransmissions, ResendCause::Probe, 1);
        }
        let suspicion = if retry.is_suspicious() { Suspicion::Ping } else { Suspicion::None };
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
        call.recovery_mut().probe(turn.now);
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
