//! What is due next, of things that are due at most once each.

/// Bits of a [`Due`] that are the number of the item.
const ITEM_BITS: u32 = 24;
/// Bits of a [`Due`] that are the sequence number: enough for a trillion packets and hops.
const SEQUENCE_BITS: u32 = 64 - ITEM_BITS;

/// When an item is due: a time, a sequence number to break ties, and the item. Compares as one
/// integer, without a branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Due(u128);

impl Due {
    /// Not at all: later than everything.
    const NOT: Self = Self(u128::MAX);

    #[inline]
    fn new(nanos: u64, sequence: u64, item: u32) -> Self {
        debug_assert!(sequence >> SEQUENCE_BITS == 0);
        Self(u128::from(nanos) << 64 | u128::from(sequence << ITEM_BITS | u64::from(item)))
    }

    #[inline]
    fn nanos(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    fn item(self) -> u32 {
        self.0 as u32 & ((1 << ITEM_BITS) - 1)
    }
}

/// When each of the numbers `0..count` is due, if at all: a tournament. Each match of two is won by
/// the earlier, and who wins the last match is first of all.
///
/// ```text
///   rounds:  - | final | 2 | 2 | 4 | 4 | 4 | 4 | .. | items 0..count
///            0     1     2   3   4 ..                 count..
/// ```
///
/// The players of match `i` are the winners of `2i` and `2i + 1`. Finding the first is O(1). A
/// change repeats the matches on the way to the final, about log2(count) of them, loads from
/// known places and no jumps to mispredict: with an indexed heap of four children per node the
/// whole network took 1.4 to 1.7 times as long.
#[derive(Debug)]
pub(super) struct Tournament {
    rounds: Vec<Due>,
    count: usize,
}

impl Tournament {
    /// Nothing is due of the numbers below `count`.
    ///
    /// # Panics
    /// If `count` is 2^24 or more.
    pub(super) fn new(count: usize) -> Self {
        assert!(count < 1 << ITEM_BITS, "{count} items are too many");
        Self { rounds: vec![Due::NOT; 2 * count.max(1)], count: count.max(1) }
    }

    /// The earliest item, and when it is due, in nanoseconds.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        let first = self.rounds[1];
        (first != Due::NOT).then(|| (first.nanos(), first.item()))
    }

    /// Makes `item` due at `due`, nanoseconds and sequence number, whether or not it was due
    /// before; or not at all.
    #[inline]
    pub(super) fn set(&mut self, item: u32, due: Option<(u64, u64)>) {
        let mut at = self.count + item as usize;
        self.rounds[at] = due.map_or(Due::NOT, |(nanos, sequence)| Due::new(nanos, sequence, item));
        while at > 1 {
            at /= 2;
            let winner = self.rounds[2 * at].min(self.rounds[2 * at + 1]);
            self.rounds[at] = winner;
        }
    }

    /// When `item` is due, in nanoseconds, if it is.
    #[inline]
    pub(super) fn due(&self, item: u32) -> Option<u64> {
        let due = self.rounds[self.count + item as usize];
        (due != Due::NOT).then(|| due.nanos())
    }

    /// Panics if a match was not repeated. O(count).
    pub(super) fn check(&self) {
        for (at, players) in self.rounds.chunks_exact(2).enumerate().skip(1) {
            assert_eq!(self.rounds[at], players[0].min(players[1]), "match {at}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Random;

    /// Against a sorted map, with as many changes and removals as insertions.
    #[test]
    fn keeps_order_through_changes_and_removals() {
        const ITEMS: u64 = 37;
        let mut random = Random::new(1);
        let mut tournament = Tournament::new(ITEMS as usize);
        let mut model: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for sequence in 0..20_000 {
            let item = random.below(ITEMS) as u32;
            let due = random.percent(60).then(|| (random.below(50), sequence));
            tournament.set(item, due);
            match due {
                Some(due) => drop(model.insert(item, due)),
                None => drop(model.remove(&item)),
            }
            tournament.check();
            let first = model.iter().map(|(item, due)| (*due, *item)).min();
            assert_eq!(tournament.first(), first.map(|((nanos, _), item)| (nanos, item)));
            assert_eq!(tournament.due(item), due.map(|(nanos, _)| nanos));
        }
    }

    #[test]
    fn time_counts_before_sequence() {
        let (sequence, item) = ((1 << SEQUENCE_BITS) - 1, (1 << ITEM_BITS) - 1);
        assert!(Due::new(1, sequence, item) < Due::new(2, 0, 0));
        assert!(Due::new(2, 0, item) < Due::new(2, 1, 0));
        let last = Due::new(7, sequence, item);
        assert_eq!((last.nanos(), last.item()), (7, item));
        assert!(Due::new(u64::MAX, sequence, item - 1) < Due::NOT);
    }
}
