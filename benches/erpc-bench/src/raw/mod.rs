//! The workloads over bare sockets, as the baseline of erpc.
//!
//! The server is a second process, so that its CPU time is separate from the client's.

mod bulk;
mod echo;
mod link;
mod peers;
mod server;
mod sys;
mod watch;

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io};

use bulk::{BulkClient, Carrier};
use clap::{Args, ValueEnum};
use echo::{EchoClient, Sizes};
use link::{COMMON_SEGMENTS, Joined, MAX_SEGMENTS, Many, Single};
use link::{SingleConnected, SingleSender, StreamReceiver, StreamSender};
use peers::PeersClient;
pub(crate) use server::{ServerArgs, serve};

use erpc::Retransmissions;

use crate::failure::Failure;
use crate::machine;
use crate::payload::{Lengths, MIN_ECHO, SINK_ANSWER};
use crate::report::{Latencies, LoopOutcome};

/// Requested size of receive and send buffers, in bytes. Linux grants at most `net.core.rmem_max`
/// and `net.core.wmem_max`.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Longest time that a receive call blocks, with `--block`.
const BLOCK_TIME: Duration = Duration::from_millis(100);
/// Slot numbers have 16 bits.
const MAX_OUTSTANDING: u32 = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// 32-byte echo, 1 outstanding
    W1,
    /// 32-byte echo, many outstanding
    W2,
    /// 8 MiB request, 32-byte answer, 1 outstanding
    W3,
}

/// The system calls that move messages.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// UDP, one datagram per system call
    Single,
    /// UDP, bursts with sendmmsg and recvmmsg
    Mmsg,
    /// UDP, buffers of several messages with UDP_SEGMENT and UDP_GRO
    Gso,
    /// TCP, length-prefixed
    Tcp,
}

#[derive(Args)]
pub(crate) struct RawArgs {
    #[arg(long, value_enum)]
    workload: Workload,
    /// Calls in flight (w2)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_OUTSTANDING)))]
    outstanding: u32,
    /// Bytes of a request [default: 32; w3: 8 MiB]
    #[arg(long)]
    req: Option<usize>,
    /// Bytes of an answer (w1, w2)
    #[arg(long, default_value_t = 32)]
    resp: usize,
    /// Duration of the measurement, in seconds
    #[arg(long, default_value_t = 5.0, value_parser = machine::seconds)]
    secs: f64,
    /// Warm-up before the measurement, in seconds
    #[arg(long, default_value_t = 1.0, value_parser = machine::seconds)]
    warmup: f64,
    /// The client's core
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// The server's core
    #[arg(long, default_value_t = 1)]
    server_core: usize,
    /// UDP with UDP_SEGMENT and UDP_GRO
    #[arg(long, group = "mode")]
    gso: bool,
    /// Messages per system call that sends (with `--gso`, w1 and w2). More than 64 need Linux 6.9
    #[arg(long, default_value_t = COMMON_SEGMENTS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SEGMENTS)))]
    segments: u32,
    /// UDP with sendmmsg and recvmmsg
    #[arg(long, group = "mode")]
    mmsg: bool,
    /// TCP, length-prefixed and pipelined
    #[arg(long, group = "mode")]
    tcp: bool,
    /// Block in receive calls instead of spinning; works with each of the modes above
    #[arg(long)]
    block: bool,
    /// Requests and answers of 32 to 4,096 bytes, 8 lengths in turn (w2, one datagram per call)
    #[arg(long, conflicts_with_all = ["req", "resp", "gso", "mmsg", "tcp", "peers"])]
    mixed: bool,
    /// Requests and answers of 64 lengths, spread over this range of bytes, such as 32-288 (w2, one
    /// datagram per call)
    #[arg(long, value_name = "FROM-TO", value_parser = Lengths::spread,
        conflicts_with_all = ["req", "resp", "gso", "mmsg", "tcp", "peers", "mixed"])]
    lengths: Option<Lengths>,
    /// Clients with a socket and one call in flight each, in one thread; the server uses `--mmsg`
    /// (w2)
    #[arg(long, conflicts_with_all = ["outstanding", "gso", "tcp", "block"],
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    peers: Option<u32>,
}

impl RawArgs {
    fn mode(&self) -> Mode {
        match (self.gso, self.mmsg || self.peers.is_some(), self.tcp) {
            (true, ..) => Mode::Gso,
            (_, true, _) => Mode::Mmsg,
            (.., true) => Mode::Tcp,
            _ => Mode::Single,
        }
    }

    /// Whether both sides give up their core while they have no work: they share it.
    fn yields(&self) -> bool {
        self.core == self.server_core
    }

    /// The name that the results give to the system calls of this run.
    fn stack(&self) -> &'static str {
        match (self.mode(), self.block) {
            (Mode::Single, false) => "raw",
            (Mode::Single, true) => "raw-block",
            (Mode::Mmsg, false) => "raw-mmsg",
            (Mode::Mmsg, true) => "raw-mmsg-block",
            (Mode::Gso, false) => "raw-gso",
            (Mode::Gso, true) => "raw-gso-block",
            (Mode::Tcp, false) => "raw-tcp",
            (Mode::Tcp, true) => "raw-tcp-block",
        }
    }

    /// Of a load of different lengths: the lengths.
    fn lengths(&self) -> Option<Lengths> {
        self.lengths.clone().or_else(|| self.mixed.then(Lengths::mixed))
    }

    fn sizes(&self) -> Result<Sizes, Failure> {
        let is_bulk = self.workload == Workload::W3;
        let request = self.req.unwrap_or(if is_bulk { 8 << 20 } else { 32 });
        let answer = if is_bulk { SINK_ANSWER } else { self.resp };
        let request = self.lengths().map_or(request, |lengths| lengths.longest());
        let max = if is_bulk { 1 << 30 } else { 60_000 };
        if !(MIN_ECHO..=max).contains(&request) || !(MIN_ECHO..=60_000).contains(&answer) {
            return Err(Failure::new(format!(
                "requests have {MIN_ECHO} to {max} bytes, answers {MIN_ECHO} to 60000"
            )));
        }
        Ok(Sizes { request, answer })
    }
}

fn is_nothing_there(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn prepare_udp(socket: &UdpSocket, block: bool) -> io::Result<()> {
    rustix::net::sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER)?;
    rustix::net::sockopt::set_socket_send_buffer_size(socket, RECEIVE_BUFFER)?;
    socket.set_read_timeout(Some(BLOCK_TIME))?;
    socket.set_nonblocking(!block)
}

fn prepare_tcp(stream: &TcpStream, block: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(BLOCK_TIME))?;
    stream.set_nonblocking(!block)
}

/// The server process. It is killed when this value is dropped.
struct ServerProcess {
    child: Child,
    address: SocketAddr,
}

impl ServerProcess {
    fn start(args: &RawArgs, sizes: Sizes) -> Result<Self, Failure> {
        let program =
            env::current_exe().map_err(Failure::of("the path of this program is unknown"))?;
        let mode = args
            .mode()
            .to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default();
        let mut command = Command::new(program);
        command.args(["raw-server", "--mode", &mode]);
        command.args(["--core", &args.server_core.to_string()]);
        command.args(["--req", &sizes.request.to_string(), "--resp", &sizes.answer.to_string()]);
        command.args((args.workload == Workload::W3).then_some("--bulk"));
        command.args(["--segments", &args.segments.to_string()]);
        command.args(args.block.then_some("--block"));
        command.args(args.yields().then_some("--yields"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::of("the raw server does not start"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut line);
        }
        let address = line.strip_prefix("READY ").and_then(|text| text.trim().parse().ok());
        let mut server = Self { child, address: SocketAddr::from(([0; 4], 0)) };
        server.address =
            address.ok_or_else(|| Failure::new("the raw server printed no address"))?;
        Ok(server)
    }

    fn cpu_time(&self) -> Duration {
        machine::cpu_time_of(self.child.id()).unwrap_or_default()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a workload over bare sockets and prints its line.
pub(crate) fn run(args: &RawArgs) -> Result<(), Failure> {
    let sizes = args.sizes()?;
    let pp_ns = machine::ping_pong(args.core, args.server_core);
    machine::pin(args.core)?;
    let server = ServerProcess::start(args, sizes)?;
    let io = Failure::of::<io::Error>("the raw client's socket failed");
    let measure = Measure { args, sizes, server: &server, pp_ns };
    let connect_udp = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        prepare_udp(&socket, args.block)?;
        socket.connect(server.address)?;
        Ok(socket)
    };
    let outstanding = if args.workload == Workload::W2 { args.outstanding as usize } else { 1 };
    let yields = args.yields();
    if let Some(peers) = args.peers {
        let sockets: io::Result<Vec<_>> = (0..peers).map(|_| connect_udp()).collect();
        let sockets = sockets.map_err(&io)?;
        let mut client = PeersClient::new(&sockets, sizes, yields);
        let clients = sockets.len();
        return measure.run(clients, |duration, latencies| client.run(duration, latencies));
    }
    match (args.workload, args.mode()) {
        (Workload::W3, Mode::Tcp) => {
            let stream = TcpStream::connect(server.address).map_err(&io)?;
            prepare_tcp(&stream, args.block).map_err(&io)?;
            let mut client = BulkClient::new(Carrier::Tcp(&stream), sizes.request);
            measure.run(1, |duration, latencies| client.run(duration, latencies))
        }
        (Workload::W3, mode) => {
            let socket = connect_udp().map_err(&io)?;
            bulk::prepare(&socket, mode).map_err(&io)?;
            let mut client = BulkClient::new(Carrier::Udp(&socket, mode), sizes.request);
            measure.run(1, |duration, latencies| client.run(duration, latencies))
        }
        (_, Mode::Single) => {
            let socket = connect_udp().map_err(&io)?;
            let (rx, tx) = (SingleConnected(Single::new(&socket)), SingleSender(&socket));
            let mut client = EchoClient::new(rx, tx, sizes, outstanding, yields);
            if let Some(lengths) = args.lengths() {
                client = client.mixed(&lengths);
            }
            measure.run(outstanding, |duration, latencies| client.run(duration, latencies))
        }
        (_, Mode::Mmsg) => {
            let socket = connect_udp().map_err(&io)?;
            let (rx, tx) =
                (Many::new(&socket, sizes.answer, true), Many::new(&socket, sizes.request, true));
            let mut client = EchoClient::new(rx, tx, sizes, outstanding, yields);
            measure.run(outstanding, |duration, latencies| client.run(duration, latencies))
        }
        (_, Mode::Gso) => {
            let socket = connect_udp().map_err(&io)?;
            let rx = Joined::receiver(&socket, sizes.answer, true).map_err(&io)?;
            let tx = Joined::sender(&socket, sizes.request, args.segments, true).map_err(&io)?;
            let mut client = EchoClient::new(rx, tx, sizes, outstanding, yields);
            measure.run(outstanding, |duration, latencies| client.run(duration, latencies))
        }
        (_, Mode::Tcp) => {
            let stream = TcpStream::connect(server.address).map_err(&io)?;
            prepare_tcp(&stream, args.block).map_err(&io)?;
            let (rx, tx) = (StreamReceiver::new(&stream, sizes.answer), StreamSender::new(&stream));
            let mut client = EchoClient::new(rx, tx, sizes, outstanding, yields);
            measure.run(outstanding, |duration, latencies| client.run(duration, latencies))
        }
    }
}

/// The part of a run that all modes share.
struct Measure<'a> {
    args: &'a RawArgs,
    sizes: Sizes,
    server: &'a ServerProcess,
    pp_ns: Option<f64>,
}

impl Measure<'_> {
    fn run(
        &self,
        outstanding: usize,
        mut phase: impl FnMut(Duration, &mut Latencies) -> Result<u64, Failure>,
    ) -> Result<(), Failure> {
        let mut latencies = Latencies::new();
        let warmup = phase(Duration::from_secs_f64(self.args.warmup.max(0.001)), &mut latencies)?;
        latencies.clear();
        let (start, client, server) = (Instant::now(), machine::cpu_time(), self.server.cpu_time());
        let ops = phase(Duration::from_secs_f64(self.args.secs), &mut latencies)?;
        let elapsed = start.elapsed();
        LoopOutcome {
            workload: match self.args.workload {
                Workload::W1 => "w1",
                Workload::W2 => "w2",
                Workload::W3 => "w3",
            },
            stack: self.args.stack(),
            outstanding,
            ops,
            ops_total: warmup + ops,
            elapsed,
            payload: match self.args.lengths() {
                Some(lengths) => 2 * lengths.average(),
                None => self.sizes.request + self.sizes.answer,
            },
            latencies,
            cpu_client: machine::cpu_time() - client,
            cpu_server: Some(self.server.cpu_time().saturating_sub(server)),
            resent: Retransmissions::default(),
            gaps_client: None,
            gaps_server: None,
            pp_ns: self.pp_ns,
        }
        .print();
        Ok(())
    }
}

const _: () = assert!(MIN_ECHO <= SINK_ANSWER);
