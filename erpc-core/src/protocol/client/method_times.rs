//! How long a server's handlers take, method by method.

use super::recent_max::RecentMax;
use crate::mutants::mutant;
use crate::protocol::rtt::MAX_RTO;
use crate::time::Instant;

/// Methods of one server whose times are kept. If more are slow at a time, the quickest of them is forgotten: its calls are
/// probed.
const METHODS: usize = 16;

/// The server's own time adds so many floors to a timeout at most, if the server answers probes, and never more than the
/// ceiling. Up to there the client waits, as probes of a slow server cost packets; beyond, a probe costs less than a late
/// recovery.
const MOST_FLOORS: u64 = 8;

/// A time below this part of the floor is not kept: the floor covers it.
const NOTABLE: u64 = 4;

/// The least time of a server's own that is worth a note, in nanoseconds.
#[inline(always)]
pub(super) fn notable(floor: u64) -> u64 {
    floor / NOTABLE
}

/// What the slow methods of one server have lately taken at most.
#[derive(Debug)]
pub(super) struct MethodTimes {
    times: [(u32, RecentMax); METHODS],
}

impl MethodTimes {
    pub(super) const fn new() -> Self {
        Self { times: [(0, RecentMax::NONE); METHODS] }
    }

    /// How much longer than other answers one of this method may take, in nanoseconds.
    pub(super) fn get(&self, now: Instant, method: u32) -> u64 {
        let times = self.times.iter().filter(|(of, _)| *of == method);
        times.map(|(_, time)| time.get(now)).max().unwrap_or(0)
    }

    /// The server tells that it took `nanos` for an answer; `probes_unanswered` if it has answered no probe meanwhile.
    /// An unresponsive server is waited for, not probed: it may be away for as long as the ceiling.
    pub(super) fn record(
        &mut self,
        now: Instant,
        method: u32,
        nanos: u64,
        floor: u64,
        probes_unanswered: bool,
    ) {
        if mutant!(MethodTimeForgotten) {
            return;
        }
        let known = (floor * MOST_FLOORS).max(self.get(now, method));
        let most = if probes_unanswered { MAX_RTO } else { known.min(MAX_RTO) };
        let same = self.times.iter().position(|(of, time)| *of == method && time.get(now) > 0);
        let least = || (0..METHODS).min_by_key(|at| self.times[*at].1.get(now));
        let Some(at) = same.or_else(least) else { return };
        let (at, same) =
            if mutant!(MethodTimeShared) { (0, same.filter(|at| *at == 0)) } else { (at, same) };
        let entry = &mut self.times[at];
        if same.is_none() {
            *entry = (method, RecentMax::NONE);
        }
        entry.1.record(now, nanos.min(most));
    }
}
