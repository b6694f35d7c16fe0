//! The packet rate of an attacker.

use erpc_core::time::Instant;

/// A constant packet rate from one instant to another.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    next: Instant,
    end: Instant,
    gap_nanos: u64,
}

impl Pace {
    /// `per_second` packets per second, at most 10^9, from `start` for `nanos` ns.
    ///
    /// # Panics
    /// Panics if `per_second` is 0.
    #[must_use]
    pub const fn new(start: Instant, nanos: u64, per_second: u64) -> Self {
        assert!(per_second > 0);
        Self { next: start, end: start.plus_nanos(nanos), gap_nanos: 1_000_000_000 / per_second }
    }

    /// When the next packet is due, `None` after the last.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        (self.next < self.end).then_some(self.next)
    }

    /// Counts one packet. A late attacker does not catch up.
    pub fn step(&mut self, now: Instant) {
        self.next = self.next.max(now).plus_nanos(self.gap_nanos.max(1));
    }
}
