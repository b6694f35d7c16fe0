//! The values that both sides of a session agreed on, and how they cut messages into packets.

use crate::mutants::mutant;
use crate::protocol::config::SlotCount;
use crate::transport::MIN_DATAGRAM;
use crate::wire::PacketLayout;
use crate::wire::checksum::overhead;

/// Values that both sides have agreed on in the handshake.
#[derive(Clone, Copy)]
pub(super) struct Agreement {
    /// The number of packets that the client may have in flight.
    pub(super) credits: u16,
    /// The number of slots of the session.
    pub(super) slots: SlotCount,
    /// How messages are cut into small packets (index 0) and into large packets (index 1).
    cuts: [Cut; 2],
    /// Largest payload of the first response packet, in bytes. The payload of a small packet, or of
    /// a large packet after a resize, may be lower.
    pub(super) eager: u32,
    /// The largest datagram, in bytes, that both ends and the path carry and that fits the client's
    /// share of the receive queue.
    pub(super) max_datagram: u32,
    /// Largest response that the client accepts, in bytes.
    pub(super) max_response: u32,
    /// Whether packets carry a checksum trailer.
    pub(super) trailer: bool,
    /// Whether the client takes bundles.
    pub(super) bundles: bool,
    /// Largest request that the server accepts, in bytes.
    max_request: u32,
}

/// How messages are cut into packets of one size.
#[derive(Clone, Copy)]
struct Cut {
    /// Largest payload of a packet, in bytes.
    payload: u32,
    /// Largest payload of the first packet of a response, in bytes.
    first: u32,
    /// Requests of fewer bytes are plain: they have one packet and are not too large. 0 if no
    /// request is plain.
    plain_end: u32,
}

impl Cut {
    fn new(datagram: u32, eager: u32, trailer: bool, max_request: u32) -> Self {
        let payload = datagram - overhead(trailer) as u32;
        Self { payload, first: eager.min(payload), plain_end: payload.min(max_request) + 1 }
    }
}

impl Agreement {
    /// `max_datagram` is the largest datagram in bytes. The client takes `eager` bytes of a
    /// response unasked, and responses of at most `max_response` bytes. The server takes requests
    /// of at most `max_request` bytes.
    pub(super) fn new(
        (credits, slots, trailer): (u16, SlotCount, bool),
        max_datagram: u32,
        (eager, max_response): (u32, u32),
        max_request: u32,
    ) -> Self {
        let cut = |datagram| Cut::new(datagram, eager, trailer, max_request);
        let cuts = [cut(max_datagram.min(MIN_DATAGRAM as u32)), cut(max_datagram)];
        let eager = cuts[1].first;
        Self {
            credits,
            slots,
            cuts,
            eager,
            max_datagram,
            max_response,
            trailer,
            bundles: false,
            max_request,
        }
    }

    /// With a client that takes bundles, or does not.
    pub(super) fn bundles(self, bundles: bool) -> Self {
        Self { bundles, ..self }
    }

    /// Changes the size of large packets to datagrams of `datagram` bytes.
    pub(super) fn resize(&mut self, datagram: u32) {
        let is_plain = self.cuts[1].plain_end > 0;
        self.cuts[1] = Cut::new(datagram, self.eager, self.trailer, self.max_request);
        if !is_plain {
            self.end_plain();
        }
    }

    /// From now on no request is plain.
    pub(super) fn end_plain(&mut self) {
        self.cuts.iter_mut().for_each(|cut| cut.plain_end = 0);
    }

    /// Whether a request of `size` bytes may be plain.
    #[inline(always)]
    pub(super) fn is_plain(&self, size: u32, is_large: bool) -> bool {
        size < self.cuts[usize::from(is_large)].plain_end
    }

    /// Largest payload of a large or small packet, in bytes.
    #[inline(always)]
    pub(super) fn payload(&self, is_large: bool) -> u32 {
        self.cuts[usize::from(is_large)].payload
    }

    /// Largest payload of the first packet of a response, in bytes.
    #[inline(always)]
    pub(super) fn first(&self, is_large: bool) -> u32 {
        self.cuts[usize::from(is_large)].first
    }

    /// The packets of a request of `size` bytes.
    #[inline(always)]
    pub(super) fn request(&self, size: u32, is_large: bool) -> PacketLayout {
        let payload = self.payload(is_large);
        PacketLayout::new(size, payload, payload)
    }

    /// The packets of a response of `size` bytes.
    #[inline(always)]
    pub(super) fn response(&self, size: u32, is_large: bool) -> PacketLayout {
        let payload = self.payload(is_large);
        let first = if mutant!(EagerIgnored) { payload } else { self.first(is_large) };
        PacketLayout::new(size, first, payload)
    }
}
