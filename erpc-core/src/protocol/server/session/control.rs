//! A server session opens, stays alive, and ends.

use super::ServerSession;
use crate::mutants::mutant;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::server::liveness::Verdict;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::checksum::overhead;
use crate::wire::control::{Control, Parameters};
use crate::wire::{ConnectionId, ReplyInfo};

/// What becomes of a session after a control message or a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::protocol::server) enum ControlEffect {
    Stays,
    Ends,
}

impl<R: Route> ServerSession<R> {
    /// When the session's timer is due next.
    pub(in crate::protocol::server) fn timer_due(&self) -> Instant {
        self.liveness.due()
    }

    /// Tells the client that the session is open, and that it may use `share` of the receive queue.
    pub(in crate::protocol::server) fn send_opened<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        share: u32,
        nonce: u32,
    ) {
        let trailer = self.flags.trailer();
        let datagram = self.agreed.payload + overhead(trailer) as u32;
        let parameters = Parameters {
            credits: self.agreed.credits,
            integrity: trailer,
            ..turn.endpoint.parameters(datagram, self.agreed.eager, share)
        };
        let server = self.local_id(turn.endpoint);
        self.send(turn, Control::Opened { server, parameters }, nonce, ReplyInfo::default());
    }

    /// Asks whether the client is there, and tells it the window.
    pub(in crate::protocol::server) fn send_ping<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
    ) {
        let sender = self.local_id(turn.endpoint);
        self.send(turn, Control::Ping { sender }, 0, window);
    }

    /// Tells the client that this endpoint shuts down.
    pub(in crate::protocol::server) fn send_close<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
    ) {
        let sender = self.local_id(turn.endpoint);
        self.send(turn, Control::Close { sender }, 0, ReplyInfo::default());
    }

    /// Takes in a control message from the session's client.
    pub(in crate::protocol::server) fn on_control<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        message: Control,
        nonce: u32,
    ) -> Result<ControlEffect, DropReason> {
        match message {
            Control::Ping { sender } if sender == self.remote => {
                self.liveness.heard(turn.now);
                if !mutant!(PingUnanswered) {
                    self.send(turn, Control::Pong, nonce, window);
                }
                Ok(ControlEffect::Stays)
            }
            Control::Pong => {
                self.liveness.heard(turn.now);
                Ok(ControlEffect::Stays)
            }
            Control::Close { sender } if sender == self.remote => {
                self.send(turn, Control::Closed, nonce, ReplyInfo::default());
                Ok(ControlEffect::Ends)
            }
            Control::Reset { unknown } if unknown == self.remote => Ok(ControlEffect::Ends),
            // A `Closed` answers the `Close` of a shutdown, which has removed the session.
            _ => Err(DropReason::Handshake),
        }
    }

    /// The session's timer has fired.
    pub(in crate::protocol::server) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
    ) -> ControlEffect {
        match self.liveness.on_timer(turn.now, &turn.endpoint.config) {
            Verdict::Alive => {}
            Verdict::Ping => self.send_ping(turn, window),
            Verdict::Gone => return ControlEffect::Ends,
        }
        ControlEffect::Stays
    }

    fn send<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        message: Control,
        nonce: u32,
        window: ReplyInfo,
    ) {
        turn.tx.push_bytes(&self.route, message.emit(self.remote, nonce, window).as_bytes());
    }

    /// This endpoint's id for the session.
    fn local_id(&self, endpoint: &EndpointState) -> ConnectionId {
        ConnectionId::new(endpoint.local.steer, true, self.id.index.get(), self.id.generation)
    }
}
