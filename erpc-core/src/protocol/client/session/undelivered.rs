//! Reports that packets of the session did not reach the server: see
//! [`Inquiry`](crate::protocol::client::inquiry).

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::client::followup::{Finding, Followup};
use crate::protocol::client::inquiry::{Inquiry, RECENT, Step};
use crate::protocol::client::slot::SlotState;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{NetworkError, Route, TxQueue};
use crate::wire::control::PING;
use crate::wire::{CANCEL, Header, Kind};

/// The packet that a report says was not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quoted {
    /// A packet of a call.
    Call,
    /// The ping with this nonce. The server has not been heard since the ping was sent.
    Ping(u32),
}

impl<R: Route> OpenSession<R> {
    /// The packet that begins with this header did not reach the server, says a report. `None` if
    /// the report shows nothing, because the session has sent no such packet recently.
    pub(in crate::protocol::client) fn on_undelivered<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        error: NetworkError,
    ) -> Option<Followup> {
        let quoted = self.quoted(turn.now, header)?;
        if mutant!(ReportBelieved) {
            let finding = Finding { error, since: turn.now, quiet_since: turn.now };
            return Some(Followup::Unreachable(finding));
        }
        if let Some(inquiry) = self.unanswered_inquiry() {
            if let Quoted::Ping(nonce) = quoted {
                inquiry.ping_failed(turn.now, nonce, error);
            }
            return Some(Followup::None);
        }
        self.begin_inquiry(turn, error);
        Some(Followup::None)
    }

    fn begin_inquiry<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        error: NetworkError,
    ) {
        let ping = self.send_ping(turn);
        let inquiry = Inquiry::new(turn.now, ping, error, self.rtt.rto(0));
        self.arm(turn, inquiry.next_at());
        self.inquiry = Some(Box::new(inquiry));
    }

    /// A handshake with the session's server has failed with this error: begins an inquiry, unless
    /// one is in progress.
    pub(in crate::protocol::client) fn on_failed_handshake<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        error: NetworkError,
    ) {
        if self.unanswered_inquiry().is_none() {
            self.begin_inquiry(turn, error);
        }
    }

    /// The inquiry has found that the server is gone, but a packet of the server came on another
    /// session: goes on with the inquiry, or gives up.
    pub(in crate::protocol::client) fn doubt_inquiry<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) {
        let timeout = self.rtt.rto(0);
        let goes_on = self.inquiry.as_mut().is_some_and(|inquiry| inquiry.doubt(turn.now, timeout));
        if goes_on {
            self.send_ping(turn);
        } else {
            self.inquiry = None;
        }
        // The timer has fired for the inquiry. It fires again for all else that is due.
        self.common.timer.arm_again(&mut turn.endpoint.timers, turn.now, turn.now);
    }

    /// The inquiry, if nothing has come from the server since it began.
    fn unanswered_inquiry(&mut self) -> Option<&mut Inquiry> {
        let since = self.inquiry.as_ref()?.since();
        let is_answered = self.is_heard_since(since) && !mutant!(InquiryAnswerIgnored);
        if is_answered {
            self.inquiry = None;
        }
        self.inquiry.as_deref_mut()
    }

    /// Whether a packet of the server arrived after `since`.
    pub(in crate::protocol::client) fn is_heard_since(&self, since: Instant) -> bool {
        self.liveness.was_heard_since(since)
    }

    /// The session's recent packet that begins with this header; `None` if there is none.
    fn quoted(&self, now: Instant, header: &Header) -> Option<Quoted> {
        let is_recent = |sent_at: Instant| now.nanos_since(sent_at) <= RECENT;
        match header.kind {
            Kind::Control if header.packet.get() == PING => {
                let nonce = header.request.to_u32();
                let is_open =
                    self.liveness.is_unanswered(nonce) && is_recent(self.liveness.last_ping());
                is_open.then_some(Quoted::Ping(nonce))
            }
            Kind::Done if header.packet.get() != CANCEL => None,
            Kind::Request | Kind::RequestForResponse | Kind::Done => {
                let slot = &self.slots[self.slots.of(header.request)];
                let retry = match &slot.state {
                    SlotState::Call(call) => call.retry(),
                    SlotState::Quarantine(quarantine) => quarantine.retry(),
                    SlotState::Free => return None,
                };
                let is_current = slot.number == header.request && is_recent(retry.active_at());
                is_current.then_some(Quoted::Call)
            }
            _ => None,
        }
    }

    /// Continues the inquiry when the session's timer has fired. Returns when the next ping is due.
    /// The error says how the session ends, if it does.
    pub(super) fn inquire<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) -> Result<Instant, Followup> {
        let (now, read_until) = (turn.now, turn.endpoint.read_until);
        let timeout = self.rtt.rto(0);
        let Some(inquiry) = self.unanswered_inquiry() else { return Ok(Instant::NEVER) };
        if read_until < inquiry.next_at() {
            return Ok(inquiry.next_at());
        }
        match inquiry.step(now, timeout) {
            Step::Ping => {
                let next_at = inquiry.next_at();
                self.send_ping(turn);
                Ok(next_at)
            }
            Step::End if mutant!(InquiryHasNoResult) => Ok(Instant::NEVER),
            Step::End => Err(Followup::Unreachable(inquiry.finding())),
            Step::GiveUp => {
                self.inquiry = None;
                Ok(Instant::NEVER)
            }
        }
    }
}
