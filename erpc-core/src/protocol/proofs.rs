//! Limits the long handshake messages that are in flight to an endpoint.

use crate::time::Instant;

/// Handshake messages that prove a path's size are as long as the largest datagram, and no credit
/// covers them. Hundreds of sessions that open at the same time must not fill the receive queue
/// with them. A session that finds no room here assumes that the path carries the size, until calls
/// stall.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    since: Instant,
    taken: u32,
}

/// Length of a period, in nanoseconds. Messages admitted in one period have arrived by its end.
const PERIOD: u64 = 25_000_000;

/// Proofs may take 1/`PART` of the receive queue.
const PART: u32 = 8;

impl Proofs {
    /// Whether one more message of `units` may be sent to a receive queue of `capacity` units.
    /// Counts the message if so.
    pub(super) fn admits(&mut self, now: Instant, units: u32, capacity: u32) -> bool {
        if now.nanos_since(self.since) >= PERIOD {
            *self = Self { since: now, taken: 0 };
        }
        let is_admitted = self.taken.saturating_add(units) <= capacity / PART;
        if is_admitted {
            self.taken += units;
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_take_at_most_an_eighth_of_the_queue_per_period() {
        let mut proofs = Proofs::default();
        for period in 1..4 {
            let now = Instant::from_nanos(period * PERIOD);
            let admitted = (0..100).filter(|_| proofs.admits(now, 10, 1_000)).count();
            assert_eq!(admitted, 12);
            assert!(proofs.admits(now, 5, 1_000) && !proofs.admits(now, 1, 1_000));
        }
        assert!(!proofs.admits(Instant::from_nanos(9 * PERIOD), u32::MAX, u32::MAX));
    }
}
