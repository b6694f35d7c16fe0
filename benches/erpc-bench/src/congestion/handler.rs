//! `handler`: tests whether congestion control mistakes the time of handlers for congestion.

use std::collections::VecDeque;
use std::time::Duration;

use clap::{Args, ValueEnum};
use erpc::raw::ProtocolStats;
use erpc::raw::{App, Body, Context, Instant, Request, RequestHandle, Rpc};
use erpc::transport::mem::{MemConfig, MemHub};
use erpc::{EndpointConfig, Transport};

use super::pair::{self, Answers, Pair};
use super::{Carrier, Control, socket};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::payload;
use crate::report::Line;
use crate::service::Answerer;

#[derive(Args)]
pub(crate) struct HandlerArgs {
    /// Microseconds that a handler takes
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    us: u64,
    /// Where handlers run
    #[arg(long, value_enum, default_value = "worker")]
    mode: Place,
    /// Bytes of a request
    #[arg(long, default_value_t = 1 << 20, value_parser = payload::message)]
    size: usize,
    /// Bytes of a response; with workers always 32
    #[arg(long, default_value_t = payload::SINK_ANSWER, value_parser = payload::message)]
    answer: usize,
    /// Calls in progress
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    outstanding: u32,
    /// Transport
    #[arg(long, value_enum, default_value = "mem")]
    transport: Carrier,
    /// Congestion control on a link of 100 Gb/s, compared with none
    #[arg(long, value_enum, default_value = "swift")]
    cc: Control,
    /// Seconds of the run; half of them run without control
    #[arg(long, default_value_t = 4.0, value_parser = machine::seconds)]
    secs: f64,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Core of the server with `--mode dispatch`
    #[arg(long, default_value_t = 1)]
    server_core: usize,
}

/// Where handlers run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Place {
    /// At the same time, as if each handler had its own worker thread; one thread runs the loops of
    /// client and server
    Worker,
    /// One after the other, in the server's loop, which has its own thread
    Dispatch,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Dispatch => "dispatch",
        }
    }
}

const LINK: u64 = 12_500_000_000;
/// Runs with congestion control and runs without it alternate. Each lasts this long.
const TURN: Duration = Duration::from_millis(100);

/// Answers each request `time` after it is complete, independently of other requests. The server's
/// loop cannot distinguish this from worker threads.
struct Workers {
    time: Duration,
    working: VecDeque<(Instant, RequestHandle, [u8; payload::SINK_ANSWER])>,
}

impl<T: Transport> App<T> for Workers {
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let answer = payload::answer_sink(request.body.as_slice());
        self.working.push_back((cx.now() + self.time, request.handle, answer));
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
    }
}

impl<T: Transport> Answers<T> for Workers {
    fn between_turns(&mut self, rpc: &mut Rpc<T>) {
        let Some(&(due, handle, answer)) = self.working.front() else { return };
        let mut cx = rpc.context();
        if cx.now() < due {
            return;
        }
        self.working.pop_front();
        if let Ok(mut response) = cx.response_buffer(None, answer.len()) {
            response.resize(answer.len());
            response.as_mut_slice().copy_from_slice(&answer);
            cx.respond(handle, response, false);
        }
    }
}

/// Answers each request after the handler has spun for `time`.
struct Dispatching {
    time: Duration,
    answerer: Answerer,
}

impl<T: Transport> App<T> for Dispatching {
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let until = std::time::Instant::now() + self.time;
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        self.answerer.on_request(cx, request);
    }
}

/// Completed calls, the time they took, and the client's last counters.
type Sum = (u64, Duration, ProtocolStats);

impl HandlerArgs {
    fn config(&self, control: Control) -> EndpointConfig {
        EndpointConfig::new().congestion(control.config()).link_rate(LINK)
    }

    /// Alternates between `runs[0]`, with control, and `runs[1]`, without. Each of the two
    /// functions makes calls for the time that it is given. Returns their sums in the same order.
    fn by_turns(
        &self,
        mut runs: [impl FnMut(Duration) -> Result<Sum, Failure>; 2],
    ) -> Result<[Sum; 2], Failure> {
        for run in &mut runs {
            run(TURN)?;
        }
        let mut sums = [(0, Duration::ZERO, ProtocolStats::default()); 2];
        for _ in 0..(self.secs / 2.0 / TURN.as_secs_f64()).ceil().max(1.0) as u64 {
            for (run, sum) in runs.iter_mut().zip(&mut sums) {
                let (calls, time, stats) = run(TURN)?;
                *sum = (sum.0 + calls, sum.1 + time, stats);
            }
        }
        Ok(sums)
    }

    fn run<T: Transport + Send>(
        &self,
        transport: impl FnMut() -> Result<T, Failure>,
    ) -> Result<[Sum; 2], Failure> {
        match self.mode {
            Place::Worker => self.by_workers(transport),
            Place::Dispatch => self.by_dispatch(transport),
        }
    }

    fn by_workers<T: Transport>(
        &self,
        mut transport: impl FnMut() -> Result<T, Failure>,
    ) -> Result<[Sum; 2], Failure> {
        if self.answer != payload::SINK_ANSWER {
            return Err(Failure::new("--answer is for --mode dispatch"));
        }
        machine::pin(self.core)?;
        let mut connect = |control: Control| {
            let (client, serving) = (transport()?, transport()?);
            let peer = serving.local_route();
            let load = Load::new(self.size, self.answer)?;
            let time = Duration::from_micros(self.us);
            let workers = Workers { time, working: VecDeque::new() };
            let outstanding = self.outstanding as usize;
            let config = self.config(control);
            Pair::connect((client, serving), peer, &config, workers, load, outstanding)
        };
        let mut pairs = [connect(self.cc)?, connect(Control::None)?];
        self.by_turns(pairs.each_mut().map(|pair| {
            |time| {
                let (calls, time) = pair.run(time)?;
                Ok((calls, time, pair.client.stats().protocol))
            }
        }))
    }

    fn by_dispatch<T: Transport + Send>(
        &self,
        mut transport: impl FnMut() -> Result<T, Failure>,
    ) -> Result<[Sum; 2], Failure> {
        let serving = transport()?;
        let peer = serving.local_route();
        let outstanding = self.outstanding as usize;
        let mut connect = |control: Control| {
            let mut rpc =
                Rpc::new(transport()?, self.config(control)).map_err(Failure::of("no endpoint"))?;
            let mut load = Load::new(self.size, self.answer)?;
            load.connect(&mut rpc, peer, outstanding.div_ceil(8), || {})?;
            Ok((rpc, load))
        };
        let time = Duration::from_micros(self.us);
        let made = || Ok(Dispatching { time, answerer: pair::answerer()? });
        let cores = (self.core, self.server_core);
        pair::serve_while((serving, self.config(Control::None)), made, cores, || {
            let mut clients = [connect(self.cc)?, connect(Control::None)?];
            self.by_turns(clients.each_mut().map(|(rpc, load)| {
                |time| {
                    let (calls, time) = load.run(rpc, outstanding, time, || {})?;
                    Ok((calls, time, rpc.stats().protocol))
                }
            }))
        })
    }
}

pub(crate) fn handler(args: &HandlerArgs) -> Result<(), Failure> {
    let sums = match args.transport {
        Carrier::Mem => {
            let hub = MemHub::new();
            args.run(|| Ok(hub.port(MemConfig::default())))?
        }
        Carrier::Udp => args.run(socket)?,
    };
    let bits = (args.size + args.answer) as f64 * 8e-9;
    let [with, without] = sums.map(|(calls, time, _)| calls as f64 * bits / time.as_secs_f64());
    let [stats, stats_without] = sums.map(|(.., stats)| stats);
    eprintln!(
        "{with:.1} Gb/s with control, {} probes; {without:.1} without, {} probes",
        stats.retransmissions.probes, stats_without.retransmissions.probes
    );
    Line::new()
        .text("transport", args.transport.name())
        .text("cc", args.cc.name())
        .text("mode", args.mode.name())
        .int("us", args.us)
        .int("size", args.size as u64)
        .int("answer", args.answer as u64)
        .number("gbps", Some(with))
        .number("gbps_without", Some(without))
        .number("ratio", Some(with / without))
        .resent(&stats.retransmissions)
        .int("retx_without", stats_without.retransmissions.shown_lost())
        .int("probes_without", stats_without.retransmissions.probes)
        .print();
    Ok(())
}
