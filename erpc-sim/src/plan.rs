//! What will happen in a run, all of it drawn from the seed before the run begins.
//!
//! Every feature draws from a stream of its own, so that taking one away leaves the others as they
//! were: that is what makes shrinking work.

use std::time::Duration;

use erpc_core::protocol::{EndpointConfig, Integrity, MAX_RTO};
use erpc_core::time::Instant;
use erpc_core::transport::ChargeModel;
use erpc_core::transport::fault::{Faults, Outage};

use crate::net::{Link, SwitchConfig, Topology};
use crate::transport::Nic;
use crate::whim::Whims;
use crate::{Feature, Features, Random, Scenario, SimRoute};

/// A run's whole future, but for what the endpoints do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed that all came from.
    pub seed: u64,
    /// The shape of it.
    pub scenario: Scenario,
    /// What may go wrong.
    pub features: Features,
    /// The same before anything was cut.
    pub drawn: Features,
    /// The network.
    pub topology: Topology,
    /// Who is there.
    pub endpoints: Vec<EndpointPlan>,
    /// Single events, in order of time.
    pub events: Vec<(Instant, Happening)>,
    /// When all faults are over and no new calls are made.
    pub heal_at: Instant,
    /// What handlers do.
    pub handlers: Handlers,
    /// What calls are like besides their sizes.
    pub whims: Whims,
    /// How long messages are.
    pub sizes: Sizes,
    /// Calls that one endpoint has under way at most, over all sessions.
    pub outstanding: u32,
    /// What an endpoint's turn costs it, and each packet in it, in nanoseconds.
    pub turn_nanos: (u64, u64),
    /// Every packet is printed, when it is sent and when it is delivered.
    pub prints: bool,
    times: Times,
}

/// An endpoint and its part in the run.
#[derive(Clone, Debug)]
pub struct EndpointPlan {
    /// Where it is.
    pub route: SimRoute,
    /// Whether it accepts sessions, and the ports of its listening group.
    pub group: Vec<u16>,
    /// Its interface.
    pub nic: Nic,
    /// Its settings but for the seed.
    pub config: EndpointConfig,
    /// What happens to packets that it receives, and to packets that it sends.
    pub faults: (Faults, Faults),
    /// The servers it opens a session to, one per entry.
    pub servers: Vec<SimRoute>,
    /// When it makes calls, and how many.
    pub rounds: Vec<(Instant, u32)>,
}

/// What a run shall do without, although its seed drew it: how a failing run is made smaller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// Whole features.
    pub without: Features,
    /// Single happenings, by their place in [`Plan::events`] without those features.
    pub skip: Vec<usize>,
    /// Nothing is cut by this: see [`Plan::prints`].
    pub prints: bool,
}

/// Something that happens once.
#[derive(Clone, PartialEq, Debug)]
pub enum Happening {
    /// An endpoint dies, and is there again after so many nanoseconds.
    Crash(usize, u64),
    /// A link stops.
    Stop(u32),
    /// A link goes on.
    Resume(u32),
    /// So many packets of the past come again.
    Replay(u32),
    /// So many forged packets come.
    Forge(u32),
    /// An endpoint's clock stands still for so many nanoseconds.
    Stall(usize, u64),
    /// An endpoint's clock leaps ahead by so many nanoseconds.
    Leap(usize, u64),
    /// An endpoint's user takes all the memory there is, for so many nanoseconds.
    Hoard(usize, u64),
    /// An endpoint closes one of its sessions and opens another.
    Reconnect(usize),
}

/// What handlers do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Handlers {
    /// In a hundred requests, how many are answered later.
    pub slow_percent: u32,
    /// The latest answer, in nanoseconds.
    pub slowest_nanos: u64,
    /// In a hundred requests, how many make the handler panic.
    pub panic_percent: u32,
}

/// How long messages are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Payload that fits one packet of the shortest path, in bytes.
    pub packet: u32,
    /// Longest message.
    pub longest: u32,
    /// In a hundred messages, how many have one packet.
    pub short_percent: u32,
}

impl Sizes {
    /// A length.
    pub fn draw(&self, random: &mut Random) -> u32 {
        if random.percent(self.short_percent) {
            return match random.below(8) {
                0 => 0,
                1 => random.below(8) as u32,
                2 | 3 => 32,
                4 | 5 => random.below(256) as u32,
                6 => self.packet.saturating_sub(random.below(40) as u32),
                _ => random.below(u64::from(self.packet)) as u32,
            };
        }
        let longest = u64::from(self.longest);
        // Lengths of every order of magnitude alike.
        let cap = longest >> random.below(6);
        let length = match random.below(8) {
            // On the edge of a packet.
            0 => (1 + random.below(8)) * u64::from(self.packet) + random.below(3) - 1,
            _ => random.within(1, cap.max(1)),
        };
        length.min(longest) as u32
    }
}

/// The most credits that an endpoint gives a session.
pub(crate) const MOST_CREDITS: u16 = 128;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const HOUR: u64 = 3_600 * SECOND;

/// Streams of randomness, one per purpose; features have theirs behind these.
mod purpose {
    pub(super) const FEATURES: u64 = 1;
    pub(super) const SHAPE: u64 = 2;
    pub(super) const ENDPOINTS: u64 = 3;
    pub(super) const WORK: u64 = 4;
    pub(super) const CHECKSUMS: u64 = 5;
    pub(super) const FIRST_FEATURE: u64 = 100;
}

impl Plan {
    /// The plan of a seed, but for what is cut.
    #[must_use]
    pub fn draw(seed: u64, scenario: Scenario, cut: &Cut) -> Self {
        let root = Random::new(seed);
        let drawn = scenario.features(&mut root.fork(purpose::FEATURES));
        let mut features = drawn;
        for feature in cut.without.iter() {
            features = features.without(feature);
        }
        let mut draft = Draft::new(&root, scenario, (features, drawn));
        draft.add_endpoints();
        draft.add_packet_faults();
        draft.add_happenings();
        let mut plan = Self { seed, prints: cut.prints, ..draft.plan };
        let mut at = 0..;
        plan.events.retain(|_| at.next().is_none_or(|at| !cut.skip.contains(&at)));
        plan
    }

    /// Whether what arrives is what was sent: nothing is damaged, or checksums find it.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        let [flips, cuts, grows] = [Feature::Corruption, Feature::Truncation, Feature::Extension]
            .map(|of| self.features.has(of));
        // What is cut and grows may have its old length again.
        !(flips || cuts && grows) || self.features.has(Feature::Checksums)
    }

    /// Whether nothing goes wrong at all.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.features == Features::none() && self.drawn == Features::none()
    }

    /// Whether sessions live and packets arrive, sooner or later.
    #[must_use]
    pub fn spares_packets(&self) -> bool {
        let loses = self.features.has_any(&Feature::LOSSY) || self.features.has(Feature::Squeeze);
        self.spares_sessions() && !loses
    }

    /// Whether nothing happens that could end a session before its time.
    #[must_use]
    pub fn spares_sessions(&self) -> bool {
        self.is_trusted() && self.times.liveness >= 10 * SECOND && self.drawn.spare_sessions()
    }

    /// After the faults are over, every call ends within this many nanoseconds. Where sessions live: a call
    /// that executes is asked after within a ping interval, and once more. Where they may not: a peer is
    /// found out to be dead, or a call to be blocked, within the liveness timeout and some pings, and a
    /// session that is being opened fails. And whatever is lost by then is sent again within the longest
    /// timeout, for calls that queue one behind the other. Runs use up to half of it.
    #[must_use]
    pub fn bound_nanos(&self, backlog_bytes: u64, backlog_calls: u64) -> u64 {
        let Times { liveness, ping, connect, .. } = self.times;
        let calm =
            if self.spares_sessions() { 2 * ping } else { liveness * 3 / 2 + ping + connect };
        let executing = self.handlers.slowest_nanos;
        let repeats = 8 * MAX_RTO + backlog_calls * MAX_RTO / 16;
        calm + executing + repeats + backlog_bytes * 32
    }

    /// How often a call is asked after that executes and of which nothing is heard.
    #[must_use]
    pub fn probes_every_nanos(&self) -> u64 {
        self.times.ping / 8
    }
}

/// The time scale of a run, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    liveness: u64,
    ping: u64,
    connect: u64,
    rto: u64,
    /// How long faults and calls go on.
    length: u64,
}

impl Times {
    /// `features` are those that the seed has drawn, before any was cut: shrinking changes no times.
    fn draw(random: &mut Random, scenario: Scenario, features: Features) -> Self {
        let liveness = *random.pick(&[200 * MS, 500 * MS, 2 * SECOND, 10 * SECOND]);
        let connect = *random.pick(&[200 * MS, SECOND, 2 * SECOND]);
        let rto = *random.pick(&[100_000, MS, 5 * MS, 20 * MS]);
        let length = *random.pick(&[20 * MS, 200 * MS, 2 * SECOND, 15 * SECOND]);
        let (liveness, connect, rto, length) = match scenario {
            Scenario::Calm => (10 * SECOND, 2 * SECOND, 5 * MS, 50 * MS),
            // Long enough for idle sessions to live by their pings.
            _ if features.spare_sessions() => {
                let length = *random.pick(&[2 * SECOND, 20 * SECOND, 40 * SECOND]);
                (10 * SECOND, connect, rto, length)
            }
            _ => (liveness, connect, rto, length),
        };
        Self { liveness, ping: liveness * 3 / 10, connect, rto, length }
    }
}

/// Why sessions carry checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asking {
    /// Nobody needs to ask, for transports let damaged packets through; some do.
    Some,
    /// All who open sessions ask.
    Clients,
    /// All who accept sessions ask.
    Servers,
}

/// A plan in the making.
struct Draft<'a> {
    root: &'a Random,
    times: Times,
    /// Who asks for checksums, where there are any.
    asking: Option<Asking>,
    plan: Plan,
    healed: Instant,
}

impl<'a> Draft<'a> {
    fn new(root: &'a Random, scenario: Scenario, features: (Features, Features)) -> Self {
        let (features, drawn) = features;
        let mut shape = root.fork(purpose::SHAPE);
        let asking = [Asking::Some, Asking::Clients, Asking::Servers];
        let asking = *root.fork(purpose::CHECKSUMS).pick(&asking);
        let asking = features.has(Feature::Checksums).then_some(asking);
        let times = Times::draw(&mut shape, scenario, drawn);
        let squeezed = features.has(Feature::Squeeze);
        let topology = scenario.topology(&mut shape, squeezed);
        let max_datagram = *shape.pick(&[1_200, 1_472, 1_472, 4_120, 8_972]);
        let packet = max_datagram as u32 - 28;
        let sizes = Sizes {
            packet,
            longest: *shape.pick(&[4, 16, 32, 100]) * packet,
            short_percent: shape.within(10, 60) as u32,
        };
        let nic = Nic {
            max_datagram,
            inline: *shape.pick(&[0, 64, 256, 16_384]),
            charge: *shape.pick(&[ChargeModel::Ring, ChargeModel::LinuxUdp]),
            rx_capacity: 0,
            dma_nanos: *shape.pick(&[0, 500, 20_000, 2 * MS]),
            min_rto: Duration::from_nanos(times.rto),
            integrity: asking != Some(Asking::Some),
        };
        // Both are drawn, whatever is used: what is cut from a run shall change nothing else.
        let (few, many) = (shape.within(4, 48), shape.within(256, 4_096));
        let rx_packets = if squeezed { few } else { many };
        let rx_capacity = rx_packets as u32 * nic.charge.charge(max_datagram);
        let healed = Instant::from_nanos(SECOND + times.length);
        let plan = Plan {
            seed: 0,
            scenario,
            features,
            drawn,
            topology,
            endpoints: vec![EndpointPlan {
                route: SimRoute::new(0, 0),
                group: Vec::new(),
                nic: Nic { rx_capacity, ..nic },
                config: EndpointConfig::new(),
                faults: (Faults::none(), Faults::none()),
                servers: Vec::new(),
                rounds: Vec::new(),
            }],
            events: Vec::new(),
            heal_at: healed,
            handlers: Handlers::default(),
            whims: Whims::default(),
            sizes,
            outstanding: shape.within(1, 48) as u32,
            turn_nanos: (300, 100),
            prints: false,
            times,
        };
        Self { root, times, asking, plan, healed }
    }

    fn feature(&self, feature: Feature) -> Option<Random> {
        let has = self.plan.features.has(feature);
        has.then(|| self.root.fork(purpose::FIRST_FEATURE + feature as u64))
    }

    /// The settings of an endpoint that opens sessions, accepts them, or both.
    fn config(&self, random: &mut Random, opens: bool, accepts: bool) -> EndpointConfig {
        let nanos = Duration::from_nanos;
        let mut config = EndpointConfig::new()
            .credits(*random.pick(&[1, 2, 8, 32, 32, MOST_CREDITS]))
            .max_message(self.plan.sizes.longest.max(1))
            .queue_limit(*random.pick(&[0, 16, 1_024, 1_024, 1_024]))
            .liveness_timeout(nanos(self.times.liveness))
            .ping_interval(nanos(self.times.ping))
            .connect_timeout(nanos(self.times.connect));
        // All is drawn, whatever is used: what is cut from a run shall change nothing else.
        let eager = random.within(1_024, u64::from(self.plan.sizes.packet).max(1_024)) as u32;
        let (is_eager, asks, is_small, is_full) =
            (random.percent(30), random.percent(50), random.percent(50), random.percent(10));
        let longest = self.plan.sizes.longest as usize;
        let pool = longest * random.within(3, 12) as usize + 65_536;
        let session = longest * random.within(1, 3) as usize;
        let sessions = random.within(2, 8) as u32;
        if is_eager {
            config = config.eager(eager);
        }
        let asks = match self.asking {
            None => false,
            Some(Asking::Some) => asks,
            Some(Asking::Clients) => opens,
            Some(Asking::Servers) => accepts,
        };
        if asks {
            config = config.integrity(Integrity::Always);
        }
        if self.plan.features.has(Feature::Memory) {
            config = config.memory_limit(pool);
            config = if is_small { config.session_memory_limit(session) } else { config };
            config = if is_full { config.max_sessions(sessions) } else { config };
        }
        config
    }

    fn add_endpoints(&mut self) {
        let mut random = self.root.fork(purpose::ENDPOINTS);
        let mut work = self.root.fork(purpose::WORK);
        let model = self.plan.endpoints.remove(0);
        let hosts = self.plan.topology.hosts();
        let servers = self.plan.scenario.servers(&mut random, hosts);
        let group_size = random.within(1, 2) as u16;
        let group: Vec<u16> = (SimRoute::SERVICE..SimRoute::SERVICE + group_size).collect();
        let calls = self.plan.scenario.calls(&mut work);
        // Servers call each other, if there are others.
        let everybody_calls = random.percent(30) && servers > 1;
        let callers = if everybody_calls { hosts } else { hosts - servers };
        // In an incast all call at once.
        let together = (self.plan.scenario == Scenario::Incast)
            .then(|| self.rounds(&mut work, (calls / callers).max(1)));
        for host in 0..hosts {
            let serves = host < servers;
            let ports = if serves { group.clone() } else { vec![SimRoute::SERVICE] };
            for port in ports {
                let calls_others = !serves || everybody_calls && port == SimRoute::SERVICE;
                let mut endpoint = EndpointPlan {
                    route: SimRoute::new(host, port),
                    group: if serves { group.clone() } else { Vec::new() },
                    config: self.config(&mut random, calls_others, serves),
                    ..model.clone()
                };
                if calls_others {
                    let sessions = self.plan.scenario.sessions(&mut random);
                    endpoint.servers = (0..sessions)
                        .map(|_| {
                            let server = random.below(u64::from(servers)) as u32;
                            // Nobody calls itself.
                            let server = if server == host { (host + 1) % servers } else { server };
                            SimRoute::new(server, SimRoute::SERVICE)
                        })
                        .collect();
                    endpoint.rounds = match &together {
                        Some(rounds) => rounds.clone(),
                        None => self.rounds(&mut work, (calls / callers).max(1)),
                    };
                }
                self.plan.endpoints.push(endpoint);
            }
        }
    }

    fn rounds(&self, random: &mut Random, calls: u32) -> Vec<(Instant, u32)> {
        // Few, with long silences between them, or many.
        let count = (*random.pick(&[1, 2, 4, 12])).min(u64::from(calls));
        let mut rounds: Vec<_> = (0..count)
            .map(|at| {
                let share = calls / count as u32 + u32::from(at == 0) * (calls % count as u32);
                (self.sometime(random), share)
            })
            .collect();
        rounds.sort_unstable();
        rounds
    }

    /// A point in time while faults go on.
    fn sometime(&self, random: &mut Random) -> Instant {
        Instant::from_nanos(SECOND + random.below(self.times.length))
    }

    /// A point in time at which much is under way, more likely than not: soon after calls are made.
    fn some_busy_time(&self, random: &mut Random) -> Instant {
        let rounds = &random.pick(&self.plan.endpoints).rounds;
        if rounds.is_empty() || random.percent(25) {
            return self.sometime(random);
        }
        // 1 us to 8 ms later.
        let (soon, (at, _)) = (1 << random.within(10, 22), *random.pick(rounds));
        at.plus_nanos(soon + random.below(soon)).min(self.healed)
    }

    fn add_packet_faults(&mut self) {
        let features: Vec<_> = Feature::ALL
            .into_iter()
            .filter_map(|feature| Some((feature, self.feature(feature)?)))
            .collect();
        let (times, packet) = (self.times, self.plan.sizes.packet as usize);
        let spares = self.plan.drawn.spare_sessions();
        for (feature, mut random) in features {
            for endpoint in &mut self.plan.endpoints {
                // Not everybody suffers from everything.
                if random.percent(30) {
                    continue;
                }
                let (rx, tx) = std::mem::take(&mut endpoint.faults);
                if feature == Feature::Partitions {
                    // Cut off in both directions at once.
                    let outage = outage(&mut random, times, 0);
                    endpoint.faults = (rx.outage(outage), tx.outage(outage));
                    continue;
                }
                let both = random.percent(70);
                let rx = suffer(feature, rx, &mut random, (times, spares), packet);
                let tx = if both {
                    suffer(feature, tx, &mut random, (times, spares), packet)
                } else {
                    tx
                };
                endpoint.faults = (rx, tx);
            }
        }
    }

    fn add_happenings(&mut self) {
        let endpoints = self.plan.endpoints.len() as u64;
        let links = u64::from(self.plan.topology.links());
        let mut events = Vec::new();
        let length = self.times.length;
        for feature in self.plan.features.iter() {
            let Some(mut random) = self.feature(feature) else { continue };
            let random = &mut random;
            let most = if feature == Feature::Churn { 60 } else { 12 };
            let count = random.within(1, most);
            for _ in 0..count {
                let at = self.some_busy_time(random);
                let who = random.below(endpoints) as usize;
                let left = self.healed.nanos_since(at).max(1);
                let happening = match feature {
                    Feature::Crashes => Happening::Crash(who, random.below(length / 2).min(left)),
                    Feature::Links => {
                        let link = random.below(links) as u32;
                        let until = at.plus_nanos(random.below(length / 2).min(left));
                        events.push((until, Happening::Resume(link)));
                        Happening::Stop(link)
                    }
                    Feature::Replay => Happening::Replay(random.within(1, 256) as u32),
                    Feature::Spoofing => Happening::Forge(random.within(1, 128) as u32),
                    Feature::ClockStall => Happening::Stall(who, random.below(length).min(left)),
                    Feature::ClockLeap => {
                        Happening::Leap(who, (1 << random.within(10, 42)).min(HOUR))
                    }
                    Feature::Memory => Happening::Hoard(who, random.below(length / 2).min(left)),
                    Feature::Churn => Happening::Reconnect(who),
                    _ => break,
                };
                events.push((at, happening));
            }
        }
        events.sort_by_key(|(at, _)| *at);
        self.plan.events = events;
        if let Some(mut random) = self.feature(Feature::SlowHandlers) {
            self.plan.handlers.slow_percent = random.within(1, 60) as u32;
            self.plan.handlers.slowest_nanos = *random.pick(&[1_000, 100_000, 20 * MS, SECOND]);
        }
        if let Some(mut random) = self.feature(Feature::Panics) {
            self.plan.handlers.panic_percent = random.within(1, 30) as u32;
        }
        let percent = |feature: Feature, most: u64| {
            self.feature(feature).map_or(0, |mut random| random.within(1, most) as u32)
        };
        self.plan.whims = Whims {
            extended_percent: percent(Feature::Metadata, 100),
            deadline_percent: percent(Feature::Deadlines, 60),
            cancel_percent: percent(Feature::Cancels, 60),
        };
    }
}

/// Some time in which packets longer than `over` bytes are lost.
fn outage(random: &mut Random, times: Times, over: usize) -> Outage {
    let from = random.below(times.length);
    // Both sides of the liveness timeout.
    let length = *random.pick(&[times.liveness / 4, times.liveness * 3 / 4, times.liveness * 2]);
    let until = (from + length).min(times.length);
    Outage { from: Duration::from_nanos(from), until: Duration::from_nanos(until), over }
}

/// One direction of one endpoint suffers from a feature that acts on packets.
fn suffer(
    feature: Feature,
    faults: Faults,
    random: &mut Random,
    context: (Times, bool),
    packet: usize,
) -> Faults {
    let (times, spares) = context;
    let chance = |random: &mut Random, most: u64| random.below(most * 10 + 1) as f64 / 1_000.0;
    let nanos = Duration::from_nanos;
    match feature {
        // A packet meets the sender's faults and the receiver's: half of these chances lose half of all
        // round trips, the whole of them three quarters.
        Feature::Loss if spares => faults.drop(chance(random, 15)),
        Feature::Corruption if spares => faults.corrupt(chance(random, 10)),
        Feature::Truncation if spares => faults.truncate(chance(random, 10)),
        Feature::Extension if spares => faults.extend(chance(random, 10)),
        Feature::Loss => faults.drop(chance(random, 30)),
        Feature::Bursts => {
            let mean = random.within(2, 40) as f64;
            faults.bursts(chance(random, 5), mean, random.within(50, 100) as f64 / 100.0)
        }
        Feature::Duplicates => {
            // Up to twice the shortest timeout, a common one, the longest.
            let late = *random.pick(&[2 * times.rto, 40 * MS, SECOND]);
            faults.duplicate(chance(random, 30), random.within(1, 5) as u8, nanos(late))
        }
        Feature::Reorder => faults.reorder(chance(random, 50), nanos(random.below(200_000) + 1)),
        Feature::Spikes => {
            let longest = *random.pick(&[MS, 100 * MS, 10 * SECOND]);
            faults.spike(chance(random, 3), nanos(longest))
        }
        Feature::Corruption => faults.corrupt(chance(random, 20)),
        Feature::Truncation => faults.truncate(chance(random, 20)),
        Feature::Extension => faults.extend(chance(random, 20)),
        Feature::OneWay if random.percent(50) => faults.outage(outage(random, times, 0)),
        Feature::MtuShrink => faults.outage(outage(random, times, packet / 2)),
        _ => faults,
    }
}

/// Every link of the plan's topology, used by scenarios.
#[must_use]
pub(crate) fn link(random: &mut Random) -> Link {
    Link {
        rate_mbps: *random.pick(&[1_000, 10_000, 25_000, 100_000]),
        delay_nanos: *random.pick(&[300, 1_000, 5_000, 200_000]),
    }
}

/// A switch with a buffer of the usual size, or with little.
#[must_use]
pub(crate) fn switch(random: &mut Random, squeezed: bool) -> SwitchConfig {
    let little = random.within(32, 256) * 1_024;
    let buffer_bytes = if squeezed { little } else { 12 << 20 };
    SwitchConfig {
        buffer_bytes,
        alpha: *random.pick(&[0.5, 1.0, 8.0]),
        mark_bytes: buffer_bytes / 16,
    }
}
