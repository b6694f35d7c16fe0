//! How large responses are pulled, and when the server may drop them.

use super::pair::{
    CLIENT, Pair, STRANGER, connected, deferring, deferring_with, header, kinds, ms, pattern, shape,
};
use crate::protocol::{DropReason, EndpointConfig, SessionId};
use crate::wire::{HEADER_LEN, Kind};

/// A server that has sent the first of `packets` packets of the response to request 0.
fn responding(packets: usize) -> Pair {
    let (mut pair, _) = deferring_with(EndpointConfig::new().max_credits(32));
    let packet = pair.request(0, 0, b"ask").bytes();
    pair.at_server(CLIENT, &packet);
    let message = pair.message(packets);
    pair.answer(&message);
    assert_eq!(
        shape(&pair.take_to_client()),
        [(Kind::Response, 0)],
        "only the first packet is sent without a pull"
    );
    pair
}

/// The response packets that the server sends for a pull of `count` packets from `from` on.
fn pulled(pair: &mut Pair, from: u32, count: u32) -> Vec<u32> {
    let packet = pair.pull(0, from, count).bytes();
    pair.at_server(CLIENT, &packet);
    let packets = pair.take_to_client();
    assert!(kinds(&packets).iter().all(|kind| *kind == Kind::Response));
    packets.iter().map(|bytes| header(bytes).packet.get()).collect()
}

#[test]
fn pulled_packets_are_sent_in_order() {
    let mut pair = responding(6);
    assert_eq!(pulled(&mut pair, 1, 2), [1, 2]);
    assert_eq!(pulled(&mut pair, 3, 3), [3, 4, 5]);
    assert_eq!(pair.server.stats().repeated_responses, 0);
}

#[test]
fn each_packet_carries_its_bytes_the_pulls_stamp_and_its_waiting_time() {
    let mut pair = responding(3);
    let message = pair.message(3);
    let packet = pair.pull(0, 1, 2).bytes();
    pair.server_wait.absence = 300_000;
    pair.at_server(CLIENT, &packet);
    let answers = pair.take_to_client();
    assert_eq!(answers.len(), 2);
    for (at, bytes) in answers.iter().enumerate() {
        assert_eq!(header(bytes).size, header(&packet).aux);
        let waited = header(bytes).reply_info().processing_nanos();
        assert!((299_000..=300_000).contains(&waited), "{waited} ns");
        assert_eq!(&bytes[HEADER_LEN..], &message[(at + 1) * pair.payload()..][..pair.payload()]);
    }
}

#[test]
fn a_repeated_pull_gets_the_packets_again() {
    let mut pair = responding(6);
    pulled(&mut pair, 1, 3);
    assert_eq!(pulled(&mut pair, 2, 2), [2, 3]);
    assert_eq!(pair.server.stats().repeated_responses, 2);
    assert_eq!(pulled(&mut pair, 3, 3), [3, 4, 5], "packet 3 again, and two new packets");
}

#[test]
fn the_queue_is_flushed_before_a_packet_is_resent() {
    let mut pair = responding(3);
    pair.to_client.slow = true;
    pulled(&mut pair, 1, 2);
    let before = pair.to_client.flushes;
    pulled(&mut pair, 1, 2);
    assert!(pair.to_client.flushes > before);
}

#[test]
fn a_pull_after_a_lost_pull_is_answered_for_both() {
    let mut pair = responding(6);
    assert_eq!(pulled(&mut pair, 3, 3), [1, 2, 3, 4, 5]);
    assert_eq!(pair.server.stats().repeated_responses, 0);
}

#[test]
fn a_pull_beyond_the_credits_of_any_client_is_dropped() {
    let mut pair = responding(64);
    let ahead = pair.pull(0, 33, 2).bytes();
    pair.server_drops(CLIENT, &ahead, DropReason::OutOfOrder);
    assert_eq!(pulled(&mut pair, 32, 1).len(), 32);
}

#[test]
fn packets_that_the_response_does_not_have_are_not_sent() {
    let mut pair = responding(3);
    for (from, count) in
        [(2, 2), (3, 1), (1, u32::MAX), (2, u32::MAX), (0xFF_FFFF, 1), (0xFF_FFFF, u32::MAX)]
    {
        let packet = pair.pull(0, from, count).bytes();
        pair.server_drops(CLIENT, &packet, DropReason::Overrun);
    }
    assert_eq!(pair.take_to_client().len(), 0);
    // From packet 1 on, the client may have asked before it knew the length.
    assert_eq!(pulled(&mut pair, 1, 3), [1, 2]);
}

#[test]
fn a_pull_of_no_packet_of_packet_0_or_beyond_the_credits_is_dropped() {
    let mut pair = responding(64);
    for (from, count) in [(1, 0), (0, 1), (0, 2), (1, 33)] {
        let packet = pair.pull(0, from, count).bytes();
        pair.server_drops(CLIENT, &packet, DropReason::Overrun);
    }
    assert_eq!(pulled(&mut pair, 1, 32).len(), 32);
}

#[test]
fn a_pull_with_a_body_is_dropped() {
    let mut pair = responding(3);
    let packet = pair.pull(0, 1, 1).body(b"?").bytes();
    pair.server_drops(CLIENT, &packet, DropReason::LyingSize);
}

#[test]
fn a_pull_for_a_request_that_is_receiving_or_done_is_dropped() {
    let (mut pair, _) = deferring();
    let pull = pair.pull(0, 1, 1).bytes();
    let message = pair.message(2);
    let [first, second] = [0, 1].map(|packet| pair.request(0, packet, &message).bytes());
    pair.at_server(CLIENT, &first);
    pair.server_drops(CLIENT, &pull, DropReason::Unsolicited);
    pair.at_server(CLIENT, &second);
    pair.answer(&message);
    let done = pair.done(&[0]).bytes();
    pair.at_server(CLIENT, &done);
    pair.server_drops(CLIENT, &pull, DropReason::Unsolicited);
}

#[test]
fn a_pull_for_an_old_or_future_request_is_dropped() {
    let mut pair = responding(3);
    let old = pair.pull(0u32.wrapping_sub(8), 1, 1).bytes();
    pair.server_drops(CLIENT, &old, DropReason::OldRequest);
    let leap = pair.pull(8, 1, 1).bytes();
    pair.server_drops(CLIENT, &leap, DropReason::RequestLeap);
}

#[test]
fn a_pull_from_another_address_is_dropped() {
    let mut pair = responding(3);
    let packet = pair.pull(0, 1, 1).bytes();
    pair.server_drops(STRANGER, &packet, DropReason::WrongRoute);
}

#[test]
fn done_returns_a_large_response_to_the_pool() {
    let mut pair = responding(40);
    assert_eq!(pair.server.pool_stats().in_use, 1);
    let done = pair.done(&[0]).bytes();
    pair.at_server(CLIENT, &done);
    assert_eq!(pair.server.pool_stats().in_use, 0);
}

#[test]
fn the_slots_next_request_returns_a_large_response_too() {
    let mut pair = responding(40);
    let next = pair.request(8, 0, b"next").bytes();
    pair.at_server(CLIENT, &next);
    assert_eq!(pair.server.pool_stats().in_use, 0);
}

#[test]
fn done_for_another_number_in_the_slot_has_no_effect() {
    let mut pair = responding(3);
    for number in [8, 0u32.wrapping_sub(8), 1] {
        let done = pair.done(&[number]).bytes();
        pair.at_server(CLIENT, &done);
    }
    assert_eq!(pulled(&mut pair, 1, 2), [1, 2]);
}

#[test]
fn done_while_executing_has_no_effect() {
    let (mut pair, _) = deferring();
    let request = pair.request(0, 0, b"ask").bytes();
    let done = pair.done(&[0]).bytes();
    pair.at_server(CLIENT, &request);
    pair.at_server(CLIENT, &done);
    pair.answer(b"answer");
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Response]);
}

#[test]
fn done_of_an_invalid_length_is_dropped() {
    let mut pair = responding(3);
    for body in [&[][..], &[0; 3], &[0; 7], &[0; 36]] {
        let done = pair.done(&[]).body(body).bytes();
        pair.server_drops(CLIENT, &done, DropReason::LyingSize);
    }
    assert_eq!(pair.server.pool_stats().in_use, 1);
}

/// A client that has received a response of `len` bytes.
fn received(len: usize) -> (Pair, SessionId) {
    let (mut pair, session) = connected();
    pair.call(session, 1, &pattern(1, len));
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(pattern(1, len)));
    (pair, session)
}

#[test]
fn a_client_sends_done_when_a_timeout_passes_without_a_new_request() {
    let (mut pair, _) = received(20_000);
    pair.pass(ms(25));
    let sent = pair.take_to_server();
    assert_eq!(kinds(&sent), [Kind::Done]);
    assert_eq!(sent[0][HEADER_LEN..], 0u32.to_le_bytes());
}

#[test]
fn a_client_sends_no_done_after_the_next_request() {
    let (mut pair, session) = received(20_000);
    pair.call(session, 2, b"small");
    pair.settle();
    pair.pass_slowly(ms(500));
    assert_eq!(pair.take_to_server().len(), 0);
}

#[test]
fn a_client_sends_no_done_for_a_small_response() {
    let (mut pair, _) = received(512);
    pair.pass_slowly(ms(500));
    assert_eq!(pair.take_to_server().len(), 0);
    let (mut pair, _) = received(513);
    pair.pass_slowly(ms(500));
    assert_eq!(kinds(&pair.take_to_server()), [Kind::Done]);
}

#[test]
fn done_is_sent_once_more_with_the_next_ping_and_never_again() {
    let (mut pair, _) = received(20_000);
    pair.pass_slowly(ms(2_900));
    assert_eq!(kinds(&pair.take_to_server()), [Kind::Done]);
    pair.live(ms(900));
    let done = pair.server.stats().rx_delivered;
    pair.live(ms(10_000));
    // From here on the client sends only pings. Each of them counts as one delivered packet.
    assert!(pair.server.stats().rx_delivered - done <= 4);
    assert_eq!(
        pair.server.pool_stats().in_use,
        0,
        "the second Done must arrive, although the first was lost"
    );
}

#[test]
fn one_done_covers_all_slots_that_need_one() {
    let (mut pair, session) = connected();
    for token in 0..8 {
        pair.call(session, token, &pattern(token, 2_000));
    }
    pair.settle();
    pair.pass(ms(25));
    let sent = pair.take_to_server();
    assert_eq!((kinds(&sent), sent[0].len()), (vec![Kind::Done], HEADER_LEN + 32));
}

/// The request numbers in a `Done`.
#[track_caller]
fn named(done: &[u8]) -> Vec<u32> {
    assert_eq!(header(done).kind, Kind::Done);
    let (numbers, _) = done[HEADER_LEN..].as_chunks();
    numbers.iter().map(|number| u32::from_le_bytes(*number)).collect()
}

#[test]
fn a_new_call_removes_only_its_own_slot_from_the_next_done() {
    for request in [8, 2_000] {
        for is_told in [false, true] {
            let (mut pair, session) = connected();
            for token in 0..3 {
                pair.call(session, token, &pattern(token, 2_000));
            }
            pair.settle();
            if is_told {
                pair.pass(ms(25));
                assert_eq!(named(&pair.take_to_server()[0]), [0, 1, 2], "the Done, which is lost");
            }
            pair.echo = false;
            pair.call(session, 3, &pattern(3, request));
            pair.settle();
            pair.answer(b"small");
            pair.settle();
            pair.pass_slowly(ms(5_000));
            let sent = pair.take_to_server();
            let done = sent.iter().find(|bytes| header(bytes).kind == Kind::Done);
            assert_eq!(
                named(done.expect("the client sends a Done")),
                [1, 2],
                "{request} bytes, told: {is_told}"
            );
        }
    }
}

#[test]
fn a_lost_done_is_repeated_even_if_another_was_sent_since() {
    let (mut pair, session) = deferring();
    pair.call(session, 0, b"a");
    pair.call(session, 1, b"b");
    pair.live(ms(50));
    for _ in 0..2 {
        pair.answer(&pattern(1, 2_000));
        pair.settle();
        pair.pass(ms(25));
        assert_eq!(kinds(&pair.take_to_server()), [Kind::Done], "one Done, which is lost");
    }
    pair.live(ms(6_000));
    assert_eq!(pair.server.pool_stats().in_use, 0);
}

#[test]
fn a_client_may_pull_again_in_pieces_and_from_any_packet() {
    let mut pair = responding(40);
    assert_eq!(pulled(&mut pair, 1, 32).len(), 32);
    assert_eq!(
        pulled(&mut pair, 1, 4).len(),
        4,
        "the client goes back to packet 1, with four credits"
    );
    assert_eq!(pulled(&mut pair, 5, 4).len(), 4, "the client continues from there");
    assert_eq!(pulled(&mut pair, 2, 7).len(), 7, "packet 2 was lost again");
}

#[test]
fn repeated_pulls_of_the_same_packets_are_limited() {
    let mut pair = responding(10);
    assert_eq!(pulled(&mut pair, 1, 9).len(), 9);
    let again: usize = (0..10_000).map(|_| pulled(&mut pair, 1, 9).len()).sum();
    assert!((9..=10 * 9 + 64).contains(&again), "{again} packets sent again");
    let singles =
        |pair: &mut Pair| -> usize { (0..10_000).map(|_| pulled(pair, 1, 1).len()).sum() };
    let first = singles(&mut pair);
    assert!((9..=9 + 9).contains(&first), "{first} single packets sent again");
    // After a pause as long as a client's timeout, the server sends 9 packets again: one packet,
    // plus a quarter of the client's 32 credits.
    for _ in 0..3 {
        pair.pass(ms(5));
        assert_eq!(singles(&mut pair), 9);
    }
    pair.pass(ms(2));
    assert_eq!(pulled(&mut pair, 1, 1), [1], "after a pause the client can always get one packet");
    assert_eq!(pulled(&mut pair, 1, 1), []);
}

#[test]
fn a_burst_of_repeated_pulls_flushes_a_few_times() {
    let mut pair = responding(40);
    pulled(&mut pair, 1, 32);
    pair.to_client.slow = true;
    let before = pair.to_client.flushes;
    let burst: Vec<_> = (1..=32).rev().map(|from| pair.pull(0, from, 1).bytes()).collect();
    pair.burst_at_server(CLIENT, &burst);
    assert_eq!(pair.to_client.flushes - before, 8);
    assert_eq!(pair.take_to_client().len(), 9, "the first pull needs no flush");
    pair.pass(ms(1));
    pair.at_server(CLIENT, &burst[9]);
    assert_eq!(pair.take_to_client().len(), 1, "the next turn allows another flush");
}
