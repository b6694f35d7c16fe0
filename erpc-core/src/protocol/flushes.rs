//! Limits the flushes of the transmit queue that peers can cause.

use crate::time::Instant;

/// Counts the flushes of the transmit queue that packets of peers have caused in a turn.
#[derive(Default)]
pub(super) struct ForcedFlushes {
    turn: Instant,
    count: u8,
}

impl ForcedFlushes {
    /// Maximum number of flushes in a turn.
    const MOST: u8 = 8;

    /// Whether one more flush is allowed in the turn at `now`. Counts it.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        if self.turn != now {
            *self = Self { turn: now, count: 0 };
        }
        self.count += u8::from(self.count <= Self::MOST);
        self.count <= Self::MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_cause_at_most_eight_flushes_per_turn() {
        let mut flushes = ForcedFlushes::default();
        let admitted = |flushes: &mut ForcedFlushes, turn| {
            (0..1_000).filter(|_| flushes.admits(Instant::from_nanos(turn))).count()
        };
        assert_eq!(admitted(&mut flushes, 7), 8);
        assert_eq!(admitted(&mut flushes, 7), 0);
        assert_eq!(admitted(&mut flushes, 8), 8);
    }
}
