//! The interface of a controller.

use std::time::Duration;

use crate::time::Instant;

/// The properties of a path that a controller depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol) struct Path {
    /// The slowest link that is known, in bytes per second; `None` if none is.
    pub(in crate::protocol) line_rate: Option<u64>,
    /// The scatter of round trips without queues in the network, the path's own length included.
    pub(in crate::protocol) noise: Duration,
    /// The largest datagram, in bytes.
    pub(in crate::protocol) datagram: u32,
    /// The handshake's round trip, in nanoseconds, if it is known.
    pub(in crate::protocol) round_trip: Option<u64>,
}

/// A packet was answered.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol) struct Sample {
    pub(in crate::protocol) now: Instant,
    /// The packet and its answer took so many nanoseconds in all.
    pub(in crate::protocol) nanos: u64,
    /// Of that so many nanoseconds at most were the hosts': the handler's time, and the time until the loop at either end looked
    /// at its queue.
    pub(in crate::protocol) waited: u64,
    /// Packets of the session on their way.
    pub(in crate::protocol) in_flight: u32,
    /// The packet or its answer had the largest size: a slow link takes longer for it.
    pub(in crate::protocol) is_full: bool,
}

/// Round trips in a row with losses that count as congestion, though round trips are short.
pub(super) const LOSSY_TRIPS: u32 = 3;

/// Turns feedback from the network into a rate. Time does not run backwards.
pub(in crate::protocol) trait Controller {
    /// A packet of `bytes` has left.
    fn on_sent(&mut self, now: Instant, bytes: u32);
    /// A packet was answered.
    fn on_rtt(&mut self, sample: &Sample);
    /// A switch has marked a reply, or the packet that it answers.
    fn on_mark(&mut self, now: Instant);
    /// A roll-back or a timeout with so many packets on their way: one counts as lost.
    fn on_loss(&mut self, now: Instant, in_flight: u32);
    /// Bytes per second, from the minimum rate to the line's.
    fn rate(&self) -> u64;
}
