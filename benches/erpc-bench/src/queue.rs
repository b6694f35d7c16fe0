//! `queue`: many clients send to one server through a slow port, over the kernel's UDP between
//! network namespaces.

use std::time::Duration;

use clap::Args;
use erpc_test_tools::statistics::quantile;
use erpc_tests::incast::{Bottleneck, Incast};

use crate::congestion::{Control, millis};
use crate::failure::Failure;
use crate::payload;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct QueueArgs {
    /// Rate of the port, in 10^6 bits per second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    rate_mbit: u64,
    /// Congestion control of the clients
    #[arg(long, value_enum, default_value = "swift")]
    cc: Control,
    /// Send through a router in user space that marks packets; always on for `dcqcn`
    #[arg(long)]
    marking: bool,
    /// Clients
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    ways: u32,
    /// Bytes of a request
    #[arg(long, default_value_t = 8 << 20, value_parser = payload::message)]
    size: usize,
    /// Warm-up before the measurement, in milliseconds
    #[arg(long, default_value = "500", value_parser = millis)]
    warm_up: Duration,
    /// Duration of the measurement, in milliseconds
    #[arg(long, default_value = "2000", value_parser = millis)]
    millis: Duration,
}

/// Queue length, in bytes, above which packets are marked, for DCQCN. At this length Timely sees
/// congestion, too.
const MARK_ABOVE: u64 = 75_000;

pub(crate) fn run(args: &QueueArgs) -> Result<(), Failure> {
    let is_marking = args.marking || args.cc == Control::Dcqcn;
    let net = match is_marking {
        true => Bottleneck::marking(args.rate_mbit, MARK_ABOVE),
        false => Bottleneck::new(args.rate_mbit),
    };
    let net = net.map_err(Failure::of("no network namespaces"))?;
    let incast = Incast {
        ways: args.ways as usize,
        request: args.size,
        warm_up: args.warm_up,
        time: args.millis,
        ..Incast::new(args.cc.config())
    };
    let report = incast.run(&net);
    let micros =
        |times: &[Duration], part| quantile(times, part).map(|time| time.as_secs_f64() * 1e6);
    let backlog = |part| quantile(&report.backlogs, part).map(|backlog| backlog as f64);
    Line::new()
        .int("ways", args.ways.into())
        .text("cc", args.cc.name())
        .int("marking", is_marking.into())
        .number("gbps", Some(report.gbps))
        .number("link_gbps", Some(report.link_gbps))
        .number("queue_delay_p50_us", micros(&report.delays, 0.5))
        .number("queue_delay_p99_us", micros(&report.delays, 0.99))
        .number("backlog_p50_bytes", backlog(0.5))
        .number("backlog_max_bytes", backlog(1.0))
        .number("rtt_p50_us", micros(&report.rtts, 0.5))
        .resent(&report.retransmissions)
        .int("drops", report.drops)
        .number("jain", Some(report.jain))
        .number("away", Some(report.away))
        .print();
    Ok(())
}
