//! Reference-counted memory blocks. All `unsafe` code of `buf` works on these blocks.
//!
//! ```text
//!  one allocation
//! +-----------------------+----------------------------------------------+
//! | BlockHeader, padded   | payload[capacity]                            |
//! | to a cache line: refs,|                                              |
//! | capacity, home, next  |                                              |
//! +-----------------------+----------------------------------------------+
//! ```
//!
//! A block has one writer and any number of readers. The writer is the [`MsgBuf`](super::MsgBuf)
//! that the user holds. The readers are the references in transmit queues. A queue holds them until
//! it is flushed or reclaims them. The writer checks that the reference count is one before it
//! writes to the payload; packet headers are the exception ([`BlockRef::write_shared`]).

use std::alloc::Layout;
use std::ptr::{NonNull, null_mut};

use crate::memory::prefetch_line;
use crate::sync::alloc::{alloc, alloc_zeroed, dealloc};
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};
use crate::sync::{Arc, Witness};

/// Bytes in front of a block's payload, and the alignment of a pool's blocks: one cache line. Under
/// loom it is larger, because loom's atomics are larger.
const PREFIX: usize = if cfg!(loom) { 256 } else { 64 };

/// Alignment of blocks outside of every pool, which are allocated for one message. Larger ones are
/// slow: glibc's `posix_memalign` takes 300 ns, its `malloc` 20 ns.
const DETACHED_ALIGN: usize = 16;

/// Up to this capacity in bytes, a detached block is zeroed here. The system allocator has zeroed
/// pages for larger ones, but for small ones it does not use its fast path.
const ZEROED_HERE: usize = 4_096;

/// Bookkeeping in front of a block's payload.
struct BlockHeader {
    refs: AtomicU32,
    /// Two words for the block's user. A msgbuf keeps its length and capacity here, so that a
    /// msgbuf is one pointer and moves in a register.
    notes: [AtomicU32; 2],
    capacity: usize,
    /// Alignment of the block's memory.
    align: usize,
    /// The pool that the block returns to; `None` for a block outside of every pool.
    home: Option<Arc<Home>>,
    /// Next block in the home's list of returned blocks. Valid only while the block is in that
    /// list.
    next: *mut BlockHeader,
    /// Lets loom find races on the payload and on the non-atomic fields above. Empty in ordinary
    /// builds.
    accesses: Witness,
}

const _: () =
    assert!(size_of::<BlockHeader>() <= PREFIX && align_of::<BlockHeader>() <= DETACHED_ALIGN);

/// Memory source of a pool whose memory a device reads, for example hugepages registered with a
/// NIC.
///
/// # Safety
/// `allocate` returns memory of `layout.size()` bytes, aligned to `layout.align()`, zeroed,
/// writable, and used by nothing else until it is released.
pub unsafe trait Arena: Send + Sync {
    /// Zeroed memory of that layout. The layout's size is not 0. `None` if the arena is full.
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Returns memory to the arena.
    ///
    /// # Safety
    /// `memory` came from `allocate` with this exact layout, and is not used any more.
    unsafe fn release(&self, memory: NonNull<u8>, layout: Layout);
}

/// The thread-safe part of a pool: any thread returns blocks here.
pub(super) struct Home {
    /// Memory source of the pool's blocks; `None` for the system allocator.
    arena: Option<std::sync::Arc<dyn Arena>>,
    /// Treiber stack of returned blocks. A taker removes the whole list with one swap, so there is
    /// no ABA problem.
    returned: AtomicPtr<BlockHeader>,
    /// True once the pool is dropped. Then the thread that returns a block also frees the list.
    closed: AtomicBool,
}

impl Home {
    pub(super) fn new(arena: Option<std::sync::Arc<dyn Arena>>) -> Self {
        Self { arena, returned: AtomicPtr::new(null_mut()), closed: AtomicBool::new(false) }
    }

    /// Takes all blocks that were returned since the last call.
    #[inline]
    pub(super) fn take_returned(&self) -> Returned {
        if self.returned.load(Ordering::Relaxed).is_null() {
            return Returned(null_mut());
        }
        Returned(self.returned.swap(null_mut(), Ordering::AcqRel))
    }

    /// Called when the pool is dropped. Blocks still in use are freed when they are returned.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Swap even if the list looks empty: a later `give_back` reads the value that this swap
        // writes, and so sees that the pool is closed.
        drop(Returned(self.returned.swap(null_mut(), Ordering::AcqRel)));
    }

    fn give_back(&self, block: Block) {
        let mut header = block.into_raw();
        let mut top = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the block is idle, and this call is its only owner until the exchange
            // succeeds.
            let idle = unsafe { header.as_mut() };
            idle.accesses.write();
            idle.next = top;
            match self.returned.compare_exchange_weak(
                top,
                header.as_ptr(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        // If `close` emptied the list before this push, the push has read the value that `close`
        // wrote, so this load sees the flag. If `close` emptied it after the push, `close` has
        // freed the block. In both cases no block leaks.
        if self.closed.load(Ordering::Acquire) {
            drop(self.take_returned());
        }
    }
}

/// Blocks taken from a home's list. Dropping the iterator frees the blocks that were not taken out.
pub(super) struct Returned(*mut BlockHeader);

impl Iterator for Returned {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let header = NonNull::new(self.0)?;
        // SAFETY: `give_back` put the header into the list and gave up ownership. The whole list
        // was taken with one swap, so no other thread follows these links.
        let idle = unsafe { header.as_ref() };
        idle.accesses.write();
        self.0 = idle.next;
        Some(Block { header })
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

/// An idle block with a single owner. Dropping it frees the memory.
pub(super) struct Block {
    header: NonNull<BlockHeader>,
}

// SAFETY: an idle block has a single owner. It contains memory and an `Arc<Home>`, and `Home` is
// `Send` and `Sync`.
unsafe impl Send for Block {}

impl Block {
    /// A block that returns to `home`, with a zeroed payload. Its memory comes from the arena of
    /// `home`, or from the system allocator if there is no arena. `None` if that has no memory, or
    /// if `capacity` is too large.
    pub(super) fn allocate(capacity: usize, home: Option<Arc<Home>>) -> Option<Self> {
        let align = if home.is_some() { PREFIX } else { DETACHED_ALIGN };
        let layout = Self::layout(capacity, align)?;
        let memory = match home.as_ref().and_then(|home| home.arena.as_ref()) {
            Some(arena) => arena.allocate(layout)?,
            None if home.is_none() && capacity <= ZEROED_HERE => {
                // SAFETY: the layout's size is at least PREFIX, so not 0.
                let memory = NonNull::new(unsafe { alloc(layout) })?;
                // SAFETY: the allocation has this size, and no other reference to it exists.
                unsafe { memory.write_bytes(0, layout.size()) };
                memory
            }
            // SAFETY: the layout's size is at least PREFIX, so not 0.
            None => NonNull::new(unsafe { alloc_zeroed(layout) })?,
        };
        let header = memory.cast::<BlockHeader>();
        // SAFETY: the allocation is large and aligned enough for a header, and no other reference
        // to it exists.
        unsafe {
            header.write(BlockHeader {
                refs: AtomicU32::new(0),
                notes: [AtomicU32::new(0), AtomicU32::new(0)],
                capacity,
                align,
                home,
                next: null_mut(),
                accesses: Witness::new(),
            });
        };
        Some(Self { header })
    }

    fn layout(capacity: usize, align: usize) -> Option<Layout> {
        Layout::from_size_align(PREFIX.checked_add(capacity)?, align).ok()
    }

    /// Bytes of memory that a block with `capacity` payload bytes occupies.
    #[inline]
    pub(super) const fn footprint(capacity: usize) -> usize {
        PREFIX + capacity
    }

    /// Payload bytes of the block.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        // SAFETY: the header lives as long as the block.
        unsafe { self.header.as_ref() }.capacity
    }

    /// Converts the block to a counted reference, the only one.
    #[inline]
    pub(super) fn activate(self) -> BlockRef {
        let header = self.into_raw();
        // SAFETY: the header lives as long as the block.
        let idle = unsafe { header.as_ref() };
        idle.accesses.write();
        idle.refs.store(1, Ordering::Relaxed);
        BlockRef { header }
    }

    #[inline]
    fn into_raw(self) -> NonNull<BlockHeader> {
        let header = self.header;
        std::mem::forget(self);
        header
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the header lives until it is dropped below.
        let header = unsafe { self.header.as_ref() };
        let layout = Self::layout(header.capacity, header.align);
        header.accesses.write();
        let arena = header.home.as_ref().and_then(|home| home.arena.clone());
        // SAFETY: the header was written by `allocate` and is dropped once, here.
        unsafe { self.header.drop_in_place() };
        let (Some(layout), memory) = (layout, self.header.cast::<u8>()) else { return };
        match arena {
            // SAFETY: `allocate` got the memory from this arena with this exact layout, and nothing
            // refers to it any more.
            Some(arena) => unsafe { arena.release(memory, layout) },
            // SAFETY: `allocate` got the memory from the system allocator with this exact layout,
            // and nothing refers to it any more.
            None => unsafe { dealloc(memory.as_ptr(), layout) },
        }
    }
}

/// A counted reference to a block in use.
pub(super) struct BlockRef {
    header: NonNull<BlockHeader>,
}

// SAFETY: the count is atomic. Message bytes are written only through the only reference, after it
// has observed with acquire ordering that the other references were released. Packet headers are
// the exception; see `write_shared`.
unsafe impl Send for BlockRef {}
// SAFETY: as for `Send`; functions that take `&self` only read, apart from the atomic count.
unsafe impl Sync for BlockRef {}

impl BlockRef {
    #[inline]
    fn header(&self) -> &BlockHeader {
        // SAFETY: the block lives while a reference to it does.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    fn payload(&self) -> *mut u8 {
        // SAFETY: PREFIX is within, or one past the end of, the allocation.
        unsafe { self.header.as_ptr().cast::<u8>().add(PREFIX) }
    }

    /// Reads one of the two words that the block's user keeps with the block. All references share
    /// them.
    #[inline]
    pub(super) fn note(&self, index: usize) -> u32 {
        self.header().notes[index].load(Ordering::Relaxed)
    }

    /// Sets one of the two words that [`Self::note`] reads.
    #[inline]
    pub(super) fn set_note(&mut self, index: usize, value: u32) {
        self.header().notes[index].store(value, Ordering::Relaxed);
    }

    /// Payload bytes of the block.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.header().capacity
    }

    /// Whether this is the only reference.
    #[inline]
    pub(super) fn is_unique(&self) -> bool {
        self.header().refs.load(Ordering::Acquire) == 1
    }

    /// `len` bytes of the payload, from offset `at`.
    ///
    /// # Safety
    /// `at + len` is at most the block's capacity.
    #[inline]
    pub(super) unsafe fn slice(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= self.capacity());
        self.header().accesses.read();
        // SAFETY: the caller promises that `at` lies within the payload.
        let from = unsafe { self.payload().add(at) };
        // SAFETY: the caller promises that the `len` bytes from there lie within the payload. They
        // are initialised, and no thread writes them while `self` is borrowed: a writer needs
        // `&mut` to the only reference.
        unsafe { std::slice::from_raw_parts(from, len) }
    }

    /// `len` bytes of the payload, from offset `at`, writable.
    ///
    /// # Safety
    /// `at + len` is at most the block's capacity.
    ///
    /// # Panics
    /// If there is another reference: the buffer is still queued for transmission.
    #[inline]
    pub(super) unsafe fn slice_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        debug_assert!(at + len <= self.capacity());
        assert!(self.is_unique(), "a msgbuf is written while a transmit queue still reads it");
        self.header().accesses.write();
        // SAFETY: the caller promises that `at` lies within the payload.
        let from = unsafe { self.payload().add(at) };
        // SAFETY: the caller promises that the `len` bytes from there lie within the payload. They
        // are initialised; `self` is the only reference and is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(from, len) }
    }

    /// Writes `bytes` at `at` even if transmit queues refer to the block: for packet headers, which
    /// are not part of the message.
    ///
    /// # Safety
    /// `at + N` is at most the block's capacity.
    #[inline]
    pub(super) unsafe fn write_shared<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        debug_assert!(at + N <= self.capacity());
        // SAFETY: the caller promises that `at` lies within the payload.
        let to = unsafe { self.payload().add(at) };
        // SAFETY: the caller promises that the `N` bytes from there lie within the payload. `&mut
        // self` excludes a slice made by this reference. Only transmit queues of this thread hold
        // other references; they keep raw addresses for a device or the kernel and make no slices.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), N) };
    }

    /// Another reference, for a transmit queue that reads the block.
    #[inline]
    pub(super) fn share(&self) -> Self {
        let before = self.header().refs.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "too many references to one msgbuf");
        Self { header: self.header }
    }

    /// Moves a block outside of every pool to `home`. False, without effect, if `home` has an arena
    /// (the memory could not return there), if the block belongs to a pool, or if another reference
    /// exists.
    pub(super) fn adopt(&mut self, home: &Arc<Home>) -> bool {
        if home.arena.is_some() || self.header().home.is_some() || !self.is_unique() {
            return false;
        }
        self.header().accesses.write();
        // SAFETY: `self` is the only reference to the block, and is borrowed mutably.
        unsafe { self.header.as_mut() }.home = Some(Arc::clone(home));
        true
    }

    /// Whether the block belongs to no pool.
    #[inline]
    pub(super) fn is_homeless(&self) -> bool {
        self.header().home.is_none()
    }

    /// Loads the header and the first line of the payload into the cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_line(self.header.as_ptr().cast());
        prefetch_line(self.payload());
    }

    /// Whether this is the only reference and the block belongs to `home`.
    #[inline]
    pub(super) fn is_idle(&self, home: &Arc<Home>) -> bool {
        let ours = self.header().home.as_ref().is_some_and(|own| Arc::ptr_eq(own, home));
        ours && self.is_unique()
    }

    /// Converts the reference back to an idle block if this is the only reference and the block
    /// belongs to `home`. Returns `self` as `Err` otherwise.
    #[inline]
    pub(super) fn reclaim(self, home: &Arc<Home>) -> Result<Block, Self> {
        if !self.is_idle(home) {
            return Err(self);
        }
        self.header().accesses.write();
        let header = self.header;
        std::mem::forget(self);
        Ok(Block { header })
    }
}

impl Drop for BlockRef {
    #[inline]
    fn drop(&mut self) {
        if self.header().refs.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let block = Block { header: self.header };
        // Clone the home, because another thread may free the block, and with it the last reference
        // to the home, before `give_back` has finished.
        let home = self.header().home.clone();
        match home {
            Some(home) => home.give_back(block),
            None => drop(block),
        }
    }
}

#[cfg(all(test, loom))]
mod schedules;
