//! Receives packets of kind `Response`, `Failure`, `CreditReturn` and `Accepted`.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::Event;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::method_times::Told;
use crate::protocol::client::path_size::Way;
use crate::protocol::client::slot::SlotState;
use crate::protocol::stats::{DropReason, ResendCause};
use crate::protocol::turn::Turn;
use crate::transport::{Route, TxQueue};
use crate::wire::{ANNOUNCEMENT, Header, Kind, Stamp};

impl<R: Route> OpenSession<R> {
    /// Handles a packet of kind `Response`, `Failure`, `CreditReturn` or `Accepted`.
    #[inline]
    pub(in crate::protocol::client) fn on_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        if self.flags.trailer() != header.flags.trailer() {
            return Err(DropReason::Trailer);
        }
        let at = self.slots.of(header.request);
        let slot = &mut self.slots[at];
        if slot.number != header.request && !mutant!(OldResponseTaken) {
            self.note_late_copy(turn, header);
            let slot = &self.slots[at];
            let ahead = header.request.ahead_of(slot.number) > 0;
            return Err(if ahead { DropReason::Unsolicited } else { DropReason::OldRequest });
        }
        if slot.is_free() {
            self.note_late_copy(turn, header);
            return Err(DropReason::Duplicate);
        }
        self.liveness.heard(turn.now);
        let info = header.reply_info();
        lines.on_reply_info(self.peer, info);
        if info.is_marked() || turn.marked {
            self.pacer.on_mark(turn.now, turn.endpoint.config.bypasses);
        }
        let SlotState::Call(call) = &slot.state else {
            return self.on_quarantined(turn, lines, header, body);
        };
        if header.flags.large() != call.is_large() {
            // The header's packet number counts packets of another size: the call was cut again
            // since.
            return Err(DropReason::Duplicate);
        }
        match header.kind {
            // The first packet arrives unasked, unless the response was announced.
            Kind::Response | Kind::Failure
                if call.response().is_none() || header.packet.get() == ANNOUNCEMENT =>
            {
                self.on_first_response_packet(turn, lines, header, body)
            }
            Kind::Response | Kind::Failure => self.on_response_packet(turn, lines, header, body),
            Kind::CreditReturn => self.on_credit_return(turn, lines, header).map(|()| Event::None),
            Kind::Accepted => self.on_accepted(turn, lines, header).map(|()| Event::None),
            Kind::Request | Kind::RequestForResponse | Kind::Done | Kind::Control => {
                Err(DropReason::WrongRole)
            }
        }
    }

    /// A packet arrived for a call that has ended. If it starts the response of a probed call, that
    /// response came twice: the probe was a copy of a request that was not lost.
    #[cold]
    fn note_late_copy<X>(&mut self, turn: &mut Turn<'_, X>, header: &Header) {
        let at = self.slots.of(header.request);
        let begins = matches!(header.kind, Kind::Response | Kind::Failure)
            && matches!(header.packet.get(), 0 | ANNOUNCEMENT);
        let none = self.slots.count().number_before_first(at);
        let slot = &mut self.slots[at];
        if begins && slot.undecided == header.request {
            slot.undecided = none;
            turn.endpoint.stats.count_needless(&mut self.retransmissions, 1);
        }
    }

    /// The server has every request packet before the expected one. If the header reports a gap,
    /// the server has dropped a packet after the expected one.
    fn on_credit_return<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        header: &Header,
    ) -> Result<(), DropReason> {
        let at = self.slots.of(header.request);
        let (expected, gap) = (header.packet.get(), header.size & 1 != 0);
        let echo = Stamp::from_u32(header.size);
        let Some(call) = self.slots[at].call() else { return Err(DropReason::Duplicate) };
        if !call.may_expect(expected) {
            return Err(DropReason::Unsolicited);
        }
        if expected < call.acked() || call.response().is_some() {
            return Err(DropReason::Duplicate);
        }
        let is_large = call.is_large();
        let is_last_sent = call.is_last_sent();
        // A copy of an earlier credit return may have been delayed anywhere: it gives no sample.
        let is_news =
            expected > call.acked() || gap && call.recovery().is_news(expected, echo, turn.now);
        if let Some(trip) = echo.nanos_until(turn.now).filter(|_| is_news) {
            let processing = header.reply_info().processing_nanos();
            self.credit_limit.on_rtt(trip);
            self.echo_answered(turn, lines, trip);
            let waited = turn.queue_wait.absence.saturating_add(processing);
            if gap && is_last_sent {
                // The packet that revealed the gap may be the last packet, of any size, so
                // congestion control does not get its round trip.
                self.rtt.sample(trip);
            } else {
                self.measured_call(turn, lines, trip, (0, waited), (true, is_large));
            }
        } else if echo == Stamp::NONE {
            self.first_packet_answered(turn, lines, at, header);
        }
        let Some(call) = self.slots[at].call() else { return Err(DropReason::Duplicate) };
        let answered = expected.saturating_sub(call.acked());
        self.delivered(turn, lines, answered);
        let Some(call) = self.slots[at].call_mut() else { return Err(DropReason::Duplicate) };
        let mut flow = lines.flow(&mut self.credits, self.peer);
        // After a timeout, all packets sent before the packet that now got through were lost, or
        // they arrived and were answered.
        let is_probed = call.retry().retries() > 0 || call.recovery().is_undecided();
        let probed = expected > call.acked() && is_probed;
        let stalled = probed && call.recovery().answers_probe(echo);
        if expected > call.acked() {
            if is_large {
                self.path_size.on_carried(turn.now, Way::ToServer);
            }
            call.acknowledge(expected, turn.now, &self.cut.charges, &mut flow);
        }
        // The first packet has no stamp, so the answer may be to either copy of it, and the other
        // packets in flight may be late or lost. Send the next packet again: its answer echoes a
        // stamp, and so shows whether the other packets were lost.
        let asks = stalled && echo == Stamp::NONE && call.has_unacknowledged();
        if probed && !asks {
            let probes = call.recovery_mut().decide();
            let needless = if stalled { 0 } else { probes };
            turn.endpoint.stats.count_needless(&mut self.retransmissions, needless);
        }
        if asks {
            call.recovery_mut().probe(turn.now);
            let stats = &mut turn.endpoint.stats;
            stats.count_resent(&mut self.retransmissions, ResendCause::Probe, 1);
            lines.note_release(self.peer);
            self.send_again(turn, at, expected);
            lines.feed_later(self.index(), &self.credits);
            return Ok(());
        }
        let behind = stalled || gap && call.recovery().is_news(expected, echo, turn.now);
        if behind && call.has_unacknowledged() {
            let cause = if stalled { ResendCause::Timeout } else { ResendCause::Gap };
            call.roll_back(turn.now, cause, &self.cut.charges, &mut flow);
            turn.tx.reclaim();
            if call.is_queued() {
                turn.tx.flush();
            }
            self.note_loss(turn, lines);
        }
        lines.note_release(self.peer);
        self.transmit(turn, lines, at, None);
        lines.feed_later(self.index(), &self.credits);
        Ok(())
    }

    /// The server is executing the request: it has all request packets, and will announce the
    /// response.
    fn on_accepted<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        header: &Header,
    ) -> Result<(), DropReason> {
        let at = self.slots.of(header.request);
        let Some(call) = self.slots[at].call_mut() else { return Err(DropReason::Duplicate) };
        if !call.maybe_executed() {
            return Err(DropReason::Unsolicited);
        }
        if call.response().is_some() {
            return Err(DropReason::Duplicate);
        }
        let probes = call.recovery_mut().decide();
        let was_accepted = call.retry().is_accepted();
        if !was_accepted {
            turn.endpoint.stats.count_needless(&mut self.retransmissions, probes);
        }
        // Only a second copy is answered with `Accepted`. It was sent after the first timeout.
        let asked_at = (call.retry().retries() > 0).then(|| call.retry().stalled_at());
        call.retry_mut().progress(turn.now);
        call.accept(&self.cut.charges, &mut lines.flow(&mut self.credits, self.peer));
        let told = Told {
            method: call.method(),
            nanos: header.reply_info().processing_nanos(),
            runs_on: true,
            // The client sends a probe if no later packet was answered, and other copies only if
            // a later packet was answered.
            overtaken: probes == 0,
            probes_unanswered: false,
        };
        if !was_accepted {
            lines.method_runs(self.peer, turn.now, &told, self.rtt.floor());
        }
        if let Some(asked_at) = asked_at {
            self.copy_answered(turn, lines, asked_at);
        }
        self.stop_waiting(lines, at);
        lines.note_release(self.peer);
        lines.feed_later(self.index(), &self.credits);
        Ok(())
    }
}
