//! An endpoint on a port, alone or in a group.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::config::{DpdkConfig, DpdkError};
use super::device::Device;
use super::group::{Member, Steering};
use super::rx::DpdkRx;
use super::tx::{COPY_LIMIT, DpdkTx};
use crate::clock;
use crate::random::random_key;
use crate::time::Instant;
use crate::transport::frame::{FrameDrop, FrameDrops};
use crate::transport::udp::UdpRoute;
use crate::transport::{
    Arena, Capabilities, ChargeModel, Link, MAX_BURST, NoMarks, Path, Transport, TransportStats,
    Waker,
};

/// A few round trips between busy loops, and the pause of a loop that another thread delays.
const MIN_RTO: Duration = Duration::from_micros(500);
/// As for the memory transport: two loops that poll in turn.
const RTT_NOISE: Duration = Duration::from_micros(50);
/// Bounds of a pause.
const PAUSE: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];
/// The part of the time since the last packet that a pause lasts. So pauses lengthen round trips by
/// a small part only, and congestion control does not take them for queues in the network.
const PAUSE_PART: u32 = 8;

/// An endpoint on a port, alone or in a group. It may move to another thread before it is used.
///
/// Start DPDK first, with [`init`](super::init).
pub struct DpdkTransport {
    rx: DpdkRx,
    tx: DpdkTx,
    device: Arc<Device>,
    index: usize,
    /// Packets that had arrived when the endpoint last paused, and when the first pause after the
    /// last packet began.
    received: u64,
    idle_since: Instant,
}

impl DpdkTransport {
    /// Starts the port for one endpoint. The link may come up later.
    ///
    /// # Errors
    /// [`DpdkError`]. Its message says how to fix the problem.
    pub fn open(config: &DpdkConfig) -> Result<Self, DpdkError> {
        let count = DpdkError::Endpoints { count: 1, udp_port: config.udp_port };
        Self::open_group(config, 1)?.pop().ok_or(count)
    }

    /// Starts the port for several endpoints, 1 to 64. Endpoint `i` receives at the configured UDP
    /// port plus `i`. Each has a pair of queues of its own if the port has as many. The port is
    /// stopped when the last endpoint is dropped.
    ///
    /// An endpoint that polls a shared queue hands datagrams for others over, so it needs no
    /// endpoint but itself to run.
    ///
    /// # Errors
    /// [`DpdkError`]. Its message says how to fix the problem.
    pub fn open_group(config: &DpdkConfig, endpoints: usize) -> Result<Vec<Self>, DpdkError> {
        let refused = || DpdkError::Endpoints { count: endpoints, udp_port: config.udp_port };
        let count = u16::try_from(endpoints).ok().filter(|count| (1..=64).contains(count));
        let count = count.ok_or_else(refused)?;
        let udp_port = match config.udp_port {
            0 => 32_768 + (random_key().0 % 28_232) as u16 - count,
            port => port,
        };
        udp_port.checked_add(count - 1).ok_or_else(refused)?;
        let device = Arc::new(Device::open(config, udp_port, count)?);
        let member = |index| Self {
            rx: DpdkRx::new(Arc::clone(&device), index),
            tx: DpdkTx::new(Arc::clone(&device), index),
            device: Arc::clone(&device),
            index,
            received: 0,
            idle_since: Instant::ZERO,
        };
        Ok((0..endpoints).map(member).collect())
    }

    /// How datagrams reach this endpoint.
    #[must_use]
    pub fn steering(&self) -> Steering {
        self.device.steering
    }

    /// Descriptors for datagrams to this endpoint.
    fn share(&self) -> u32 {
        let (queues, endpoints) = (self.device.rx_locks.len(), self.device.members.len());
        let descriptors = u32::from(self.device.descriptors);
        descriptors * queues.min(endpoints) as u32 / endpoints as u32
    }

    /// Whether the device reads long packets in place ([`DpdkConfig::zero_copy`]).
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.device.arena.is_some()
    }

    /// Flushes that the device did not complete within a few milliseconds, because it does not
    /// send. The messages that it has not read yet stay reserved until it has.
    #[must_use]
    pub fn stuck_flushes(&self) -> u64 {
        self.tx.stuck_flushes()
    }

    /// Whether the port's link is up. While it is down, sent datagrams are dropped and counted
    /// ([`TransportStats::tx_dropped`]) once the port's queue is full. Asks the driver; call it a few
    /// times per second at most.
    #[must_use]
    pub fn is_link_up(&self) -> bool {
        self.device.is_up()
    }

    pub(super) fn member(&self) -> &Member {
        &self.device.members[self.index]
    }

    /// Received frames that were dropped, by reason.
    #[must_use]
    pub fn frame_drops(&self) -> FrameDrops {
        self.rx.drops()
    }
}

impl Transport for DpdkTransport {
    type Route = UdpRoute;
    type Rx = DpdkRx;
    type Tx = DpdkTx;

    const WAKES_FOR_PACKETS: bool = false;

    #[inline]
    fn split(&mut self) -> (&mut DpdkRx, &mut DpdkTx) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_datagram: self.device.max_datagram,
            burst: MAX_BURST,
            inline: if self.device.arena.is_some() { COPY_LIMIT } else { self.device.max_datagram },
            charge: ChargeModel::Ring,
            rx_capacity: self.share() * ChargeModel::RING_ENTRY,
            min_rto: MIN_RTO,
            rtt_noise: RTT_NOISE,
            steer: self.index as u8,
            // UDP's checksum, or the user has said that the link damages nothing.
            integrity: true,
            bundles: true,
        }
    }

    fn arena(&self) -> Option<Arc<dyn Arena>> {
        self.device.arena.clone().map(|arena| Arc::new(arena) as _)
    }

    fn local_route(&self) -> UdpRoute {
        let ip = self.device.interface.networks[0].address;
        SocketAddr::new(ip, self.device.udp_port + self.index as u16).into()
    }

    fn path(&mut self, _peer: &UdpRoute) -> Path {
        let link = self.device.link().map_or(Link::Unknown, Link::Rate);
        Path { datagram: self.device.max_datagram, link }
    }

    fn enable_ecn(&mut self) -> Result<(), NoMarks> {
        self.rx.enable_marks();
        self.tx.enable_ecn();
        Ok(())
    }

    /// Ports have no interrupts here, so this pauses for at most a millisecond.
    fn wait(&mut self, timeout: Option<Duration>) {
        self.rx.housekeeping();
        let (packets, _) = self.rx.received();
        let now = clock::now();
        if std::mem::replace(&mut self.received, packets) != packets {
            self.idle_since = now;
        }
        let pause = ((now - self.idle_since) / PAUSE_PART).clamp(PAUSE[0], PAUSE[1]);
        let pause = timeout.map_or(pause, |timeout| timeout.min(pause));
        let member = self.member();
        member.bell.pause(pause, || member.inbox.has_item());
    }

    fn waker(&self) -> Waker {
        let bell = Arc::clone(&self.member().bell);
        Waker::new(move || bell.ring())
    }

    fn stats(&self) -> TransportStats {
        let ((rx_packets, rx_bytes), [tx_packets, tx_bytes, dropped]) =
            (self.rx.received(), self.tx.counters());
        // The counters of the port belong to no endpoint. The first reports them, so that sums are
        // right.
        let of_port = |count| if self.index == 0 { count } else { 0 };
        let overflow = self.member().overflow.load(Ordering::Relaxed);
        TransportStats {
            rx_packets,
            rx_bytes,
            tx_packets: tx_packets + of_port(self.device.late_packets.load(Ordering::Relaxed)),
            tx_bytes: tx_bytes + of_port(self.device.late_bytes.load(Ordering::Relaxed)),
            rx_overflow: of_port(self.device.losses()) + overflow,
            tx_dropped: dropped + of_port(self.device.unresolved.load(Ordering::Relaxed)),
            rx_truncated: self.rx.drops().of(FrameDrop::Oversized),
            link_downs: of_port(self.device.link_downs.load(Ordering::Relaxed)),
            link_ups: of_port(self.device.link_ups.load(Ordering::Relaxed)),
        }
    }
}

impl fmt::Debug for DpdkTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpdkTransport")
            .field("address", &self.local_route())
            .finish_non_exhaustive()
    }
}
