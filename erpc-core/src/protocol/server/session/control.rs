//! The control messages by which a server session opens, stays alive, and ends.

use super::ServerSession;
use crate::mutants::mutant;
use crate::protocol::Cause;
use crate::protocol::server::liveness::Verdict;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{MIN_DATAGRAM, Route, TxQueue};
use crate::wire::control::{Control, Parameters};
use crate::wire::{ConnectionId, ReplyInfo};

/// Minimum time between two `Moved` messages of a session, in nanoseconds. It keeps packets with
/// forged source addresses from causing a flood.
const MOVED_PAUSE: u64 = 1_000_000;

/// Replaces the random half of the client's id in a `Moved`. Not 0, which is the generation of
/// endpoint ids.
const UNTOLD: u32 = 1;

/// Whether a session stays open after a control message or a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::protocol::server) enum ControlEffect {
    Stays,
    /// The session has ended for this reason.
    Ends(Cause),
}

impl<R: Route> ServerSession<R> {
    /// When the session's timer must fire next.
    pub(in crate::protocol::server) fn timer_due(&self) -> Instant {
        self.liveness.due().min(self.farewell_due())
    }

    /// Tells the client that the session is open, and that it may use `share` units of the receive
    /// queue. Answers the `Open` with this nonce. A padded `Open`, of `proof` bytes, gets an answer
    /// of the same length, up to the agreed datagram size. Without padding, `proof` is 0.
    pub(in crate::protocol::server) fn send_opened<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        share: u32,
        (nonce, proof): (u32, u32),
    ) {
        let trailer = self.flags.trailer();
        let parameters = Parameters {
            credits: self.agreed.credits,
            integrity: trailer,
            slots: self.agreed.slots.to_u8(),
            ..turn.endpoint.parameters(self.agreed.max_datagram, self.agreed.eager, share)
        };
        let server = self.local;
        let opened = Control::Opened { server, parameters };
        // The client needs no proof of a size that one of the ends cannot receive.
        let datagram = proof.min(self.agreed.max_datagram);
        turn.push_padded(&self.route, &opened, self.remote, nonce, datagram);
    }

    /// Asks the client for a sign of life, and tells it the window.
    pub(in crate::protocol::server) fn send_ping<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
    ) {
        let sender = self.local;
        self.send(turn, Control::Ping { sender }, 0, window);
    }

    /// Tells the client that this endpoint is shutting down.
    pub(in crate::protocol::server) fn send_close<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
    ) {
        let sender = self.local;
        self.send(turn, Control::Close { sender }, 0, ReplyInfo::default());
    }

    /// Handles a control message with this nonce from the session's client, in a datagram of
    /// `datagram` bytes.
    pub(in crate::protocol::server) fn on_control<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        message: Control,
        (nonce, datagram): (u32, u32),
    ) -> Result<ControlEffect, DropReason> {
        match message {
            Control::Probe if datagram <= self.agreed.max_datagram => {
                self.liveness.heard(turn.now);
                turn.push_padded(&self.route, &Control::Probed, self.remote, nonce, datagram);
                Ok(ControlEffect::Stays)
            }
            Control::Resize { max_datagram } => {
                self.liveness.heard(turn.now);
                self.resize(nonce, max_datagram)?;
                self.send(turn, Control::Resized, nonce, ReplyInfo::default());
                Ok(ControlEffect::Stays)
            }
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
                Ok(ControlEffect::Ends(Cause::PeerClosed))
            }
            Control::Reset { unknown } if unknown == self.remote => {
                Ok(ControlEffect::Ends(Cause::PeerReset))
            }
            // A correct client sends no `Closed` to an open session. `Closed` answers the `Close`
            // of a shutdown, and the shutdown has removed the session.
            _ => Err(DropReason::Handshake),
        }
    }

    /// The client has measured the path: `max_datagram` bytes are the new size of large packets.
    /// A client sends a `Resize` while it has no request in large packets. Only a late duplicate of
    /// the `Resize` may arrive while the client has such a request. The `epoch` of a duplicate is
    /// not new, so the duplicate changes nothing.
    fn resize(&mut self, epoch: u32, max_datagram: u32) -> Result<(), DropReason> {
        let ahead = epoch.wrapping_sub(self.epoch).cast_signed();
        let fits = (MIN_DATAGRAM as u32..=self.agreed.max_datagram).contains(&max_datagram);
        if ahead < 0 || !fits {
            return Err(DropReason::Handshake);
        }
        if ahead > 0 {
            self.epoch = epoch;
            self.agreed.resize(max_datagram);
        }
        Ok(())
    }

    /// A packet to the session has come from another address. Sends a `Moved` to that address, at
    /// most once per [`MOVED_PAUSE`] and only if the packet has the session's whole id.
    pub(in crate::protocol::server) fn tell_moved<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        connection: ConnectionId,
        route: &R,
    ) {
        let is_ours = self.id.generation == connection.generation();
        if !is_ours || turn.now.nanos_since(self.told_moved) < MOVED_PAUSE {
            return;
        }
        self.told_moved = turn.now;
        let moved = Control::Moved { server: connection };
        // An attacker that has guessed the server's id must not learn the client's.
        let client = ConnectionId::new(self.remote.steer(), false, self.remote.index(), UNTOLD);
        let packet = moved.emit(client, 0, ReplyInfo::default());
        turn.tx.push_bytes(route, packet.as_bytes());
    }

    /// Handles the session's timer: may ping the client or end the session.
    pub(in crate::protocol::server) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
    ) -> ControlEffect {
        match self.liveness.on_timer(turn.now, &turn.endpoint.config) {
            Verdict::Alive => {}
            Verdict::Ping => self.send_ping(turn, window),
            Verdict::Gone => return ControlEffect::Ends(Cause::PeerDead),
        }
        self.on_farewell_timer(turn)
    }

    pub(super) fn send<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        message: Control,
        nonce: u32,
        window: ReplyInfo,
    ) {
        turn.tx.push_bytes(&self.route, message.emit(self.remote, nonce, window).as_bytes());
    }
}
