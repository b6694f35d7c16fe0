//! Handmade packets, correct or incorrect.
//!
//! Attackers and fuzz targets speak the protocol without an endpoint, and build their packets here.
//! (Unit tests of `erpc-core` cannot use this module. It uses the types of the library `erpc-core`,
//! and to the compiler the types of the test build are different ones.) [`seal`] makes any bytes
//! pass the integrity check that a receiver applies before it reads a packet.

use erpc_core::transport::MIN_DATAGRAM;
use erpc_core::wire::checksum::{self, TRAILER_LEN, overhead};
use erpc_core::wire::control::{Control, Parameters};
use erpc_core::wire::{
    ConnectionId, Flags, HEADER_LEN, Header, Kind, PacketLayout, PacketNumber, ReplyInfo,
    RequestNumber,
};

/// The kinds of packets that belong to sessions.
pub const DATA_KINDS: [Kind; 7] = [
    Kind::Request,
    Kind::Response,
    Kind::Failure,
    Kind::CreditReturn,
    Kind::RequestForResponse,
    Kind::Accepted,
    Kind::Done,
];

/// The header fields of a data packet.
#[derive(Clone, Copy, Debug)]
pub struct Craft {
    /// The receiver's id of the session.
    pub connection: ConnectionId,
    /// The kind of the packet.
    pub kind: Kind,
    /// The packet's number in its message; cut to 24 bits.
    pub packet: u32,
    /// The number of the request in the session.
    pub request: u32,
    /// The meaning depends on the kind.
    pub aux: u32,
    /// The meaning depends on the kind.
    pub size: u32,
    /// Whether a checksum follows the body. The ends of a session agree on that.
    pub trailer: bool,
    /// Whether the message begins with an extension.
    pub extended: bool,
    /// Whether the message is cut into large packets.
    pub large: bool,
}

impl Craft {
    /// A packet of `kind` for a session with these terms, which determine `trailer` and `large`.
    /// All other fields are zero.
    #[must_use]
    pub const fn new(connection: ConnectionId, kind: Kind, terms: &Parameters) -> Self {
        let trailer = terms.integrity;
        let large = terms.max_datagram > MIN_DATAGRAM as u32;
        Self {
            connection,
            kind,
            packet: 0,
            request: 0,
            aux: 0,
            size: 0,
            trailer,
            extended: false,
            large,
        }
    }

    /// Appends header, body and, if announced, trailer to `out`.
    pub fn append(&self, body: &[u8], out: &mut Vec<u8>) {
        let header = Header {
            connection: self.connection,
            kind: self.kind,
            packet: PacketNumber::new(self.packet),
            request: RequestNumber::from_u32(self.request),
            aux: self.aux,
            size: self.size,
            flags: Flags::new(self.trailer, self.extended).with_large(self.large),
        };
        let at = out.len();
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(body);
        seal(out, at);
    }

    /// The packet as a datagram.
    #[must_use]
    pub fn bytes(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(overhead(self.trailer) + body.len());
        self.append(body, &mut out);
        out
    }
}

/// Makes the bytes of `packet` from `at` on pass a receiver's integrity check, whatever the bytes
/// are: appends the trailer if the header at `at` announces one.
pub fn seal(packet: &mut Vec<u8>, at: usize) {
    if Header::parse(&packet[at..]).is_ok_and(|header| header.flags.trailer()) {
        let trailer = checksum::trailer_of(&packet[at..], &[]);
        packet.extend_from_slice(&trailer);
    }
}

/// Replaces the trailer of a packet that was changed after it was sealed.
pub fn seal_again(packet: &mut Vec<u8>) {
    let announced = Header::parse(packet).is_ok_and(|header| header.flags.trailer());
    if announced && packet.len() >= HEADER_LEN + TRAILER_LEN {
        packet.truncate(packet.len() - TRAILER_LEN);
        seal(packet, 0);
    }
}

/// A control message as a datagram.
#[must_use]
pub fn control(to: ConnectionId, nonce: u32, message: Control) -> Vec<u8> {
    message.emit(to, nonce, ReplyInfo::default()).as_bytes().to_vec()
}

/// Header and body of a packet. `None` if it is malformed or damaged.
#[must_use]
pub fn read(packet: &[u8]) -> Option<(Header, &[u8])> {
    let header = Header::parse(packet).ok()?;
    let packet = if header.flags.trailer() { checksum::check(packet).ok()? } else { packet };
    Some((header, &packet[HEADER_LEN..]))
}

/// The control message in a packet, with its header. `None` if there is none.
#[must_use]
pub fn read_control(packet: &[u8]) -> Option<(Header, Control)> {
    let (header, body) = read(packet)?;
    if header.kind != Kind::Control {
        return None;
    }
    Some((header, Control::parse(&header, body).ok()?))
}

/// Payload bytes of each full datagram in a session with these terms.
#[must_use]
pub const fn payload(terms: &Parameters) -> u32 {
    terms.max_datagram - overhead(terms.integrity) as u32
}

/// How a session with these terms cuts a request of `size` bytes.
#[must_use]
pub const fn request_layout(terms: &Parameters, size: u32) -> PacketLayout {
    let payload = payload(terms);
    PacketLayout::new(size, payload, payload)
}

/// How a session with these terms cuts a response of `size` bytes.
#[must_use]
pub const fn response_layout(terms: &Parameters, size: u32) -> PacketLayout {
    let payload = payload(terms);
    let first = if terms.eager < payload { terms.eager } else { payload };
    PacketLayout::new(size, first, payload)
}

/// The parameters that an attacker offers. Any server accepts them.
pub const PARAMETERS: Parameters = Parameters {
    max_datagram: 1_472,
    max_message: 1 << 20,
    eager: 1_024,
    window: 1 << 20,
    credits: 8,
    charge_model: 0,
    integrity: false,
    bundles: false,
    slots: 8,
};
