//! Datagrams between endpoints of one process, through shared memory.
//!
//! A [`MemHub`] is the network, a [`MemTransport`] an endpoint's port to it. Between every two ports
//! that talk lies a ring per direction, made when the first packet is sent; a packet is copied into the
//! ring by its sender and read in place by its receiver, at some 10 ns for a small one. Nothing
//! is locked and no system is called while both sides are awake.
//!
//! For tests, for measuring the protocol without a network, and for threads that call each other.
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

/// Some round trips between two busy loops. An endpoint whose thread the scheduler has stopped looks like one
/// that has lost packets, which then costs one packet sent again.
const MIN_RTO: Duration = Duration::from_micros(50);

/// Two loops that look into each other's rings by turns, with what is in them to handle in between: several hundred small
/// packets. They wait for a processor, not for a network, and a session that is made slower for that stays behind, for pacing
/// costs the same processor's time.
const RTT_NOISE: Duration = Duration::from_micros(50);

/// A network inside of a process. Clones are the same network.
#[derive(Clone, Default)]
pub struct MemHub {
    ports: Arc<Ports>,
}

impl MemHub {
    /// A network without ports.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new port with the lowest number that is free; the first is 1.
    ///
    /// # Panics
    /// If all [`MemRoute::MAX`] numbers are taken.
    #[must_use]
    pub fn port(&self, config: MemConfig) -> MemTransport {
        let Some(port) = self.ports.open(None, config) else {
            panic!("a memory network has at most {} ports", MemRoute::MAX);
        };
        MemTransport::new(port, &self.ports)
    }

    /// A new port with that number, for example that of one which is gone.
    ///
    /// # Errors
    /// [`PortTaken`] if there is such a port, or can be none.
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

/// The number of a port is taken, or out of `1..=MemRoute::MAX`.
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

/// How a port is made.
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
    /// 4,096 bytes of payload per packet. Raised to [`MIN_DATAGRAM`], lowered to 1 MiB.
    ///
    /// Two ports exchange what both can take. Memory of a ring that carries large datagrams is this
    /// times the entries; a ring that carries only small ones uses 192 bytes per entry.
    #[must_use]
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.max_datagram = bytes.clamp(MIN_DATAGRAM, 1 << 20);
        self
    }

    /// Packets that the port has room for, in all and of each sender. Default 512; within 32 to 65,536.
    ///
    /// More entries let peers have more packets under way; a ring's slots are used in turn, so they also
    /// take more of the cache.
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
    /// Largest number of a port: they are numbered as UDP's are, so that [`Route::with_port`] reaches all.
    pub const MAX: u32 = u16::MAX as u32;

    /// The route to port `number`, whether there is one or not.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
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

    /// Endpoints in memory are not strangers: each counts as a host of its own.
    fn host(&self) -> u64 {
        self.0.into()
    }
}

/// An endpoint's port to a [`MemHub`]. May move to another thread; is used by one at a time.
///
/// When it is dropped, what others send to it is counted as dropped at their side, and what it sent
/// still arrives.
pub struct MemTransport {
    rx: MemRx,
    tx: MemTx,
    port: Arc<Port>,
    ports: Arc<Ports>,
}

impl MemTransport {
    fn new(port: Arc<Port>, ports: &Arc<Ports>) -> Self {
        Self {
            rx: MemRx::new(Arc::clone(&port)),
            tx: MemTx::new(Arc::clone(&port), Arc::clone(ports)),
            port,
            ports: Arc::clone(ports),
        }
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
            steer: 0,
            // Nothing lies between two ports but memory.
            integrity: true,
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
        // Each pair of ports has rings of its own: no packets of others are in the way.
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
