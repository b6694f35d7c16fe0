//! Packets made by hand: by the rules, or against them.
//!
//! Attackers and fuzz targets, which speak the protocol without an endpoint, make their packets here. (Unit tests of
//! `erpc-core` cannot: this crate depends on another copy of its types.) [`seal`] is the one place that knows what a
//! receiver checks before it looks at a packet's meaning.

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
    /// The receiver's name for the session.
    pub connection: ConnectionId,
    /// What the packet is for.
    pub kind: Kind,
    /// Which packet of its message; cut to 24 bits.
    pub packet: u32,
    /// Which request of the session.
    pub request: u32,
    /// Depends on the kind.
    pub aux: u32,
    /// Depends on the kind.
    pub size: u32,
    /// Whether a checksum follows the body; sessions agree on that.
    pub trailer: bool,
    /// Whether the message begins with an extension.
    pub extended: bool,
    /// Whether the message is cut into large packets.
    pub large: bool,
}

impl Craft {
    /// A packet of `kind`, as a session with these terms has them, whose other fields are zero.
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

    /// Appends header and body to `out`, sealed.
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

    /// The datagram.
    #[must_use]
    pub fn bytes(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(overhead(self.trailer) + body.len());
        self.append(body, &mut out);
        out
    }
}

/// Makes what stands in `packet` from `at` on pass a receiver's integrity check, whatever it says: if
/// the header announces a trailer, it is appended.
pub fn seal(packet: &mut Vec<u8>, at: usize) {
    if Header::parse(&packet[at..]).is_ok_and(|header| header.flags.trailer()) {
        let trailer = checksum::trailer_of(&packet[at..], &[]);
        packet.extend_from_slice(&trailer);
    }
}

/// Seals again what was sealed before and has been changed since.
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

/// Header and body of a packet, `None` if it is none or is damaged.
#[must_use]
pub fn read(packet: &[u8]) -> Option<(Header, &[u8])> {
    let header = Header::parse(packet).ok()?;
    let packet = if header.flags.trailer() { checksum::check(packet).ok()? } else { packet };
    Some((header, &packet[HEADER_LEN..]))
}

/// The control message in a packet, `None` if it is none.
#[must_use]
pub fn read_control(packet: &[u8]) -> Option<(Header, Control)> {
    let (header, body) = read(packet)?;
    if header.kind != Kind::Control {
        return None;
    }
    Some((header, Control::parse(&header, body).ok()?))
}

/// Bytes of a message that each datagram of a session with these terms carries.
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

/// What an attacker says that it can take: enough for any server to accept it.
pub const PARAMETERS: Parameters = Parameters {
    max_datagram: 1_472,
    max_message: 1 << 20,
    eager: 1_024,
    window: 1 << 20,
    credits: 8,
    charge_model: 0,
    integrity: false,
};
