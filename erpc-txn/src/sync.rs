//! Synchronization primitives: those of std, or with `--cfg loom` those of loom, a model checker.
//!
//! Code whose state several threads share imports from here. Loom runs a test under every schedule
//! and with every value that the memory model allows a load to return, up to a limited number of
//! preemptions. These tests are in modules named `schedules`. `.ci/loom` runs them.

#[cfg(not(loom))]
pub(crate) use ordinary::*;

#[cfg(loom)]
pub(crate) use model::*;

#[cfg(not(loom))]
mod ordinary {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::Arc;

    pub(crate) mod atomic {
        pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
    }

    /// Memory that loom cannot observe. The code reports each access, and under loom the test fails
    /// if two accesses race.
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

        /// Reports that the memory is written or freed.
        #[inline]
        pub(crate) fn write(&self) {}
    }
}

#[cfg(loom)]
mod model {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::Arc;

    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
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
}
