//! The data header: 24 bytes, little endian, in front of every packet.
//!
//! ```text
//!  0               8    9        12       16       20       24
//! +---------------+----+---------+--------+--------+--------+
//! | connection id |vkf | packet  |request |  aux   |  size  |
//! |      u64      | u8 |   u24   |  u32   |  u32   |  u32   |
//! +---------------+----+---------+--------+--------+--------+
//!    vkf: version (bits 0-1), kind (2-4), flags (5-7): 5 a trailer follows, 6 the message
//!    begins with an extension, 7 the message is cut into the session's large packets
//! ```
//!
//! What `packet`, `aux` and `size` mean depends on the kind; see [`Kind`].

use super::{ConnectionId, PacketNumber, ReplyInfo, RequestNumber};

/// Bytes of the header.
pub const HEADER_LEN: usize = 24;

/// The protocol version of this crate, carried in two bits of every packet.
pub const VERSION: u8 = 1;

/// The `packet` field of a [`Kind::Done`] that cancels the request: the client no longer wants the
/// response.
pub const CANCEL: u32 = 1;

/// The `packet` field of a [`Kind::Response`] or [`Kind::Failure`] that announces a message. `size`
/// is that of the whole message, there is no body, and the client pulls all packets, including the
/// first. No message has this many packets. Because the number is reserved, damage cannot turn a
/// first packet without its body into an announcement, nor an announcement with extra bytes into a
/// first packet.
pub const ANNOUNCEMENT: u32 = PacketNumber::MAX;

/// What a packet is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Client to server: packet `packet` of a request. `aux`: the method id in the first packet,
    /// the sender's [`super::Stamp`] in later ones; `size`: bytes of the whole request.
    Request = 0,
    /// Server to client: packet `packet` of a response, or [`ANNOUNCEMENT`]. `aux`:
    /// [`super::ReplyInfo`]; `size`: bytes of the whole response in the first packet and in
    /// announcements, and in later packets the stamp of the request for response that the packet
    /// answers.
    Response = 1,
    /// Like `Response`, but the message is an encoded status: the call failed.
    Failure = 2,
    /// Server to client: credit return. `packet`: the next request packet expected; `aux`:
    /// [`super::ReplyInfo`]; `size`: bit 0 is set if the server dropped a later packet because of a
    /// gap, the upper 31 bits are the stamp of the last packet received.
    CreditReturn = 3,
    /// Client to server: request for response. `packet`: the first response packet wanted; `aux`:
    /// the sender's stamp; `size`: how many packets, at least 1.
    RequestForResponse = 4,
    /// Server to client: the request has arrived and is still executing. `packet`: that of the
    /// packet that is answered; `aux`: [`super::ReplyInfo`].
    Accepted = 5,
    /// Client to server, `packet` 0: responses received completely; the body lists up to 8 request
    /// numbers, u32 each. `packet` [`CANCEL`]: the client has cancelled request `request`; no body.
    Done = 6,
    /// Both directions: a control message, its type in `packet`; see [`super::control`].
    Control = 7,
}

impl Kind {
    /// The kind in the lower three bits.
    #[inline]
    const fn from_bits(bits: u8) -> Self {
        match bits & 0b111 {
            0 => Self::Request,
            1 => Self::Response,
            2 => Self::Failure,
            3 => Self::CreditReturn,
            4 => Self::RequestForResponse,
            5 => Self::Accepted,
            6 => Self::Done,
            _ => Self::Control,
        }
    }
}

/// A parsed header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The receiver's id for the session.
    pub connection: ConnectionId,
    /// What the packet is for.
    pub kind: Kind,
    /// Number of the packet in its message; some kinds give it another meaning, see [`Kind`].
    pub packet: PacketNumber,
    /// Number of the request in the session; a nonce in control packets.
    pub request: RequestNumber,
    /// Depends on [`Kind`].
    pub aux: u32,
    /// Depends on [`Kind`].
    pub size: u32,
    /// Trailer, extension and packet size of the message.
    pub flags: Flags,
}

/// Flags of a packet: whether it has a trailer, whether its message has an extension, and in which
/// size its message is cut.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(u8);

impl Flags {
    /// No trailer, no extension, small packets.
    pub const NONE: Self = Self(0);
    /// A checksum follows the body; see [`super::checksum`].
    pub const TRAILER: Self = Self(1 << 5);
    /// The packet's message begins with an extension; see [`super::extension`]. Only requests,
    /// responses and failures have one.
    pub const EXTENDED: Self = Self(1 << 6);
    /// The packet's message is cut into the session's large packets, not into small ones, which
    /// every path carries. In credit returns and requests for response, the flag is that of the
    /// message to which they refer.
    pub const LARGE: Self = Self(1 << 7);

    /// Flags of a packet with or without a trailer, of a message with or without an extension. The
    /// message is not cut into large packets.
    #[must_use]
    #[inline]
    pub const fn new(trailer: bool, extended: bool) -> Self {
        Self((trailer as u8) << 5 | (extended as u8) << 6)
    }

    /// The same flags, with [`Flags::LARGE`] set if `large` and cleared otherwise.
    #[must_use]
    #[inline]
    pub const fn with_large(self, large: bool) -> Self {
        Self(self.0 & !Self::LARGE.0 | (large as u8) << 7)
    }

    /// Whether the message is cut into large packets.
    #[must_use]
    #[inline]
    pub const fn large(self) -> bool {
        self.0 & Self::LARGE.0 != 0
    }

    /// The same flags; sets [`Flags::EXTENDED`] if `extended`.
    #[must_use]
    #[inline]
    pub const fn and_extended(self, extended: bool) -> Self {
        Self(self.0 | (extended as u8) << 6)
    }

    /// Whether the packet has a trailer.
    #[must_use]
    #[inline]
    pub const fn trailer(self) -> bool {
        self.0 & Self::TRAILER.0 != 0
    }

    /// Whether the message begins with an extension.
    #[must_use]
    #[inline]
    pub const fn extended(self) -> bool {
        self.0 & Self::EXTENDED.0 != 0
    }
}

/// Why bytes are not a packet of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Fewer than [`HEADER_LEN`] bytes, or fewer than a header and the announced trailer need.
    Truncated,
    /// The version bits are not [`VERSION`].
    Version(u8),
    /// The packet does not match its checksum.
    Checksum,
}

/// The version bits of a header's ninth byte.
const VERSION_BITS: u8 = 0b11;
/// The flag bits of a header's ninth byte.
const FLAG_BITS: u8 = 0b1110_0000;

impl Header {
    /// Reads the header at the front of `packet`. The header may be damaged:
    /// [`checksum::check`](super::checksum::check) verifies the trailer that it announces.
    ///
    /// # Errors
    /// [`HeaderError`] for a short packet or a packet of another version.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, HeaderError> {
        let Some(bytes) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(HeaderError::Truncated);
        };
        let word = |at: usize| -> u64 {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(w)
        };
        let (connection, numbers, sizes) = (word(0), word(8), word(16));
        let vkf = numbers as u8;
        if vkf & VERSION_BITS != VERSION {
            return Err(HeaderError::Version(vkf & VERSION_BITS));
        }
        Ok(Self {
            connection: ConnectionId::from_u64(connection),
            kind: Kind::from_bits(vkf >> 2),
            packet: PacketNumber::new((numbers >> 8) as u32),
            request: RequestNumber::from_u32((numbers >> 32) as u32),
            aux: sizes as u32,
            size: (sizes >> 32) as u32,
            flags: Flags(vkf & FLAG_BITS),
        })
    }

    /// The reply info of a packet from a server.
    #[must_use]
    #[inline]
    pub const fn reply_info(&self) -> ReplyInfo {
        ReplyInfo::from_u32(self.aux)
    }

    /// The header in wire form.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let vkf = VERSION | (self.kind as u8) << 2 | self.flags.0;
        let numbers = u64::from(vkf)
            | u64::from(self.packet.get()) << 8
            | u64::from(self.request.to_u32()) << 32;
        let sizes = u64::from(self.aux) | u64::from(self.size) << 32;
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(&self.connection.to_u64().to_le_bytes());
        out[8..16].copy_from_slice(&numbers.to_le_bytes());
        out[16..].copy_from_slice(&sizes.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_header() -> impl Strategy<Value = Header> {
        let words = (any::<u32>(), any::<u32>(), any::<u32>());
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        (any::<u64>(), 0..8u8, 0..=PacketNumber::MAX, words, flags).prop_map(
            |(connection, kind, packet, (request, aux, size), (trailer, extended, large))| Header {
                connection: ConnectionId::from_u64(connection),
                kind: Kind::from_bits(kind),
                packet: PacketNumber::new(packet),
                request: RequestNumber::from_u32(request),
                aux,
                size,
                flags: Flags::new(trailer, extended).with_large(large),
            },
        )
    }

    proptest! {
        #[test]
        fn an_emitted_header_is_parsed_unchanged(header in any_header()) {
            prop_assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        }

        #[test]
        fn any_bytes_give_a_header_or_a_typed_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(&header.to_bytes()[..], &bytes[..HEADER_LEN]);
            } else {
                prop_assert!(bytes.len() < HEADER_LEN || bytes[8] & 3 != VERSION);
            }
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let header = Header {
            connection: ConnectionId::from_u64(0x0807_0605_0403_0201),
            kind: Kind::RequestForResponse,
            packet: PacketNumber::new(0x0C0B0A),
            request: RequestNumber::from_u32(0x100F_0E0D),
            aux: 0x1413_1211,
            size: 0x1817_1615,
            flags: Flags::TRAILER,
        };
        let mut expect: Vec<u8> = (1..=24).collect();
        expect.insert(8, VERSION | 4 << 2 | 1 << 5);
        expect.remove(9);
        expect[9..12].copy_from_slice(&[0x0A, 0x0B, 0x0C]);
        expect[12..].copy_from_slice(&(0x0D..=0x18).collect::<Vec<u8>>());
        assert_eq!(header.to_bytes()[..], expect[..]);
        let header = Header { flags: Flags::EXTENDED, ..header };
        expect[8] = VERSION | 4 << 2 | 1 << 6;
        assert_eq!(header.to_bytes()[..], expect[..]);
        let header = Header { flags: Flags::TRAILER.with_large(true), ..header };
        expect[8] = VERSION | 4 << 2 | 1 << 5 | 1 << 7;
        assert_eq!(header.to_bytes()[..], expect[..]);
    }

    #[test]
    fn short_packets_and_other_versions_have_different_errors() {
        assert_eq!(Header::parse(&[0; 23]), Err(HeaderError::Truncated));
        let mut bytes = [0; HEADER_LEN];
        bytes[8] = 2;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Version(2)));
    }
}
