//! Numbers of which few are frequent.

use crate::random::{Random, mix};

/// Numbers with Zipf's distribution: rank `k` is chosen with a probability that falls with
/// `k^0.99`, as in YCSB (Gray et al., "Quickly generating billion-record synthetic databases",
/// SIGMOD'94, section 3).
#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    /// Numbers below `count`, which is not 0. Takes about 20 ns per number.
    #[must_use]
    pub fn new(count: u64) -> Self {
        let zeta =
            |count: u64| (1..=count).map(|rank| (rank as f64).powf(-Self::THETA)).sum::<f64>();
        let all = zeta(count);
        let alpha = 1.0 / (1.0 - Self::THETA);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - Self::THETA)) / (1.0 - zeta(2) / all);
        Self { count, zeta: all, alpha, eta }
    }

    /// A rank below the count; 0 is the most frequent.
    pub fn rank(&self, random: &mut Random) -> u64 {
        // From 0 to 1.
        let u = (random.word() >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(Self::THETA) {
            return 1.min(self.count - 1);
        }
        let rank = self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }

    /// A number below the count. Frequent numbers are spread over all.
    pub fn number(&self, random: &mut Random) -> u64 {
        mix(self.rank(random) + 1) % self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ranks_have_the_frequencies_of_zipf() {
        let (zipf, mut random) = (Zipf::new(1000), Random::new(1));
        let mut counts = vec![0_u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.rank(&mut random) as usize] += 1);
        // The sum of the first 1,000 terms is 7.73, so the first rank has 12.9 % of all.
        assert!((12_000..14_000).contains(&counts[0]), "{}", counts[0]);
        assert!((6_000..7_200).contains(&counts[1]), "{}", counts[1]);
        assert!(counts[500..].iter().sum::<u32>() > 5_000, "the tail is chosen too");
    }
}
