//! Many senders, one receiver (thesis table 6.4).

use std::time::Duration;

use erpc_core::protocol::CongestionControl;

use super::{Counts, Lab, Load, Samples, Setting, Spread, jain};
use crate::{Random, SimRoute};

/// The switch's cables.
const GBPS: u64 = 25;
/// Without queues.
const BASE_RTT: Duration = Duration::from_micros(6);
/// Bytes of what is small.
const SMALL: u32 = 32;
/// Clients begin within this.
const BEGIN_WITHIN_NANOS: u64 = 100_000;
/// The receiver.
const VICTIM: SimRoute = SimRoute::new(0, 1);

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Incast {
    /// Clients, each on a host of its own with one session and one request at a time.
    pub ways: u32,
    /// Who controls their rates.
    pub control: CongestionControl,
    /// Bytes of a request; the response has 32.
    pub request: usize,
    /// The other way round: the receiver calls, one session to each, and it is the responses that have so many bytes.
    pub pulls: bool,
    /// Packets on their way per session.
    pub credits: u16,
    /// Whether another endpoint on each client's host calls one on another's, 64 kB there and back, one call at a time;
    /// and one on the receiver's host calls one of those, 32 bytes there and back.
    pub background: bool,
    /// Time before that which is measured.
    pub warm_up: Duration,
    /// Time that is measured.
    pub time: Duration,
    /// How often queue and rates are looked at.
    pub every: Duration,
    /// Everything random comes from it.
    pub seed: u64,
}

impl Incast {
    /// As in the thesis: 8 MiB, 32 credits; 50 ms of warm-up, 100 ms measured.
    #[must_use]
    pub fn new(ways: u32, control: CongestionControl) -> Self {
        Self {
            ways,
            control,
            request: 8 << 20,
            pulls: false,
            credits: 32,
            background: false,
            warm_up: Duration::from_millis(50),
            time: Duration::from_millis(100),
            every: Duration::from_micros(20),
            seed: 1,
        }
    }
}

/// The network at one point in time.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Since the beginning.
    pub at: Duration,
    /// Bytes that wait for the receiver's cable.
    pub queue: u64,
    /// Bytes of messages that have arrived in order since the last moment, in bits per nanosecond.
    pub gbps: f64,
    /// The rate of the first session, in bits per nanosecond; the line's if nothing limits it.
    pub rate: f64,
    /// The sum of all sessions' rates, likewise.
    pub rates: f64,
}

/// What was seen.
#[derive(Debug)]
pub struct IncastReport {
    /// Bytes of messages that arrived in order, in bits per nanosecond.
    pub gbps: f64,
    /// What of the receiver's cable is left for messages.
    pub achievable_gbps: f64,
    /// Round trips of packets to the receiver, or of what it asked for.
    pub rtts: Samples,
    /// How fair senders shared.
    pub jain: f64,
    /// How long background calls of 64 kB took.
    pub background: Samples,
    /// How long the small ones took, whose answers come over the receiver's cable.
    pub beside: Samples,
    /// What was counted, the warm-up included.
    pub counts: Counts,
    /// From the beginning to the end.
    pub moments: Vec<Moment>,
}

/// Runs it.
#[must_use]
pub fn run(incast: &Incast) -> IncastReport {
    let setting = Setting::star(incast.ways + 1, GBPS, BASE_RTT, incast.seed)
        .control(incast.control)
        .credits(incast.credits);
    let achievable_gbps = GBPS as f64 * setting.payload_share();
    let mut lab = Lab::new(setting);
    let (senders, others, beside) = add_endpoints(&mut lab, incast);

    let mut moments = Vec::new();
    watch(&mut lab, incast, incast.warm_up, &senders, &mut moments);
    lab.clear();
    watch(&mut lab, incast, incast.time, &senders, &mut moments);

    let nanos = incast.time.as_nanos() as f64;
    let shares: Vec<f64> =
        senders.iter().map(|&sender| lab.meter().delivered(sender) as f64 * 8.0 / nanos).collect();
    IncastReport {
        gbps: shares.iter().sum(),
        achievable_gbps,
        jain: jain(&shares),
        background: lab.latencies(others),
        beside: lab.latencies(beside),
        counts: lab.counts(),
        rtts: std::mem::take(lab.meter().rtts()),
        moments,
    }
}

/// The receiver, which is number 0, the senders, who talks in the background, and who does so on the receiver's host; the
/// numbers of the latter three.
fn add_endpoints(lab: &mut Lab, incast: &Incast) -> (Vec<usize>, Vec<usize>, Option<usize>) {
    let mut random = Random::new(incast.seed).fork(3);
    let nothing = Load {
        peers: Vec::new(),
        spread: Spread::Even,
        request: 0,
        response: 0,
        outstanding: 0,
        start: Duration::ZERO,
    };
    let sender = |host| SimRoute::new(host, 1);
    let all = 1..=incast.ways;
    lab.add(
        VICTIM,
        match incast.pulls {
            false => nothing.clone(),
            true => Load {
                peers: all.clone().map(sender).collect(),
                request: SMALL as usize,
                response: incast.request as u32,
                outstanding: incast.ways as usize,
                ..nothing.clone()
            },
        },
    );
    let mut senders = Vec::new();
    for host in all.clone() {
        let load = match incast.pulls {
            true => nothing.clone(),
            false => Load {
                peers: vec![VICTIM],
                request: incast.request,
                response: SMALL,
                outstanding: 1,
                start: Duration::from_nanos(random.below(BEGIN_WITHIN_NANOS)),
                ..nothing.clone()
            },
        };
        senders.push(lab.add(sender(host), load));
    }
    // They move more than the incast does, and need no time to come to rest.
    let nothing = Load { start: incast.warm_up - incast.warm_up / 10, ..nothing };
    let mut others = Vec::new();
    for host in all.filter(|_| incast.background) {
        let peers = vec![SimRoute::new(host % incast.ways + 1, 2)];
        let (request, response) = (64_000, 64_000);
        let load = Load { peers, request, response, outstanding: 1, ..nothing.clone() };
        others.push(lab.add(SimRoute::new(host, 2), load));
    }
    let beside = incast.background.then(|| {
        let peers = vec![SimRoute::new(1, 2)];
        let (request, response) = (SMALL as usize, SMALL);
        let load = Load { peers, request, response, outstanding: 1, ..nothing };
        lab.add(SimRoute::new(VICTIM.host, 2), load)
    });
    (senders, others, beside)
}

/// The rates of all sessions whose messages go to the receiver, in bits per nanosecond.
fn rates(lab: &mut Lab, pulls: bool, senders: &[usize]) -> Vec<f64> {
    let of_the_receiver = &[0][..];
    let callers = if pulls { of_the_receiver } else { senders };
    let rates = callers.iter().flat_map(|&caller| lab.rates(caller));
    rates.map(|rate| rate.map_or(GBPS as f64, |rate| rate as f64 * 8e-9)).collect()
}

/// Lets time pass, and looks now and then.
fn watch(
    lab: &mut Lab,
    incast: &Incast,
    time: Duration,
    senders: &[usize],
    moments: &mut Vec<Moment>,
) {
    let end = lab.elapsed() + time;
    let delivered =
        |lab: &mut Lab| senders.iter().map(|&sender| lab.meter().delivered(sender)).sum::<u64>();
    let mut before = delivered(lab);
    while lab.elapsed() < end {
        let step = incast.every.min(end - lab.elapsed());
        lab.run_for(step);
        let after = delivered(lab);
        let rates = rates(lab, incast.pulls, senders);
        moments.push(Moment {
            at: lab.elapsed(),
            queue: lab.queue(VICTIM.host),
            gbps: (after - before) as f64 * 8.0 / step.as_nanos() as f64,
            rate: rates.first().copied().unwrap_or(0.0),
            rates: rates.iter().sum(),
        });
        before = after;
    }
}
