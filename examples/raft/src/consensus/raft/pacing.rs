//! Election timeouts that a seed determines.
//!
//! The crate `raft` draws them from the thread's random numbers, so that two runs with the same seed
//! would differ. [`Pacing`] computes them from the seed, and sets them after each step.

use super::NodeId;

/// Computes the timeouts of a node.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    seed: u64,
    /// In ticks; the timeouts are below twice that.
    election: usize,
    /// Elections that this node has begun. Two nodes that disturb each other draw anew.
    attempts: u64,
}

impl Pacing {
    pub(super) fn new(seed: u64, node: NodeId, election: usize) -> Self {
        Self { seed: mix(seed ^ mix(node)), election, attempts: 0 }
    }

    /// The node begins an election.
    pub(super) fn campaigns(&mut self) {
        self.attempts += 1;
    }

    /// The timeout in this term, in ticks.
    pub(super) fn timeout(&self, term: u64) -> usize {
        let draw = mix(self.seed ^ mix(term) ^ mix(self.attempts << 32));
        self.election + (draw % self.election as u64) as usize
    }
}

/// A bijection that spreads its bits (the finalizer of SplitMix64, Steele et al., OOPSLA'14).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::Pacing;

    #[test]
    fn timeouts_are_between_once_and_twice_the_election_time_and_differ() {
        let draws = |seed| {
            let mut pacing = Pacing::new(seed, 1, 10);
            let draw = |term| {
                pacing.campaigns();
                pacing.timeout(term)
            };
            (0..100).map(draw).collect::<Vec<_>>()
        };
        assert!(draws(1).iter().all(|ticks| (10..20).contains(ticks)));
        assert!((10..20).all(|ticks| draws(1).contains(&ticks)), "some timeout is never drawn");
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}
