//! How a session's messages are cut into packets: payload sizes, layouts and charges.

use super::reservation::Charges;
use crate::wire::PacketLayout;

/// One of a session's two ways to cut messages: into packets that every path carries, or larger
/// ones.
#[derive(Debug)]
#[repr(C)] // The charges first: plain calls look only at them.
pub(super) struct Cut {
    pub(super) charges: Charges,
    /// Message bytes in a full packet. `eager`: the same for the first packet of a response.
    pub(super) payload: u32,
    pub(super) eager: u32,
    /// Layout of an empty request, to be adapted to a size.
    pub(super) layout: PacketLayout,
}

impl Cut {
    /// Cuts messages into datagrams of `datagram` bytes. The first packet of a response carries at
    /// most `eager` bytes. `charges` are the session's charges, for a cut of any size.
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

    /// A cut of the same session with datagrams of another size. The first packet of a response
    /// carries at most `eager` bytes.
    pub(super) fn for_datagram(&self, datagram: u32, eager: u32) -> Self {
        Self::new(datagram, eager, &self.charges)
    }

    /// Bytes of a full packet, overhead included.
    pub(super) fn datagram(&self) -> u32 {
        self.payload + self.charges.overhead() as u32
    }

    /// The layout of a response of `size` bytes.
    pub(super) fn response(&self, size: u32) -> PacketLayout {
        PacketLayout::new(size, self.eager, self.payload)
    }
}
