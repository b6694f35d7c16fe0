//! Access to a faulty transport from other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(doc)]
use super::Faulty;
use super::{FaultCounts, FaultPlan};
use crate::clock;
use crate::time::Instant;

/// How often each fault has acted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultStats {
    /// For received packets.
    pub rx: FaultCounts,
    /// For sent packets.
    pub tx: FaultCounts,
}

/// Changes the plan of a [`Faulty`] transport and reads its counters, from any thread.
#[derive(Clone, Debug)]
pub struct FaultHandle(pub(super) Arc<FaultState>);

impl FaultHandle {
    /// Replaces the plan, its seed included, from the next packet on. The new plan's outages
    /// are relative to now. Packets that are already held back keep their delays.
    pub fn set_plan(&self, plan: FaultPlan) {
        *lock(&self.0.plan) = (plan, clock::now());
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// The counts under all plans so far, as of the transport's last burst or doorbell.
    #[must_use]
    pub fn stats(&self) -> FaultStats {
        *lock(&self.0.stats)
    }
}

/// State shared by a transport and its handles.
#[derive(Debug)]
pub(super) struct FaultState {
    /// The plan and when it took effect.
    plan: Mutex<(FaultPlan, Instant)>,
    /// Number of times the plan was replaced.
    version: AtomicU64,
    stats: Mutex<FaultStats>,
}

impl FaultState {
    pub(super) fn new(plan: FaultPlan) -> Self {
        Self {
            plan: Mutex::new((plan, clock::now())),
            version: AtomicU64::new(0),
            stats: Mutex::default(),
        }
    }

    /// Changes whenever the plan changes.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The plan, and when it took effect.
    pub(super) fn plan(&self) -> (FaultPlan, Instant) {
        lock(&self.plan).clone()
    }

    pub(super) fn publish(&self, stats: FaultStats) {
        *lock(&self.stats) = stats;
    }
}

/// Locks, and ignores poisoning: a panic elsewhere does not invalidate the value.
pub(super) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
