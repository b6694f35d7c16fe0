//! Counters of packets.

/// Counters of a [`Network`](super::Network) since it was made. Every packet is counted in exactly
/// one of `delivered`, the four `dropped_` and `in_flight`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NetworkStats {
    /// Packets given to [`send`](super::Network::send).
    pub sent: u64,
    /// Packets that arrived at their host.
    pub delivered: u64,
    /// Dropped because the transmit queue of the sending host was full.
    pub dropped_full_nic: u64,
    /// Dropped because a switch's port had reached its share of the free buffer.
    pub dropped_full_port: u64,
    /// Dropped because a switch's whole buffer had no room for the packet.
    pub dropped_full_buffer: u64,
    /// Dropped because no host has the destination address, or because a host without a switch
    /// ([`Topology::pair`](super::Topology::pair)) sent the packet to itself.
    pub dropped_unreachable: u64,
    /// Packets that switches have marked, once each, delivered or not.
    pub marked: u64,
    /// Packets in queues and on cables.
    pub in_flight: u64,
    /// The longest queue of a switch port so far, in bytes on the cable.
    pub peak_queue_bytes: u64,
}

impl NetworkStats {
    /// Packets dropped, for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_full() + self.dropped_unreachable
    }

    /// Packets dropped by a full queue or buffer.
    #[must_use]
    pub fn dropped_full(&self) -> u64 {
        self.dropped_full_nic + self.dropped_full_port + self.dropped_full_buffer
    }

    /// Panics if a packet is missing or counted twice.
    pub(super) fn check(&self) {
        let known = self.delivered + self.dropped() + self.in_flight;
        assert_eq!(self.sent, known, "packets are missing or counted twice: {self:?}");
        assert!(self.marked <= self.sent, "more marks than packets: {self:?}");
    }
}
