//! The common case: a request of one packet and a response of one packet.
//!
//! As in the client's `plain`, each function either does what the general path would do, or
//! nothing.

use super::ServerSession;
use crate::buf::MsgBuf;
use crate::memory::prefetch;
use crate::mutants::mutant;
use crate::protocol::RequestHandle;
use crate::protocol::server::kept_response::KeptResponse;
use crate::protocol::server::reply::told;
use crate::protocol::server::slot::KEPT_CAPACITY;
use crate::protocol::turn::Turn;
use crate::transport::{Route, TxQueue};
use crate::wire::{HeaderWords, ReplyInfo, RequestNumber};

impl<R: Route> ServerSession<R> {
    /// Loads what [`Self::plain_request`] and [`Self::plain_respond`] read and write into the cache.
    #[inline]
    pub(in crate::protocol::server) fn prefetch(&self, request: RequestNumber) {
        prefetch(&self.local);
        prefetch(&self.agreed);
        prefetch(&self.liveness);
        prefetch(&self.route);
        prefetch(&self.slots[self.slots.of(request)]);
    }

    /// Loads the response buffer that a request's slot keeps into the cache.
    #[inline]
    pub(in crate::protocol::server) fn prefetch_buffer(&self, request: RequestNumber) {
        self.slots[self.slots.of(request)].prefetch_buffer();
    }

    /// Whether this is the first packet of the next request of its slot.
    #[inline(always)]
    pub(in crate::protocol::server) fn expects(&self, header: HeaderWords) -> bool {
        let (request, step) = (header.request(), self.slots.step());
        self.local == header.connection()
            && header.head().is_first_of_request()
            && self.slots[self.slots.of(request)].is_next(request, step)
    }

    /// Receives a new request of one packet, with an extension or without. Returns its handle, and
    /// the slot's last response buffer. `None` if the packet is not the common case.
    #[inline(always)]
    pub(in crate::protocol::server) fn plain_request<const EXTENDED: bool, X>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: HeaderWords,
        body_len: usize,
    ) -> Option<(RequestHandle, Option<MsgBuf>)> {
        let (head, request) = (header.head(), header.request());
        let fits = self.local == header.connection()
            && self.route == *route
            && self.heads.request.and_extended(EXTENDED) == head.small()
            && header.size() as usize == body_len
            && self.agreed.is_plain(header.size(), head.large());
        let (step, at) = (self.slots.step(), self.slots.of(request));
        let slot = &mut self.slots[at];
        if !fits || !slot.is_plain_next(request, step) {
            return None;
        }
        let buffer = slot.plain_execute(request, head.large(), turn.arrived_at(), &mut self.memory);
        self.liveness.heard(turn.now);
        self.marked |= turn.marked;
        self.requests += 1;
        turn.endpoint.stats.requests += 1;
        Some((self.id.request(request), buffer))
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
        let at = self.slots.of(request);
        let slot = &mut self.slots[at];
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
        let head = self.heads.response.with_large(is_large);
        let info = window.after(told(processing)).with_mark(std::mem::take(&mut self.marked));
        let header = HeaderWords::single(self.remote, head, request, info.to_u32(), size);
        turn.tx.push_single(&self.route, header, &mut message, self.agreed.bundles);
        slot.plain_respond(KeptResponse::single(message, processing), &mut self.memory);
        Ok(())
    }
}
