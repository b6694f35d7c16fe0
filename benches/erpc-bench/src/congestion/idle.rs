//! `idle`: what the first call after a silence takes, next to those of a busy time.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use erpc::transport::mem::{MemConfig, MemHub};
use erpc::{EndpointConfig, Transport, Udp, UdpConfig};

use super::Control;
use super::pair::{Pair, answerer};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::report::Line;

/// What carries packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Carrier {
    Mem,
    Udp,
}

#[derive(Args)]
pub(crate) struct IdleArgs {
    /// Seconds without a call
    #[arg(long, default_value_t = 1.0, value_parser = machine::seconds)]
    secs: f64,
    #[arg(long, value_enum, default_value = "mem")]
    transport: Carrier,
    /// Who controls the rate of a link of 100 Gb/s
    #[arg(long, value_enum, default_value = "timely")]
    cc: Control,
    /// Leave the loops alone meanwhile, instead of turning them
    #[arg(long)]
    away: bool,
    /// How often; the figure is the median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Bytes of a request and its answer.
const SIZE: usize = 32;
/// How long the busy time is.
const BUSY: Duration = Duration::from_millis(200);
const LINK: u64 = 12_500_000_000;

pub(crate) fn idle(args: &IdleArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    match args.transport {
        Carrier::Mem => {
            let hub = MemHub::new();
            measure(args, [hub.port(MemConfig::default()), hub.port(MemConfig::default())])
        }
        Carrier::Udp => {
            let udp = || Udp::bind(&UdpConfig::new()).map_err(Failure::of("no socket"));
            measure(args, [udp()?, udp()?])
        }
    }
}

fn measure<T: Transport>(args: &IdleArgs, [client, serving]: [T; 2]) -> Result<(), Failure> {
    let peer = serving.local_route();
    let config = EndpointConfig::new().congestion(args.cc.config()).link_rate(LINK);
    let load = Load::new(SIZE, SIZE)?;
    let mut pair = Pair::connect((client, serving), peer, &config, answerer()?, load, 1)?;
    pair.run(BUSY)?;
    let mut firsts = Vec::new();
    for _ in 0..args.rounds {
        pass_time(args, &mut pair);
        pair.load.measure_latencies();
        // One call, and some more until the clock is looked at.
        pair.run(Duration::from_nanos(1))?;
        firsts.extend(pair.load.take_latencies().first_micros());
        pair.run(BUSY)?;
    }
    pair.load.measure_latencies();
    pair.run(BUSY)?;
    let steady = pair.load.take_latencies().micros(0.5);
    firsts.sort_unstable_by(f64::total_cmp);
    let first = firsts.get(firsts.len() / 2).copied();
    Line::new()
        .text("transport", if args.transport == Carrier::Mem { "mem" } else { "udp" })
        .text("cc", args.cc.name())
        .number("secs", Some(args.secs))
        .number("first_us", first)
        .number("first_worst_us", firsts.last().copied())
        .number("steady_us", steady)
        .print();
    Ok(())
}

/// Nothing is called for a while.
fn pass_time<T: Transport>(args: &IdleArgs, pair: &mut Pair<T, T, crate::service::Answerer>) {
    let until = Instant::now() + Duration::from_secs_f64(args.secs);
    while Instant::now() < until {
        if args.away {
            std::hint::spin_loop();
        } else {
            pair.client.run_once(&mut pair.load);
            pair.server.run_once(&mut pair.answerer);
        }
    }
}
