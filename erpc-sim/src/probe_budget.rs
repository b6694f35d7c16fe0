//! Limits the probes that an endpoint sends while it receives nothing.

use erpc_core::protocol::MAX_RTO;
use erpc_core::time::Instant;

/// Bounds the probes that an endpoint sends between two received packets. One probe covers all
/// calls to a peer.
#[derive(Debug, Default)]
pub(crate) struct ProbeBudget {
    /// The time of the first turn since the last received packet, and the count of probes at that
    /// time. `None` after a turn that received a packet.
    began: Option<(Instant, u64)>,
}

impl ProbeBudget {
    /// Notes a turn in which `received` packets were received. `peers` is the number of peers of
    /// the endpoint's calls. Returns an error if there were too many probes. Each probe doubles the
    /// timeout of the next probe to the same peer, from `min_rto` ns up to the maximum RTO.
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
    fn an_endpoint_probes_a_peer_once_per_doubling_of_the_timeout() {
        let mut budget = ProbeBudget::default();
        let mut check = |nanos, probes| budget.check(at(nanos), 0, 1, MIN_RTO, probes).is_some();
        assert!(!check(0, 7), "probes of earlier turns do not count");
        assert!(!check(9, 9));
        assert!(check(9, 10), "three probes within 9 ns");
        assert!(!check(MIN_RTO, 10) && check(MIN_RTO, 11));
        assert!(!check(7 * MIN_RTO, 12) && check(7 * MIN_RTO, 13));
    }

    #[test]
    fn the_budget_of_probes_grows_with_peers_and_time() {
        let mut budget = ProbeBudget::default();
        assert_eq!(budget.check(at(0), 0, 3, MIN_RTO, 0), None);
        assert_eq!(budget.check(at(1), 0, 3, MIN_RTO, 6), None);
        assert!(budget.check(at(1), 0, 3, MIN_RTO, 7).is_some());
        let doublings = u64::from((MAX_RTO / MIN_RTO).ilog2());
        assert_eq!(budget.check(at(4 * MAX_RTO), 0, 1, MIN_RTO, 8 + doublings), None);
        assert!(budget.check(at(4 * MAX_RTO), 0, 1, MIN_RTO, 9 + doublings).is_some());
    }

    #[test]
    fn a_received_packet_resets_the_budget_of_probes() {
        let mut budget = ProbeBudget::default();
        budget.check(at(0), 0, 1, MIN_RTO, 0);
        assert_eq!(budget.check(at(1), 1, 1, MIN_RTO, 9), None);
        assert_eq!(budget.check(at(2), 0, 1, MIN_RTO, 9), None, "the count starts again");
        assert!(budget.check(at(3), 0, 1, MIN_RTO, 12).is_some());
    }
}
