//! The traits of a transport and the types in their signatures.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::ChargeModel;
use super::undelivered::Undelivered;
use crate::buf::{Arena, MIN_PAYLOAD, MsgBuf, TxPacket};
use crate::wire::checksum::TRAILER_LEN;
use crate::wire::{HEADER_LEN, HeaderWords};

/// Maximum number of packets that one [`RxQueue::burst`] hands out.
pub const MAX_BURST: usize = 64;

/// The smallest datagram that a transport must be able to carry, 1,052 bytes: a header, 1,024 bytes
/// of a message (a msgbuf keeps room for one header per 1,024 bytes), and a checksum. Every IPv6
/// path carries more: 1,232 bytes. Sessions over a path below this size are refused.
pub const MIN_DATAGRAM: usize = HEADER_LEN + MIN_PAYLOAD + TRAILER_LEN;

/// What a transport can do. Constant for its lifetime.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Largest datagram to any peer, in bytes, header included; at least [`MIN_DATAGRAM`].
    pub max_datagram: usize,
    /// Maximum number of packets that one [`RxQueue::burst`] hands out; at most [`MAX_BURST`].
    pub burst: usize,
    /// [`TxQueue::push`] copies packets of at most this many bytes (inlines them into a descriptor,
    /// or stages them). Longer ones are read in place.
    pub inline: usize,
    /// How the receive queue counts the packets it holds.
    pub charge: ChargeModel,
    /// Capacity of the receive queue, in the units of `charge`.
    pub rx_capacity: u32,
    /// Minimum margin of the retransmission timeout over the smoothed round-trip time. A delay
    /// below this margin is scheduling noise, not a loss.
    pub min_rto: Duration,
    /// How far round-trip times scatter for reasons other than queues in the network: interrupts,
    /// system calls, a peer's event loop that is busy. Congestion control ignores smaller
    /// differences.
    pub rtt_noise: Duration,
    /// Number of this endpoint in its listening group, 0 outside of a group. Peers put the number
    /// in the first byte of every packet, so that the kernel or NIC can steer by it.
    pub steer: u8,
    /// Whether packets damaged in the network are detected and dropped before the transport hands
    /// them out. If not, sessions carry their own checksums
    /// ([`Integrity`](crate::protocol::Integrity)).
    pub integrity: bool,
    /// Whether the receive queue splits [bundles](crate::wire::bundle), so that peers may send them.
    pub bundles: bool,
}

/// The address of a peer: source of its packets, destination of packets to it.
pub trait Route: Copy + Eq + Hash + Debug + Display + Send + 'static {
    /// Writes bytes that identify the route to the front of `out` and returns their count. Equal
    /// routes give equal bytes. The handshake cookie is computed from them.
    fn to_bytes(&self, out: &mut [u8; 32]) -> usize;

    /// The same host with another port, for servers that use one port per endpoint. Transports
    /// without ports return `self`.
    #[must_use]
    fn with_port(&self, port: u16) -> Self;

    /// The port, 0 if the transport has no ports.
    fn port(&self) -> u16;

    /// A number for the host, the same for all its ports. A server counts and limits the sessions
    /// and sockets of each host by this number. The number should represent something of which
    /// one client cannot have many, such as an IPv4 address or an IPv6 network of 64 bits.
    fn host(&self) -> u64;
}

/// The path to a peer, as [`Transport::path`] reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Largest datagram that the path carries unfragmented, in bytes.
    pub datagram: usize,
    /// This endpoint's link to the network on that path.
    pub link: Link,
}

/// What is known about an endpoint's link to the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// The link's rate in bytes per second.
    Rate(u64),
    /// The link's rate is not known.
    Unknown,
    /// No link: the peer is on this host. The only queue between the two is the receiver's.
    Local,
}

impl Link {
    /// The rate in bytes per second; `None` if it is unknown, or if the peer is on this host.
    #[must_use]
    pub const fn rate(self) -> Option<u64> {
        match self {
            Self::Rate(rate) => Some(rate),
            Self::Unknown | Self::Local => None,
        }
    }
}

/// The error of a transport that cannot request or cannot read the network's congestion marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMarks;

impl Display for NoMarks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the transport cannot read the network's marks (ECN)")
    }
}

impl std::error::Error for NoMarks {}

/// One endpoint's queue pair.
pub trait Transport: 'static {
    /// How peers are addressed.
    type Route: Route;
    /// The receiving half.
    type Rx: RxQueue<Route = Self::Route>;
    /// The sending half.
    type Tx: TxQueue<Route = Self::Route>;

    /// Whether a packet ends [`Transport::wait`]. If not, a packet may wait until the end of the wait,
    /// and the event loop does not attribute this time to the network: otherwise a slow session would
    /// make the loops of both sides pause longer, which would make the session slower still.
    const WAKES_FOR_PACKETS: bool = true;

    /// Advice for an operator when [`TransportStats::rx_overflow`] grows, for the log. Default: none.
    const OVERFLOW_HINT: Option<&'static str> = None;

    /// Both halves.
    fn split(&mut self) -> (&mut Self::Rx, &mut Self::Tx);

    /// What this transport can do.
    fn capabilities(&self) -> Capabilities;

    /// The address that peers see, as far as the transport knows it.
    fn local_route(&self) -> Self::Route;

    /// The memory to build messages in, for devices that read it themselves: hugepages registered
    /// with the device. `None`, the default, selects the system allocator.
    ///
    /// A transport with an arena still accepts detached msgbufs
    /// ([`MsgBuf::detached`](crate::buf::MsgBuf::detached)) and copies them.
    fn arena(&self) -> Option<Arc<dyn Arena>> {
        None
    }

    /// What is known about the path to `peer`. May ask the operating system. Called when a session
    /// opens, not per packet.
    fn path(&mut self, peer: &Self::Route) -> Path;

    /// Whether [`Transport::path`] to `peer` is cheap now: it needs no system call. True by
    /// default. An event loop looks up only a few peers per turn whose path is not cheap.
    fn knows_path(&self, peer: &Self::Route) -> bool {
        let _ = peer;
        true
    }

    /// Asks the network to mark packets when queues are long (explicit congestion notification, RFC
    /// 3168), and from now on reports which received packets are marked ([`RxPacket::marked`]).
    /// This cannot be undone.
    ///
    /// Called once, and only by endpoints whose congestion control reads marks, because to read
    /// marks may make every packet more expensive to receive.
    ///
    /// # Errors
    /// [`NoMarks`], the default, if this transport cannot both request marks and report them. Then
    /// it does neither.
    fn enable_ecn(&mut self) -> Result<(), NoMarks> {
        Err(NoMarks)
    }

    /// Whether [`Transport::next_undelivered`] may return a report. Called once per turn, so it must
    /// be as cheap as reading a field. False by default.
    #[inline]
    fn has_undelivered(&self) -> bool {
        false
    }

    /// Takes the next report of a packet that was not delivered, from the system or from the
    /// network. Each report is a hint: it may be forged or late, most losses are not reported, and
    /// reports may be dropped. By default, there are none.
    fn next_undelivered(&mut self) -> Option<Undelivered<Self::Route>> {
        None
    }

    /// Blocks until a packet or a report may have arrived, [`Waker::wake`] is called, or `timeout`
    /// passes. `None` waits without limit. May return early. If the wake comes before the call, `wait`
    /// returns immediately.
    fn wait(&mut self, timeout: Option<Duration>);

    /// A handle that ends [`Transport::wait`] from any thread.
    fn waker(&self) -> Waker;

    /// Counters since the transport was created. Cheap enough to call once a second, not per
    /// packet.
    fn stats(&self) -> TransportStats;
}

/// The receiving half.
pub trait RxQueue {
    /// How peers are addressed.
    type Route: Route;

    /// Whether a burst is a system call, in which the thread may lose its core. Packets that arrive
    /// meanwhile would seem to have arrived before the burst, which is too early. The event loop
    /// therefore reads the clock again after a burst that returned packets. Default: false.
    const IS_SYSTEM_CALL: bool = false;

    /// Takes back the packets of the last burst and receives up to [`MAX_BURST`] new ones without
    /// blocking. Returns the number of new packets.
    fn burst(&mut self) -> usize;

    /// Whether the last burst left the queue empty: every packet that had arrived when the burst
    /// began was handed out by it or by an earlier burst. May be false although the queue is empty;
    /// but after the next burst it must be true, unless more packets arrive. While it is false, the
    /// event loop delays timers, up to a bound, because responses may lie unread.
    fn is_drained(&self) -> bool;

    /// Whether the next burst hands out packets that were received with the last one, and costs no
    /// system call. The event loop then keeps the packets that it has staged for a while, so that
    /// more of them leave together. Default: false.
    #[inline]
    fn has_more(&self) -> bool {
        false
    }

    /// Packet `index` of the last burst, in order of arrival.
    ///
    /// # Panics
    /// If the last burst had no such packet.
    fn packet(&self, index: usize) -> RxPacket<'_, Self::Route>;
}

/// A received packet, lent until the next burst.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a, R> {
    /// The sender of the packet.
    pub route: R,
    /// The packet, header included: the datagram, exactly as long as it was received, or a part of a
    /// [bundle](crate::wire::bundle).
    pub bytes: &'a [u8],
    /// Whether a switch or router on the path had a long queue and marked the packet (ECN's CE).
    /// False if the transport cannot tell, or if marks are not enabled ([`Transport::enable_ecn`]).
    pub marked: bool,
}

/// The sending half.
///
/// `push` stages, `doorbell` sends, `flush` sends and also waits until the queue holds no msgbuf. A
/// queue with a full staging area sends by itself. If the network or the system refuses a packet,
/// the packet is dropped and counted. The protocol recovers from loss.
pub trait TxQueue {
    /// How peers are addressed.
    type Route: Route;

    /// Stages a packet by copying `bytes`, at most [`MIN_DATAGRAM`] bytes. For control messages,
    /// and for headers that are alone or followed by a short list.
    fn push_bytes(&mut self, route: &Self::Route, bytes: &[u8]);

    /// Stages a packet of a message. The queue copies it or holds a reference to the msgbuf
    /// ([`TxPacket::hold`]) until it is flushed. Behind a packet that is [whole](TxPacket::is_whole)
    /// and has no trailer, it may put up to 800 zeros, which the receiver's protocol removes.
    fn push(&mut self, route: &Self::Route, packet: TxPacket<'_>);

    /// Stages a message of one packet, as [`TxQueue::push`] would stage the packet that consists of
    /// `header` and `message`. A queue that copies packets overrides this, so that it writes the
    /// header to its own memory, and not to the msgbuf first.
    ///
    /// If the peer `takes_bundles`, the queue may put the packet into one datagram with others for
    /// the same route: see [`wire::bundle`](crate::wire::bundle). Packets that are pushed later may
    /// then be sent earlier, except those of [`TxQueue::push_bytes`] to this route.
    #[inline]
    fn push_single(
        &mut self,
        route: &Self::Route,
        header: HeaderWords,
        message: &mut MsgBuf,
        takes_bundles: bool,
    ) {
        let _ = takes_bundles;
        self.push(route, message.single_packet(header));
    }

    /// Sends the staged packets. On return the queue holds no msgbuf and no device reads one.
    ///
    /// This is the flush of thesis section 6.3.2.2. It is rare on the hot path of a DMA transport,
    /// which may ring doorbells through [`TxQueue::doorbell`] instead.
    fn flush(&mut self);

    /// Sends the staged packets; a DMA device may continue to read them. Called at the end of each
    /// turn of the event loop, and earlier around slow handlers, while packets of the turn's burst
    /// are still to be handled.
    fn doorbell(&mut self) {
        self.flush();
    }

    /// Releases the msgbufs that the device has finished reading, without waiting for any. Called
    /// before the owner of a msgbuf checks whether the queue still refers to it. If the queue does,
    /// a flush is needed. The default does nothing, for queues whose doorbell is a flush.
    #[inline]
    fn reclaim(&mut self) {}
}

/// Ends a [`Transport::wait`] from any thread.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends the wait. Costs a system call or a lock when the waiting thread sleeps.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

/// Packets and bytes as the transport counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransportStats {
    /// Datagrams received. A [bundle](crate::wire::bundle) is one.
    pub rx_packets: u64,
    /// Bytes received, headers included.
    pub rx_bytes: u64,
    /// Datagrams handed to the network. A bundle is one.
    pub tx_packets: u64,
    /// Bytes handed to the network, headers included.
    pub tx_bytes: u64,
    /// Datagrams dropped because the receive queue was full, as far as the transport learns of them.
    pub rx_overflow: u64,
    /// Datagrams dropped instead of sent, because the network or the transport refused them.
    pub tx_dropped: u64,
    /// Datagrams dropped because they were longer than this endpoint accepts.
    pub rx_truncated: u64,
    /// Times that the link of the transport's port went down, as far as the transport looks at it:
    /// DPDK's does, a few times per second. Always 0 for UDP and memory.
    pub link_downs: u64,
    /// Times that the link came up, the first time included. Always 0 for UDP and memory.
    pub link_ups: u64,
}
