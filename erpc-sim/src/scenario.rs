//! Shapes of runs.

use crate::net::{Link, SwitchConfig, Topology};
use crate::{Feature, Features, Random};

/// The shape of a run: the number of hosts, their network, and their load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Two hosts and a cable.
    Pair,
    /// 3 to 16 hosts and one switch.
    Star,
    /// Racks behind an oversubscribed spine, as the CX4 cluster of Kalia's thesis (5 racks of 20
    /// hosts, 2:1).
    TwoTier,
    /// A thousand clients and one server.
    Incast,
    /// A few hosts without faults.
    Calm,
    /// Clients that send much to one server: most over paths of microseconds, one over a path of
    /// milliseconds, and one over a path that loses 8 % of the client's packets. No other
    /// faults.
    Path,
}

/// Hosts of [`Scenario::Path`]: a server, a far client, near clients, and a client that loses
/// packets.
pub(crate) const PATH_HOSTS: u32 = 8;

/// A link without long queues.
const FAST: Link = Link { rate_mbps: 100_000, delay_nanos: 1_000 };

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 6] =
        [Self::Pair, Self::Star, Self::TwoTier, Self::Incast, Self::Calm, Self::Path];

    /// The name on the command line.
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

    /// The scenario with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    /// The scenario of a seed when the command line names none.
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

    /// Draws the features of a run. Each run gets its own subset (swarm testing, Groce et al.,
    /// ISSTA'12), because some features hide bugs that others show.
    pub(crate) fn features(self, random: &mut Random) -> Features {
        if self == Self::Calm {
            let streams = random.percent(50);
            return if streams { Features::of(&[Feature::Streams]) } else { Features::none() };
        }
        if self == Self::Path {
            return Features::none();
        }
        let density = *random.pick(&[10, 30, 50]);
        // In about a third of the runs no feature ends sessions, because the end of a session hides
        // other bugs.
        let spares = random.percent(35);
        let others = Feature::ALL.into_iter().filter(|feature| *feature != Feature::Reports);
        let mut features = others.fold(Features::none(), |set, feature| {
            let drawn = random.percent(density);
            let kills = Feature::DEADLY.contains(&feature)
                || Feature::LOSSY.contains(&feature) && set.has_any(&Feature::LOSSY);
            if drawn && !(spares && kills) { set.with(feature) } else { set }
        });
        // Replayed packets find most bugs where sessions and endpoints live for a short time.
        if features.has(Feature::Replay) && !spares && random.percent(60) {
            features = features.with(Feature::Churn).with(Feature::Crashes);
        }
        // Slow handlers may outlive clients that crash or are cut off. In long sessions, clients
        // have the time to learn which methods are slow.
        let vanish = features.has_any(&[Feature::Crashes, Feature::Partitions]);
        if (vanish || spares) && random.percent(50) {
            features = features.with(Feature::SlowHandlers);
        }
        if random.percent(40) {
            features = features.with(Feature::Reports);
        }
        features
    }

    pub(crate) fn topology(self, random: &mut Random, squeezed: bool) -> Topology {
        let (link, switch) = (link(random), switch(random, squeezed));
        // In a run without faults, no packet must time out. On slow links, packets could time out
        // only because they wait in queues.
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

    /// The number of servers. The first hosts serve.
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

/// The cable of each host.
fn link(random: &mut Random) -> Link {
    Link {
        rate_mbps: *random.pick(&[1_000, 10_000, 25_000, 100_000]),
        delay_nanos: *random.pick(&[300, 1_000, 5_000, 200_000]),
    }
}

/// A switch with a buffer of the usual size, or with a small one if `squeezed`.
fn switch(random: &mut Random, squeezed: bool) -> SwitchConfig {
    let little = random.within(32, 256) * 1_024;
    let buffer_bytes = if squeezed { little } else { 12 << 20 };
    SwitchConfig {
        buffer_bytes,
        alpha: *random.pick(&[0.5, 1.0, 8.0]),
        mark_bytes: buffer_bytes / 16,
    }
}
