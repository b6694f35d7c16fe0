//! Memory of messages: it grows with the bytes that have arrived, within limits.

use super::pair::{CLIENT, Pair, SERVER, Side, connected, deferring, header, kinds, ms, pattern};
use crate::buf::MsgBuf;
use crate::protocol::{CallError, DropReason, EndpointConfig, NewCall};
use crate::status::Code;
use crate::wire::Kind;

const GIB: u32 = 1 << 30;

fn code(error: &CallError) -> Option<Code> {
    match error {
        CallError::Status(status) => Some(status.code()),
        _ => None,
    }
}

#[test]
fn a_request_that_declares_2_gib_allocates_nothing() {
    let (mut pair, _) =
        Pair::connected(1_472, EndpointConfig::new().max_message(GIB).memory_limit(1 << 40));
    let message = pair.message(2);
    let packet = pair.request(0, 0, &message).size(1 << 31).bytes();
    pair.server_drops(CLIENT, &packet, DropReason::LyingSize);
    assert_eq!(pair.server.pool_stats().in_use_bytes, 0);
}

#[test]
fn a_request_that_declares_1_gib_uses_memory_as_its_bytes_arrive() {
    let (mut pair, _) =
        Pair::connected(1_472, EndpointConfig::new().max_message(GIB).memory_limit(1 << 40));
    let message = pair.message(100);
    for packet in 0..100 {
        let bytes = pair.request(0, packet, &message).size(GIB).bytes();
        pair.at_server(CLIENT, &bytes);
        let (came, taken) =
            ((packet as usize + 1) * pair.payload(), pair.server.pool_stats().in_use_bytes);
        assert!(taken <= 20_000 + 4 * came, "{taken} bytes of memory for {came} bytes received");
    }
}

#[test]
fn a_response_that_declares_1_gib_uses_memory_as_its_bytes_arrive() {
    let config = EndpointConfig::new().max_message(GIB).memory_limit(1 << 40);
    let (mut pair, session) = Pair::connected(1_472, config);
    pair.call(session, 1, b"ask");
    pair.take_to_server();
    let before = pair.client.pool_stats().in_use_bytes;
    let message = pair.message(20);
    for packet in 0..20 {
        let bytes = pair.response(0, packet, &message).size(GIB).bytes();
        pair.at_client(SERVER, &bytes);
        let (came, taken) = (
            (packet as usize + 1) * pair.payload(),
            pair.client.pool_stats().in_use_bytes - before,
        );
        assert!(taken <= 20_000 + 4 * came, "{taken} bytes of memory for {came} bytes received");
    }
}

#[test]
fn many_large_declared_sizes_use_as_little_memory_as_small_messages() {
    let (mut pair, _) =
        Pair::connected(1_472, EndpointConfig::new().max_message(GIB).memory_limit(1 << 40));
    let message = pair.message(2);
    for number in 0..8 {
        let packet = pair.request(number, 0, &message).size(GIB).bytes();
        pair.at_server(CLIENT, &packet);
    }
    assert!(pair.server.pool_stats().in_use_bytes < 8 * 24_000);
}

#[test]
fn a_session_beyond_its_memory_limit_gets_failures_and_continues() {
    let side = Side::new(1_472);
    let limit = EndpointConfig::new().max_message(200_000).session_memory_limit(400_000);
    let (mut pair, session) = Pair::of(side.clone(), side.config(limit)).and_connected();
    pair.echo = false;
    for token in 0..8 {
        pair.call(session, token, &pattern(token, 150_000));
    }
    pair.settle();
    let exhausted = pair.outcomes.len();
    assert!((4..8).contains(&exhausted), "{exhausted} of 8 x 150,000 bytes do not fit 400,000");
    for outcome in std::mem::take(&mut pair.outcomes) {
        assert_eq!(code(&outcome.result.expect_err("failed")), Some(Code::ResourceExhausted));
    }
    assert_eq!(pair.asked.len(), 8 - exhausted);
    while !pair.asked.is_empty() {
        pair.answer(b"");
    }
    pair.settle();
    assert_eq!(pair.outcomes.len(), 8 - exhausted);
    pair.outcomes.clear();
    pair.echo = true;
    pair.call(session, 99, &pattern(99, 150_000));
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(pattern(99, 150_000)));
}

#[test]
fn a_request_without_memory_for_its_first_packet_fails_immediately() {
    let limit = EndpointConfig::new().max_message(200_000).session_memory_limit(200_000);
    let (mut pair, _) = Pair::connected(60_024, limit);
    pair.echo = false;
    for number in 0..2 {
        let packet = pair.request(number, 0, b"ask").bytes();
        pair.at_server(CLIENT, &packet);
        pair.answer(&pattern(1, 110_000));
    }
    pair.take_to_client();
    let message = pair.message(3);
    let first = pair.request(2, 0, &message).bytes();
    pair.at_server(CLIENT, &first);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Failure]);
    assert_eq!(pair.server.stats().turned_down, 1);
}

#[test]
fn one_session_beyond_its_memory_limit_does_not_affect_another() {
    let side = Side::new(1_472);
    let limit = EndpointConfig::new().max_message(200_000).session_memory_limit(400_000);
    let (mut pair, greedy) = Pair::of(side.clone(), side.config(limit)).and_connected();
    let modest = pair.open();
    pair.echo = false;
    for token in 0..8 {
        pair.call(greedy, token, &pattern(token, 150_000));
    }
    pair.call(modest, 99, &pattern(99, 150_000));
    pair.settle();
    assert!(pair.outcomes.iter().all(|outcome| outcome.token != 99));
    assert!(pair.asked.iter().any(|asked| asked.body == pattern(99, 150_000)));
}

#[test]
fn the_largest_message_fits_the_smallest_allowed_session_memory() {
    let sizes = [1, 1_000, 20_000, 1 << 20, 3_000_000];
    for max in sizes.into_iter().take(if cfg!(miri) { 3 } else { 5 }) {
        let config = |limit| EndpointConfig::new().max_message(max).session_memory_limit(limit);
        let smallest = (max as usize..)
            .find(|limit| config(*limit).check().is_ok())
            .expect("some limit is allowed");
        let (mut pair, session) = Pair::connected(1_472, config(smallest));
        let message = pattern(1, max as usize);
        pair.call(session, 1, &message);
        pair.settle();
        assert!(pair.outcome().result == Ok(message), "{max} bytes");
    }
}

#[test]
fn an_endpoint_beyond_its_memory_limit_answers_resource_exhausted_and_recovers() {
    let side = Side::new(1_472);
    let limit = EndpointConfig::new().max_message(200_000).memory_limit(300_000);
    let (mut pair, session) = Pair::of(side.clone(), side.config(limit)).and_connected();
    pair.echo = false;
    for token in 0..4 {
        pair.call(session, token, &pattern(token, 150_000));
    }
    pair.settle();
    assert!(!pair.outcomes.is_empty());
    for outcome in std::mem::take(&mut pair.outcomes) {
        assert_eq!(code(&outcome.result.expect_err("failed")), Some(Code::ResourceExhausted));
    }
    while !pair.asked.is_empty() {
        pair.answer(b"");
    }
    pair.settle();
    pair.outcomes.clear();
    pair.call(session, 99, &pattern(99, 50_000));
    pair.settle();
    pair.answer(b"well");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"well".to_vec()));
}

#[test]
fn packets_of_a_failed_request_get_the_failure_again() {
    let side = Side::new(1_472);
    let limit = EndpointConfig::new().max_message(200_000).memory_limit(30_000);
    let (mut pair, _) = Pair::of(side.clone(), side.config(limit)).and_connected();
    let message = pair.message(60);
    let mut packet = 0;
    while pair.to_client.packets.iter().all(|(_, bytes)| header(bytes).kind != Kind::Failure) {
        let bytes = pair.request(0, packet, &message).bytes();
        pair.at_server(CLIENT, &bytes);
        packet += 1;
    }
    pair.take_to_client();
    let next = pair.request(0, packet, &message).bytes();
    pair.server_drops(CLIENT, &next, DropReason::Duplicate);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Failure]);
    assert_eq!(pair.executed, 0);
}

#[test]
fn kept_responses_count_against_the_sessions_memory() {
    let (mut pair, _) = Pair::connected(
        1_472,
        EndpointConfig::new().max_message(200_000).session_memory_limit(400_000),
    );
    pair.echo = false;
    for number in 0..8 {
        let packet = pair.request(number, 0, b"ask").bytes();
        pair.at_server(CLIENT, &packet);
        pair.answer(&pattern(1, 150_000));
    }
    let answers = kinds(&pair.take_to_client());
    let kept = answers.iter().filter(|kind| **kind == Kind::Response).count();
    assert!(
        (2..=3).contains(&kept),
        "400,000 bytes hold 2 responses, with a third more 3: {answers:?}"
    );
    assert_eq!(answers.iter().filter(|kind| **kind == Kind::Failure).count(), 8 - kept);
    let done = pair.done(&[0, 1]).bytes();
    pair.at_server(CLIENT, &done);
    let packet = pair.request(8, 0, b"ask").bytes();
    pair.at_server(CLIENT, &packet);
    pair.answer(&pattern(1, 150_000));
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Response]);
}

#[test]
fn a_slot_keeps_a_small_response_buffer_and_reuses_it() {
    let (mut pair, session) = connected();
    for token in 0..100 {
        pair.call(session, token, b"0123456789");
        pair.settle();
    }
    let stats = pair.server.pool_stats();
    assert_eq!(
        (stats.in_use, stats.idle_bytes),
        (1, 0),
        "one slot was used, so one buffer was allocated"
    );
}

#[test]
fn a_response_that_replaces_a_kept_buffer_returns_it_to_the_pool() {
    let (mut pair, session) = deferring();
    for round in 0..5 {
        pair.call(session, round, b"keeps a small buffer");
        pair.settle();
        pair.answer(b"kept");
        pair.settle();
        pair.call(session, round, b"fails");
        pair.settle();
        pair.answer_failure(Code::NotFound, "in a buffer of its own");
        pair.settle();
    }
    assert_eq!(pair.server.pool_stats().in_use, 1);
}

#[test]
fn a_response_of_another_thread_is_counted_in_every_round() {
    let (mut pair, session) = deferring();
    for round in 0..2 {
        pair.call(session, round, b"answered elsewhere");
        pair.settle();
        let asked = pair.asked.pop_front().expect("a request waits");
        drop(asked.buffer);
        let mut response = MsgBuf::detached(10).expect("memory");
        response.resize(10);
        pair.server.respond(pair.now, asked.handle, response, false, &mut pair.to_client);
        pair.settle();
        assert_eq!(pair.server.pool_stats().in_use, 1, "round {round}");
    }
}

#[test]
fn an_idle_session_keeps_only_small_buffers() {
    let (mut pair, session) = connected();
    for token in 0..8 {
        pair.call(session, token, &pattern(token, 100_000));
    }
    pair.live(ms(100));
    assert_eq!((pair.client.pool_stats().in_use, pair.server.pool_stats().in_use), (0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn a_message_of_256_mib_is_delivered_when_the_limits_allow_it() {
    let config = EndpointConfig::new()
        .max_message(256 << 20)
        .memory_limit(2 << 30)
        .credits(256)
        .max_credits(256);
    let (mut pair, session) = Pair::connected(8_192, config);
    pair.echo = false;
    let mut request = pair.client.pool().alloc(256 << 20).expect("memory");
    request.resize(256 << 20);
    for (at, word) in request.as_mut_slice().chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(at as u64).to_le_bytes());
    }
    assert!(
        pair.client
            .call(pair.now, session, NewCall::new(1, request, 1), &mut pair.to_server)
            .is_ok()
    );
    pair.settle();
    let asked = pair.asked.pop_front().expect("the handler received the request");
    assert_eq!(asked.body.len(), 256 << 20);
    for (at, word) in asked.body.chunks_exact(8).enumerate() {
        assert!(*word == (at as u64).to_le_bytes(), "word {at}");
    }
    pair.respond(asked.handle, &asked.body[..64 << 20]);
    pair.settle();
    assert!(pair.outcome().result == Ok(asked.body[..64 << 20].to_vec()));
}
