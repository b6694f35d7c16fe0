//! The transmit queue of an endpoint under test.

use std::ops::Range;

use erpc_core::buf::MsgBuf;
use erpc_core::transport::{TxPacket, TxQueue};

use crate::SimRoute;
use crate::hostile::craft;

/// The most msgbufs that are held before the queue flushes by itself, as a real queue does when its
/// ring is full.
const MAX_HELD: usize = 64;

/// Keeps the sent packets. Like a device, holds their msgbufs until the end of the turn, or, if it
/// is slow, until a flush. An endpoint that writes into a held msgbuf panics. So this queue detects
/// headers that are written too early.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    packets: Vec<(SimRoute, Range<usize>)>,
    /// A msgbuf, and the number of the packet that is being read from it.
    held: Vec<(MsgBuf, u32)>,
    /// The device reads the msgbufs until a flush, not only until the end of the turn.
    is_slow: bool,
}

impl Outbox {
    pub(super) fn new(is_slow: bool) -> Self {
        Self { is_slow, ..Self::default() }
    }

    /// The number of packets since the last [`Outbox::clear`], and their bytes.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.packets.len(), self.bytes.len())
    }

    /// The packets, in order.
    pub(super) fn packets(&self) -> impl DoubleEndedIterator<Item = (SimRoute, &[u8])> {
        self.packets.iter().map(|(to, range)| (*to, &self.bytes[range.clone()]))
    }

    /// Deletes the sent packets.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
    }

    /// A turn ends. A device that is not slow has read all msgbufs by now.
    pub(super) fn doorbell_rings(&mut self) {
        if !self.is_slow {
            self.held.clear();
        }
    }
}

impl TxQueue for Outbox {
    type Route = SimRoute;

    fn push_bytes(&mut self, route: &SimRoute, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.packets.push((*route, start..self.bytes.len()));
    }

    fn push(&mut self, route: &SimRoute, packet: TxPacket<'_>) {
        let start = self.bytes.len();
        self.bytes.resize(start + packet.len(), 0);
        packet.copy_to(&mut self.bytes[start..]);
        let place = craft::read(&self.bytes[start..]).map_or(0, |(header, _)| header.packet.get());
        let msgbuf = packet.hold();
        let again = self.held.iter().any(|(held, at)| {
            *at == place && held.as_slice().as_ptr() == msgbuf.as_slice().as_ptr()
        });
        assert!(!again, "header {place} was written again while the device reads it");
        if self.held.len() == MAX_HELD {
            self.held.clear();
        }
        self.held.push((msgbuf, place));
        self.packets.push((*route, start..self.bytes.len()));
    }

    fn flush(&mut self) {
        self.held.clear();
    }
}
