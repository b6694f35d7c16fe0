//! What threads share state with: std's primitives, or those of a model checker in their place.
//!
//! Modules that other threads reach take atomics, locks, threads and raw memory from here. An ordinary
//! build gets std's own; [`Witness`] is nothing at all. With `--cfg loom` they are loom's, which runs
//! a test under every schedule, and with every value that the memory model lets a load return, up to
//! a number of preemptions. `.ci/loom` runs these tests; they are called `schedules` and stand beside
//! what they check.
//!
//! What they do not prove: `Arc` is std's, and trusted, but for that of a pool's home;
//! `membarrier(2)` is a full fence on both sides; the transport's eventfd is not in it, a lock and a
//! condition take its place; time-outs never pass. Nor is loom's search complete: it compares an access
//! only with the last one of the same variable, and leaves out orders that a thread's own load hides.
//! So a model counts once it was seen to fail with the code broken.

#[cfg(not(loom))]
pub(crate) use ordinary::*;

#[cfg(loom)]
pub(crate) use model::*;

#[cfg(not(loom))]
mod ordinary {
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub(crate) mod atomic {
        pub(crate) use std::sync::atomic::{
            AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
        };
    }

    pub(crate) mod alloc {
        pub(crate) use std::alloc::{alloc_zeroed, dealloc};
    }

    pub(crate) mod thread {
        pub(crate) use std::thread::{Builder, JoinHandle, current};
    }

    /// Stands for memory that loom cannot watch by itself: bytes and plain fields behind raw pointers.
    /// Told of each access, it fails the test if two of them race.
    #[derive(Debug)]
    pub(crate) struct Witness;

    impl Witness {
        #[inline]
        pub(crate) fn new() -> Self {
            Self
        }

        /// The memory is read.
        #[inline]
        pub(crate) fn read(&self) {}

        /// The memory is written, freed, or handed to a thread that may do either.
        #[inline]
        pub(crate) fn write(&self) {}
    }
}

#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub(crate) mod alloc {
        pub(crate) use loom::alloc::{alloc_zeroed, dealloc};
    }

    pub(crate) mod thread {
        pub(crate) use loom::thread::{Builder, JoinHandle, current};
    }

    /// See the ordinary one.
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
            /// The order of all sequentially consistent accesses.
            static ref TOTAL_ORDER: AtomicU32 = AtomicU32::new(0);
        }

        /// Before an access that loads. Loom takes `SeqCst` accesses for `AcqRel`, which loses what
        /// they are used for: of two threads that store, and then load what the other stored, one sees
        /// it. A modification that the access leaves (release) or finds (acquire) in one common
        /// variable restores that, and no more: each of the four accesses still has to be `SeqCst`.
        /// It does hide a race on other memory that is published by such accesses alone.
        fn before_load(order: Ordering) {
            if order == Ordering::SeqCst {
                TOTAL_ORDER.fetch_add(0, Ordering::Acquire);
            }
        }

        /// After an access that stores.
        fn after_store(order: Ordering) {
            if order == Ordering::SeqCst {
                TOTAL_ORDER.fetch_add(0, Ordering::Release);
            }
        }

        macro_rules! with_total_order {
            ($name:ident, $value:ty, $($modify:ident),*) => {
                /// Loom's, with what `SeqCst` means.
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
