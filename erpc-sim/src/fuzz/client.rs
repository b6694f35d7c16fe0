//! A hostile client, packet by packet, against a live server.
//!
//! The input is a sequence of steps. Sessions are opened by the true handshake, so that what follows
//! meets a server that believes in them; most fields are true unless the input says otherwise, so that
//! requests complete, responses are pulled and slots are used again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{
    Acceptor, Body, Core, EndpointConfig, Event, ListenGroup, Local, Request, RequestHandle,
};
use erpc_core::service::{Code, Status};
use erpc_core::time::Instant;
use erpc_core::wire::control::{Control, Cookie, Parameters, Refusal};
use erpc_core::wire::{ConnectionId, HEADER_LEN, Kind, ReplyInfo};

use super::input::Input;
use super::mischief::{Mischief, STRANGER};
use super::outbox::Outbox;
use super::{MAX_MESSAGE, MEMORY, is_pattern, pattern, seed_of};
use crate::SimRoute;
use crate::hostile::craft::{self, Craft, PARAMETERS, request_layout};

/// The attacker's addresses; it receives at both.
const LIARS: [SimRoute; 2] = [SimRoute::new(1, 7), SimRoute::new(1, 8)];
/// A client that tells the truth and must not notice anything.
const HONEST: SimRoute = SimRoute::new(2, 2);

const CREDITS: u16 = 8;
const MAX_SESSIONS: usize = 4;
const BURST: usize = 32;
/// Steps of one input, at most.
const MAX_STEPS: usize = 256;

/// Request sizes: none, small, one packet exactly, just more, several, the largest, too large.
const REQUESTS: [u32; 10] = [0, 8, 32, 1_448, 1_449, 4_000, 9_000, 20_000, 40_000, 40_001];
const RESPONSES: [usize; 10] = [0, 8, 700, 1_024, 1_025, 1_448, 3_000, 9_000, 20_000, 40_000];
/// Nothing, less than a tick, a few, a retransmission timeout, pings, death, an hour.
const PAUSES: [u64; 8] =
    [1, 1_000, 100_000, 5_000_000, 100_000_000, 1_600_000_000, 4_000_000_000, 3_600_000_000_000];

/// Plays a hostile client against a server endpoint, and checks the endpoint after every step: packets
/// add up, requests are handed out once each and whole, memory stays within its limit, answers are
/// bounded, and an honest client's call at the end is served.
///
/// # Panics
/// If one of these does not hold, or the endpoint panics.
pub fn hostile_client(data: &[u8]) {
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

/// What a client knows of a slot of its session.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The current request, and how it is cut.
    number: u32,
    size: u32,
    /// The next packet of it.
    next: u32,
}

/// A session from the client's side.
struct Admitted {
    route: SimRoute,
    client: ConnectionId,
    server: ConnectionId,
    terms: Parameters,
    slots: [Slot; 8],
}

/// A request that the handler has not answered.
struct Waiting {
    handle: RequestHandle,
    /// Kept until the answer, as a worker would.
    body: Option<MsgBuf>,
}

struct Stage {
    now: Instant,
    core: Core<SimRoute>,
    out: Outbox,
    liars: Vec<Admitted>,
    honest: Option<Admitted>,
    /// What the last `Hello` of the attacker brought: whose it was, and the cookie.
    challenged: Option<(SimRoute, ConnectionId, Cookie)>,
    mischief: Mischief,
    handed: Vec<RequestHandle>,
    waiting: VecDeque<Waiting>,
    /// Packets since the last end of a burst.
    burst: usize,
    packet: Vec<u8>,
}

impl Stage {
    fn new(seed: u64, how: u8) -> Self {
        let config = EndpointConfig::new()
            .credits(CREDITS)
            .max_message(MAX_MESSAGE as u32)
            .memory_limit(MEMORY)
            .session_memory_limit(2 * MAX_MESSAGE)
            .max_sessions(MAX_SESSIONS as u32)
            .ping_interval(Duration::from_secs(1))
            .liveness_timeout(Duration::from_secs(3))
            .seed(seed);
        let local = Local::from(super::capabilities());
        let mut core = Core::new(local, config, (0, 0)).expect("a valid configuration");
        let secret = u128::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        core.listen(Acceptor::new(Arc::new(ListenGroup::new(secret.to_le_bytes(), vec![0])), 0));
        let mut stage = Self {
            now: Instant::from_nanos(1_000_000_000),
            core,
            out: Outbox::new(how & 1 != 0),
            liars: Vec::new(),
            honest: None,
            challenged: None,
            mischief: Mischief::default(),
            handed: Vec::new(),
            waiting: VecDeque::new(),
            burst: 0,
            packet: Vec::new(),
        };
        stage.open(HONEST, ConnectionId::new(0, false, 1, 0x0A11_CE00), PARAMETERS);
        let integrity = how & 4 != 0;
        stage.open(LIARS[0], client_id(0), Parameters { integrity, ..PARAMETERS });
        if how & 2 != 0 {
            stage.open(
                LIARS[1],
                client_id(1),
                Parameters { eager: 1_448, credits: 1_024, ..PARAMETERS },
            );
        }
        stage
    }

    /// The true handshake.
    fn open(&mut self, from: SimRoute, client: ConnectionId, parameters: Parameters) {
        self.hello(from, client);
        self.end_turn();
        let Some((_, _, cookie)) = self.challenged else { return };
        self.send_open(from, client, cookie, parameters);
        self.end_turn();
    }

    fn hello(&mut self, from: SimRoute, client: ConnectionId) {
        let hello = Control::Hello { client, low: 1, high: 1 };
        self.packet = craft::control(ConnectionId::endpoint(0), 0, hello);
        self.feed(from);
        let answer = self.out.packets().last().and_then(|(_, packet)| craft::read_control(packet));
        if let Some((_, Control::Challenge { cookie, .. })) = answer {
            self.challenged = Some((from, client, cookie));
        }
    }

    fn send_open(
        &mut self,
        from: SimRoute,
        client: ConnectionId,
        cookie: Cookie,
        parameters: Parameters,
    ) {
        let open = Control::Open { client, cookie, parameters };
        self.packet = craft::control(ConnectionId::endpoint(0), 0, open);
        self.feed(from);
    }

    /// One step: the low half of its first byte says what, the high half at which session and slot.
    fn step(&mut self, input: &mut Input<'_>) {
        let op = input.u8();
        let (liar, slot) = (usize::from(op >> 7), usize::from(op >> 4 & 7));
        let liar = if liar < self.liars.len() { liar } else { 0 };
        match op & 0xF {
            0 => self.next_packet(liar, slot, input),
            1 => self.whole_request(liar, slot, input),
            2 => self.crafted_request(liar, slot, input),
            3 => self.pull(liar, slot, input),
            4 => self.done(liar, slot, input),
            5 => self.control(liar, input),
            6 => self.replay(input),
            7 => self.mutate(input),
            8 => self.raw(input),
            9 => self.pass(input),
            10 | 11 => self.answer(input),
            12 => self.end_turn(),
            13 => self.hello(LIARS[liar], client_id(input.u8())),
            14 => self.open_again(input),
            _ => self.crafted_data(liar, slot, input),
        }
        if self.burst >= BURST {
            self.end_turn();
        }
    }

    /// The next packet of a slot's request, or the first of its next one.
    fn next_packet(&mut self, liar: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.liars.get_mut(liar) else { return };
        let at = &mut session.slots[slot];
        if at.next >= request_layout(&session.terms, at.size).packets() {
            *at = Slot { number: at.number.wrapping_add(8), size: input.pick(&REQUESTS), next: 0 };
        }
        let at = *at;
        self.request_packet(liar, slot, at.next);
    }

    fn request_packet(&mut self, liar: usize, slot: usize, packet: u32) {
        let session = &mut self.liars[liar];
        let at = &mut session.slots[slot];
        let layout = request_layout(&session.terms, at.size);
        let range = layout.range(packet.min(layout.packets() - 1));
        let craft = Craft {
            packet,
            request: at.number,
            aux: 7,
            size: at.size,
            ..Craft::new(session.server, Kind::Request, &session.terms)
        };
        at.next = packet + 1;
        self.packet.clear();
        craft.append(pattern(range.start, range.len()), &mut self.packet);
        let from = session.route;
        self.feed(from);
    }

    /// A whole request, whatever the credits say.
    fn whole_request(&mut self, liar: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.liars.get_mut(liar) else { return };
        let at = &mut session.slots[slot];
        *at = Slot { number: at.number.wrapping_add(8), size: input.pick(&REQUESTS), next: 0 };
        for packet in 0..request_layout(&session.terms, at.size).packets() {
            self.request_packet(liar, slot, packet);
            if self.burst >= BURST {
                self.end_turn();
            }
        }
    }

    /// A request packet with fields near the truth.
    fn crafted_request(&mut self, liar: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.liars.get(liar) else { return };
        let at = session.slots[slot];
        let craft = Craft {
            packet: input.near(at.next),
            request: input.near(at.number),
            aux: input.near(7),
            size: input.near(at.size),
            ..Craft::new(session.server, Kind::Request, &session.terms)
        };
        let layout = request_layout(&session.terms, craft.size);
        let packet = (craft.packet & 0xFF_FFFF).min(layout.packets() - 1);
        let range = layout.range(packet);
        let len = input.near(range.len() as u32).min(2_000) as usize;
        self.packet.clear();
        craft.append(pattern(range.start, len), &mut self.packet);
        self.feed_as(liar, input);
    }

    /// A request for response.
    fn pull(&mut self, liar: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.liars.get(liar) else { return };
        let count = 1 + u32::from(input.u8() % 8);
        let craft = Craft {
            packet: input.near(1),
            request: input.near(session.slots[slot].number),
            size: input.near(count),
            ..Craft::new(session.server, Kind::RequestForResponse, &session.terms)
        };
        self.packet.clear();
        craft.append(&[], &mut self.packet);
        self.feed_as(liar, input);
    }

    fn done(&mut self, liar: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.liars.get(liar) else { return };
        let mut body = Vec::with_capacity(48);
        for at in 0..usize::from(input.u8() % 10) {
            let number = session.slots[(slot + at) % 8].number;
            body.extend_from_slice(&input.near(number).to_le_bytes());
        }
        let craft = Craft::new(session.server, Kind::Done, &session.terms);
        self.packet.clear();
        craft.append(&body, &mut self.packet);
        self.feed_as(liar, input);
    }

    /// Any control message, to the session, to the endpoint or to nobody.
    fn control(&mut self, liar: usize, input: &mut Input<'_>) {
        let Some(session) = self.liars.get(liar) else { return };
        let sender = input.pick(&[
            session.client,
            session.server,
            ConnectionId::from_u64(0x0BAD_0BAD_0000_0100),
        ]);
        let to = match input.u8() {
            0..=199 => session.server,
            200..=219 => ConnectionId::endpoint(0),
            220..=239 => session.client,
            _ => ConnectionId::new(0, true, input.u32(), input.u32()),
        };
        let message = match input.u8() % 10 {
            0 => Control::Ping { sender },
            1 => Control::Pong,
            2 => Control::Closed,
            3 => Control::Challenge { cookie: [1; 16], port: 9, steer: input.u8() },
            4 => Control::Opened { server: sender, parameters: PARAMETERS },
            5 => Control::Refused { reason: Refusal::Full, low: 1, high: 1 },
            6 => Control::Hello { client: sender, low: 1, high: u16::from(input.u8()) },
            7 => Control::Open { client: sender, cookie: [2; 16], parameters: PARAMETERS },
            8 => Control::Reset { unknown: sender },
            _ => Control::Close { sender },
        };
        self.packet.clear();
        self.packet
            .extend_from_slice(message.emit(to, 5, ReplyInfo::from_u32(input.u32())).as_bytes());
        self.feed_as(liar, input);
    }

    /// Any kind of packet, any fields.
    fn crafted_data(&mut self, liar: usize, slot: usize, input: &mut Input<'_>) {
        let Some(session) = self.liars.get(liar) else { return };
        let ids = [session.server, session.client, ConnectionId::endpoint(0)];
        let number = session.slots[slot].number;
        self.mischief.any_packet(input, ids, number, &mut self.packet);
        self.feed_as(liar, input);
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

    /// Bytes that need not be a packet at all.
    fn raw(&mut self, input: &mut Input<'_>) {
        let from =
            self.mischief.any_bytes(input, &[LIARS[0], LIARS[1], STRANGER], &mut self.packet);
        self.feed(from);
    }

    /// Time passes, in one leap.
    fn pass(&mut self, input: &mut Input<'_>) {
        self.end_turn();
        self.now = self.now.plus_nanos(input.pick(&PAUSES));
        self.core.expire(self.now, &mut self.out);
        assert!(self.out.load().0 <= MAX_SESSIONS, "one ping for each session at most");
        self.end_turn();
    }

    /// The handler answers one of the requests that wait, or one that it has answered.
    fn answer(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        let before = self.out.load().0;
        if how >= 250 {
            let Some(handle) = self.handed.get(usize::from(input.u8())).copied() else { return };
            let Ok(response) = self.core.pool().alloc(8) else { return };
            self.core.respond(self.now, handle, response, &mut self.out);
            // It may have been waiting: then it has its answer now, and the later one is dropped.
        } else {
            let newest = how & 0x40 != 0;
            let waiting = if newest { self.waiting.pop_back() } else { self.waiting.pop_front() };
            let Some(Waiting { handle, body }) = waiting else { return };
            self.respond(handle, RESPONSES.get(usize::from(how & 0xF)).copied(), how & 0x20 != 0);
            if let Some(body) = body {
                self.core.pool().recycle(body);
            }
        }
        assert!(self.out.load().0 <= before + 1, "an answer is one packet until more is pulled");
    }

    fn respond(&mut self, handle: RequestHandle, len: Option<usize>, is_detached: bool) {
        let Some(len) = len else {
            let status = Status::new(Code::NotFound, "not here").with_details(&[7; 40]);
            return self.core.respond_status(self.now, handle, &status, &mut self.out);
        };
        let response = if is_detached {
            MsgBuf::detached(len)
        } else {
            self.core.response_buffer(&handle, len).ok()
        };
        match response {
            Some(mut response) => {
                (0..len).step_by(4_096).for_each(|at| {
                    response.put_slice(pattern(at, (len - at).min(4_096)));
                });
                self.core.respond(self.now, handle, response, &mut self.out);
            }
            None => {
                let status = Status::new(Code::ResourceExhausted, "no memory");
                self.core.respond_status(self.now, handle, &status, &mut self.out);
            }
        }
    }

    /// Another session, or the same once more; with the cookie that it got, or with a changed one.
    fn open_again(&mut self, input: &mut Input<'_>) {
        let Some((from, client, mut cookie)) = self.challenged else { return };
        let parameters = Parameters {
            max_datagram: input.near(PARAMETERS.max_datagram),
            max_message: input.near(PARAMETERS.max_message),
            eager: input.near(PARAMETERS.eager),
            window: input.near(PARAMETERS.window),
            credits: input.near(8) as u16,
            charge_model: input.near(0) as u8,
            integrity: input.u8() & 1 != 0,
        };
        let other = input.u8();
        cookie[usize::from(other >> 4)] ^= if other & 8 != 0 { 1 } else { 0 };
        let client = if other & 1 != 0 { client_id(other) } else { client };
        let from = if other & 2 != 0 { STRANGER } else { from };
        self.send_open(from, client, cookie, parameters);
    }

    /// Sends what is in `self.packet` from the session's address or, rarely, another.
    fn feed_as(&mut self, liar: usize, input: &mut Input<'_>) {
        let from = match input.u8() {
            0..=229 => self.liars[liar].route,
            230..=242 => LIARS[0],
            _ => STRANGER,
        };
        self.feed(from);
    }

    /// The server receives what is in `self.packet`.
    fn feed(&mut self, from: SimRoute) {
        let packet = std::mem::take(&mut self.packet);
        let before = self.out.load();
        self.burst += 1;
        let event = self.core.receive(self.now, from, &packet, &mut self.out);
        if let Event::Request(request) = event {
            assert_eq!(request.peer, from);
            self.handle(request);
        }
        let (packets, bytes) = self.out.load();
        let (packets, bytes) = (packets - before.0, bytes - before.1);
        assert!(packets <= usize::from(CREDITS), "{packets} packets in answer to one");
        if from == STRANGER {
            assert!(packets <= 1 && bytes <= packet.len(), "{bytes} bytes to a stranger");
        }
        if from != HONEST && packet.len() >= HEADER_LEN {
            self.mischief.note(from, &packet);
        }
        self.packet = packet;
    }

    fn handle(&mut self, request: Request<'_, SimRoute>) {
        let Request { handle, body, .. } = request;
        assert!(!self.handed.contains(&handle), "a request is handed out once");
        assert!(body.as_slice().len() <= MAX_MESSAGE);
        assert!(
            self.mischief.has_changed_bodies || is_pattern(body.as_slice()),
            "a request as it was sent"
        );
        self.handed.push(handle);
        let body = if let Body::Message(message) = body { Some(message) } else { None };
        self.waiting.push_back(Waiting { handle, body });
    }

    /// The end of a turn of the loop.
    fn end_turn(&mut self) {
        let before = self.out.load().0;
        self.core.end_of_burst(self.now, &mut self.out);
        assert!(self.out.load().0 <= before + self.burst, "at most one credit return per packet");
        while self.core.next_unrouted().is_some() {
            let before = self.out.load().0;
            self.core.routed(self.now, 1_472, &mut self.out);
            assert!(
                self.out.load().0 <= before + 1 + MAX_SESSIONS,
                "an answer, and a smaller window"
            );
        }
        assert!(self.core.pop_notice().is_none(), "a server has no calls");
        self.out.doorbell_rings();
        self.burst = 0;
        self.learn();
    }

    /// What the clients learn from the packets that came back.
    fn learn(&mut self) {
        let mut asked = None;
        for (to, packet) in self.out.packets() {
            match craft::read_control(packet) {
                Some((header, Control::Opened { server, parameters: terms })) => {
                    let known =
                        self.liars.iter().chain(&self.honest).any(|known| known.server == server);
                    let slots = std::array::from_fn(|at| Slot {
                        number: (at as u32).wrapping_sub(8),
                        size: 0,
                        next: 1,
                    });
                    let session =
                        Admitted { route: to, client: header.connection, server, terms, slots };
                    if to == HONEST {
                        self.honest = Some(session);
                    } else if !known {
                        self.liars.insert(0, session);
                        self.liars.truncate(2);
                    }
                }
                Some((header, Control::Ping { .. })) if to == HONEST => {
                    asked = Some(header.request.to_u32())
                }
                _ => {}
            }
        }
        self.out.clear();
        if let (Some(nonce), Some(honest)) = (asked, &self.honest) {
            let pong = craft::control(honest.server, nonce, Control::Pong);
            self.now = self.now.plus_nanos(1_000);
            let event = self.core.receive(self.now, HONEST, &pong, &mut self.out);
            assert!(matches!(event, Event::None));
        }
    }

    /// What holds after every step.
    fn check(&mut self) {
        self.core.check_invariants();
        let (opened, accepted) = self.core.sessions();
        assert!(opened == 0 && accepted <= MAX_SESSIONS);
        let pool = self.core.pool_stats();
        assert!(pool.in_use_bytes + pool.idle_bytes <= MEMORY, "memory within its limit");
        assert_eq!(self.core.stats().requests, self.handed.len() as u64);
    }

    /// The honest client calls and is served; then everybody goes, and nothing is left.
    fn finish(&mut self) {
        self.end_turn();
        let honest = self.honest.as_ref().expect("the honest client's session opened");
        let client = honest.client;
        let craft =
            Craft { aux: 7, size: 8, ..Craft::new(honest.server, Kind::Request, &honest.terms) };
        self.packet = craft.bytes(pattern(0, 8));
        let before = self.handed.len();
        self.feed(HONEST);
        assert_eq!(self.handed.len(), before + 1, "an honest call is handed out");
        let Some(Waiting { handle, .. }) = self.waiting.pop_back() else {
            unreachable!("it was handed out just now")
        };
        self.respond(handle, Some(8), false);
        let answers = |(to, packet): (SimRoute, &[u8])| {
            let header = craft::read(packet).map(|(header, _)| header);
            to == HONEST
                && header.is_some_and(|header| {
                    header.connection == client
                        && matches!(header.kind, Kind::Response | Kind::Failure)
                })
        };
        assert!(self.out.packets().any(answers), "an honest call is answered");
        self.end_turn();
        self.check();
        self.core.shutdown(&mut self.out);
        self.waiting.clear();
        self.out = Outbox::default();
        assert_eq!(self.core.sessions(), (0, 0));
        assert_eq!(self.core.pool_stats().in_use, 0, "all memory is back");
        self.core.check_invariants();
    }
}

/// The attacker's names for its sessions: it chooses them as it likes, steer byte included.
fn client_id(number: u8) -> ConnectionId {
    ConnectionId::new(number >> 6, false, u32::from(number & 3), 0x5EED)
}
