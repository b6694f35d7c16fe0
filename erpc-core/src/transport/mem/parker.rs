//! Where a port's owner sleeps, and what others see of that.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::barrier::Barrier;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A lock that does not care whether a holder panicked: none leaves anything half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a sender finds a port's owner doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum OwnerState {
    Awake = 0,
    Asleep = 1,
    /// Gone for good.
    Closed = 2,
}

/// One owner sleeps, anybody wakes.
pub(super) struct Parker {
    /// A [`OwnerState`].
    state: AtomicU8,
    /// Someone called [`Parker::wake`] and the owner has not noticed.
    woken: AtomicBool,
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Parker {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU8::new(OwnerState::Awake as u8),
            woken: AtomicBool::new(false),
            mutex: Mutex::new(()),
            condvar: Condvar::new(),
        }
    }

    /// The owner's: blocks until woken, or for at most `timeout`; not at all if `is_ready` or a wake
    /// came before.
    pub(super) fn park(
        &self,
        barrier: Barrier,
        timeout: Option<Duration>,
        is_ready: impl Fn() -> bool,
    ) {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut guard = lock(&self.mutex);
        self.state.store(OwnerState::Asleep as u8, Ordering::Relaxed);
        barrier.heavy();
        // `is_ready` sees what was published before this line. A sender that publishes after it sees
        // the state, and calls `rouse`, which waits for the mutex.
        if !is_ready() {
            while !self.woken.load(Ordering::Relaxed) {
                let left =
                    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    break;
                }
                guard = match left {
                    Some(left) => {
                        self.condvar
                            .wait_timeout(guard, left)
                            .unwrap_or_else(PoisonError::into_inner)
                            .0
                    }
                    None => self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
                };
            }
        }
        self.state.store(OwnerState::Awake as u8, Ordering::Relaxed);
        drop(guard);
        // A swap, not a store: if this clears somebody's wake, then the owner now sees what led to it.
        self.woken.swap(false, Ordering::Acquire);
    }

    /// A sender's, after it published: wakes the owner if it sleeps. Returns `false` if the owner is
    /// gone for good.
    #[inline]
    pub(super) fn ring(&self, barrier: Barrier) -> bool {
        barrier.light();
        let state = self.state.load(Ordering::Relaxed);
        state == OwnerState::Awake as u8 || self.ring_slow(state)
    }

    #[cold]
    fn ring_slow(&self, state: u8) -> bool {
        if state == OwnerState::Asleep as u8 {
            self.rouse();
        }
        state != OwnerState::Closed as u8
    }

    /// Ends the present or the next [`Parker::park`].
    pub(super) fn wake(&self, barrier: Barrier) {
        // Swapped, so that callers after the first need not look whether the owner sleeps.
        if !self.woken.swap(true, Ordering::Release) {
            self.ring(barrier);
        }
    }

    fn rouse(&self) {
        // The owner holds the mutex from before it is asleep until it waits, so that it cannot miss the
        // notification.
        let guard = lock(&self.mutex);
        if self.state.load(Ordering::Relaxed) != OwnerState::Asleep as u8 {
            return;
        }
        // One sender wakes; those that come before the owner runs again need not.
        self.state.store(OwnerState::Awake as u8, Ordering::Relaxed);
        // Swapped: a store would hide from the owner what callers of `wake` did that found it set.
        self.woken.swap(true, Ordering::Release);
        drop(guard);
        self.condvar.notify_one();
    }

    /// Whether there is an owner.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OwnerState::Closed as u8
    }

    /// Tells senders that the owner will not look any more.
    pub(super) fn close(&self) {
        self.state.store(OwnerState::Closed as u8, Ordering::Release);
    }
}
