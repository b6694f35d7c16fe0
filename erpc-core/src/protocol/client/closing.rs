//! A disconnected session sends `Close` until the server answers.

use super::followup::Followup;
use super::repeat::Repeat;
use super::session::OpenSession;
use crate::protocol::Cause;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::Control;
use crate::wire::{Header, ReplyInfo};

/// A session without calls that has sent `Close`. Its quarantined slots keep their reservations
/// until the session ends.
pub(super) struct Closing<R> {
    pub(super) session: Box<OpenSession<R>>,
    repeat: Repeat,
}

impl<R: Route> Closing<R> {
    pub(super) fn new(session: Box<OpenSession<R>>, now: Instant) -> Self {
        Self { session, repeat: Repeat::new(now) }
    }

    /// Sends `Close`, and arms the timer for its next copy.
    pub(super) fn send<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        self.session.send_close(turn, self.repeat.nonce());
        self.repeat.arm(turn, self.session.common_mut());
    }

    /// The session's timer has fired: repeats `Close`, or ends the session.
    pub(super) fn on_timer<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) -> Followup {
        if !self.repeat.is_due(turn, self.session.common_mut()) {
            return Followup::None;
        }
        if self.repeat.is_over(turn) {
            return Followup::End(Cause::Disconnected);
        }
        self.send(turn);
        Followup::None
    }

    /// A control message came from the server.
    pub(super) fn on_control<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        message: Control,
    ) -> Result<Followup, DropReason> {
        let remote = self.session.remote();
        match message {
            Control::Close { sender } if sender == remote => {
                let nonce = header.request.to_u32();
                let closed = Control::Closed.emit(remote, nonce, ReplyInfo::default());
                turn.tx.push_bytes(self.session.route(), closed.as_bytes());
            }
            Control::Reset { unknown } if unknown == remote => {}
            Control::Closed | Control::Moved { .. } => {}
            _ => return Err(DropReason::Handshake),
        }
        Ok(Followup::End(Cause::Disconnected))
    }
}
