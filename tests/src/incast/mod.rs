//! Many clients send to one server through one slow port, over the kernel's UDP between network
//! namespaces. Measures the port's queue and the throughput. For one distant client, see
//! [`LongPath`].

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

/// UDP port of the server.
const CALLS: u16 = 7_000;
/// UDP port of the receiver of probes, at the server's host.
const PROBES: u16 = 7_001;
/// Time at the start in which only probes pass the port, to measure their latency without a queue.
const IDLE: Duration = millis(100);
/// Interval at which the port's queue is sampled.
const LOOK: Duration = millis(20);
/// Bytes of a datagram, for an IPv4 packet of 1,500 bytes.
const DATAGRAM: u64 = 1_472;

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Incast {
    /// Number of clients, each with an endpoint, a session and one request in flight.
    pub ways: usize,
    /// Congestion control of the clients.
    pub control: CongestionControl,
    /// Bytes of a request.
    pub request: usize,
    /// Warm-up before the measurement.
    pub warm_up: Duration,
    /// Duration of the measurement.
    pub time: Duration,
}

/// The result of an [`Incast`].
#[derive(Clone, Debug)]
pub struct QueueReport {
    /// Datagrams received by the server, without retransmissions, in 10^9 bits per second.
    pub gbps: f64,
    /// Rate of the port in 10^9 bits per second, including frame headers.
    pub link_gbps: f64,
    /// Queueing delays of probes, sorted: their latencies minus the latency through the empty port.
    /// One probe is sent per millisecond.
    pub delays: Vec<Duration>,
    /// Samples of the bytes in the port's queue, sorted.
    pub backlogs: Vec<u64>,
    /// The sessions' smoothed round trips at the end, sorted.
    pub rtts: Vec<Duration>,
    /// Packets that the port dropped.
    pub drops: u64,
    /// Packets that the clients retransmitted.
    pub retransmissions: Retransmissions,
    /// Jain's index of fairness over the bytes that clients sent: 1 if all sent the same number.
    pub jain: f64,
    /// Fraction of the time in which other work kept a loop from its core. There is one fraction
    /// for the clients' loop and one for the server's; this is the larger one. Such gaps lengthen
    /// round trips and leave the port idle.
    pub away: f64,
}

impl Incast {
    /// 20 clients with requests of 8 MiB.
    #[must_use]
    pub fn new(control: CongestionControl) -> Self {
        let (warm_up, time) = (millis(500), millis(1_000));
        Self { ways: 20, control, request: 8 << 20, warm_up, time }
    }

    /// Runs the measurement through `net`.
    ///
    /// # Panics
    /// If a call fails, or no probe arrives.
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
            // `stop` is set here, too, because the clients' thread may have panicked before it set
            // `stop`.
            stop.store(true, Ordering::Relaxed);
            let snapshots = snapshots.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let trips = trips.join().expect("the receiver of probes does not panic");
            let backlogs = backlogs.join().expect("the sampling thread does not panic");
            report(net, snapshots, &trips, backlogs, net.queue().drops - drops)
        })
    }

    /// Runs the clients. Returns snapshots before all traffic, and at the start and the end of the
    /// measurement.
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

/// Samples the port's queue until `stop`: times and bytes.
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
    let idle = idle.expect("probes passed the empty port");
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
