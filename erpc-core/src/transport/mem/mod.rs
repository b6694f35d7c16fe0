//! Datagrams between endpoints of one process, through shared memory.
//!
//! A [`MemHub`] is the network, a [`MemTransport`] an endpoint's port to it. Between every two
//! ports that communicate lies a ring per direction, created when the first packet is sent. The
//! sender copies a packet into the ring and the receiver reads it in place, in about 10 ns for a
//! small one. While both sides are awake there are no locks and no system calls.
//!
//! Used for tests, for measuring the protocol without a network, and for calls between threads.
//!
//! ```
//! use erpc_core::transport::mem::{MemConfig, MemHub};
//! use erpc_core::transport::{RxQueue, Transport, TxQueue};
//!
//! let hub = MemHub::new();
//! let (mut alice, mut bob) = (hub.port(MemConfig::default()), hub.port(MemConfig::default()));
//!
//! let (_, tx) = alice.split();
//! tx.push_bytes(&bob.local_route(), b"hello");
//! tx.flush();
//!
//! let (rx, _) = bob.split();
//! assert_eq!(rx.burst(), 1);
//! assert_eq!((rx.packet(0).route, rx.packet(0).bytes), (alice.local_route(), &b"hello"[..]));
//! ```

mod barrier;
mod hub;
mod parker;
mod queues;
mod ring;
#[cfg(all(test, loom))]
mod schedules;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hub::{Port, Ports};
pub use queues::{MemRx, MemTx};

use super::{
    Capabilities, ChargeModel, Link, MAX_BURST, MIN_DATAGRAM, Path, Route, Transport,
    TransportStats, TxQueue, Waker,
};
use crate::wire::HEADER_LEN;

/// This time is a few round trips between two busy loops. If the scheduler stops an endpoint's
/// thread for longer, packets to this endpoint seem lost, which costs one retransmitted packet.
const MIN_RTO: Duration = Duration::from_micros(50);

/// Two event loops poll each other's rings in turn, and each handles up to several hundred small
/// packets between two polls. This delay is processor time, not network queueing. Slowing a session
/// down because of it would make the session fall further behind, because pacing costs processor
/// time, too.
const RTT_NOISE: Duration = Duration::from_micros(50);

/// A network inside one process. Clones share the network.
#[derive(Clone, Default)]
pub struct MemHub {
    ports: Arc<Ports>,
}

impl MemHub {
    /// An empty network, without ports.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a port with the lowest free number; the first is 1.
    ///
    /// # Panics
    /// If all [`MemRoute::MAX`] numbers are in use.
    #[must_use]
    pub fn port(&self, config: MemConfig) -> MemTransport {
        let Some(port) = self.ports.open(None, config) else {
            panic!("a memory network has at most {} ports", MemRoute::MAX);
        };
        MemTransport::new(port, &self.ports)
    }

    /// Opens a port with the given number, for example the number of a closed port.
    ///
    /// # Errors
    /// [`PortTaken`] if the number is in use or out of range.
    pub fn port_at(&self, route: MemRoute, config: MemConfig) -> Result<MemTransport, PortTaken> {
        let port = self.ports.open(Some(route.number()), config).ok_or(PortTaken(route))?;
        Ok(MemTransport::new(port, &self.ports))
    }
}

impl fmt::Debug for MemHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemHub")
    }
}

/// The number of a port is in use, or out of `1..=MemRoute::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortTaken(pub MemRoute);

impl fmt::Display for PortTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "port {} is in use, or not within 1 to {}; let the hub choose one",
            self.0,
            MemRoute::MAX
        )
    }
}

impl std::error::Error for PortTaken {}

/// Settings of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemConfig {
    max_datagram: usize,
    entries: u32,
}

impl MemConfig {
    /// 4,096 bytes of payload and a header.
    const MAX_DATAGRAM: usize = HEADER_LEN + 4_096;
    const ENTRIES: u32 = 512;

    /// Largest datagram that the port sends and receives, in bytes, header included. Default 4,120:
    /// 4,096 bytes of payload per packet. Clamped to [`MIN_DATAGRAM`] to 1 MiB.
    ///
    /// Two ports exchange datagrams of at most the smaller of their limits. A ring uses 192 bytes
    /// per entry. If a ring carries datagrams that do not fit these bytes, each entry also uses as
    /// many bytes as that smaller limit, rounded up.
    #[must_use]
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.max_datagram = bytes.clamp(MIN_DATAGRAM, 1 << 20);
        self
    }

    /// Capacity of the port's receive queue, in packets: of each sender's ring, and for all senders
    /// together. Default 512; clamped to 32 to 65,536.
    ///
    /// With more entries, peers may have more packets in flight. A ring uses its slots in turn, so
    /// more entries also use more of the cache.
    #[must_use]
    pub fn entries(mut self, packets: u32) -> Self {
        self.entries = packets.clamp(32, 65_536);
        self
    }

    fn datagram(&self) -> usize {
        self.max_datagram
    }

    fn ring_entries(&self) -> u32 {
        self.entries
    }
}

impl Default for MemConfig {
    fn default() -> Self {
        Self { max_datagram: Self::MAX_DATAGRAM, entries: Self::ENTRIES }
    }
}

/// The number of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MemRoute(u32);

impl MemRoute {
    /// Largest number of a port. Ports are numbered like UDP's, so that [`Route::with_port`]
    /// reaches all.
    pub const MAX: u32 = u16::MAX as u32;

    /// The route to port `number`, whether or not that port exists.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The port's number.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for MemRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mem:{}", self.0)
    }
}

impl Route for MemRoute {
    fn to_bytes(&self, out: &mut [u8; 32]) -> usize {
        let bytes = self.0.to_le_bytes();
        out[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    }

    fn with_port(&self, port: u16) -> Self {
        Self(port.into())
    }

    fn port(&self) -> u16 {
        self.0 as u16
    }

    /// Each port counts as a separate host: the ports of one process trust each other.
    fn host(&self) -> u64 {
        self.0.into()
    }
}

/// An endpoint's port to a [`MemHub`]. It may move to another thread.
///
/// When a transport is dropped, the packets that it has sent still arrive. Packets sent to it later
/// are lost, and their senders count them in [`TransportStats::tx_dropped`].
pub struct MemTransport {
    rx: MemRx,
    tx: MemTx,
    port: Arc<Port>,
    ports: Arc<Ports>,
    steer: u8,
}

impl MemTransport {
    fn new(port: Arc<Port>, ports: &Arc<Ports>) -> Self {
        Self {
            rx: MemRx::new(Arc::clone(&port)),
            tx: MemTx::new(Arc::clone(&port), Arc::clone(ports)),
            port,
            ports: Arc::clone(ports),
            steer: 0,
        }
    }

    /// As member `steer` of a listening group.
    pub(crate) fn steered(mut self, steer: u8) -> Self {
        self.steer = steer;
        self
    }
}

impl Transport for MemTransport {
    type Route = MemRoute;
    type Rx = MemRx;
    type Tx = MemTx;

    #[inline]
    fn split(&mut self) -> (&mut MemRx, &mut MemTx) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        let config = self.port.config();
        Capabilities {
            max_datagram: config.datagram(),
            burst: MAX_BURST,
            inline: config.datagram(),
            charge: ChargeModel::Ring,
            rx_capacity: config.ring_entries() * ChargeModel::RING_ENTRY,
            min_rto: MIN_RTO,
            rtt_noise: RTT_NOISE,
            steer: self.steer,
            // Packets stay in memory, so nothing damages them.
            integrity: true,
            bundles: false,
        }
    }

    fn local_route(&self) -> MemRoute {
        self.port.route()
    }

    fn path(&mut self, peer: &MemRoute) -> Path {
        let datagram = self
            .ports
            .find(*peer)
            .map_or(self.port.config().datagram(), |peer| self.port.path_datagram(&peer));
        // Each pair of ports has its own rings, so packets between other ports do not delay
        // those of this pair.
        Path { datagram, link: Link::Local }
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        self.port.park(timeout, || self.rx.is_ready());
    }

    fn waker(&self) -> Waker {
        let port = Arc::clone(&self.port);
        Waker::new(move || port.wake())
    }

    fn stats(&self) -> TransportStats {
        let mut stats = TransportStats::default();
        self.rx.add_stats(&mut stats);
        self.tx.add_stats(&mut stats);
        stats
    }
}

impl Drop for MemTransport {
    fn drop(&mut self) {
        self.tx.flush();
        self.ports.close(&self.port);
    }
}

impl fmt::Debug for MemTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemTransport").field(&self.port.route()).finish()
    }
}
