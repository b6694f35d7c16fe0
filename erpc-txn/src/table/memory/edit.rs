//! Changes to a bucket.
#![expect(unsafe_code, reason = "Taking over the references that slots own.")]

use super::arena::Block;
use super::cell::{Shared, Word};
use super::exclusive::Exclusive;
use super::{Links, SHARED, window};
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::sync::atomic::fence;
use crate::table::errors::Full;
use crate::table::head::{ALL_SLOTS, Head, Slots};
use crate::table::ids::Version;

/// A new value.
pub(in crate::table) enum Payload<'a> {
    /// At most as many bytes as a slot has.
    Inline(&'a [u8]),
    /// A cell that was made before the lock was taken, because copying a large value takes long.
    Shared(Shared),
}

/// The changes of one commit to one bucket. Readers see all or none.
///
/// Free slots are only in the last block of a chain, and the last block of a chain is never empty,
/// except a bucket's own block.
#[must_use = "the bucket stays blocked"]
pub(in crate::table) struct Edit<'t> {
    exclusive: Exclusive<'t>,
    /// The slots of the bucket's own block, to be published in the head.
    slots: Slots,
    /// Cells that no slot has any more. Readers may still come to them by the old state.
    retired: Vec<Shared>,
    /// The first of the blocks that are no longer in the chain; they are linked.
    unlinked: u32,
}

/// A slot of a block.
#[derive(Clone, Copy)]
struct Place<'t> {
    block: Block<'t>,
    slot: usize,
}

impl<'t> Edit<'t> {
    #[inline]
    pub(in crate::table) fn new(exclusive: Exclusive<'t>) -> Self {
        let slots = exclusive.head().slots();
        // Orders the lock bit before all changes: a reader that sees a change also sees the lock bit
        // when it looks at the head again.
        fence(Release);
        Self { exclusive, slots, retired: Vec::new(), unlinked: 0 }
    }

    #[inline]
    fn main(&self) -> Block<'t> {
        self.exclusive.main()
    }

    /// The words of a slot's value.
    #[inline]
    fn words(&self, place: Place<'t>) -> &'t [Word] {
        place.block.slot(place.slot, self.exclusive.memory().words)
    }

    /// The bucket's own block, whose slots are in the head.
    #[inline]
    fn is_main(&self, block: Block<'_>) -> bool {
        std::ptr::eq(block.front, self.main().front)
    }

    #[inline]
    fn slots(&self, block: Block<'_>) -> Slots {
        if self.is_main(block) { self.slots } else { block.head().slots() }
    }

    #[inline]
    fn set_slots(&mut self, block: Block<'_>, slots: Slots) {
        if self.is_main(block) {
            self.slots = slots;
        } else {
            block.front.head.store(Head::unlocked(Version::ZERO, slots).bits(), Relaxed);
        }
    }

    /// The length of a slot's value if it is inline, or `SHARED`.
    #[inline]
    fn len(&self, place: Place<'t>) -> u8 {
        place.block.len(self.slots(place.block), place.slot, self.exclusive.memory().inline)
    }

    /// Marks a slot as used by a value of this length.
    #[inline]
    fn set_len(&mut self, place: Place<'t>, len: u8) {
        let full = usize::from(len) == self.exclusive.memory().inline;
        let slots = self.slots(place.block).with(place.slot, full);
        self.set_slots(place.block, slots);
        if !full {
            let lens = place.block.lens().with(place.slot, len);
            place.block.front.lens.store(lens.bits(), Relaxed);
        }
    }

    /// The blocks after the bucket's own.
    #[inline]
    fn overflow(&self) -> impl Iterator<Item = (u32, Block<'t>)> + use<'t> {
        self.exclusive.memory().overflow_of(self.main(), self.slots.occupied)
    }

    fn find(&self, key: u64) -> Option<Place<'t>> {
        let main = self.main();
        match main.find(self.slots.occupied, key) {
            Some(slot) => Some(Place { block: main, slot }),
            None => self.find_in_overflow(key),
        }
    }

    fn find_in_overflow(&self, key: u64) -> Option<Place<'t>> {
        self.overflow().find_map(|(_, block)| {
            let slot = block.find(block.head().occupancy(), key)?;
            Some(Place { block, slot })
        })
    }

    /// Sets the value of a key. Cannot fail if the key is in the bucket, or if there are no more
    /// inserts than `Exclusive::make_room_for` made room for. If it fails, nothing has changed.
    ///
    /// # Panics
    ///
    /// If an inline value has more bytes than a slot.
    #[inline]
    pub(in crate::table) fn put(&mut self, key: u64, payload: Payload<'_>) -> Result<(), Full> {
        // The common case is kept apart, so that its place stays in registers.
        if let Some(slot) = self.main().find(self.slots.occupied, key) {
            self.overwrite(Place { block: self.main(), slot }, payload);
            return Ok(());
        }
        self.put_elsewhere(key, payload)
    }

    #[inline(never)]
    fn put_elsewhere(&mut self, key: u64, payload: Payload<'_>) -> Result<(), Full> {
        match self.find_in_overflow(key) {
            Some(place) => self.overwrite(place, payload),
            None => {
                let place = self.free_slot(key)?;
                let len = self.store(place, payload);
                self.set_len(place, len);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn overwrite(&mut self, place: Place<'t>, payload: Payload<'_>) {
        if self.len(place) == SHARED {
            self.retire(place);
        }
        let len = self.store(place, payload);
        self.set_len(place, len);
    }

    /// Gives up after a `put` that failed. Nothing has changed.
    pub(in crate::table) fn give_up(self) -> Exclusive<'t> {
        debug_assert!(self.retired.is_empty() && self.unlinked == 0);
        self.exclusive
    }

    /// A free slot that now has this key. It is not marked as used yet.
    fn free_slot(&mut self, key: u64) -> Result<Place<'t>, Full> {
        let mut block = self.overflow().last().map_or(self.main(), |(_, last)| last);
        if self.slots(block).occupied == ALL_SLOTS {
            if !self.exclusive.has_spare() {
                self.exclusive.make_room(1, self.slots.occupied)?;
            }
            block = self.link_spare(block);
        }
        let slot = self.slots(block).occupied.trailing_ones() as usize;
        block.front.keys[slot].store(key, Relaxed);
        Ok(Place { block, slot })
    }

    /// Links a spare block behind the last one.
    fn link_spare(&mut self, last: Block<'t>) -> Block<'t> {
        let blocks = &self.exclusive.memory().blocks;
        let main = self.main();
        let links = Links::from_bits(main.front.links.load(Relaxed));
        let spare = links.spare();
        assert!(spare != 0, "an insert for which no room was made");
        let block = blocks.get(spare);
        let following = Links::from_bits(block.front.links.load(Relaxed)).next();
        main.front.links.store(links.with_spare(following).bits(), Relaxed);
        block.front.head.store(0, Relaxed);
        block.front.lens.store(0, Relaxed);
        block.front.links.store(0, Relaxed);
        let links = Links::from_bits(last.front.links.load(Relaxed));
        last.front.links.store(links.with_next(spare).bits(), Relaxed);
        block
    }

    /// Stores a value over words that own nothing. Returns its length, or `SHARED`.
    #[inline]
    fn store(&self, place: Place<'t>, payload: Payload<'_>) -> u8 {
        let words = self.words(place);
        match payload {
            Payload::Inline(bytes) => {
                assert!(
                    bytes.len() <= self.exclusive.memory().inline,
                    "a value fits into its slot"
                );
                let chunks = bytes.chunks_exact(8);
                let mut rest = words.iter();
                let mut last = [0; 8];
                last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
                for (bytes, word) in chunks.zip(&mut rest) {
                    word.set_bits(u64::from_ne_bytes(bytes.try_into().expect("8 bytes")));
                }
                if bytes.len() % 8 != 0
                    && let Some(word) = rest.next()
                {
                    word.set_bits(u64::from_ne_bytes(last));
                }
                bytes.len() as u8
            }
            Payload::Shared(cell) => {
                words[0].set_cell(cell);
                SHARED
            }
        }
    }

    #[cold]
    fn retire(&mut self, place: Place<'t>) {
        // SAFETY: the slot is in use and its length is `SHARED`, so its first word owns a reference.
        // The callers overwrite the word or free the slot.
        self.retired.push(unsafe { self.words(place)[0].take_cell() });
    }

    /// Removes a key if it is there.
    pub(in crate::table) fn delete(&mut self, key: u64) {
        let Some(hole) = self.find(key) else { return };
        if self.len(hole) == SHARED {
            self.retire(hole);
        }
        self.fill(hole);
    }

    /// Frees a slot whose value is retired, and moves the last entry of the chain into it.
    fn fill(&mut self, hole: Place<'t>) {
        let (mut before, mut last, mut last_index) = (None, self.main(), 0);
        for (index, block) in self.overflow() {
            (before, last, last_index) = (Some(last), block, index);
        }
        // The chain's last block is not empty, because the hole's entry is in the chain.
        let occupied = self.slots(last).occupied;
        let moved = Place { block: last, slot: occupied.ilog2() as usize };
        if std::ptr::eq(hole.block.front, last.front) {
            self.set_slots(last, self.slots(last).without(hole.slot));
        } else {
            let key = last.front.keys[moved.slot].load(Relaxed);
            hole.block.front.keys[hole.slot].store(key, Relaxed);
            for (to, from) in self.words(hole).iter().zip(self.words(moved)) {
                to.set_from(from);
            }
            self.set_len(hole, self.len(moved));
            self.set_slots(last, self.slots(last).without(moved.slot));
        }
        if let Some(before) = before
            && self.slots(last).occupied == 0
        {
            let links = Links::from_bits(before.front.links.load(Relaxed));
            before.front.links.store(links.with_next(0).bits(), Relaxed);
            last.front.links.store(Links::to(self.unlinked).bits(), Relaxed);
            self.unlinked = last_index;
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        for key in self.exclusive.keys() {
            self.delete(key);
        }
    }

    /// Publishes the changes as this version, unlocks the bucket and gives reservations back.
    #[inline]
    pub(in crate::table) fn publish(self, version: Version) {
        let Self { exclusive, slots, retired, unlinked } = self;
        exclusive.drop_reservations();
        let main = exclusive.main();
        main.front.head.store(Head::unlocked(version, slots).bits(), Release);
        // After the unlock, so that the bucket is blocked for less time.
        if unlinked != 0 {
            exclusive.memory().free_blocks(unlinked);
        }
        if !retired.is_empty() {
            window::retire(main.back, retired);
        }
    }
}
