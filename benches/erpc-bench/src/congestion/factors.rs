//! What the optimizations for the common case are worth: table 6.2 of Kalia's thesis
//! (CMU-CS-19-126) for this implementation.

use std::time::Duration;

use bytes::BufMut;
use clap::Args;
use erpc::raw::{App, Context, Request};
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{CongestionControl, EndpointConfig, Status, Transport};
use erpc_core::protocol::measurement::Bypasses;

use super::pair::{Answers, Pair};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::report::Line;

/// Measures the CPU time of a call, on one thread over the memory transport, with all optimizations,
/// and with one more of them switched off in each row. The rows alternate, 20 ms at a time.
#[derive(Args)]
pub(crate) struct FactorsArgs {
    /// Bytes of each request, and of each answer
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4_096))]
    size: u64,
    /// Calls in progress, eight per session
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(8..=512))]
    outstanding: u64,
    /// Duration of the measurement of all rows together, in seconds
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    secs: u64,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Rate of the link that congestion control assumes, in bytes per second.
const LINK: u64 = 12_500_000_000;
/// One run of a row. Shorter than the periods in which the machine's speed changes.
const TURN: Duration = Duration::from_millis(20);
const WARMUP: Duration = Duration::from_millis(200);

/// What one row of the table leaves out, in addition to the rows above it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Without {
    Nothing,
    Timestamps,
    ControlBypass,
    WheelBypass,
    PreallocatedResponses,
    ZeroCopyRequests,
}

/// The rows, with their names in the output and in the table. The thesis also switches off
/// multi-packet receive queues, which belong to one network card.
const ROWS: [(Without, &str, &str); 6] = [
    (Without::Nothing, "all", "all optimizations"),
    (Without::Timestamps, "timestamps", "- one time stamp per burst"),
    (Without::ControlBypass, "control_bypass", "- bypass of congestion control"),
    (Without::WheelBypass, "wheel_bypass", "- bypass of the pacing wheel"),
    (Without::PreallocatedResponses, "preallocated", "- preallocated responses"),
    (Without::ZeroCopyRequests, "zero_copy", "- requests handled in the receive queue"),
];

impl Without {
    fn leaves_out(self, one: Self) -> bool {
        self >= one
    }

    fn config(self) -> EndpointConfig {
        let config = EndpointConfig::new().congestion(CongestionControl::default()).link_rate(LINK);
        Bypasses {
            timestamp: !self.leaves_out(Self::Timestamps),
            update: !self.leaves_out(Self::ControlBypass),
            wheel: !self.leaves_out(Self::WheelBypass),
        }
        .applied_to(config)
    }
}

/// Sends back each request.
struct Mirror {
    preallocated: bool,
    zero_copy: bool,
}

impl<T: Transport> App<T> for Mirror {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let no_memory = |_| Status::resource_exhausted("no memory");
        let kept = request.buffer.filter(|_| self.preallocated);
        let body = request.body.as_slice();
        let reply = |cx: &mut Context<'_, T>, body: &[u8]| {
            let mut answer = cx.response_buffer(kept, body.len()).map_err(no_memory)?;
            answer.put_slice(body);
            cx.respond(request.handle, answer, false);
            Ok(())
        };
        let answered = if self.zero_copy {
            reply(cx, body)
        } else {
            cx.alloc(body.len()).map_err(no_memory).and_then(|mut copy| {
                copy.put_slice(body);
                let answered = reply(cx, copy.as_slice());
                cx.recycle(copy);
                answered
            })
        };
        if let Err(status) = answered {
            cx.respond_status(request.handle, &status);
        }
    }
}

impl<T: Transport> Answers<T> for Mirror {}

type Ends = Pair<MemTransport, MemTransport, Mirror>;

fn connect(args: &FactorsArgs, without: Without) -> Result<Ends, Failure> {
    let hub = MemHub::new();
    let (client, serving) = (hub.port(MemConfig::default()), hub.port(MemConfig::default()));
    let (peer, size) = (serving.local_route(), args.size as usize);
    let mirror = Mirror {
        preallocated: !without.leaves_out(Without::PreallocatedResponses),
        zero_copy: !without.leaves_out(Without::ZeroCopyRequests),
    };
    let load = Load::new(size, size)?;
    let outstanding = args.outstanding as usize;
    let config = without.config();
    let mut ends = Pair::connect((client, serving), peer, &config, mirror, load, outstanding)?;
    ends.run(WARMUP)?;
    Ok(ends)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Runs the benchmark. Prints the table on standard error, and one line per row on standard output.
pub(crate) fn factors(args: &FactorsArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let mut rows = ROWS
        .iter()
        .map(|(without, ..)| Ok((connect(args, *without)?, Vec::new(), Vec::new())))
        .collect::<Result<Vec<_>, Failure>>()?;
    let rounds = args.secs as f64 / TURN.as_secs_f64() / ROWS.len() as f64;
    for _ in 0..rounds.ceil() as u64 {
        let mut before = None;
        for (ends, nanos, slower) in &mut rows {
            let start = machine::cpu_time();
            let (calls, _) = ends.run(TURN)?;
            let per_call = (machine::cpu_time() - start).as_nanos() as f64 / calls as f64;
            // Compared with the row above in the same round: the machine's speed changes slowly.
            slower.extend(before.map(|before| per_call / before - 1.0));
            nanos.push(per_call);
            before = Some(per_call);
        }
    }
    eprintln!("{:45} {:>8}  {:>12}", "", "ns/call", "slower by");
    for ((_, nanos, slower), (_, name, label)) in rows.into_iter().zip(ROWS) {
        let (nanos, slower) = (median(nanos), median(slower));
        let percent = slower.map_or_else(String::new, |slower| format!("{:.1} %", slower * 100.0));
        eprintln!("{label:45} {:8.1}  {percent:>12}", nanos.unwrap_or(f64::NAN));
        Line::new()
            .text("without", name)
            .int("size", args.size)
            .int("outstanding", args.outstanding)
            .number("ns_per_rpc", nanos)
            .number("slower", slower)
            .print();
    }
    Ok(())
}
