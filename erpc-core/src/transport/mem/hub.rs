//! The network: its ports, and the creation of rings between them.

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

/// The ports of a hub, by number.
#[derive(Default)]
pub(super) struct Ports {
    by_number: Mutex<HashMap<u32, Arc<Port>>>,
}

impl Ports {
    /// Opens a port with the `wanted` number, or with the lowest free one. `None` if that is not
    /// possible.
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

    /// The open port with that route.
    pub(super) fn find(&self, route: MemRoute) -> Option<Arc<Port>> {
        lock(&self.by_number).get(&route.number()).map(Arc::clone)
    }

    /// Removes a port from the network. Its senders then see that it is closed.
    pub(super) fn close(&self, port: &Port) {
        lock(&self.by_number).remove(&port.route.number());
        port.close();
    }
}

/// The shared part of a port. Rings are not included; each belongs to its two ends.
pub(super) struct Port {
    route: MemRoute,
    config: MemConfig,
    barrier: Barrier,
    parker: Parker,
    /// Number of changes to the set of rings that lead here: new rings, closed senders.
    changes: AtomicU32,
    /// Receiving ends that the owner has not fetched yet. `None` when the port is closed.
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

    /// Longest datagram between this port and `other`, in bytes.
    pub(super) fn path_datagram(&self, other: &Self) -> usize {
        self.config.datagram().min(other.config.datagram())
    }

    /// Creates a ring from `self` to `to`. `None` if `to` is closed or there is no memory.
    pub(super) fn connect(&self, to: &Arc<Self>) -> Option<Outgoing> {
        // The receiver reads the packets of a burst, and releases their slots only in a later
        // burst. Meanwhile the sender may get answers to these packets and send new ones. So the
        // ring has slots for one burst more than the receiver's capacity.
        let slots = to.config.ring_entries() + MAX_BURST as u32;
        let (producer, consumer) = ring(slots, self.path_datagram(to))?;
        lock(&to.arrivals).as_mut()?.push(Incoming::new(self.route, consumer));
        to.note_change();
        Some(Outgoing::new(producer, Arc::clone(to)))
    }

    /// Makes the owner update its list of rings. If a thread calls this before it publishes to a
    /// ring, the owner learns of the ring no later than of the packet.
    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.parker.ring(self.barrier);
    }

    /// A number that changes whenever the set of rings changes.
    #[inline]
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// The receiving ends of rings created since the last call.
    pub(super) fn take_arrivals(&self) -> Vec<Incoming> {
        lock(&self.arrivals).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the port's owner exists.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.parker.is_open()
    }

    /// Notifies the owner of new packets. `false` if the owner is gone.
    #[inline]
    pub(super) fn notify(&self) -> bool {
        self.parker.ring(self.barrier)
    }

    /// Ends the owner's current or next sleep.
    pub(super) fn wake(&self) {
        self.parker.wake(self.barrier);
    }

    /// Lets the owner sleep.
    pub(super) fn park(&self, timeout: Option<Duration>, is_ready: impl Fn() -> bool) {
        self.parker.park(self.barrier, timeout, is_ready);
    }

    fn close(&self) {
        self.parker.close();
        // The receiving ends are dropped here, because their senders may keep the port alive.
        let unfetched = lock(&self.arrivals).take();
        drop(unfetched);
    }
}
