//! What other threads see of a faulty transport.

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
    /// On packets received.
    pub rx: FaultCounts,
    /// On packets sent.
    pub tx: FaultCounts,
}

/// Changes the plan of a [`Faulty`] transport and reads its counters, from any thread.
#[derive(Clone, Debug)]
pub struct FaultHandle(pub(super) Arc<FaultState>);

impl FaultHandle {
    /// Puts another plan into effect from the next packet on, its seed included; the time of its outages
    /// begins now. Packets that are held back stay so for as long as they were to.
    pub fn set_plan(&self, plan: FaultPlan) {
        *lock(&self.0.plan) = (plan, clock::now());
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// What has acted so far under all plans, as of the transport's last burst or doorbell.
    #[must_use]
    pub fn stats(&self) -> FaultStats {
        *lock(&self.0.stats)
    }
}

/// What a transport and its handles have in common.
#[derive(Debug)]
pub(super) struct FaultState {
    /// The plan and when it took effect.
    plan: Mutex<(FaultPlan, Instant)>,
    /// Counts plans.
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

    /// Changes when there is another plan.
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

/// A lock that only one thread at a time has a use for; a panic elsewhere does not spoil it.
pub(super) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
