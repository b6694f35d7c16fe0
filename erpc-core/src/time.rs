//! The time type of the protocol: a count of nanoseconds that the caller supplies.
//!
//! The protocol never reads a clock; every entry point takes an [`Instant`]. The event loop reads
//! the system's clock, usually once per turn, or twice if it has received packets by a system call.
//! A simulator computes the value.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since an origin that the caller chooses.
///
/// All instants of an endpoint must have the same origin and never decrease. 64 bits last 584
/// years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any instant of a clock; means "never".
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`; 0 if `earlier` is later.
    #[must_use]
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant `nanos` earlier; saturates at the origin.
    #[must_use]
    #[inline]
    pub const fn minus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_sub(nanos))
    }

    /// The instant `nanos` later; saturates at [`Instant::NEVER`].
    #[must_use]
    #[inline]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        self.plus_nanos(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(rhs))
    }
}
