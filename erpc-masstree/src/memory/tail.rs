//! The rest of a key that is alone with its slice, and its value, in one allocation.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use super::{Guard, Word};
use crate::sync::AtomicPtr;

/// Lies before the bytes.
#[repr(C)]
struct Head {
    /// The value's word, which writers replace.
    value: AtomicPtr<()>,
    length: usize,
    #[cfg(loom)]
    freed: std::sync::atomic::AtomicBool,
}

/// The bytes of a key after the slice, and the value. The bytes never change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'g> {
    head: NonNull<Head>,
    guard: PhantomData<&'g Head>,
}

impl<'g> Tail<'g> {
    pub(crate) fn allocate(bytes: &[u8], value: Word, _: &'g Guard) -> Self {
        let layout = layout(bytes.len());
        // SAFETY: the layout has the size of `Head` at least, so it is not empty.
        let block = unsafe { alloc(layout) };
        let Some(head) = NonNull::new(block.cast::<Head>()) else { handle_alloc_error(layout) };
        let content = Head {
            value: value.atomic(),
            length: bytes.len(),
            #[cfg(loom)]
            freed: Default::default(),
        };
        // SAFETY: the allocation begins with a `Head`, is aligned for it, and nobody knows it.
        unsafe { head.write(content) };
        let tail = Self { head, guard: PhantomData };
        // SAFETY: behind the `Head`, the allocation has room for the bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), tail.start(), bytes.len()) };
        tail
    }

    #[inline]
    pub(crate) fn word(self) -> Word {
        Word(self.head.as_ptr().cast())
    }

    /// The tail that this word leads to.
    ///
    /// # Safety
    ///
    /// [`Tail::word`] has made the word, and since the guard is held there was a moment at which
    /// the tail was not retired.
    #[inline]
    pub(crate) unsafe fn follow(word: Word, _: &'g Guard) -> Self {
        // SAFETY: the word was a tail's pointer, says the caller, which is never null.
        Self { head: unsafe { NonNull::new_unchecked(word.0.cast()) }, guard: PhantomData }
    }

    /// The bytes of the key after the slice.
    #[inline]
    pub(crate) fn bytes(self) -> &'g [u8] {
        let length = self.head().length;
        // SAFETY: `allocate` has written so many bytes there. They never change, and are freed
        // after the guard `'g` is gone.
        unsafe { slice::from_raw_parts(self.start(), length) }
    }

    #[inline]
    pub(crate) fn value(self) -> Word {
        Word::load(&self.head().value)
    }

    /// Replaces the value. The caller holds the lock of the node.
    pub(crate) fn set_value(self, value: Word) {
        value.store(&self.head().value);
    }

    /// Frees the memory, but not the value, after the last of the present guards.
    ///
    /// # Safety
    ///
    /// No node holds the tail's word any more, and nobody else retires it.
    pub(crate) unsafe fn retire(self, guard: &Guard) {
        let word = self.word();
        // SAFETY: freed once, says the caller.
        let free = move || unsafe { free(word) };
        #[cfg(loom)]
        let freed = &raw const self.head().freed;
        // SAFETY: the rules hold, says the caller. Any thread may free bytes.
        unsafe {
            guard.defer(
                #[cfg(loom)]
                freed,
                free,
            );
        }
    }

    /// Frees the memory, but not the value, now.
    ///
    /// # Safety
    ///
    /// Nobody else can reach it, and this is called once.
    pub(crate) unsafe fn free(self) {
        // SAFETY: the caller's promise.
        unsafe { free(self.word()) };
    }

    #[inline]
    fn head(&self) -> &'g Head {
        // SAFETY: `allocate` has made the `Head`. It is freed after the guard `'g` is gone, and all
        // that changes in it is atomic.
        let head = unsafe { self.head.as_ref() };
        #[cfg(loom)]
        assert!(!head.freed.load(std::sync::atomic::Ordering::Relaxed), "use after free");
        head
    }

    /// Where the bytes begin.
    #[inline]
    fn start(self) -> *mut u8 {
        // SAFETY: the allocation goes on to the end of the `Head` at least.
        unsafe { self.head.as_ptr().add(1) }.cast()
    }
}

/// # Safety
///
/// The word is a tail's, nobody uses it any more, and this is called once.
unsafe fn free(word: Word) {
    let head = word.0.cast::<Head>();
    // SAFETY: the `Head` is still there, says the caller.
    let layout = layout(unsafe { (*head).length });
    // SAFETY: `allocate` has written the `Head`, and this is called once.
    unsafe { head.drop_in_place() };
    // SAFETY: `allocate` has used this layout.
    unsafe { dealloc(head.cast(), layout) };
}

fn layout(bytes: usize) -> Layout {
    let size = size_of::<Head>() + bytes;
    // A key has at most `MAX_KEY` bytes.
    Layout::from_size_align(size, align_of::<Head>()).expect("a short allocation")
}
