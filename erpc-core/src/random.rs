//! Random numbers: evenly distributed ones, and secret ones.

/// Mixes a number so that each bit of the result depends on all bits of `x`: the finalizer of
/// SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
#[inline]
pub(crate) const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The generator SplitMix64: it increments a counter and mixes its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitMix64 {
    counter: u64,
}

impl SplitMix64 {
    /// Increment of the counter (Steele, Lea, Flood 2014).
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// A generator that is determined by `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { counter: seed }
    }

    /// The number at index `place`, from 0, of the sequence of `seed`.
    #[inline]
    pub(crate) const fn at(seed: u64, place: u64) -> u64 {
        mix(seed.wrapping_add(Self::STEP.wrapping_mul(place.wrapping_add(1))))
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(Self::STEP);
        mix(self.counter)
    }
}

/// A random key from the operating system.
pub(crate) fn random_key() -> (u64, u64) {
    let word = || getrandom::u64().expect("the operating system must provide random numbers");
    (word(), word())
}

/// A random secret from the operating system, which authenticates the cookies of one listening
/// address.
pub(crate) fn secret() -> [u8; 16] {
    let (a, b) = random_key();
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&a.to_ne_bytes());
    secret[8..].copy_from_slice(&b.to_ne_bytes());
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_matches_the_reference_implementation() {
        let mut random = SplitMix64::new(1_234_567);
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.next(), random.next(), random.next()], expected);
        assert_eq!([0, 1, 2].map(|place| SplitMix64::at(1_234_567, place)), expected);
    }
}
