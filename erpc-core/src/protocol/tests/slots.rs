//! Sessions with other numbers of slots than the default: both ends use the smaller number, and a
//! session with any number of slots keeps the rules.

use super::pair::{CLIENT, Pair, SERVER, Side, header, kinds, ms, pattern};
use super::times;
use crate::protocol::{EndpointConfig, SessionId};
use crate::wire::{HEADER_LEN, Kind};

const NUMBERS: [u8; 3] = [1, 8, 64];

/// A session between a client and a server with these numbers of slots. The handler does not answer
/// by itself.
fn connected(client: u8, server: u8) -> (Pair, SessionId) {
    let side = |slots| Side::new(1_472).config(EndpointConfig::new().slots(slots));
    let (mut pair, session) = Pair::of(side(client), side(server)).and_connected();
    pair.echo = false;
    (pair, session)
}

/// The numbers of the requests in these packets.
fn numbers(packets: &[Vec<u8>]) -> Vec<u32> {
    packets.iter().map(|packet| header(packet).request.to_u32()).collect()
}

/// The number of the slots of both ends' sessions.
fn slots(pair: &Pair, session: SessionId) -> (u8, Option<u8>) {
    let client = pair.client.session_stats(session).expect("an open session").slots;
    let server = pair.asked.front().map(|asked| asked.handle.client());
    (client, server.and_then(|id| Some(pair.server.client_stats(id)?.slots)))
}

#[test]
fn both_ends_use_the_smaller_number_of_slots() {
    for (client, server) in NUMBERS.into_iter().flat_map(|one| NUMBERS.map(|other| (one, other))) {
        let (mut pair, session) = connected(client, server);
        let agreed = client.min(server);
        (0..200).for_each(|token| pair.call(session, token, &pattern(token, 32)));
        let first: Vec<u32> = (0..agreed.into()).collect();
        let sent = pair.take_to_server();
        assert_eq!(numbers(&sent), first, "{client} and {server} slots");
        let stats = pair.client.session_stats(session).expect("an open session");
        assert_eq!((stats.in_flight, stats.queued), (agreed.into(), 200 - usize::from(agreed)));
        pair.burst_at_server(CLIENT, &sent);
        assert_eq!(pair.asked.len(), agreed.into(), "each request is executed");
        assert_eq!(slots(&pair, session), (agreed, Some(agreed)));
        // Every slot but one goes on.
        let kept = pair.asked.pop_front();
        while let Some(asked) = pair.asked.pop_front() {
            pair.respond(asked.handle, &asked.body);
        }
        let answers = pair.take_to_client();
        pair.burst_at_client(SERVER, &answers);
        let second: Vec<u32> = (1..agreed.into()).map(|slot| slot + u32::from(agreed)).collect();
        let sent = pair.take_to_server();
        let mut next = numbers(&sent);
        next.sort_unstable();
        assert_eq!(next, second, "a slot's next request has the next number");
        pair.burst_at_server(CLIENT, &sent);
        pair.asked.extend(kept);
        pair.echo = true;
        while let Some(asked) = pair.asked.pop_front() {
            pair.respond(asked.handle, &asked.body);
            pair.settle();
        }
        pair.settle();
        assert_eq!((pair.outcomes.len(), pair.executed), (200, 200));
        assert!(pair.outcomes.iter().all(|end| end.result == Ok(pattern(end.token, 32))));
    }
}

#[test]
fn a_repeated_request_is_executed_once_in_every_slot() {
    for agreed in NUMBERS {
        let (mut pair, session) = connected(agreed, agreed);
        pair.echo = true;
        for round in 0..times(4) as u64 {
            for token in 0..u64::from(agreed) {
                pair.call(session, round * 64 + token, &pattern(round * 64 + token, 40));
            }
            let sent = pair.take_to_server();
            for packet in sent.iter().chain(&sent) {
                pair.at_server(CLIENT, packet);
            }
            let answers = pair.take_to_client();
            assert_eq!(answers.len(), 2 * sent.len(), "each copy is answered");
            // The copies arrive late, when newer requests are in their slots.
            pair.burst_at_client(SERVER, &answers[..sent.len()]);
            pair.burst_at_client(SERVER, &answers[sent.len()..]);
        }
        let calls = u64::from(times(4)) * u64::from(agreed);
        assert_eq!((pair.executed, pair.outcomes.len() as u64), (calls, calls), "{agreed} slots");
    }
}

#[test]
fn queued_calls_start_in_order_as_slots_become_free() {
    for agreed in NUMBERS {
        let (mut pair, session) = connected(agreed, agreed);
        (0..3 * u64::from(agreed))
            .for_each(|token| pair.call(session, token, &token.to_le_bytes()));
        let mut executed = Vec::new();
        while executed.len() < 3 * usize::from(agreed) {
            pair.settle();
            let asked = pair.asked.pop_front().expect("a request");
            executed.push(u64::from_le_bytes(asked.body[..8].try_into().expect("8 bytes")));
            pair.respond(asked.handle, b"done");
        }
        assert_eq!(executed, (0..3 * u64::from(agreed)).collect::<Vec<_>>());
        pair.settle();
        assert_eq!(pair.outcomes.len(), executed.len());
    }
}

#[test]
fn a_queued_call_that_is_late_does_not_hold_up_the_calls_behind_it() {
    let (mut pair, session) = connected(1, 1);
    pair.call(session, 1, b"in flight");
    let soon = pair.now + ms(1);
    pair.call_until(session, 2, b"late", soon);
    (3..6).for_each(|token| pair.call(session, token, b"in time"));
    pair.settle();
    // The answer arrives after the deadline, and before the session's timer.
    pair.now = soon + ms(1);
    pair.answer(b"answer");
    let answer = pair.take_to_client();
    pair.burst_at_client(SERVER, &answer);
    let sent = pair.take_to_server();
    assert_eq!((kinds(&sent), numbers(&sent)), (vec![Kind::Request], vec![1]));
    pair.housekeeping();
    let mut ended: Vec<u64> = pair.outcomes.iter().map(|outcome| outcome.token).collect();
    ended.sort_unstable();
    assert_eq!(ended, [1, 2]);
}

#[test]
fn a_client_confirms_the_responses_of_all_slots() {
    for agreed in NUMBERS {
        let (mut pair, session) = connected(agreed, agreed);
        pair.echo = true;
        (0..agreed.into()).for_each(|token| pair.call(session, token, &pattern(token, 1_000)));
        pair.settle();
        let held = pair.server.pool_stats().in_use_bytes;
        assert!(held > 1_000 * usize::from(agreed), "{held} bytes are kept");
        let mut confirmed = Vec::new();
        for _ in 0..20 {
            pair.pass(ms(1));
            for packet in pair.take_to_server() {
                if header(&packet).kind == Kind::Done {
                    let body = packet[HEADER_LEN..].as_chunks::<4>().0;
                    confirmed.extend(body.iter().map(|number| u32::from_le_bytes(*number)));
                    assert!(body.len() <= 8, "a Done names up to eight requests");
                }
                pair.at_server(CLIENT, &packet);
            }
        }
        confirmed.sort_unstable();
        assert_eq!(confirmed, (0..agreed.into()).collect::<Vec<u32>>());
        assert_eq!(pair.server.pool_stats().in_use_bytes, 0, "{agreed} slots");
    }
}

#[test]
fn a_server_has_memory_for_the_largest_request_and_response_in_each_slot() {
    for agreed in NUMBERS {
        let config = EndpointConfig::new().slots(agreed).max_message(5_000);
        let (mut pair, session) = Pair::connected(1_472, config);
        pair.echo = false;
        for round in 0..2 {
            for token in 0..agreed.into() {
                pair.call(session, round * 64 + token, &pattern(token, 5_000));
            }
            pair.settle();
            assert_eq!(pair.asked.len(), agreed.into());
            while let Some(asked) = pair.asked.pop_front() {
                pair.respond(asked.handle, &asked.body);
            }
            pair.settle();
        }
        assert_eq!(pair.outcomes.len(), 2 * usize::from(agreed));
        assert!(pair.outcomes.iter().all(|end| end.result.is_ok()), "{agreed} slots");
    }
}
