//! How a session opens: with four messages, each of which may be lost, late or duplicated.

use super::craft::{PARAMETERS, emit};
use super::pair::{CLIENT, Pair, SERVER, STRANGER, TestRoute, acceptor_with, control, header, ms};
use crate::protocol::{
    CallError, Cause, ConnectError, DropReason, EndpointConfig, SessionEvent, SessionId,
};
use crate::transport::Route;
use crate::wire::ConnectionId;
use crate::wire::control::{Control, HELLO_LEN, Refusal};

/// A client that has started to connect, and the packets on the wire.
fn connecting() -> (Pair, SessionId) {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let session = pair.connect();
    (pair, session)
}

fn open(pair: &Pair, session: SessionId) -> bool {
    pair.sessions.get(&session) == Some(&SessionEvent::Opened)
}

fn names(packets: &[Vec<u8>]) -> Vec<&'static str> {
    let name = |packet: &Vec<u8>| match control(packet).expect("a control message") {
        Control::Hello { .. } => "Hello",
        Control::Challenge { .. } => "Challenge",
        Control::Open { .. } => "Open",
        Control::Opened { .. } => "Opened",
        Control::Refused { .. } => "Refused",
        Control::Ping { .. } => "Ping",
        Control::Pong => "Pong",
        Control::Reset { .. } => "Reset",
        Control::Close { .. } => "Close",
        Control::Closed => "Closed",
        Control::Probe => "Probe",
        Control::Probed => "Probed",
        Control::Resize { .. } => "Resize",
        Control::Resized => "Resized",
        Control::Moved { .. } => "Moved",
        Control::GoAway { .. } => "GoAway",
    };
    packets.iter().map(name).collect()
}

/// Takes the only packet in flight to the server.
fn to_server(pair: &mut Pair) -> Vec<u8> {
    let mut packets = pair.take_to_server();
    assert_eq!(packets.len(), 1, "{:?}", names(&packets));
    packets.remove(0)
}

/// Takes the only packet in flight to the client.
fn to_client(pair: &mut Pair) -> Vec<u8> {
    let mut packets = pair.take_to_client();
    assert_eq!(packets.len(), 1, "{:?}", names(&packets));
    packets.remove(0)
}

/// Delivers the only packet in flight to the server, and returns it.
fn reaches_server(pair: &mut Pair) -> Vec<u8> {
    let packet = to_server(pair);
    pair.at_server(CLIENT, &packet);
    packet
}

/// Delivers the only packet in flight to the client, and returns it.
fn reaches_client(pair: &mut Pair) -> Vec<u8> {
    let packet = to_client(pair);
    pair.at_client(SERVER, &packet);
    packet
}

/// Runs the handshake until the server has opened the session and its `Opened` is in flight.
/// Returns the client's `Open`.
fn accepted(pair: &mut Pair) -> Vec<u8> {
    reaches_server(pair);
    reaches_client(pair);
    reaches_server(pair)
}

#[test]
fn a_session_opens_in_four_steps() {
    let (mut pair, session) = connecting();
    let mut steps = Vec::new();
    for _ in 0..2 {
        let request = reaches_server(&mut pair);
        let reply = reaches_client(&mut pair);
        steps.extend(names(&[request, reply]));
    }
    assert_eq!(steps, ["Hello", "Challenge", "Open", "Opened"]);
    assert!(open(&pair, session));
    assert_eq!((pair.client.sessions(), pair.server.sessions()), ((1, 0), (0, 1)));
}

#[test]
fn a_session_has_an_address_until_it_ends_and_a_servers_id_once_it_is_open() {
    let (mut pair, session) = connecting();
    let address = pair.client.session_address(session).expect("the session opens");
    assert_eq!((address.server, address.to_server), (SERVER, None));
    pair.settle();
    let address = pair.client.session_address(session).expect("the session is open");
    pair.call(session, 1, b"a call");
    let request = reaches_server(&mut pair);
    assert_eq!(address.to_server, Some(header(&request).connection.to_u64()));
    let response = reaches_client(&mut pair);
    assert_eq!(address.to_client, header(&response).connection.to_u64());
    pair.disconnect(session);
    pair.settle();
    assert_eq!(pair.client.session_address(session), None);
}

#[test]
fn a_server_keeps_no_state_before_it_receives_its_cookie() {
    let (mut pair, _) = connecting();
    let hello = to_server(&mut pair);
    for _ in 0..1_000 {
        pair.at_server(STRANGER, &hello);
    }
    assert_eq!(pair.server.sessions(), (0, 0));
    assert_eq!(pair.server.pool_stats().in_use, 0);
}

#[test]
fn a_stranger_never_gets_more_bytes_than_it_sent() {
    let (mut pair, _) = connecting();
    let hello = to_server(&mut pair);
    assert_eq!(hello.len(), HELLO_LEN);
    let mut other_version = hello.clone();
    other_version[8] ^= 0b11;
    let unknown = ConnectionId::new(0, true, 7, 7);
    let ping = emit(unknown, Control::Ping { sender: unknown });
    let close = emit(unknown, Control::Close { sender: unknown });
    for packet in [hello, other_version, ping, close] {
        pair.at_server(STRANGER, &packet);
        assert!(to_client(&mut pair).len() <= packet.len());
    }
}

#[test]
fn each_handshake_message_may_be_lost_once() {
    for lost in 0..4 {
        let (mut pair, session) = connecting();
        let mut count = 0;
        while !open(&pair, session) {
            let (requests, replies) = (pair.take_to_server(), pair.take_to_client());
            if requests.is_empty() && replies.is_empty() {
                pair.pass(ms(26));
            }
            for packet in requests {
                if count != lost {
                    pair.at_server(CLIENT, &packet);
                }
                count += 1;
            }
            for packet in replies {
                if count != lost {
                    pair.at_client(SERVER, &packet);
                }
                count += 1;
            }
            assert!(count < 20, "message {lost} was lost");
        }
        assert_eq!(
            (pair.server.sessions().1, pair.now.as_nanos()),
            (1, 1_026_000_000),
            "one pause, one session"
        );
    }
}

#[test]
fn each_handshake_message_may_arrive_twice() {
    let (mut pair, session) = connecting();
    for _ in 0..2 {
        for packet in pair.take_to_server() {
            pair.at_server(CLIENT, &packet);
            pair.at_server(CLIENT, &packet);
        }
        for packet in pair.take_to_client() {
            pair.at_client(SERVER, &packet);
            pair.at_client(SERVER, &packet);
        }
    }
    pair.settle();
    assert!(open(&pair, session));
    assert_eq!((pair.client.sessions(), pair.server.sessions()), ((1, 0), (0, 1)));
    assert_eq!(pair.told, ["Opened"]);
}

#[test]
fn late_copies_of_handshake_messages_do_not_affect_an_open_session() {
    let (mut pair, session) = connecting();
    let mut late = (Vec::new(), Vec::new());
    for _ in 0..2 {
        late.0.push(reaches_server(&mut pair));
        late.1.push(reaches_client(&mut pair));
    }
    pair.call(session, 1, b"works");
    let calls = pair.take_to_server();
    for packet in &late.0 {
        pair.at_server(CLIENT, packet);
    }
    pair.take_to_client();
    for packet in &late.1 {
        pair.client_drops(SERVER, packet, DropReason::Handshake);
    }
    pair.burst_at_server(CLIENT, &calls);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"works".to_vec()));
    assert_eq!((pair.server.sessions().1, pair.told.len()), (1, 1));
}

#[test]
fn a_repeated_open_is_answered_with_the_same_session() {
    let (mut pair, _) = connecting();
    let open = accepted(&mut pair);
    let opened = to_client(&mut pair);
    pair.at_server(CLIENT, &open);
    assert_eq!(to_client(&mut pair), opened);
    assert_eq!(pair.server.sessions().1, 1);
}

#[test]
fn hellos_are_repeated_after_25_ms_then_every_50() {
    let (mut pair, _) = connecting();
    let mut at = Vec::new();
    let start = pair.now;
    while pair.now < start + ms(200) {
        if !pair.take_to_server().is_empty() {
            at.push((pair.now - start).as_millis());
        }
        let next = pair.client.next_deadline();
        pair.pass(next - pair.now);
    }
    assert_eq!(at, [0, 25, 75, 125, 175]);
}

#[test]
fn an_unanswered_connect_fails_at_its_timeout_and_not_before() {
    for timeout in [10, 300, 2_000] {
        let mut pair = Pair::new(1_472, EndpointConfig::new().connect_timeout(ms(timeout)));
        let session = pair.connect();
        pair.call(session, 1, b"queued");
        pair.pass_slowly(ms(timeout) - ms(1));
        assert_eq!(pair.closed(session), None, "{timeout} ms");
        pair.pass_slowly(ms(2));
        let timed_out = Cause::Connect(ConnectError::Timeout);
        assert_eq!(pair.closed(session), Some(timed_out), "{timeout} ms");
        assert_eq!(pair.error(), CallError::NotExecuted(timed_out));
        assert_eq!(pair.client.sessions(), (0, 0));
    }
}

#[test]
fn calls_made_before_the_session_opens_are_sent_in_order_when_it_opens() {
    let (mut pair, session) = connecting();
    for token in 0..20 {
        pair.call(session, token, &[token as u8]);
    }
    pair.settle();
    let tokens: Vec<u64> = pair.outcomes.iter().map(|outcome| outcome.token).collect();
    assert_eq!(tokens, (0..20).collect::<Vec<_>>());
}

#[test]
fn disconnect_while_connecting_ends_the_session_immediately_if_no_call_waits() {
    let (mut pair, session) = connecting();
    pair.disconnect(session);
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
    pair.settle();
    assert_eq!((pair.client.sessions(), pair.server.sessions()), ((0, 0), (0, 0)));
}

#[test]
fn disconnect_while_connecting_lets_queued_calls_finish() {
    let (mut pair, session) = connecting();
    pair.call(session, 1, b"queued");
    pair.disconnect(session);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"queued".to_vec()));
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
    assert_eq!(pair.server.sessions(), (0, 0));
}

#[test]
fn a_session_abandoned_while_opening_is_not_kept_by_the_server() {
    let (mut pair, session) = connecting();
    accepted(&mut pair);
    pair.disconnect(session);
    assert_eq!(pair.server.sessions().1, 1);
    pair.live(ms(5_000));
    assert_eq!(pair.server.sessions().1, 0, "the first ping is answered by a reset");
}

#[test]
fn a_cookie_that_is_forged_stale_or_of_another_client_is_dropped() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let client = ConnectionId::new(0, false, 3, 99);
    let endpoint = ConnectionId::endpoint(0);
    let cookie = pair.cookie(STRANGER, client);
    let with =
        |client, cookie| emit(endpoint, Control::Open { client, cookie, parameters: PARAMETERS });
    let mut forged = cookie;
    forged[15] ^= 1;
    pair.server_drops(STRANGER, &with(client, forged), DropReason::Cookie);
    pair.server_drops(CLIENT, &with(client, cookie), DropReason::Cookie);
    let another = ConnectionId::new(0, false, 3, 98);
    pair.server_drops(STRANGER, &with(another, cookie), DropReason::Cookie);
    pair.pass(ms(10_001));
    pair.server_drops(STRANGER, &with(client, cookie), DropReason::Cookie);
    assert_eq!((pair.server.sessions(), pair.take_to_client().len()), ((0, 0), 0));
}

#[test]
fn a_client_gets_another_cookie_if_the_server_restarts_before_open() {
    let (mut pair, session) = connecting();
    reaches_server(&mut pair);
    pair.restart_server_with(77, acceptor_with(1));
    pair.settle();
    assert_eq!(pair.server.stats().dropped(DropReason::Cookie), 1);
    pair.live(ms(200));
    assert!(open(&pair, session));
}

/// A client that a challenge has redirected to endpoint 3 at port 7. Returns the destination of its
/// `Open`, and the `Open`.
fn sent_on() -> (Pair, SessionId, (TestRoute, Vec<u8>)) {
    let (mut pair, session) = connecting();
    let Some(Control::Hello { client, .. }) = control(&to_server(&mut pair)) else {
        panic!("no hello")
    };
    let challenge =
        emit(client, Control::Challenge { cookie: [1; 16], port: 7, steer: 3, proof: 1_472 });
    pair.at_client(SERVER, &challenge);
    let open = pair.to_server.packets.pop_front().expect("an open");
    (pair, session, open)
}

#[test]
fn a_client_opens_where_the_challenge_sends_it() {
    let (_, _, (route, open)) = sent_on();
    assert_eq!(route, SERVER.with_port(7));
    assert_eq!(header(&open).connection, ConnectionId::endpoint(3));
    assert!(matches!(control(&open), Some(Control::Open { cookie, .. }) if cookie == [1; 16]));
}

#[test]
fn a_client_with_unanswered_opens_returns_to_the_first_address() {
    let (mut pair, _, _) = sent_on();
    let mut hello = None;
    for _ in 0..10 {
        pair.pass_slowly(ms(100));
        let sent = std::mem::take(&mut pair.to_server.packets);
        let is_hello = |bytes: &Vec<u8>| matches!(control(bytes), Some(Control::Hello { .. }));
        hello = hello.or(sent.into_iter().find(|(_, bytes)| is_hello(bytes)));
    }
    assert_eq!(hello.map(|(route, _)| route), Some(SERVER));
}

#[test]
fn an_endpoint_that_does_not_listen_refuses_sessions() {
    let (mut pair, session) = connecting();
    let hello = to_server(&mut pair);
    // The client's own endpoint does not listen.
    let refusal = {
        pair.at_client(STRANGER, &hello);
        to_server(&mut pair)
    };
    pair.at_client(SERVER, &refusal);
    assert_eq!(pair.closed(session), Some(Cause::Connect(ConnectError::NotListening)));
}

#[test]
fn a_server_without_room_refuses_and_counts_the_session() {
    let side = super::pair::Side::new(1_472);
    let server = side.clone().config(EndpointConfig::new().max_sessions(1));
    let (mut pair, first) = Pair::of(side, server).and_connected();
    let second = pair.connect();
    pair.call(second, 1, b"queued");
    pair.settle();
    let full = Cause::Connect(ConnectError::Full);
    assert_eq!((pair.closed(second), pair.error()), (Some(full), CallError::NotExecuted(full)));
    assert_eq!(pair.server.stats().refused, 1);
    pair.call(first, 2, b"unharmed");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"unharmed".to_vec()));
}

#[test]
fn a_client_without_room_rejects_connect() {
    let (mut pair, _) = Pair::connected(1_472, EndpointConfig::new().max_sessions(1));
    let refused = pair.client.connect(pair.now, SERVER, &mut pair.to_server);
    assert_eq!(refused, Err(ConnectError::TooManySessions));
}

#[test]
fn a_refusal_of_open_ends_the_session_too() {
    let (mut pair, session) = connecting();
    reaches_server(&mut pair);
    let challenge = reaches_client(&mut pair);
    let id = super::pair::header(&challenge).connection;
    let refused = emit(id, Control::Refused { reason: Refusal::Parameters, low: 1, high: 1 });
    pair.at_client(SERVER, &refused);
    assert_eq!(pair.closed(session), Some(Cause::Connect(ConnectError::Parameters)));
}

#[test]
fn a_client_challenged_from_a_dead_address_returns_to_the_first_address() {
    // The routes have ports, because a client does not follow an answer from another port.
    let (asked, elsewhere) = (SERVER.with_port(9), STRANGER.with_port(9));
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    pair.client.connect(pair.now, asked, &mut pair.to_server).expect("room for a session");
    reaches_server(&mut pair);
    let challenge = to_client(&mut pair);
    pair.at_client(elsewhere, &challenge);
    let (mut opens, mut hello) = (0, None);
    for _ in 0..10 {
        pair.pass_slowly(ms(100));
        for (route, bytes) in std::mem::take(&mut pair.to_server.packets) {
            match control(&bytes) {
                Some(Control::Open { .. }) => opens += u32::from(route == elsewhere),
                Some(Control::Hello { .. }) => hello = hello.or(Some(route)),
                _ => {}
            }
        }
    }
    assert!(opens > 0, "the client must try the other address first");
    assert_eq!(hello, Some(asked));
}

#[test]
fn only_a_challenge_or_a_refusal_may_answer_a_hello_from_another_address() {
    let (mut pair, _) = connecting();
    let hello = to_server(&mut pair);
    let Some(Control::Hello { client, .. }) = control(&hello) else { panic!("no hello") };
    let refused = Control::Refused { reason: Refusal::Full, low: 1, high: 1 };
    let elsewhere = STRANGER.with_port(7);
    for message in [Control::Pong, Control::Closed, Control::Reset { unknown: client }, refused] {
        pair.client_drops(elsewhere, &emit(client, message), DropReason::WrongRoute);
    }
    // Answers from another address, but from the port that was asked: a wrong kind is dropped, a
    // refusal is accepted.
    let port_7 = SERVER.with_port(7);
    let second = pair.client.connect(pair.now, port_7, &mut pair.to_server).expect("room");
    let Some(Control::Hello { client, .. }) = control(&to_server(&mut pair)) else {
        panic!("no hello")
    };
    pair.client_drops(elsewhere, &emit(client, Control::Pong), DropReason::WrongRoute);
    pair.at_client(elsewhere, &emit(client, refused));
    assert_eq!(pair.closed(second), Some(Cause::Connect(ConnectError::Full)));
}
