//! Limits the timeouts that an endpoint counts while it receives nothing.

use erpc_core::protocol::{MAX_RTO, MAX_SLOTS};
use erpc_core::time::Instant;

/// Doublings from the shortest timeout of any plan to the longest, with a margin.
const DOUBLINGS: u64 = 16;

/// Bounds the timeouts that an endpoint counts between two received packets.
#[derive(Debug, Default)]
pub(crate) struct TimeoutBudget {
    /// The time of the first turn since the last received packet, and the count of timeouts at that
    /// time. `None` after a turn that received a packet.
    began: Option<(Instant, u64)>,
    /// The largest number of sessions since `began`.
    sessions: u64,
}

impl TimeoutBudget {
    /// Notes a turn in which `received` packets were received. Returns an error if there were too
    /// many timeouts. Every timeout of a call doubles the call's next timeout, up to the maximum
    /// RTO. This bounds the timeouts of a call. An executing call is also probed every
    /// `probes_every` ns.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        received: usize,
        sessions: usize,
        probes_every: u64,
        timeouts: impl FnOnce() -> u64,
    ) -> Option<String> {
        if received > 0 {
            self.began = None;
            return None;
        }
        let timeouts = timeouts();
        let (began, before) = *self.began.get_or_insert((now, timeouts));
        self.sessions = self.sessions.max(sessions as u64);
        let lasted = now.nanos_since(began);
        let each = DOUBLINGS + lasted / MAX_RTO + lasted / probes_every.max(1);
        let most = self.sessions * MAX_SLOTS as u64 * each;
        let counted = timeouts - before;
        (counted > most).then(|| format!("times out {counted} times in {lasted} ns of silence"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBES: u64 = 10 * MAX_RTO;

    /// Timeouts of all calls of a session, each once per doubling.
    const AT_ONCE: u64 = MAX_SLOTS as u64 * DOUBLINGS;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(1_000 + nanos)
    }

    #[test]
    fn each_call_of_a_session_may_time_out_once_per_doubling() {
        let mut budget = TimeoutBudget::default();
        assert_eq!(
            budget.check(at(0), 0, 1, PROBES, || 7),
            None,
            "timeouts of earlier turns do not count"
        );
        assert_eq!(budget.check(at(9), 0, 1, PROBES, || 7 + AT_ONCE), None);
        let wrong = budget.check(at(9), 0, 1, PROBES, || 8 + AT_ONCE);
        let said = format!("times out {} times in 9 ns of silence", 1 + AT_ONCE);
        assert_eq!(wrong, Some(said));
    }

    #[test]
    fn the_budget_of_timeouts_grows_with_time() {
        for (lasted, more) in [(MAX_RTO, 1), (2 * MAX_RTO - 1, 1), (PROBES, 11), (2 * PROBES, 22)] {
            let mut budget = TimeoutBudget::default();
            budget.check(at(0), 0, 1, PROBES, || 0);
            let most = AT_ONCE + more * MAX_SLOTS as u64;
            assert_eq!(budget.check(at(lasted), 0, 1, PROBES, || most), None);
            assert!(budget.check(at(lasted), 0, 1, PROBES, || most + 1).is_some());
        }
    }

    #[test]
    fn a_closed_session_still_counts_in_the_budget_of_timeouts() {
        let mut budget = TimeoutBudget::default();
        budget.check(at(0), 0, 3, PROBES, || 0);
        assert_eq!(budget.check(at(1), 0, 0, PROBES, || 3 * AT_ONCE), None);
        assert!(budget.check(at(1), 0, 0, PROBES, || 3 * AT_ONCE + 1).is_some());
    }

    #[test]
    fn a_received_packet_resets_the_budget_of_timeouts() {
        let mut budget = TimeoutBudget::default();
        budget.check(at(0), 0, 1, PROBES, || 0);
        assert_eq!(
            budget.check(at(1), 1, 1, PROBES, || unreachable!("the timeouts are not read")),
            None
        );
        assert_eq!(
            budget.check(at(2), 0, 1, PROBES, || AT_ONCE + 1),
            None,
            "the count starts again"
        );
        assert!(budget.check(at(3), 0, 1, PROBES, || 2 * AT_ONCE + 2).is_some());
    }
}
