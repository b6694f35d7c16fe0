//! The common case of a request, alone: one packet in, one packet out.
//!
//! As in the client's `plain`: each function does what the general path would, or nothing.

use super::respond::KEPT_CAPACITY;
use super::*;
use crate::buf::MsgBuf;
use crate::protocol::server::slot::Repeated;
use crate::wire::{Header, Kind, PacketLayout, PacketNumber};

impl<R: Route> ServerSide<R> {
    /// Takes in a new request of one packet; returns it with the slot's last response buffer.
    #[inline(always)]
    pub(in crate::protocol) fn plain_request<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        body_len: usize,
    ) -> Option<(RequestHandle, Option<MsgBuf>)> {
        if !header.connection.is_server_role() {
            return None;
        }
        let index = SessionIndex::of(header.connection);
        let session = self.sessions.get_mut(index)?;
        let slot = &mut session.slots[SlotIndex::of(header.request)];
        let ours = session.generation == header.connection.generation()
            && session.route == *route
            && session.flags == header.flags
            && header.packet.get() == 0
            && header.size as usize == body_len
            && header.size <= session.payload.min(turn.endpoint.config.max_message)
            && header.request == slot.number.plus(WINDOW as u32)
            && matches!(slot.state, SlotState::Idle | SlotState::Responding { .. })
            && slot.buffer.as_ref().is_none_or(|buffer| buffer.capacity() <= KEPT_CAPACITY);
        if !ours {
            return None;
        }
        session.last_heard = turn.now;
        session.marked |= turn.marked;
        slot.number = header.request;
        // Neither of the states that were let through holds anything.
        std::mem::forget(std::mem::replace(
            &mut slot.state,
            SlotState::Executing { since: turn.arrived_at() },
        ));
        session.requests += 1;
        turn.endpoint.stats.requests += 1;
        let buffer = slot.buffer.take();
        session.held -= buffer.as_ref().map_or(0, MsgBuf::footprint);
        let generation = session.generation;
        Some((RequestHandle { index, generation, number: header.request }, buffer))
    }

    /// Sends a response of one packet and keeps it, or hands it back.
    #[inline(always)]
    pub(in crate::protocol::server) fn plain_respond<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        handle: &RequestHandle,
        mut response: MsgBuf,
    ) -> Result<(), MsgBuf> {
        let Some(session) = self.sessions.get_mut(handle.index) else {
            return Err(response);
        };
        let slot = &mut session.slots[SlotIndex::of(handle.number)];
        let ours = session.generation == handle.generation
            && slot.number == handle.number
            && slot.buffer.is_none()
            && response.capacity() <= KEPT_CAPACITY
            && response.len() <= session.eager.min(session.max_response) as usize;
        let SlotState::Executing { since } = slot.state else { return Err(response) };
        if !ours {
            return Err(response);
        }
        let processing = turn.now.nanos_since(since);
        let size = response.len() as u32;
        let header = Header {
            connection: session.remote,
            kind: Kind::Response,
            packet: PacketNumber::default(),
            request: handle.number,
            aux: self.grants.reply_info(processing, std::mem::take(&mut session.marked)),
            size,
            flags: session.flags,
        };
        turn.tx.push(&session.route, response.single_packet(&header));
        let layout = PacketLayout::new(size, session.eager, session.payload);
        let state = SlotState::Responding {
            layout,
            failure: false,
            extended: false,
            announced: false,
            processing,
            sent: 1,
            repeated: Repeated::default(),
            again: Instant::ZERO,
        };
        // The slot was executing, without a buffer: there is nothing to drop.
        std::mem::forget(std::mem::replace(&mut slot.state, state));
        session.held += response.footprint();
        std::mem::forget(slot.buffer.replace(response));
        Ok(())
    }
}
