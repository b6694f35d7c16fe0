//! Long paths carry in reality what they carry in simulation: a client and a server over the kernel's UDP, in two network
//! namespaces with a slow and long cable between them, and the same endpoints in the simulated network.
//!
//! A program of its own, so that no other test needs the cores meanwhile. Takes root and iproute2; where they are
//! missing, or the cores are busy all the same, it says so and does nothing else, unless `ERPC_REQUIRE_NAMESPACES` is set.

use std::time::{Duration, Instant};

use erpc::CongestionControl;
use erpc::transport::ChargeModel;
use erpc_sim::lab::paths::{self, Paths};
use erpc_test_tools::limit::{millis, secs};
use erpc_test_tools::netns::skip;
use erpc_tests::incast::{Distant, DistantReport, LongPath};

/// How far the two may be apart.
const APART: f64 = 0.15;
/// A loop that is away from its core for longer measures others, and one that always has something to do measures itself.
const AWAY: f64 = 0.005;
const BUSY: f64 = 0.95;
/// How often a path is measured until it carries what it should, and after what time no more.
const TRIES: usize = 4;
const LONGEST: Duration = secs(25);
/// So often it must carry less, or more, while nothing disturbs it, to be wrong: loops lose their cores for moments that are too
/// short to be noticed, and too long for round trips.
const WRONG: usize = 2;
/// What kernel UDP adds to a round trip at most, as its transport says.
const HOST_DELAY: Duration = Duration::from_micros(200);

/// A path, and what it is called.
struct Row {
    name: &'static str,
    mbps: u64,
    rtt: Duration,
    /// Bytes of a packet. A router in user space keeps up with few packets.
    mtu: usize,
}

/// The quick ones first.
const ROWS: [Row; 4] = [
    Row { name: "200 Mb/s, 1 ms", mbps: 200, rtt: millis(1), mtu: 1_500 },
    Row { name: "1 Gb/s, 1 ms", mbps: 1_000, rtt: millis(1), mtu: 9_000 },
    Row { name: "200 Mb/s, 10 ms", mbps: 200, rtt: millis(10), mtu: 1_500 },
    Row { name: "1 Gb/s, 10 ms", mbps: 1_000, rtt: millis(10), mtu: 9_000 },
];

impl Row {
    /// What the path carries in simulation, in Gb/s, with as much memory for what is received.
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

    /// # Errors
    /// Why it says nothing here.
    fn confirm(&self, start: Instant) -> Result<(), String> {
        let net = LongPath::new(self.mbps, self.rtt, self.mtu)?;
        // As in simulation, but long enough for a look at the clock now and then.
        let distant = Distant { warm_up: self.rtt * 200, time: (self.rtt * 100).max(millis(500)) };
        let (mut simulated, mut wrong) = (None, 0);
        let mut reason = "there was no time left for it";
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
                "something else needed the cores, or the path is wrong: it was measured once"
            });
        }
        Err(reason.into())
    }
}

/// What disturbed the measurement, if anything did.
fn disturbance(report: &DistantReport) -> Option<&'static str> {
    if report.away > AWAY {
        return Some("something else needs the cores");
    }
    (report.busy > BUSY).then_some("a core is too slow for it")
}

/// One after the other, for each needs the cores.
#[test]
fn long_paths_carry_what_they_carry_in_simulation() {
    let start = Instant::now();
    for row in &ROWS {
        if let Err(reason) = row.confirm(start) {
            let test = format!("long_paths_carry_what_they_carry_in_simulation, {}", row.name);
            skip(&test, &reason);
        }
    }
}
