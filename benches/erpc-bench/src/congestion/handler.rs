//! `handler`: whether the time that a handler takes is mistaken for congestion.

use std::collections::VecDeque;
use std::time::Duration;

use clap::Args;
use erpc::raw::{App, Body, Context, Instant, MsgBuf, Reply, Request, RequestHandle, Rpc};
use erpc::transport::mem::{MemConfig, MemHub};
use erpc::{CallError, EndpointConfig, Transport};

use super::Control;
use super::pair::{Answers, Pair};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::payload;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct HandlerArgs {
    /// Microseconds from a request to its answer, as of workers that are free
    #[arg(long)]
    us: u64,
    /// Bytes of a request; answers have 32
    #[arg(long, default_value_t = 1 << 20)]
    size: usize,
    /// Calls under way
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    outstanding: u32,
    /// Who controls the rate of a link of 100 Gb/s, next to nobody
    #[arg(long, value_enum, default_value = "timely")]
    cc: Control,
    /// Seconds, half of them without control
    #[arg(long, default_value_t = 4.0, value_parser = machine::seconds)]
    secs: f64,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

const LINK: u64 = 12_500_000_000;
/// With and without control take turns of this length.
const TURN: Duration = Duration::from_millis(100);

/// Answers so long after a request has come whole, whatever else is under way: what a loop sees of workers.
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

    fn on_reply(
        &mut self,
        _: &mut Context<'_, T>,
        _: u64,
        _: Result<Reply<'_>, CallError>,
        _: MsgBuf,
    ) {
        // A server calls nobody.
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
        if let Ok(mut response) = cx.response_buffer(&handle, answer.len()) {
            response.resize(answer.len());
            response.as_mut_slice().copy_from_slice(&answer);
            cx.respond(handle, response, false);
        }
    }
}

pub(crate) fn handler(args: &HandlerArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let hub = MemHub::new();
    let connect = |control: Control| {
        let (client, serving) = (hub.port(MemConfig::default()), hub.port(MemConfig::default()));
        let peer = serving.local_route();
        let config = EndpointConfig::new().congestion(control.config()).link_rate(LINK);
        let load = Load::new(args.size, payload::SINK_ANSWER)?;
        let workers = Workers { time: Duration::from_micros(args.us), working: VecDeque::new() };
        let outstanding = args.outstanding as usize;
        Pair::connect((client, serving), peer, &config, workers, load, outstanding)
    };
    let mut pairs = [connect(args.cc)?, connect(Control::None)?];
    for pair in &mut pairs {
        pair.run(TURN)?;
    }
    let mut sums = [(0, Duration::ZERO); 2];
    for _ in 0..(args.secs / 2.0 / TURN.as_secs_f64()).ceil() as u64 {
        for (pair, sum) in pairs.iter_mut().zip(&mut sums) {
            let (calls, time) = pair.run(TURN)?;
            *sum = (sum.0 + calls, sum.1 + time);
        }
    }
    let [with, without] =
        sums.map(|(calls, time)| calls as f64 * args.size as f64 * 8e-9 / time.as_secs_f64());
    let [stats, stats_without] = pairs.each_mut().map(|pair| pair.client.stats().protocol);
    eprintln!(
        "{with:.1} Gb/s with control, {} timeouts; {without:.1} without, {} timeouts",
        stats.timeouts, stats_without.timeouts
    );
    Line::new()
        .text("cc", args.cc.name())
        .int("us", args.us)
        .int("size", args.size as u64)
        .number("gbps", Some(with))
        .number("gbps_without", Some(without))
        .number("ratio", Some(with / without))
        .int("retx", stats.retransmissions)
        .int("retx_without", stats_without.retransmissions)
        .print();
    Ok(())
}
