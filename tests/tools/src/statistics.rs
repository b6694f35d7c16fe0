//! Statistics of measurements: quantiles and fairness.

/// Measured durations, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    nanos: Vec<u64>,
    sorted: bool,
}

impl Samples {
    /// Adds a sample of `nanos` nanoseconds.
    pub fn add(&mut self, nanos: u64) {
        self.nanos.push(nanos);
        self.sorted = false;
    }

    /// Removes all samples.
    pub fn clear(&mut self) {
        self.nanos.clear();
    }

    /// Adds all samples of `others`.
    pub fn append(&mut self, others: &Self) {
        self.nanos.extend_from_slice(&others.nanos);
        self.sorted = false;
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nanos.len()
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nanos.is_empty()
    }

    /// The sample at the [`quantile`] `fraction`, in microseconds; `None` without samples.
    pub fn micros(&mut self, fraction: f64) -> Option<f64> {
        if !self.sorted {
            self.nanos.sort_unstable();
            self.sorted = true;
        }
        quantile(&self.nanos, fraction).map(|nanos| nanos as f64 / 1e3)
    }
}

/// The smallest of the `sorted` values that is at least as large as `fraction` of them (nearest
/// rank). `None` without values.
#[must_use]
pub fn quantile<V: Copy>(sorted: &[V], fraction: f64) -> Option<V> {
    let rank = (sorted.len() as f64 * fraction).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 if all shares are equal, `1 / n` if one of
/// `n` has everything, 0 if all shares are 0.
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_samples_at_their_ranks() {
        let mut samples = Samples::default();
        assert_eq!(samples.micros(0.5), None);
        (1..=1_000).rev().for_each(|at| samples.add(at * 1_000));
        let all = [0.0, 0.5, 0.99, 0.9999, 1.0].map(|quantile| samples.micros(quantile));
        assert_eq!(all, [1.0, 500.0, 990.0, 1_000.0, 1_000.0].map(Some));
    }

    #[test]
    fn fairness_is_1_for_equal_shares_and_1_of_n_for_one_share() {
        assert_eq!(jain(&[3.0; 7]), 1.0);
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0; 3]), 0.0);
    }
}
