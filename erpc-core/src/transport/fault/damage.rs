//! Damage to the bytes of a packet.

use std::num::NonZeroU64;

use super::chance::Stream;
use crate::mutants::mutant;

/// The damage to one copy of a packet: bits flipped, its end cut off, bytes appended, or several of
/// these. Deterministic: equal input bytes give equal output bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage(
    /// Three bits select the kinds of damage, at least one of them is set. The other bits are a
    /// seed.
    NonZeroU64,
);

impl Damage {
    /// Maximum number of bits that are flipped in one copy.
    pub const MAX_FLIPS: u64 = 8;
    /// Maximum number of bytes that are appended to one copy.
    pub const MAX_EXTENSION: u64 = 64;

    const CORRUPT: u64 = 1;
    const TRUNCATE: u64 = 2;
    const EXTEND: u64 = 4;
    const KINDS: u64 = Self::CORRUPT | Self::TRUNCATE | Self::EXTEND;

    /// `None` if no kind is selected.
    #[inline]
    pub(super) fn new(seed: u64, corrupt: bool, truncate: bool, extend: bool) -> Option<Self> {
        let bit = |wanted, kind| if wanted { kind } else { 0 };
        let kinds =
            bit(corrupt, Self::CORRUPT) | bit(truncate, Self::TRUNCATE) | bit(extend, Self::EXTEND);
        if kinds == 0 {
            return None;
        }
        NonZeroU64::new((seed & !Self::KINDS) | kinds).map(Self)
    }

    /// The selected kinds, as bits.
    #[cfg(test)]
    pub(super) fn kinds(self) -> u64 {
        self.0.get() & Self::KINDS
    }

    /// Applies the damage: first cuts, then appends, then flips, so that flipped bits are
    /// delivered.
    ///
    /// Cutting removes at least one byte and up to all. 1 to [`Damage::MAX_EXTENSION`] bytes are
    /// appended, and 1 to [`Damage::MAX_FLIPS`] different bits are flipped. An empty packet can
    /// only be extended.
    pub fn inflict(&self, bytes: &mut Vec<u8>) {
        let kinds = self.0.get();
        let stream = Stream::from_seed(kinds);
        // Indices into the stream. Flips and appended bytes use a range of indices each.
        let [cut_at, extension_len, flips, flip_at, appended] = [0, 1, 2, 16, 1_024];
        if kinds & Self::TRUNCATE != 0 {
            bytes.truncate(stream.below(cut_at, bytes.len() as u64) as usize);
        }
        if kinds & Self::EXTEND != 0 {
            let more = 1 + stream.below(extension_len, Self::MAX_EXTENSION);
            bytes.extend((0..more).map(|at| stream.at(appended + at) as u8));
        }
        if kinds & Self::CORRUPT != 0 {
            let bits = bytes.len() as u64 * 8;
            let wanted = 1 + stream.below(flips, Self::MAX_FLIPS);
            flip(bytes, (0..wanted.min(bits)).map(|flip| stream.below(flip_at + flip, bits)));
        }
    }
}

/// Flips one bit for each number in `drawn`. A bit drawn again is replaced by the next unflipped
/// one.
fn flip(bytes: &mut [u8], drawn: impl Iterator<Item = u64>) {
    let bits = bytes.len() as u64 * 8;
    let mut flipped = [u64::MAX; Damage::MAX_FLIPS as usize];
    for (count, mut bit) in drawn.enumerate() {
        // At most `count` steps, because the packet has more bits than are flipped so far.
        while flipped[..count].contains(&bit) && !mutant!(FlippedBack) {
            bit = (bit + 1) % bits;
        }
        flipped[count] = bit;
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}
