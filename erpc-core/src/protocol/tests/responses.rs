//! How a client handles responses and failures.

use super::pair::{Outcome, Pair, SERVER, STRANGER, Side, connected, header, ms, pattern, shape};
use crate::protocol::config::LOCAL_CREDITS;
use crate::protocol::{CallError, Cause, DropReason, EndpointConfig, SessionId};
use crate::status::{Code, Status};
use crate::wire::{ConnectionId, Kind, encode_status};

/// A client that has called with one packet.
fn calling() -> (Pair, SessionId) {
    called_with(EndpointConfig::new(), 1)
}

/// A client that has called with a message of `packets` packets, which are taken off the wire.
fn called_with(config: EndpointConfig, packets: usize) -> (Pair, SessionId) {
    let (mut pair, session) = Pair::connected(1_472, config);
    let message = pair.message(packets);
    pair.call(session, 1, &message);
    pair.take_to_server();
    (pair, session)
}

/// The pulls that the client sends: first packet and count.
fn pulls(pair: &mut Pair) -> Vec<(u32, u32)> {
    let sent = pair.take_to_server();
    assert!(
        shape(&sent).iter().all(|(kind, _)| *kind == Kind::RequestForResponse),
        "{:?}",
        shape(&sent)
    );
    sent.iter().map(|bytes| (header(bytes).packet.get(), header(bytes).size)).collect()
}

fn status(code: Code, message: &'static str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_status(&Status::new(code, message), &mut bytes);
    bytes
}

#[test]
fn a_response_completes_its_call_and_frees_everything() {
    let (mut pair, session) = calling();
    let response = pair.response(0, 0, b"answer").bytes();
    pair.at_client(SERVER, &response);
    let expected = Outcome { token: 1, result: Ok(b"answer".to_vec()), extended: false };
    assert_eq!(pair.outcome(), expected);
    let stats = pair.client.session_stats(session).expect("open");
    assert_eq!((stats.in_flight, stats.queued, stats.credits), (0, 0, LOCAL_CREDITS));
    assert_eq!(pair.client.pool_stats().in_use, 0);
}

#[test]
fn an_empty_response_completes_its_call() {
    let (mut pair, _) = calling();
    let response = pair.response(0, 0, b"").bytes();
    pair.at_client(SERVER, &response);
    assert_eq!(pair.outcome().result, Ok(Vec::new()));
}

#[test]
fn a_duplicate_response_is_dropped_and_the_call_completes_once() {
    let (mut pair, _) = calling();
    let response = pair.response(0, 0, b"answer").bytes();
    pair.at_client(SERVER, &response);
    pair.client_drops(SERVER, &response, DropReason::Duplicate);
    assert_eq!(pair.outcomes.len(), 1);
}

#[test]
fn a_response_from_another_address_or_to_another_id_is_dropped() {
    let (mut pair, _) = calling();
    let response = pair.response(0, 0, b"forged");
    pair.client_drops(STRANGER, &response.bytes(), DropReason::WrongRoute);
    for bit in [8, 30, 32, 63] {
        let forged = ConnectionId::from_u64(pair.client_id.to_u64() ^ 1 << bit);
        let packet = response.clone().to(forged).bytes();
        pair.client_drops(SERVER, &packet, DropReason::UnknownConnection);
    }
    assert_eq!(pair.outcomes, []);
}

#[test]
fn a_response_to_a_session_that_is_closing_is_dropped() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    let response = pair.response(0u32.wrapping_sub(8), 0, b"late").bytes();
    pair.client_drops(SERVER, &response, DropReason::Unsolicited);
}

#[test]
fn a_response_acknowledges_every_packet_of_the_request() {
    let (mut pair, session) = called_with(EndpointConfig::new(), 20);
    let response = pair.response(0, 0, b"answer").bytes();
    pair.at_client(SERVER, &response);
    assert_eq!(pair.client.session_stats(session).expect("open").credits, LOCAL_CREDITS);
}

#[test]
fn a_response_to_an_incompletely_sent_request_is_dropped() {
    let (mut pair, _) = called_with(EndpointConfig::new().credits(4).max_credits(4), 5);
    let response = pair.response(0, 0, b"too soon").bytes();
    pair.client_drops(SERVER, &response, DropReason::Unsolicited);
    assert_eq!(pair.outcomes, []);
}

#[test]
fn a_response_to_the_first_copies_is_accepted_after_a_timeout() {
    // The client has sent all six packets once. After the timeout it sends only packet 3 again, the
    // oldest unacknowledged one. The response may answer the first copies.
    let (mut pair, session) = called_with(EndpointConfig::new().credits(4).max_credits(4), 6);
    let more = pair.credit_return(0, 3).bytes();
    pair.at_client(SERVER, &more);
    pair.pass(ms(25));
    let response = pair.response(0, 0, b"answer").bytes();
    pair.at_client(SERVER, &response);
    assert_eq!(pair.outcome().result, Ok(b"answer".to_vec()));
    assert_eq!(pair.client.session_stats(session).expect("open").credits, 4);
}

#[test]
fn a_response_with_a_wrong_size_is_dropped() {
    let (mut pair, _) = calling();
    let honest = pair.response(0, 0, b"12345");
    let eager = pair.terms.eager;
    let lies = [
        honest.clone().size(4),
        honest.clone().size(6),
        honest.clone().size(u32::MAX),
        honest.clone().body(b""),
        honest.clone().body(&vec![0; eager as usize]),
        honest.clone().size(eager + 1),
    ];
    for lie in lies {
        pair.client_drops(SERVER, &lie.bytes(), DropReason::LyingSize);
    }
    assert_eq!(pair.outcomes, []);
}

#[test]
fn a_truncated_response_is_dropped_at_every_length() {
    let (mut pair, _) = calling();
    let response = pair.response(0, 0, b"12345").bytes();
    for len in 0..response.len() {
        let reason = if len < 24 { DropReason::Truncated } else { DropReason::LyingSize };
        pair.client_drops(SERVER, &response[..len], reason);
    }
    assert_eq!(pair.outcomes, []);
}

#[test]
fn a_later_response_packet_before_the_first_is_dropped() {
    let (mut pair, _) = calling();
    let message = pair.message(3);
    let second = pair.response(0, 1, &message).bytes();
    pair.client_drops(SERVER, &second, DropReason::Unsolicited);
}

#[test]
fn the_rest_of_a_large_response_is_pulled_at_the_end_of_the_burst() {
    let (mut pair, _) = calling();
    let message = pair.message(5);
    let first = pair.response(0, 0, &message).bytes();
    pair.at_client(SERVER, &first);
    assert_eq!(pulls(&mut pair), [(1, 4)]);
    for packet in 1..5 {
        let bytes = pair.response(0, packet, &message).bytes();
        pair.at_client(SERVER, &bytes);
        assert_eq!(pulls(&mut pair), []);
    }
    assert_eq!(pair.outcome().result, Ok(message));
}

#[test]
fn a_response_beyond_the_credits_is_pulled_in_halves_of_the_credits() {
    let (mut pair, _) = called_with(EndpointConfig::new().credits(4).max_credits(4), 1);
    let message = pair.message(10);
    let mut asked = Vec::new();
    for packet in 0..10 {
        let bytes = pair.response(0, packet, &message).bytes();
        pair.at_client(SERVER, &bytes);
        asked.extend(pulls(&mut pair));
    }
    assert_eq!(asked, [(1, 4), (5, 2), (7, 2), (9, 1)]);
    assert_eq!(pair.outcome().result, Ok(message));
}

#[test]
fn a_duplicate_response_packet_is_dropped() {
    let (mut pair, session) = calling();
    let message = pair.message(5);
    for packet in 0..3 {
        let bytes = pair.response(0, packet, &message).bytes();
        pair.at_client(SERVER, &bytes);
        pair.client_drops(SERVER, &bytes, DropReason::Duplicate);
    }
    assert_eq!(
        pair.client.session_stats(session).expect("open").credits,
        LOCAL_CREDITS - 2,
        "two packets are still in flight"
    );
}

#[test]
fn a_response_packet_that_was_not_pulled_is_dropped() {
    let (mut pair, _) = called_with(EndpointConfig::new().credits(2).max_credits(2), 1);
    let message = pair.message(10);
    let first = pair.response(0, 0, &message).bytes();
    pair.at_client(SERVER, &first);
    assert_eq!(pulls(&mut pair), [(1, 2)]);
    let third = pair.response(0, 3, &message).bytes();
    pair.client_drops(SERVER, &third, DropReason::Unsolicited);
}

#[test]
fn a_response_packet_of_another_message_is_dropped() {
    let (mut pair, _) = calling();
    let message = pair.message(5);
    let first = pair.response(0, 0, &message).bytes();
    pair.at_client(SERVER, &first);
    let second = pair.response(0, 1, &message);
    let lies = [
        second.clone().packet(5),
        second.clone().packet(0xFF_FFFE),
        second.clone().body(b"short"),
        second.clone().body(&[0; 1_449]),
    ];
    for lie in lies {
        pair.client_drops(SERVER, &lie.bytes(), DropReason::LyingSize);
    }
    for packet in 1..5 {
        let bytes = pair.response(0, packet, &message).bytes();
        pair.at_client(SERVER, &bytes);
    }
    assert_eq!(pair.outcome().result, Ok(message), "the response continues");
}

#[test]
fn a_gap_in_the_response_is_pulled_again_once() {
    let (mut pair, _) = calling();
    let message = pair.message(8);
    for packet in [0, 1] {
        let bytes = pair.response(0, packet, &message).bytes();
        pair.at_client(SERVER, &bytes);
    }
    pulls(&mut pair);
    let beyond = pair.response(0, 3, &message).bytes();
    pair.client_drops(SERVER, &beyond, DropReason::OutOfOrder);
    assert_eq!(pulls(&mut pair), [(2, 6)]);
    let further = pair.response(0, 4, &message).bytes();
    pair.client_drops(SERVER, &further, DropReason::OutOfOrder);
    assert_eq!(pulls(&mut pair), [], "the client has asked already");
    assert_eq!(pair.client.stats().retransmissions.after_gap, 6, "six packets were pulled twice");
}

#[test]
fn a_response_larger_than_the_limit_ends_the_call_without_an_allocation() {
    let (mut pair, _) = called_with(EndpointConfig::new().max_message(5_000), 1);
    let message = pair.message(4);
    let before = pair.client.pool_stats();
    let first = pair.response(0, 0, &message).bytes();
    pair.at_client(SERVER, &first);
    let too_large = Cause::ResponseTooLarge(message.len() as u32);
    assert_eq!(pair.error(), CallError::ResponseLost(too_large));
    let after = pair.client.pool_stats();
    assert!(
        after.in_use == 0
            && after.idle_bytes + after.in_use_bytes <= before.idle_bytes + before.in_use_bytes
    );
}

#[test]
fn a_declared_size_of_4_gib_allocates_nothing() {
    let (mut pair, _) = calling();
    let message = pair.message(2);
    let first = pair.response(0, 0, &message).size(u32::MAX).bytes();
    pair.at_client(SERVER, &first);
    assert_eq!(pair.error(), CallError::ResponseLost(Cause::ResponseTooLarge(u32::MAX)));
}

#[test]
fn a_call_without_loss_costs_no_flush_and_is_counted_once() {
    let (mut pair, session) = connected();
    for (token, len) in [(0, 8), (1, 2_000), (2, 100_000)] {
        pair.call(session, token, &pattern(token, len));
        pair.settle();
        assert_eq!(pair.outcome().result, Ok(pattern(token, len)));
        assert_eq!((pair.to_server.flushes, pair.to_client.flushes), (0, 0), "{len} bytes");
        let (client, server) = (*pair.client.stats(), *pair.server.stats());
        assert_eq!([client.calls, client.responses, server.requests], [token + 1; 3]);
    }
}

#[test]
fn a_call_without_memory_for_its_response_ends_as_executed() {
    let (mut pair, session) = called_with(EndpointConfig::new().memory_limit(40_000), 1);
    let message = pair.message(60);
    for packet in 0..60 {
        let bytes = pair.response(0, packet, &message).bytes();
        if pair.outcomes.is_empty() {
            pair.at_client(SERVER, &bytes);
        }
    }
    assert_eq!(pair.error(), CallError::ResponseLost(Cause::NoMemory));
    assert_eq!(pair.client.stats().given_up, 1);
    assert_eq!(pair.client.session_stats(session).expect("open").credits, LOCAL_CREDITS);
    assert_eq!(pair.client.pool_stats().in_use, 0);
}

#[test]
fn a_failure_ends_the_call_with_its_status() {
    let (mut pair, _) = calling();
    let failure =
        pair.response(0, 0, &status(Code::NotFound, "no such key")).kind(Kind::Failure).bytes();
    pair.at_client(SERVER, &failure);
    assert_eq!(pair.error(), CallError::Status(Status::new(Code::NotFound, "no such key")));
    pair.client_drops(SERVER, &failure, DropReason::Duplicate);
}

#[test]
fn a_failure_may_arrive_before_the_request_is_completely_sent() {
    let (mut pair, session) = called_with(EndpointConfig::new().credits(4).max_credits(4), 10);
    let failure =
        pair.response(0, 0, &status(Code::ResourceExhausted, "full")).kind(Kind::Failure).bytes();
    pair.at_client(SERVER, &failure);
    assert_eq!(pair.error(), CallError::Status(Status::new(Code::ResourceExhausted, "full")));
    assert_eq!(pair.client.session_stats(session).expect("open").credits, 4);
}

#[test]
fn a_failure_for_an_unsent_request_is_dropped() {
    let (mut pair, session) = called_with(EndpointConfig::new().credits(1).max_credits(1), 2);
    pair.call(session, 2, b"waits for a credit");
    let failure = pair.response(1, 0, &status(Code::Internal, "lie")).kind(Kind::Failure).bytes();
    pair.client_drops(SERVER, &failure, DropReason::Unsolicited);
}

#[test]
fn a_failure_of_several_packets_is_assembled() {
    let (mut pair, _) = calling();
    let details = vec![7; 3_000];
    let mut bytes = Vec::new();
    encode_status(
        &Status::new(Code::Internal, "see the details").with_details(&details),
        &mut bytes,
    );
    for packet in 0..3 {
        let packet = pair.response(0, packet, &bytes).kind(Kind::Failure).bytes();
        pair.at_client(SERVER, &packet);
    }
    let CallError::Status(status) = pair.error() else { panic!("not a status") };
    assert_eq!((status.message(), status.details()), ("see the details", &details[..]));
}

#[test]
fn a_failure_without_a_valid_status_is_still_a_failure() {
    let (mut pair, _) = calling();
    let failure = pair.response(0, 0, b"").kind(Kind::Failure).bytes();
    pair.at_client(SERVER, &failure);
    let CallError::Status(status) = pair.error() else { panic!("not a status") };
    assert_eq!(status.code(), Code::Unknown);
}

#[test]
fn a_retransmitted_request_is_flushed_before_it_is_returned_to_the_user() {
    let (mut pair, _) = calling();
    pair.to_server.slow = true;
    pair.pass(ms(25));
    // The transmit queue still reads the second copy. `Pair` overwrites the request as soon as the
    // client returns it.
    let response = pair.response(0, 0, b"answer").bytes();
    pair.at_client(SERVER, &response);
    assert_eq!(pair.outcomes.len(), 1);
}

#[test]
fn a_finished_call_frees_its_slot_for_the_next_call() {
    let (mut pair, session) = calling();
    for token in 2..=9 {
        pair.call(session, token, &[token as u8]);
    }
    assert_eq!(pair.take_to_server().len(), 7, "one call waits for a slot");
    let response = pair.response(3, 0, b"out of order").bytes();
    pair.at_client(SERVER, &response);
    let sent = pair.take_to_server();
    assert_eq!(
        (sent.len(), header(&sent[0]).request.to_u32()),
        (1, 11),
        "the queued call gets the slot of number 3"
    );
}

#[test]
fn a_status_longer_than_the_clients_limit_arrives_with_a_shorter_message() {
    let side = Side::new(1_472);
    let small = EndpointConfig::new().max_message(100);
    let (mut pair, session) = Pair::of(side.clone().config(small), side).and_connected();
    pair.echo = false;
    pair.call(session, 1, b"ask");
    pair.settle();
    let words = "so many words that the client has no room for them: it takes a hundred bytes and no more, whatever they say";
    pair.answer_failure(Code::NotFound, words);
    pair.settle();
    let CallError::Status(status) = pair.error() else { panic!("not a status") };
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().len() < words.len(), "{}", status.message());
}
