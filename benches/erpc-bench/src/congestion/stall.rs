//! `stall`: how soon a session is as fast as before after one end's loop stood still.

use std::time::{Duration, Instant};

use clap::Args;
use erpc::transport::mem::{MemConfig, MemHub};
use erpc::{EndpointConfig, Transport};

use super::pair::{Pair, answerer};
use super::{Control, millis};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::payload;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct StallArgs {
    /// Bytes of a request; answers have 32
    #[arg(long, default_value_t = 1_000_000)]
    size: usize,
    /// Calls under way
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    outstanding: u32,
    /// Who controls the rate
    #[arg(long, value_enum, default_value = "timely")]
    cc: Control,
    /// What sessions take for their link, in Gb/s
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    gbps: u64,
    /// How long the server's loop stands still, in milliseconds
    #[arg(long, default_value = "50", value_parser = millis)]
    stall: Duration,
    /// How often; figures are medians
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// The throughput before the stall is measured for so long.
const BEFORE: Duration = Duration::from_millis(50);
/// And after it.
const AFTER: Duration = Duration::from_millis(50);
/// The window: what is transferred in so long after the stall.
const SOON: Duration = Duration::from_millis(10);
/// Throughput is back when so much of it was there during [`SLICE`].
const BACK: f64 = 0.9;
const SLICE: Duration = Duration::from_millis(2);

/// When how many requests had come.
type Log = Vec<(Instant, u64)>;

/// Requests that came within `from..from + time`, per second. The log has an entry for each.
fn rate(log: &Log, from: Instant, time: Duration) -> f64 {
    let count = |at: Instant| log.partition_point(|(came, _)| *came < at);
    let came = |index: usize| index.checked_sub(1).map_or(0, |last| log[last].1);
    (came(count(from + time)) - came(count(from))) as f64 / time.as_secs_f64()
}

struct Round {
    before: f64,
    ratio: f64,
    recovery: Option<Duration>,
}

pub(crate) fn stall(args: &StallArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let hub = MemHub::new();
    let (client, serving) = (hub.port(MemConfig::default()), hub.port(MemConfig::default()));
    let peer = serving.local_route();
    let config =
        EndpointConfig::new().congestion(args.cc.config()).link_rate(args.gbps * 125_000_000);
    let load = Load::new(args.size, payload::SINK_ANSWER)?;
    let outstanding = args.outstanding as usize;
    let mut pair = Pair::connect((client, serving), peer, &config, answerer()?, load, outstanding)?;
    pair.run(BEFORE)?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        rounds.push(round(args, &mut pair)?);
    }
    let median = |value: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let stats = pair.client.stats().protocol;
    let ratio = median(|round| round.ratio);
    let recovery = median(|round| {
        round.recovery.map_or(f64::INFINITY, |recovery| recovery.as_secs_f64() * 1e3)
    });
    let gbps = median(|round| round.before) * args.size as f64 * 8e-9;
    eprintln!(
        "{gbps:.1} Gb/s before, {ratio:.3} of it in the 10 ms after, back after {recovery} ms"
    );
    Line::new()
        .text("cc", args.cc.name())
        .int("size", args.size as u64)
        .number("gbps_before", Some(gbps))
        .number("recovery_ms", Some(recovery))
        .number("ratio_after_10ms", Some(ratio))
        .int("retx", stats.retransmissions)
        .int("timeouts", stats.timeouts)
        .print();
    Ok(())
}

/// Runs, stalls, runs on.
fn round<C: Transport, S: Transport>(
    args: &StallArgs,
    pair: &mut Pair<C, S, crate::service::Answerer>,
) -> Result<Round, Failure> {
    let start = Instant::now();
    let (stops, goes_on) = (start + BEFORE, start + BEFORE + args.stall);
    let mut log = Log::new();
    pair.run_while(BEFORE + args.stall + AFTER, |server| {
        let (now, requests) = (Instant::now(), server.stats().protocol.requests);
        if log.last().is_none_or(|(_, last)| *last < requests) {
            log.push((now, requests));
        }
        now < stops || now >= goes_on
    })?;
    let first = log.first().map_or(0, |(_, count)| *count);
    log.iter_mut().for_each(|(_, count)| *count -= first);
    // The first calls of a round fill the pipe.
    let before = rate(&log, start + BEFORE / 5, BEFORE * 4 / 5);
    let mut slices =
        (0..(AFTER - SLICE).as_micros() as u64 / 100).map(|step| Duration::from_micros(step * 100));
    Ok(Round {
        before,
        ratio: rate(&log, goes_on, SOON) / before,
        recovery: slices.find(|&from| rate(&log, goes_on + from, SLICE) >= BACK * before),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_what_came_within() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let log: Log = (1..=100).map(|count| (at(count * 10), count)).collect();
        assert_eq!(rate(&log, at(0), Duration::from_micros(1_000)), 99.0 / 1e-3);
        assert_eq!(rate(&log, at(205), Duration::from_micros(100)), 10.0 / 1e-4);
        assert_eq!(rate(&log, at(2_000), Duration::from_micros(100)), 0.0);
    }
}
