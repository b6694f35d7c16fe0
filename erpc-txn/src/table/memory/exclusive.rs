//! The right to change a bucket.

use super::arena::Block;
use super::edit::Edit;
use super::reader::owner_of;
use super::{Links, Memory};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::spin_loop;
use crate::table::errors::{Conflict, Full};
use crate::table::head::Head;
use crate::table::ids::{Owner, Version};
use crate::table::layout::{MAX_CHAIN, SLOTS};
use crate::table::value::Value;

/// How often an attempt to lock is repeated because another thread changes the bucket.
const ATTEMPTS: usize = if cfg!(loom) { 2 } else { 100 };

/// The one thread that may change a bucket. It must end this state with `release`, `keep` or
/// [`Edit::publish`], and soon: others spin meanwhile, and then report conflicts.
#[must_use = "the bucket stays blocked"]
pub(in crate::table) struct Exclusive<'t> {
    // Few words, because this is moved. The blocks' address is computed again where it is used.
    memory: &'t Memory,
    bucket: u32,
    /// There may be reservations. An unlocked bucket has none.
    reserved: bool,
    /// The head without the lock bit.
    head: Head,
}

impl Memory {
    /// Takes the lock of an unlocked bucket, for the calling thread and not yet for a transaction.
    /// Fails with the lock's owner. An exclusive thread is waited for, but not for long.
    #[inline(always)]
    pub(in crate::table) fn lock(&self, bucket: u32) -> Result<Exclusive<'_>, Conflict> {
        let main = self.blocks.get(bucket);
        for _ in 0..ATTEMPTS {
            let head = Head::from_bits(main.front.head.load(Relaxed));
            if !head.is_locked() {
                let locked = head.locked().bits();
                if main.front.head.compare_exchange(head.bits(), locked, Acquire, Relaxed).is_ok() {
                    return Ok(Exclusive { memory: self, bucket, reserved: false, head });
                }
            } else if let owner @ Some(_) = owner_of(main, head) {
                return Err(Conflict { owner });
            }
            spin_loop();
        }
        Err(Conflict { owner: None })
    }

    /// Takes the lock back from the transaction that owns it, for the calling thread. Fails with the
    /// lock's owner.
    #[inline(always)]
    pub(in crate::table) fn claim(
        &self,
        bucket: u32,
        me: Owner,
    ) -> Result<Exclusive<'_>, Option<Owner>> {
        let main = self.blocks.get(bucket);
        match main.front.owner.compare_exchange(me.get(), 0, Acquire, Relaxed) {
            Ok(_) => {
                let head = Head::from_bits(main.front.head.load(Relaxed));
                debug_assert!(head.is_locked());
                Ok(Exclusive { memory: self, bucket, reserved: true, head: head.without_lock() })
            }
            Err(owner) => Err(Owner::new(owner)),
        }
    }
}

impl<'t> Exclusive<'t> {
    #[inline]
    pub(in crate::table) fn version(&self) -> Version {
        self.head.version()
    }

    #[inline]
    pub(super) fn main(&self) -> Block<'t> {
        self.memory.blocks.get(self.bucket)
    }

    #[inline]
    pub(super) fn head(&self) -> Head {
        self.head
    }

    #[inline]
    pub(super) fn memory(&self) -> &'t Memory {
        self.memory
    }

    /// The value of a key.
    #[inline]
    pub(in crate::table) fn value(&self, key: u64) -> Option<Value> {
        self.memory.own_value(self, key)
    }

    /// Whether the bucket has the key.
    #[inline]
    pub(in crate::table) fn contains(&self, key: u64) -> bool {
        self.main().find(self.head.occupancy(), key).is_some()
            || self
                .memory
                .overflow_of(self.main(), self.head.occupancy())
                .any(|(_, block)| block.find(block.head().occupancy(), key).is_some())
    }

    /// The keys of the bucket.
    pub(in crate::table) fn keys(&self) -> Vec<u64> {
        let key = |block: Block<'_>, slot: usize| block.front.keys[slot].load(Relaxed);
        let mut keys: Vec<_> =
            super::occupied(self.head.occupancy()).map(|slot| key(self.main(), slot)).collect();
        for (_, block) in self.memory.overflow_of(self.main(), self.head.occupancy()) {
            keys.extend(super::occupied(block.head().occupancy()).map(|slot| key(block, slot)));
        }
        keys
    }

    /// Reserves a slot for one more insert by the owner.
    pub(in crate::table) fn reserve(&mut self) -> Result<(), Full> {
        let lens = self.main().lens();
        let reserved = lens.reserved() + 1;
        self.make_room(usize::from(reserved), self.head.occupancy())?;
        self.reserved = true;
        self.main().front.lens.store(lens.with_reserved(reserved).bits(), Relaxed);
        Ok(())
    }

    /// Sees to it that there is room for this many inserts.
    #[inline]
    pub(in crate::table) fn make_room_for(&mut self, inserts: usize) -> Result<(), Full> {
        if inserts == 0 { Ok(()) } else { self.make_room(inserts, self.head.occupancy()) }
    }

    /// Sees to it that there are free slots for this many inserts, in the chain or in spare blocks.
    /// Spare blocks are not linked into the chain before the commit: an abort then has nothing to
    /// undo that readers can see, and the version need not change.
    ///
    /// The occupancy is that of the bucket's own block now.
    pub(super) fn make_room(&mut self, inserts: usize, occupancy: u8) -> Result<(), Full> {
        let blocks = &self.memory.blocks;
        let free = |occupancy: u8| SLOTS - occupancy.count_ones() as usize;
        let mut room = free(occupancy);
        if room >= inserts {
            return Ok(());
        }
        let mut chain = 0;
        for (_, block) in self.memory.overflow_of(self.main(), occupancy) {
            room += free(block.head().occupancy());
            chain += 1;
        }
        let mut links = Links::from_bits(self.main().front.links.load(Relaxed));
        let mut spare = links.spare();
        while spare != 0 {
            room += SLOTS;
            chain += 1;
            spare = Links::from_bits(blocks.get(spare).front.links.load(Relaxed)).next();
        }
        while room < inserts {
            if chain == MAX_CHAIN {
                return Err(Full::Bucket);
            }
            let index = self.memory.pool.take(blocks).ok_or(Full::Table)?;
            self.reserved = true;
            blocks.get(index).front.links.store(Links::to(links.spare()).bits(), Relaxed);
            links = links.with_spare(index);
            self.main().front.links.store(links.bits(), Relaxed);
            room += SLOTS;
            chain += 1;
        }
        Ok(())
    }

    /// Whether there is a spare block.
    pub(super) fn has_spare(&self) -> bool {
        Links::from_bits(self.main().front.links.load(Relaxed)).spare() != 0
    }

    /// Gives up all reservations.
    #[inline]
    pub(super) fn drop_reservations(&self) {
        if !self.reserved {
            return;
        }
        let lens = self.main().lens();
        if lens.reserved() != 0 {
            self.main().front.lens.store(lens.with_reserved(0).bits(), Relaxed);
        }
        let links = Links::from_bits(self.main().front.links.load(Relaxed));
        if links.spare() != 0 {
            self.main().front.links.store(links.with_spare(0).bits(), Relaxed);
            self.memory.free_blocks(links.spare());
        }
    }

    /// Unlocks the bucket, which has not changed.
    #[inline]
    pub(in crate::table) fn release(self) {
        self.drop_reservations();
        self.main().front.head.store(self.head.bits(), Release);
    }

    /// Leaves the lock to a transaction.
    #[inline]
    pub(in crate::table) fn keep(self, owner: Owner) {
        self.main().front.owner.store(owner.get(), Release);
    }
}

impl Memory {
    /// Gives blocks back to the pool that are linked by their low halves and that no chain has.
    pub(super) fn free_blocks(&self, first: u32) {
        let mut index = first;
        while index != 0 {
            let next = Links::from_bits(self.blocks.get(index).front.links.load(Relaxed)).next();
            self.pool.put(&self.blocks, index);
            index = next;
        }
    }
}

/// Releases the cells of a bucket, in whatever state, of a table that nobody else has.
pub(super) fn clear(memory: &mut Memory, bucket: u32) {
    let main = memory.blocks.get(bucket);
    let head = Head::from_bits(main.front.head.load(Relaxed)).without_lock();
    let mut edit = Edit::new(Exclusive { memory, bucket, reserved: true, head });
    edit.clear();
    edit.publish(head.version());
}

/// The number of reservations, for tests.
#[cfg(all(test, not(loom)))]
impl Memory {
    pub(in crate::table) fn reserved(&self, bucket: u32) -> u8 {
        self.blocks.get(bucket).lens().reserved()
    }
}
