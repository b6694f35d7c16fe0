//! Calls with a deadline: the deadline that the server receives, and how a call ends at it.

use std::time::Duration;

use super::pair::{CLIENT, Pair, SERVER, deferring_with, header, kinds, ms, pattern, shape};
use crate::protocol::{CallError, Cause, EndpointConfig, RejectReason};
use crate::time::Instant;
use crate::wire::{CANCEL, HEADER_LEN, Kind};

const LATE: Result<Vec<u8>, CallError> = Err(CallError::MaybeExecuted(Cause::DeadlineExceeded));
const UNSENT: Result<Vec<u8>, CallError> = Err(CallError::NotExecuted(Cause::DeadlineExceeded));

/// Largest delay of a timer that the tests accept: 12 ticks of the wheel.
const TICKS: Duration = Duration::from_micros(200);

/// The remaining time in a request's first packet, in us.
fn told(packet: &[u8]) -> u32 {
    assert_eq!(header(packet).packet.get(), 0);
    let field = packet[HEADER_LEN + 4..].first_chunk().expect("an extension");
    u32::from_le_bytes(*field)
}

#[test]
fn the_servers_deadline_is_never_earlier_than_the_clients() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    let deadline = pair.now.plus_nanos(5_000_500);
    pair.call_until(session, 1, b"soon", deadline);
    let sent = pair.take_to_server();
    assert_eq!(told(&sent[0]), 5_001, "the remaining time is rounded up");
    pair.now = pair.now + ms(2);
    pair.burst_at_server(CLIENT, &sent);
    let asked = pair.asked.front().expect("a request waits");
    let travel_and_rounding = ms(2).as_nanos() as u64 + 500;
    assert_eq!(asked.deadline, deadline.plus_nanos(travel_and_rounding));
}

#[test]
fn a_deadline_does_not_wait_for_another_session_whose_answer_may_be_unread() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    let silent = pair.open();
    pair.call_until(session, 1, b"late", pair.now + ms(1_000));
    // In these 900 ms the server answers that it executes the call. From then on the session's
    // timer is armed for the deadline.
    pair.live(ms(900));
    pair.call(silent, 2, b"silent");
    pair.take_to_server();
    // The silent session's timer is due before that deadline. It has no effect until the receive
    // queue has been read, and must not delay the timer of the other session.
    pair.pass_unread(ms(110), ms(109));
    assert_eq!(pair.outcome().result, LATE);
}

#[test]
fn a_retransmission_carries_the_remaining_time() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    pair.call_until(session, 1, b"soon", pair.now + ms(100));
    assert_eq!(told(&pair.take_to_server()[0]), 100_000);
    pair.pass(ms(25));
    assert_eq!(told(&pair.take_to_server()[0]), 75_000);
}

#[test]
fn a_call_that_waited_for_a_slot_carries_the_remaining_time() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    for token in 0..8 {
        pair.call(session, token, b"before");
    }
    pair.call_until(session, 8, b"after", pair.now + ms(100));
    pair.settle();
    pair.now = pair.now + ms(10);
    pair.answer(b"done");
    let response = pair.take_to_client();
    pair.burst_at_client(SERVER, &response);
    assert_eq!(told(&pair.take_to_server()[0]), 90_000);
}

#[test]
fn the_deadline_of_a_large_request_counts_from_its_first_packet() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    let deadline = pair.now + ms(50);
    pair.call_until(session, 1, &pattern(1, 4_000), deadline);
    let sent = pair.take_to_server();
    pair.at_server(CLIENT, &sent[0]);
    pair.now = pair.now + ms(20);
    pair.burst_at_server(CLIENT, &sent[1..]);
    assert_eq!(pair.asked[0].deadline, deadline);
}

#[test]
fn a_call_without_a_deadline_sends_none() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    pair.call_until(session, 1, b"whenever", Instant::NEVER);
    let sent = pair.take_to_server();
    assert_eq!(told(&sent[0]), 0);
    pair.burst_at_server(CLIENT, &sent);
    assert_eq!(pair.asked[0].deadline, Instant::NEVER);
}

#[test]
fn a_call_whose_deadline_has_passed_is_rejected() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    let rejected =
        pair.try_call_until(session, 1, b"late", pair.now).expect_err("the deadline has passed");
    assert_eq!(rejected.reason, RejectReason::DeadlineExceeded);
    assert_eq!(pair.take_to_server().len(), 0);
}

#[test]
fn a_call_ends_at_its_deadline_and_the_server_learns_of_it() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    let deadline = pair.now + ms(15);
    pair.call_until(session, 1, b"slow", deadline);
    pair.settle();
    while pair.outcomes.is_empty() {
        let next = pair.client.next_deadline();
        pair.pass(next - pair.now);
    }
    assert!(pair.now >= deadline && pair.now <= deadline + TICKS, "at {:?}", pair.now);
    assert_eq!(pair.outcome().result, LATE);
    let sent = pair.take_to_server();
    assert_eq!(shape(&sent), [(Kind::Done, CANCEL)]);
    pair.burst_at_server(CLIENT, &sent);
    assert_eq!(pair.cancelled, [pair.asked[0].handle]);
}

#[test]
fn a_response_in_time_removes_the_deadline() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    pair.call_until(session, 1, b"soon", pair.now + ms(15));
    pair.settle();
    pair.answer(b"in time");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"in time".to_vec()));
    pair.live(ms(100));
    assert_eq!((pair.outcomes.len(), pair.cancelled.len()), (0, 0));
}

#[test]
fn calls_that_wait_for_a_slot_end_at_their_own_deadlines() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    for token in 0..8 {
        pair.call(session, token, b"busy");
    }
    for (token, after) in [(8, 30), (9, 10), (10, 20), (11, 1_000)] {
        pair.call_until(session, token, b"waits", pair.now + ms(after));
    }
    for (left, passed) in [(3, 11), (2, 10), (1, 10)] {
        pair.pass(ms(passed));
        assert_eq!(pair.client.session_stats(session).expect("open").queued, left);
    }
    let ended: Vec<_> = pair.outcomes.iter().map(|outcome| outcome.token).collect();
    assert_eq!(ended, [9, 10, 8]);
    assert!(pair.outcomes.iter().all(|outcome| outcome.result == UNSENT));
    pair.echo = true;
    pair.live(ms(100));
    assert_eq!(pair.outcomes.last().map(|outcome| outcome.token), Some(11));
    assert!(pair.outcomes.last().is_some_and(|outcome| outcome.result.is_ok()));
}

#[test]
fn a_call_that_ends_before_its_session_opens_does_not_disturb_the_handshake() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let session = pair.connect();
    pair.call_until(session, 1, b"late", pair.now + ms(10));
    pair.take_to_server();
    pair.pass(ms(11));
    assert_eq!(pair.outcome().result, UNSENT);
    assert_eq!(pair.take_to_server().len(), 0, "the client must not repeat Hello early");
    pair.pass(ms(15));
    assert_eq!(kinds(&pair.take_to_server()), [Kind::Control]);
}

#[test]
fn a_draining_session_closes_when_its_last_call_reaches_its_deadline() {
    let (mut pair, session) = deferring_with(EndpointConfig::new());
    pair.call_until(session, 1, b"slow", pair.now + ms(10));
    pair.settle();
    pair.disconnect(session);
    pair.live(ms(20));
    assert_eq!(pair.outcome().result, LATE);
    assert_eq!(
        pair.closed(session),
        Some(Cause::Disconnected),
        "the session must not wait for the answer"
    );
    assert_eq!(pair.cancelled.len(), 1);
}

#[test]
fn a_call_with_an_unsent_packet_is_not_executed() {
    let (mut pair, session) = deferring_with(EndpointConfig::new().credits(2).max_credits(2));
    pair.call_until(session, 1, &pattern(1, 4_000), pair.now + ms(10));
    assert_eq!(pair.take_to_server().len(), 2);
    pair.pass(ms(11));
    assert_eq!(pair.outcome().result, UNSENT);
    pair.live(ms(2_000));
    assert_eq!((pair.executed, pair.client.stats().cancelled), (0, 1));
}
