//! Packets of a few bytes, built on the stack.

use super::checksum::{TRAILER_LEN, trailer_of};
use super::{HEADER_LEN, Header};

/// Longest body in bytes: that of an `Open`.
const MAX_BODY: usize = 45;
/// Longest packet in bytes, trailer included.
const MAX_LEN: usize = HEADER_LEN + MAX_BODY + TRAILER_LEN;

/// A packet of at most 73 bytes: a control message, a header alone, or a header with a short list.
#[derive(Clone, Copy, Debug)]
pub struct ShortPacket {
    bytes: [u8; MAX_LEN],
    len: u8,
}

impl ShortPacket {
    /// Makes a packet with this body, at most 45 bytes, and with a trailer if the header's flag
    /// says so.
    ///
    /// # Panics
    /// If the body is longer than 45 bytes.
    #[must_use]
    #[inline]
    pub fn new(header: &Header, body: &[u8]) -> Self {
        let mut bytes = [0; MAX_LEN];
        let len = HEADER_LEN + body.len();
        bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        bytes[HEADER_LEN..len].copy_from_slice(body);
        let mut packet = Self { bytes, len: len as u8 };
        if header.flags.trailer() {
            packet.len += TRAILER_LEN as u8;
            packet.seal();
        }
        packet
    }

    /// The datagram.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Sets the version bits to those of `vkf`, the ninth byte of the packet that is answered: the
    /// sender of that packet cannot parse an answer in another version. This packet must have a
    /// trailer.
    pub(crate) fn set_version(&mut self, vkf: u8) {
        self.bytes[8] = self.bytes[8] & !0b11 | vkf & 0b11;
        self.seal();
    }

    /// Computes the trailer.
    fn seal(&mut self) {
        let (sealed, trailer) =
            self.bytes[..usize::from(self.len)].split_at_mut(usize::from(self.len) - TRAILER_LEN);
        trailer.copy_from_slice(&trailer_of(sealed, &[]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ConnectionId, Flags, Kind, PacketNumber, RequestNumber, checksum};

    const HEADER: Header = Header {
        connection: ConnectionId::from_u64(0x0102_0304_0506_0708),
        kind: Kind::RequestForResponse,
        packet: PacketNumber::new(1),
        request: RequestNumber::from_u32(2),
        aux: 0,
        size: 3,
        flags: Flags::NONE,
    };

    #[test]
    fn only_a_packet_with_the_trailer_flag_has_a_trailer() {
        assert_eq!(ShortPacket::new(&HEADER, &[]).as_bytes(), HEADER.to_bytes());
        for body in [&[][..], &[1, 2, 3, 4], &[9; MAX_BODY]] {
            let header = Header { flags: Flags::TRAILER, ..HEADER };
            let packet = ShortPacket::new(&header, body);
            let rest = checksum::check(packet.as_bytes()).unwrap();
            assert_eq!(rest, [&header.to_bytes()[..], body].concat());
        }
    }

    #[test]
    fn the_trailer_covers_the_version() {
        let mut packet = ShortPacket::new(&Header { flags: Flags::TRAILER, ..HEADER }, &[]);
        packet.set_version(0b11);
        assert_eq!(packet.as_bytes()[8] & 0b11, 0b11);
        assert!(checksum::check(packet.as_bytes()).is_ok());
    }
}
