//! What will happen in a run, all of it drawn from the seed before the run begins.
//!
//! Every feature draws from a stream of its own, so that taking one away leaves the others as they
//! were: that is what makes shrinking work.

mod draft;
mod faults;
pub(crate) mod path;
mod sizes;
mod times;

use std::collections::BTreeSet;

use erpc_core::protocol::{EndpointConfig, MAX_RTO};
use erpc_core::time::Instant;
use erpc_core::transport::fault::Faults;

use self::draft::{Draft, purpose};
pub use self::sizes::{Sizes, Turns};
use self::times::Times;
use crate::call_behaviour::CallMix;
use crate::net::Topology;
use crate::transport::Nic;
use crate::{Feature, Features, LoopPauses, Random, Scenario, SimRoute, StreamMix};

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
    pub call_mix: CallMix,
    /// What streams are like.
    pub stream_mix: StreamMix,
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
    /// The credits that its sessions begin with.
    pub first_credits: u16,
    /// The credits that its sessions have at most, and those that it accepts.
    pub most_credits: u16,
    /// The sessions that it keeps for hosts that have few.
    pub reserve: Reserve,
    /// What happens to packets that it receives, and to packets that it sends.
    pub faults: (Faults, Faults),
    /// How its loop is away; `None` if it never is.
    pub loop_pauses: Option<LoopPauses>,
    /// The servers it opens a session to, one per entry.
    pub servers: Vec<SimRoute>,
    /// When it makes calls, and how many.
    pub rounds: Vec<(Instant, u32)>,
    /// The servers it opens a session for streams to, one per entry.
    pub lanes: Vec<SimRoute>,
    /// When it begins streams, and how many.
    pub stream_rounds: Vec<(Instant, u32)>,
}

/// Sessions that a server keeps for hosts that have few.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    /// Sessions that it holds at most.
    pub sessions: u32,
    /// Of these, the last so many are kept.
    pub reserved: u32,
    /// A host with as many has not few.
    pub few: u32,
}

impl Reserve {
    /// Of a server that keeps none for sure.
    pub const NONE: Self = Self { sessions: u32::MAX, reserved: 0, few: 0 };
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
    /// Methods that calls share, at least 1.
    pub methods: u64,
    /// The least time that each of these takes, in nanoseconds; the most is twice that. 0 for those that are not slow as
    /// such.
    pub slow_methods: [u64; MOST_METHODS],
    /// In a hundred requests, how many are answered later.
    pub slow_percent: u32,
    /// The latest answer, in nanoseconds; not of those that are stuck.
    pub slowest_nanos: u64,
    /// In a hundred requests that are answered later, how many are stuck: their clients may be gone by the time.
    pub stuck_percent: u32,
    /// The latest answer of those, in nanoseconds.
    pub stuck_nanos: u64,
    /// In a hundred requests, how many make the handler panic.
    pub panic_percent: u32,
}

impl Handlers {
    /// Whether some methods are slow as such.
    pub(crate) fn has_slow_methods(&self) -> bool {
        self.slow_methods.iter().take(self.methods as usize).any(|least| *least > 0)
    }
}

/// Methods that calls share, at most: more than clients keep times of.
const MOST_METHODS: usize = 24;

/// The most credits that an endpoint gives a session.
pub(crate) const MOST_CREDITS: u16 = 128;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const HOUR: u64 = 3_600 * SECOND;
/// No controller goes below so many bytes per second, where one is chosen.
const SLOWEST_PACE: u64 = 2_000_000;

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
        draft.add_streams();
        draft.add_packet_faults();
        draft.add_absences();
        draft.add_happenings();
        let mut plan = Self { seed, prints: cut.prints, ..draft.plan };
        if scenario == Scenario::Path {
            path::shape(&mut plan, &mut root.fork(purpose::PATH));
        }
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

    /// Whether endpoints have streams: where what arrives is what was sent. Whoever asks for something in the
    /// name of another stream, because a bit has flipped, waits for ever.
    #[must_use]
    pub fn has_streams(&self) -> bool {
        self.features.has(Feature::Streams) && self.is_trusted()
    }

    /// After the faults are over, every call ends within this many nanoseconds. Where sessions live: a call
    /// that executes is asked after within a ping interval and its eighth, and once more. Where they may not: a peer is
    /// found out to be dead, or a call to be blocked, within the liveness timeout and some pings, and a
    /// session that is being opened fails. And whatever is lost by then is sent again within the longest
    /// timeout, for calls that queue one behind the other. Runs use up to half of it.
    #[must_use]
    pub fn bound_nanos(&self, backlog_bytes: u64, backlog_calls: u64) -> u64 {
        let Times { liveness, ping, connect, .. } = self.times;
        let calm =
            if self.spares_sessions() { 3 * ping } else { liveness * 3 / 2 + 2 * ping + connect };
        let Handlers { slowest_nanos, stuck_nanos, slow_methods, .. } = self.handlers;
        let slow = slow_methods.iter().max().map_or(0, |least| 2 * least);
        let executing = slowest_nanos.max(stuck_nanos).max(slow);
        let repeats = 8 * MAX_RTO + backlog_calls * MAX_RTO / 16;
        // What a byte takes at the rate of the slowest link, or of a controller that has gone down.
        let per_byte = if self.features.has(Feature::Pacing) { SECOND / SLOWEST_PACE } else { 32 };
        calm + executing + repeats + backlog_bytes * per_byte
    }

    /// The server endpoints that sessions of an endpoint may be with: all those of the hosts that it calls.
    #[must_use]
    pub fn peers_of(&self, endpoint: &EndpointPlan) -> u64 {
        let called = endpoint.servers.iter().chain(&endpoint.lanes);
        let hosts: BTreeSet<_> = called.map(|route| route.host).collect();
        let serves = |at: &EndpointPlan| !at.group.is_empty() && hosts.contains(&at.route.host);
        self.endpoints.iter().filter(|at| serves(at)).count() as u64
    }

    /// How often a call is asked after that executes and of which nothing is heard.
    #[must_use]
    pub fn probes_every_nanos(&self) -> u64 {
        self.times.ping / 32
    }
}
