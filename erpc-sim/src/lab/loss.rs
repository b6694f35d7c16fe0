//! How much of the bandwidth is left when packets are lost (thesis table 6.3).

use std::time::Duration;

use erpc_core::protocol::{CongestionControl, WINDOW};

use super::{Counts, Lab, Load, Setting, Spread};
use crate::{LoopPauses, SimRoute};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// The part of the packets that is lost, both ways, control packets included.
    pub rate: f64,
    /// Bytes of a request; the response has 32.
    pub request: usize,
    /// Calls under way, eight to a session.
    pub outstanding: usize,
    /// Who controls the rate.
    pub control: CongestionControl,
    /// How both loops are away.
    pub loop_pauses: Option<LoopPauses>,
    /// Time that is measured, after a tenth as much of warming up.
    pub time: Duration,
    /// Everything random comes from it.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Goodput {
    /// Bytes of requests that arrived in order, in bits per nanosecond.
    pub gbps: f64,
    /// Calls that ended, per second.
    pub calls_per_second: f64,
    /// What was counted, the warm-up included.
    pub counts: Counts,
}

/// Two hosts on a cable of 100 Gb/s, 2.5 us there and back.
#[must_use]
pub fn run(loss: &Loss) -> Goodput {
    let setting = Setting::pair(100, Duration::from_nanos(2_500), loss.seed).control(loss.control);
    let mut lab = Lab::new(Setting { loss: loss.rate, loop_pauses: loss.loop_pauses, ..setting });
    let (server, client) = (SimRoute::new(0, 1), SimRoute::new(1, 1));
    let load = Load {
        peers: vec![server; loss.outstanding.div_ceil(WINDOW)],
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
