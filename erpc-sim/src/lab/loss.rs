//! The goodput under packet loss (Kalia's thesis, table 6.3).

use std::time::Duration;

use erpc_core::protocol::{CongestionControl, DEFAULT_SLOTS};

use super::{Counts, Lab, Load, Setting, Spread};
use crate::{LoopPauses, SimRoute};

/// Parameters of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// The fraction of packets lost in both directions, control packets included.
    pub rate: f64,
    /// Bytes of a request; the response has 32.
    pub request: usize,
    /// Calls in progress, at most eight per session.
    pub outstanding: usize,
    /// Congestion control of both endpoints.
    pub control: CongestionControl,
    /// Pauses of both loops.
    pub loop_pauses: Option<LoopPauses>,
    /// Measured time, after a warm-up of a tenth of it.
    pub time: Duration,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Results of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Goodput {
    /// Goodput: bytes of requests that arrived in order, in Gb/s.
    pub gbps: f64,
    /// Completed calls per second.
    pub calls_per_second: f64,
    /// Counters, including the warm-up.
    pub counts: Counts,
}

/// Runs the experiment with two hosts on a cable of 100 Gb/s and a round trip of 2.5 us.
#[must_use]
pub fn run(loss: &Loss) -> Goodput {
    let setting = Setting::pair(100, Duration::from_nanos(2_500), loss.seed).control(loss.control);
    let mut lab = Lab::new(Setting { loss: loss.rate, loop_pauses: loss.loop_pauses, ..setting });
    let (server, client) = (SimRoute::new(0, 1), SimRoute::new(1, 1));
    let load = Load {
        peers: vec![server; loss.outstanding.div_ceil(DEFAULT_SLOTS)],
        spread: Spread::Even,
        request: loss.request,
        response: 32,
        outstanding: loss.outstanding,
        start: Duration::ZERO,
    };
    lab.add(server, Load { peers: Vec::new(), outstanding: 0, ..load.clone() });
    let client = lab.add(client, load);
    lab.run_for(loss.time / 10);
    lab.clear();
    lab.run_for(loss.time);
    let nanos = loss.time.as_nanos() as f64;
    Goodput {
        gbps: lab.meter().delivered(client) as f64 * 8.0 / nanos,
        calls_per_second: lab.calls(client) as f64 * 1e9 / nanos,
        counts: lab.counts(),
    }
}
