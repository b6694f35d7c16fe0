//! Assembles a message from its packets.

use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::mutants::mutant;
use crate::wire::PacketLayout;

/// Size of the first buffer of a message of several packets, in bytes. The buffer holds at least
/// the first packet, and at most four times the bytes of the first packet.
const FIRST_BUFFER: usize = 16 * 1_024;

/// A message that arrives packet by packet, in order.
///
/// Memory is bounded by the bytes that have arrived: the buffer holds at most four times these
/// bytes, before the pool rounds its size up. Exception: the pool has an idle buffer for the whole
/// message. A declared size alone allocates nothing.
pub(super) struct Assembly {
    /// `None` before the first packet.
    buffer: Option<MsgBuf>,
    layout: PacketLayout,
    next: u32,
}

impl Assembly {
    /// A message of which no packet has arrived.
    pub(super) fn empty(layout: PacketLayout) -> Self {
        Self { buffer: None, layout, next: 0 }
    }

    /// A message of which the first packet, `body`, has arrived. The caller has checked its length
    /// against the layout.
    pub(super) fn begin(
        layout: PacketLayout,
        body: &[u8],
        pool: &mut Pool,
    ) -> Result<Self, NoMemory> {
        let mut assembly = Self::empty(layout);
        assembly.take(body, pool).map(|()| assembly)
    }

    pub(super) fn layout(&self) -> &PacketLayout {
        &self.layout
    }

    /// The next expected packet: all packets before it have arrived.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Whether every packet has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.next == self.layout.packets()
    }

    /// Bytes of memory held.
    pub(super) fn footprint(&self) -> usize {
        self.buffer.as_ref().map_or(0, MsgBuf::footprint)
    }

    /// Appends packet [`Self::next`]. The caller has checked its length against the layout.
    pub(super) fn take(&mut self, body: &[u8], pool: &mut Pool) -> Result<(), NoMemory> {
        let range = self.layout.range(self.next);
        debug_assert_eq!(range.len(), body.len());
        let buffer = match &mut self.buffer {
            Some(buffer) if range.end <= buffer.capacity() => buffer,
            Some(buffer) => {
                Self::grow(buffer, &self.layout, range.end, pool)?;
                buffer
            }
            none => none.insert(Self::first_buffer(&self.layout, pool)?),
        };
        buffer.write_at(range.start, body);
        buffer.resize(range.end);
        self.next += 1;
        Ok(())
    }

    /// The complete message.
    pub(super) fn into_message(self) -> MsgBuf {
        debug_assert!(self.is_complete());
        self.buffer.expect("a complete message has a buffer")
    }

    /// Returns the memory to the pool.
    pub(super) fn discard(self, pool: &mut Pool) {
        let Some(buffer) = self.buffer else { return };
        if mutant!(AssemblyLeak) {
            return std::mem::forget(buffer);
        }
        pool.recycle(buffer);
    }

    fn first_buffer(layout: &PacketLayout, pool: &mut Pool) -> Result<MsgBuf, NoMemory> {
        let (size, first) = (layout.size() as usize, layout.len(0));
        match pool.alloc_idle(size) {
            Some(buffer) => Ok(buffer),
            None => pool.alloc(size.min(FIRST_BUFFER.clamp(first, 4 * first))),
        }
    }

    #[cold]
    fn grow(
        buffer: &mut MsgBuf,
        layout: &PacketLayout,
        needed: usize,
        pool: &mut Pool,
    ) -> Result<(), NoMemory> {
        let size = layout.size() as usize;
        let mut larger = match pool.alloc_idle(size) {
            Some(buffer) => buffer,
            None => pool.alloc(size.min(needed.max(buffer.capacity() * 3)))?,
        };
        larger.write_at(0, buffer.as_slice());
        larger.resize(buffer.len());
        pool.recycle(std::mem::replace(buffer, larger));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_by_the_bytes_that_have_arrived() {
        let mut pool = Pool::new(1 << 30);
        let layout = PacketLayout::new(100 << 20, 1_024, 1_024);
        let mut assembly = Assembly::empty(layout);
        for index in 0..1_000u32 {
            assembly.take(&[index as u8; 1_024], &mut pool).unwrap();
            let arrived = (index as usize + 1) * 1_024;
            assert!(
                assembly.footprint() <= 4 * arrived + 2 * FIRST_BUFFER,
                "{} for {arrived}",
                assembly.footprint()
            );
        }
        assembly.discard(&mut pool);
        assert_eq!(pool.stats().in_use, 0);
    }

    #[test]
    fn the_message_is_its_packets_in_order() {
        let mut pool = Pool::new(1 << 30);
        let message: Vec<u8> = (0..200_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let layout = PacketLayout::new(200_000, 2_000, 1_448);
        let mut assembly = Assembly::empty(layout);
        while !assembly.is_complete() {
            let range = layout.range(assembly.next());
            assembly.take(&message[range], &mut pool).unwrap();
        }
        assert_eq!(assembly.into_message().as_slice(), message);
    }

    #[test]
    fn the_first_buffer_is_at_most_four_times_the_first_packet_before_rounding() {
        for len in [1_024, 1_176, 1_448, 4_096, 8_948, 20_000] {
            let mut pool = Pool::new(1 << 30);
            let layout = PacketLayout::new(8 << 20, len, len);
            let mut assembly = Assembly::empty(layout);
            assembly.take(&vec![1; len as usize], &mut pool).expect("memory");
            let (held, most) = (assembly.footprint(), 4 * len as usize);
            assert!(held <= most + most / 2, "{held} bytes for a packet of {len}");
            assembly.discard(&mut pool);
        }
    }
}
