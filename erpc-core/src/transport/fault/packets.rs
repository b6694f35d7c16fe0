//! Packets in a faulty transport: lent, outgoing, or owned.

use std::ops::Range;

use bytes::BufMut;

use crate::buf::MsgBuf;
use crate::transport::{MIN_DATAGRAM, RxPacket, TxPacket, TxQueue};

/// A packet whose bytes this transport owns.
#[derive(Debug)]
pub(super) struct Owned<R> {
    pub(super) route: R,
    pub(super) bytes: Vec<u8>,
    /// The congestion mark with which the packet was received; false for outgoing packets.
    pub(super) marked: bool,
}

impl<R: Copy> Owned<R> {
    pub(super) fn lend(&self) -> RxPacket<'_, R> {
        RxPacket { route: self.route, bytes: &self.bytes, marked: self.marked }
    }
}

/// The packets of a burst.
#[derive(Debug)]
pub(super) struct Lent<R> {
    packets: Vec<(R, Range<usize>, bool)>,
    /// The bytes of all packets, one after the other.
    bytes: Vec<u8>,
}

impl<R: Copy> Lent<R> {
    pub(super) fn new() -> Self {
        Self { packets: Vec::new(), bytes: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn packet(&self, index: usize) -> RxPacket<'_, R> {
        let (route, range, marked) = &self.packets[index];
        RxPacket { route: *route, bytes: &self.bytes[range.clone()], marked: *marked }
    }

    /// Copies a packet to the end of the burst.
    pub(super) fn push(&mut self, packet: RxPacket<'_, R>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet.bytes);
        self.packets.push((packet.route, start..self.bytes.len(), packet.marked));
    }

    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
    }
}

/// An outgoing packet, in either form.
#[derive(Clone, Copy)]
pub(super) enum Outgoing<'a> {
    Bytes(&'a [u8]),
    Message(TxPacket<'a>),
}

impl Outgoing<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Message(packet) => packet.len(),
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::Message(packet) => {
                out.resize(packet.len(), 0);
                packet.copy_to(out);
            }
        }
    }

    #[inline]
    pub(super) fn push<Q: TxQueue>(&self, tx: &mut Q, route: &Q::Route) {
        match self {
            Self::Bytes(bytes) => tx.push_bytes(route, bytes),
            Self::Message(packet) => tx.push(route, *packet),
        }
    }
}

/// Pushes bytes of any length. If they are too long for `push_bytes`, they become a message whose
/// header is the whole packet. Without memory for that message, the packet is lost.
pub(super) fn push_owned<Q: TxQueue>(tx: &mut Q, route: &Q::Route, bytes: &[u8]) {
    if bytes.len() <= MIN_DATAGRAM {
        tx.push_bytes(route, bytes);
    } else if let Some(mut message) = MsgBuf::detached(bytes.len()) {
        message.put_slice(bytes);
        tx.push(route, TxPacket::new(&message, message.as_slice(), &[]));
    }
}
