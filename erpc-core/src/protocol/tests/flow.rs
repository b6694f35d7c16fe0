//! Limits of packets in flight: credits of a session, the server's window, room for replies.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::pair::{
    CLIENT, Pair, SERVER, STRANGER, Side, connected, control, header, kinds, ms, pattern,
};
use super::times;
use crate::protocol::{CongestionControl, DropReason, EndpointConfig, RejectReason, SessionId};
use crate::time::Instant;
use crate::transport::{ChargeModel, MIN_DATAGRAM};
use crate::wire::control::Control;
use crate::wire::{HEADER_LEN, Kind, ReplyInfo};

/// A pair whose server grants `packets` packets to its only client.
fn granting(packets: u32) -> Pair {
    let side = Side::new(1_472);
    let units = packets * ChargeModel::RING_ENTRY;
    Pair::of(side.clone(), side.queue(ChargeModel::Ring, units.div_ceil(3) * 4))
}

#[test]
fn a_session_has_at_most_as_many_packets_in_flight_as_credits() {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(5).max_credits(5));
    for token in 0..8 {
        pair.call(session, token, &pattern(token, 10_000));
    }
    while pair.outcomes.len() < 8 {
        // Each request packet, and each response packet that the client pulls, uses a credit.
        let owed = |(_, bytes): &(_, Vec<u8>)| match header(bytes).kind {
            Kind::RequestForResponse => header(bytes).size,
            _ => 1,
        };
        let asked: u32 = pair.to_server.packets.iter().map(owed).sum();
        assert!(
            asked as usize + pair.to_client.packets.len() <= 5 + 8,
            "at most 5 packets, and a first response packet per slot"
        );
        assert!(asked <= 5);
        let (requests, responses) = (pair.take_to_server(), pair.take_to_client());
        pair.burst_at_server(CLIENT, &requests);
        pair.burst_at_client(SERVER, &responses);
    }
}

#[test]
fn eight_calls_are_in_flight_and_the_others_wait_in_order() {
    let (mut pair, session) = connected();
    for token in 0..20 {
        pair.call(session, token, b"x");
    }
    let stats = pair.client.session_stats(session).expect("open");
    assert_eq!((stats.in_flight, stats.queued, pair.to_server.packets.len()), (8, 12, 8));
    pair.settle();
    let tokens: Vec<u64> = pair.outcomes.iter().map(|outcome| outcome.token).collect();
    assert_eq!(tokens, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_call_beyond_the_queue_limit_is_rejected_and_its_request_returned() {
    let (mut pair, session) = Pair::connected(1_472, EndpointConfig::new().queue_limit(3));
    for token in 0..11 {
        pair.call(session, token, b"x");
    }
    let rejected = pair.try_call(session, 11, b"one too many").expect_err("full");
    assert_eq!(
        (rejected.reason, rejected.request.as_slice()),
        (RejectReason::QueueFull, &b"one too many"[..])
    );
    pair.settle();
    assert_eq!((pair.outcomes.len(), pair.client.stats().calls), (11, 11));
}

#[test]
fn all_sessions_to_a_server_share_its_window() {
    let mut pair = granting(5);
    for session in [pair.open(), pair.open(), pair.open()] {
        let message = pair.message(4);
        pair.call(session, 1, &message);
    }
    assert_eq!(pair.to_server.packets.len(), 5);
    pair.settle();
    assert_eq!(pair.outcomes.len(), 3);
}

#[test]
fn the_window_counts_bytes_if_the_receive_queue_does() {
    let side = Side::new(1_472);
    let (mut pair, session) =
        Pair::of(side.clone(), side.queue(ChargeModel::LinuxUdp, 16_384)).and_connected();
    // The server grants three quarters of its queue, 12,288 units. They hold 5 full datagrams of
    // 2,304 units each.
    let message = pair.message(12);
    pair.call(session, 1, &message);
    assert_eq!(pair.to_server.packets.len(), 5);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
}

#[test]
fn when_a_second_client_joins_the_first_one_learns_that_its_window_is_halved() {
    let mut pair = granting(8);
    let session = pair.open();
    pair.open_stranger(1);
    let told = pair.take_to_client();
    assert!(matches!(control(&told[0]), Some(Control::Ping { .. })));
    assert_eq!(ReplyInfo::from_u32(header(&told[0]).aux).window(), Some(4 * 1_024));
    pair.burst_at_client(SERVER, &told);
    pair.take_to_server();
    let message = pair.message(8);
    pair.call(session, 1, &message);
    assert_eq!(pair.to_server.packets.len(), 4);
}

#[test]
fn when_a_client_leaves_the_others_get_a_larger_window_with_the_next_reply() {
    let mut pair = granting(8);
    let session = pair.open();
    let stranger = pair.open_stranger(1);
    pair.settle();
    pair.close_stranger(1, stranger);
    pair.call(session, 1, b"the reply to this tells");
    pair.settle();
    let message = pair.message(8);
    pair.call(session, 2, &message);
    assert_eq!(pair.to_server.packets.len(), 8);
}

#[test]
fn a_client_gets_another_ping_when_its_share_shrinks_again() {
    let mut pair = granting(8);
    let session = pair.open();
    let stranger = pair.open_stranger(1);
    pair.settle();
    pair.close_stranger(1, stranger);
    pair.call(session, 1, b"the reply to this tells that the window has grown");
    pair.settle();
    pair.open_stranger(2);
    let told = pair.take_to_client();
    assert_eq!(kinds(&told), [Kind::Control], "the server sends a ping with the smaller share");
}

#[test]
fn the_sessions_of_one_client_endpoint_have_one_share() {
    let mut pair = granting(8);
    for _ in 0..5 {
        pair.open();
        assert_eq!(pair.terms.window / 1_024, 8);
    }
    pair.open_stranger(1);
    let (_, terms) = pair.open_by_hand(STRANGER, crate::wire::ConnectionId::new(0, false, 7, 7));
    assert_eq!(terms.window / 1_024, 4);
}

#[test]
fn a_window_below_the_packets_in_flight_sends_no_packet_until_it_has_room() {
    let mut pair = granting(8);
    let session = pair.open();
    let message = pair.message(20);
    pair.call(session, 1, &message);
    assert_eq!(pair.take_to_server().len(), 8);
    let two = ReplyInfo::new(0, 2 * 1_024).to_u32();
    for (next, goes) in [(1, 0), (5, 0), (6, 0), (7, 1), (8, 1)] {
        let bytes = pair.credit_return(0, next).aux(two).bytes();
        pair.at_client(SERVER, &bytes);
        assert_eq!(pair.take_to_server().len(), goes, "{next} packets acknowledged");
    }
}

#[test]
fn a_window_that_grows_without_an_acknowledgement_is_used_with_the_next_reply() {
    let mut pair = granting(2);
    let session = pair.open();
    let message = pair.message(20);
    pair.call(session, 1, &message);
    assert_eq!(pair.take_to_server().len(), 2);
    let grown = pair.credit_return(0, 1).aux(ReplyInfo::new(0, 6 * 1_024).to_u32()).bytes();
    pair.at_client(SERVER, &grown);
    assert_eq!(pair.take_to_server().len(), 5);
}

#[test]
fn after_a_pause_a_session_has_its_initial_credits_even_if_a_call_is_unanswered() {
    let config =
        EndpointConfig::new().credits(4).max_credits(64).congestion(CongestionControl::None);
    let (mut pair, session) = Pair::new(1_472, config).far().and_connected();
    pair.echo = false;
    let message = pair.message(400);
    pair.call(session, 1, &message);
    // The path to the server takes 1 ms. The server acknowledges the packets but does not answer
    // the call, so the last packet keeps its credit.
    let (mut wire, mut most) = (VecDeque::new(), 0);
    while pair.asked.is_empty() {
        wire.push_back(pair.take_to_server());
        most = most.max(wire.iter().map(Vec::len).sum());
        if wire.len() > 10 {
            let arrived = wire.pop_front().unwrap_or_default();
            arrived.iter().for_each(|packet| pair.at_server(CLIENT, packet));
            for packet in pair.take_to_client() {
                pair.at_client(SERVER, &packet);
            }
        }
        pair.pass(Duration::from_micros(100));
        assert!(pair.now < Instant::from_nanos(5_000_000_000), "the request never arrives");
    }
    assert!(most > 16, "the credits grow, {most} packets were in flight");
    pair.take_to_server();
    pair.now = pair.now + ms(260);
    pair.call(session, 2, &message);
    let mut sent = BTreeSet::new();
    for _ in 0..20 {
        let packets = pair.take_to_server();
        let headers = packets.iter().map(|packet| header(packet));
        let of_second = headers.filter(|at| at.kind == Kind::Request && at.request.to_u32() == 1);
        sent.extend(of_second.map(|header| header.packet.get()));
        pair.pass(Duration::from_micros(100));
    }
    assert_eq!(sent.len(), 3, "the first call holds one of the four credits: {sent:?}");
}

#[test]
fn room_for_replies_limits_the_responses_in_flight() {
    let side = Side::new(1_472);
    let client = side
        .clone()
        .queue(ChargeModel::LinuxUdp, 10_000)
        .config(EndpointConfig::new().eager(1_448));
    let (mut pair, session) = Pair::of(client, side).and_connected();
    for token in 0..8 {
        pair.call(session, token, &pattern(token, 1_400));
    }
    // Each response may be a datagram of 1,472 bytes, which is charged 2,304 units. So four of them
    // fit in the client's queue of 10,000 units.
    assert_eq!(pair.to_server.packets.len(), 4);
    pair.settle();
    assert_eq!(pair.outcomes.len(), 8);
}

#[test]
fn an_endpoint_that_listens_keeps_a_quarter_of_its_queue_for_replies() {
    let side = Side::new(1_472).queue(ChargeModel::Ring, 16 * 1_024);
    let mut pair = Pair::of(side.clone(), side);
    pair.client.listen(super::pair::acceptor());
    let session = pair.open();
    for token in 0..8 {
        pair.call(session, token, b"x");
    }
    assert_eq!((pair.to_server.packets.len(), pair.terms.window), (4, 12 * 1_024));
}

#[test]
fn a_packet_larger_than_the_window_is_sent_alone() {
    let side = Side::new(9_000);
    let (mut pair, session) =
        Pair::of(side.clone(), side.queue(ChargeModel::LinuxUdp, 4_000)).and_connected();
    for token in 0..3 {
        pair.call(session, token, &pattern(token, 8_000));
    }
    assert_eq!(pair.to_server.packets.len(), 1);
    pair.settle();
    assert_eq!(pair.outcomes.len(), 3);
}

/// A test case: calls of any size on any number of sessions between a client and a server.
#[derive(Clone, Debug)]
struct Crowd {
    sessions: usize,
    credits: u16,
    linux: bool,
    server_queue: u32,
    client_queue: u32,
    datagrams: (usize, usize),
    sizes: Vec<usize>,
    /// One number `n` for each step; after the last number, the first one follows again.
    ///
    /// * In the test without other clients, a step delivers up to `n / 2 + 1` packets: to the
    ///   server if `n` is even, to the client if `n` is odd, and in the other direction if there is
    ///   none in this one.
    /// * In the test with other clients, each step delivers one packet in each direction. If `n` is
    ///   a multiple of 5, it first opens or closes the session of another client.
    moves: Vec<usize>,
}

fn crowd() -> impl Strategy<Value = Crowd> {
    let size = prop_oneof![Just(0), 0usize..2_000, 0usize..60_000];
    let datagram = prop_oneof![Just(MIN_DATAGRAM), Just(1_472), Just(8_972)];
    (
        (1usize..5, 1u16..40, any::<bool>(), 1_400u32..80_000, 1_100u32..80_000),
        (datagram.clone(), datagram),
        prop::collection::vec(size, 1..40),
        prop::collection::vec(0usize..24, 1..64),
    )
        .prop_map(
            |((sessions, credits, linux, server_queue, client_queue), datagrams, sizes, moves)| {
                Crowd {
                    sessions,
                    credits,
                    linux,
                    server_queue,
                    client_queue,
                    datagrams,
                    sizes,
                    moves,
                }
            },
        )
}

impl Crowd {
    fn pair(&self) -> Pair {
        let model = if self.linux { ChargeModel::LinuxUdp } else { ChargeModel::Ring };
        let side = |datagram, capacity| {
            Side::new(datagram)
                .queue(model, capacity)
                .config(EndpointConfig::new().credits(self.credits).max_credits(self.credits))
        };
        Pair::of(
            side(self.datagrams.0, self.client_queue),
            side(self.datagrams.1, self.server_queue),
        )
    }

    /// Asserts that neither queue overflows: the packets in flight fit, or there is only one.
    fn check_queues(&self, pair: &Pair) {
        let model = if self.linux { ChargeModel::LinuxUdp } else { ChargeModel::Ring };
        let (count, units) = pair.to_server.load(model);
        // A short response may arrive while the request for response behind its request still waits
        // in the queue.
        let early_pull = model.charge(HEADER_LEN);
        assert!(
            units <= self.server_queue / 4 * 3 + 3 + early_pull || count <= 2,
            "{units} units in the server's queue"
        );
        let (count, units) = pair.to_client.load(model);
        assert!(units <= self.client_queue || count == 1, "{units} units in the client's queue");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(150)))]

    /// Without loss no queue overflows, no packet is sent twice, and no call waits for a timer.
    #[test]
    fn every_call_completes_without_a_timer_and_no_queue_overflows(crowd in crowd()) {
        let mut pair = crowd.pair();
        let sessions: Vec<_> = (0..crowd.sessions).map(|_| pair.open()).collect();
        for (token, size) in crowd.sizes.iter().enumerate() {
            pair.call(sessions[token % sessions.len()], token as u64, &pattern(token as u64, *size));
            crowd.check_queues(&pair);
        }
        let mut moves = crowd.moves.iter().cycle();
        while !(pair.to_server.packets.is_empty() && pair.to_client.packets.is_empty()) {
            let next = moves.next().expect("the iterator is endless");
            let count = next / 2 + 1;
            let wire = pair.to_client.packets.is_empty() || next % 2 == 0 && !pair.to_server.packets.is_empty();
            let packets = if wire { &mut pair.to_server.packets } else { &mut pair.to_client.packets };
            let burst: Vec<_> = packets.drain(..count.min(packets.len())).map(|(_, bytes)| bytes).collect();
            if wire {
                pair.burst_at_server(CLIENT, &burst);
            } else {
                pair.burst_at_client(SERVER, &burst);
            }
            crowd.check_queues(&pair);
        }
        prop_assert_eq!(pair.outcomes.len(), crowd.sizes.len());
        for outcome in &pair.outcomes {
            let expected = pattern(outcome.token, crowd.sizes[outcome.token as usize]);
            prop_assert!(outcome.result.as_ref() == Ok(&expected), "call {}", outcome.token);
        }
        let again = pair.client.stats().retransmissions.packets() + pair.server.stats().repeated_responses;
        prop_assert_eq!(again + pair.client.stats().dropped_in_all() + pair.server.stats().dropped_in_all(), 0);
    }

    /// No call starves when the window changes during calls.
    #[test]
    fn every_call_completes_without_a_timer_while_clients_come_and_go(crowd in crowd()) {
        let mut pair = crowd.pair();
        let sessions: Vec<_> = (0..crowd.sessions).map(|_| pair.open()).collect();
        for (token, size) in crowd.sizes.iter().enumerate() {
            pair.call(sessions[token % sessions.len()], token as u64, &pattern(token as u64, *size));
        }
        let mut stranger = None;
        let mut serial = 0;
        let mut moves = crowd.moves.iter().cycle();
        while !(pair.to_server.packets.is_empty() && pair.to_client.packets.is_empty()) {
            let next = moves.next().expect("the iterator is endless");
            if next % 5 == 0 {
                serial += 1;
                stranger = match stranger {
                    None => Some((serial, pair.open_stranger(serial))),
                    Some((serial, id)) => {
                        pair.close_stranger(serial, id);
                        None
                    }
                };
            }
            if let Some((_, bytes)) = pair.to_server.packets.pop_front() {
                pair.at_server(CLIENT, &bytes);
            }
            if let Some((_, bytes)) = pair.to_client.packets.pop_front() {
                pair.at_client(SERVER, &bytes);
            }
        }
        prop_assert_eq!(pair.outcomes.len(), crowd.sizes.len());
        prop_assert_eq!(pair.client.stats().dropped(DropReason::OutOfOrder), 0);
    }
}

/// A session whose client takes 7,000 bytes of a response unasked, and has room for ten such
/// packets.
fn with_room_for_ten_long_responses() -> (Pair, SessionId) {
    let config = EndpointConfig::new().eager(7_000).slots(64);
    let units = 10 * ChargeModel::LinuxUdp.charge(HEADER_LEN + 7_000);
    let side = Side::new(8_000).config(config);
    let mut pair = Pair::of(side.clone().queue(ChargeModel::LinuxUdp, units), side);
    pair.echo = false;
    pair.and_connected()
}

/// Makes 40 calls at once. Returns how many are in flight.
fn in_flight(pair: &mut Pair, session: SessionId) -> usize {
    for token in 0..40 {
        pair.call(session, token, b"how long is the answer?");
    }
    pair.to_server.packets.len()
}

/// Answers all calls, and checks the outcomes.
fn answer_all(pair: &mut Pair, response: &[u8]) {
    pair.outcomes.clear();
    pair.pass(Duration::from_micros(10));
    while pair.outcomes.len() < 40 {
        pair.settle();
        while !pair.asked.is_empty() {
            pair.answer(response);
        }
        pair.settle();
    }
    assert!(pair.outcomes.iter().all(|outcome| outcome.result.as_deref() == Ok(response)));
}

#[test]
fn calls_with_short_responses_reserve_less_room_while_room_is_scarce() {
    let (mut pair, session) = with_room_for_ten_long_responses();
    assert_eq!(in_flight(&mut pair, session), 10, "nothing is known of the responses");
    answer_all(&mut pair, b"short");
    // Six calls reserve more than half of the room. 14 calls in small packets fit the rest.
    assert_eq!(in_flight(&mut pair, session), 6 + 14);
    let is_large = |bytes: &Vec<u8>| header(bytes).flags.large();
    let large = pair.to_server.packets.iter().filter(|(_, bytes)| is_large(bytes));
    assert_eq!(large.count(), 6);
    answer_all(&mut pair, b"short");
}

#[test]
fn after_an_unexpectedly_long_response_calls_reserve_room_for_long_ones_for_a_second() {
    let (mut pair, session) = with_room_for_ten_long_responses();
    let long = pattern(1, 6_000);
    assert_eq!(in_flight(&mut pair, session), 10);
    answer_all(&mut pair, b"short");
    assert_eq!(in_flight(&mut pair, session), 20);
    answer_all(&mut pair, &long);
    assert_eq!(in_flight(&mut pair, session), 10);
    answer_all(&mut pair, b"short");
    assert_eq!(in_flight(&mut pair, session), 10, "long responses are remembered");
    answer_all(&mut pair, b"short");
    pair.pass(ms(1_000));
    pair.settle();
    assert_eq!(in_flight(&mut pair, session), 20);
    answer_all(&mut pair, &pattern(2, 1_024));
    assert_eq!(in_flight(&mut pair, session), 20, "a small packet carries 1,024 bytes");
}
