//! Indices of tables. Each table has its own index type, so that indices cannot be mixed up.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use super::config::SlotCount;
use super::{DEFAULT_SLOTS, MAX_SLOTS};
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

const _: () = assert!(MAX_SLOTS == u64::BITS as usize);

impl SlotCount {
    /// All slots.
    #[inline(always)]
    pub(super) const fn all(self) -> SlotSet {
        SlotSet(u64::MAX >> (u64::BITS - self.step()))
    }

    /// The number of the first request of a slot, minus [`Self::step`]. The first request of a slot
    /// has the slot's index as its number.
    pub(super) const fn number_before_first(self, slot: SlotIndex) -> RequestNumber {
        RequestNumber::from_u32(slot.0.wrapping_sub(self.step()))
    }
}

/// An index of one of a session's request slots: less than the session's [`SlotCount`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotIndex(u32);

impl SlotIndex {
    pub(super) const FIRST: Self = Self(0);

    /// The place after this slot, at which a search for the next slot begins
    /// ([`SlotSet::first_from`]). The session may have no slot with this index.
    #[inline]
    pub(super) const fn next(self) -> Self {
        Self((self.0 + 1) % MAX_SLOTS as u32)
    }

    #[inline(always)]
    fn bit(self) -> u64 {
        let bits = if mutant!(SlotBitWraps) { u32::BITS } else { u64::BITS };
        1 << (self.0 % bits)
    }
}

/// A set of slots, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct SlotSet(u64);

impl SlotSet {
    pub(super) const EMPTY: Self = Self(0);

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
    pub(super) fn contains(self, slot: SlotIndex) -> bool {
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
        SlotIndex(self.0.trailing_zeros())
    }

    /// The first slot of the set from `slot` on, in circular order. The set must not be empty.
    #[inline]
    pub(super) fn first_from(self, slot: SlotIndex) -> SlotIndex {
        let skipped = Self(self.0.rotate_right(slot.0)).first();
        SlotIndex((slot.0 + skipped.0) % MAX_SLOTS as u32)
    }

    #[inline]
    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(super) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The slots of this set that are not in `other`.
    #[inline]
    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The slots of the set, in order.
    #[inline]
    pub(super) fn iter(self) -> impl Iterator<Item = SlotIndex> {
        let mut left = self;
        std::iter::from_fn(move || {
            let slot = (!left.is_empty()).then(|| left.first())?;
            left.0 &= left.0 - 1;
            Some(slot)
        })
    }
}

/// A session's request slots. The first ones lie in the session itself, so that a packet of a
/// session with the default number of slots finds its slot without another access to memory.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Slots<T> {
    /// All of these are used if the session has at least the default number of slots.
    first: [T; DEFAULT_SLOTS],
    rest: Box<[T]>,
    /// The number of slots, minus 1: the bits of a request number that name its slot.
    mask: u32,
}

impl<T> Slots<T> {
    pub(super) fn new(count: SlotCount, mut slot: impl FnMut(SlotIndex) -> T) -> Self {
        Self {
            first: std::array::from_fn(|at| slot(SlotIndex(at as u32))),
            rest: (DEFAULT_SLOTS as u32..count.step()).map(|at| slot(SlotIndex(at))).collect(),
            mask: count.step() - 1,
        }
    }

    #[inline(always)]
    pub(super) fn count(&self) -> SlotCount {
        SlotCount::of_mask(self.mask)
    }

    /// The slot of a request.
    #[inline(always)]
    pub(super) fn of(&self, number: RequestNumber) -> SlotIndex {
        if mutant!(WrongSlot) {
            return SlotIndex(number.to_u32() % self.mask.max(1));
        }
        SlotIndex(number.to_u32() & self.mask)
    }

    /// The difference between the numbers of two successive requests of a slot.
    #[inline(always)]
    pub(super) fn step(&self) -> u32 {
        if mutant!(NumbersStepByEight) { 8 } else { self.mask + 1 }
    }

    /// All slots, in order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotIndex, &T)> {
        self.count().all().iter().zip(self.first.iter().chain(&self.rest))
    }

    #[inline]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SlotIndex, &mut T)> {
        self.count().all().iter().zip(self.first.iter_mut().chain(&mut self.rest))
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        let count = self.count().get();
        self.first.into_iter().chain(self.rest).take(count)
    }
}

impl<T> Index<SlotIndex> for Slots<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, slot: SlotIndex) -> &T {
        match self.first.get(slot.0 as usize) {
            Some(found) => found,
            None => &self.rest[slot.0 as usize - DEFAULT_SLOTS],
        }
    }
}

impl<T> IndexMut<SlotIndex> for Slots<T> {
    #[inline(always)]
    fn index_mut(&mut self, slot: SlotIndex) -> &mut T {
        match self.first.get_mut(slot.0 as usize) {
            Some(found) => found,
            None => &mut self.rest[slot.0 as usize - DEFAULT_SLOTS],
        }
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

/// Entries of a chunk of a [`Table`].
const CHUNK: usize = 16;

/// Values by index. Freed indices are reused, the last one first.
///
/// The entries lie in chunks, which never move. A vector would move all entries while it grows, for
/// milliseconds if there are tens of thousands of sessions, and half of it could be unused.
pub(super) struct Table<I, T> {
    chunks: Vec<Box<[Entry<T>; CHUNK]>>,
    used: usize,
    /// The free index that is used next. If all are in use, the first index of the next chunk.
    next: usize,
    index: PhantomData<I>,
}

enum Entry<T> {
    /// A free entry, and the index that is used after it.
    Free(usize),
    Used(T),
}

impl<T> Entry<T> {
    #[inline(always)]
    fn value(&self) -> Option<&T> {
        match self {
            Self::Used(value) => Some(value),
            Self::Free(_) => None,
        }
    }
}

impl<I: TableIndex, T> Table<I, T> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), used: 0, next: 0, index: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    #[inline(always)]
    pub(super) fn get(&self, index: I) -> Option<&T> {
        let place = index.place();
        self.chunks.get(place / CHUNK)?[place % CHUNK].value()
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        let place = index.place();
        match &mut self.chunks.get_mut(place / CHUNK)?[place % CHUNK] {
            Entry::Used(value) => Some(value),
            Entry::Free(_) => None,
        }
    }

    /// The index of the next entry that is inserted.
    pub(super) fn next_index(&self) -> I {
        I::from_place(self.next)
    }

    pub(super) fn insert(&mut self, value: T) -> I {
        self.insert_with(|_| value).0
    }

    /// Inserts the value that `value` makes for its index.
    pub(super) fn insert_with(&mut self, value: impl FnOnce(I) -> T) -> (I, &mut T) {
        let place = self.next;
        if place == self.chunks.len() * CHUNK {
            let free = |at| Entry::Free(place + at + 1);
            self.chunks.push(Box::new(std::array::from_fn(free)));
        }
        let entry = &mut self.chunks[place / CHUNK][place % CHUNK];
        let index = I::from_place(place);
        let value = Entry::Used(value(index));
        if let Entry::Free(next) = std::mem::replace(entry, value) {
            self.next = next;
        }
        self.used += 1;
        match entry {
            Entry::Used(value) => (index, value),
            Entry::Free(_) => unreachable!("the value was just inserted"),
        }
    }

    /// Removes an entry; `None` if the index is free.
    pub(super) fn remove(&mut self, index: I) -> Option<T> {
        let place = index.place();
        let entry = self.chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)?;
        entry.value()?;
        match std::mem::replace(entry, Entry::Free(self.next)) {
            Entry::Used(value) => {
                self.used -= 1;
                self.next = place;
                Some(value)
            }
            Entry::Free(_) => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let entries = self.chunks.iter().flat_map(|chunk| chunk.iter()).enumerate();
        entries.filter_map(|(place, entry)| Some((I::from_place(place), entry.value()?)))
    }
}

impl<I: TableIndex, T> Index<I> for Table<I, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: I) -> &T {
        self.get(index).expect("the index is in use")
    }
}

impl<I: TableIndex, T> IndexMut<I> for Table<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, index: I) -> &mut T {
        self.get_mut(index).expect("the index is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of slots that a session may have.
    fn counts() -> Vec<SlotCount> {
        (0..=u8::MAX).filter_map(SlotCount::new).collect()
    }

    #[test]
    fn a_table_reuses_the_index_that_was_freed_last() {
        let mut table = Table::<SessionIndex, u32>::new();
        let at = SessionIndex::new;
        for number in 0..40 {
            assert_eq!(table.next_index(), at(number));
            assert_eq!(table.insert(number), at(number));
        }
        assert_eq!((table.remove(at(3)), table.remove(at(20))), (Some(3), Some(20)));
        assert_eq!(
            (table.remove(at(3)), table.remove(at(40)), table.remove(at(900))),
            (None, None, None)
        );
        assert_eq!(
            (table.get(at(3)), table.get(at(4)), table.get(at(900))),
            (None, Some(&4), None)
        );
        assert_eq!(table.get_mut(at(20)), None);
        assert_eq!(table.get_mut(at(21)), Some(&mut 21));
        let kept: Vec<_> = table.iter().map(|(index, number)| (index.get(), *number)).collect();
        let expected = (0..40).filter(|number| ![3, 20].contains(number));
        assert_eq!(kept, expected.map(|number| (number, number)).collect::<Vec<_>>());
        assert_eq!(table.insert_with(|index| index.get() * 10), (at(20), &mut 200));
        assert_eq!([table.insert(30), table.insert(400)], [at(3), at(40)]);
        assert_eq!((table[at(3)], table[at(40)], table.len()), (30, 400, 41));
    }

    #[test]
    fn entries_do_not_move_while_a_table_grows() {
        let mut table = Table::<SessionIndex, u32>::new();
        let first = table.insert(0);
        let address = std::ptr::from_ref(&table[first]);
        (1..10_000).for_each(|number| assert_eq!(table.insert(number).get(), number));
        assert_eq!(std::ptr::from_ref(&table[first]), address);
    }

    #[test]
    fn a_session_has_a_power_of_two_of_slots_up_to_64() {
        let counts: Vec<_> = counts().into_iter().map(SlotCount::get).collect();
        assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(SlotCount::new(SlotCount::DEFAULT.to_u8()), Some(SlotCount::DEFAULT));
    }

    #[test]
    fn slots_are_found_in_circular_order() {
        let count = SlotCount::new(64).expect("a power of two");
        let slots: Vec<_> = count.all().iter().collect();
        let mut set = SlotSet::EMPTY;
        set.insert(slots[1]);
        set.insert(slots[40]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [slots[1], slots[40]]);
        assert_eq!(set.first_from(slots[0]), slots[1]);
        assert_eq!(set.first_from(slots[2]), slots[40]);
        assert_eq!(set.first_from(slots[63]), slots[1]);
        let others = count.all().without(set);
        assert_eq!((set.union(others), others.len()), (count.all(), 62));
        assert!(set.intersection(others).is_empty());
        set.remove(slots[1]);
        assert!(!set.contains(slots[1]) && set.contains(slots[40]));
        assert_eq!(slots[63].next(), SlotIndex::FIRST);
    }

    #[test]
    fn a_set_distinguishes_all_slots_of_a_session() {
        for count in counts() {
            let mut set = SlotSet::EMPTY;
            for (at, slot) in count.all().iter().enumerate() {
                assert!(!set.contains(slot) && set.len() == at, "{count:?}, {slot:?}");
                set.insert(slot);
            }
            assert_eq!((set, set.len()), (count.all(), count.get()));
            // The search goes on after the last slot with the first one.
            let last = count.all().iter().last().expect("a slot");
            assert_eq!(set.first_from(last.next()), SlotIndex::FIRST);
        }
    }

    #[test]
    fn the_first_request_in_a_slot_has_the_slots_index_as_its_number() {
        for count in counts() {
            let slots = Slots::new(count, |_| ());
            for (at, slot) in count.all().iter().enumerate() {
                let first = count.number_before_first(slot).plus(count.step());
                assert_eq!((first.to_u32(), slots.of(first)), (at as u32, slot), "{count:?}");
                assert_eq!(slots.of(first.plus(slots.step())), slot);
            }
        }
    }

    #[test]
    fn a_sessions_slots_are_found_by_request_number_and_in_order() {
        for count in counts() {
            let mut slots = Slots::new(count, |slot| slot.0);
            assert_eq!(slots.count(), count);
            for number in 0..200 {
                let at = slots.of(RequestNumber::from_u32(number));
                assert_eq!(slots[at], number % count.step());
            }
            slots.iter_mut().for_each(|(at, slot)| *slot += at.0);
            assert!(slots.iter().all(|(at, slot)| *slot == 2 * at.0));
            let values: Vec<u32> = slots.into_values().collect();
            assert_eq!(values, (0..count.step()).map(|at| 2 * at).collect::<Vec<u32>>());
        }
    }
}
