//! Many clients send to one server through one slow port, with the kernel's UDP between network namespaces: how long
//! the port's queue gets, and what comes through. And one client that is far away: see [`LongPath`].

mod bottleneck;
mod distant;
mod ends;
mod hop;
mod line;
mod mark;
mod probe;
mod scheduling;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use erpc::CongestionControl;
use erpc::{EndpointConfig, Retransmissions};

use self::ends::{Clients, Progress, Snapshot, serve};
use self::probe::Trip;
use self::scheduling::{Priority, raise_priority};
use erpc_test_tools::limit::millis;
use erpc_test_tools::statistics::jain;

pub use self::bottleneck::Bottleneck;
pub use self::distant::{Distant, DistantReport, LongPath};

/// Ports of the server's host.
const CALLS: u16 = 7_000;
const PROBES: u16 = 7_001;
/// How long packets are sent through the empty port first, to know how long they take without a queue.
const IDLE: Duration = millis(100);
/// How often the port is asked for its queue.
const LOOK: Duration = millis(20);
/// Bytes of a datagram, for 1,500 of an IPv4 packet.
const DATAGRAM: u64 = 1_472;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Incast {
    /// Clients, each with an endpoint, a session and one request under way.
    pub ways: usize,
    /// Who controls their rates.
    pub control: CongestionControl,
    /// Bytes of a request.
    pub request: usize,
    /// Time before that which is measured.
    pub warm_up: Duration,
    /// Time that is measured.
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct QueueReport {
    /// Datagrams that the server got, less retransmissions, in 10^9 bits per second.
    pub gbps: f64,
    /// Of the port, frames with their headers.
    pub link_gbps: f64,
    /// How much longer packets took than through the empty port, sorted: one per millisecond.
    pub delays: Vec<Duration>,
    /// Bytes that the port said were in its queue, sorted.
    pub backlogs: Vec<u64>,
    /// The sessions' smoothed round trips at the end, sorted.
    pub rtts: Vec<Duration>,
    /// Packets that the port dropped.
    pub drops: u64,
    /// Packets that the clients sent again.
    pub retransmissions: Retransmissions,
    /// Jain's index of fairness over what clients sent: 1 if all sent the same.
    pub jain: f64,
    /// The part of the time that the clients' loop or the server's, whichever was worse, was kept from its core by
    /// something else: round trips then contain that, and a port waits for senders that are not there.
    pub away: f64,
}

impl Incast {
    /// 20 clients with requests of 8 MiB.
    #[must_use]
    pub fn new(control: CongestionControl) -> Self {
        let (warm_up, time) = (millis(500), millis(1_000));
        Self { ways: 20, control, request: 8 << 20, warm_up, time }
    }

    /// Sends through `net` for as long as was said.
    ///
    /// # Panics
    /// If a call fails, or nothing comes through.
    #[must_use]
    pub fn run(&self, net: &Bottleneck) -> QueueReport {
        let (stop, progress, epoch) = (AtomicBool::new(false), Progress::default(), Instant::now());
        let (stop, progress) = (&stop, &progress);
        let config = EndpointConfig::new().congestion(self.control).link_rate(net.link_rate());
        let drops = net.queue().drops;
        thread::scope(|scope| {
            let probes = Bottleneck::server_at(PROBES);
            scope.spawn(|| {
                net.server.enter();
                raise_priority(Priority::Endpoint);
                serve(Bottleneck::server_at(CALLS), config.clone(), progress, stop);
            });
            scope.spawn(move || {
                net.clients.enter();
                probe::send(Bottleneck::clients_at(0), probes, epoch, stop);
            });
            let trips = scope.spawn(move || {
                net.server.enter();
                probe::receive(probes, epoch, stop)
            });
            let backlogs = scope.spawn(move || watch(net, stop));
            let clients = scope.spawn(|| {
                net.clients.enter();
                raise_priority(Priority::Endpoint);
                let snapshots = self.send(&config, progress);
                stop.store(true, Ordering::Relaxed);
                snapshots
            });
            let snapshots = clients.join();
            // Also if it was a panic that ended them.
            stop.store(true, Ordering::Relaxed);
            let snapshots = snapshots.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let trips = trips.join().expect("the probes arrive");
            let backlogs = backlogs.join().expect("the port is watched");
            report(net, snapshots, &trips, backlogs, net.queue().drops - drops)
        })
    }

    /// The clients' thread: snapshots at the beginning of all, and at both ends of what is measured.
    fn send(&self, config: &EndpointConfig, progress: &Progress) -> [Snapshot; 3] {
        thread::sleep(IDLE);
        let addresses = [Bottleneck::clients_at(0), Bottleneck::server_at(CALLS)];
        let mut clients = Clients::new(self.ways, addresses, config, self.request, progress);
        let begin = clients.snapshot();
        clients.run_for(self.warm_up);
        let before = clients.snapshot();
        clients.run_for(self.time);
        let after = clients.snapshot();
        clients.end();
        [begin, before, after]
    }
}

/// The port's queue, now and then.
fn watch(net: &Bottleneck, stop: &AtomicBool) -> Vec<(Instant, u64)> {
    let mut backlogs = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        backlogs.push((Instant::now(), net.queue().backlog));
        thread::sleep(LOOK);
    }
    backlogs
}

fn report(
    net: &Bottleneck,
    [begin, before, after]: [Snapshot; 3],
    trips: &[Trip],
    backlogs: Vec<(Instant, u64)>,
    drops: u64,
) -> QueueReport {
    let time = (after.at - before.at).as_secs_f64();
    let clients = || before.clients.iter().zip(&after.clients);
    let mut resent = Retransmissions::default();
    clients().for_each(|(before, after)| resent += after.retransmissions - before.retransmissions);
    let bytes = (after.received - before.received).saturating_sub(resent.packets() * DATAGRAM);
    let shares: Vec<f64> =
        clients().map(|(before, after)| (after.bytes - before.bytes) as f64).collect();
    let is_measured = |at: Instant| at >= before.at && at < after.at;

    let idle = trips.iter().filter(|trip| trip.sent < begin.at).map(|trip| trip.took).min();
    let idle = idle.expect("packets came through the empty port");
    let measured = trips.iter().filter(|trip| is_measured(trip.sent));
    let mut delays: Vec<_> = measured.map(|trip| trip.took.saturating_sub(idle)).collect();
    delays.sort_unstable();
    let measured = backlogs.iter().filter(|(at, _)| is_measured(*at));
    let mut backlogs: Vec<u64> = measured.map(|(_, backlog)| *backlog).collect();
    backlogs.sort_unstable();
    let away =
        before.away.iter().zip(&after.away).map(|(before, after)| (*after - *before).as_secs_f64());
    let away = away.fold(0.0, f64::max);
    let mut rtts = after.rtts;
    rtts.sort_unstable();
    QueueReport {
        gbps: bytes as f64 * 8.0 / time / 1e9,
        link_gbps: net.link_rate() as f64 * 8.0 / 1e9,
        delays,
        backlogs,
        rtts,
        drops,
        retransmissions: resent,
        jain: jain(&shares),
        away: away / time,
    }
}
