//! Layout of a message in packets.

use std::ops::Range;

/// The packets of a message of `size` bytes. The first packet carries up to `first` bytes, each
/// later packet up to `rest` bytes.
///
/// Requests have `first == rest`. For responses, `first` is the client's *eager limit*: the payload
/// that the client accepts without asking. A server sends one such packet per request. The client
/// pulls all later packets, so it knows that it has room for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketLayout {
    size: u32,
    first: u32,
    rest: u32,
}

impl PacketLayout {
    /// Makes a layout; all sizes are in bytes. An empty message is one empty packet.
    ///
    /// # Panics
    /// If `first` or `rest` is 0. Both are negotiated and checked when a session opens.
    #[must_use]
    #[inline]
    pub const fn new(size: u32, first: u32, rest: u32) -> Self {
        assert!(first > 0 && rest > 0);
        Self { size, first, rest }
    }

    /// The layout of a message that is one packet on its path.
    #[must_use]
    #[inline]
    pub const fn single(size: u32) -> Self {
        let payload = if size == 0 { 1 } else { size };
        Self { size, first: payload, rest: payload }
    }

    /// The layout of a message of another size on the same path.
    #[must_use]
    #[inline]
    pub const fn with_size(self, size: u32) -> Self {
        Self { size, ..self }
    }

    /// Bytes of the message.
    #[must_use]
    #[inline]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Number of packets, at least 1.
    #[must_use]
    #[inline]
    pub const fn packets(&self) -> u32 {
        if self.size <= self.first { 1 } else { 1 + (self.size - self.first).div_ceil(self.rest) }
    }

    /// The bytes of the message that packet `index` carries.
    ///
    /// # Panics
    /// In debug builds, if there is no such packet.
    #[must_use]
    #[inline]
    pub const fn range(&self, index: u32) -> Range<usize> {
        if index == 0 {
            let end = if self.size < self.first { self.size } else { self.first };
            return 0..end as usize;
        }
        debug_assert!(index < self.packets());
        // Computed in 64 bits: the last packet's nominal end may exceed u32::MAX.
        let start = self.first as u64 + (index as u64 - 1) * self.rest as u64;
        let end = start + self.rest as u64;
        start as usize..if end > self.size as u64 { self.size as usize } else { end as usize }
    }

    /// Bytes that packet `index` carries.
    #[must_use]
    #[inline]
    pub const fn len(&self, index: u32) -> usize {
        let range = self.range(index);
        range.end - range.start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_cover_the_message_without_gaps_or_overlap(size in 0u32..100_000, first in 1u32..5_000, rest in 1u32..5_000) {
            let layout = PacketLayout::new(size, first, rest);
            let mut at = 0;
            for index in 0..layout.packets() {
                let range = layout.range(index);
                prop_assert_eq!(range.start, at);
                prop_assert_eq!(range.len(), layout.len(index));
                let most = if index == 0 { first } else { rest };
                prop_assert!(range.len() <= most as usize);
                prop_assert!(index == 0 || !range.is_empty());
                at = range.end;
            }
            prop_assert_eq!(at, size as usize);
        }
    }

    #[test]
    fn an_empty_message_is_one_empty_packet() {
        let layout = PacketLayout::new(0, 10, 10);
        assert_eq!((layout.packets(), layout.range(0)), (1, 0..0));
    }

    #[test]
    fn the_largest_message_does_not_overflow() {
        let layout = PacketLayout::new(u32::MAX, 1_024, 1_024);
        assert_eq!(layout.range(layout.packets() - 1).end, u32::MAX as usize);
    }
}
