//! The common parts of the fuzz targets `hostile_client` and `hostile_server`: an endpoint with its
//! peers, and the steps of an input.
//!
//! A [`Side`] plays the peers of the endpoint, hostile and honest, and defines the rules for them.

use std::time::Duration;

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{Core, EndpointConfig, Event, Local, QueueWait};
use erpc_core::time::Instant;
use erpc_core::transport::{Link, Path, RxPacket, TxQueue};
use erpc_core::wire::checksum::TRAILER_LEN;
use erpc_core::wire::control::Parameters;
use erpc_core::wire::{ConnectionId, HEADER_LEN, Kind, PacketLayout};

use super::input::Input;
use super::outbox::Outbox;
use super::packet_mutator::{PacketMutator, STRANGER};
use super::steps;
use super::{MAX_MESSAGE, MEMORY, capabilities, is_pattern, pattern, seed_of};
use crate::SimRoute;
use crate::hostile::craft::{Craft, PARAMETERS};

/// The address of a peer that keeps to the rules. The attackers must not affect this peer's calls.
pub(super) const HONEST: SimRoute = SimRoute::new(2, 2);

pub(super) const CREDITS: u16 = 8;
pub(super) const MAX_SESSIONS: usize = 4;
/// The most packets that arrive during one turn.
pub(super) const BURST: usize = 32;
/// The most steps of one input.
const MAX_STEPS: usize = 256;
/// The number of sessions that an attacker uses at a time; one bit of a step selects one.
const KNOWN: usize = 2;
/// Bytes of a `Moved`, the only answer to a stranger that may be longer than the stranger's packet.
/// The server sends it only for the whole id of a live session.
const MOVED_BYTES: usize = HEADER_LEN + 8 + TRAILER_LEN;

/// Pauses in ns: almost none, less than a tick of the timing wheel, a few ticks, more than the
/// minimum retransmission timeout (5 ms), a tenth of the ping interval (1 s), more than a server's
/// ping interval (1.5 s), more than the liveness timeout (3 s), an hour.
const PAUSES: [u64; 8] =
    [1, 1_000, 100_000, 6_000_000, 100_000_000, 1_600_000_000, 4_000_000_000, 3_600_000_000_000];

/// The peers of the endpoint, all clients or all servers, and their state.
pub(super) trait Side: Sized {
    /// The kinds of packets that carry messages, the usual one first.
    const MESSAGES: &'static [Kind];
    /// The value of `aux` in packets that carry messages.
    const AUX: u32;
    /// Lengths of messages in bytes: empty, small, exactly one packet, slightly more, several
    /// packets, the largest, too large.
    const SIZES: &'static [u32];
    /// The distance of request numbers from one message of a slot to the next.
    const STRIDE: u32;
    /// The most packets of a whole message that arrive in one turn.
    const AT_ONCE: usize;
    /// Source addresses from which a packet may come instead of the session's address.
    const SENDERS: &'static [SimRoute];
    /// The most packets that the endpoint sends in answer to one packet.
    const ANSWERS: usize;
    /// The most packets that the endpoint sends when it learns a path.
    const ROUTED: usize;
    /// The most packets that the endpoint sends because time has passed.
    const EXPIRED: usize;

    /// The endpoint's configuration, based on the common part.
    fn config(common: EndpointConfig, how: u8) -> EndpointConfig;

    /// The state of the side before the first packet.
    fn new() -> Self;

    /// Opens the sessions before the first step.
    fn begin(harness: &mut Harness<Self>, seed: u64, how: u8);

    /// The packets of a message of `size` bytes.
    fn layout(terms: &Parameters, size: u32) -> PacketLayout;

    /// Executes a step that only this side has.
    fn step(harness: &mut Harness<Self>, what: u8, place: Place, input: &mut Input<'_>);

    /// Handles the event that a packet from `from` caused.
    fn heard(harness: &mut Harness<Self>, from: SimRoute, event: Event<'_, SimRoute>);

    /// A turn ends. The endpoint sent `last` packets in its end-of-burst step.
    fn turn_ends(harness: &mut Harness<Self>, last: usize);

    /// Reads the packets that the endpoint has sent, and answers as the honest peer.
    fn learn(harness: &mut Harness<Self>);

    /// Checks the rules of this side after every step.
    fn check(harness: &Harness<Self>);

    /// Checks at the end that an honest peer is served.
    fn honest_call(harness: &mut Harness<Self>);

    /// The endpoint has shut down. Frees the endpoint's msgbufs that the side holds.
    fn gone(harness: &mut Harness<Self>);
}

/// One of the attacker's sessions, and one of its slots.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) session: usize,
    pub(super) slot: usize,
}

/// The state of a slot at the attacker.
#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    /// The current request.
    pub(super) number: u32,
    /// The size of the message to the endpoint in bytes, and the number of the packet to send next.
    pub(super) size: u32,
    pub(super) next: u32,
    /// Packets of the message from the endpoint, and how many of them have arrived.
    pub(super) packets: u32,
    pub(super) seen: u32,
}

impl Slot {
    /// A slot without a message: request `number` is over.
    pub(super) fn idle(number: u32) -> Self {
        Self { number, next: 1, ..Self::default() }
    }

    /// Whether the slot's message has the extension flag: every other message does.
    pub(super) fn is_extended(self) -> bool {
        self.number & 8 != 0
    }
}

/// A session as the attacker knows it.
pub(super) struct AttackerSession {
    pub(super) route: SimRoute,
    /// The endpoint's id of the session, which packets to the endpoint carry.
    pub(super) to: ConnectionId,
    /// The attacker's id of the session.
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

    /// A packet of this session with zero fields.
    pub(super) fn craft(&self, kind: Kind) -> Craft {
        Craft::new(self.to, kind, &self.terms)
    }
}

/// An endpoint and all its peers.
pub(super) struct Harness<S> {
    pub(super) now: Instant,
    pub(super) core: Core<SimRoute>,
    pub(super) out: Outbox,
    /// The attacker's sessions, the newest one first.
    pub(super) sessions: Vec<AttackerSession>,
    pub(super) mutator: PacketMutator,
    /// The packet that is sent to the endpoint next. Afterwards the buffer is reused.
    pub(super) packet: Vec<u8>,
    /// Packets since the last end of a turn.
    pub(super) burst: usize,
    pub(super) side: S,
}

/// Plays the input `data` to an endpoint.
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

    /// Executes one step. [`steps`] defines the meaning of the step's first byte.
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

    /// The session at a place, or the newest one if the place has none.
    pub(super) fn session(&self, place: Place) -> Option<&AttackerSession> {
        self.sessions.get(place.session).or(self.sessions.first())
    }

    pub(super) fn session_mut(&mut self, place: Place) -> Option<&mut AttackerSession> {
        let at = if place.session < self.sessions.len() { place.session } else { 0 };
        self.sessions.get_mut(at)
    }

    /// Adds a new session of an attacker.
    pub(super) fn admit(&mut self, session: AttackerSession) {
        self.sessions.insert(0, session);
        self.sessions.truncate(KNOWN);
    }

    /// Sends the next packet of a slot's message, or the first packet of its next message.
    fn next_packet(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let at = &session.slots[place.slot];
        if at.next >= S::layout(&session.terms, at.size).packets() {
            self.next_message(place, input);
        }
        self.message_packet(place);
    }

    /// Sends a whole message, without regard to credits and pulls.
    fn whole_message(&mut self, place: Place, input: &mut Input<'_>) {
        for _ in 0..self.next_message(place, input) {
            self.message_packet(place);
            if self.burst >= S::AT_ONCE {
                self.end_turn();
            }
        }
    }

    /// Begins a slot's next message. Returns the number of its packets.
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

    /// Sends a packet of a message with fields near the true values.
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

    /// Sends any control message to the session, the endpoint or an unknown id.
    fn control(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let ids = [session.to, session.own];
        self.mutator.any_control(input, ids, &mut self.packet);
        self.feed_as(place, input);
    }

    /// Sends a packet of any kind with any fields.
    fn any_packet(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let ids = [session.to, session.own, ConnectionId::endpoint(0)];
        let number = session.slots[place.slot].number;
        self.mutator.any_packet(input, ids, number, &mut self.packet);
        self.feed_as(place, input);
    }

    /// Lets time pass, in one step.
    fn pass(&mut self, input: &mut Input<'_>) {
        self.end_turn();
        self.now = self.now.plus_nanos(input.pick(&PAUSES));
        self.core.expire(self.now, self.now, &mut self.out);
        let sent = self.out.load().0;
        assert!(sent <= S::EXPIRED, "{sent} packets because time has passed");
        self.end_turn();
    }

    /// Sends a packet of a session from the session's address or, rarely, from another address.
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

    /// The endpoint receives `self.packet`.
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
            let most = packet.len().max(MOVED_BYTES);
            assert!(packets <= 1 && bytes <= most, "{bytes} bytes to a stranger");
        }
        if from != HONEST && packet.len() >= HEADER_LEN {
            self.mutator.note(from, &packet);
        }
        self.packet = packet;
    }

    /// Checks that a message from the endpoint is complete and unchanged.
    pub(super) fn assert_intact(&self, body: &[u8]) {
        assert!(body.len() <= MAX_MESSAGE);
        assert!(self.mutator.has_changed_bodies || is_pattern(body), "a message as it was sent");
    }

    /// Ends a turn of the loop.
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

    /// Checks the rules that hold after every step.
    fn check(&mut self) {
        self.core.check_invariants();
        let pool = self.core.pool_stats();
        assert!(pool.in_use_bytes + pool.idle_bytes <= MEMORY, "memory within its limit");
        S::check(self);
    }

    /// Shuts the endpoint down, and checks that nothing remains.
    fn leave(mut self) {
        self.check();
        self.core.shutdown(self.now, &mut self.out);
        self.out.flush();
        S::gone(&mut self);
        self.out = Outbox::default();
        assert_eq!(self.core.sessions(), (0, 0));
        assert_eq!(self.core.pool_stats().in_use, 0, "all msgbufs are free");
        self.core.check_invariants();
    }
}

/// Appends a message of `len` bytes.
pub(super) fn fill(message: &mut MsgBuf, len: usize) {
    (0..len).step_by(4_096).for_each(|at| message.put_slice(pattern(at, len - at)));
}

/// Parameters near the true ones, as a handshake message may claim them.
pub(super) fn terms(input: &mut Input<'_>) -> Parameters {
    Parameters {
        max_datagram: input.near(PARAMETERS.max_datagram),
        max_message: input.near(PARAMETERS.max_message),
        eager: input.near(PARAMETERS.eager),
        window: input.near(PARAMETERS.window),
        credits: input.near(u32::from(CREDITS)) as u16,
        charge_model: input.near(0) as u8,
        integrity: input.u8() & 1 != 0,
        // The simulated transport does not bundle, so this must change nothing.
        bundles: true,
        slots: input.near(u32::from(PARAMETERS.slots)) as u8,
    }
}
