//! How a client handles credit returns and `Accepted`.

use super::pair::{Pair, SERVER, STRANGER, connected, header, ms, shape};
use crate::protocol::{DropReason, EndpointConfig, SessionId};
use crate::wire::{ConnectionId, Kind, ReplyInfo};

const CREDITS: u16 = 4;

/// A client with 4 credits that has called with a message of `packets` packets. Returns the packets
/// that it has sent.
fn calling(packets: usize) -> (Pair, SessionId, Vec<Vec<u8>>) {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(CREDITS).max_credits(CREDITS));
    let message = pair.message(packets);
    pair.call(session, 1, &message);
    let sent = pair.take_to_server();
    (pair, session, sent)
}

/// The packet numbers that the client sends after it has received `packet`.
fn sends(pair: &mut Pair, packet: &[u8]) -> Vec<u32> {
    pair.at_client(SERVER, packet);
    let sent = pair.take_to_server();
    assert!(shape(&sent).iter().all(|(kind, _)| *kind == Kind::Request));
    sent.iter().map(|bytes| header(bytes).packet.get()).collect()
}

fn credits(pair: &Pair, session: SessionId) -> u16 {
    pair.client.session_stats(session).expect("open").credits
}

#[test]
fn a_call_sends_as_many_packets_as_it_has_credits() {
    let (pair, session, sent) = calling(10);
    assert_eq!(shape(&sent), [0, 1, 2, 3].map(|packet| (Kind::Request, packet)));
    assert_eq!(credits(&pair, session), 0);
}

#[test]
fn a_credit_return_releases_as_many_packets_as_it_acknowledges() {
    let (mut pair, _, _) = calling(10);
    let one = pair.credit_return(0, 1).bytes();
    assert_eq!(sends(&mut pair, &one), [4]);
    let three_more = pair.credit_return(0, 4).bytes();
    assert_eq!(sends(&mut pair, &three_more), [5, 6, 7]);
}

#[test]
fn a_duplicate_or_older_credit_return_releases_no_packet() {
    let (mut pair, _, _) = calling(10);
    for next in [3, 3] {
        let bytes = pair.credit_return(0, next).bytes();
        pair.at_client(SERVER, &bytes);
    }
    assert_eq!(pair.take_to_server().len(), 3);
    let older = pair.credit_return(0, 2).bytes();
    pair.client_drops(SERVER, &older, DropReason::Duplicate);
    assert_eq!(pair.take_to_server().len(), 0);
}

#[test]
fn a_credit_return_beyond_the_sent_packets_is_dropped() {
    let (mut pair, session, _) = calling(10);
    let beyond = pair.credit_return(0, 5).bytes();
    pair.client_drops(SERVER, &beyond, DropReason::Unsolicited);
    assert_eq!(credits(&pair, session), 0);
}

#[test]
fn a_credit_return_for_the_whole_request_is_dropped() {
    let (mut pair, session, _) = calling(3);
    let all = pair.credit_return(0, 3).bytes();
    pair.client_drops(SERVER, &all, DropReason::Unsolicited);
    assert_eq!(credits(&pair, session), 1);
    let far = pair.credit_return(0, 0xFF_FFFF).bytes();
    pair.client_drops(SERVER, &far, DropReason::Unsolicited);
}

#[test]
fn a_credit_return_with_a_body_is_dropped() {
    let (mut pair, _, _) = calling(10);
    for body in [&b"x"[..], &[0; 1_448]] {
        let bytes = pair.credit_return(0, 1).body(body).bytes();
        pair.client_drops(SERVER, &bytes, DropReason::LyingSize);
    }
}

#[test]
fn a_gap_rolls_back_and_retransmits_from_the_gap() {
    let (mut pair, _, _) = calling(10);
    let gap = pair.gap(0, 2).bytes();
    assert_eq!(sends(&mut pair, &gap), [2, 3, 4, 5]);
    let counts = pair.client.stats().retransmissions;
    assert_eq!((counts.after_gap, counts.packets()), (2, 2), "only 2 and 3 are retransmissions");
}

#[test]
fn a_gap_at_the_first_packet_retransmits_all_packets() {
    let (mut pair, _, _) = calling(10);
    let gap = pair.gap(0, 0).bytes();
    assert_eq!(sends(&mut pair, &gap), [0, 1, 2, 3]);
}

#[test]
fn a_gap_rolls_back_once_per_position() {
    let (mut pair, _, _) = calling(10);
    let gap = pair.gap(0, 2).bytes();
    assert_eq!(sends(&mut pair, &gap).len(), 4);
    assert_eq!(sends(&mut pair, &gap), [], "a late report of the same gap");
    let next_gap = pair.gap(0, 3).bytes();
    assert_eq!(sends(&mut pair, &next_gap), [3, 4, 5, 6]);
}

#[test]
fn after_a_timeout_progress_of_the_first_packet_probes_with_the_next_one() {
    // The first packet of a request has no stamp, so its credit return does not show which copy has
    // arrived. If it was the first copy, the other packets may also arrive late.
    let (mut pair, session, _) = calling(10);
    pair.pass(ms(25));
    assert_eq!(shape(&pair.take_to_server()), [(Kind::Request, 0)]);
    assert_eq!(credits(&pair, session), 0, "packets in flight keep their credits");
    let progress = pair.credit_return(0, 1).bytes();
    assert_eq!(sends(&mut pair, &progress), [1, 4]);
}

#[test]
fn after_a_timeout_one_packet_probes_and_the_same_gap_rolls_back_again() {
    let (mut pair, _, _) = calling(10);
    let gap = pair.gap(0, 2).bytes();
    pair.at_client(SERVER, &gap);
    pair.take_to_server();
    pair.pass(ms(25));
    assert_eq!(
        shape(&pair.take_to_server()),
        [(Kind::Request, 2)],
        "the other packets may still be in a queue"
    );
    assert_eq!(sends(&mut pair, &gap), [2, 3, 4, 5]);
}

#[test]
fn a_gap_after_all_sent_packets_does_not_roll_back() {
    let (mut pair, _, _) = calling(10);
    let gap = pair.gap(0, 4).bytes();
    assert_eq!(sends(&mut pair, &gap), [4, 5, 6, 7]);
    assert_eq!(pair.client.stats().retransmissions.packets(), 0);
}

#[test]
fn after_a_roll_back_a_credit_return_may_exceed_the_retransmitted_packets() {
    // Packets 0 to 3 are in flight. The client times out and goes back to packet 0. Then the credit
    // return for the first copies arrives.
    let (mut pair, session, _) = calling(10);
    pair.pass(ms(25));
    pair.take_to_server();
    let late = pair.credit_return(0, 4).bytes();
    assert_eq!(sends(&mut pair, &late), [4, 5, 6, 7]);
    assert_eq!(credits(&pair, session), 0);
}

#[test]
fn the_queue_is_flushed_before_a_retransmission() {
    let (mut pair, _, _) = calling(10);
    pair.to_server.slow = true;
    let first = pair.credit_return(0, 2).bytes();
    pair.at_client(SERVER, &first);
    let before = pair.to_server.flushes;
    let gap = pair.gap(0, 3).bytes();
    pair.at_client(SERVER, &gap);
    assert!(pair.to_server.flushes > before);
}

#[test]
fn credits_go_to_calls_that_wait_for_them() {
    let (mut pair, session, _) = calling(4);
    pair.call(session, 2, b"waits");
    assert_eq!(pair.take_to_server().len(), 0);
    let one = pair.credit_return(0, 1).bytes();
    pair.at_client(SERVER, &one);
    assert_eq!(header(&pair.take_to_server()[0]).request.to_u32(), 1);
}

#[test]
fn accepted_returns_all_credits_and_stops_the_timeouts() {
    let (mut pair, session, _) = calling(1);
    let accepted = pair.accepted(0).bytes();
    pair.at_client(SERVER, &accepted);
    assert_eq!(credits(&pair, session), CREDITS);
    pair.pass_slowly(ms(2_900));
    assert_eq!(pair.take_to_server().len(), 0);
    assert_eq!(pair.client.stats().retransmissions.probes, 0);
}

#[test]
fn accepted_again_changes_nothing() {
    let (mut pair, session, _) = calling(1);
    let accepted = pair.accepted(0).bytes();
    for _ in 0..3 {
        pair.at_client(SERVER, &accepted);
    }
    assert_eq!(credits(&pair, session), CREDITS);
    assert_eq!(pair.take_to_server().len(), 0);
}

#[test]
fn accepted_for_an_incompletely_sent_request_is_dropped() {
    let (mut pair, session, _) = calling(5);
    let accepted = pair.accepted(0).bytes();
    pair.client_drops(SERVER, &accepted, DropReason::Unsolicited);
    assert_eq!(credits(&pair, session), 0);
}

#[test]
fn accepted_after_a_roll_back_ends_the_retransmission() {
    let (mut pair, session, _) = calling(4);
    pair.pass(ms(25));
    pair.take_to_server();
    let accepted = pair.accepted(0).bytes();
    assert_eq!(sends(&mut pair, &accepted), []);
    assert_eq!(credits(&pair, session), CREDITS);
    let late = pair.credit_return(0, 3).bytes();
    pair.client_drops(SERVER, &late, DropReason::Duplicate);
}

#[test]
fn accepted_with_a_body_is_dropped() {
    let (mut pair, _, _) = calling(1);
    let bytes = pair.accepted(0).body(b"x").bytes();
    pair.client_drops(SERVER, &bytes, DropReason::LyingSize);
}

#[test]
fn replies_to_old_finished_or_future_requests_are_dropped() {
    let (mut pair, session, _) = calling(1);
    for (number, reason) in [
        (0u32.wrapping_sub(8), DropReason::OldRequest),
        (8, DropReason::Unsolicited),
        (16, DropReason::Unsolicited),
        (5, DropReason::Unsolicited),
    ] {
        for packet in
            [pair.credit_return(number, 0), pair.accepted(number), pair.response(number, 0, b"")]
        {
            pair.client_drops(SERVER, &packet.bytes(), reason);
        }
    }
    let response = pair.response(0, 0, b"done").bytes();
    pair.at_client(SERVER, &response);
    for packet in [pair.credit_return(0, 0), pair.accepted(0), pair.response(0, 0, b"done")] {
        pair.client_drops(SERVER, &packet.bytes(), DropReason::Duplicate);
    }
    assert_eq!((pair.outcomes.len(), credits(&pair, session)), (1, CREDITS));
}

#[test]
fn replies_from_another_address_or_to_another_id_are_dropped() {
    let (mut pair, session, _) = calling(10);
    let kinds = [pair.credit_return(0, 1), pair.accepted(0), pair.response(0, 0, b"x")];
    for packet in kinds {
        pair.client_drops(STRANGER, &packet.bytes(), DropReason::WrongRoute);
        for bit in [8, 30, 32, 63] {
            let forged = ConnectionId::from_u64(pair.client_id.to_u64() ^ 1 << bit);
            pair.client_drops(
                SERVER,
                &packet.clone().to(forged).bytes(),
                DropReason::UnknownConnection,
            );
        }
        let server_role = ConnectionId::from_u64(pair.client_id.to_u64() ^ 1 << 31);
        pair.client_drops(SERVER, &packet.to(server_role).bytes(), DropReason::WrongRole);
    }
    assert_eq!((pair.outcomes.len(), credits(&pair, session)), (0, 0));
}

#[test]
fn replies_on_a_closed_session_are_dropped() {
    let (mut pair, session) = connected();
    pair.disconnect(session);
    pair.settle();
    for packet in [pair.credit_return(0, 1), pair.accepted(0), pair.response(0, 0, b"x")] {
        pair.client_drops(SERVER, &packet.bytes(), DropReason::UnknownConnection);
    }
}

#[test]
fn kinds_that_a_client_does_not_receive_are_dropped() {
    let (mut pair, _, _) = calling(1);
    for kind in [Kind::Request, Kind::RequestForResponse, Kind::Done] {
        let packet = pair.accepted(0).kind(kind).bytes();
        pair.client_drops(SERVER, &packet, DropReason::WrongRole);
    }
}

#[test]
fn every_reply_may_change_the_window_and_0_does_not() {
    let (mut pair, session) = connected();
    let message = pair.message(10);
    pair.call(session, 1, &message);
    pair.take_to_server();
    // 10 packets of 1,024 units each are in flight. A window of 2 packets makes the next call wait.
    let shrunk = pair.credit_return(0, 1).aux(ReplyInfo::new(0, 2 * 1_024).to_u32()).bytes();
    pair.at_client(SERVER, &shrunk);
    pair.call(session, 2, b"waits");
    assert_eq!(pair.take_to_server().len(), 0);
    let no_change = pair.credit_return(0, 8).aux(0).bytes();
    assert_eq!(sends(&mut pair, &no_change), [], "packets 8 and 9 still fill the window");
    let last = pair.credit_return(0, 9).bytes();
    assert_eq!(sends(&mut pair, &last), [0], "only the waiting call is sent");
}

#[test]
fn a_duplicate_credit_return_after_a_timeout_retransmits_no_packet() {
    let (mut pair, _, _) = calling(10);
    let third = pair.credit_return(0, 3).bytes();
    pair.at_client(SERVER, &third);
    pair.take_to_server();
    pair.pass(ms(21));
    assert_eq!(shape(&pair.take_to_server()), [(Kind::Request, 3)]);
    pair.at_client(SERVER, &third);
    assert_eq!(shape(&pair.take_to_server()), []);
}
