//! The order of a border node's entries, in one word.

use super::WIDTH;

const _: () = assert!(WIDTH <= 15, "a slot's number and the count have 4 bits each");

/// Which slots of a node are in use, in the order of their keys.
///
/// One atomic store of this word inserts or removes an entry. Bits 0 to 3 count the entries. The
/// following groups of 4 bits hold the numbers of all slots: those in use in the order of their
/// keys, then the free ones.
///
/// ```text
///  63   60         8 7  4 3     0
/// | slot | ...  | slot | count |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permutation(pub(crate) u64);

impl Permutation {
    const COUNT: u64 = 0xf;
    const BITS: u32 = 4;
    /// The lowest bit of each group but the count's.
    const ONES: u64 = 0x0111_1111_1111_1111;

    /// No entries; slot 0 is the first to be taken.
    pub(crate) const EMPTY: Self = Self::first(0);

    /// `count` entries, in the slots 0, 1, ...
    pub(crate) const fn first(count: usize) -> Self {
        let (mut word, mut slot) = (count as u64, 0);
        while slot < WIDTH {
            word |= (slot as u64) << (4 * (slot + 1));
            slot += 1;
        }
        Self(word)
    }

    #[inline]
    pub(crate) fn count(self) -> usize {
        (self.0 & Self::COUNT) as usize
    }

    #[inline]
    pub(crate) fn is_full(self) -> bool {
        self.count() == WIDTH
    }

    /// The slot at this position.
    #[inline]
    pub(crate) fn slot(self, position: usize) -> usize {
        (self.0 >> (Self::BITS as usize * (position + 1)) & 0xf) as usize
    }

    /// The slots in use, in order.
    #[inline]
    pub(crate) fn slots(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.count()).map(move |position| self.slot(position))
    }

    /// Whether the slot is in use.
    #[inline]
    pub(crate) fn contains(self, slot: usize) -> bool {
        // Finds the group that is zero after the exclusive or. Borrows of the subtraction only
        // affect groups above the first such one, so the lowest bit that is set is right.
        let differences = (self.0 >> Self::BITS) ^ (Self::ONES * slot as u64);
        let zeros = differences.wrapping_sub(Self::ONES) & !differences & (Self::ONES << 3);
        (zeros.trailing_zeros() / Self::BITS) < self.count() as u32
    }

    /// Takes the first free slot for an entry at this position. Returns the slot.
    ///
    /// # Panics
    ///
    /// Debug builds panic if no slot is free.
    #[inline]
    pub(crate) fn insert(self, position: usize) -> (Self, usize) {
        debug_assert!(!self.is_full() && position <= self.count());
        let slot = self.slot(self.count());
        let low = Self::BITS * (position as u32 + 1);
        let end = Self::BITS * (self.count() as u32 + 1);
        // The groups from `low` to `end` move up by one, over the slot that is taken.
        let moved = self.0 & Self::mask(low, end);
        let kept = self.0 & !Self::mask(low, end + Self::BITS);
        (Self((kept | moved << Self::BITS | (slot as u64) << low) + 1), slot)
    }

    /// Frees the slot at this position. It becomes the first free one.
    #[inline]
    pub(crate) fn remove(self, position: usize) -> Self {
        debug_assert!(position < self.count());
        let low = Self::BITS * (position as u32 + 1);
        let end = Self::BITS * (self.count() as u32 + 1);
        let moved = self.0 & Self::mask(low + Self::BITS, end);
        let kept = self.0 & !Self::mask(low, end);
        let slot = self.slot(position) as u64;
        Self((kept | moved >> Self::BITS | slot << (end - Self::BITS)) - 1)
    }

    /// Keeps the first `count` entries.
    pub(crate) fn truncate(self, count: usize) -> Self {
        debug_assert!(count <= self.count());
        Self(self.0 & !Self::COUNT | count as u64)
    }

    /// The bits from `low` on that are below `end`, at most 64.
    #[inline]
    fn mask(low: u32, end: u32) -> u64 {
        let below = |end: u32| 1_u64.checked_shl(end).map_or(u64::MAX, |bit| bit - 1);
        below(end) & !below(low)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_is_a_list_of_slots() {
        let (mut permutation, mut list) = (Permutation::EMPTY, Vec::new());
        let mut random = 1_u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (grow, place) = (random >> 40 & 1 == 0, (random >> 50) as usize);
            if grow && !permutation.is_full() || list.is_empty() {
                let position = place % (list.len() + 1);
                let slot;
                (permutation, slot) = permutation.insert(position);
                list.insert(position, slot);
            } else {
                let position = place % list.len();
                permutation = permutation.remove(position);
                list.remove(position);
            }
            assert_eq!(permutation.slots().collect::<Vec<_>>(), list);
            for slot in 0..WIDTH {
                assert_eq!(permutation.contains(slot), list.contains(&slot), "{permutation:x?}");
            }
            let mut all: Vec<_> = (0..WIDTH).map(|at| permutation.slot(at)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..WIDTH).collect::<Vec<_>>(), "each slot is listed once");
        }
    }
}
