//! `loss`: the goodput of large calls, or the rate of small calls, under packet loss.

use std::time::Duration;

use clap::{Args, ValueEnum};
use erpc::Retransmissions;
use erpc::raw::ProtocolStats;
use erpc::raw::Rpc;
use erpc::transport::MIN_DATAGRAM;
use erpc::transport::fault::{FaultHandle, FaultPlan, Faults, Faulty};
use erpc::transport::mem::{MemConfig, MemHub};
use erpc::{EndpointConfig, Transport};
use erpc_sim::lab::loss::{Loss, run};

use super::pair::{self, Pair};
use super::{Control, millis};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::payload;
use crate::report::Line;

/// Where packets are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Net {
    /// Over the memory transport, in real time
    Mem,
    /// In the simulated network, 100 Gb/s, in virtual time
    Sim,
}

#[derive(Args)]
pub(crate) struct LossArgs {
    /// Fraction of packets lost, in each direction, control packets included
    #[arg(long, value_parser = chance)]
    rate: f64,
    #[arg(long, value_enum, default_value = "mem")]
    net: Net,
    /// Bytes of a request. A response has 32 bytes, except in memory with requests of at most 4096
    /// bytes: then it has the size of the request
    #[arg(long, default_value_t = 8 << 20, value_parser = payload::message)]
    size: usize,
    /// Calls in progress
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    outstanding: u32,
    /// Congestion control. Default: the endpoints' own, which is Swift in the simulated network,
    /// and none in memory, which has no link
    #[arg(long, value_enum)]
    cc: Option<Control>,
    /// Duration of the measurement with loss, and of the one without, in milliseconds [default: 100
    /// with sim; 4000 with mem]
    #[arg(long, value_parser = millis)]
    millis: Option<Duration>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// 1: both ends on one thread; 2: a thread each. Only in memory
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    threads: u8,
    /// The client's core
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// The server's core
    #[arg(long, default_value_t = 1)]
    server_core: usize,
}

fn chance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(chance) if (0.0..1.0).contains(&chance) => Ok(chance),
        _ => Err("a fraction, 0 to less than 1, is wanted".into()),
    }
}

/// Bytes of a datagram, as in the simulation. 1,028 bytes of a datagram are payload.
const DATAGRAM: usize = MIN_DATAGRAM;
/// Lossless and lossy runs alternate, because the machine's speed changes. Each lasts this long.
const TURN: Duration = Duration::from_millis(200);
/// A probability of loss so small that no packet is lost.
const NEVER: f64 = 1e-15;
const WARMUP: Duration = Duration::from_millis(200);
/// Link rate of sessions in memory if congestion control is chosen, in bytes per second: 100 Gb/s.
const MEM_LINK: u64 = 12_500_000_000;

/// Throughput of a run.
#[derive(Clone, Copy, Default)]
struct Rate {
    gbps: f64,
    calls_per_second: f64,
    retransmissions: Retransmissions,
}

impl LossArgs {
    fn control(&self) -> Control {
        self.cc.unwrap_or(match self.net {
            Net::Mem => Control::None,
            Net::Sim => Control::Swift,
        })
    }
}

pub(crate) fn loss(args: &LossArgs) -> Result<(), Failure> {
    let [lossless, lossy] = match args.net {
        Net::Mem => in_memory(args)?,
        Net::Sim => simulated(args),
    };
    let ratio = lossy.calls_per_second / lossless.calls_per_second;
    let ratio = if args.net == Net::Sim && args.size > DATAGRAM {
        // In simulation, so few large calls end in a run that their count is a poor measure. The
        // throughput is compared instead.
        lossy.gbps / lossless.gbps
    } else {
        ratio
    };
    eprintln!(
        "{:.2} of {:.2} Gb/s, {:.0} of {:.0} calls/s: {ratio:.3}; {} packets shown lost, {} probes",
        lossy.gbps,
        lossless.gbps,
        lossy.calls_per_second,
        lossless.calls_per_second,
        lossy.retransmissions.shown_lost(),
        lossy.retransmissions.probes
    );
    Line::new()
        .text("net", if args.net == Net::Mem { "mem" } else { "sim" })
        .text("cc", args.control().name())
        .number("rate", Some(args.rate))
        .int("size", args.size as u64)
        .int("outstanding", args.outstanding.into())
        .number("goodput_gbps", Some(lossy.gbps))
        .number("lossless_gbps", Some(lossless.gbps))
        .number("rps", Some(lossy.calls_per_second))
        .number("lossless_rps", Some(lossless.calls_per_second))
        .number("ratio", Some(ratio))
        .resent(&lossy.retransmissions)
        .print();
    Ok(())
}

fn simulated(args: &LossArgs) -> [Rate; 2] {
    [0.0, args.rate].map(|rate| {
        let goodput = run(&Loss {
            rate,
            request: args.size,
            outstanding: args.outstanding as usize,
            control: args.control().config(),
            loop_pauses: None,
            time: args.millis.unwrap_or(Duration::from_millis(100)),
            seed: args.seed,
        });
        Rate {
            gbps: goodput.gbps,
            calls_per_second: goodput.calls_per_second,
            retransmissions: goodput.counts.retransmissions,
        }
    })
}

/// Alternates between runs without and with loss, over the same sessions.
struct InMemory<'a> {
    args: &'a LossArgs,
    handle: FaultHandle,
}

fn in_memory(args: &LossArgs) -> Result<[Rate; 2], Failure> {
    let hub = MemHub::new();
    let port = || hub.port(MemConfig::default().max_datagram(DATAGRAM));
    let serving = port();
    let peer = serving.local_route();
    let client = Faulty::new(port(), FaultPlan::new(args.seed));
    let config = match args.cc {
        None => EndpointConfig::new(),
        Some(cc) => EndpointConfig::new().congestion(cc.config()).link_rate(MEM_LINK),
    };
    let small = args.size <= Load::MAX_ECHO;
    let answer = if small { args.size } else { payload::SINK_ANSWER };
    let mut load = Load::new(args.size, answer)?;
    let outstanding = args.outstanding as usize;
    let run = InMemory { args, handle: client.handle() };
    if args.threads == 1 {
        machine::pin(args.core)?;
        let ends = (client, serving);
        let mut pair = Pair::connect(ends, peer, &config, pair::answerer()?, load, outstanding)?;
        return run.measure(|time| {
            // The thread never sleeps, so its CPU time is the elapsed time minus the time in which
            // other processes used its core.
            let before = machine::cpu_time();
            let (calls, _) = pair.run(time)?;
            Ok((calls, machine::cpu_time() - before, pair.client.stats().protocol))
        });
    }
    let cores = (args.core, args.server_core);
    pair::serve_while((serving, config.clone()), pair::answerer, cores, || {
        let mut rpc = Rpc::new(client, config).map_err(Failure::of("no endpoint"))?;
        load.connect(&mut rpc, peer, outstanding.div_ceil(8), || {})?;
        run.measure(|time| {
            let (calls, time) = load.run(&mut rpc, outstanding, time, || {})?;
            Ok((calls, time, rpc.stats().protocol))
        })
    })
}

impl InMemory<'_> {
    /// Measures the rates without and with loss. `run` makes calls for the given time. It returns
    /// the number of completed calls, the time that they took, and the client's counters.
    fn measure(
        &self,
        mut run: impl FnMut(Duration) -> Result<(u64, Duration, ProtocolStats), Failure>,
    ) -> Result<[Rate; 2], Failure> {
        let Self { args, handle } = self;
        // With a probability above 0, the fault transport draws a random number for every packet.
        // So the lossless run has the same cost.
        let lossless = FaultPlan::new(args.seed).both(Faults::none().drop(NEVER));
        let (_, _, mut before) = run(WARMUP)?;
        let mut sums = [(0u64, Duration::ZERO); 2];
        let mut rates = [Rate::default(); 2];
        let time = args.millis.unwrap_or(Duration::from_secs(4));
        for turn in 0..time.as_nanos().div_ceil(TURN.as_nanos()).max(1) as u64 {
            let lossy = FaultPlan::new(args.seed + turn).both(Faults::none().drop(args.rate));
            for (at, plan) in [&lossless, &lossy].into_iter().enumerate() {
                handle.set_plan(plan.clone());
                let (calls, time, after) = run(TURN)?;
                sums[at] = (sums[at].0 + calls, sums[at].1 + time);
                rates[at].retransmissions += after.retransmissions - before.retransmissions;
                before = after;
            }
        }
        let bytes = if args.size <= Load::MAX_ECHO { 2 * args.size } else { args.size };
        for (rate, (calls, time)) in rates.iter_mut().zip(sums) {
            rate.calls_per_second = calls as f64 / time.as_secs_f64();
            rate.gbps = rate.calls_per_second * bytes as f64 * 8e-9;
        }
        Ok(rates)
    }
}
