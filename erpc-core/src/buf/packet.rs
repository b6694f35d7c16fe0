//! A packet of a message, ready for a transmit queue.

use std::hint::black_box;

use super::MsgBuf;
use super::msgbuf::copy;
use crate::wire::HEADER_LEN;
use crate::wire::checksum::{TRAILER_LEN, trailer_of};

/// A packet of a message, ready to send: a header, a piece of a [`MsgBuf`], and on sessions with
/// checksums a trailer.
///
/// The first packet's header is directly in front of its data in the msgbuf, so this packet is one
/// piece of memory. Later packets are two pieces. The trailer is always a separate piece, because
/// the memory after a packet's data in the msgbuf belongs to the next packet.
#[derive(Clone, Copy, Debug)]
pub struct TxPacket<'a> {
    msgbuf: &'a MsgBuf,
    header: &'a [u8],
    data: &'a [u8],
    trailer: Option<[u8; TRAILER_LEN]>,
}

impl<'a> TxPacket<'a> {
    /// A packet without a trailer.
    #[inline]
    pub(crate) fn new(msgbuf: &'a MsgBuf, header: &'a [u8], data: &'a [u8]) -> Self {
        debug_assert!(header.len() >= HEADER_LEN);
        Self { msgbuf, header, data, trailer: None }
    }

    /// The same packet, with a trailer if `trailer` is true. The trailer is computed now, so header
    /// and data must be final.
    #[inline(always)]
    pub(crate) fn sealed(self, trailer: bool) -> Self {
        if trailer {
            Self { trailer: Some(trailer_of(self.header, self.data)), ..self }
        } else {
            self
        }
    }

    /// The packet's memory: the header with the data that directly follows it, then the rest of the
    /// data, which may be empty. [`TxPacket::hold`] keeps this memory alive. The trailer, if there
    /// is one, comes last. Its 4 bytes belong to the `TxPacket`, so a queue must copy them.
    #[must_use]
    #[inline]
    pub fn pieces(&self) -> ([&'a [u8]; 2], Option<[u8; TRAILER_LEN]>) {
        ([self.header, self.data], self.trailer)
    }

    /// Bytes of the packet, trailer included. Never 0: every packet has a header.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a packet has a header and is never empty")]
    pub fn len(&self) -> usize {
        self.header.len() + self.data.len() + self.trailer.map_or(0, |_| TRAILER_LEN)
    }

    /// Whether the packet is its whole message. The packets of a longer message must stay in
    /// order: a packet that arrives early counts as a sign of loss.
    #[must_use]
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.data.len() + self.header.len() == self.msgbuf.len() + HEADER_LEN
    }

    /// Copies the packet to the front of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`TxPacket::len`].
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let (split, end) = (self.header.len(), self.header.len() + self.data.len());
        copy_header(self.header, &mut out[..split]);
        if !self.data.is_empty() {
            out[split..end].copy_from_slice(self.data);
        }
        if let Some(trailer) = &self.trailer {
            out[end..end + TRAILER_LEN].copy_from_slice(trailer);
        }
        self.len()
    }

    /// A reference that keeps the packet's memory from being reused. While it exists, writes to the
    /// msgbuf panic.
    #[must_use]
    pub fn hold(&self) -> MsgBuf {
        self.msgbuf.share()
    }
}

/// Copies a header with the data that directly follows it.
///
/// The header was written in words of 8 bytes a few nanoseconds ago. A wider load would wait until
/// all words have left the store buffer; a load of a single word is served from the store buffer.
/// `black_box` prevents the compiler from merging the words.
#[inline]
fn copy_header(from: &[u8], to: &mut [u8]) {
    const WORD: usize = size_of::<u64>();
    let (header, data) = from.split_at(HEADER_LEN);
    let (header_out, data_out) = to.split_at_mut(HEADER_LEN);
    for (word, out) in header.chunks_exact(WORD).zip(header_out.chunks_exact_mut(WORD)) {
        out.copy_from_slice(black_box(word));
    }
    copy(data, data_out);
}

const _: () = assert!(HEADER_LEN.is_multiple_of(size_of::<u64>()));
