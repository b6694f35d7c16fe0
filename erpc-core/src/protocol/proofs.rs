//! How many long handshake messages may be on their way to an endpoint.

use crate::time::Instant;

/// Handshake messages that prove a path's size are as long as a datagram, and no credit covers them. Hundreds of sessions that
/// open at once must not fill the receive queue with them. Those that find no room take the size for carried, until calls stall.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    since: Instant,
    taken: u32,
}

/// After so many nanoseconds, what was admitted has come.
const PERIOD: u64 = 25_000_000;

/// The part of the receive queue that may be taken: one in so many.
const PART: u32 = 8;

impl Proofs {
    /// Whether one more message may come, which takes so many units of a receive queue that holds `capacity`.
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
    fn an_eighth_of_the_queue_is_for_proofs_in_each_period() {
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
