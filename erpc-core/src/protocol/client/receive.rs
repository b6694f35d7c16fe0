//! A reply's way in.

use super::*;
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::protocol::assembly::Assembly;
use crate::protocol::stats::DropReason;
use crate::protocol::{Body, Event, Reply};
use crate::status::{Code, Status};
use crate::transport::TxQueue;
use crate::wire::extension::Extension;
use crate::wire::{ANNOUNCEMENT, Header, Kind, PacketLayout, Stamp, decode_status};

/// For responses larger than this the client tells the server that it may drop them; smaller ones are
/// not worth a packet and stay in their slot until the next request. In bytes.
pub(in crate::protocol) const KEPT_SMALL: u32 = 512;

/// The status in a failure: whatever its extension says is nobody's business here.
fn status_of(message: &[u8], extended: bool) -> Status {
    if !extended {
        return decode_status(message);
    }
    match Extension::split(message) {
        Ok((_, body)) => decode_status(body),
        Err(_) => Status::new(Code::Unknown, "the peer sent a failure with a malformed extension"),
    }
}

/// Whether the packet that a response begins with, as its header says, announces it; else it is the first.
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

impl<R: Route> ClientSide<R> {
    /// Takes in a packet of kind `Response`, `Failure`, `CreditReturn` or `Accepted`.
    #[inline]
    pub(in crate::protocol) fn receive<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let index = SessionIndex::of(header.connection);
        let session = self.sessions.get_mut(index).ok_or(DropReason::UnknownConnection)?;
        if session.generation != header.connection.generation() && !mutant!(StaleGenerationAtClient)
        {
            return Err(DropReason::UnknownConnection);
        }
        if session.route != *route && !mutant!(WrongRouteAtClient) {
            return Err(DropReason::WrongRoute);
        }
        if !session.is_open() {
            return Err(DropReason::Unsolicited);
        }
        if session.flags.trailer() != header.flags.trailer() {
            return Err(DropReason::Trailer);
        }
        let at = SlotIndex::of(header.request);
        let slot = &mut session.slots[at];
        if slot.number != header.request && !mutant!(OldResponseTaken) {
            let ahead = header.request.ahead_of(slot.number) > 0;
            return Err(if ahead { DropReason::Unsolicited } else { DropReason::OldRequest });
        }
        if slot.call.is_none() && slot.quarantine.is_none() {
            return Err(DropReason::Duplicate);
        }
        session.last_heard = turn.now;
        let info = header.reply_info();
        self.peers[session.peer].heed(info);
        if info.is_marked() || turn.marked {
            session.heed_mark(turn.now, turn.endpoint.config.bypasses);
        }
        let Some(call) = &mut session.slots[at].call else {
            return self.heed_in_quarantine(turn, header, body);
        };
        match header.kind {
            // The first packet comes unasked, unless the response was announced.
            Kind::Response | Kind::Failure
                if call.response.is_none() || header.packet.get() == ANNOUNCEMENT =>
            {
                self.first_response_packet(turn, header, body)
            }
            Kind::Response | Kind::Failure => self.response_packet(turn, header, body),
            Kind::CreditReturn => {
                let expected = header.packet.get();
                if expected >= call.layout.packets() || expected > call.ever_sent {
                    return Err(DropReason::Unsolicited);
                }
                if expected < call.acked || call.response.is_some() {
                    return Err(DropReason::Duplicate);
                }
                let echo = Stamp::from_u32(header.size);
                // A copy of an earlier one may have been anywhere meanwhile.
                let gap = header.size & 1 != 0;
                let is_news =
                    expected > call.acked || gap && call.is_news(expected, echo, turn.now);
                if let Some(trip) = echo.nanos_until(turn.now).filter(|_| is_news) {
                    let waited = turn.queue_wait.absence.saturating_add(info.processing_nanos());
                    session.measured(turn.now, trip, waited, turn.endpoint.config.bypasses);
                }
                self.credit_return(turn, header);
                Ok(Event::None)
            }
            Kind::Accepted => {
                if !call.maybe_executed() {
                    return Err(DropReason::Unsolicited);
                }
                if call.response.is_some() {
                    return Err(DropReason::Duplicate);
                }
                call.patience.progress(turn.now);
                self.accepted(index, at);
                Ok(Event::None)
            }
            Kind::Request | Kind::RequestForResponse | Kind::Done | Kind::Control => {
                Err(DropReason::WrongRole)
            }
        }
    }

    /// The server has every request packet before the one expected; with a gap, it dropped a later one.
    fn credit_return<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, header: &Header) {
        let (expected, gap) = (header.packet.get(), header.size & 1 != 0);
        let echo = Stamp::from_u32(header.size);
        let index = SessionIndex::of(header.connection);
        let at = SlotIndex::of(header.request);
        let session = &mut self.sessions[index];
        let peer = &mut self.peers[session.peer];
        let Some(call) = &mut session.slots[at].call else { return };
        let mut flow =
            Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room };
        let stalled =
            expected > call.acked && call.patience.retries > 0 && call.answers_probe(echo);
        if expected > call.acked {
            for packet in call.acked..expected.min(call.sent) {
                if mutant!(CreditLeak) && packet + 1 == expected {
                    continue;
                }
                let (units, reply) = Self::charge(&session.charges, call, packet);
                flow.release(units, reply);
            }
            // After a roll-back the server may be ahead of what was sent again.
            call.acked = expected;
            call.sent = call.sent.max(expected);
            call.patience.progress(turn.now);
        }
        // After a timeout, whatever was out before the packet that has now got through was lost or came
        // and was answered.
        let behind = stalled || gap && call.is_news(call.acked, echo, turn.now);
        let roll_back = behind && call.sent > call.acked;
        if roll_back {
            if mutant!(RollbackKeepsCredits) {
                call.sent = call.acked;
            }
            Self::release_outstanding(&session.charges, call, &mut flow);
            call.roll_back(call.acked, turn.now);
            session.heed_loss(turn.now, turn.endpoint.config.bypasses);
            turn.tx.flush();
        }
        Self::note_release(peer, session.peer, &mut self.ready_peers);
        self.transmit(turn, index, at, None);
        self.feed_later(index);
    }

    /// The server is executing: the packets are answered, the response will be announced.
    fn accepted(&mut self, index: SessionIndex, at: SlotIndex) {
        let session = &mut self.sessions[index];
        let peer = &mut self.peers[session.peer];
        let Some(call) = &mut session.slots[at].call else { return };
        let mut flow =
            Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room };
        if mutant!(AcceptedKeepsCredits) {
            call.sent = call.acked;
        }
        Self::release_outstanding(&session.charges, call, &mut flow);
        call.acked = call.layout.packets();
        call.sent = call.acked;
        call.patience.accepted = true;
        call.waiting = None;
        Self::note_release(peer, session.peer, &mut self.ready_peers);
        self.feed_later(index);
    }

    fn first_response_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let index = SessionIndex::of(header.connection);
        let session = &mut self.sessions[index];
        let at = SlotIndex::of(header.request);
        let Some(call) = &mut session.slots[at].call else { return Err(DropReason::Duplicate) };
        let failure = header.kind == Kind::Failure;
        // A failure may come before the whole request is there: the server turned it down.
        if !(call.maybe_executed() || failure && call.ever_sent > 0) {
            return Err(DropReason::Unsolicited);
        }
        if call.response.is_some() {
            return Err(DropReason::Duplicate);
        }
        let layout = PacketLayout::new(header.size, session.eager, session.payload);
        let announced = is_announcement(header, &layout, body)?;
        let served = header.reply_info().processing_nanos();
        session.rtt.serve(served, call.patience.retries > 0 && !call.patience.accepted);
        let ambiguous = call.retransmitted && !mutant!(AmbiguousSample);
        if ambiguous && call.layout.packets() == 1 {
            session.rtt.keep_backoff(call.patience.retries);
        }
        if layout.packets() == 1 && !announced {
            if !(ambiguous || call.patience.accepted) && call.layout.packets() == 1 {
                let trip = turn.now.nanos_since(call.patience.active_at);
                let nanos = trip.saturating_sub(served);
                session.measured(
                    turn.now,
                    nanos,
                    turn.queue_wait.absence,
                    turn.endpoint.config.bypasses,
                );
            }
            if header.size > KEPT_SMALL {
                self.owe_done(turn, index, at);
            }
            let (token, request) = self.finish(turn, index, at);
            let result = if failure {
                Err(CallError::Status(status_of(body, header.flags.extended())))
            } else {
                Ok(Reply { body: Body::Packet(body), extended: header.flags.extended() })
            };
            return Ok(Event::Reply { token, result, request });
        }
        let memory_error = if header.size > turn.endpoint.config.max_message {
            Some(Cause::ResponseTooLarge(header.size))
        } else {
            let assembly = if announced {
                Ok(Assembly::empty(layout))
            } else {
                Assembly::begin(layout, body, &mut turn.endpoint.pool)
            };
            match assembly {
                Ok(assembly) => {
                    call.response = Some(Box::new(Response {
                        asked: assembly.next(),
                        assembly,
                        failure,
                        extended: header.flags.extended(),
                        pull_pending: false,
                        echo: Stamp::NONE,
                    }));
                    None
                }
                Err(_) => Some(Cause::NoMemory),
            }
        };
        if let Some(cause) = memory_error {
            turn.endpoint.stats.given_up += 1;
            self.owe_done(turn, index, at);
            let (token, request) = self.finish(turn, index, at);
            return Ok(Event::Reply {
                token,
                result: Err(CallError::ResponseLost(cause)),
                request,
            });
        }
        // The request is done with: its packets' room is free for response packets.
        let peer = &mut self.peers[session.peer];
        let mut flow =
            Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room };
        for packet in call.acked..call.sent {
            let (units, reply) = Self::charge(&session.charges, call, packet);
            flow.release(units, reply);
        }
        call.acked = call.layout.packets();
        call.sent = call.acked;
        call.ever_sent = call.acked;
        call.patience = Patience::new(turn.now);
        call.rolled_back = None;
        call.waiting = None;
        Self::note_release(peer, session.peer, &mut self.ready_peers);
        self.pull_later(index, at);
        self.feed_later(index);
        Ok(Event::None)
    }

    /// A packet of the response that was asked for.
    fn response_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        body: &[u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let index = SessionIndex::of(header.connection);
        let session = &mut self.sessions[index];
        let at = SlotIndex::of(header.request);
        let Some(call) = &mut session.slots[at].call else { return Err(DropReason::Duplicate) };
        let Some(response) = &mut call.response else { return Err(DropReason::Unsolicited) };
        let (packet, next) = (header.packet.get(), response.assembly.next());
        let layout = *response.assembly.layout();
        let (told, echo) = match packet {
            0 => (header.size, Stamp::NONE),
            _ => (layout.size(), Stamp::from_u32(header.size)),
        };
        if told != layout.size()
            || header.flags.extended() != response.extended
            || packet >= layout.packets()
            || body.len() != layout.len(packet)
        {
            return Err(DropReason::LyingSize);
        }
        if packet < next {
            return Err(DropReason::Duplicate);
        }
        if packet >= response.asked {
            return Err(DropReason::Unsolicited);
        }
        if echo != response.echo
            && let Some(trip) = echo.nanos_until(turn.now)
        {
            // The first of those that were asked for at once: the others have waited for it.
            response.echo = echo;
            let waited =
                turn.queue_wait.absence.saturating_add(header.reply_info().processing_nanos());
            session.measured(turn.now, trip, waited, turn.endpoint.config.bypasses);
        }
        let Some(call) = &mut session.slots[at].call else { return Err(DropReason::Duplicate) };
        let Some(response) = &mut call.response else { return Err(DropReason::Unsolicited) };
        let peer = &mut self.peers[session.peer];
        let mut flow =
            Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room };
        if packet > next && !mutant!(ResponseGapTaken) {
            // One was lost, or overtaken. Go back to it, once.
            let asked = response.asked;
            if call.is_news(next, echo, turn.now) {
                call.roll_back(next, turn.now);
                turn.endpoint.stats.retransmissions += u64::from(asked - next);
                if mutant!(PullRollbackKeepsCredits)
                    && let Some(response) = &mut call.response
                {
                    response.asked = next;
                }
                Self::release_outstanding(&session.charges, call, &mut flow);
                session.heed_loss(turn.now, turn.endpoint.config.bypasses);
                Self::note_release(peer, session.peer, &mut self.ready_peers);
                self.pull(turn, index, at, None);
                self.feed_later(index);
            }
            return Err(DropReason::OutOfOrder);
        }
        if response.assembly.take(body, &mut turn.endpoint.pool).is_err() {
            turn.endpoint.stats.given_up += 1;
            self.owe_done(turn, index, at);
            let (token, request) = self.finish(turn, index, at);
            return Ok(Event::Reply {
                token,
                result: Err(CallError::ResponseLost(Cause::NoMemory)),
                request,
            });
        }
        flow.release(session.charges.bare, session.charges.full_reply);
        if std::mem::take(&mut call.patience.retries) > 0 && call.answers_probe(echo) {
            // After a timeout: what else was asked for was lost, or comes and is dropped.
            Self::release_outstanding(&session.charges, call, &mut flow);
        }
        call.patience.active_at = turn.now;
        let Some(response) = &mut call.response else { return Err(DropReason::Unsolicited) };
        if !response.assembly.is_complete() {
            Self::note_release(peer, session.peer, &mut self.ready_peers);
            self.pull_later(index, at);
            self.feed_later(index);
            return Ok(Event::None);
        }
        let (failure, extended) = (response.failure, response.extended);
        let message = call.response.take().map(|response| response.assembly.into_message());
        if layout.size() > KEPT_SMALL {
            self.owe_done(turn, index, at);
        }
        let (token, request) = self.finish(turn, index, at);
        let Some(message) = message else { return Ok(Event::None) };
        let result = if failure {
            let status = status_of(message.as_slice(), extended);
            turn.endpoint.pool.recycle(message);
            Err(CallError::Status(status))
        } else {
            Ok(Reply { body: Body::Message(message), extended })
        };
        Ok(Event::Reply { token, result, request })
    }

    /// Asks on for the slot's response when the burst is over.
    fn pull_later(&mut self, index: SessionIndex, at: SlotIndex) {
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[at];
        let response = slot.call.as_mut().and_then(|call| call.response.as_deref_mut());
        if let Some(response) = response
            && !response.pull_pending
        {
            response.pull_pending = true;
            self.pulls.push(Waiter { index, generation: session.generation, number: slot.number });
        }
    }

    /// The server keeps a large response until it is told, by the slot's next request or, one timeout
    /// from now, by a `Done`.
    pub(super) fn owe_done<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
    ) {
        let session = &mut self.sessions[index];
        session.owes_done.insert(at);
        let deadline = turn.now.plus_nanos(session.rtt.rto(0));
        Self::arm(turn.endpoint, index, session, deadline);
    }

    /// Empties the slot of a call that has its outcome, lets the next one in, and returns the call's
    /// tag and its request, which no queue refers to any more (thesis section 6.3.2.2).
    #[inline]
    fn finish<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
    ) -> (u64, MsgBuf) {
        let session = &mut self.sessions[index];
        let peer = &mut self.peers[session.peer];
        let mut call =
            session.slots[at].call.take().expect("the caller has found a call in the slot");
        let mut flow =
            Flow { credits: &mut session.credits, window: &mut peer.window, room: &mut self.room };
        Self::release_outstanding(&session.charges, &mut call, &mut flow);
        if let Some(response) = call.response.take() {
            response.assembly.discard(&mut turn.endpoint.pool);
        }
        turn.tx.reclaim();
        if (call.retransmitted || !call.request.is_unique()) && !mutant!(FlushForgotten) {
            turn.tx.flush();
        }
        turn.endpoint.stats.responses += 1;
        self.vacate(turn, index, at);
        (call.token, call.request)
    }
}
