//! The maximum of recent measurements.

use crate::time::Instant;

/// Length of a window, in ns. A measurement counts for one to two windows.
pub(super) const WINDOW: u64 = 1_000_000_000;

/// A maximum over the last one to two windows, in ns.
///
/// Measurements expire by time, not by number: many quick answers must not hide the one slow answer
/// in a hundred for which a timeout has to allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecentMax {
    /// When the current window began.
    since: Instant,
    current: u64,
    before: u64,
}

impl RecentMax {
    pub(super) const NONE: Self = Self { since: Instant::ZERO, current: 0, before: 0 };

    /// The maximum in ns; 0 if nothing was measured recently.
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

    /// Records a measurement.
    pub(super) fn record(&mut self, now: Instant, nanos: u64) {
        let age = now.nanos_since(self.since);
        if age >= WINDOW {
            let before = if age < 2 * WINDOW { self.current } else { 0 };
            *self = Self { since: now, current: 0, before };
        }
        self.current = self.current.max(nanos);
    }
}
