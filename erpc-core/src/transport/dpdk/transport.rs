//! The transport of an endpoint on a port.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::config::{DpdkConfig, DpdkError};
use super::device::{Device, Seat};
use super::rx::DpdkRx;
use super::tx::DpdkTx;
use crate::clock;
use crate::random::random_key;
use crate::time::Instant;
use crate::transport::frame::{FrameDrop, FrameDrops};
use crate::transport::udp::UdpRoute;
use crate::transport::{
    Capabilities, ChargeModel, Link, MAX_BURST, NoMarks, Path, Transport, TransportStats, TxQueue,
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

/// A transport on a port, of which it has a pair of queues, or shares one with others of its group. It
/// may move to another thread before it is used.
///
/// Start DPDK first, with [`init`](super::init).
pub struct DpdkTransport {
    rx: DpdkRx,
    tx: DpdkTx,
    seat: Seat,
    is_closed: AtomicBool,
    /// Frames that had arrived when the endpoint last paused, and when the first pause after the
    /// last frame began.
    arrived: u64,
    idle_since: Instant,
    max_datagram: usize,
}

impl DpdkTransport {
    /// Starts the port, for one endpoint. Its link may come up later.
    ///
    /// # Errors
    /// [`DpdkError`]. Its message says how to fix the problem.
    pub fn open(config: &DpdkConfig) -> Result<Self, DpdkError> {
        let mut group = Self::open_group(config, config.udp_port, 1)?;
        Ok(group.remove(0))
    }

    /// Starts the port, for `endpoints` endpoints, 1 to 64. Endpoint `i` receives at the UDP port
    /// `udp_port + i`; with 0, the first port is random. [`DpdkConfig::udp_port`] is ignored.
    ///
    /// Each endpoint has a pair of queues of the device, as far as it has as many
    /// ([`DpdkConfig::queues`]). The device spreads received packets over its queues (RSS), and the
    /// endpoint that receives a packet of another hands it over. The loops of the endpoints run on
    /// any threads, and may stand still: then their siblings poll their queues.
    ///
    /// # Errors
    /// [`DpdkError`]. Its message says how to fix the problem.
    pub fn open_group(
        config: &DpdkConfig,
        udp_port: u16,
        endpoints: usize,
    ) -> Result<Vec<Self>, DpdkError> {
        let udp_port = match udp_port {
            0 => 32_768 + (random_key().0 % 28_232) as u16,
            port => port,
        };
        if !(1..=64).contains(&endpoints) || usize::from(udp_port) + endpoints > 65_536 {
            return Err(DpdkError::Endpoints { endpoints, udp_port });
        }
        let ip = if config.network.address.is_ipv4() { 20 } else { 40 };
        let transport = |seat: Seat| Self {
            rx: DpdkRx::new(seat.clone()),
            tx: DpdkTx::new(seat.clone()),
            seat,
            is_closed: AtomicBool::new(false),
            arrived: 0,
            idle_since: Instant::ZERO,
            max_datagram: usize::from(config.mtu) - ip - 8,
        };
        Ok(Device::open(config, udp_port, endpoints)?.into_iter().map(transport).collect())
    }

    /// Frees the place at the port; the port itself with the last one. The transport must not be
    /// used any more.
    pub(crate) fn close(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            self.seat.device.close_one();
        }
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

    #[inline]
    fn split(&mut self) -> (&mut DpdkRx, &mut DpdkTx) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_datagram: self.max_datagram,
            burst: MAX_BURST,
            inline: self.max_datagram,
            charge: ChargeModel::Ring,
            rx_capacity: self.seat.device.capacity() * ChargeModel::RING_ENTRY,
            min_rto: MIN_RTO,
            rtt_noise: RTT_NOISE,
            // At most 64 endpoints.
            steer: self.seat.index as u8,
            // UDP's checksum, or the user has said that the link damages nothing.
            integrity: true,
        }
    }

    fn local_route(&self) -> UdpRoute {
        let ip = self.seat.device.interface.networks[0].address;
        SocketAddr::new(ip, self.seat.udp_port).into()
    }

    fn path(&mut self, _peer: &UdpRoute) -> Path {
        let link = self.seat.device.link().map_or(Link::Unknown, Link::Rate);
        Path { datagram: self.max_datagram, link }
    }

    fn enable_ecn(&mut self) -> Result<(), NoMarks> {
        self.rx.enable_marks();
        self.tx.enable_ecn();
        Ok(())
    }

    /// Ports have no interrupts here, so this pauses for at most a millisecond.
    fn wait(&mut self, timeout: Option<Duration>) {
        self.rx.housekeeping();
        self.rx.pauses();
        let now = clock::now();
        if std::mem::replace(&mut self.arrived, self.rx.arrived()) != self.rx.arrived() {
            self.idle_since = now;
        }
        let pause = ((now - self.idle_since) / PAUSE_PART).clamp(PAUSE[0], PAUSE[1]);
        let pause = timeout.map_or(pause, |timeout| timeout.min(pause));
        self.seat.member().bell.pause(pause, || self.rx.has_handed());
    }

    fn waker(&self) -> Waker {
        let member = Arc::clone(self.seat.member());
        Waker::new(move || member.bell.ring())
    }

    fn stats(&self) -> TransportStats {
        let ((rx_packets, rx_bytes), [tx_packets, tx_bytes, dropped]) =
            (self.rx.received(), self.tx.counters());
        TransportStats {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            rx_overflow: self.seat.device.losses(),
            tx_dropped: dropped + self.seat.device.unresolved.load(Ordering::Relaxed),
            rx_truncated: self.rx.drops().of(FrameDrop::Oversized),
        }
    }
}

impl Drop for DpdkTransport {
    fn drop(&mut self) {
        self.tx.flush();
        self.close();
    }
}

impl fmt::Debug for DpdkTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpdkTransport")
            .field("address", &self.local_route())
            .finish_non_exhaustive()
    }
}
