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
use crate::mutants::mutant;

/// Bytes of the header.
pub const HEADER_LEN: usize = 24;
/// Most bytes of padding behind a packet.
pub(crate) const MAX_PADDING: usize = 800;
/// A transport may put the front of these bytes behind a packet that is a whole message and has no
/// trailer. The receiver's protocol removes them. So packets of different lengths become datagrams of
/// one length.
pub(crate) static PADDING: [u8; MAX_PADDING] = [0; MAX_PADDING];

/// The protocol version of this crate, carried in two bits of every packet.
pub const VERSION: u8 = 1;

/// The `packet` field of a [`Kind::Done`] that cancels the request: the client no longer wants the
/// response.
pub const CANCEL: u32 = 1;

/// Maximum number of requests that a [`Kind::Done`] names.
pub const MAX_DONE: usize = 8;

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

/// A header in its three words of 8 bytes, which are little endian on the wire. The common case
/// compares and writes whole words; [`Header`] has the single fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderWords {
    pub(crate) connection: u64,
    /// The [`Head`] with the packet number in the lower half, the request number in the upper half.
    pub(crate) numbers: u64,
    /// `aux` in the lower half, `size` in the upper half.
    pub(crate) sizes: u64,
}

/// The first four bytes of the second word: version, kind, flags and packet number. Here the packet
/// number is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head(u32);

impl Head {
    #[inline(always)]
    pub(crate) const fn new(kind: Kind, flags: Flags) -> Self {
        Self((VERSION | (kind as u8) << 2 | flags.0) as u32)
    }

    /// The version of the protocol.
    #[inline]
    pub(super) const fn version(self) -> u8 {
        self.0 as u8 & VERSION_BITS
    }

    /// Whether the packet's message is cut into large packets.
    #[inline(always)]
    pub(crate) const fn large(self) -> bool {
        self.0 & Flags::LARGE.0 as u32 != 0
    }

    /// As the head of a message that is not cut into large packets.
    #[inline(always)]
    pub(crate) const fn small(self) -> Self {
        Self(self.0 & !(Flags::LARGE.0 as u32))
    }

    /// The same head if not `extended`; otherwise that of a message with an extension.
    #[inline(always)]
    pub(crate) const fn and_extended(self, extended: bool) -> Self {
        Self(self.0 | (extended as u32) << 6)
    }

    /// Whether this is the head of the first packet of a request, whatever its flags.
    #[inline(always)]
    pub(crate) const fn is_first_of_request(self) -> bool {
        self.0 & !(FLAG_BITS as u32) == Self::new(Kind::Request, Flags::NONE).0
    }

    /// Whether this is the head of the first packet of a request, response or failure, and the packet
    /// has no trailer.
    #[inline(always)]
    pub(super) const fn is_first_of_message(self) -> bool {
        // Messages have the lowest kinds. Other bits than those of the kind make the number large.
        const { assert!(Kind::Request as u8 == 0 && Kind::Failure as u8 == 2) };
        let other_flags = (Flags::LARGE.0 | Flags::EXTENDED.0) as u32;
        let kind = ((self.0 & !other_flags) ^ VERSION as u32).rotate_right(2);
        kind <= Kind::Failure as u32
    }

    /// Whether `rest` is the padding of a packet with this head. It follows a whole request, response
    /// or failure without a trailer.
    fn is_padded_with(self, rest: &[u8]) -> bool {
        self.is_first_of_message()
            && (PADDING.get(..rest.len()) == Some(rest) || mutant!(PaddingNotChecked))
    }

    /// The head of a message that is cut into large packets if `large`.
    #[inline(always)]
    pub(crate) const fn with_large(self, large: bool) -> Self {
        Self(self.small().0 | (large as u32) << 7)
    }
}

impl HeaderWords {
    /// The header of the only packet of a message.
    #[inline(always)]
    pub(crate) const fn single(
        connection: ConnectionId,
        head: Head,
        request: RequestNumber,
        aux: u32,
        size: u32,
    ) -> Self {
        Self {
            connection: connection.to_u64(),
            numbers: head.0 as u64 | (request.to_u32() as u64) << 32,
            sizes: aux as u64 | (size as u64) << 32,
        }
    }

    /// Reads the words at the front of `packet`; `None` if it is shorter than a header.
    #[inline(always)]
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let (words, _) = packet.first_chunk::<HEADER_LEN>()?.as_chunks::<8>();
        let [connection, numbers, sizes] = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
        Some(Self { connection, numbers, sizes })
    }

    #[inline(always)]
    pub(crate) const fn connection(self) -> ConnectionId {
        ConnectionId::from_u64(self.connection)
    }

    /// Version, kind, flags and packet number.
    #[inline(always)]
    pub(crate) const fn head(self) -> Head {
        Head(self.numbers as u32)
    }

    #[inline(always)]
    pub(crate) const fn request(self) -> RequestNumber {
        RequestNumber::from_u32((self.numbers >> 32) as u32)
    }

    #[inline(always)]
    pub(crate) const fn aux(self) -> u32 {
        self.sizes as u32
    }

    #[inline(always)]
    pub(crate) const fn size(self) -> u32 {
        (self.sizes >> 32) as u32
    }

    /// Whether the message begins with an extension.
    #[inline(always)]
    pub(crate) const fn is_extended(self) -> bool {
        self.numbers & Flags::EXTENDED.0 as u64 != 0
    }

    /// The body of a packet with this header, without the [padding](PADDING) that may follow it.
    pub(crate) fn unpadded(self, body: &[u8]) -> &[u8] {
        match body.split_at_checked(self.size() as usize) {
            Some((message, rest)) if self.head().is_padded_with(rest) && !mutant!(PaddingKept) => {
                message
            }
            _ => body,
        }
    }

    /// Whether the packet has a trailer.
    #[inline(always)]
    pub(crate) const fn has_trailer(self) -> bool {
        self.numbers & Flags::TRAILER.0 as u64 != 0
    }

    /// The header in wire form.
    #[must_use]
    #[inline(always)]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut out = [[0; 8]; 3];
        out[0] = self.connection.to_le_bytes();
        out[1] = self.numbers.to_le_bytes();
        out[2] = self.sizes.to_le_bytes();
        let mut bytes = [0; HEADER_LEN];
        bytes.copy_from_slice(out.as_flattened());
        bytes
    }
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
        Self::from_words(HeaderWords::read(packet).ok_or(HeaderError::Truncated)?)
    }

    /// The header that these words hold.
    ///
    /// # Errors
    /// [`HeaderError::Version`] for a packet of another version.
    #[inline]
    pub const fn from_words(words: HeaderWords) -> Result<Self, HeaderError> {
        let HeaderWords { connection, numbers, sizes } = words;
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

    /// The header in three words.
    #[must_use]
    #[inline(always)]
    pub fn to_words(&self) -> HeaderWords {
        let head = u64::from(Head::new(self.kind, self.flags).0);
        let numbers =
            head | u64::from(self.packet.get()) << 8 | u64::from(self.request.to_u32()) << 32;
        let sizes = u64::from(self.aux) | u64::from(self.size) << 32;
        HeaderWords { connection: self.connection.to_u64(), numbers, sizes }
    }

    /// The header in wire form.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        self.to_words().to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_header() -> impl Strategy<Value = Header> {
        let words = (any::<u32>(), any::<u32>(), any::<u32>());
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        (any::<u64>(), 0..8u8, prop_oneof![Just(0), 0..=PacketNumber::MAX], words, flags).prop_map(
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
        fn the_words_of_a_header_are_its_fields(header in any_header()) {
            let words = header.to_words();
            prop_assert_eq!(HeaderWords::read(&header.to_bytes()), Some(words));
            prop_assert_eq!(words.connection(), header.connection);
            prop_assert_eq!((words.request(), words.aux(), words.size()), (header.request, header.aux, header.size));
            prop_assert_eq!(words.has_trailer(), header.flags.trailer());
            let first = Header { packet: PacketNumber::default(), ..header };
            let head = Head::new(header.kind, header.flags);
            prop_assert_eq!(head == words.head(), first == header);
            let Header { connection, request, aux, size, .. } = header;
            prop_assert_eq!(HeaderWords::single(connection, head, request, aux, size), first.to_words());
            let (small, large) = (header.flags.with_large(false), header.flags.with_large(true));
            prop_assert_eq!(head.large(), header.flags.large());
            prop_assert_eq!(head.small(), Head::new(header.kind, small));
            prop_assert_eq!(head.with_large(true), Head::new(header.kind, large));
            prop_assert_eq!(head.and_extended(false), head);
            prop_assert_eq!(head.and_extended(true), Head::new(header.kind, header.flags.and_extended(true)));
            prop_assert_eq!(words.is_extended(), header.flags.extended());
            let is_first = header.kind == Kind::Request && header.packet == PacketNumber::default();
            prop_assert_eq!(words.head().is_first_of_request(), is_first);
            let is_message = matches!(header.kind, Kind::Request | Kind::Response | Kind::Failure);
            let is_first = is_message && header.packet == PacketNumber::default();
            prop_assert_eq!(words.head().is_first_of_message(), is_first && !header.flags.trailer());
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
