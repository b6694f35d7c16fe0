//! Arrays in memory of their own, which the operating system has zeroed.

use std::error::Error;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use zerocopy::FromZeros;

/// The size of a huge page, and where arrays begin that have at least as many bytes.
const HUGE: usize = 2 << 20;

/// The size of the smallest pages. All arrays begin at a multiple of it.
const PAGE: usize = 4096;

/// An array for the table of a store: its elements are 0 at first, and it has memory of its own.
///
/// An array of 2 MiB or more asks Linux for huge pages. With pages of 4 KiB, most reads of a table of
/// some 10 MB find no translation of the address in the processor's TLB, which costs as much as a
/// cache miss and is not hidden as well by a [prefetch](super::prefetch). Where Linux has no huge
/// pages to give, and on other systems, the pages are ordinary ones.
///
/// The memory is taken from the system when it is first used, page by page. A store that must not
/// wait for that later writes to each page at its start.
///
/// ```
/// use erpc_core::memory::ZeroedArray;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let counters = ZeroedArray::<AtomicU64>::new(1_000_000)?;
/// counters[4_711].fetch_add(1, Ordering::Relaxed);
/// assert_eq!(counters[4_711].load(Ordering::Relaxed), 1);
/// # Ok::<(), erpc_core::memory::OutOfMemory>(())
/// ```
pub struct ZeroedArray<T> {
    first: NonNull<T>,
    len: usize,
    pages: Pages,
}

/// The operating system has refused memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// How many bytes were asked for; `usize::MAX` if it was more than that.
    pub bytes: usize,
}

impl<T: FromZeros> ZeroedArray<T> {
    /// Nothing would drop the elements, and pages have this alignment.
    const ALLOWED: () = assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= PAGE);

    /// An array of `len` elements, all of whose bytes are 0. It begins at a multiple of 4,096, and of
    /// 2 MiB if it has at least as many bytes. `T` has no destructor and an alignment of at most
    /// 4,096, or this does not compile.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the operating system refuses the memory. Linux as a rule refuses only what
    /// is far more than the machine has, and ends the process when there are no more pages.
    pub fn new(len: usize) -> Result<Self, OutOfMemory> {
        let () = Self::ALLOWED;
        let bytes = len.checked_mul(size_of::<T>()).ok_or(OutOfMemory { bytes: usize::MAX })?;
        // No slice is longer.
        let is_possible = isize::try_from(bytes).is_ok();
        let pages =
            is_possible.then(|| Pages::new(bytes)).flatten().ok_or(OutOfMemory { bytes })?;
        Ok(Self { first: pages.first.cast(), len, pages })
    }
}

impl<T> Deref for ZeroedArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` has made room for `len` elements here, aligned to a page and of at most
        // `isize::MAX` bytes. They were zeroed, which is a valid `T`. They live as long as `self`,
        // which owns them and is borrowed.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for ZeroedArray<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

// SAFETY: the array owns its elements, as a `Box<[T]>` does, and any thread may free the pages.
unsafe impl<T: Send> Send for ZeroedArray<T> {}
// SAFETY: a shared array only gives shared references to its elements.
unsafe impl<T: Sync> Sync for ZeroedArray<T> {}

impl<T> Drop for ZeroedArray<T> {
    fn drop(&mut self) {
        // SAFETY: the elements need no drop, and no reference to them outlives `self`.
        unsafe { self.pages.free() };
    }
}

impl<T> fmt::Debug for ZeroedArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There may be millions of elements.
        f.debug_struct("ZeroedArray").field("len", &self.len).finish_non_exhaustive()
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the system refuses {} bytes of memory; choose a smaller size", self.bytes)
    }
}

impl Error for OutOfMemory {}

/// Zeroed pages.
struct Pages {
    first: NonNull<u8>,
    /// The mapping that they are part of, and its length.
    #[cfg(not(miri))]
    mapping: (NonNull<u8>, usize),
    #[cfg(miri)]
    layout: std::alloc::Layout,
}

#[cfg(not(miri))]
impl Pages {
    /// `None` if the operating system refuses them.
    fn new(bytes: usize) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

        let is_large = bytes >= HUGE;
        // A mapping has at least one byte, and begins at any page.
        let len = bytes.checked_add(if is_large { HUGE } else { 0 })?.max(1);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no other memory.
        let mapping =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
        let mapping = NonNull::new(mapping.ok()?.cast::<u8>())?;
        let skipped = if is_large { mapping.as_ptr().align_offset(HUGE) } else { 0 };
        // SAFETY: less than `HUGE` bytes of the mapping are skipped, so `bytes` are left.
        let first = unsafe { mapping.add(skipped) };
        #[cfg(target_os = "linux")]
        if is_large {
            use rustix::mm::{Advice, madvise};
            // SAFETY: the range is in the new mapping, and the advice does not change its contents.
            // It may be refused, which changes only how fast the pages are.
            let _ = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        Some(Self { first, mapping: (mapping, len) })
    }

    /// # Safety
    /// Nothing uses the pages after this.
    unsafe fn free(&mut self) {
        let (mapping, len) = self.mapping;
        // SAFETY: `new` has mapped exactly this range. If the kernel refuses, which it does only at its
        // limit of mappings, the pages leak.
        let _ = unsafe { rustix::mm::munmap(mapping.as_ptr().cast(), len) };
    }
}

/// Miri knows no mappings, only allocations.
#[cfg(miri)]
impl Pages {
    fn new(bytes: usize) -> Option<Self> {
        let align = if bytes >= HUGE { HUGE } else { PAGE };
        let layout = std::alloc::Layout::from_size_align(bytes.max(1), align).ok()?;
        // SAFETY: the layout has at least one byte.
        let first = unsafe { std::alloc::alloc_zeroed(layout) };
        Some(Self { first: NonNull::new(first)?, layout })
    }

    /// # Safety
    /// Nothing uses the pages after this.
    unsafe fn free(&mut self) {
        // SAFETY: `new` has allocated this memory with the same layout.
        unsafe { std::alloc::dealloc(self.first.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn arrays_of_all_sizes_are_zeroed_aligned_and_writable() {
        // The last has a huge page and a part of one.
        for len in [0, 1, 511, 512, 513, HUGE / 8 - 1, HUGE / 8, HUGE / 8 + 700] {
            let mut array = ZeroedArray::<u64>::new(len).expect("there is memory");
            let align = if len * 8 >= HUGE { HUGE } else { PAGE };
            assert_eq!(array.as_ptr().addr() % align, 0, "{len} elements");
            assert_eq!((array.len(), array.iter().max()), (len, array.first().map(|_| &0)));
            // Miri takes long for each one.
            let step = if cfg!(miri) { 509 } else { 1 };
            for at in (0..len).step_by(step).chain(len.checked_sub(1)) {
                array[at] = at as u64 + 1;
            }
            assert!((0..len).step_by(step).all(|at| array[at] == at as u64 + 1), "{len} elements");
        }
    }

    #[test]
    fn threads_share_an_array() {
        let array = ZeroedArray::<[AtomicU64; 8]>::new(100).expect("there is memory");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    array.iter().flatten().for_each(|word| {
                        word.fetch_add(1, Ordering::Relaxed);
                    })
                });
            }
        });
        assert!(array.iter().flatten().all(|word| word.load(Ordering::Relaxed) == 2));
    }

    #[test]
    fn more_memory_than_there_can_be_is_refused() {
        let error = |len| ZeroedArray::<u64>::new(len).expect_err("there is no such memory");
        assert_eq!(error(usize::MAX), OutOfMemory { bytes: usize::MAX });
        assert_eq!(error(usize::MAX / 8), OutOfMemory { bytes: usize::MAX / 8 * 8 });
        // More than the address space.
        #[cfg(not(miri))]
        assert_eq!(error(1 << 57), OutOfMemory { bytes: 1 << 60 });
        assert_eq!(
            error(1 << 61).to_string(),
            format!("the system refuses {} bytes of memory; choose a smaller size", usize::MAX)
        );
    }
}
