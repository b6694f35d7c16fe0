//! A hostile server, packet by packet, against a live client with calls on their way.
//!
//! The input is a sequence of steps. The server reads what the client sends, so it knows the ids, the
//! request numbers and how much of each request is there; most of what it says is true unless the input
//! says otherwise, so that calls complete, responses are pulled and slots are used again.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{
    Body, CallError, Core, EndpointConfig, Event, Integrity, Local, Notice, SessionEvent, SessionId,
};
use erpc_core::time::Instant;
use erpc_core::transport::TxQueue;
use erpc_core::wire::control::{Control, Parameters, Refusal};
use erpc_core::wire::{ConnectionId, HEADER_LEN, Header, Kind, ReplyInfo};

use super::input::Input;
use super::mischief::{Mischief, STRANGER};
use super::outbox::Outbox;
use super::{MAX_MESSAGE, MEMORY, is_pattern, pattern, seed_of};
use crate::SimRoute;
use crate::hostile::craft::{self, Craft, PARAMETERS, request_layout, response_layout};

/// The attacker's address, and another that answers from the same port.
const LIAR: SimRoute = SimRoute::new(1, 1);
const LIARS_OTHER: SimRoute = SimRoute::new(5, 1);
/// A server that tells the truth.
const HONEST: SimRoute = SimRoute::new(2, 2);

const CREDITS: u16 = 8;
const MAX_SESSIONS: usize = 4;
const BURST: usize = 32;
/// Calls that may wait in a session.
const QUEUE: usize = 4;
const MAX_STEPS: usize = 256;

const REQUESTS: [usize; 8] = [8, 0, 32, 1_448, 1_449, 4_000, 20_000, 40_000];
const RESPONSES: [u32; 10] = [8, 0, 512, 513, 1_024, 1_025, 3_000, 20_000, 40_000, 40_001];
const PAUSES: [u64; 8] =
    [1, 1_000, 100_000, 6_000_000, 100_000_000, 1_100_000_000, 4_000_000_000, 3_600_000_000_000];

/// Plays a hostile server against a client endpoint, and checks the endpoint after every step: packets
/// add up, each call ends at most once and gives its request back, memory stays within its limit, what
/// is sent is bounded; at the end a call to an honest server works, and every call has ended.
///
/// # Panics
/// If one of these does not hold, or the endpoint panics.
pub fn hostile_server(data: &[u8]) {
    let mut input = Input::new(data);
    let mut stage = Stage::new(seed_of(data), input.u8());
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        stage.step(&mut input);
        stage.check();
    }
    stage.finish();
}

/// What a server knows of a slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    number: u32,
    /// Packets of the request, and how many of them have come.
    packets: u32,
    seen: u32,
    /// The response under way, and its next packet.
    size: u32,
    next: u32,
}

/// A session from the server's side.
struct Seen {
    route: SimRoute,
    client: ConnectionId,
    terms: Parameters,
    slots: [Slot; 8],
}

struct Stage {
    now: Instant,
    core: Core<SimRoute>,
    out: Outbox,
    ids: Vec<SessionId>,
    seen: Vec<Seen>,
    /// The client's `Hello`s and `Open`s that were not answered: who, the nonce, and the parameters.
    asked: VecDeque<(SimRoute, ConnectionId, u32, Option<Parameters>)>,
    /// Handshakes are answered truly and at once.
    is_willing: bool,
    mischief: Mischief,
    /// Accepted calls by their token: whether each has ended.
    ended: Vec<bool>,
    burst: usize,
    packet: Vec<u8>,
}

impl Stage {
    fn new(seed: u64, how: u8) -> Self {
        let config = EndpointConfig::new()
            .credits(CREDITS)
            .max_message(MAX_MESSAGE as u32)
            .memory_limit(MEMORY)
            .max_sessions(MAX_SESSIONS as u32)
            .queue_limit(QUEUE)
            .ping_interval(Duration::from_secs(1))
            .liveness_timeout(Duration::from_secs(3))
            .eager(1_024)
            .integrity(if how & 8 != 0 { Integrity::Always } else { Integrity::Auto })
            .seed(seed);
        let core = Core::new(Local::from(super::capabilities()), config, (0, 0));
        let mut stage = Self {
            now: Instant::from_nanos(1_000_000_000),
            core: core.expect("a valid configuration"),
            out: Outbox::new(how & 1 != 0),
            ids: Vec::new(),
            seen: Vec::new(),
            asked: VecDeque::new(),
            is_willing: how & 2 == 0,
            mischief: Mischief::default(),
            ended: Vec::new(),
            burst: 0,
            packet: Vec::new(),
        };
        stage.connect(LIAR);
        if how & 4 != 0 {
            stage.connect(LIAR);
        }
        for size in [8, 1_449] {
            stage.call(0, size);
        }
        stage.end_turn();
        stage
    }

    fn connect(&mut self, to: SimRoute) {
        if let Ok(id) = self.core.connect(self.now, to, &mut self.out) {
            self.ids.push(id);
        }
        self.end_turn();
    }

    fn call(&mut self, session: usize, size: usize) {
        let Some(id) = self.ids.get(session).copied() else { return };
        let Ok(mut request) = self.core.pool().alloc(size) else { return };
        (0..size).step_by(4_096).for_each(|at| {
            request.put_slice(pattern(at, (size - at).min(4_096)));
        });
        let token = self.ended.len() as u64;
        match self.core.call(self.now, id, (7, request, token), &mut self.out) {
            Ok(()) => self.ended.push(false),
            Err(rejected) => self.core.pool().recycle(rejected.request),
        }
    }

    /// One step: the low half of its first byte says what, the high half at which session and slot.
    fn step(&mut self, input: &mut Input<'_>) {
        let op = input.u8();
        let (at, slot) = (usize::from(op >> 7), usize::from(op >> 4 & 7));
        let seen = if at < self.seen.len() { at } else { 0 };
        match op & 0xF {
            0 => self.next_packet(seen, slot, input),
            1 => self.whole_response(seen, slot, input),
            2 => self.crafted_response(seen, slot, input),
            3 => self.credit_return(seen, slot, input),
            4 => self.accepted(seen, slot, input),
            5 => self.control(seen, input),
            6 => self.replay(input),
            7 => self.mutate(input),
            8 => self.raw(input),
            9 => self.pass(input),
            10 => self.call(at, input.pick(&REQUESTS)),
            11 => self.crafted_data(seen, slot, input),
            12 => self.end_turn(),
            13 => self.answer_handshake(input),
            14 => self.connect(LIAR),
            _ => {
                let id = self.ids.get(at).copied();
                if let Some(id) = id.filter(|_| input.u8() >= 128) {
                    self.core.disconnect(self.now, id, &mut self.out);
                }
            }
        }
        if self.burst >= BURST {
            self.end_turn();
        }
    }

    /// The next packet of a slot's response, or the first of one.
    fn next_packet(&mut self, seen: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.seen.get_mut(seen) else { return };
        let at = &mut session.slots[slot];
        if at.next == 0 {
            at.size = input.pick(&RESPONSES);
        }
        self.response_packet(seen, slot);
    }

    fn response_packet(&mut self, seen: usize, slot: usize) {
        let session = &mut self.seen[seen];
        let at = &mut session.slots[slot];
        let layout = response_layout(&session.terms, at.size);
        let range = layout.range(at.next.min(layout.packets() - 1));
        let craft = Craft {
            packet: at.next,
            request: at.number,
            size: at.size,
            ..Craft::new(session.client, Kind::Response, &session.terms)
        };
        at.next = (at.next + 1) % layout.packets();
        self.packet.clear();
        craft.append(pattern(range.start, range.len()), &mut self.packet);
        let from = session.route;
        self.feed(from);
    }

    /// A whole response; before each of its packets the client may ask for more.
    fn whole_response(&mut self, seen: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.seen.get_mut(seen) else { return };
        let at = &mut session.slots[slot];
        (at.size, at.next) = (input.pick(&RESPONSES), 0);
        for _ in 0..response_layout(&session.terms, at.size).packets() {
            self.response_packet(seen, slot);
            self.end_turn();
        }
    }

    fn crafted_response(&mut self, seen: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.seen.get(seen) else { return };
        let at = session.slots[slot];
        let craft = Craft {
            packet: input.near(at.next),
            request: input.near(at.number),
            aux: input.near(0),
            size: input.near(at.size),
            ..Craft::new(
                session.client,
                input.pick(&[Kind::Response, Kind::Failure]),
                &session.terms,
            )
        };
        let layout = response_layout(&session.terms, craft.size);
        let range = layout.range((craft.packet & 0xFF_FFFF).min(layout.packets() - 1));
        let len = input.near(range.len() as u32).min(2_000) as usize;
        self.packet.clear();
        craft.append(pattern(range.start, len), &mut self.packet);
        self.feed_as(seen, input);
    }

    fn credit_return(&mut self, seen: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.seen.get(seen) else { return };
        let at = session.slots[slot];
        let craft = Craft {
            packet: input.near(at.seen.min(at.packets.saturating_sub(1))),
            request: input.near(at.number),
            aux: input.near(0),
            size: u32::from(input.u8() & 1),
            ..Craft::new(session.client, Kind::CreditReturn, &session.terms)
        };
        self.packet.clear();
        craft.append(&[], &mut self.packet);
        self.feed_as(seen, input);
    }

    fn accepted(&mut self, seen: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.seen.get(seen) else { return };
        let craft = Craft {
            packet: input.near(0),
            request: input.near(session.slots[slot].number),
            aux: input.near(0),
            ..Craft::new(session.client, Kind::Accepted, &session.terms)
        };
        self.packet.clear();
        craft.append(&[], &mut self.packet);
        self.feed_as(seen, input);
    }

    /// Any control message.
    fn control(&mut self, seen: usize, input: &mut Input<'_>) {
        let Some(session) = self.seen.get(seen) else { return };
        let ours = server_id(session.client);
        let sender =
            input.pick(&[ours, session.client, ConnectionId::from_u64(0x0BAD_0BAD_0000_0100)]);
        let to = match input.u8() {
            0..=199 => session.client,
            200..=219 => ConnectionId::endpoint(0),
            _ => ConnectionId::new(0, input.u8() & 1 != 0, input.u32(), input.u32()),
        };
        let message = match input.u8() % 8 {
            0 => Control::Ping { sender },
            1 => Control::Pong,
            2 => Control::Closed,
            3 => Control::Challenge {
                cookie: [1; 16],
                port: u16::from(input.u8()),
                steer: input.u8(),
            },
            4 => Control::Opened { server: sender, parameters: parameters(input) },
            5 => Control::Refused { reason: Refusal::Full, low: 1, high: 1 },
            6 => Control::Reset { unknown: sender },
            _ => Control::Close { sender },
        };
        self.packet.clear();
        self.packet
            .extend_from_slice(message.emit(to, 0, ReplyInfo::from_u32(input.near(0))).as_bytes());
        self.feed_as(seen, input);
    }

    /// Any kind of packet, any fields.
    fn crafted_data(&mut self, seen: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.seen.get(seen) else { return };
        let ids = [session.client, server_id(session.client), ConnectionId::endpoint(0)];
        let number = session.slots[slot].number;
        self.mischief.any_packet(input, ids, number, &mut self.packet);
        self.feed_as(seen, input);
    }

    /// An earlier packet once more.
    fn replay(&mut self, input: &mut Input<'_>) {
        if let Some(from) = self.mischief.again(input, &mut self.packet) {
            self.feed(from);
        }
    }

    /// An earlier packet with some bytes changed.
    fn mutate(&mut self, input: &mut Input<'_>) {
        if let Some(from) = self.mischief.changed(input, &mut self.packet) {
            self.feed(from);
        }
    }

    fn raw(&mut self, input: &mut Input<'_>) {
        let from = self.mischief.any_bytes(input, &[LIAR, STRANGER], &mut self.packet);
        self.feed(from);
    }

    fn pass(&mut self, input: &mut Input<'_>) {
        self.end_turn();
        self.now = self.now.plus_nanos(input.pick(&PAUSES));
        self.core.expire(self.now, &mut self.out);
        self.end_turn();
    }

    /// What a handshake message that was left unanswered is told.
    fn answer_handshake(&mut self, input: &mut Input<'_>) {
        let Some((route, client, nonce, proposed)) = self.asked.pop_front() else { return };
        let message = match (input.u8() % 4, proposed) {
            (0, _) => Control::Refused { reason: input.pick(&REFUSALS), low: 0, high: 9 },
            (_, None) => Control::Challenge {
                cookie: [3; 16],
                port: input.pick(&[0, 0, 1, 77]),
                steer: input.u8() & 3,
            },
            (_, Some(_)) => {
                Control::Opened { server: server_id(client), parameters: parameters(input) }
            }
        };
        if let Control::Opened { parameters: terms, .. } = message {
            self.note_session(route, client, terms);
        }
        self.packet = craft::control(client, nonce, message);
        let from = if input.u8() < 230 { route } else { LIARS_OTHER };
        self.feed(from);
        self.end_turn();
    }

    fn feed_as(&mut self, seen: usize, input: &mut Input<'_>) {
        let from = if input.u8() < 240 { self.seen[seen].route } else { STRANGER };
        self.feed(from);
    }

    /// The client receives what is in `self.packet`.
    fn feed(&mut self, from: SimRoute) {
        let packet = std::mem::take(&mut self.packet);
        let before = self.out.load();
        self.burst += 1;
        let event = self.core.receive(self.now, from, &packet, &mut self.out);
        match event {
            Event::None => {}
            Event::Request(_) => unreachable!("this endpoint accepts no sessions"),
            Event::Reply { token, result, request } => {
                if let Ok(body) = &result {
                    assert!(body.as_slice().len() <= MAX_MESSAGE);
                    assert!(
                        self.mischief.has_changed_bodies || is_pattern(body.as_slice()),
                        "a response as it was sent"
                    );
                }
                if let Ok(Body::Message(message)) = result {
                    self.core.pool().recycle(message);
                }
                self.end(token, request);
            }
        }
        let (packets, bytes) = self.out.load();
        let (packets, bytes) = (packets - before.0, bytes - before.1);
        // What comes back may let every session of this endpoint send what its credits allow.
        assert!(
            packets <= MAX_SESSIONS * usize::from(CREDITS),
            "{packets} packets in answer to one"
        );
        if from == STRANGER {
            assert!(packets <= 1 && bytes <= packet.len(), "{bytes} bytes to a stranger");
        }
        if from != HONEST && packet.len() >= HEADER_LEN {
            self.mischief.note(from, &packet);
        }
        self.packet = packet;
    }

    /// A call has ended: never twice, and its request may be written again.
    fn end(&mut self, token: u64, mut request: MsgBuf) {
        let ended = &mut self.ended[token as usize];
        assert!(!*ended, "call {token} ended twice");
        *ended = true;
        request.as_mut_slice().fill(0xEE);
        self.core.pool().recycle(request);
    }

    fn end_turn(&mut self) {
        self.core.end_of_burst(self.now, &mut self.out);
        while self.core.next_unrouted().is_some() {
            self.core.routed(self.now, 1_472, &mut self.out);
        }
        while let Some(notice) = self.core.pop_notice() {
            match notice {
                Notice::CallFailed { token, request, error } => {
                    assert!(!matches!(error, CallError::Status(_)), "a status comes with a packet");
                    self.end(token, request);
                }
                Notice::Session(id, SessionEvent::Closed(_)) => {
                    self.ids.retain(|known| *known != id)
                }
                Notice::Session(..) => {}
            }
        }
        let stats = self.core.stats();
        let ended = self.ended.iter().filter(|ended| **ended).count() as u64;
        assert_eq!(
            stats.responses + stats.failures,
            ended,
            "every end of a call is counted and told"
        );
        let most =
            MAX_SESSIONS * (usize::from(CREDITS) + 2) + BURST * MAX_SESSIONS * usize::from(CREDITS);
        assert!(self.out.load().0 <= most, "{} packets in a turn", self.out.load().0);
        self.out.doorbell_rings();
        self.burst = 0;
        self.learn();
    }

    /// What the server learns from what the client sends; a willing one answers handshakes.
    fn learn(&mut self) {
        let mut honest = Vec::new();
        for (to, packet) in self.out.packets() {
            let Some((header, _)) = craft::read(packet) else {
                unreachable!("the client sends packets")
            };
            match craft::read_control(packet) {
                _ if to == HONEST => honest.push(packet.to_vec()),
                Some((_, Control::Hello { client, .. })) => {
                    self.asked.push_back((to, client, header.request.to_u32(), None));
                }
                Some((_, Control::Open { client, parameters, .. })) => {
                    self.asked.push_back((to, client, header.request.to_u32(), Some(parameters)));
                }
                Some(_) => {}
                None => note_request(&mut self.seen, &header),
            }
        }
        self.out.clear();
        self.asked.truncate(8);
        for packet in honest {
            self.answer_honestly(&packet);
        }
        while self.is_willing
            && let Some((route, client, nonce, proposed)) = self.asked.pop_front()
        {
            self.answer_truly(route, client, nonce, proposed);
        }
    }

    fn answer_truly(
        &mut self,
        route: SimRoute,
        client: ConnectionId,
        nonce: u32,
        proposed: Option<Parameters>,
    ) {
        let message = match proposed {
            None => Control::Challenge { cookie: [3; 16], port: 0, steer: 0 },
            Some(terms) => Control::Opened { server: server_id(client), parameters: terms },
        };
        if let Some(terms) = proposed {
            self.note_session(route, client, terms);
        }
        self.packet = craft::control(client, nonce, message);
        self.feed(route);
        self.end_turn();
    }

    fn note_session(&mut self, route: SimRoute, client: ConnectionId, terms: Parameters) {
        // What was agreed has to make sense to be counted with; the client refuses what does not.
        let sane = terms.max_datagram >= 1_200 && terms.eager > 0 && terms.max_datagram <= 1_472;
        if route == HONEST || !sane || self.seen.iter().any(|known| known.client == client) {
            return;
        }
        let slots = std::array::from_fn(|at| Slot { number: at as u32, ..Slot::default() });
        self.seen.insert(0, Seen { route, client, terms, slots });
        self.seen.truncate(2);
    }

    /// What an honest server says to one packet.
    fn answer_honestly(&mut self, packet: &[u8]) {
        let Some((header, body)) = craft::read(packet) else { return };
        let nonce = header.request.to_u32();
        self.packet.clear();
        match craft::read_control(packet) {
            Some((_, Control::Hello { client, .. })) => {
                return self.answer_truly(HONEST, client, nonce, None);
            }
            Some((_, Control::Open { client, parameters, .. })) => {
                return self.answer_truly(HONEST, client, nonce, Some(parameters));
            }
            Some((_, Control::Ping { sender })) => {
                self.packet = craft::control(sender, nonce, Control::Pong);
            }
            Some(_) => return,
            None => {
                let Some(client) = honest_client(header.connection) else { return };
                let craft = Craft {
                    request: nonce,
                    size: body.len() as u32,
                    trailer: header.trailer,
                    ..Craft::new(client, Kind::Response, &PARAMETERS)
                };
                craft.append(body, &mut self.packet);
            }
        }
        self.feed(HONEST);
        self.end_turn();
    }

    fn check(&mut self) {
        self.core.check_invariants();
        let (opened, accepted) = self.core.sessions();
        assert!(opened <= MAX_SESSIONS && accepted == 0);
        let pool = self.core.pool_stats();
        assert!(pool.in_use_bytes + pool.idle_bytes <= MEMORY, "memory within its limit");
        for id in &self.ids {
            let Some(stats) = self.core.session_stats(*id) else { continue };
            assert!(stats.credits <= CREDITS && stats.in_flight <= 8 && stats.queued <= QUEUE + 8);
        }
    }

    /// A call to an honest server works; then the endpoint goes, and every call has ended.
    fn finish(&mut self) {
        self.end_turn();
        if self.core.sessions().0 == MAX_SESSIONS {
            let id = self.ids.pop().expect("sessions have ids");
            self.core.disconnect(self.now, id, &mut self.out);
            // It may have calls that never end by themselves.
            self.finish_without_honest();
            return;
        }
        self.is_willing = true;
        self.asked.clear();
        self.connect(HONEST);
        let before = self.ended.len();
        let session = self.ids.len() - 1;
        self.call(session, 8);
        self.end_turn();
        // The hostile sessions may hold all memory, and then the call is refused; never may it hang.
        assert!(
            self.ended[before..].iter().all(|ended| *ended),
            "an honest server's answer is heard"
        );
        self.finish_without_honest();
    }

    fn finish_without_honest(&mut self) {
        self.check();
        self.core.shutdown(&mut self.out);
        self.out.flush();
        self.is_willing = false;
        self.end_turn();
        self.out = Outbox::default();
        assert!(self.ended.iter().all(|ended| *ended), "every call has ended");
        assert_eq!(self.core.sessions(), (0, 0));
        assert_eq!(self.core.pool_stats().in_use, 0, "all memory is back");
        self.core.check_invariants();
    }
}

/// The client has sent a packet of a request.
fn note_request(seen: &mut [Seen], header: &Header) {
    let known = seen.iter_mut().find(|session| server_id(session.client) == header.connection);
    let (Some(session), Kind::Request) = (known, header.kind) else { return };
    let slot = &mut session.slots[header.request.to_u32() as usize % 8];
    if slot.number != header.request.to_u32() || slot.packets == 0 {
        let packets = request_layout(&session.terms, header.size).packets();
        *slot = Slot { number: header.request.to_u32(), packets, ..Slot::default() };
    }
    slot.seen = slot.seen.max(header.packet.get() + 1);
}

const REFUSALS: [Refusal; 4] =
    [Refusal::Version, Refusal::Full, Refusal::NotListening, Refusal::Parameters];

/// The server's name for a client's session: the client's, with the role changed. An attacker may name
/// its sessions as it likes.
fn server_id(client: ConnectionId) -> ConnectionId {
    ConnectionId::new(client.steer(), true, client.index(), client.generation())
}

/// The way back.
fn honest_client(server: ConnectionId) -> Option<ConnectionId> {
    let client = ConnectionId::new(server.steer(), false, server.index(), server.generation());
    server.is_server_role().then_some(client)
}

/// What a server says that was agreed.
fn parameters(input: &mut Input<'_>) -> Parameters {
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
