//! How many packets a session may have in flight: twice the bandwidth-delay product of its path.
//!
//! The thesis gives a session 32 credits (section 6.3.3.1), which fill the round trip of a rack. A
//! longer path needs more, and how many is measured in rounds. A round in which the session ran out
//! of credits shows the path's throughput: the number of packets answered, per duration of the
//! round. Throughput times the shortest round trip seen is what the path holds. The product
//! excludes the time in queues, so a session that only fills a queue gets no more credits.
//!
//! - The limit is twice the product, so that on an empty path a round that uses all credits doubles
//!   them.
//! - A session gets no more credits if its initial ones already cover the link's bandwidth-delay
//!   product: after a loss, all packets in flight are sent again.
//! - A session loses half of its credits after a round in which it did not run out of them and the
//!   product was below a quarter of the limit. After a pause it falls back to the initial ones, so
//!   that no burst of thousands of packets meets a network that has changed.
//!
//! Credits measure what the path holds. What the receiver's memory holds is the subject of its
//! [window](super::reservation), which its clients share.

use crate::mutants::mutant;
use crate::time::Instant;

/// A session starts again from its initial credits if its last round ended at least this many
/// timeouts ago. Packets may be in flight then: for example, the request of a slow method.
const PAUSE_TIMEOUTS: u64 = 2;
/// The base round trip of a session that has no sample, in ns.
const UNKNOWN: u64 = u64::MAX;

/// One session's limit, in packets.
#[derive(Debug)]
pub(super) struct CreditLimit {
    /// Floor and cap of `limit`. Congestion control may lower the session's credits below the
    /// floor.
    least: u16,
    most: u16,
    limit: u16,
    /// Link rate in full packets per second; `None` if unknown.
    line: Option<u64>,
    round: Round,
    /// The shortest round trip seen, in nanoseconds.
    base: u64,
    /// If the session sends a packet at this time or later, its limit falls back to `least`. Each
    /// end of a round sets the time anew.
    expires: Instant,
}

/// About one round trip, in which answers are counted.
#[derive(Clone, Copy, Debug)]
struct Round {
    since: Instant,
    until: Instant,
    answered: u32,
}

impl CreditLimit {
    /// A limit that starts at `least` packets. `line` is the link rate in full packets per second,
    /// `base` the first round trip in ns; `None` if unknown.
    pub(super) fn new(least: u16, most: u16, line: Option<u64>, base: Option<u64>) -> Self {
        let round = Round { since: Instant::ZERO, until: Instant::ZERO, answered: 0 };
        let least = least.min(most);
        let base = base.unwrap_or(UNKNOWN).max(1);
        Self { least, most, limit: least, line, round, base, expires: Instant::ZERO }
    }

    pub(super) fn get(&self) -> u16 {
        self.limit
    }

    /// Sets the link rate in full packets per second; `None` if unknown.
    pub(super) fn set_line(&mut self, line: Option<u64>) {
        self.line = line;
    }

    /// Pacing ceiling in packets per second: all credits of a round trip leave in half a round
    /// trip. `u64::MAX` while the limit is at its floor. Without this ceiling, thousands of packets
    /// whose answers come in bursts would be sent in bursts.
    pub(super) fn pace(&self) -> u64 {
        if self.limit == self.least || mutant!(BurstsOfCredits) {
            return u64::MAX;
        }
        (u64::from(self.limit) * 2_000_000_000 / self.base).max(1)
    }

    /// Whether the initial credits cover the link's bandwidth-delay product.
    fn is_enough(&self) -> bool {
        let holds = |line| u128::from(line) * u128::from(self.base) / 1_000_000_000;
        self.line.is_some_and(|line| holds(line) <= u128::from(self.least))
    }

    /// A round trip took at most `nanos` ns.
    #[inline]
    pub(super) fn on_rtt(&mut self, nanos: u64) {
        self.base = self.base.min(nanos.max(1));
    }

    /// A session starts to send a request or to pull a response. Returns whether the limit has
    /// changed.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_new = now >= self.expires && self.limit != self.least && !mutant!(CreditsKeptIdle);
        if is_new {
            self.limit = self.least;
        }
        is_new
    }

    /// `packets` packets were answered. Returns whether the round is over.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant, packets: u32) -> bool {
        self.round.answered += packets;
        now >= self.round.until
    }

    /// Ends the round. `ran_out`: the session ran out of credits in it. `rtt` is the smoothed round
    /// trip, `rto` the timeout, both in ns.
    pub(super) fn end_round(&mut self, now: Instant, ran_out: bool, rtt: u64, rto: u64) {
        let Round { since, answered, .. } = self.round;
        let nanos = now.nanos_since(since).max(1);
        let next = Round {
            since: now,
            until: now.plus_nanos(if mutant!(RoundsTooShort) { 0 } else { rtt }),
            answered: 0,
        };
        self.round = next;
        self.expires = now.plus_nanos(rto.saturating_mul(PAUSE_TIMEOUTS));
        if self.base == UNKNOWN && rtt > 0 {
            // The handshake gave no sample.
            self.base = rtt;
        }
        let base = self.base.min(nanos);
        let held = u128::from(answered) * u128::from(base) / u128::from(nanos);
        let held = if mutant!(CreditsLeap) { held.max(self.limit.into()) } else { held };
        let wanted = (2 * held).min(u128::from(self.most)) as u16;
        if ran_out && self.is_enough() {
            self.limit = self.least;
        } else if ran_out {
            self.limit = self.limit.max(wanted.min(self.limit.saturating_mul(2)));
        } else if wanted < self.limit / 2 && !mutant!(CreditsNotShrunk) {
            self.limit = (self.limit / 2).max(self.least);
        }
    }

    pub(super) fn check_invariants(&self) {
        assert!((self.least..=self.most).contains(&self.limit), "the limit is in its range");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RTO: u64 = 3 * MS;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(1_000 * MS + nanos)
    }

    /// A limit of 32 to 1,000 packets, whose first round starts at time 0.
    fn limit(base: u64) -> CreditLimit {
        let mut limit = CreditLimit::new(32, 1_000, None, Some(base));
        limit.end_round(at(0), false, MS, RTO);
        limit
    }

    /// Runs rounds of `nanos` ns with this number of packets answered in each. Returns the limits.
    fn rounds(limit: &mut CreditLimit, nanos: u64, packets: &[u32], ran_out: bool) -> Vec<u16> {
        let mut round = |packets: &u32| {
            let end = limit.round.since.plus_nanos(nanos);
            assert!(limit.answered(end, *packets));
            limit.end_round(end, ran_out, nanos, RTO);
            limit.get()
        };
        packets.iter().map(&mut round).collect()
    }

    #[test]
    fn on_an_empty_path_credits_double_per_round_trip_up_to_the_most() {
        let mut limit = limit(MS);
        let doubled = [64, 128, 256, 512, 1_000, 1_000];
        assert_eq!(rounds(&mut limit, MS, &[32, 64, 128, 256, 512, 1_000], true), doubled);
    }

    #[test]
    fn a_session_on_a_full_path_gets_twice_what_the_path_holds() {
        // The path delivers 40 packets per millisecond, however many are in flight.
        let mut limit = limit(MS);
        assert_eq!(rounds(&mut limit, MS, &[32, 40, 40, 40], true), [64, 80, 80, 80]);
    }

    #[test]
    fn a_session_that_only_fills_a_queue_gets_no_more_credits() {
        let mut limit = CreditLimit::new(32, 1_000, None, Some(6_000));
        limit.end_round(at(0), false, 225_000, RTO);
        assert_eq!(rounds(&mut limit, 225_000, &[32; 4], true), [32; 4]);
    }

    #[test]
    fn a_session_that_does_not_run_out_gets_no_more_and_loses_half_of_what_it_does_not_need() {
        let mut limit = limit(MS);
        assert_eq!(rounds(&mut limit, MS, &[32, 64, 128], true), [64, 128, 256]);
        assert_eq!(
            rounds(&mut limit, MS, &[200, 70, 60, 5, 5, 5], false),
            [256, 256, 128, 64, 32, 32]
        );
    }

    /// If `pace` returned 0, the session would have no rate limit. It would take the fast path,
    /// which does not look for pauses.
    #[test]
    fn a_session_whose_handshake_gave_no_sample_is_paced_once_its_credits_grow() {
        let mut limit = CreditLimit::new(1, 1_000, None, None);
        for round in 0..10 {
            limit.answered(at(round * MS), 4);
            limit.end_round(at(round * MS), true, MS, RTO);
        }
        assert!(limit.get() > 1);
        assert_eq!(limit.pace(), u64::from(limit.get()) * 2_000);
    }

    #[test]
    fn after_a_pause_the_limit_falls_back_to_the_initial_credits() {
        let mut limit = limit(MS);
        rounds(&mut limit, MS, &[32, 64, 128], true);
        let last = limit.round.since;
        assert!(!limit.begin(last.plus_nanos(2 * RTO - 1)));
        assert!(limit.begin(last.plus_nanos(2 * RTO)));
        assert_eq!(limit.get(), 32);
    }

    #[test]
    fn initial_credits_that_cover_the_link_do_not_grow() {
        let after = |line| {
            let mut limit = CreditLimit::new(32, 1_000, Some(line), Some(MS));
            limit.end_round(at(0), false, MS, RTO);
            rounds(&mut limit, MS, &[32], true)
        };
        assert_eq!((after(32_000), after(33_000)), (vec![32], vec![64]));
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        let mut limit = CreditLimit::new(1, u16::MAX, Some(u64::MAX), None);
        limit.answered(Instant::from_nanos(u64::MAX), u32::MAX);
        limit.end_round(Instant::from_nanos(u64::MAX), true, u64::MAX, u64::MAX);
        limit.check_invariants();
    }
}
