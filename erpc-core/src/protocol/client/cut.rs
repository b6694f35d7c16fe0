//! How a session's messages are cut into packets.

use super::reservation::Charges;
use crate::wire::PacketLayout;

/// One of a session's two ways to cut messages: into packets that every path carries, or into larger ones.
#[derive(Debug)]
pub(super) struct Cut {
    /// Bytes of a message in a packet, and in the first one of a response.
    pub(super) payload: u32,
    pub(super) eager: u32,
    /// Of an empty request.
    pub(super) layout: PacketLayout,
    pub(super) charges: Charges,
}

impl Cut {
    /// Messages in datagrams of so many bytes, in a session whose responses begin with up to `eager` bytes and that has these
    /// charges for datagrams of another size.
    pub(super) fn new(datagram: u32, eager: u32, charges: &Charges) -> Self {
        let payload = datagram - charges.overhead() as u32;
        let eager = eager.min(payload);
        Self {
            payload,
            eager,
            layout: PacketLayout::new(0, payload, payload),
            charges: charges.for_datagram(datagram, eager),
        }
    }

    /// The same session's in datagrams of another size, where responses begin with up to `eager` bytes.
    pub(super) fn for_datagram(&self, datagram: u32, eager: u32) -> Self {
        Self::new(datagram, eager, &self.charges)
    }

    /// Bytes of a full packet.
    pub(super) fn datagram(&self) -> u32 {
        self.payload + self.charges.overhead() as u32
    }

    /// Of a response of so many bytes.
    pub(super) fn response(&self, size: u32) -> PacketLayout {
        PacketLayout::new(size, self.eager, self.payload)
    }
}
