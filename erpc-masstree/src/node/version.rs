//! A node's version and lock, in one word.
//!
//! Readers take no lock. A reader waits until nobody changes the node, reads the version, reads the
//! node, and reads the version again. If it is the same, no writer has changed the node in between
//! (Mao et al.; Boehm, "Can seqlocks get along with programming language memory
//! models?", MSPC'12).
//!
//! A change that one atomic store publishes, such as a new entry in a free slot, leaves the version
//! as it is. Such a writer holds the lock, but does not disturb readers.

use crate::mutants::mutant;
use crate::sync::{AtomicU64, Backoff, Ordering, fence};

/// A writer holds the lock.
const LOCKED: u64 = 1;
/// The node is being changed in more than one step. Only the holder of the lock sets this.
const DIRTY: u64 = 2;
/// The node has left the tree for ever.
const DELETED: u64 = 4;
/// Constant: a border node; otherwise an interior node.
const BORDER: u64 = 8;
/// The other bits count the changes.
const STEP: u64 = 16;

/// A version as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(u64);

impl Version {
    #[inline]
    pub(crate) fn is_border(self) -> bool {
        self.0 & BORDER != 0
    }

    #[inline]
    pub(crate) fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }

    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }
}

/// The word.
#[derive(Debug)]
pub(crate) struct VersionWord(AtomicU64);

impl VersionWord {
    pub(crate) fn new(is_border: bool) -> Self {
        Self(AtomicU64::new(if is_border { BORDER } else { 0 }))
    }

    /// The word of a node whose maker holds its lock.
    pub(crate) fn locked(is_border: bool) -> Self {
        Self(AtomicU64::new(LOCKED | if is_border { BORDER } else { 0 }))
    }

    /// The version once nobody changes the node. What the caller reads after this is at least as
    /// new.
    #[inline]
    pub(crate) fn stable(&self) -> Version {
        let mut backoff = Backoff::new();
        loop {
            let version = self.0.load(Ordering::Acquire);
            if version & DIRTY == 0 {
                return Version(version);
            }
            backoff.wait();
        }
    }

    /// Whether all that the caller has read since it got this version belongs to it.
    #[inline]
    pub(crate) fn is_still(&self, version: Version) -> bool {
        if mutant!(ValidationSkipped) {
            return true;
        }
        // Pairs with the fence of `begin`: if a read before this saw a change, the load below sees
        // the bit DIRTY or a later version.
        fence(Ordering::Acquire);
        (self.0.load(Ordering::Relaxed) ^ version.0) & !LOCKED == 0
    }

    /// Waits for the lock and takes it.
    pub(crate) fn lock(&self) {
        let mut backoff = Backoff::new();
        loop {
            let version = self.0.load(Ordering::Relaxed);
            if version & LOCKED == 0 {
                let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
                if self.0.compare_exchange_weak(version, version | LOCKED, taken, not).is_ok() {
                    return;
                }
            }
            backoff.wait();
        }
    }

    /// The version, to the holder of the lock.
    #[inline]
    pub(crate) fn current(&self) -> Version {
        Version(self.0.load(Ordering::Relaxed))
    }

    /// Makes readers wait, and those who have begun to read fail, until `end` or `release`. The
    /// caller holds the lock.
    pub(crate) fn begin(&self) {
        let version = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(version & (LOCKED | DIRTY), LOCKED);
        self.0.store(version | DIRTY, Ordering::Relaxed);
        // No store after this is seen before the bit is.
        fence(Ordering::Release);
    }

    /// Ends a change. The caller keeps the lock.
    pub(crate) fn end(&self) {
        let version = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(version & (LOCKED | DIRTY), LOCKED | DIRTY);
        self.0.store((version & !DIRTY).wrapping_add(STEP), Ordering::Release);
    }

    /// Ends the change that takes the node out of the tree. The caller keeps the lock.
    pub(crate) fn end_deleted(&self) {
        let version = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(version & (LOCKED | DIRTY), LOCKED | DIRTY);
        self.0.store((version & !DIRTY | DELETED).wrapping_add(STEP), Ordering::Release);
    }

    /// Ends the change, if there is one, and releases the lock.
    #[inline]
    pub(crate) fn release(&self) {
        let version = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(version & LOCKED, LOCKED);
        let step = if version & DIRTY == 0 { 0 } else { STEP };
        self.0.store((version & !(LOCKED | DIRTY)).wrapping_add(step), Ordering::Release);
    }
}
