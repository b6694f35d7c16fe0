//! How each side detects a dead peer, and how its calls end.

use std::sync::Arc;
use std::time::Duration;

use super::pair::{
    CLIENT, Pair, SERVER, Side, connected, control, deferring, header, kinds, ms, pattern,
};
use crate::protocol::{
    Acceptor, CallError, Cause, DropReason, EndpointConfig, ListenGroup, Notice, SessionEvent,
    SessionId,
};
use crate::wire::Kind;
use crate::wire::control::Control;

fn open(pair: &Pair, session: SessionId) -> bool {
    pair.sessions.get(&session) == Some(&SessionEvent::Opened)
}

/// Lets time pass, with every packet to the server lost, until the session has closed. Returns the
/// time that this took.
fn until_closed(pair: &mut Pair, session: SessionId) -> Duration {
    let start = pair.now;
    while open(pair, session) {
        assert!(pair.now - start < Duration::from_secs(60), "the session never closes");
        let next = pair.client.next_deadline();
        pair.pass(next - pair.now);
        pair.take_to_server();
    }
    pair.now - start
}

#[test]
fn an_idle_client_pings_at_the_interval_and_a_pong_keeps_the_session() {
    let (mut pair, session) = connected();
    let mut pings = 0;
    let start = pair.now;
    while pair.now - start < Duration::from_secs(60) {
        let next = pair.client.next_deadline().min(pair.server.next_deadline());
        pair.pass(next - pair.now);
        let sent = pair.take_to_server();
        pings += sent.len();
        assert!(sent.iter().all(|packet| matches!(control(packet), Some(Control::Ping { .. }))));
        pair.burst_at_server(CLIENT, &sent);
        let pongs = pair.take_to_client();
        assert!(
            pongs.iter().all(|packet| matches!(control(packet), Some(Control::Pong))),
            "the server must not send pings of its own"
        );
        pair.burst_at_client(SERVER, &pongs);
    }
    assert!((17..=20).contains(&pings), "{pings} in 60 s: every 3 to 3.375 s");
    assert!(open(&pair, session));
}

#[test]
fn sessions_opened_together_spread_their_pings_over_an_eighth_of_the_interval() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    for _ in 0..100 {
        pair.connect();
    }
    pair.settle();
    let (start, mut pings) = (pair.now, Vec::new());
    while pair.now - start < Duration::from_secs(4) {
        pair.pass(pair.client.next_deadline() - pair.now);
        let sent = pair.take_to_server();
        pings.extend(sent.iter().map(|_| (pair.now - start).as_millis()));
        pair.burst_at_server(CLIENT, &sent);
        let pongs = pair.take_to_client();
        pair.burst_at_client(SERVER, &pongs);
    }
    assert_eq!(pings.len(), 100);
    assert!(pings.iter().all(|at| (3_000..=3_375).contains(at)), "{pings:?}");
    let crowd =
        pings.iter().map(|at| pings.iter().filter(|other| at.abs_diff(**other) <= 10).count());
    assert!(crowd.max() <= Some(16), "{pings:?}");
}

#[test]
fn calls_keep_a_session_alive_without_pings() {
    let (mut pair, session) = connected();
    for _ in 0..20 {
        pair.call(session, 1, b"x");
        pair.settle();
        pair.pass_slowly(ms(1_000));
        assert_eq!(pair.take_to_server().len(), 0);
    }
}

#[test]
fn an_idle_session_with_a_silent_server_closes_at_the_liveness_timeout() {
    let (mut pair, session) = connected();
    let took = until_closed(&mut pair, session);
    assert!((10_000..10_100).contains(&took.as_millis()), "{took:?}");
    assert_eq!(pair.closed(session), Some(Cause::PeerDead));
}

#[test]
fn when_the_peer_is_dead_every_call_ends_once_and_reports_its_execution() {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(8).max_credits(8));
    pair.echo = false;
    let large = pair.message(4);
    pair.call(session, 1, b"executed, its response in flight");
    pair.settle();
    pair.answer(&large);
    let first = pair.take_to_client();
    pair.burst_at_client(SERVER, &first);
    pair.take_to_server();
    pair.call(session, 2, b"sent");
    let long = pair.message(20);
    pair.call(session, 3, &long);
    for token in 4..9 {
        pair.call(session, token, b"has a slot, no credit");
    }
    pair.call(session, 9, b"queued");
    pair.take_to_server();
    until_closed(&mut pair, session);
    let mut outcomes = std::mem::take(&mut pair.outcomes);
    outcomes.sort_by_key(|outcome| outcome.token);
    let tokens: Vec<u64> = outcomes.iter().map(|outcome| outcome.token).collect();
    assert_eq!(tokens, (1..=9).collect::<Vec<_>>(), "each call must end once");
    let errors: Vec<_> =
        outcomes.into_iter().map(|outcome| outcome.result.expect_err("failed")).collect();
    assert_eq!(errors[0], CallError::ResponseLost(Cause::PeerDead));
    assert_eq!(errors[1], CallError::MaybeExecuted(Cause::PeerDead));
    for error in &errors[2..] {
        assert_eq!(
            *error,
            CallError::NotExecuted(Cause::PeerDead),
            "the request was never sent completely"
        );
    }
    let stats = pair.client.stats();
    assert_eq!((stats.calls, stats.responses, stats.failures), (9, 0, 9));
    assert_eq!((pair.client.sessions(), pair.client.pool_stats().in_use), ((0, 0), 0));
}

#[test]
fn calls_end_before_their_session_is_reported_closed() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"a");
    pair.call(session, 2, b"b");
    pair.take_to_server();
    until_closed(&mut pair, session);
    assert_eq!(pair.told, ["Opened", "call 1", "call 2", "Closed(PeerDead)"]);
}

#[test]
fn a_dead_peer_is_detected_in_time_while_calls_are_in_flight() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"x");
    pair.take_to_server();
    let took = until_closed(&mut pair, session);
    assert!((10_000..10_600).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn a_client_that_was_suspended_pings_before_it_closes_the_session() {
    let (mut pair, session) = connected();
    pair.pass(Duration::from_secs(100));
    assert!(open(&pair, session), "one late timer does not prove that the server is dead");
    pair.live(ms(100));
    assert!(open(&pair, session));
}

#[test]
fn a_client_that_was_suspended_pings_for_a_ping_interval_before_it_closes_the_session() {
    let (mut pair, session) = connected();
    pair.pass(Duration::from_secs(100));
    assert_eq!(pair.take_to_server().len(), 1, "one ping, which is lost");
    pair.pass_slowly(ms(2_600));
    assert!(pair.take_to_server().len() >= 6);
    assert!(open(&pair, session), "a few lost pings do not prove that the server is dead");
    pair.live(ms(100));
    assert!(open(&pair, session));
}

#[test]
fn a_client_suspended_during_a_call_retransmits_before_it_closes_the_session() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"lost twice, then the client is suspended");
    pair.pass(ms(25));
    pair.take_to_server();
    pair.pass(Duration::from_secs(100));
    assert!(open(&pair, session));
    pair.live(ms(100));
    assert!(pair.outcome().result.is_ok());
}

#[test]
fn a_restarted_server_is_detected_within_a_few_timeouts_of_a_call() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"before");
    pair.settle();
    pair.outcomes.clear();
    pair.restart_server(50);
    pair.call(session, 2, b"lost in the restart");
    let start = pair.now;
    pair.live(ms(100));
    assert_eq!(pair.closed(session), Some(Cause::PeerReset));
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::PeerReset));
    assert!(pair.now - start <= ms(100));
    assert_eq!(pair.executed, 1, "the new server must not execute the old session's request");
    let again = pair.open();
    pair.call(again, 3, b"after");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"after".to_vec()));
}

#[test]
fn a_restarted_server_of_an_idle_session_is_detected_at_the_next_ping() {
    let (mut pair, session) = connected();
    pair.restart_server(50);
    pair.live(ms(3_800));
    assert_eq!(pair.closed(session), Some(Cause::PeerReset));
}

#[test]
fn a_server_restarted_during_execution_is_detected_at_the_next_ping() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    pair.live(ms(100));
    pair.restart_server(50);
    pair.live(ms(3_800));
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::PeerReset));
    assert_eq!(pair.closed(session), Some(Cause::PeerReset));
}

#[test]
fn a_restarted_server_drops_packets_from_before_the_restart() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"from before");
    let old = pair.take_to_server();
    pair.restart_server(50);
    let new = pair.open();
    pair.server_drops(CLIENT, &old[0], DropReason::UnknownConnection);
    assert_eq!(pair.executed, 0);
    assert!(open(&pair, new));
}

#[test]
fn a_handler_that_takes_3_seconds_costs_at_most_3_extra_packets_and_gives_no_sample() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    let mut sent = 0;
    let start = pair.now;
    while pair.now - start < ms(3_000) {
        let requests = pair.take_to_server();
        sent += requests.len();
        pair.burst_at_server(CLIENT, &requests);
        let replies = pair.take_to_client();
        pair.burst_at_client(SERVER, &replies);
        let next = pair.client.next_deadline().min(start + ms(3_000));
        pair.pass(next - pair.now);
    }
    pair.answer(b"at last");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"at last".to_vec()));
    assert!(sent <= 1 + 3, "{sent} packets");
    assert_eq!((pair.executed, pair.client.session_stats(session).expect("open").rtt), (1, None));
}

#[test]
fn a_lost_response_to_a_slow_call_is_recovered_by_the_probe() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    pair.live(ms(500));
    pair.answer(b"lost");
    pair.take_to_client();
    pair.live(ms(3_800));
    assert_eq!((pair.outcome().result, pair.executed), (Ok(b"lost".to_vec()), 1));
}

#[test]
fn a_slow_call_outlives_the_liveness_timeout_while_the_server_answers() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"very slow");
    pair.live(Duration::from_secs(60));
    pair.answer(b"a minute later");
    pair.settle();
    assert_eq!((pair.outcome().result, pair.executed), (Ok(b"a minute later".to_vec()), 1));
}

#[test]
fn a_server_closes_the_session_of_a_dead_client() {
    let (mut pair, _) = deferring();
    let message = pair.message(3);
    let half = pair.request(0, 0, &message).bytes();
    pair.at_server(CLIENT, &half);
    let start = pair.now;
    let mut pings = 0;
    while pair.server.sessions().1 > 0 {
        assert!(pair.now - start < Duration::from_secs(30));
        let next = pair.server.next_deadline();
        pair.now = pair.now.max(next);
        pair.server.expire(pair.now, pair.now, &mut pair.to_client);
        pings += pair
            .take_to_client()
            .iter()
            .filter(|packet| kinds(&[packet.to_vec()]) == [Kind::Control])
            .count();
    }
    assert!(
        pair.now - start >= Duration::from_secs(10) && pings >= 2,
        "{pings} pings went unanswered"
    );
    let notices: Vec<_> = std::iter::from_fn(|| pair.server.pop_notice()).collect();
    assert!(matches!(notices[..], [.., Notice::ClientGone(_, Cause::PeerDead)]), "{notices:?}");
    assert_eq!(pair.server.pool_stats().in_use, 0);
}

#[test]
fn the_listen_group_no_longer_counts_an_ended_session() {
    let ends: [fn(&mut Pair, SessionId); 2] = [
        |pair, session| {
            pair.disconnect(session);
            pair.settle();
        },
        |pair, _| {
            for _ in 0..200 {
                pair.now = pair.now.max(pair.server.next_deadline().min(pair.now + ms(1_000)));
                pair.server.expire(pair.now, pair.now, &mut pair.to_client);
                pair.take_to_client();
            }
        },
    ];
    for end in ends {
        let mut pair = Pair::new(1_472, EndpointConfig::new());
        let group = Arc::new(ListenGroup::new([7; 16], vec![0]));
        pair.server.listen(Acceptor::new(Arc::clone(&group), 0));
        let (mut pair, session) = pair.and_connected();
        assert_eq!(group.sessions(), [1]);
        end(&mut pair, session);
        assert_eq!((pair.server.sessions().1, group.sessions()), (0, vec![0]));
    }
}

#[test]
fn a_client_answers_a_servers_ping_and_keeps_the_session() {
    let side = Side::new(1_472);
    let patient = EndpointConfig::new()
        .ping_interval(Duration::from_secs(50))
        .liveness_timeout(Duration::from_secs(100));
    let (mut pair, session) = Pair::of(side.clone().config(patient), side).and_connected();
    pair.live(Duration::from_secs(45));
    assert!(open(&pair, session));
    assert_eq!(pair.server.sessions().1, 1);
}

#[test]
fn a_late_response_to_an_ended_session_is_counted() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    pair.settle();
    pair.shutdown_server();
    pair.answer(b"too late");
    assert_eq!(pair.server.stats().orphaned_responses, 1);
    pair.settle();
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::PeerClosed));
    assert_eq!(pair.server.pool_stats().in_use, 0);
}

#[test]
fn a_late_failure_to_an_ended_session_is_counted_too() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    pair.settle();
    pair.shutdown_server();
    pair.answer_failure(crate::status::Code::Internal, "too late");
    assert_eq!(pair.server.stats().orphaned_responses, 1);
}

#[test]
fn a_response_to_an_earlier_request_of_the_slot_is_not_sent() {
    // Only a bug of the caller lets a handle outlive its request. Such a handle must not answer
    // another request.
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"first");
    pair.settle();
    let first = pair.asked[0].handle;
    pair.answer(b"one");
    pair.settle();
    pair.call(session, 2, b"second");
    pair.settle();
    pair.respond(first, b"one again");
    assert_eq!((pair.to_client.packets.len(), pair.server.stats().orphaned_responses), (0, 1));
    pair.answer(b"two");
    pair.settle();
    assert_eq!(pair.outcomes[1].result, Ok(b"two".to_vec()));
}

/// Advances to the client's next timer, on a path that carries only control packets.
fn pass_and_carry_only_control(pair: &mut Pair) {
    let next = pair.client.next_deadline();
    pair.pass(next - pair.now);
    for packet in pair.take_to_server() {
        if header(&packet).kind == Kind::Control {
            pair.at_server(CLIENT, &packet);
        }
    }
    let replies = pair.take_to_client();
    pair.burst_at_client(SERVER, &replies);
}

#[test]
fn a_path_that_carries_only_pings_ends_the_session_by_the_liveness_timeout() {
    // The server is alive and knows the session, but every request packet is lost, as on a link
    // that carries smaller datagrams than its interfaces report.
    let (mut pair, session) = connected();
    pair.call(session, 1, &pattern(1, 100));
    let start = pair.now;
    while open(&pair, session) {
        pass_and_carry_only_control(&mut pair);
    }
    let took = pair.now - start;
    assert!((Duration::from_secs(10)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert_eq!(pair.closed(session), Some(Cause::NoProgress));
    assert_eq!(pair.outcome().result, Err(CallError::MaybeExecuted(Cause::NoProgress)));
}

#[test]
fn a_path_that_recovers_before_the_liveness_timeout_loses_no_call() {
    let (mut pair, session) = connected();
    pair.call(session, 1, &pattern(1, 100));
    let start = pair.now;
    while pair.now - start < Duration::from_secs(9) {
        pass_and_carry_only_control(&mut pair);
    }
    pair.live(ms(600));
    assert_eq!(pair.outcome().result, Ok(pattern(1, 100)));
    assert!(open(&pair, session));
}

#[test]
fn an_executing_call_whose_probes_are_lost_ends_too() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"for how long?");
    pair.settle();
    pair.live(ms(100));
    let accepted_at = pair.now;
    while open(&pair, session) {
        pass_and_carry_only_control(&mut pair);
    }
    let took = pair.now - accepted_at;
    assert!((Duration::from_secs(10)..Duration::from_secs(15)).contains(&took), "{took:?}");
    assert_eq!(pair.closed(session), Some(Cause::NoProgress));
    assert_eq!(pair.outcome().result, Err(CallError::MaybeExecuted(Cause::NoProgress)));
}

#[test]
fn a_lost_probe_of_an_executing_call_is_repeated_soon() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"for how long?");
    pair.settle();
    pair.live(ms(100));
    pair.answer(b"lost");
    pair.take_to_client();
    pair.pass_slowly(ms(3_000));
    pair.take_to_server();
    pair.live(ms(500));
    assert_eq!(
        pair.outcome().result,
        Ok(b"lost".to_vec()),
        "the probe must be repeated earlier than after another 3 s"
    );
    assert!(open(&pair, session));
}

/// A call whose packets are lost for `before` ms. Then the clock jumps by an hour. Then packets are
/// lost for another `after` ms.
fn an_hour_between(before: u64, after: u64) -> (Pair, SessionId) {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"x");
    pair.pass_slowly(ms(before));
    pair.take_to_server();
    pair.pass(Duration::from_secs(3_600));
    pair.pass_slowly(ms(after));
    pair.take_to_server();
    pair.take_to_client();
    pair.live(Duration::from_secs(5));
    (pair, session)
}

#[test]
fn a_clock_jump_closes_no_session_despite_losses_around_it() {
    for (before, after) in
        [(0, 0), (0, 2_000), (30, 0), (30, 600), (320, 0), (700, 0), (700, 2_000)]
    {
        let (mut pair, session) = an_hour_between(before, after);
        assert!(open(&pair, session), "{before} ms before, {after} ms after");
        assert!(pair.outcome().result.is_ok(), "{before} ms before, {after} ms after");
    }
}

#[test]
fn a_server_whose_clock_jumps_gives_its_clients_a_ping_interval() {
    let (mut pair, session) = connected();
    pair.pass_slowly(Duration::from_secs(9));
    pair.take_to_server();
    pair.take_to_client();
    pair.now = pair.now + Duration::from_secs(3_600);
    pair.server.expire(pair.now, pair.now, &mut pair.to_client);
    pair.pass_slowly(ms(1_000));
    pair.take_to_client();
    assert_eq!(
        pair.server.sessions(),
        (0, 1),
        "pings that were unanswered before the jump do not count"
    );
    pair.live(ms(500));
    assert!(open(&pair, session));
}
