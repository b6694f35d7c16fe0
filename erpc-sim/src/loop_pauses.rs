//! Event loops that pause while packets wait for them.

use crate::Random;

/// How often and for how long an endpoint's event loop pauses, because it lost its processor or the application took long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopPauses {
    /// One turn in so many is followed by a pause; at least 1.
    pub one_in: u64,
    /// The longest, in nanoseconds; the shortest is a quarter of it.
    pub longest_nanos: u64,
}

impl LoopPauses {
    /// How long the loop pauses after a turn, in nanoseconds; mostly 0.
    pub(crate) fn after_turn(self, random: &mut Random) -> u64 {
        if random.below(self.one_in) > 0 {
            return 0;
        }
        random.within(self.longest_nanos / 4, self.longest_nanos)
    }
}
