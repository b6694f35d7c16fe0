//! Draws a plan.

use std::time::Duration;

use erpc_core::protocol::measurement::Bypasses;
use erpc_core::protocol::{
    CongestionControl, DEFAULT_SLOTS, DcqcnConfig, EndpointConfig, Integrity, SwiftConfig,
    TimelyConfig,
};
use erpc_core::stream::BATCH;
use erpc_core::time::Instant;
use erpc_core::transport::fault::Faults;
use erpc_core::transport::{ChargeModel, Link, MAX_BURST, MIN_DATAGRAM};
use erpc_core::wire::extension::MAX_EXTENSION;

use super::faults::{outage, suffer};
use super::times::Times;
use super::{
    EndpointPlan, HOUR, Handlers, MOST_CREDITS, MOST_METHODS, MS, Plan, PlannedEvent, Reserve,
    SECOND, SLOWEST_PACE, Sizes,
};
use crate::call_behaviour::CallMix;
use crate::transport::Nic;
use crate::{Feature, Features, LoopPauses, Random, Scenario, SimRoute, StreamMix};

/// The numbers of the random sources, one per purpose. The features' sources have the numbers from
/// `FIRST_FEATURE` on.
pub(super) mod purpose {
    pub(in crate::plan) const FEATURES: u64 = 1;
    pub(in crate::plan) const SHAPE: u64 = 2;
    pub(in crate::plan) const ENDPOINTS: u64 = 3;
    pub(in crate::plan) const WORK: u64 = 4;
    pub(in crate::plan) const CHECKSUMS: u64 = 5;
    pub(in crate::plan) const PACING: u64 = 6;
    pub(in crate::plan) const LIMITS: u64 = 7;
    pub(in crate::plan) const METHODS: u64 = 8;
    pub(in crate::plan) const PATH: u64 = 9;
    pub(in crate::plan) const SLOTS: u64 = 10;
    pub(in crate::plan) const FIRST_FEATURE: u64 = 100;
}

/// Which endpoints ask for checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asking {
    /// Transports let damaged packets through, so sessions have checksums anyway. Some endpoints
    /// ask.
    Some,
    /// All endpoints that open sessions ask.
    Clients,
    /// All endpoints that accept sessions ask.
    Servers,
}

/// How many bytes a message of a stream may have in addition to one item and the extension. This is
/// enough for the frame, and for a status of up to 200 bytes with details of up to 100 bytes.
const MOST_BESIDE_ITEM: u32 = 512;

/// The most endpoints that begin streams, and the most streams that one begins.
const MOST_STREAMERS: u64 = 4;
const MOST_STREAMS: u64 = 48;

/// A plan that is being drawn.
pub(super) struct Draft<'a> {
    root: &'a Random,
    times: Times,
    /// Which endpoints ask for checksums; `None` if there are no checksums.
    asking: Option<Asking>,
    pub(super) plan: Plan,
    healed: Instant,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        root: &'a Random,
        scenario: Scenario,
        features: (Features, Features),
    ) -> Self {
        let (features, drawn) = features;
        let mut shape = root.fork(purpose::SHAPE);
        let asking = [Asking::Some, Asking::Clients, Asking::Servers];
        let asking = *root.fork(purpose::CHECKSUMS).pick(&asking);
        let asking = features.has(Feature::Checksums).then_some(asking);
        let times = Times::draw(&mut shape, scenario, drawn);
        let squeezed = features.has(Feature::Squeeze);
        let topology = scenario.topology(&mut shape, squeezed);
        let max_datagram = *shape.pick(&[MIN_DATAGRAM, 1_472, 1_472, 4_120, 8_972]);
        let packet = max_datagram as u32 - 28;
        let sizes = Sizes {
            packet,
            longest: *shape.pick(&[4, 16, 32, 100]) * packet,
            short_percent: shape.within(10, 60) as u32,
            turns: None,
        };
        let nic = Nic {
            max_datagram,
            inline: *shape.pick(&[0, 64, 256, 16_384]),
            charge: *shape.pick(&[ChargeModel::Ring, ChargeModel::LinuxUdp]),
            rx_capacity: 0,
            burst: *shape.pick(&[1, 1, 4, MAX_BURST]),
            dma_nanos: *shape.pick(&[0, 500, 20_000, 2 * MS]),
            min_rto: Duration::from_nanos(times.rto),
            rtt_noise: Duration::from_micros(5),
            link: *shape.pick(&[Link::Rate(topology.host_rate(0)), Link::Unknown, Link::Local]),
            integrity: asking != Some(Asking::Some),
        };
        // `few` and `many` are drawn in every run. So if `Squeeze` is cut, nothing else in the plan
        // changes.
        let (few, many) = (shape.within(4, 48), 64 << shape.below(6));
        let many = shape.within(many, 2 * many);
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
                first_credits: 0,
                most_credits: 0,
                slots: DEFAULT_SLOTS as u8,
                reserve: Reserve::NONE,
                faults: (Faults::none(), Faults::none()),
                loop_pauses: None,
                servers: Vec::new(),
                rounds: Vec::new(),
                lanes: Vec::new(),
                stream_rounds: Vec::new(),
            }],
            events: Vec::new(),
            heal_at: healed,
            handlers: Handlers::default(),
            call_mix: CallMix::default(),
            stream_mix: StreamMix::default(),
            sizes,
            outstanding: shape.within(1, 48) as u32,
            turn_nanos: (300, 100),
            prints: false,
            skipped: Vec::new(),
            times,
        };
        Self { root, times, asking, plan, healed }
    }

    fn feature(&self, feature: Feature) -> Option<Random> {
        let has = self.plan.features.has(feature);
        has.then(|| self.root.fork(purpose::FIRST_FEATURE + feature as u64))
    }

    /// If the plan has pacing: adds a congestion controller, sets a link rate in some cases, and
    /// disables bypasses in some cases.
    fn paced(&self, config: EndpointConfig, random: &mut Random) -> EndpointConfig {
        let timely = TimelyConfig::new().min_rate(SLOWEST_PACE);
        let swift = CongestionControl::Swift(SwiftConfig::new().min_rate(SLOWEST_PACE));
        let control = *random.pick(&[
            CongestionControl::None,
            swift,
            swift,
            CongestionControl::Timely(timely),
            CongestionControl::Timely(timely.low(Duration::from_micros(10))),
            CongestionControl::Dcqcn(DcqcnConfig::new().min_rate(SLOWEST_PACE)),
        ]);
        let rates = [20_000_000, 100_000_000, 1_000_000_000, 12_500_000_000];
        // `None` uses the rate of the interface.
        let rate =
            *random.pick(&[Some(rates[0]), Some(rates[1]), Some(rates[2]), Some(rates[3]), None]);
        let (update, wheel) = (random.percent(50), random.percent(50));
        if !self.plan.features.has(Feature::Pacing) {
            return config;
        }
        let bypasses = Bypasses { update, wheel, ..Bypasses::ALL };
        let config = config.congestion(control);
        bypasses.applied_to(match rate {
            Some(rate) => config.link_rate(rate),
            None => config,
        })
    }

    /// If the plan has limits: limits either the sessions per host, or all sessions, of which some
    /// are then reserved.
    fn limited(&self, config: EndpointConfig, random: &mut Random) -> (EndpointConfig, Reserve) {
        let is_crowded = random.percent(60);
        let most = random.within(1, 2) as u32;
        // About as many sessions as clients open.
        let sessions = match self.plan.scenario {
            Scenario::Pair => random.within(2, 6),
            Scenario::Incast => random.within(500, 1_000),
            _ => random.within(3, 12),
        } as u32;
        let reserve = Reserve {
            sessions,
            reserved: random.within(1, u64::from(sessions) / 2) as u32,
            few: random.within(1, 2) as u32,
        };
        if !self.plan.features.has(Feature::Limits) {
            return (config, Reserve::NONE);
        }
        if !is_crowded {
            return (config.max_sessions_per_host(most), Reserve::NONE);
        }
        let Reserve { sessions, reserved, few } = reserve;
        (config.max_sessions(sessions).reserved_sessions(reserved, few), reserve)
    }

    /// The settings of an endpoint that opens sessions, accepts them, or both.
    fn config(
        &self,
        random: &mut Random,
        opens: bool,
        accepts: bool,
    ) -> (EndpointConfig, (u16, u16)) {
        let nanos = Duration::from_nanos;
        let credits = *random.pick(&[1, 2, 8, 32, 32, MOST_CREDITS]);
        let most_credits = *random.pick(&[1, 8, 32, MOST_CREDITS, MOST_CREDITS]);
        let mut config = EndpointConfig::new()
            .credits(credits)
            .max_credits(most_credits)
            .max_message(self.plan.sizes.longest.max(1))
            .queue_limit(*random.pick(&[0, 16, 1_024, 1_024, 1_024]))
            .liveness_timeout(nanos(self.times.liveness))
            .ping_interval(nanos(self.times.ping))
            .connect_timeout(nanos(self.times.connect));
        // All values are drawn in every run. So if a feature is cut, nothing else in the plan
        // changes.
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
        (config, (credits, most_credits))
    }

    pub(super) fn add_endpoints(&mut self) {
        let mut random = self.root.fork(purpose::ENDPOINTS);
        let mut work = self.root.fork(purpose::WORK);
        let mut pacing = self.root.fork(purpose::PACING);
        let mut limits = self.root.fork(purpose::LIMITS);
        let mut slot_counts = self.root.fork(purpose::SLOTS);
        let model = self.plan.endpoints.remove(0);
        let hosts = self.plan.topology.hosts();
        let servers = self.plan.scenario.servers(&mut random, hosts);
        let group_size = random.within(1, 2) as u16;
        let group: Vec<u16> = (SimRoute::SERVICE..SimRoute::SERVICE + group_size).collect();
        let calls = self.plan.scenario.calls(&mut work);
        // If there are several servers, they call each other, too, in 30 % of the runs.
        let everybody_calls = random.percent(30) && servers > 1;
        let callers = if everybody_calls { hosts } else { hosts - servers };
        // In an incast, all clients call at the same time.
        let together = (self.plan.scenario == Scenario::Incast)
            .then(|| self.rounds(&mut work, (calls / callers).max(1)));
        for host in 0..hosts {
            let serves = host < servers;
            let ports = if serves { group.clone() } else { vec![SimRoute::SERVICE] };
            for port in ports {
                let calls_others = !serves || everybody_calls && port == SimRoute::SERVICE;
                let (config, (first_credits, most_credits)) =
                    self.config(&mut random, calls_others, serves);
                let mut slots: u8 = *slot_counts.pick(&[1, 4, 8, 8, 8, 32, 64, 64]);
                if self.plan.features.has(Feature::Streams) {
                    // A stream needs slots for its pulls, which may wait, and for its pushes.
                    slots = slots.max(DEFAULT_SLOTS as u8);
                }
                let config = self.paced(config.slots(slots), &mut pacing);
                let (config, reserve) = match serves && !calls_others {
                    true => self.limited(config, &mut limits),
                    false => (config, Reserve::NONE),
                };
                let mut endpoint = EndpointPlan {
                    route: SimRoute::new(host, port),
                    group: if serves { group.clone() } else { Vec::new() },
                    config,
                    first_credits,
                    most_credits,
                    slots,
                    reserve,
                    ..model.clone()
                };
                if calls_others {
                    let sessions = self.plan.scenario.sessions(&mut random);
                    endpoint.servers = (0..sessions)
                        .map(|_| {
                            let server = random.below(u64::from(servers)) as u32;
                            // No server calls itself.
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

    /// Adds streams to some of the endpoints that make calls.
    pub(super) fn add_streams(&mut self) {
        let Some(mut random) = self.feature(Feature::Streams) else { return };
        if !self.plan.has_streams() {
            return;
        }
        let random = &mut random;
        // The largest item must fit into a message of the largest size, together with the extension
        // and frame of its stream, and a status.
        let largest = self.plan.sizes.longest - MAX_EXTENSION as u32 - MOST_BESIDE_ITEM;
        let deadline_percent = random.within(1, 30) as u32;
        self.plan.stream_mix = StreamMix {
            largest: largest.min(2 * BATCH as u32),
            pause_percent: random.below(60) as u32,
            longest_pause: *random.pick(&[20_000, MS, 20 * MS, SECOND]),
            leave_percent: random.within(5, 35) as u32,
            fail_percent: random.below(40) as u32,
            deadline_percent: match self.plan.features.has(Feature::Deadlines) {
                true => deadline_percent,
                false => 0,
            },
        };
        let endpoints = &self.plan.endpoints;
        let callers: Vec<usize> =
            (0..endpoints.len()).filter(|&at| !endpoints[at].servers.is_empty()).collect();
        for _ in 0..random.within(1, MOST_STREAMERS) {
            let at = *random.pick(&callers);
            let servers = &self.plan.endpoints[at].servers;
            let lanes = (0..random.within(1, 4)).map(|_| *random.pick(servers)).collect();
            let count = random.within(1, MOST_STREAMS) as u32;
            let rounds = self.rounds(random, count);
            let endpoint = &mut self.plan.endpoints[at];
            // The calls of a stream wait while its session opens or slots are in quarantine, so the
            // session's queue needs room for them.
            endpoint.config = endpoint.config.clone().queue_limit(1_024);
            (endpoint.lanes, endpoint.stream_rounds) = (lanes, rounds);
        }
    }

    fn rounds(&self, random: &mut Random, calls: u32) -> Vec<(Instant, u32)> {
        // A few rounds with long pauses between them, or many rounds.
        let count = (*random.pick(&[1, 2, 4, 12])).min(u64::from(calls));
        let mut rounds: Vec<_> = (0..count)
            .map(|at| {
                let share = calls / count as u32 + u32::from(at == 0) * (calls % count as u32);
                (self.sometime(random), share)
            })
            .collect();
        rounds.sort_unstable();
        // Some endpoints make a single call first. The client cannot learn about this call from
        // answers to other calls, because there are none.
        let (is_first, (first, _)) = (random.percent(30), rounds[0]);
        let before = random.below(first.as_nanos() - SECOND + 1);
        if is_first {
            rounds.insert(0, (Instant::from_nanos(SECOND + before), 1));
        }
        rounds
    }

    /// A random time while faults act.
    fn sometime(&self, random: &mut Random) -> Instant {
        Instant::from_nanos(SECOND + random.below(self.times.length))
    }

    /// A random time, probably with many calls under way: soon after a round begins.
    fn some_busy_time(&self, random: &mut Random) -> Instant {
        let rounds = &random.pick(&self.plan.endpoints).rounds;
        if rounds.is_empty() || random.percent(25) {
            return self.sometime(random);
        }
        // 1 us to 8 ms later.
        let (soon, (at, _)) = (1 << random.within(10, 22), *random.pick(rounds));
        at.plus_nanos(soon + random.below(soon)).min(self.healed)
    }

    pub(super) fn add_packet_faults(&mut self) {
        let features: Vec<_> = Feature::ALL
            .into_iter()
            .filter_map(|feature| Some((feature, self.feature(feature)?)))
            .collect();
        let (times, packet) = (self.times, self.plan.sizes.packet as usize);
        let spares = self.plan.drawn.spare_sessions();
        for (feature, mut random) in features {
            for endpoint in &mut self.plan.endpoints {
                // Not every endpoint has every fault.
                if random.percent(30) {
                    continue;
                }
                let (rx, tx) = std::mem::take(&mut endpoint.faults);
                if feature == Feature::Partitions {
                    // A partition cuts both directions together.
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

    /// Adds pauses to some loops.
    pub(super) fn add_absences(&mut self) {
        let Some(mut random) = self.feature(Feature::Absence) else { return };
        for endpoint in &mut self.plan.endpoints {
            let one_in = *random.pick(&[2, 16, 128, 1_024]);
            // Some pauses are longer than a timeout, so that answers arrive during the pause.
            let longest_nanos =
                *random.pick(&[40_000, 2 * self.times.rto, 2 * self.times.rto, 2 * self.times.rto]);
            // Between two pauses, a loop has the turns to read at least 64 packets on average. With
            // fewer turns, peers would wait longer than the liveness timeout.
            let one_in = one_in.max(64 / endpoint.nic.burst as u64);
            if random.percent(70) {
                endpoint.loop_pauses = Some(LoopPauses { one_in, longest_nanos });
            }
        }
    }

    /// If endpoints may crash, crashes some endpoints with streams during their first streams.
    fn add_deaths_of_streams(&self, events: &mut Vec<(Instant, PlannedEvent)>) {
        let Some(mut random) = self.feature(Feature::Streams) else { return };
        for (who, endpoint) in self.plan.endpoints.iter().enumerate() {
            let Some((begin, _)) = endpoint.stream_rounds.first() else { continue };
            // 16 us to 32 ms later.
            let (dies, soon) = (random.percent(50), 1 << random.within(14, 24));
            let at = begin.plus_nanos(soon + random.below(soon)).min(self.healed);
            let down = random.below(self.times.length / 2).min(self.healed.nanos_since(at).max(1));
            if dies && self.plan.features.has(Feature::Crashes) {
                events.push((at, PlannedEvent::Crash(who, down)));
            }
        }
    }

    /// Draws the number of methods that calls share. If the plan has slow handlers, some of these
    /// methods are slow.
    fn add_methods(&mut self) {
        let mut random = self.root.fork(purpose::METHODS);
        let handlers = &mut self.plan.handlers;
        handlers.methods = *random.pick(&[1, 2, 4, 12, MOST_METHODS as u64]);
        let slow_percent = *random.pick(&[30, 60, 100]);
        for least in &mut handlers.slow_methods {
            let nanos = self.times.rto * random.within(2, 6);
            let is_slow = random.percent(slow_percent);
            *least = match is_slow && self.plan.features.has(Feature::SlowHandlers) {
                true => nanos,
                false => 0,
            };
        }
    }

    pub(super) fn add_events(&mut self) {
        let endpoints = self.plan.endpoints.len() as u64;
        let links = u64::from(self.plan.topology.links());
        let mut events = Vec::new();
        let length = self.times.length;
        // After a forged report, a session ends if neither its calls nor its pings get through.
        let may_be_silent = |features: Features| {
            features.has_any(&Feature::LOSSY)
                || features.has_any(&[Feature::Squeeze, Feature::Absence])
        };
        for feature in self.plan.features.iter() {
            let Some(mut random) = self.feature(feature) else { continue };
            let random = &mut random;
            let most = if feature == Feature::Churn { 60 } else { 12 };
            let count = random.within(1, most);
            for _ in 0..count {
                let at = self.some_busy_time(random);
                let who = random.below(endpoints) as usize;
                let left = self.healed.nanos_since(at).max(1);
                let event = match feature {
                    Feature::Crashes => {
                        PlannedEvent::Crash(who, random.below(length / 2).min(left))
                    }
                    Feature::Links => {
                        let link = random.below(links) as u32;
                        let until = at.plus_nanos(random.below(length / 2).min(left));
                        events.push((until, PlannedEvent::Resume(link)));
                        PlannedEvent::Stop(link)
                    }
                    Feature::Replay => PlannedEvent::Replay(random.within(1, 256) as u32),
                    Feature::Spoofing => PlannedEvent::Forge(random.within(1, 128) as u32),
                    Feature::Reports
                        if !self.plan.drawn.spare_sessions() || !may_be_silent(self.plan.drawn) =>
                    {
                        PlannedEvent::ForgeReports(random.within(1, 64) as u32)
                    }
                    Feature::ClockStall => PlannedEvent::Stall(who, random.below(length).min(left)),
                    Feature::ClockLeap => {
                        PlannedEvent::Leap(who, (1 << random.within(10, 42)).min(HOUR))
                    }
                    Feature::Memory => PlannedEvent::Hoard(who, random.below(length / 2).min(left)),
                    Feature::Churn => PlannedEvent::Reconnect(who),
                    _ => break,
                };
                events.push((at, event));
            }
        }
        self.add_deaths_of_streams(&mut events);
        events.sort_by_key(|(at, _)| *at);
        self.plan.events = events;
        self.add_methods();
        if let Some(mut random) = self.feature(Feature::SlowHandlers) {
            self.plan.handlers.slow_percent = random.within(1, 60) as u32;
            self.plan.handlers.slowest_nanos = *random.pick(&[1_000, 100_000, 20 * MS, SECOND]);
            let (percent, lives) = (random.within(1, 30) as u32, random.within(1, 3));
            if !self.plan.drawn.spare_sessions() {
                self.plan.handlers.stuck_percent = percent;
                self.plan.handlers.stuck_nanos = lives * self.times.liveness;
            }
        }
        if let Some(mut random) = self.feature(Feature::Panics) {
            self.plan.handlers.panic_percent = random.within(1, 30) as u32;
        }
        let percent = |feature: Feature, most: u64| {
            self.feature(feature).map_or(0, |mut random| random.within(1, most) as u32)
        };
        self.plan.call_mix = CallMix {
            extended_percent: percent(Feature::Metadata, 100),
            deadline_percent: percent(Feature::Deadlines, 60),
            cancel_percent: percent(Feature::Cancels, 60),
        };
    }
}
