//! How a server handles request packets.

use super::pair::{CLIENT, ECHO, Pair, STRANGER, connected, deferring, header, kinds, ms, shape};
use crate::protocol::{DropReason, EndpointConfig};
use crate::status::Code;
use crate::wire::{ConnectionId, Kind, Stamp, decode_status};

/// A server whose handler waits for [`Pair::answer`], and a session to it.
fn server() -> Pair {
    deferring().0
}

/// The kinds and packet numbers that the server sends after it has received `packets` in one burst.
fn replies(pair: &mut Pair, packets: &[Vec<u8>]) -> Vec<(Kind, u32)> {
    pair.burst_at_server(CLIENT, packets);
    shape(&pair.take_to_client())
}

#[test]
fn a_small_request_reaches_the_handler_and_is_not_answered_yet() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"hello").bytes();
    assert_eq!(replies(&mut pair, &[packet]), []);
    let asked = pair.asked.pop_front().expect("the handler received the request");
    assert_eq!((asked.method, asked.body.as_slice()), (ECHO, b"hello".as_slice()));
}

#[test]
fn an_empty_request_reaches_the_handler() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"").bytes();
    pair.at_server(CLIENT, &packet);
    assert_eq!(pair.asked[0].body, b"");
}

#[test]
fn packets_in_order_are_answered_by_credit_returns_that_name_the_next_packet() {
    let mut pair = server();
    let message = pair.message(3);
    for (packet, expected) in
        [(0, vec![(Kind::CreditReturn, 1)]), (1, vec![(Kind::CreditReturn, 2)]), (2, vec![])]
    {
        let bytes = pair.request(0, packet, &message).bytes();
        assert_eq!(replies(&mut pair, &[bytes]), expected);
    }
    assert_eq!((pair.asked[0].method, &pair.asked[0].body), (ECHO, &message));
}

#[test]
fn a_burst_is_answered_by_one_credit_return() {
    let mut pair = server();
    let message = pair.message(9);
    let burst: Vec<_> = (0..8).map(|packet| pair.request(0, packet, &message).bytes()).collect();
    assert_eq!(replies(&mut pair, &burst), [(Kind::CreditReturn, 8)]);
}

#[test]
fn a_duplicate_packet_while_receiving_is_dropped_and_its_credit_returned() {
    let mut pair = server();
    let message = pair.message(3);
    let first = pair.request(0, 0, &message).bytes();
    pair.at_server(CLIENT, &first);
    pair.take_to_client();
    pair.server_drops(CLIENT, &first, DropReason::Duplicate);
    let again = pair.take_to_client();
    assert_eq!(shape(&again), [(Kind::CreditReturn, 1)]);
    assert_eq!(header(&again[0]).size, 0, "no gap");
}

#[test]
fn a_duplicate_request_while_executing_is_answered_accepted_and_not_executed() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"once").bytes();
    pair.at_server(CLIENT, &packet);
    pair.server_drops(CLIENT, &packet, DropReason::Duplicate);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Accepted]);
    assert_eq!(pair.executed, 1);
}

#[test]
fn a_duplicate_request_after_its_response_gets_the_response_again() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"once").bytes();
    pair.at_server(CLIENT, &packet);
    pair.answer(b"the answer");
    let first = pair.take_to_client();
    pair.server_drops(CLIENT, &packet, DropReason::Duplicate);
    assert_eq!(pair.take_to_client(), first);
    assert_eq!((pair.executed, pair.server.stats().repeated_responses), (1, 1));
}

#[test]
fn duplicates_after_the_response_get_it_once_per_quarter_of_the_timeout() {
    let mut pair = server();
    let message = pair.message(3);
    let packets: Vec<_> = (0..3).map(|packet| pair.request(0, packet, &message).bytes()).collect();
    pair.burst_at_server(CLIENT, &packets);
    pair.answer(b"done");
    pair.take_to_client();
    assert_eq!(
        replies(&mut pair, &packets),
        [(Kind::Response, 0)],
        "one copy, for a roll-back that crossed the response"
    );
    pair.pass(ms(1));
    assert_eq!(
        replies(&mut pair, &packets[1..]),
        [],
        "the answer to the first packet may still be in flight"
    );
    pair.pass(ms(1));
    assert_eq!(
        replies(&mut pair, &packets[2..]),
        [(Kind::Response, 0)],
        "any packet of the request asks for the response"
    );
}

/// A request for each slot, and a burst of four copies of each.
fn copies(pair: &Pair) -> [Vec<Vec<u8>>; 2] {
    let requests: Vec<_> = (0..8).map(|slot| pair.request(slot, 0, b"once").bytes()).collect();
    let burst = requests.iter().cycle().take(32).cloned().collect();
    [requests, burst]
}

#[test]
fn a_burst_of_copies_brings_one_response_per_slot_and_one_flush() {
    let mut pair = server();
    let [requests, burst] = copies(&pair);
    pair.burst_at_server(CLIENT, &requests);
    pair.to_client.slow = true;
    (0..8).for_each(|_| pair.answer(b"the answer"));
    pair.take_to_client();
    let before = pair.to_client.flushes;
    assert_eq!(replies(&mut pair, &burst), [(Kind::Response, 0); 8]);
    assert_eq!(pair.to_client.flushes - before, 1, "one flush releases all responses");
    assert_eq!(pair.server.stats().repeated_responses, 8);
    assert_eq!(replies(&mut pair, &burst), [], "further bursts bring no more copies");
    pair.pass(ms(2));
    assert_eq!(replies(&mut pair, &burst), [(Kind::Response, 0); 8]);
}

#[test]
fn copies_of_a_request_whose_response_no_queue_reads_do_not_flush() {
    let mut pair = server();
    let [requests, burst] = copies(&pair);
    pair.burst_at_server(CLIENT, &requests);
    (0..8).for_each(|_| pair.answer(b"the answer"));
    pair.take_to_client();
    pair.pass(ms(1));
    let before = pair.to_client.flushes;
    assert_eq!(replies(&mut pair, &burst).len(), 8);
    assert_eq!(pair.to_client.flushes, before);
}

#[test]
fn a_burst_of_copies_of_executing_requests_brings_one_accepted_per_slot() {
    let mut pair = server();
    let [requests, burst] = copies(&pair);
    pair.burst_at_server(CLIENT, &requests);
    assert_eq!(replies(&mut pair, &burst), [(Kind::Accepted, 0); 8]);
    assert_eq!(replies(&mut pair, &burst), []);
    let cancel = pair.cancelled(0).bytes();
    assert_eq!(replies(&mut pair, &[cancel]).len(), 1, "a cancel is answered even so soon");
    pair.pass(ms(2));
    assert_eq!(replies(&mut pair, &burst), [(Kind::Accepted, 0); 8]);
}

#[test]
fn a_response_is_not_resent_while_the_queue_reads_its_first_copy() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"once").bytes();
    pair.at_server(CLIENT, &packet);
    pair.to_client.slow = true;
    pair.answer(b"the answer");
    let before = pair.to_client.flushes;
    pair.at_server(CLIENT, &packet);
    assert!(pair.to_client.flushes > before, "the queue must be flushed before the second copy");
}

#[test]
fn a_duplicate_request_after_done_is_dropped_without_an_answer() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"once").bytes();
    pair.at_server(CLIENT, &packet);
    pair.answer(b"the answer");
    let done = pair.done(&[0]).bytes();
    pair.at_server(CLIENT, &done);
    pair.take_to_client();
    pair.server_drops(CLIENT, &packet, DropReason::Duplicate);
    assert_eq!((pair.take_to_client().len(), pair.executed), (0, 1));
}

#[test]
fn the_next_request_in_the_slot_releases_the_response() {
    let mut pair = server();
    let (first, next) = (pair.request(0, 0, b"first").bytes(), pair.request(8, 0, b"next").bytes());
    pair.at_server(CLIENT, &first);
    pair.answer(b"answer");
    pair.at_server(CLIENT, &next);
    assert_eq!(pair.asked[0].body, b"next");
    pair.server_drops(CLIENT, &first, DropReason::OldRequest);
    assert_eq!(pair.executed, 2);
}

#[test]
fn a_request_from_before_the_session_is_too_old() {
    let mut pair = server();
    let packet = pair.request(0u32.wrapping_sub(16), 0, b"old").bytes();
    pair.server_drops(CLIENT, &packet, DropReason::OldRequest);
    assert_eq!(pair.executed, 0);
}

#[test]
fn a_request_that_skips_one_in_its_slot_is_dropped() {
    let mut pair = server();
    let packet = pair.request(8, 0, b"leap").bytes();
    pair.server_drops(CLIENT, &packet, DropReason::RequestLeap);
    assert_eq!(pair.executed, 0);
}

#[test]
fn a_request_in_a_slot_that_is_receiving_or_executing_is_dropped() {
    let mut pair = server();
    let message = pair.message(2);
    let (first, next) = (pair.request(0, 0, &message).bytes(), pair.request(8, 0, b"next").bytes());
    pair.at_server(CLIENT, &first);
    pair.server_drops(CLIENT, &next, DropReason::SlotBusy);
    let last = pair.request(0, 1, &message).bytes();
    pair.at_server(CLIENT, &last);
    pair.server_drops(CLIENT, &next, DropReason::SlotBusy);
    assert_eq!(pair.executed, 1);
}

#[test]
fn slots_are_independent_and_complete_in_any_order() {
    let mut pair = server();
    for number in [3, 0, 7] {
        let packet = pair.request(number, 0, &[number as u8]).bytes();
        pair.at_server(CLIENT, &packet);
    }
    pair.asked.rotate_left(1);
    pair.answer(b"");
    assert_eq!(header(&pair.take_to_client()[0]).request.to_u32(), 0);
}

#[test]
fn request_numbers_wrap_around() {
    // Request numbers are compared as serial numbers: in slot 0, 2^32 - 8 precedes 0.
    let mut pair = server();
    let packet = pair.request(0, 0, b"the first number follows 2^32 - 8").bytes();
    pair.at_server(CLIENT, &packet);
    assert_eq!(pair.executed, 1);
    let packet = pair.request(u32::MAX - 7, 0, b"before it").bytes();
    pair.server_drops(CLIENT, &packet, DropReason::OldRequest);
}

#[test]
fn when_the_first_packet_is_lost_the_second_causes_a_gap_report() {
    let mut pair = server();
    let message = pair.message(3);
    let second = pair.request(0, 1, &message).bytes();
    pair.server_drops(CLIENT, &second, DropReason::OutOfOrder);
    let gap = pair.take_to_client();
    assert_eq!(shape(&gap), [(Kind::CreditReturn, 0)]);
    let stamp = Stamp::at(pair.now).to_u32();
    assert_eq!(
        header(&gap[0]).size,
        stamp | 1,
        "a gap, and the stamp of the packet that revealed it"
    );
    assert_eq!(pair.server.pool_stats().in_use, 0, "the server keeps no memory");
}

#[test]
fn when_a_later_packet_is_lost_the_burst_after_it_causes_one_gap_report() {
    let mut pair = server();
    let message = pair.message(6);
    let burst: Vec<_> =
        [0, 1, 3, 4, 5].map(|packet| pair.request(0, packet, &message).bytes()).into();
    pair.burst_at_server(CLIENT, &burst);
    let answer = pair.take_to_client();
    assert_eq!(shape(&answer), [(Kind::CreditReturn, 2)]);
    let stamp = Stamp::at(pair.now).to_u32();
    assert_eq!(
        header(&answer[0]).size,
        stamp | 1,
        "a gap, and the stamp of the packet that revealed it"
    );
    assert_eq!(pair.server.stats().dropped(DropReason::OutOfOrder), 3);
}

#[test]
fn a_complete_request_with_a_slow_handler_returns_all_credits_but_one() {
    let mut pair = server();
    let message = pair.message(4);
    let burst: Vec<_> = (0..4).map(|packet| pair.request(0, packet, &message).bytes()).collect();
    pair.burst_at_server(CLIENT, &burst);
    assert_eq!(shape(&pair.take_to_client()), [(Kind::CreditReturn, 3)]);
    // A request that is answered immediately needs no credit return.
    let mut pair = server();
    pair.echo = true;
    pair.burst_at_server(CLIENT, &burst);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Response]);
}

#[test]
fn a_gap_is_closed_by_the_missing_packet_and_the_later_ones() {
    let mut pair = server();
    let message = pair.message(4);
    for packet in [0, 2, 3, 1, 2, 3] {
        let bytes = pair.request(0, packet, &message).bytes();
        pair.at_server(CLIENT, &bytes);
    }
    assert_eq!(pair.asked[0].body, message);
}

#[test]
fn a_packet_with_another_size_or_method_than_its_request_is_dropped() {
    let mut pair = server();
    let message = pair.message(3);
    let first = pair.request(0, 0, &message).bytes();
    pair.at_server(CLIENT, &first);
    let other_method = pair.request(0, 0, &message).aux(ECHO + 1).bytes();
    pair.server_drops(CLIENT, &other_method, DropReason::LyingSize);
    let other_size = pair.request(0, 1, &message).size(message.len() as u32 + 1).bytes();
    pair.server_drops(CLIENT, &other_size, DropReason::LyingSize);
    for packet in 1..3 {
        let bytes = pair.request(0, packet, &message).bytes();
        pair.at_server(CLIENT, &bytes);
    }
    assert_eq!(pair.asked[0].body, message, "the request continues");
}

#[test]
fn packets_with_contradicting_sizes_are_dropped() {
    let mut pair = server();
    let message = pair.message(2);
    let honest = pair.request(0, 0, b"12345");
    let lies = [
        honest.clone().size(4),
        honest.clone().size(6),
        honest.clone().size(u32::MAX),
        honest.clone().body(b""),
        honest.clone().packet(1),
        pair.request(0, 1, &message).packet(2),
        pair.request(0, 1, &message).packet(0xFF_FFFF),
        pair.request(0, 0, &message).body(&message[..100]),
        pair.request(0, 1, &message).body(&[0; 1_449]),
    ];
    for lie in lies {
        pair.server_drops(CLIENT, &lie.bytes(), DropReason::LyingSize);
    }
    assert_eq!((pair.executed, pair.take_to_client().len()), (0, 0));
}

#[test]
fn a_request_larger_than_the_limit_is_dropped() {
    let (mut pair, _) = Pair::connected(1_472, EndpointConfig::new().max_message(5_000));
    let message = pair.message(2);
    let packet = pair.request(0, 0, &message).size(5_001).bytes();
    pair.server_drops(CLIENT, &packet, DropReason::LyingSize);
    let packet = pair.request(0, 0, &message).size(5_000).bytes();
    assert_eq!(replies(&mut pair, &[packet]), [(Kind::CreditReturn, 1)]);
}

#[test]
fn a_truncated_packet_is_dropped_at_every_length() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"12345").bytes();
    for len in 0..packet.len() {
        let reason = if len < 24 { DropReason::Truncated } else { DropReason::LyingSize };
        pair.server_drops(CLIENT, &packet[..len], reason);
    }
    assert_eq!(pair.executed, 0);
}

#[test]
fn packets_of_other_versions_are_dropped() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"12345").bytes();
    for bit in [0, 1] {
        let mut bytes = packet.clone();
        bytes[8] ^= 1 << bit;
        pair.server_drops(CLIENT, &bytes, DropReason::Version);
    }
    assert_eq!((pair.executed, pair.take_to_client().len()), (0, 0));
}

#[test]
fn a_connection_id_with_any_bit_flipped_matches_no_session() {
    let mut pair = server();
    for bit in 8..64 {
        let forged = ConnectionId::from_u64(pair.server_id.to_u64() ^ 1 << bit);
        let packet = pair.request(0, 0, b"guess").to(forged).bytes();
        let reason = if bit == 31 { DropReason::WrongRole } else { DropReason::UnknownConnection };
        pair.server_drops(CLIENT, &packet, reason);
    }
    assert_eq!((pair.executed, pair.take_to_client().len()), (0, 0));
}

#[test]
fn a_request_from_another_address_is_dropped() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"spoofed").bytes();
    pair.server_drops(STRANGER, &packet, DropReason::WrongRoute);
    assert_eq!(pair.executed, 0);
}

#[test]
fn kinds_that_a_server_does_not_receive_are_dropped() {
    let mut pair = server();
    for kind in [Kind::Response, Kind::Failure, Kind::CreditReturn, Kind::Accepted] {
        let packet = pair.request(0, 0, b"").kind(kind).bytes();
        pair.server_drops(CLIENT, &packet, DropReason::WrongRole);
    }
}

#[test]
fn a_request_of_a_closed_session_is_dropped() {
    let (mut pair, session) = connected();
    let packet = pair.request(0, 0, b"late").bytes();
    pair.disconnect(session);
    pair.settle();
    pair.server_drops(CLIENT, &packet, DropReason::UnknownConnection);
    assert_eq!(pair.executed, 0);
}

#[test]
fn a_request_of_an_earlier_session_at_the_same_index_is_dropped() {
    let (mut pair, session) = connected();
    let packet = pair.request(0, 0, b"late").bytes();
    let earlier = pair.server_id;
    pair.disconnect(session);
    pair.settle();
    pair.open();
    assert_eq!(pair.server_id.index(), earlier.index());
    pair.server_drops(CLIENT, &packet, DropReason::UnknownConnection);
}

#[test]
fn a_failure_is_resent_like_a_response() {
    let mut pair = server();
    let packet = pair.request(0, 0, b"fail").bytes();
    pair.at_server(CLIENT, &packet);
    pair.answer_failure(Code::NotFound, "no such key");
    let first = pair.take_to_client();
    assert_eq!(kinds(&first), [Kind::Failure]);
    assert_eq!(decode_status(&first[0][24..]).code(), Code::NotFound);
    pair.at_server(CLIENT, &packet);
    assert_eq!(pair.take_to_client(), first);
}
