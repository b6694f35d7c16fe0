//! An endpoint over a verbs device.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::config::{VerbsConfig, VerbsError, errno};
use super::device::{Device, Provider};
use super::exchange::Socket;
use super::line::{Line, exchange_address};
use super::rx::VerbsRx;
use super::tx::{COPY_LIMIT, VerbsTx};
use crate::clock;
use crate::transport::udp::{Poller, UdpRoute};
use crate::transport::{
    Arena, Capabilities, ChargeModel, Link, MAX_BURST, NoMarks, Path, Transport, TransportStats,
    Undelivered, Waker,
};

/// A few round trips between busy loops, and the pause of a loop that another thread delays.
const MIN_RTO: Duration = Duration::from_micros(500);
/// As for the memory transport: two loops that poll in turn.
const RTT_NOISE: Duration = Duration::from_micros(50);
/// Advice for an operator when [`TransportStats::rx_overflow`] grows.
const OVERFLOW_HINT: &str = "the device dropped datagrams because this endpoint's receive queue had no buffer: \
    raise VerbsConfig::sessions or VerbsConfig::credits, or use more endpoints";
/// Longest sleep, so that the housekeeping runs.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Most endpoints of a group.
const MOST_ENDPOINTS: usize = 64;

/// An endpoint with an Unreliable Datagram queue pair. It may move to another thread before it is
/// used.
///
/// Its address is that of a UDP socket, through which peers learn the address of the queue pair.
pub struct VerbsTransport<D: Device> {
    rx: VerbsRx<D>,
    tx: VerbsTx<D>,
    poller: Poller,
    line: Arc<Line<D>>,
    steer: u8,
}

/// Events of an endpoint that are rare. Each counts from the time at which the endpoint was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VerbsStats {
    /// Times that a broken queue pair was rebuilt.
    pub rebuilds: u64,
    /// Times that the device refused to rebuild it.
    pub failed_rebuilds: u64,
    /// Requests that completed with an error.
    pub errors: u64,
    /// Datagrams of queue pairs that had not presented themselves.
    pub strangers: u64,
    /// Datagrams that are too short, have no readable header, or are no message of the exchange.
    pub malformed: u64,
    /// Peers that presented themselves with an old or forged token.
    pub bad_tokens: u64,
    /// Peers for which the device made no address handle: there is no route to them.
    pub no_handle: u64,
    /// Peers that were not accepted, because all places of the table are in use, or the queue pair
    /// belongs to another peer.
    pub refused_peers: u64,
    /// Bursts that found all buffers of the receive queue filled: datagrams may have been lost. Raise
    /// [`VerbsConfig::sessions`] or [`VerbsConfig::credits`].
    pub exhausted: u64,
    /// Flushes that the device did not complete in time.
    pub stuck_flushes: u64,
    /// Chains of requests that were posted.
    pub doorbells: u64,
    /// Requests with a completion.
    pub signals: u64,
}

impl<D: Device> VerbsTransport<D> {
    /// Opens the device for one endpoint.
    ///
    /// # Errors
    /// [`VerbsError`]. Its message says how to fix the problem.
    pub fn open(provider: &D::Provider, config: &VerbsConfig) -> Result<Self, VerbsError> {
        Self::with_socket(provider, config, None, 0)
    }

    /// Opens the device for several endpoints, 1 to 64. Endpoint `i` has a queue pair of its own, and
    /// the configured port of [`VerbsConfig::exchange`] plus `i`.
    ///
    /// # Errors
    /// [`VerbsError`]. Its message says how to fix the problem.
    pub fn open_group(
        provider: &D::Provider,
        config: &VerbsConfig,
        endpoints: usize,
    ) -> Result<Vec<Self>, VerbsError> {
        let udp_port = config.exchange.map_or(0, |address| address.port());
        let refused = || VerbsError::Endpoints { count: endpoints, udp_port };
        let count = (1..=MOST_ENDPOINTS).contains(&endpoints).then_some(endpoints as u16);
        let count = count.ok_or_else(refused)?;
        udp_port.checked_add(count - 1).ok_or_else(refused)?;
        if count == 1 {
            return Ok(vec![Self::open(provider, config)?]);
        }
        // Only an open device knows the address of its GID.
        let info = provider.open(config)?.info();
        let sockets = Socket::bind_group(exchange_address(config, &info), count)?;
        let open = |(steer, socket)| Self::with_socket(provider, config, Some(socket), steer);
        (0..).zip(sockets).map(open).collect()
    }

    fn with_socket(
        provider: &D::Provider,
        config: &VerbsConfig,
        socket: Option<Socket>,
        steer: u8,
    ) -> Result<Self, VerbsError> {
        let line = Arc::new(Line::open(provider, config, socket)?);
        let poller = Poller::new().map_err(|error| VerbsError::Device {
            device: config.device.clone(),
            doing: "create an eventfd",
            errno: errno(&error.into()),
        })?;
        let (rx, tx) = (VerbsRx::new(Arc::clone(&line)), VerbsTx::new(Arc::clone(&line)));
        Ok(Self { rx, tx, poller, line, steer })
    }

    /// Whether the device reads long packets in place, in registered memory. False if
    /// [`VerbsConfig::arena`] is 0 or could not be registered.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.line.arena.is_some()
    }

    /// Whether the port is active. Asks the device.
    #[must_use]
    pub fn is_link_up(&self) -> bool {
        self.line.device.is_link_up()
    }

    /// Number of the queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> u32 {
        self.line.device.qpn()
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.line.device
    }

    /// Counters of rare events.
    #[must_use]
    pub fn verbs_stats(&self) -> VerbsStats {
        let counters = &self.line.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [doorbells, signals] = self.tx.doorbells();
        VerbsStats {
            rebuilds: read(&counters.rebuilds),
            failed_rebuilds: read(&counters.failed_rebuilds),
            errors: read(&counters.errors),
            strangers: read(&counters.strangers),
            malformed: read(&counters.malformed),
            bad_tokens: read(&counters.bad_tokens),
            no_handle: read(&counters.no_handle),
            refused_peers: self.line.peers().refused(),
            exhausted: self.rx.exhausted(),
            stuck_flushes: self.tx.stuck_flushes(),
            doorbells,
            signals,
        }
    }

    /// The halves with their type, for tests.
    #[cfg(test)]
    pub(super) fn halves(&mut self) -> (&mut VerbsRx<D>, &mut VerbsTx<D>, &Line<D>) {
        (&mut self.rx, &mut self.tx, &self.line)
    }
}

impl<D: Device> Transport for VerbsTransport<D> {
    type Route = UdpRoute;
    type Rx = VerbsRx<D>;
    type Tx = VerbsTx<D>;

    const OVERFLOW_HINT: Option<&'static str> = Some(OVERFLOW_HINT);

    #[inline]
    fn split(&mut self) -> (&mut VerbsRx<D>, &mut VerbsTx<D>) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        let max_datagram = self.line.info.mtu;
        Capabilities {
            max_datagram,
            burst: MAX_BURST,
            inline: if self.is_zero_copy() { COPY_LIMIT } else { max_datagram },
            charge: ChargeModel::Ring,
            rx_capacity: self.line.info.recv_depth * ChargeModel::RING_ENTRY,
            min_rto: MIN_RTO,
            rtt_noise: RTT_NOISE,
            steer: self.steer,
            // The invariant CRC of InfiniBand covers what does not change on the way, with 32 bits.
            integrity: true,
            bundles: false,
        }
    }

    fn arena(&self) -> Option<Arc<dyn Arena>> {
        self.line.arena.clone().map(|arena| Arc::new(arena) as _)
    }

    fn local_route(&self) -> UdpRoute {
        let address = self.line.socket().address();
        // A socket that is bound to no address of this host is reached at that of the GID.
        let ip = if address.ip().is_unspecified() && self.line.info.lid == 0 {
            self.line.info.gid.ip()
        } else {
            address.ip()
        };
        SocketAddr::new(ip, address.port()).into()
    }

    /// Also asks the peer for its address again, unless it was heard just now: a server that was
    /// started again has another queue pair.
    fn path(&mut self, peer: &UdpRoute) -> Path {
        self.line.refresh(*peer);
        let link = self.line.info.rate.map_or(Link::Unknown, Link::Rate);
        Path { datagram: self.line.info.mtu, link }
    }

    fn enable_ecn(&mut self) -> Result<(), NoMarks> {
        // Marks are in the IP header. InfiniBand has others.
        if !self.line.info.is_global || self.line.info.lid != 0 {
            return Err(NoMarks);
        }
        self.rx.enable_marks();
        self.line.enable_ecn();
        Ok(())
    }

    #[inline]
    fn has_undelivered(&self) -> bool {
        self.line.has_reports.load(Ordering::Relaxed)
    }

    fn next_undelivered(&mut self) -> Option<Undelivered<UdpRoute>> {
        self.line.next_report()
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        self.rx.look();
        let timeout = timeout.map_or(LONGEST_SLEEP, |timeout| timeout.min(LONGEST_SLEEP));
        let next_question = self.line.peers().next_due();
        let timeout = timeout.min(next_question - clock::now());
        if !self.poller.begin_sleep() {
            return;
        }
        // Armed before the look: what arrives after it makes the events readable.
        self.line.device.arm();
        let mut rung = false;
        if !self.rx.has_arrived() && !self.line.has_late.load(Ordering::Relaxed) {
            let timeout = Timespec::try_from(timeout).ok();
            let mut fds = [
                PollFd::from_borrowed_fd(self.line.device.events(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.line.socket().fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.poller.event(), PollFlags::IN),
            ];
            // A signal may end the poll early; callers expect that.
            let _ = poll(&mut fds, timeout.as_ref());
            rung = !fds[2].revents().is_empty();
        }
        self.poller.end_sleep(rung);
        self.line.device.take_events();
        self.rx.look();
    }

    fn waker(&self) -> Waker {
        self.poller.waker()
    }

    fn stats(&self) -> TransportStats {
        let counters = &self.line.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ((rx_packets, rx_bytes), [tx_packets, tx_bytes, dropped]) =
            (self.rx.received(), self.tx.counters());
        // A counter of the port belongs to no endpoint. The first reports it, so that sums are right.
        // Without one, a burst that has found all buffers filled stands for at least one loss.
        let overflows = match self.line.device.overflows() {
            Some(counted) if self.steer == 0 => counted,
            Some(_) => 0,
            None => self.rx.exhausted(),
        };
        TransportStats {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            rx_overflow: overflows,
            tx_dropped: dropped + read(&counters.dropped),
            rx_truncated: 0,
            link_downs: read(&counters.link_downs),
            link_ups: read(&counters.link_ups),
        }
    }
}

impl<D: Device> fmt::Debug for VerbsTransport<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsTransport")
            .field("address", &self.local_route())
            .field("queue_pair", &self.queue_pair())
            .finish_non_exhaustive()
    }
}
