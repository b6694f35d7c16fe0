//! Paths that carry smaller packets than their ends accept, that change their size, or that rewrite
//! a client's address.

use super::craft::Crafted;
use super::pair::{CLIENT, Pair, SERVER, STRANGER, Side, control, header, ms, pattern};
use crate::protocol::{CallError, Cause, DropReason, EndpointConfig, SessionEvent, SessionId};
use crate::transport::ChargeModel;
use crate::wire::control::Control;
use crate::wire::{HEADER_LEN, Kind, ReplyInfo};

const JUMBO: usize = 8_972;
/// Bytes of small datagrams, which every path carries.
const SMALL: usize = 1_052;

/// Two ends that accept datagrams of `max_datagram` bytes, over a link of unknown kind.
fn far(max_datagram: usize) -> Pair {
    Pair::new(max_datagram, EndpointConfig::new()).far()
}

/// Makes the path drop packets of more than `bytes` bytes, in both directions.
fn carries(pair: &mut Pair, bytes: usize) {
    (pair.to_server.carries, pair.to_client.carries) = (Some(bytes), Some(bytes));
}

/// Bytes of a full datagram of the session.
fn datagram(pair: &Pair, session: SessionId) -> usize {
    let stats = pair.client.session_stats(session).expect("an open session");
    stats.payload as usize + HEADER_LEN
}

/// Makes a call with a message of `len` bytes, which is echoed.
fn works(pair: &mut Pair, session: SessionId, len: usize) {
    let message = pattern(len as u64, len);
    pair.call(session, 7, &message);
    pair.live(ms(400));
    assert_eq!(pair.outcome().result, Ok(message));
}

#[test]
fn the_handshake_proves_a_path_that_carries_the_largest_datagram() {
    let mut pair = far(JUMBO);
    let session = pair.connect();
    let (_, open) = pair.challenged();
    assert_eq!(open.len(), JUMBO);
    pair.at_server(CLIENT, &open);
    let opened = pair.take_to_client();
    assert_eq!((opened.len(), opened[0].len()), (1, JUMBO));
    pair.at_client(SERVER, &opened[0]);
    assert_eq!(datagram(&pair, session), JUMBO);
    pair.pass_slowly(ms(100));
    assert_eq!(pair.to_server.packets.len(), 0, "the client must not search for the size");
    works(&mut pair, session, 100_000);
}

#[test]
fn the_handshake_proves_no_more_than_the_server_can_take() {
    let [client, server] = [JUMBO, 1_472].map(Side::new);
    let mut pair = Pair::of(client, server).far();
    let session = pair.connect();
    let (_, open) = pair.challenged();
    assert_eq!(open.len(), 1_472);
    pair.at_server(CLIENT, &open);
    pair.settle();
    assert_eq!(datagram(&pair, session), 1_472);
}

#[test]
fn a_late_proof_of_the_path_size_is_accepted() {
    let mut pair = far(JUMBO);
    let session = pair.connect();
    let (_, open) = pair.challenged();
    pair.pass(ms(26));
    pair.settle();
    assert_eq!(datagram(&pair, session), SMALL);
    pair.at_server(CLIENT, &open);
    pair.settle();
    assert_eq!(datagram(&pair, session), JUMBO);
    works(&mut pair, session, 100_000);
}

#[test]
fn a_session_opens_quickly_on_a_small_path_and_finds_its_size_within_a_second() {
    for (limit, carried) in [
        (1_472, 1_372),
        (1_472, 1_422),
        (1_472, SMALL),
        (JUMBO, 8_872),
        (JUMBO, 1_372),
        (JUMBO, 1_053),
    ] {
        let mut pair = far(limit);
        carries(&mut pair, carried);
        let session = pair.connect();
        pair.live(ms(26));
        assert_eq!(pair.sessions.get(&session), Some(&SessionEvent::Opened), "{carried}");
        works(&mut pair, session, 100_000);
        pair.live(ms(500));
        assert_eq!(datagram(&pair, session), carried);
        works(&mut pair, session, 100_000);
        let stats = pair.client.stats();
        assert_eq!(stats.retransmissions.packets(), 0, "the search must not lose data");
    }
}

#[test]
fn a_path_that_drops_large_packets_in_one_direction_is_detected_too() {
    for to_client in [false, true] {
        let mut pair = far(1_472);
        let wire = if to_client { &mut pair.to_client } else { &mut pair.to_server };
        wire.carries = Some(1_372);
        let session = pair.connect();
        pair.live(ms(26));
        works(&mut pair, session, 100_000);
        assert_eq!(datagram(&pair, session), 1_372);
        works(&mut pair, session, 100_000);
    }
}

#[test]
fn calls_survive_a_path_that_becomes_smaller_and_execute_once() {
    let ways = [(Some(1_372), Some(1_372)), (Some(1_372), None), (None, Some(1_372))];
    for (to_server, to_client) in ways {
        for len in [1_200, 1_400, 8_000, 300_000] {
            let mut pair = far(JUMBO);
            let session = pair.connect();
            pair.live(ms(10));
            assert_eq!(datagram(&pair, session), JUMBO);
            for number in 0..8 {
                pair.call(session, number, &pattern(number, len));
            }
            // Up to 20 packets arrive before the path becomes smaller.
            for _ in 0..20 {
                if let Some((_, bytes)) = pair.to_server.packets.pop_front() {
                    pair.at_server(CLIENT, &bytes);
                }
            }
            (pair.to_server.carries, pair.to_client.carries) = (to_server, to_client);
            for wire in [&mut pair.to_server, &mut pair.to_client] {
                let most = wire.carries.unwrap_or(usize::MAX);
                wire.packets.retain(|(_, bytes)| bytes.len() <= most);
            }
            pair.live(ms(1_500));
            assert_eq!(pair.outcomes.len(), 8, "{len} bytes, {to_server:?} and {to_client:?}");
            for outcome in std::mem::take(&mut pair.outcomes) {
                assert_eq!(outcome.result, Ok(pattern(outcome.token, len)));
            }
            assert_eq!(pair.executed, 8);
            if len > 8_000 {
                assert_eq!(datagram(&pair, session), 1_372);
            }
            works(&mut pair, session, 100_000);
        }
    }
}

#[test]
fn a_call_cancelled_on_a_path_that_became_smaller_frees_its_slot() {
    let mut pair = far(JUMBO);
    let session = pair.connect();
    pair.live(ms(10));
    pair.call(session, 1, &pattern(1, 8_000));
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    assert_eq!(pair.take_to_client().len(), 1, "one response packet, which is lost");
    carries(&mut pair, 1_372);
    assert!(pair.cancel(session, 1));
    let error = CallError::MaybeExecuted(Cause::Cancelled);
    assert_eq!(pair.outcome().result, Err(error));
    pair.live(ms(1_500));
    let stats = pair.client.session_stats(session).expect("an open session");
    assert_eq!((stats.quarantined, pair.executed), (0, 1));
}

#[test]
fn a_path_that_becomes_larger_is_detected_within_90_seconds() {
    let mut pair = far(JUMBO);
    carries(&mut pair, 1_372);
    let session = pair.connect();
    pair.live(ms(26));
    works(&mut pair, session, 20_000);
    assert_eq!(datagram(&pair, session), 1_372);
    carries(&mut pair, JUMBO);
    // The client makes a call every 500 ms: only a message of several packets starts a search.
    for _ in 0..900 {
        works(&mut pair, session, 20_000);
        pair.live(ms(100));
    }
    assert_eq!(datagram(&pair, session), JUMBO);
    works(&mut pair, session, 100_000);
}

#[test]
fn a_late_copy_of_an_earlier_resize_has_no_effect() {
    let mut pair = far(JUMBO);
    carries(&mut pair, 1_372);
    let session = pair.connect();
    pair.live(ms(26));
    pair.call(session, 1, &pattern(1, 20_000));
    let mut resize = None;
    for _ in 0..500 {
        pair.pass(ms(1));
        let sent: Vec<_> = pair.to_server.packets.iter().map(|(_, bytes)| bytes.clone()).collect();
        let is_resize = |bytes: &&Vec<u8>| matches!(control(bytes), Some(Control::Resize { .. }));
        resize = resize.or(sent.iter().find(is_resize).cloned());
        pair.settle();
    }
    let resize = resize.expect("the client sends a Resize");
    carries(&mut pair, 1_422);
    assert!(pair.outcome().result.is_ok());
    pair.live(ms(61_000));
    works(&mut pair, session, 20_000);
    assert_eq!(datagram(&pair, session), 1_422);
    pair.at_server(CLIENT, &resize);
    works(&mut pair, session, 100_000);
}

#[test]
fn a_client_whose_port_is_rewritten_learns_it_at_the_first_call_and_reconnects() {
    for body in [&b""[..], b"what?", &[7; 5_000]] {
        let mut pair = far(1_472);
        let session = pair.connect();
        pair.live(ms(10));
        pair.client_seen_at = STRANGER;
        pair.call(session, 1, body);
        pair.settle();
        assert_eq!(
            pair.closed(session),
            Some(Cause::AddressChanged),
            "the session must close within one round trip"
        );
        let error = pair.error();
        assert!(error.to_string().contains("another address or port"), "{error}");
        assert_eq!(pair.executed, 0);
        let session = pair.connect();
        pair.settle();
        assert_eq!(pair.sessions.get(&session), Some(&SessionEvent::Opened));
        works(&mut pair, session, 5_000);
    }
}

#[test]
fn a_forged_sender_gets_one_short_packet_per_millisecond_and_only_with_the_sessions_id() {
    let mut pair = far(1_472);
    let session = pair.connect();
    pair.live(ms(10));
    let packet = pair.request(0, 0, b"").bytes();
    for _ in 0..100 {
        pair.at_server(STRANGER, &packet);
    }
    let told = pair.to_client.take_for(STRANGER);
    assert_eq!((told.len(), told[0].len()), (1, 36));
    pair.pass(ms(1));
    pair.at_server(STRANGER, &packet);
    assert_eq!(pair.to_client.take_for(STRANGER).len(), 1);
    pair.pass(ms(1));
    let mut guessed = packet;
    guessed[4] ^= 1;
    pair.at_server(STRANGER, &guessed);
    assert_eq!(pair.to_client.take_for(STRANGER).len(), 0);
    assert_eq!(pair.closed(session), None);
    works(&mut pair, session, 100);
}

#[test]
fn small_messages_do_not_start_a_search_for_the_path_size() {
    let mut pair = far(1_472);
    carries(&mut pair, SMALL);
    let session = pair.connect();
    pair.live(ms(26));
    for _ in 0..100 {
        pair.call(session, 1, &[7; 1_000]);
        let sent = pair.take_to_server();
        assert_eq!((sent.len(), header(&sent[0]).kind), (1, Kind::Request));
        pair.burst_at_server(CLIENT, &sent);
        pair.live(ms(1_000));
    }
    assert_eq!(datagram(&pair, session), SMALL);
}

#[test]
fn without_room_for_proofs_the_client_uses_the_agreed_size_until_calls_stall() {
    for carried in [JUMBO, 1_372] {
        let client = Side::new(JUMBO);
        let server = Side::new(JUMBO).queue(ChargeModel::Ring, 7);
        let mut pair = Pair::of(client, server).far();
        carries(&mut pair, carried);
        let session = pair.connect();
        assert!(pair.challenged().1.len() < 100);
        pair.pass(ms(26));
        pair.settle();
        assert_eq!(datagram(&pair, session), JUMBO);
        let message = pattern(1, 100_000);
        pair.call(session, 1, &message);
        pair.live(ms(1_500));
        assert_eq!(pair.outcome().result, Ok(message));
        assert_eq!(datagram(&pair, session), carried);
        works(&mut pair, session, 100_000);
    }
}

#[test]
fn a_request_does_not_mix_packets_of_two_sizes() {
    for (first, second) in [(SMALL, JUMBO), (JUMBO, SMALL)] {
        let mut pair = far(JUMBO);
        pair.connect();
        pair.live(ms(10));
        let (server, size) = (pair.server_id, 2 * (JUMBO - HEADER_LEN) as u32);
        let resize = |epoch, datagram: usize| {
            let resize = Control::Resize { max_datagram: datagram as u32 };
            resize.emit(server, epoch, ReplyInfo::default()).as_bytes().to_vec()
        };
        let part = |pair: &Pair, number, datagram| -> Crafted {
            let part = pair.request(0, 0, b"").packet(number).size(size);
            part.body(&vec![7; datagram - HEADER_LEN])
        };
        pair.at_server(CLIENT, &resize(1, first));
        let begins = part(&pair, 0, first).bytes();
        pair.at_server(CLIENT, &begins);
        pair.at_server(CLIENT, &resize(2, second));
        pair.take_to_client();
        let goes_on = part(&pair, 1, second).bytes();
        pair.server_drops(CLIENT, &goes_on, DropReason::LyingSize);
        assert_eq!(pair.executed, 0);
    }
}
