//! The retransmission timeout, from measured round trips (RFC 6298, in integers).

use std::time::Duration;

use crate::mutants::mutant;

/// Timeout before anything was measured.
const INITIAL_RTO: u64 = 20_000_000;
/// Ceiling of the retransmission timeout, backoff included, in nanoseconds.
pub const MAX_RTO: u64 = 500_000_000;

/// Doublings that take a timeout of any length to the ceiling: a nanosecond is the shortest.
const MAX_DOUBLINGS: u8 = 29;

/// Doublings that outlast their call, at most.
const MAX_KEPT_DOUBLINGS: u8 = 4;

/// The server's own time adds so many floors to a timeout at most, if the server answers probes, and never more than the
/// ceiling. Up to there the client waits, as probes of a slow server cost packets; beyond, a probe costs less than a late
/// recovery.
const SERVER_TIME_FLOORS: u64 = 8;

/// Smoothed round-trip time and its variation, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttEstimator {
    /// Eight times the smoothed RTT; 0 before the first sample.
    srtt8: u64,
    /// Four times the mean deviation.
    var4: u64,
    /// The most time of its own that the server has lately taken for a response; it fades by an eighth with every response.
    server_time: u64,
    floor: u64,
    /// Doublings of calls whose answers gave no sample, since the last sample.
    kept_doublings: u8,
}

impl RttEstimator {
    /// An estimator whose timeout exceeds the smoothed round trip by `floor` or more.
    pub(super) fn new(floor: Duration) -> Self {
        Self {
            srtt8: 0,
            var4: 0,
            server_time: 0,
            floor: (floor.as_nanos() as u64).min(MAX_RTO),
            kept_doublings: 0,
        }
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

    /// Takes in the server's own time for a response, as it tells; `probes_unanswered` if it has answered no probe meanwhile.
    /// An unresponsive server is waited for, not probed: it may be away for as long as the ceiling.
    #[inline]
    pub(super) fn on_server_time(&mut self, nanos: u64, probes_unanswered: bool) {
        let known = (self.floor * SERVER_TIME_FLOORS).max(self.server_time);
        let most = if probes_unanswered { MAX_RTO } else { known.min(MAX_RTO) };
        self.server_time = nanos.min(most).max(self.server_time - (self.server_time >> 3));
    }

    /// The time that a response may take longer than other answers, in nanoseconds.
    pub(super) fn server_time(&self) -> u64 {
        self.server_time
    }

    /// The timeout after `retries` retransmissions without progress: doubled each time, at most 500 ms.
    ///
    /// The floor allows for the delay that scheduling adds to any round trip, so it lies on top of the smoothed one (as in
    /// Linux; RFC 6298 bounds the sum): behind a queue of constant length, many samples per round trip leave no deviation,
    /// and the first answer that is late by a tick would count as lost.
    #[inline]
    pub(super) fn rto(&self, retries: u8) -> u64 {
        let base = if self.srtt8 == 0 {
            INITIAL_RTO.max(self.floor)
        } else {
            (self.srtt8 >> 3) + self.var4.max(self.floor)
        };
        let doublings = if mutant!(RtoNeverDoubled) {
            0
        } else {
            retries.saturating_add(self.kept_doublings).min(MAX_DOUBLINGS)
        };
        base.saturating_mul(1 << doublings).min(MAX_RTO)
    }

    /// The timeout is never below this.
    #[inline]
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// The smoothed RTT, `None` before the first sample.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        (self.srtt8 != 0).then(|| Duration::from_nanos(self.srtt8 >> 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_timeout_reaches_the_ceiling_too() {
        let mut rtt = RttEstimator::new(Duration::ZERO);
        for _ in 0..200 {
            rtt.sample(500);
        }
        assert!(rtt.rto(0) < 1_000, "{}", rtt.rto(0));
        assert_eq!(rtt.rto(MAX_DOUBLINGS), MAX_RTO);
        assert_eq!(rtt.rto(u8::MAX), MAX_RTO);
    }

    #[test]
    fn the_timeout_follows_the_samples_down_to_the_floor_and_doubles_on_retries() {
        let mut rtt = RttEstimator::new(Duration::from_millis(5));
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
    fn a_server_that_takes_its_time_is_waited_for_up_to_eight_floors_until_it_is_fast_again() {
        let mut rtt = RttEstimator::new(Duration::from_micros(50));
        for _ in 0..50 {
            rtt.sample(5_000);
            rtt.on_server_time(80_000, false);
        }
        assert_eq!((rtt.rto(0), rtt.server_time()), (55_000, 80_000));
        rtt.sample(5_000);
        assert_eq!(rtt.server_time(), 80_000, "packets say nothing of handlers");
        rtt.on_server_time(u64::MAX, false);
        assert_eq!(rtt.server_time(), 400_000, "it may take longer, but then one asks");
        for _ in 0..100 {
            rtt.on_server_time(0, false);
        }
        assert!(rtt.server_time() < 10, "{}", rtt.server_time());
    }

    #[test]
    fn what_the_last_call_had_to_wait_for_the_next_one_waits_for_at_once_until_a_sample_tells() {
        let mut rtt = RttEstimator::new(Duration::from_micros(50));
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
    fn a_server_that_answers_no_probes_is_waited_for_until_it_is_fast_again() {
        let mut rtt = RttEstimator::new(Duration::from_micros(50));
        rtt.on_server_time(2_000_000, true);
        for _ in 0..50 {
            rtt.on_server_time(2_000_000, false);
            assert_eq!(rtt.server_time(), 2_000_000);
        }
        rtt.on_server_time(90_000_000, false);
        assert_eq!(rtt.server_time(), 2_000_000, "whether it was away for longer is not known");
        rtt.on_server_time(u64::MAX, true);
        assert_eq!(rtt.server_time(), MAX_RTO);
        (0..200).for_each(|_| rtt.on_server_time(0, false));
        assert!(rtt.server_time() < 10, "{}", rtt.server_time());
    }

    #[test]
    fn a_server_that_takes_its_time_is_not_waited_for_longer_than_the_ceiling() {
        let mut rtt = RttEstimator::new(Duration::from_millis(500));
        rtt.on_server_time(u64::MAX, false);
        assert_eq!(rtt.server_time(), MAX_RTO);
    }

    #[test]
    fn without_a_floor_timeouts_back_off_though_nothing_is_left_of_round_trips() {
        let mut rtt = RttEstimator::new(Duration::ZERO);
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
        let mut rtt = RttEstimator::new(Duration::ZERO);
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
    fn a_jump_in_rtt_lifts_the_timeout_above_it() {
        let mut rtt = RttEstimator::new(Duration::from_micros(1));
        for _ in 0..50 {
            rtt.sample(10_000);
        }
        rtt.sample(100_000);
        assert!(rtt.rto(0) > 100_000);
    }
}
