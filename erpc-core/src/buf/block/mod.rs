//! Reference-counted memory blocks; all of this module's `unsafe` is about them.
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
//! A block is shared by one writer, the [`MsgBuf`](super::MsgBuf) its user holds, and any number of
//! readers: the references that transmit queues keep until they are flushed. Bytes are written only
//! while the count is one, which the writer checks.

use std::alloc::Layout;
use std::ptr::{NonNull, null_mut};

use crate::sync::alloc::{alloc_zeroed, dealloc};
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};
use crate::sync::{Arc, Witness};

/// Alignment of blocks, and bytes in front of a block's payload: a cache line. Loom's atomics are
/// larger.
const PREFIX: usize = if cfg!(loom) { 256 } else { 64 };

/// What stands in front of a block's payload.
struct BlockHeader {
    refs: AtomicU32,
    /// Two words of the user's: a msgbuf's length and capacity are kept here, so that a msgbuf is one
    /// pointer and moves in a register.
    notes: [AtomicU32; 2],
    capacity: usize,
    /// The pool that the block returns to, `None` for a block of its own.
    home: Option<Arc<Home>>,
    /// Link of the home's list of returned blocks. Meaningful only while the block is in that list.
    next: *mut BlockHeader,
    /// Of the payload and of what is not atomic above.
    accesses: Witness,
}

const _: () = assert!(size_of::<BlockHeader>() <= PREFIX && align_of::<BlockHeader>() <= PREFIX);

/// Where a pool's memory comes from when a device reads it: hugepages registered with a NIC, say.
///
/// # Safety
/// `allocate` returns memory that is `layout.size()` bytes large, aligned to `layout.align()`, zeroed,
/// writable, and exclusively the holder's until it is released.
pub unsafe trait Arena: Send + Sync {
    /// Zeroed memory of that layout, whose size is not 0; `None` if there is no more.
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Takes memory back.
    ///
    /// # Safety
    /// `memory` came from `allocate` with this very layout, and is not used any more.
    unsafe fn release(&self, memory: NonNull<u8>, layout: Layout);
}

/// The thread-safe end of a pool: blocks come back here from any thread.
pub(super) struct Home {
    /// Where the pool's blocks come from, `None` for the system allocator.
    arena: Option<std::sync::Arc<dyn Arena>>,
    /// Treiber stack of returned blocks. Takers take all of it at once, so there is no ABA.
    returned: AtomicPtr<BlockHeader>,
    /// The pool is gone; the thread that returns a block frees the list.
    closed: AtomicBool,
}

impl Home {
    pub(super) fn new(arena: Option<std::sync::Arc<dyn Arena>>) -> Self {
        Self { arena, returned: AtomicPtr::new(null_mut()), closed: AtomicBool::new(false) }
    }

    /// Takes every block that was returned since the last call.
    #[inline]
    pub(super) fn take_returned(&self) -> Returned {
        if self.returned.load(Ordering::Relaxed).is_null() {
            return Returned(null_mut());
        }
        Returned(self.returned.swap(null_mut(), Ordering::AcqRel))
    }

    /// The pool goes; blocks still in use will free themselves.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Swapped even if the list looks empty: `give_back` relies on reading what is written here.
        drop(Returned(self.returned.swap(null_mut(), Ordering::AcqRel)));
    }

    fn give_back(&self, block: Block) {
        let mut header = block.into_raw();
        let mut top = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the block is idle and belongs to this call until the exchange succeeds.
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
        // If `close` emptied the list before the push, the push has read what `close` wrote and sees
        // the flag; if after, `close` has freed the block. Either way nothing stays behind.
        if self.closed.load(Ordering::Acquire) {
            drop(self.take_returned());
        }
    }
}

/// Blocks on their way from a home's list back to its pool; those not taken out are freed.
pub(super) struct Returned(*mut BlockHeader);

impl Iterator for Returned {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let header = NonNull::new(self.0)?;
        // SAFETY: `give_back` put the header here and gave it up; the whole list was taken with one
        // swap, so no other thread follows these links.
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

/// An idle block, owned whole. Dropping it frees the memory.
pub(super) struct Block {
    header: NonNull<BlockHeader>,
}

// SAFETY: an idle block is memory with a single owner and an `Arc` of a `Sync` type.
unsafe impl Send for Block {}

impl Block {
    /// A zeroed block that returns to `home`; `None` if the allocator refuses.
    pub(super) fn allocate(capacity: usize, home: Option<Arc<Home>>) -> Option<Self> {
        let layout = Self::layout(capacity)?;
        let memory = match home.as_ref().and_then(|home| home.arena.as_ref()) {
            Some(arena) => arena.allocate(layout)?,
            // SAFETY: the layout's size is at least PREFIX, so not 0.
            None => NonNull::new(unsafe { alloc_zeroed(layout) })?,
        };
        let header = memory.cast::<BlockHeader>();
        // SAFETY: the allocation is large and aligned enough for a header, and no other reference to it exists.
        unsafe {
            header.write(BlockHeader {
                refs: AtomicU32::new(0),
                notes: [AtomicU32::new(0), AtomicU32::new(0)],
                capacity,
                home,
                next: null_mut(),
                accesses: Witness::new(),
            });
        };
        Some(Self { header })
    }

    fn layout(capacity: usize) -> Option<Layout> {
        Layout::from_size_align(PREFIX.checked_add(capacity)?, PREFIX).ok()
    }

    /// Bytes of memory that a block of `capacity` takes.
    pub(super) const fn footprint(capacity: usize) -> usize {
        PREFIX + capacity
    }

    /// Payload bytes.
    pub(super) fn capacity(&self) -> usize {
        // SAFETY: the header lives as long as the block.
        unsafe { self.header.as_ref() }.capacity
    }

    /// Puts the block to use, with one reference.
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
        let layout = Self::layout(self.capacity());
        // SAFETY: the header lives until it is dropped below.
        let header = unsafe { self.header.as_ref() };
        header.accesses.write();
        let arena = header.home.as_ref().and_then(|home| home.arena.clone());
        // SAFETY: the header was written by `allocate` and is dropped once, here.
        unsafe { self.header.drop_in_place() };
        let (Some(layout), memory) = (layout, self.header.cast::<u8>()) else { return };
        match arena {
            // SAFETY: `allocate` got the memory from this arena with this very layout, and nothing refers
            // to it now.
            Some(arena) => unsafe { arena.release(memory, layout) },
            // SAFETY: as above, from the system allocator.
            None => unsafe { dealloc(memory.as_ptr(), layout) },
        }
    }
}

/// A counted reference to a block in use.
pub(super) struct BlockRef {
    header: NonNull<BlockHeader>,
}

// SAFETY: the count is atomic; bytes are written only through the only reference, whose uniqueness is
// observed with acquire ordering after the other references' release.
unsafe impl Send for BlockRef {}
// SAFETY: as above; a shared `BlockRef` only reads.
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

    /// One of the two words that the user of the block keeps with it; shared by all references.
    #[inline]
    pub(super) fn note(&self, index: usize) -> u32 {
        self.header().notes[index].load(Ordering::Relaxed)
    }

    /// Sets such a word.
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

    /// `len` bytes of the payload from `at`.
    ///
    /// # Safety
    /// `at + len` is at most the block's capacity.
    #[inline]
    pub(super) unsafe fn slice(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= self.capacity());
        self.header().accesses.read();
        // SAFETY: the caller promises that `at` lies within the payload.
        let from = unsafe { self.payload().add(at) };
        // SAFETY: so do the `len` bytes behind it, which are initialised, and no thread writes them while
        // `self` is borrowed: writers need `&mut` to the only reference.
        unsafe { std::slice::from_raw_parts(from, len) }
    }

    /// `len` bytes of the payload from `at`, to be written.
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
        // SAFETY: so do the `len` initialised bytes behind it; `self` is the only reference and is
        // borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(from, len) }
    }

    /// Writes `bytes` at `at` although transmit queues may refer to the block: for packet headers, whose
    /// bytes are no part of the message.
    ///
    /// # Safety
    /// `at + N` is at most the block's capacity.
    #[inline]
    pub(super) unsafe fn write_shared<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        debug_assert!(at + N <= self.capacity());
        // SAFETY: the caller promises that `at` lies within the payload.
        let to = unsafe { self.payload().add(at) };
        // SAFETY: so do the `N` bytes behind it. `&mut self` rules out a slice made by this reference;
        // the others are held by transmit queues of this thread, which keep raw addresses for a device
        // or the kernel and make no slices.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), N) };
    }

    /// Another reference, for a queue that reads.
    #[inline]
    pub(super) fn share(&self) -> Self {
        let before = self.header().refs.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "too many references to one msgbuf");
        Self { header: self.header }
    }

    /// Gives a block that belongs to no pool to `home`, if its memory can go back there: not if the pool
    /// has an arena of its own.
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
    pub(super) fn is_homeless(&self) -> bool {
        self.header().home.is_none()
    }

    /// Whether this is the only reference and the block belongs to `home`.
    #[inline]
    pub(super) fn is_idle(&self, home: &Arc<Home>) -> bool {
        let ours = self.header().home.as_ref().is_some_and(|own| Arc::ptr_eq(own, home));
        ours && self.is_unique()
    }

    /// The idle block, if this is the last reference and the block belongs to `home`.
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
        // Cloned, because the block may be freed before `give_back` is done with its home.
        let home = self.header().home.clone();
        match home {
            Some(home) => home.give_back(block),
            None => drop(block),
        }
    }
}

#[cfg(all(test, loom))]
mod schedules;
