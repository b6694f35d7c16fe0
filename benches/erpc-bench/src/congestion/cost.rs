//! `cpu --cc`: the CPU time that congestion control costs while there is no congestion.

use std::time::Duration;

use clap::ValueEnum;
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{CongestionControl, TimelyConfig};
use erpc::{EndpointConfig, Transport};
use erpc_core::protocol::measurement::Bypasses;

use super::pair::{Pair, answerer};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::report::Line;
use crate::service::Answerer;

/// Whether the measured endpoints use congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Controlled {
    /// With the default control (with `--slow`, Timely), on a link of 100 Gb/s
    On,
    /// Without control
    Off,
    /// Alternate between runs with and without control, and compare them
    Both,
}

/// Which shortcuts of congestion control are switched off, to measure what they save.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Without {
    /// All shortcuts are on
    None,
    /// Update the rate also after round trips without a queue
    Update,
    /// Pass packets through the pacing wheel also at the link's rate
    Wheel,
    /// Read the clock for every packet, not once per burst
    Timestamp,
    /// All three shortcuts are off
    All,
}

impl Without {
    fn bypasses(self) -> Bypasses {
        let left = |one| self != one && self != Self::All;
        Bypasses {
            update: left(Self::Update),
            wheel: left(Self::Wheel),
            timestamp: left(Self::Timestamp),
        }
    }
}

/// Parameters of the benchmark.
pub(crate) struct Cost {
    pub(crate) which: Controlled,
    pub(crate) without: Without,
    /// Bytes of each request, and of each answer.
    pub(crate) size: usize,
    pub(crate) sessions: usize,
    /// Calls in progress.
    pub(crate) outstanding: usize,
    /// Whether each call is made on a session chosen at random.
    pub(crate) random: bool,
    /// Settings of the ports of both ends.
    pub(crate) ports: MemConfig,
    pub(crate) time: Duration,
    /// For a slow environment such as valgrind: Timely takes no round trip below 1 s for
    /// congestion, and a timeout expires at least 500 ms after the round trip.
    pub(crate) slow: bool,
}

const LINK: u64 = 12_500_000_000;
/// Runs with and without control alternate. Each lasts this long, which is shorter than the periods
/// in which the machine's speed changes.
const TURN: Duration = Duration::from_millis(20);
const WARMUP: Duration = Duration::from_millis(200);

type EndpointPair = Pair<MemTransport, MemTransport, Answerer>;

fn connect(cost: &Cost, config: &EndpointConfig) -> Result<EndpointPair, Failure> {
    let hub = MemHub::new();
    let (client, serving) = (hub.port(cost.ports), hub.port(cost.ports));
    let peer = serving.local_route();
    let mut load = Load::new(cost.size, cost.size)?;
    if cost.random {
        load.choose_sessions();
    }
    let width = (cost.sessions, cost.outstanding);
    let mut ends =
        Pair::connect_sessions((client, serving), peer, config, answerer()?, load, width)?;
    ends.run(WARMUP)?;
    Ok(ends)
}

/// Makes calls for [`TURN`]. Returns the CPU time per call, in ns. Adds the number of calls to
/// `rpcs`.
fn slice(ends: &mut EndpointPair, rpcs: &mut u64) -> Result<f64, Failure> {
    let before = machine::cpu_time();
    let (calls, _) = ends.run(TURN)?;
    *rpcs += calls;
    Ok((machine::cpu_time() - before).as_nanos() as f64 / calls as f64)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Runs the benchmark and prints one line.
pub(crate) fn run(cost: &Cost) -> Result<(), Failure> {
    let (control, new) = match cost.slow {
        false => (CongestionControl::default(), EndpointConfig::new()),
        // A tool such as valgrind makes all round trips long. They must not count as congestion.
        true => (
            CongestionControl::Timely(TimelyConfig::new().low(Duration::from_secs(1))),
            EndpointConfig::new().min_rto(Duration::from_millis(500)),
        ),
    };
    let on = new.clone().congestion(control).link_rate(LINK);
    let on = cost.without.bypasses().applied_to(on);
    let off = new.congestion(CongestionControl::None);
    let mut on = if cost.which == Controlled::Off { None } else { Some(connect(cost, &on)?) };
    let mut off = if cost.which == Controlled::On { None } else { Some(connect(cost, &off)?) };
    let (mut with, mut without, mut more, mut rpcs) = (vec![], vec![], vec![], 0);
    let turns = if cost.which == Controlled::Both { 2 } else { 1 };
    let rounds = cost.time.as_secs_f64() / TURN.as_secs_f64() / f64::from(turns);
    for _ in 0..rounds.ceil().max(1.0) as u64 {
        let one = on.as_mut().map(|ends| slice(ends, &mut rpcs)).transpose()?;
        let other = off.as_mut().map(|ends| slice(ends, &mut rpcs)).transpose()?;
        more.extend(one.zip(other).map(|(one, other)| one / other - 1.0));
        with.extend(one);
        without.extend(other);
    }
    let name = |text: Option<clap::builder::PossibleValue>| {
        text.map_or_else(String::new, |value| value.get_name().to_owned())
    };
    let (on, off) = (median(with), median(without));
    Line::new()
        .text("cc", &name(cost.which.to_possible_value()))
        .text("without", &name(cost.without.to_possible_value()))
        .int("size", cost.size as u64)
        .int("sessions", cost.sessions as u64)
        .int("outstanding", cost.outstanding as u64)
        .int("random", cost.random.into())
        .int("rpcs", rpcs)
        .number("ns_per_rpc", on.xor(off))
        .number("on_ns_per_rpc", on)
        .number("off_ns_per_rpc", off)
        .number("overhead", median(more))
        .print();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_switches_off_only_its_own_shortcut() {
        assert_eq!(Without::None.bypasses(), Bypasses::ALL);
        assert_eq!(Without::All.bypasses(), Bypasses::NONE);
        assert_eq!(Without::Wheel.bypasses(), Bypasses { wheel: false, ..Bypasses::ALL });
        assert_eq!(Without::Update.bypasses(), Bypasses { update: false, ..Bypasses::ALL });
        assert_eq!(Without::Timestamp.bypasses(), Bypasses { timestamp: false, ..Bypasses::ALL });
    }
}
