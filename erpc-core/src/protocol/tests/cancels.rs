//! Calls that end before their answer arrives. The call ends immediately for the caller. Then the
//! client asks the server how far the request got, and the server drops the request if it can.

use super::pair::{CLIENT, Pair, SERVER, deferring_with, header, kinds, ms, pattern, shape};
use crate::protocol::{CallError, Cause, DropReason, EndpointConfig, SessionId, SessionStats};
use crate::status::{Code, Status};
use crate::wire::{CANCEL, Kind, ReplyInfo};

const CREDITS: u16 = 4;
const MAYBE: CallError = CallError::MaybeExecuted(Cause::Cancelled);
const NOT: CallError = CallError::NotExecuted(Cause::Cancelled);
const LOST: CallError = CallError::ResponseLost(Cause::Cancelled);
const CANCELS: [(Kind, u32); 1] = [(Kind::Done, CANCEL)];

/// A session of few credits whose handler does not answer by itself.
fn connected() -> (Pair, SessionId) {
    deferring_with(EndpointConfig::new().credits(CREDITS).max_credits(CREDITS))
}

/// A call of one packet, sent and cancelled.
fn cancelled() -> (Pair, SessionId) {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"request");
    pair.take_to_server();
    assert!(pair.cancel(session, 1));
    assert_eq!(pair.error(), MAYBE);
    assert_eq!(shape(&pair.take_to_server()), CANCELS);
    (pair, session)
}

fn stats(pair: &Pair, session: SessionId) -> SessionStats {
    pair.client.session_stats(session).expect("open")
}

fn aborted() -> Status {
    Status::new(Code::Cancelled, "the client has cancelled the call")
}

/// Asserts that the slot of request `number` is free: the next call uses it and completes.
fn assert_slot_is_free(pair: &mut Pair, session: SessionId, number: u32) {
    let (executed, asked) = (pair.executed, pair.asked.len());
    for token in 100..108 {
        pair.call(session, token, b"again");
    }
    let mut numbers = Vec::new();
    for _ in 0..8 {
        pair.settle();
        let Some(asked) = pair.asked.pop_back() else { break };
        numbers.push(asked.handle.number.to_u32());
        pair.respond(asked.handle, &asked.body);
    }
    pair.settle();
    assert!(numbers.contains(&(number + 8)), "{numbers:?}");
    assert_eq!((pair.executed - executed, pair.asked.len()), (8, asked));
    assert_eq!(stats(pair, session).credits, CREDITS);
    pair.outcomes.clear();
}

// Tests of the client.

#[test]
fn a_cancelled_call_that_waits_for_a_slot_ends_without_a_packet() {
    let (mut pair, session) = connected();
    for token in 0..9 {
        pair.call(session, token, b"x");
    }
    pair.take_to_server();
    assert!(pair.cancel(session, 8));
    assert_eq!(pair.error(), NOT);
    assert_eq!((stats(&pair, session).queued, pair.take_to_server().len()), (0, 0));
}

#[test]
fn an_ended_or_unknown_call_is_not_cancelled() {
    let (mut pair, session) = connected();
    pair.echo = true;
    pair.call(session, 1, b"x");
    pair.settle();
    assert!(pair.outcome().result.is_ok());
    assert!(!pair.cancel(session, 1) && !pair.cancel(session, 2));
    assert_eq!(pair.take_to_server().len(), 0);
    let (mut pair, session) = cancelled();
    assert!(!pair.cancel(session, 1), "a call is cancelled only once");
}

#[test]
fn a_cancelled_call_that_waits_for_credits_leaves_its_number_to_the_next() {
    let (mut pair, session) = connected();
    pair.call(session, 1, &pattern(1, 6_000));
    pair.call(session, 2, b"starved");
    assert_eq!(pair.take_to_server().len(), usize::from(CREDITS));
    assert!(pair.cancel(session, 2));
    assert_eq!(pair.error(), NOT);
    assert_eq!((stats(&pair, session).quarantined, pair.take_to_server().len()), (0, 0));
    pair.call(session, 3, b"next");
    let gone = pair.credit_return(0, 4).bytes();
    pair.at_client(SERVER, &gone);
    let requests: Vec<_> =
        pair.take_to_server().iter().map(|bytes| header(bytes).request.to_u32()).collect();
    assert_eq!(requests, [0, 1], "the next call gets the number of the call that was never sent");
}

#[test]
fn a_cancelled_call_does_not_block_the_calls_behind_it() {
    let (mut pair, session) = connected();
    let window = pair.terms.window;
    pair.call(session, 1, &pattern(1, 6_000));
    pair.take_to_server();
    // The window shrinks to the packets in flight, so the returned credit cannot be used yet.
    let tight = pair.credit_return(0, 1).aux(ReplyInfo::new(0, 3 * 1_024).to_u32()).bytes();
    pair.at_client(SERVER, &tight);
    pair.call(session, 2, b"behind");
    assert_eq!(
        pair.take_to_server().len(),
        0,
        "the window has shrunk from {window} units to 3 packets, all in flight"
    );
    assert!(pair.cancel(session, 1));
    assert_eq!(pair.error(), NOT);
    let wide = pair.accepted(0).aux(ReplyInfo::new(0, window).to_u32()).bytes();
    pair.client_drops(SERVER, &wide, DropReason::Unsolicited);
    assert_eq!(shape(&pair.take_to_server())[..1], CANCELS);
    let over = pair.failure(0, &aborted()).bytes();
    pair.at_client(SERVER, &over);
    assert_eq!(kinds(&pair.take_to_server()), [Kind::Request]);
}

#[test]
fn cancelled_calls_leave_no_entries_in_the_queue_behind_a_waiting_call() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"request");
    let tight = pair.accepted(0).aux(ReplyInfo::new(0, 1_024).to_u32()).bytes();
    pair.take_to_server();
    pair.at_client(SERVER, &tight);
    pair.call(session, 2, b"all that the window admits");
    pair.call(session, 3, b"waits");
    assert_eq!(pair.client.places_in_lines(), 1);
    for token in 4..1_004 {
        pair.call(session, token, b"comes and goes");
        assert!(pair.cancel(session, token));
        assert_eq!(pair.error(), NOT);
    }
    assert_eq!(pair.client.places_in_lines(), 1);
}

#[test]
fn a_slot_in_quarantine_keeps_the_credits_of_its_packets() {
    let (mut pair, session) = cancelled();
    let stats = stats(&pair, session);
    assert_eq!((stats.in_flight, stats.quarantined, stats.credits), (0, 1, CREDITS - 1));
    for token in 10..18 {
        pair.call(session, token, b"x");
    }
    let slots: Vec<_> =
        pair.take_to_server().iter().map(|bytes| header(bytes).request.to_u32() % 8).collect();
    assert!(!slots.contains(&0), "{slots:?}");
}

#[test]
fn a_quarantine_ends_with_the_failure_that_confirms_the_cancel() {
    let (mut pair, session) = cancelled();
    let over = pair.failure(0, &aborted()).bytes();
    pair.at_client(SERVER, &over);
    assert_eq!((stats(&pair, session).quarantined, stats(&pair, session).credits), (0, CREDITS));
    assert_eq!((pair.client.stats().cancelled, pair.client.stats().late_responses), (1, 0));
    assert_eq!(pair.outcomes, []);
}

#[test]
fn a_quarantine_ends_with_any_first_response_packet_without_a_pull() {
    for size in [0, 5, 5_000] {
        let (mut pair, session) = cancelled();
        let message = pattern(1, size);
        let late = pair.response(0, 0, &message).bytes();
        pair.at_client(SERVER, &late);
        assert_eq!(stats(&pair, session).quarantined, 0);
        assert_eq!(pair.client.stats().late_responses, 1);
        pair.client_drops(SERVER, &late, DropReason::Duplicate);
        assert_eq!(pair.take_to_server().len(), 0);
        pair.pass(ms(25));
        let told = kinds(&pair.take_to_server());
        assert_eq!(
            told == [Kind::Done],
            size > 512,
            "only a large response needs a Done: {told:?}"
        );
    }
}

#[test]
fn a_quarantine_ends_with_an_announcement() {
    let (mut pair, session) = cancelled();
    let late = pair.announcement(0, 100).bytes();
    pair.at_client(SERVER, &late);
    assert_eq!((stats(&pair, session).quarantined, pair.take_to_server().len()), (0, 0));
}

#[test]
fn a_quarantine_does_not_end_with_an_impossible_reply() {
    let (mut pair, session) = connected();
    pair.call(session, 1, &pattern(1, 6_000));
    pair.take_to_server();
    assert!(pair.cancel(session, 1));
    assert_eq!(pair.error(), NOT);
    let answer = pair.response(0, 0, b"of what?").bytes();
    pair.client_drops(SERVER, &answer, DropReason::Unsolicited);
    let accepted = pair.accepted(0).bytes();
    pair.client_drops(SERVER, &accepted, DropReason::Unsolicited);
    let more = pair.credit_return(0, 2).bytes();
    pair.client_drops(SERVER, &more, DropReason::Duplicate);
    let message = pair.message(3);
    let later = pair.response(0, 1, &message).bytes();
    pair.client_drops(SERVER, &later, DropReason::Unsolicited);
    let lie = pair.failure(0, &aborted()).size(3).bytes();
    pair.client_drops(SERVER, &lie, DropReason::LyingSize);
    assert_eq!((stats(&pair, session).quarantined, stats(&pair, session).credits), (1, 0));
}

#[test]
fn accepted_returns_the_credits_of_a_slot_that_stays_in_quarantine() {
    let (mut pair, session) = cancelled();
    let accepted = pair.accepted(0).bytes();
    pair.at_client(SERVER, &accepted);
    assert_eq!((stats(&pair, session).quarantined, stats(&pair, session).credits), (1, CREDITS));
    pair.at_client(SERVER, &accepted);
    pair.pass_slowly(ms(2_900));
    assert_eq!(pair.take_to_server().len(), 0);
    pair.pass_slowly(ms(900));
    assert_eq!(
        shape(&pair.take_to_server())[..1],
        CANCELS,
        "the client repeats the cancel at the ping interval"
    );
    let over = pair.failure(0, &aborted()).bytes();
    pair.at_client(SERVER, &over);
    assert_eq!((stats(&pair, session).quarantined, stats(&pair, session).credits), (0, CREDITS));
}

#[test]
fn an_unanswered_cancel_is_retransmitted_with_growing_pauses() {
    let (mut pair, _) = cancelled();
    let (start, mut times) = (pair.now, Vec::new());
    while times.len() < 4 {
        pair.pass(pair.client.next_deadline() - pair.now);
        let sent = pair.take_to_server();
        if sent.iter().any(|bytes| header(bytes).kind == Kind::Done) {
            times.push((pair.now - start).as_millis() as u64);
        }
    }
    let pauses: Vec<_> = times.windows(2).map(|times| times[1] - times[0]).collect();
    assert_eq!(times[0], 20);
    assert!(pauses.iter().zip([40, 80, 160]).all(|(pause, least)| *pause >= least), "{pauses:?}");
}

#[test]
fn a_cancel_that_never_gets_through_ends_the_session() {
    let (mut pair, session) = cancelled();
    while pair.closed(session).is_none() {
        let next = pair.client.next_deadline().min(pair.server.next_deadline());
        pair.pass(next.max(pair.now) - pair.now);
        let alive = pair.take_to_server().into_iter().filter(|b| header(b).kind == Kind::Control);
        for bytes in alive.collect::<Vec<_>>() {
            pair.at_server(CLIENT, &bytes);
        }
        for bytes in pair.take_to_client() {
            pair.at_client(SERVER, &bytes);
        }
    }
    assert_eq!(pair.closed(session), Some(Cause::NoProgress));
    assert_eq!(pair.outcomes, [], "the call had ended before the session");
}

#[test]
fn quarantines_end_with_their_session() {
    let (mut pair, session) = cancelled();
    pair.shutdown_server();
    pair.settle();
    assert_eq!(pair.closed(session), Some(Cause::PeerClosed));
    assert_eq!(pair.outcomes, []);
}

#[test]
fn a_disconnect_does_not_wait_for_quarantines() {
    let (mut pair, session) = cancelled();
    pair.disconnect(session);
    assert_eq!(kinds(&pair.take_to_server()), [Kind::Control]);
    pair.live(ms(200));
    assert_eq!(pair.closed(session), Some(Cause::Disconnected));
}

#[test]
fn a_request_is_returned_only_when_no_queue_reads_it() {
    let (mut pair, session) = connected();
    pair.to_server.slow = true;
    pair.call(session, 1, b"request");
    let before = pair.to_server.flushes;
    assert!(pair.cancel(session, 1));
    assert!(
        pair.to_server.flushes > before,
        "the queue must be flushed before the user may write the request"
    );
}

#[test]
fn a_call_cancelled_while_receiving_its_response_reports_it_lost() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"request");
    pair.settle();
    pair.answer(&pattern(2, 9_000));
    let first = pair.take_to_client();
    pair.burst_at_client(SERVER, &first);
    assert_eq!(kinds(&pair.to_server.take()), [Kind::RequestForResponse]);
    assert!(pair.cancel(session, 1));
    assert_eq!(pair.error(), LOST);
    assert_eq!((stats(&pair, session).quarantined, stats(&pair, session).credits), (0, CREDITS));
    pair.pass(ms(25));
    assert_eq!(
        shape(&pair.take_to_server()),
        [(Kind::Done, 0)],
        "the client tells the server to drop the response"
    );
    assert_slot_is_free(&mut pair, session, 0);
}

#[test]
fn an_incomplete_failure_does_not_prove_that_the_handler_ran() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"request");
    pair.take_to_server();
    let announced = pair.announcement(0, 20).kind(Kind::Failure).bytes();
    pair.at_client(SERVER, &announced);
    assert!(pair.cancel(session, 1));
    assert_eq!(pair.error(), MAYBE);
}

// Tests of the server.

#[test]
fn a_cancelled_incomplete_request_is_dropped_and_answered() {
    let (mut pair, _) = connected();
    let message = pair.message(3);
    let first = pair.request(0, 0, &message).bytes();
    pair.at_server(CLIENT, &first);
    let held = pair.server.pool_stats().in_use_bytes;
    pair.take_to_client();
    let cancel = pair.cancelled(0).bytes();
    pair.at_server(CLIENT, &cancel);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Failure]);
    assert!(pair.server.pool_stats().in_use_bytes < held);
    for packet in 0..3 {
        let late = pair.request(0, packet, &message).bytes();
        pair.server_drops(CLIENT, &late, DropReason::Duplicate);
    }
    assert_eq!((pair.executed, pair.cancelled.len()), (0, 0));
}

#[test]
fn a_request_cancelled_before_it_arrives_is_never_executed() {
    let (mut pair, _) = connected();
    let cancel = pair.cancelled(0).bytes();
    pair.at_server(CLIENT, &cancel);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Failure]);
    let late = pair.request(0, 0, b"late").bytes();
    pair.server_drops(CLIENT, &late, DropReason::Duplicate);
    pair.server_drops(CLIENT, &cancel, DropReason::Duplicate);
    assert_eq!(
        kinds(&pair.take_to_client()),
        [Kind::Failure],
        "the failure is repeated once per quarter of the timeout"
    );
    assert_eq!(pair.executed, 0);
    let next = pair.request(8, 0, b"next").bytes();
    pair.at_server(CLIENT, &next);
    assert_eq!(pair.executed, 1);
}

#[test]
fn cancels_of_an_executing_request_reach_the_handler_once_and_are_all_accepted() {
    let (mut pair, _) = connected();
    let request = pair.request(0, 0, b"slow").bytes();
    pair.at_server(CLIENT, &request);
    let cancel = pair.cancelled(0).bytes();
    pair.at_server(CLIENT, &cancel);
    pair.pass(ms(2));
    pair.server_drops(CLIENT, &cancel, DropReason::Duplicate);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Accepted, Kind::Accepted]);
    assert_eq!(pair.cancelled, [pair.asked[0].handle]);
    pair.answer_failure(Code::Cancelled, "stopped");
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Failure]);
}

#[test]
fn a_cancel_of_an_answered_request_gets_the_response_again() {
    let (mut pair, _) = connected();
    let request = pair.request(0, 0, b"fast").bytes();
    pair.at_server(CLIENT, &request);
    pair.answer(b"answer");
    pair.take_to_client();
    let cancel = pair.cancelled(0).bytes();
    pair.server_drops(CLIENT, &cancel, DropReason::Duplicate);
    pair.server_drops(CLIENT, &cancel, DropReason::Duplicate);
    assert_eq!(
        kinds(&pair.take_to_client()),
        [Kind::Response],
        "the response is repeated once per quarter of the timeout"
    );
    assert_eq!(pair.cancelled, []);
}

#[test]
fn cancels_of_other_requests_are_dropped() {
    let (mut pair, _) = connected();
    let request = pair.request(0, 0, b"first").bytes();
    pair.at_server(CLIENT, &request);
    for (number, reason) in [
        (8, DropReason::SlotBusy),
        (16, DropReason::RequestLeap),
        (0u32.wrapping_sub(8), DropReason::OldRequest),
        (9 + 8, DropReason::RequestLeap),
    ] {
        let cancel = pair.cancelled(number).bytes();
        pair.server_drops(CLIENT, &cancel, reason);
    }
    pair.answer(b"answer");
    let (done, cancel) = (pair.done(&[0]).bytes(), pair.cancelled(0).bytes());
    pair.at_server(CLIENT, &done);
    pair.server_drops(CLIENT, &cancel, DropReason::Duplicate);
    pair.take_to_client();
    let with_body = pair.cancelled(8).body(b"1234").bytes();
    pair.server_drops(CLIENT, &with_body, DropReason::LyingSize);
    let unknown = pair.cancelled(8).packet(2).bytes();
    pair.server_drops(CLIENT, &unknown, DropReason::Control);
    assert_eq!((pair.take_to_client().len(), pair.cancelled.len()), (0, 0));
}

#[test]
fn the_end_of_a_session_cancels_each_of_its_requests_once() {
    let (mut pair, session) = connected();
    for token in 0..3 {
        pair.call(session, token, b"slow");
    }
    pair.settle();
    let handles: Vec<_> = pair.asked.iter().map(|asked| asked.handle).collect();
    let client = handles[0].client();
    let seen = pair.server.client_stats(client).expect("the client is connected");
    assert_eq!((seen.requests, seen.credits, seen.payload), (3, CREDITS, 1_448));
    assert!(pair.cancel(session, 1));
    pair.settle();
    assert_eq!(pair.cancelled, [handles[1]]);
    pair.client.shutdown(pair.now, &mut pair.to_server);
    pair.settle();
    assert_eq!(pair.cancelled, [handles[1], handles[0], handles[2]]);
    assert_eq!(
        (&pair.came[..], &pair.gone[..]),
        (&[client][..], &[(client, Cause::PeerClosed)][..])
    );
    assert_eq!(pair.server.client_stats(client), None);
}

// Tests of both sides.

#[test]
fn the_slot_of_a_cancelled_call_becomes_free_wherever_the_request_is() {
    for (lost, executing, responded) in
        [(false, false, false), (true, false, false), (false, true, false), (false, true, true)]
    {
        let (mut pair, session) = connected();
        pair.call(session, 1, b"request");
        if lost {
            pair.take_to_server();
        }
        if executing {
            pair.settle();
        }
        if responded {
            pair.answer(b"crossed");
        }
        assert!(pair.cancel(session, 1));
        assert_eq!(pair.error(), MAYBE);
        pair.live(ms(600));
        if !pair.asked.is_empty() {
            pair.answer_failure(Code::Cancelled, "stopped");
        }
        pair.live(ms(600));
        assert_eq!(pair.executed, u64::from(!lost));
        assert_eq!(stats(&pair, session).quarantined, 0);
        assert_slot_is_free(&mut pair, session, 0);
    }
}

#[test]
fn a_lost_answer_to_a_cancel_is_repeated() {
    let (mut pair, session) = cancelled();
    pair.pass(ms(25));
    let again = pair.take_to_server();
    pair.burst_at_server(CLIENT, &again);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Failure]);
    pair.live(ms(600));
    assert_eq!(stats(&pair, session).quarantined, 0);
    assert_eq!(pair.executed, 0);
    assert_slot_is_free(&mut pair, session, 0);
}
