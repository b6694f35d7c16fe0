//! The message buffer of thesis section 6.3.2.1.

use std::fmt;

use bytes::BufMut;
use bytes::buf::UninitSlice;

use super::TxPacket;
use super::block::{Block, BlockRef, Home};
use crate::sync::Arc;
use crate::wire::{HEADER_LEN, Header, HeaderWords, PacketLayout};

/// Smallest payload per packet that a session may negotiate, in bytes. It determines how many
/// headers a msgbuf reserves room for.
pub(crate) const MIN_PAYLOAD: usize = 1_024;

/// A message buffer whose layout lets a NIC send the message without a copy.
///
/// ```text
/// +----------+------------------------------------+----------+----------+--
/// | header 0 | data[capacity], len of it in use   | header 1 | header 2 | ..
/// +----------+------------------------------------+----------+----------+--
/// ```
///
/// The first packet's header is directly in front of the data, so a small message is one piece of
/// memory and one DMA read. The application sees contiguous data, so the headers of later packets
/// are after the data. The later packets are sent as two pieces.
///
/// # Ownership
///
/// The user gives a msgbuf to a call or a response. A call returns the msgbuf when the call ends.
/// The msgbuf of a response stays in its slot until the client has acknowledged the response.
/// Transmit queues hold counted references ([`TxPacket::hold`]). While one exists, every method
/// that writes to the message panics, because the NIC may still read the bytes. The protocol
/// flushes its queues before it returns a buffer (section 6.3.2.2), so users never see that panic.
///
/// # Use as `Buf` and `BufMut`
///
/// As [`BufMut`] it appends up to its capacity, so messages are encoded directly into the memory
/// that is sent. To read, use [`MsgBuf::as_slice`], which is a [`bytes::Buf`].
///
/// ```
/// use bytes::BufMut;
/// use erpc_core::buf::Pool;
///
/// let mut pool = Pool::new(1 << 20);
/// let mut msgbuf = pool.alloc(100)?;
/// msgbuf.put_u32_le(7);
/// msgbuf.put_slice(b"seven");
/// assert_eq!(msgbuf.as_slice(), b"\x07\0\0\0seven");
/// # Ok::<(), erpc_core::buf::NoMemory>(())
/// ```
pub struct MsgBuf {
    /// The block's notes hold the length and the capacity. The length is at most the capacity, and
    /// the block has room for a header, `capacity` bytes of data and the later headers.
    block: BlockRef,
}

/// Index of the note that holds the length.
const LEN: usize = 0;
/// Index of the note that holds the capacity.
const CAPACITY: usize = 1;

/// Block bytes that a msgbuf with room for `data` bytes needs.
pub(super) const fn block_bytes(data: usize) -> usize {
    HEADER_LEN + data + data / MIN_PAYLOAD * HEADER_LEN
}

/// Data bytes that fit a block of `block` bytes; the inverse of [`block_bytes`], rounded down.
const fn data_bytes(block: usize) -> usize {
    const STEP: usize = MIN_PAYLOAD + HEADER_LEN;
    let room = block - HEADER_LEN;
    let (steps, left) = (room / STEP, room % STEP);
    steps * MIN_PAYLOAD + if left < MIN_PAYLOAD { left } else { MIN_PAYLOAD - 1 }
}

impl MsgBuf {
    /// Largest capacity, in bytes: message sizes are 32 bits on the wire.
    pub const MAX_CAPACITY: usize = u32::MAX as usize;

    /// A buffer for at least `capacity` bytes outside of every pool; `None` if the allocator fails
    /// or `capacity` exceeds [`MsgBuf::MAX_CAPACITY`]. For threads that own no pool.
    #[must_use]
    pub fn detached(capacity: usize) -> Option<Self> {
        if capacity > Self::MAX_CAPACITY {
            return None;
        }
        Block::allocate(block_bytes(capacity), None).map(|block| Self::from_block(block.activate()))
    }

    /// An empty buffer that uses `block`.
    #[inline]
    pub(super) fn from_block(block: BlockRef) -> Self {
        let mut block = block;
        let capacity = data_bytes(block.capacity()).min(Self::MAX_CAPACITY) as u32;
        block.set_note(LEN, 0);
        block.set_note(CAPACITY, capacity);
        Self { block }
    }

    /// Converts the buffer back to its idle block, if this is the block's only reference and the
    /// block belongs to `home`. Returns the buffer as `Err` otherwise.
    #[inline]
    pub(super) fn reclaim(self, home: &Arc<Home>) -> Result<Block, Self> {
        self.block.reclaim(home).map_err(|block| Self { block })
    }

    /// Whether this is the only reference to the block, and the block belongs to `home`.
    #[inline]
    pub(super) fn is_idle(&self, home: &Arc<Home>) -> bool {
        self.block.is_idle(home)
    }

    /// Whether the buffer belongs to no pool.
    #[inline]
    pub(crate) fn is_detached(&self) -> bool {
        self.block.is_homeless()
    }

    /// Moves a detached buffer to a pool. False if the buffer cannot be moved; see
    /// [`BlockRef::adopt`].
    pub(super) fn adopt(&mut self, home: &Arc<Home>) -> bool {
        self.block.adopt(home)
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.block.set_note(LEN, len as u32);
    }

    /// Bytes of data.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.block.note(LEN) as usize
    }

    /// Whether there is no data.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Largest length in bytes.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        self.block.note(CAPACITY) as usize
    }

    /// Bytes of memory that the buffer occupies, headers and bookkeeping included.
    #[must_use]
    #[inline]
    pub(crate) fn footprint(&self) -> usize {
        Block::footprint(self.block.capacity())
    }

    /// The data, [`MsgBuf::len`] bytes.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the block holds a header and at least `capacity` bytes, and `len` is at most
        // `capacity`.
        unsafe { self.block.slice(HEADER_LEN, self.len()) }
    }

    /// The data, writable in place.
    ///
    /// # Panics
    /// If a transmit queue refers to the buffer; see *Ownership* in the type's docs.
    #[must_use]
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len();
        // SAFETY: the block holds a header and at least `capacity` bytes, and `len` is at most
        // `capacity`.
        unsafe { self.block.slice_mut(HEADER_LEN, len) }
    }

    /// Sets the length. If it grows, the added bytes are whatever the memory contains: zeros in a
    /// new buffer, bytes of an earlier message in a recycled one.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    #[inline]
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a msgbuf of {} bytes cannot hold {len}", self.capacity());
        self.set_len(len);
    }

    /// Sets the length to 0. Does not overwrite the data.
    #[inline]
    pub fn clear(&mut self) {
        self.set_len(0);
    }

    /// Writes `bytes` at `at` without changing the length. Used to assemble a message from packets.
    ///
    /// # Panics
    /// If the bytes do not fit the capacity, or a transmit queue refers to the buffer.
    #[inline]
    pub(crate) fn write_at(&mut self, at: usize, bytes: &[u8]) {
        let room = self.capacity().checked_sub(at);
        assert!(room.is_some_and(|room| bytes.len() <= room), "the bytes do not fit the msgbuf");
        // SAFETY: the block holds a header and at least `capacity` bytes, and the assertion above
        // keeps the range within `capacity`.
        unsafe { self.block.slice_mut(HEADER_LEN + at, bytes.len()) }.copy_from_slice(bytes);
    }

    /// Loads the buffer's bookkeeping and the first bytes of its data into the cache.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.block.prefetch();
    }

    /// Whether no transmit queue refers to the buffer.
    #[must_use]
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        self.block.is_unique()
    }

    /// Another reference to the same memory, for a transmit queue. While it exists, writes panic.
    #[must_use]
    pub(crate) fn share(&self) -> Self {
        Self { block: self.block.share() }
    }

    /// Writes the header of a message of one packet to its place in the buffer. Returns the packet,
    /// with a trailer if the header announces one.
    #[inline(always)]
    pub(crate) fn single_packet(&mut self, header: HeaderWords) -> TxPacket<'_> {
        // SAFETY: every block has room for the first header.
        unsafe { self.block.write_shared(0, &header.to_bytes()) };
        // SAFETY: the block holds a header and at least `capacity` bytes, and `len` is at most
        // `capacity`.
        let packet = unsafe { self.block.slice(0, HEADER_LEN + self.len()) };
        TxPacket::new(self, packet, &[]).sealed(header.has_trailer())
    }

    /// Writes the header of packet `index` to its place in the buffer. Returns the packet, ready to
    /// be pushed to a queue, with a trailer if the header announces one.
    ///
    /// A caller that retransmits a packet must flush the transmit queue first, so that no device
    /// reads the header during the write.
    ///
    /// # Panics
    /// If the layout's size is not the buffer's length, or there is no room for the packet's
    /// header. In debug builds, also if the layout has no such packet.
    #[inline(always)]
    pub(crate) fn packet(
        &mut self,
        index: u32,
        header: &Header,
        layout: &PacketLayout,
    ) -> TxPacket<'_> {
        assert!(layout.size() as usize == self.len(), "the layout is of another message");
        let range = layout.range(index);
        if index == 0 {
            // SAFETY: every block has room for the first header.
            unsafe { self.block.write_shared(0, &header.to_bytes()) };
            // SAFETY: `range.end` is at most the layout's size, which equals `len` (asserted
            // above), and the block holds a header and at least `len` bytes.
            let packet = unsafe { self.block.slice(0, HEADER_LEN + range.end) };
            return TxPacket::new(self, packet, &[]).sealed(header.flags.trailer());
        }
        let at = HEADER_LEN + self.capacity() + (index as usize - 1) * HEADER_LEN;
        assert!(
            range.end <= self.len() && at + HEADER_LEN <= self.block.capacity(),
            "the msgbuf has no such packet"
        );
        // SAFETY: the header's place lies within the block, asserted above.
        unsafe { self.block.write_shared(at, &header.to_bytes()) };
        // SAFETY: as above.
        let head = unsafe { self.block.slice(at, HEADER_LEN) };
        // SAFETY: the range ends within `len`, asserted above.
        let data = unsafe { self.block.slice(HEADER_LEN + range.start, range.len()) };
        TxPacket::new(self, head, data).sealed(header.flags.trailer())
    }
}

/// Copies `from` to `to`, which has the same length. For small messages, two overlapping moves of
/// fixed size take half the time of a `memcpy` call.
#[inline(always)]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    const HALF: usize = 16;
    match (from.first_chunk::<HALF>(), from.last_chunk::<HALF>()) {
        (Some(first), Some(last)) if from.len() <= 2 * HALF => {
            to[..HALF].copy_from_slice(first);
            let at = to.len() - HALF;
            to[at..].copy_from_slice(last);
        }
        _ => to.copy_from_slice(from),
    }
}

impl fmt::Debug for MsgBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MsgBuf({} of {} bytes)", self.len(), self.capacity())
    }
}

impl AsRef<[u8]> for MsgBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

// SAFETY: `remaining_mut` is the room after `len`; `chunk_mut` is exactly that memory, initialised;
// `advance_mut` moves `len` within the capacity or panics.
unsafe impl BufMut for MsgBuf {
    #[inline]
    fn remaining_mut(&self) -> usize {
        self.capacity() - self.len()
    }

    #[inline]
    unsafe fn advance_mut(&mut self, count: usize) {
        assert!(count <= self.remaining_mut(), "the bytes do not fit the msgbuf");
        self.set_len(self.len() + count);
    }

    #[inline]
    fn chunk_mut(&mut self) -> &mut UninitSlice {
        let (from, room) = (HEADER_LEN + self.len(), self.remaining_mut());
        // SAFETY: the block holds a header and at least `capacity` bytes; `from + room` is a header
        // and `capacity` bytes.
        UninitSlice::new(unsafe { self.block.slice_mut(from, room) })
    }

    #[inline]
    fn put_slice(&mut self, src: &[u8]) {
        let (len, capacity) = (self.len(), self.capacity());
        assert!(src.len() <= capacity - len, "the bytes do not fit the msgbuf");
        // SAFETY: the block holds a header and at least `capacity` bytes, and the assertion above
        // keeps the range within `capacity`.
        copy(src, unsafe { self.block.slice_mut(HEADER_LEN + len, src.len()) });
        self.set_len(len + src.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::checksum::{self, TRAILER_LEN};
    use crate::wire::{ConnectionId, Flags, Kind, PacketNumber, RequestNumber};

    #[test]
    fn data_sizes_and_block_sizes_are_consistent() {
        for data in (0..10_000).chain([1 << 20, (8 << 20) - 1, 8 << 20, 256 << 20]) {
            let block = block_bytes(data);
            assert!(data_bytes(block) >= data, "{data}");
            assert!(block_bytes(data_bytes(block)) <= block, "{data}");
        }
    }

    #[test]
    fn the_first_packet_is_one_piece_and_later_ones_are_two() {
        let mut msgbuf = MsgBuf::detached(3_000).unwrap();
        let data: Vec<u8> = (0..3_000u32).map(|i| i as u8).collect();
        msgbuf.put_slice(&data);
        let layout = PacketLayout::new(3_000, 1_024, 1_024);
        for index in 0..layout.packets() {
            let header = Header {
                connection: ConnectionId::default(),
                kind: Kind::Request,
                packet: PacketNumber::new(index),
                request: RequestNumber::default(),
                aux: 0,
                size: 3_000,
                flags: Flags::NONE,
            };
            let packet = msgbuf.packet(index, &header, &layout);
            let ([_, data_behind], trailer) = packet.pieces();
            assert_eq!((data_behind.is_empty(), trailer), (index == 0, None));
            let mut out = [0; 2_048];
            let len = packet.copy_to(&mut out);
            assert_eq!(Header::parse(&out[..len]), Ok(header));
            assert_eq!(out[HEADER_LEN..len], data[layout.range(index)]);
        }
        assert_eq!(msgbuf.as_slice(), data, "writing headers must not change the data");
    }

    #[test]
    fn a_trailer_is_a_separate_piece_and_does_not_change_the_data() {
        let data: Vec<u8> = (0..2_500u32).map(|i| (i * 7) as u8).collect();
        let mut msgbuf = MsgBuf::detached(data.len()).unwrap();
        msgbuf.put_slice(&data);
        let mut header = Header {
            connection: ConnectionId::default(),
            kind: Kind::Response,
            packet: PacketNumber::default(),
            request: RequestNumber::default(),
            aux: 0,
            size: 2_500,
            flags: Flags::TRAILER,
        };
        let layout = PacketLayout::new(2_500, 1_024, 1_024);
        let check = |packet: TxPacket<'_>, header: &Header, body: &[u8]| {
            let mut out = vec![0xEE; packet.len() + 1];
            let len = packet.copy_to(&mut out);
            assert_eq!((len, out[len]), (HEADER_LEN + body.len() + TRAILER_LEN, 0xEE));
            let (pieces, trailer) = packet.pieces();
            assert_eq!(out[..len], [&pieces.concat()[..], &trailer.unwrap()].concat());
            let rest = checksum::check(&out[..len]).unwrap();
            assert_eq!(rest, [&header.to_bytes()[..], body].concat());
        };
        for index in 0..layout.packets() {
            header.packet = PacketNumber::new(index);
            check(msgbuf.packet(index, &header, &layout), &header, &data[layout.range(index)]);
        }
        check(msgbuf.single_packet(header.to_words()), &header, &data);
        assert_eq!(msgbuf.as_slice(), data);
    }

    #[test]
    fn a_msgbuf_has_room_for_the_headers_of_the_smallest_packets() {
        for size in [1_024u32, 1_025, 2_047, 2_048, 2_049, 65_536] {
            let mut msgbuf = MsgBuf::detached(size as usize).unwrap();
            msgbuf.resize(size as usize);
            let layout = PacketLayout::new(size, MIN_PAYLOAD as u32, MIN_PAYLOAD as u32);
            let last = layout.packets() - 1;
            let header = Header::parse(&[
                0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ]);
            assert!(msgbuf.packet(last, &header.unwrap(), &layout).len() > HEADER_LEN, "{size}");
        }
    }

    #[test]
    fn bytes_of_any_number_are_appended() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut msgbuf = MsgBuf::detached(5_000).unwrap();
        let mut expect = Vec::new();
        for len in [0, 1, 15, 16, 17, 31, 32, 33, 64, 100] {
            msgbuf.put_slice(&bytes[..len]);
            expect.extend(&bytes[..len]);
            assert_eq!(msgbuf.as_slice(), expect, "{len}");
        }
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn bytes_beyond_the_capacity_are_refused() {
        let mut msgbuf = MsgBuf::detached(8).unwrap();
        let room = msgbuf.remaining_mut();
        msgbuf.put_slice(&vec![0; room]);
        msgbuf.put_slice(&[0]);
    }

    #[test]
    #[should_panic(expected = "still reads it")]
    fn writing_a_queued_msgbuf_panics() {
        let mut msgbuf = MsgBuf::detached(8).unwrap();
        let _queued = msgbuf.share();
        msgbuf.put_u8(1);
    }
}
