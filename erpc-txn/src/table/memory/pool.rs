//! The free overflow blocks.

use std::sync::atomic::AtomicU64 as PlainAtomicU64;
use std::sync::atomic::Ordering::Relaxed as Plain;

use super::arena::Blocks;
use super::links::Links;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::atomic::fence;
use crate::table::layout::Sizes;

/// A stack of free blocks (Treiber's), linked through the blocks themselves. Blocks that have never
/// been used are not in it but follow `fresh`.
pub(super) struct Pool {
    /// The first free block in the low half, 0 for none, and a number in the high half that each
    /// change increases. A thread that was about to take the first block fails if that block has
    /// been taken and put back meanwhile.
    top: AtomicU64,
    /// The first block that has never been used.
    fresh: AtomicU64,
    end: u64,
    used: PlainAtomicU64,
}

impl Pool {
    pub(super) fn new(sizes: &Sizes) -> Self {
        Self {
            top: AtomicU64::new(0),
            fresh: AtomicU64::new(u64::from(sizes.buckets)),
            end: u64::from(sizes.buckets) + u64::from(sizes.overflow),
            used: PlainAtomicU64::new(0),
        }
    }

    /// Blocks that are not free.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Plain)
    }

    /// Takes a block, which still has its old contents. None if all are in use.
    ///
    /// A slow reader of the block's former bucket may still come to the block. If it sees anything
    /// that the caller writes to the block, it must then see that its bucket has changed. So a fence
    /// is before all that, here and in `put`.
    pub(super) fn take(&self, blocks: &Blocks) -> Option<u32> {
        let index = self.pop(blocks).or_else(|| self.unused())?;
        fence(Release);
        self.used.fetch_add(1, Plain);
        Some(index)
    }

    /// Gives a block back, to which no bucket has a link any more.
    pub(super) fn put(&self, blocks: &Blocks, index: u32) {
        self.used.fetch_sub(1, Plain);
        fence(Release);
        let mut top = self.top.load(Relaxed);
        loop {
            blocks.get(index).front.links.store(Links::to(top as u32).bits(), Relaxed);
            match self.top.compare_exchange(top, retagged(top, index), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    fn pop(&self, blocks: &Blocks) -> Option<u32> {
        let mut top = self.top.load(Acquire);
        loop {
            let index = top as u32;
            if index == 0 {
                return None;
            }
            let next = Links::from_bits(blocks.get(index).front.links.load(Relaxed)).next();
            match self.top.compare_exchange(top, retagged(top, next), AcqRel, Acquire) {
                Ok(_) => return Some(index),
                Err(now) => top = now,
            }
        }
    }

    fn unused(&self) -> Option<u32> {
        let mut index = self.fresh.load(Relaxed);
        while index < self.end {
            match self.fresh.compare_exchange(index, index + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(index as u32),
                Err(now) => index = now,
            }
        }
        None
    }
}

fn retagged(top: u64, index: u32) -> u64 {
    ((top >> 32) + 1) << 32 | u64::from(index)
}

#[cfg(all(test, loom))]
mod schedules {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A thread that was about to take the first block must notice that the block has been taken and
    /// put back: the block after it may be in use.
    #[test]
    fn no_block_is_taken_twice() {
        loom::model(|| {
            let sizes = Sizes { buckets: 1, overflow: 2, inline: 8, words: 1 };
            let shared = Arc::new((Blocks::new(&sizes).expect("memory"), Pool::new(&sizes)));
            let (blocks, pool) = &*shared;
            for index in [pool.take(blocks), pool.take(blocks)] {
                pool.put(blocks, index.expect("two blocks"));
            }
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (blocks, pool) = &*shared;
                    let (first, second) = (pool.take(blocks), pool.take(blocks));
                    if let Some(first) = first {
                        pool.put(blocks, first);
                    }
                    second
                })
            };
            let mut taken = vec![pool.take(blocks), other.join().unwrap()];
            taken.push(pool.take(blocks));
            let count = taken.iter().flatten().count();
            taken.sort();
            taken.dedup();
            assert_eq!(taken.iter().flatten().count(), count, "a block was taken twice");
            assert_eq!(pool.used(), count as u64);
        });
    }
}
