//! Lets a port's owner sleep, and tells senders whether the owner sleeps.

use std::sync::PoisonError;
use std::time::Duration;

use super::barrier::Barrier;
use crate::clock;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Locks, and ignores poisoning: no holder leaves the value in an inconsistent state.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of a port's owner, as senders see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum OwnerState {
    Awake = 0,
    Asleep = 1,
    /// Permanently gone.
    Closed = 2,
}

/// One thread, the owner, sleeps; any thread wakes it.
pub(super) struct Parker {
    /// An [`OwnerState`].
    state: AtomicU8,
    /// True if the owner was woken and has not seen it yet.
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

    /// Called by the owner: blocks until woken, or for at most `timeout`. Does not block if
    /// `is_ready` or if a wake came before.
    pub(super) fn park(
        &self,
        barrier: Barrier,
        timeout: Option<Duration>,
        is_ready: impl Fn() -> bool,
    ) {
        let deadline = timeout.map(|timeout| clock::now() + timeout);
        let mut guard = lock(&self.mutex);
        self.state.store(OwnerState::Asleep as u8, Ordering::Relaxed);
        barrier.heavy();
        // `is_ready` sees everything published before the barrier. A sender that publishes after
        // the barrier sees the state and calls `rouse`, which waits for the mutex.
        if !is_ready() {
            while !self.woken.load(Ordering::Relaxed) {
                let left = deadline.map(|deadline| deadline - clock::now());
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
        // A swap with Acquire, not a store: if the swap clears a wake, the owner sees everything
        // that the waker wrote before.
        self.woken.swap(false, Ordering::Acquire);
    }

    /// Called by a sender after it has published: wakes the owner if it sleeps. Returns `false` if
    /// the owner is permanently gone.
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

    /// Ends the current or the next [`Parker::park`].
    pub(super) fn wake(&self, barrier: Barrier) {
        // Only the caller that sets the flag checks whether the owner sleeps.
        if !self.woken.swap(true, Ordering::Release) {
            self.ring(barrier);
        }
    }

    fn rouse(&self) {
        // The owner holds the mutex from before it sets `Asleep` until it waits, so it cannot miss
        // the notification.
        let guard = lock(&self.mutex);
        if self.state.load(Ordering::Relaxed) != OwnerState::Asleep as u8 {
            return;
        }
        // One sender wakes the owner; the others need not, until it sleeps again.
        self.state.store(OwnerState::Awake as u8, Ordering::Relaxed);
        // A swap, not a store: a store would end the release sequence of `wake` calls that found
        // the flag set, and the owner would not see what their callers wrote before.
        self.woken.swap(true, Ordering::Release);
        drop(guard);
        self.condvar.notify_one();
    }

    /// Whether the owner exists.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OwnerState::Closed as u8
    }

    /// Tells senders that the owner will not read any more.
    pub(super) fn close(&self) {
        self.state.store(OwnerState::Closed as u8, Ordering::Release);
    }
}
