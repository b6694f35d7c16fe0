//! The system's allocator, counting what this thread asks of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a thread has allocated so far; changes of size count as allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Allocated {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

thread_local! {
    /// Without a destructor and without an initialiser, so that the allocator may use it at any time.
    static ALLOCATED: Cell<Allocated> = const { Cell::new(Allocated { count: 0, bytes: 0 }) };
}

impl Allocated {
    /// By this thread, since it began.
    pub(crate) fn now() -> Self {
        ALLOCATED.get()
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { count: self.count - before.count, bytes: self.bytes - before.bytes }
    }
}

fn note(size: usize) {
    let Allocated { count, bytes } = ALLOCATED.get();
    ALLOCATED.set(Allocated { count: count + 1, bytes: bytes + size as u64 });
}

/// To be the program's allocator.
pub(crate) struct Counting;

// SAFETY: every method is the system allocator's, and counting touches a thread-local cell only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted() {
        let before = Allocated::now();
        drop(std::hint::black_box(vec![1u8; 1_000]));
        assert_eq!(Allocated::now().since(before), Allocated { count: 1, bytes: 1_000 });
    }
}
