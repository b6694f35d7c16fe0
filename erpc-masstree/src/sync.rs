//! Synchronization primitives: those of std, or with `--cfg loom` those of loom, a model checker.
//!
//! Loom runs a test under every schedule and with every value that the memory model allows a load to
//! return, up to a limited number of preemptions. These tests are in `schedules`. `.ci/loom` runs
//! them.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// Waits for another thread, with more patience at each call.
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Spins before the first yield to other threads. A lock is held for well under a microsecond,
    /// unless its holder has lost its processor.
    #[cfg(not(loom))]
    const SPINS: u32 = 100;
    /// Waits after which a thread of a test build gives up. No protocol needs so many.
    #[cfg(erpc_mutants)]
    const LIMIT: u32 = 10_000;

    #[inline]
    pub(crate) fn new() -> Self {
        Self(0)
    }

    #[cfg(not(loom))]
    #[cold]
    pub(crate) fn wait(&mut self) {
        self.count();
        if self.0 < Self::SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }

    /// Loom runs another thread, because no other value appears while this one spins.
    #[cfg(loom)]
    pub(crate) fn wait(&mut self) {
        self.count();
        loom::thread::yield_now();
    }

    fn count(&mut self) {
        self.0 = self.0.saturating_add(1);
        #[cfg(erpc_mutants)]
        assert!(self.0 < Self::LIMIT, "waits for ever");
    }
}
