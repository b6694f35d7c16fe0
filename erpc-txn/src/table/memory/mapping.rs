//! Zeroed memory from the operating system.
#![expect(unsafe_code, reason = "Mapping and unmapping memory.")]

use std::ptr::NonNull;

/// The size of a huge page. A table larger than one begins at such an address, and asks for huge
/// pages: with pages of 4 KiB, nearly every access to a large table misses the TLB.
const HUGE: usize = 2 << 20;

/// Memory that is 0 at first and is freed on drop.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    #[cfg(not(miri))]
    whole: (NonNull<u8>, usize),
}

// SAFETY: the mapping owns its memory, and any thread may free it.
unsafe impl Send for Mapping {}
// SAFETY: shared, it only gives its address and length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first byte, at a multiple of 64.
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(not(miri))]
impl Mapping {
    /// None if the operating system refuses the memory.
    pub(super) fn new(len: usize) -> Option<Self> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

        let slack = if len > HUGE { HUGE } else { 0 };
        let bytes = len.checked_add(slack)?.max(1);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no other memory.
        let whole =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let whole = NonNull::new(whole.ok()?.cast::<u8>())?;
        let skipped = if slack > 0 { whole.as_ptr().align_offset(HUGE) } else { 0 };
        // SAFETY: at most `slack` bytes of the mapping are skipped.
        let base = unsafe { whole.add(skipped) };
        if slack > 0 {
            // SAFETY: the range is in the new mapping. The advice does not change its contents.
            // Without huge pages the table works all the same, so an error is ignored.
            let _ = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Some(Self { base, len, whole: (whole, bytes) })
    }
}

#[cfg(not(miri))]
impl Drop for Mapping {
    fn drop(&mut self) {
        let (whole, bytes) = self.whole;
        // SAFETY: `new` mapped exactly this range, and no reference into it outlives `self`.
        // Unmapping a whole mapping cannot fail.
        let _ = unsafe { rustix::mm::munmap(whole.as_ptr().cast(), bytes) };
    }
}

/// Miri knows no mappings, only allocations.
#[cfg(miri)]
impl Mapping {
    pub(super) fn new(len: usize) -> Option<Self> {
        // SAFETY: the layout has at least one byte.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        Some(Self { base: NonNull::new(base)?, len })
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len.max(1), 64).expect("64 is a power of two")
    }
}

#[cfg(miri)]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` allocated this memory with the same layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.len)) };
    }
}
