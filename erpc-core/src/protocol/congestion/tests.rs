//! Many controllers share one bottleneck.

use std::time::Duration;

use super::bottleneck::{Bottleneck, MS, Outcome};
use super::*;
use crate::time::Instant;

const GBIT: u64 = 125_000_000;

fn timely() -> CongestionControl {
    CongestionControl::Timely(TimelyConfig::new())
}

fn swift() -> CongestionControl {
    CongestionControl::Swift(SwiftConfig::new())
}

fn dcqcn() -> CongestionControl {
    CongestionControl::Dcqcn(DcqcnConfig::new())
}

/// The thesis' cluster (table 6.4): 1,024 bytes of payload in 1,100 on the cable, a round trip of 6
/// us, 25 Gb/s.
fn incast(sessions: usize, stagger: u64) -> Bottleneck {
    let noise = Duration::from_micros(5);
    Bottleneck {
        path: Path { line_rate: Some(25 * GBIT), noise, datagram: 1_100, round_trip: Some(6_000) },
        base: 6_000,
        jitter: 1_000,
        sessions,
        stagger,
        from: 50 * MS,
        until: 150 * MS,
        lost_ppm: 0,
    }
}

/// 20 sessions over kernel UDP through a slow link.
fn slow_link(line_rate: u64, until: u64) -> Bottleneck {
    let noise = Duration::from_micros(50);
    Bottleneck {
        path: Path { line_rate: Some(line_rate), noise, datagram: 1_540, round_trip: Some(80_000) },
        base: 80_000,
        jitter: 30_000,
        from: until / 3,
        until,
        ..incast(20, 0)
    }
}

fn sample(now: u64, nanos: u64) -> Sample {
    Sample { now: Instant::from_nanos(now), nanos, waited: 0, in_flight: 32, is_full: true }
}

fn tell(name: &str, link: &Bottleneck, outcome: &Outcome) {
    println!(
        "{name:6} {:3} ways at {:5.2} Gb/s, started within {:3} ms: {:5.1} % of the link, RTT {:6.1} and {:6.1} us (without {:7.1}), Jain {:.3}",
        link.sessions,
        link.line() as f64 / GBIT as f64,
        link.stagger / MS,
        outcome.share * 100.0,
        outcome.median,
        outcome.p99,
        link.without_control(),
        outcome.jain,
    );
}

#[test]
fn timely_keeps_incast_queues_short_and_the_link_busy_and_shares_fairly() {
    for (ways, median, p99) in [(20, 0.25, 0.333), (50, 0.2, 0.333), (100, 0.333, 0.667)] {
        for stagger in [0, 15 * MS] {
            let link = incast(ways, stagger);
            let outcome = link.run(&timely());
            tell("timely", &link, &outcome);
            let without = link.without_control();
            assert!(outcome.share >= 0.8, "{ways} ways");
            assert!(outcome.median <= median * without, "{ways} ways");
            assert!(outcome.p99 <= p99 * without, "{ways} ways");
            assert!(outcome.jain >= 0.9, "{ways} ways");
        }
    }
}

#[test]
fn swift_keeps_incast_queues_short_and_the_link_busy_and_shares_fairly() {
    for ways in [1, 2, 20, 50, 100] {
        for stagger in [0, 15 * MS] {
            let link = incast(ways, stagger);
            let outcome = link.run(&swift());
            tell("swift", &link, &outcome);
            assert!(outcome.share >= 0.94, "{ways} ways");
            assert!(outcome.median <= 32.0, "{ways} ways");
            // With a hundred sessions, the last ones join behind a queue.
            assert!(outcome.jain >= if ways < 100 { 0.95 } else { 0.7 }, "{ways} ways");
        }
    }
}

#[test]
fn without_control_all_credits_are_in_the_queue() {
    let link = incast(50, 0);
    let outcome = link.run(&CongestionControl::None);
    tell("none", &link, &outcome);
    assert!(outcome.median > 0.95 * link.without_control());
    assert!(outcome.share > 0.99);
}

#[test]
fn timely_with_the_same_parameters_keeps_queues_short_at_1_gbit_and_200_mbit() {
    for (link, until) in [(GBIT, 1_000 * MS), (GBIT / 5, 3_000 * MS)] {
        let link = slow_link(link, until);
        let outcome = link.run(&timely());
        tell("timely", &link, &outcome);
        let base = link.base as f64 / 1e3;
        assert!(outcome.median - base <= (link.without_control() - base) / 3.0);
        assert!(outcome.p99 - base <= (link.without_control() - base) / 3.0);
        assert!(outcome.share >= 0.8);
        assert!(outcome.jain >= 0.9);
    }
}

#[test]
fn timely_gives_few_sessions_the_whole_link() {
    for (ways, rate) in [(1, 25 * GBIT), (2, 25 * GBIT), (5, 100 * GBIT)] {
        let mut link = incast(ways, 0);
        link.path.line_rate = Some(rate);
        let outcome = link.run(&timely());
        tell("timely", &link, &outcome);
        assert!(outcome.share >= 0.95);
        assert!(outcome.jain >= 0.95);
    }
}

#[test]
fn dcqcn_shares_the_link_fairly_and_keeps_it_busy() {
    for ways in [2, 20, 50, 100] {
        for stagger in [0, 15 * MS] {
            let link = incast(ways, stagger);
            let outcome = link.run(&dcqcn());
            tell("dcqcn", &link, &outcome);
            assert!(outcome.share >= 0.8, "{ways} ways");
            assert!(outcome.jain >= 0.9, "{ways} ways");
        }
    }
}

#[test]
fn dcqcn_with_the_same_parameters_keeps_queues_short_and_the_link_busy_at_1_gbit_and_200_mbit() {
    for (link, until) in [(GBIT, 300 * MS), (GBIT / 5, 1_500 * MS)] {
        let link = slow_link(link, until);
        let outcome = link.run(&dcqcn());
        tell("dcqcn", &link, &outcome);
        let base = link.base as f64 / 1e3;
        assert!(outcome.p99 - base <= (link.without_control() - base) / 3.0);
        assert!(outcome.share >= 0.9);
        assert!(outcome.jain >= 0.9);
    }
}

/// Answers to 32 packets arrive together after a stall; then the network is as before. Returns the
/// milliseconds until the rate is the line's again.
fn recovery_millis(control: &CongestionControl, path: &Path, base: u64) -> f64 {
    let mut control = Congestion::new(control, path);
    let stalled = 1_000 * MS;
    for packet in 0..32 {
        control.on_rtt(&sample(stalled + packet * 100, 50 * MS));
    }
    assert!(Some(control.rate()) < path.line_rate);
    let mut now = stalled;
    while !control.is_at_line() && now < stalled + 1_000 * MS {
        let gap = u64::from(path.datagram) * 1_000_000_000 / control.rate();
        now += gap.max(base / 32);
        control.on_rtt(&sample(now, base));
    }
    (now - stalled) as f64 / MS as f64
}

#[test]
fn timely_is_back_at_line_within_10_ms_after_a_stall_of_50_ms() {
    for (line_rate, base, noise) in [
        (100 * GBIT, 500, 5_000),
        (100 * GBIT, 2_500, 5_000),
        (25 * GBIT, 6_000, 5_000),
        (10 * GBIT, 50_000, 50_000),
        (GBIT, 80_000, 50_000),
    ] {
        let path = Path {
            line_rate: Some(line_rate),
            noise: Duration::from_nanos(noise),
            datagram: 1_500,
            round_trip: Some(base),
        };
        let millis = recovery_millis(&timely(), &path, base);
        println!("{} Gb/s, {base} ns: {millis:.2} ms", line_rate / GBIT);
        assert!(millis <= 10.0);
    }
}

#[test]
fn random_loss_does_not_slow_a_session_down() {
    for control in [timely(), swift(), dcqcn()] {
        let link = Bottleneck { lost_ppm: 10_000, ..incast(1, 0) };
        let outcome = link.run(&control);
        assert_eq!(outcome.rates, [link.line()]);
        assert!(outcome.share >= 0.97);
    }
}
