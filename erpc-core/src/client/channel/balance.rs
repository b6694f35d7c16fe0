//! Choice of the server for the next call.

use std::cell::Cell;

/// How a channel spreads its calls over its servers. Only servers with an open session get calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Balance {
    /// Servers take turns. Each server gets the same number of calls, whatever the calls cost.
    #[default]
    RoundRobin,
    /// The server with the fewest calls and streams of this channel in progress, so that a slow
    /// server gets fewer calls. The channel scans all servers for each call: use it for up to some
    /// dozens of servers.
    LeastOutstanding,
    /// The less loaded one of two servers drawn at random: nearly as even as
    /// [`Balance::LeastOutstanding`], at a cost that does not grow with the number of servers.
    TwoChoices,
}

impl Balance {
    /// Chooses one of `count` servers; `count` is at least 1. `turn` is the index for round robin,
    /// `load` returns the load of a server, `random` returns a random number.
    #[inline]
    pub(crate) fn choose(
        self,
        count: usize,
        turn: usize,
        load: impl Fn(usize) -> u32,
        random: impl FnOnce() -> u64,
    ) -> usize {
        if count == 1 {
            return 0;
        }
        match self {
            Self::RoundRobin => turn,
            // The scan starts at `turn`, so that servers with equal load take turns.
            Self::LeastOutstanding => {
                (turn..count).chain(0..turn).min_by_key(|&index| load(index)).unwrap_or(0)
            }
            Self::TwoChoices => {
                let random = random();
                let first = scaled(random as u32, count);
                // A different server: indices from `first` on move up by one.
                let second = scaled((random >> 32) as u32, count - 1);
                let second = second + usize::from(second >= first);
                if load(second) < load(first) { second } else { first }
            }
        }
    }
}

/// Advances `turn` to the next index below `count`, or back to 0, and returns it. `count` may be
/// less than at the last call.
#[inline]
pub(super) fn next_turn(turn: &Cell<usize>, count: usize) -> usize {
    let next = turn.get() + 1;
    let next = if next < count { next } else { 0 };
    turn.set(next);
    next
}

/// A number below `count` from 32 random bits.
fn scaled(random: u32, count: usize) -> usize {
    ((u64::from(random) * count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A seeded xorshift generator.
    fn xorshift(seed: u64) -> impl Fn() -> u64 {
        let state = Cell::new(seed | 1);
        move || {
            let mut x = state.get();
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            state.set(x);
            x.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }
    }

    fn balances() -> impl Strategy<Value = Balance> {
        prop::sample::select(vec![
            Balance::RoundRobin,
            Balance::LeastOutstanding,
            Balance::TwoChoices,
        ])
    }

    proptest! {
        #[test]
        fn calls_that_do_not_end_are_spread_evenly(
            balance in balances(),
            servers in 1..40usize,
            calls in 0..2_000usize,
            seed in any::<u64>(),
        ) {
            let (mut loads, random) = (vec![0u32; servers], xorshift(seed));
            for turn in 0..calls {
                let chosen = balance.choose(servers, turn % servers, |index| loads[index], &random);
                loads[chosen] += 1;
            }
            let (least, most) = (loads.iter().min(), loads.iter().max());
            let spread = most.unwrap_or(&0) - least.unwrap_or(&0);
            // With two choices the spread is random, but practically never above 12.
            let allowed = if balance == Balance::TwoChoices { 12 } else { 1 };
            prop_assert!(spread <= allowed, "{:?}", loads);
        }

        #[test]
        fn a_slow_server_gets_fewer_calls(
            balance in prop::sample::select(vec![Balance::LeastOutstanding, Balance::TwoChoices]),
            servers in 3..20usize,
            seed in any::<u64>(),
        ) {
            let (mut loads, mut got) = (vec![0u32; servers], vec![0u32; servers]);
            let random = xorshift(seed);
            for turn in 0..4_000 {
                let chosen = balance.choose(servers, turn % servers, |index| loads[index], &random);
                loads[chosen] += 1;
                got[chosen] += 1;
                // All servers but server 0 answer immediately.
                loads[1..].fill(0);
            }
            prop_assert!(got[0] <= 2, "{:?}", got);
        }
    }
}
