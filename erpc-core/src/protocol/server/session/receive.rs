//! A request's way in.

use super::*;
use crate::buf::{MsgBuf, NoMemory};
use crate::mutants::mutant;
use crate::protocol::assembly::Assembly;
use crate::protocol::server::slot::Receiving;
use crate::protocol::stats::DropReason;
use crate::protocol::{Body, Event, Request};
use crate::status::{Code, Status};
use crate::wire::extension::deadline_of;
use crate::wire::{CANCEL, Header, Kind, PacketLayout, PacketNumber, ShortPacket, Stamp};

/// The deadline that the first packet of a request tells.
fn told_deadline(header: &Header, body: &[u8], now: Instant) -> Instant {
    if header.flags.extended() { deadline_of(body, now) } else { Instant::NEVER }
}

impl<R: Route> ServerSide<R> {
    /// Takes in a packet of kind `Request`, `RequestForResponse` or `Done`.
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
        if session.generation != header.connection.generation() && !mutant!(StaleGenerationAtServer)
        {
            return Err(DropReason::UnknownConnection);
        }
        if session.route != *route && !mutant!(WrongRouteAtServer) {
            return Err(DropReason::WrongRoute);
        }
        if session.flags.trailer() != header.flags.trailer() {
            return Err(DropReason::Trailer);
        }
        session.marked |= turn.marked;
        match header.kind {
            Kind::Request => self.request_packet(turn, header, body),
            Kind::RequestForResponse => {
                if !body.is_empty() {
                    return Err(DropReason::LyingSize);
                }
                session.last_heard = turn.now;
                self.request_for_response(turn, header).map(|()| Event::None)
            }
            Kind::Done => {
                session.last_heard = turn.now;
                match header.packet.get() {
                    0 => self.done(turn.endpoint, index, body).map(|()| Event::None),
                    CANCEL if body.is_empty() => self.cancel(turn, header),
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
    fn request_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let index = SessionIndex::of(header.connection);
        let session = &mut self.sessions[index];
        let layout = PacketLayout::new(header.size, session.payload, session.payload);
        let (packet, packets) = (header.packet.get(), layout.packets());
        if header.size > turn.endpoint.config.max_message
            || packet >= packets
            || layout.len(packet) != body.len() && !(mutant!(SizeNotChecked) && packets == 1)
        {
            return Err(DropReason::LyingSize);
        }
        let slot = &mut session.slots[SlotIndex::of(header.request)];
        let ahead = header.request.ahead_of(slot.number);
        let again = mutant!(DedupeOffByOne)
            && ahead == 0
            && packets == 1
            && matches!(slot.state, SlotState::Responding { .. });
        if ahead == 0 && !again {
            session.last_heard = turn.now;
            return self.repeated_packet(turn, header, &layout, body);
        }
        if ahead < 0 {
            return Err(DropReason::OldRequest);
        }
        if ahead != WINDOW as i32 && !again {
            return Err(DropReason::RequestLeap);
        }
        if slot.state.is_busy() {
            return Err(DropReason::SlotBusy);
        }
        session.last_heard = turn.now;
        if packet != 0 {
            // The first packet was lost: the client has to start again. Nothing is kept for that.
            let marked = std::mem::take(&mut session.marked);
            let info = self.grants.reply_info(turn.queue_wait.longest(), marked);
            let echo = Stamp::from_u32(header.aux);
            let reply = Self::credit_return(session, header.request, 0, true, echo, info);
            turn.tx.push_bytes(&session.route, reply.as_bytes());
            return Err(DropReason::OutOfOrder);
        }
        // A new request in the slot: the client has the earlier response.
        slot.number = header.request;
        Self::keep_small_buffer(&mut session.held, slot, turn.endpoint);
        if packets == 1 {
            slot.state = SlotState::Executing { since: turn.arrived_at() };
            let deadline = told_deadline(header, body, turn.now);
            return Ok(Self::hand_out(
                turn.endpoint,
                header,
                session,
                deadline,
                Body::Packet(body),
            ));
        }
        match Self::begin_assembly(turn.endpoint, session.held + session.kept, layout, body) {
            Ok(assembly) => {
                if !mutant!(HeldNotCounted) {
                    session.held += assembly.footprint();
                }
                let receiving = Receiving {
                    assembly,
                    method: header.aux,
                    extended: header.flags.extended(),
                    deadline: told_deadline(header, body, turn.now),
                    owed: false,
                    gap: false,
                    echo: Stamp::NONE,
                    told: 0,
                };
                slot.state = SlotState::Receiving(Box::new(receiving));
                self.owe_credit(index, header, false);
            }
            Err(error) => self.turn_down(turn, header, &error),
        }
        Ok(Event::None)
    }

    /// A packet of the slot's current request.
    fn repeated_packet<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        layout: &PacketLayout,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let index = SessionIndex::of(header.connection);
        let grants = &self.grants;
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[SlotIndex::of(header.request)];
        match &mut slot.state {
            SlotState::Idle => Err(DropReason::Duplicate),
            SlotState::Executing { .. } | SlotState::Accepted { .. }
                if mutant!(ExecutedTwice) && layout.packets() == 1 =>
            {
                let deadline = told_deadline(header, body, turn.now);
                Ok(Self::hand_out(turn.endpoint, header, session, deadline, Body::Packet(body)))
            }
            SlotState::Executing { since } | SlotState::Accepted { since, .. } => {
                let marked = std::mem::take(&mut session.marked);
                let info = grants.reply_info(turn.now.nanos_since(*since), marked);
                slot.state.accept();
                Self::accept_request(turn, session, header, info);
                Err(DropReason::Duplicate)
            }
            SlotState::Responding { .. } => {
                self.respond_again(turn, header);
                Err(DropReason::Duplicate)
            }
            SlotState::Receiving(receiving) => {
                let (packet, next) = (header.packet.get(), receiving.assembly.next());
                if header.size != receiving.assembly.layout().size()
                    || packet == 0 && header.aux != receiving.method
                    || header.flags.extended() != receiving.extended
                {
                    return Err(DropReason::LyingSize);
                }
                if packet != next && !(packet > next && mutant!(OutOfOrderTaken)) {
                    let gap = packet > next;
                    self.owe_credit(index, header, gap);
                    return Err(if gap { DropReason::OutOfOrder } else { DropReason::Duplicate });
                }
                let before = receiving.assembly.footprint();
                let over_budget =
                    session.held + session.kept > turn.endpoint.config.session_budget();
                let taken = if over_budget {
                    Err(NoMemory {
                        wanted: layout.size() as usize,
                        limit: turn.endpoint.config.session_memory(),
                    })
                } else {
                    receiving.assembly.take(body, &mut turn.endpoint.pool)
                };
                session.held = session.held - before + receiving.assembly.footprint();
                if let Err(error) = taken {
                    self.turn_down(turn, header, &error);
                    return Ok(Event::None);
                }
                if !receiving.assembly.is_complete() {
                    self.owe_credit(index, header, false);
                    return Ok(Event::None);
                }
                session.held -= receiving.assembly.footprint();
                let state = std::mem::replace(
                    &mut slot.state,
                    SlotState::Executing { since: turn.arrived_at() },
                );
                let SlotState::Receiving(receiving) = state else { return Ok(Event::None) };
                let Receiving { assembly, method, deadline, told, .. } = *receiving;
                let body = Body::Message(assembly.into_message());
                let last = layout.packets() - 1;
                if last > told {
                    let last = Some((last, Stamp::from_u32(header.aux)));
                    let (generation, number) = (session.generation, header.request);
                    self.owed.push(OwedCredit { index, generation, number, last });
                }
                let header = &Header { aux: method, ..*header };
                Ok(Self::hand_out(turn.endpoint, header, session, deadline, body))
            }
        }
    }

    /// Tells the client that its request is executing.
    fn accept_request<X: TxQueue<Route = R>>(
        turn: &mut Turn<'_, X>,
        session: &ServerSession<R>,
        header: &Header,
        info: u32,
    ) {
        let reply = Header {
            connection: session.remote,
            kind: Kind::Accepted,
            packet: header.packet,
            request: header.request,
            aux: info,
            size: 0,
            flags: session.flags,
        };
        turn.tx.push_bytes(&session.route, ShortPacket::new(&reply, &[]).as_bytes());
    }

    /// Answers a packet of a request that was answered before. Once for a burst of them: a roll-back may
    /// have crossed the response.
    fn respond_again<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, header: &Header) {
        let index = SessionIndex::of(header.connection);
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[SlotIndex::of(header.request)];
        let SlotState::Responding { again, layout, announced, .. } = &mut slot.state else {
            return;
        };
        if std::mem::replace(again, turn.now) == turn.now {
            return;
        }
        let all = layout.packets();
        if mutant!(AnnouncedOnce) && *announced {
            return;
        }
        turn.tx.flush();
        turn.endpoint.stats.retransmissions += 1;
        if mutant!(RepeatAnsweredInFull) {
            return self.send_response(turn, index, header.request, 0..all, Stamp::NONE, 0);
        }
        self.send_first(turn, index, header.request);
    }

    /// Nobody waits for the response to a request any more. It may be anywhere: on its way still, or done
    /// with. What it takes is that the number is taken, and that the client is answered.
    fn cancel<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
    ) -> Result<Event<'p, R>, DropReason> {
        let index = SessionIndex::of(header.connection);
        let grants = &self.grants;
        let session = &mut self.sessions[index];
        let generation = session.generation;
        let slot = &mut session.slots[SlotIndex::of(header.request)];
        let ahead = header.request.ahead_of(slot.number);
        let busy = slot.state.is_busy();
        if ahead < 0 {
            return Err(DropReason::OldRequest);
        }
        if ahead != 0 && ahead != WINDOW as i32 {
            return Err(DropReason::RequestLeap);
        }
        if ahead != 0 && busy {
            return Err(DropReason::SlotBusy);
        }
        match &mut slot.state {
            SlotState::Executing { since } | SlotState::Accepted { since, .. } if ahead == 0 => {
                let marked = std::mem::take(&mut session.marked);
                let info = grants.reply_info(turn.now.nanos_since(*since), marked);
                let told = slot.state.cancel();
                Self::accept_request(turn, session, header, info);
                if told && !mutant!(CancelledTwice) {
                    return Err(DropReason::Duplicate);
                }
                let handle = RequestHandle { index, generation, number: header.request };
                return Ok(Event::Cancelled(handle));
            }
            SlotState::Responding { .. } if ahead == 0 => {
                self.respond_again(turn, header);
                return Err(DropReason::Duplicate);
            }
            SlotState::Idle if ahead == 0 => return Err(DropReason::Duplicate),
            _ => {}
        }
        // What has come of the request is dropped; what comes late finds its number taken.
        if ahead != 0 && !mutant!(CancelTakesNoNumber) {
            slot.number = header.request;
            Self::keep_small_buffer(&mut session.held, slot, turn.endpoint);
        }
        let status = Status::new(Code::Cancelled, "the client has cancelled the call");
        self.fail_unexecuted(turn, header, &status);
        Ok(Event::None)
    }

    #[inline]
    fn hand_out<'p>(
        endpoint: &mut EndpointState,
        header: &Header,
        session: &mut ServerSession<R>,
        deadline: Instant,
        body: Body<'p>,
    ) -> Event<'p, R> {
        endpoint.stats.requests += 1;
        session.requests += 1;
        let index = SessionIndex::of(header.connection);
        let buffer = session.slots[SlotIndex::of(header.request)].buffer.take();
        session.held -= buffer.as_ref().map_or(0, MsgBuf::footprint);
        Event::Request(Request {
            handle: RequestHandle { index, generation: session.generation, number: header.request },
            method: header.aux,
            body,
            peer: session.route,
            extended: header.flags.extended(),
            deadline,
            buffer,
        })
    }

    fn begin_assembly(
        endpoint: &mut EndpointState,
        held: usize,
        layout: PacketLayout,
        body: &[u8],
    ) -> Result<Assembly, NoMemory> {
        if held + body.len() > endpoint.config.session_budget() {
            let limit = endpoint.config.session_memory();
            return Err(NoMemory { wanted: layout.size() as usize, limit });
        }
        Assembly::begin(layout, body, &mut endpoint.pool)
    }

    /// There is no memory for the rest of a request: it is answered before it is whole.
    #[cold]
    fn turn_down<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        error: &NoMemory,
    ) {
        turn.endpoint.stats.turned_down += 1;
        let status = Status::new(Code::ResourceExhausted, error.to_string());
        self.fail_unexecuted(turn, header, &status);
    }

    /// Answers the slot's request, which no handler has seen, and drops what has come of it.
    fn fail_unexecuted<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        header: &Header,
        status: &Status,
    ) {
        let index = SessionIndex::of(header.connection);
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[SlotIndex::of(header.request)];
        if let SlotState::Receiving(receiving) =
            std::mem::replace(&mut slot.state, SlotState::Executing { since: turn.arrived_at() })
        {
            session.held -= receiving.assembly.footprint();
            receiving.assembly.discard(&mut turn.endpoint.pool);
        }
        let handle =
            RequestHandle { index, generation: session.generation, number: header.request };
        self.respond_status(turn, handle, status);
    }

    /// Large responses go back to the pool; small ones stay as the slot's next buffer.
    #[inline]
    fn keep_small_buffer(held: &mut usize, slot: &mut ServerSlot, endpoint: &mut EndpointState) {
        if let Some(buffer) =
            slot.buffer.take_if(|buffer| buffer.capacity() > super::respond::KEPT_CAPACITY)
        {
            *held -= buffer.footprint();
            if mutant!(BufferLeak) {
                std::mem::forget(buffer);
                return;
            }
            endpoint.pool.recycle(buffer);
        }
    }

    fn credit_return(
        session: &ServerSession<R>,
        request: RequestNumber,
        next: u32,
        gap: bool,
        echo: Stamp,
        info: u32,
    ) -> ShortPacket {
        let header = Header {
            connection: session.remote,
            kind: Kind::CreditReturn,
            packet: PacketNumber::new(next),
            request,
            aux: info,
            size: echo.to_u32() | u32::from(gap),
            flags: session.flags,
        };
        ShortPacket::new(&header, &[])
    }

    /// A credit return goes out when the burst is over: one for all of its packets.
    fn owe_credit(&mut self, index: SessionIndex, header: &Header, gap: bool) {
        let number = header.request;
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[SlotIndex::of(number)];
        if let SlotState::Receiving(receiving) = &mut slot.state {
            receiving.gap |= gap;
            // Once there is a gap, what counts is who has told of it.
            if header.packet.get() > 0 && (gap || !receiving.gap) {
                receiving.echo = Stamp::from_u32(header.aux);
            }
            if !std::mem::replace(&mut receiving.owed, true) {
                let generation = session.generation;
                self.owed.push(OwedCredit { index, generation, number, last: None });
            }
        }
    }

    /// Sends the credit returns of the burst.
    pub(in crate::protocol) fn end_of_burst<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) {
        if mutant!(CreditReturnForgotten) {
            return;
        }
        for at in 0..self.owed.len() {
            let OwedCredit { index, generation, number, last } = self.owed[at];
            let Some(session) = self.sessions.get_mut(index) else { continue };
            let slot = &mut session.slots[SlotIndex::of(number)];
            if session.generation != generation || slot.number != number {
                continue;
            }
            let (next, gap, echo) = match &mut slot.state {
                SlotState::Receiving(receiving) => {
                    receiving.owed = false;
                    let gap = std::mem::take(&mut receiving.gap);
                    receiving.told = receiving.assembly.next();
                    (receiving.assembly.next(), gap, std::mem::take(&mut receiving.echo))
                }
                // Whole, and its handler takes its time: others want the credits meanwhile. The last packet's
                // comes back with the response, as all do of a request that is answered by now.
                SlotState::Executing { .. } => match last {
                    Some((last, echo)) => (last, false, echo),
                    None => continue,
                },
                _ => continue,
            };
            let marked = std::mem::take(&mut session.marked);
            let info = self.grants.reply_info(turn.queue_wait.longest(), marked);
            let reply = Self::credit_return(session, number, next, gap, echo, info);
            turn.tx.push_bytes(&session.route, reply.as_bytes());
        }
        self.owed.clear();
    }

    /// The client has these responses.
    fn done(
        &mut self,
        endpoint: &mut EndpointState,
        index: SessionIndex,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let (numbers, rest) = body.as_chunks::<4>();
        if !rest.is_empty() || numbers.is_empty() || numbers.len() > WINDOW {
            return Err(DropReason::LyingSize);
        }
        let session = &mut self.sessions[index];
        for number in numbers {
            let number = RequestNumber::from_u32(u32::from_le_bytes(*number));
            let slot = &mut session.slots[SlotIndex::of(number)];
            let same = slot.number == number || mutant!(DoneOfAnyRequest);
            if same && matches!(slot.state, SlotState::Responding { .. }) {
                slot.state = SlotState::Idle;
                Self::keep_small_buffer(&mut session.held, slot, endpoint);
            }
        }
        Ok(())
    }
}
