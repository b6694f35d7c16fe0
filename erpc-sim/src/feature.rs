//! The kinds of faults, by name. Each run has a set of them, and shrinking removes them one by one.

use std::fmt;

/// A kind of fault, or another property of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Feature {
    /// Single packets are lost: each endpoint loses up to 30 % of its packets in each direction.
    Loss,
    /// Packets are lost in bursts.
    Bursts,
    /// Up to five copies of a packet arrive late.
    Duplicates,
    /// Packets arrive out of order.
    Reorder,
    /// Packets are delayed by up to 10 s.
    Spikes,
    /// Bits of packets flip.
    Corruption,
    /// Packets are truncated.
    Truncation,
    /// Bytes are appended to packets.
    Extension,
    /// Endpoints are cut off, sometimes for less, sometimes for more than the liveness timeout.
    Partitions,
    /// Some endpoints receive nothing for a while, some send nothing, and some have both outages.
    /// The two outages of an endpoint begin and end independently.
    OneWay,
    /// The path carries only packets that are smaller than before, or smaller than the two ends
    /// announce.
    MtuShrink,
    /// Links stop, one by one, and work again later, in any order.
    Links,
    /// Hosts die with their endpoints and restart at the same addresses.
    Crashes,
    /// Recorded packets are replayed, including packets from before an endpoint's restart.
    Replay,
    /// Attackers send packets with forged source addresses.
    Spoofing,
    /// Handlers answer late: after a turn, a round trip or seconds.
    SlowHandlers,
    /// Handlers panic.
    Panics,
    /// Memory runs out.
    Memory,
    /// A clock stands still for a while.
    ClockStall,
    /// A clock jumps ahead by up to an hour.
    ClockLeap,
    /// Sessions are closed and opened again all the time.
    Churn,
    /// Receive and transmit queues are short, and switches have small buffers.
    Squeeze,
    /// Sessions carry checksums.
    Checksums,
    /// Messages begin with extensions.
    Metadata,
    /// Calls have deadlines, from 0 to half a second.
    Deadlines,
    /// Callers cancel calls.
    Cancels,
    /// Endpoints open sessions for streams besides the sessions for calls. The users of streams
    /// pause, leave and fail.
    Streams,
    /// Endpoints have congestion controllers of all kinds. Some have a configured link rate that
    /// differs from the real one, and some pace every packet.
    Pacing,
    /// Endpoints' loops pause for up to 40 ms while packets wait. Some loops pause most of the
    /// time.
    Absence,
    /// Servers accept few sessions. They reserve some of these for hosts with few sessions, or
    /// limit the sessions per host.
    Limits,
    /// If an endpoint is dead, its host reports each packet for it to the sender (ICMP). Attackers
    /// that have seen packets of calls forge such messages.
    Reports,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 31] = [
        Self::Loss,
        Self::Bursts,
        Self::Duplicates,
        Self::Reorder,
        Self::Spikes,
        Self::Corruption,
        Self::Truncation,
        Self::Extension,
        Self::Partitions,
        Self::OneWay,
        Self::MtuShrink,
        Self::Links,
        Self::Crashes,
        Self::Replay,
        Self::Spoofing,
        Self::SlowHandlers,
        Self::Panics,
        Self::Memory,
        Self::ClockStall,
        Self::ClockLeap,
        Self::Churn,
        Self::Squeeze,
        Self::Checksums,
        Self::Metadata,
        Self::Deadlines,
        Self::Cancels,
        Self::Streams,
        Self::Pacing,
        Self::Absence,
        Self::Limits,
        Self::Reports,
    ];

    /// Features that may end a session early.
    pub const DEADLY: [Self; 11] = [
        Self::Bursts,
        Self::Spikes,
        Self::Partitions,
        Self::OneWay,
        Self::Links,
        Self::Crashes,
        Self::ClockStall,
        Self::ClockLeap,
        Self::Memory,
        Self::Churn,
        Self::Limits,
    ];

    /// Features that each lose packets or make them useless. Two of them together lose so many
    /// packets that a call may not get through for seconds.
    pub const LOSSY: [Self; 4] = [Self::Loss, Self::Corruption, Self::Truncation, Self::Extension];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Bursts => "bursts",
            Self::Duplicates => "duplicates",
            Self::Reorder => "reorder",
            Self::Spikes => "spikes",
            Self::Corruption => "corruption",
            Self::Truncation => "truncation",
            Self::Extension => "extension",
            Self::Partitions => "partitions",
            Self::OneWay => "one-way",
            Self::MtuShrink => "mtu-shrink",
            Self::Links => "links",
            Self::Crashes => "crashes",
            Self::Replay => "replay",
            Self::Spoofing => "spoofing",
            Self::SlowHandlers => "slow-handlers",
            Self::Panics => "panics",
            Self::Memory => "memory",
            Self::ClockStall => "clock-stall",
            Self::ClockLeap => "clock-leap",
            Self::Churn => "churn",
            Self::Squeeze => "squeeze",
            Self::Checksums => "checksums",
            Self::Metadata => "metadata",
            Self::Deadlines => "deadlines",
            Self::Cancels => "cancels",
            Self::Streams => "streams",
            Self::Pacing => "pacing",
            Self::Absence => "absence",
            Self::Limits => "limits",
            Self::Reports => "reports",
        }
    }

    /// The feature with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(u32);

impl Features {
    /// The empty set.
    #[must_use]
    pub const fn none() -> Self {
        Self(0)
    }

    /// The set of `features`.
    #[must_use]
    pub fn of(features: &[Feature]) -> Self {
        features.iter().fold(Self::none(), |set, &feature| set.with(feature))
    }

    /// The set with `feature` added.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u8)
    }

    /// The set without `feature`.
    #[must_use]
    pub const fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u8))
    }

    /// Whether the set has `feature`.
    #[must_use]
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// Whether no feature of the set ends a session before its user wants that.
    #[must_use]
    pub fn spare_sessions(self) -> bool {
        let lossy = Feature::LOSSY.into_iter().filter(|&feature| self.has(feature)).count();
        !self.has_any(&Feature::DEADLY) && lossy <= 1
    }

    /// Whether the set has any of `features`.
    #[must_use]
    pub fn has_any(self, features: &[Feature]) -> bool {
        self.0 & Self::of(features).0 != 0
    }

    /// The features in the set, in order.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |&feature| self.has(feature))
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, feature) in self.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "," }, feature.name())?;
        }
        Ok(())
    }
}
