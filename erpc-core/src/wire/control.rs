//! Control messages: handshake, path size, liveness and the end of a session.
//!
//! Control messages are packets of kind [`Kind::Control`] on the data path. Their type is the
//! header's `packet` field. `request` carries a nonce that replies echo (0 if a server refuses a
//! `Hello` of another version). `aux` carries a [`ReplyInfo`] if the sender is the session's
//! server. Bodies have a fixed layout, are little endian, and are drawn in `WIRE.md`.
//!
//! All control messages carry a trailer. They are rare, and a flipped bit in the handshake would
//! break the session permanently.
//!
//! Until a cookie has validated an address, no reply is longer than the packet that it answers.
//! Therefore `Hello` is padded to [`HELLO_LEN`]. (`Moved` is 12 bytes longer than the shortest
//! packet that it answers, but the server sends it only to senders that know a session's id.)
//!
//! `Open` and `Probe` may be padded with zeros, to prove the size of the path. `Probed` is as long
//! as its `Probe`. The `Opened` that answers a padded `Open` is as long as the `Open`, but at most
//! the agreed datagram size. Without memory for the padding, an answer is not padded.

use super::checksum::{TRAILER_LEN, overhead};
use super::{
    ConnectionId, Flags, HEADER_LEN, Header, Kind, PacketNumber, ReplyInfo, RequestNumber,
    ShortPacket,
};

/// Bytes of a `Hello` datagram, padding included. The same in every version of the protocol.
pub const HELLO_LEN: usize = 64;

/// Bytes of a cookie.
pub const COOKIE_LEN: usize = 16;

/// A handshake cookie: opaque to the client, authenticated by the server that issued it.
pub type Cookie = [u8; COOKIE_LEN];

/// Limits of one side of a session; exchanged when the session opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Largest datagram in bytes that this side sends and receives on this path, header included.
    /// The smaller value of both sides applies.
    pub max_datagram: u32,
    /// Largest message this side receives, in bytes.
    pub max_message: u32,
    /// Largest first packet of a response that this side accepts without asking for it, in payload
    /// bytes. Only the client's value applies.
    pub eager: u32,
    /// Charge units that this side's receive queue can hold from the peer's endpoint. Only the
    /// server's value applies.
    pub window: u32,
    /// Largest number of packets in flight per session. The smaller value of both sides applies.
    pub credits: u16,
    /// Charge model of this side's receive queue: the number of a `ChargeModel`.
    pub charge_model: u8,
    /// From the client: it requests a trailer in every packet of the session. From the server:
    /// every packet has a trailer, because at least one side requests it.
    pub integrity: bool,
    /// Whether this side takes [bundles](super::bundle): datagrams of several packets.
    pub bundles: bool,
    /// Number of slots of the session: a power of two from 1 to 64. The smaller value of both sides
    /// applies.
    pub slots: u8,
}

/// A control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Client to any endpoint of a server: asks for a session and offers versions `low..=high`.
    Hello {
        /// The client's id for the new session.
        client: ConnectionId,
        /// Lowest version that the client supports.
        low: u16,
        /// Highest version that the client supports.
        high: u16,
    },
    /// Server to client: asks the client to prove its address by sending the cookie to the endpoint
    /// that the server has chosen for the session.
    Challenge {
        /// The client returns this cookie in `Open`.
        cookie: Cookie,
        /// The chosen endpoint's port; 0 for the endpoint that `Hello` went to.
        port: u16,
        /// The chosen endpoint's index in its group.
        steer: u8,
        /// Bytes that `Open` may be padded to, to prove the size of the path; 0 if the server has
        /// no room for that.
        proof: u32,
    },
    /// Client to the chosen endpoint: opens the session and probes the path.
    Open {
        /// The client's id for the session.
        client: ConnectionId,
        /// From `Challenge`.
        cookie: Cookie,
        /// The client's parameters.
        parameters: Parameters,
    },
    /// Server to client: the session is open.
    Opened {
        /// The server's id for the session.
        server: ConnectionId,
        /// The server's parameters.
        parameters: Parameters,
    },
    /// Server to client: the server refuses the session.
    Refused {
        /// Why the server refuses.
        reason: Refusal,
        /// Lowest version that the server supports.
        low: u16,
        /// Highest version that the server supports.
        high: u16,
    },
    /// Both directions: asks whether the peer is alive and has the session. A peer without the
    /// session answers `Reset`, addressed to `sender`.
    Ping {
        /// The sender's id for the session.
        sender: ConnectionId,
    },
    /// Answers `Ping`.
    Pong,
    /// Answers `Ping` and `Close` if the receiver does not know the session.
    Reset {
        /// The unknown id: the connection id of the packet that is answered.
        unknown: ConnectionId,
    },
    /// Both directions: the sender ends the session.
    Close {
        /// The sender's id for the session.
        sender: ConnectionId,
    },
    /// Answers `Close`.
    Closed,
    /// Client to server: tests whether the path carries a datagram of this size. The message is
    /// padded to that size.
    Probe,
    /// Answers `Probe` at the same length: the path carries datagrams of this size in both
    /// directions.
    Probed,
    /// Client to server: sets the size in bytes of the session's large packets from now on. Each
    /// `Resize` has a higher nonce than the one before.
    Resize {
        /// The new size in bytes of a datagram, header included.
        max_datagram: u32,
    },
    /// Answers `Resize`: the server uses the newest size.
    Resized,
    /// Server to client: the client's packets arrive from another address than that of the session.
    Moved {
        /// The connection id in those packets.
        server: ConnectionId,
    },
    /// Server to client: the server shuts down. It finishes the session's running requests, and
    /// refuses new ones. Answered with `Pong`.
    GoAway {
        /// The sender's id for the session.
        sender: ConnectionId,
    },
}

/// Why a session is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// No common version.
    Version = 1,
    /// No room for another session.
    Full = 2,
    /// The endpoint does not accept sessions.
    NotListening = 3,
    /// The parameters of both sides are incompatible.
    Parameters = 4,
    /// No room for another session of the client's host.
    HostFull = 5,
    /// The server shuts down.
    Draining = 6,
}

/// The type of `Hello`.
pub(crate) const HELLO: u32 = 1;
const CHALLENGE: u32 = 2;
/// The type of `Open`.
pub(crate) const OPEN: u32 = 3;
const OPENED: u32 = 4;
const REFUSED: u32 = 5;
/// The type of `Ping`.
pub(crate) const PING: u32 = 6;
const PONG: u32 = 7;
const RESET: u32 = 8;
/// The type of `Close`.
pub(crate) const CLOSE: u32 = 9;
const CLOSED: u32 = 10;
const PROBE: u32 = 11;
const PROBED: u32 = 12;
const RESIZE: u32 = 13;
const RESIZED: u32 = 14;
const MOVED: u32 = 15;
const GO_AWAY: u32 = 16;

/// Why the body of a control packet is not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlError {
    /// This version has no such type.
    UnknownType(u32),
    /// The body does not have the length of its type.
    Length,
    /// A field has an invalid value.
    Field,
}

/// A body under construction.
#[derive(Clone, Copy)]
struct Body {
    bytes: [u8; LONGEST_BODY],
    len: usize,
}

impl Body {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn put_id(&mut self, id: ConnectionId) {
        self.put(&id.to_u64().to_le_bytes());
    }

    fn put_parameters(&mut self, parameters: &Parameters) {
        self.put(&parameters.max_datagram.to_le_bytes());
        self.put(&parameters.max_message.to_le_bytes());
        self.put(&parameters.eager.to_le_bytes());
        self.put(&parameters.window.to_le_bytes());
        self.put(&parameters.credits.to_le_bytes());
        let flags = u8::from(parameters.integrity) | u8::from(parameters.bundles) << 1;
        self.put(&[parameters.charge_model, flags, parameters.slots]);
    }
}

/// Parses the fields of a body, from front to back.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ControlError> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(ControlError::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u8(&mut self) -> Result<u8, ControlError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, ControlError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, ControlError> {
        self.take().map(u32::from_le_bytes)
    }

    fn id(&mut self) -> Result<ConnectionId, ControlError> {
        self.take().map(u64::from_le_bytes).map(ConnectionId::from_u64)
    }

    fn zeros(&mut self, count: usize) -> Result<(), ControlError> {
        let (zeros, rest) = self.0.split_at_checked(count).ok_or(ControlError::Length)?;
        self.0 = rest;
        if zeros.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(ControlError::Field) }
    }

    /// Whether the sender wants trailers, and whether it takes bundles.
    fn wishes(&mut self) -> Result<[bool; 2], ControlError> {
        match self.u8()? {
            flags @ 0..4 => Ok([flags & 1 != 0, flags & 2 != 0]),
            _ => Err(ControlError::Field),
        }
    }

    fn parameters(&mut self) -> Result<Parameters, ControlError> {
        let [max_datagram, max_message, eager, window] =
            [self.u32()?, self.u32()?, self.u32()?, self.u32()?];
        let (credits, charge_model) = (self.u16()?, self.u8()?);
        let [integrity, bundles] = self.wishes()?;
        let slots = self.u8()?;
        Ok(Parameters {
            max_datagram,
            max_message,
            eager,
            window,
            credits,
            charge_model,
            integrity,
            bundles,
            slots,
        })
    }
}

/// Bytes of padding between the fields of a `Hello` and its trailer.
const HELLO_PADDING: usize = HELLO_LEN - HEADER_LEN - 12 - TRAILER_LEN;
/// Bytes of the body of an `Open`, the longest unpadded body.
const LONGEST_BODY: usize = 45;

impl Control {
    const fn packet_type(&self) -> u32 {
        match self {
            Self::Hello { .. } => HELLO,
            Self::Challenge { .. } => CHALLENGE,
            Self::Open { .. } => OPEN,
            Self::Opened { .. } => OPENED,
            Self::Refused { .. } => REFUSED,
            Self::Ping { .. } => PING,
            Self::Pong => PONG,
            Self::Reset { .. } => RESET,
            Self::Close { .. } => CLOSE,
            Self::Closed => CLOSED,
            Self::Probe => PROBE,
            Self::Probed => PROBED,
            Self::Resize { .. } => RESIZE,
            Self::Resized => RESIZED,
            Self::Moved { .. } => MOVED,
            Self::GoAway { .. } => GO_AWAY,
        }
    }

    /// Whether zero padding may follow the body.
    const fn may_be_padded(packet_type: u32) -> bool {
        matches!(packet_type, OPEN | OPENED | PROBE | PROBED)
    }

    /// The client's id in a handshake message of a client that begins with these bytes: in `Hello`
    /// and `Open`. `None` if too few bytes are known.
    pub(crate) fn quoted_client(packet: &[u8]) -> Option<ConnectionId> {
        Fields(packet.get(HEADER_LEN..)?).id().ok()
    }

    /// The unpadded datagram of this message to `connection`, with its trailer.
    #[must_use]
    pub fn emit(&self, connection: ConnectionId, nonce: u32, info: ReplyInfo) -> ShortPacket {
        let body = self.body();
        ShortPacket::new(&self.header(connection, nonce, info), &body.bytes[..body.len])
    }

    /// Writes the body to the front of `out` and fills the rest with zeros. Returns the header.
    /// `out` is the datagram without header and trailer.
    pub(crate) fn emit_padded(
        &self,
        connection: ConnectionId,
        nonce: u32,
        out: &mut [u8],
    ) -> Header {
        debug_assert!(Self::may_be_padded(self.packet_type()));
        let body = self.body();
        out[..body.len].copy_from_slice(&body.bytes[..body.len]);
        out[body.len..].fill(0);
        self.header(connection, nonce, ReplyInfo::default())
    }

    /// Bytes of the datagram without padding, header and trailer included.
    pub(crate) fn datagram_len(&self) -> usize {
        overhead(true) + self.body().len
    }

    fn header(&self, connection: ConnectionId, nonce: u32, info: ReplyInfo) -> Header {
        Header {
            connection,
            kind: Kind::Control,
            packet: PacketNumber::new(self.packet_type()),
            request: RequestNumber::from_u32(nonce),
            aux: info.to_u32(),
            size: 0,
            flags: Flags::TRAILER,
        }
    }

    fn body(&self) -> Body {
        let mut body = Body { bytes: [0; LONGEST_BODY], len: 0 };
        match self {
            Self::Hello { client, low, high } => {
                body.put_id(*client);
                body.put(&low.to_le_bytes());
                body.put(&high.to_le_bytes());
                body.put(&[0; HELLO_PADDING]);
            }
            Self::Challenge { cookie, port, steer, proof } => {
                body.put(cookie);
                body.put(&port.to_le_bytes());
                body.put(&[*steer, 0]);
                body.put(&proof.to_le_bytes());
            }
            Self::Open { client, cookie, parameters } => {
                body.put_id(*client);
                body.put(cookie);
                body.put_parameters(parameters);
            }
            Self::Opened { server, parameters } => {
                body.put_id(*server);
                body.put_parameters(parameters);
            }
            Self::Refused { reason, low, high } => {
                body.put(&[*reason as u8, 0]);
                body.put(&low.to_le_bytes());
                body.put(&high.to_le_bytes());
            }
            Self::Ping { sender: id }
            | Self::Close { sender: id }
            | Self::GoAway { sender: id }
            | Self::Reset { unknown: id }
            | Self::Moved { server: id } => {
                body.put_id(*id);
            }
            Self::Resize { max_datagram } => body.put(&max_datagram.to_le_bytes()),
            Self::Pong | Self::Closed | Self::Probe | Self::Probed | Self::Resized => {}
        }
        body
    }

    /// Reads the message of a packet of kind [`Kind::Control`]. `body` is the body without the
    /// trailer.
    ///
    /// # Errors
    /// [`ControlError`] for an unknown type, a body whose length is not that of its type, or a
    /// field with an invalid value. Nonzero padding is such a field.
    pub fn parse(header: &Header, body: &[u8]) -> Result<Self, ControlError> {
        let mut fields = Fields(body);
        let message = match header.packet.get() {
            HELLO => {
                let hello =
                    Self::Hello { client: fields.id()?, low: fields.u16()?, high: fields.u16()? };
                fields.zeros(HELLO_PADDING)?;
                hello
            }
            CHALLENGE => {
                let (cookie, port, steer) = (fields.take()?, fields.u16()?, fields.u8()?);
                fields.zeros(1)?;
                Self::Challenge { cookie, port, steer, proof: fields.u32()? }
            }
            OPEN => Self::Open {
                client: fields.id()?,
                cookie: fields.take()?,
                parameters: fields.parameters()?,
            },
            OPENED => Self::Opened { server: fields.id()?, parameters: fields.parameters()? },
            REFUSED => {
                let reason = match fields.u8()? {
                    1 => Refusal::Version,
                    2 => Refusal::Full,
                    3 => Refusal::NotListening,
                    4 => Refusal::Parameters,
                    5 => Refusal::HostFull,
                    6 => Refusal::Draining,
                    _ => return Err(ControlError::Field),
                };
                fields.zeros(1)?;
                Self::Refused { reason, low: fields.u16()?, high: fields.u16()? }
            }
            PING => Self::Ping { sender: fields.id()? },
            PONG => Self::Pong,
            RESET => Self::Reset { unknown: fields.id()? },
            CLOSE => Self::Close { sender: fields.id()? },
            CLOSED => Self::Closed,
            PROBE => Self::Probe,
            PROBED => Self::Probed,
            RESIZE => Self::Resize { max_datagram: fields.u32()? },
            RESIZED => Self::Resized,
            MOVED => Self::Moved { server: fields.id()? },
            GO_AWAY => Self::GoAway { sender: fields.id()? },
            other => return Err(ControlError::UnknownType(other)),
        };
        if Self::may_be_padded(header.packet.get()) {
            fields.zeros(fields.0.len())?;
        }
        if fields.0.is_empty() { Ok(message) } else { Err(ControlError::Length) }
    }

    /// The client id in a `Hello` of any version; `None` if `datagram` is not a `Hello`. The
    /// position of that field, the header's kind and type bits and the length are the same in all
    /// versions, so a server can tell every client which versions it supports.
    #[must_use]
    pub fn hello_of_any_version(datagram: &[u8]) -> Option<ConnectionId> {
        let any = datagram.len() == HELLO_LEN
            && datagram[8] >> 2 & 0b111 == Kind::Control as u8
            && datagram[9..12] == HELLO.to_le_bytes()[..3];
        let id = datagram.get(HEADER_LEN..)?.first_chunk::<8>()?;
        any.then(|| ConnectionId::from_u64(u64::from_le_bytes(*id)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::checksum;

    const PARAMETERS: Parameters = Parameters {
        max_datagram: 1_472,
        max_message: 8 << 20,
        eager: 1_448,
        window: 150_000,
        credits: 32,
        charge_model: 1,
        integrity: true,
        bundles: false,
        slots: 16,
    };

    fn all() -> [Control; 16] {
        let id = ConnectionId::from_u64(0x0123_4567_89AB_CDEF);
        [
            Control::Hello { client: id, low: 1, high: 1 },
            Control::Challenge { cookie: [7; 16], port: 31_850, steer: 3, proof: 8_972 },
            Control::Open { client: id, cookie: [9; 16], parameters: PARAMETERS },
            Control::Opened { server: id, parameters: PARAMETERS },
            Control::Refused { reason: Refusal::Full, low: 1, high: 2 },
            Control::Ping { sender: id },
            Control::Pong,
            Control::Reset { unknown: id },
            Control::Close { sender: id },
            Control::Closed,
            Control::Probe,
            Control::Probed,
            Control::Resize { max_datagram: 1_372 },
            Control::Resized,
            Control::Moved { server: id },
            Control::GoAway { sender: id },
        ]
    }

    #[test]
    fn every_message_parses_from_its_own_length_only() {
        for message in all() {
            let packet = message.emit(ConnectionId::from_u64(5), 77, ReplyInfo::default());
            let bytes = packet.as_bytes();
            let header = Header::parse(bytes).unwrap();
            assert_eq!((header.kind, header.request.to_u32()), (Kind::Control, 77));
            assert!(header.flags.trailer(), "{message:?}");
            let bytes = checksum::check(bytes).unwrap();
            assert_eq!(Control::parse(&header, &bytes[HEADER_LEN..]), Ok(message));
            let with = |byte| {
                let longer = [bytes, &[byte]].concat();
                Control::parse(&header, &longer[HEADER_LEN..])
            };
            let is_padded = matches!(
                message,
                Control::Open { .. } | Control::Opened { .. } | Control::Probe | Control::Probed
            );
            assert_eq!(with(0).is_ok(), is_padded, "{message:?} with a zero appended");
            assert!(with(1).is_err(), "{message:?} with a nonzero byte appended");
            for len in HEADER_LEN..bytes.len() {
                assert!(
                    Control::parse(&header, &bytes[HEADER_LEN..len]).is_err(),
                    "{message:?} cut to {len}"
                );
            }
        }
    }

    #[test]
    fn no_reply_to_an_unknown_sender_is_longer_than_the_packet_it_answers() {
        let len = |message: &Control| {
            message.emit(ConnectionId::default(), 0, ReplyInfo::default()).as_bytes().len()
        };
        let [hello, challenge, open, opened, refused, ping, pong, reset, close, closed, ..] =
            &all();
        let [.., probe, probed, resize, resized, _, go_away] = &all();
        assert_eq!(len(hello), HELLO_LEN);
        assert!(len(challenge) <= len(hello) && len(refused) <= len(hello));
        assert!(len(opened) <= len(open) && len(refused) <= len(open));
        assert!(len(pong) <= len(ping) && len(reset) <= len(ping));
        assert!(len(closed) <= len(close) && len(reset) <= len(close));
        assert!(len(probed) <= len(probe) && len(resized) <= len(resize));
        assert!(len(pong) <= len(go_away));
    }

    #[test]
    fn padding_after_the_body_must_be_zeros() {
        for (message, len) in [(all()[2], 1_448), (all()[10], 8_000), (Control::Probe, 0)] {
            let mut body = vec![7; len];
            let header = message.emit_padded(ConnectionId::from_u64(5), 3, &mut body);
            assert_eq!(header.request.to_u32(), 3);
            assert_eq!(Control::parse(&header, &body), Ok(message));
        }
        let mut body = [0; 9];
        let header = Control::Probe.emit_padded(ConnectionId::from_u64(5), 3, &mut body);
        body[8] = 1;
        assert_eq!(Control::parse(&header, &body), Err(ControlError::Field));
    }

    #[test]
    fn control_messages_have_the_documented_bytes() {
        let id = ConnectionId::from_u64(0x0807_0605_0403_0201);
        let bytes = |message: Control| {
            message.emit(ConnectionId::endpoint(3), 9, ReplyInfo::default()).as_bytes().to_vec()
        };
        let ping = bytes(Control::Ping { sender: id });
        #[rustfmt::skip]
        let expect = [
            3, 0, 0, 0, 0, 0, 0, 0, // to endpoint 3
            1 << 5 | 7 << 2 | 1, 6, 0, 0, // trailer, control, version 1; type 6
            9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // nonce 9
            1, 2, 3, 4, 5, 6, 7, 8, // the sender's id
        ];
        assert_eq!(ping[..32], expect);
        let sum = crc32c::crc32c(&expect);
        assert_eq!(ping[32..], sum.to_le_bytes());
        let opened = bytes(Control::Opened { server: id, parameters: PARAMETERS });
        assert_eq!(opened[50..53], [1, 1, 16], "charge model, flags, slots");
        let lens: Vec<usize> = all().iter().map(|message| bytes(*message).len()).collect();
        assert_eq!(lens, [64, 52, 73, 57, 34, 36, 28, 36, 36, 28, 28, 28, 32, 28, 36, 36]);
    }

    #[test]
    fn each_flag_of_the_parameters_has_its_bit() {
        for (integrity, bundles, byte) in
            [(false, false, 0), (true, false, 1), (false, true, 2), (true, true, 3)]
        {
            let parameters = Parameters { integrity, bundles, ..PARAMETERS };
            let opened = Control::Opened { server: ConnectionId::default(), parameters };
            let packet = opened.emit(ConnectionId::default(), 0, ReplyInfo::default());
            let bytes = packet.as_bytes();
            assert_eq!(bytes[51], byte);
            let header = Header::parse(bytes).unwrap();
            assert_eq!(Control::parse(&header, &bytes[HEADER_LEN..53]), Ok(opened));
        }
    }

    #[test]
    fn unknown_flags_are_an_error() {
        let opened = Control::Opened { server: ConnectionId::default(), parameters: PARAMETERS };
        let packet = opened.emit(ConnectionId::default(), 0, ReplyInfo::default());
        let mut bytes = packet.as_bytes().to_vec();
        let header = Header::parse(&bytes).unwrap();
        bytes[51] = 4;
        assert_eq!(Control::parse(&header, &bytes[HEADER_LEN..53]), Err(ControlError::Field));
    }

    #[test]
    fn a_hello_of_another_version_is_recognized() {
        let id = ConnectionId::from_u64(99);
        let packet = Control::Hello { client: id, low: 3, high: 3 }.emit(
            ConnectionId::endpoint(0),
            0,
            ReplyInfo::default(),
        );
        let mut bytes = packet.as_bytes().to_vec();
        bytes[8] = bytes[8] & !0b11 | 3;
        assert!(Header::parse(&bytes).is_err());
        assert_eq!(Control::hello_of_any_version(&bytes), Some(id));
        assert_eq!(Control::hello_of_any_version(&bytes[..63]), None);
    }

    proptest! {
        #[test]
        fn any_body_gives_a_message_or_a_typed_error(kind in 0u32..20, body in proptest::collection::vec(any::<u8>(), 0..96)) {
            let header = Header {
                connection: ConnectionId::default(),
                kind: Kind::Control,
                packet: PacketNumber::new(kind),
                request: RequestNumber::default(),
                aux: 0,
                size: 0,
                flags: Flags::TRAILER,
            };
            if let Ok(message) = Control::parse(&header, &body) {
                let packet = message.emit(header.connection, 0, ReplyInfo::default());
                let emitted = checksum::check(packet.as_bytes()).unwrap();
                let (own, padding) = body.split_at(emitted.len() - HEADER_LEN);
                prop_assert_eq!(&emitted[HEADER_LEN..], own, "parsing must not lose bytes of the body");
                prop_assert!(padding.iter().all(|&byte| byte == 0), "padding must be zeros");
            }
        }
    }
}
