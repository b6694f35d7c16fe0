//! Random numbers for the pauses between attempts.

use std::cell::Cell;

/// The next number below `bound`, which is not 0, of the SplitMix64 with this state.
pub(crate) fn below(state: &Cell<u64>, bound: u64) -> u64 {
    let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    state.set(next);
    let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % bound
}
