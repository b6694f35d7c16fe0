//! The transport of an endpoint in a virtual network.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::world::World;
use crate::client::Target;
use crate::transport::{
    Capabilities, ChargeModel, Link, MAX_BURST, Path, Route, RxPacket, RxQueue, Transport,
    TransportStats, TxPacket, TxQueue, Undelivered, Waker,
};

/// Largest datagram in bytes: that of an Ethernet frame.
const DATAGRAM: usize = 1_472;
/// Packets that a receive queue holds.
const ENTRIES: u32 = 4_096;
/// Floor of the retransmission timeout. Loops in virtual time never lag behind, so it can be short.
const MIN_RTO: Duration = Duration::from_millis(1);

/// The address of an endpoint in a [`VirtualNetwork`](super::VirtualNetwork). Each endpoint is a
/// host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VirtualRoute(pub(super) u16);

impl fmt::Display for VirtualRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "virtual:{}", self.0)
    }
}

impl Route for VirtualRoute {
    fn to_bytes(&self, out: &mut [u8; 32]) -> usize {
        out[..2].copy_from_slice(&self.0.to_le_bytes());
        2
    }

    fn with_port(&self, _: u16) -> Self {
        *self
    }

    fn port(&self) -> u16 {
        0
    }

    fn host(&self) -> u64 {
        self.0.into()
    }
}

impl Target<Self> for VirtualRoute {
    fn routes(&self) -> io::Result<Vec<Self>> {
        Ok(vec![*self])
    }

    fn name(&self) -> String {
        self.to_string()
    }
}

/// A packet that has arrived.
struct Arrived {
    from: VirtualRoute,
    bytes: Vec<u8>,
}

/// The network's end of a transport.
pub(super) struct Port {
    route: VirtualRoute,
    queue: RefCell<VecDeque<Arrived>>,
    reports: RefCell<VecDeque<Undelivered<VirtualRoute>>>,
    stats: Cell<TransportStats>,
    is_woken: Arc<AtomicBool>,
}

impl Port {
    pub(super) fn new(route: VirtualRoute) -> Self {
        Self {
            route,
            queue: RefCell::default(),
            reports: RefCell::default(),
            stats: Cell::default(),
            is_woken: Arc::default(),
        }
    }

    pub(super) fn route(&self) -> VirtualRoute {
        self.route
    }

    /// A packet arrives. A full queue drops it.
    pub(super) fn deliver(&self, from: VirtualRoute, bytes: Vec<u8>) {
        let mut queue = self.queue.borrow_mut();
        if bytes.len() > DATAGRAM {
            self.count(|stats| stats.rx_truncated += 1);
        } else if queue.len() >= ENTRIES as usize {
            self.count(|stats| stats.rx_overflow += 1);
        } else {
            queue.push_back(Arrived { from, bytes });
        }
    }

    /// A report of an undelivered packet arrives.
    pub(super) fn report(&self, report: Undelivered<VirtualRoute>) {
        self.reports.borrow_mut().push_back(report);
    }

    /// Whether a wait of the transport ends. Forgets that its waker was used.
    pub(super) fn ends_wait(&self) -> bool {
        self.is_woken.swap(false, Ordering::Relaxed)
            || !self.queue.borrow().is_empty()
            || !self.reports.borrow().is_empty()
    }

    fn count(&self, change: impl FnOnce(&mut TransportStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }
}

/// The transport of an endpoint in a [`VirtualNetwork`](super::VirtualNetwork).
pub struct VirtualTransport {
    port: Rc<Port>,
    world: Rc<World>,
    rx: VirtualRx,
    tx: VirtualTx,
}

impl VirtualTransport {
    pub(super) fn new(port: Rc<Port>, world: Rc<World>) -> Self {
        let rx = VirtualRx { port: Rc::clone(&port), lent: Vec::new() };
        let tx = VirtualTx { port: Rc::clone(&port), world: Rc::clone(&world) };
        Self { port, world, rx, tx }
    }
}

impl Transport for VirtualTransport {
    type Route = VirtualRoute;
    type Rx = VirtualRx;
    type Tx = VirtualTx;

    fn split(&mut self) -> (&mut VirtualRx, &mut VirtualTx) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_datagram: DATAGRAM,
            burst: MAX_BURST,
            inline: DATAGRAM,
            charge: ChargeModel::Ring,
            rx_capacity: ENTRIES * ChargeModel::RING_ENTRY,
            min_rto: MIN_RTO,
            rtt_noise: Duration::ZERO,
            steer: 0,
            // Faults damage packets.
            integrity: false,
            bundles: false,
        }
    }

    fn local_route(&self) -> VirtualRoute {
        self.port.route
    }

    /// No rate limits the network's links.
    fn path(&mut self, _: &VirtualRoute) -> Path {
        Path { datagram: DATAGRAM, link: Link::Local }
    }

    fn has_undelivered(&self) -> bool {
        !self.port.reports.borrow().is_empty()
    }

    fn next_undelivered(&mut self) -> Option<Undelivered<VirtualRoute>> {
        self.port.reports.borrow_mut().pop_front()
    }

    /// Runs the other endpoints of the network, and lets time pass.
    fn wait(&mut self, timeout: Option<Duration>) {
        self.world.wait(&self.port, timeout);
    }

    fn waker(&self) -> Waker {
        let is_woken = Arc::clone(&self.port.is_woken);
        Waker::new(move || is_woken.store(true, Ordering::Relaxed))
    }

    fn stats(&self) -> TransportStats {
        self.port.stats.get()
    }
}

impl Drop for VirtualTransport {
    fn drop(&mut self) {
        self.world.close(&self.port);
    }
}

impl fmt::Debug for VirtualTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VirtualTransport").field(&self.port.route).finish()
    }
}

/// The receiving half.
pub struct VirtualRx {
    port: Rc<Port>,
    lent: Vec<Arrived>,
}

impl RxQueue for VirtualRx {
    type Route = VirtualRoute;

    fn burst(&mut self) -> usize {
        let mut queue = self.port.queue.borrow_mut();
        let count = queue.len().min(MAX_BURST);
        self.lent.clear();
        self.lent.extend(queue.drain(..count));
        let bytes: usize = self.lent.iter().map(|packet| packet.bytes.len()).sum();
        self.port.count(|stats| {
            stats.rx_packets += count as u64;
            stats.rx_bytes += bytes as u64;
        });
        count
    }

    fn is_drained(&self) -> bool {
        self.lent.len() < MAX_BURST
    }

    fn packet(&self, index: usize) -> RxPacket<'_, VirtualRoute> {
        let packet = &self.lent[index];
        RxPacket { route: packet.from, bytes: &packet.bytes, marked: false }
    }
}

impl fmt::Debug for VirtualRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualRx").field("lent", &self.lent.len()).finish_non_exhaustive()
    }
}

/// The sending half. Packets leave when they are pushed.
pub struct VirtualTx {
    port: Rc<Port>,
    world: Rc<World>,
}

impl VirtualTx {
    fn send(&self, to: VirtualRoute, bytes: Vec<u8>) {
        self.port.count(|stats| {
            stats.tx_packets += 1;
            stats.tx_bytes += bytes.len() as u64;
        });
        self.world.send(self.port.route, to, bytes);
    }
}

impl TxQueue for VirtualTx {
    type Route = VirtualRoute;

    fn push_bytes(&mut self, route: &VirtualRoute, bytes: &[u8]) {
        self.send(*route, bytes.to_vec());
    }

    fn push(&mut self, route: &VirtualRoute, packet: TxPacket<'_>) {
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes);
        self.send(*route, bytes);
    }

    fn flush(&mut self) {}
}

impl fmt::Debug for VirtualTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualTx").field("route", &self.port.route).finish_non_exhaustive()
    }
}
