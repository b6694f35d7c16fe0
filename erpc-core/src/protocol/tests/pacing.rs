//! Pacing: when a session's packets leave. In some tests the session's rate is the link's rate, and
//! the bypass of the wheel is off. In the other tests a congestion controller sets the rate from
//! round trips and congestion marks.

use std::time::Duration;

use super::pair::{CLIENT, Pair, SERVER, connected, header, kinds, ms, pattern, shape};
use crate::protocol::measurement::Bypasses;
use crate::protocol::{
    CongestionControl, DcqcnConfig, EndpointConfig, SessionId, SwiftConfig, TimelyConfig,
};
use crate::time::Instant;
use crate::wire::{Kind, ReplyInfo};

/// 10 MB/s: one full packet of 1,472 bytes every 147.2 us.
const RATE: u64 = 10_000_000;
const GAP: u64 = 147_200;
/// One tick of the wheel, in ns.
const TICK: u64 = 1_024;

/// A configuration in which each session is paced at the rate of the link.
fn at_line() -> EndpointConfig {
    Bypasses { wheel: false, ..Bypasses::ALL }.applied_to(EndpointConfig::new().link_rate(RATE))
}

/// A link of 1 GB/s whose rate the controller adjusts.
fn controlled(control: CongestionControl) -> EndpointConfig {
    EndpointConfig::new().link_rate(1_000_000_000).congestion(control)
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn rate(pair: &Pair, session: SessionId) -> Option<u64> {
    pair.client.session_stats(session).expect("open").rate
}

/// The packets that the client sends within `time` if nothing is delivered, each with the time when
/// it was sent.
fn departures(pair: &mut Pair, time: Duration) -> Vec<(Instant, Vec<u8>)> {
    let end = pair.now + time;
    let mut sent = Vec::new();
    loop {
        sent.extend(pair.take_to_server().into_iter().map(|packet| (pair.now, packet)));
        if pair.now >= end {
            return sent;
        }
        let next = pair.client.next_deadline().min(end);
        pair.pass(next.max(pair.now) - pair.now);
    }
}

/// Asserts that each packet leaves `gap` ns after the previous one, to within two ticks of the
/// wheel. Delays do not accumulate.
fn assert_spaced(sent: &[(Instant, Vec<u8>)], gap: u64) {
    let start = sent[0].0.as_nanos();
    for (count, (at, _)) in (0..).zip(sent) {
        let (at, due) = (at.as_nanos(), start + count * gap);
        assert!(at.abs_diff(due) <= 2 * TICK, "packet {count} at {at} ns, due at {due} ns");
    }
}

#[test]
fn request_packets_leave_one_gap_apart() {
    let (mut pair, session) = Pair::connected(1_472, at_line().credits(32).max_credits(32));
    let message = pair.message(20);
    pair.call(session, 1, &message);
    let sent = departures(&mut pair, ms(4));
    assert_eq!(sent.len(), 20);
    assert_spaced(&sent, GAP);
    assert_eq!(rate(&pair, session), Some(RATE));
    let sent: Vec<_> = sent.into_iter().map(|(_, packet)| packet).collect();
    pair.burst_at_server(CLIENT, &sent);
    pair.live(ms(10));
    assert!(pair.outcome().result.is_ok());
}

#[test]
fn calls_of_one_packet_are_paced_too() {
    let (mut pair, session) = Pair::connected(1_472, at_line());
    for token in 0..8 {
        pair.call(session, token, &[0; 976]);
    }
    let sent = departures(&mut pair, ms(2));
    assert_eq!(sent.len(), 8);
    assert_spaced(&sent, 100_000);
}

#[test]
fn responses_arrive_at_the_rate_because_the_pulls_are_paced() {
    let (mut pair, session) = Pair::connected(1_472, at_line());
    pair.echo = false;
    pair.call(session, 1, b"a lot, please");
    pair.settle();
    let message = pair.message(20);
    pair.answer(&message);
    let first = pair.take_to_client();
    pair.burst_at_client(SERVER, &first);
    let sent = departures(&mut pair, ms(3));
    assert_eq!(sent.len(), 19, "each pull asks for one packet");
    assert!(sent.iter().all(|(_, pull)| header(pull).size == 1));
    assert_spaced(&sent, GAP);
    let pulls: Vec<_> = sent.into_iter().map(|(_, packet)| packet).collect();
    pair.burst_at_server(CLIENT, &pulls);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
}

/// Swift derives a session's first window, and so its rate, from the packets in flight. Swift sees
/// an answer when the answered packet's credit has already been released, but must still count this
/// packet. So 8 packets in flight must give twice the rate of 4.
#[test]
fn the_packet_that_an_answer_is_for_counts_as_in_flight() {
    let rate_with = |calls| {
        let swift = CongestionControl::Swift(SwiftConfig::new());
        let (mut pair, session) = Pair::connected(1_472, controlled(swift));
        for token in 0..2 {
            pair.call(session, token, b"an empty path of 100 us");
            pair.pass(us(100));
            pair.settle();
        }
        // The first decision still knows a short round trip.
        for _ in 0..2 {
            for token in 0..calls {
                pair.call(session, token, b"a queue of 200 us");
            }
            pair.pass(us(300));
            let requests = pair.take_to_server();
            pair.burst_at_server(CLIENT, &requests);
            for response in pair.take_to_client() {
                pair.at_client(SERVER, &response);
                pair.pass(us(1));
                if let Some(rate) = rate(&pair, session) {
                    return rate;
                }
            }
        }
        panic!("Swift does not limit the session");
    };
    let [four, eight] = [4, 8].map(rate_with);
    assert!(eight.abs_diff(2 * four) <= 1, "{eight} B/s with 8 packets, {four} B/s with 4");
}

#[test]
fn the_calls_of_a_session_take_turns() {
    let (mut pair, session) = Pair::connected(1_472, at_line());
    let message = pair.message(10);
    for token in 0..3 {
        pair.call(session, token, &message);
    }
    let sent = departures(&mut pair, ms(2));
    let requests: Vec<_> = sent.iter().map(|(_, packet)| header(packet).request.to_u32()).collect();
    assert_eq!(requests[2..11], [1, 2, 0, 1, 2, 0, 1, 2, 0], "{requests:?}");
}

#[test]
fn an_idle_session_sends_immediately_and_gains_no_burst() {
    let (mut pair, session) = Pair::connected(1_472, at_line());
    for idle in [Duration::from_secs(1), Duration::from_secs(60)] {
        pair.live(idle);
        let message = pair.message(4);
        pair.call(session, 1, &message);
        let at_once = pair.take_to_server();
        assert_eq!(shape(&at_once), [(Kind::Request, 0)], "after {idle:?}");
        pair.burst_at_server(CLIENT, &at_once);
        let rest = departures(&mut pair, ms(1));
        assert_eq!(
            rest.iter().filter(|(_, packet)| header(packet).kind == Kind::Request).count(),
            3
        );
        let rest: Vec<_> = rest.into_iter().map(|(_, packet)| packet).collect();
        pair.burst_at_server(CLIENT, &rest);
        pair.live(ms(2));
        assert!(pair.outcome().result.is_ok());
    }
}

#[test]
fn a_call_cancelled_in_the_wheel_is_not_sent() {
    let (mut pair, session) = Pair::connected(1_472, at_line());
    pair.call(session, 1, &[0; 1_000]);
    pair.call(session, 2, &[0; 1_000]);
    pair.call(session, 3, &[0; 1_000]);
    assert_eq!(pair.take_to_server().len(), 1);
    assert!(pair.cancel(session, 2));
    let sent = departures(&mut pair, ms(1));
    assert_eq!(sent.len(), 1, "only the third call is sent");
}

#[test]
fn a_session_that_ends_leaves_nothing_in_the_wheel() {
    let (mut pair, session) = Pair::connected(1_472, at_line());
    let message = pair.message(10);
    pair.call(session, 1, &message);
    pair.server.shutdown(pair.now, &mut pair.to_client);
    pair.settle();
    assert!(pair.closed(session).is_some());
    pair.take_to_server();
    assert_eq!(pair.client.next_deadline(), Instant::NEVER);
}

#[test]
fn a_retransmission_is_paced() {
    let (mut pair, session) = Pair::connected(1_472, at_line().credits(8).max_credits(8));
    let message = pair.message(8);
    pair.call(session, 1, &message);
    let sent = departures(&mut pair, ms(2));
    let sent: Vec<_> = sent.into_iter().map(|(_, packet)| packet).collect();
    pair.burst_at_server(CLIENT, &[&sent[..2], &sent[3..]].concat());
    let gap = pair.take_to_client();
    pair.burst_at_client(SERVER, &gap);
    let again = departures(&mut pair, ms(1));
    assert_eq!(shape(&again.iter().map(|(_, packet)| packet.clone()).collect::<Vec<_>>())[0].1, 2);
    assert_spaced(&again, GAP);
}

#[test]
fn packets_are_not_paced_on_a_link_of_unknown_rate() {
    let (mut pair, session) = connected();
    let message = pair.message(32);
    pair.call(session, 1, &message);
    assert_eq!(pair.take_to_server().len(), 32);
    assert_eq!(rate(&pair, session), None);
}

/// Makes one call of one packet with the round trip `trip`.
fn round_trip(pair: &mut Pair, session: SessionId, trip: Duration) {
    pair.call(session, 1, b"ping");
    let request = departures(pair, ms(1)).remove(0).1;
    pair.now = pair.now + trip;
    let response = pair.response(header(&request).request.to_u32(), 0, b"pong").bytes();
    pair.at_client(SERVER, &response);
    assert!(pair.outcome().result.is_ok());
}

#[test]
fn long_round_trips_slow_a_session_down_and_short_ones_speed_it_up() {
    let timely = CongestionControl::Timely(TimelyConfig::new().low(us(2_000)));
    let (mut pair, session) = Pair::connected(1_472, controlled(timely));
    for _ in 0..10 {
        round_trip(&mut pair, session, us(50));
    }
    assert_eq!(rate(&pair, session), None, "the session sends at line rate");
    for _ in 0..4 {
        round_trip(&mut pair, session, ms(20));
    }
    let slow = rate(&pair, session).expect("the session sends below line rate");
    assert!(slow < 500_000_000, "{slow}");
    for _ in 0..150 {
        round_trip(&mut pair, session, us(50));
    }
    assert_eq!(rate(&pair, session), None, "the session sends at line rate again");
}

#[test]
fn time_in_an_unread_receive_queue_is_not_congestion() {
    let timely = CongestionControl::Timely(TimelyConfig::new().low(us(2_000)));
    let (mut pair, session) = Pair::connected(1_472, controlled(timely));
    for _ in 0..10 {
        pair.client_wait.absence = 19_000_000;
        round_trip(&mut pair, session, ms(20));
    }
    assert_eq!(rate(&pair, session), None, "the session sends at line rate");
    let (mut pair, session) = Pair::connected(1_472, controlled(timely));
    let message = pair.message(8);
    pair.call(session, 1, &message);
    let sent = pair.take_to_server();
    pair.now = pair.now + ms(20);
    pair.server_wait.absence = 19_000_000;
    pair.burst_at_server(CLIENT, &sent[..4]);
    let credits = pair.take_to_client();
    assert_eq!(kinds(&credits), [Kind::CreditReturn]);
    pair.burst_at_client(SERVER, &credits);
    assert_eq!(rate(&pair, session), None, "the server's absence is not congestion either");
}

/// A server reads its queue only after 20 ms. If it reports this time, the client's rate must not
/// fall; otherwise it must. The test checks a request of one packet with the pulls of its response,
/// and calls of one packet in both directions.
#[test]
fn responses_report_the_absence_of_the_server() {
    for told in [true, false] {
        let timely = CongestionControl::Timely(TimelyConfig::new().low(us(2_000)));
        let (mut pair, session) = Pair::connected(1_472, controlled(timely));
        pair.echo = false;
        let away = |pair: &mut Pair| {
            let sent = pair.take_to_server();
            pair.now = pair.now + ms(20);
            pair.server_wait.absence = if told { 19_500_000 } else { 0 };
            pair.burst_at_server(CLIENT, &sent);
            pair.server_wait.absence = 0;
        };
        pair.call(session, 1, b"ping");
        away(&mut pair);
        pair.answer(&pattern(1, 40_000));
        let first = pair.take_to_client();
        pair.burst_at_client(SERVER, &first);
        away(&mut pair);
        let later = pair.take_to_client();
        assert!(kinds(&later).iter().all(|kind| *kind == Kind::Response) && later.len() > 8);
        pair.burst_at_client(SERVER, &later);
        assert_eq!(rate(&pair, session).is_none(), told, "the server reported its absence: {told}");

        let (mut pair, session) = Pair::connected(1_472, controlled(timely));
        pair.echo = false;
        for _ in 0..3 {
            pair.call(session, 1, b"ping");
            away(&mut pair);
            pair.answer(b"pong");
            let response = pair.take_to_client();
            pair.burst_at_client(SERVER, &response);
        }
        assert_eq!(rate(&pair, session).is_none(), told, "the server reported its absence: {told}");
    }
}

#[test]
fn the_handlers_time_is_not_congestion() {
    let timely = CongestionControl::Timely(TimelyConfig::new().low(us(100)));
    let (mut pair, session) = Pair::connected(1_472, controlled(timely));
    for _ in 0..20 {
        pair.call(session, 1, b"ping");
        let sent = pair.take_to_server();
        pair.now = pair.now + ms(3);
        let info = ReplyInfo::new(2_960_000, 1 << 20).to_u32();
        let number = header(&sent[0]).request.to_u32();
        let response = pair.response(number, 0, b"pong").aux(info).bytes();
        pair.at_client(SERVER, &response);
    }
    assert_eq!(rate(&pair, session), None);
}

#[test]
fn marks_of_requests_are_echoed_and_slow_a_session_down() {
    let dcqcn = CongestionControl::Dcqcn(DcqcnConfig::new());
    let (mut pair, session) = Pair::connected(1_472, controlled(dcqcn));
    pair.call(session, 1, b"ping");
    pair.settle();
    assert_eq!(rate(&pair, session), None);
    pair.marked = true;
    pair.call(session, 1, b"ping");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    pair.marked = false;
    let response = pair.take_to_client();
    assert!(header(&response[0]).reply_info().is_marked());
    pair.burst_at_client(SERVER, &response);
    assert!(rate(&pair, session).is_some_and(|rate| rate <= 500_000_000));
    pair.call(session, 1, b"ping");
    let request = departures(&mut pair, us(10)).remove(0).1;
    pair.burst_at_server(CLIENT, &[request]);
    let response = pair.take_to_client();
    assert!(
        !header(&response[0]).reply_info().is_marked(),
        "the server must report the mark only once"
    );
}

#[test]
fn marks_of_a_long_request_are_echoed_in_credit_returns() {
    let dcqcn = CongestionControl::Dcqcn(DcqcnConfig::new());
    let (mut pair, session) = Pair::connected(1_472, controlled(dcqcn));
    let message = pair.message(10);
    pair.call(session, 1, &message);
    let sent = pair.take_to_server();
    pair.marked = true;
    pair.burst_at_server(CLIENT, &sent[..4]);
    pair.marked = false;
    let credits = pair.take_to_client();
    assert_eq!(kinds(&credits), [Kind::CreditReturn]);
    assert!(header(&credits[0]).reply_info().is_marked());
    pair.burst_at_client(SERVER, &credits);
    assert!(rate(&pair, session).is_some());
}

#[test]
fn marks_of_responses_slow_a_session_down() {
    let dcqcn = CongestionControl::Dcqcn(DcqcnConfig::new());
    let (mut pair, session) = Pair::connected(1_472, controlled(dcqcn));
    pair.echo = false;
    pair.call(session, 1, b"a lot, please");
    pair.settle();
    pair.answer(&pattern(1, 30_000));
    let first = pair.take_to_client();
    pair.marked = true;
    pair.burst_at_client(SERVER, &first);
    pair.marked = false;
    assert!(rate(&pair, session).is_some_and(|rate| rate <= 500_000_000));
}
