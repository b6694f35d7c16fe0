//! What can go wrong, by name: a run has a set of these, and shrinking takes them away one by one.

use std::fmt;

/// A kind of fault or hardship.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Feature {
    /// Packets are lost, one by one, up to 30 in 100 in each direction.
    Loss,
    /// Packets are lost in bursts.
    Bursts,
    /// Packets arrive up to five times more, late.
    Duplicates,
    /// Packets are overtaken.
    Reorder,
    /// Packets are delayed by up to 10 s.
    Spikes,
    /// Bits flip.
    Corruption,
    /// Packets lose their ends.
    Truncation,
    /// Packets grow.
    Extension,
    /// Hosts are cut off for less and for more than the liveness timeout.
    Partitions,
    /// The same in one direction.
    OneWay,
    /// The path carries smaller packets than it did, or than its ends say.
    MtuShrink,
    /// Links stop, one by one, and go on in another order.
    Links,
    /// Endpoints die and come back at the same address.
    Crashes,
    /// Packets of the past come again, also those of an earlier life.
    Replay,
    /// Strangers send packets in the names of others.
    Spoofing,
    /// Handlers answer late, after a turn, a round trip or seconds.
    SlowHandlers,
    /// Handlers panic.
    Panics,
    /// Memory runs out.
    Memory,
    /// A clock stands still for a while.
    ClockStall,
    /// A clock leaps by up to an hour.
    ClockLeap,
    /// Sessions are opened and closed all the time.
    Churn,
    /// Receive queues are short, switches have little buffer.
    Squeeze,
    /// Sessions carry checksums.
    Checksums,
    /// Messages begin with extensions.
    Metadata,
    /// Calls have deadlines, from a microsecond to a second.
    Deadlines,
    /// Callers think better of it.
    Cancels,
    /// Sessions carry streams besides those that carry calls; their users pause, leave and fail.
    Streams,
    /// Endpoints have controllers of all kinds and links slower than they are, and some pace whatever they send.
    Pacing,
    /// Loops stand still for up to 40 ms, some of them most of the time, while packets wait for them.
    Absence,
    /// Servers have few sessions for all, and keep some of them for hosts that have few, or have few for each host.
    Limits,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 30] = [
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
    ];

    /// Those that may end a session before its time.
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

    /// Those that lose packets or make them useless, each of its own. Two of them together lose so many
    /// that a call may well find no way for seconds.
    pub const LOSSY: [Self; 4] = [Self::Loss, Self::Corruption, Self::Truncation, Self::Extension];

    /// Its name on the command line.
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
        }
    }

    /// The feature of that name.
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

    /// The set of these.
    #[must_use]
    pub fn of(features: &[Feature]) -> Self {
        features.iter().fold(Self::none(), |set, &feature| set.with(feature))
    }

    /// The set and `feature`.
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

    /// Whether sessions live as long as their users want them to.
    #[must_use]
    pub fn spare_sessions(self) -> bool {
        let lossy = Feature::LOSSY.into_iter().filter(|&feature| self.has(feature)).count();
        !self.has_any(&Feature::DEADLY) && lossy <= 1
    }

    /// Whether the set has any of these.
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
