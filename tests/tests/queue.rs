//! A real queue: 20 clients send to one server through a slow port.
//!
//! This test is the only one of its binary, so that other tests do not use the cores at the same
//! time. It needs root and iproute2. Without them, or if the cores are busy, the test prints the
//! reason and is skipped. If `CI_FULL` is 1, the test fails without namespaces.

use std::time::Duration;

use erpc::{CongestionControl, DcqcnConfig, TimelyConfig};
use erpc_test_tools::netns::skip;
use erpc_test_tools::statistics::quantile;
use erpc_tests::incast::{Bottleneck, Incast, QueueReport};

/// Rate of the port in 10^6 bits per second. Test builds can send faster, so the queue forms at the
/// port.
const RATE: u64 = 200;
/// Rounds in which runs without and with a controller alternate, because the machine's load
/// changes.
const ROUNDS: usize = 2;
/// Queue length in bytes above which packets are marked.
const MARK_ABOVE: u64 = 75_000;

/// The median queueing delay.
fn median(report: &QueueReport) -> Duration {
    quantile(&report.delays, 0.5).expect("probes were sent")
}

/// Means over all rounds.
#[derive(Clone, Copy, Default, Debug)]
struct Means {
    delay: Duration,
    gbps: f64,
    /// Fraction of the time in which other work kept a loop from its core, so that the port was
    /// idle.
    away: f64,
}

impl Means {
    fn add(&mut self, report: &QueueReport) {
        self.delay += median(report) / ROUNDS as u32;
        self.gbps += report.gbps / ROUNDS as f64;
        self.away += report.away / ROUNDS as f64;
    }

    /// Asserts that the median queueing delay is at most a third of the delay without control, and
    /// that the throughput is at least 80 % of the link rate, except while a loop is kept from its
    /// core and for as long again: the packets of such a loop arrive together and are marked, so
    /// its rate falls and has to recover.
    fn check(&self, name: &str, link_gbps: f64, uncontrolled: &Self) {
        assert!(self.delay * 3 <= uncontrolled.delay, "{name}: {self:?}, none: {uncontrolled:?}");
        assert!(
            self.gbps >= 0.8 * link_gbps * (1.0 - 2.0 * self.away),
            "{name}: {self:?} of {link_gbps} Gb/s"
        );
    }
}

/// Largest fraction of the time that a loop may be kept from its core. Above it, the measurement
/// shows the machine's other load.
const AWAY: f64 = 0.1;
/// Most attempts at an undisturbed measurement.
const TRIES: usize = 3;

/// Repeats the measurement until other load does not disturb it, at most [`TRIES`] times.
///
/// # Errors
/// Other load disturbed all attempts.
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
             {} packets declared lost, {} probes, {} drops; away for {:.3} of the time",
            report.gbps,
            report.link_gbps,
            report.jain,
            // The thread that samples the queue has no raised priority, and may have had no core.
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
    Err("other load uses the cores and adds delays to those of the port".into())
}

/// Compares runs with a controller with runs without one. The runs alternate.
///
/// # Errors
/// The reason why this machine allows no conclusion.
fn compare(name: &str, control: CongestionControl, net: &Bottleneck) -> Result<(), String> {
    let (mut without, mut with) = (Means::default(), Means::default());
    let mut link_gbps = 0.0;
    for _ in 0..ROUNDS {
        let report = measure("none", CongestionControl::None, net)?;
        // A third of the delay proves nothing if there is no queue without control.
        assert!(median(&report) > Duration::from_millis(5), "no queue without congestion control");
        without.add(&report);
        with.add(&measure(name, control, net)?);
        link_gbps = report.link_gbps;
    }
    with.check(name, link_gbps, &without);
    Ok(())
}

/// The comparisons run in sequence, because each needs the cores.
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
