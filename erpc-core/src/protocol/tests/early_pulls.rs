//! Requests for response that come before the response.

use std::time::Duration;

use super::pair::{CLIENT, ECHO, Pair, SERVER, Side, header, ms, shape};
use crate::protocol::config::LOCAL_CREDITS;
use crate::protocol::{DropReason, EndpointConfig, NewCall, SessionId};
use crate::status::Code;
use crate::time::Instant;
use crate::transport::ChargeModel;
use crate::wire::extension::{EXTENSION_HEAD, put_extension};
use crate::wire::{ANNOUNCEMENT, Header, Kind, PacketNumber};

/// A method other than that of [`Pair::call`].
const OTHER: u32 = ECHO + 1;

/// A pair whose first response had `packets` packets.
fn after_a_response_of(packets: usize, config: EndpointConfig) -> (Pair, SessionId) {
    let (mut pair, session) = Pair::connected(1_472, config);
    after_a_response(&mut pair, session, packets);
    (pair, session)
}

/// Makes a call whose response has `packets` packets.
fn after_a_response(pair: &mut Pair, session: SessionId, packets: usize) {
    pair.echo = false;
    let message = pair.message(packets);
    pair.call(session, 0, b"the first call");
    pair.settle();
    pair.answer(&message);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
}

/// A packet: its kind, its number or the first packet that it asks for, and its size or count.
type Seen = (Kind, u32, u32);

/// The packets that the client sends for a call.
fn calls(pair: &mut Pair, session: SessionId) -> (Vec<Vec<u8>>, Vec<Seen>) {
    pair.call(session, 1, b"request");
    let sent = pair.take_to_server();
    let told = |bytes: &Vec<u8>| {
        let header = header(bytes);
        (header.kind, header.packet.get(), header.size)
    };
    let seen = sent.iter().map(told).collect();
    (sent, seen)
}

/// The packets that the server sends for a call with a guess, which it answers with `message`.
fn response_to_call(pair: &mut Pair, session: SessionId, message: &[u8]) -> Vec<Vec<u8>> {
    let (sent, _) = calls(pair, session);
    pair.burst_at_server(CLIENT, &sent);
    pair.answer(message);
    pair.take_to_client()
}

const REQUEST: Seen = (Kind::Request, 0, 7);

fn pull(from: u32, count: u32) -> Seen {
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
fn a_guess_leaves_a_quarter_of_each_limit() {
    // Credits: the request, and five of six that remain of three quarters.
    let (mut pair, session) =
        after_a_response_of(20, EndpointConfig::new().credits(8).max_credits(8));
    assert_eq!(calls(&mut pair, session).1, [REQUEST, pull(1, 5)]);

    // The server's window, and the client's room: rings of 32 packets. A server grants three quarters.
    let side = || Side::new(1_472).config(EndpointConfig::new().credits(128).max_credits(128));
    let small = || side().queue(ChargeModel::Ring, 32 * 1_024);
    for (client, server, limit) in [(side(), small(), 24), (small(), side(), 32)] {
        let (mut pair, session) = Pair::of(client, server).and_connected();
        after_a_response(&mut pair, session, 60);
        assert_eq!(calls(&mut pair, session).1, [REQUEST, pull(1, limit / 4 * 3 - 1)]);
        let other = pair.open();
        pair.call(other, 2, b"of another session");
        assert_eq!(shape(&pair.take_to_server()), [(Kind::Request, 0)]);
    }
}

#[test]
fn there_is_no_guess_while_calls_wait() {
    let (mut pair, session) =
        after_a_response_of(3, EndpointConfig::new().credits(8).max_credits(8));
    let long = pair.message(20);
    pair.call_method(session, OTHER, 2, &long);
    for token in 3..6 {
        pair.call(session, token, b"request");
    }
    let sent = pair.take_to_server();
    assert_eq!(sent.len(), 8, "the long request has taken all credits");
    pair.burst_at_server(CLIENT, &sent);
    let returned = pair.take_to_client();
    pair.burst_at_client(SERVER, &returned);
    let kinds = shape(&pair.take_to_server());
    let is_request = |(kind, _): &(Kind, u32)| *kind == Kind::Request;
    assert!(kinds.len() == 8 && kinds.iter().all(is_request), "{kinds:?}");
}

#[test]
fn calls_of_other_methods_ask_for_nothing_early() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    pair.call_method(session, OTHER, 2, b"other");
    assert_eq!(shape(&pair.take_to_server()), [(Kind::Request, 0)]);
}

#[test]
fn calls_that_continue_a_stream_neither_guess_nor_change_what_is_expected() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let mut request = pair.client.pool().alloc(EXTENSION_HEAD).expect("memory");
    put_extension(2, &[], &mut request);
    let call =
        NewCall { method: ECHO, request, token: 2, extended: true, deadline: Instant::NEVER };
    pair.client.call(pair.now, session, call, &mut pair.to_server).expect("accepted");
    let sent = pair.take_to_server();
    assert_eq!(shape(&sent), [(Kind::Request, 0)]);
    pair.burst_at_server(CLIENT, &sent);
    pair.answer(b"short");
    pair.settle();
    assert_eq!(calls(&mut pair, session).1, [REQUEST, pull(1, 4)]);
}

#[test]
fn the_first_packet_measures_the_round_trip() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let message = pair.message(5);
    let before = pair.client.session_stats(session).expect("open").rtt.expect("measured");
    let (sent, _) = calls(&mut pair, session);
    pair.burst_at_server(CLIENT, &sent);
    // The handler's time does not count.
    pair.pass(Duration::from_micros(500));
    pair.answer(&message);
    pair.pass(Duration::from_micros(80));
    let response = pair.take_to_client();
    pair.burst_at_client(SERVER, &response);
    let after = pair.client.session_stats(session).expect("open").rtt.expect("measured");
    // A sample has a weight of an eighth.
    let expected = before - before / 8 + Duration::from_micros(10);
    let difference = after.abs_diff(expected);
    assert!(difference < Duration::from_micros(2), "{before:?} {after:?} {expected:?}");
}

#[test]
fn early_packets_that_come_after_a_timeout_are_taken() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let message = pair.message(5);
    let response = response_to_call(&mut pair, session, &message);
    pair.at_client(SERVER, &response[0]);
    pair.pass(ms(30));
    assert_eq!(shape(&pair.take_to_server()), [(Kind::RequestForResponse, 1)]);
    pair.burst_at_client(SERVER, &response[1..]);
    assert_eq!(pair.outcome().result, Ok(message));
    assert_eq!(pair.client.stats().dropped_in_all(), 0);
}

#[test]
fn the_client_goes_back_once_for_all_early_packets() {
    let (mut pair, session) = after_a_response_of(8, EndpointConfig::new());
    let message = pair.message(8);
    let response = response_to_call(&mut pair, session, &message);
    // Packet 1 is late. Packet 3 is lost, but was asked for again with packet 1.
    pair.burst_at_client(SERVER, &[&response[0], &response[2]]);
    let again = pair.take_to_server();
    assert_eq!((shape(&again)[0], header(&again[0]).size), ((Kind::RequestForResponse, 1), 7));
    pair.burst_at_client(SERVER, &[&response[1], &response[4], &response[5]]);
    assert_eq!(shape(&pair.take_to_server()), []);
    pair.burst_at_server(CLIENT, &again);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
}

#[test]
fn what_was_asked_for_does_not_stay_in_the_slot() {
    for packets in [1, 5] {
        let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
        let (first, message) = (pair.message(packets), pair.message(5));
        let (sent, _) = calls(&mut pair, session);
        pair.burst_at_server(CLIENT, &sent);
        pair.answer(&first);
        pair.settle();
        for token in 2..10 {
            pair.call_method(session, OTHER, token, b"in each slot");
        }
        let sent = pair.take_to_server();
        assert_eq!(sent.len(), 8);
        pair.burst_at_server(CLIENT, &sent);
        for _ in 0..8 {
            pair.answer(&message);
            assert_eq!(pair.take_to_client().len(), 1);
        }
    }
}

#[test]
fn a_lost_packet_of_the_request_ends_the_guess() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let (request, response) = (pair.message(4), pair.message(5));
    pair.call(session, 1, &request);
    let mut sent = pair.take_to_server();
    sent.remove(1);
    pair.burst_at_server(CLIENT, &sent);
    let returned = pair.take_to_client();
    pair.burst_at_client(SERVER, &returned);
    let again = shape(&pair.to_server.packets.iter().map(|(_, b)| b.clone()).collect::<Vec<_>>());
    assert_eq!(again, [1, 2, 3].map(|packet| (Kind::Request, packet)));
    pair.settle();
    pair.answer(&response);
    assert_eq!(pair.to_client.packets.len(), 1);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(response));
    let stats = pair.client.session_stats(session).expect("open");
    assert_eq!((stats.in_flight, stats.credits), (0, LOCAL_CREDITS));
}

#[test]
fn however_a_call_ends_its_guess_is_released() {
    let fails = |pair: &mut Pair, _: SessionId| {
        pair.answer_failure(Code::NotFound, "no such key");
        pair.settle();
    };
    let is_too_large = |pair: &mut Pair, _: SessionId| {
        let message = pair.message(20);
        pair.answer(&message);
        pair.settle();
    };
    let ends: [fn(&mut Pair, SessionId); 2] = [fails, is_too_large];
    for end in ends {
        let (mut pair, session) = after_a_response_of(5, EndpointConfig::new().max_message(10_000));
        let (sent, seen) = calls(&mut pair, session);
        assert_eq!(seen, [REQUEST, pull(1, 4)]);
        pair.burst_at_server(CLIENT, &sent);
        end(&mut pair, session);
        assert!(pair.outcome().result.is_err());
        let stats = pair.client.session_stats(session).expect("open");
        assert_eq!((stats.in_flight, stats.credits), (0, LOCAL_CREDITS));
    }
}

#[test]
fn a_guess_is_released_when_the_path_becomes_smaller() {
    let mut pair = Pair::new(8_972, EndpointConfig::new()).far();
    let session = pair.connect();
    pair.live(ms(10));
    pair.echo = false;
    let message = vec![7; 40_000];
    pair.call(session, 0, b"the first call");
    pair.settle();
    pair.answer(&message);
    pair.settle();
    assert_eq!(pair.outcome().result.as_deref(), Ok(&message[..]));
    let (sent, _) = calls(&mut pair, session);
    assert_eq!(shape(&sent), [(Kind::Request, 0), (Kind::RequestForResponse, 1)]);
    (pair.to_server.carries, pair.to_client.carries) = (Some(1_372), Some(1_372));
    pair.burst_at_server(CLIENT, &sent);
    pair.answer(&message);
    pair.live(ms(1_500));
    assert_eq!(pair.outcome().result.as_deref(), Ok(&message[..]));
    assert_eq!(pair.executed, 2);
    assert_eq!(pair.client.session_stats(session).expect("open").in_flight, 0);
}

#[test]
fn a_session_with_a_guess_ends() {
    let (mut pair, session) = after_a_response_of(5, EndpointConfig::new());
    let (sent, _) = calls(&mut pair, session);
    pair.burst_at_server(CLIENT, &sent);
    pair.disconnect(session);
    pair.settle();
    // The next session has the whole window and room.
    pair.outcomes.clear();
    pair.asked.clear();
    let next = pair.open();
    after_a_response(&mut pair, next, 60);
    assert_eq!(calls(&mut pair, next).1, [REQUEST, pull(1, 59)]);
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
    let response = response_to_call(&mut pair, session, &message);
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
    pair.server_drops(CLIENT, &sent[1], DropReason::Unsolicited);
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
    let credits = u32::from(pair.terms.credits);
    pair.server_drops(CLIENT, &with(1, credits.min(1_024) + 1), DropReason::Overrun);
    pair.server_drops(CLIENT, &with(1, u32::MAX), DropReason::Overrun);
    pair.server_drops(CLIENT, &with(0, 1), DropReason::Unsolicited);
    pair.server_drops(CLIENT, &with(2, 1), DropReason::Unsolicited);
}
