//! How many timeouts an endpoint may count while it receives nothing.

use erpc_core::protocol::{MAX_RTO, WINDOW};
use erpc_core::time::Instant;

/// Doublings from the shortest timeout of any plan to the longest, and some.
const DOUBLINGS: u64 = 16;

/// Bounds the timeouts that an endpoint counts between two packets that it receives.
#[derive(Debug, Default)]
pub(crate) struct TimeoutBudget {
    /// When the first turn without a packet was, and the timeouts counted by then. `None` after a packet.
    began: Option<(Instant, u64)>,
    /// The most sessions since then.
    sessions: u64,
}

impl TimeoutBudget {
    /// Notes a turn in which `received` packets were received; returns an error if there were too many timeouts. Every
    /// timeout doubles the next one, up to the longest, which bounds the timeouts of a call; a call that executes is
    /// probed every `probes_every` nanoseconds.
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
        let most = self.sessions * WINDOW as u64 * each;
        let counted = timeouts - before;
        (counted > most).then(|| format!("times out {counted} times in {lasted} ns of silence"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBES: u64 = 10 * MAX_RTO;

    /// Every call of a session, as often as timeouts double.
    const AT_ONCE: u64 = WINDOW as u64 * DOUBLINGS;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(1_000 + nanos)
    }

    #[test]
    fn a_session_may_time_out_as_often_as_its_calls_double_their_timeouts() {
        let mut budget = TimeoutBudget::default();
        assert_eq!(budget.check(at(0), 0, 1, PROBES, || 7), None, "what was counted before");
        assert_eq!(budget.check(at(9), 0, 1, PROBES, || 7 + AT_ONCE), None);
        let wrong = budget.check(at(9), 0, 1, PROBES, || 8 + AT_ONCE);
        assert_eq!(wrong.as_deref(), Some("times out 129 times in 9 ns of silence"));
    }

    #[test]
    fn more_so_the_longer_it_lasts() {
        for (lasted, more) in [(MAX_RTO, 1), (2 * MAX_RTO - 1, 1), (PROBES, 11), (2 * PROBES, 22)] {
            let mut budget = TimeoutBudget::default();
            budget.check(at(0), 0, 1, PROBES, || 0);
            let most = AT_ONCE + more * WINDOW as u64;
            assert_eq!(budget.check(at(lasted), 0, 1, PROBES, || most), None);
            assert!(budget.check(at(lasted), 0, 1, PROBES, || most + 1).is_some());
        }
    }

    #[test]
    fn every_session_counts_also_if_it_has_gone_since() {
        let mut budget = TimeoutBudget::default();
        budget.check(at(0), 0, 3, PROBES, || 0);
        assert_eq!(budget.check(at(1), 0, 0, PROBES, || 3 * AT_ONCE), None);
        assert!(budget.check(at(1), 0, 0, PROBES, || 3 * AT_ONCE + 1).is_some());
    }

    #[test]
    fn whatever_is_received_ends_the_silence() {
        let mut budget = TimeoutBudget::default();
        budget.check(at(0), 0, 1, PROBES, || 0);
        assert_eq!(budget.check(at(1), 1, 1, PROBES, || unreachable!("not asked")), None);
        assert_eq!(budget.check(at(2), 0, 1, PROBES, || AT_ONCE + 1), None, "a new beginning");
        assert!(budget.check(at(3), 0, 1, PROBES, || 2 * AT_ONCE + 2).is_some());
    }
}
