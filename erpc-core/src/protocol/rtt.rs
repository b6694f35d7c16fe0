//! The retransmission timeout, from measured round trips (RFC 6298, in integers).

use std::time::Duration;

use crate::mutants::mutant;

/// Timeout before anything was measured: the handshake had to be repeated.
const INITIAL_RTO: u64 = 20_000_000;
/// Ceiling of the retransmission timeout, backoff included, in nanoseconds.
pub const MAX_RTO: u64 = 500_000_000;

/// Doublings that take a timeout of any length to the ceiling: a nanosecond is the shortest.
const MAX_DOUBLINGS: u8 = 29;

/// Doublings that outlast their call, at most.
const MAX_KEPT_DOUBLINGS: u8 = 4;

/// Smoothed round-trip time and its variation, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttEstimator {
    /// Eight times the smoothed RTT; 0 before the first sample.
    srtt8: u64,
    /// Four times the mean deviation.
    var4: u64,
    floor: u64,
    /// Doublings of calls whose answers gave no sample, since the last sample.
    kept_doublings: u8,
}

impl RttEstimator {
    /// An estimator whose timeout exceeds the smoothed round trip by `floor` or more; the first round trip was `handshake`
    /// nanoseconds, if it is known.
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

    /// Takes in a round trip, the server's own time already taken out.
    ///
    /// It may be 0, because a server that was away tells the longest time that the packet may have waited for it. That
    /// counts as a nanosecond: zero stands for no sample, and cannot be doubled.
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

    /// A call was answered after so many timeouts, and the answer does not tell to which copy. If round trips have become
    /// longer than the timeout, no answer would give a sample again: so the timeout keeps its length until the next sample
    /// (Karn's algorithm, RFC 6298 section 5).
    pub(super) fn keep_backoff(&mut self, retries: u8) {
        self.kept_doublings = self.kept_doublings.saturating_add(retries).min(MAX_KEPT_DOUBLINGS);
    }

    /// The timeout after `retries` retransmissions without progress: doubled each time, at most 500 ms.
    ///
    /// The floor allows for the delay that scheduling adds to any round trip, so it lies on top of the smoothed one (as in
    /// Linux; RFC 6298 bounds the sum): behind a queue of constant length, many samples per round trip leave no deviation,
    /// and the first answer that is late by a tick would count as lost.
    #[inline]
    pub(super) fn rto(&self, retries: u8) -> u64 {
        let doublings = if mutant!(RtoNeverDoubled) {
            0
        } else {
            retries.saturating_add(self.kept_doublings).min(MAX_DOUBLINGS)
        };
        self.base().saturating_mul(1 << doublings).min(MAX_RTO)
    }

    /// The timeout before any doubling: what is answered later was late.
    #[inline]
    pub(super) fn base(&self) -> u64 {
        if self.srtt8 == 0 {
            INITIAL_RTO.max(self.floor)
        } else {
            (self.srtt8 >> 3) + self.var4.max(self.floor)
        }
    }

    /// The timeout is never below this.
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
    fn the_shortest_timeout_reaches_the_ceiling_too() {
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
        assert_eq!(rtt.rto(0), 35_000_000, "no deviation is left, but an answer may be late");
        for _ in 0..200 {
            rtt.sample(4_000);
        }
        assert_eq!((rtt.rto(0), rtt.rto(1), rtt.rto(2)), (5_004_000, 10_008_000, 20_016_000));
        assert_eq!(rtt.rto(255), MAX_RTO);
        assert_eq!(rtt.smoothed(), Some(Duration::from_nanos(4_000)));
    }

    #[test]
    fn what_the_last_call_had_to_wait_for_the_next_one_waits_for_at_once_until_a_sample_tells() {
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
        assert_eq!(rtt.rto(0), 960_000, "no more than four doublings");
        rtt.sample(10_000);
        assert_eq!(rtt.rto(0), 60_000);
    }

    #[test]
    fn without_a_floor_timeouts_back_off_though_nothing_is_left_of_round_trips() {
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
    fn the_arithmetic_is_that_of_rfc_6298() {
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
    fn a_jump_in_rtt_lifts_the_timeout_above_it() {
        let mut rtt = RttEstimator::new(Duration::from_micros(1), None);
        for _ in 0..50 {
            rtt.sample(10_000);
        }
        rtt.sample(100_000);
        assert!(rtt.rto(0) > 100_000);
    }
}
