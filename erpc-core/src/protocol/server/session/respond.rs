//! Sends responses and statuses.

use super::{ServerSession, Step};
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::protocol::server::kept_response::{KeptResponse, PullEcho, Response};
use crate::protocol::server::slot::Execution;
use crate::protocol::turn::Turn;
use crate::status::{Code, Status};
use crate::transport::{Route, TxQueue};
use crate::wire::{ReplyInfo, RequestNumber, encode_status};

impl<R: Route> ServerSession<R> {
    /// The execution of a request; `None` if the request is not executing.
    pub(in crate::protocol::server) fn execution(
        &self,
        request: RequestNumber,
    ) -> Option<Execution> {
        let slot = &self.slots[self.slots.of(request)];
        if slot.number() == request { slot.execution() } else { None }
    }

    /// Sends the response to an executing request, and keeps it for repeats.
    #[inline(never)]
    pub(in crate::protocol::server) fn respond<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        request: RequestNumber,
        execution: Execution,
        message: MsgBuf,
        extended: bool,
    ) {
        let limit = self.agreed.max_response;
        if message.len() > limit as usize {
            let len = message.len();
            turn.endpoint.pool.recycle(message);
            let text = format!(
                "the response has {len} bytes, the client takes at most {limit}: see the client's \
                 `EndpointConfig::max_message`"
            );
            let status = Status::new(Code::OutOfRange, text);
            return self.respond_status(turn, window, request, execution, &status);
        }
        let bytes = self.memory.slots() + message.footprint();
        let over_budget = bytes > turn.endpoint.config.session_budget(self.slots.count());
        // A response from another thread is not in the pool's memory: the pool counts it from now
        // on.
        let adopted = if over_budget { None } else { turn.endpoint.pool.adopt(message).ok() };
        match adopted {
            Some(message) => {
                let response = Response { message, failure: false, extended };
                self.put(turn, window, request, execution, response);
            }
            None => {
                let text = "the server has no memory for the response within its limits";
                let status = Status::new(Code::ResourceExhausted, text);
                self.respond_status(turn, window, request, execution, &status);
            }
        }
    }

    /// Sends a status in place of a response.
    pub(in crate::protocol::server) fn respond_status<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        request: RequestNumber,
        execution: Execution,
        status: &Status,
    ) {
        let mut bytes = Vec::new();
        encode_status(status, &mut bytes);
        let is_large = self.slots[self.slots.of(request)].is_large();
        let first = self.agreed.first(is_large);
        if bytes.len() > self.agreed.max_response.min(first) as usize {
            bytes.clear();
            let short = Status::new(status.code(), "(the status was too long to be sent)");
            encode_status(&short, &mut bytes);
        }
        // The buffer may be outside of the pool: the status may report that the pool has no memory.
        let len = bytes.len();
        let message = turn.endpoint.pool.alloc(len).ok().or_else(|| MsgBuf::detached(len));
        let Some(mut message) = message else { return };
        message.write_at(0, &bytes);
        message.resize(len);
        let response = Response { message, failure: true, extended: false };
        self.put(turn, window, request, execution, response);
    }

    /// Answers a request that no handler has received, and drops its packets.
    pub(super) fn fail<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        request: RequestNumber,
        status: &Status,
    ) {
        let Step { slot, memory, .. } = self.step(request, window);
        slot.clear(memory, &mut turn.endpoint.pool);
        let since = turn.arrived_at();
        // If there is no memory for the status, the slot stays in the executing state: repeated
        // packets are answered with `Accepted`.
        if let Some(kept) = slot.execute(since, memory) {
            turn.endpoint.pool.recycle(kept);
        }
        let execution = Execution { since, is_accepted: false };
        self.respond_status(turn, window, request, execution, status);
    }

    /// Sends the first packet or the announcement, and stores the response in its slot.
    #[inline]
    pub(super) fn put<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        request: RequestNumber,
        execution: Execution,
        response: Response,
    ) {
        let agreed = self.agreed;
        let Step { slot, memory, mut head } = self.step(request, window);
        let layout = agreed.response(response.message.len() as u32, slot.is_large());
        let announced =
            execution.is_accepted && !response.message.is_empty() && !mutant!(AcceptedNotAnnounced);
        let processing = turn.now.nanos_since(execution.since);
        let mut response = KeptResponse::new(response, layout, announced, processing);
        response.send_first(&mut head, turn.tx);
        let early = slot.early();
        if early > 0 {
            let pulled = response.pull(1, early.into(), agreed.credits, turn.now, 0);
            let packets = pulled.map_or(1..1, |pull| pull.packets);
            response.send(&mut head, packets, PullEcho::NONE, turn.tx);
        }
        slot.respond(response, memory, &mut turn.endpoint.pool);
        if mutant!(ResponseForgotten) {
            slot.clear(memory, &mut turn.endpoint.pool);
        }
    }
}
