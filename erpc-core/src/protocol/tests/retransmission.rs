//! When the client retransmits, and how it computes the timeout.

use std::time::Duration;

use super::pair::{CLIENT, Pair, SERVER, Side, connected, deferring, header, kinds, ms, shape};
use crate::protocol::{DropReason, EndpointConfig, Retransmissions, SessionId};
use crate::transport::ChargeModel;
use crate::wire::{Kind, ReplyInfo};

/// The packets that the client sends within `time` if nothing is delivered: kinds, and times from
/// now in ms.
fn sends_within(pair: &mut Pair, time: Duration) -> Vec<(u64, Kind)> {
    let start = pair.now;
    let mut sent = Vec::new();
    while pair.now < start + time {
        let next = pair.client.next_deadline().min(start + time);
        pair.pass(next.max(pair.now) - pair.now);
        let at = (pair.now - start).as_millis() as u64;
        sent.extend(kinds(&pair.take_to_server()).into_iter().map(|kind| (at, kind)));
    }
    sent
}

/// One call whose response arrives after `trip` and reports `processing` as the server's time.
fn round_trip(pair: &mut Pair, session: SessionId, trip: Duration, processing: Duration) {
    pair.call(session, 0, b"ping");
    let sent = pair.take_to_server();
    pair.now = pair.now + trip;
    let info = ReplyInfo::new(processing.as_nanos() as u64, 1 << 20).to_u32();
    let number = header(&sent[0]).request.to_u32();
    let response = pair.response(number, 0, b"pong").aux(info).bytes();
    pair.at_client(SERVER, &response);
    assert!(pair.outcome().result.is_ok());
    // The end of the client's turn.
    pair.pass(ms(0));
}

fn rtt(pair: &Pair, session: SessionId) -> Option<Duration> {
    pair.client.session_stats(session).expect("open").rtt
}

#[test]
fn an_unanswered_call_is_retransmitted_with_pauses_that_double_up_to_half_a_second() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"?");
    pair.take_to_server();
    let sent = sends_within(&mut pair, ms(2_500));
    let requests: Vec<u64> =
        sent.iter().filter(|(_, kind)| *kind == Kind::Request).map(|(at, _)| *at).collect();
    // After the first timeout, each pause is up to a quarter longer than the doubled one, so that
    // clients that lost packets in the same queue do not retransmit in step.
    let pauses: Vec<u64> = requests.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(requests[0], 20, "the first timeout is exact");
    for (pause, doubled) in pauses.iter().zip([40, 80, 160, 320, 500, 500, 500]) {
        assert!((doubled..=doubled * 5 / 4 + 1).contains(pause), "{pauses:?}");
    }
    assert!(pauses.iter().any(|pause| ![40, 80, 160, 320, 500].contains(pause)), "{pauses:?}");
    let count = requests.len() as u64;
    let counts = pair.client.stats().retransmissions;
    assert_eq!((counts.probes, counts.needless_probes, counts.packets()), (count, 0, count));
}

#[test]
fn from_the_second_timeout_on_the_client_also_pings_the_server() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"?");
    pair.take_to_server();
    let sent = sends_within(&mut pair, ms(300));
    let request_and_ping = [Kind::Request, Kind::Control];
    assert_eq!(sent[0], (20, Kind::Request));
    assert_eq!(sent[1..3].iter().map(|(_, kind)| *kind).collect::<Vec<_>>(), request_and_ping);
    assert_eq!(sent[3..5].iter().map(|(_, kind)| *kind).collect::<Vec<_>>(), request_and_ping);
}

#[test]
fn progress_ends_the_backoff() {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(2).max_credits(2));
    let message = pair.message(6);
    pair.call(session, 1, &message);
    sends_within(&mut pair, ms(200));
    let progress = pair.credit_return(0, 1).bytes();
    pair.at_client(SERVER, &progress);
    pair.take_to_server();
    assert_eq!(sends_within(&mut pair, ms(30)).first().map(|(at, _)| *at), Some(20));
}

#[test]
fn the_timeout_follows_measured_round_trips_up() {
    let (mut pair, session) = connected();
    for _ in 0..50 {
        round_trip(&mut pair, session, ms(80), Duration::ZERO);
    }
    assert!((79..=80).contains(&rtt(&pair, session).expect("measured").as_millis()));
    pair.call(session, 1, b"?");
    pair.take_to_server();
    let first = sends_within(&mut pair, ms(200))[0].0;
    assert!((80..90).contains(&first), "{first} ms");
}

#[test]
fn the_timeout_follows_measured_round_trips_down_to_the_floor() {
    for floor in [5, 11] {
        let (mut pair, session) = Pair::connected(1_472, EndpointConfig::new().min_rto(ms(floor)));
        for _ in 0..50 {
            round_trip(&mut pair, session, Duration::from_micros(50), Duration::ZERO);
        }
        pair.pass(ms(100));
        pair.call(session, 1, b"?");
        pair.take_to_server();
        assert_eq!(sends_within(&mut pair, ms(60))[0].0, floor);
    }
}

#[test]
fn the_servers_processing_time_is_not_part_of_the_round_trip() {
    let (mut pair, session) = connected();
    for _ in 0..50 {
        round_trip(&mut pair, session, ms(15), Duration::from_micros(14_900));
    }
    let rtt = rtt(&pair, session).expect("measured").as_micros();
    assert!(
        (100..130).contains(&rtt),
        "{rtt} us; the processing time on the wire is exact to 0.2 %"
    );
}

#[test]
fn a_server_that_claims_too_much_processing_time_does_no_harm() {
    let (mut pair, session) = connected();
    for _ in 0..10 {
        round_trip(&mut pair, session, ms(1), Duration::from_secs(4_000));
    }
    pair.pass(ms(100));
    pair.call(session, 1, b"?");
    pair.take_to_server();
    assert_eq!(
        sends_within(&mut pair, ms(60))[0].0,
        45,
        "the timeout is at most the floor plus eight floors"
    );
}

/// The client makes one call after the other. The server reads its queue 2 ms after a request has
/// arrived, which is forty times the timeout floor.
#[test]
fn a_server_with_its_usual_delay_is_not_probed() {
    let micros = Duration::from_micros;
    let (mut pair, session) = Pair::connected(1_472, EndpointConfig::new().min_rto(micros(50)));
    pair.echo = false;
    for call in 0..50 {
        pair.call(session, call, b"small");
        let mut sent = pair.take_to_server();
        for _ in 0..100 {
            pair.pass(micros(20));
            sent.extend(pair.take_to_server());
        }
        // The first call has the initial timeout of 20 ms. The second call has a timeout from a
        // measured round trip and is probed. Its answer shows the server's usual delay.
        assert_eq!(sent.len() > 1, call == 1, "call {call} was sent {} times", sent.len());
        pair.server_wait.absence = 2_000_000;
        // The handler runs in the server's loop, before the server reads the copies.
        pair.at_server(CLIENT, &sent[0]);
        pair.answer(b"at last");
        pair.burst_at_server(CLIENT, &sent[1..]);
        pair.server_wait.absence = 0;
        pair.settle();
        assert!(pair.outcome().result.is_ok());
    }
}

#[test]
fn a_handler_that_takes_its_usual_time_is_not_probed() {
    let (mut pair, session) = deferring();
    for call in 0..20 {
        let before = pair.client.stats().retransmissions.probes;
        pair.call(session, call, b"slow");
        pair.settle();
        pair.pass(ms(30));
        pair.settle();
        pair.answer(b"at last");
        pair.settle();
        assert!(pair.outcome().result.is_ok());
        let asked = pair.client.stats().retransmissions.probes - before;
        assert_eq!(asked, u64::from(call == 0), "call {call}");
    }
    pair.call(session, 1, b"lost");
    pair.take_to_server();
    let again = sends_within(&mut pair, ms(60))[0].0;
    assert!(
        (30..45).contains(&again),
        "a lost call is retransmitted soon after the usual time: {again} ms"
    );
}

#[test]
fn a_retransmitted_call_gives_no_rtt_sample() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"?");
    pair.pass(ms(25));
    pair.settle();
    assert_eq!((pair.outcomes.len(), rtt(&pair, session)), (1, None));
}

#[test]
fn a_path_that_has_become_longer_than_the_timeout_is_measured_again() {
    let (mut pair, session) = connected();
    for _ in 0..100 {
        round_trip(&mut pair, session, ms(1), Duration::ZERO);
    }
    // The timeout is 6 ms, and answers now take 30 ms.
    let timeouts: Vec<_> = (0..20)
        .map(|token| {
            let before = pair.client.stats().retransmissions.probes;
            pair.call(session, token, b"ping");
            let sent = pair.take_to_server();
            sends_within(&mut pair, ms(30));
            let number = header(&sent[0]).request.to_u32();
            let response = pair.response(number, 0, b"pong").bytes();
            pair.at_client(SERVER, &response);
            assert!(pair.outcome().result.is_ok());
            pair.client.stats().retransmissions.probes - before
        })
        .collect();
    // The first call is probed after 6 ms, and again 12 ms later. The second call is probed after
    // 24 ms, and the other calls never.
    assert_eq!(timeouts, [[2, 1].as_slice(), &[0; 18]].concat());
}

#[test]
fn an_accepted_call_gives_no_rtt_sample() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"?");
    let accepted = pair.accepted(0).bytes();
    pair.at_client(SERVER, &accepted);
    let response = pair.response(0, 0, b"late").bytes();
    pair.at_client(SERVER, &response);
    assert_eq!((pair.outcomes.len(), rtt(&pair, session)), (1, None));
}

#[test]
fn a_lost_response_costs_one_timeout_and_no_second_execution() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"once");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    assert_eq!(pair.take_to_client().len(), 1, "the packet is lost");
    pair.live(ms(21));
    assert_eq!((pair.outcome().result, pair.executed), (Ok(b"once".to_vec()), 1));
}

#[test]
fn a_lost_pull_is_retransmitted_after_a_timeout() {
    let (mut pair, session) = connected();
    let message = pair.message(10);
    pair.call(session, 1, &message);
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    let response = pair.take_to_client();
    pair.burst_at_client(SERVER, &response);
    assert_eq!(
        shape(&pair.take_to_server()),
        [(Kind::RequestForResponse, 1)],
        "the packet is lost"
    );
    assert_eq!(sends_within(&mut pair, ms(30)), [(20, Kind::RequestForResponse)]);
    assert_eq!(pair.client.stats().retransmissions.probes, 1);
}

#[test]
fn the_lost_tail_of_a_response_is_pulled_again_after_a_timeout() {
    let (mut pair, session) = connected();
    let message = pair.message(10);
    pair.call(session, 1, &message);
    while pair.to_client.packets.len() < 9 {
        let (requests, responses) = (pair.take_to_server(), pair.take_to_client());
        pair.burst_at_server(CLIENT, &requests);
        pair.burst_at_client(SERVER, &responses);
    }
    pair.to_client.packets.truncate(6);
    pair.settle();
    pair.pass(ms(21));
    let again = pair.take_to_server();
    assert_eq!(shape(&again), [(Kind::RequestForResponse, 7)]);
    assert_eq!(header(&again[0]).size, 1, "the other packets may still be in a queue");
    pair.burst_at_server(CLIENT, &again);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
}

#[test]
fn a_pull_after_a_long_execution_is_retransmitted_after_a_timeout_too() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    pair.live(ms(1_000));
    let message = pair.message(3);
    pair.answer(&message);
    let first = pair.take_to_client();
    pair.burst_at_client(SERVER, &first);
    assert_eq!(kinds(&pair.take_to_server()), [Kind::RequestForResponse], "the packet is lost");
    assert_eq!(sends_within(&mut pair, ms(100))[0], (20, Kind::RequestForResponse));
}

#[test]
fn a_call_that_waited_is_retransmitted_one_timeout_after_it_was_sent() {
    // The server's window holds one packet, so the calls of the three sessions are sent one after
    // the other.
    let side = Side::new(1_472);
    let mut pair = Pair::of(side.clone(), side.queue(ChargeModel::Ring, 2_048));
    let sessions = [pair.open(), pair.open(), pair.open()];
    for session in sessions {
        pair.call(session, 1, b"takes its turn");
    }
    for _ in 0..2 {
        let sent = pair.take_to_server();
        assert_eq!(sent.len(), 1);
        pair.pass_slowly(ms(15));
        pair.burst_at_server(CLIENT, &sent);
        let response = pair.take_to_client();
        pair.burst_at_client(SERVER, &response);
    }
    assert_eq!(kinds(&pair.take_to_server()), [Kind::Request], "the packet is lost");
    assert_eq!(sends_within(&mut pair, ms(100))[0], (20, Kind::Request));
}

#[test]
fn a_request_is_never_in_the_queue_twice() {
    let (mut pair, session) = connected();
    pair.to_server.slow = true;
    let message = pair.message(4);
    pair.call(session, 1, &message);
    // `Wire` asserts that no header is rewritten while its packet is staged.
    pair.pass(ms(21));
    let gap = pair.gap(0, 1).bytes();
    pair.at_client(SERVER, &gap);
    assert!(pair.to_server.flushes >= 2);
}

#[test]
fn a_retransmission_does_not_flush_when_the_queue_has_read_the_first_copy() {
    let (mut pair, session) = connected();
    let message = pair.message(4);
    pair.call(session, 1, &message);
    pair.housekeeping();
    pair.pass(ms(21));
    let gap = pair.gap(0, 1).bytes();
    pair.at_client(SERVER, &gap);
    assert!(pair.client.stats().retransmissions.packets() >= 2);
    assert!(pair.cancel(session, 1));
    assert_eq!(pair.to_server.flushes, 0);
}

#[test]
fn old_copies_of_a_completed_request_have_no_effect() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"first");
    pair.pass(ms(21));
    let copies = pair.take_to_server();
    assert_eq!(copies.len(), 2);
    pair.at_server(CLIENT, &copies[0]);
    pair.settle();
    pair.call(session, 2, b"second, in the same slot");
    pair.settle();
    pair.server_drops(CLIENT, &copies[1], DropReason::OldRequest);
    assert_eq!((pair.executed, pair.outcomes.len()), (2, 2));
}

/// Number of the client's probes, and of the needless ones among them.
fn probes(pair: &Pair) -> (u64, u64) {
    let Retransmissions { probes, needless_probes, .. } = pair.client.stats().retransmissions;
    (probes, needless_probes)
}

#[test]
fn a_probe_for_a_lost_request_or_a_lost_response_is_needed() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"lost on the way there");
    pair.take_to_server();
    pair.live(ms(21));
    assert!(pair.outcome().result.is_ok());
    pair.call(session, 2, b"lost on the way back");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    pair.take_to_client();
    pair.live(ms(41));
    assert!(pair.outcome().result.is_ok());
    assert_eq!(probes(&pair), (2, 0));
}

#[test]
fn a_probe_for_a_response_that_arrived_twice_was_needless() {
    // In the first case the slot gets a next call, in the second case it does not.
    for next in [true, false] {
        let (mut pair, session) = connected();
        pair.call(session, 1, b"late");
        let request = pair.take_to_server();
        pair.pass(ms(21));
        let probe = pair.take_to_server();
        pair.burst_at_server(CLIENT, &request);
        pair.settle();
        assert!(pair.outcome().result.is_ok());
        assert_eq!(probes(&pair), (1, 0), "nothing shows yet that the probe was needless");
        if next {
            pair.call(session, 2, b"next");
        }
        pair.server_drops(CLIENT, &probe[0], DropReason::Duplicate);
        let again = pair.take_to_client();
        let reason = if next { DropReason::OldRequest } else { DropReason::Duplicate };
        pair.client_drops(SERVER, &again[0], reason);
        assert_eq!(probes(&pair), (1, 1));
        pair.client_drops(SERVER, &again[0], reason);
        assert_eq!(probes(&pair), (1, 1), "a needless probe is counted once");
    }
}

#[test]
fn a_probe_for_an_executing_request_was_needless() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    pair.settle();
    pair.live(ms(60));
    assert_eq!(probes(&pair), (1, 1));
    pair.answer(b"at last");
    pair.settle();
    assert_eq!(probes(&pair), (1, 1));
    let counts = pair.client.session_stats(session).expect("open").retransmissions;
    assert_eq!((counts.probes, counts.needless_probes), (1, 1));
}

#[test]
fn a_probe_sent_after_the_server_had_begun_was_needless() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"?");
    pair.take_to_server();
    pair.pass(ms(25));
    pair.take_to_server();
    let info = ReplyInfo::new(ms(24).as_nanos() as u64, 1 << 20).to_u32();
    let response = pair.response(0, 0, b"!").aux(info).bytes();
    pair.at_client(SERVER, &response);
    assert_eq!(probes(&pair), (1, 1));
}
