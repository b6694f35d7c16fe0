//! Requests for response that come before the response.

use super::pair::{CLIENT, Pair, SERVER, header, ms, shape};
use crate::protocol::config::LOCAL_CREDITS;
use crate::protocol::{DropReason, EndpointConfig, SessionId};
use crate::wire::{ANNOUNCEMENT, Header, Kind, PacketNumber};

/// A pair whose first response had `packets` packets.
fn after_a_response_of(packets: usize, config: EndpointConfig) -> (Pair, SessionId) {
    let (mut pair, session) = Pair::connected(1_472, config);
    pair.echo = false;
    let message = pair.message(packets);
    pair.call(session, 0, b"the first call");
    pair.settle();
    pair.answer(&message);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
    pair.outcomes.clear();
    (pair, session)
}

/// The packets that the client sends for a call: their kinds, first packets and counts or sizes.
fn calls(pair: &mut Pair, session: SessionId) -> (Vec<Vec<u8>>, Vec<(Kind, u32, u32)>) {
    pair.call(session, 1, b"request");
    let sent = pair.take_to_server();
    let told = |bytes: &Vec<u8>| {
        let header = header(bytes);
        (header.kind, header.packet.get(), header.size)
    };
    let seen = sent.iter().map(told).collect();
    (sent, seen)
}

const REQUEST: (Kind, u32, u32) = (Kind::Request, 0, 7);

fn pull(from: u32, count: u32) -> (Kind, u32, u32) {
    (Kind::RequestForResponse, from, count)
}

/// Nothing is in flight, and nothing was sent twice or dropped.
fn is_over(pair: &Pair, session: SessionId) {
    let stats = pair.client.session_stats(session).expect("open");
    assert_eq!((stats.in_flight, stats.credits), (0, LOCAL_CREDITS));
    for stats in [pair.client.stats(), pair.server.stats()] {
        assert_eq!((stats.repeated_responses, stats.dropped_in_all()), (0, 0));
    }
}

#[test]
fn the_second_long_response_takes_one_round_trip() {
    // The handler answers at once, or after the request for response has come.
    for answers_at_once in [true, false] {
        let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
        let message = pair.message(5);
        let (sent, seen) = calls(&mut pair, session);
        assert_eq!(seen, [REQUEST, pull(1, 4)]);
        if answers_at_once {
            pair.at_server(CLIENT, &sent[0]);
            pair.answer(&message);
            pair.at_server(CLIENT, &sent[1]);
        } else {
            pair.burst_at_server(CLIENT, &sent);
            assert!(pair.to_client.packets.is_empty());
            pair.answer(&message);
        }
        let response = pair.take_to_client();
        assert_eq!(shape(&response), [0, 1, 2, 3, 4].map(|packet| (Kind::Response, packet)));
        pair.burst_at_client(SERVER, &response);
        assert_eq!(pair.outcome().result, Ok(message));
        assert_eq!(pair.take_to_server(), Vec::<Vec<u8>>::new());
        is_over(&pair, session);
    }
}

#[test]
fn a_request_of_several_packets_is_followed_by_a_request_for_response() {
    let (mut pair, session) = after_a_response_of(3, EndpointConfig::new());
    let (request, response) = (pair.message(4), pair.message(3));
    pair.call(session, 1, &request);
    let sent = pair.take_to_server();
    let kinds = [0, 1, 2, 3].map(|packet| (Kind::Request, packet));
    assert_eq!(shape(&sent)[..4], kinds);
    assert_eq!(shape(&sent)[4..], [(Kind::RequestForResponse, 1)]);
    pair.burst_at_server(CLIENT, &sent);
    pair.answer(&response);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(response));
    is_over(&pair, session);
}

#[test]
fn a_shorter_response_releases_what_was_reserved() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    for packets in [3, 2, 1] {
        let message = pair.message(packets);
        let (sent, seen) = calls(&mut pair, session);
        assert_eq!(seen[0], REQUEST);
        assert!(seen[1].2 >= packets as u32);
        pair.burst_at_server(CLIENT, &sent);
        pair.answer(&message);
        let response = pair.take_to_client();
        assert_eq!(response.len(), packets);
        pair.burst_at_client(SERVER, &response);
        assert_eq!(pair.outcome().result, Ok(message));
        pair.outcomes.clear();
        is_over(&pair, session);
    }
}

#[test]
fn after_a_short_response_nothing_is_asked_for_early() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let (sent, _) = calls(&mut pair, session);
    pair.burst_at_server(CLIENT, &sent);
    pair.answer(b"short");
    pair.settle();
    let (_, seen) = calls(&mut pair, session);
    assert_eq!(seen, [REQUEST]);
}

#[test]
fn the_rest_of_a_longer_response_is_pulled() {
    let (mut pair, session) = after_a_response_of(3, EndpointConfig::new());
    let message = pair.message(8);
    let (sent, seen) = calls(&mut pair, session);
    assert_eq!(seen, [REQUEST, pull(1, 2)]);
    pair.burst_at_server(CLIENT, &sent);
    pair.answer(&message);
    let response = pair.take_to_client();
    assert_eq!(response.len(), 3);
    pair.burst_at_client(SERVER, &response);
    let pulled = pair.take_to_server();
    assert_eq!(shape(&pulled), [(Kind::RequestForResponse, 3)]);
    assert_eq!(header(&pulled[0]).size, 5);
    pair.burst_at_server(CLIENT, &pulled);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
    is_over(&pair, session);
}

#[test]
fn a_guess_takes_at_most_half_of_the_credits() {
    let (mut pair, session) =
        after_a_response_of(20, EndpointConfig::new().credits(8).max_credits(8));
    let (_, seen) = calls(&mut pair, session);
    assert_eq!(seen, [REQUEST, pull(1, 3)]);
}

#[test]
fn what_was_asked_for_before_a_timeout_does_not_count() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let message = pair.message(5);
    drop(calls(&mut pair, session));
    pair.pass(ms(30));
    let again = pair.take_to_server();
    assert_eq!(shape(&again), [(Kind::Request, 0)]);
    pair.burst_at_server(CLIENT, &again);
    pair.answer(&message);
    let first = pair.take_to_client();
    assert_eq!(first.len(), 1);
    pair.burst_at_client(SERVER, &first);
    let pulled = pair.take_to_server();
    assert_eq!(shape(&pulled), [(Kind::RequestForResponse, 1)]);
    pair.burst_at_server(CLIENT, &pulled);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
    assert_eq!(pair.client.session_stats(session).expect("open").in_flight, 0);
}

#[test]
fn a_lost_request_for_response_is_made_good_by_the_timeout() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let message = pair.message(5);
    let (sent, _) = calls(&mut pair, session);
    pair.at_server(CLIENT, &sent[0]);
    pair.answer(&message);
    pair.settle();
    assert_eq!(pair.outcomes.len(), 0);
    pair.pass(ms(30));
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
    assert_eq!(pair.client.session_stats(session).expect("open").credits, LOCAL_CREDITS);
}

#[test]
fn a_lost_first_packet_is_made_good_by_the_timeout() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let message = pair.message(5);
    let (sent, _) = calls(&mut pair, session);
    pair.burst_at_server(CLIENT, &sent);
    pair.answer(&message);
    let response = pair.take_to_client();
    pair.burst_at_client(SERVER, &response[1..]);
    assert_eq!(pair.client.stats().dropped(DropReason::Unsolicited), 4);
    pair.pass(ms(30));
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
    assert_eq!(pair.client.session_stats(session).expect("open").credits, LOCAL_CREDITS);
}

#[test]
fn an_accepted_call_is_announced_whatever_was_asked_for() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let message = pair.message(5);
    let (sent, _) = calls(&mut pair, session);
    pair.burst_at_server(CLIENT, &sent);
    pair.pass(ms(30));
    pair.settle();
    let credits = pair.client.session_stats(session).expect("open").credits;
    assert_eq!(credits, LOCAL_CREDITS, "an accepted call reserves nothing");
    pair.answer(&message);
    let announced = pair.take_to_client();
    assert_eq!(shape(&announced), [(Kind::Response, ANNOUNCEMENT)]);
    pair.burst_at_client(SERVER, &announced);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
    // The method is slow now: its next response may be announced, too.
    pair.outcomes.clear();
    let (_, seen) = calls(&mut pair, session);
    assert_eq!(seen, [REQUEST]);
}

#[test]
fn a_cancelled_call_releases_what_it_has_asked_for() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let message = pair.message(5);
    let (sent, _) = calls(&mut pair, session);
    pair.burst_at_server(CLIENT, &sent);
    assert!(pair.cancel(session, 1));
    pair.settle();
    pair.answer(&message);
    pair.settle();
    let stats = pair.client.session_stats(session).expect("open");
    assert_eq!((stats.in_flight, stats.credits), (0, LOCAL_CREDITS));
}

#[test]
fn bad_requests_for_response_during_execution_are_dropped() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let (sent, _) = calls(&mut pair, session);
    pair.at_server(CLIENT, &sent[0]);
    let with = |from: u32, count: u32| {
        Header { packet: PacketNumber::new(from), size: count, ..header(&sent[1]) }.to_bytes()
    };
    pair.server_drops(CLIENT, &with(1, 0), DropReason::Overrun);
    pair.server_drops(CLIENT, &with(1, 1_025), DropReason::Overrun);
    pair.server_drops(CLIENT, &with(1, u32::MAX), DropReason::Overrun);
    pair.server_drops(CLIENT, &with(0, 1), DropReason::Unsolicited);
    pair.server_drops(CLIENT, &with(2, 1), DropReason::Unsolicited);
}
