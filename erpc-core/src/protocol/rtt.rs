//! The retransmission timeout, from measured round trips (RFC 6298, in integers).

use std::time::Duration;

use crate::mutants::mutant;

/// Timeout before the first sample, in nanoseconds. Used if the handshake had to be repeated and
/// gave no sample.
const INITIAL_RTO: u64 = 20_000_000;
/// Cap of the retransmission timeout, backoff included, in nanoseconds.
pub const MAX_RTO: u64 = 500_000_000;

/// Number of doublings that raise any timeout to the cap: the shortest timeout is one nanosecond.
const MAX_DOUBLINGS: u8 = 29;

/// Maximum number of doublings that a call leaves to later calls.
const MAX_KEPT_DOUBLINGS: u8 = 4;

/// Estimates the round trip and its variation, in nanoseconds, and derives the timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttEstimator {
    /// Eight times the smoothed RTT, in nanoseconds; 0 before the first sample.
    srtt8: u64,
    /// Four times the mean deviation, in nanoseconds.
    var4: u64,
    /// Minimum margin of the timeout above the smoothed round trip, in nanoseconds.
    floor: u64,
    /// Doublings that all calls take over from calls whose answers gave no sample. Each sample
    /// resets them to 0.
    kept_doublings: u8,
}

impl RttEstimator {
    /// An estimator whose timeout exceeds the smoothed round trip by at least `floor`. `handshake`
    /// is the first sample in nanoseconds, if the handshake gave one.
    pub(super) fn new(floor: Duration, handshake: Option<u64>) -> Self {
        let mut rtt = Self {
            srtt8: 0,
            var4: 0,
            floor: (floor.as_nanos() as u64).min(MAX_RTO),
            kept_doublings: 0,
        };
        if let Some(nanos) = handshake.filter(|_| !mutant!(FirstRtoFixed)) {
            rtt.sample(nanos);
        }
        rtt
    }

    /// Adds a sample: a round trip in nanoseconds, without the server's own time.
    ///
    /// A sample may be 0, because a server whose loop was away reports the longest time that the
    /// packet may have waited for the loop. Then 1 ns is used instead of 0: a smoothed RTT of 0
    /// means that there is no sample, and a timeout of 0 cannot be doubled.
    #[inline]
    pub(super) fn sample(&mut self, nanos: u64) {
        self.kept_doublings = 0;
        let nanos = nanos.max(1);
        if self.srtt8 == 0 {
            self.srtt8 = nanos * 8;
            self.var4 = nanos * 2;
            return;
        }
        let error = nanos.abs_diff(self.srtt8 >> 3);
        self.var4 = self.var4 - (self.var4 >> 2) + error;
        self.srtt8 = self.srtt8 - (self.srtt8 >> 3) + nanos;
    }

    /// A call was answered after `retries` timeouts, and the client cannot tell which copy of the
    /// packet the server answered. If round trips have become longer than the timeout, no answer
    /// would give a sample again. So later calls keep the doublings, at most
    /// [`MAX_KEPT_DOUBLINGS`], until the next sample (Karn's algorithm, RFC 6298 section 5).
    pub(super) fn keep_backoff(&mut self, retries: u8) {
        self.kept_doublings = self.kept_doublings.saturating_add(retries).min(MAX_KEPT_DOUBLINGS);
    }

    /// The timeout after `retries` retransmissions without progress, in nanoseconds: doubled each
    /// time, at most 500 ms.
    ///
    /// The floor allows for the delay that scheduling adds to any round trip, so it is added to the
    /// smoothed RTT. (Linux does the same; RFC 6298 bounds the sum.) Behind a queue of constant
    /// length, all samples are equal and the deviation becomes 0. Without the floor, the first
    /// answer that is slightly late would then count as lost.
    #[inline]
    pub(super) fn rto(&self, retries: u8) -> u64 {
        let doublings = if mutant!(RtoNeverDoubled) {
            0
        } else {
            retries.saturating_add(self.kept_doublings).min(MAX_DOUBLINGS)
        };
        self.base().saturating_mul(1 << doublings).min(MAX_RTO)
    }

    /// The timeout without doublings, in nanoseconds. An answer after it is late.
    #[inline]
    pub(super) fn base(&self) -> u64 {
        if self.srtt8 == 0 {
            INITIAL_RTO.max(self.floor)
        } else {
            (self.srtt8 >> 3) + self.var4.max(self.floor)
        }
    }

    /// The minimum margin of the timeout above the smoothed round trip, in nanoseconds.
    #[inline]
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// The smoothed RTT, `None` before the first sample.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        (self.srtt8 != 0).then(|| Duration::from_nanos(self.smoothed_nanos()))
    }

    /// The smoothed RTT in nanoseconds, 0 before the first sample.
    pub(super) fn smoothed_nanos(&self) -> u64 {
        self.srtt8 >> 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_timeout_reaches_the_cap_too() {
        let mut rtt = RttEstimator::new(Duration::ZERO, None);
        for _ in 0..200 {
            rtt.sample(500);
        }
        assert!(rtt.rto(0) < 1_000, "{}", rtt.rto(0));
        assert_eq!(rtt.rto(MAX_DOUBLINGS), MAX_RTO);
        assert_eq!(rtt.rto(u8::MAX), MAX_RTO);
    }

    #[test]
    fn the_timeout_follows_the_samples_down_to_the_floor_and_doubles_on_retries() {
        let mut rtt = RttEstimator::new(Duration::from_millis(5), None);
        assert_eq!(rtt.rto(0), INITIAL_RTO);
        for _ in 0..100 {
            rtt.sample(30_000_000);
        }
        assert_eq!(rtt.rto(0), 35_000_000, "the deviation is zero, but an answer may be late");
        for _ in 0..200 {
            rtt.sample(4_000);
        }
        assert_eq!((rtt.rto(0), rtt.rto(1), rtt.rto(2)), (5_004_000, 10_008_000, 20_016_000));
        assert_eq!(rtt.rto(255), MAX_RTO);
        assert_eq!(rtt.smoothed(), Some(Duration::from_nanos(4_000)));
    }

    #[test]
    fn the_next_call_keeps_the_backoff_of_the_last_one_until_a_sample_arrives() {
        let mut rtt = RttEstimator::new(Duration::from_micros(50), None);
        for _ in 0..100 {
            rtt.sample(10_000);
        }
        assert_eq!((rtt.rto(0), rtt.rto(1)), (60_000, 120_000));
        rtt.keep_backoff(1);
        assert_eq!((rtt.rto(0), rtt.rto(1)), (120_000, 240_000));
        rtt.keep_backoff(1);
        rtt.keep_backoff(0);
        assert_eq!(rtt.rto(0), 240_000);
        rtt.keep_backoff(u8::MAX);
        assert_eq!(rtt.rto(0), 960_000, "at most four doublings are kept");
        rtt.sample(10_000);
        assert_eq!(rtt.rto(0), 60_000);
    }

    #[test]
    fn timeouts_without_a_floor_back_off_even_if_round_trips_are_zero() {
        let mut rtt = RttEstimator::new(Duration::ZERO, None);
        for _ in 0..100 {
            rtt.sample(0);
        }
        assert_eq!(rtt.smoothed(), Some(Duration::from_nanos(1)));
        assert!((1..1_000).contains(&rtt.rto(0)), "{}", rtt.rto(0));
        assert!(rtt.rto(20) > 1_000_000, "{}", rtt.rto(20));
        assert_eq!(rtt.rto(MAX_DOUBLINGS), MAX_RTO);
    }

    #[test]
    fn the_estimator_computes_as_rfc_6298() {
        let mut rtt = RttEstimator::new(Duration::ZERO, None);
        // SRTT <- R, RTTVAR <- R / 2, RTO <- SRTT + 4 RTTVAR
        rtt.sample(8_000);
        assert_eq!((rtt.smoothed(), rtt.rto(0)), (Some(Duration::from_nanos(8_000)), 24_000));
        // RTTVAR <- 3/4 RTTVAR + 1/4 |SRTT - R|, SRTT <- 7/8 SRTT + 1/8 R
        rtt.sample(16_000);
        assert_eq!((rtt.smoothed(), rtt.rto(0)), (Some(Duration::from_nanos(9_000)), 29_000));
        rtt.sample(1_000);
        assert_eq!((rtt.smoothed(), rtt.rto(0)), (Some(Duration::from_nanos(8_000)), 31_000));
    }

    #[test]
    fn the_first_timeout_comes_from_the_handshake() {
        let rtt = RttEstimator::new(Duration::from_millis(1), Some(40_000));
        assert_eq!((rtt.smoothed(), rtt.rto(0)), (Some(Duration::from_micros(40)), 1_040_000));
        let far = RttEstimator::new(Duration::from_millis(1), Some(60_000_000));
        assert_eq!(far.rto(0), 180_000_000);
    }

    #[test]
    fn a_jump_of_the_rtt_raises_the_timeout_above_it() {
        let mut rtt = RttEstimator::new(Duration::from_micros(1), None);
        for _ in 0..50 {
            rtt.sample(10_000);
        }
        rtt.sample(100_000);
        assert!(rtt.rto(0) > 100_000);
    }
}
