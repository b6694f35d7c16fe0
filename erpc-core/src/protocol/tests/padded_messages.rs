//! Padding behind packets that are whole messages.

use super::pair::{CLIENT, Pair, SERVER, deferring, deferring_with, kinds, ms};
use crate::protocol::{CallError, DropReason, EndpointConfig, Integrity, SessionId};
use crate::status::{Code, Status};
use crate::wire::checksum::trailer_of;
use crate::wire::{ANNOUNCEMENT, Kind, MAX_PADDING};

fn padded(packet: &[u8], zeros: usize) -> Vec<u8> {
    [packet, &vec![0; zeros]].concat()
}

/// A client that has called with `request`, which is taken off the wire.
fn calling(request: &[u8]) -> (Pair, SessionId) {
    let (mut pair, session) = deferring();
    pair.call(session, 1, request);
    pair.take_to_server();
    (pair, session)
}

#[test]
fn messages_arrive_without_their_padding() {
    for zeros in [1, 264, MAX_PADDING] {
        for message in [&b"hello"[..], b"", b"ends with a zero\0"] {
            let (mut pair, session) = deferring();
            pair.call(session, 1, message);
            let request = pair.take_to_server().remove(0);
            pair.at_server(CLIENT, &padded(&request, zeros));
            assert_eq!(pair.asked[0].body, message);

            let response = pair.response(0, 0, message).bytes();
            pair.at_client(SERVER, &padded(&response, zeros));
            assert_eq!(pair.outcome().result, Ok(message.to_vec()));

            let status = Status::new(Code::NotFound, "no such key");
            let (mut pair, _) = calling(message);
            let failure = pair.failure(0, &status).bytes();
            pair.at_client(SERVER, &padded(&failure, zeros));
            assert_eq!(pair.error(), CallError::Status(status));
        }
    }
}

#[test]
fn a_request_with_a_deadline_may_be_padded() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    let deadline = pair.now + ms(5);
    pair.call_until(session, 1, b"soon", deadline);
    let request = pair.take_to_server().remove(0);
    pair.at_server(CLIENT, &padded(&request, 10));
    let asked = pair.asked.pop_front().expect("a request waits");
    assert_eq!(asked.deadline, deadline);
    assert!(asked.body.ends_with(b"soon"), "{:?}", asked.body);
}

#[test]
fn bytes_behind_a_message_that_are_no_padding_are_not_ignored() {
    let (mut pair, _) = calling(b"hello");
    let (request, response) =
        (pair.request(0, 0, b"1234").bytes(), pair.response(0, 0, b"1234").bytes());
    for place in [0, 1, MAX_PADDING - 1] {
        for (packet, to_server) in [(&request, true), (&response, false)] {
            let mut packet = padded(packet, MAX_PADDING);
            packet[24 + 4 + place] = 1;
            match to_server {
                true => pair.server_drops(CLIENT, &packet, DropReason::LyingSize),
                false => pair.client_drops(SERVER, &packet, DropReason::LyingSize),
            }
        }
    }
    pair.server_drops(CLIENT, &padded(&request, MAX_PADDING + 1), DropReason::LyingSize);
    pair.client_drops(SERVER, &padded(&response, MAX_PADDING + 1), DropReason::LyingSize);
    assert_eq!((pair.executed, pair.outcomes.len()), (0, 0));
}

#[test]
fn other_packets_are_not_padded() {
    let (mut pair, _) = calling(b"hello");
    let message = pair.message(3);
    for packet in 0..3 {
        let packet = pair.request(0, packet, &message).bytes();
        pair.server_drops(CLIENT, &padded(&packet, 1), DropReason::LyingSize);
    }
    let announced = pair.response(0, 0, &message).packet(ANNOUNCEMENT).body(b"");
    for packet in [pair.accepted(0), pair.credit_return(0, 1), announced] {
        pair.client_drops(SERVER, &padded(&packet.bytes(), 4), DropReason::LyingSize);
    }
    let pull = pair.response(0, 0, b"").kind(Kind::RequestForResponse).to(pair.server_id);
    pair.server_drops(CLIENT, &padded(&pull.bytes(), 4), DropReason::LyingSize);
}

#[test]
fn a_padded_request_that_arrives_again_is_answered_again() {
    let (mut pair, _) = calling(b"hello");
    let request = padded(&pair.request(0, 0, b"hello").bytes(), 10);
    pair.at_server(CLIENT, &request);
    let (received, delivered) = (pair.server.stats().rx_packets, pair.server.stats().rx_delivered);
    pair.server_drops(CLIENT, &request, DropReason::Duplicate);
    assert_eq!(pair.server.stats().rx_packets, received + 1);
    assert_eq!(pair.server.stats().rx_delivered, delivered);
    assert_eq!((pair.executed, kinds(&pair.take_to_client())), (1, vec![Kind::Accepted]));
}

#[test]
fn packets_with_a_checksum_are_not_padded() {
    let (mut pair, session) = deferring_with(EndpointConfig::new().integrity(Integrity::Always));
    pair.call(session, 1, b"hello");
    let request = pair.take_to_server().remove(0);
    pair.server_drops(CLIENT, &padded(&request, 4), DropReason::Checksum);
    // Padding that the checksum includes.
    let inner = padded(&request[..request.len() - 4], 4);
    let sealed = [&inner[..], &trailer_of(&inner, &[])].concat();
    pair.server_drops(CLIENT, &sealed, DropReason::LyingSize);
    assert_eq!(pair.executed, 0);
}
