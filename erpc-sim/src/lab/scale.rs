//! All threads of a cluster call each other (Kalia's thesis, section 6.5.3, figure 6.4).

use std::time::Duration;

use erpc_core::protocol::CongestionControl;

use super::{Counts, Lab, Load, Samples, Setting, Spread};
use crate::net::{Link, SwitchConfig, Topology};
use crate::{Random, SimRoute};

/// Racks, and hosts per rack: the thesis' CX4 cluster, whose racks have 14 to 27 hosts.
const RACKS: (u32, u32) = (5, 20);
/// The rate of all host cables of a rack, divided by the rate of the rack's cable to the spine.
const OVERSUBSCRIPTION: u32 = 2;
/// With this cable, a call within a rack takes 3.7 us, including the hosts' time, as in table 6.1
/// of the thesis.
const CABLE: Link = Link { rate_mbps: 25_000, delay_nanos: 750 };
/// Each endpoint starts at a random time. These times are spread over this many ns per session that
/// a node opens. If all endpoints started together, handshakes would overflow the switches, and
/// calls would wait until lost handshakes are retransmitted.
const OPENING_NANOS: u64 = 500;
/// Bytes of requests and responses.
const SIZE: usize = 32;

/// Parameters of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Threads on each of the 100 nodes. Each thread is an endpoint with a session to every other
    /// thread.
    pub threads: u16,
    /// Calls in progress per thread, each to a random other thread.
    pub outstanding: usize,
    /// Congestion control of all endpoints.
    pub control: CongestionControl,
    /// Floor of the RTO; `None` for the lab's default. The thesis' RTO is 5 ms.
    pub min_rto: Option<Duration>,
    /// Time of a turn of a loop, and of each packet received in it, in ns.
    pub turn_nanos: (u64, u64),
    /// Warm-up after all sessions are open.
    pub warm_up: Duration,
    /// Measured time.
    pub time: Duration,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Scale {
    /// The thesis' experiment: 60 calls per thread, and 100 ns per packet, so that a thread's
    /// packet rate is the thesis'.
    #[must_use]
    pub fn new(threads: u16, control: CongestionControl) -> Self {
        Self {
            threads,
            outstanding: 60,
            control,
            min_rto: None,
            turn_nanos: (50, 100),
            warm_up: Duration::from_millis(4),
            time: Duration::from_millis(5),
            seed: 1,
        }
    }
}

/// Results of the experiment.
#[derive(Debug)]
pub struct ScaleReport {
    /// Latencies of the calls that ended in the measured time.
    pub latencies: Samples,
    /// Calls per second and node.
    pub calls_per_second: f64,
    /// Retransmissions per second and node.
    pub retransmissions_per_second: f64,
    /// Sessions that each node opened.
    pub sessions: usize,
    /// Counters, including the warm-up.
    pub counts: Counts,
}

/// Runs the experiment.
///
/// # Panics
/// If `scale.threads` is 0.
#[must_use]
pub fn run(scale: &Scale) -> ScaleReport {
    let (racks, hosts) = RACKS;
    let switch = SwitchConfig::default();
    let topology = Topology::two_tier(racks, hosts, OVERSUBSCRIPTION, CABLE, switch);
    let nodes = topology.hosts();
    let mut setting = Setting::new(topology, scale.seed).control(scale.control);
    if let Some(floor) = scale.min_rto {
        setting.config = setting.config.min_rto(floor);
    }
    let mut lab = Lab::new(Setting { turn_nanos: scale.turn_nanos, meters: false, ..setting });
    let routes: Vec<_> = (0..nodes)
        .flat_map(|host| (1..=scale.threads).map(move |port| SimRoute::new(host, port)))
        .collect();
    let sessions = usize::from(scale.threads) * (routes.len() - 1);
    let opening = sessions as u64 * OPENING_NANOS;
    let mut random = Random::new(scale.seed).fork(3);
    for &route in &routes {
        let load = Load {
            peers: routes.iter().copied().filter(|&peer| peer != route).collect(),
            spread: Spread::Random,
            request: SIZE,
            response: SIZE as u32,
            outstanding: scale.outstanding,
            start: Duration::from_nanos(random.below(opening)),
        };
        lab.add(route, load);
    }
    lab.run_for(Duration::from_nanos(opening) + scale.warm_up);
    lab.clear();
    let before = lab.counts();
    lab.run_for(scale.time);
    let counts = lab.counts();
    let latencies = lab.latencies(0..routes.len());
    let seconds = scale.time.as_secs_f64();
    let per_node = |count: u64| count as f64 / seconds / f64::from(nodes);
    ScaleReport {
        calls_per_second: per_node(latencies.len() as u64),
        retransmissions_per_second: per_node(
            (counts.retransmissions - before.retransmissions).packets(),
        ),
        sessions,
        latencies,
        counts,
    }
}
