//! Calls that end before their answer comes: cancelled, or too late.
//!
//! The owner is told at once, and has its request back. At the server the request may be anywhere, and
//! nothing is known of it before the server says so. Until then the slot is in *quarantine*.
//!
//! ```text
//! waits for a slot          ->  gone
//! nothing of it was sent    ->  gone; its number is the next call's
//! request out               ->  quarantine: Cancel, again and again
//!                                 Accepted           what its packets took is given back; Cancel as a probe
//!                                 Response, Failure  the slot is free
//! response coming           ->  gone; the next request, or a Done, tells the server
//! ```

use super::receive::{KEPT_SMALL, is_announcement};
use super::send::Line;
use super::*;
use crate::mutants::mutant;
use crate::protocol::Event;
use crate::protocol::stats::DropReason;
use crate::transport::TxQueue;
use crate::wire::{CANCEL, Header, Kind, PacketLayout, PacketNumber, ShortPacket};

impl Quarantine {
    /// Gives back what the call's packets took.
    pub(super) fn release(&mut self, flow: &mut Flow<'_>) {
        let (credits, units, reply) = std::mem::take(&mut self.taken);
        if mutant!(QuarantineLeak) {
            return;
        }
        *flow.credits += credits as u16;
        flow.window.release(units);
        flow.room.release(reply);
    }
}

impl<R: Route> ClientSide<R> {
    /// Ends the call with this token, if it has not ended.
    pub(in crate::protocol) fn cancel<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        token: u64,
        cause: Cause,
    ) -> bool {
        let session =
            self.sessions.get_mut(id.index).filter(|session| session.generation == id.generation);
        let Some(session) = session else { return false };
        let has_token = |(at, slot): (SlotIndex, &Slot)| {
            slot.call.as_ref().is_some_and(|call| call.token == token).then_some(at)
        };
        let slot = session.slots.iter().find_map(has_token);
        if let Some(at) = slot {
            self.end_early(turn, id.index, at, cause);
            self.feed(turn);
            self.serve_lines(turn);
            return true;
        }
        let place = session.queue.iter().position(|queued| queued.token == token);
        let Some(queued) = place.and_then(|place| session.queue.remove(place)) else {
            return false;
        };
        Self::fail_unsent(turn.endpoint, queued, cause);
        self.close_if_drained(turn, id.index);
        true
    }

    /// Ends the calls whose deadline has passed.
    pub(super) fn end_late_calls<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        if mutant!(DeadlineForgotten) {
            return;
        }
        let session = &mut self.sessions[index];
        if turn.now >= session.queue_deadline && !mutant!(QueuedDeadlineForgotten) {
            // Looks at every call that waits, once per deadline that passes among them.
            for _ in 0..session.queue.len() {
                let Some(queued) = session.queue.pop_front() else { break };
                if queued.deadline <= turn.now {
                    Self::fail_unsent(turn.endpoint, queued, Cause::DeadlineExceeded);
                } else {
                    session.queue.push_back(queued);
                }
            }
            let deadlines = session.queue.iter().map(|queued| queued.deadline);
            session.queue_deadline = deadlines.min().unwrap_or(Instant::NEVER);
        }
        for at in SlotIndex::all() {
            let call = self.sessions[index].slots[at].call.as_ref();
            if call.is_some_and(|call| call.deadline() <= turn.now) {
                self.end_early(turn, index, at, Cause::DeadlineExceeded);
            }
        }
        self.close_if_drained(turn, index);
    }

    /// Ends the call in a slot before its answer has come. No queue refers to its request any more, which
    /// goes back to the user (thesis section 6.3.2.2).
    fn end_early<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
        cause: Cause,
    ) {
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[at];
        let Some(mut call) = slot.call.take() else { return };
        let place = Waiter { index, generation: session.generation, number: slot.number };
        let line = match call.waiting {
            Some(Blocked::Window) => Some(Line::Peer(session.peer)),
            Some(Blocked::Room) => Some(Line::Room),
            Some(Blocked::Pace | Blocked::Credits) | None => None,
        };
        if let Some(line) = line {
            self.leave_line(place, line);
        }
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[at];
        turn.tx.reclaim();
        if (call.retransmitted || !call.request.is_unique()) && !mutant!(FlushForgottenAtCancel) {
            turn.tx.flush();
        }
        session.starved.remove(at);
        session.paced.remove(at);
        let error = call.error(cause);
        let in_quarantine = call.ever_sent > 0 && call.response.is_none();
        if in_quarantine && !mutant!(NoQuarantine) {
            let whole = call.maybe_executed();
            let taken = Self::taken(&session.charges, &call);
            let patience = Patience::new(turn.now);
            slot.quarantine = Some(Box::new(Quarantine { patience, taken, whole }));
            let due = turn.now.plus_nanos(session.rtt.rto(0));
            Self::arm(turn.endpoint, index, session, due);
            self.send_cancel(turn, index, at);
            Self::fail(turn.endpoint, call, error);
            self.close_if_drained(turn, index);
            return;
        }
        if call.ever_sent == 0 && !mutant!(UnsentNumberLost) {
            // The server would wait for this number: the slot's next call takes it.
            slot.number = slot.number.plus((WINDOW as u32).wrapping_neg());
        }
        let peer = &mut self.peers[session.peer];
        let mut flow =
            Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room };
        Self::release_outstanding(&session.charges, &mut call, &mut flow);
        if call.response.is_some() || session.owes_done.contains(at) {
            self.owe_done(turn, index, at);
        }
        Self::fail(turn.endpoint, call, error);
        self.vacate(turn, index, at);
    }

    /// What the packets of a call that are on their way have taken: credits, window, room.
    fn taken(charges: &Charges, call: &Call) -> (u32, u32, u32) {
        let mut taken = (call.sent - call.acked, 0, 0);
        for packet in call.acked..call.sent {
            let (units, reply) = Self::charge(charges, call, packet);
            taken.1 += units;
            taken.2 += reply;
        }
        taken
    }

    /// Tells the server that nobody waits for the response any more. Goes on the account of the request.
    pub(super) fn send_cancel<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
    ) {
        let session = &self.sessions[index];
        let header = Header {
            connection: session.remote,
            kind: Kind::Done,
            packet: PacketNumber::new(CANCEL),
            request: session.slots[at].number,
            aux: 0,
            size: 0,
            flags: session.flags,
        };
        if mutant!(CancelNotSent) {
            return;
        }
        turn.tx.push_bytes(&session.route, ShortPacket::new(&header, &[]).as_bytes());
    }

    /// Takes in what a server says of a request that nobody waits for.
    pub(super) fn heed_in_quarantine<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        body: &[u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let index = SessionIndex::of(header.connection);
        let session = &mut self.sessions[index];
        let at = SlotIndex::of(header.request);
        let slot = &mut session.slots[at];
        let Some(quarantine) = &mut slot.quarantine else { return Err(DropReason::Duplicate) };
        let failure = header.kind == Kind::Failure;
        match header.kind {
            Kind::Response | Kind::Failure => {
                let layout = PacketLayout::new(header.size, session.eager, session.payload);
                is_announcement(header, &layout, body)?;
                if !(quarantine.whole || failure) {
                    return Err(DropReason::Unsolicited);
                }
            }
            Kind::Accepted if quarantine.whole => {
                quarantine.patience.progress(turn.now);
                quarantine.patience.accepted = true;
            }
            Kind::CreditReturn => return Err(DropReason::Duplicate),
            _ => return Err(DropReason::Unsolicited),
        }
        let peer = &mut self.peers[session.peer];
        let mut flow =
            Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room };
        quarantine.release(&mut flow);
        if header.kind == Kind::Accepted {
            Self::note_release(peer, session.peer, &mut self.ready_peers);
            self.feed_later(index);
            return Ok(Event::None);
        }
        if mutant!(QuarantineForEver) {
            return Ok(Event::None);
        }
        slot.quarantine = None;
        *(if failure {
            &mut turn.endpoint.stats.cancelled
        } else {
            &mut turn.endpoint.stats.late_responses
        }) += 1;
        if header.size > KEPT_SMALL {
            self.owe_done(turn, index, at);
        }
        self.vacate(turn, index, at);
        Ok(Event::None)
    }

    /// A slot is empty: what it took may serve others, and the next call gets in.
    pub(super) fn vacate<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
    ) {
        let session = &mut self.sessions[index];
        session.free.insert(at);
        session.starved.remove(at);
        session.paced.remove(at);
        let peer = &mut self.peers[session.peer];
        Self::note_release(peer, session.peer, &mut self.ready_peers);
        self.feed_later(index);
        let session = &mut self.sessions[index];
        if !session.queue.is_empty() && !mutant!(QueueForgotten) {
            self.start_queued(turn, index);
        }
        if self.sessions[index].draining {
            self.close_if_drained(turn, index);
        }
    }
}
