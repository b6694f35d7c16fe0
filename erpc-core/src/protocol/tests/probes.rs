//! How few probes a client sends to a silent server, and how much longer it waits for a server or a
//! method that was late.

use std::time::Duration;

use super::pair::{CLIENT, Pair, SERVER, header, kinds, ms};
use crate::protocol::{EndpointConfig, NewCall, SessionId};
use crate::wire::{Kind, ReplyInfo};

/// The round trip in all tests.
const RTT: Duration = Duration::from_micros(40);

/// Two sessions to one server over a measured path. The timeout is `RTT` plus 1 ms.
fn measured() -> (Pair, [SessionId; 2]) {
    measured_with(8)
}

/// As [`measured`], with sessions of this number of slots.
fn measured_with(slots: u8) -> (Pair, [SessionId; 2]) {
    let mut pair = Pair::new(1_472, EndpointConfig::new().min_rto(ms(1)).slots(slots));
    let sessions = [pair.open(), pair.open()];
    measure(&mut pair, sessions);
    pair.pass(ms(100));
    (pair, sessions)
}

/// Makes calls on both sessions, so that the client has measured round trips of both.
fn measure(pair: &mut Pair, sessions: [SessionId; 2]) {
    for session in sessions {
        for _ in 0..50 {
            pair.call(session, 0, b"measured");
            pair.now = pair.now + RTT;
            pair.settle();
        }
    }
    pair.outcomes.clear();
}

/// Makes eight calls on each session, so that each of eight slots is filled. Returns the packets.
fn fill(pair: &mut Pair, sessions: [SessionId; 2]) -> Vec<Vec<u8>> {
    for (session, token) in sessions.into_iter().flat_map(|of| (0..8).map(move |at| (of, at))) {
        pair.call(session, token, b"request");
    }
    pair.take_to_server()
}

/// The kinds of packets that the client sends within `time` if nothing is delivered.
fn sent_within(pair: &mut Pair, time: Duration) -> Vec<Kind> {
    pair.pass_slowly(time);
    kinds(&pair.take_to_server())
}

/// The server answers these packets, and one round trip later the client receives the answers.
fn answered(pair: &mut Pair, packets: &[Vec<u8>]) {
    pair.burst_at_server(CLIENT, packets);
    let answers = pair.take_to_client();
    pair.now = pair.now + RTT;
    pair.burst_at_client(SERVER, &answers);
}

fn call_of(pair: &mut Pair, session: SessionId, method: u32) -> Vec<Vec<u8>> {
    let request = pair.client.pool().alloc(8).expect("memory");
    let call = NewCall::new(method, request, 0);
    pair.client.call(pair.now, session, call, &mut pair.to_server).expect("accepted");
    pair.take_to_server()
}

/// A call of this method. Its response arrives after `RTT` plus `processing`, and reports
/// `processing` as the server's time.
fn timed(pair: &mut Pair, session: SessionId, method: u32, processing: Duration) {
    let sent = call_of(pair, session, method);
    let header = header(&sent[0]);
    pair.burst_at_server(CLIENT, &sent);
    pair.take_to_client();
    pair.now = pair.now + RTT + processing;
    let info = ReplyInfo::new(processing.as_nanos() as u64, 1 << 20).to_u32();
    let response = pair.response(header.request.to_u32(), 0, b"done").aux(info).bytes();
    pair.at_client(SERVER, &response);
    assert!(pair.outcome().result.is_ok());
}

/// Makes a call of this method, which is lost. Returns the time until its retransmission, in us.
fn lost(pair: &mut Pair, session: SessionId, method: u32) -> u64 {
    call_of(pair, session, method);
    let start = pair.now;
    while pair.to_server.packets.is_empty() {
        let next = pair.client.next_deadline().max(pair.now);
        pair.pass(next - pair.now);
    }
    let after = (pair.now - start).as_micros() as u64;
    pair.settle();
    pair.outcome().result.expect("answered");
    // A measured round trip ends the backoff.
    timed(pair, session, 1_000, Duration::ZERO);
    after
}

#[test]
fn a_silent_server_gets_one_probe_for_all_calls_of_all_sessions() {
    let (mut pair, sessions) = measured();
    fill(&mut pair, sessions);
    assert_eq!(sent_within(&mut pair, ms(2)), [Kind::Request]);
    assert_eq!(pair.client.stats().retransmissions.probes, 1);
}

#[test]
fn a_late_server_gets_only_the_probe_twice() {
    let (mut pair, sessions) = measured();
    let requests = fill(&mut pair, sessions);
    pair.pass_slowly(ms(2));
    let probe = pair.take_to_server();
    assert_eq!(probe.len(), 1);
    // The server resumes, takes 4 packets per burst, and receives the probe last.
    for burst in requests.chunks(4) {
        answered(&mut pair, burst);
        pair.pass(Duration::ZERO);
    }
    pair.burst_at_server(CLIENT, &probe);
    pair.settle();
    pair.pass_slowly(ms(100));
    assert_eq!((pair.outcomes.len(), pair.to_server.packets.len()), (16, 0));
    assert_eq!(pair.client.stats().retransmissions.packets(), 1);
}

#[test]
fn if_only_the_probe_is_answered_the_other_calls_are_retransmitted_within_two_round_trips() {
    let (mut pair, sessions) = measured();
    fill(&mut pair, sessions);
    pair.pass_slowly(ms(2));
    let probe = pair.take_to_server();
    answered(&mut pair, &probe);
    pair.pass_slowly(2 * RTT);
    let again = pair.take_to_server();
    assert_eq!(kinds(&again), [Kind::Request; 15], "they were lost together with the first call");
    answered(&mut pair, &again);
    assert_eq!(pair.outcomes.len(), 16);
}

#[test]
fn the_answer_to_a_later_call_shows_immediately_which_calls_were_lost() {
    let (mut pair, sessions) = measured();
    for token in 0..8 {
        pair.call(sessions[0], token, b"lost");
    }
    pair.take_to_server();
    pair.pass(Duration::from_micros(10));
    let later = call_of(&mut pair, sessions[1], 1);
    answered(&mut pair, &later);
    assert_eq!(sent_within(&mut pair, Duration::from_micros(1_040)), [Kind::Request; 8]);
}

#[test]
fn after_an_unanswered_probe_another_call_is_the_probe() {
    let (mut pair, sessions) = measured();
    let requests = fill(&mut pair, sessions);
    pair.pass_slowly(ms(2));
    let first = pair.take_to_server();
    pair.pass_slowly(ms(3));
    let second = pair.take_to_server();
    let data: Vec<_> = second.iter().filter(|sent| header(sent).kind == Kind::Request).collect();
    assert_eq!(data.len(), 1, "{:?}", kinds(&second));
    assert!(requests.contains(&first[0]) && requests.contains(data[0]));
    // Some paths always drop certain packets; another packet may pass.
    assert_ne!(&first[0], data[0]);
}

#[test]
fn a_client_waits_longer_for_a_late_server_until_it_is_in_time_for_seconds() {
    // Eight calls in flight are many, also for a session that has room for more.
    for slots in [8, 64] {
        let (mut pair, sessions) = measured_with(slots);
        let mut probes = |pause: Duration| {
            pair.pass_slowly(pause);
            let before = pair.client.stats().retransmissions.packets();
            let mut requests = fill(&mut pair, sessions);
            pair.pass_slowly(ms(3));
            requests.extend(pair.take_to_server());
            answered(&mut pair, &requests);
            pair.pass_slowly(ms(50));
            pair.settle();
            assert_eq!(pair.outcomes.len(), 16);
            measure(&mut pair, sessions);
            pair.client.stats().retransmissions.packets() - before
        };
        let counts = [0, 10, 100, 500, 2_500].map(|pause| probes(ms(pause)));
        assert_eq!(counts, [1, 0, 0, 0, 1], "{slots} slots");
    }
}

#[test]
fn a_client_waits_for_a_slow_method_however_many_quick_calls_are_answered() {
    let (mut pair, [_, session]) = measured();
    timed(&mut pair, session, 1, ms(5));
    for _ in 0..200 {
        timed(&mut pair, session, 2, Duration::from_micros(3));
    }
    let waited = lost(&mut pair, session, 1);
    assert!((6_000..6_400).contains(&waited), "{waited} us");
}

#[test]
fn a_client_waits_less_for_a_quick_method_than_for_a_slow_one() {
    let (mut pair, [_, session]) = measured();
    timed(&mut pair, session, 1, ms(5));
    let waited = lost(&mut pair, session, 2);
    assert!((1_000..1_400).contains(&waited), "{waited} us");
}

#[test]
fn a_slow_method_is_forgotten_after_two_seconds() {
    let (mut pair, [_, session]) = measured();
    timed(&mut pair, session, 1, ms(5));
    pair.pass_slowly(ms(900));
    assert!(lost(&mut pair, session, 1) > 6_000);
    pair.pass_slowly(ms(2_100));
    let waited = lost(&mut pair, session, 1);
    assert!((1_000..1_400).contains(&waited), "{waited} us");
}

#[test]
fn a_client_waits_at_most_eight_floors_longer_for_a_slow_method() {
    let (mut pair, [_, session]) = measured();
    timed(&mut pair, session, 1, ms(200));
    let waited = lost(&mut pair, session, 1);
    assert!((9_000..9_400).contains(&waited), "{waited} us");
}

#[test]
fn of_too_many_slow_methods_the_client_remembers_the_slowest() {
    let (mut pair, [_, session]) = measured();
    for method in 0..40 {
        timed(&mut pair, session, method, Duration::from_micros(1_000 + u64::from(method) * 100));
    }
    assert!(lost(&mut pair, session, 39) > 5_800);
    let forgotten = lost(&mut pair, session, 3);
    assert!((1_000..1_400).contains(&forgotten), "{forgotten} us");
}

#[test]
fn the_delay_of_a_server_is_forgotten_after_some_answers_of_the_method() {
    let (mut pair, [_, session]) = measured();
    timed(&mut pair, session, 1, ms(5));
    for _ in 0..30 {
        timed(&mut pair, session, 1, Duration::from_micros(3));
    }
    let waited = lost(&mut pair, session, 1);
    assert!((1_000..1_400).contains(&waited), "{waited} us");
}

/// A call of this method that is overtaken by a later call of method 9. Its answer reports
/// `processing`.
fn overtaken(pair: &mut Pair, session: SessionId, method: u32, processing: Duration) {
    let sent = call_of(pair, session, method);
    let slow = header(&sent[0]);
    pair.burst_at_server(CLIENT, &sent);
    pair.take_to_client();
    pair.now = pair.now + Duration::from_micros(5);
    timed(pair, session, 9, Duration::ZERO);
    pair.now = pair.now + processing;
    let info = ReplyInfo::new(processing.as_nanos() as u64, 1 << 20).to_u32();
    let response = pair.response(slow.request.to_u32(), 0, b"done").aux(info).bytes();
    pair.at_client(SERVER, &response);
    assert!(pair.outcome().result.is_ok());
}

/// Makes a call of this method, which is lost, while a later call of another method is answered.
/// Returns the time until the retransmission, in us.
fn passed(pair: &mut Pair, session: SessionId, method: u32) -> u64 {
    let start = pair.now;
    call_of(pair, session, method);
    pair.now = pair.now + Duration::from_micros(5);
    timed(pair, session, 9, Duration::ZERO);
    while pair.to_server.packets.is_empty() {
        let next = pair.client.next_deadline().max(pair.now);
        pair.pass(next - pair.now);
    }
    let after = (pair.now - start).as_micros() as u64;
    pair.settle();
    pair.outcome().result.expect("answered");
    after
}

#[test]
fn a_call_overtaken_after_its_timer_was_armed_does_not_wait_for_the_server_delay() {
    let (mut pair, [other, session]) = measured();
    timed(&mut pair, session, 1, ms(5));
    let start = pair.now;
    call_of(&mut pair, session, 1);
    // The timer of an earlier call fires, and is then armed for this call.
    pair.pass(Duration::from_micros(500));
    let later = call_of(&mut pair, other, 9);
    answered(&mut pair, &later);
    pair.outcome();
    while pair.to_server.packets.is_empty() {
        let next = pair.client.next_deadline().max(pair.now);
        pair.pass(next - pair.now);
    }
    let waited = (pair.now - start).as_micros();
    assert!((1_000..1_400).contains(&waited), "{waited} us");
}

#[test]
fn an_overtaken_call_does_not_wait_for_the_server_delay() {
    let (mut pair, [_, session]) = measured();
    timed(&mut pair, session, 1, ms(5));
    let waited = passed(&mut pair, session, 1);
    assert!((1_000..1_400).contains(&waited), "{waited} us");
}

#[test]
fn an_overtaken_call_waits_for_a_method_that_is_answered_out_of_order() {
    for (took, waits) in [(4, 6_000..6_400), (20, 26_000..26_400), (200, 9_000..9_400)] {
        let (mut pair, [_, session]) = measured();
        overtaken(&mut pair, session, 1, ms(took));
        for _ in 0..50 {
            timed(&mut pair, session, 1, Duration::from_micros(3));
        }
        let waited = passed(&mut pair, session, 1);
        assert!(waits.contains(&waited), "{waited} us after {took} ms");
    }
}

#[test]
fn one_call_probes_for_all_overtaken_calls_of_a_slow_method() {
    let (mut pair, [_, session]) = measured();
    overtaken(&mut pair, session, 1, ms(2));
    pair.echo = false;
    for _ in 0..7 {
        call_of(&mut pair, session, 1).iter().for_each(|sent| pair.at_server(CLIENT, sent));
    }
    pair.now = pair.now + Duration::from_micros(5);
    timed(&mut pair, session, 9, Duration::ZERO);
    // After 3.5 ms one call probes. The server answers that the request executes, so the other
    // calls wait for the same time again, and then twice as long.
    let before = pair.client.stats().retransmissions.packets();
    pair.live(ms(13));
    assert_eq!(pair.client.stats().retransmissions.packets() - before, 2);
}

#[test]
fn lost_calls_of_a_slow_method_are_retransmitted_one_then_two_then_four() {
    let (mut pair, [_, session]) = measured();
    overtaken(&mut pair, session, 1, ms(2));
    for _ in 0..7 {
        call_of(&mut pair, session, 1);
    }
    pair.now = pair.now + Duration::from_micros(5);
    timed(&mut pair, session, 9, Duration::ZERO);
    let mut sent = vec![];
    while pair.outcomes.len() < 7 {
        let next = pair.client.next_deadline().max(pair.now);
        pair.pass(next - pair.now);
        let packets = pair.take_to_server();
        sent.extend((!packets.is_empty()).then_some(packets.len()));
        answered(&mut pair, &packets);
    }
    assert_eq!(sent, [1, 2, 4]);
}

#[test]
fn a_lost_call_is_retransmitted_however_long_other_calls_of_its_method_execute() {
    let (mut pair, [_, session]) = measured();
    overtaken(&mut pair, session, 1, ms(2));
    pair.echo = false;
    for _ in 0..6 {
        call_of(&mut pair, session, 1).iter().for_each(|sent| pair.at_server(CLIENT, sent));
    }
    call_of(&mut pair, session, 1);
    pair.now = pair.now + Duration::from_micros(5);
    timed(&mut pair, session, 9, Duration::ZERO);
    let before = pair.asked.len();
    // The lost call waits at most for a timeout (1 ms), the longest time of a method (32 ms), and
    // eight timeout floors for the probes of other calls (8 ms). 1 ms is spare.
    pair.live(ms(1 + 32 + 8 + 1));
    assert_eq!(pair.asked.len(), before + 1);
}

#[test]
fn an_answer_shows_that_all_packets_before_its_request_were_read() {
    let (mut pair, [other, session]) = measured();
    call_of(&mut pair, session, 1);
    pair.pass_unread(ms(2), ms(3));
    assert_eq!(kinds(&pair.take_to_server()), [], "the answer may be in the receive queue");
    let later = call_of(&mut pair, other, 9);
    answered(&mut pair, &later);
    pair.pass_unread(Duration::from_micros(20), ms(3));
    assert_eq!(kinds(&pair.take_to_server()), [Kind::Request]);
}

#[test]
fn the_first_timeout_comes_from_the_round_trip_of_the_handshake() {
    let mut pair = Pair::new(1_472, EndpointConfig::new().min_rto(ms(1)));
    let session = pair.connect();
    let (_, open) = pair.challenged();
    answered(&mut pair, &[open]);
    pair.call(session, 1, b"first");
    pair.take_to_server();
    assert_eq!(sent_within(&mut pair, Duration::from_micros(1_030)), []);
    assert_eq!(sent_within(&mut pair, Duration::from_micros(50)), [Kind::Request]);
}

#[test]
fn when_a_restarted_server_resets_one_session_the_others_ping_immediately() {
    let (mut pair, sessions) = measured();
    fill(&mut pair, sessions);
    pair.restart_server(9);
    pair.live(ms(12));
    assert!(sessions.iter().all(|session| pair.closed(*session).is_some()));
}
