//! The blocks of a table: one allocation of atomics, and references to them.

use super::cell::Word;
use super::window::Batch;
use crate::sync::atomic::{AtomicPtr, AtomicU64};
use crate::table::layout::{SLOTS, Sizes};

/// The head and the keys, which every reader needs, fill the block's first cache line. What locks
/// and commits need follows. The values then begin at byte 88, and of seven values of 40 bytes, the
/// common size, only three span two lines.
#[repr(C)]
pub(super) struct Front {
    /// See `Head`.
    pub(super) head: AtomicU64,
    pub(super) keys: [AtomicU64; SLOTS],
    /// The owner of the lock, 0 for none. Not used in overflow blocks.
    pub(super) owner: AtomicU64,
    /// The next block of the chain, and the first spare block; see `Links`.
    pub(super) links: AtomicU64,
    /// The lengths of the values, and the number of reserved slots; see `Lens`.
    pub(super) lens: AtomicU64,
}

/// What only long values need. Not used in overflow blocks.
#[repr(C)]
pub(super) struct Back {
    /// How many threads are about to take a reference to a cell.
    pub(super) window: AtomicU64,
    /// Cells that wait until no thread is in the window.
    pub(super) limbo: AtomicPtr<Batch>,
}

/// One block: the front, `SLOTS` times the words of a value, and the back.
#[derive(Clone, Copy)]
pub(super) struct Block<'t> {
    pub(super) front: &'t Front,
    pub(super) words: &'t [Word],
    pub(super) back: &'t Back,
}

#[cfg(not(loom))]
pub(super) use ordinary::Blocks;

#[cfg(loom)]
pub(super) use model::Blocks;

#[cfg(not(loom))]
mod ordinary {
    #![expect(unsafe_code, reason = "The blocks are memory of the operating system.")]

    use std::ptr::{self, NonNull};
    use std::sync::atomic::AtomicU64;

    use erpc::memory::ZeroedArray;

    use super::{Back, Block, Front, SLOTS, Sizes, Word};

    const LINE: usize = 64;
    type Line = [AtomicU64; LINE / 8];
    const _: () = assert!(std::mem::offset_of!(Front, owner) == LINE && align_of::<Front>() == 8);
    const _: () =
        assert!(align_of::<Word>() == 8 && size_of::<Word>() == 8 && align_of::<Back>() == 8);

    /// Blocks with indices from 0 to `count`.
    pub(in crate::table::memory) struct Blocks {
        lines: ZeroedArray<Line>,
        count: u32,
        /// Bytes from one block to the next.
        stride: usize,
        /// Words of all values of a block.
        words: usize,
    }

    impl Blocks {
        /// Blocks with all words 0. On failure returns the number of bytes.
        pub(in crate::table::memory) fn new(sizes: &Sizes) -> Result<Self, usize> {
            let count = sizes.buckets + sizes.overflow;
            let words = SLOTS * sizes.words;
            let block = size_of::<Front>() + words * size_of::<Word>() + size_of::<Back>();
            let stride = block.next_multiple_of(LINE);
            let lines = (stride / LINE).checked_mul(count as usize).ok_or(usize::MAX)?;
            let lines = ZeroedArray::new(lines).map_err(|refused| refused.bytes)?;
            Ok(Self { lines, count, stride, words })
        }

        pub(in crate::table::memory) fn footprint(&self) -> usize {
            size_of_val(&*self.lines)
        }

        #[inline]
        fn address(&self, index: u32) -> NonNull<u8> {
            assert!(index < self.count, "block {index} of {}", self.count);
            let first = NonNull::from(&*self.lines).cast::<u8>();
            // SAFETY: the lines have `count * stride` bytes, and the index is below `count`.
            unsafe { first.add(index as usize * self.stride) }
        }

        /// # Panics
        ///
        /// If there is no such block.
        #[inline]
        pub(in crate::table::memory) fn get(&self, index: u32) -> Block<'_> {
            let front = self.address(index).cast::<Front>();
            // SAFETY: a block has `stride` bytes, at least those of its three parts.
            let words = unsafe { front.add(1) }.cast::<Word>();
            // SAFETY: as above.
            let back = unsafe { words.add(self.words) }.cast::<Back>();
            // SAFETY: blocks begin at multiples of the line, so the front is aligned. All bytes were 0
            // at first, which are valid atomics, and are only accessed as the same atomics. They live
            // as long as `self`.
            let front = unsafe { front.as_ref() };
            // SAFETY: as above; the words follow the front, whose size is a multiple of a word's.
            let words = unsafe { std::slice::from_raw_parts(words.as_ptr(), self.words) };
            // SAFETY: as above; the back follows the words, and needs no more alignment than they.
            let back = unsafe { back.as_ref() };
            Block { front, words, back }
        }

        /// Starts to load a block's head and keys.
        #[inline]
        pub(in crate::table::memory) fn prefetch(&self, index: u32) {
            prefetch(self.address(index).as_ptr());
        }

        /// Starts to load a block's head and keys, and what locks need.
        #[inline]
        pub(in crate::table::memory) fn prefetch_lock(&self, index: u32) {
            let address = self.address(index).as_ptr();
            prefetch(address);
            prefetch(address.wrapping_add(LINE));
        }
    }

    impl Word {
        /// Starts to load the words of a value, which are at most two cache lines.
        #[inline]
        pub(in crate::table::memory) fn prefetch(words: &[Self]) {
            if let Some(first) = words.first() {
                prefetch(ptr::from_ref(first).cast());
            }
            if let Some(last) = words.last() {
                prefetch(ptr::from_ref(last).cast());
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    fn prefetch(address: *const u8) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing that a program can observe, at any address.
        unsafe { _mm_prefetch(address.cast(), _MM_HINT_T0) };
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn prefetch(_address: *const u8) {}
}

#[cfg(loom)]
mod model {
    use super::{AtomicPtr, AtomicU64, Back, Block, Front, SLOTS, Sizes, Word};

    /// The same as values of loom's types.
    pub(in crate::table::memory) struct Blocks(Vec<(Front, Box<[Word]>, Back)>);

    impl Blocks {
        pub(in crate::table::memory) fn new(sizes: &Sizes) -> Result<Self, usize> {
            let zero = || AtomicU64::new(0);
            let block = |_| {
                let keys = [(); SLOTS].map(|()| zero());
                let front =
                    Front { head: zero(), keys, owner: zero(), links: zero(), lens: zero() };
                let limbo = AtomicPtr::new(std::ptr::null_mut());
                let back = Back { window: zero(), limbo };
                (front, (0..SLOTS * sizes.words).map(|_| Word::new()).collect(), back)
            };
            Ok(Self((0..sizes.buckets + sizes.overflow).map(block).collect()))
        }

        pub(in crate::table::memory) fn footprint(&self) -> usize {
            self.0.len()
        }

        pub(in crate::table::memory) fn get(&self, index: u32) -> Block<'_> {
            let (front, words, back) = &self.0[index as usize];
            Block { front, words, back }
        }

        pub(in crate::table::memory) fn prefetch(&self, _index: u32) {}

        pub(in crate::table::memory) fn prefetch_lock(&self, _index: u32) {}
    }

    impl Word {
        pub(in crate::table::memory) fn prefetch(_words: &[Self]) {}
    }
}
