//! Responses of one or more packets.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::assembly::Assembly;
use crate::protocol::client::call::{Call, Finished};
use crate::protocol::client::kept::KEPT_SMALL;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::method_times::Told;
use crate::protocol::client::path_size::Way;
use crate::protocol::client::response::{Complete, Response};
use crate::protocol::index::SlotIndex;
use crate::protocol::stats::{DropReason, ResendCause};
use crate::protocol::turn::Turn;
use crate::protocol::{Body, CallError, Cause, Event, Reply};
use crate::status::{Code, Status};
use crate::transport::{Route, TxQueue};
use crate::wire::extension::Extension;
use crate::wire::{ANNOUNCEMENT, Header, Kind, PacketLayout, Stamp, decode_status, is_refusal};

/// The error of a call that the server answered with a failure. The extension is ignored.
fn failure_of(message: &[u8], extended: bool) -> CallError {
    let body = match extended {
        true => Extension::split(message).map(|(_, body)| body),
        false => Ok(message),
    };
    match body {
        Ok(body) if is_refusal(body) => REFUSED,
        Ok(body) => CallError::Status(decode_status(body)),
        Err(_) => CallError::Status(Status::new(
            Code::Unknown,
            "the peer sent a failure with a malformed extension",
        )),
    }
}

/// The error of a call that the server has refused because it shuts down.
const REFUSED: CallError = CallError::NotExecuted(Cause::PeerDraining);

/// Whether the first packet of a response announces it (true), or carries its beginning (false).
pub(super) fn is_announcement(
    header: &Header,
    layout: &PacketLayout,
    body: &[u8],
) -> Result<bool, DropReason> {
    let (announced, body_len) = match header.packet.get() {
        0 => (false, layout.len(0)),
        ANNOUNCEMENT if header.size > 0 => (true, 0),
        ANNOUNCEMENT => return Err(DropReason::LyingSize),
        _ => return Err(DropReason::Unsolicited),
    };
    if body.len() == body_len { Ok(announced) } else { Err(DropReason::LyingSize) }
}

impl<R: Route> OpenSession<R> {
    /// Handles the start of a response: its first packet, or its announcement.
    pub(super) fn on_first_response_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let at = self.slots.of(header.request);
        let Some(call) = self.slots[at].call() else { return Err(DropReason::Duplicate) };
        let failure = header.kind == Kind::Failure;
        // A failure is accepted earlier: the server may reject a request before the request is
        // complete.
        if !(call.maybe_executed() || failure && call.was_sent()) {
            return Err(DropReason::Unsolicited);
        }
        if call.response().is_some() {
            self.note_needless(turn, at);
            return Err(DropReason::Duplicate);
        }
        let layout = self.cut_of(call.is_large()).response(header.size);
        let announced = is_announcement(header, &layout, body)?;
        let is_short = header.size <= self.cut_of(false).eager;
        self.response_lengths.note(turn.now, is_short);
        let (retries, accepted) = (call.retry().retries(), call.retry().is_accepted());
        let ambiguous = call.recovery().was_retransmitted() && !mutant!(AmbiguousSample);
        let sent_at = call.retry().active_at();
        let is_single = call.layout().packets() == 1;
        // The calls of a stream share a method, and their responses differ.
        let continues = call.continues();
        let served = header.reply_info().processing_nanos();
        let recovery = call.recovery();
        let was_probed = ambiguous && recovery.is_undecided();
        let was_there = ambiguous && recovery.was_there_before(served, turn.now);
        let told = Told {
            method: call.method(),
            nanos: served,
            runs_on: false,
            // The client sends a probe if no later call was answered, and other copies only if a
            // later call was answered.
            overtaken: accepted
                || was_there && !recovery.is_undecided()
                || !ambiguous && lines.probing(self.peer).is_passed(sent_at),
            probes_unanswered: was_probed && !accepted,
        };
        if was_there && recovery.is_undecided() {
            self.note_needless(turn, at);
        }
        self.first_packet_answered(turn, lines, at, header);
        if self.is_notable(header.reply_info(), lines.has_slow_methods(self.peer)) {
            self.note_handler_time(turn.now, lines, &told);
        }
        if was_probed && is_single {
            self.rtt.keep_backoff(retries);
        }
        if !continues {
            let is_long = self.cut.response(header.size).packets() > 1;
            match layout.packets() > 1 && !announced && !failure {
                true if is_long => self.long_responses.note(told.method, header.size),
                true => {}
                false => self.long_responses.forget(told.method),
            }
        }
        let is_measured = !ambiguous && !accepted && is_single;
        if layout.packets() > 1 || announced {
            if is_measured && !announced && self.slots[at].call().is_some_and(Call::is_pulled_early)
            {
                let trip = turn.now.nanos_since(sent_at);
                let is_large = header.flags.large();
                let is_full = body.len() == self.cut_of(is_large).payload as usize;
                let waits = (served, turn.queue_wait.absence);
                self.measured_call(turn, lines, trip, waits, (is_full, is_large));
            }
            return Ok(self.begin_response(turn, lines, header, layout, announced, body));
        }
        if is_measured {
            let trip = turn.now.nanos_since(sent_at);
            let in_flight = u32::from(self.credits.taken());
            self.measured(turn, lines, trip, (served, turn.queue_wait.absence), in_flight, false);
        }
        let extended = header.flags.extended();
        let result = if failure {
            Err(self.failed(turn, lines, body, extended))
        } else {
            Ok(Reply { body: Body::Packet(body), extended })
        };
        Ok(self.reply(turn, lines, at, header.size > KEPT_SMALL, result))
    }

    /// A response starts that has several packets, or was announced.
    fn begin_response<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        header: &Header,
        layout: PacketLayout,
        announced: bool,
        body: &[u8],
    ) -> Event<'p, R> {
        let at = self.slots.of(header.request);
        if header.size > turn.endpoint.config.max_message {
            return self.give_up(turn, lines, at, Cause::ResponseTooLarge(header.size));
        }
        let assembly = if announced {
            Ok(Assembly::empty(layout))
        } else {
            Assembly::begin(layout, body, &mut turn.endpoint.pool)
        };
        let Ok(assembly) = assembly else {
            return self.give_up(turn, lines, at, Cause::NoMemory);
        };
        let failure = header.kind == Kind::Failure;
        let cost = self.cut_of(header.flags.large()).charges.pull();
        let response = Response::new(assembly, failure, header.flags.extended(), cost);
        let mut flow = lines.flow(&mut self.credits, self.peer);
        if let Some(call) = self.slots[at].call_mut() {
            call.begin_response(response, announced, turn.now, &self.cut.charges, &mut flow);
        }
        if layout.packets() > 1 {
            self.want_larger(turn);
        }
        self.stop_waiting(lines, at);
        lines.note_release(self.peer);
        self.pull_later(lines, at);
        lines.feed_later(self.index(), &self.credits);
        Event::None
    }

    /// Handles a response packet that was asked for.
    pub(super) fn on_response_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        header: &Header,
        body: &[u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let at = self.slots.of(header.request);
        let slot = &mut self.slots[at];
        let response = slot.call_mut().and_then(|call| call.response_mut());
        let Some(response) = response else { return Err(DropReason::Unsolicited) };
        let (packet, next) = (header.packet.get(), response.next());
        let layout = *response.layout();
        let (told, echo) = match packet {
            0 => (header.size, Stamp::NONE),
            _ => (layout.size(), Stamp::from_u32(header.size)),
        };
        if told != layout.size()
            || header.flags.extended() != response.is_extended()
            || packet >= layout.packets()
            || body.len() != layout.len(packet)
        {
            return Err(DropReason::LyingSize);
        }
        if packet < next {
            if packet == 0 {
                self.note_needless(turn, at);
            }
            return Err(DropReason::Duplicate);
        }
        if packet >= response.asked() {
            return Err(DropReason::Unsolicited);
        }
        // Only the first packet of a pull gives a round trip. The server sends the other packets
        // behind it, so their times include a queue of the client's own making.
        if let Some(trip) = echo.nanos_until(turn.now)
            && response.is_first_with(echo)
        {
            let processing = header.reply_info().processing_nanos();
            self.credit_limit.on_rtt(trip);
            self.echo_answered(turn, lines, trip);
            let is_large = header.flags.large();
            let is_full = body.len() == self.cut_of(is_large).payload as usize;
            if is_full && is_large {
                self.path_size.on_carried(turn.now, Way::ToClient);
            }
            let waited = turn.queue_wait.absence.saturating_add(processing);
            self.measured_call(turn, lines, trip, (0, waited), (is_full, is_large));
        }
        if echo == Stamp::NONE && packet > 0 && header.flags.large() {
            let is_full = body.len() == self.cut_of(true).payload as usize;
            if is_full {
                self.path_size.on_carried(turn.now, Way::ToClient);
            }
        }
        if packet > next && !mutant!(ResponseGapTaken) {
            self.on_response_gap(turn, lines, at, echo);
            return Err(DropReason::OutOfOrder);
        }
        Ok(self.take_response_packet(turn, lines, at, echo, body))
    }

    /// The next packet of a response was lost or overtaken. Rolls back to it, unless an earlier
    /// roll-back covers this loss.
    fn on_response_gap<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        echo: Stamp,
    ) {
        let Some(call) = self.slots[at].call_mut() else { return };
        let Some((next, lost)) =
            call.response().map(|response| (response.next(), response.on_their_way()))
        else {
            return;
        };
        let is_news = match echo {
            Stamp::NONE => call.recovery().is_news_of_early(),
            _ => call.recovery().is_news(next, echo, turn.now),
        };
        if !is_news {
            return;
        }
        let stats = &mut turn.endpoint.stats;
        stats.count_resent(&mut self.retransmissions, ResendCause::Gap, lost);
        let mut flow = lines.flow(&mut self.credits, self.peer);
        call.roll_back(turn.now, ResendCause::Gap, &self.cut.charges, &mut flow);
        self.note_loss(turn, lines);
        lines.note_release(self.peer);
        self.pull(turn, lines, at, None);
        lines.feed_later(self.index(), &self.credits);
    }

    /// Takes in the next packet of a response.
    fn take_response_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        echo: Stamp,
        body: &[u8],
    ) -> Event<'p, R> {
        self.delivered(turn, lines, 1);
        let Some(call) = self.slots[at].call_mut() else { return Event::None };
        let Some(response) = call.response_mut() else { return Event::None };
        let cost = response.cost();
        // Asked for before the response began: it does not answer what a timeout has sent since.
        let is_early =
            echo == Stamp::NONE && response.next() > 0 && !mutant!(EarlyPacketAnswersProbe);
        if response.take(body, &mut turn.endpoint.pool).is_err() {
            return self.give_up(turn, lines, at, Cause::NoMemory);
        }
        let mut flow = lines.flow(&mut self.credits, self.peer);
        flow.release(cost);
        if call.retry().retries() > 0 {
            let stats = &mut turn.endpoint.stats;
            if call.recovery().answers_probe(echo) && !is_early {
                call.recovery_mut().decide();
                // After a timeout, the other packets asked for are lost, or will be dropped on
                // arrival.
                let lost = call.response().map_or(0, Response::on_their_way);
                stats.count_resent(&mut self.retransmissions, ResendCause::Timeout, lost);
                call.release_outstanding(&self.cut.charges, &mut flow);
            } else {
                let probes = call.recovery_mut().decide();
                stats.count_needless(&mut self.retransmissions, probes);
            }
        }
        call.retry_mut().progress(turn.now);
        if let Some(complete) = call.take_response() {
            return self.complete(turn, lines, at, complete);
        }
        lines.note_release(self.peer);
        self.pull_later(lines, at);
        lines.feed_later(self.index(), &self.credits);
        Event::None
    }

    /// A response of several packets is complete.
    fn complete<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        complete: Complete,
    ) -> Event<'p, R> {
        let Complete { message, failure, extended } = complete;
        let is_large = message.len() > KEPT_SMALL as usize;
        let result = if failure {
            let error = self.failed(turn, lines, message.as_slice(), extended);
            turn.endpoint.pool.recycle(message);
            Err(error)
        } else {
            Ok(Reply { body: Body::Message(message), extended })
        };
        self.reply(turn, lines, at, is_large, result)
    }

    /// The error of a call that the server answered with this failure. A refusal tells the client
    /// that the server shuts down.
    fn failed<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        message: &[u8],
        extended: bool,
    ) -> CallError {
        let error = failure_of(message, extended);
        if error == REFUSED {
            self.on_server_draining(turn, lines);
        }
        error
    }

    /// Gives up a call whose response cannot be received.
    fn give_up<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        cause: Cause,
    ) -> Event<'p, R> {
        turn.endpoint.stats.given_up += 1;
        self.reply(turn, lines, at, true, Err(CallError::ResponseLost(cause)))
    }

    /// Ends the call in a slot with this result. If the server keeps the response (`is_kept`), the
    /// client owes the server a `Done`.
    fn reply<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        is_kept: bool,
        result: Result<Reply<'p>, CallError>,
    ) -> Event<'p, R> {
        if is_kept {
            self.owe_done(turn, at);
        }
        match self.finish(turn, lines, at) {
            Some(Finished { token, request }) => Event::Reply { token, result, request },
            None => Event::None,
        }
    }

    /// The probes of the slot's call were needless: the probed packet was not lost.
    pub(super) fn note_needless<X>(&mut self, turn: &mut Turn<'_, X>, at: SlotIndex) {
        let probes = self.slots[at].call_mut().map_or(0, |call| call.recovery_mut().decide());
        turn.endpoint.stats.count_needless(&mut self.retransmissions, probes);
    }

    /// Asks for more of the slot's response at the end of the burst.
    fn pull_later(&mut self, lines: &mut Lines<R>, at: SlotIndex) {
        let waiter = self.waiter(at);
        let response = self.slots[at].call_mut().and_then(|call| call.response_mut());
        if response.is_some_and(Response::pull_later) {
            lines.pull_later(waiter);
        }
    }

    /// The server keeps a large response until the client has confirmed it: by the slot's next
    /// request or, one timeout from now, by a `Done`.
    pub(super) fn owe_done<X>(&mut self, turn: &mut Turn<'_, X>, at: SlotIndex) {
        self.kept.owe(at);
        let deadline = turn.now.plus_nanos(self.rtt.rto(0));
        self.arm(turn, deadline);
    }

    /// Empties the slot of a call that has its outcome, starts the next queued call, and returns
    /// the ended call's token and request. The transmit queue does not refer to the request any
    /// more (thesis section 6.3.2.2).
    #[inline]
    fn finish<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
    ) -> Option<Finished> {
        self.stop_waiting(lines, at);
        let slot = &mut self.slots[at];
        let call = slot.take_call()?;
        if call.recovery().is_undecided() {
            slot.undecided = slot.number;
        }
        turn.tx.reclaim();
        if call.is_queued() && !mutant!(FlushForgotten) {
            turn.tx.flush();
        }
        turn.endpoint.stats.responses += 1;
        let flow = &mut lines.flow(&mut self.credits, self.peer);
        let finished = call.finish_outstanding(&self.cut.charges, flow, &mut turn.endpoint.pool);
        self.vacate(turn, lines, at);
        Some(finished)
    }
}
