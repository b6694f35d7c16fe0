//! A disconnected session sends `Close` until the server answers.

use super::followup::Followup;
use super::repeat::Repeat;
use super::session::OpenSession;
use crate::protocol::Cause;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::{CLOSE, Control};
use crate::wire::{Header, Kind, ReplyInfo};

/// A session without calls that has sent `Close`. Its quarantined slots keep their reservations
/// until the session ends.
pub(super) struct Closing<R> {
    pub(super) session: Box<OpenSession<R>>,
    repeat: Repeat,
    /// The nonce of the last `Close` that was sent before a report that a `Close` was not
    /// delivered; `None` if there was no such report.
    reported: Option<u32>,
}

impl<R: Route> Closing<R> {
    pub(super) fn new(session: Box<OpenSession<R>>, now: Instant) -> Self {
        Self { session, repeat: Repeat::new(now), reported: None }
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

    /// The packet that begins with this header was not delivered, says a report. `None` if the
    /// report shows nothing: it is about no `Close` of this session.
    ///
    /// One report may be forged, or true for a moment only. So the client sends `Close` again
    /// immediately, and ends the session if that copy is not delivered either.
    pub(super) fn on_undelivered<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
    ) -> Option<Followup> {
        let (nonce, last) = (header.request.to_u32(), self.repeat.nonce());
        if header.kind != Kind::Control || header.packet.get() != CLOSE || nonce > last {
            return None;
        }
        match self.reported {
            // After many copies the nonce does not count any further.
            Some(first) if nonce > first || self.repeat.is_counted_out() => {
                return Some(Followup::End(Cause::Disconnected));
            }
            Some(_) => {}
            None => {
                self.reported = Some(last);
                self.repeat.hurry();
                self.send(turn);
            }
        }
        Some(Followup::None)
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
