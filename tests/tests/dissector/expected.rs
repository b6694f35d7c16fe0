//! What the dissector must show of a packet, according to the parsers of erpc.

use std::collections::HashMap;

use erpc_core::stream::{Items, StreamReply, StreamRequest};
use erpc_core::wire::checksum::{TRAILER_LEN, check};
use erpc_core::wire::control::{Control, Parameters};
use erpc_core::wire::extension::Extension;
use erpc_core::wire::{
    ANNOUNCEMENT, CANCEL, DRAINING, HEADER_LEN, Header, HeaderError, Kind, MAX_DONE, PacketLayout,
    Stamp, decode_status, is_refusal,
};

use crate::capture::{Fields, Flow};

/// The fields of a packet.
pub(crate) struct Expected {
    /// Fields of the header and the trailer, and those that depend on earlier packets.
    pub(crate) header: Fields,
    /// Fields of the body, or why the packet is not one that a receiver accepts.
    pub(crate) body: Result<Fields, Fault>,
}

/// Why a receiver drops a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The checksum is wrong.
    Checksum,
    /// A field is wrong, or the packet has another length than its fields say.
    Malformed,
}

fn put(fields: &mut Fields, name: &str, value: impl ToString) {
    fields.entry(format!("erpc.{name}")).or_default().push(value.to_string());
}

fn put_bool(fields: &mut Fields, name: &str, value: bool) {
    put(fields, name, u8::from(value));
}

/// Adds bytes; Wireshark has no fields without bytes.
fn put_bytes(fields: &mut Fields, name: &str, bytes: &[u8]) {
    if !bytes.is_empty() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        put(fields, name, hex);
    }
}

/// What the earlier packets of a capture tell about the next ones.
#[derive(Default)]
pub(crate) struct Observer {
    /// Number and slots of a session, by client, direction and connection id.
    sessions: HashMap<(u16, bool, u64), (u32, u32)>,
    opened: u32,
    /// When a packet with this stamp passed, by client, request number and stamp.
    stamps: HashMap<(u16, u32, u32), u64>,
}

impl Observer {
    /// What tshark must show of a packet that passes at `nanos`.
    pub(crate) fn expect(
        &mut self,
        flow: Flow,
        to_server: bool,
        nanos: u64,
        packet: &[u8],
    ) -> Option<Expected> {
        if packet.is_empty() {
            return None;
        }
        let mut shown = Fields::new();
        if packet.len() < HEADER_LEN {
            return Some(Expected { header: shown, body: Err(Fault::Malformed) });
        }
        // The parser does not read packets of other versions. Their versions are read as 1 here,
        // to get the other fields.
        let version = packet[8] & 0b11;
        let mut bytes = [0; HEADER_LEN];
        bytes.copy_from_slice(&packet[..HEADER_LEN]);
        bytes[8] = packet[8] & !0b11 | 1;
        let header = Header::parse(&bytes).expect("version 1");
        let (id, flags) = (header.connection, header.flags);
        put(&mut shown, "connection", id.to_u64());
        put(&mut shown, "steer", id.steer());
        put(&mut shown, "index", id.index());
        put_bool(&mut shown, "to_server", id.is_server_role());
        put(&mut shown, "generation", id.generation());
        put(&mut shown, "version", version);
        put(&mut shown, "kind", header.kind as u8);
        put_bool(&mut shown, "trailer", flags.trailer());
        put_bool(&mut shown, "extended", flags.extended());
        put_bool(&mut shown, "large", flags.large());
        if let Err(error) = Header::parse(packet) {
            assert_eq!(error, HeaderError::Version(version));
            return Some(Expected { header: shown, body: Err(Fault::Malformed) });
        }
        put_numbers(&header, &mut shown);
        if let Some((stamp, is_answer)) = stamp_of(&header) {
            put(&mut shown, "stamp", stamp.to_u32());
            let key = (flow.0, header.request.to_u32(), stamp.to_u32());
            if !is_answer {
                self.stamps.insert(key, nanos);
            } else if let Some(sent) = self.stamps.get(&key) {
                put(&mut shown, "rtt", nanos - sent);
            }
        }
        let rest = if flags.trailer() { check(packet) } else { Ok(packet) };
        if rest == Err(HeaderError::Truncated) {
            return Some(Expected { header: shown, body: Err(Fault::Malformed) });
        }
        if let (true, Some((_, trailer))) =
            (flags.trailer(), packet.split_last_chunk::<TRAILER_LEN>())
        {
            put(&mut shown, "checksum", u32::from_le_bytes(*trailer));
            put_bool(&mut shown, "checksum.good", rest.is_ok());
        }
        let body = match rest {
            Ok(rest) => body_of(&header, &rest[HEADER_LEN..]),
            Err(_) => Err(Fault::Checksum),
        };
        if let (Kind::Control, Ok(rest)) = (header.kind, rest) {
            let message = Control::parse(&header, &rest[HEADER_LEN..]);
            if let (Ok(Control::Opened { server, parameters }), true) = (message, body.is_ok()) {
                let keys =
                    [(flow.0, to_server, id.to_u64()), (flow.0, !to_server, server.to_u64())];
                let known = self.sessions.get(&keys[0]).zip(self.sessions.get(&keys[1]));
                let number = match known {
                    Some((client, server)) if client == server => client.0,
                    _ => {
                        self.opened += 1;
                        self.opened
                    }
                };
                for key in keys {
                    self.sessions.insert(key, (number, parameters.slots.into()));
                }
            }
        }
        if let Some((number, slots)) = self.sessions.get(&(flow.0, to_server, id.to_u64())) {
            put(&mut shown, "session", number);
            let list = header.kind == Kind::Done && header.packet.get() == 0;
            if header.kind != Kind::Control && !list && *slots > 0 {
                put(&mut shown, "slot", header.request.to_u32() % slots);
            }
        }
        Some(Expected { header: shown, body })
    }
}

/// The stamp in a header, if it has one, and whether it is that of another packet.
fn stamp_of(header: &Header) -> Option<(Stamp, bool)> {
    let packet = header.packet.get();
    let (word, is_answer) = match header.kind {
        Kind::Request if packet > 0 => (header.aux, false),
        Kind::RequestForResponse => (header.aux, false),
        Kind::Response | Kind::Failure if packet > 0 && packet != ANNOUNCEMENT => {
            (header.size, true)
        }
        Kind::CreditReturn => (header.size, true),
        _ => return None,
    };
    let stamp = Stamp::from_u32(word);
    (stamp != Stamp::NONE).then_some((stamp, is_answer))
}

/// The fields of the header that depend on the kind, without stamps.
fn put_numbers(header: &Header, shown: &mut Fields) {
    let (packet, info) = (header.packet.get(), header.reply_info());
    let mut has_info = true;
    match header.kind {
        Kind::Control => {
            put(shown, "control", packet);
            put(shown, "nonce", header.request.to_u32());
            // 6 and 7: Ping and Pong.
            has_info = matches!(packet, 6 | 7) && !header.connection.is_server_role();
        }
        _ => {
            put(shown, "packet", packet);
            put(shown, "request", header.request.to_u32());
        }
    }
    match header.kind {
        Kind::Request => {
            has_info = false;
            put(shown, "size", header.size);
            if packet == 0 {
                put(shown, "method", header.aux);
            }
        }
        Kind::Response | Kind::Failure => {
            put_bool(shown, "announced", packet == ANNOUNCEMENT);
            if matches!(packet, 0 | ANNOUNCEMENT) {
                put(shown, "size", header.size);
            }
        }
        Kind::CreditReturn => put_bool(shown, "gap", header.size & 1 != 0),
        Kind::RequestForResponse => {
            has_info = false;
            put(shown, "count", header.size);
        }
        Kind::Done => {
            has_info = false;
            put_bool(shown, "cancel", packet == CANCEL);
        }
        Kind::Accepted | Kind::Control => {}
    }
    if has_info {
        put(shown, "window", info.window().unwrap_or(0));
        put_bool(shown, "marked", info.is_marked());
        put(shown, "server_time", info.processing_nanos());
    }
}

/// Body and padding of a packet. WIRE.md, "Padding".
fn unpadded<'a>(header: &Header, body: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let is_message = matches!(header.kind, Kind::Request | Kind::Response | Kind::Failure);
    let may_be_padded = is_message && header.packet.get() == 0 && !header.flags.trailer();
    match body.split_at_checked(header.size as usize) {
        Some((message, rest))
            if may_be_padded && rest.len() <= 800 && rest.iter().all(|byte| *byte == 0) =>
        {
            (message, rest)
        }
        _ => (body, &[]),
    }
}

fn body_of(header: &Header, body: &[u8]) -> Result<Fields, Fault> {
    let mut shown = Fields::new();
    let (body, padding) = unpadded(header, body);
    put_bytes(&mut shown, "padding", padding);
    let is_message = matches!(header.kind, Kind::Request | Kind::Response | Kind::Failure);
    let is_right = match header.kind {
        _ if header.flags.extended() && !is_message => false,
        Kind::Control => header.flags.trailer() && put_control(header, body, &mut shown),
        Kind::Request | Kind::Response | Kind::Failure => put_message(header, body, &mut shown),
        Kind::Done if header.packet.get() == CANCEL => body.is_empty(),
        Kind::Done => {
            let (numbers, rest) = body.as_chunks::<4>();
            for number in numbers {
                put(&mut shown, "done", u32::from_le_bytes(*number));
            }
            header.packet.get() == 0 && rest.is_empty() && (1..=MAX_DONE).contains(&numbers.len())
        }
        Kind::CreditReturn | Kind::RequestForResponse | Kind::Accepted => body.is_empty(),
    };
    if is_right { Ok(shown) } else { Err(Fault::Malformed) }
}

fn put_parameters(shown: &mut Fields, parameters: &Parameters) {
    put(shown, "datagram", parameters.max_datagram);
    put(shown, "max_message", parameters.max_message);
    put(shown, "eager", parameters.eager);
    put(shown, "offered_window", parameters.window);
    put(shown, "credits", parameters.credits);
    put(shown, "model", parameters.charge_model);
    put(shown, "integrity", u8::from(parameters.integrity));
    put(shown, "bundles", u8::from(parameters.bundles));
    put(shown, "slots", parameters.slots);
}

/// Adds the fields of a control message. Returns false if it is none.
fn put_control(header: &Header, body: &[u8], shown: &mut Fields) -> bool {
    let Ok(message) = Control::parse(header, body) else { return false };
    let len = match message {
        Control::Hello { client, low, high } => {
            put(shown, "id", client.to_u64());
            put(shown, "low", low);
            put(shown, "high", high);
            body.len()
        }
        Control::Challenge { cookie, port, steer, proof } => {
            put_bytes(shown, "cookie", &cookie);
            put(shown, "port", port);
            put(shown, "chosen", steer);
            put(shown, "proof", proof);
            body.len()
        }
        Control::Open { client, cookie, parameters } => {
            put(shown, "id", client.to_u64());
            put_bytes(shown, "cookie", &cookie);
            put_parameters(shown, &parameters);
            45
        }
        Control::Opened { server, parameters } => {
            put(shown, "id", server.to_u64());
            put_parameters(shown, &parameters);
            29
        }
        Control::Refused { reason, low, high } => {
            put(shown, "reason", reason as u8);
            put(shown, "low", low);
            put(shown, "high", high);
            body.len()
        }
        Control::Ping { sender: id }
        | Control::Reset { unknown: id }
        | Control::Close { sender: id }
        | Control::Moved { server: id }
        | Control::GoAway { sender: id } => {
            put(shown, "id", id.to_u64());
            body.len()
        }
        Control::Resize { max_datagram } => {
            put(shown, "new_large", max_datagram);
            body.len()
        }
        Control::Pong | Control::Closed | Control::Resized | Control::Probe | Control::Probed => 0,
    };
    put_bytes(shown, "padding", &body[len..]);
    true
}

/// Whether a body of `len` bytes is that of the packet in a message of `size` bytes, with some size
/// of packets.
fn is_part(packet: u32, len: usize, size: u32) -> bool {
    let full = (len as u32).max(1_024);
    let before = size.saturating_sub(len as u32).checked_div(packet).unwrap_or(0);
    [full, before].into_iter().filter(|payload| *payload >= full).any(|payload| {
        let layout = PacketLayout::new(size, payload, payload);
        packet < layout.packets() && layout.len(packet) == len
    })
}

/// Adds the fields of a part of a message. Returns false if the part is malformed.
fn put_message(header: &Header, body: &[u8], shown: &mut Fields) -> bool {
    let (kind, packet) = (header.kind, header.packet.get());
    if kind != Kind::Request && packet == ANNOUNCEMENT {
        return body.is_empty();
    }
    if packet > 0 {
        put_bytes(shown, "body", body);
        return match kind {
            Kind::Request => is_part(packet, body.len(), header.size),
            _ => !body.is_empty(),
        };
    }
    let is_whole = header.size as usize == body.len();
    let mut rest = body;
    if header.flags.extended() {
        let Ok((extension, message)) = Extension::split(body) else { return false };
        rest = message;
        put(shown, "ext.len", body.len() - message.len());
        put(shown, "ext.op", extension.op());
        put(shown, "ext.deadline", extension.deadline());
        for (key, value) in extension.entries() {
            put(shown, "ext.key", key);
            put_bytes(shown, "ext.value", value);
        }
        if extension.op() != 0 && kind != Kind::Failure {
            let name = if kind == Kind::Request { "stream.call" } else { "stream.reply" };
            put(shown, name, extension.op() & 0x7f);
            put_bool(shown, "stream.end", extension.op() & 0x80 != 0);
            assert!(is_whole || body.len() < 1_024, "no batches of several packets here");
            let is_right = match kind {
                Kind::Request => put_stream_call(extension.op(), rest, shown),
                _ => put_stream_reply(extension.op(), rest, shown),
            };
            return is_right && is_part(0, body.len(), header.size);
        }
    }
    put_bytes(shown, "body", rest);
    is_part(0, body.len(), header.size)
        && (kind != Kind::Failure || put_status(rest, is_whole, shown))
}

/// Adds the fields of a status. Returns false if it is malformed.
fn put_status(body: &[u8], is_whole: bool, shown: &mut Fields) -> bool {
    let Some((code, rest)) = body.split_first_chunk::<4>() else { return false };
    put(shown, "code", u32::from_le_bytes(*code));
    if is_refusal(body) {
        assert_eq!(u32::from_le_bytes(*code), DRAINING);
        return true;
    }
    let Some((len, rest)) = rest.split_first_chunk::<4>() else { return false };
    let is_truncated = u32::from_le_bytes(*len) as usize > rest.len();
    put_text(shown, &decode_status(body));
    !(is_truncated && is_whole)
}

fn put_text(shown: &mut Fields, status: &erpc::Status) {
    if !status.message().is_empty() {
        put(shown, "message", status.message());
    }
    put_bytes(shown, "details", status.details());
}

fn put_stream_call(op: u8, frame: &[u8], shown: &mut Fields) -> bool {
    let Ok(StreamRequest { stream, seq, items, .. }) = StreamRequest::parse(op, frame) else {
        return false;
    };
    put_batch(stream, seq, &items, frame, shown);
    true
}

fn put_stream_reply(op: u8, frame: &[u8], shown: &mut Fields) -> bool {
    match StreamReply::parse(op, frame) {
        Ok(StreamReply::Empty { .. }) => true,
        Ok(StreamReply::Items { stream, seq, items, end }) => {
            put_batch(stream, seq, &items, frame, shown);
            if end.is_some() {
                let status = &frame[items.to..];
                let code = status.first_chunk().expect("the parser has checked the status");
                put(shown, "code", u32::from_le_bytes(*code));
                put_text(shown, &decode_status(status));
            }
            true
        }
        Err(_) => false,
    }
}

fn put_batch(stream: u32, seq: u32, items: &Items, frame: &[u8], shown: &mut Fields) {
    put(shown, "stream", stream);
    put(shown, "stream.seq", seq);
    put(shown, "stream.count", items.count);
    let mut rest = &frame[items.from..items.to];
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = u32::from_le_bytes(*len);
        let (item, after) = after.split_at(len as usize);
        put(shown, "stream.item.len", len);
        put_bytes(shown, "stream.item", item);
        rest = after;
    }
}
