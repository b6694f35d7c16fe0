//! The interface of a controller.

use std::time::Duration;

use crate::time::Instant;

/// The properties of a path that a controller depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol) struct Path {
    /// The slowest link that is known, in bytes per second.
    pub(in crate::protocol) line_rate: u64,
    /// The scatter of round trips without queues in the network, the path's own length included.
    pub(in crate::protocol) noise: Duration,
    /// The largest datagram, in bytes.
    pub(in crate::protocol) datagram: u32,
}

/// Turns feedback from the network into a rate. Time does not run backwards.
pub(in crate::protocol) trait Controller {
    /// A packet of `bytes` has left.
    fn on_sent(&mut self, now: Instant, bytes: u32);
    /// A packet and its answer took `nanos` on the network, the server's own time not counted.
    fn on_rtt(&mut self, now: Instant, nanos: u64);
    /// A switch has marked a reply, or the packet that it answers.
    fn on_mark(&mut self, now: Instant);
    /// A roll-back or a timeout: a packet counts as lost.
    fn on_loss(&mut self, now: Instant);
    /// Bytes per second, from the minimum rate to the line's.
    fn rate(&self) -> u64;
}
