//! The common case of a call, alone: one packet out, one packet back, room for both, nobody waiting.
//!
//! Each function does exactly what the general path in `send` and `receive` would, or returns without
//! having changed anything; the general path then does it. What is saved is asking, step by step, for
//! everything that is not the case.

use super::receive::KEPT_SMALL;
use super::*;
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::transport::TxQueue;
use crate::wire::{Header, Kind, PacketLayout, PacketNumber, ReplyInfo};

impl<R: Route> ClientSide<R> {
    /// Sends a request of one packet, if nothing stands in its way; else hands it back.
    #[inline(always)]
    pub(super) fn plain_call<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        new: NewCall,
    ) -> Result<(), NewCall> {
        let Some(session) = self.sessions.get_mut(id.index) else { return Err(new) };
        let size = new.request.len();
        let ready = session.generation == id.generation
            && !session.free.is_empty()
            && !new.extended
            && session.is_open()
            && session.is_quiet()
            && !session.pace.is_limited()
            && size <= (session.payload.min(session.max_request)) as usize;
        if !ready {
            return Err(new);
        }
        let peer = &mut self.peers[session.peer];
        if !(peer.waiting.is_empty() && self.room_waiting.is_empty()) {
            return Err(new);
        }
        let cost = (session.charges.packet(size), session.charges.eager_reply);
        let mut flow =
            Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room };
        if flow.take(cost.0, cost.1).is_err() {
            return Err(new);
        }
        let NewCall { mut request, token, method, .. } = new;
        let at = session.free.first();
        session.free.remove(at);
        session.owes_done.remove(at);
        session.told_done.remove(at);
        let slot = &mut session.slots[at];
        slot.number = slot.number.plus(WINDOW as u32);
        let header = Header {
            connection: session.remote,
            kind: Kind::Request,
            packet: PacketNumber::default(),
            request: slot.number,
            aux: method,
            size: size as u32,
            flags: session.flags,
        };
        turn.tx.push(&session.route, request.single_packet(&header));
        let call = Call {
            request,
            token,
            method,
            extended: None,
            layout: PacketLayout::new(size as u32, session.payload, session.payload),
            last_cost: cost,
            sent: 1,
            acked: 0,
            ever_sent: 1,
            patience: Patience::new(turn.now),
            retransmitted: false,
            waiting: None,
            rolled_back: None,
            probed_at: Instant::ZERO,
            response: None,
        };
        // A free slot holds no call: there is nothing to drop.
        debug_assert!(slot.call.is_none());
        std::mem::forget(slot.call.replace(call));
        // A timeout is never below the floor: a timer before that serves as it is.
        if session.timer_at > turn.now.plus_nanos(session.rtt.floor()) {
            let deadline = turn.now.plus_nanos(session.rtt.rto(0));
            Self::arm(turn.endpoint, id.index, session, deadline);
        }
        turn.endpoint.stats.calls += 1;
        Ok(())
    }

    /// Takes in a response of one packet to a plain call; returns the call's tag and its request.
    #[inline(always)]
    pub(in crate::protocol) fn plain_response<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        body_len: usize,
    ) -> Option<(u64, MsgBuf)> {
        if header.connection.is_server_role() {
            return None;
        }
        let session = self.sessions.get_mut(SessionIndex::of(header.connection))?;
        let at = SlotIndex::of(header.request);
        let ours = session.generation == header.connection.generation()
            && session.route == *route
            && session.flags == header.flags
            && header.packet.get() == 0
            && header.size as usize == body_len
            && header.size <= session.eager.min(KEPT_SMALL)
            && session.is_open()
            && session.is_quiet()
            && session.slots[at].number == header.request;
        if !ours {
            return None;
        }
        let slot = &mut session.slots[at];
        let peer = &mut self.peers[session.peer];
        if !slot.call.as_ref()?.is_plain() || !peer.waiting.is_empty() {
            return None;
        }
        let Call { request, token, last_cost, patience, response, .. } = slot.call.take()?;
        // A plain call has no response under way: there is nothing to drop.
        debug_assert!(response.is_none());
        std::mem::forget(response);
        let info = ReplyInfo::from_u32(header.aux);
        peer.heed(info);
        // One sample per burst: the others would be the same but for the time of the burst itself.
        if session.last_heard != turn.now {
            session.last_heard = turn.now;
            let trip = turn.now.nanos_since(patience.active_at);
            let served = info.processing_nanos();
            session.rtt.serve(served, false);
            let nanos = trip.saturating_sub(served);
            session.measured(
                turn.now,
                nanos,
                turn.queue_wait.absence,
                turn.endpoint.config.bypasses,
            );
        }
        if info.is_marked() | turn.marked {
            session.heed_mark(turn.now, turn.endpoint.config.bypasses);
        }
        session.free.insert(at);
        Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room }
            .release(last_cost.0, last_cost.1);
        turn.endpoint.stats.responses += 1;
        turn.tx.reclaim();
        if !request.is_unique() && !mutant!(FlushForgottenPlain) {
            // A queue still refers to it (thesis section 6.3.2.2).
            turn.tx.flush();
        }
        Some((token, request))
    }
}
