//! How often peers may make this endpoint wait for its transmit queue.

use crate::time::Instant;

/// Flushes of the transmit queue that packets of peers have caused in a turn.
#[derive(Default)]
pub(super) struct ForcedFlushes {
    turn: Instant,
    count: u8,
}

impl ForcedFlushes {
    /// Most flushes in a turn.
    const MOST: u8 = 8;

    /// Whether one more is admitted in the turn at `now`.
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
    fn peers_cause_a_few_flushes_per_turn() {
        let mut flushes = ForcedFlushes::default();
        let admitted = |flushes: &mut ForcedFlushes, turn| {
            (0..1_000).filter(|_| flushes.admits(Instant::from_nanos(turn))).count()
        };
        assert_eq!(admitted(&mut flushes, 7), 8);
        assert_eq!(admitted(&mut flushes, 7), 0);
        assert_eq!(admitted(&mut flushes, 8), 8);
    }
}
