//! Invalid packets that the C++ implementation does not check, one test each. Comments that begin
//! with "C++:" say what the C++ code does with such a packet. Here the packet is counted and
//! dropped.

use proptest::prelude::*;

use super::craft::{emit, sealed};
use super::pair::{CLIENT, Pair, SERVER, STRANGER, control, kinds, pattern, shape};
use super::times;
use crate::protocol::{CallError, Cause, DropReason, EndpointConfig, Integrity};
use crate::wire::checksum::TRAILER_LEN;
use crate::wire::control::Control;
use crate::wire::{ConnectionId, Flags, Header, Kind, PacketNumber, RequestNumber};

fn connected() -> Pair {
    Pair::connected(1_472, EndpointConfig::new()).0
}

#[test]
fn a_header_that_claims_more_bytes_than_the_packet_has_is_dropped() {
    // C++: the handler gets a pointer and `msg_size`, and reads beyond the packet.
    let mut pair = connected();
    let packet = pair.request(0, 0, b"short").size(1_000).bytes();
    pair.server_drops(CLIENT, &packet, DropReason::LyingSize);
    assert_eq!(pair.executed, 0);
}

#[test]
fn a_packet_number_beyond_the_message_is_dropped() {
    // C++: `memcpy` writes to the message's buffer at `pkt_num * max_data_per_pkt`, without a
    // check.
    let mut pair = connected();
    let message = pair.message(3);
    let first = pair.request(0, 0, &message).bytes();
    pair.at_server(CLIENT, &first);
    for beyond in [3, 4, 1_000, 0xFF_FFFF] {
        let packet = pair.request(0, 1, &message).packet(beyond).bytes();
        pair.server_drops(CLIENT, &packet, DropReason::LyingSize);
    }
}

#[test]
fn a_later_packet_that_claims_a_larger_message_is_dropped() {
    // C++: the first packet's header determines the length of the buffer, but each packet's own
    // header determines how many bytes are copied to it.
    let mut pair = connected();
    let message = pair.message(2);
    let first = pair.request(0, 0, &message).bytes();
    pair.at_server(CLIENT, &first);
    let longer = pair.message(9);
    let packet = pair.request(0, 1, &longer).bytes();
    pair.server_drops(CLIENT, &packet, DropReason::LyingSize);
}

#[test]
fn a_packet_longer_than_its_range_in_the_message_is_dropped() {
    let mut pair = connected();
    let message = pattern(1, pair.payload() + 100);
    let first = pair.request(0, 0, &message).bytes();
    pair.at_server(CLIENT, &first);
    let packet = pair.request(0, 1, &message).body(&[0; 101]).bytes();
    pair.server_drops(CLIENT, &packet, DropReason::LyingSize);
}

#[test]
fn a_first_packet_does_not_allocate_the_size_that_it_declares() {
    // C++: the first packet of a request causes `alloc_msg_buffer(msg_size)`. So one datagram per
    // slot allocates 8 MiB.
    let mut pair = connected();
    let message = pair.message(2);
    for number in 0..8 {
        let packet = pair.request(number, 0, &message).size(8 << 20).bytes();
        pair.at_server(CLIENT, &packet);
    }
    assert!(pair.server.pool_stats().in_use_bytes < 200_000, "the packets declare 64 MiB");
}

#[test]
fn a_guessed_session_index_is_not_accepted() {
    // C++: a packet names its session by a 16-bit index into the session table, and is accepted
    // from any source.
    let mut pair = connected();
    for index in 0..256 {
        let guess = ConnectionId::new(0, true, index, 0);
        let packet = pair.request(0, 0, b"believe me").to(guess).bytes();
        pair.server_drops(CLIENT, &packet, DropReason::UnknownConnection);
    }
    let packet = pair.request(0, 0, b"believe me").bytes();
    pair.server_drops(STRANGER, &packet, DropReason::WrongRoute);
    assert_eq!(pair.executed, 0);
}

#[test]
fn limits_of_the_wire_are_checked_in_release_builds_too() {
    // C++: only `assert` checks message sizes, packet numbers and request numbers. Here each side
    // drops and counts a packet of any kind in which these fields have their largest values.
    let mut pair = connected();
    let session = *pair.sessions.keys().next().expect("one session");
    pair.call(session, 1, b"under way");
    for kind in 0..7u8 {
        for (server, connection) in [(true, pair.server_id), (false, pair.client_id)] {
            let header = Header {
                connection,
                kind: Kind::Request,
                packet: PacketNumber::new(PacketNumber::MAX),
                request: RequestNumber::from_u32(u32::MAX),
                aux: u32::MAX,
                size: u32::MAX,
                flags: Flags::NONE,
            };
            let mut bytes = header.to_bytes().to_vec();
            bytes[8] = bytes[8] & 0b11 | kind << 2;
            let side =
                |pair: &Pair| if server { *pair.server.stats() } else { *pair.client.stats() };
            let before = side(&pair).dropped_in_all();
            if server {
                pair.at_server(CLIENT, &bytes);
            } else {
                pair.at_client(SERVER, &bytes);
            }
            assert_eq!(side(&pair).dropped_in_all(), before + 1, "kind {kind}");
        }
    }
}

#[test]
fn a_control_datagram_of_a_wrong_size_is_dropped() {
    // C++: the session management thread aborts on a datagram whose size is not sizeof(SmPkt).
    let mut pair = connected();
    let hello = emit(
        ConnectionId::endpoint(0),
        Control::Hello { client: ConnectionId::default(), low: 1, high: 1 },
    );
    for len in 0..hello.len() {
        let reason = if len < 28 { DropReason::Truncated } else { DropReason::Checksum };
        pair.server_drops(STRANGER, &hello[..len], reason);
    }
    let whole = hello.len() - TRAILER_LEN;
    for len in 24..whole {
        pair.server_drops(STRANGER, &sealed(&hello[..len]), DropReason::Control);
    }
    let longer = sealed(&[&hello[..whole], &[0; 1_400]].concat());
    pair.server_drops(STRANGER, &longer, DropReason::Control);
    let answer =
        pair.ask_server(STRANGER, ConnectionId::endpoint(0), control(&hello).expect("a hello"));
    assert!(
        matches!(control(&answer[0]), Some(Control::Challenge { .. })),
        "the endpoint still answers"
    );
}

#[test]
fn a_request_for_response_is_bounded_by_the_response() {
    // C++: the packet number of an RFR is an unchecked index into the response buffer.
    let mut pair = connected();
    let message = pair.message(3);
    let packets: Vec<_> = (0..3).map(|packet| pair.request(0, packet, &message).bytes()).collect();
    pair.burst_at_server(CLIENT, &packets);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Response]);
    for (from, count) in [(3, 1), (4, 1), (0xFF_FFFF, 1), (2, 2), (1, u32::MAX), (2, u32::MAX)] {
        let packet = pair.pull(0, from, count).bytes();
        pair.server_drops(CLIENT, &packet, DropReason::Overrun);
    }
    assert_eq!(shape(&pair.take_to_client()), []);
}

#[test]
fn a_response_larger_than_the_clients_buffer_is_not_written() {
    // C++: the response is copied to the caller's MsgBuffer; only an assert checks its size.
    let (mut pair, session) = Pair::connected(1_472, EndpointConfig::new().max_message(4_000));
    pair.call(session, 1, b"small answer please");
    pair.take_to_server();
    let message = pair.message(10);
    let first = pair.response(0, 0, &message).bytes();
    pair.at_client(SERVER, &first);
    assert_eq!(
        pair.error(),
        CallError::ResponseLost(Cause::ResponseTooLarge(message.len() as u32))
    );
    let later = pair.response(0, 1, &message).bytes();
    pair.client_drops(SERVER, &later, DropReason::Duplicate);
}

#[test]
fn a_response_that_grows_is_not_written() {
    let mut pair = connected();
    let session = *pair.sessions.keys().next().expect("one session");
    pair.call(session, 1, b"ask");
    pair.take_to_server();
    let (message, longer) = (pair.message(3), pair.message(9));
    let first = pair.response(0, 0, &message).bytes();
    pair.at_client(SERVER, &first);
    // The first packet of a response determines its size. Later packets that claim another size are
    // dropped.
    for packet in [3, 8] {
        let packet = pair.response(0, packet, &longer).bytes();
        pair.client_drops(SERVER, &packet, DropReason::LyingSize);
    }
}

/// A packet with the session's connection id. All other fields are random, often close to valid
/// values.
fn nearly_right() -> impl Strategy<Value = ((bool, bool), u8, u32, u32, u32, u32, usize)> {
    let number = prop_oneof![0u32..20, any::<u32>()];
    let packet = prop_oneof![0u32..6, 0..=PacketNumber::MAX];
    let size = prop_oneof![0u32..6, 0u32..8_000, any::<u32>()];
    let len = prop_oneof![Just(0usize), 0usize..40, Just(1_448), 0usize..1_449];
    let wrong_trailer = prop::bool::weighted(0.05);
    ((any::<bool>(), wrong_trailer), 0u8..8, number, packet, any::<u32>(), size, len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(60)))]

    /// A peer that knows the session sends any packets: no core panics, every packet is counted,
    /// and every call completes at most once.
    #[test]
    fn no_packet_of_a_hostile_peer_breaks_a_core(
        packets in prop::collection::vec(nearly_right(), 1..200),
        credits in 1u16..9,
        integrity in prop_oneof![Just(Integrity::Auto), Just(Integrity::Always)],
    ) {
        let config = EndpointConfig::new().credits(credits).max_credits(credits).max_message(20_000).integrity(integrity);
        let (mut pair, session) = Pair::connected(1_472, config);
        let mut next = 0;
        for ((to_server, wrong_trailer), kind, request, packet, aux, size, len) in packets {
            if next < 100 {
                next += 1;
                let _rejected = pair.try_call(session, next, &pattern(next, (size % 5_000) as usize));
            }
            let header = Header {
                connection: if to_server { pair.server_id } else { pair.client_id },
                kind: Kind::Request,
                packet: PacketNumber::new(packet),
                request: RequestNumber::from_u32(request),
                aux,
                size,
                flags: Flags::new(
                    (pair.terms.integrity || kind == Kind::Control as u8) != wrong_trailer,
                    false,
                ),
            };
            let mut bytes = [&header.to_bytes()[..], &vec![7; len]].concat();
            bytes[8] = bytes[8] & !(0b111 << 2) | kind << 2;
            if header.flags.trailer() {
                bytes = sealed(&bytes);
            }
            // `Pair` checks the invariants of both sides after every packet.
            if to_server {
                pair.at_server(CLIENT, &bytes);
            } else {
                pair.at_client(SERVER, &bytes);
            }
        }
        for stats in [*pair.client.stats(), *pair.server.stats()] {
            prop_assert_eq!(stats.rx_packets, stats.rx_delivered + stats.dropped_in_all());
        }
        let tokens: std::collections::HashSet<u64> = pair.outcomes.iter().map(|outcome| outcome.token).collect();
        prop_assert_eq!(tokens.len(), pair.outcomes.len());
    }

    #[test]
    fn no_datagram_of_a_stranger_breaks_a_core(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..100),
    ) {
        let mut pair = connected();
        for bytes in &datagrams {
            pair.at_server(STRANGER, bytes);
            pair.at_client(STRANGER, bytes);
        }
        prop_assert_eq!(pair.server.sessions(), (0, 1));
        prop_assert_eq!(pair.client.sessions(), (1, 0));
    }
}
