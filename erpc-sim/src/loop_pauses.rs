//! Loops that are away while packets wait for them.

use crate::Random;

/// How often and for how long the loop of an endpoint stands still: it has lost its processor, or does something
/// else that takes long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absence {
    /// One turn in so many is followed by an absence; at least 1.
    pub one_in: u64,
    /// The longest, in nanoseconds; the shortest is a quarter of it.
    pub longest_nanos: u64,
}

impl Absence {
    /// How long the loop is away after a turn, in nanoseconds; 0 mostly.
    pub(crate) fn after_turn(self, random: &mut Random) -> u64 {
        if random.below(self.one_in) > 0 {
            return 0;
        }
        random.within(self.longest_nanos / 4, self.longest_nanos)
    }
}
