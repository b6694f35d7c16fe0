//! `paths`: one client or many share a path of any length and rate, in simulation.

use std::time::Duration;

use clap::Args;
use erpc_sim::lab::paths::{Paths, run};

use super::{Control, millis};
use crate::failure::Failure;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct PathsArgs {
    /// Round trip through empty queues, in us; with several values, clients use them in turn
    #[arg(long, required = true, value_delimiter = ',', value_parser = micros)]
    rtt_us: Vec<Duration>,
    /// Rate of all cables, in Gb/s
    #[arg(long, value_parser = mbps)]
    gbps: Mbps,
    /// Clients, each on a host of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    flows: u32,
    /// Congestion control of all endpoints
    #[arg(long, value_enum, default_value = "swift")]
    cc: Control,
    /// Do not tell endpoints the rate of their cable
    #[arg(long)]
    unknown_rate: bool,
    /// Stall a random host every 50 ms, for at most this many milliseconds and at least a fifth of
    /// them
    #[arg(long, value_parser = millis)]
    absence_ms: Option<Duration>,
    /// Largest delay that the hosts add to a round trip, in us: 5 as over memory, 200 as over UDP
    #[arg(long, default_value = "5", value_parser = micros)]
    host_us: Duration,
    /// Capacity of the receive queues, in MiB
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    memory_mib: u64,
    /// Packets that a session may have in flight at first
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    credits: u16,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A rate, in Mb/s.
#[derive(Clone, Copy)]
struct Mbps(u64);

/// Parses a number of Gb/s.
fn mbps(text: &str) -> Result<Mbps, String> {
    match text.parse::<f64>() {
        Ok(gbps) if (0.01..=400.0).contains(&gbps) => Ok(Mbps((gbps * 1e3).round() as u64)),
        _ => Err("a number of Gb/s, 0.01 to 400, is wanted".into()),
    }
}

/// Parses a number of microseconds.
fn micros(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(micros) if (1.0..=200_000.0).contains(&micros) => {
            Ok(Duration::from_secs_f64(micros / 1e6))
        }
        _ => Err("a number of microseconds, 1 to 200000, is wanted".into()),
    }
}

pub(crate) fn paths(args: &PathsArgs) -> Result<(), Failure> {
    let rtts = args.rtt_us.iter().copied().cycle().take(args.flows as usize).collect();
    let mut report = run(&Paths {
        rtts,
        knows_rate: !args.unknown_rate,
        credits: args.credits,
        memory: args.memory_mib << 20,
        absence: args.absence_ms,
        host_delay: args.host_us,
        seed: args.seed,
        ..Paths::new(0, Duration::ZERO, args.gbps.0, args.cc.config())
    });
    let [p50, p99] = [0.5, 0.99].map(|quantile| report.queue.micros(quantile));
    let micros: Vec<String> =
        args.rtt_us.iter().map(|rtt| (rtt.as_nanos() as f64 / 1e3).to_string()).collect();
    Line::new()
        .text("rtt_us", &micros.join(","))
        .number("link_gbps", Some(args.gbps.0 as f64 / 1e3))
        .int("flows", args.flows.into())
        .text("cc", args.cc.name())
        .int("unknown_rate", args.unknown_rate.into())
        .number("gbps", Some(report.gbps))
        .number("achievable_gbps", Some(report.achievable_gbps))
        .number("ratio", Some(report.gbps / report.achievable_gbps))
        .number("jain", Some(report.jain))
        .number("queue_p50_us", p50)
        .number("queue_p99_us", p99)
        .int("drops", report.counts.drops + report.counts.host_drops)
        .resent(&report.counts.retransmissions)
        .print();
    Ok(())
}
