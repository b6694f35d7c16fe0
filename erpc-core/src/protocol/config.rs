//! An endpoint's settings.

use std::time::Duration;

use super::congestion::{CongestionControl, SwiftConfig};
use super::measurement::Bypasses;
use crate::buf::MIN_PAYLOAD;
use crate::debug_text::debug_is_display;
use crate::mutants::mutant;
use crate::time::Instant;
use crate::transport::{Link, NoMarks};

/// Initial credits of a session.
const CREDITS: u16 = 32;

/// Initial credits of a session between two endpoints of one host: two bursts. While the server
/// reads one burst, the client prepares the next one. With fewer credits, the two take turns. There
/// is no network whose loss would make many packets in flight expensive.
pub(super) const LOCAL_CREDITS: u16 = 128;

/// The default number of slots of a session: of its calls that are in flight at the same time.
pub const DEFAULT_SLOTS: usize = 8;

/// The largest number of slots of a session.
pub const MAX_SLOTS: usize = 64;

/// The number of a session's slots: a power of two from 1 to [`MAX_SLOTS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SlotCount(u8);

const _: () = assert!(DEFAULT_SLOTS.is_power_of_two());

impl SlotCount {
    /// The number of slots of a session whose ends have set none.
    pub(super) const DEFAULT: Self = Self(DEFAULT_SLOTS as u8);

    /// `None` if a session cannot have this number of slots.
    pub(super) const fn new(slots: u8) -> Option<Self> {
        let is_valid = slots.is_power_of_two() && slots as usize <= MAX_SLOTS;
        if is_valid { Some(Self(slots)) } else { None }
    }

    #[inline(always)]
    pub(super) const fn get(self) -> usize {
        self.0 as usize
    }

    pub(super) const fn to_u8(self) -> u8 {
        self.0
    }

    /// The difference between the numbers of two successive requests of a slot.
    #[inline(always)]
    pub(super) const fn step(self) -> u32 {
        self.0 as u32
    }

    /// The number of slots of a session whose requests name their slots in the bits of `mask`.
    #[inline(always)]
    pub(super) const fn of_mask(mask: u32) -> Self {
        Self(mask as u8 + 1)
    }
}

/// Minimum number of unanswered pings before a peer is declared dead, however long it was silent:
/// this process may have been stopped while the clock ran on.
pub(super) const LEAST_PINGS: u8 = 16;

/// Number of pings per ping interval while a peer does not answer. Losses come in bursts of
/// packets, and on an idle path the packets are pings: with bursts of 8 packets on average, one
/// burst in ten takes 18 pings or more, and fewer than one in 10,000 takes all that fit before the
/// default liveness timeout, 71 or more. More pings would flood the network when a server with a
/// thousand sessions dies.
const PINGS_PER_INTERVAL: u32 = 32;

/// Allowance per slot for the small buffer that it keeps, in bytes.
const SLOT_ALLOWANCE: usize = 1_536;

/// An endpoint's limits and timeouts. Setters chain; [`EndpointConfig::check`] runs when the
/// endpoint is made.
///
/// ```
/// use std::time::Duration;
/// use erpc_core::protocol::EndpointConfig;
///
/// let config = EndpointConfig::new().credits(16).max_message(1 << 20).connect_timeout(Duration::from_millis(300));
/// assert!(config.check().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    credits: Option<u16>,
    pub(super) max_credits: u16,
    pub(super) slots: u8,
    pub(super) max_message: u32,
    pub(super) eager: Option<u32>,
    pub(super) queue_limit: usize,
    pub(super) max_sessions: u32,
    pub(super) max_sessions_per_host: Option<u32>,
    pub(super) max_sockets_per_host: u32,
    pub(super) reserved_sessions: Option<(u32, u32)>,
    pub(super) opens_per_host: u32,
    pub(super) memory_limit: usize,
    pub(super) session_memory_limit: Option<usize>,
    pub(super) connect_timeout: Duration,
    pub(super) ping_interval: Duration,
    /// A random number of the endpoint; see [`EndpointConfig::in_step`].
    pub(super) ping_phase: u64,
    pub(super) liveness_timeout: Duration,
    pub(super) min_rto: Option<Duration>,
    pub(super) congestion: CongestionControl,
    pub(super) link_rate: Option<u64>,
    pub(super) slow_handler: Duration,
    pub(super) bypasses: Bypasses,
    pub(super) integrity: Integrity,
    pub(super) seed: Option<u64>,
}

/// When packets carry an erpc checksum, a CRC32C over header and payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Integrity {
    /// On sessions where the transport of either end does not detect damaged packets itself
    /// ([`Capabilities::integrity`](crate::transport::Capabilities::integrity)).
    #[default]
    Auto,
    /// On every session.
    Always,
}

/// The rates of the slowest and the fastest link that the controllers support, in bytes per second.
pub(super) const LINK_RATES: (u64, u64) = (1_000_000, 1_000_000_000_000);

/// The longest useful interval. It cannot overflow any calculation.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An invalid setting. The message names it with its bounds, or with the feature that the transport
/// lacks.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    what: &'static str,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)
    }
}

debug_is_display!(ConfigError);

impl std::error::Error for ConfigError {}

impl From<NoMarks> for ConfigError {
    fn from(_: NoMarks) -> Self {
        let what = "congestion must be Swift, Timely or None: Dcqcn takes marks (ECN), which this transport cannot read";
        Self { what }
    }
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// Points in time per ping interval at which idle sessions check their peers.
pub(super) const STEPS: u64 = 512;

impl EndpointConfig {
    /// The default settings; each setter documents its default.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            credits: None,
            max_credits: 16_384,
            slots: DEFAULT_SLOTS as u8,
            max_message: 8 << 20,
            eager: None,
            queue_limit: 1_024,
            max_sessions: 65_536,
            max_sessions_per_host: None,
            max_sockets_per_host: 4_096,
            reserved_sessions: None,
            opens_per_host: 20_000,
            memory_limit: 1 << 30,
            session_memory_limit: None,
            connect_timeout: Duration::from_secs(2),
            ping_interval: Duration::from_secs(3),
            ping_phase: 0,
            liveness_timeout: Duration::from_secs(10),
            min_rto: None,
            congestion: CongestionControl::Swift(SwiftConfig::new()),
            link_rate: None,
            slow_handler: Duration::from_millis(100),
            bypasses: Bypasses::ALL,
            integrity: Integrity::Auto,
            seed: None,
        }
    }

    /// Initial cap of the packets in flight per session, 1 to 1,024. Default 32, or 128 to a server
    /// on this host, because no network between the two can lose them; and at least the session's
    /// number of [slots](Self::slots), so that each slot can send a packet. A client session that
    /// needs more gets twice the number that its path holds, up to
    /// [`EndpointConfig::max_credits`].
    #[must_use]
    pub const fn credits(mut self, packets: u16) -> Self {
        self.credits = Some(packets);
        self
    }

    /// Maximum number of packets in flight per session, 1 to 65,535. Default 16,384, which are 24
    /// MB of full Ethernet packets: 1 Gb/s for 190 ms, 25 Gb/s for 7.7 ms. The smaller of both
    /// sides' settings applies. The receiver's memory is another limit: it divides its receive
    /// queue among its clients.
    #[must_use]
    pub const fn max_credits(mut self, packets: u16) -> Self {
        self.max_credits = packets;
        self
    }

    /// Number of slots of a session, which is the maximum number of its calls in flight: 1, 2, 4, 8,
    /// 16, 32 or 64. Default 8. The smaller of both sides' settings applies. Further calls wait in
    /// the session's queue ([`EndpointConfig::queue_limit`]).
    ///
    /// More slots let a single session keep a fast path busy. Clients that have several sessions
    /// to a server need them rarely. A stream has up to five calls in flight, of which some wait at
    /// the server for long. So a program with streams needs at least 8 slots at both ends; with
    /// fewer, streams end with `FAILED_PRECONDITION`.
    ///
    /// A server keeps a small buffer for each slot that was used, and
    /// up to [`EndpointConfig::session_memory_limit`] for large messages. So at a server with 64
    /// slots, a session holds up to 8 times the default: think of
    /// [`EndpointConfig::max_sessions`] and [`EndpointConfig::memory_limit`].
    #[must_use]
    pub const fn slots(mut self, slots: u8) -> Self {
        self.slots = slots;
        self
    }

    /// Largest message that this endpoint receives, in bytes, 1 byte to 1 GiB. Default 8 MiB. A
    /// peer learns it when a session opens. A declared size alone never allocates memory.
    #[must_use]
    pub const fn max_message(mut self, bytes: u32) -> Self {
        self.max_message = bytes;
        self
    }

    /// Largest first packet of a response that a server may send without a request for it, in
    /// payload bytes, at least 1,024. Default: so large that 256 such packets fit into the part of
    /// the receive queue that is for replies, but at most a datagram and at least 1,024. Responses
    /// up to this size cost one packet; of a larger response the client pulls the rest when it has
    /// room.
    #[must_use]
    pub const fn eager(mut self, bytes: u32) -> Self {
        self.eager = Some(bytes);
        self
    }

    /// Maximum number of calls of a session that wait for one of its slots, or for the session to
    /// open. Default 1,024. One more call is rejected with
    /// [`RejectReason::QueueFull`](super::RejectReason::QueueFull).
    #[must_use]
    pub const fn queue_limit(mut self, calls: usize) -> Self {
        self.queue_limit = calls;
        self
    }

    /// Maximum number of sessions of each role, client and server, 1 to 8,388,608. Default 65,536.
    /// One more fails with [`ConnectError::TooManySessions`](super::ConnectError::TooManySessions)
    /// at the limit of the client, and with [`ConnectError::Full`](super::ConnectError::Full) at
    /// that of the server.
    #[must_use]
    pub const fn max_sessions(mut self, sessions: u32) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// Maximum number of sessions that one host may have open to this endpoint, at least 1.
    /// Default: [`EndpointConfig::max_sessions`], less the
    /// [reserved](EndpointConfig::reserved_sessions) ones. A host is an IPv4 address or an IPv6
    /// network of 64 bits. One more session is refused with
    /// [`ConnectError::HostFull`](super::ConnectError::HostFull).
    #[must_use]
    pub const fn max_sessions_per_host(mut self, sessions: u32) -> Self {
        self.max_sessions_per_host = Some(sessions);
        self
    }

    /// Maximum number of sockets (ports) from which one host may have sessions to this endpoint, at
    /// least 1. Default 4,096. A busy socket takes a share of the receive queue from the others.
    /// One more socket is refused with [`ConnectError::HostFull`](super::ConnectError::HostFull).
    #[must_use]
    pub const fn max_sockets_per_host(mut self, sockets: u32) -> Self {
        self.max_sockets_per_host = sockets;
        self
    }

    /// Reserves the last `sessions` of [`EndpointConfig::max_sessions`] for hosts that have fewer
    /// than `few` sessions. Other hosts are refused with
    /// [`ConnectError::HostFull`](super::ConnectError::HostFull). Default: a quarter of
    /// `max_sessions`, for hosts whose number of sessions is below the larger of 8 and a 1,024th of
    /// `max_sessions`. So one host that opens as many sessions as it can does not lock out the
    /// others. `sessions` must be less than `max_sessions`.
    ///
    /// Many clients behind one address, such as that of a network address translator (NAT), count
    /// as one host. To let them use all sessions, reserve 0 or raise `max_sessions`.
    #[must_use]
    pub const fn reserved_sessions(mut self, sessions: u32, few: u32) -> Self {
        self.reserved_sessions = Some((sessions, few));
        self
    }

    /// Maximum number of sessions that one host may open per second, 1 to 1,000,000. Default
    /// 20,000, which take 7 % of a core. At once, a host may open up to 4,096. An `Open` beyond
    /// these limits is dropped, and the client repeats it until its connect timeout.
    #[must_use]
    pub const fn opens_per_host(mut self, per_second: u32) -> Self {
        self.opens_per_host = per_second;
        self
    }

    /// Maximum memory of the endpoint's msgbufs, in bytes. Default 1 GiB. Beyond it, incoming
    /// requests are answered RESOURCE_EXHAUSTED and outgoing ones are rejected. While a message of
    /// the largest size arrives, it takes half as much memory again. A typed endpoint keeps its
    /// encoded messages in a second pool with the same limit.
    #[must_use]
    pub const fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Maximum memory of the incoming messages and kept responses of one session, in bytes, at
    /// least [`EndpointConfig::max_message`]. Default 16 times `max_message`, or twice `max_message`
    /// per [slot](Self::slots) if that is more: a request and a response in each slot. Beyond the
    /// limit, requests are answered RESOURCE_EXHAUSTED.
    ///
    /// Stream messages that the handler has not read count, too. A client sends up to three batches
    /// ahead, of 32 KiB or one larger message each. With a limit below four of the largest messages
    /// that a stream carries, a stream with a slow handler may fail.
    #[must_use]
    pub const fn session_memory_limit(mut self, bytes: usize) -> Self {
        self.session_memory_limit = Some(bytes);
        self
    }

    /// Maximum time to open a session. Default 2 s, at most a day. When it has passed, the session
    /// fails with [`ConnectError::Timeout`](super::ConnectError::Timeout).
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// A session pings its peer after this time of silence, plus up to an eighth that differs
    /// between sessions. Also the interval at which the client probes an executing call. Default 3
    /// s; 1 ms to a day.
    ///
    /// A client whose session was silent for one and a half intervals, or whose loop did not run
    /// for one interval, holds further calls until the server has answered a ping, because the
    /// server may have declared the client dead. The client takes these times from its own
    /// settings, so give client and server the same settings.
    #[must_use]
    pub const fn ping_interval(mut self, interval: Duration) -> Self {
        self.ping_interval = interval;
        self
    }

    /// After this time of silence, and at least 16 unanswered pings, the peer is declared dead and
    /// the calls of its session fail. Default 10 s; at least twice the ping interval, at most two
    /// days. The session's next timer detects the death, at most a ping interval later.
    #[must_use]
    pub const fn liveness_timeout(mut self, timeout: Duration) -> Self {
        self.liveness_timeout = timeout;
        self
    }

    /// Minimum margin of a retransmission timeout above the round trip; at most 500 ms. Default:
    /// the transport's value, 1 ms for kernel UDP. With a smaller value, a session recovers faster
    /// from losses, but takes more scheduling delays for losses.
    #[must_use]
    pub const fn min_rto(mut self, floor: Duration) -> Self {
        self.min_rto = Some(floor);
        self
    }

    /// How sessions find the rate at which they send. Default [`CongestionControl::Swift`]. A
    /// server does not pace, whatever its setting, because it sends what clients ask for. But if
    /// its clients use [`CongestionControl::Dcqcn`], the server must choose it, too: otherwise it
    /// does not read the marks that it must echo. An endpoint with `Dcqcn` is refused over a
    /// transport that cannot read marks, such as the in-memory one.
    #[must_use]
    pub const fn congestion(mut self, control: CongestionControl) -> Self {
        self.congestion = control;
        self
    }

    /// The rate of this endpoint's link to the network, in bytes per second, 1 MB/s to 1 TB/s:
    /// 3,125,000,000 for 25 Gb/s. Sessions start with it, and a controller's thresholds scale with
    /// it.
    ///
    /// Default: the transport's measurement. Where there is none, as on virtual interfaces without
    /// a speed, only Swift controls sessions, because it needs no rate; the log says so
    /// once per process. In memory and over loopback no session is controlled: between two
    /// processes of one host the only queue is the receiver's, which credits protect. With too high
    /// a rate, sessions first build a queue. With too low a rate, the rest of the link is not used.
    #[must_use]
    pub const fn link_rate(mut self, bytes_per_second: u64) -> Self {
        self.link_rate = Some(bytes_per_second);
        self
    }

    /// Whether packets carry a checksum in addition to the network's, against accidental damage.
    /// Default [`Integrity::Auto`]: not over UDP, whose own checksum has 16 bits, nor in memory. A
    /// session has checksums if either end wants them; a damaged packet then counts as lost.
    ///
    /// Costs 8 ns plus 0.04 ns per byte for every packet that is sent or received, where the
    /// processor has an instruction for it: 35 ns per call of 32 bytes, 0.22 us per call of 1,024
    /// bytes. Also takes 4 bytes of every packet.
    #[must_use]
    pub const fn integrity(mut self, integrity: Integrity) -> Self {
        self.integrity = integrity;
        self
    }

    /// Derives the key of connection ids from this seed instead of the operating system's random
    /// numbers. For simulations only: ids become guessable.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The seed, if one was set.
    pub(crate) const fn fixed_seed(&self) -> Option<u64> {
        self.seed
    }

    /// If a handler holds the event loop for longer than `limit`, the log says so. Default 100 ms;
    /// `Duration::MAX` for never. Meanwhile all other calls of the thread wait, and their clients
    /// retransmit. The loop measures the time between its turns, so this costs nothing, and a
    /// thread that loses its core looks the same.
    #[must_use]
    pub const fn slow_handler(mut self, limit: Duration) -> Self {
        self.slow_handler = limit;
        self
    }

    /// [`EndpointConfig::slow_handler`].
    pub(crate) const fn slow_handler_limit(&self) -> Duration {
        self.slow_handler
    }

    /// [`EndpointConfig::connect_timeout`] and [`EndpointConfig::liveness_timeout`].
    #[must_use]
    pub const fn timeouts(&self) -> (Duration, Duration) {
        (self.connect_timeout, self.liveness_timeout)
    }

    /// [`EndpointConfig::memory_limit`], in bytes.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.memory_limit
    }

    /// Whether the transport must read congestion marks.
    pub(crate) const fn reads_marks(&self) -> bool {
        matches!(self.congestion, CongestionControl::Dcqcn(_))
    }

    /// The congestion control that runs if the transport does not know the link's rate; `None` if
    /// [`EndpointConfig::link_rate`] was set.
    pub(crate) const fn control_without_rate(&self) -> Option<CongestionControl> {
        match self.link_rate {
            Some(_) => None,
            None => Some(self.congestion),
        }
    }

    /// Whether the event loop reads the clock for every packet.
    pub(crate) const fn stamps_packets(&self) -> bool {
        !self.bypasses.timestamp
    }

    /// Detects that this process was stopped or the clock has jumped: a timer that was armed for
    /// `due` fires a ping interval late or more. Then returns the instant from which a peer's
    /// silence counts, which leaves the peer a ping interval to answer.
    #[inline]
    pub(super) fn back_since(&self, now: Instant, due: Instant) -> Option<Instant> {
        let grace = (self.liveness_timeout - self.ping_interval).as_nanos() as u64;
        let away = now.nanos_since(due) >= self.ping_interval.as_nanos() as u64;
        away.then(|| Instant::from_nanos(now.as_nanos().saturating_sub(grace)))
    }

    /// [`EndpointConfig::max_sessions_per_host`].
    pub(super) fn host_sessions(&self) -> u32 {
        self.max_sessions_per_host.unwrap_or(self.max_sessions)
    }

    /// [`EndpointConfig::reserved_sessions`]: `sessions` and `few`, or their defaults.
    pub(super) fn reserve(&self) -> (u32, u32) {
        let default = (self.max_sessions / 4, (self.max_sessions / 1_024).max(8));
        self.reserved_sessions.unwrap_or(default)
    }

    /// The time from an unanswered ping to the next one. It is so short that few sessions end on a
    /// path that loses a third of the packets, one by one or in bursts.
    pub(super) fn ping_again(&self) -> Duration {
        self.ping_interval / PINGS_PER_INTERVAL
    }

    /// Servers ping later than clients, so that on an idle session only the client pings.
    pub(super) fn server_ping_interval(&self) -> Duration {
        self.ping_interval + self.ping_interval / 2
    }

    /// The first point in time, at `at` or later, at which idle sessions check their peers. These
    /// points divide the ping interval into [`STEPS`] parts, so that the loop wakes up for many idle
    /// sessions at once instead of for each. They differ from endpoint to endpoint, so that the
    /// endpoints of a host do not ping a server together.
    pub(super) fn in_step(&self, at: Instant) -> Instant {
        let step = (self.ping_interval.as_nanos() as u64 / STEPS).max(1);
        let phase = self.ping_phase % step;
        let point = at.as_nanos().saturating_sub(phase).checked_next_multiple_of(step);
        point.map_or(Instant::NEVER, |point| Instant::from_nanos(point).plus_nanos(phase))
    }

    /// [`EndpointConfig::credits`], for a session with this number of slots to a server that is
    /// reached through `link`.
    pub(super) fn initial_credits(&self, slots: SlotCount, link: Link) -> u16 {
        let default = match link {
            Link::Local => LOCAL_CREDITS,
            Link::Rate(_) | Link::Unknown => CREDITS,
        };
        self.credits.unwrap_or(default.max(slots.get() as u16))
    }

    /// [`EndpointConfig::slots`]; the default if the value is invalid, which [`Self::check`]
    /// reports.
    pub(super) fn slot_count(&self) -> SlotCount {
        SlotCount::new(self.slots).unwrap_or(SlotCount::DEFAULT)
    }

    /// [`EndpointConfig::session_memory_limit`], for a session with this number of slots.
    pub(super) fn session_memory(&self, slots: SlotCount) -> usize {
        let default = || (self.max_message as usize).saturating_mul((2 * slots.get()).max(16));
        self.session_memory_limit.unwrap_or_else(default)
    }

    /// The limit of a server session's buffers, in bytes. [`EndpointConfig::session_memory_limit`]
    /// bytes of messages fit: a buffer with its headers is up to a third larger than its message,
    /// and every slot keeps a small one.
    pub(super) fn session_budget(&self, slots: SlotCount) -> usize {
        let slots = if mutant!(BudgetOfEightSlots) { SlotCount::DEFAULT } else { slots };
        let memory = self.session_memory(slots);
        let budget = memory + memory / 3 + slots.get() * SLOT_ALLOWANCE;
        if mutant!(BudgetTooSmall) { budget / 64 } else { budget }
    }

    /// Checks every setting against its bounds.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rules = [
            (
                self.credits.is_none_or(|credits| (1..=1_024).contains(&credits)),
                "credits must be 1 to 1,024",
            ),
            (SlotCount::new(self.slots).is_some(), "slots must be 1, 2, 4, 8, 16, 32 or 64"),
            (self.max_credits >= 1, "max_credits must be 1 to 65,535"),
            (
                self.max_message >= 1 && self.max_message <= 1 << 30,
                "max_message must be 1 byte to 1 GiB",
            ),
            (
                self.eager.is_none_or(|eager| eager as usize >= MIN_PAYLOAD),
                "eager must be at least 1,024 bytes",
            ),
            (
                self.max_sessions >= 1 && self.max_sessions <= 1 << 23,
                "max_sessions must be 1 to 8,388,608",
            ),
            (self.host_sessions() >= 1, "max_sessions_per_host must be at least 1"),
            (self.max_sockets_per_host >= 1, "max_sockets_per_host must be at least 1"),
            (
                self.reserve().0 < self.max_sessions,
                "reserved_sessions must be less than max_sessions",
            ),
            (
                self.opens_per_host >= 1 && self.opens_per_host <= 1_000_000,
                "opens_per_host must be 1 to 1,000,000",
            ),
            (
                self.ping_interval >= Duration::from_millis(1) && self.ping_interval <= DAY,
                "ping_interval must be 1 ms to a day",
            ),
            (
                self.liveness_timeout / 2 >= self.ping_interval && self.liveness_timeout <= DAY * 2,
                "liveness_timeout must be at least twice the ping_interval and at most two days",
            ),
            (
                self.link_rate.is_none_or(|rate| (LINK_RATES.0..=LINK_RATES.1).contains(&rate)),
                "link_rate must be 1 MB/s to 1 TB/s",
            ),
            (self.connect_timeout <= DAY, "connect_timeout must be at most a day"),
            (
                self.min_rto.is_none_or(|floor| floor <= Duration::from_millis(500)),
                "min_rto must be at most 500 ms",
            ),
            (
                self.session_memory(self.slot_count()) >= self.max_message as usize,
                "session_memory_limit must hold one message of max_message bytes",
            ),
        ];
        let broken = rules.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what);
        match broken.or_else(|| self.congestion.flaw()) {
            Some(what) => Err(ConfigError { what }),
            None => Ok(()),
        }
    }
}

/// For benchmarks and simulations.
impl Bypasses {
    /// `config` with these bypasses.
    #[must_use]
    pub const fn applied_to(self, mut config: EndpointConfig) -> EndpointConfig {
        config.bypasses = self;
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_sessions_check_their_peers_at_common_points_in_time() {
        let mut config = EndpointConfig::new().ping_interval(Duration::from_nanos(512_000));
        let at =
            |config: &EndpointConfig, nanos| config.in_step(Instant::from_nanos(nanos)).as_nanos();
        assert_eq!(
            [0, 1, 999, 1_000, 1_001].map(|nanos| at(&config, nanos)),
            [0, 1_000, 1_000, 1_000, 2_000]
        );
        assert_eq!(config.in_step(Instant::NEVER), Instant::NEVER);
        config.ping_phase = 7_300;
        assert_eq!([0, 300, 301, 2_000].map(|nanos| at(&config, nanos)), [300, 300, 1_300, 2_300]);
        assert_eq!(config.in_step(Instant::NEVER), Instant::NEVER);
    }

    #[test]
    fn every_setting_is_accepted_at_its_bounds_and_refused_beyond_them() {
        let new = EndpointConfig::new;
        let (nano, ms) = (Duration::from_nanos(1), Duration::from_millis(1));
        let ping = |ping, liveness| new().ping_interval(ping).liveness_timeout(liveness);
        let small = || new().max_message(1_000);
        let taken = [
            new(),
            new().credits(1),
            new().credits(1_024),
            new().slots(1),
            new().slots(64),
            new().max_message(1),
            new().max_message(1 << 30),
            new().eager(1_024),
            new().max_sessions(1),
            new().max_sessions(1 << 23),
            new().max_sessions_per_host(1),
            new().max_sockets_per_host(1),
            new().max_sessions(9).reserved_sessions(8, 1),
            new().opens_per_host(1),
            new().opens_per_host(1_000_000),
            ping(ms, 2 * ms),
            ping(DAY, 2 * DAY),
            new().connect_timeout(86_400_000 * ms),
            new().min_rto(500 * ms),
            new().link_rate(1_000_000),
            new().link_rate(1_000_000_000_000),
            small().session_memory_limit(1_000),
        ];
        for config in taken {
            assert_eq!(config.check(), Ok(()), "{config:?}");
        }
        let refused = [
            (new().max_credits(0), "max_credits"),
            (new().credits(0), "credits"),
            (new().credits(1_025), "credits"),
            (new().slots(0), "slots"),
            (new().slots(12), "slots"),
            (new().slots(128), "slots"),
            (new().max_message(0), "max_message"),
            (new().max_message((1 << 30) + 1), "max_message"),
            (new().eager(1_023), "eager"),
            (new().max_sessions(0), "max_sessions"),
            (new().max_sessions((1 << 23) + 1), "max_sessions"),
            (new().max_sessions_per_host(0), "max_sessions_per_host"),
            (new().max_sockets_per_host(0), "max_sockets_per_host"),
            (new().max_sessions(9).reserved_sessions(9, 1), "reserved_sessions"),
            (new().opens_per_host(0), "opens_per_host"),
            (new().opens_per_host(1_000_001), "opens_per_host"),
            (ping(ms - nano, 2 * ms), "ping_interval"),
            (ping(DAY + nano, 2 * DAY), "ping_interval"),
            (ping(2 * ms, 4 * ms - 2 * nano), "liveness_timeout"),
            (ping(ms, 2 * DAY + nano), "liveness_timeout"),
            (new().connect_timeout(86_400_000 * ms + nano), "connect_timeout"),
            (new().min_rto(500 * ms + nano), "min_rto"),
            (small().session_memory_limit(999), "session_memory_limit"),
        ];
        for (config, setting) in refused {
            let error = config.check().expect_err(setting).to_string();
            assert!(error.starts_with(setting), "{error}");
        }
    }

    #[test]
    fn getters_return_what_setters_set() {
        let config = EndpointConfig::new().memory_limit(12_345).seed(7);
        assert_eq!((config.memory(), config.fixed_seed()), (12_345, Some(7)));
        assert_eq!(EndpointConfig::new().fixed_seed(), None);
        assert_eq!(EndpointConfig::new().slots(64).slot_count().get(), 64);
        let memory = |config: &EndpointConfig| [1, 8, 64].map(|n| config.session_memory(count(n)));
        assert_eq!(memory(&EndpointConfig::new().max_message(10)), [160, 160, 1_280]);
        assert_eq!(memory(&EndpointConfig::new().session_memory_limit(77)), [77; 3]);
        let credits = |config: EndpointConfig, link| {
            [1, 32, 64].map(|n| config.initial_credits(count(n), link))
        };
        assert_eq!(credits(EndpointConfig::new(), Link::Unknown), [32, 32, 64]);
        assert_eq!(credits(EndpointConfig::new(), Link::Local), [128; 3]);
        assert_eq!(credits(EndpointConfig::new().credits(3), Link::Local), [3; 3]);
    }

    fn count(slots: u8) -> SlotCount {
        SlotCount::new(slots).expect("a valid number")
    }

    /// A server counts a buffer of up to `KEPT_CAPACITY` bytes for each slot, besides the messages.
    #[test]
    fn the_memory_budget_has_an_allowance_for_each_slot() {
        let config = EndpointConfig::new().max_message(1_000).session_memory_limit(3_000);
        for slots in [1, 8, 64] {
            let budget = config.session_budget(count(slots));
            assert_eq!(budget, 4_000 + usize::from(slots) * SLOT_ALLOWANCE);
        }
    }

    #[test]
    fn a_timer_that_is_late_by_a_ping_interval_restarts_the_count_of_silence() {
        let second = Duration::from_secs(1);
        let config = EndpointConfig::new().ping_interval(second).liveness_timeout(3 * second);
        let due = Instant::from_nanos(10_000_000_000);
        assert_eq!(config.back_since(due + (second - Duration::from_nanos(1)), due), None);
        assert_eq!(config.back_since(due + second, due), Some(Instant::from_nanos(9_000_000_000)));
        assert_eq!(config.ping_again(), second / 32);
        assert_eq!(config.server_ping_interval(), second * 3 / 2);
    }
}
