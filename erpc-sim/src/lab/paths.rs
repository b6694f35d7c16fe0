//! Paths of any length and rate: how large requests of one or many clients fill the link, and how
//! long their packets queue.

use std::time::Duration;

use erpc_core::protocol::CongestionControl;
use erpc_core::transport::{ChargeModel, Link, MIN_DATAGRAM};

use super::{Counts, Lab, Load, Samples, Setting, Spread, jain};
use crate::{Random, SimRoute};

/// The least and the most bytes of a request. Lengths differ, so that some of the requests in
/// progress continue while others wait for their responses.
const REQUEST: (usize, usize) = (1 << 20, 8 << 20);
/// Requests in progress per client.
const OUTSTANDING: usize = 8;
/// Round trips of the warm-up, and measured round trips. A round trip here includes the time that
/// one packet of each client takes in the queue: on a slow link with many clients, this is most of
/// the round trip.
const WARM_UP_TRIPS: u32 = 200;
const TRIPS: u32 = 100;
/// Round trips that a joining client has to reach its share. Then the share is measured over as
/// many further round trips.
const JOIN_TRIPS: u32 = 50;
/// Samples of the queue per round trip of the farthest client through empty queues.
const LOOKS: u32 = 10;
/// Interval between stalls, if hosts stall.
const ABSENCE_EVERY: Duration = Duration::from_millis(50);
/// Random variation of the round trip over memory or a polled device.
const LEAST_NOISE: Duration = Duration::from_micros(5);
/// The server that receives all requests.
const SERVER: SimRoute = SimRoute::new(0, 1);

/// Parameters of the experiment: a path and its clients.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Round trip through empty queues, one per client. Each client has a host of its own.
    pub rtts: Vec<Duration>,
    /// Rate of every cable, in Mb/s.
    pub mbps: u64,
    /// Congestion control of all endpoints.
    pub control: CongestionControl,
    /// Whether endpoints know the rate of their cable.
    pub knows_rate: bool,
    /// Packets that a session may have in flight at first.
    pub credits: u16,
    /// Capacity of each receive queue, in bytes. If the queue is a ring, these are bytes of
    /// datagrams; otherwise they are counted as `charge` says.
    pub memory: u64,
    /// How the receive queues charge packets.
    pub charge: ChargeModel,
    /// Bytes of a datagram.
    pub datagram: usize,
    /// The longest stall of a host, if hosts stall. Every 50 ms one host stalls for a random time,
    /// at least a fifth of this one: the server with a probability of one half, otherwise a random
    /// client.
    pub absence: Option<Duration>,
    /// The largest delay that the hosts add to a round trip. With 5 us or less, loops spin, as over
    /// memory. With more, for example 200 us as over kernel UDP, the loop at each end wakes up
    /// late: once in fifty times by up to half of this delay, otherwise by up to a twentieth of it.
    pub host_delay: Duration,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Results of 100 round trips, after 200 round trips of warm-up.
#[derive(Debug)]
pub struct PathsReport {
    /// Goodput: bytes of messages that arrived in order, in Gb/s.
    pub gbps: f64,
    /// The largest possible goodput in Gb/s: the rate of the server's cable, or the rate that the
    /// capacity of the server's receive queue permits, whichever is lower.
    pub achievable_gbps: f64,
    /// Jain's index of the clients' shares.
    pub jain: f64,
    /// Goodput by client, in Gb/s.
    pub shares: Vec<f64>,
    /// Queueing delay at the server's cable, in ns, sampled ten times per round trip of the
    /// farthest client through empty queues.
    pub queue: Samples,
    /// Counters since the beginning of the run.
    pub counts: Counts,
}

impl Paths {
    /// `flows` clients with the same round trip, without stalls, that know the link's rate.
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

    /// The round trip of the farthest client through a queue that holds one packet of each client.
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

    /// The goodput that the capacity of the server's receive queue permits, in Gb/s. The server
    /// divides three quarters of its receive queue into equal parts, and grants one part to each
    /// client. The number of parts is the number of clients, rounded up to a power of two.
    fn memory_gbps(&self, setting: &Setting) -> f64 {
        let parts = self.rtts.len().next_power_of_two() as u32;
        let granted = setting.nic.rx_capacity / 4 * 3;
        let packets = granted / parts / setting.datagram_charge();
        let window = f64::from(packets) * setting.payload() as f64 * 8.0;
        self.rtts.iter().map(|rtt| window / rtt.as_nanos() as f64).sum()
    }
}

/// Runs the experiment.
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

/// Lets the last client join after the others have shared the link for 200 round trips. Returns its
/// goodput as a fraction of its fair share, measured in 50 round trips that begin at least 50 round
/// trips after it joins.
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

/// Adds the server, which is number 0, and the clients. Each client starts within one round trip of
/// the beginning, except the last client: it starts `last` later. Returns the clients' numbers.
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

/// Times and lengths of the stalls of hosts.
struct Absences {
    random: Random,
    longest: Duration,
    next: Duration,
}

impl Absences {
    fn new(longest: Duration, seed: u64) -> Self {
        Self { random: Random::new(seed).fork(5), longest, next: ABSENCE_EVERY }
    }

    /// Stalls a host if a stall is due.
    fn act(&mut self, lab: &mut Lab, hosts: usize) {
        if lab.elapsed() < self.next {
            return;
        }
        self.next += ABSENCE_EVERY;
        let longest = self.longest.as_nanos() as u64;
        let nanos = self.random.within((longest / 5).max(1), longest.max(1));
        // Half of the stalls hit the server, the others a random client.
        let client = 1 + self.random.below(hosts as u64 - 1) as usize;
        let host = if self.random.percent(50) { 0 } else { client };
        lab.stall(host, Duration::from_nanos(nanos));
    }
}

/// Advances the clock by `time`, samples the queue and stalls hosts.
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
