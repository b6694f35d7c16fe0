//! How both sides detect a loss from packets that arrive later. Stamps distinguish the second loss
//! of a packet from late reports of the first loss, and late answers from answers to a timeout's
//! probe.

use std::time::Duration;

use super::pair::{CLIENT, Pair, SERVER, header, kinds, ms, shape};
use crate::protocol::{EndpointConfig, SessionId};
use crate::wire::{Kind, Stamp};

/// A client that has sent the first packets of a request, as many as it has credits. Returns the
/// packets.
fn sending(credits: u16, packets: usize) -> (Pair, SessionId, Vec<Vec<u8>>) {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(credits).max_credits(credits));
    let message = pair.message(packets);
    pair.call(session, 1, &message);
    let sent = pair.take_to_server();
    assert_eq!(sent.len(), usize::from(credits).min(packets));
    (pair, session, sent)
}

/// A client that has pulled response packets 1 to 8 of 40. Returns these packets.
fn pulling() -> (Pair, SessionId, Vec<Vec<u8>>) {
    let (mut pair, session) =
        Pair::connected(1_472, EndpointConfig::new().credits(8).max_credits(8));
    pair.echo = false;
    pair.call(session, 1, b"a lot, please");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    let message = pair.message(40);
    pair.answer(&message);
    let first = pair.take_to_client();
    pair.burst_at_client(SERVER, &first);
    let pull = pair.take_to_server();
    pair.pass_slowly(Duration::from_micros(5));
    pair.burst_at_server(CLIENT, &pull);
    let sent = pair.take_to_client();
    assert_eq!(sent.len(), 8);
    (pair, session, sent)
}

fn to_server(pair: &mut Pair, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    pair.pass_slowly(Duration::from_micros(5));
    pair.burst_at_server(CLIENT, packets);
    pair.take_to_client()
}

fn to_client(pair: &mut Pair, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    pair.pass_slowly(Duration::from_micros(5));
    pair.burst_at_client(SERVER, packets);
    pair.take_to_server()
}

fn numbers(packets: &[Vec<u8>]) -> Vec<u32> {
    packets.iter().map(|packet| header(packet).packet.get()).collect()
}

#[test]
fn a_packet_lost_twice_is_sent_a_third_time_without_a_timeout() {
    let (mut pair, _, sent) = sending(8, 20);
    let gap = to_server(&mut pair, &[&sent[..2], &sent[3..]].concat());
    let again = to_client(&mut pair, &gap);
    assert_eq!(numbers(&again), [2, 3, 4, 5, 6, 7, 8, 9]);
    let gap = to_server(&mut pair, &again[1..]);
    assert_eq!(shape(&gap), [(Kind::CreditReturn, 2)]);
    let third = to_client(&mut pair, &gap);
    assert_eq!(numbers(&third), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(pair.client.stats().retransmissions.probes, 0);
    pair.burst_at_server(CLIENT, &third);
    pair.settle();
    assert!(pair.outcome().result.is_ok());
}

#[test]
fn several_reports_of_one_gap_roll_back_once() {
    let (mut pair, _, sent) = sending(8, 20);
    // Each packet after the lost one arrives in a burst of its own and causes a gap report.
    let mut gaps = to_server(&mut pair, &[&sent[..2], &sent[3..4]].concat());
    for packet in &sent[4..] {
        gaps.extend(to_server(&mut pair, std::slice::from_ref(packet)));
    }
    assert_eq!(kinds(&gaps).len(), 5);
    let again = to_client(&mut pair, &gaps[..1]);
    assert_eq!(again.len(), 8);
    for gap in &gaps[1..] {
        assert_eq!(to_client(&mut pair, std::slice::from_ref(gap)), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn late_packets_of_the_first_flight_cause_no_second_retransmission() {
    let (mut pair, _, sent) = sending(8, 20);
    let gap = to_server(&mut pair, &[&sent[..2], &sent[3..7]].concat());
    let again = to_client(&mut pair, &gap);
    assert_eq!(numbers(&again)[0], 2);
    // One burst contains the last packet of the first flight, and the first packet that the client
    // has sent again.
    let returned = to_server(&mut pair, &[&sent[7..8], &again[..1]].concat());
    assert_eq!(shape(&returned), [(Kind::CreditReturn, 3)]);
    let next = to_client(&mut pair, &returned);
    assert_eq!(numbers(&next), [10], "packets 3 to 9 are not sent again");
}

#[test]
fn the_first_packet_of_a_request_is_sent_a_third_time_too() {
    let (mut pair, _, sent) = sending(8, 20);
    let gaps = to_server(&mut pair, &sent[1..]);
    assert_eq!(gaps.len(), 7, "the server keeps nothing of a request without its first packet");
    let again = to_client(&mut pair, &gaps);
    assert_eq!(numbers(&again), [0, 1, 2, 3, 4, 5, 6, 7]);
    let gaps = to_server(&mut pair, &again[1..]);
    assert_eq!(numbers(&to_client(&mut pair, &gaps)), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_path_that_drops_large_packets_is_not_flooded() {
    let (mut pair, _, mut sent) = sending(8, 4);
    let mut rounds = 0;
    while !sent.is_empty() {
        // Only the last packet of each round arrives, as if the path dropped all full packets and
        // only the last packet were shorter.
        let gaps = to_server(&mut pair, &sent[sent.len() - 1..]);
        sent = to_client(&mut pair, &gaps);
        rounds += 1;
        assert!(rounds < 10, "the roll-backs do not end");
    }
    assert_eq!(rounds, 5, "four roll-backs, then only a timeout retransmits");
    pair.pass(ms(25));
    assert_eq!(shape(&pair.take_to_server()), [(Kind::Request, 0)]);
}

#[test]
fn a_spurious_timeout_sends_one_packet_only() {
    let (mut pair, session, sent) = sending(8, 20);
    pair.pass(ms(25));
    let probe = pair.take_to_server();
    assert_eq!(shape(&probe), [(Kind::Request, 0)]);
    // The server was away. The packets that it receives first are the first copies.
    let returned = to_server(&mut pair, &sent[..6]);
    let next = to_client(&mut pair, &returned);
    assert_eq!(numbers(&next), [8, 9, 10, 11, 12, 13], "packets 6 and 7 are not sent again");
    let counts = pair.client.stats().retransmissions;
    assert_eq!((counts.probes, counts.needless_probes, counts.packets()), (1, 1, 1));
    assert_eq!(pair.client.session_stats(session).map(|stats| stats.retransmissions), Some(counts));
    let rtt = pair.client.session_stats(session).expect("open").rtt.expect("measured");
    assert!(rtt >= ms(25), "{rtt:?}");
}

#[test]
fn the_answer_to_a_timeouts_probe_retransmits_the_following_packets() {
    let (mut pair, _, sent) = sending(8, 20);
    let returned = to_server(&mut pair, &sent[..3]);
    assert_eq!(numbers(&to_client(&mut pair, &returned)), [8, 9, 10]);
    pair.pass(ms(25));
    let probe = pair.take_to_server();
    assert_eq!(numbers(&probe), [3]);
    let returned = to_server(&mut pair, &probe);
    assert_eq!(numbers(&to_client(&mut pair, &returned)), [4, 5, 6, 7, 8, 9, 10, 11]);
    let counts = pair.client.stats().retransmissions;
    assert_eq!((counts.probes, counts.needless_probes, counts.after_timeout), (1, 0, 7));
    assert_eq!(counts.packets(), 8, "all retransmissions are the timeout's, none is a gap's");
}

#[test]
fn the_answer_to_either_copy_of_the_first_packet_retransmits_the_next_one() {
    for is_late in [false, true] {
        let (mut pair, _, sent) = sending(8, 20);
        pair.pass(ms(25));
        let probe = pair.take_to_server();
        let first = if is_late { &sent[..1] } else { &probe };
        let returned = to_server(&mut pair, first);
        let next = to_client(&mut pair, &returned);
        assert_eq!(numbers(&next), [1, 8], "the next packet again, and one new packet");
        let second = if is_late { &sent[1..2] } else { &next[..1] };
        let returned = to_server(&mut pair, second);
        let rest = to_client(&mut pair, &returned);
        let counts = pair.client.stats().retransmissions;
        if is_late {
            assert_eq!(numbers(&rest), [9], "the packets in flight are late, not lost");
            assert_eq!((counts.needless_probes, counts.packets()), (2, 2));
        } else {
            assert_eq!(numbers(&rest), [2, 3, 4, 5, 6, 7, 8, 9], "the packets in flight were lost");
            assert_eq!((counts.needless_probes, counts.packets()), (0, 9));
        }
    }
}

#[test]
fn a_response_packet_lost_twice_is_pulled_a_third_time_without_a_timeout() {
    let (mut pair, _, sent) = pulling();
    let pull = to_client(&mut pair, &[&sent[..2], &sent[3..]].concat());
    assert_eq!(shape(&pull), [(Kind::RequestForResponse, 3)]);
    let again = to_server(&mut pair, &pull);
    let pull = to_client(&mut pair, &again[1..]);
    assert_eq!(shape(&pull), [(Kind::RequestForResponse, 3)]);
    assert_eq!(pair.client.stats().retransmissions.probes, 0);
    pair.burst_at_server(CLIENT, &pull);
    pair.settle();
    assert!(pair.outcome().result.is_ok());
}

#[test]
fn the_next_pull_replaces_a_lost_one() {
    let (mut pair, _, sent) = pulling();
    let lost = to_client(&mut pair, &sent[..4]);
    assert_eq!(numbers(&lost), [9]);
    let next = to_client(&mut pair, &sent[4..]);
    assert_eq!(numbers(&next), [13]);
    let response = to_server(&mut pair, &next);
    assert_eq!(numbers(&response), [9, 10, 11, 12, 13, 14, 15, 16]);
    assert_eq!(pair.client.stats().retransmissions.probes, 0);
}

#[test]
fn credit_returns_and_answered_pulls_give_rtt_samples() {
    let (mut pair, session, sent) = sending(8, 20);
    let rtt = |pair: &Pair, session| pair.client.session_stats(session).expect("open").rtt;
    assert_eq!(rtt(&pair, session), None);
    let returned = to_server(&mut pair, &sent[..4]);
    to_client(&mut pair, &returned);
    assert_eq!(rtt(&pair, session), Some(Duration::from_micros(10)));
    let (mut pair, session, sent) = pulling();
    to_client(&mut pair, &sent);
    assert_eq!(rtt(&pair, session), Some(Duration::from_micros(10)));
}

#[test]
fn a_late_copy_of_a_credit_return_gives_no_rtt_sample() {
    let (mut pair, session, sent) = sending(8, 20);
    let returned = to_server(&mut pair, &sent[..4]);
    to_client(&mut pair, &returned);
    pair.pass_slowly(ms(15));
    pair.at_client(SERVER, &returned[0]);
    let rtt = pair.client.session_stats(session).expect("open").rtt;
    assert_eq!(rtt, Some(Duration::from_micros(10)));
}

#[test]
fn stamps_distinguish_packets_before_and_after_a_roll_back_in_one_turn() {
    let (mut pair, _, sent) = sending(8, 20);
    let news = to_server(&mut pair, &[&sent[..4], &sent[5..]].concat());
    assert_eq!(shape(&news), [(Kind::CreditReturn, 4)]);
    let stamps: Vec<_> = to_client(&mut pair, &news)
        .iter()
        .map(|packet| Stamp::from_u32(header(packet).aux))
        .collect();
    assert!(stamps.iter().all(|stamp| stamp.is_since(pair.now.plus_nanos(2))), "{stamps:?}");
}
