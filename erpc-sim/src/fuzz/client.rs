//! A hostile client, packet by packet, against a live server.
//!
//! Sessions open with the correct handshake, so that the later packets reach a server that accepts
//! them. Most fields are true unless the input changes them, so that requests complete, responses
//! are pulled and slots are reused.

use std::collections::VecDeque;
use std::sync::Arc;

use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{
    Acceptor, Body, ClientId, EndpointConfig, Event, ListenGroup, Notice, QueueWait, Request,
    RequestHandle, ResponseBuffer,
};
use erpc_core::status::{Code, Status};
use erpc_core::time::Instant;
use erpc_core::transport::RxPacket;
use erpc_core::wire::control::{Control, Cookie, Parameters};
use erpc_core::wire::{self, ConnectionId, Kind, PacketLayout};

use super::harness::{
    self, AttackerSession, CREDITS, HONEST, Harness, MAX_SESSIONS, Place, Side, Slot,
};
use super::input::Input;
use super::packet_mutator::STRANGER;
use super::steps::client::{CANCEL, DONE, HELLO, OPEN, PULL};
use super::{MAX_MESSAGE, pattern};
use crate::SimRoute;
use crate::hostile::craft::{self, Craft, PARAMETERS, request_layout};

/// The attacker's two addresses. The attacker receives at both.
const LIARS: [SimRoute; 2] = [SimRoute::new(1, 7), SimRoute::new(1, 8)];

/// The lengths of the handler's responses, in bytes.
const RESPONSES: [usize; 10] = [0, 8, 700, 1_024, 1_025, 1_448, 3_000, 9_000, 20_000, 40_000];

/// Plays a hostile client against a server endpoint. Checks after every step that all packets are
/// counted, requests are delivered once and complete, memory stays within its limit, and answers
/// are bounded. At the end an honest client's call must be served.
///
/// # Panics
/// Panics if a check fails or the endpoint panics.
pub fn hostile_client(data: &[u8]) {
    harness::play::<HostileClients>(data);
}

/// A request that the handler has not answered yet.
struct Waiting {
    handle: RequestHandle,
    /// The request's body, if the handler keeps it until the answer, as a worker thread does.
    body: Option<MsgBuf>,
    buffer: Option<ResponseBuffer>,
}

/// The clients of the server under test, and the server's handler.
pub(super) struct HostileClients {
    honest: Option<AttackerSession>,
    /// The last `Hello` that the server has answered with a cookie: the source address, the
    /// attacker's id of the session, and the cookie.
    challenged: Option<(SimRoute, ConnectionId, Cookie)>,
    handed: Vec<RequestHandle>,
    waiting: VecDeque<Waiting>,
    /// Requests whose cancellation was reported to the handler.
    cancelled: Vec<RequestHandle>,
    /// Clients whose end was reported to the handler.
    gone: Vec<ClientId>,
}

impl Side for HostileClients {
    const MESSAGES: &'static [Kind] = &[Kind::Request];
    const AUX: u32 = 7;
    const SIZES: &'static [u32] = &[0, 8, 32, 1_448, 1_449, 4_000, 9_000, 20_000, 40_000, 40_001];
    const STRIDE: u32 = 8;
    const AT_ONCE: usize = harness::BURST;
    const SENDERS: &'static [SimRoute] = &[LIARS[0], LIARS[1], STRANGER];
    const ANSWERS: usize = CREDITS as usize;
    /// When the path to a new client is known, the server answers this client, and tells each
    /// session its smaller window in one packet.
    const ROUTED: usize = 1 + MAX_SESSIONS;
    /// When time has passed, the server sends at most one ping per session.
    const EXPIRED: usize = MAX_SESSIONS;

    fn config(common: EndpointConfig, _: u8) -> EndpointConfig {
        common.session_memory_limit(2 * MAX_MESSAGE)
    }

    fn new() -> Self {
        Self {
            honest: None,
            challenged: None,
            handed: Vec::new(),
            waiting: VecDeque::new(),
            cancelled: Vec::new(),
            gone: Vec::new(),
        }
    }

    fn begin(harness: &mut Harness<Self>, seed: u64, how: u8) {
        let secret = u128::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let group = ListenGroup::new(secret.to_le_bytes(), vec![0]);
        harness.core.listen(Acceptor::new(Arc::new(group), 0));
        harness.open(HONEST, ConnectionId::new(0, false, 1, 0x0A11_CE00), PARAMETERS);
        let integrity = how & 4 != 0;
        harness.open(LIARS[0], client_id(0), Parameters { integrity, ..PARAMETERS });
        if how & 2 != 0 {
            let terms = Parameters { eager: 1_448, credits: 1_024, ..PARAMETERS };
            harness.open(LIARS[1], client_id(1), terms);
        }
    }

    fn layout(terms: &Parameters, size: u32) -> PacketLayout {
        request_layout(terms, size)
    }

    fn step(harness: &mut Harness<Self>, what: u8, place: Place, input: &mut Input<'_>) {
        match what {
            PULL => harness.pull(place, input),
            DONE => harness.done(place, input),
            HELLO => harness.hello(LIARS[place.session], client_id(input.u8())),
            OPEN => harness.open_again(input),
            CANCEL => harness.cancel(place, input),
            _ => harness.answer(input),
        }
    }

    fn heard(harness: &mut Harness<Self>, from: SimRoute, event: Event<'_, SimRoute>) {
        match event {
            Event::Request(request) => {
                assert_eq!(request.peer, from);
                harness.handle(request);
            }
            Event::Cancelled(handle) => harness.note_cancel(handle),
            Event::None | Event::Reply { .. } => {}
        }
    }

    fn turn_ends(harness: &mut Harness<Self>, last: usize) {
        assert!(last <= harness.burst, "a packet causes at most one credit return");
        while let Some(notice) = harness.core.pop_notice() {
            match notice {
                Notice::Cancelled(handle) => harness.note_cancel(handle),
                Notice::ClientCame(_) => {}
                Notice::ClientGone(client, _) => {
                    assert!(!harness.side.gone.contains(&client), "a client is gone at most once");
                    harness.side.gone.push(client);
                }
                other => panic!("a server has no calls: {other:?}"),
            }
        }
    }

    fn learn(harness: &mut Harness<Self>) {
        let (mut opened, mut asked) = (Vec::new(), None);
        for (to, packet) in harness.out.packets() {
            match craft::read_control(packet) {
                Some((header, Control::Opened { server, parameters })) => {
                    let ids = (server, header.connection);
                    opened.push(AttackerSession::new::<Self>(to, ids, parameters));
                }
                Some((header, Control::Ping { .. })) if to == HONEST => {
                    asked = Some(header.request.to_u32());
                }
                _ => {}
            }
        }
        harness.out.clear();
        for session in opened {
            if session.route == HONEST {
                harness.side.honest = Some(session);
            } else if harness.sessions.iter().all(|known| known.to != session.to) {
                harness.admit(session);
            }
        }
        if let (Some(nonce), Some(honest)) = (asked, &harness.side.honest) {
            let pong = craft::control(honest.to, nonce, Control::Pong);
            harness.now = harness.now.plus_nanos(1_000);
            let packet = RxPacket { route: HONEST, bytes: &pong, marked: false };
            let sink = |_: &mut _, _: &mut _, event| assert!(matches!(event, Event::None));
            let wait = QueueWait::default();
            harness.core.receive(harness.now, wait, packet, &mut harness.out, sink);
        }
    }

    fn check(harness: &Harness<Self>) {
        let (opened, accepted) = harness.core.sessions();
        assert!(opened == 0 && accepted <= MAX_SESSIONS);
        assert_eq!(harness.core.stats().requests, harness.side.handed.len() as u64);
    }

    fn honest_call(harness: &mut Harness<Self>) {
        let honest = harness.side.honest.as_ref().expect("the honest client's session is open");
        let client = honest.own;
        let craft = Craft { aux: Self::AUX, size: 8, ..honest.craft(Kind::Request) };
        harness.packet = craft.bytes(pattern(0, 8));
        let before = harness.side.handed.len();
        harness.feed(HONEST);
        assert_eq!(harness.side.handed.len(), before + 1, "the handler gets an honest call");
        let Some(Waiting { handle, .. }) = harness.side.waiting.pop_back() else {
            unreachable!("the handler got it just now")
        };
        harness.respond(handle, None, Some(8), false);
        let is_answer = |(to, packet): (SimRoute, &[u8])| {
            let Some((header, _)) = craft::read(packet) else { return false };
            let is_reply = matches!(header.kind, Kind::Response | Kind::Failure);
            to == HONEST && header.connection == client && is_reply
        };
        assert!(harness.out.packets().any(is_answer), "an honest call is answered");
        harness.end_turn();
    }

    fn gone(harness: &mut Harness<Self>) {
        harness.side.waiting.clear();
    }
}

impl Harness<HostileClients> {
    /// Opens a session with the correct handshake.
    fn open(&mut self, from: SimRoute, client: ConnectionId, parameters: Parameters) {
        self.hello(from, client);
        self.end_turn();
        let Some((_, _, cookie)) = self.side.challenged else { return };
        self.send_open(from, Control::Open { client, cookie, parameters });
        self.end_turn();
    }

    fn hello(&mut self, from: SimRoute, client: ConnectionId) {
        let hello = Control::Hello { client, low: 1, high: 1 };
        self.packet = craft::control(ConnectionId::endpoint(0), 0, hello);
        self.feed(from);
        let answer = self.out.packets().last().and_then(|(_, packet)| craft::read_control(packet));
        if let Some((_, Control::Challenge { cookie, .. })) = answer {
            self.side.challenged = Some((from, client, cookie));
        }
    }

    fn send_open(&mut self, from: SimRoute, open: Control) {
        self.packet = craft::control(ConnectionId::endpoint(0), 0, open);
        self.feed(from);
    }

    /// Sends an `Open` for the session of the last `Hello` or for another session, with the cookie
    /// of that `Hello` or with a changed cookie.
    fn open_again(&mut self, input: &mut Input<'_>) {
        let Some((from, client, mut cookie)) = self.side.challenged else { return };
        let parameters = harness::terms(input);
        let other = input.u8();
        cookie[usize::from(other >> 4)] ^= if other & 8 != 0 { 1 } else { 0 };
        let client = if other & 1 != 0 { client_id(other) } else { client };
        let from = if other & 2 != 0 { STRANGER } else { from };
        self.send_open(from, Control::Open { client, cookie, parameters });
    }

    /// Sends a request for response.
    fn pull(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let count = 1 + u32::from(input.u8() % 8);
        let craft = Craft {
            packet: input.near(1),
            request: input.near(session.slots[place.slot].number),
            size: input.near(count),
            ..session.craft(Kind::RequestForResponse)
        };
        self.send(place, craft, &[], input);
    }

    fn done(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let mut body = Vec::with_capacity(48);
        for at in 0..usize::from(input.u8() % 10) {
            let number = session.slots[(place.slot + at) % 8].number;
            body.extend_from_slice(&input.near(number).to_le_bytes());
        }
        let craft = session.craft(Kind::Done);
        self.send(place, craft, &body, input);
    }

    /// Cancels the slot's current request, or its next one.
    fn cancel(&mut self, place: Place, input: &mut Input<'_>) {
        let is_next = input.u8() & 1 != 0;
        let Some(session) = self.session_mut(place) else { return };
        let at = &mut session.slots[place.slot];
        if is_next {
            *at = Slot::idle(at.number.wrapping_add(HostileClients::STRIDE));
        }
        let number = at.number;
        let craft = Craft {
            packet: input.near(wire::CANCEL),
            request: input.near(number),
            ..session.craft(Kind::Done)
        };
        self.send(place, craft, &[], input);
    }

    /// The handler learns that a request is cancelled.
    fn note_cancel(&mut self, handle: RequestHandle) {
        let side = &mut self.side;
        assert!(
            side.handed.contains(&handle),
            "a request is not cancelled before the handler gets it"
        );
        assert!(!side.cancelled.contains(&handle), "a request is cancelled at most once");
        assert!(
            !side.gone.contains(&handle.client()),
            "a client is gone only after its requests are cancelled"
        );
        side.cancelled.push(handle);
    }

    fn handle(&mut self, request: Request<'_, SimRoute>) {
        let Request { handle, body, extended, deadline, buffer, .. } = request;
        assert!(
            extended || deadline == Instant::NEVER,
            "only a request with an extension has a deadline"
        );
        assert!(!self.side.handed.contains(&handle), "the handler gets a request once");
        self.assert_intact(body.as_slice());
        self.side.handed.push(handle);
        let body = if let Body::Message(message) = body { Some(message) } else { None };
        self.side.waiting.push_back(Waiting { handle, body, buffer });
    }

    /// The handler answers a waiting request, or any request that it has ever got, even one that it
    /// has already answered.
    fn answer(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        let before = self.out.load().0;
        if how >= 250 {
            let handle = self.side.handed.get(usize::from(input.u8())).copied();
            let Some(handle) = handle else { return };
            let Ok(response) = self.core.pool().alloc(8) else { return };
            self.core.respond(self.now, handle, response, false, &mut self.out);
            // If the request was waiting, this response is its answer, and the core drops any later
            // answer to it.
        } else {
            let waiting = &mut self.side.waiting;
            let waiting = if how & 0x40 != 0 { waiting.pop_back() } else { waiting.pop_front() };
            let Some(Waiting { handle, body, buffer }) = waiting else { return };
            let len = RESPONSES.get(usize::from(how & 0xF)).copied();
            self.respond(handle, buffer, len, how & 0x20 != 0);
            if let Some(body) = body {
                self.core.pool().recycle(body);
            }
        }
        assert!(self.out.load().0 <= before + 1, "an answer is one packet until more is pulled");
    }

    /// Answers with `len` bytes, or with an error if `None`.
    fn respond(
        &mut self,
        handle: RequestHandle,
        buffer: Option<ResponseBuffer>,
        len: Option<usize>,
        is_detached: bool,
    ) {
        let Some(len) = len else {
            let status = Status::new(Code::NotFound, "not here").with_details(&[7; 40]);
            return self.core.respond_status(self.now, handle, &status, &mut self.out);
        };
        let response = if is_detached {
            MsgBuf::detached(len)
        } else {
            self.core.response_buffer(buffer, len).ok()
        };
        match response {
            Some(mut response) => {
                harness::fill(&mut response, len);
                self.core.respond(self.now, handle, response, false, &mut self.out);
            }
            None => {
                let status = Status::new(Code::ResourceExhausted, "no memory");
                self.core.respond_status(self.now, handle, &status, &mut self.out);
            }
        }
    }
}

/// The attacker's id of a session. The attacker may choose all its parts, including the steer byte.
fn client_id(number: u8) -> ConnectionId {
    ConnectionId::new(number >> 6, false, u32::from(number & 3), 0x5EED)
}
