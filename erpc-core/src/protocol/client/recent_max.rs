//! The largest of what was measured lately.

use crate::time::Instant;

/// A measurement counts for one to two windows of so many nanoseconds.
pub(super) const WINDOW: u64 = 1_000_000_000;

/// A maximum over the last one to two windows, in nanoseconds.
///
/// Time ends it rather than the number of answers: many quick answers must not hide the one slow answer in a hundred that
/// a timeout has to wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecentMax {
    /// When the present window began.
    since: Instant,
    current: u64,
    before: u64,
}

impl RecentMax {
    pub(super) const NONE: Self = Self { since: Instant::ZERO, current: 0, before: 0 };

    /// The maximum; 0 if nothing was measured lately.
    pub(super) fn get(&self, now: Instant) -> u64 {
        let age = now.nanos_since(self.since);
        if age < WINDOW {
            self.current.max(self.before)
        } else if age < 2 * WINDOW {
            self.current
        } else {
            0
        }
    }

    /// Takes a measurement in.
    pub(super) fn record(&mut self, now: Instant, nanos: u64) {
        let age = now.nanos_since(self.since);
        if age >= WINDOW {
            let before = if age < 2 * WINDOW { self.current } else { 0 };
            *self = Self { since: now, current: 0, before };
        }
        self.current = self.current.max(nanos);
    }
}
