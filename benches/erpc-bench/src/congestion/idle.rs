//! `idle`: the latency of the first call after a silence.
//!
//! The benchmark compares this latency with that of calls while the session is busy, and with the
//! first round trip of a bare packet after the same silence. The bare packet uses no protocol, so
//! its round trip shows what a silence costs in any case: caches, page tables and the kernel's send
//! path go cold.

use std::time::{Duration, Instant};

use clap::Args;
use erpc::transport::mem::{MemConfig, MemHub};
use erpc::transport::{RxQueue, TxQueue};
use erpc::{EndpointConfig, Transport};
use erpc_core::wire::HEADER_LEN;

use super::pair::{Pair, answerer};
use super::{Carrier, Control, socket};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::report::Line;
use crate::service::Answerer;

#[derive(Args)]
pub(crate) struct IdleArgs {
    /// Seconds without a call
    #[arg(long, default_value_t = 1.0, value_parser = machine::seconds)]
    secs: f64,
    /// Transport
    #[arg(long, value_enum, default_value = "mem")]
    transport: Carrier,
    /// Congestion control on a link of 100 Gb/s
    #[arg(long, value_enum, default_value = "swift")]
    cc: Control,
    /// Stop the loops of both ends during the silence, instead of running them
    #[arg(long)]
    away: bool,
    /// Rounds; the results are their median and the worst first call
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Bytes of a request and of its response.
const SIZE: usize = 32;
/// How long calls are made between two silences.
const BUSY: Duration = Duration::from_millis(200);
/// Bare round trips between two silences.
const BARE_BUSY: u32 = 10_000;
const LINK: u64 = 12_500_000_000;

pub(crate) fn idle(args: &IdleArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    match args.transport {
        Carrier::Mem => {
            let hub = MemHub::new();
            measure(args, || Ok(hub.port(MemConfig::default())))
        }
        Carrier::Udp => measure(args, socket),
    }
}

fn measure<T: Transport>(
    args: &IdleArgs,
    mut transport: impl FnMut() -> Result<T, Failure>,
) -> Result<(), Failure> {
    let (client, serving) = (transport()?, transport()?);
    let mut bare = Bare { client: transport()?, server: transport()? };
    let peer = serving.local_route();
    let config = EndpointConfig::new().congestion(args.cc.config()).link_rate(LINK);
    let load = Load::new(SIZE, SIZE)?;
    let mut pair = Pair::connect((client, serving), peer, &config, answerer()?, load, 1)?;
    pair.run(BUSY)?;
    let (mut firsts, mut bare_firsts) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        bare.pass_time(args);
        bare_firsts.push(bare.there_and_back());
        for _ in 0..BARE_BUSY {
            bare.there_and_back();
        }
        pass_time(args, &mut pair);
        pair.load.measure_latencies();
        // Makes one call, and a few more until the load reads the clock. Only the first one counts.
        pair.run(Duration::from_nanos(1))?;
        firsts.extend(pair.load.take_latencies().first_micros());
        pair.run(BUSY)?;
    }
    pair.load.measure_latencies();
    pair.run(BUSY)?;
    let steady = pair.load.take_latencies().micros(0.5);
    for firsts in [&mut firsts, &mut bare_firsts] {
        firsts.sort_unstable_by(f64::total_cmp);
    }
    let median = |firsts: &[f64]| firsts.get(firsts.len() / 2).copied();
    Line::new()
        .text("transport", args.transport.name())
        .text("cc", args.cc.name())
        .number("secs", Some(args.secs))
        .number("first_us", median(&firsts))
        .number("first_worst_us", firsts.last().copied())
        .number("steady_us", steady)
        .number("bare_first_us", median(&bare_firsts))
        .print();
    Ok(())
}

/// Waits until the silence is over. Calls `turns` repeatedly, unless `--away` stops the loops.
/// `turns` runs both loops once, or polls both bare transports.
fn wait(args: &IdleArgs, mut turns: impl FnMut()) {
    let until = Instant::now() + Duration::from_secs_f64(args.secs);
    while Instant::now() < until {
        if args.away {
            std::hint::spin_loop();
        } else {
            turns();
        }
    }
}

fn pass_time<T: Transport>(args: &IdleArgs, pair: &mut Pair<T, T, Answerer>) {
    wait(args, || {
        pair.client.run_once(&mut pair.load);
        pair.server.run_once(&mut pair.answerer);
    });
}

/// Two transports without a protocol.
struct Bare<T> {
    client: T,
    server: T,
}

impl<T: Transport> Bare<T> {
    fn pass_time(&mut self, args: &IdleArgs) {
        wait(args, || {
            self.client.split().0.burst();
            self.server.split().0.burst();
        });
    }

    /// Sends a packet of a call's length to the server and one back. Returns the time in us.
    fn there_and_back(&mut self) -> f64 {
        let (to_server, to_client) = (self.server.local_route(), self.client.local_route());
        let began = Instant::now();
        send(&mut self.client, &to_server);
        while self.server.split().0.burst() == 0 {}
        send(&mut self.server, &to_client);
        while self.client.split().0.burst() == 0 {}
        began.elapsed().as_nanos() as f64 / 1e3
    }
}

fn send<T: Transport>(transport: &mut T, to: &T::Route) {
    let (_, tx) = transport.split();
    tx.push_bytes(to, &[1; HEADER_LEN + SIZE]);
    tx.doorbell();
}
