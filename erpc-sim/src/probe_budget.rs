//! How many probes an endpoint may send while it receives nothing.

use erpc_core::protocol::MAX_RTO;
use erpc_core::time::Instant;

/// Bounds the probes that an endpoint sends between two packets that it receives: one asks for all calls of a peer.
#[derive(Debug, Default)]
pub(crate) struct ProbeBudget {
    /// When the first turn without a packet was, and the probes counted by then. `None` after a packet.
    began: Option<(Instant, u64)>,
}

impl ProbeBudget {
    /// Notes a turn in which `received` packets were received, of an endpoint with calls to so many `peers`; returns an
    /// error if there were too many probes. Each doubles the timeout of the peer's next one, from `min_rto` nanoseconds up
    /// to the longest.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        received: usize,
        peers: u64,
        min_rto: u64,
        probes: u64,
    ) -> Option<String> {
        if received > 0 {
            self.began = None;
            return None;
        }
        let (began, before) = *self.began.get_or_insert((now, probes));
        let lasted = now.nanos_since(began);
        let doublings = u64::from((lasted / min_rto.max(1) + 1).ilog2());
        let most = peers * (2 + doublings + lasted / MAX_RTO);
        let counted = probes - before;
        (counted > most)
            .then(|| format!("probes {peers} peers {counted} times in {lasted} ns of silence"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RTO: u64 = 50_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(1_000 + nanos)
    }

    #[test]
    fn a_peer_may_be_probed_as_often_as_its_timeout_has_doubled() {
        let mut budget = ProbeBudget::default();
        let mut check = |nanos, probes| budget.check(at(nanos), 0, 1, MIN_RTO, probes).is_some();
        assert!(!check(0, 7), "what was counted before");
        assert!(!check(9, 9));
        assert!(check(9, 10), "three at once");
        assert!(!check(MIN_RTO, 10) && check(MIN_RTO, 11));
        assert!(!check(7 * MIN_RTO, 12) && check(7 * MIN_RTO, 13));
    }

    #[test]
    fn more_so_the_more_peers_there_are_and_the_longer_it_lasts() {
        let mut budget = ProbeBudget::default();
        assert_eq!(budget.check(at(0), 0, 3, MIN_RTO, 0), None);
        assert_eq!(budget.check(at(1), 0, 3, MIN_RTO, 6), None);
        assert!(budget.check(at(1), 0, 3, MIN_RTO, 7).is_some());
        let doublings = u64::from((MAX_RTO / MIN_RTO).ilog2());
        assert_eq!(budget.check(at(4 * MAX_RTO), 0, 1, MIN_RTO, 8 + doublings), None);
        assert!(budget.check(at(4 * MAX_RTO), 0, 1, MIN_RTO, 9 + doublings).is_some());
    }

    #[test]
    fn whatever_is_received_ends_the_silence() {
        let mut budget = ProbeBudget::default();
        budget.check(at(0), 0, 1, MIN_RTO, 0);
        assert_eq!(budget.check(at(1), 1, 1, MIN_RTO, 9), None);
        assert_eq!(budget.check(at(2), 0, 1, MIN_RTO, 9), None, "a new beginning");
        assert!(budget.check(at(3), 0, 1, MIN_RTO, 12).is_some());
    }
}
