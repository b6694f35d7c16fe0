//! Compares the throughput of long paths in reality and in simulation. In reality, a client and a
//! server use the kernel's UDP in two network namespaces, with a slow and long cable between them.
//! In simulation, the same endpoints use the simulated network.
//!
//! This test is the only one of its binary, so that other tests do not use the cores at the same
//! time. It needs root and iproute2. Without them, or if the cores are busy, the test prints the
//! reason and is skipped. If `CI_FULL` is 1, the test fails without namespaces.

use std::time::{Duration, Instant};

use erpc::CongestionControl;
use erpc::transport::ChargeModel;
use erpc_sim::lab::paths::{self, Paths};
use erpc_test_tools::limit::{millis, secs};
use erpc_test_tools::netns::skip;
use erpc_tests::incast::{Distant, DistantReport, LongPath};

/// Largest relative difference between reality and simulation.
const APART: f64 = 0.15;
/// Largest fraction of the time that other work may keep a loop from its core. Above it, the
/// measurement shows the machine's other load.
const AWAY: f64 = 0.005;
/// Largest fraction of the time in which a loop may have work. Above it, the core limits the
/// throughput.
const BUSY: f64 = 0.95;
/// Most measurements of a path.
const TRIES: usize = 4;
/// Time since the start of the test after which no further measurement starts.
const LONGEST: Duration = secs(25);
/// Number of undisturbed measurements with a wrong throughput after which the test fails. One is
/// not enough: a loop may lose its core for a time that is too short to be noticed, but too long
/// for round trips.
const WRONG: usize = 2;
/// Most time that kernel UDP adds to a round trip, as stated by its transport.
const HOST_DELAY: Duration = Duration::from_micros(200);

/// A path and its name.
struct Row {
    name: &'static str,
    mbps: u64,
    rtt: Duration,
    /// Bytes of a packet. Fast paths have large packets, because the router in user space is slow
    /// per packet.
    mtu: usize,
}

/// The paths, those with the shortest measurements first.
const ROWS: [Row; 4] = [
    Row { name: "200 Mb/s, 1 ms", mbps: 200, rtt: millis(1), mtu: 1_500 },
    Row { name: "1 Gb/s, 1 ms", mbps: 1_000, rtt: millis(1), mtu: 9_000 },
    Row { name: "200 Mb/s, 10 ms", mbps: 200, rtt: millis(10), mtu: 1_500 },
    Row { name: "1 Gb/s, 10 ms", mbps: 1_000, rtt: millis(10), mtu: 9_000 },
];

impl Row {
    /// Throughput of the path in simulation, in Gb/s, with a receive queue of the same capacity.
    fn simulated(&self, datagram: u64, receive_queue: u32) -> f64 {
        let path = Paths {
            knows_rate: false,
            memory: receive_queue.into(),
            charge: ChargeModel::LinuxUdp,
            datagram: datagram as usize,
            host_delay: HOST_DELAY,
            ..Paths::new(1, self.rtt, self.mbps, CongestionControl::default())
        };
        paths::run(&path).gbps
    }

    /// Measures the path until its throughput is that of the simulation.
    ///
    /// # Errors
    /// The reason why this machine allows no conclusion.
    fn confirm(&self, start: Instant) -> Result<(), String> {
        let net = LongPath::new(self.mbps, self.rtt, self.mtu)?;
        // As many round trips as in the simulation, but at least 500 ms of measurement.
        let distant = Distant { warm_up: self.rtt * 200, time: (self.rtt * 100).max(millis(500)) };
        let (mut simulated, mut wrong) = (None, 0);
        let mut reason = "no time is left for this path";
        for _ in 0..TRIES {
            if start.elapsed() > LONGEST {
                break;
            }
            let report = distant.run(&net);
            let simulated = *simulated
                .get_or_insert_with(|| self.simulated(net.datagram(), report.receive_queue));
            let said = format!(
                "{}: {:.3} Gb/s, simulated {simulated:.3}; {report:?}",
                self.name, report.gbps
            );
            eprintln!("{said}");
            if (report.gbps / simulated - 1.0).abs() <= APART {
                return Ok(());
            }
            reason = disturbance(&report).unwrap_or_else(|| {
                wrong += 1;
                assert!(wrong < WRONG, "{said}");
                "one measurement was wrong, because of other load or of the path"
            });
        }
        Err(reason.into())
    }
}

/// The disturbance of the measurement. `None` if there was none.
fn disturbance(report: &DistantReport) -> Option<&'static str> {
    if report.away > AWAY {
        return Some("other load uses the cores");
    }
    (report.busy > BUSY).then_some("a core is too slow for this path")
}

/// The paths are measured in sequence, because each needs the cores.
#[test]
fn long_paths_have_the_throughput_of_the_simulation() {
    let start = Instant::now();
    for row in &ROWS {
        if let Err(reason) = row.confirm(start) {
            let test = format!("long_paths_have_the_throughput_of_the_simulation, {}", row.name);
            skip(&test, &reason);
        }
    }
}
