//! Receives requests, cancels, confirmations and requests for response.

use super::{ServerSession, Step};
use crate::buf::NoMemory;
use crate::mutants::mutant;
use crate::protocol::assembly::Assembly;
use crate::protocol::config::SlotCount;
use crate::protocol::server::credit_returns::{CreditReturns, LastPacket, OwedCredit};
use crate::protocol::server::kept_response::{MOST_AT_ONCE, Pull, PullEcho};
use crate::protocol::server::memory::SessionMemory;
use crate::protocol::server::receiving::{CreditReturn, Received, Receiving};
use crate::protocol::server::slot::{Position, SlotState};
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::protocol::{Body, Event, Request, RequestHandle, ResponseBuffer};
use crate::status::{Code, Status};
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::extension::deadline_of;
use crate::wire::{CANCEL, Header, Kind, MAX_DONE, PacketLayout, ReplyInfo, RequestNumber, Stamp};

/// The deadline in the first packet of a request; [`Instant::NEVER`] if it has none.
fn told_deadline(header: &Header, body: &[u8], now: Instant) -> Instant {
    if header.flags.extended() { deadline_of(body, now) } else { Instant::NEVER }
}

impl<R: Route> ServerSession<R> {
    /// Handles a packet of kind `Request`, `RequestForResponse` or `Done` from the session's
    /// client.
    #[inline]
    pub(in crate::protocol::server) fn on_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        returns: &mut CreditReturns,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        if self.flags.trailer() != header.flags.trailer() {
            return Err(DropReason::Trailer);
        }
        self.marked |= turn.marked;
        match header.kind {
            Kind::Request => self.on_request(turn, window, returns, header, body),
            Kind::RequestForResponse => {
                if !body.is_empty() {
                    return Err(DropReason::LyingSize);
                }
                self.liveness.heard(turn.now);
                self.on_pull(turn, window, header).map(|()| Event::None)
            }
            Kind::Done => {
                self.liveness.heard(turn.now);
                match header.packet.get() {
                    0 => self.on_done(turn, body).map(|()| Event::None),
                    CANCEL if body.is_empty() => self.on_cancel(turn, window, header),
                    CANCEL => Err(DropReason::LyingSize),
                    _ => Err(DropReason::Control),
                }
            }
            Kind::Response
            | Kind::Failure
            | Kind::CreditReturn
            | Kind::Accepted
            | Kind::Control => Err(DropReason::WrongRole),
        }
    }

    #[inline]
    fn on_request<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        returns: &mut CreditReturns,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let is_large = header.flags.large();
        let layout = self.agreed.request(header.size, is_large);
        let (packet, packets) = (header.packet.get(), layout.packets());
        if header.size > turn.endpoint.config.max_message
            || packet >= packets
            || layout.len(packet) != body.len() && !(mutant!(SizeNotChecked) && packets == 1)
        {
            return Err(DropReason::LyingSize);
        }
        let (step, at) = (self.slots.step(), self.slots.of(header.request));
        let slot = &mut self.slots[at];
        let mut is_new = slot.position(header.request, step) == Position::Next;
        if !is_new && slot.is_large() != is_large && slot.number() == header.request {
            if is_large {
                // A late packet: the client has cut the request into small packets since.
                return Err(DropReason::Duplicate);
            }
            is_new = slot.is_receiving();
            if packet == 0 || !is_new {
                slot.cut_small(&self.agreed, &mut self.memory, &mut turn.endpoint.pool);
            }
        }
        match slot.position(header.request, step) {
            Position::Current if is_new => {}
            Position::Current if !(packets == 1 && slot.mistakes_repetition()) => {
                self.liveness.heard(turn.now);
                return self.on_repeated_packet(turn, window, returns, header, (&layout, body));
            }
            Position::Earlier => return Err(DropReason::OldRequest),
            Position::Leap => return Err(DropReason::RequestLeap),
            Position::Next if slot.is_busy() => return Err(DropReason::SlotBusy),
            Position::Current | Position::Next => {}
        }
        self.liveness.heard(turn.now);
        let Step { slot, memory, mut head } = self.step(header.request, window);
        if packet != 0 {
            // The first packet was lost or overtaken: the client must start again. The server keeps
            // no state for that.
            let credit = CreditReturn { next: 0, gap: true, echo: Stamp::from_u32(header.aux) };
            head.flags = head.flags.with_large(is_large);
            let reply = head.credit_return(credit, turn.queue_wait.longest());
            turn.tx.push_bytes(head.route, reply.as_bytes());
            return Err(DropReason::OutOfOrder);
        }
        slot.claim(header.request, is_large, memory, &mut turn.endpoint.pool);
        if self.refuses(header, body) {
            self.refuse_new(turn, window, header.request);
            return Ok(Event::None);
        }
        let slots = self.slots.count();
        let Step { slot, memory, .. } = self.step(header.request, window);
        let deadline = told_deadline(header, body, turn.now);
        if packets == 1 {
            let buffer = slot.execute(turn.arrived_at(), memory);
            let handle = self.hand_out(turn, header.request);
            return Ok(Event::Request(Request {
                handle,
                method: header.aux,
                body: Body::Packet(body),
                peer: self.route,
                extended: header.flags.extended(),
                deadline,
                buffer: buffer.map(ResponseBuffer),
            }));
        }
        let assembly = check_budget(turn, (memory, slots), body.len(), &layout)
            .and_then(|()| Assembly::begin(layout, body, &mut turn.endpoint.pool));
        match assembly {
            Ok(assembly) => {
                slot.receive(Receiving::new(header, assembly, deadline), memory);
                self.owe_credit(returns, header, false);
            }
            Err(error) => self.turn_down(turn, window, header.request, &error),
        }
        Ok(Event::None)
    }

    /// Handles a packet of the slot's current request, whose packets are cut by `layout`.
    fn on_repeated_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        returns: &mut CreditReturns,
        header: &Header,
        (layout, body): (&PacketLayout, &[u8]),
    ) -> Result<Event<'p, R>, DropReason> {
        let slots = self.slots.count();
        let Step { slot, memory, mut head } = self.step(header.request, window);
        match slot.state() {
            SlotState::Idle { .. } => return Err(DropReason::Duplicate),
            SlotState::Executing { since, .. } | SlotState::Accepted { since, .. } => {
                let nanos = turn.now.nanos_since(*since);
                if slot.accept(turn.now, turn.endpoint.repeat_pause()) {
                    let reply = head.accepted(header.packet.get(), nanos);
                    turn.tx.push_bytes(head.route, reply.as_bytes());
                }
                return Err(DropReason::Duplicate);
            }
            SlotState::Responding(response) => {
                response.send_again(&mut head, turn);
                return Err(DropReason::Duplicate);
            }
            SlotState::Receiving(receiving) => {
                if !receiving.agrees_with(header, layout) {
                    return Err(DropReason::LyingSize);
                }
                if let Err(reason) = receiving.check_order(header.packet.get()) {
                    self.owe_credit(returns, header, reason == DropReason::OutOfOrder);
                    return Err(reason);
                }
                let taken = check_budget(turn, (memory, slots), 0, receiving.layout())
                    .and_then(|()| receiving.take(body, memory, &mut turn.endpoint.pool));
                if let Err(error) = taken {
                    self.turn_down(turn, window, header.request, &error);
                    return Ok(Event::None);
                }
            }
        }
        let Some(received) = slot.complete(turn.arrived_at(), memory) else {
            self.owe_credit(returns, header, false);
            return Ok(Event::None);
        };
        let Received { message, method, deadline, buffer, last_untold } = received;
        if let Some(packet) = last_untold {
            let last = Some(LastPacket { packet, echo: Stamp::from_u32(header.aux) });
            returns.owe(OwedCredit { session: self.id, request: header.request, last });
        }
        Ok(Event::Request(Request {
            handle: self.hand_out(turn, header.request),
            method,
            body: Body::Message(message),
            peer: self.route,
            extended: header.flags.extended(),
            deadline,
            buffer: buffer.map(ResponseBuffer),
        }))
    }

    /// The client has cancelled a request, which may still be in flight, or answered already.
    /// Claims its number, so that no later packet can start the request, then answers.
    fn on_cancel<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        header: &Header,
    ) -> Result<Event<'p, R>, DropReason> {
        let handle = self.id.request(header.request);
        let at = self.slots.of(header.request);
        let slot = &mut self.slots[at];
        let is_current = slot.number() == header.request && !slot.is_receiving();
        if is_current && slot.is_large() && !header.flags.large() {
            slot.cut_small(&self.agreed, &mut self.memory, &mut turn.endpoint.pool);
        }
        let step = self.slots.step();
        let Step { slot, memory, mut head } = self.step(header.request, window);
        match slot.position(header.request, step) {
            Position::Earlier => return Err(DropReason::OldRequest),
            Position::Leap => return Err(DropReason::RequestLeap),
            Position::Next if slot.is_busy() => return Err(DropReason::SlotBusy),
            // A packet of the request that arrives later finds the number claimed.
            Position::Next if !mutant!(CancelTakesNoNumber) => {
                let is_large = header.flags.large();
                slot.claim(header.request, is_large, memory, &mut turn.endpoint.pool);
            }
            Position::Next => {}
            Position::Current => match slot.state() {
                SlotState::Idle { .. } => return Err(DropReason::Duplicate),
                SlotState::Receiving(_) => {}
                SlotState::Executing { since, .. } | SlotState::Accepted { since, .. } => {
                    let nanos = turn.now.nanos_since(*since);
                    let is_told = slot.accept(turn.now, turn.endpoint.repeat_pause());
                    let is_first = slot.cancel();
                    if is_told || is_first {
                        let reply = head.accepted(header.packet.get(), nanos);
                        turn.tx.push_bytes(head.route, reply.as_bytes());
                    }
                    if is_first || mutant!(CancelledTwice) {
                        return Ok(Event::Cancelled(handle));
                    }
                    return Err(DropReason::Duplicate);
                }
                SlotState::Responding(response) => {
                    response.send_again(&mut head, turn);
                    return Err(DropReason::Duplicate);
                }
            },
        }
        let status = Status::new(Code::Cancelled, "the client has cancelled the call");
        self.fail(turn, window, header.request, &status);
        Ok(Event::None)
    }

    /// The client confirms the responses that it has received: their slots become idle.
    fn on_done<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let (numbers, rest) = body.as_chunks::<4>();
        if !rest.is_empty() || numbers.is_empty() || numbers.len() > MAX_DONE {
            return Err(DropReason::LyingSize);
        }
        for number in numbers {
            let number = RequestNumber::from_u32(u32::from_le_bytes(*number));
            let at = self.slots.of(number);
            let slot = &mut self.slots[at];
            let is_current = slot.number() == number || mutant!(DoneOfAnyRequest);
            if is_current && matches!(slot.state(), SlotState::Responding(_)) {
                slot.clear(&mut self.memory, &mut turn.endpoint.pool);
            }
        }
        Ok(())
    }

    /// Handles a request for response packets. It may ask for the first packet only if the response
    /// was announced. It may come before the response, and is answered with it then.
    fn on_pull<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        header: &Header,
    ) -> Result<(), DropReason> {
        let (credits, step) = (self.agreed.credits, self.slots.step());
        let Step { slot, mut head, .. } = self.step(header.request, window);
        match slot.position(header.request, step) {
            Position::Current => {}
            Position::Earlier => return Err(DropReason::OldRequest),
            Position::Next | Position::Leap => return Err(DropReason::RequestLeap),
        }
        if slot.is_large() != header.flags.large() {
            // A late request: the response has been cut into small packets since.
            return Err(DropReason::Duplicate);
        }
        let response = match slot.state() {
            SlotState::Responding(response) => response,
            // The client expects a long response, and does not wait for its first packet.
            SlotState::Executing { early, .. } if header.packet.get() == 1 => {
                if header.size == 0 || header.size > u32::from(credits.min(MOST_AT_ONCE)) {
                    return Err(DropReason::Overrun);
                }
                *early = if mutant!(EarlyPullForgotten) { 0 } else { header.size as u16 };
                return Ok(());
            }
            _ => return Err(DropReason::Unsolicited),
        };
        if response.has_sent(header.packet.get()) && !turn.reclaim(response.message()) {
            return Err(DropReason::Duplicate);
        }
        let pause = turn.endpoint.repeat_pause();
        let Pull { mut packets, again } =
            response.pull(header.packet.get(), header.size, credits, turn.now, pause)?;
        if again {
            turn.endpoint.stats.repeated_responses += u64::from(packets.end - packets.start);
        }
        packets.end -= u32::from(mutant!(PullOneTooFew));
        let waited = turn.queue_wait.longest();
        let echo = PullEcho { stamp: Stamp::from_u32(header.aux), waited };
        response.send(&mut head, packets, echo, turn.tx);
        Ok(())
    }

    /// Counts a request that is handed to its handler now. Returns the request's handle.
    #[inline]
    fn hand_out<X>(&mut self, turn: &mut Turn<'_, X>, request: RequestNumber) -> RequestHandle {
        turn.endpoint.stats.requests += 1;
        self.requests += 1;
        self.id.request(request)
    }

    /// Answers an incomplete request for whose remaining packets there is no memory.
    #[cold]
    fn turn_down<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        request: RequestNumber,
        error: &NoMemory,
    ) {
        turn.endpoint.stats.turned_down += 1;
        let status = Status::new(Code::ResourceExhausted, error.to_string());
        self.fail(turn, window, request, &status);
    }

    /// Schedules a credit return for the end of the burst: one per request, for all of its packets.
    fn owe_credit(&mut self, returns: &mut CreditReturns, header: &Header, gap: bool) {
        let at = self.slots.of(header.request);
        if self.slots[at].owe_credit(header, gap) {
            returns.owe(OwedCredit { session: self.id, request: header.request, last: None });
        }
    }

    /// Sends a credit return, unless the request was answered in the meantime: then the response,
    /// or an `Accepted`, has returned the credits.
    pub(in crate::protocol::server) fn return_credit<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        window: ReplyInfo,
        owed: &OwedCredit,
    ) {
        let Step { slot, mut head, .. } = self.step(owed.request, window);
        if slot.number() != owed.request {
            return;
        }
        let credit = match (slot.state(), &owed.last) {
            (SlotState::Receiving(receiving), _) => receiving.return_credit(),
            // The request is complete, but its handler has not answered. Other requests may need
            // the credits now. The credit of the last packet comes back with the response.
            (SlotState::Executing { .. }, Some(last)) => {
                CreditReturn { next: last.packet, gap: false, echo: last.echo }
            }
            _ => return,
        };
        let reply = head.credit_return(credit, turn.queue_wait.longest());
        turn.tx.push_bytes(head.route, reply.as_bytes());
    }
}

/// Checks that the session's memory limit leaves room for `more` bytes of a request of this layout.
#[inline(always)]
fn check_budget<X>(
    turn: &Turn<'_, X>,
    (memory, slots): (&SessionMemory, SlotCount),
    more: usize,
    layout: &PacketLayout,
) -> Result<(), NoMemory> {
    let config = &turn.endpoint.config;
    if memory.total() + more <= config.session_budget(slots) {
        return Ok(());
    }
    Err(NoMemory { wanted: layout.size() as usize, limit: config.session_memory(slots) })
}
