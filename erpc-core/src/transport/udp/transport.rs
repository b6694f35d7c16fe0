//! An endpoint on a kernel UDP socket.

use std::cell::Cell;
use std::fmt;
#[cfg(feature = "tokio")]
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::config::{UdpConfig, UdpError};
use super::path::{self, Paths};
use super::poller::Poller;
use super::reports::{ErrorQueue, Reports};
use super::route::UdpRoute;
use super::rx::UdpRx;
use super::socket::UdpSocket;
use super::stray::{Inboxes, Member};
use super::tx::{self, UdpTx};
use super::{steer, sys};
use crate::clock;
use crate::transport::{
    Capabilities, ChargeModel, MAX_BURST, NoMarks, Path, Transport, TransportStats, Undelivered,
    Waker,
};

/// Advice for an operator when [`TransportStats::rx_overflow`] grows.
pub const OVERFLOW_HINT: &str = "the kernel dropped datagrams because this endpoint's receive buffer was full: \
    raise it with `sysctl -w net.core.rmem_max=8388608` and UdpConfig::recv_buffer, or use more endpoints";

/// This time is a few wake-up delays of a sleeping thread. A busy machine's scheduler occasionally
/// causes a longer delay, which is mistaken for a loss and costs one retransmitted packet.
const MIN_RTO: Duration = Duration::from_millis(1);

/// Round-trip time and its variation without queues in the network: system calls, interrupts, the
/// wake-up of a peer, and a path of a few switches. Congestion control must not react to these. The
/// value is too high for peers that spin. A lower value would limit sleeping peers to a small part
/// of an idle link.
const RTT_NOISE: Duration = Duration::from_micros(200);

/// An endpoint on a kernel UDP socket.
///
/// # Cost
/// Receive buffers reserve up to 2.1 MB of address space; only pages that datagrams reach use
/// memory. After construction, only [`Transport::path`] allocates. In a group, packets that the
/// kernel delivers to the wrong member also allocate.
pub struct UdpTransport {
    pub(super) rx: UdpRx,
    pub(super) tx: UdpTx,
    pub(super) socket: Arc<UdpSocket>,
    errors: ErrorQueue,
    poller: Poller,
    capabilities: Capabilities,
    overflow: Overflow,
    paths: Paths,
}

impl UdpTransport {
    /// Opens a transport with its own socket.
    ///
    /// # Errors
    /// [`UdpError`]. Its message says how to fix the problem.
    pub fn bind(config: &UdpConfig) -> Result<Self, UdpError> {
        config.check()?;
        Self::new(config, UdpSocket::bind(config)?, 0, None, &ErrorQueue::group(1))
    }

    /// Opens `members` sockets on one port. The kernel delivers a packet to the member that its
    /// first byte names, and spreads the packets of new clients by a hash of their addresses.
    ///
    /// Fails if the port is in use, also by another group of the same user. Later, sockets of the
    /// same user that set `SO_REUSEPORT` themselves can join; Linux cannot prevent this. Keep the
    /// members together: dropping one while others serve misdirects packets.
    ///
    /// If the kernel cannot steer, every member gets its own port, the first one the requested
    /// port: see [`Transport::local_route`].
    ///
    /// # Errors
    /// [`UdpError`]. Its message says how to fix the problem.
    pub fn bind_group(config: &UdpConfig, members: usize) -> Result<Vec<Self>, UdpError> {
        config.check()?;
        let (group, shared) = steer::bind_group(config, members)?;
        let inboxes = shared.then(|| Inboxes::new(members));
        let reports = ErrorQueue::group(members);
        let open = |(socket, steer)| Self::new(config, socket, steer, inboxes.as_ref(), &reports);
        group.into_iter().zip(0..=u8::MAX).map(open).collect()
    }

    fn new(
        config: &UdpConfig,
        socket: UdpSocket,
        steer: u8,
        inboxes: Option<&Arc<Inboxes>>,
        reports: &Arc<[Arc<Reports>]>,
    ) -> Result<Self, UdpError> {
        let address = socket.address();
        let poller = Poller::new().map_err(|errno| UdpError::Os {
            doing: "create an eventfd",
            address,
            errno,
        })?;
        let socket = Arc::new(socket);
        let capabilities = Capabilities {
            max_datagram: config.max_datagram.unwrap_or_else(|| path::largest(&socket)),
            burst: MAX_BURST,
            inline: tx::COPY_LIMIT,
            charge: ChargeModel::LinuxUdp,
            rx_capacity: usable(socket.recv_buffer()),
            min_rto: MIN_RTO,
            rtt_noise: RTT_NOISE,
            steer,
            // UDP's 16-bit checksum misses one damaged packet in 65,536, in addition to the 32-bit
            // checksum of each Ethernet link. If routers damage packets between links, configure
            // `Integrity::Always`.
            integrity: true,
            bundles: true,
        };
        let member = inboxes.map(|inboxes| Member::new(inboxes, steer, poller.waker()));
        let errors = ErrorQueue::new(reports, steer, poller.waker());
        let reports = || Arc::clone(errors.reports());
        Ok(Self {
            rx: UdpRx::new(Arc::clone(&socket), capabilities.max_datagram, member, reports()),
            tx: UdpTx::new(Arc::clone(&socket), reports()),
            errors,
            overflow: Overflow::new(&socket),
            paths: Paths::new(address, capabilities.max_datagram),
            socket,
            poller,
            capabilities,
        })
    }

    /// Closes the socket, which releases the port, although this transport still exists. It then
    /// receives nothing, and sends nothing.
    pub(crate) fn close(&self) {
        // The socket's descriptor becomes a second descriptor of the eventfd, on which the system
        // calls for sockets fail. If the kernel refuses, the socket is closed with the last part of
        // the transport.
        let _ = sys::replace(self.socket.fd(), self.poller.event());
    }

    /// Effective size of the kernel's receive queue, in bytes of payload and bookkeeping.
    #[must_use]
    pub fn recv_buffer(&self) -> usize {
        self.socket.recv_buffer()
    }
}

/// For event loops that sleep elsewhere than in [`Transport::wait`].
#[cfg(feature = "tokio")]
impl UdpTransport {
    /// The descriptors that a sleeper watches: the socket, and the eventfd that wakers write.
    pub(crate) fn watched(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.fd(), self.poller.event()]
    }

    /// Begins a sleep, after a turn that received nothing. False if the caller must not sleep,
    /// because packets are pending or a waker was used.
    pub(crate) fn begin_sleep(&self) -> bool {
        !self.rx.has_pending() && !self.has_undelivered() && self.poller.begin_sleep()
    }

    /// Ends a sleep. `rung`: the eventfd was readable.
    pub(crate) fn end_sleep(&self, rung: bool) {
        self.poller.end_sleep(rung);
    }
}

/// The part of a receive buffer of `effective` bytes that senders can rely on. The kernel frees
/// the memory of packets after they were read, but in portions of up to a quarter of the buffer.
fn usable(effective: usize) -> u32 {
    u32::try_from(effective - effective / 4).unwrap_or(u32::MAX)
}

/// The socket's drop counter, extended to 64 bits.
struct Overflow {
    seen: Cell<u32>,
    total: Cell<u64>,
}

impl Overflow {
    fn new(socket: &UdpSocket) -> Self {
        Self { seen: Cell::new(sys::dropped(socket.fd()).unwrap_or(0)), total: Cell::new(0) }
    }

    fn total(&self, socket: &UdpSocket) -> u64 {
        if let Some(now) = sys::dropped(socket.fd()) {
            let more = now.wrapping_sub(self.seen.replace(now));
            self.total.set(self.total.get() + u64::from(more));
        }
        self.total.get()
    }
}

impl Transport for UdpTransport {
    type Route = UdpRoute;
    type Rx = UdpRx;
    type Tx = UdpTx;

    const OVERFLOW_HINT: Option<&'static str> = Some(OVERFLOW_HINT);

    #[inline]
    fn split(&mut self) -> (&mut UdpRx, &mut UdpTx) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn local_route(&self) -> UdpRoute {
        self.socket.address().into()
    }

    fn path(&mut self, peer: &UdpRoute) -> Path {
        let path = self.paths.to(clock::now(), peer);
        self.tx.learn(path.link);
        path
    }

    fn knows_path(&self, peer: &UdpRoute) -> bool {
        self.paths.knows(clock::now(), peer)
    }

    /// Without marks, single packets are received without ancillary data, unless the kernel
    /// coalesces. With marks, each datagram has ancillary data: see [`UdpRx`].
    fn enable_ecn(&mut self) -> Result<(), NoMarks> {
        self.rx.enable_ecn().map_err(|_| NoMarks)
    }

    #[inline]
    fn has_undelivered(&self) -> bool {
        self.errors.reports().is_raised()
    }

    #[cold]
    fn next_undelivered(&mut self) -> Option<Undelivered<UdpRoute>> {
        self.errors.next(self.socket.fd())
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        let is_idle = !self.rx.has_pending() && !self.has_undelivered();
        if is_idle && self.poller.sleep(self.socket.fd(), timeout) {
            self.errors.reports().raise();
        }
    }

    fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Reads the kernel's drop counter: one system call.
    fn stats(&self) -> TransportStats {
        let (rx, tx) = (self.rx.counters(), self.tx.counters());
        TransportStats {
            rx_packets: rx.packets,
            rx_bytes: rx.bytes,
            tx_packets: tx.packets,
            tx_bytes: tx.bytes,
            rx_overflow: self.overflow.total(&self.socket) + rx.overflow,
            tx_dropped: tx.dropped,
            rx_truncated: rx.truncated,
            ..TransportStats::default()
        }
    }
}

impl fmt::Debug for UdpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpTransport")
            .field("address", &self.socket.address())
            .finish_non_exhaustive()
    }
}
