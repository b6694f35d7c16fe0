//! Random numbers that depend on a seed alone.

use crate::random::{mix, word};

/// SplitMix64. Fast, and good enough for a benchmark's choices.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The sequence that belongs to a row, of a table with this seed.
    #[must_use]
    pub fn of_row(seed: u64, key: u64) -> Self {
        Self(mix(seed ^ mix(key)))
    }

    /// A random number of 64 bits.
    pub fn word(&mut self) -> u64 {
        word(&mut self.0)
    }

    /// A number below `bound`, which is not 0. Its bias is at most `bound` in 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

/// Zipf's distribution: of `n` ranks, rank `i` (from 0) has a probability proportional to
/// 1 / (i + 1)^theta. After Gray et al., *Quickly Generating Billion-Record Synthetic Databases*,
/// SIGMOD'94.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// The distribution over `n` ranks, at least 2, with `theta` from 0 to 1, without 1. Takes O(n)
    /// time.
    #[must_use]
    pub fn new(n: u64, theta: f64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let n = n.max(2);
        let zeta = zeta_of(n);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Self { n, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// A rank, from 0, the most frequent one.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = self.n as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let mut seen = [0u32; 6];
        for _ in 0..6000 {
            seen[random.between(3, 8) as usize - 3] += 1;
            let unit = random.unit();
            assert!((0.0..1.0).contains(&unit));
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
    }

    #[test]
    fn rows_have_sequences_of_their_own() {
        let first = |seed, key| Random::of_row(seed, key).word();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
    }

    #[test]
    fn ranks_have_the_frequencies_of_zipf() {
        let (n, theta, draws) = (1000, 0.99, 200_000);
        let zipf = Zipf::new(n, theta);
        let mut random = Random::new(7);
        let mut counts = vec![0u32; n as usize];
        for _ in 0..draws {
            counts[zipf.rank(&mut random) as usize] += 1;
        }
        let zeta: f64 = (1..=n).map(|i| (i as f64).powf(-theta)).sum();
        let expected = |rank: u64| f64::from(draws) / ((rank + 1) as f64).powf(theta) / zeta;
        // The first two are exact, and the others an approximation that is good in sum.
        for rank in [0, 1] {
            let ratio = f64::from(counts[rank as usize]) / expected(rank);
            assert!((0.97..1.03).contains(&ratio), "rank {rank}: {ratio}");
        }
        for range in [2..10, 10..100, 100..1000] {
            let got: u32 = counts[range.start as usize..range.end as usize].iter().sum();
            let ratio = f64::from(got) / range.clone().map(expected).sum::<f64>();
            assert!((0.85..1.15).contains(&ratio), "ranks {range:?}: {ratio}");
        }
    }
}
