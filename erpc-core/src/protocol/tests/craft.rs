//! Packets built by hand, valid and invalid.

use super::pair::{ECHO, Pair, STRANGER, TestRoute, control};
use crate::status::Status;
use crate::transport::MIN_DATAGRAM;
use crate::wire::checksum::{overhead, trailer_of};
use crate::wire::control::{Control, Parameters};
use crate::wire::{
    ANNOUNCEMENT, CANCEL, ConnectionId, Flags, Header, Kind, PacketLayout, PacketNumber, ReplyInfo,
    RequestNumber, Stamp, encode_status,
};

/// A packet under construction. It starts as the packet that an honest peer would send.
#[derive(Clone)]
pub(crate) struct Crafted {
    header: Header,
    body: Vec<u8>,
}

impl Crafted {
    pub(crate) fn size(mut self, size: u32) -> Self {
        self.header.size = size;
        self
    }

    pub(crate) fn packet(mut self, packet: u32) -> Self {
        self.header.packet = PacketNumber::new(packet);
        self
    }

    pub(crate) fn aux(mut self, aux: u32) -> Self {
        self.header.aux = aux;
        self
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    pub(crate) fn to(mut self, connection: ConnectionId) -> Self {
        self.header.connection = connection;
        self
    }

    pub(crate) fn kind(mut self, kind: Kind) -> Self {
        self.header.kind = kind;
        self
    }

    /// Sets or clears the trailer, regardless of what the session has agreed on.
    pub(crate) fn trailer(mut self, trailer: bool) -> Self {
        let flags = self.header.flags;
        self.header.flags = Flags::new(trailer, flags.extended()).with_large(flags.large());
        self
    }

    pub(crate) fn extended(mut self, extended: bool) -> Self {
        let flags = self.header.flags;
        self.header.flags = Flags::new(flags.trailer(), extended).with_large(flags.large());
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let bytes = [&self.header.to_bytes()[..], &self.body].concat();
        if self.header.flags.trailer() { sealed(&bytes) } else { bytes }
    }
}

fn message_packet(header: Header, first: u32, rest: u32, message: &[u8]) -> Crafted {
    let layout = PacketLayout::new(message.len() as u32, first, rest);
    let body = message[layout.range(header.packet.get())].to_vec();
    Crafted { header: Header { size: message.len() as u32, ..header }, body }
}

/// Packets that the client of the most recently opened session could send.
impl Pair {
    pub(crate) fn payload(&self) -> usize {
        self.terms.max_datagram as usize - overhead(self.terms.integrity)
    }

    fn header(&self, connection: ConnectionId, kind: Kind, number: u32, packet: u32) -> Header {
        Header {
            connection,
            kind,
            packet: PacketNumber::new(packet),
            request: RequestNumber::from_u32(number),
            aux: 0,
            size: 0,
            // The path carries the largest datagram that both ends accept.
            flags: Flags::new(self.terms.integrity, false)
                .with_large(self.terms.max_datagram > MIN_DATAGRAM as u32),
        }
    }

    /// A message of `packets` full packets.
    pub(crate) fn message(&self, packets: usize) -> Vec<u8> {
        super::pair::pattern(packets as u64, packets * self.payload())
    }

    /// Packet `packet` of request `number`.
    pub(crate) fn request(&self, number: u32, packet: u32, message: &[u8]) -> Crafted {
        let payload = self.payload() as u32;
        let aux = if packet == 0 { ECHO } else { Stamp::at(self.now).to_u32() };
        let header = Header { aux, ..self.header(self.server_id, Kind::Request, number, packet) };
        message_packet(header, payload, payload, message)
    }

    /// A request for `count` response packets from `from` on.
    pub(crate) fn pull(&self, number: u32, from: u32, count: u32) -> Crafted {
        let header = Header {
            aux: Stamp::at(self.now).to_u32(),
            size: count,
            ..self.header(self.server_id, Kind::RequestForResponse, number, from)
        };
        Crafted { header, body: Vec::new() }
    }

    pub(crate) fn cancelled(&self, number: u32) -> Crafted {
        Crafted {
            header: self.header(self.server_id, Kind::Done, number, CANCEL),
            body: Vec::new(),
        }
    }

    pub(crate) fn done(&self, numbers: &[u32]) -> Crafted {
        let body = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Crafted { header: self.header(self.server_id, Kind::Done, 0, 0), body }
    }
}

/// Packets that the server of the most recently opened session could send.
impl Pair {
    /// Packet `packet` of the response to request `number`.
    pub(crate) fn response(&self, number: u32, packet: u32, message: &[u8]) -> Crafted {
        let header = self.header(self.client_id, Kind::Response, number, packet);
        let crafted = message_packet(header, self.terms.eager, self.payload() as u32, message);
        if packet == 0 { crafted } else { crafted.size(Stamp::at(self.now).to_u32()) }
    }

    /// Announces a response of `size` bytes.
    pub(crate) fn announcement(&self, number: u32, size: u32) -> Crafted {
        let header = self.header(self.client_id, Kind::Response, number, ANNOUNCEMENT);
        Crafted { header: Header { size, ..header }, body: Vec::new() }
    }

    /// A failure of one packet.
    pub(crate) fn failure(&self, number: u32, status: &Status) -> Crafted {
        let mut body = Vec::new();
        encode_status(status, &mut body);
        let header = self.header(self.client_id, Kind::Failure, number, 0);
        Crafted { header: Header { size: body.len() as u32, ..header }, body }
    }

    pub(crate) fn credit_return(&self, number: u32, next: u32) -> Crafted {
        Crafted {
            header: self.header(self.client_id, Kind::CreditReturn, number, next),
            body: Vec::new(),
        }
    }

    /// A credit return which reports that a later packet was dropped.
    pub(crate) fn gap(&self, number: u32, next: u32) -> Crafted {
        self.credit_return(number, next).size(1)
    }

    pub(crate) fn accepted(&self, number: u32) -> Crafted {
        Crafted { header: self.header(self.client_id, Kind::Accepted, number, 0), body: Vec::new() }
    }
}

/// Clients of which only the packets exist, without a core.
impl Pair {
    /// The server's answers to a control message from `from`. Packets to other routes stay on the
    /// wire.
    pub(crate) fn ask_server(
        &mut self,
        from: TestRoute,
        to: ConnectionId,
        message: Control,
    ) -> Vec<Vec<u8>> {
        self.at_server(from, emit(to, message).as_slice());
        self.to_client.take_for(from)
    }

    /// Opens a session from `from` by hand, cookie exchange included. Returns the server's id for
    /// it and the agreed parameters.
    pub(crate) fn open_by_hand(
        &mut self,
        from: TestRoute,
        client: ConnectionId,
    ) -> (ConnectionId, Parameters) {
        match self.ask_for_session(from, client, PARAMETERS) {
            Some(Control::Opened { server, parameters }) => (server, parameters),
            answer => panic!("the server did not answer Opened: {answer:?}"),
        }
    }

    /// The cookie that the server issues to `client` at `from`.
    pub(crate) fn cookie(&mut self, from: TestRoute, client: ConnectionId) -> [u8; 16] {
        let hello = Control::Hello { client, low: 1, high: 1 };
        let challenge = self.ask_server(from, ConnectionId::endpoint(0), hello);
        match control(&challenge[0]) {
            Some(Control::Challenge { cookie, .. }) => cookie,
            answer => panic!("the server did not answer Challenge: {answer:?}"),
        }
    }

    /// The server's answer to an `Open` from `from` with a valid cookie and these parameters.
    pub(crate) fn ask_for_session(
        &mut self,
        from: TestRoute,
        client: ConnectionId,
        parameters: Parameters,
    ) -> Option<Control> {
        let cookie = self.cookie(from, client);
        let open = Control::Open { client, cookie, parameters };
        control(&self.ask_server(from, ConnectionId::endpoint(0), open)[0])
    }

    /// Opens a session from [`STRANGER`]. Returns the server's id for it.
    pub(crate) fn open_stranger(&mut self, number: u32) -> ConnectionId {
        self.open_by_hand(STRANGER, strangers_id(number)).0
    }

    /// Closes a session from [`STRANGER`].
    pub(crate) fn close_stranger(&mut self, number: u32, server: ConnectionId) {
        let closed =
            self.ask_server(STRANGER, server, Control::Close { sender: strangers_id(number) });
        assert_eq!(control(&closed[0]), Some(Control::Closed));
    }
}

fn strangers_id(number: u32) -> ConnectionId {
    ConnectionId::new(0, false, number, 0x5EED)
}

/// The parameters of a stranger.
pub(crate) const PARAMETERS: Parameters = Parameters {
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

/// The packet with a correct trailer appended.
pub(crate) fn sealed(packet: &[u8]) -> Vec<u8> {
    [packet, &trailer_of(packet, &[])].concat()
}

/// A control message as a datagram.
pub(crate) fn emit(to: ConnectionId, message: Control) -> Vec<u8> {
    message.emit(to, 5, ReplyInfo::default()).as_bytes().to_vec()
}
