//! How many packets a session may have on its way: twice what its path carries in an empty round trip.
//!
//! The thesis gives a session 32 credits (section 6.3.3.1), which fill a rack's round trip. A longer path needs more, and how
//! many is measured: in a round in which the session ran out of credits, the packets that were answered tell what it gets
//! through, and the shortest round trip seen tells how much of that the path holds. The product leaves out whatever waits in
//! queues, so sessions that only fill a queue get no more credits. Nor do sessions whose first credits are what the link carries in
//! an empty round trip: after a loss, whatever is on its way is sent again. Twice the product, for a round that fills all credits of
//! an empty path doubles them. A session that does not need its credits loses half of them per round, and after a pause all
//! but the first ones, so that no burst of thousands of packets meets a network that has changed.
//!
//! Credits say what a path holds. What the receiver's memory holds is the matter of its
//! [window](super::reservation), which its clients share.

use crate::mutants::mutant;
use crate::time::Instant;

/// A session that has had no answer for so many times its timeout begins anew.
const PAUSE_TIMEOUTS: u64 = 2;

/// One session's limit, in packets.
#[derive(Debug)]
pub(super) struct CreditLimit {
    /// Never less, unless congestion control says so, and never more.
    least: u16,
    most: u16,
    limit: u16,
    /// Packets per second of the link, if it is known.
    line: Option<u64>,
    round: Round,
    /// The shortest round trip seen, in nanoseconds.
    base: u64,
    /// After that without an answer, the limit is the least again.
    expires: Instant,
}

/// About a round trip, in which answers are counted.
#[derive(Clone, Copy, Debug)]
struct Round {
    since: Instant,
    until: Instant,
    answered: u32,
}

impl CreditLimit {
    /// A limit that begins with `least` packets. The link carries `line` packets per second, and the first round trip took `base`
    /// nanoseconds, if these are known.
    pub(super) fn new(least: u16, most: u16, line: Option<u64>, base: Option<u64>) -> Self {
        let round = Round { since: Instant::ZERO, until: Instant::ZERO, answered: 0 };
        let least = least.min(most);
        let base = base.unwrap_or(u64::MAX).max(1);
        Self { least, most, limit: least, line, round, base, expires: Instant::ZERO }
    }

    pub(super) fn get(&self) -> u16 {
        self.limit
    }

    /// The link carries so many packets per second from now on, if that is known.
    pub(super) fn set_line(&mut self, line: Option<u64>) {
        self.line = line;
    }

    /// Packets per second at which a round trip's worth of credits leaves in half a round trip, once there are more than the
    /// first ones; `u64::MAX` before. Thousands of packets, whose answers come in bursts, would leave in bursts.
    pub(super) fn pace(&self) -> u64 {
        if self.limit == self.least || mutant!(BurstsOfCredits) {
            return u64::MAX;
        }
        u64::from(self.limit) * 2_000_000_000 / self.base
    }

    /// Whether the first credits are enough for the link.
    fn is_enough(&self) -> bool {
        let holds = |line| u128::from(line) * u128::from(self.base) / 1_000_000_000;
        self.line.is_some_and(|line| holds(line) <= u128::from(self.least))
    }

    /// The path took so many nanoseconds there and back, at most.
    #[inline]
    pub(super) fn on_rtt(&mut self, nanos: u64) {
        self.base = self.base.min(nanos.max(1));
    }

    /// A call begins, or pulls its response, after a time without packets on their way. Returns whether the limit has changed.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_new = now >= self.expires && self.limit != self.least && !mutant!(CreditsKeptIdle);
        if is_new {
            self.limit = self.least;
        }
        is_new
    }

    /// So many packets were answered. Returns whether the round is over.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant, packets: u32) -> bool {
        self.round.answered += packets;
        now >= self.round.until
    }

    /// The round is over, in which the session `ran_out` of credits or did not. A round trip takes `rtt` nanoseconds and a
    /// timeout `rto`.
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

    /// A limit of 32 to 1,000 packets, whose first round begins at time 0.
    fn limit(base: u64) -> CreditLimit {
        let mut limit = CreditLimit::new(32, 1_000, None, Some(base));
        limit.end_round(at(0), false, MS, RTO);
        limit
    }

    /// Rounds of `nanos` in which so many packets are answered; the limit after each.
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
    fn a_path_that_is_full_gets_twice_what_it_holds() {
        // 40 packets per millisecond, whatever is on its way.
        let mut limit = limit(MS);
        assert_eq!(rounds(&mut limit, MS, &[32, 40, 40, 40], true), [64, 80, 80, 80]);
    }

    #[test]
    fn a_queue_earns_no_credits() {
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

    #[test]
    fn after_a_pause_credits_begin_anew() {
        let mut limit = limit(MS);
        rounds(&mut limit, MS, &[32, 64, 128], true);
        let last = limit.round.since;
        assert!(!limit.begin(last.plus_nanos(2 * RTO - 1)));
        assert!(limit.begin(last.plus_nanos(2 * RTO)));
        assert_eq!(limit.get(), 32);
    }

    #[test]
    fn first_credits_that_the_link_fills_are_enough() {
        let after = |line| {
            let mut limit = CreditLimit::new(32, 1_000, Some(line), Some(MS));
            limit.end_round(at(0), false, MS, RTO);
            rounds(&mut limit, MS, &[32], true)
        };
        assert_eq!((after(32_000), after(33_000)), (vec![32], vec![64]));
    }

    #[test]
    fn no_number_overflows() {
        let mut limit = CreditLimit::new(1, u16::MAX, Some(u64::MAX), None);
        limit.answered(Instant::from_nanos(u64::MAX), u32::MAX);
        limit.end_round(Instant::from_nanos(u64::MAX), true, u64::MAX, u64::MAX);
        limit.check_invariants();
    }
}
