//! `stall`: how soon a session reaches its old throughput after the loop of one end or both stalls.
//!
//! One thread runs the loops of both ends and never sleeps. Its CPU time is therefore the elapsed
//! time minus the time in which other processes used its core, and rates are per second of CPU
//! time. Throughput is counted in packets that the server received and did not drop: too few calls
//! of megabytes end within milliseconds to measure a rate.
//!
//! Caches go cold during any stall. For comparison, the benchmark also copies messages of the same
//! sizes without a protocol, before and after a silence of the same length.

use std::hint;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use erpc::raw::Rpc;
use erpc::transport::mem::{MemConfig, MemHub};
use erpc::{EndpointConfig, Transport};

use super::pair::{Pair, answerer};
use super::{Carrier, Control, millis, socket};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::payload;
use crate::report::Line;
use crate::service::Answerer;

/// The end whose loop stalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum End {
    Server,
    Client,
    Both,
}

#[derive(Args)]
pub(crate) struct StallArgs {
    /// Bytes of a request; responses have 32
    #[arg(long, default_value_t = 1_000_000, value_parser = payload::message)]
    size: usize,
    /// Calls in progress
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    outstanding: u32,
    /// Transport
    #[arg(long, value_enum, default_value = "mem")]
    transport: Carrier,
    /// Congestion control of both endpoints
    #[arg(long, value_enum, default_value = "swift")]
    cc: Control,
    /// Link rate that sessions assume, in Gb/s
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    gbps: u64,
    /// Length of the stall, in milliseconds
    #[arg(long, default_value = "50", value_parser = millis)]
    stall: Duration,
    /// End whose loop stalls
    #[arg(long, value_enum, default_value = "server")]
    end: End,
    /// Rounds; results are their medians
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Time before the stall. The first fifth is warm-up.
const BEFORE: Duration = Duration::from_millis(50);
/// Time after the stall.
const AFTER: Duration = Duration::from_millis(100);
/// Length of the period after the stall whose throughput is compared with that before the stall.
const SOON: Duration = Duration::from_millis(10);
/// The session has recovered when it reaches this fraction of its old throughput during [`SLICE`].
const BACK: f64 = 0.9;
const SLICE: Duration = Duration::from_millis(2);
/// Interval between two readings of the counters.
const STEP: Duration = Duration::from_micros(20);

/// What the server had received when this process had used `at` of CPU time.
#[derive(Clone, Copy)]
struct Reading {
    at: Duration,
    packets: u64,
    requests: u64,
}

impl Reading {
    fn of<S: Transport>(server: &mut Rpc<S>) -> Self {
        let stats = server.stats().protocol;
        Self { at: machine::cpu_time(), packets: stats.rx_delivered, requests: stats.requests }
    }

    fn seconds_since(&self, earlier: &Self) -> f64 {
        (self.at - earlier.at).as_secs_f64()
    }

    /// Packets per second since `earlier`.
    fn rate_since(&self, earlier: &Self) -> f64 {
        (self.packets - earlier.packets) as f64 / self.seconds_since(earlier)
    }
}

/// Packets per second between two readings: the first one at `from` or later, and the first one at
/// `from + time` or later. If none is so late, the last of `readings` takes the place of the
/// second. `from` counts from the first of `readings`. `None` if these are not two different
/// readings.
fn rate(readings: &[Reading], from: Duration, time: Duration) -> Option<f64> {
    let after = |time| readings.partition_point(|reading| reading.at - readings[0].at < time);
    let (first, last) = (after(from), after(from + time).min(readings.len().checked_sub(1)?));
    (first < last).then(|| readings[last].rate_since(&readings[first]))
}

struct Round {
    gbps: f64,
    ratio: f64,
    recovery: Option<Duration>,
}

type EndpointPair<T> = Pair<T, T, Answerer>;

pub(crate) fn stall(args: &StallArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    match args.transport {
        Carrier::Mem => {
            let hub = MemHub::new();
            measure(args, hub.port(MemConfig::default()), hub.port(MemConfig::default()))
        }
        Carrier::Udp => measure(args, socket()?, socket()?),
    }
}

fn measure<T: Transport>(args: &StallArgs, client: T, serving: T) -> Result<(), Failure> {
    let peer = serving.local_route();
    let config =
        EndpointConfig::new().congestion(args.cc.config()).link_rate(args.gbps * 125_000_000);
    let load = Load::new(args.size, payload::SINK_ANSWER)?;
    let outstanding = args.outstanding as usize;
    let mut pair =
        EndpointPair::connect((client, serving), peer, &config, answerer()?, load, outstanding)?;
    pair.run(BEFORE)?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        rounds.push(round(args, &mut pair)?);
    }
    let stats = pair.client.stats().protocol;
    drop(pair);
    let mut copies = Copies::new(args);
    let copies = (0..args.rounds).filter_map(|_| copies.ratio(args.stall));
    let copies = median(copies.collect());
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let (gbps, ratio) = (of(|round| round.gbps), of(|round| round.ratio));
    let recovery =
        of(|round| round.recovery.map_or(f64::INFINITY, |recovery| recovery.as_secs_f64() * 1e3));
    eprintln!(
        "{gbps:.1} Gb/s before, {ratio:.3} of it in the 10 ms after (plain copies: {copies:.3}), back after {recovery} ms"
    );
    Line::new()
        .text("transport", args.transport.name())
        .text("cc", args.cc.name())
        .int("size", args.size as u64)
        .number("gbps_before", Some(gbps))
        .number("recovery_ms", Some(recovery))
        .number("ratio_after_10ms", Some(ratio))
        .number("copies_ratio_after_10ms", Some(copies))
        .resent(&stats.retransmissions)
        .print();
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs one round: calls, a stall, and calls again.
fn round<T: Transport>(args: &StallArgs, pair: &mut EndpointPair<T>) -> Result<Round, Failure> {
    let Pair { client, server, answerer, load, .. } = pair;
    let start = Instant::now();
    let (stops, goes_on) = (start + BEFORE, start + BEFORE + args.stall);
    let (mut before, mut after, mut next) = (Vec::new(), Vec::new(), start + BEFORE / 5);
    load.run(client, args.outstanding as usize, BEFORE + args.stall + AFTER, || {
        let now = Instant::now();
        if stops <= now && now < goes_on {
            match args.end {
                // The server's loop does not run. The client's loop runs, and calls this closure
                // again.
                End::Server => return,
                End::Client => {
                    while Instant::now() < goes_on {
                        server.run_once(answerer);
                    }
                }
                End::Both => {
                    while Instant::now() < goes_on {
                        hint::spin_loop();
                    }
                }
            }
        }
        if now >= next {
            next = now + STEP;
            let readings = if now < stops { &mut before } else { &mut after };
            readings.push(Reading::of(server));
        }
        server.run_once(answerer);
    })?;
    let (Some(first), Some(last)) = (before.first(), before.last()) else {
        return Err(Failure::new(
            "other processes used the core during the whole time before the stall",
        ));
    };
    let usual = last.rate_since(first);
    let bits = (last.requests - first.requests) as f64 * args.size as f64 * 8.0;
    let ratio = |from, time| rate(&after, from, time).map(|rate| rate / usual);
    let mut slices = (0..).map(|step| step * 5 * STEP);
    let back = slices.find(|&from| ratio(from, SLICE).is_none_or(|ratio| ratio >= BACK));
    Ok(Round {
        gbps: bits / last.seconds_since(first) * 1e-9,
        ratio: ratio(Duration::ZERO, SOON).unwrap_or(0.0),
        recovery: back.filter(|&from| ratio(from, SLICE).is_some()),
    })
}

/// Copies as many messages as there are calls in progress, as a memory transport does: into a ring
/// and out of the ring.
struct Copies {
    from: Vec<Vec<u8>>,
    ring: Vec<u8>,
    to: Vec<Vec<u8>>,
    turns: usize,
}

impl Copies {
    /// Bytes copied at a time: the payload of a burst of 32 packets of the memory transport.
    const RUN: usize = 128 << 10;

    fn new(args: &StallArgs) -> Self {
        let messages = || vec![vec![1; args.size]; args.outstanding as usize];
        let ring = vec![1; Self::RUN.min(args.size)];
        Self { from: messages(), ring, to: messages(), turns: 0 }
    }

    /// Copies [`Self::RUN`] bytes of one message, or less if messages are shorter. The next call
    /// copies from the next message.
    fn turn(&mut self) {
        let (message, run) = (self.turns % self.from.len(), self.ring.len());
        let at = self.turns / self.from.len() * run % (self.from[message].len() / run * run);
        self.ring.copy_from_slice(&self.from[message][at..at + run]);
        self.to[message][at..at + run].copy_from_slice(&self.ring);
        hint::black_box(&mut self.to);
        self.turns += 1;
    }

    /// Copies for `time`.
    fn run(&mut self, time: Duration) -> Vec<Reading> {
        let mut readings = Vec::new();
        let (start, mut next) = (Instant::now(), Instant::now());
        while next - start < time {
            let (at, turns) = (machine::cpu_time(), self.turns as u64);
            readings.push(Reading { at, packets: turns, requests: 0 });
            next += STEP;
            while Instant::now() < next {
                self.turn();
            }
            next = Instant::now();
        }
        readings
    }

    /// The copy rate in the first 10 ms after a silence, as a fraction of the rate before the
    /// silence. `None` if there are too few readings.
    fn ratio(&mut self, stall: Duration) -> Option<f64> {
        let before = self.run(BEFORE);
        let silence = Instant::now();
        while silence.elapsed() < stall {
            hint::spin_loop();
        }
        let after = self.run(2 * SOON);
        let usual = rate(&before, BEFORE / 5, BEFORE)?;
        Some(rate(&after, Duration::ZERO, SOON)? / usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_counts_the_packets_of_its_period() {
        let micros = Duration::from_micros;
        let reading = |step: u64| Reading {
            at: micros(7 + 20 * step),
            packets: 100 + step * step,
            requests: 0,
        };
        let readings: Vec<_> = (0..100).map(reading).collect();
        // From reading 5 to reading 10, the count grows by 10 * 10 - 5 * 5 = 75 packets.
        assert_eq!(rate(&readings, micros(100), micros(100)), Some(75.0 / 100e-6));
        assert_eq!(
            rate(&readings, micros(90), micros(105)),
            Some(75.0 / 100e-6),
            "to the next reading"
        );
        assert_eq!(
            rate(&readings, micros(1_960), micros(100)),
            Some(197.0 / 20e-6),
            "the period ends with the last reading"
        );
        assert_eq!(rate(&readings, micros(2_000), micros(100)), None);
        assert_eq!(rate(&[], micros(0), micros(100)), None);
    }
}
