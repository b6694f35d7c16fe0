//! Waiting calls are served in turn, and no call starves.

use super::pair::{Pair, SERVER, Side, header, ms, pattern};
use crate::protocol::{EndpointConfig, SessionId};
use crate::transport::ChargeModel;

/// A client with `sessions` sessions to a server whose window for the client is `packets` packets.
fn narrow(sessions: usize, packets: u32) -> (Pair, Vec<SessionId>) {
    let side = Side::new(1_472);
    let units = packets * ChargeModel::RING_ENTRY;
    let mut pair = Pair::of(side.clone(), side.queue(ChargeModel::Ring, units.div_ceil(3) * 4));
    let sessions = (0..sessions).map(|_| pair.open()).collect();
    (pair, sessions)
}

/// Runs `turns` turns, each of which delivers at most one packet in each direction, and starts
/// another call after each completion. Returns the tokens of the completed calls in order.
fn keep_calling(pair: &mut Pair, from: SessionId, body: &[u8], turns: usize) -> Vec<u64> {
    let mut completed = Vec::new();
    for turn in 0..turns {
        if let Some((_, bytes)) = pair.to_server.packets.pop_front() {
            pair.at_server(super::pair::CLIENT, &bytes);
        }
        if let Some((_, bytes)) = pair.to_client.packets.pop_front() {
            pair.at_client(SERVER, &bytes);
        }
        for outcome in std::mem::take(&mut pair.outcomes) {
            completed.push(outcome.token);
            pair.call(from, 1_000 + turn as u64, body);
        }
    }
    completed
}

/// Number of calls of session `busy` that complete before a call of `session`. 20 calls of `busy`
/// are queued ahead of this call.
fn place_of(pair: &mut Pair, session: SessionId, body: &[u8], busy: SessionId) -> usize {
    for token in 0..20 {
        pair.call(busy, token, b"busy");
    }
    pair.call(session, 99, body);
    let completed = keep_calling(pair, busy, b"busy", 200);
    completed.iter().position(|token| *token == 99).expect("the call completes")
}

#[test]
fn a_busy_session_does_not_starve_another_of_the_window() {
    let (mut pair, sessions) = narrow(2, 1);
    let place = place_of(&mut pair, sessions[1], b"one call", sessions[0]);
    assert!(place <= 8, "{place}");
}

#[test]
fn small_calls_do_not_starve_a_large_packet_of_the_window() {
    let side = Side::new(9_000);
    let server = side.clone().queue(ChargeModel::LinuxUdp, 32_000);
    let mut pair = Pair::of(side, server);
    let sessions = [pair.open(), pair.open()];
    // The large packet takes 16,640 of the window's 24,000 units, so it fits only if small packets
    // leave room for it.
    let place = place_of(&mut pair, sessions[1], &pattern(1, 8_900), sessions[0]);
    assert!(place <= 32, "{place}");
}

#[test]
fn a_busy_session_does_not_starve_another_of_the_room_for_replies() {
    let side = Side::new(1_472);
    let client = side.clone().queue(ChargeModel::Ring, ChargeModel::RING_ENTRY);
    let mut pair = Pair::of(client, side);
    let sessions = [pair.open(), pair.open()];
    let place = place_of(&mut pair, sessions[1], b"one call", sessions[0]);
    assert!(place <= 8, "{place}");
}

#[test]
fn a_call_waiting_for_a_credit_is_served_before_one_waiting_for_a_slot() {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(1).max_credits(1));
    for token in 0..10 {
        pair.call(session, token, b"in order");
    }
    let mut numbers = Vec::new();
    while let Some((_, bytes)) = pair.to_server.packets.pop_front() {
        numbers.push(header(&bytes).request.to_u32());
        pair.at_server(super::pair::CLIENT, &bytes);
        while let Some((_, bytes)) = pair.to_client.packets.pop_front() {
            pair.at_client(SERVER, &bytes);
        }
    }
    assert_eq!(
        numbers[..8],
        [0, 1, 2, 3, 4, 5, 6, 7],
        "a queued call must not overtake a call in a slot"
    );
    assert_eq!(pair.outcomes.len(), 10);
}

#[test]
fn credits_of_a_burst_go_together_to_the_first_waiting_call() {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(8).max_credits(8));
    for token in 0..4 {
        pair.call(session, token, &pattern(1, 60_000));
    }
    let numbers = |packets: &[Vec<u8>]| -> Vec<u32> {
        packets.iter().map(|bytes| header(bytes).request.to_u32()).collect()
    };
    let mut requests = pair.to_server.take();
    // The first call is also the first in the queue for more credits.
    let first = numbers(&requests)[0];
    for turn in 0..8 {
        // The server receives two packets per burst and returns credits for two; the client
        // receives all returns in one burst.
        for burst in requests.chunks(2) {
            pair.burst_at_server(super::pair::CLIENT, burst);
        }
        let returns = pair.to_client.take();
        assert_eq!(returns.len(), 4);
        pair.burst_at_client(SERVER, &returns);
        requests = pair.to_server.take();
        assert_eq!(numbers(&requests), [first + turn % 4; 8], "all credits go to one call");
    }
}

#[test]
fn short_calls_and_long_calls_do_not_starve_each_other() {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(8).max_credits(8));
    for token in 0..7 {
        pair.call(session, token, &pattern(1, 600_000));
    }
    let mut requests = pair.to_server.take();
    pair.call(session, 99, b"short");
    let mut shorts = 0;
    let mut longs = 0;
    for burst in 0..200 {
        pair.burst_at_server(super::pair::CLIENT, &requests);
        let answers = pair.to_client.take();
        pair.burst_at_client(SERVER, &answers);
        for outcome in std::mem::take(&mut pair.outcomes) {
            assert_eq!(outcome.token, 99, "only short calls complete");
            shorts += 1;
            pair.call(session, 99, b"short");
        }
        requests = pair.to_server.take();
        longs += requests.iter().filter(|bytes| header(bytes).size > 1_000).count();
        assert!(burst < 2 || shorts > 0, "the short call leaves with the first returned credits");
    }
    assert!(shorts >= 90, "{shorts} short calls completed, a round trip is two bursts");
    assert!(longs >= 1_200, "{longs} packets of long calls in 200 bursts");
}

#[test]
fn a_turn_handles_a_limited_number_of_due_timers() {
    let side = Side::new(1_472);
    let mut pair = Pair::of(side.clone(), side);
    let sessions: Vec<_> = (0..200).map(|_| pair.connect()).collect();
    pair.settle();
    pair.to_server.take();
    // All sessions are due for a ping at the same time.
    pair.now = pair.now + ms(3_100);
    let mut turns = 0;
    while pair.client.next_deadline() <= pair.now {
        pair.client.expire(pair.now, pair.now, &mut pair.to_server);
        let pings = pair.take_to_server().len();
        assert!(pings <= 32, "{pings} pings in a turn");
        turns += 1;
    }
    assert!((200 / 32..=20).contains(&turns), "{turns} turns for {} sessions", sessions.len());
}
