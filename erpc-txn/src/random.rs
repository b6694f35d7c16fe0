//! Random numbers of the store itself: where keys are, and how long attempts pause.

#[cfg(not(loom))]
use std::cell::Cell;

/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA'14): each bit of the input changes about half
/// of the output's bits.
pub(crate) fn mix(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// The next 64 bits of the SplitMix64 with this state.
#[cfg(not(loom))]
pub(crate) fn word(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// The next number below `bound`, which is not 0.
#[cfg(not(loom))]
pub(crate) fn below(state: &Cell<u64>, bound: u64) -> u64 {
    let mut next = state.get();
    let number = word(&mut next) % bound;
    state.set(next);
    number
}
