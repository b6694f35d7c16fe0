//! Nodes and layers as shared memory: references, links, words.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use super::Guard;
use crate::sync::{AtomicPtr, Ordering};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a word of a node holds a pointer or a number of 64 bits");

/// A node or a layer with its allocation.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Block<T> {
    value: T,
    /// Whether nobody may use it any more. It is not freed at once, so that the check can fail.
    #[cfg(loom)]
    freed: std::sync::atomic::AtomicBool,
}

/// Memory of the tree that stays valid while the guard `'g` is held.
///
/// Keeps the pointer of the allocation, unlike a Rust reference, so that the memory can be freed
/// through it.
pub(crate) struct Ref<'g, T> {
    block: NonNull<Block<T>>,
    guard: PhantomData<&'g T>,
}

impl<T> Clone for Ref<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<'_, T> {}

impl<T> PartialEq for Ref<'_, T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.block == other.block
    }
}

impl<T> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.block, f)
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `allocate` has made the block. It is freed after the guard `'g` is gone (rule 3),
        // and all that changes in it is atomic.
        let block = unsafe { self.block.as_ref() };
        #[cfg(loom)]
        assert!(!block.freed.load(std::sync::atomic::Ordering::Relaxed), "use after free");
        &block.value
    }
}

impl<'g, T: 'static> Ref<'g, T> {
    /// Allocates memory that no link leads to yet.
    pub(crate) fn allocate(value: T, _: &'g Guard) -> Self {
        let block = Block {
            value,
            #[cfg(loom)]
            freed: Default::default(),
        };
        Self { block: NonNull::from(Box::leak(Box::new(block))), guard: PhantomData }
    }

    /// The address, to prefetch.
    #[inline]
    pub(crate) fn address(self) -> *const T {
        self.block.as_ptr().cast_const().cast()
    }

    /// Frees the memory after the last of the present guards.
    ///
    /// # Safety
    ///
    /// No link leads to this memory any more, and nobody else retires it (rules 1 and 2).
    pub(crate) unsafe fn retire(self, guard: &Guard) {
        let block = self.block;
        // SAFETY: the memory is a box's, see `allocate`, and it is freed once, says the caller.
        let free = move || drop(unsafe { Box::from_raw(block.as_ptr()) });
        #[cfg(loom)]
        // SAFETY: the block is not freed yet.
        let freed = &raw const unsafe { block.as_ref() }.freed;
        // SAFETY: the rules hold, says the caller. Nodes and layers have only atomics and numbers,
        // so any thread may free them.
        unsafe {
            guard.defer(
                #[cfg(loom)]
                freed,
                free,
            );
        }
    }

    /// Frees the memory now.
    ///
    /// # Safety
    ///
    /// Nobody else can reach it, and this is called once.
    pub(crate) unsafe fn free(self) {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(self.block.as_ptr()) });
    }
}

/// A pointer to a node or a layer, which other threads follow.
pub(crate) struct Link<T>(AtomicPtr<Block<T>>);

impl<T> Link<T> {
    pub(crate) fn new(to: Option<Ref<'_, T>>) -> Self {
        Self(AtomicPtr::new(pointer(to)))
    }

    #[inline]
    pub(crate) fn load<'g>(&self, _: &'g Guard) -> Option<Ref<'g, T>> {
        // What a link leads to is not retired before the link is overwritten (rule 1), and the
        // guard keeps what is retired from now on.
        let block = NonNull::new(self.0.load(Ordering::Acquire))?;
        Some(Ref { block, guard: PhantomData })
    }

    #[inline]
    pub(crate) fn store(&self, to: Option<Ref<'_, T>>) {
        self.0.store(pointer(to), Ordering::Release);
    }
}

impl<T> fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

fn pointer<T>(to: Option<Ref<'_, T>>) -> *mut Block<T> {
    to.map_or(ptr::null_mut(), |to| to.block.as_ptr())
}

/// A word of a node: a child, a layer, a tail, or a value. The node knows which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word(pub(in crate::memory) *mut ());

impl Word {
    pub(crate) const NULL: Self = Self(ptr::null_mut());

    #[inline]
    pub(crate) fn of<T>(to: Ref<'_, T>) -> Self {
        Self(to.block.as_ptr().cast())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The node or layer that this word leads to.
    ///
    /// # Safety
    ///
    /// [`Word::of`] has made the word from a `Ref<T>`, and since the guard is held there was a
    /// moment at which that memory was not retired.
    #[inline]
    pub(crate) unsafe fn follow<'g, T>(self, _: &'g Guard) -> Ref<'g, T> {
        debug_assert!(!self.0.is_null());
        // SAFETY: the word was a `Ref`'s pointer, says the caller, which is never null.
        Ref { block: unsafe { NonNull::new_unchecked(self.0.cast()) }, guard: PhantomData }
    }

    #[inline]
    pub(crate) fn load(from: &AtomicPtr<()>) -> Self {
        Self(from.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn store(self, to: &AtomicPtr<()>) {
        to.store(self.0, Ordering::Release);
    }

    pub(crate) fn atomic(self) -> AtomicPtr<()> {
        AtomicPtr::new(self.0)
    }
}
