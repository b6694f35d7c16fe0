//! Only the two ends of a session can change it: ids contain 32 random bits and are bound to an
//! address.

use super::craft::{emit, sealed};
use super::pair::{CLIENT, Pair, SERVER, STRANGER, connected, control};
use crate::protocol::{DropReason, SessionEvent, SessionId};
use crate::wire::checksum::TRAILER_LEN;
use crate::wire::control::{Control, Refusal};
use crate::wire::{ConnectionId, HEADER_LEN};

/// Every control message that could end or change a session, from `sender`.
fn messages(sender: ConnectionId) -> Vec<Control> {
    vec![
        Control::Ping { sender },
        Control::Pong,
        Control::Reset { unknown: sender },
        Control::Close { sender },
        Control::Closed,
        Control::Refused { reason: Refusal::Full, low: 1, high: 1 },
        Control::Challenge { cookie: [1; 16], port: 9, steer: 1, proof: 1_472 },
        Control::Opened { server: sender, parameters: super::craft::PARAMETERS },
    ]
}

/// Asserts that the session still works.
fn works(pair: &mut Pair, session: SessionId) {
    pair.take_to_server();
    pair.take_to_client();
    assert_eq!(pair.sessions.get(&session), Some(&SessionEvent::Opened));
    pair.call(session, 99, b"still here");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"still here".to_vec()));
}

#[test]
fn control_messages_from_another_address_have_no_effect() {
    let (mut pair, session) = connected();
    let (client, server) = (pair.client_id, pair.server_id);
    for message in messages(server) {
        pair.client_drops(STRANGER, &emit(client, message), DropReason::WrongRoute);
    }
    for message in messages(client) {
        pair.server_drops(STRANGER, &emit(server, message), DropReason::WrongRoute);
    }
    assert_eq!(pair.take_to_server().len(), 0, "the client must not answer");
    let told = pair.to_client.take_for(STRANGER);
    assert_eq!(told.len(), 1, "one Moved: the client may have this address now");
    assert_eq!(control(&told[0]), Some(Control::Moved { server }));
    works(&mut pair, session);
}

#[test]
fn control_messages_with_a_guessed_id_have_no_effect() {
    let (mut pair, session) = connected();
    let (client, server) = (pair.client_id, pair.server_id);
    let guess = |id: ConnectionId| {
        ConnectionId::new(0, id.is_server_role(), id.index(), id.generation() ^ 1)
    };
    for message in messages(server) {
        pair.client_drops(SERVER, &emit(guess(client), message), DropReason::UnknownConnection);
    }
    for message in messages(client) {
        pair.server_drops(CLIENT, &emit(guess(server), message), DropReason::UnknownConnection);
    }
    works(&mut pair, session);
}

#[test]
fn ping_reset_and_close_without_the_senders_id_have_no_effect() {
    let (mut pair, session) = connected();
    let (client, server) = (pair.client_id, pair.server_id);
    let wrong = ConnectionId::new(0, true, 0, 12_345);
    for message in [
        Control::Ping { sender: wrong },
        Control::Reset { unknown: wrong },
        Control::Close { sender: wrong },
    ] {
        pair.client_drops(SERVER, &emit(client, message), DropReason::Handshake);
        pair.server_drops(CLIENT, &emit(server, message), DropReason::Handshake);
    }
    // A `Reset` that names the receiver's own id is dropped, too.
    pair.client_drops(
        SERVER,
        &emit(client, Control::Reset { unknown: client }),
        DropReason::Handshake,
    );
    pair.server_drops(
        CLIENT,
        &emit(server, Control::Reset { unknown: server }),
        DropReason::Handshake,
    );
    assert_eq!(pair.take_to_server().len() + pair.take_to_client().len(), 0);
    works(&mut pair, session);
}

#[test]
fn handshake_messages_to_an_open_session_have_no_effect() {
    let (mut pair, session) = connected();
    let (client, server) = (pair.client_id, pair.server_id);
    for message in messages(server).into_iter().skip(4) {
        pair.client_drops(SERVER, &emit(client, message), DropReason::Handshake);
    }
    for message in messages(client).into_iter().skip(4) {
        pair.server_drops(CLIENT, &emit(server, message), DropReason::Handshake);
    }
    works(&mut pair, session);
}

#[test]
fn messages_to_the_endpoint_itself_are_handshakes_or_dropped() {
    let (mut pair, session) = connected();
    for message in messages(pair.client_id) {
        pair.server_drops(CLIENT, &emit(ConnectionId::endpoint(0), message), DropReason::Handshake);
    }
    works(&mut pair, session);
}

#[test]
fn only_ping_and_close_to_an_unknown_session_are_answered_by_a_reset() {
    let (mut pair, _) = connected();
    let (unknown, sender) = (ConnectionId::new(0, true, 5, 5), ConnectionId::new(0, false, 6, 6));
    for message in messages(sender) {
        let answer = pair.ask_server(STRANGER, unknown, message);
        let asks = matches!(message, Control::Ping { .. } | Control::Close { .. });
        let expected = asks.then_some(Control::Reset { unknown });
        assert_eq!(answer.first().and_then(|packet| control(packet)), expected, "{message:?}");
    }
}

#[test]
fn a_control_message_of_another_length_is_dropped() {
    let (mut pair, session) = connected();
    let (client, server) = (pair.client_id, pair.server_id);
    for message in messages(client) {
        let packet = emit(server, message);
        let rest = &packet[..packet.len() - TRAILER_LEN];
        // Some messages may be padded, but only with zeros.
        let longer = sealed(&[rest, &[1]].concat());
        pair.server_drops(CLIENT, &longer, DropReason::Control);
        if rest.len() > HEADER_LEN {
            let shorter = sealed(&rest[..rest.len() - 1]);
            pair.server_drops(CLIENT, &shorter, DropReason::Control);
        }
    }
    works(&mut pair, session);
}

#[test]
fn a_session_is_bound_to_its_clients_address() {
    let (mut pair, session) = connected();
    let stranger = pair.open_stranger(1);
    assert_ne!(stranger, pair.server_id);
    let stolen = pair.request(0, 0, b"on the stranger's session").to(stranger).bytes();
    pair.server_drops(CLIENT, &stolen, DropReason::WrongRoute);
    works(&mut pair, session);
}
