//! Synchronization primitives: those of std, or those of a model checker instead.
//!
//! Modules whose state several threads share import atomics, locks, threads and raw memory from
//! here. In an ordinary build these are std's, and [`Witness`] is empty. With `--cfg loom` they are
//! loom's. Loom runs a test under every schedule, and with every value that the memory model allows
//! a load to return, up to a limited number of preemptions. `.ci/loom` runs these tests. They are
//! in modules named `schedules` beside the code that they check.
//!
//! Limits of these tests:
//!
//! * `Arc` is std's and trusted, except for the `Arc` of a pool's home.
//! * `membarrier(2)` is modelled as a full fence on both sides.
//! * A lock and a condition variable replace the transport's eventfd.
//! * The clock ([`clock`](crate::clock)) stands still, so timeouts and timers never expire. A clock
//!   that runs would let a schedule take other steps when loom repeats it.
//! * Loom allows a store of another thread between the two halves of a read-modify-write
//!   (<https://github.com/tokio-rs/loom/issues/254>), so a test can fail without a bug.
//!   A variable that threads change at the same time is therefore changed either only by stores or
//!   only by read-modify-writes.
//! * Loom's search is incomplete: it compares an access only with the last access to the same
//!   variable. If that is a load of the same thread, loom omits orders of the access and earlier
//!   accesses of other threads.
//!
//! So trust a test only after it has failed with broken code.

#[cfg(not(loom))]
pub(crate) use ordinary::*;

#[cfg(loom)]
pub(crate) use model::*;

/// Keeps data that one thread writes out of the cache lines that other threads use. Aligned to two
/// lines, because of adjacent-line prefetchers.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

#[cfg(not(loom))]
mod ordinary {
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub(crate) mod atomic {
        pub(crate) use std::sync::atomic::{
            AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
        };
    }

    pub(crate) mod alloc {
        pub(crate) use std::alloc::{alloc, alloc_zeroed, dealloc};
    }

    pub(crate) mod thread {
        pub(crate) use std::thread::{Builder, JoinHandle, current};
    }

    /// Represents memory that loom cannot observe: bytes and plain fields behind raw pointers. The
    /// code reports each access, and under loom the test fails if two accesses race.
    #[derive(Debug)]
    pub(crate) struct Witness;

    impl Witness {
        #[inline]
        pub(crate) fn new() -> Self {
            Self
        }

        /// Reports a read of the memory.
        #[inline]
        pub(crate) fn read(&self) {}

        /// Reports that the memory is written, freed, or passed to a thread that may do either.
        #[inline]
        pub(crate) fn write(&self) {}
    }
}

#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub(crate) mod alloc {
        pub(crate) use loom::alloc::{alloc, alloc_zeroed, dealloc};
    }

    pub(crate) mod thread {
        pub(crate) use loom::thread::{Builder, JoinHandle, current};
    }

    /// The checking version of the ordinary `Witness`.
    #[derive(Debug)]
    pub(crate) struct Witness(loom::cell::UnsafeCell<()>);

    impl Witness {
        pub(crate) fn new() -> Self {
            Self(loom::cell::UnsafeCell::new(()))
        }

        #[track_caller]
        pub(crate) fn read(&self) {
            self.0.with(|_| ());
        }

        #[track_caller]
        pub(crate) fn write(&self) {
            self.0.with_mut(|_| ());
        }
    }

    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

        loom::lazy_static! {
            /// Models the total order of all sequentially consistent accesses.
            static ref TOTAL_ORDER: AtomicU32 = AtomicU32::new(0);
        }

        /// Called before an access that loads. Loom treats `SeqCst` accesses as `AcqRel` and so
        /// loses their purpose: if two threads each store and then load the other's variable, at
        /// least one sees the other's store. Each access therefore also modifies one common
        /// variable, with release after a store and with acquire before a load. This restores that
        /// guarantee, and only if each of the four accesses is `SeqCst`.
        ///
        /// However, the common variable gives more order than real `SeqCst` accesses do. In the
        /// model, a thread that loads any variable sees all that other threads wrote before their
        /// earlier stores to any other variable. So loom does not find a race on memory in code
        /// that relies on this order.
        fn before_load(order: Ordering) {
            if order == Ordering::SeqCst {
                TOTAL_ORDER.fetch_add(0, Ordering::Acquire);
            }
        }

        /// Called after an access that stores.
        fn after_store(order: Ordering) {
            if order == Ordering::SeqCst {
                TOTAL_ORDER.fetch_add(0, Ordering::Release);
            }
        }

        macro_rules! with_total_order {
            ($name:ident, $value:ty, $($modify:ident),*) => {
                /// Loom's type with the guarantee of `SeqCst`.
                #[derive(Debug)]
                pub(crate) struct $name(loom::sync::atomic::$name);

                impl $name {
                    pub(crate) fn new(value: $value) -> Self {
                        Self(loom::sync::atomic::$name::new(value))
                    }

                    #[track_caller]
                    pub(crate) fn load(&self, order: Ordering) -> $value {
                        before_load(order);
                        self.0.load(order)
                    }

                    #[track_caller]
                    pub(crate) fn store(&self, value: $value, order: Ordering) {
                        self.0.store(value, order);
                        after_store(order);
                    }

                    $(
                        #[track_caller]
                        pub(crate) fn $modify(&self, value: $value, order: Ordering) -> $value {
                            before_load(order);
                            let before = self.0.$modify(value, order);
                            after_store(order);
                            before
                        }
                    )*
                }
            };
        }

        with_total_order!(AtomicU8, u8, fetch_or, fetch_and);
        with_total_order!(AtomicBool, bool, swap);
    }
}
