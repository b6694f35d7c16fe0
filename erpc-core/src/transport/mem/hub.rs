//! The network: which ports there are, and how a ring between two of them comes to be.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::barrier::Barrier;
use super::parker::{Parker, lock};
use super::queues::{Incoming, Outgoing};
use super::ring::ring;
use super::{MemConfig, MemRoute};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::transport::MAX_BURST;

/// The ports of a hub by number.
#[derive(Default)]
pub(super) struct Ports {
    by_number: Mutex<HashMap<u32, Arc<Port>>>,
}

impl Ports {
    /// A port with the lowest number that is free, or with the wanted one; `None` if there is none.
    pub(super) fn open(&self, wanted: Option<u32>, config: MemConfig) -> Option<Arc<Port>> {
        let mut ports = lock(&self.by_number);
        let is_free =
            |number: &u32| (1..=MemRoute::MAX).contains(number) && !ports.contains_key(number);
        let number = match wanted {
            Some(number) => Some(number).filter(is_free),
            // One of the first `len + 1` numbers is free.
            None => (1..=MemRoute::MAX).find(is_free),
        }?;
        let port = Arc::new(Port::new(MemRoute::new(number), config));
        ports.insert(number, Arc::clone(&port));
        Some(port)
    }

    /// The port with that route, if there is one now.
    pub(super) fn find(&self, route: MemRoute) -> Option<Arc<Port>> {
        lock(&self.by_number).get(&route.number()).map(Arc::clone)
    }

    /// Takes a port out of the network and tells the ports that send to it.
    pub(super) fn close(&self, port: &Port) {
        lock(&self.by_number).remove(&port.route.number());
        port.close();
    }
}

/// What is shared of a port. Rings are not in here; each belongs to its two ends.
pub(super) struct Port {
    route: MemRoute,
    config: MemConfig,
    barrier: Barrier,
    parker: Parker,
    /// Counts what happened to the set of rings that lead here: new ones, senders that went.
    changes: AtomicU32,
    /// Receiving ends that the owner has not fetched yet; `None` once the port is closed.
    arrivals: Mutex<Option<Vec<Incoming>>>,
}

impl Port {
    fn new(route: MemRoute, config: MemConfig) -> Self {
        Self {
            route,
            config,
            barrier: Barrier::of_process(),
            parker: Parker::new(),
            changes: AtomicU32::new(0),
            arrivals: Mutex::new(Some(Vec::new())),
        }
    }

    pub(super) fn route(&self) -> MemRoute {
        self.route
    }

    pub(super) fn config(&self) -> MemConfig {
        self.config
    }

    /// Longest datagram between this port and `other`.
    pub(super) fn path_datagram(&self, other: &Self) -> usize {
        self.config.datagram().min(other.config.datagram())
    }

    /// A ring from `self` to `to`; `None` if `to` is closed or there is no memory.
    pub(super) fn connect(&self, to: &Arc<Self>) -> Option<Outgoing> {
        // A slot is given back a burst after its packet was read and perhaps answered, so that many
        // more may be on their way than the receiver has promised room for.
        let slots = to.config.ring_entries() + MAX_BURST as u32;
        let (producer, consumer) = ring(slots, self.path_datagram(to))?;
        lock(&to.arrivals).as_mut()?.push(Incoming::new(self.route, consumer));
        to.note_change();
        Some(Outgoing::new(producer, Arc::clone(to)))
    }

    /// Lets the owner look at its rings anew. A thread that calls this, and then publishes to one of them,
    /// is sure that the owner learns of the ring no later than of the packet.
    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.parker.ring(self.barrier);
    }

    /// A number that changes with the set of rings.
    #[inline]
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// The receiving ends of rings that are new since the last call.
    pub(super) fn take_arrivals(&self) -> Vec<Incoming> {
        lock(&self.arrivals).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the port has an owner.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.parker.is_open()
    }

    /// Tells the owner that there are new packets; `false` if there is no owner any more.
    #[inline]
    pub(super) fn notify(&self) -> bool {
        self.parker.ring(self.barrier)
    }

    /// Ends the owner's sleep, or its next one.
    pub(super) fn wake(&self) {
        self.parker.wake(self.barrier);
    }

    /// The owner's sleep.
    pub(super) fn park(&self, timeout: Option<Duration>, is_ready: impl Fn() -> bool) {
        self.parker.park(self.barrier, timeout, is_ready);
    }

    fn close(&self) {
        self.parker.close();
        // Dropped here, in case their senders keep the port.
        let unfetched = lock(&self.arrivals).take();
        drop(unfetched);
    }
}
