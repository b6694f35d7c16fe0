//! What the two stateful targets share: an endpoint with its peers, and how input becomes steps.
//!
//! A [`Side`] plays the peers of the endpoint, hostile and honest, and says what it owes them.

use std::time::Duration;

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{Core, EndpointConfig, Event, Local, QueueWait};
use erpc_core::time::Instant;
use erpc_core::transport::{Link, Path, RxPacket, TxQueue};
use erpc_core::wire::control::Parameters;
use erpc_core::wire::{ConnectionId, HEADER_LEN, Kind, PacketLayout};

use super::input::Input;
use super::outbox::Outbox;
use super::packet_mutator::{PacketMutator, STRANGER};
use super::steps;
use super::{MAX_MESSAGE, MEMORY, capabilities, is_pattern, pattern, seed_of};
use crate::SimRoute;
use crate::hostile::craft::{Craft, PARAMETERS};

/// A peer that tells the truth and must not notice anything.
pub(super) const HONEST: SimRoute = SimRoute::new(2, 2);

pub(super) const CREDITS: u16 = 8;
pub(super) const MAX_SESSIONS: usize = 4;
/// Packets that come in during one turn, at most.
pub(super) const BURST: usize = 32;
/// Steps of one input, at most.
const MAX_STEPS: usize = 256;
/// Sessions that an attacker uses at a time: one bit of a step.
const KNOWN: usize = 2;

/// Nothing, less than a tick, a few, a retransmission timeout, pings, death, an hour.
const PAUSES: [u64; 8] =
    [1, 1_000, 100_000, 6_000_000, 100_000_000, 1_600_000_000, 4_000_000_000, 3_600_000_000_000];

/// The peers of one role, and what they know.
pub(super) trait Side: Sized {
    /// Kinds of the packets that make up its messages, the usual one first.
    const MESSAGES: &'static [Kind];
    /// What their `aux` says.
    const AUX: u32;
    /// Sizes of its messages: none, small, one packet exactly, just more, several, the largest, too large.
    const SIZES: &'static [u32];
    /// From one message of a slot to the next, request numbers go so far.
    const STRIDE: u32;
    /// Packets of a whole message that arrive in one turn.
    const AT_ONCE: usize;
    /// Where its packets come from, besides the address of their session.
    const SENDERS: &'static [SimRoute];
    /// Packets that the endpoint sends in answer to one, at most.
    const ANSWERS: usize;
    /// Packets that it sends when a path becomes known, at most.
    const ROUTED: usize;
    /// Packets that it sends because time has passed, at most.
    const EXPIRED: usize;

    /// The endpoint's configuration, from what both sides have in common.
    fn config(common: EndpointConfig, how: u8) -> EndpointConfig;

    /// Its state before anything was sent.
    fn new() -> Self;

    /// What happens before the first step: sessions open.
    fn begin(harness: &mut Harness<Self>, seed: u64, how: u8);

    /// How a message of `size` bytes is cut.
    fn layout(terms: &Parameters, size: u32) -> PacketLayout;

    /// The steps that only this side has.
    fn step(harness: &mut Harness<Self>, what: u8, place: Place, input: &mut Input<'_>);

    /// What came of a packet from `from`.
    fn heard(harness: &mut Harness<Self>, from: SimRoute, event: Event<'_, SimRoute>);

    /// A turn ends; the endpoint sent `last` packets for it.
    fn turn_ends(harness: &mut Harness<Self>, last: usize);

    /// What the peers learn from what the endpoint has sent, and what the honest one answers.
    fn learn(harness: &mut Harness<Self>);

    /// What holds after every step, besides what holds for both sides.
    fn check(harness: &Harness<Self>);

    /// At the end an honest peer is served.
    fn honest_call(harness: &mut Harness<Self>);

    /// The endpoint has gone: whatever the side has of it is given back.
    fn gone(harness: &mut Harness<Self>);
}

/// Which of the attacker's sessions, and which of its slots.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) session: usize,
    pub(super) slot: usize,
}

/// What an attacker knows of a slot.
#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    /// The current request.
    pub(super) number: u32,
    /// The message to the endpoint, and its next packet.
    pub(super) size: u32,
    pub(super) next: u32,
    /// Packets of the message from the endpoint, and how many of them have come.
    pub(super) packets: u32,
    pub(super) seen: u32,
}

impl Slot {
    /// A slot that has no message under way: request `number` is over, or the first one is to be.
    pub(super) fn idle(number: u32) -> Self {
        Self { number, next: 1, ..Self::default() }
    }

    /// Whether the slot's message says that it is extended: every other one does.
    pub(super) fn is_extended(self) -> bool {
        self.number & 8 != 0
    }
}

/// A session from the attacker's side.
pub(super) struct AttackerSession {
    pub(super) route: SimRoute,
    /// The endpoint's name for it, which stands in packets to the endpoint.
    pub(super) to: ConnectionId,
    /// The attacker's own.
    pub(super) own: ConnectionId,
    pub(super) terms: Parameters,
    pub(super) slots: [Slot; 8],
}

impl AttackerSession {
    /// A new session of side `S`.
    pub(super) fn new<S: Side>(
        route: SimRoute,
        (to, own): (ConnectionId, ConnectionId),
        terms: Parameters,
    ) -> Self {
        let slots = std::array::from_fn(|at| Slot::idle((at as u32).wrapping_sub(S::STRIDE)));
        Self { route, to, own, terms, slots }
    }

    /// A packet of this session, whose fields are zero.
    pub(super) fn craft(&self, kind: Kind) -> Craft {
        Craft::new(self.to, kind, &self.terms)
    }
}

/// An endpoint and everybody who talks to it.
pub(super) struct Harness<S> {
    pub(super) now: Instant,
    pub(super) core: Core<SimRoute>,
    pub(super) out: Outbox,
    /// The attacker's sessions, the newest first.
    pub(super) sessions: Vec<AttackerSession>,
    pub(super) mutator: PacketMutator,
    /// The packet that comes in next, or came in last.
    pub(super) packet: Vec<u8>,
    /// Packets since the last end of a turn.
    pub(super) burst: usize,
    pub(super) side: S,
}

/// Plays `data` to an endpoint.
pub(super) fn play<S: Side>(data: &[u8]) {
    let mut input = Input::new(data);
    let mut harness = Harness::<S>::new(seed_of(data), input.u8());
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        harness.step(&mut input);
        harness.check();
    }
    harness.end_turn();
    S::honest_call(&mut harness);
    harness.leave();
}

impl<S: Side> Harness<S> {
    pub(super) fn new(seed: u64, how: u8) -> Self {
        let config = EndpointConfig::new()
            .credits(CREDITS)
            .max_credits(CREDITS)
            .max_message(MAX_MESSAGE as u32)
            .memory_limit(MEMORY)
            .max_sessions(MAX_SESSIONS as u32)
            .ping_interval(Duration::from_secs(1))
            .liveness_timeout(Duration::from_secs(3))
            .seed(seed);
        let core = Core::new(Local::from(capabilities()), S::config(config, how), (0, 0));
        let mut harness = Self {
            now: Instant::from_nanos(1_000_000_000),
            core: core.expect("a valid configuration"),
            out: Outbox::new(how & 1 != 0),
            sessions: Vec::new(),
            mutator: PacketMutator::default(),
            packet: Vec::new(),
            burst: 0,
            side: S::new(),
        };
        S::begin(&mut harness, seed, how);
        harness
    }

    /// One step, whose first byte is read as [`steps`] says.
    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        let op = input.u8();
        let place = Place { session: usize::from(op >> 7), slot: usize::from(op >> 4 & 7) };
        match op & 0xF {
            steps::NEXT => self.next_packet(place, input),
            steps::WHOLE => self.whole_message(place, input),
            steps::CRAFTED => self.crafted_packet(place, input),
            steps::CONTROL => self.control(place, input),
            steps::AGAIN => {
                let from = self.mutator.again(input, &mut self.packet);
                from.into_iter().for_each(|from| self.feed(from));
            }
            steps::CHANGED => {
                let from = self.mutator.changed(input, &mut self.packet);
                from.into_iter().for_each(|from| self.feed(from));
            }
            steps::RAW => {
                let from = self.mutator.any_bytes(input, S::SENDERS, &mut self.packet);
                self.feed(from);
            }
            steps::PASS => self.pass(input),
            steps::TURN => self.end_turn(),
            steps::ANY => self.any_packet(place, input),
            what => S::step(self, what, place, input),
        }
        if self.burst >= BURST {
            self.end_turn();
        }
    }

    /// The session at a place: the newest, if there are not so many.
    pub(super) fn session(&self, place: Place) -> Option<&AttackerSession> {
        self.sessions.get(place.session).or(self.sessions.first())
    }

    pub(super) fn session_mut(&mut self, place: Place) -> Option<&mut AttackerSession> {
        let at = if place.session < self.sessions.len() { place.session } else { 0 };
        self.sessions.get_mut(at)
    }

    /// A session has opened with an attacker.
    pub(super) fn admit(&mut self, session: AttackerSession) {
        self.sessions.insert(0, session);
        self.sessions.truncate(KNOWN);
    }

    /// The next packet of a slot's message, or the first of its next one.
    fn next_packet(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let at = &session.slots[place.slot];
        if at.next >= S::layout(&session.terms, at.size).packets() {
            self.next_message(place, input);
        }
        self.message_packet(place);
    }

    /// A whole message, whatever credits and pulls say.
    fn whole_message(&mut self, place: Place, input: &mut Input<'_>) {
        for _ in 0..self.next_message(place, input) {
            self.message_packet(place);
            if self.burst >= S::AT_ONCE {
                self.end_turn();
            }
        }
    }

    /// Begins a slot's next message. Returns its packets.
    pub(super) fn next_message(&mut self, place: Place, input: &mut Input<'_>) -> u32 {
        let Some(session) = self.session_mut(place) else { return 0 };
        let at = &mut session.slots[place.slot];
        at.number = at.number.wrapping_add(S::STRIDE);
        (at.size, at.next) = (input.pick(S::SIZES), 0);
        S::layout(&session.terms, at.size).packets()
    }

    fn message_packet(&mut self, place: Place) {
        let Some(session) = self.session_mut(place) else { return };
        let at = session.slots[place.slot];
        session.slots[place.slot].next += 1;
        let layout = S::layout(&session.terms, at.size);
        let range = layout.range(at.next.min(layout.packets() - 1));
        let craft = Craft {
            packet: at.next,
            request: at.number,
            aux: S::AUX,
            size: at.size,
            extended: at.is_extended(),
            ..session.craft(S::MESSAGES[0])
        };
        let from = session.route;
        self.packet.clear();
        craft.append(pattern(range.start, range.len()), &mut self.packet);
        self.feed(from);
    }

    /// A packet of a message with fields near the truth.
    fn crafted_packet(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let at = session.slots[place.slot];
        let is_over = at.next >= S::layout(&session.terms, at.size).packets();
        let craft = Craft {
            packet: input.near(if is_over { 0 } else { at.next }),
            request: input.near(at.number),
            aux: input.near(S::AUX),
            size: input.near(at.size),
            extended: at.is_extended(),
            ..session.craft(input.pick(S::MESSAGES))
        };
        let layout = S::layout(&session.terms, craft.size);
        let range = layout.range((craft.packet & 0xFF_FFFF).min(layout.packets() - 1));
        let len = input.near(range.len() as u32).min(2_000) as usize;
        self.send(place, craft, pattern(range.start, len), input);
    }

    /// Any control message, to the session, to the endpoint or to nobody.
    fn control(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let ids = [session.to, session.own];
        self.mutator.any_control(input, ids, &mut self.packet);
        self.feed_as(place, input);
    }

    /// Any kind of packet, any fields.
    fn any_packet(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let ids = [session.to, session.own, ConnectionId::endpoint(0)];
        let number = session.slots[place.slot].number;
        self.mutator.any_packet(input, ids, number, &mut self.packet);
        self.feed_as(place, input);
    }

    /// Time passes, in one leap.
    fn pass(&mut self, input: &mut Input<'_>) {
        self.end_turn();
        self.now = self.now.plus_nanos(input.pick(&PAUSES));
        self.core.expire(self.now, self.now, &mut self.out);
        let sent = self.out.load().0;
        assert!(sent <= S::EXPIRED, "{sent} packets because time has passed");
        self.end_turn();
    }

    /// Sends a packet of a session from its address or, rarely, another.
    pub(super) fn send(&mut self, place: Place, craft: Craft, body: &[u8], input: &mut Input<'_>) {
        self.packet.clear();
        craft.append(body, &mut self.packet);
        self.feed_as(place, input);
    }

    fn feed_as(&mut self, place: Place, input: &mut Input<'_>) {
        let byte = input.u8();
        let other = S::SENDERS[usize::from(byte) % S::SENDERS.len()];
        let route = self.session(place).map_or(other, |session| session.route);
        self.feed(if byte < 230 { route } else { other });
    }

    /// The endpoint receives what is in `self.packet`.
    pub(super) fn feed(&mut self, from: SimRoute) {
        let packet = std::mem::take(&mut self.packet);
        let before = self.out.load();
        self.burst += 1;
        let received = RxPacket { route: from, bytes: &packet, marked: false };
        let mut event = Event::None;
        let sink = |_: &mut _, _: &mut _, received| event = received;
        self.core.receive(self.now, QueueWait::default(), received, &mut self.out, sink);
        S::heard(self, from, event);
        let (packets, bytes) = self.out.load();
        let (packets, bytes) = (packets - before.0, bytes - before.1);
        assert!(packets <= S::ANSWERS, "{packets} packets in answer to one");
        if from == STRANGER {
            assert!(packets <= 1 && bytes <= packet.len(), "{bytes} bytes to a stranger");
        }
        if from != HONEST && packet.len() >= HEADER_LEN {
            self.mutator.note(from, &packet);
        }
        self.packet = packet;
    }

    /// A message has come out of the endpoint: whole and as it was sent.
    pub(super) fn assert_intact(&self, body: &[u8]) {
        assert!(body.len() <= MAX_MESSAGE);
        assert!(self.mutator.has_changed_bodies || is_pattern(body), "a message as it was sent");
    }

    /// The end of a turn of the loop.
    pub(super) fn end_turn(&mut self) {
        let before = self.out.load().0;
        self.core.end_of_burst(self.now, QueueWait::default(), &mut self.out);
        let last = self.out.load().0 - before;
        while self.core.next_unrouted().is_some() {
            let before = self.out.load().0;
            let path = Path { datagram: 1_472, link: Link::Local };
            self.core.routed(self.now, path, &mut self.out);
            let sent = self.out.load().0 - before;
            assert!(sent <= S::ROUTED, "{sent} packets for a path");
        }
        S::turn_ends(self, last);
        self.out.doorbell_rings();
        self.burst = 0;
        S::learn(self);
    }

    /// What holds after every step.
    fn check(&mut self) {
        self.core.check_invariants();
        let pool = self.core.pool_stats();
        assert!(pool.in_use_bytes + pool.idle_bytes <= MEMORY, "memory within its limit");
        S::check(self);
    }

    /// Everybody goes, and nothing is left.
    fn leave(mut self) {
        self.check();
        self.core.shutdown(self.now, &mut self.out);
        self.out.flush();
        S::gone(&mut self);
        self.out = Outbox::default();
        assert_eq!(self.core.sessions(), (0, 0));
        assert_eq!(self.core.pool_stats().in_use, 0, "all memory is back");
        self.core.check_invariants();
    }
}

/// Writes a message of `len` bytes.
pub(super) fn fill(message: &mut MsgBuf, len: usize) {
    (0..len).step_by(4_096).for_each(|at| message.put_slice(pattern(at, len - at)));
}

/// What somebody says that was agreed, near the truth.
pub(super) fn terms(input: &mut Input<'_>) -> Parameters {
    Parameters {
        max_datagram: input.near(PARAMETERS.max_datagram),
        max_message: input.near(PARAMETERS.max_message),
        eager: input.near(PARAMETERS.eager),
        window: input.near(PARAMETERS.window),
        credits: input.near(u32::from(CREDITS)) as u16,
        charge_model: input.near(0) as u8,
        integrity: input.u8() & 1 != 0,
    }
}
