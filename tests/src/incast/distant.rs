//! One client sends large requests to a distant server, as in `erpc_sim::lab::paths`.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use erpc::raw::{App, Context, MsgBuf, NewCall, Reply, Request, Rpc, SessionEvent, SessionId};
use erpc::transport::udp::UdpRoute;
use erpc::{CallError, EndpointConfig, Retransmissions, Transport, Udp, UdpConfig};
use erpc_test_tools::limit::millis;
use erpc_test_tools::netns::Namespace;
use erpc_test_tools::random::Random;
use erpc_test_tools::tun;

use super::CALLS;
use super::bottleneck::{Bottleneck, CLIENTS, HOST, SERVER};
use super::ends::{IncastServer, LENGTH};
use super::hop::{LONGEST, Router};
use super::line::{ETHERNET, Port};
use super::scheduling::{LoopGaps, Priority, raise_priority};
use crate::raw::listening;

/// Smallest and largest request in bytes.
///
/// The sizes differ, so that some requests are being sent while others wait for their answers. They
/// are similar, so that the freed memory of one request fits the next. With requests of 1 to 8 MiB,
/// as in the simulation, it would not fit, and the server's loop would stall for milliseconds while
/// the kernel provides new pages.
const REQUEST: (usize, usize) = (1_050_000, 1_250_000);
/// Requests in flight.
const OUTSTANDING: usize = 8;
/// Bytes of a datagram besides the part of the message: the header of erpc.
const HEADER: u64 = 24;
/// Bytes of an IP packet besides the datagram: the headers of IP and UDP.
const IP_AND_UDP: u64 = 28;
/// Capacity of a port's queue in bytes: the share of one port in a switch with 12 MB.
const BUFFER: u64 = 6_000_000;
/// Interval at which the server publishes its counters.
const LOOK: Duration = millis(1);

/// Network namespaces of a client and of a distant server. Each direction has a port of the same
/// rate and a long cable.
///
/// The loops of both hosts spin, each on its own thread: on a virtual machine, a sleeping thread
/// wakes up some tenths of a millisecond late. The server's thread also runs the router, once per
/// turn of its loop, because a third thread would compete with the two for a core.
#[derive(Debug)]
pub struct LongPath {
    client: Namespace,
    server: Namespace,
    devices: [File; 2],
    port: Port,
    mtu: u64,
}

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Distant {
    /// Warm-up before the measurement.
    pub warm_up: Duration,
    /// Duration of the measurement.
    pub time: Duration,
}

/// The result of a [`Distant`].
#[derive(Clone, Debug)]
pub struct DistantReport {
    /// Bytes of messages received by the server, without retransmissions, in 10^9 bits per second.
    pub gbps: f64,
    /// Capacity of the server's receive queue, in the units of
    /// [`ChargeModel::LinuxUdp`](erpc::transport::ChargeModel::LinuxUdp).
    pub receive_queue: u32,
    /// The session's smoothed round trip at the end.
    pub rtt: Option<Duration>,
    /// Packets that the ports dropped.
    pub drops: u64,
    /// Packets dropped because the server's receive queue was full.
    pub overflow: u64,
    /// Packets that the client retransmitted.
    pub retransmissions: Retransmissions,
    /// Fraction of the time in which other work kept a loop from its core. There is one fraction
    /// for the client's loop and one for the server's; this is the larger one.
    pub away: f64,
    /// Fraction of the time in which the busier loop had work. At 1, the loop and not the path
    /// limits the throughput.
    pub busy: f64,
}

impl LongPath {
    /// Makes ports of `rate_mbit` million bits per second, including frame headers, and cables with
    /// equal delays. The round trip of the longest packet, of `mtu` bytes (at most 9,000), and an
    /// answer that consists of a header takes `rtt`.
    ///
    /// # Errors
    /// The reason why the machine cannot make the namespaces or the devices.
    pub fn new(rate_mbit: u64, rtt: Duration, mtu: usize) -> Result<Self, String> {
        let (client, server) = (Namespace::new("client")?, Namespace::new("server")?);
        let mtu = mtu.min(LONGEST);
        let devices =
            [tun::attach(&client, HOST, CLIENTS, mtu)?, tun::attach(&server, HOST, SERVER, mtu)?];
        let (rate, delay, mtu) = (rate_mbit * 125_000, Duration::ZERO, mtu as u64);
        let port = Port { rate, buffer: BUFFER, mark_above: u64::MAX, delay };
        let sending = [mtu, HEADER + IP_AND_UDP].map(|packet| port.time(packet + ETHERNET));
        let cables = rtt.saturating_sub(sending.iter().sum());
        Ok(Self { client, server, devices, port: Port { delay: cables / 2, ..port }, mtu })
    }

    /// Bytes of a datagram that fills a packet.
    #[must_use]
    pub fn datagram(&self) -> u64 {
        self.mtu - IP_AND_UDP
    }

    fn router(&self) -> Router {
        let device = |at: usize| self.devices[at].try_clone().expect("a descriptor is available");
        Router::new([self.port; 2], [device(0), device(1)])
    }
}

impl Distant {
    /// Runs the measurement through `net`.
    ///
    /// # Panics
    /// If a call fails.
    #[must_use]
    pub fn run(self, net: &LongPath) -> DistantReport {
        let (stop, progress) = (AtomicBool::new(false), Progress::default());
        let (stop, progress) = (&stop, &progress);
        thread::scope(|scope| {
            scope.spawn(move || {
                net.server.enter();
                raise_priority(Priority::Probe);
                serve(net.router(), progress, stop);
            });
            let client = scope.spawn(move || {
                net.client.enter();
                raise_priority(Priority::Probe);
                self.send(net.datagram(), progress)
            });
            let report = client.join();
            // `stop` is set even if the client's thread panicked.
            stop.store(true, Ordering::Relaxed);
            report.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs the client and computes the report.
    fn send(self, datagram: u64, server: &Progress) -> DistantReport {
        let mut client = Client::new();
        client.run_for(self.warm_up);
        let before = Look::at(server, &mut client);
        client.run_for(self.time);
        let after = Look::at(server, &mut client);
        let rtt = client.rtt();
        client.end();

        let time = (after.at - before.at).as_secs_f64();
        let retransmissions = after.retransmissions - before.retransmissions;
        let bytes = after.received - before.received;
        let bytes = bytes.saturating_sub(retransmissions.packets() * datagram);
        let messages = bytes as f64 * (datagram - HEADER) as f64 / datagram as f64;
        let worst = |of: fn(&Spent) -> Duration| {
            let ends = before.ends.iter().zip(&after.ends);
            let parts = ends.map(|(before, after)| (of(after) - of(before)).as_secs_f64() / time);
            parts.fold(0.0, f64::max)
        };
        DistantReport {
            gbps: messages * 8.0 / time / 1e9,
            receive_queue: server.receive_queue.load(Ordering::Relaxed) as u32,
            rtt,
            drops: after.drops - before.drops,
            overflow: after.overflow - before.overflow,
            retransmissions,
            away: worst(|end| end.away),
            busy: worst(|end| end.busy),
        }
    }
}

/// How a loop spent its time.
#[derive(Clone, Copy, Default, Debug)]
struct Spent {
    /// Time in which other work kept the loop from its core.
    away: Duration,
    /// Time in which the loop had work.
    busy: Duration,
}

/// All counters at one time.
struct Look {
    at: Instant,
    received: u64,
    overflow: u64,
    drops: u64,
    retransmissions: Retransmissions,
    ends: [Spent; 2],
}

impl Look {
    fn at(server: &Progress, client: &mut Client) -> Self {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let time = |nanos: &AtomicU64| Duration::from_nanos(count(nanos));
        Self {
            at: Instant::now(),
            received: count(&server.received),
            overflow: count(&server.overflow),
            drops: count(&server.drops),
            retransmissions: client.rpc.stats().protocol.retransmissions,
            ends: [
                client.turns.spent,
                Spent { away: time(&server.away), busy: time(&server.busy) },
            ],
        }
    }
}

/// Measures the turns of a loop.
struct Turns {
    gaps: LoopGaps,
    began: Instant,
    spent: Spent,
}

impl Turns {
    fn new() -> Self {
        Self { gaps: LoopGaps::new(), began: Instant::now(), spent: Spent::default() }
    }

    /// Called at the start of a turn. `worked` tells whether the previous turn had work.
    fn next(&mut self, worked: bool) {
        let now = Instant::now();
        if worked {
            self.spent.busy += now - self.began;
        }
        self.began = now;
        self.spent.away = self.gaps.turn();
    }
}

/// Counters that the server publishes while it serves.
#[derive(Debug, Default)]
struct Progress {
    /// Bytes of received datagrams.
    received: AtomicU64,
    /// Packets dropped because the receive queue was full.
    overflow: AtomicU64,
    /// Capacity of the receive queue.
    receive_queue: AtomicU64,
    /// Packets that the ports dropped.
    drops: AtomicU64,
    /// [`Spent::away`], in nanoseconds.
    away: AtomicU64,
    /// [`Spent::busy`], in nanoseconds.
    busy: AtomicU64,
}

/// Runs the server and the router until `stop`.
fn serve(mut router: Router, progress: &Progress, stop: &AtomicBool) {
    let address = Bottleneck::server_at(CALLS);
    let socket = Udp::bind(&UdpConfig::new().address(address)).expect("the server's socket");
    progress.receive_queue.store(socket.capabilities().rx_capacity.into(), Ordering::Relaxed);
    let mut rpc = listening(socket, EndpointConfig::new());
    let (mut turns, mut told) = (Turns::new(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let moved = router.turn();
        let worked = rpc.run_once(&mut IncastServer) + moved;
        turns.next(worked > 0);
        if told.elapsed() >= LOOK {
            told = Instant::now();
            let stats = rpc.stats().transport;
            let tell = |to: &AtomicU64, what: u64| to.store(what, Ordering::Relaxed);
            tell(&progress.received, stats.rx_bytes);
            tell(&progress.overflow, stats.rx_overflow);
            tell(&progress.drops, router.drops());
            tell(&progress.away, turns.spent.away.as_nanos() as u64);
            tell(&progress.busy, turns.spent.busy.as_nanos() as u64);
        }
    }
}

/// The client's endpoint and its application.
struct Client {
    rpc: Rpc<Udp>,
    caller: Caller,
    turns: Turns,
}

/// The client's application: keeps [`OUTSTANDING`] requests in flight.
struct Caller {
    random: Random,
    session: Option<SessionId>,
    is_over: bool,
}

impl Client {
    /// Opens a socket and starts to open the session.
    fn new() -> Self {
        let config = UdpConfig::new().address(Bottleneck::clients_at(0));
        let socket = Udp::bind(&config).expect("the client's socket");
        let mut rpc = Rpc::new(socket, EndpointConfig::new()).expect("the defaults are in bounds");
        let server = Bottleneck::server_at(CALLS);
        rpc.context().connect(server.into()).expect("the first session");
        let caller = Caller { random: Random::new(1), session: None, is_over: false };
        Self { rpc, caller, turns: Turns::new() }
    }

    fn run_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while self.turns.began < end {
            let worked = self.rpc.run_once(&mut self.caller);
            self.turns.next(worked > 0);
        }
    }

    fn rtt(&mut self) -> Option<Duration> {
        self.rpc.context().session_stats(self.caller.session?)?.rtt
    }

    /// Disconnects. Calls in flight fail.
    fn end(mut self) {
        self.caller.is_over = true;
        self.rpc.shutdown();
        self.rpc.run_once(&mut self.caller);
    }
}

impl Caller {
    fn call(&mut self, cx: &mut Context<'_, Udp>, mut request: MsgBuf) {
        let (least, most) = REQUEST;
        let len = self.random.within(least as u64, most as u64);
        request.resize(len as usize);
        let session = self.session.expect("the session is open");
        cx.call(session, NewCall::new(LENGTH, request, len)).expect("the session has room");
    }
}

impl App<Udp> for Caller {
    fn on_request(&mut self, _: &mut Context<'_, Udp>, request: Request<'_, UdpRoute>) {
        panic!("the client received a request for method {}", request.method);
    }

    /// The token is the request's length.
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, Udp>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        if self.is_over {
            return;
        }
        let reply = reply.expect("no call fails while the load runs");
        assert_eq!(reply.as_slice(), token.to_le_bytes(), "the answer is wrong");
        self.call(cx, request);
    }

    fn on_session(&mut self, cx: &mut Context<'_, Udp>, session: SessionId, event: SessionEvent) {
        match event {
            SessionEvent::Opened => {
                self.session = Some(session);
                for _ in 0..OUTSTANDING {
                    let request = cx.alloc(REQUEST.1).expect("memory for the requests");
                    self.call(cx, request);
                }
            }
            SessionEvent::Draining => panic!("no server shuts down gracefully"),
            SessionEvent::Closed(cause) => assert!(self.is_over, "the session closed: {cause}"),
        }
    }
}
