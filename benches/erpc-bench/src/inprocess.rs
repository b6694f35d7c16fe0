//! Client and server in one process, over the memory transport: the cost of the protocol.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use erpc::Transport;
use erpc::raw::ListenGroup;
use erpc::raw::{Acceptor, Rpc};
use erpc::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc::transport::{RxQueue, TxQueue};
use erpc::{EndpointConfig, Integrity, Retransmissions};
use erpc_core::protocol::DEFAULT_SLOTS;
use erpc_core::wire::HEADER_LEN;

use crate::congestion::{Controlled, Cost, Without, cost};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::payload;
use crate::report::Line;
use crate::service::Answerer;
use crate::typed_cost::{self, Form, Setup, Width};

#[derive(Args)]
pub(crate) struct CpuArgs {
    /// Bytes of a request and of its answer. Without `--cc`, a request above 4096 bytes has an
    /// answer of 32
    #[arg(long, default_value_t = 32)]
    size: usize,
    /// Sessions between the two endpoints
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    sessions: u32,
    /// Calls in flight per session
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    window: u32,
    /// Calls in flight on all sessions together, instead of `--window` per session. The memory
    /// rings get as many entries as these calls need to be in flight at the same time, at least the
    /// default number and at most 65,536
    #[arg(long, conflicts_with = "window", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    outstanding: Option<u32>,
    /// Slots of a session: a power of two up to 64. Further calls in flight wait in its queue
    #[arg(long, default_value_t = DEFAULT_SLOTS as u8, conflicts_with_all = ["typed", "cc"])]
    slots: u8,
    /// Make each call on a session chosen at random. The choices are the same in each run
    #[arg(long, conflicts_with = "typed")]
    random: bool,
    /// Duration of the measurement, in seconds
    #[arg(long, default_value_t = 5.0, value_parser = machine::seconds)]
    secs: f64,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Put a checksum on every packet
    #[arg(long)]
    integrity: bool,
    /// Corrupt some answers, to test that the client detects it
    #[arg(long)]
    inject_corruption: bool,
    /// Measure the call of workload w4 in this form and in the raw form, instead of an echo
    #[arg(long, conflicts_with_all = ["size", "integrity", "inject_corruption"])]
    typed: Option<Form>,
    /// Measure what congestion control costs: run with it, without it, or alternate between both
    #[arg(long, value_enum, conflicts_with_all = ["typed", "integrity", "inject_corruption"])]
    cc: Option<Controlled>,
    /// Switch off a shortcut that congestion control takes while there is no congestion
    #[arg(long, value_enum, default_value = "none", requires = "cc")]
    without: Without,
    /// For slow tools such as valgrind: control with Timely, take no round trip below 1 s for
    /// congestion, and time out 500 ms above the round trip at the earliest
    #[arg(long, requires = "cc")]
    slow: bool,
}

#[derive(Args)]
pub(crate) struct DuplexArgs {
    /// Bytes of a request
    #[arg(long, default_value_t = 32)]
    req: usize,
    /// Bytes of an answer
    #[arg(long, default_value_t = 32)]
    resp: usize,
    /// Sessions between the two endpoints
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    sessions: u32,
    /// Calls in flight per session
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    window: u32,
    /// Duration of the measurement, in seconds
    #[arg(long, default_value_t = 5.0, value_parser = machine::seconds)]
    secs: f64,
    /// Slots of a session: a power of two up to 64. Further calls in flight wait in its queue
    #[arg(long, default_value_t = DEFAULT_SLOTS as u8)]
    slots: u8,
    /// The client's core
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// The server's core
    #[arg(long, default_value_t = 1)]
    server_core: usize,
    /// Put a checksum on every packet
    #[arg(long)]
    integrity: bool,
    /// Corrupt some answers, to test that the client detects it
    #[arg(long)]
    inject_corruption: bool,
}

/// Time of the warm-up before a measurement.
const WARMUP: Duration = Duration::from_millis(200);
/// Entries of a ring by default, as documented at [`MemConfig::entries`].
const DEFAULT_ENTRIES: usize = 512;
/// Time for which [`floor`] measures.
const FLOOR_TIME: Duration = Duration::from_millis(500);

/// With `integrity`, all sessions of the endpoint have checksums, even if the peer does not ask for
/// them.
fn endpoint(
    transport: MemTransport,
    integrity: bool,
    slots: u8,
) -> Result<Rpc<MemTransport>, Failure> {
    let integrity = if integrity { Integrity::Always } else { Integrity::Auto };
    Rpc::new(transport, EndpointConfig::new().integrity(integrity).slots(slots))
        .map_err(Failure::of("no endpoint"))
}

fn server(transport: MemTransport, slots: u8) -> Result<Rpc<MemTransport>, Failure> {
    let mut rpc = endpoint(transport, false, slots)?;
    rpc.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
    Ok(rpc)
}

fn answerer(damages: bool) -> Result<Answerer, Failure> {
    Answerer::new(damages).map_err(Failure::of("the service does not register"))
}

/// Settings of ports between which `outstanding` calls of one packet are in flight.
///
/// A server grants a client a part of its ring for packets in flight, more than a third. If more
/// calls are outstanding, the others wait at the client, and the result is that of fewer calls.
fn ports_for(outstanding: usize) -> MemConfig {
    let (config, needed) = (MemConfig::default(), outstanding.saturating_mul(3));
    if needed <= DEFAULT_ENTRIES {
        return config;
    }
    config.entries(needed.next_power_of_two().try_into().unwrap_or(u32::MAX))
}

fn two_ports(config: MemConfig) -> (MemTransport, MemTransport) {
    let hub = MemHub::new();
    (hub.port(config), hub.port(config))
}

/// Measures client and server on one thread.
pub(crate) fn cpu(args: &CpuArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let outstanding = args.outstanding.unwrap_or(args.sessions * args.window) as usize;
    let ports = ports_for(outstanding);
    if let Some(form) = args.typed {
        let width = Width { sessions: args.sessions as usize, outstanding };
        let setup = Setup { ports, ..Setup::new(width) };
        return typed_cost::run(form, &setup, Duration::from_secs_f64(args.secs));
    }

    if let Some(which) = args.cc {
        let (size, time) = (args.size, Duration::from_secs_f64(args.secs));
        return cost(&Cost {
            which,
            without: args.without,
            size,
            sessions: args.sessions as usize,
            outstanding,
            random: args.random,
            ports,
            time,
            slow: args.slow,
        });
    }

    // A large request is not echoed; `Load::MAX_ECHO` says why.
    let mut load = Load::new(
        args.size,
        if args.size > Load::MAX_ECHO { payload::SINK_ANSWER } else { args.size },
    )?;
    if args.random {
        load.choose_sessions();
    }
    let floor_ns = floor(args.size, outstanding);

    let (client, serving) = two_ports(ports);
    let peer = serving.local_route();
    let (mut client, mut serving) =
        (endpoint(client, args.integrity, args.slots)?, server(serving, args.slots)?);
    let mut answerer = answerer(args.inject_corruption)?;
    let mut serve = || {
        serving.run_once(&mut answerer);
    };
    load.connect(&mut client, peer, args.sessions as usize, &mut serve)?;
    load.run(&mut client, outstanding, WARMUP, &mut serve)?;
    let before = machine::cpu_time();
    let (rpcs, elapsed) =
        load.run(&mut client, outstanding, Duration::from_secs_f64(args.secs), &mut serve)?;

    let ns_per_rpc = elapsed.as_nanos() as f64 / rpcs as f64;
    // CPU time per call. It is less than `ns_per_rpc` only if other processes used the core.
    let cpu_ns_per_rpc = (machine::cpu_time() - before).as_nanos() as f64 / rpcs as f64;
    eprintln!(
        "{ns_per_rpc:.1} ns per call of {} bytes, {floor_ns:.1} ns of them for moving its packets",
        args.size
    );
    Line::new()
        .int("size", args.size as u64)
        .int("sessions", args.sessions.into())
        .int("window", args.window.into())
        .int("slots", args.slots.into())
        .int("outstanding", outstanding as u64)
        .int("random", args.random.into())
        .int("integrity", args.integrity.into())
        .int("rpcs", rpcs)
        .number("ns_per_rpc", Some(ns_per_rpc))
        .number("cpu_ns_per_rpc", Some(cpu_ns_per_rpc))
        .number("floor_ns", Some(floor_ns))
        .resent(&client.stats().protocol.retransmissions)
        .print();
    Ok(())
}

/// The cost floor of a call, in nanoseconds: the time to move its packets through the memory
/// transport without the protocol. The answer has the size of the request, or
/// [`payload::SINK_ANSWER`] bytes if the request needs several packets.
fn floor(size: usize, outstanding: usize) -> f64 {
    let (mut client, mut server) = two_ports(MemConfig::default());
    let payload = client.capabilities().max_datagram - HEADER_LEN;
    let requests = size.div_ceil(payload).max(1);
    let (request, answer) = match requests {
        1 => (HEADER_LEN + size, HEADER_LEN + size),
        _ => (HEADER_LEN + payload, HEADER_LEN + payload::SINK_ANSWER),
    };
    // At most this many request packets are in flight, so that they fit the ring. `outstanding`
    // does not limit them enough if a request has many packets.
    let in_ring = 256;
    let (to_server, to_client) = (server.local_route(), client.local_route());
    let (request, answer) = (vec![1; request], vec![2; answer]);
    let (mut sent, mut arrived, mut answered) = (0usize, 0usize, 0usize);
    // Measures CPU time, which excludes the time of other processes on the core.
    let start = machine::cpu_time();
    let mut elapsed = Duration::ZERO;
    for turn in 1u32.. {
        let (rx, tx) = client.split();
        answered += read_all(rx);
        while sent - arrived < in_ring && sent < (answered + outstanding) * requests {
            tx.push_bytes(&to_server, &request);
            sent += 1;
        }
        tx.doorbell();
        let (rx, tx) = server.split();
        let before = arrived / requests;
        arrived += read_all(rx);
        for _ in before..arrived / requests {
            tx.push_bytes(&to_client, &answer);
        }
        tx.doorbell();
        if turn.is_multiple_of(1_024) {
            elapsed = machine::cpu_time() - start;
            if elapsed > FLOOR_TIME {
                break;
            }
        }
    }
    elapsed.as_nanos() as f64 / answered as f64
}

/// Receives a burst and reads a byte of each packet.
fn read_all(rx: &mut impl RxQueue<Route = MemRoute>) -> usize {
    let count = rx.burst();
    for index in 0..count {
        black_box(rx.packet(index).bytes[0]);
    }
    count
}

/// Measures client and server on a thread each.
pub(crate) fn duplex(args: &DuplexArgs) -> Result<(), Failure> {
    let pp_ns = machine::ping_pong(args.core, args.server_core);
    let (client, serving) = two_ports(ports_for((args.sessions * args.window) as usize));
    let peer = serving.local_route();
    let stop = AtomicBool::new(false);
    let serve = || -> Result<(), Failure> {
        machine::pin(args.server_core)?;
        let (mut rpc, mut answerer) =
            (server(serving, args.slots)?, answerer(args.inject_corruption)?);
        while !stop.load(Ordering::Relaxed) {
            rpc.run_once(&mut answerer);
        }
        Ok(())
    };
    let measured = thread::scope(|scope| {
        let serving = scope.spawn(serve);
        let measured = measure(args, client, peer);
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap_or_else(|_| Err(Failure::new("the server's thread panicked")))?;
        measured
    })?;
    let Duplex { rtt_ns, rpcs, mrps, gbps, resent } = measured;
    eprintln!(
        "round trip {rtt_ns:.0} ns; {mrps:.2} M calls/s, {gbps:.1} Gb/s; ping-pong {:.0} ns",
        pp_ns.unwrap_or(f64::NAN)
    );
    Line::new()
        .int("req", args.req as u64)
        .int("resp", args.resp as u64)
        .int("sessions", args.sessions.into())
        .int("window", args.window.into())
        .int("slots", args.slots.into())
        .int("integrity", args.integrity.into())
        .number("rtt_ns", Some(rtt_ns))
        .int("rpcs", rpcs)
        .number("mrps", Some(mrps))
        .number("gbps", Some(gbps))
        .resent(&resent)
        .number("pp_ns", pp_ns)
        .print();
    Ok(())
}

struct Duplex {
    rtt_ns: f64,
    rpcs: u64,
    mrps: f64,
    gbps: f64,
    resent: Retransmissions,
}

/// Runs the client: for a third of the time with one call in flight, then with `window` calls in
/// flight per session.
fn measure(args: &DuplexArgs, transport: MemTransport, peer: MemRoute) -> Result<Duplex, Failure> {
    machine::pin(args.core)?;
    let mut rpc = endpoint(transport, args.integrity, args.slots)?;
    let mut load = Load::new(args.req, args.resp)?;
    load.connect(&mut rpc, peer, args.sessions as usize, || {})?;
    let outstanding = (args.sessions * args.window) as usize;
    let secs = Duration::from_secs_f64(args.secs);
    load.run(&mut rpc, 1, WARMUP / 2, || {})?;
    let (calls, time) = load.run(&mut rpc, 1, secs / 3, || {})?;
    let rtt_ns = time.as_nanos() as f64 / calls as f64;
    load.run(&mut rpc, outstanding, WARMUP / 2, || {})?;
    let (rpcs, time) = load.run(&mut rpc, outstanding, secs * 2 / 3, || {})?;
    let rps = rpcs as f64 / time.as_secs_f64();
    Ok(Duplex {
        rtt_ns,
        rpcs,
        mrps: rps / 1e6,
        gbps: rps * load.payload() as f64 * 8.0 / 1e9,
        resent: rpc.stats().protocol.retransmissions,
    })
}
