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

/// The protocol version this crate speaks, carried in two bits of every packet.
pub const VERSION: u8 = 1;

/// The `packet` of a [`Kind::Done`] that says that the response is not wanted any more.
pub const CANCEL: u32 = 1;

/// The `packet` of a [`Kind::Response`] or [`Kind::Failure`] that announces a message: `size` is the whole
/// message's, there is no body, and the client asks for all packets, from the first on. No message has
/// so many packets. A number of its own, so that neither a first packet that has lost its body nor an announcement that has
/// grown one is taken for the other.
pub const ANNOUNCEMENT: u32 = PacketNumber::MAX;

/// What a packet is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Client to server: packet `packet` of a request. `aux`: method id in the first, the [`super::Stamp`] of
    /// its sending in later ones; `size`: bytes of the whole request.
    Request = 0,
    /// Server to client: packet `packet` of a response, or [`ANNOUNCEMENT`]. `aux`: [`super::ReplyInfo`];
    /// `size`: bytes of the whole response in the first and in announcements, in later ones the stamp of the
    /// request for response that it answers.
    Response = 1,
    /// As `Response`, but the message is an encoded status: the call failed.
    Failure = 2,
    /// Server to client: credit return. `packet`: the next request packet expected; `aux`:
    /// [`super::ReplyInfo`]; `size`: bit 0 set if a later packet came before it and was dropped, above it the
    /// stamp of the last packet that came.
    CreditReturn = 3,
    /// Client to server: request for response. `packet`: first response packet wanted; `aux`: the stamp of its
    /// sending; `size`: how many, at least 1.
    RequestForResponse = 4,
    /// Server to client: the request is known and still executing. `packet`: that of the duplicate; `aux`:
    /// [`super::ReplyInfo`].
    Accepted = 5,
    /// Client to server, `packet` 0: responses received whole; the body lists up to 8 request numbers, u32
    /// each. `packet` [`CANCEL`]: the client has cancelled request `request`, and no body.
    Done = 6,
    /// Either way: a control message, its type in `packet`; see [`super::control`].
    Control = 7,
}

impl Kind {
    /// The kind of three bits.
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
    /// The receiver's name for the session.
    pub connection: ConnectionId,
    /// What the packet is for.
    pub kind: Kind,
    /// Which packet of its message.
    pub packet: PacketNumber,
    /// Which request of the session.
    pub request: RequestNumber,
    /// Depends on the kind.
    pub aux: u32,
    /// Depends on the kind.
    pub size: u32,
    /// What else there is.
    pub flags: Flags,
}

/// What a packet has besides header and body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(u8);

impl Flags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Behind the body stands a checksum; see [`super::checksum`].
    pub const TRAILER: Self = Self(1 << 5);
    /// The message that the packet is of begins with an extension; see [`super::extension`]. Only requests,
    /// responses and failures have one.
    pub const EXTENDED: Self = Self(1 << 6);
    /// The message that the packet is of is cut into the session's large packets, not into those that every path carries. Of
    /// credit returns and requests for response: the message that they speak of.
    pub const LARGE: Self = Self(1 << 7);

    /// A packet with a trailer or without, of a message with an extension or without, that is not cut into large packets.
    #[must_use]
    #[inline]
    pub const fn new(trailer: bool, extended: bool) -> Self {
        Self((trailer as u8) << 5 | (extended as u8) << 6)
    }

    /// The same, with [`Flags::LARGE`] if `large`, else without.
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

    /// The same, and [`Flags::EXTENDED`] if `extended`.
    #[must_use]
    #[inline]
    pub const fn and_extended(self, extended: bool) -> Self {
        Self(self.0 | (extended as u8) << 6)
    }

    /// Whether there is a trailer.
    #[must_use]
    #[inline]
    pub const fn trailer(self) -> bool {
        self.0 & Self::TRAILER.0 != 0
    }

    /// Whether the message is extended.
    #[must_use]
    #[inline]
    pub const fn extended(self) -> bool {
        self.0 & Self::EXTENDED.0 != 0
    }
}

/// Why bytes are not a packet of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Fewer than [`HEADER_LEN`] bytes, or, where a trailer is announced, fewer than both have.
    Truncated,
    /// The version bits are not [`VERSION`].
    Version(u8),
    /// The packet is not what its checksum was computed over.
    Checksum,
}

/// The version bits of a header's ninth byte.
const VERSION_BITS: u8 = 0b11;
/// And its flags.
const FLAG_BITS: u8 = 0b1110_0000;

impl Header {
    /// Reads the header at the front of `packet`. It may be damaged: what it announces is checked by
    /// [`checksum::check`](super::checksum::check).
    ///
    /// # Errors
    /// [`HeaderError`] for a short packet, or one of another version.
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

    /// What a packet from a server tells besides its own business.
    #[must_use]
    #[inline]
    pub const fn reply_info(&self) -> ReplyInfo {
        ReplyInfo::from_u32(self.aux)
    }

    /// The header as it travels.
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
        fn what_is_emitted_is_parsed(header in any_header()) {
            prop_assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        }

        #[test]
        fn any_bytes_parse_or_fail_typed(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
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
    fn short_packets_and_other_versions_are_told_apart() {
        assert_eq!(Header::parse(&[0; 23]), Err(HeaderError::Truncated));
        let mut bytes = [0; HEADER_LEN];
        bytes[8] = 2;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Version(2)));
    }
}
