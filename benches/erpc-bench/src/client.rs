//! The client process: a closed loop against a server, through the kernel's UDP.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::{Args, ValueEnum};
use erpc::UdpConfig;
use erpc::raw::Rpc;
use erpc::{EndpointConfig, EndpointStats, Integrity, LoopGaps, Transport, Udp};
use erpc_core::protocol::DEFAULT_SLOTS;

use crate::failure::Failure;
use crate::idle::{Idle, Pauses};
use crate::load::Load;
use crate::methods::Control;
use crate::network::{Network, NetworkArgs};
use crate::payload::{Lengths, SINK_ANSWER};
use crate::peers::PeersLoop;
use crate::report::{Latencies, LoopOutcome};
use crate::shared::{SharedLoad, SharedSetup};
use crate::typed::GetLoad;
use crate::{control, machine, server};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// 32-byte echo, 1 outstanding
    W1,
    /// 32-byte echo, many outstanding
    W2,
    /// 8 MiB request, 32-byte answer, 1 outstanding
    W3,
    /// A typed Get: the request is a key, the response a 64-byte value and a bool
    W4,
}

#[derive(Args)]
pub(crate) struct ClientArgs {
    /// The server's address
    #[arg(long)]
    addr: SocketAddr,
    #[arg(long, value_enum)]
    workload: Workload,
    /// Calls in flight [default: 1; w2: 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    outstanding: Option<u32>,
    /// Sessions [default: 1; w2: one per `--slots` calls in flight]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    conns: Option<u32>,
    /// Slots of a session: a power of two up to 64. The server may have fewer
    #[arg(long, default_value_t = DEFAULT_SLOTS as u8)]
    slots: u8,
    /// Duration of the measurement, in seconds
    #[arg(long, default_value_t = 5.0, value_parser = machine::seconds)]
    secs: f64,
    /// Warm-up before the measurement, in seconds
    #[arg(long, default_value_t = 1.0, value_parser = machine::seconds)]
    warmup: f64,
    /// Core to run on [default: the system's choice]
    #[arg(long)]
    core: Option<usize>,
    /// Bytes of a request (w1 to w3) [default: 32; w3: 8 MiB]
    #[arg(long)]
    req: Option<usize>,
    /// Bytes of an answer (w1, w2) [default: 32]
    #[arg(long)]
    resp: Option<usize>,
    /// Without UDP_SEGMENT and UDP_GRO, as on a network card without offload
    #[arg(long)]
    no_offload: bool,
    /// Call from tasks on this many threads of a tokio runtime, through a shared client (w4). Each
    /// call in flight is a task
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    tokio: Option<u32>,
    /// What the thread that calls does while it has no work (w4 only with `--tokio`) [default:
    /// spin; with `--tokio`: yield]
    #[arg(long, value_enum)]
    idle: Option<Idle>,
    /// Requests and answers of 32 to 4,096 bytes, 8 lengths in turn (w2)
    #[arg(long, conflicts_with_all = ["req", "resp", "peers"])]
    mixed: bool,
    /// Requests and answers of 64 lengths, spread over this range of bytes, such as 32-288 (w2)
    #[arg(long, value_name = "FROM-TO", value_parser = Lengths::spread,
        conflicts_with_all = ["req", "resp", "peers", "mixed"])]
    lengths: Option<Lengths>,
    /// Clients with a socket and one call in flight each, in one thread (w2)
    #[arg(long, conflicts_with_all = ["outstanding", "conns"],
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    peers: Option<u32>,
    /// Largest datagram, in bytes [default: what the interface carries]
    #[arg(long)]
    max_datagram: Option<usize>,
    /// Put a checksum on every packet
    #[arg(long)]
    integrity: bool,
    /// Serve at this UDP port, too, for a server that calls (`server --call`). Needs `--transport
    /// dpdk`
    #[arg(long)]
    serve_at: Option<u16>,
    #[command(flatten)]
    network: NetworkArgs,
}

impl ClientArgs {
    fn outstanding(&self) -> usize {
        let default = if self.workload == Workload::W2 { 64 } else { 1 };
        self.outstanding.or(self.peers).unwrap_or(default) as usize
    }

    fn sessions(&self) -> usize {
        let default = if self.workload == Workload::W2 { self.sessions_for_all() } else { 1 };
        self.conns.map_or(default, |sessions| sessions as usize)
    }

    /// The number of sessions whose slots hold all calls.
    fn sessions_for_all(&self) -> usize {
        self.outstanding().div_ceil(self.slots.max(1).into())
    }

    /// Of a load of different lengths: the lengths.
    fn lengths(&self) -> Option<Lengths> {
        self.lengths.clone().or_else(|| self.mixed.then(Lengths::mixed))
    }

    /// Bytes of requests and answers.
    fn sizes(&self) -> (usize, usize) {
        match self.workload {
            Workload::W3 => (self.req.unwrap_or(8 << 20), SINK_ANSWER),
            _ => (self.req.unwrap_or(32), self.resp.unwrap_or(32)),
        }
    }
}

/// Configuration of a socket of the peer's address family, on any port.
pub(crate) fn socket_to(peer: SocketAddr) -> UdpConfig {
    UdpConfig::new().address(match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    })
}

/// A closed loop of calls. It can run several times.
pub(crate) trait ClosedLoop {
    /// Runs for `duration`, then waits for the calls in flight. Returns the number of answered
    /// calls and the elapsed time.
    fn run(&mut self, duration: Duration) -> Result<(u64, Duration), Failure>;

    /// Starts to measure latencies.
    fn measure_latencies(&mut self);

    fn take_latencies(&mut self) -> Latencies;

    /// The endpoint's counters since it was opened. A shared client returns zeros.
    fn stats(&mut self) -> EndpointStats;

    /// Payload of a call in bytes, request and answer together.
    fn payload(&self) -> usize;
}

/// A closed loop of the raw layer.
struct RawLoop<T: Transport> {
    rpc: Rpc<T>,
    load: Load,
    outstanding: usize,
    pauses: Pauses,
}

impl<T: Transport> ClosedLoop for RawLoop<T> {
    fn run(&mut self, duration: Duration) -> Result<(u64, Duration), Failure> {
        let Self { rpc, load, outstanding, pauses } = self;
        load.run_pausing(rpc, *outstanding, duration, |rpc, work| pauses.after_turn(rpc, work))
    }

    fn measure_latencies(&mut self) {
        self.load.measure_latencies();
    }

    fn take_latencies(&mut self) -> Latencies {
        self.load.take_latencies()
    }

    fn stats(&mut self) -> EndpointStats {
        self.rpc.stats()
    }

    fn payload(&self) -> usize {
        self.load.payload()
    }
}

impl ClosedLoop for SharedLoad {
    fn run(&mut self, duration: Duration) -> Result<(u64, Duration), Failure> {
        self.run(duration)
    }

    fn measure_latencies(&mut self) {
        self.measure_latencies();
    }

    fn take_latencies(&mut self) -> Latencies {
        self.take_latencies()
    }

    fn stats(&mut self) -> EndpointStats {
        EndpointStats::default()
    }

    fn payload(&self) -> usize {
        GetLoad::PAYLOAD
    }
}

impl ClosedLoop for GetLoad {
    fn run(&mut self, duration: Duration) -> Result<(u64, Duration), Failure> {
        self.run(duration)
    }

    fn measure_latencies(&mut self) {
        self.measure_latencies();
    }

    fn take_latencies(&mut self) -> Latencies {
        self.take_latencies()
    }

    fn stats(&mut self) -> EndpointStats {
        self.stats()
    }

    fn payload(&self) -> usize {
        Self::PAYLOAD
    }
}

fn connect(args: &ClientArgs) -> Result<Box<dyn ClosedLoop>, Failure> {
    // One session may get all calls, so its queue must have room for all of them.
    let mut socket = socket_to(args.addr).offload(!args.no_offload);
    if let Some(bytes) = args.max_datagram {
        socket = socket.max_datagram(bytes);
    }
    let integrity = if args.integrity { Integrity::Always } else { Integrity::Auto };
    let config = EndpointConfig::new()
        .queue_limit(args.outstanding())
        .integrity(integrity)
        .slots(args.slots);
    if let Some(workers) = args.tokio {
        if args.workload != Workload::W4 {
            return Err(Failure::new("`--tokio` needs `--workload w4`"));
        }
        let setup = SharedSetup {
            workers: workers as usize,
            tasks: args.outstanding(),
            sessions: args.conns.map_or(args.sessions_for_all(), |conns| conns as usize),
            idle: args.idle.unwrap_or(Idle::Yield).policy(),
        };
        let load = SharedLoad::connect(args.addr, &socket, config, &setup)?;
        return Ok(Box::new(load));
    }
    if args.workload == Workload::W4 {
        let load =
            GetLoad::connect(args.addr, &socket, config, args.sessions(), args.outstanding())?;
        return Ok(Box::new(load));
    }
    let idle = args.idle.unwrap_or(Idle::Spin);
    if args.network.network() == Network::Dpdk {
        let port = args.network.open_dpdk(args.serve_at.unwrap_or(0), 1)?.remove(0);
        let (rpc, load) = open(port, config, args, args.sessions())?;
        let outstanding = args.outstanding();
        return Ok(Box::new(RawLoop { rpc, load, outstanding, pauses: Pauses::new(idle) }));
    }
    if args.network.network() == Network::Verbs {
        let device = args.network.open_verbs(None, 1)?.remove(0);
        let (rpc, load) = open(device, config, args, args.sessions())?;
        let outstanding = args.outstanding();
        return Ok(Box::new(RawLoop { rpc, load, outstanding, pauses: Pauses::new(idle) }));
    }
    let open = |sessions| {
        let socket = Udp::bind(&socket).map_err(Failure::of("no socket"))?;
        open(socket, config.clone(), args, sessions)
    };
    if let Some(peers) = args.peers {
        let peers = (0..peers).map(|_| open(1)).collect::<Result<_, _>>()?;
        return Ok(Box::new(PeersLoop::new(peers, idle)));
    }
    let (rpc, load) = open(args.sessions())?;
    let outstanding = args.outstanding();
    Ok(Box::new(RawLoop { rpc, load, outstanding, pauses: Pauses::new(idle) }))
}

/// An endpoint over `transport`, and its load with this number of open sessions.
fn open<T>(
    transport: T,
    config: EndpointConfig,
    args: &ClientArgs,
    sessions: usize,
) -> Result<(Rpc<T>, Load), Failure>
where
    T: Transport<Route: From<SocketAddr>>,
{
    let (request, answer) = args.sizes();
    let mut rpc = Rpc::new(transport, config).map_err(Failure::of("no endpoint"))?;
    let mut load = match args.lengths() {
        Some(lengths) => Load::mixed(lengths),
        None => Load::new(request, answer)?,
    };
    if args.serve_at.is_some() {
        load.answer()?;
        rpc.listen(server::alone(&rpc));
    }
    load.connect(&mut rpc, args.addr.into(), sessions, || {})?;
    Ok((rpc, load))
}

/// Runs a workload and prints its line.
pub(crate) fn run(args: &ClientArgs) -> Result<(), Failure> {
    if let Some(core) = args.core {
        machine::pin(core)?;
    }
    // The server of a DPDK port has no socket that could answer.
    let has_socket = args.network.network() == Network::Udp;
    let pp_ns = if has_socket { control::ping_pong(args.addr) } else { None };
    let mut closed_loop = connect(args)?;
    let (warmup, _) = closed_loop.run(Duration::from_secs_f64(args.warmup.max(0.001)))?;

    let server = || has_socket.then(|| control::ask(args.addr, Control::State).ok()).flatten();
    closed_loop.measure_latencies();
    let (server_before, before) = (server(), closed_loop.stats());
    let client_before = machine::cpu_time();
    let (ops, elapsed) = closed_loop.run(Duration::from_secs_f64(args.secs))?;
    let cpu_client = machine::cpu_time() - client_before;
    let (server, after) = (server().zip(server_before), closed_loop.stats());
    let cpu_server = server.map(|(after, before)| after.cpu_time.saturating_sub(before.cpu_time));
    // Only the count is the difference between `after` and `before`. `longest` covers the time
    // since the loop was created.
    let since = |after: LoopGaps, before: LoopGaps| LoopGaps {
        count: after.count.saturating_sub(before.count),
        ..after
    };
    LoopOutcome {
        workload: match args.workload {
            Workload::W1 => "w1",
            Workload::W2 => "w2",
            Workload::W3 => "w3",
            Workload::W4 => "w4",
        },
        stack: match (args.tokio, args.no_offload) {
            _ if args.network.network() == Network::Verbs => "erpc-verbs",
            _ if !has_socket => "erpc-dpdk",
            (Some(_), _) => "erpc-shared",
            (None, true) => "erpc-no-offload",
            (None, false) => "erpc",
        },
        outstanding: args.outstanding(),
        ops,
        ops_total: warmup + ops,
        elapsed,
        payload: closed_loop.payload(),
        latencies: closed_loop.take_latencies(),
        cpu_client,
        cpu_server,
        resent: after.protocol.retransmissions - before.protocol.retransmissions,
        gaps_client: Some(since(after.loop_gaps, before.loop_gaps)),
        gaps_server: server.map(|(after, before)| since(after.gaps, before.gaps)),
        pp_ns,
    }
    .print();
    Ok(())
}
