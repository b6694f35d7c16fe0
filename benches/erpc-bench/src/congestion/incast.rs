//! `incast`: many clients send large requests to one server, in simulation (thesis table 6.4).

use std::time::Duration;

use clap::Args;
use erpc_sim::lab::incast::{Incast, IncastReport, Moment, run};

use super::{Control, millis};
use crate::failure::Failure;
use crate::payload;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct IncastArgs {
    /// Clients
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    ways: u32,
    /// Congestion control of all endpoints
    #[arg(long, value_enum, default_value = "swift")]
    cc: Control,
    /// Bytes of a request
    #[arg(long, default_value_t = 8 << 20, value_parser = payload::message)]
    size: usize,
    /// Reverse the direction: the server calls the clients, and their responses are large
    #[arg(long)]
    pull: bool,
    /// Packets that a session may have in flight
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    credits: u16,
    /// Add background calls: 64 kB each way among the clients' hosts, 32 bytes each way from the
    /// server's host to a client's host
    #[arg(long)]
    background: bool,
    /// Warm-up before the measurement, in milliseconds
    #[arg(long, default_value = "50", value_parser = millis)]
    warm_up: Duration,
    /// Duration of the measurement, in milliseconds
    #[arg(long, default_value = "100", value_parser = millis)]
    millis: Duration,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// First print the queue and the rates over time: a line per interval of this many milliseconds
    #[arg(long, value_parser = millis)]
    trace: Option<Duration>,
}

impl IncastArgs {
    fn incast(&self) -> Incast {
        Incast {
            request: self.size,
            pulls: self.pull,
            credits: self.credits,
            background: self.background,
            warm_up: self.warm_up,
            time: self.millis,
            seed: self.seed,
            ..Incast::new(self.ways, self.cc.config())
        }
    }
}

pub(crate) fn incast(args: &IncastArgs) -> Result<(), Failure> {
    let mut report = run(&args.incast());
    if let Some(every) = args.trace {
        trace(args, &report, every);
    }
    let [p50, p99] = [0.5, 0.99].map(|quantile| report.rtts.micros(quantile));
    let mut queues: Vec<u64> = report.moments.iter().map(|moment| moment.queue).collect();
    queues.sort_unstable();
    let mut line = Line::new()
        .int("ways", args.ways.into())
        .text("cc", args.cc.name())
        .number("gbps", Some(report.gbps))
        .number("achievable_gbps", Some(report.achievable_gbps))
        .number("rtt_p50_us", p50)
        .number("rtt_p99_us", p99)
        .int("drops", report.counts.drops + report.counts.host_drops)
        .number("jain", Some(report.jain))
        .int("marks", report.counts.marks)
        .resent(&report.counts.retransmissions)
        .int("queue_p50", queues[queues.len() / 2])
        .int("queue_max", report.counts.peak_queue);
    if args.background {
        let [p50, p99] = [0.5, 0.99].map(|quantile| report.background.micros(quantile));
        line = line
            .int("background_calls", report.background.len() as u64)
            .number("background_p50_us", p50)
            .number("background_p99_us", p99)
            .number("beside_p50_us", report.beside.micros(0.5))
            .number("beside_p99_us", report.beside.micros(0.99));
    }
    line.print();
    Ok(())
}

/// Prints a line per interval of length `every`: means of the queue and of the rates.
fn trace(args: &IncastArgs, report: &IncastReport, every: Duration) {
    // An interval includes its end, because the run's last sample is taken at the end of the last
    // interval.
    let slice = |at: Duration| at.as_nanos().saturating_sub(1) / every.as_nanos();
    for moments in report.moments.chunk_by(|a, b| slice(a.at) == slice(b.at)) {
        let count = moments.len() as f64;
        let mean = |value: fn(&Moment) -> f64| Some(moments.iter().map(value).sum::<f64>() / count);
        Line::new()
            .int("ways", args.ways.into())
            .text("cc", args.cc.name())
            .number("at_ms", Some(slice(moments[0].at) as f64 * every.as_secs_f64() * 1e3))
            .number("queue_bytes", mean(|moment| moment.queue as f64))
            .number("gbps", mean(|moment| moment.gbps))
            .number("first_gbps", mean(|moment| moment.rate))
            .number("sum_gbps", mean(|moment| moment.rates))
            .print();
    }
}
