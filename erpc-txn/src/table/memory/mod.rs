//! The memory of a table, and the protocol by which threads share it. All unsafe code is here; the
//! rest of the table only decides what to do.
//!
//! * [`arena`]: blocks of atomics
//! * [`links`], `Head`: the packed words of a block
//! * [`pool`]: free overflow blocks
//! * [`cell`], [`window`]: long values, and when they are released
//! * [`reader`]: optimistic reads
//! * [`exclusive`], [`edit`]: the one thread that may change a bucket
//!
//! # The protocol
//!
//! A bucket is in one of three states:
//!
//! ```text
//!              lock                     keep
//!  unlocked ----------->  exclusive  ----------->  owned by a transaction
//!           <-----------             <-----------
//!            release, publish           claim
//! ```
//!
//! * *unlocked*: the head's lock bit is 0.
//! * *exclusive*: the lock bit is 1 and the owner 0. One thread has an [`Exclusive`] and alone may
//!   change the bucket. Nothing in this state waits.
//! * *owned*: the lock bit is 1 and the owner is a transaction, for as long as its messages travel.
//!   Nobody changes the bucket. The contents are those of the head's version.
//!
//! The step from `unlocked` to `exclusive` is a compare-exchange of the head, and that from `owned`
//! to `exclusive` one of the owner. So two threads never are in `exclusive` at once, even if a
//! faulty coordinator uses one owner from two threads.
//!
//! A reader loads the head, and the owner if the bucket is locked, reads what it wants, and loads
//! them again. If they are equal and not those of `exclusive`, nobody changed the bucket in between:
//! a change happens only in `exclusive`, which ends with a new version, and versions do not repeat.
//! This is a seqlock after Boehm, *Can seqlocks get along with programming language memory models?*,
//! MSPC'12: all words are atomics, an acquire fence is before the second load, and a release fence
//! is between the step to `exclusive` and the first change.

mod arena;
mod cell;
mod edit;
mod exclusive;
mod links;
mod pool;
mod reader;
mod window;

use std::sync::Arc as PlainArc;

use arena::{Block, Blocks};
use cell::Word;
pub(super) use cell::{Account, Shared};
pub(super) use edit::{Edit, Payload};
pub(super) use exclusive::Exclusive;
use links::{Lens, Links, SHARED};
use pool::Pool;
pub(super) use reader::Access;

use super::head::{ALL_SLOTS, Head, Slots};
use super::layout::{MAX_CHAIN, Sizes};
use crate::sync::atomic::Ordering::Relaxed;

/// The blocks of a table.
pub(super) struct Memory {
    blocks: Blocks,
    pool: Pool,
    buckets: u32,
    /// Bytes of a slot's value.
    inline: usize,
    /// Words of a slot's value.
    words: usize,
    account: PlainArc<Account>,
}

impl Memory {
    /// On failure returns the number of bytes that the operating system refused.
    pub(super) fn new(sizes: &Sizes) -> Result<Self, usize> {
        Ok(Self {
            blocks: Blocks::new(sizes)?,
            pool: Pool::new(sizes),
            buckets: sizes.buckets,
            inline: sizes.inline,
            words: sizes.words,
            account: PlainArc::default(),
        })
    }

    #[inline]
    pub(super) fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Bytes of all blocks.
    pub(super) fn footprint(&self) -> usize {
        self.blocks.footprint()
    }

    /// Overflow blocks in use.
    pub(super) fn overflow(&self) -> u64 {
        self.pool.used()
    }

    pub(super) fn account(&self) -> &PlainArc<Account> {
        &self.account
    }

    /// Starts to load what a search for keys of this bucket reads first.
    #[inline]
    pub(super) fn prefetch(&self, bucket: u32) {
        self.blocks.prefetch(bucket);
    }

    /// Starts to load what a lock of this bucket reads and writes.
    #[inline]
    pub(super) fn prefetch_lock(&self, bucket: u32) {
        self.blocks.prefetch_lock(bucket);
    }

    /// Starts to load the key's value, if the key is in the bucket's own block.
    #[inline]
    pub(super) fn prefetch_value(&self, bucket: u32, key: u64) {
        let main = self.blocks.get(bucket);
        if let Some(slot) = main.find(main.head().occupancy(), key) {
            Word::prefetch(main.slot(slot, self.words));
        }
    }

    /// The blocks of the bucket's chain after its own. The occupancy is that of its own block: only
    /// full blocks have others after them. Another thread may change the chain
    /// meanwhile. Then the blocks may be others, but never more than `MAX_CHAIN`.
    #[inline]
    fn overflow_of<'t>(
        &'t self,
        main: Block<'t>,
        occupancy: u8,
    ) -> impl Iterator<Item = (u32, Block<'t>)> {
        let mut links = Links::to(0);
        if occupancy == ALL_SLOTS {
            links = Links::from_bits(main.front.links.load(Relaxed));
        }
        std::iter::from_fn(move || {
            let index = links.next();
            if index == 0 {
                return None;
            }
            let block = self.blocks.get(index);
            links = Links::from_bits(block.front.links.load(Relaxed));
            Some((index, block))
        })
        .take(MAX_CHAIN)
    }
}

impl<'t> Block<'t> {
    /// The block's head: of an overflow block, only the occupancy.
    #[inline]
    fn head(self) -> Head {
        Head::from_bits(self.front.head.load(Relaxed))
    }

    /// The length of a slot's value if it is inline, or `SHARED`.
    #[inline]
    fn len(self, slots: Slots, slot: usize, inline: usize) -> u8 {
        if slots.is_full(slot) { inline as u8 } else { self.lens().get(slot) }
    }

    #[inline]
    fn lens(self) -> Lens {
        Lens::from_bits(self.front.lens.load(Relaxed))
    }

    /// The slot with the key, of those in `occupancy`.
    #[inline]
    fn find(self, occupancy: u8, key: u64) -> Option<usize> {
        let mut equal = 0u8;
        for (slot, word) in self.front.keys.iter().enumerate() {
            equal |= u8::from(word.load(Relaxed) == key) << slot;
        }
        let found = equal & occupancy;
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    /// The words of a slot's value.
    #[inline]
    fn slot(self, slot: usize, words: usize) -> &'t [Word] {
        &self.words[slot * words..][..words]
    }
}

/// The occupied slots of a block.
#[inline]
fn occupied(occupancy: u8) -> impl Iterator<Item = usize> {
    (0..u8::BITS as usize).filter(move |slot| occupancy >> slot & 1 != 0)
}

impl Drop for Memory {
    /// Releases the cells. Nobody else has the table, so each bucket can be made empty in turn.
    fn drop(&mut self) {
        if self.account.totals().0 == 0 {
            return;
        }
        for index in 0..self.buckets {
            exclusive::clear(self, index);
        }
    }
}
