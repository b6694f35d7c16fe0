//! The network: hosts, cables and switches, exact to the nanosecond and the same in every run.
//!
//! ```text
//! send -> NIC queue =cable=> switch: route, admit, mark -> port =cable=> .. -> step returns it
//! ```
//!
//! A packet that joins a queue knows at once when its last bit will leave and when it will arrive,
//! because queues are FIFO and cables have a fixed rate. So a hop is one event, its arrival, and
//! nothing happens when a packet leaves: what a queue holds is worked out when somebody asks
//! (`port.rs`). Arrivals over one cable are in order, so the queue of all events has one entry per
//! cable end, whatever the number of packets (`tournament.rs`).
//!
//! The network loses packets only where queues are full. Faults are put in front of it or behind it
//! by whoever sends and receives.

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

/// What a packet has on a cable besides its bytes: Ethernet header 14, its check sequence 4, IPv4
/// header 20, UDP header 8. (Preamble and gap, 20 bytes, are left out, and so is the padding of
/// short frames.)
pub const WIRE_OVERHEAD_BYTES: u64 = 14 + 4 + 20 + 8;

/// A datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Who claims to have sent it.
    pub from: SimRoute,
    /// Where it goes. Only the host matters to the network.
    pub to: SimRoute,
    /// The payload of the datagram.
    pub bytes: Vec<u8>,
    /// A switch with a long queue has set the ECN mark (CE).
    pub marked: bool,
    /// It was made by somebody who cannot know what it says: no session may take it.
    pub forged: bool,
}

impl Packet {
    /// A packet that no switch has marked, from an honest sender or one that nothing tells from it.
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
