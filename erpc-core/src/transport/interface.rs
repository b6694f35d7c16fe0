//! The traits of a transport and what they exchange.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::ChargeModel;
use crate::buf::{Arena, MIN_PAYLOAD, TxPacket};
use crate::wire::HEADER_LEN;
use crate::wire::checksum::TRAILER_LEN;

/// Most packets that one [`RxQueue::burst`] hands out, and that a [`TxQueue`] should stage before it
/// flushes of its own accord.
pub const MAX_BURST: usize = 32;

/// The smallest datagram that a transport must be able to carry, 1,052 bytes: a header, 1,024 bytes of a message, for
/// a msgbuf keeps room for one header per so many, and a checksum. Every IPv6 path carries more, 1,232. Sessions are
/// refused below it.
pub const MIN_DATAGRAM: usize = HEADER_LEN + MIN_PAYLOAD + TRAILER_LEN;

/// What a transport can do. Constant for its lifetime.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Largest datagram to any peer, in bytes, header included; at least [`MIN_DATAGRAM`].
    pub max_datagram: usize,
    /// Most packets that one [`RxQueue::burst`] hands out; at most [`MAX_BURST`].
    pub burst: usize,
    /// Packets up to so many bytes are copied by [`TxQueue::push`] (inlined into a descriptor, staged);
    /// longer ones are read where they are.
    pub inline: usize,
    /// How the receive queue counts what it holds.
    pub charge: ChargeModel,
    /// What the receive queue can hold, in the units of `charge`.
    pub rx_capacity: u32,
    /// What a retransmission timeout exceeds round trips by, at least: below it, what looks like a loss is scheduling noise.
    pub min_rto: Duration,
    /// How far round trip times scatter for reasons that are not queues in the network: interrupts,
    /// system calls, a peer's loop that is at something else. Congestion control takes no notice of less.
    pub rtt_noise: Duration,
    /// Which member of a listening group this is, 0 outside of a group. Peers put it in the first byte
    /// of every packet, so that the kernel or NIC can steer by it.
    pub steer: u8,
    /// Whether packets that were damaged on their way are found and dropped before they get here. Where
    /// they are not, sessions carry checksums of their own
    /// ([`Integrity`](crate::protocol::Integrity)).
    pub integrity: bool,
}

/// The address that a peer's packets come from and go to.
pub trait Route: Copy + Eq + Hash + Debug + Display + Send + 'static {
    /// Bytes that name the route, written to the front of `out`; their count is returned. Equal routes
    /// give equal bytes. Input to the handshake cookie.
    fn to_bytes(&self, out: &mut [u8; 32]) -> usize;

    /// The same host with another port, for servers that use one port per endpoint. Transports
    /// without ports return `self`.
    #[must_use]
    fn with_port(&self, port: u16) -> Self;

    /// The port, 0 where there is none.
    fn port(&self) -> u16;

    /// A number for the host, the same for all its ports: what servers count their clients' shares of them by. It should
    /// stand for what one client cannot have many of, such as an IPv4 address or an IPv6 network of 64 bits.
    fn host(&self) -> u64;
}

/// The way to a peer, as [`Transport::path`] finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Largest datagram that it carries unfragmented, in bytes.
    pub datagram: usize,
    /// This endpoint's link to the network on that way.
    pub link: Link,
}

/// What is known of an endpoint's link to the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// It carries so many bytes per second.
    Rate(u64),
    /// Its rate is not known.
    Unknown,
    /// There is none: the peer is on this host. No queue but the receiver's lies between.
    Local,
}

impl Link {
    /// The rate in bytes per second, if it is known.
    #[must_use]
    pub const fn rate(self) -> Option<u64> {
        match self {
            Self::Rate(rate) => Some(rate),
            Self::Unknown | Self::Local => None,
        }
    }
}

/// A transport that cannot ask for the network's marks, or cannot read them.
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

    /// Both halves.
    fn split(&mut self) -> (&mut Self::Rx, &mut Self::Tx);

    /// What this transport can do.
    fn capabilities(&self) -> Capabilities;

    /// The address that peers see, as far as it is known here.
    fn local_route(&self) -> Self::Route;

    /// The memory that messages should be built in, for devices that read it themselves: hugepages that
    /// are registered with the device. `None`, the default, for the system allocator's.
    ///
    /// A transport with an arena still takes detached msgbufs
    /// ([`MsgBuf::detached`](crate::buf::MsgBuf::detached)) and copies them.
    fn arena(&self) -> Option<Arc<dyn Arena>> {
        None
    }

    /// What is known of the path to `peer`. May ask the operating system; called when a session opens,
    /// not per packet.
    fn path(&mut self, peer: &Self::Route) -> Path;

    /// Whether [`Transport::path`] to `peer` costs next to nothing now: it takes no system call. True by default. Of
    /// the others, an event loop looks up few in a turn.
    fn knows_path(&self, peer: &Self::Route) -> bool {
        let _ = peer;
        true
    }

    /// Asks the network to mark packets where queues are long (explicit congestion notification, RFC 3168),
    /// and tells which of those received from now on came marked ([`RxPacket::marked`]). There is no way back.
    ///
    /// Called once, and only by endpoints whose congestion control reads marks: it may make every packet
    /// dearer to receive.
    ///
    /// # Errors
    /// [`NoMarks`], the default, if this transport cannot do both; it then does neither.
    fn enable_ecn(&mut self) -> Result<(), NoMarks> {
        Err(NoMarks)
    }

    /// Blocks until a packet may be there, [`Waker::wake`] was called, or `timeout` has passed; `None`
    /// waits without limit. May return early. A wake that came before the call ends it at once.
    fn wait(&mut self, timeout: Option<Duration>);

    /// A handle that ends [`Transport::wait`] from any thread.
    fn waker(&self) -> Waker;

    /// What was counted so far. Cheap enough to be called once a second, not per packet.
    fn stats(&self) -> TransportStats;
}

/// The receiving half.
pub trait RxQueue {
    /// How peers are addressed.
    type Route: Route;

    /// Whether a burst is a system call, in which a thread may lose its core. Packets that came meanwhile would seem to have
    /// come before it, earlier than they can. The event loop then reads the clock once more after a burst that brought some.
    /// Default false.
    const IS_SYSTEM_CALL: bool = false;

    /// Takes back the packets of the last burst and receives up to [`MAX_BURST`] new ones without
    /// blocking; returns how many.
    fn burst(&mut self) -> usize;

    /// Whether the last burst has left nothing: every packet that had arrived when it began was handed out by it, or by
    /// one before. May be false though nothing is left, but not for the burst that is called next unless packets go on
    /// arriving: while it is false, timers wait for answers that may lie unread, up to a bound.
    fn is_drained(&self) -> bool;

    /// Packet `index` of the last burst, in order of arrival.
    ///
    /// # Panics
    /// If the last burst had no such packet.
    fn packet(&self, index: usize) -> RxPacket<'_, Self::Route>;
}

/// A received packet, lent until the next burst.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a, R> {
    /// Where it came from.
    pub route: R,
    /// The datagram, header included, exactly as long as it was received.
    pub bytes: &'a [u8],
    /// A switch or router on its way had a long queue and set the mark that says so (ECN's CE). False
    /// where the transport cannot tell, or was not asked ([`Transport::enable_ecn`]).
    pub marked: bool,
}

/// The sending half.
///
/// `push` stages, `doorbell` sends, `flush` sends and also waits until the queue holds no msgbuf. A queue whose staging area is full
/// sends by itself.
/// What the network or the queue below does not take is dropped and counted; loss is the protocol's
/// business.
pub trait TxQueue {
    /// How peers are addressed.
    type Route: Route;

    /// Stages a packet that is `bytes` and copies them: headers alone and control messages. At most
    /// [`MIN_DATAGRAM`] bytes.
    fn push_bytes(&mut self, route: &Self::Route, bytes: &[u8]);

    /// Stages a packet of a message. The queue copies it or holds a reference to the msgbuf
    /// ([`TxPacket::hold`]) until it is flushed.
    fn push(&mut self, route: &Self::Route, packet: TxPacket<'_>);

    /// Sends what is staged. When it returns the queue holds no msgbuf and no device reads one.
    ///
    /// This is the flush of thesis section 6.3.2.2: rare on the hot path of a DMA transport, which may
    /// ring doorbells through [`TxQueue::doorbell`] instead.
    fn flush(&mut self);

    /// Sends what is staged; a DMA device may go on reading it. Called at the end of each turn of the event loop, and
    /// before it around handlers that take long, when packets of the turn's burst are still to be handled.
    fn doorbell(&mut self) {
        self.flush();
    }

    /// Lets go of the msgbufs that the device has already read, without waiting for any. Called before
    /// a msgbuf's uniqueness decides whether a flush is needed. Nothing, by default: for queues whose
    /// doorbell is a flush.
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

    /// Wakes. Costs a system call or a lock when the other side sleeps.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

/// Packets as the transport counted them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransportStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received, headers included.
    pub rx_bytes: u64,
    /// Packets handed to the network.
    pub tx_packets: u64,
    /// Bytes handed to the network, headers included.
    pub tx_bytes: u64,
    /// Packets that the receive queue had no room for, as far as the transport learns of them.
    pub rx_overflow: u64,
    /// Packets that the network refused.
    pub tx_dropped: u64,
    /// Datagrams that were longer than this endpoint accepts, and were dropped.
    pub rx_truncated: u64,
}
