//! A real queue: 20 clients send to one server through a slow port.
//!
//! A program of its own, so that no other test needs the cores meanwhile. Takes root and iproute2; where they are
//! missing, or the cores are busy all the same, it says so and does nothing else, unless
//! `ERPC_REQUIRE_NAMESPACES` is set.

use std::time::Duration;

use erpc::{CongestionControl, DcqcnConfig, TimelyConfig};
use erpc_test_tools::netns::skip;
use erpc_test_tools::statistics::quantile;
use erpc_tests::incast::{Bottleneck, Incast, QueueReport};

/// 10^6 bits per second: what test builds keep up with, so that the queue is at the port.
const RATE: u64 = 200;
/// Controllers take turns, for the machine changes.
const ROUNDS: usize = 2;
/// Bytes in the queue behind which packets are marked.
const MARK_ABOVE: u64 = 75_000;

/// The median queueing delay.
fn median(report: &QueueReport) -> Duration {
    quantile(&report.delays, 0.5).expect("packets were sent")
}

/// What is to be compared of some rounds: their means.
#[derive(Clone, Copy, Default, Debug)]
struct Means {
    delay: Duration,
    gbps: f64,
    /// The part of the time that the loop was away from its core, and sent nothing.
    away: f64,
}

impl Means {
    fn add(&mut self, report: &QueueReport) {
        self.delay += median(report) / ROUNDS as u32;
        self.gbps += report.gbps / ROUNDS as f64;
        self.away += report.away / ROUNDS as f64;
    }

    /// The median queueing delay is at most a third of that without control, and at least 80 % of the link are
    /// used while the loop has its core.
    fn check(&self, name: &str, link_gbps: f64, uncontrolled: &Self) {
        assert!(self.delay * 3 <= uncontrolled.delay, "{name}: {self:?}, none: {uncontrolled:?}");
        assert!(
            self.gbps >= 0.8 * link_gbps * (1.0 - self.away),
            "{name}: {self:?} of {link_gbps} Gb/s"
        );
    }
}

/// Who is away from its core longer measures others.
const AWAY: f64 = 0.1;
/// How often a measurement is made until nothing disturbs it.
const TRIES: usize = 3;

/// # Errors
/// That something else needed the cores all the time.
fn measure(
    name: &str,
    control: CongestionControl,
    net: &Bottleneck,
) -> Result<QueueReport, String> {
    for _ in 0..TRIES {
        let report = Incast::new(control).run(net);
        let [p50, p99] = [0.5, 0.99].map(|part| quantile(&report.delays, part));
        eprintln!(
            "{name}: queueing delay {p50:?}, 99 % {p99:?}; {:.3} of {} Gb/s, jain {:.3}, up to {} bytes in the queue, \
             {} packets shown lost, {} probes, {} drops; away for {:.3} of the time",
            report.gbps,
            report.link_gbps,
            report.jain,
            // Who asks for it has no haste, and may not have had a core at all.
            report.backlogs.last().copied().unwrap_or(0),
            report.retransmissions.shown_lost(),
            report.retransmissions.probes,
            report.drops,
            report.away
        );
        if report.away < AWAY {
            return Ok(report);
        }
    }
    Err("something else needs the cores, and its delays are not the port's".into())
}

/// A controller, and none, by turns.
///
/// # Errors
/// Why it says nothing here.
fn compare(name: &str, control: CongestionControl, net: &Bottleneck) -> Result<(), String> {
    let (mut without, mut with) = (Means::default(), Means::default());
    let mut link_gbps = 0.0;
    for _ in 0..ROUNDS {
        let report = measure("none", CongestionControl::None, net)?;
        // Otherwise a third of the delay would be no feat.
        assert!(median(&report) > Duration::from_millis(5), "there is no queue");
        without.add(&report);
        with.add(&measure(name, control, net)?);
        link_gbps = report.link_gbps;
    }
    with.check(name, link_gbps, &without);
    Ok(())
}

/// One after the other, for both need the cores.
#[test]
fn a_real_queue_is_kept_short_and_the_link_busy() {
    let timely = CongestionControl::Timely(TimelyConfig::new());
    let dcqcn = CongestionControl::Dcqcn(DcqcnConfig::new());
    let kernel = || Bottleneck::new(RATE).and_then(|net| compare("timely", timely, &net));
    let marking =
        || Bottleneck::marking(RATE, MARK_ABOVE).and_then(|net| compare("dcqcn", dcqcn, &net));
    for reason in [kernel(), marking()].into_iter().filter_map(Result::err) {
        skip("a_real_queue_is_kept_short_and_the_link_busy", &reason);
    }
}
