//! The common case: a request of one packet and a response of one packet.
//!
//! As in the client's `plain`, each function either does what the general path would do, or
//! nothing.

use super::ServerSession;
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::protocol::RequestHandle;
use crate::protocol::index::SlotIndex;
use crate::protocol::server::kept_response::{KeptResponse, Response};
use crate::protocol::server::reply::ReplyHead;
use crate::protocol::server::slot::KEPT_CAPACITY;
use crate::protocol::turn::Turn;
use crate::transport::{Route, TxQueue};
use crate::wire::{Header, ReplyInfo, RequestNumber};

impl<R: Route> ServerSession<R> {
    /// Receives a new request of one packet. Returns its handle, and the slot's last response
    /// buffer. `None` if the packet is not the common case.
    #[inline(always)]
    pub(in crate::protocol::server) fn plain_request<X>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        body_len: usize,
    ) -> Option<(RequestHandle, Option<MsgBuf>)> {
        let fits = self.id.generation == header.connection.generation()
            && self.route == *route
            && self.flags.with_large(header.flags.large()) == header.flags
            && header.packet.get() == 0
            && header.size as usize == body_len
            && self.agreed.is_plain(header.size, header.flags.large());
        let slot = &mut self.slots[SlotIndex::of(header.request)];
        if !fits || !slot.is_plain_next(header.request) {
            return None;
        }
        let is_large = header.flags.large();
        let buffer =
            slot.plain_execute(header.request, is_large, turn.arrived_at(), &mut self.memory);
        self.liveness.heard(turn.now);
        self.marked |= turn.marked;
        self.requests += 1;
        turn.endpoint.stats.requests += 1;
        Some((self.id.request(header.request), buffer))
    }

    /// Sends a response of one packet and keeps it. If the response is not the common case, `Err`
    /// returns the message.
    #[inline(always)]
    pub(in crate::protocol::server) fn plain_respond<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        request: RequestNumber,
        mut message: MsgBuf,
    ) -> Result<(), MsgBuf> {
        let slot = &mut self.slots[SlotIndex::of(request)];
        let is_large = slot.is_large();
        let first = self.agreed.first(is_large);
        // A detached message comes from another thread. The general path adopts it, so that the
        // pool counts it.
        let fits = slot.number() == request
            && !message.is_detached()
            && message.capacity() <= KEPT_CAPACITY
            && message.len() <= first.min(self.agreed.max_response) as usize;
        let Some(since) = slot.plain_executing_since() else { return Err(message) };
        if !fits || mutant!(ResponseForgotten) {
            return Err(message);
        }
        let (processing, size) = (turn.now.nanos_since(since), message.len() as u32);
        let mut head = ReplyHead {
            route: &self.route,
            connection: self.remote,
            flags: self.flags.with_large(is_large),
            request,
            window,
            marked: &mut self.marked,
        };
        let header = head.response(false, false, 0, processing, size);
        turn.tx.push(&self.route, message.single_packet(&header));
        let layout = self.agreed.response(size, is_large);
        let response = Response { message, failure: false, extended: false };
        let response = KeptResponse::new(response, layout, false, processing);
        slot.plain_respond(response, &mut self.memory);
        Ok(())
    }
}
