//! What the two sides of a session have agreed on, and how messages are cut by it.

use crate::mutants::mutant;
use crate::transport::MIN_DATAGRAM;
use crate::wire::PacketLayout;
use crate::wire::checksum::overhead;

/// Values that both sides have agreed on in the handshake.
#[derive(Clone, Copy)]
pub(super) struct Agreement {
    /// Packets that the client may have on their way.
    pub(super) credits: u16,
    /// Of the session's small packets and of its large ones.
    cuts: [Cut; 2],
    /// Largest payload of a first response packet, if that is no more than a packet's.
    pub(super) eager: u32,
    /// Bytes of the largest datagram that both ends can take.
    pub(super) max_datagram: u32,
    /// Largest response that the client takes.
    pub(super) max_response: u32,
    /// Whether packets carry a trailer.
    pub(super) trailer: bool,
}

/// How messages are cut into packets of one size.
#[derive(Clone, Copy)]
struct Cut {
    /// Largest payload of a packet, and of the first one of a response.
    payload: u32,
    first: u32,
}

impl Cut {
    fn new(datagram: u32, eager: u32, trailer: bool) -> Self {
        let payload = datagram - overhead(trailer) as u32;
        Self { payload, first: eager.min(payload) }
    }
}

impl Agreement {
    /// On `credits` and `trailer`, datagrams of up to `max_datagram` bytes and what the client takes: the beginning of a response
    /// in `eager` bytes, and `max_response` bytes in all.
    pub(super) fn new(
        (credits, trailer): (u16, bool),
        max_datagram: u32,
        (eager, max_response): (u32, u32),
    ) -> Self {
        let cut = |datagram| Cut::new(datagram, eager, trailer);
        let cuts = [cut(max_datagram.min(MIN_DATAGRAM as u32)), cut(max_datagram)];
        let eager = cuts[1].first;
        Self { credits, cuts, eager, max_datagram, max_response, trailer }
    }

    /// Large packets are datagrams of so many bytes from now on.
    pub(super) fn resize(&mut self, datagram: u32) {
        self.cuts[1] = Cut::new(datagram, self.eager, self.trailer);
    }

    /// Largest payload of a packet, in large packets or in small ones.
    #[inline(always)]
    pub(super) fn payload(&self, is_large: bool) -> u32 {
        self.cuts[usize::from(is_large)].payload
    }

    /// The same of the first packet of a response.
    #[inline(always)]
    pub(super) fn first(&self, is_large: bool) -> u32 {
        self.cuts[usize::from(is_large)].first
    }

    /// How a request of so many bytes is cut.
    #[inline(always)]
    pub(super) fn request(&self, size: u32, is_large: bool) -> PacketLayout {
        let payload = self.payload(is_large);
        PacketLayout::new(size, payload, payload)
    }

    /// How a response of so many bytes is cut.
    #[inline(always)]
    pub(super) fn response(&self, size: u32, is_large: bool) -> PacketLayout {
        let payload = self.payload(is_large);
        let first = if mutant!(EagerIgnored) { payload } else { self.first(is_large) };
        PacketLayout::new(size, first, payload)
    }
}
