//! Reports that packets were not delivered: a true one ends a session quickly, a forged one does
//! not.

use std::collections::VecDeque;
use std::time::Duration;

use super::pair::{CLIENT, Pair, SERVER, STRANGER, TestRoute, connected, control, header, ms};
use crate::protocol::{
    CallError, Cause, ConnectError, EndpointConfig, ProtocolStats, SessionEvent, SessionId,
};
use crate::time::Instant;
use crate::transport::{NetworkError, Obstacle, Undelivered};
use crate::wire::control::Control;
use crate::wire::{HEADER_LEN, Kind};

const REFUSED: NetworkError = NetworkError::NothingListens;
const NO_ROUTE: NetworkError = NetworkError::NotSent(101);

fn report(pair: &mut Pair, route: TestRoute, error: NetworkError, packet: &[u8]) {
    let report = Undelivered::new(route, error, packet);
    pair.client.undelivered(pair.now, &report, &mut pair.to_server);
    pair.housekeeping();
}

/// The network reports all packets that the client has sent as undelivered. Returns the number of
/// these packets.
fn bounce(pair: &mut Pair, error: NetworkError) -> usize {
    let packets = pair.take_to_server();
    for packet in &packets {
        report(pair, SERVER, error, packet);
    }
    packets.len()
}

fn is_open(pair: &Pair, session: SessionId) -> bool {
    pair.sessions.get(&session) == Some(&SessionEvent::Opened)
}

fn pings(packets: &[Vec<u8>]) -> usize {
    packets.iter().filter(|p| matches!(control(p), Some(Control::Ping { .. }))).count()
}

/// Lets time pass until the session has closed, while the network reports all packets of the client
/// as undelivered. Returns how long that took, and the number of reports.
fn until_closed(pair: &mut Pair, session: SessionId, error: NetworkError) -> (Duration, usize) {
    let (start, mut reports) = (pair.now, 0);
    while is_open(pair, session) {
        assert!(pair.now - start < Duration::from_secs(60), "the session never closes");
        reports += bounce(pair, error);
        if is_open(pair, session) {
            let next = pair.client.next_deadline();
            pair.pass(next - pair.now);
        }
    }
    (pair.now - start, reports)
}

fn stats(pair: &Pair) -> ProtocolStats {
    *pair.client.stats()
}

#[test]
fn calls_to_a_refusing_host_end_after_one_ping() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"sent");
    let request = pair.take_to_server();
    pair.pass(ms(1));
    report(&mut pair, SERVER, REFUSED, &request[0]);
    assert!(is_open(&pair, session), "one report alone ends no session");
    let asked = pair.take_to_server();
    assert_eq!(pings(&asked), 1, "the client asks the server immediately");
    report(&mut pair, SERVER, REFUSED, &asked[0]);
    assert!(is_open(&pair, session), "the report of the ping may be forged, too");
    pair.pass(ms(11));
    assert!(is_open(&pair, session));
    pair.pass(ms(10));
    assert_eq!(pair.closed(session), Some(Cause::Unreachable(REFUSED)));
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::Unreachable(REFUSED)));
    assert_eq!((stats(&pair).undelivered, stats(&pair).stray_reports), (2, 0));
}

#[test]
fn a_queued_call_is_reported_as_not_executed() {
    let (mut pair, session) = connected();
    for token in 0..9 {
        pair.call(session, token, b"x");
    }
    until_closed(&mut pair, session, REFUSED);
    let cause = Cause::Unreachable(REFUSED);
    let mut outcomes = std::mem::take(&mut pair.outcomes);
    outcomes.sort_by_key(|outcome| outcome.token);
    let results: Vec<_> = outcomes.into_iter().map(|outcome| outcome.result).collect();
    assert_eq!(results[..8], vec![Err(CallError::MaybeExecuted(cause)); 8]);
    assert_eq!(results[8..], [Err(CallError::NotExecuted(cause))]);
}

#[test]
fn a_live_server_refutes_a_forged_report() {
    let (mut pair, session) = connected();
    for round in 0..20 {
        pair.call(session, round, b"x");
        let request = pair.take_to_server();
        report(&mut pair, SERVER, REFUSED, &request[0]);
        let ping = pair.take_to_server();
        assert_eq!(pings(&ping), 1);
        // An attacker on the path also sees the ping.
        report(&mut pair, SERVER, REFUSED, &ping[0]);
        pair.burst_at_server(CLIENT, &[request[0].clone(), ping[0].clone()]);
        pair.pass(ms(1));
        pair.settle();
        assert!(pair.outcome().result.is_ok());
        // The pong has come: a forged report of the ping has no effect either.
        report(&mut pair, SERVER, REFUSED, &ping[0]);
        assert!(is_open(&pair, session));
        pair.pass(ms(100));
        pair.settle();
    }
    assert!(is_open(&pair, session));
}

#[test]
fn a_report_that_knows_no_connection_id_or_no_recent_packet_is_ignored() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"first");
    let first = pair.take_to_server();
    pair.burst_at_server(CLIENT, &first);
    pair.settle();
    pair.call(session, 9, b"a later call in another slot");
    let request = pair.take_to_server().remove(0);
    let before = stats(&pair);
    let mut strays = 0;
    let mut ignores = |pair: &mut Pair, route, packet: &[u8]| {
        report(pair, route, REFUSED, packet);
        strays += 1;
        assert_eq!(pair.take_to_server().len(), 0, "no ping");
        assert_eq!(stats(pair).stray_reports - before.stray_reports, strays);
    };
    for bit in 0..64 {
        let mut other = request.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        ignores(&mut pair, SERVER, &other);
    }
    ignores(&mut pair, STRANGER, &request);
    ignores(&mut pair, SERVER, &request[..HEADER_LEN - 1]);
    ignores(&mut pair, SERVER, &[]);
    ignores(&mut pair, SERVER, &first[0]);
    let mut future = request.clone();
    future[12] = future[12].wrapping_add(8);
    ignores(&mut pair, SERVER, &future);
    let mut response = request.clone();
    response[8] = response[8] & !0b1_1100 | (Kind::Response as u8) << 2;
    ignores(&mut pair, SERVER, &response);
    pair.pass_unread(Duration::from_secs(6), Duration::from_secs(6));
    pair.take_to_server();
    // The client has sent the request only once, 6 s ago.
    ignores(&mut pair, SERVER, &request);
    assert!(is_open(&pair, session));
}

#[test]
fn a_refusing_host_that_returns_only_one_packet_ends_the_session_after_four_pings() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"sent");
    let request = pair.take_to_server();
    report(&mut pair, SERVER, REFUSED, &request[0]);
    let (start, mut asked) = (pair.now, 0);
    while is_open(&pair, session) {
        asked += pings(&pair.take_to_server());
        pair.pass(pair.client.next_deadline() - pair.now);
        assert!(pair.now - start < ms(100), "hosts send few ICMP messages");
    }
    // Calls that time out also cause pings.
    assert!((4..=6).contains(&asked), "{asked}");
    assert!(pair.now - start >= ms(48), "{:?}", pair.now - start);
    assert_eq!(pair.closed(session), Some(Cause::Unreachable(REFUSED)));
}

#[test]
fn an_error_that_may_pass_ends_a_session_if_it_lasts() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"sent");
    let (took, _) = until_closed(&mut pair, session, NO_ROUTE);
    assert!((ms(25)..ms(90)).contains(&took), "{took:?}");
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::Unreachable(NO_ROUTE)));
}

#[test]
fn late_reports_of_pings_end_a_session_that_pings_often() {
    const REPORTED_AFTER: Duration = ms(8);
    for error in [NO_ROUTE, REFUSED] {
        let config = EndpointConfig::new().ping_interval(ms(40)).liveness_timeout(ms(5_000));
        let (mut pair, session) = Pair::connected(1_472, config);
        // The session is silent for so long that it pings every 5 ms. Each ping is reported after
        // the next one was sent.
        let (start, mut wire) = (pair.now, VecDeque::new());
        while is_open(&pair, session) {
            let took = pair.now - start;
            assert!(took < ms(1_000), "{error}: the session is still open after {took:?}");
            let at = pair.now + REPORTED_AFTER;
            wire.extend(pair.take_to_server().into_iter().map(|packet| (at, packet)));
            let due = wire.iter().take_while(|(at, _)| *at <= pair.now).count();
            for (_, packet) in wire.drain(..due) {
                report(&mut pair, SERVER, error, &packet);
            }
            let next = wire.front().map_or(Instant::NEVER, |(at, _)| *at);
            pair.pass(pair.client.next_deadline().min(next) - pair.now);
        }
        assert_eq!(pair.closed(session), Some(Cause::Unreachable(error)));
    }
}

#[test]
fn a_route_that_comes_back_saves_the_session() {
    let (mut pair, session) = connected();
    let flaps = NetworkError::Returned(Obstacle::Host);
    for token in 0..10 {
        pair.call(session, token, b"x");
        let end = pair.now + ms(20);
        while pair.now < end {
            bounce(&mut pair, flaps);
            let next = pair.client.next_deadline().min(end);
            pair.pass(next - pair.now);
        }
        pair.live(ms(1_000));
        assert!(pair.outcome().result.is_ok());
    }
    assert!(is_open(&pair, session));
}

#[test]
fn one_report_of_an_error_that_may_pass_leaves_the_session_to_its_liveness_timeout() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"sent");
    bounce(&mut pair, NO_ROUTE);
    let start = pair.now;
    while is_open(&pair, session) {
        pair.take_to_server();
        pair.pass(pair.client.next_deadline() - pair.now);
    }
    assert!(pair.now - start > Duration::from_secs(9), "{:?}", pair.now - start);
    assert_eq!(pair.closed(session), Some(Cause::PeerDead));
}

#[test]
fn a_confirmed_report_ends_all_silent_sessions_to_the_address() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let sessions: Vec<_> = (0..100).map(|_| pair.open()).collect();
    let opening = pair.connect();
    pair.take_to_server();
    pair.call(sessions[7], 1, b"sent");
    until_closed(&mut pair, sessions[7], REFUSED);
    for session in sessions {
        assert_eq!(pair.closed(session), Some(Cause::Unreachable(REFUSED)));
    }
    let cause = Cause::Connect(ConnectError::Unreachable(REFUSED));
    assert_eq!(pair.closed(opening), Some(cause), "a session that opens is silent, too");
}

/// A session, and the failure of a later handshake with the same server: the network reports both
/// of its messages as undelivered.
fn beside_a_failed_handshake(error: NetworkError) -> (Pair, SessionId) {
    let (mut pair, session) = connected();
    pair.pass(ms(1));
    let opening = [pair.connect(), pair.connect()];
    assert_eq!((bounce(&mut pair, error), bounce(&mut pair, error)), (2, 2));
    pair.pass(ms(13));
    let cause = Cause::Connect(ConnectError::Unreachable(error));
    assert_eq!(opening.map(|opening| pair.closed(opening)), [Some(cause); 2]);
    (pair, session)
}

#[test]
fn a_failed_handshake_ends_no_open_session_but_asks_its_server() {
    for error in [REFUSED, NO_ROUTE] {
        let (mut pair, session) = beside_a_failed_handshake(error);
        assert!(is_open(&pair, session), "{error}: the server was not asked");
        let asked = pair.take_to_server();
        assert_eq!((asked.len(), pings(&asked)), (1, 1), "{error}");
        pair.burst_at_server(CLIENT, &asked);
        pair.settle();
        pair.live(ms(200));
        assert!(is_open(&pair, session), "{error}: the server has answered");
    }
}

#[test]
fn a_failed_handshake_with_a_dead_server_ends_open_sessions_after_an_inquiry() {
    for (error, least) in [(REFUSED, ms(12)), (NO_ROUTE, ms(25))] {
        let (mut pair, session) = beside_a_failed_handshake(error);
        assert!(is_open(&pair, session));
        let (took, _) = until_closed(&mut pair, session, error);
        assert!((least - ms(1)..ms(90)).contains(&took), "{error}: {took:?}");
        assert_eq!(pair.closed(session), Some(Cause::Unreachable(error)));
    }
}

#[test]
fn an_address_that_is_heard_on_another_session_is_not_unreachable() {
    for is_on_path in [false, true] {
        // One thread of the server stalls: for 60 ms nothing comes on its session.
        let mut pair = Pair::new(1_472, EndpointConfig::new());
        let sessions = [pair.open(), pair.open()];
        pair.pass(ms(1));
        pair.call(sessions[0], 1, b"stalls");
        let request = pair.take_to_server();
        let stalls = header(&request[0]).connection;
        report(&mut pair, SERVER, REFUSED, &request[0]);
        for token in 10..70 {
            pair.call(sessions[1], token, b"is answered");
            for packet in pair.take_to_server() {
                if header(&packet).connection != stalls {
                    pair.at_server(CLIENT, &packet);
                } else if pings(std::slice::from_ref(&packet)) == 1 && is_on_path {
                    // An attacker on the path.
                    report(&mut pair, SERVER, REFUSED, &packet);
                }
            }
            for packet in pair.take_to_client() {
                pair.at_client(SERVER, &packet);
            }
            assert!(pair.outcome().result.is_ok());
            pair.pass(ms(1));
        }
        assert!(sessions.iter().all(|&session| is_open(&pair, session)), "{is_on_path}");
        pair.live(ms(200));
        assert!(sessions.iter().all(|&session| is_open(&pair, session)), "{is_on_path}");
        assert!(pair.outcome().result.is_ok(), "the server has answered at last");
    }
}

#[test]
fn old_packets_of_a_dead_server_do_not_save_its_sessions() {
    // The client reads the report before packets that the server sent on another session before it
    // died.
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let sessions = [pair.open(), pair.open()];
    pair.pass(ms(1));
    pair.call(sessions[1], 1, b"answered");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    let response = pair.take_to_client();
    pair.call(sessions[0], 2, b"sent");
    let start = pair.now;
    bounce(&mut pair, REFUSED);
    pair.pass(ms(1));
    pair.burst_at_client(SERVER, &response);
    assert!(pair.outcome().result.is_ok());
    for session in sessions {
        until_closed(&mut pair, session, REFUSED);
        assert_eq!(pair.closed(session), Some(Cause::Unreachable(REFUSED)));
    }
    assert!(pair.now - start < ms(90), "{:?}", pair.now - start);
}

#[test]
fn a_handshake_that_begins_during_an_inquiry_waits_for_its_own_answer() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"sent");
    bounce(&mut pair, REFUSED);
    pair.pass(ms(1));
    let opening = pair.connect();
    while is_open(&pair, session) {
        pair.take_to_server();
        pair.pass(pair.client.next_deadline() - pair.now);
    }
    assert_eq!(pair.closed(opening), None);
    pair.live(ms(200));
    assert!(is_open(&pair, opening));
}

#[test]
fn connecting_to_a_refusing_host_fails_after_a_second_hello() {
    for error in [REFUSED, NO_ROUTE] {
        let mut pair = Pair::new(1_472, EndpointConfig::new());
        let session = pair.connect();
        assert_eq!(bounce(&mut pair, error), 1);
        assert_eq!(pair.closed(session), None, "one report alone fails no handshake");
        assert_eq!(bounce(&mut pair, error), 1, "the client asks again immediately");
        assert_eq!(pair.closed(session), None, "both reports may be forged");
        pair.pass(ms(13));
        let cause = Cause::Connect(ConnectError::Unreachable(error));
        assert_eq!(pair.closed(session), Some(cause));
        assert_eq!(pair.take_to_server().len(), 0);
    }
}

#[test]
fn a_copy_that_is_due_does_not_delay_the_end_of_a_failed_handshake() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let session = pair.connect();
    bounce(&mut pair, REFUSED);
    let again = pair.take_to_server();
    // The next copy is due after 50 ms, 5 ms after this report.
    pair.pass(ms(45));
    report(&mut pair, SERVER, REFUSED, &again[0]);
    pair.pass_slowly(ms(11));
    assert_eq!((pair.take_to_server().len(), pair.closed(session)), (1, None));
    pair.pass_slowly(ms(2));
    let cause = Cause::Connect(ConnectError::Unreachable(REFUSED));
    assert_eq!(pair.closed(session), Some(cause));
}

#[test]
fn connecting_fails_if_the_server_dies_during_the_handshake() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let session = pair.connect();
    let (_, open) = pair.challenged();
    report(&mut pair, SERVER, REFUSED, &open);
    assert_eq!(bounce(&mut pair, REFUSED), 1);
    pair.pass(ms(13));
    let cause = Cause::Connect(ConnectError::Unreachable(REFUSED));
    assert_eq!(pair.closed(session), Some(cause));
}

#[test]
fn a_forged_report_of_a_handshake_message_is_ignored_or_refuted() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let session = pair.connect();
    let hello = pair.take_to_server().remove(0);
    for bit in 0..64 {
        let mut other = hello.clone();
        other[HEADER_LEN + bit / 8] ^= 1 << (bit % 8);
        report(&mut pair, SERVER, REFUSED, &other);
        assert_eq!(pair.take_to_server().len(), 0, "bit {bit} of the client's id");
    }
    let mut late = hello.clone();
    late[12] = 9;
    report(&mut pair, SERVER, REFUSED, &late);
    report(&mut pair, STRANGER, REFUSED, &hello);
    assert_eq!(pair.take_to_server().len(), 0);
    // An attacker on the path knows the client's connection id and can forge such reports. They
    // must not delay the handshake.
    for _ in 0..9 {
        report(&mut pair, SERVER, REFUSED, &hello);
    }
    let again = pair.take_to_server();
    assert_eq!(again.len(), 1);
    report(&mut pair, SERVER, REFUSED, &again[0]);
    pair.burst_at_server(CLIENT, &again);
    pair.settle();
    assert!(is_open(&pair, session));
}

#[test]
fn the_reason_of_a_failed_handshake_is_the_networks_if_it_gave_one() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let session = pair.connect();
    bounce(&mut pair, NO_ROUTE);
    let start = pair.now;
    while pair.closed(session).is_none() {
        pair.take_to_server();
        pair.pass(pair.client.next_deadline() - pair.now);
    }
    assert!(pair.now - start >= Duration::from_secs(2));
    let cause = Cause::Connect(ConnectError::Unreachable(NO_ROUTE));
    assert_eq!(pair.closed(session), Some(cause));
}

#[test]
fn a_server_that_restarts_within_the_inquiry_resets_the_session() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"sent");
    let request = pair.take_to_server();
    report(&mut pair, SERVER, REFUSED, &request[0]);
    pair.restart_server(9);
    pair.settle();
    assert_eq!(pair.closed(session), Some(Cause::PeerReset));
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::PeerReset));
}

#[test]
fn a_flood_of_reports_costs_one_ping_per_answer() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"sent");
    let request = pair.take_to_server();
    for _ in 0..1_000 {
        report(&mut pair, SERVER, REFUSED, &request[0]);
    }
    assert_eq!(pair.take_to_server().len(), 1);
}

#[test]
fn a_disconnected_session_does_not_wait_for_a_server_that_is_gone() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    assert_eq!(bounce(&mut pair, REFUSED), 1);
    assert_eq!(pair.closed(session), None, "one report alone ends no session");
    assert_eq!(bounce(&mut pair, REFUSED), 1, "the client sends `Close` again immediately");
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
    assert_eq!(pair.take_to_server().len(), 0);
}

#[test]
fn only_reports_of_two_copies_of_close_end_a_disconnected_session() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"x");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    pair.settle();
    pair.disconnect(session);
    let close = pair.take_to_server().remove(0);
    let strays = stats(&pair).stray_reports;
    let mut unsent = close.clone();
    unsent[12] = 200;
    for other in [&request[0], &unsent] {
        report(&mut pair, SERVER, REFUSED, other);
        assert_eq!(pair.take_to_server().len(), 0);
    }
    assert_eq!(stats(&pair).stray_reports - strays, 2);
    for _ in 0..9 {
        report(&mut pair, SERVER, REFUSED, &close);
    }
    assert_eq!(pair.closed(session), None, "nine reports of one copy");
    let again = pair.take_to_server();
    assert_eq!(again.len(), 1);
    pair.burst_at_server(CLIENT, &again);
    pair.settle();
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
    assert_eq!(pair.server.sessions(), (0, 0), "the server has learned of the end");
}

#[test]
fn a_server_ignores_reports_of_its_own_packets() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"x");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    let response = pair.take_to_client();
    let gone = Undelivered::new(CLIENT, REFUSED, &response[0]);
    pair.server.undelivered(pair.now, &gone, &mut pair.to_client);
    assert_eq!(pair.server.stats().stray_reports, 1);
    pair.burst_at_client(SERVER, &response);
    assert!(pair.outcome().result.is_ok());
    assert!(pair.now > Instant::ZERO);
}
