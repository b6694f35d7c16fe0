//! Repeatable random decisions, independent of each other.
//!
//! Every kind of decision ([`Use`]) has its own stream of random numbers, which is read by index,
//! not sequentially. The index is the packet's number, or is computed from the packet's number and
//! the number of its copy. So a decision depends only on the seed, on its kind and on the index. A
//! decision that is left out changes no other decision.

use std::time::Duration;

use crate::random::SplitMix64;

/// The decision that a stream is used for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Receiving,
    Sending,
    Drop,
    BurstBegins,
    BurstEnds,
    BurstDrop,
    Duplicate,
    Copies,
    CopyDelay,
    Reorder,
    ReorderDelay,
    Spike,
    SpikeDelay,
    Corrupt,
    Truncate,
    Extend,
    Damage,
}

/// Random numbers by index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(u64);

impl Stream {
    /// The stream of `seed` for one use.
    pub(super) fn new(seed: u64, of: Use) -> Self {
        Self(Self(seed).at(of as u64))
    }

    /// The stream that `seed` starts.
    pub(super) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The number at `place`: SplitMix64's output after `place + 1` steps.
    #[inline]
    pub(super) fn at(self, place: u64) -> u64 {
        SplitMix64::at(self.0, place)
    }

    /// A number in `0..bound`, 0 if the range is empty. The bias is below 2^-29 for the bounds used
    /// here.
    #[inline]
    pub(super) fn below(self, place: u64, bound: u64) -> u64 {
        ((u128::from(self.at(place)) * u128::from(bound)) >> 64) as u64
    }

    /// A duration in `0..=max`.
    #[inline]
    pub(super) fn up_to(self, place: u64, max: Duration) -> Duration {
        let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(place, nanos.saturating_add(1)))
    }
}

/// A random event with a fixed chance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lot {
    /// The event's probability, in units of 2^-53, the resolution of a float between 0 and 1.
    chance: u64,
    stream: Stream,
}

impl Lot {
    const CERTAIN: u64 = 1 << 53;

    pub(super) fn new(seed: u64, of: Use, chance: f64) -> Self {
        // NaN becomes 0; values out of range become the nearest bound.
        let chance = (chance.clamp(0.0, 1.0) * Self::CERTAIN as f64) as u64;
        Self { chance, stream: Stream::new(seed, of) }
    }

    pub(super) fn never(self) -> bool {
        self.chance == 0
    }

    /// Whether the event happens at `place`.
    #[inline]
    pub(super) fn happens(self, place: u64) -> bool {
        self.chance != 0 && self.stream.at(place) >> 11 < self.chance
    }
}
