//! What shall go wrong, and what did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::lock;
#[cfg(doc)]
use super::{Faulty, MIN_DATAGRAM};

/// What may happen to the packets of one direction. Each chance is drawn on its own for every packet,
/// from 0 (never, the default) to 1 (always).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    pub(super) drop: f64,
    pub(super) duplicate: f64,
    pub(super) reorder: f64,
    pub(super) span: u32,
    pub(super) corrupt: f64,
    pub(super) truncate: f64,
}

impl Faults {
    /// No faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The packet is lost.
    #[must_use]
    pub fn drop(mut self, chance: f64) -> Self {
        self.drop = chance;
        self
    }

    /// The packet arrives twice.
    #[must_use]
    pub fn duplicate(mut self, chance: f64) -> Self {
        self.duplicate = chance;
        self
    }

    /// The packet is overtaken by 1 to `span` later ones. It waits no longer than 16 bursts or flushes,
    /// nor longer than until its endpoint goes to sleep.
    #[must_use]
    pub fn reorder(mut self, chance: f64, span: u32) -> Self {
        (self.reorder, self.span) = (chance, span);
        self
    }

    /// One bit of the packet is flipped.
    #[must_use]
    pub fn corrupt(mut self, chance: f64) -> Self {
        self.corrupt = chance;
        self
    }

    /// The packet loses some of its end, at least a byte.
    #[must_use]
    pub fn truncate(mut self, chance: f64) -> Self {
        self.truncate = chance;
        self
    }
}

/// The faults of both directions, and the seed that decides when they act.
///
/// What is sent in packets over [`MIN_DATAGRAM`] bytes is dropped and duplicated only: it lies in a
/// msgbuf of somebody else's. Wrap the receiver to delay or damage it; there all faults act on all
/// packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FaultPlan {
    pub(super) seed: u64,
    pub(super) rx: Faults,
    pub(super) tx: Faults,
}

impl FaultPlan {
    /// A plan without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, rx: Faults::none(), tx: Faults::none() }
    }

    /// Sets what happens to packets that are received.
    #[must_use]
    pub fn receiving(mut self, faults: Faults) -> Self {
        self.rx = faults;
        self
    }

    /// Sets what happens to packets that are sent.
    #[must_use]
    pub fn sending(mut self, faults: Faults) -> Self {
        self.tx = faults;
        self
    }

    /// Sets both directions alike; they are still decided independently.
    #[must_use]
    pub fn both(self, faults: Faults) -> Self {
        self.receiving(faults).sending(faults)
    }
}

/// How often each fault has acted in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Packets lost.
    pub dropped: u64,
    /// Packets that were passed on twice.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets cut short.
    pub truncated: u64,
}

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
pub struct FaultHandle(pub(super) Arc<Shared>);

impl FaultHandle {
    /// Puts another plan into effect from the next packet on, its seed included. Packets that are held
    /// back stay so.
    pub fn set_plan(&self, plan: FaultPlan) {
        *lock(&self.0.plan) = plan;
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// What has acted so far, under all plans.
    #[must_use]
    pub fn stats(&self) -> FaultStats {
        FaultStats { rx: self.0.rx.read(), tx: self.0.tx.read() }
    }
}

/// What a transport, its halves and its handles have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Mutex<FaultPlan>,
    /// Counts plans.
    pub(super) version: AtomicU64,
    pub(super) rx: Counters,
    pub(super) tx: Counters,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) dropped: AtomicU64,
    pub(super) duplicated: AtomicU64,
    pub(super) reordered: AtomicU64,
    pub(super) corrupted: AtomicU64,
    pub(super) truncated: AtomicU64,
}

impl Counters {
    fn read(&self) -> FaultCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FaultCounts {
            dropped: get(&self.dropped),
            duplicated: get(&self.duplicated),
            reordered: get(&self.reordered),
            corrupted: get(&self.corrupted),
            truncated: get(&self.truncated),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Shared {
    pub(super) fn new(plan: FaultPlan) -> Self {
        Self {
            plan: Mutex::new(plan),
            version: AtomicU64::new(0),
            rx: Counters::default(),
            tx: Counters::default(),
        }
    }
}
