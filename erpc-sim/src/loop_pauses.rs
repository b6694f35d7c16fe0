//! Event loops that pause while packets wait for them.

use crate::Random;

/// How often and for how long an endpoint's event loop pauses, as if it had lost its processor or
/// the application took long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopPauses {
    /// A pause follows one turn in this many; at least 1.
    pub one_in: u64,
    /// The longest pause, in ns. The shortest is a quarter of it.
    pub longest_nanos: u64,
}

impl LoopPauses {
    /// The pause after a turn, in ns. Usually 0.
    pub(crate) fn after_turn(self, random: &mut Random) -> u64 {
        if random.below(self.one_in) > 0 {
            return 0;
        }
        random.within(self.longest_nanos / 4, self.longest_nanos)
    }
}
