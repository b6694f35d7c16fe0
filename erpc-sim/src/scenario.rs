//! Shapes of runs.

use crate::net::{Link, SwitchConfig, Topology};
use crate::{Feature, Features, Random};

/// The shape of a run: how many hosts in what network do how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Two hosts and a cable.
    Pair,
    /// A handful of hosts and one switch.
    Star,
    /// Racks behind a spine, oversubscribed, as the thesis' CX4 cluster (5 racks of 20 hosts, 2:1).
    TwoTier,
    /// A thousand clients and one server.
    Incast,
    /// A few hosts and nothing goes wrong.
    Calm,
    /// Clients that send much to one server, over paths of microseconds, and one over a path of milliseconds. Nothing goes wrong.
    Path,
}

/// Hosts of [`Scenario::Path`]: a server, a client that may be far from it, and clients that are near.
pub(crate) const PATH_HOSTS: u32 = 8;

/// A link on which nothing queues for long.
const FAST: Link = Link { rate_mbps: 100_000, delay_nanos: 1_000 };

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pair, Self::Star, Self::TwoTier, Self::Incast, Self::Calm, Self::Path];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Star => "star",
            Self::TwoTier => "two-tier",
            Self::Incast => "incast",
            Self::Calm => "calm",
            Self::Path => "path",
        }
    }

    /// The scenario of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    /// The scenario of a seed that nobody chose one for.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        match Random::new(seed).fork(0).below(200) {
            0..80 => Self::Pair,
            80..157 => Self::Star,
            157..177 => Self::Path,
            177..195 => Self::TwoTier,
            195..196 => Self::Incast,
            _ => Self::Calm,
        }
    }

    /// Swarm testing (Groce et al., ISSTA'12): each run has a set of features of its own, because what
    /// some hide others show.
    pub(crate) fn features(self, random: &mut Random) -> Features {
        if self == Self::Calm {
            let streams = random.percent(50);
            return if streams { Features::of(&[Feature::Streams]) } else { Features::none() };
        }
        if self == Self::Path {
            return Features::none();
        }
        let density = *random.pick(&[10, 30, 50]);
        // In a third of the runs sessions live: what ends them hides what else goes wrong.
        let spares = random.percent(35);
        let mut features = Feature::ALL.into_iter().fold(Features::none(), |set, feature| {
            let drawn = random.percent(density);
            let kills = Feature::DEADLY.contains(&feature)
                || Feature::LOSSY.contains(&feature) && set.has_any(&Feature::LOSSY);
            if drawn && !(spares && kills) { set.with(feature) } else { set }
        });
        // Packets of the past are worth most where lives are short.
        if features.has(Feature::Replay) && !spares && random.percent(60) {
            features = features.with(Feature::Churn).with(Feature::Crashes);
        }
        // So are handlers that outlast their clients. And while sessions live, clients learn how slow methods are.
        let vanish = features.has_any(&[Feature::Crashes, Feature::Partitions]);
        if (vanish || spares) && random.percent(50) {
            features = features.with(Feature::SlowHandlers);
        }
        features
    }

    pub(crate) fn topology(self, random: &mut Random, squeezed: bool) -> Topology {
        let (link, switch) = (link(random), switch(random, squeezed));
        // Slow enough links time out what is only queued.
        let link = if self == Self::Calm { FAST } else { link };
        let few = random.within(16, 128) as u32;
        let topology = match self {
            Self::Pair => Topology::pair(link),
            Self::Star => Topology::star(random.within(3, 16) as u32, link, switch),
            Self::Calm => Topology::star(random.within(2, 8) as u32, link, switch),
            Self::Path => Topology::star(PATH_HOSTS, link, switch),
            Self::TwoTier => Topology::two_tier(5, 20, 2, link, switch),
            Self::Incast => Topology::star(1_001, link, switch),
        };
        if squeezed { topology.nic_packets(few) } else { topology }
    }

    /// How many hosts serve, the first ones.
    pub(crate) fn servers(self, random: &mut Random, hosts: u32) -> u32 {
        match self {
            Self::Pair | Self::Incast | Self::Path => 1,
            Self::Star | Self::Calm => random.within(1, u64::from(hosts) / 2) as u32,
            Self::TwoTier => random.within(1, 20) as u32,
        }
    }

    /// Sessions that one endpoint opens.
    pub(crate) fn sessions(self, random: &mut Random) -> u32 {
        match self {
            Self::Pair => random.within(1, 6) as u32,
            Self::Star | Self::Calm => random.within(1, 4) as u32,
            Self::TwoTier => random.within(1, 2) as u32,
            Self::Incast | Self::Path => 1,
        }
    }

    /// Calls of all endpoints together.
    pub(crate) fn calls(self, random: &mut Random) -> u32 {
        match self {
            Self::Incast => 4_000,
            _ => random.within(1_000, 4_000) as u32,
        }
    }
}

/// Every link of a topology.
fn link(random: &mut Random) -> Link {
    Link {
        rate_mbps: *random.pick(&[1_000, 10_000, 25_000, 100_000]),
        delay_nanos: *random.pick(&[300, 1_000, 5_000, 200_000]),
    }
}

/// A switch with a buffer of the usual size, or with little.
fn switch(random: &mut Random, squeezed: bool) -> SwitchConfig {
    let little = random.within(32, 256) * 1_024;
    let buffer_bytes = if squeezed { little } else { 12 << 20 };
    SwitchConfig {
        buffer_bytes,
        alpha: *random.pick(&[0.5, 1.0, 8.0]),
        mark_bytes: buffer_bytes / 16,
    }
}
