//! Reproducible random numbers.
//!
//! All tests and tools use this generator. `erpc-core` has its own, private SplitMix64, because a
//! published crate cannot depend on this one.

/// A stream of random numbers (SplitMix64: Steele, Lea, Flood 2014). A seed has the same stream on
/// every machine and with every version of every library.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A separate stream for one purpose. So the numbers drawn by one part of a run do not change
    /// those of another part.
    #[must_use]
    pub fn fork(&self, purpose: u64) -> Self {
        let mut mixed = Self(self.0 ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Self(mixed.word())
    }

    /// 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// One of `0..bound`; 0 if `bound` is 0. Uses Lemire's multiplication; the bias is below 2^-32
    /// for the bounds of a simulation.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// One of `low..=high`.
    ///
    /// # Panics
    /// In debug builds, if `low` is above `high`.
    #[inline]
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// Draws one of `bounds`, then one of `0..bound`. Each element of `bounds` is a weight and a
    /// bound; its probability is proportional to its weight.
    ///
    /// # Panics
    /// If `bounds` is empty, or all weights are 0.
    pub fn below_one_of(&mut self, bounds: &[(u64, u64)]) -> u64 {
        let mut drawn = self.below(bounds.iter().map(|(weight, _)| weight).sum());
        let bound = bounds.iter().find(|(weight, _)| {
            let is_it = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_it
        });
        self.below(bound.expect("a weight is above 0").1)
    }

    /// True with a probability of `percent` %.
    #[inline]
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// The finalizer of SplitMix64: each bit of the input changes about half of the output's bits.
#[must_use]
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = Random::new(0);
        let words = [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F];
        assert_eq!(words, [(); 3].map(|()| random.word()));
    }

    #[test]
    fn bounds_are_drawn_by_their_weights() {
        let mut random = Random::new(1);
        let drawn = [(); 10_000].map(|()| random.below_one_of(&[(1, 1), (3, 10), (0, 1 << 40)]));
        assert!(drawn.iter().all(|number| *number < 10));
        let zeros = drawn.iter().filter(|number| **number == 0).count();
        // The bound 1 gives 0 in a quarter of the draws, the bound 10 in a tenth of the rest.
        assert!((3_000..3_500).contains(&zeros), "{zeros}");
    }
}
