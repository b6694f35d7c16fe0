//! The interface of congestion controllers.

use std::time::Duration;

use crate::time::Instant;

/// The properties of a path that a controller depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol) struct Path {
    /// The rate of this endpoint's link, in bytes per second; `None` if it is unknown.
    pub(in crate::protocol) line_rate: Option<u64>,
    /// How far round trips scatter when no queue in the network delays packets: the transport's
    /// `rtt_noise`. Timely adds the time of a queue to this value to get `T_low`. So the value must
    /// also cover the round trip of a short path.
    pub(in crate::protocol) noise: Duration,
    /// Size of the largest datagram, in bytes.
    pub(in crate::protocol) datagram: u32,
    /// The handshake's round trip, in ns; `None` if it was not measured.
    pub(in crate::protocol) round_trip: Option<u64>,
}

/// One measured round trip: a packet and its answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol) struct Sample {
    pub(in crate::protocol) now: Instant,
    /// The whole round trip, in ns.
    pub(in crate::protocol) nanos: u64,
    /// The hosts' part of `nanos`, as an upper bound, in ns: the handler's time, and the time until
    /// the loop at either end read its queue.
    pub(in crate::protocol) waited: u64,
    /// Packets of the session in flight when the answer arrived. The answered packet counts, unless
    /// a roll-back has released its credit before.
    pub(in crate::protocol) in_flight: u32,
    /// The packet or its answer had the largest size. A slow link needs longer to send it.
    pub(in crate::protocol) is_full: bool,
}

/// After losses in this number of consecutive round trips, the losses count as congestion even if
/// round trips are short.
pub(super) const LOSSY_TRIPS: u32 = 3;

/// Turns feedback from the network into a rate. Callers pass times that never decrease.
pub(in crate::protocol) trait Controller {
    /// A packet of `bytes` was sent.
    fn on_sent(&mut self, now: Instant, bytes: u32);
    /// A packet was answered after the round trip in `sample`.
    fn on_rtt(&mut self, sample: &Sample);
    /// A switch marked a reply, or the packet that the reply answers.
    fn on_mark(&mut self, now: Instant);
    /// A roll-back or a timeout declared a packet lost, with `in_flight` packets in flight.
    fn on_loss(&mut self, now: Instant, in_flight: u32);
    /// The rate in bytes per second, at least the minimum. Swift's rate may exceed the line's: its
    /// window is the limit then.
    fn rate(&self) -> u64;
}
