//! How sessions end by disconnect or shutdown.

use super::craft::emit;
use super::pair::{CLIENT, SERVER, connected, control, deferring, ms, pattern};
use crate::protocol::config::LOCAL_CREDITS;
use crate::protocol::{CallError, Cause, DropReason, RejectReason};
use crate::wire::ConnectionId;
use crate::wire::control::Control;

#[test]
fn an_idle_session_sends_close_and_ends_when_it_is_answered() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    let close = pair.take_to_server();
    assert!(matches!(control(&close[0]), Some(Control::Close { .. })));
    assert_eq!(pair.closed(session), None);
    pair.burst_at_server(CLIENT, &close);
    assert_eq!(pair.server.sessions(), (0, 0));
    pair.settle();
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
    assert_eq!(pair.client.sessions(), (0, 0));
}

#[test]
fn disconnect_lets_pending_calls_finish_and_rejects_new_ones() {
    let (mut pair, session) = connected();
    for token in 0..20 {
        pair.call(session, token, &pattern(token, 5_000));
    }
    pair.disconnect(session);
    let rejected = pair.try_call(session, 99, b"late").expect_err("draining");
    assert_eq!(rejected.reason, RejectReason::Disconnecting);
    pair.settle();
    assert_eq!(pair.outcomes.len(), 20);
    assert!(pair.outcomes.iter().all(|outcome| outcome.result.is_ok()));
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
}

#[test]
fn a_call_on_a_closed_session_is_rejected_and_its_request_returned() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    pair.settle();
    pair.open();
    let rejected = pair.try_call(session, 1, b"late").expect_err("closed");
    assert_eq!(
        (rejected.reason, rejected.request.as_slice()),
        (RejectReason::NoSession, &b"late"[..])
    );
    assert_eq!(pair.client.session_stats(session), None);
}

#[test]
fn a_second_disconnect_has_no_effect() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    pair.disconnect(session);
    assert_eq!(pair.to_server.packets.len(), 1);
    pair.settle();
    pair.disconnect(session);
    assert_eq!(pair.told, ["Opened", "Closed(Disconnected)"]);
}

#[test]
fn a_lost_close_is_retransmitted_after_a_pause() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"arms a timer that must not repeat the close early");
    pair.settle();
    pair.disconnect(session);
    pair.take_to_server();
    pair.pass_slowly(ms(24));
    assert_eq!(pair.take_to_server().len(), 0);
    pair.live(ms(2));
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
    assert_eq!(pair.server.sessions(), (0, 0));
}

#[test]
fn a_reset_replaces_a_lost_closed() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    let close = pair.take_to_server();
    pair.burst_at_server(CLIENT, &close);
    pair.take_to_client();
    pair.live(ms(26));
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
    assert_eq!(pair.server.stats().dropped(DropReason::UnknownConnection), 1);
}

#[test]
fn a_session_with_an_unanswered_close_ends_at_the_connect_timeout() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    pair.pass_slowly(ms(1_999));
    assert_eq!(pair.closed(session), None);
    pair.pass_slowly(ms(2));
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
}

#[test]
fn a_server_that_shuts_down_closes_its_sessions() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"executing");
    pair.settle();
    let message = pair.message(usize::from(LOCAL_CREDITS) + 8);
    pair.call(session, 2, &message);
    pair.shutdown_server();
    let said = pair.take_to_client();
    pair.burst_at_client(SERVER, &said);
    assert_eq!(pair.closed(session), Some(Cause::PeerClosed));
    let errors: Vec<_> =
        pair.outcomes.iter().map(|outcome| outcome.result.clone().expect_err("failed")).collect();
    assert_eq!(
        errors,
        [CallError::MaybeExecuted(Cause::PeerClosed), CallError::NotExecuted(Cause::PeerClosed)]
    );
    assert_eq!(pair.server.sessions(), (0, 0));
}

#[test]
fn a_lost_close_of_a_server_is_detected_at_the_next_ping() {
    let (mut pair, session) = connected();
    pair.shutdown_server();
    pair.take_to_client();
    pair.live(ms(3_800));
    assert_eq!(pair.closed(session), Some(Cause::PeerReset));
}

#[test]
fn a_client_that_shuts_down_closes_its_sessions_and_ends_its_calls() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"executing");
    pair.settle();
    pair.client.shutdown(pair.now, &mut pair.to_server);
    pair.housekeeping();
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::Shutdown));
    assert_eq!(pair.closed(session), Some(Cause::Shutdown));
    pair.settle();
    assert_eq!(pair.server.sessions(), (0, 0));
}

#[test]
fn a_close_crossing_a_close_ends_both_sides_once() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    pair.shutdown_server();
    pair.settle();
    assert_eq!(pair.told, ["Opened", "Closed(Disconnected)"]);
    assert_eq!((pair.client.sessions(), pair.server.sessions()), ((0, 0), (0, 0)));
}

#[test]
fn an_ended_session_releases_its_window_to_the_others() {
    let (mut pair, first) = connected();
    let second = pair.open();
    let message = pair.message(30);
    pair.call(first, 1, &message);
    pair.disconnect(first);
    pair.call(second, 2, &message);
    pair.settle();
    assert_eq!((pair.outcomes.len(), pair.closed(first)), (2, Some(Cause::Disconnected)));
    pair.call(second, 3, &message);
    pair.settle();
    assert_eq!(pair.outcomes.len(), 3);
}

#[test]
fn ended_sessions_leave_no_state_and_no_memory() {
    let (mut pair, _) = connected();
    let session = *pair.sessions.keys().next().expect("one session");
    pair.disconnect(session);
    pair.settle();
    for _ in 0..200 {
        let session = pair.open();
        pair.call(session, 1, &pattern(1, 3_000));
        pair.settle();
        pair.disconnect(session);
        pair.settle();
    }
    assert_eq!((pair.client.sessions(), pair.server.sessions()), ((0, 0), (0, 0)));
    assert_eq!((pair.client.pool_stats().in_use, pair.server.pool_stats().in_use), (0, 0));
}

#[test]
fn when_a_session_ends_no_queue_reads_the_returned_requests() {
    let (mut pair, session) = connected();
    pair.to_server.slow = true;
    pair.call(session, 1, &pattern(1, 5_000));
    let close = emit(pair.client_id, Control::Close { sender: pair.server_id });
    let before = pair.to_server.flushes;
    // The harness writes to the returned request, which panics while a queue reads it.
    pair.at_client(SERVER, &close);
    assert!(
        pair.to_server.flushes > before,
        "the queue must be flushed before the request is returned"
    );
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::PeerClosed));
}

#[test]
fn a_reset_of_another_session_has_no_effect() {
    let (mut pair, session) = connected();
    let other = ConnectionId::new(0, true, 5, 99);
    let reset = emit(pair.client_id, Control::Reset { unknown: other });
    pair.client_drops(SERVER, &reset, DropReason::Handshake);
    pair.disconnect(session);
    pair.client_drops(SERVER, &reset, DropReason::Handshake);
    assert_eq!(pair.closed(session), None);
    let reset = emit(pair.client_id, Control::Reset { unknown: pair.server_id });
    pair.at_client(SERVER, &reset);
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
}
