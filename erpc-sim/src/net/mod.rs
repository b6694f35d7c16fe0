//! The network: hosts, cables and switches, exact to the nanosecond and equal in every run.
//!
//! ```text
//! send -> NIC queue =cable=> switch: route, admit, mark -> port =cable=> .. -> step returns it
//! ```
//!
//! When a packet joins a queue, the times at which its last bit will leave and at which it will
//! arrive are known immediately, because queues are FIFO and cables have a fixed rate. So a hop is
//! one event: the arrival. No event marks the departure of a packet; the content of a queue is
//! computed on demand (`port.rs`). Arrivals over one cable are in order, so the event queue has one
//! entry per cable end, whatever the number of packets (`tournament.rs`).
//!
//! The network loses a packet only if a queue or buffer is full or the destination does not exist.
//! Other faults are applied outside the network: by the sender before a packet enters, and by the
//! receiver after the packet has left.

mod network;
mod port;
mod stats;
mod switch;
mod topology;
mod tournament;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod tests;

pub use network::Network;
pub use stats::NetworkStats;
pub use switch::SwitchConfig;
pub use topology::{Link, LinkId, Topology};

use crate::SimRoute;

/// The bytes of a packet on a cable besides its payload: Ethernet header 14, its check sequence 4,
/// IPv4 header 20, UDP header 8. Preamble and gap (20 bytes) and the padding of short frames are
/// left out.
pub const WIRE_OVERHEAD_BYTES: u64 = 14 + 4 + 20 + 8;

/// A datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The source address; it may be forged.
    pub from: SimRoute,
    /// The destination. Only its host matters to the network.
    pub to: SimRoute,
    /// The payload of the datagram.
    pub bytes: Vec<u8>,
    /// A switch with a long queue has set the ECN mark (CE).
    pub marked: bool,
    /// The sender cannot know the secrets in the packet, so no session may accept it.
    pub forged: bool,
}

impl Packet {
    /// A packet without an ECN mark, not known to be forged.
    #[must_use]
    #[inline]
    pub fn new(from: SimRoute, to: SimRoute, bytes: Vec<u8>) -> Self {
        Self { from, to, bytes, marked: false, forged: false }
    }

    /// Bytes on the cable and in queues: payload and [`WIRE_OVERHEAD_BYTES`].
    #[must_use]
    #[inline]
    pub fn wire_bytes(&self) -> u64 {
        self.bytes.len() as u64 + WIRE_OVERHEAD_BYTES
    }
}
