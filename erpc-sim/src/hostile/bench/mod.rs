//! A server under attack, and the effect on its honest clients.
//!
//! The server is a real endpoint whose loop uses virtual processor time. So an attack that costs
//! work, fills the receive queue or occupies the cable increases the latency of honest clients. The
//! honest clients are real endpoints on hosts of their own. They use no processor time.

mod victim;

use std::collections::BTreeMap;
use std::rc::Rc;

use erpc_core::buf::MsgBuf;
use erpc_core::event_loop::{App, Context, EndpointStats, Rpc};
use erpc_core::protocol::{
    Body, CallError, Cause, EndpointConfig, NewCall, Reply, SessionEvent, SessionId,
};
use erpc_core::time::Instant;
use erpc_test_tools::statistics::quantile;

use bytes::BufMut;

use self::victim::Victim;
use super::{Attacker, Forged};
use crate::driver::{Driver, Step};
use crate::net::{Link, Packet, SwitchConfig, Topology};
use crate::transport::{Nic, Port, Sent, SimTransport};
use crate::{Random, SimRoute};

/// Processor time of a turn of the server's loop without packets, in ns: two system calls and a
/// clock read (a system call took 109 ns where this was measured; kernel bypass takes less).
pub const TURN_NANOS: u64 = 300;
/// Processor time of a received or sent packet, in ns. UDP with segmentation offload echoes 5.4
/// million packets per second in runs of 16: 185 ns for one packet in and one packet out, so 93 ns
/// per packet, rounded up.
pub const PACKET_NANOS: u64 = 100;

/// The server's address.
pub const VICTIM: SimRoute = SimRoute::new(0, SimRoute::SERVICE);

/// The least time from a client's connect to its first call, in ns. The client's session is open by
/// then. The victim begins its own calls this long after the start of the run.
const CALLS_FROM: u64 = 2_000_000;
/// Start of the measurement, in ns. Attacks should have begun by then.
const MEASURED_FROM: u64 = 4_000_000;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The seed of all randomness.
    pub seed: u64,
    /// The number of honest clients. The last client makes large calls, which do not count in
    /// `p50_nanos` and `p99_nanos`.
    pub clients: u32,
    /// When the first client connects, in ns. The other clients connect at time 0. Each client
    /// begins to call at least 2 ms after it connects.
    pub first_from: u64,
    /// Calls per second and client, on average. The client with large calls makes a tenth of them.
    pub calls_per_second: u64,
    /// Duration of the run in virtual time, in ns.
    pub nanos: u64,
    /// The server's receive queue, in packets.
    pub rx_packets: u32,
    /// The server's limits.
    pub config: EndpointConfig,
    /// A server that the victim itself calls all the time, over one session.
    pub victim_calls: Option<SimRoute>,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            seed: 1,
            clients: 9,
            first_from: 0,
            calls_per_second: 50_000,
            nanos: 40_000_000,
            rx_packets: 4_096,
            config: EndpointConfig::new().max_message(1 << 20).memory_limit(256 << 20),
            victim_calls: None,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct AttackReport {
    /// Measured calls of honest clients, including failed ones.
    pub calls: u64,
    /// Calls of honest clients that ended with an error or were rejected, from the beginning of the
    /// run.
    pub failed: u64,
    /// The median latency of small calls, in ns.
    pub p50_nanos: u64,
    /// The 99th percentile of the latency of small calls, in ns.
    pub p99_nanos: u64,
    /// The 99th percentile of the latency of large calls, in ns.
    pub large_p99_nanos: u64,
    /// The server's counters at the end.
    pub stats: EndpointStats,
    /// The most sessions that the server held; read in every 16th turn and at the end.
    pub most_sessions: usize,
    /// The most bytes of msgbufs that the server had in use; read as `most_sessions` is.
    pub most_pool_bytes: usize,
    /// The most packets that one turn of the server's loop sent.
    pub most_sent_in_a_turn: u64,
    /// Processor time of the server's loop, in ns: see [`TURN_NANOS`] and [`PACKET_NANOS`].
    pub busy_nanos: u64,
    /// Packets dropped because the server's receive queue was full.
    pub overflowed: u64,
    /// Packets that the attacker sent: to the server or, with the server's source address, to
    /// clients.
    pub attack_packets: u64,
    /// Bytes that the attacker sent from addresses without a host, which are never validated, and
    /// bytes that the server sent to these addresses.
    pub strangers_bytes: (u64, u64),
    /// The largest excess, over all addresses without a host, of the bytes sent to the address over
    /// the bytes sent from it.
    pub worst_excess: u64,
}

impl Bench {
    /// The host of attackers. Their own addresses are ports of it.
    #[must_use]
    pub const fn attackers_host(&self) -> u32 {
        self.clients + 1
    }

    /// The address of an honest client.
    #[must_use]
    pub const fn client(&self, index: u32) -> SimRoute {
        SimRoute::new(index + 1, 2)
    }

    /// Runs the server with its honest clients and, if given, an attacker.
    ///
    /// # Panics
    /// Panics if an endpoint breaks a rule of its transport, if its invariants do not hold, or if
    /// an honest client loses its session.
    pub fn run(&self, attacker: Option<&mut dyn Attacker>) -> AttackReport {
        let mut run = BenchRun::new(self);
        run.run(attacker);
        run.report()
    }
}

/// A network interface with a ring of `rx_packets` packets.
fn port(route: SimRoute, rx_packets: u32) -> Rc<Port> {
    Port::new(route, Nic::ring(1_472, rx_packets))
}

/// An honest client.
struct Client {
    route: SimRoute,
    rpc: Rpc<SimTransport>,
    port: Rc<Port>,
    app: Caller,
    connects_at: Instant,
    session: Option<SessionId>,
    random: Random,
    next_call: Instant,
    mean_gap: u64,
    size: usize,
}

/// Measurements of a client's calls. The token of a call is its start time in ns.
#[derive(Default)]
struct Caller {
    latencies: Vec<u64>,
    failed: u64,
    closed: Option<Cause>,
}

impl App<SimTransport> for Caller {
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, SimTransport>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        if reply.is_err() {
            self.failed += 1;
        }
        if token >= MEASURED_FROM {
            self.latencies.push(cx.now().as_nanos() - token);
        }
        if let Ok(Reply { body: Body::Message(message), .. }) = reply {
            cx.recycle(message);
        }
        cx.recycle(request);
    }

    fn on_session(&mut self, _: &mut Context<'_, SimTransport>, _: SessionId, event: SessionEvent) {
        if let SessionEvent::Closed(cause) = event {
            self.closed = Some(cause);
        }
    }
}

impl Client {
    fn new(bench: &Bench, index: u32) -> Self {
        let route = bench.client(index);
        let port = port(route, 4_096);
        let config =
            EndpointConfig::new().max_message(1 << 20).seed(bench.seed ^ u64::from(route.host));
        let rpc = Rpc::new(SimTransport::new(Rc::clone(&port)), config).expect("valid");
        let connects_at = Instant::from_nanos(if index == 0 { bench.first_from } else { 0 });
        let is_large = index + 1 == bench.clients;
        let mean_gap = 1_000_000_000 / bench.calls_per_second * if is_large { 10 } else { 1 };
        let mut random = Random::new(bench.seed).fork(u64::from(route.host));
        let next_call = connects_at.plus_nanos(CALLS_FROM + random.below(2 * mean_gap));
        let (app, size) = (Caller::default(), if is_large { 16_384 } else { 32 });
        let session = None;
        Self { route, rpc, port, app, connects_at, session, random, next_call, mean_gap, size }
    }

    fn next_at(&self) -> Instant {
        let next = if self.session.is_none() { self.connects_at } else { self.next_call };
        self.rpc.next_deadline().map_or(next, |deadline| deadline.min(next))
    }

    fn turn(&mut self, now: Instant, sent: &mut Vec<Sent>) {
        self.port.set_now(now);
        if self.session.is_none() && self.connects_at <= now {
            self.session = self.rpc.context_at(now).connect(VICTIM).ok();
        }
        if let Some(session) = self.session
            && self.next_call <= now
        {
            // Calls start at random times, so that they sometimes coincide.
            self.next_call = now.plus_nanos(1 + self.random.below(2 * self.mean_gap));
            let mut cx = self.rpc.context_at(now);
            if let Ok(mut request) = cx.alloc(self.size) {
                request.put_bytes(7, self.size);
                if cx.call(session, NewCall::new(7, request, now.as_nanos())).is_err() {
                    self.app.failed += 1;
                }
            }
        }
        self.rpc.run_once_at(now, &mut self.app);
        self.port.take_sent(sent);
    }
}

/// The number of the victim's endpoint. The clients follow, and the attacker is the last.
const VICTIM_INDEX: usize = 0;

/// The event that moves the packets of the victim's last turn to its cable.
struct Leave;

struct BenchRun {
    driver: Driver<Leave>,
    end: Instant,
    victim: Victim,
    clients: Vec<Client>,
    attackers_host: u32,
    /// Bytes from and to each address that no endpoint of the bench has.
    strangers: BTreeMap<SimRoute, (u64, u64)>,
    worst_excess: u64,
    attack_packets: u64,
    sent: Vec<Sent>,
    forged: Vec<Forged>,
}

impl BenchRun {
    fn new(bench: &Bench) -> Self {
        // The link rate of the cluster in Kalia's thesis (CMU-CS-19-126); 1 us from host to host.
        let link = Link { rate_mbps: 25_000, delay_nanos: 500 };
        let topology = Topology::star(bench.clients + 2, link, SwitchConfig::default());
        let mut driver = Driver::new(&topology, Instant::ZERO);
        for _ in 0..bench.clients + 2 {
            driver.add_endpoint();
        }
        Self {
            driver,
            end: Instant::from_nanos(bench.nanos),
            victim: Victim::new(bench),
            clients: (0..bench.clients).map(|index| Client::new(bench, index)).collect(),
            attackers_host: bench.attackers_host(),
            strangers: BTreeMap::new(),
            worst_excess: 0,
            attack_packets: 0,
            sent: Vec::new(),
            forged: Vec::new(),
        }
    }

    fn run(&mut self, mut attacker: Option<&mut dyn Attacker>) {
        let attackers_index = self.clients.len() + 1;
        for index in 1..attackers_index {
            self.driver.plan_turn_now(index);
        }
        if self.victim.has_calls() {
            self.driver.plan_turn_now(VICTIM_INDEX);
        }
        self.plan_attack(&attacker);
        while let Some(step) = self.driver.step(self.end.minus_nanos(1)) {
            match step {
                Step::Turn(VICTIM_INDEX) => self.victim_turn(),
                Step::Turn(index) if index < attackers_index => self.client_turn(index),
                Step::Turn(_) => {
                    if let Some(attacker) = &mut attacker {
                        attacker.act(self.driver.now(), &mut self.forged);
                        self.forge();
                    }
                    self.plan_attack(&attacker);
                }
                Step::Event(Leave) => self.victim_sends(),
                Step::Arrival(packet) => self.arrive(packet, &mut attacker),
                Step::Nothing => {}
            }
        }
    }

    /// Plans the attacker's next action. Replaces the earlier plan, because the attacker may have
    /// changed its time.
    fn plan_attack(&mut self, attacker: &Option<&mut dyn Attacker>) {
        let index = self.clients.len() + 1;
        self.driver.cancel_turn(index);
        if let Some(at) = attacker.as_ref().and_then(|attacker| attacker.next_at()) {
            self.driver.plan_turn(index, at);
        }
    }

    fn arrive(&mut self, packet: Packet, attacker: &mut Option<&mut dyn Attacker>) {
        let index = packet.to.host as usize;
        if index == VICTIM_INDEX {
            self.victim.arrive(packet);
            self.driver.plan_turn_now(VICTIM_INDEX);
        } else if packet.to.host == self.attackers_host {
            if let Some(attacker) = attacker {
                attacker.receive(self.driver.now(), &packet, &mut self.forged);
                self.forge();
            }
            self.plan_attack(attacker);
        } else {
            let client = &self.clients[index - 1];
            client.port.deliver(packet.from, packet.bytes, packet.marked);
            self.driver.plan_turn_now(index);
        }
    }

    fn client_turn(&mut self, index: usize) {
        let client = &mut self.clients[index - 1];
        client.turn(self.driver.now(), &mut self.sent);
        for Sent { to, bytes } in self.sent.drain(..) {
            self.driver.send(client.route.host, Packet::new(client.route, to, bytes));
        }
        self.driver.plan_turn(index, client.next_at());
    }

    fn victim_turn(&mut self) {
        let next = self.victim.turn(self.driver.now());
        if !self.victim.leaving.is_empty() {
            self.driver.schedule(self.victim.busy_until(), Leave);
        }
        self.driver.set_busy_until(VICTIM_INDEX, self.victim.busy_until());
        if let Some(next) = next {
            self.driver.plan_turn(VICTIM_INDEX, next);
        }
    }

    fn victim_sends(&mut self) {
        for Sent { to, bytes } in self.victim.leaving.drain(..) {
            if let Some((received, sent)) = self.strangers.get_mut(&to) {
                *sent += bytes.len() as u64;
                self.worst_excess = self.worst_excess.max(sent.saturating_sub(*received));
            }
            self.driver.send(VICTIM.host, Packet::new(VICTIM, to, bytes));
        }
    }

    fn forge(&mut self) {
        for Forged { from, to, bytes } in self.forged.drain(..) {
            if from.host > self.attackers_host {
                self.strangers.entry(from).or_default().0 += bytes.len() as u64;
            }
            self.attack_packets += 1;
            self.driver.send(self.attackers_host, Packet::new(from, to, bytes));
        }
    }

    fn report(&mut self) -> AttackReport {
        let mut report = self.victim.report();
        let (mut latencies, mut large) = (Vec::new(), Vec::new());
        let last = self.clients.len() - 1;
        for (at, client) in self.clients.iter_mut().enumerate() {
            assert_eq!(client.app.closed, None, "an honest client lost its session");
            report.calls += client.app.latencies.len() as u64;
            report.failed += client.app.failed;
            let list = if at == last { &mut large } else { &mut latencies };
            list.append(&mut client.app.latencies);
        }
        latencies.sort_unstable();
        large.sort_unstable();
        // If no call ended, the latency is infinite.
        let nanos = |sorted: &[u64], fraction| quantile(sorted, fraction).unwrap_or(u64::MAX);
        (report.p50_nanos, report.p99_nanos) = (nanos(&latencies, 0.5), nanos(&latencies, 0.99));
        report.large_p99_nanos = nanos(&large, 0.99);
        for (received, sent) in self.strangers.values() {
            report.strangers_bytes.0 += received;
            report.strangers_bytes.1 += sent;
        }
        report.worst_excess = self.worst_excess;
        report.attack_packets = self.attack_packets;
        report
    }
}
