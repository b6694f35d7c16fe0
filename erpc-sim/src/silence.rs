//! How often an endpoint may try again while nothing comes back.

use erpc_core::protocol::{MAX_RTO, WINDOW};
use erpc_core::time::Instant;

/// Doublings from the shortest timeout of any plan to the longest, and some.
const DOUBLINGS: u64 = 16;

/// The silence that an endpoint has been hearing.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// When it began, and the timeouts that had been counted by then. `None` until something was heard.
    began: Option<(Instant, u64)>,
    /// The most sessions since.
    sessions: u64,
}

impl Silence {
    /// A turn in which `received` packets were received; returns what is wrong. Every timeout doubles the
    /// next one, up to the longest, so that a call times out only so often in a silence; one that executes
    /// is asked after every `probes_every` nanoseconds.
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
