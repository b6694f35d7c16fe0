//! A hostile server, packet by packet, against a live client with calls in flight.
//!
//! The server reads the client's packets, so it knows the ids, the request numbers and how much of
//! each request it has received. Most fields are true unless the input changes them, so that calls
//! complete, responses are pulled and slots are reused.

use std::collections::VecDeque;

use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{
    Body, CallError, Cause, DEFAULT_SLOTS, EndpointConfig, Event, Integrity, NewCall, Notice,
    Reply, SessionEvent, SessionId,
};
use erpc_core::time::Instant;
use erpc_core::transport::MIN_DATAGRAM;
use erpc_core::wire::control::{Control, Parameters, Refusal};
use erpc_core::wire::extension::EXTENSION_HEAD;
use erpc_core::wire::{ANNOUNCEMENT, ConnectionId, Header, HeaderError, Kind, PacketLayout};

use super::harness::{
    self, AttackerSession, BURST, CREDITS, HONEST, Harness, MAX_SESSIONS, Place, Side, Slot,
};
use super::input::Input;
use super::packet_mutator::STRANGER;
use super::steps::server::{ACCEPTED, CALL, HANDSHAKE, LEAVE, RETURN};
use crate::SimRoute;
use crate::hostile::MaliciousServer;
use crate::hostile::craft::{self, Craft, PARAMETERS, request_layout, response_layout};

/// The attacker's address, and another host that answers from the same port.
const LIAR: SimRoute = SimRoute::new(1, 1);
const LIARS_OTHER: SimRoute = SimRoute::new(5, 1);

/// The most calls that wait in a session.
const QUEUE: usize = 4;
/// The most handshake messages that wait for an answer.
const ASKED: usize = 8;

/// The lengths of the client's requests, in bytes.
const REQUESTS: [usize; 8] = [8, 0, 32, 1_448, 1_449, 4_000, 20_000, 40_000];

const REFUSALS: [Refusal; 6] = [
    Refusal::Version,
    Refusal::Full,
    Refusal::NotListening,
    Refusal::Parameters,
    Refusal::HostFull,
    Refusal::Draining,
];

/// Plays a hostile server against a client endpoint. Checks after every step that all packets are
/// counted, each call ends at most once and returns its request, memory stays within its limit, and
/// the number of sent packets is bounded. At the end a call to an honest server must work, and
/// every call must have ended.
///
/// # Panics
/// Panics if a check fails or the endpoint panics.
pub fn hostile_server(data: &[u8]) {
    harness::play::<HostileServers>(data);
}

/// A `Hello` of the client, or an `Open` with the parameters that it proposes.
struct Asked {
    route: SimRoute,
    client: ConnectionId,
    nonce: u32,
    proposed: Option<Parameters>,
}

/// The client's servers, and its user.
pub(super) struct HostileServers {
    ids: Vec<SessionId>,
    /// Handshake messages that were not answered yet.
    asked: VecDeque<Asked>,
    /// The server answers handshake messages correctly and immediately.
    is_willing: bool,
    /// Whether each accepted call has ended; the index is its token.
    ended: Vec<bool>,
}

impl Side for HostileServers {
    const MESSAGES: &'static [Kind] = &[Kind::Response, Kind::Failure];
    const AUX: u32 = 0;
    const SIZES: &'static [u32] = &[8, 0, 512, 513, 1_024, 1_025, 3_000, 20_000, 40_000, 40_001];
    const STRIDE: u32 = 0;
    /// One packet per turn: after each packet of a response, the client has a turn in which it can
    /// pull further packets.
    const AT_ONCE: usize = 1;
    const SENDERS: &'static [SimRoute] = &[LIAR, LIARS_OTHER, STRANGER];
    /// One packet from a server can allow every session of the endpoint to send packets for all its
    /// credits.
    const ANSWERS: usize = MAX_SESSIONS * CREDITS as usize;
    const ROUTED: usize = MAX_SESSIONS * CREDITS as usize;
    /// Per session: packets for all credits, one packet per slot that ends a call, a ping, and a
    /// handshake message.
    const EXPIRED: usize = MAX_SESSIONS * (CREDITS as usize + DEFAULT_SLOTS + 2);

    fn config(common: EndpointConfig, how: u8) -> EndpointConfig {
        let integrity = if how & 8 != 0 { Integrity::Always } else { Integrity::Auto };
        common.queue_limit(QUEUE).eager(1_024).integrity(integrity)
    }

    fn new() -> Self {
        Self { ids: Vec::new(), asked: VecDeque::new(), is_willing: true, ended: Vec::new() }
    }

    fn begin(harness: &mut Harness<Self>, _: u64, how: u8) {
        harness.side.is_willing = how & 2 == 0;
        harness.connect(LIAR);
        if how & 4 != 0 {
            harness.connect(LIAR);
        }
        for size in [8, 1_449] {
            harness.call((0, 0), size);
        }
        harness.end_turn();
    }

    fn layout(terms: &Parameters, size: u32) -> PacketLayout {
        response_layout(terms, size)
    }

    fn step(harness: &mut Harness<Self>, what: u8, place: Place, input: &mut Input<'_>) {
        match what {
            RETURN => harness.credit_return(place, input),
            ACCEPTED => harness.accepted(place, input),
            CALL => harness.call((place.session, place.slot), input.pick(&REQUESTS)),
            LEAVE if place.slot == 0 => harness.disconnect(place.session, input),
            LEAVE => harness.cancel(place.session, place.slot),
            HANDSHAKE => harness.answer_handshake(input),
            _ => harness.connect(LIAR),
        }
    }

    fn heard(harness: &mut Harness<Self>, _: SimRoute, event: Event<'_, SimRoute>) {
        match event {
            Event::None => {}
            Event::Request(_) | Event::Cancelled(_) => {
                unreachable!("this endpoint accepts no sessions")
            }
            Event::Reply { token, result, request } => {
                if let Ok(body) = &result {
                    harness.assert_intact(body.as_slice());
                }
                if let Ok(Reply { body: Body::Message(message), .. }) = result {
                    harness.core.pool().recycle(message);
                }
                harness.end(token, request);
            }
        }
    }

    fn turn_ends(harness: &mut Harness<Self>, _: usize) {
        while let Some(notice) = harness.core.pop_notice() {
            match notice {
                Notice::CallFailed { token, request, error } => {
                    assert!(
                        !matches!(error, CallError::Status(_)),
                        "a status arrives with a packet"
                    );
                    harness.end(token, request);
                }
                Notice::Session(id, SessionEvent::Closed(_)) => {
                    harness.side.ids.retain(|known| *known != id);
                }
                Notice::Session(..) => {}
                Notice::Cancelled(_) | Notice::ClientCame(_) | Notice::ClientGone(..) => {
                    unreachable!("this endpoint accepts no sessions")
                }
            }
        }
        let stats = harness.core.stats();
        let ended = harness.side.ended.iter().filter(|ended| **ended).count() as u64;
        assert_eq!(
            stats.responses + stats.failures,
            ended,
            "each end of a call is counted and reported"
        );
        let sent = harness.out.load().0;
        assert!(sent <= Self::EXPIRED + BURST * Self::ANSWERS, "{sent} packets in a turn");
    }

    /// Learns from the client's packets. A willing server answers handshakes.
    fn learn(harness: &mut Harness<Self>) {
        let mut honest = Vec::new();
        for (to, packet) in harness.out.packets() {
            let Some((header, _)) = craft::read(packet) else {
                // Only one kind of packet is unreadable here: the client's refusal of a `Hello` of
                // another version. The refusal's header has that version.
                let parsed = Header::parse(packet);
                assert!(
                    matches!(parsed, Err(HeaderError::Version(_))),
                    "a packet is sent: {parsed:?}"
                );
                continue;
            };
            let (route, nonce) = (to, header.request.to_u32());
            let (client, proposed) = match craft::read_control(packet) {
                _ if to == HONEST => {
                    honest.push(packet.to_vec());
                    continue;
                }
                Some((_, Control::Hello { client, .. })) => (client, None),
                Some((_, Control::Open { client, parameters, .. })) => (client, Some(parameters)),
                Some(_) => continue,
                None => {
                    note_request(&mut harness.sessions, &header);
                    continue;
                }
            };
            harness.side.asked.push_back(Asked { route, client, nonce, proposed });
        }
        harness.out.clear();
        harness.side.asked.truncate(ASKED);
        for packet in honest {
            harness.answer_honestly(&packet);
        }
        while harness.side.is_willing
            && let Some(asked) = harness.side.asked.pop_front()
        {
            harness.answer_truly(&asked);
        }
    }

    fn check(harness: &Harness<Self>) {
        let (opened, accepted) = harness.core.sessions();
        assert!(opened <= MAX_SESSIONS && accepted == 0);
        for id in &harness.side.ids {
            let Some(stats) = harness.core.session_stats(*id) else { continue };
            assert!(
                stats.credits <= CREDITS
                    && stats.in_flight + stats.quarantined <= usize::from(stats.slots)
                    && stats.queued <= QUEUE + 8
            );
        }
    }

    fn honest_call(harness: &mut Harness<Self>) {
        if harness.core.sessions().0 == MAX_SESSIONS {
            // There is no room for a session to the honest server. Close a session instead. Its
            // calls must end, too, although the hostile server may never answer them.
            let id = harness.side.ids.pop().expect("sessions have ids");
            return harness.core.disconnect(harness.now, id, &mut harness.out);
        }
        harness.side.is_willing = true;
        harness.side.asked.clear();
        harness.connect(HONEST);
        let before = harness.side.ended.len();
        harness.call((harness.side.ids.len() - 1, 0), 8);
        harness.end_turn();
        // The hostile sessions may hold all memory. Then the call is refused, but it must not hang.
        let ended = harness.side.ended[before..].iter().all(|ended| *ended);
        assert!(ended, "an honest server's answer ends the call");
    }

    fn gone(harness: &mut Harness<Self>) {
        harness.side.is_willing = false;
        harness.end_turn();
        assert!(harness.side.ended.iter().all(|ended| *ended), "every call has ended");
    }
}

impl Harness<HostileServers> {
    fn connect(&mut self, to: SimRoute) {
        if let Ok(id) = self.core.connect(self.now, to, &mut self.out) {
            self.side.ids.push(id);
        }
        self.end_turn();
    }

    fn disconnect(&mut self, session: usize, input: &mut Input<'_>) {
        let id = self.side.ids.get(session).copied();
        if let Some(id) = id.filter(|_| input.u8() >= 128) {
            self.core.disconnect(self.now, id, &mut self.out);
        }
    }

    /// Makes a call of `size` bytes. Kind 1 has an extension; kinds 2 and 3 have an extension with
    /// a deadline of 5 ms or 2 s. Other kinds, and requests too short for an extension, have none.
    fn call(&mut self, (session, kind): (usize, usize), size: usize) {
        let Some(id) = self.side.ids.get(session).copied() else { return };
        let Ok(mut request) = self.core.pool().alloc(size) else { return };
        harness::fill(&mut request, size);
        let token = self.side.ended.len() as u64;
        let deadline = match kind {
            2 => self.now.plus_nanos(5_000_000),
            3 => self.now.plus_nanos(2_000_000_000),
            _ => Instant::NEVER,
        };
        let extended = (1..=3).contains(&kind) && size >= EXTENSION_HEAD;
        let deadline = if extended { deadline } else { Instant::NEVER };
        let call = NewCall { extended, deadline, ..NewCall::new(7, request, token) };
        match self.core.call(self.now, id, call, &mut self.out) {
            Ok(()) => self.side.ended.push(false),
            Err(rejected) => self.core.pool().recycle(rejected.request),
        }
    }

    /// The user cancels the `ago`-th newest of its calls; 1 is the newest.
    fn cancel(&mut self, session: usize, ago: usize) {
        let Some(id) = self.side.ids.get(session).copied() else { return };
        let Some(token) = self.side.ended.len().checked_sub(ago) else { return };
        let cause = Cause::Cancelled;
        let found = self.core.cancel(self.now, id, token as u64, cause, &mut self.out);
        assert!(!(found && self.side.ended[token]), "an ended call cannot be cancelled");
        let again = self.core.cancel(self.now, id, token as u64, cause, &mut self.out);
        assert!(!again, "a call is cancelled at most once");
    }

    /// A call has ended. It must not end twice, and its request must be writable again.
    fn end(&mut self, token: u64, mut request: MsgBuf) {
        let ended = &mut self.side.ended[token as usize];
        assert!(!*ended, "call {token} ended twice");
        *ended = true;
        request.as_mut_slice().fill(0xEE);
        self.core.pool().recycle(request);
    }

    fn credit_return(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let at = session.slots[place.slot];
        let craft = Craft {
            packet: input.near(at.seen.min(at.packets.saturating_sub(1))),
            request: input.near(at.number),
            aux: input.near(0),
            ..session.craft(Kind::CreditReturn)
        };
        let how = input.u8();
        if how & 2 != 0 {
            return self.announce(place, how & 4 != 0, input);
        }
        let craft = Craft { size: u32::from(how & 1), ..craft };
        self.send(place, craft, &[], input);
    }

    /// Announces the slot's next message. Later steps send the message's packets, from the first
    /// on.
    fn announce(&mut self, place: Place, failure: bool, input: &mut Input<'_>) {
        self.next_message(place, input);
        let Some(session) = self.session(place) else { return };
        let at = session.slots[place.slot];
        let craft = Craft {
            packet: input.near(ANNOUNCEMENT),
            request: input.near(at.number),
            aux: input.near(0),
            size: input.near(at.size),
            extended: at.is_extended(),
            ..session.craft(if failure { Kind::Failure } else { Kind::Response })
        };
        self.send(place, craft, &[], input);
    }

    fn accepted(&mut self, place: Place, input: &mut Input<'_>) {
        let Some(session) = self.session(place) else { return };
        let craft = Craft {
            packet: input.near(0),
            request: input.near(session.slots[place.slot].number),
            aux: input.near(0),
            ..session.craft(Kind::Accepted)
        };
        self.send(place, craft, &[], input);
    }

    /// Answers the oldest unanswered handshake message, correctly or not.
    fn answer_handshake(&mut self, input: &mut Input<'_>) {
        let Some(asked) = self.side.asked.pop_front() else { return };
        let message = match (input.u8() % 4, asked.proposed) {
            (0, _) => Control::Refused { reason: input.pick(&REFUSALS), low: 0, high: 9 },
            (_, None) => Control::Challenge {
                cookie: [3; 16],
                port: input.pick(&[0, 0, 1, 77]),
                steer: input.u8() & 3,
                proof: 0,
            },
            (_, Some(_)) => Control::Opened {
                server: MaliciousServer::name(asked.client),
                parameters: harness::terms(input),
            },
        };
        let from = if input.u8() < 230 { asked.route } else { LIARS_OTHER };
        self.answer(&asked, message, from);
    }

    /// Answers a handshake message as an honest server does.
    fn answer_truly(&mut self, asked: &Asked) {
        let message = match asked.proposed {
            None => Control::Challenge { cookie: [3; 16], port: 0, steer: 0, proof: 0 },
            Some(parameters) => {
                Control::Opened { server: MaliciousServer::name(asked.client), parameters }
            }
        };
        self.answer(asked, message, asked.route);
    }

    fn answer(&mut self, asked: &Asked, message: Control, from: SimRoute) {
        if let Control::Opened { server, parameters: terms } = message {
            // Track the session only if its terms make sense. The client refuses other terms.
            let sane =
                (MIN_DATAGRAM as u32..=1_472).contains(&terms.max_datagram) && terms.eager > 0;
            let is_new = self.sessions.iter().all(|known| known.to != asked.client);
            if asked.route != HONEST && sane && is_new {
                self.admit(AttackerSession::new::<HostileServers>(
                    asked.route,
                    (asked.client, server),
                    terms,
                ));
            }
        }
        self.packet = craft::control(asked.client, asked.nonce, message);
        self.feed(from);
        self.end_turn();
    }

    /// Answers one packet as an honest server does.
    fn answer_honestly(&mut self, packet: &[u8]) {
        let Some((header, body)) = craft::read(packet) else { return };
        let (route, nonce) = (HONEST, header.request.to_u32());
        let (client, proposed) = match craft::read_control(packet) {
            Some((_, Control::Hello { client, .. })) => (client, None),
            Some((_, Control::Open { client, parameters, .. })) => (client, Some(parameters)),
            Some((_, Control::Ping { sender })) => {
                self.packet = craft::control(sender, nonce, Control::Pong);
                self.feed(HONEST);
                return self.end_turn();
            }
            Some(_) => return,
            None => return self.echo(&header, body),
        };
        self.answer_truly(&Asked { route, client, nonce, proposed });
    }

    /// Answers a request of one packet with the bytes of the request.
    fn echo(&mut self, header: &Header, body: &[u8]) {
        let id = header.connection;
        let client = ConnectionId::new(id.steer(), false, id.index(), id.generation());
        let craft = Craft {
            request: header.request.to_u32(),
            size: body.len() as u32,
            trailer: header.flags.trailer(),
            ..Craft::new(client, Kind::Response, &PARAMETERS)
        };
        self.packet.clear();
        craft.append(body, &mut self.packet);
        self.feed(HONEST);
        self.end_turn();
    }
}

/// Notes that the client has sent a packet of a request.
fn note_request(sessions: &mut [AttackerSession], header: &Header) {
    let known = sessions.iter_mut().find(|session| session.own == header.connection);
    let (Some(session), Kind::Request) = (known, header.kind) else { return };
    let number = header.request.to_u32();
    let slot = &mut session.slots[number as usize % 8];
    if slot.number != number || slot.packets == 0 {
        let packets = request_layout(&session.terms, header.size).packets();
        *slot = Slot { packets, ..Slot::idle(number) };
    }
    slot.seen = slot.seen.max(header.packet.get() + 1);
}
