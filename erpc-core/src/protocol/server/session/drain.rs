//! The server shuts down: running requests finish, new ones are refused.

use super::control::ControlEffect;
use super::{ServerSession, Step};
use crate::buf::MsgBuf;
use crate::protocol::Cause;
use crate::protocol::server::farewell::{Farewell, Parting};
use crate::protocol::server::kept_response::Response;
use crate::protocol::server::slot::Execution;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::Control;
use crate::wire::extension::continues;
use crate::wire::{Header, ReplyInfo, RequestNumber, encode_refusal};

impl<R: Route> ServerSession<R> {
    /// Begins to refuse requests, and tells the client.
    pub(in crate::protocol::server) fn drain<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) {
        // Every request takes the general path, which checks whether to refuse it.
        self.agreed.end_plain();
        let farewell = self.farewell.insert(Box::new(Farewell::new(turn.now, self.id.generation)));
        let nonce = farewell.nonce();
        self.send_go_away(turn, nonce);
    }

    /// Whether a new request with this first packet is refused.
    #[inline]
    pub(super) fn refuses(&self, header: &Header, body: &[u8]) -> bool {
        self.farewell.is_some() && !(header.flags.extended() && continues(body))
    }

    /// Refuses a request whose number the slot has claimed.
    #[cold]
    pub(super) fn refuse_new<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        request: RequestNumber,
    ) {
        let Step { slot, memory, .. } = self.step(request, window);
        let since = turn.arrived_at();
        if let Some(kept) = slot.execute(since, memory) {
            turn.endpoint.pool.recycle(kept);
        }
        self.refuse(turn, window, request, Execution { since, is_accepted: false });
    }

    /// Answers an executing request that no handler has run and that none will run.
    pub(in crate::protocol::server) fn refuse<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        request: RequestNumber,
        execution: Execution,
    ) {
        turn.endpoint.stats.refused_requests += 1;
        let bytes = encode_refusal();
        let len = bytes.len();
        let message = turn.endpoint.pool.alloc(len).ok().or_else(|| MsgBuf::detached(len));
        let Some(mut message) = message else { return };
        message.write_at(0, &bytes);
        message.resize(len);
        let response = Response { message, failure: true, extended: false };
        self.put(turn, window, request, execution, response);
    }

    /// Handles the session's timer while the server shuts down.
    pub(super) fn on_farewell_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) -> ControlEffect {
        let is_idle = !self.slots.iter().any(|(_, slot)| slot.is_busy());
        let heard = self.liveness.last_heard();
        let Some(farewell) = &mut self.farewell else { return ControlEffect::Stays };
        match farewell.on_timer(turn.now, heard, is_idle) {
            Parting::Nothing => {}
            Parting::Tell => {
                let nonce = farewell.nonce();
                self.send_go_away(turn, nonce);
            }
            Parting::End => {
                self.send_close(turn);
                return ControlEffect::Ends(Cause::Shutdown);
            }
        }
        ControlEffect::Stays
    }

    /// When the session's timer must fire because the server shuts down.
    pub(super) fn farewell_due(&self) -> Instant {
        self.farewell.as_ref().map_or(Instant::NEVER, |farewell| farewell.due())
    }

    fn send_go_away<X: TxQueue<Route = R>>(&self, turn: &mut Turn<'_, X>, nonce: u32) {
        let sender = self.local;
        self.send(turn, Control::GoAway { sender }, nonce, ReplyInfo::default());
    }
}
