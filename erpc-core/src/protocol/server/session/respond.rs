//! A response's way out.

use std::ops::Range;

use super::*;
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::protocol::server::slot::Repeated;
use crate::protocol::stats::DropReason;
use crate::status::{Code, Status};
use crate::wire::{
    ANNOUNCEMENT, Header, Kind, PacketLayout, PacketNumber, ShortPacket, Stamp, encode_status,
};

/// Capacity up to which a slot keeps its response buffer for the next response, in bytes.
pub const KEPT_CAPACITY: usize = 768;

/// What answers a request.
struct Message {
    bytes: MsgBuf,
    /// It is an encoded status.
    failure: bool,
    /// It begins with an extension.
    extended: bool,
}

impl<R: Route> ServerSide<R> {
    /// Sends a response and keeps it.
    #[inline(always)]
    pub(in crate::protocol) fn respond<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        handle: RequestHandle,
        response: MsgBuf,
        extended: bool,
    ) {
        if extended || mutant!(ResponseForgotten) {
            return self.respond_any(turn, handle, response, extended);
        }
        if let Err(response) = self.plain_respond(turn, &handle, response) {
            self.respond_any(turn, handle, response, false);
        }
    }

    /// Sends a response that is not the common case.
    #[inline(never)]
    fn respond_any<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        handle: RequestHandle,
        response: MsgBuf,
        extended: bool,
    ) {
        let Some(session) = self.executing(&handle) else {
            turn.endpoint.stats.orphaned_responses += 1;
            turn.endpoint.pool.recycle(response);
            return;
        };
        let limit = session.max_response;
        if response.len() > limit as usize {
            let message = format!(
                "the response has {} bytes, the client takes at most {limit}",
                response.len()
            );
            turn.endpoint.pool.recycle(response);
            self.respond_status(turn, handle, &Status::new(Code::OutOfRange, message));
            return;
        }
        let over_budget =
            session.held + response.footprint() > turn.endpoint.config.session_budget();
        // Responses of other threads come in memory of their own; what is kept of them counts here.
        let adopted = if over_budget { None } else { turn.endpoint.pool.adopt(response).ok() };
        let Some(response) = adopted else {
            let message = "the server keeps as many responses as its memory limits allow";
            self.respond_status(turn, handle, &Status::new(Code::ResourceExhausted, message));
            return;
        };
        let message = Message { bytes: response, failure: false, extended };
        self.put(turn, handle, message);
    }

    /// Sends a status instead of a response.
    pub(in crate::protocol) fn respond_status<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        handle: RequestHandle,
        status: &Status,
    ) {
        let Some(session) = self.executing(&handle) else {
            turn.endpoint.stats.orphaned_responses += 1;
            return;
        };
        let mut bytes = Vec::new();
        encode_status(status, &mut bytes);
        if bytes.len() > session.max_response as usize || bytes.len() > session.eager as usize {
            bytes.clear();
            let short = Status::new(status.code(), "(the status was too long to be sent)");
            encode_status(&short, &mut bytes);
        }
        // Outside of the pool if need be: a status says that memory is short.
        let buffer =
            turn.endpoint.pool.alloc(bytes.len()).ok().or_else(|| MsgBuf::detached(bytes.len()));
        let Some(mut buffer) = buffer else { return };
        buffer.write_at(0, &bytes);
        buffer.resize(bytes.len());
        let message = Message { bytes: buffer, failure: true, extended: false };
        self.put(turn, handle, message);
    }

    /// Puts the message into its slot and sends the first packet.
    #[inline]
    fn put<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        handle: RequestHandle,
        message: Message,
    ) {
        let Message { bytes: message, failure, extended } = message;
        let session = &mut self.sessions[handle.index];
        let slot = &mut session.slots[SlotIndex::of(handle.number)];
        let Some(since) = slot.state.executing_since() else { return };
        let accepted = matches!(slot.state, SlotState::Accepted { .. });
        let first = if mutant!(EagerIgnored) { session.payload } else { session.eager };
        let layout = PacketLayout::new(message.len() as u32, first, session.payload);
        let processing = turn.now.nanos_since(since);
        let announced = accepted && !message.is_empty() && !mutant!(AcceptedNotAnnounced);
        slot.state = SlotState::Responding {
            layout,
            failure,
            extended,
            announced,
            processing,
            sent: u32::from(!announced),
            repeated: Repeated::default(),
            again: Instant::ZERO,
        };
        session.held += message.footprint();
        if let Some(old) = slot.buffer.replace(message) {
            session.held -= old.footprint();
            turn.endpoint.pool.recycle(old);
        }
        self.send_first(turn, handle.index, handle.number);
        if mutant!(ResponseForgotten) {
            self.sessions[handle.index].slots[SlotIndex::of(handle.number)].state = SlotState::Idle;
        }
    }

    /// Sends what comes unasked of the response in a slot: its first packet, or the announcement. Who
    /// sends it again flushes before.
    pub(in crate::protocol::server) fn send_first<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        number: RequestNumber,
    ) {
        let session = &mut self.sessions[index];
        let slot = &session.slots[SlotIndex::of(number)];
        let SlotState::Responding { layout, failure, extended, announced, processing, .. } =
            slot.state
        else {
            return;
        };
        if !announced {
            return self.send_response(turn, index, number, 0..1, Stamp::NONE, 0);
        }
        let header = Header {
            connection: session.remote,
            kind: if failure { Kind::Failure } else { Kind::Response },
            packet: PacketNumber::new(ANNOUNCEMENT),
            request: number,
            aux: self.grants.reply_info(processing, std::mem::take(&mut session.marked)),
            size: layout.size(),
            flags: session.flags.and_extended(extended),
        };
        turn.tx.push_bytes(&session.route, ShortPacket::new(&header, &[]).as_bytes());
    }

    /// Sends packets of the response in a slot, all but the first with the stamp of what asked for them and
    /// how long that has `waited` here. Who sends one again flushes before.
    #[inline]
    pub(in crate::protocol::server) fn send_response<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        number: RequestNumber,
        packets: Range<u32>,
        echo: Stamp,
        waited: u64,
    ) {
        let grants = &self.grants;
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[SlotIndex::of(number)];
        let SlotState::Responding { layout, failure, extended, processing, .. } = slot.state else {
            return;
        };
        let Some(buffer) = &mut slot.buffer else { return };
        for packet in packets {
            let extended = extended && !(mutant!(ExtendedOnce) && packet > 0);
            let (nanos, size) =
                if packet == 0 { (processing, layout.size()) } else { (waited, echo.to_u32()) };
            let header = Header {
                connection: session.remote,
                kind: if failure { Kind::Failure } else { Kind::Response },
                packet: PacketNumber::new(packet),
                request: number,
                aux: grants.reply_info(nanos, std::mem::take(&mut session.marked)),
                size,
                flags: session.flags.and_extended(extended),
            };
            turn.tx.push(&session.route, buffer.packet(packet, &header, &layout));
        }
    }

    /// The client asks for packets of a response: for the first only if it was announced.
    pub(in crate::protocol::server) fn request_for_response<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
    ) -> Result<(), DropReason> {
        let index = SessionIndex::of(header.connection);
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[SlotIndex::of(header.request)];
        let ahead = header.request.ahead_of(slot.number);
        if ahead != 0 {
            return Err(if ahead < 0 { DropReason::OldRequest } else { DropReason::RequestLeap });
        }
        let SlotState::Responding { layout, announced, sent, repeated, .. } = &mut slot.state
        else {
            return Err(DropReason::Unsolicited);
        };
        let (from, count) = (header.packet.get(), header.size);
        let Some(to) = from.checked_add(count).filter(|to| *to <= layout.packets()) else {
            return Err(DropReason::Overrun);
        };
        let unasked = from == 0 && !*announced;
        if unasked || count == 0 || count > u32::from(session.credits) {
            return Err(DropReason::Overrun);
        }
        // If the one before was lost, this one stands for both. Its credits are the client's.
        let from = from.min(*sent);
        let count = to - from;
        if count > u32::from(session.credits) {
            return Err(DropReason::OutOfOrder);
        }
        let again = from < *sent;
        if again && count > 1 && !repeated.admits(count, layout.packets(), session.credits) {
            return Err(DropReason::Duplicate);
        }
        *sent = to.max(*sent);
        if again {
            if !mutant!(ResponseAgainWithoutFlush) {
                turn.tx.flush();
            }
            turn.endpoint.stats.retransmissions += u64::from(count);
        }
        let to = if mutant!(PullOneTooFew) { to - 1 } else { to };
        let (echo, waited) = (Stamp::from_u32(header.aux), turn.queue_wait.longest());
        self.send_response(turn, index, header.request, from..to, echo, waited);
        Ok(())
    }
}
