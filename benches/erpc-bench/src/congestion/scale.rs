//! `scale`: 100 nodes in two tiers, all threads call each other, in simulation (thesis figure 6.4).

use std::time::Duration;

use clap::Args;
use erpc_sim::lab::scale::{Scale, run};

use super::{Control, millis};
use crate::failure::Failure;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct ScaleArgs {
    /// Threads per node, each with a session to every other thread of the cluster
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=14))]
    threads: u16,
    /// Calls in progress per thread
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    outstanding: u32,
    /// Congestion control of all endpoints
    #[arg(long, value_enum, default_value = "swift")]
    cc: Control,
    /// Minimum margin of the retransmission timeout above the round trip, in microseconds [default:
    /// 50]. The thesis' timeout is 5000
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    min_rto_us: Option<u32>,
    /// Time that an endpoint's loop takes per received packet, in nanoseconds
    #[arg(long, default_value_t = 100)]
    packet_ns: u64,
    /// Measured milliseconds
    #[arg(long, default_value = "5", value_parser = millis)]
    millis: Duration,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn scale(args: &ScaleArgs) -> Result<(), Failure> {
    let scale = Scale::new(args.threads, args.cc.config());
    let turn_nanos = (scale.turn_nanos.0, args.packet_ns);
    let outstanding = args.outstanding as usize;
    let min_rto = args.min_rto_us.map(|us| Duration::from_micros(us.into()));
    let mut report = run(&Scale {
        outstanding,
        min_rto,
        turn_nanos,
        time: args.millis,
        seed: args.seed,
        ..scale
    });
    let [p50, p99, p9999] = [0.5, 0.99, 0.9999].map(|quantile| report.latencies.micros(quantile));
    Line::new()
        .int("threads", args.threads.into())
        .text("cc", args.cc.name())
        .int("sessions_per_node", report.sessions as u64)
        .number("mrps_per_node", Some(report.calls_per_second / 1e6))
        .number("p50_us", p50)
        .number("p99_us", p99)
        .number("p9999_us", p9999)
        .number("retx_per_s_per_node", Some(report.retransmissions_per_second))
        .int("drops", report.counts.drops + report.counts.host_drops)
        .print();
    Ok(())
}
