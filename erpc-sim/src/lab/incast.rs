//! Many senders, one receiver (Kalia's thesis, table 6.4).

use std::time::Duration;

use erpc_core::protocol::CongestionControl;

use super::{Counts, Lab, Load, Samples, Setting, Spread, jain};
use crate::{Random, SimRoute};

/// Rate of all cables, in Gb/s.
const GBPS: u64 = 25;
/// Round trip without queues.
const BASE_RTT: Duration = Duration::from_micros(6);
/// Bytes of a small request or response.
const SMALL: u32 = 32;
/// Clients make their first call within this time, in ns.
const BEGIN_WITHIN_NANOS: u64 = 100_000;
/// The receiver.
const VICTIM: SimRoute = SimRoute::new(0, 1);

/// Parameters of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Incast {
    /// Clients, each on a host of its own with one session and one request at a time.
    pub ways: u32,
    /// Congestion control of all endpoints.
    pub control: CongestionControl,
    /// Bytes of a request; the response has 32.
    pub request: usize,
    /// Reverses the direction: the receiver calls, with one session to each client, and the
    /// responses have `request` bytes.
    pub pulls: bool,
    /// Packets that a session may have in flight.
    pub credits: u16,
    /// Adds a second endpoint to every host, which makes background calls, one at a time. On a
    /// client's host it calls the second endpoint of another client's host, with 64 kB in each
    /// direction. On the receiver's host it calls the second endpoint of a client's host, with 32
    /// bytes in each direction.
    pub background: bool,
    /// Warm-up before the measured time.
    pub warm_up: Duration,
    /// Measured time.
    pub time: Duration,
    /// Interval at which the queue and the rates are sampled.
    pub every: Duration,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Incast {
    /// The thesis' experiment: requests of 8 MiB, 32 credits. 50 ms of warm-up, 100 ms measured.
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
    /// Time since the beginning of the run.
    pub at: Duration,
    /// Bytes queued for the receiver's cable.
    pub queue: u64,
    /// Goodput since the previous moment: bytes of messages that arrived in order, in Gb/s.
    pub gbps: f64,
    /// The rate of the first session, in Gb/s; the line's rate if nothing limits the session.
    pub rate: f64,
    /// The sum of all sessions' rates, in Gb/s.
    pub rates: f64,
}

/// Results of the experiment.
#[derive(Debug)]
pub struct IncastReport {
    /// Goodput: bytes of messages that arrived in order, in Gb/s.
    pub gbps: f64,
    /// The part of the receiver's cable that is available for messages, in Gb/s.
    pub achievable_gbps: f64,
    /// Round trips of packets to the receiver or, with `pulls`, of the receiver's requests for
    /// response. With `background`, also the round trips of the background calls.
    pub rtts: Samples,
    /// Jain's index of the senders' shares.
    pub jain: f64,
    /// Latencies of the background calls of 64 kB.
    pub background: Samples,
    /// Latencies of the small background calls, whose responses arrive over the receiver's cable.
    pub beside: Samples,
    /// Counters, including the warm-up.
    pub counts: Counts,
    /// Samples from the beginning of the run to its end.
    pub moments: Vec<Moment>,
}

/// Runs the experiment.
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

/// Adds all endpoints. The receiver is number 0. Returns the numbers of the senders, of the
/// background endpoints on the clients' hosts, and of the background endpoint on the receiver's
/// host.
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
    // Background calls transfer more data than the incast, so they are expensive to simulate. They
    // need no time to stabilise, so they start late in the warm-up.
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

/// The rates of all sessions whose messages go to the receiver, in Gb/s.
fn rates(lab: &mut Lab, pulls: bool, senders: &[usize]) -> Vec<f64> {
    let of_the_receiver = &[0][..];
    let callers = if pulls { of_the_receiver } else { senders };
    let rates = callers.iter().flat_map(|&caller| lab.rates(caller));
    rates.map(|rate| rate.map_or(GBPS as f64, |rate| rate as f64 * 8e-9)).collect()
}

/// Advances the clock by `time` and samples the network at the configured interval.
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
