//! Paths of any length and rate: how much of the link large requests of one client or of many fill, and how long they queue.

use std::time::Duration;

use erpc_core::protocol::CongestionControl;
use erpc_core::transport::{ChargeModel, Link, MIN_DATAGRAM};

use super::{Counts, Lab, Load, Samples, Setting, Spread, jain};
use crate::{Random, SimRoute};

/// Bytes of a request, at least and at most: of those under way some go on while others wait for their answers.
const REQUEST: (usize, usize) = (1 << 20, 8 << 20);
/// Requests under way per client.
const OUTSTANDING: usize = 8;
/// Round trips before those that are measured, and those that are. One packet of each client is in the queue meanwhile: on a
/// slow link, a client sends no packet in most of the shortest round trips.
const WARM_UP_TRIPS: u32 = 200;
const TRIPS: u32 = 100;
/// Round trips in which a client that joins the others is to come to a share, and those in which that is measured.
const JOIN_TRIPS: u32 = 50;
/// The queue is looked at so often in a round trip.
const LOOKS: u32 = 10;
/// Hosts are away so often, if at all.
const ABSENCE_EVERY: Duration = Duration::from_millis(50);
/// How far round trips scatter over memory or a device that is polled.
const LEAST_NOISE: Duration = Duration::from_micros(5);
/// Where the requests go.
const SERVER: SimRoute = SimRoute::new(0, 1);

/// A path, and its clients.
#[derive(Clone, Debug)]
pub struct Paths {
    /// A round trip through empty queues, by client: as many as there are, each on a host of its own.
    pub rtts: Vec<Duration>,
    /// Every cable's rate in Mb/s.
    pub mbps: u64,
    /// Congestion control of all endpoints.
    pub control: CongestionControl,
    /// Whether endpoints know the rate of their cable.
    pub knows_rate: bool,
    /// Packets on their way per session at first.
    pub credits: u16,
    /// What the receive queues hold, in bytes: of datagrams if they are rings, and otherwise as `charge` counts.
    pub memory: u64,
    /// How the receive queues count.
    pub charge: ChargeModel,
    /// Bytes of a datagram.
    pub datagram: usize,
    /// One host, another one each time, is away so long every 50 ms.
    pub absence: Option<Duration>,
    /// What the hosts add to a round trip at most, in all: 5 us as over memory, where loops spin; 200 us as over kernel UDP,
    /// where the loop of each end sleeps on for half of that once in fifty times, and otherwise for a twentieth at most.
    pub host_delay: Duration,
    /// Everything random comes from it.
    pub seed: u64,
}

/// What was seen in 100 round trips, after 200 others.
#[derive(Debug)]
pub struct PathsReport {
    /// Bytes of messages that arrived in order, in bits per nanosecond.
    pub gbps: f64,
    /// What of it the server's cable leaves for messages, or the server's memory, if that is less.
    pub achievable_gbps: f64,
    /// How fair clients shared.
    pub jain: f64,
    /// By client, in bits per nanosecond.
    pub shares: Vec<f64>,
    /// How long a packet had to wait for the server's cable, whenever that was looked at.
    pub queue: Samples,
    /// What was counted, from the beginning.
    pub counts: Counts,
}

impl Paths {
    /// So many clients with the same round trip, without absences, of which all know the rate.
    #[must_use]
    pub fn new(flows: usize, rtt: Duration, mbps: u64, control: CongestionControl) -> Self {
        Self {
            rtts: vec![rtt; flows],
            mbps,
            control,
            knows_rate: true,
            credits: 32,
            memory: 16 << 20,
            charge: ChargeModel::Ring,
            datagram: MIN_DATAGRAM,
            absence: None,
            host_delay: LEAST_NOISE,
            seed: 1,
        }
    }

    fn longest(&self) -> Duration {
        self.rtts.iter().copied().max().unwrap_or_default()
    }

    /// A round trip with one packet of each client in the queue.
    fn trip(&self, setting: &Setting) -> Duration {
        let packet =
            setting.payload() as f64 / setting.payload_share() * 8_000.0 / self.mbps as f64;
        self.longest() + Duration::from_nanos((packet * self.rtts.len() as f64) as u64)
    }

    fn setting(&self) -> Setting {
        let mut setting = Setting::star_of(&self.rtts, self.mbps, self.datagram, self.seed)
            .control(self.control)
            .credits(self.credits);
        setting.nic.rtt_noise = self.host_delay.max(LEAST_NOISE);
        setting.nic.min_rto = setting.nic.min_rto.max(5 * self.host_delay);
        if !self.knows_rate {
            setting.nic.link = Link::Unknown;
        }
        if self.host_delay > LEAST_NOISE {
            setting.wake_nanos = self.host_delay.as_nanos() as u64 / 2;
        }
        setting.nic.charge = self.charge;
        setting.nic.rx_capacity = match self.charge {
            ChargeModel::Ring => {
                (self.memory / self.datagram as u64) as u32 * ChargeModel::RING_ENTRY
            }
            _ => u32::try_from(self.memory).unwrap_or(u32::MAX),
        };
        setting
    }

    /// What the server's memory lets through, in bits per nanosecond. It grants three quarters of its queue, halved until each
    /// client has a part.
    fn memory_gbps(&self, setting: &Setting) -> f64 {
        let parts = self.rtts.len().next_power_of_two() as u32;
        let granted = setting.nic.rx_capacity / 4 * 3;
        let packets = granted / parts / setting.datagram_charge();
        let window = f64::from(packets) * setting.payload() as f64 * 8.0;
        self.rtts.iter().map(|rtt| window / rtt.as_nanos() as f64).sum()
    }
}

/// Runs it.
#[must_use]
pub fn run(paths: &Paths) -> PathsReport {
    let setting = paths.setting();
    let link = paths.mbps as f64 / 1e3 * setting.payload_share();
    let achievable_gbps = link.min(paths.memory_gbps(&setting));
    let trip = paths.trip(&setting);
    let mut lab = Lab::new(setting);
    let clients = add_endpoints(&mut lab, paths, Duration::ZERO);
    let mut absences = paths.absence.map(|longest| Absences::new(longest, paths.seed));
    let mut queue = Samples::default();
    watch(&mut lab, paths, trip * WARM_UP_TRIPS, &mut absences, &mut queue);
    lab.clear();
    queue.clear();
    let time = trip * TRIPS;
    watch(&mut lab, paths, time, &mut absences, &mut queue);
    let nanos = time.as_nanos() as f64;
    let share = |&client: &usize| lab.meter().delivered(client) as f64 * 8.0 / nanos;
    let shares: Vec<f64> = clients.iter().map(share).collect();
    PathsReport {
        gbps: shares.iter().sum(),
        achievable_gbps,
        jain: jain(&shares),
        shares,
        queue,
        counts: lab.counts(),
    }
}

/// The last client joins when the others have shared the link for 200 round trips. Returns what it gets in 50 round trips after its
/// first 50, as a part of its fair share.
#[must_use]
pub fn join(paths: &Paths) -> f64 {
    let setting = paths.setting();
    let trip = paths.trip(&setting);
    let mut lab = Lab::new(setting);
    let at = trip * WARM_UP_TRIPS;
    let clients = add_endpoints(&mut lab, paths, at);
    lab.run_for(at + paths.longest() + trip * JOIN_TRIPS);
    lab.clear();
    lab.run_for(trip * JOIN_TRIPS);
    let shares: Vec<u64> = clients.iter().map(|&client| lab.meter().delivered(client)).collect();
    let all: u64 = shares.iter().sum();
    shares.last().map_or(0.0, |&newcomer| newcomer as f64 * shares.len() as f64 / all as f64)
}

/// The server, which is number 0, and the clients, which begin within a round trip, the last one so much later; the numbers
/// of the clients.
fn add_endpoints(lab: &mut Lab, paths: &Paths, last: Duration) -> Vec<usize> {
    let mut random = Random::new(paths.seed).fork(4);
    let load = Load {
        peers: Vec::new(),
        spread: Spread::Even,
        request: REQUEST.1,
        response: 32,
        outstanding: 0,
        start: Duration::ZERO,
    };
    lab.add(SERVER, load.clone());
    let clients = paths.rtts.iter().zip(1..).map(|(rtt, host)| {
        let mut start = Duration::from_nanos(random.below(rtt.as_nanos() as u64));
        if host as usize == paths.rtts.len() {
            start += last;
        }
        let load = Load { peers: vec![SERVER], outstanding: OUTSTANDING, start, ..load.clone() };
        let client = lab.add_client(SimRoute::new(host, 1), load);
        lab.vary_requests(client, REQUEST.0);
        client
    });
    clients.collect()
}

/// When hosts are away, and for how long.
struct Absences {
    random: Random,
    longest: Duration,
    next: Duration,
}

impl Absences {
    fn new(longest: Duration, seed: u64) -> Self {
        Self { random: Random::new(seed).fork(5), longest, next: ABSENCE_EVERY }
    }

    /// Stops a host if it is time.
    fn act(&mut self, lab: &mut Lab, hosts: usize) {
        if lab.elapsed() < self.next {
            return;
        }
        self.next += ABSENCE_EVERY;
        let longest = self.longest.as_nanos() as u64;
        let nanos = self.random.within((longest / 5).max(1), longest.max(1));
        // The server, or a client, as often.
        let client = 1 + self.random.below(hosts as u64 - 1) as usize;
        let host = if self.random.percent(50) { 0 } else { client };
        lab.stall(host, Duration::from_nanos(nanos));
    }
}

/// Lets time pass, and looks at the queue now and then.
fn watch(
    lab: &mut Lab,
    paths: &Paths,
    time: Duration,
    absences: &mut Option<Absences>,
    queue: &mut Samples,
) {
    let (end, every) = (lab.elapsed() + time, paths.longest() / LOOKS);
    while lab.elapsed() < end {
        lab.run_for(every.min(end - lab.elapsed()));
        queue.add(lab.queue(SERVER.host) * 8_000 / paths.mbps);
        if let Some(absences) = absences {
            absences.act(lab, 1 + paths.rtts.len());
        }
    }
}
