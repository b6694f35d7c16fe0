//! An endpoint on a port of its own.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bell::Bell;
use super::config::{DpdkConfig, DpdkError};
use super::device::Device;
use super::rx::DpdkRx;
use super::tx::DpdkTx;
use crate::clock;
use crate::random::random_key;
use crate::time::Instant;
use crate::transport::frame::{FrameDrop, FrameDrops};
use crate::transport::udp::UdpRoute;
use crate::transport::{
    Capabilities, ChargeModel, Link, MAX_BURST, NoMarks, Path, Transport, TransportStats, Waker,
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

/// An endpoint on a port of its own. It may move to another thread before it is used.
///
/// Start DPDK first, with [`init`](super::init).
pub struct DpdkTransport {
    rx: DpdkRx,
    tx: DpdkTx,
    device: Arc<Device>,
    bell: Arc<Bell>,
    /// Packets that had arrived when the endpoint last paused, and when the first pause after the
    /// last packet began.
    received: u64,
    idle_since: Instant,
    max_datagram: usize,
}

impl DpdkTransport {
    /// Starts the port. Its link may come up later.
    ///
    /// # Errors
    /// [`DpdkError`]. Its message says how to fix the problem.
    pub fn open(config: &DpdkConfig) -> Result<Self, DpdkError> {
        let udp_port = match config.udp_port {
            0 => 32_768 + (random_key().0 % 28_232) as u16,
            port => port,
        };
        let device = Arc::new(Device::open(config, udp_port)?);
        let ip = if config.network.address.is_ipv4() { 20 } else { 40 };
        Ok(Self {
            rx: DpdkRx::new(Arc::clone(&device)),
            tx: DpdkTx::new(Arc::clone(&device)),
            device,
            bell: Arc::default(),
            received: 0,
            idle_since: Instant::ZERO,
            max_datagram: usize::from(config.mtu) - ip - 8,
        })
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
            rx_capacity: u32::from(self.device.descriptors) * ChargeModel::RING_ENTRY,
            min_rto: MIN_RTO,
            rtt_noise: RTT_NOISE,
            steer: 0,
            // UDP's checksum, or the user has said that the link damages nothing.
            integrity: true,
        }
    }

    fn local_route(&self) -> UdpRoute {
        let ip = self.device.interface.networks[0].address;
        SocketAddr::new(ip, self.device.udp_port).into()
    }

    fn path(&mut self, _peer: &UdpRoute) -> Path {
        let link = self.device.link().map_or(Link::Unknown, Link::Rate);
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
        let (packets, _) = self.rx.received();
        let now = clock::now();
        if std::mem::replace(&mut self.received, packets) != packets {
            self.idle_since = now;
        }
        let pause = ((now - self.idle_since) / PAUSE_PART).clamp(PAUSE[0], PAUSE[1]);
        self.bell.pause(timeout.map_or(pause, |timeout| timeout.min(pause)));
    }

    fn waker(&self) -> Waker {
        let bell = Arc::clone(&self.bell);
        Waker::new(move || bell.ring())
    }

    fn stats(&self) -> TransportStats {
        let ((rx_packets, rx_bytes), [tx_packets, tx_bytes, dropped]) =
            (self.rx.received(), self.tx.counters());
        TransportStats {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            rx_overflow: self.device.losses(),
            tx_dropped: dropped + self.device.unresolved.load(Ordering::Relaxed),
            rx_truncated: self.rx.drops().of(FrameDrop::Oversized),
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
