//! Calls of a client whose loop was away for so long that the server may have dropped the session.

use std::time::Duration;

use super::pair::{
    CLIENT, Pair, SERVER, connected, control, deferring, header, kinds, ms, pattern,
};
use crate::protocol::{CallError, Cause, EndpointConfig, SessionEvent, SessionId};
use crate::wire::Kind;
use crate::wire::control::Control;

/// The client's loop does not run for `time`. The server's loop runs, and its packets wait in the
/// client's receive queue, which keeps only the last 64.
fn away(pair: &mut Pair, time: Duration) {
    let end = pair.now + time;
    while pair.now < end {
        pair.now = pair.server.next_deadline().min(end).max(pair.now);
        pair.server.expire(pair.now, pair.now, &mut pair.to_client);
        let unread = pair.to_client.packets.len();
        pair.to_client.packets.drain(..unread.saturating_sub(64));
        while pair.server.pop_notice().is_some() {}
    }
}

/// A session whose client made a call and was then away for `time`.
fn back_after(time: Duration) -> (Pair, SessionId) {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"before");
    pair.settle();
    assert!(pair.outcome().result.is_ok());
    away(&mut pair, time);
    (pair, session)
}

fn is_ping(packet: &[u8]) -> bool {
    matches!(control(packet), Some(Control::Ping { .. }))
}

#[test]
fn a_call_after_an_absence_is_not_sent_before_the_server_has_answered_a_ping() {
    let (mut pair, session) = back_after(Duration::from_secs(8));
    pair.call(session, 2, b"after");
    let sent = pair.take_to_server();
    assert!(sent.len() == 1 && is_ping(&sent[0]), "{:?}", kinds(&sent));
    pair.burst_at_server(CLIENT, &sent);
    let pong = pair.take_to_client().pop().expect("a pong behind the pings of the absence");
    pair.at_client(SERVER, &pong);
    assert_eq!(kinds(&pair.take_to_server()), [Kind::Request]);
    assert_eq!(pair.sessions[&session], SessionEvent::Opened);
}

#[test]
fn a_call_on_a_session_that_the_server_dropped_meanwhile_is_not_executed() {
    let (mut pair, session) = back_after(Duration::from_secs(15));
    assert_eq!(pair.server.sessions(), (0, 0), "the server has given the client up");
    pair.call(session, 2, b"small");
    let large = pattern(1, 9_000);
    pair.call(session, 3, &large);
    pair.call_until(session, 4, b"with a deadline", pair.now + ms(500));
    pair.live(ms(100));
    let ends: Vec<_> = pair.outcomes.drain(..).map(|end| (end.token, end.result)).collect();
    let reset = || Err(CallError::NotExecuted(Cause::PeerReset));
    assert_eq!(ends, [(2, reset()), (3, reset()), (4, reset())]);
    assert_eq!(pair.closed(session), Some(Cause::PeerReset));
    assert_eq!(pair.executed, 1, "only the call before the absence");
}

#[test]
fn packets_from_before_the_return_do_not_vouch_for_the_session() {
    // The first turn reads the server's old pings. The call follows in three variants: in the same
    // turn, after the timers of this turn, or after a later turn that reads the old pings again.
    for turns in 0..3 {
        let (mut pair, session) = back_after(Duration::from_secs(15));
        let old = pair.take_to_client();
        assert!(old.len() >= 16 && old.iter().all(|packet| is_ping(packet)));
        pair.burst_at_client(SERVER, &old);
        if turns > 0 {
            pair.pass(ms(0));
        }
        if turns > 1 {
            pair.pass(ms(1));
            pair.burst_at_client(SERVER, &old);
        }
        pair.call(session, 2, b"after");
        pair.live(ms(100));
        let error = pair.error();
        assert_eq!(error, CallError::NotExecuted(Cause::PeerReset), "after {turns} turns");
    }
}

#[test]
fn a_pong_from_before_the_absence_does_not_vouch_for_the_session() {
    let (mut pair, session) = connected();
    while pair.to_server.packets.is_empty() {
        pair.pass(pair.client.next_deadline() - pair.now);
    }
    let ping = pair.take_to_server();
    assert!(ping.len() == 1 && is_ping(&ping[0]));
    pair.burst_at_server(CLIENT, &ping);
    let pong = pair.take_to_client();
    away(&mut pair, Duration::from_secs(15));
    pair.to_client.packets.clear();
    pair.call(session, 2, b"after");
    pair.burst_at_client(SERVER, &pong);
    assert!(pair.take_to_server().iter().all(|packet| is_ping(packet)));
    pair.live(ms(1_000));
    assert_eq!(pair.error(), CallError::NotExecuted(Cause::PeerReset));
}

#[test]
fn a_pong_from_before_a_second_absence_does_not_vouch_for_the_session() {
    for is_read_first in [true, false] {
        let (mut pair, session) = back_after(Duration::from_secs(8));
        pair.call(session, 2, b"after");
        let ping = pair.take_to_server();
        assert!(ping.len() == 1 && is_ping(&ping[0]));
        pair.burst_at_server(CLIENT, &ping);
        let pong = pair.take_to_client().pop().expect("the server knows the session");
        away(&mut pair, Duration::from_secs(15));
        assert_eq!(pair.server.sessions(), (0, 0), "the server has given the client up");
        pair.to_client.packets.clear();
        if !is_read_first {
            pair.pass(ms(0));
        }
        pair.at_client(SERVER, &pong);
        pair.pass(ms(0));
        let sent = pair.take_to_server();
        assert!(sent.iter().all(|packet| is_ping(packet)), "{:?}", kinds(&sent));
        assert_eq!(sent.len(), 1, "the client asks again, once");
        pair.burst_at_server(CLIENT, &sent);
        pair.settle();
        assert_eq!(pair.error(), CallError::NotExecuted(Cause::PeerReset));
    }
}

#[test]
fn a_lost_ping_of_a_check_is_repeated_after_a_timeout() {
    let (mut pair, session) = back_after(Duration::from_secs(8));
    pair.call(session, 2, b"after");
    let start = pair.now;
    pair.to_client.packets.clear();
    let mut lost = 0;
    while lost < 3 {
        lost += pair.take_to_server().len();
        pair.pass(pair.client.next_deadline() - pair.now);
    }
    assert!(pair.now - start < ms(300), "{:?}", pair.now - start);
    pair.live(ms(100));
    assert!(pair.outcome().result.is_ok());
}

#[test]
fn a_pong_to_any_ping_of_the_check_ends_it() {
    // The round trip is longer than the pause between two pings: the client has sent further pings
    // before the pong to its first ping arrives.
    let (mut pair, session) = back_after(Duration::from_secs(8));
    pair.call(session, 2, b"after");
    let first = pair.take_to_server();
    pair.to_client.packets.clear();
    pair.pass_slowly(ms(90));
    assert!(pair.take_to_server().len() > 1);
    pair.burst_at_server(CLIENT, &first);
    pair.settle();
    assert!(pair.outcome().result.is_ok());
}

#[test]
fn a_check_ends_although_each_turn_takes_a_ping_interval_or_longer() {
    let config = EndpointConfig::new().ping_interval(ms(100)).liveness_timeout(ms(300));
    // A turn receives first, or runs its timers first.
    for (time, is_read_first) in [(100, true), (100, false), (299, true), (299, false)] {
        let (mut pair, session) = Pair::connected(1_472, config.clone());
        away(&mut pair, ms(200));
        pair.call(session, 1, b"after");
        let mut turns = 0;
        while pair.outcomes.is_empty() {
            assert!(turns < 5, "turns of {time} ms, {is_read_first}: the call is not made");
            turns += 1;
            let sent = pair.take_to_server();
            pair.burst_at_server(CLIENT, &sent);
            away(&mut pair, ms(time));
            if !is_read_first {
                pair.pass(ms(0));
            }
            let answers = pair.take_to_client();
            pair.burst_at_client(SERVER, &answers);
            pair.pass(ms(0));
        }
        assert!(pair.outcome().result.is_ok(), "turns of {time} ms");
    }
}

#[test]
fn calls_wait_in_order_and_keep_their_deadlines_and_cancels_during_a_check() {
    let (mut pair, session) = back_after(Duration::from_secs(8));
    pair.echo = false;
    pair.to_client.packets.clear();
    pair.call(session, 2, b"first");
    pair.call_until(session, 3, b"late", pair.now + ms(5));
    pair.call(session, 4, b"cancelled");
    pair.call(session, 5, b"last");
    let ping = pair.take_to_server();
    assert!(pair.cancel(session, 4));
    pair.pass(ms(6));
    let ended: Vec<_> = pair.outcomes.drain(..).map(|end| (end.token, end.result)).collect();
    assert_eq!(
        ended,
        [
            (4, Err(CallError::NotExecuted(Cause::Cancelled))),
            (3, Err(CallError::NotExecuted(Cause::DeadlineExceeded))),
        ]
    );
    pair.take_to_server();
    pair.burst_at_server(CLIENT, &ping);
    pair.settle();
    let asked: Vec<_> = pair.asked.iter().map(|asked| asked.body.clone()).collect();
    assert_eq!(asked, [b"first".to_vec(), b"last".to_vec()]);
}

#[test]
fn a_session_that_is_disconnected_during_a_check_makes_its_calls_first() {
    let (mut pair, session) = back_after(Duration::from_secs(8));
    pair.call(session, 2, b"after");
    pair.disconnect(session);
    pair.live(ms(100));
    assert!(pair.outcome().result.is_ok());
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
}

#[test]
fn a_call_that_was_sent_before_the_absence_may_have_been_executed() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"sent");
    pair.settle();
    away(&mut pair, Duration::from_secs(15));
    pair.call(session, 2, b"held");
    pair.live(ms(200));
    let ends: Vec<_> = pair.outcomes.drain(..).map(|end| (end.token, end.result)).collect();
    assert_eq!(
        ends,
        [
            (1, Err(CallError::MaybeExecuted(Cause::PeerReset))),
            (2, Err(CallError::NotExecuted(Cause::PeerReset))),
        ]
    );
}

#[test]
fn a_call_to_a_server_that_has_been_silent_for_long_is_held_and_not_executed() {
    // The client's loop runs, but none of its packets gets through. A call made after the first
    // pings were lost is held and not sent.
    let (mut pair, session) = connected();
    pair.pass_slowly(ms(4_600));
    pair.take_to_server();
    pair.call(session, 1, b"held");
    pair.pass_slowly(ms(6_000));
    let sent = pair.take_to_server();
    assert!(sent.iter().all(|packet| is_ping(packet)), "{:?}", kinds(&sent));
    assert_eq!(pair.error(), CallError::NotExecuted(Cause::PeerDead));
}

#[test]
fn a_session_in_use_and_an_idle_one_whose_loop_runs_are_not_checked() {
    let (mut pair, session) = connected();
    for token in 1..40 {
        pair.live(ms(777));
        pair.call(session, token, b"x");
        let sent = pair.take_to_server();
        assert_eq!(kinds(&sent), [Kind::Request], "call {token} at {:?}", pair.now);
        pair.burst_at_server(CLIENT, &sent);
        pair.settle();
    }
    for token in 40..44 {
        pair.live(ms(9_000));
        pair.call(session, token, b"x");
        let sent = pair.take_to_server();
        assert_eq!(kinds(&sent), [Kind::Request], "call {token} at {:?}", pair.now);
        pair.burst_at_server(CLIENT, &sent);
        pair.settle();
    }
}

#[test]
fn a_client_that_makes_a_call_each_second_without_running_its_loop_sends_no_pings() {
    let (mut pair, session) = connected();
    for token in 1..10 {
        away(&mut pair, ms(1_000));
        pair.call(session, token, b"x");
        let sent = pair.take_to_server();
        assert_eq!(kinds(&sent), [Kind::Request], "call {token}");
        pair.burst_at_server(CLIENT, &sent);
        pair.settle();
        assert!(pair.outcome().result.is_ok());
        // The last turn of the call.
        pair.pass(ms(0));
    }
}

#[test]
fn the_time_after_which_a_session_is_checked_follows_the_ping_interval() {
    let config = EndpointConfig::new().ping_interval(ms(100)).liveness_timeout(ms(300));
    let (mut pair, session) = Pair::connected(1_472, config);
    for (time, is_checked) in [(100, false), (149, false), (150, true), (400, true)] {
        away(&mut pair, ms(time));
        let token = 1_000 + time;
        pair.call(session, token, b"x");
        let first = pair.to_server.packets[0].1.clone();
        assert_eq!(header(&first).kind == Kind::Control, is_checked, "after {time} ms");
        if time < 300 {
            pair.settle();
            pair.pass(ms(0));
            assert!(pair.outcome().result.is_ok(), "after {time} ms");
        }
    }
    pair.live(ms(50));
    assert_eq!(pair.error(), CallError::NotExecuted(Cause::PeerReset));
}
