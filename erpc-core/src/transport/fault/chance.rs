//! Chance, repeatably, and one decision at a time.
//!
//! Every use has a stream of its own, and a stream is read at a place, not one number after another. So
//! a decision depends on the seed, on what it is about and on which packet it is for, and can be left out
//! without moving any other.

use std::time::Duration;

use crate::random::SplitMix64;

/// What a stream is for.
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

/// Random numbers by their place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(u64);

impl Stream {
    /// The stream for one use, out of those that `seed` has.
    pub(super) fn new(seed: u64, of: Use) -> Self {
        Self(Self(seed).at(of as u64))
    }

    /// The stream that begins with `seed`.
    pub(super) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The number at `place`: SplitMix64's output after `place + 1` steps.
    #[inline]
    pub(super) fn at(self, place: u64) -> u64 {
        SplitMix64::at(self.0, place)
    }

    /// A number of `0..bound`, 0 if that is empty. The bias is below 2^-29 for the bounds used here.
    #[inline]
    pub(super) fn below(self, place: u64, bound: u64) -> u64 {
        ((u128::from(self.at(place)) * u128::from(bound)) >> 64) as u64
    }

    /// A duration of `0..=max`.
    #[inline]
    pub(super) fn up_to(self, place: u64, max: Duration) -> Duration {
        let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(place, nanos.saturating_add(1)))
    }
}

/// Something that happens by chance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lot {
    /// In units of 2^-53: as many as a float between 0 and 1 tells apart.
    chance: u64,
    stream: Stream,
}

impl Lot {
    const CERTAIN: u64 = 1 << 53;

    pub(super) fn new(seed: u64, of: Use, chance: f64) -> Self {
        // What is no number becomes 0, and what is out of bounds the nearest bound.
        let chance = (chance.clamp(0.0, 1.0) * Self::CERTAIN as f64) as u64;
        Self { chance, stream: Stream::new(seed, of) }
    }

    pub(super) fn never(self) -> bool {
        self.chance == 0
    }

    /// Whether it happens at `place`.
    #[inline]
    pub(super) fn happens(self, place: u64) -> bool {
        self.chance != 0 && self.stream.at(place) >> 11 < self.chance
    }
}
