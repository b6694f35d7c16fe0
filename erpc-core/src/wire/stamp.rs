//! Send timestamps that packets carry.

use crate::time::Instant;

/// The sender's clock when it sent the packet, in steps of 2 ns, as 31 bits that wrap after 4.3 s.
///
/// The answer to the packet echoes the stamp unchanged. So the client measures a round trip without
/// remembering send times, and retransmitted packets are measured correctly too. The echo also
/// shows whether the answered packet was sent before or after a given time (as RFC 7323's
/// timestamps do for TCP). The stamp is in the upper 31 bits of a word. Zero means no stamp; kinds
/// of packets without a stamp send zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp(u32);

impl Stamp {
    /// No stamp.
    pub const NONE: Self = Self(0);

    /// The longest round trip that a stamp can measure, in nanoseconds: 2.1 s.
    pub const MAX_TRIP: u64 = i32::MAX as u64;

    /// The stamp for `now`, never [`Self::NONE`].
    #[must_use]
    #[inline]
    pub const fn at(now: Instant) -> Self {
        let word = now.as_nanos() as u32 & !1;
        Self(if word == 0 { 2 } else { word })
    }

    /// The stamp in the upper 31 bits of `word`.
    #[must_use]
    #[inline]
    pub const fn from_u32(word: u32) -> Self {
        Self(word & !1)
    }

    /// The stamp in wire form; the lowest bit is clear.
    #[must_use]
    #[inline]
    pub const fn to_u32(self) -> u32 {
        self.0
    }

    /// Nanoseconds from the stamp to `now`, at most [`Self::MAX_TRIP`]; `None` for no stamp, for a
    /// stamp in the future, and for a stamp that is 2.1 to 4.3 s old. A stamp more than 4.3 s old
    /// looks like one that is a multiple of 4.3 s younger.
    #[must_use]
    #[inline]
    pub const fn nanos_until(self, now: Instant) -> Option<u64> {
        let nanos = Self::at(now).0.wrapping_sub(self.0);
        if self.0 == 0 || nanos as u64 > Self::MAX_TRIP { None } else { Some(nanos as u64) }
    }

    /// Whether the stamp is `then` or up to 2.1 s later; false for no stamp.
    #[must_use]
    #[inline]
    pub const fn is_since(self, then: Instant) -> bool {
        self.0 != 0 && self.0.wrapping_sub(Self::at(then).0) <= i32::MAX as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_round_trip_of_up_to_two_seconds_is_measured_to_two_nanoseconds(
            sent in any::<u32>().prop_map(u64::from),
            trip in 0u64..2_000_000_000,
        ) {
            let (then, now) = (Instant::from_nanos(sent), Instant::from_nanos(sent + trip));
            let echo = Stamp::from_u32(Stamp::at(then).to_u32());
            let measured = echo.nanos_until(now).expect("the stamp is in the past");
            prop_assert!(measured.abs_diff(trip) <= 3, "{measured} of {trip}");
            prop_assert!(echo.is_since(then));
            prop_assert_eq!(Stamp::at(now).is_since(then), true);
            prop_assert!(trip < 4 || !echo.is_since(now));
        }
    }

    #[test]
    fn a_missing_or_future_stamp_measures_nothing() {
        let now = Instant::from_nanos(1_000_000);
        assert_eq!(Stamp::NONE.nanos_until(now), None);
        assert!(!Stamp::NONE.is_since(Instant::ZERO));
        assert_eq!(Stamp::at(now.plus_nanos(100)).nanos_until(now), None);
        assert_ne!(Stamp::at(Instant::ZERO), Stamp::NONE, "every time has a stamp");
        assert_eq!(Stamp::from_u32(1), Stamp::NONE, "the lowest bit is not part of the stamp");
    }
}
