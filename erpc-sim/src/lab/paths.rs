//! Paths of any length and rate: how much of the link large requests of one client or of many fill, and how long they queue.

use std::time::Duration;

use erpc_core::protocol::CongestionControl;

use super::{Counts, Lab, Load, Samples, Setting, Spread, jain};
use crate::{Random, SimRoute};

/// Bytes of a request.
const REQUEST: usize = 8 << 20;
/// Requests under way per client: another one goes on when one ends.
const OUTSTANDING: usize = 2;
/// Round trips before those that are measured, and those that are.
const WARM_UP_TRIPS: u32 = 200;
const TRIPS: u32 = 100;
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
    /// Every cable's rate in Gb/s.
    pub gbps: u64,
    /// Congestion control of all endpoints.
    pub control: CongestionControl,
    /// Whether endpoints know the rate of their cable.
    pub knows_rate: bool,
    /// Packets on their way per session.
    pub credits: u16,
    /// One host, another one each time, is away so long every 50 ms.
    pub absence: Option<Duration>,
    /// What the hosts add to a round trip at most, in all: 5 us as over memory, 200 us as over kernel UDP.
    pub host_delay: Duration,
    /// Everything random comes from it.
    pub seed: u64,
}

/// What was seen in 100 round trips, after 200 others.
#[derive(Debug)]
pub struct PathsReport {
    /// Bytes of messages that arrived in order, in bits per nanosecond.
    pub gbps: f64,
    /// What of it the server's cable leaves for messages, or the clients' credits, if that is less.
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
    pub fn new(flows: usize, rtt: Duration, gbps: u64, control: CongestionControl) -> Self {
        Self {
            rtts: vec![rtt; flows],
            gbps,
            control,
            knows_rate: true,
            credits: 32,
            absence: None,
            host_delay: LEAST_NOISE,
            seed: 1,
        }
    }

    fn longest(&self) -> Duration {
        self.rtts.iter().copied().max().unwrap_or_default()
    }

    fn setting(&self) -> Setting {
        let flows = self.rtts.len() as u32;
        let mut setting = Setting::star_of(&self.rtts, self.gbps, self.seed)
            .control(self.control)
            .credits(self.credits);
        setting.nic.rtt_noise = self.host_delay.max(LEAST_NOISE);
        setting.nic.min_rto = setting.nic.min_rto.max(5 * self.host_delay);
        if !self.knows_rate {
            setting.nic.link_rate = None;
        }
        let room = flows.max(1) * 2 * u32::from(self.credits);
        setting.nic.rx_capacity = setting.nic.rx_capacity.max(room * setting.datagram_charge());
        setting
    }

    /// What credits let through, in bits per nanosecond.
    fn credit_gbps(&self, payload: usize) -> f64 {
        let window = f64::from(self.credits) * payload as f64 * 8.0;
        self.rtts.iter().map(|rtt| window / rtt.as_nanos() as f64).sum()
    }
}

/// Runs it.
#[must_use]
pub fn run(paths: &Paths) -> PathsReport {
    let setting = paths.setting();
    let link = paths.gbps as f64 * setting.payload_share();
    let achievable_gbps = link.min(paths.credit_gbps(setting.payload()));
    let mut lab = Lab::new(setting);
    let clients = add_endpoints(&mut lab, paths);
    let mut absences = paths.absence.map(|longest| Absences::new(longest, paths.seed));
    let longest = paths.longest();
    let mut queue = Samples::default();
    watch(&mut lab, paths, longest * WARM_UP_TRIPS, &mut absences, &mut queue);
    lab.clear();
    queue.clear();
    let time = longest * TRIPS;
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

/// The server, which is number 0, and the clients, which begin within a round trip; the numbers of the latter.
fn add_endpoints(lab: &mut Lab, paths: &Paths) -> Vec<usize> {
    let mut random = Random::new(paths.seed).fork(4);
    let load = Load {
        peers: Vec::new(),
        spread: Spread::Even,
        request: REQUEST,
        response: 32,
        outstanding: 0,
        start: Duration::ZERO,
    };
    lab.add(SERVER, load.clone());
    let clients = paths.rtts.iter().zip(1..).map(|(rtt, host)| {
        let start = Duration::from_nanos(random.below(rtt.as_nanos() as u64));
        let load = Load { peers: vec![SERVER], outstanding: OUTSTANDING, start, ..load.clone() };
        lab.add(SimRoute::new(host, 1), load)
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
        queue.add(lab.queue(SERVER.host) * 8 / paths.gbps);
        if let Some(absences) = absences {
            absences.act(lab, 1 + paths.rtts.len());
        }
    }
}
