//! Indices of tables. Each table has its own index type, so that indices cannot be mixed up.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use slab::Slab;

use super::WINDOW;
use crate::mutants::mutant;
use crate::wire::{ConnectionId, RequestNumber};

/// An index in the table of the sessions of one role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionIndex(u32);

impl SessionIndex {
    #[inline]
    pub(super) const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index in a packet's connection id. The entry may be free or another session's.
    #[inline]
    pub(super) const fn of(connection: ConnectionId) -> Self {
        Self(connection.index())
    }

    #[inline]
    pub(super) const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for SessionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An index in the client's table of server endpoints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct PeerIndex(u32);

/// An index in the server's table of the sockets that clients send from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct SocketIndex(u32);

/// An index of one of a session's request slots: less than [`WINDOW`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotIndex(u8);

const _: () = assert!(WINDOW == u8::BITS as usize && WINDOW.is_power_of_two());

impl SlotIndex {
    pub(super) const FIRST: Self = Self(0);

    /// The slot of a request.
    #[inline]
    pub(super) fn of(number: RequestNumber) -> Self {
        let window = if mutant!(WrongSlot) { WINDOW - 1 } else { WINDOW };
        Self((number.to_u32() as usize % window) as u8)
    }

    /// The next slot, in circular order.
    #[inline]
    pub(super) const fn next(self) -> Self {
        Self((self.0 + 1) % WINDOW as u8)
    }

    /// All slots, each once, from the first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..WINDOW as u8).map(Self)
    }

    /// All slots, each once, in circular order from this one on.
    pub(super) fn circle(self) -> impl Iterator<Item = Self> {
        (0..WINDOW as u8).map(move |after| Self((self.0 + after) % WINDOW as u8))
    }

    /// The number of the slot's first request, minus [`WINDOW`]. The first request of a slot has
    /// the slot's index as its number.
    pub(super) const fn number_before_first(self) -> RequestNumber {
        RequestNumber::from_u32((self.0 as u32).wrapping_sub(WINDOW as u32))
    }

    #[inline]
    const fn bit(self) -> u8 {
        1 << (self.0 % WINDOW as u8)
    }
}

/// A set of slots, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct SlotSet(u8);

impl SlotSet {
    pub(super) const EMPTY: Self = Self(0);
    pub(super) const ALL: Self = Self(u8::MAX);

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of slots in the set.
    #[inline]
    pub(super) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    #[inline]
    pub(super) const fn contains(self, slot: SlotIndex) -> bool {
        self.0 & slot.bit() != 0
    }

    #[inline]
    pub(super) fn insert(&mut self, slot: SlotIndex) {
        self.0 |= slot.bit();
    }

    #[inline]
    pub(super) fn remove(&mut self, slot: SlotIndex) {
        self.0 &= !slot.bit();
    }

    /// The first slot of the set. The set must not be empty.
    #[inline]
    pub(super) fn first(self) -> SlotIndex {
        debug_assert!(!self.is_empty(), "an empty set has no first slot");
        SlotIndex(self.0.trailing_zeros() as u8 % WINDOW as u8)
    }

    /// The first slot of the set from `slot` on, in circular order. The set must not be empty.
    #[inline]
    pub(super) fn first_from(self, slot: SlotIndex) -> SlotIndex {
        let skipped = Self(self.0.rotate_right(u32::from(slot.0))).first();
        SlotIndex((slot.0 + skipped.0) % WINDOW as u8)
    }

    #[inline]
    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(super) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[inline]
    pub(super) const fn complement(self) -> Self {
        Self(!self.0)
    }

    /// The slots of the set, in order.
    #[inline]
    pub(super) fn iter(self) -> impl Iterator<Item = SlotIndex> {
        let mut left = self;
        std::iter::from_fn(move || {
            let slot = (!left.is_empty()).then(|| left.first())?;
            left.remove(slot);
            Some(slot)
        })
    }
}

/// A session's request slots.
#[derive(Debug)]
pub(super) struct Slots<T>([T; WINDOW]);

impl<T> Slots<T> {
    pub(super) fn from_fn(mut slot: impl FnMut(SlotIndex) -> T) -> Self {
        Self(std::array::from_fn(|at| slot(SlotIndex(at as u8))))
    }

    /// All slots, in order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotIndex, &T)> {
        SlotIndex::all().zip(&self.0)
    }

    #[inline]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SlotIndex, &mut T)> {
        SlotIndex::all().zip(&mut self.0)
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.0.into_iter()
    }
}

impl<T> Index<SlotIndex> for Slots<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, slot: SlotIndex) -> &T {
        &self.0[slot.0 as usize % WINDOW]
    }
}

impl<T> IndexMut<SlotIndex> for Slots<T> {
    #[inline(always)]
    fn index_mut(&mut self, slot: SlotIndex) -> &mut T {
        &mut self.0[slot.0 as usize % WINDOW]
    }
}

/// An index of a [`Table`].
pub(super) trait TableIndex: Copy {
    fn from_place(place: usize) -> Self;
    fn place(self) -> usize;
}

impl TableIndex for SessionIndex {
    fn from_place(place: usize) -> Self {
        Self(place as u32)
    }

    #[inline(always)]
    fn place(self) -> usize {
        self.0 as usize
    }
}

impl TableIndex for PeerIndex {
    fn from_place(place: usize) -> Self {
        Self(place as u32)
    }

    #[inline(always)]
    fn place(self) -> usize {
        self.0 as usize
    }
}

impl TableIndex for SocketIndex {
    fn from_place(place: usize) -> Self {
        Self(place as u32)
    }

    #[inline(always)]
    fn place(self) -> usize {
        self.0 as usize
    }
}

/// A slab with its own index type. Freed indices are reused.
pub(super) struct Table<I, T> {
    entries: Slab<T>,
    index: PhantomData<I>,
}

impl<I: TableIndex, T> Table<I, T> {
    pub(super) fn new() -> Self {
        Self { entries: Slab::new(), index: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    pub(super) fn get(&self, index: I) -> Option<&T> {
        self.entries.get(index.place())
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.entries.get_mut(index.place())
    }

    /// The index of the next entry that is inserted.
    pub(super) fn next_index(&self) -> I {
        I::from_place(self.entries.vacant_key())
    }

    pub(super) fn insert(&mut self, value: T) -> I {
        I::from_place(self.entries.insert(value))
    }

    /// Inserts the value that `value` makes for its index.
    pub(super) fn insert_with(&mut self, value: impl FnOnce(I) -> T) -> (I, &mut T) {
        let entry = self.entries.vacant_entry();
        let index = I::from_place(entry.key());
        (index, entry.insert(value(index)))
    }

    /// Removes an entry; `None` if the index is free.
    pub(super) fn remove(&mut self, index: I) -> Option<T> {
        self.entries.try_remove(index.place())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.entries.iter().map(|(place, value)| (I::from_place(place), value))
    }
}

impl<I: TableIndex, T> Index<I> for Table<I, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: I) -> &T {
        &self.entries[index.place()]
    }
}

impl<I: TableIndex, T> IndexMut<I> for Table<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.entries[index.place()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_in_circular_order() {
        let slots: Vec<_> = SlotIndex::all().collect();
        let mut set = SlotSet::EMPTY;
        set.insert(slots[1]);
        set.insert(slots[6]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [slots[1], slots[6]]);
        assert_eq!(set.first_from(slots[0]), slots[1]);
        assert_eq!(set.first_from(slots[2]), slots[6]);
        assert_eq!(set.first_from(slots[7]), slots[1]);
        assert_eq!(set.union(set.complement()), SlotSet::ALL);
        assert!(set.intersection(set.complement()).is_empty());
        let circle: Vec<_> = slots[6].circle().collect();
        assert_eq!((circle[0], circle[2], circle.len()), (slots[6], slots[0], WINDOW));
        set.remove(slots[1]);
        assert!(!set.contains(slots[1]) && set.contains(slots[6]));
        assert_eq!(slots[7].next(), SlotIndex::FIRST);
    }

    #[test]
    fn the_first_request_in_a_slot_has_the_slots_index_as_its_number() {
        for (at, slot) in SlotIndex::all().enumerate() {
            let first = slot.number_before_first().plus(WINDOW as u32);
            assert_eq!((first.to_u32(), SlotIndex::of(first)), (at as u32, slot));
        }
    }
}
