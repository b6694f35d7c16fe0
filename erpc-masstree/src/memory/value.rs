//! Values of a tree: numbers in the nodes, or boxes.

use std::ptr;

use super::{Guard, Word, prefetch_lines};

/// What a tree can hold: `u64`, which lies in the node itself, or `Box<T>`, which readers borrow
/// until their guard is dropped.
///
/// No other type can implement it.
pub trait Value: Sized + Send + Sync + 'static + sealed::Stored {
    /// What readers get: the number, or `&T`.
    type Ref<'g>: Copy;

    /// Reads the value that a word holds.
    ///
    /// # Safety
    ///
    /// `into_word` has made the word. The value is not freed while the guard is held.
    #[doc(hidden)]
    unsafe fn read(word: sealed::Raw, guard: &Guard) -> Self::Ref<'_>;

    /// Brings the value into the cache.
    #[doc(hidden)]
    fn prefetch(value: Self::Ref<'_>);
}

/// Keeps other crates from implementing [`Value`].
pub(crate) mod sealed {
    use super::Word;

    /// A word, in the signatures of a public trait.
    #[derive(Debug)]
    pub struct Raw(pub(super) Word);

    pub trait Stored {
        /// The word that a node holds.
        fn into_word(self) -> Raw;

        /// Frees the value.
        ///
        /// # Safety
        ///
        /// `into_word` has made the word, nobody uses it any more, and this is called once.
        unsafe fn free(word: Raw);
    }
}

impl sealed::Stored for u64 {
    #[inline]
    fn into_word(self) -> sealed::Raw {
        sealed::Raw(Word(ptr::without_provenance_mut(self as usize)))
    }

    unsafe fn free(_: sealed::Raw) {}
}

impl Value for u64 {
    type Ref<'g> = Self;

    #[inline]
    unsafe fn read(word: sealed::Raw, _: &Guard) -> Self {
        word.0.0.addr() as Self
    }

    #[inline]
    fn prefetch(_: Self) {}
}

impl<T: Send + Sync + 'static> sealed::Stored for Box<T> {
    fn into_word(self) -> sealed::Raw {
        sealed::Raw(Word(Self::into_raw(self).cast()))
    }

    unsafe fn free(word: sealed::Raw) {
        // SAFETY: `into_word` has made the word of a box, and it is freed once, says the caller.
        drop(unsafe { Self::from_raw(word.0.0.cast()) });
    }
}

impl<T: Send + Sync + 'static> Value for Box<T> {
    type Ref<'g> = &'g T;

    #[inline]
    unsafe fn read(word: sealed::Raw, _: &Guard) -> &T {
        // SAFETY: `into_word` has made the word of a box, and the box is not freed while the
        // guard is held, says the caller. Nobody has a mutable reference to a value.
        unsafe { &*word.0.0.cast::<T>() }
    }

    #[inline]
    fn prefetch(value: &T) {
        prefetch_lines(value, size_of::<T>().min(128));
    }
}

impl Word {
    #[inline]
    pub(crate) fn of_value<V: Value>(value: V) -> Self {
        value.into_word().0
    }

    /// The value that this word holds.
    ///
    /// # Safety
    ///
    /// [`Word::of_value`] has made the word from a `V`, and since the guard is held there was a
    /// moment at which that value was not retired.
    #[inline]
    pub(crate) unsafe fn value<V: Value>(self, guard: &Guard) -> V::Ref<'_> {
        // SAFETY: the caller's promise; the result borrows the guard.
        unsafe { V::read(sealed::Raw(self), guard) }
    }

    /// Frees the value after the last of the present guards.
    ///
    /// # Safety
    ///
    /// [`Word::of_value`] has made the word from a `V`. No node holds it any more, and nobody else
    /// retires it.
    pub(crate) unsafe fn retire_value<V: Value>(self, guard: &Guard) {
        if !std::mem::needs_drop::<V>() {
            return;
        }
        let word = self;
        // SAFETY: the value has left the tree, and it is freed once, says the caller.
        let free = move || unsafe { V::free(sealed::Raw(word)) };
        #[cfg(loom)]
        static UNCHECKED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        // SAFETY: the rules hold, says the caller. Values are `Send`, so any thread may free them.
        unsafe {
            guard.defer(
                #[cfg(loom)]
                &raw const UNCHECKED,
                free,
            );
        }
    }

    /// Frees the value now.
    ///
    /// # Safety
    ///
    /// [`Word::of_value`] has made the word from a `V`, nobody else can reach it, and this is
    /// called once.
    pub(crate) unsafe fn free_value<V: Value>(self) {
        // SAFETY: the caller's promise.
        unsafe { V::free(sealed::Raw(self)) };
    }
}
