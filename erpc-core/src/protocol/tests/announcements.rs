//! Responses to accepted requests. The client has given the room for these responses to other
//! calls, so the server announces them and the client pulls them.

use super::pair::{CLIENT, Pair, SERVER, Side, deferring, header, kinds, ms, pattern, shape};
use crate::protocol::config::LOCAL_CREDITS;
use crate::protocol::{CallError, DropReason, SessionId};
use crate::status::Code;
use crate::transport::ChargeModel;
use crate::wire::{ANNOUNCEMENT, HEADER_LEN, Kind};

/// A call of one packet that the server executes and has answered with `Accepted`.
fn accepted() -> (Pair, SessionId) {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    pair.settle();
    pair.pass(ms(25));
    pair.settle();
    assert_eq!(
        pair.server.stats().dropped(DropReason::Duplicate),
        1,
        "the client has sent the request once more"
    );
    (pair, session)
}

/// The pulls that the client sends: first packet and count.
fn pulls(pair: &mut Pair) -> Vec<(u32, u32)> {
    let sent = pair.take_to_server();
    let pulls = sent.iter().filter(|bytes| header(bytes).kind == Kind::RequestForResponse);
    pulls.map(|bytes| (header(bytes).packet.get(), header(bytes).size)).collect()
}

#[test]
fn the_response_to_an_accepted_request_is_announced_and_pulled_from_its_first_packet() {
    for len in [1, 100, 1_024, 9_000] {
        let (mut pair, session) = accepted();
        let message = pattern(3, len);
        pair.answer(&message);
        let sent = pair.take_to_client();
        assert_eq!(shape(&sent), [(Kind::Response, ANNOUNCEMENT)]);
        assert_eq!((sent[0].len(), header(&sent[0]).size as usize), (HEADER_LEN, len));
        pair.burst_at_client(SERVER, &sent);
        let packets = if len == 9_000 { 7 } else { 1 };
        let asked = pair.to_server.packets.iter().map(|(_, bytes)| header(bytes)).next();
        assert_eq!(asked.map(|asked| (asked.packet.get(), asked.size)), Some((0, packets)));
        pair.settle();
        assert_eq!(pair.outcome().result, Ok(message));
        assert_eq!(pair.client.session_stats(session).expect("open").credits, LOCAL_CREDITS);
    }
}

#[test]
fn an_empty_response_needs_no_announcement() {
    let (mut pair, _) = accepted();
    pair.answer(b"");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(Vec::new()));
}

#[test]
fn a_failure_is_announced_too() {
    let (mut pair, _) = accepted();
    pair.answer_failure(Code::NotFound, "nowhere");
    let sent = pair.take_to_client();
    assert_eq!((shape(&sent), sent[0].len()), (vec![(Kind::Failure, ANNOUNCEMENT)], HEADER_LEN));
    pair.burst_at_client(SERVER, &sent);
    pair.settle();
    let CallError::Status(status) = pair.error() else { panic!("not a status") };
    assert_eq!((status.code(), status.message()), (Code::NotFound, "nowhere"));
}

#[test]
fn the_response_to_a_request_that_was_not_accepted_is_sent_without_a_pull() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"fast");
    pair.settle();
    pair.answer(b"answer");
    assert!(pair.take_to_client()[0].len() > HEADER_LEN);
}

#[test]
fn an_announcement_is_valid_although_accepted_was_lost() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"slow");
    pair.settle();
    pair.pass(ms(25));
    let again = pair.take_to_server();
    pair.burst_at_server(CLIENT, &again);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Accepted]);
    pair.answer(b"answer");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"answer".to_vec()));
}

#[test]
fn a_lost_announcement_is_found_by_the_probe() {
    let (mut pair, _) = accepted();
    pair.answer(b"answer");
    assert_eq!(pair.take_to_client().len(), 1);
    pair.live(ms(2_900));
    assert_eq!(pair.outcomes, []);
    pair.live(ms(900));
    assert_eq!(pair.outcome().result, Ok(b"answer".to_vec()));
}

#[test]
fn a_lost_pull_is_sent_again() {
    let (mut pair, _) = accepted();
    pair.answer(b"answer");
    let announced = pair.take_to_client();
    pair.burst_at_client(SERVER, &announced);
    assert_eq!(pulls(&mut pair), [(0, 1)]);
    pair.client_drops(SERVER, &announced[0], DropReason::Duplicate);
    pair.pass(ms(25));
    assert_eq!(pulls(&mut pair), [(0, 1)]);
    pair.live(ms(600));
    assert_eq!(pair.outcome().result, Ok(b"answer".to_vec()));
}

#[test]
fn an_announcement_without_size_or_with_a_body_is_dropped() {
    let (mut pair, _) = accepted();
    for lie in [
        pair.announcement(0, 0),
        pair.announcement(0, 5).body(b"12345"),
        pair.announcement(0, 5).body(b"1"),
    ] {
        pair.client_drops(SERVER, &lie.bytes(), DropReason::LyingSize);
    }
    let cut = pair.response(0, 0, b"12345").body(b"").bytes();
    pair.client_drops(SERVER, &cut, DropReason::LyingSize);
    assert_eq!(pulls(&mut pair), []);
}

#[test]
fn the_first_packet_of_an_announced_response_is_sent_only_when_pulled() {
    let (mut pair, _) = accepted();
    pair.answer(&pattern(1, 5_000));
    pair.take_to_client();
    let probe = pair.request(0, 0, b"slow").bytes();
    pair.server_drops(CLIENT, &probe, DropReason::Duplicate);
    let sent = pair.take_to_client();
    assert_eq!(sent[0].len(), HEADER_LEN, "the server announces the response again");
    let pull = pair.pull(0, 0, 2).bytes();
    pair.at_server(CLIENT, &pull);
    assert_eq!(shape(&pair.take_to_client()), [(Kind::Response, 0), (Kind::Response, 1)]);
}

#[test]
fn an_announced_response_waits_for_room() {
    // The client has room for two reply packets. The fast calls take all of it, so the client
    // cannot pull the two announced responses.
    let client = Side::new(1_472).queue(ChargeModel::Ring, 2 * 1_024);
    let (mut pair, session) = Pair::of(client, Side::new(1_472)).and_connected();
    pair.echo = false;
    for token in 0..2 {
        pair.call(session, token, b"slow");
    }
    pair.live(ms(50));
    for _ in 0..3 {
        pair.call(session, 2, b"fast");
    }
    pair.take_to_server();
    let asked: Vec<_> = pair.asked.drain(..).collect();
    for asked in asked {
        pair.respond(asked.handle, &pattern(1, 3_000));
    }
    let announced = pair.take_to_client();
    assert!(announced.iter().all(|bytes| bytes.len() == HEADER_LEN));
    pair.burst_at_client(SERVER, &announced);
    assert_eq!(pulls(&mut pair), [], "the fast calls have all the room");
}

#[test]
fn an_announcement_allocates_nothing() {
    let (mut pair, _) = accepted();
    let before = pair.client.pool_stats().in_use;
    let announced = pair.announcement(0, 8 << 20).bytes();
    pair.at_client(SERVER, &announced);
    assert_eq!(pair.client.pool_stats().in_use, before);
    assert_eq!(pulls(&mut pair), [(0, 64), (64, 64)]);
}

#[test]
fn an_announced_response_that_is_too_large_is_lost() {
    let (mut pair, _) = accepted();
    let announced = pair.announcement(0, (8 << 20) + 1).bytes();
    pair.at_client(SERVER, &announced);
    assert!(matches!(pair.error(), CallError::ResponseLost(_)));
    assert_eq!(pulls(&mut pair), []);
}

#[test]
fn hundreds_of_accepted_calls_use_neither_window_nor_room() {
    // Each queue holds ten packets.
    let side = || Side::new(1_472).queue(ChargeModel::Ring, 10 * 1_024);
    let mut pair = Pair::of(side(), side());
    pair.echo = false;
    let sessions: Vec<_> = (0..50).map(|_| pair.open()).collect();
    for (at, session) in sessions.iter().enumerate() {
        for token in 0..8 {
            pair.call(*session, at as u64 * 8 + token, b"polls");
        }
    }
    pair.live(ms(5_000));
    assert_eq!(pair.asked.len(), 400, "all polls are executing");
    let polls: Vec<_> = pair.asked.drain(..).collect();
    pair.echo = true;
    let other = pair.open();
    pair.call(other, 1_000, b"small");
    pair.settle();
    assert_eq!(
        pair.outcome().result,
        Ok(b"small".to_vec()),
        "the small call must complete immediately"
    );
    for poll in polls {
        pair.respond(poll.handle, &pattern(1, 900));
    }
    pair.live(ms(10_000));
    assert_eq!(pair.outcomes.len(), 400);
    assert!(pair.outcomes.iter().all(|outcome| outcome.result.is_ok()));
}
