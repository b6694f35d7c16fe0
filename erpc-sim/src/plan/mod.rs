//! The plan of a run, drawn from the seed before the run begins.
//!
//! Every feature has a random source of its own, so that removing a feature does not change the
//! others. Shrinking depends on this.

mod draft;
mod events;
mod faults;
pub(crate) mod path;
mod sizes;
mod times;

use std::collections::BTreeSet;

use erpc_core::protocol::{DEFAULT_SLOTS, EndpointConfig, MAX_RTO};
use erpc_core::time::Instant;
use erpc_core::transport::fault::Faults;

use self::draft::{Draft, purpose};
pub use self::events::PlannedEvent;
pub use self::sizes::{Sizes, Turns};
use self::times::Times;
use crate::call_behaviour::CallMix;
use crate::net::Topology;
use crate::transport::Nic;
use crate::{Feature, Features, LoopPauses, Random, Scenario, SimRoute, StreamMix};

/// The plan of a run: everything except what endpoints decide themselves.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of the plan.
    pub seed: u64,
    /// The shape of the run.
    pub scenario: Scenario,
    /// The active features.
    pub features: Features,
    /// The features that the seed drew, before any were cut.
    pub drawn: Features,
    /// The network.
    pub topology: Topology,
    /// The endpoints.
    pub endpoints: Vec<EndpointPlan>,
    /// Single events, in order of time.
    pub events: Vec<(Instant, PlannedEvent)>,
    /// The time when all faults end and no new calls are made.
    pub heal_at: Instant,
    /// What handlers do.
    pub handlers: Handlers,
    /// The properties of calls besides their sizes.
    pub call_mix: CallMix,
    /// The properties of streams.
    pub stream_mix: StreamMix,
    /// The lengths of messages.
    pub sizes: Sizes,
    /// The most calls that one endpoint has under way, over all sessions.
    pub outstanding: u32,
    /// The cost of an endpoint's turn, and of each packet received in it, in ns.
    pub turn_nanos: (u64, u64),
    /// Print every packet when it is sent, lost and delivered, and the events.
    pub prints: bool,
    /// The numbers of events that were left out.
    skipped: Vec<usize>,
    times: Times,
}

/// An endpoint and its role in the run.
#[derive(Clone, Debug)]
pub struct EndpointPlan {
    /// The address.
    pub route: SimRoute,
    /// The ports of the host's listening group. Empty if the endpoint accepts no sessions.
    pub group: Vec<u16>,
    /// The endpoint's interface.
    pub nic: Nic,
    /// The settings except the seed.
    pub config: EndpointConfig,
    /// The initial credits of a session.
    pub first_credits: u16,
    /// The number of slots of a session, unless the other end has fewer.
    pub slots: u8,
    /// The most credits of a session that the endpoint opens or accepts.
    pub most_credits: u16,
    /// The sessions reserved for hosts with few sessions.
    pub reserve: Reserve,
    /// Faults of received packets, and of sent packets.
    pub faults: (Faults, Faults),
    /// How the loop pauses; `None` if it never pauses.
    pub loop_pauses: Option<LoopPauses>,
    /// The servers to which the endpoint opens sessions; one session per entry.
    pub servers: Vec<SimRoute>,
    /// When the endpoint makes calls, and how many.
    pub rounds: Vec<(Instant, u32)>,
    /// The servers to which the endpoint opens sessions for streams; one session per entry.
    pub lanes: Vec<SimRoute>,
    /// When the endpoint begins streams, and how many.
    pub stream_rounds: Vec<(Instant, u32)>,
}

/// Sessions that a server reserves for hosts with few sessions.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    /// The most sessions that the server holds.
    pub sessions: u32,
    /// The number of reserved sessions, out of `sessions`.
    pub reserved: u32,
    /// A host with at least this many sessions gets none of the reserved ones.
    pub few: u32,
}

impl Reserve {
    /// No limit and no reservation.
    pub const NONE: Self = Self { sessions: u32::MAX, reserved: 0, few: 0 };
}

/// What to leave out of a run, although its seed drew it. Shrinking a failed run uses this.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// Whole features.
    pub without: Features,
    /// Single events, by their index in the [`Plan::events`] of a plan without the removed
    /// features.
    pub skip: Vec<usize>,
    /// Not a cut: sets [`Plan::prints`].
    pub prints: bool,
}

/// The behaviour of handlers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Handlers {
    /// The number of methods that calls share, at least 1.
    pub methods: u64,
    /// The least execution time of each shared method, in ns; the most is twice that. 0 for methods
    /// that are not slow.
    pub slow_methods: [u64; MOST_METHODS],
    /// Of the requests to methods that are not slow: the percentage that is answered late.
    pub slow_percent: u32,
    /// The longest delay of a late answer that is not stuck, in ns.
    pub slowest_nanos: u64,
    /// Percentage of late answers that are stuck. When a stuck answer is given, its client may be
    /// gone.
    pub stuck_percent: u32,
    /// The longest delay of a stuck answer, in ns.
    pub stuck_nanos: u64,
    /// Of the requests to methods that are not slow: the percentage that makes the handler panic.
    pub panic_percent: u32,
}

impl Handlers {
    /// Whether some methods are always slow.
    pub(crate) fn has_slow_methods(&self) -> bool {
        self.slow_methods.iter().take(self.methods as usize).any(|least| *least > 0)
    }
}

/// The most shared methods. This is more than a client remembers.
const MOST_METHODS: usize = 24;

/// The most credits that an endpoint gives a session.
pub(crate) const MOST_CREDITS: u16 = 128;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const HOUR: u64 = 3_600 * SECOND;
/// The minimum rate of congestion controllers that the plan selects, in bytes/s.
const SLOWEST_PACE: u64 = 2_000_000;

impl Plan {
    /// The plan of a seed, without what `cut` removes.
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
        draft.add_streams();
        draft.add_packet_faults();
        draft.add_absences();
        draft.add_events();
        let mut plan = Self { seed, prints: cut.prints, ..draft.plan };
        if scenario == Scenario::Path {
            path::shape(&mut plan, &mut root.fork(purpose::PATH));
        }
        plan.skip(&cut.skip);
        plan
    }

    /// Whether packets arrive as they were sent: no packet is damaged, or checksums detect the
    /// damage.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        let [flips, cuts, grows] = [Feature::Corruption, Feature::Truncation, Feature::Extension]
            .map(|of| self.features.has(of));
        // A packet that is truncated and then extended may have its old length again.
        !(flips || cuts && grows) || self.features.has(Feature::Checksums)
    }

    /// Whether the run has no faults at all.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.features == Features::none() && self.drawn == Features::none()
    }

    /// Whether sessions stay alive and no fault loses packets.
    #[must_use]
    pub fn spares_packets(&self) -> bool {
        let loses = self.features.has_any(&Feature::LOSSY) || self.features.has(Feature::Squeeze);
        self.spares_sessions() && !loses
    }

    /// Whether no fault can end a session early.
    #[must_use]
    pub fn spares_sessions(&self) -> bool {
        self.is_trusted() && self.times.liveness >= 10 * SECOND && self.drawn.spare_sessions()
    }

    /// Whether endpoints have streams. They have none if packets can be damaged unnoticed: a call
    /// that names the wrong stream because of a flipped bit would wait forever.
    #[must_use]
    pub fn has_streams(&self) -> bool {
        self.features.has(Feature::Streams) && self.is_trusted()
    }

    /// The time within which every call ends after the faults are over, in ns.
    ///
    /// If sessions stay alive, a client probes an executing call within 9/8 of a ping interval, and
    /// a second time within as long. Otherwise a dead peer or a blocked call is detected within the
    /// liveness timeout and some pings, and a session that is opening fails within the connect
    /// timeout. Lost packets are retransmitted within the longest timeout; calls may queue behind
    /// each other. Runs use up to half of this bound.
    #[must_use]
    pub fn bound_nanos(&self, backlog_bytes: u64, backlog_calls: u64) -> u64 {
        let Times { liveness, ping, connect, .. } = self.times;
        let calm =
            if self.spares_sessions() { 3 * ping } else { liveness * 3 / 2 + 2 * ping + connect };
        let Handlers { slowest_nanos, stuck_nanos, slow_methods, .. } = self.handlers;
        let slow = slow_methods.iter().max().map_or(0, |least| 2 * least);
        let executing = slowest_nanos.max(stuck_nanos).max(slow);
        // In a session with few slots, calls wait for the slow handlers of the calls before them.
        let fewest = self.endpoints.iter().map(|endpoint| u64::from(endpoint.slots)).min();
        let in_turn = match fewest {
            Some(slots) if slots < DEFAULT_SLOTS as u64 => 1 + backlog_calls / slots,
            _ => 1,
        };
        let executing = executing * in_turn;
        let repeats = 8 * MAX_RTO + backlog_calls * MAX_RTO / 16;
        // Time per byte: at the minimum rate of a controller, or at a quarter of the rate of the
        // slowest link (1 Gb/s).
        let per_byte = if self.features.has(Feature::Pacing) { SECOND / SLOWEST_PACE } else { 32 };
        calm + executing + repeats + backlog_bytes * per_byte
    }

    /// The number of server endpoints with which an endpoint may have sessions: all endpoints of
    /// the hosts that it calls.
    #[must_use]
    pub fn peers_of(&self, endpoint: &EndpointPlan) -> u64 {
        let called = endpoint.servers.iter().chain(&endpoint.lanes);
        let hosts: BTreeSet<_> = called.map(|route| route.host).collect();
        let serves = |at: &EndpointPlan| !at.group.is_empty() && hosts.contains(&at.route.host);
        self.endpoints.iter().filter(|at| serves(at)).count() as u64
    }

    /// The interval of probes for an executing call while the server gives no sign of life, in ns.
    #[must_use]
    pub fn probes_every_nanos(&self) -> u64 {
        self.times.ping / 32
    }
}
