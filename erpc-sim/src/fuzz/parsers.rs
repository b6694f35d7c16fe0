//! Fuzz targets of single parsers.

use erpc_core::service::{Codec, DecodeError, Fields, Prost};
use erpc_core::wire::checksum::{self, TRAILER_LEN};
use erpc_core::wire::control::Control;
use erpc_core::wire::extension::{Entries, Extension, MAX_EXTENSION, push_entry, put_extension};
use erpc_core::wire::{
    ConnectionId, HEADER_LEN, Header, MAX_STATUS_MESSAGE, PacketLayout, ReplyInfo, decode_status,
    encode_status,
};

use crate::hostile::craft;

/// Fuzzes the parser of headers, and the values that are computed from a header's fields. `data` is
/// any packet.
///
/// # Panics
/// Panics if a header does not encode to the same bytes, or a layout leaves out bytes of its
/// message.
pub fn header(data: &[u8]) {
    let Ok(header) = Header::parse(data) else { return };
    assert_eq!(header.to_bytes()[..], data[..HEADER_LEN], "parsing loses nothing");
    if let Ok(rest) = checksum::check(data) {
        assert_eq!(data.len(), rest.len() + TRAILER_LEN);
        assert!(rest.len() >= HEADER_LEN && data.starts_with(rest));
    }
    let id = header.connection;
    let parts = ConnectionId::new(id.steer(), id.is_server_role(), id.index(), id.generation());
    assert_eq!(parts, id);
    assert_eq!(id.is_endpoint(), id.to_u64() < 256);
    let info = ReplyInfo::from_u32(header.aux);
    assert_eq!(info.after(info.processing_nanos()).window(), info.window());
    // A peer chooses the size. The bytes per packet are negotiated, within these bounds.
    let first = 1_024 + header.aux % 64_000;
    let rest = first + header.request.to_u32() % 1_000;
    let layout = PacketLayout::new(header.size, first, rest);
    let last = layout.packets() - 1;
    assert_eq!(layout.range(last).end, header.size as usize);
    let index = header.packet.get();
    if index <= last {
        let range = layout.range(index);
        assert!(range.len() <= rest as usize && range.end <= header.size as usize);
        assert!(index == 0 || range.start == layout.range(index - 1).end);
    }
}

/// Fuzzes the parser of control messages. `data` is a control datagram without its trailer. The
/// target computes the trailer, because no fuzzer would guess it.
///
/// # Panics
/// Panics if a message does not encode to the same bytes.
pub fn control(data: &[u8]) {
    let mut sealed = Vec::with_capacity(data.len() + TRAILER_LEN);
    sealed.extend_from_slice(data);
    craft::seal(&mut sealed, 0);
    let of_any_version = Control::hello_of_any_version(&sealed);
    let Some((header, message)) = craft::read_control(&sealed) else { return };
    if let Control::Hello { client, .. } = message {
        assert_eq!(
            of_any_version.is_some(),
            header.flags.trailer(),
            "one version's Hello is every version's"
        );
        assert!(of_any_version.is_none_or(|id| id == client));
    }
    let info = ReplyInfo::from_u32(header.aux);
    let packet = message.emit(header.connection, header.request.to_u32(), info);
    let (emitted, ignored) = (packet.as_bytes(), 20..HEADER_LEN);
    let len = emitted.len() - TRAILER_LEN;
    assert_eq!(len, data.len());
    assert_eq!(emitted[..8], data[..8], "the connection id");
    assert_eq!(
        emitted[8],
        data[8] | 1 << 5,
        "version, kind, and the flag that announces a trailer"
    );
    assert_eq!(emitted[9..ignored.start], data[9..ignored.start], "the rest of the header");
    assert_eq!(emitted[ignored.end..len], data[ignored.end..], "the body");
}

/// Fuzzes the decoder of statuses. `data` is the body of a `Failure`.
///
/// # Panics
/// Panics if the decoded status does not survive encoding.
pub fn status(data: &[u8]) {
    let status = decode_status(data);
    assert!(status.message().len() <= 3 * data.len() + 64, "no more than was sent");
    let mut bytes = Vec::new();
    encode_status(&status, &mut bytes);
    let again = decode_status(&bytes);
    assert_eq!(again.code(), status.code());
    assert_eq!(again.details(), status.details());
    if status.message().len() <= MAX_STATUS_MESSAGE {
        assert_eq!(again.message(), status.message());
    }
}

/// Fuzzes extensions. `data` is parsed as a message with an extension at its front. Then entries
/// are made of the same bytes.
///
/// # Panics
/// Panics if the decoded extension does not survive encoding.
pub fn extension(data: &[u8]) {
    if let Ok((extension, rest)) = Extension::split(data) {
        let mut entries = Vec::new();
        for (key, value) in extension.entries() {
            push_entry(&mut entries, key, value).expect("a decoded entry is valid");
        }
        assert_eq!(entries, extension.as_bytes());
        let mut bytes = Vec::new();
        put_extension(extension.op(), &entries, &mut bytes);
        bytes[4..8].copy_from_slice(&extension.deadline().to_le_bytes());
        bytes.extend_from_slice(rest);
        assert_eq!(bytes, data);
    }
    let mut bytes = Vec::new();
    for entry in data.chunks(usize::from(data.first().copied().unwrap_or(1)).max(1)) {
        let (key, value) = entry.split_at(entry.len() / 2);
        let Ok(key) = std::str::from_utf8(key) else { continue };
        let before = bytes.len();
        match push_entry(&mut bytes, key, value) {
            Ok(()) => assert_eq!(Entries::new(&bytes[before..]).next(), Some((key, value))),
            Err(_) => assert_eq!(bytes.len(), before, "nothing, or all of it"),
        }
    }
    let mut message = Vec::new();
    put_extension(0, &bytes, &mut message);
    assert!(Extension::split(&message).is_ok_and(|(read, rest)| {
        read.as_bytes() == bytes && rest.is_empty() && message.len() <= MAX_EXTENSION
    }));
}

/// Fuzzes the decoding of protobuf messages, as typed handlers and callers do it. `data` is decoded
/// as several well-known message types, of which `Value` is recursive.
///
/// # Panics
/// Panics if a decoded message does not survive encoding, or if reading a `Timestamp` field by
/// field gives another result than decoding it.
pub fn message(data: &[u8]) {
    survives::<prost_types::Value>(data);
    survives::<prost_types::Timestamp>(data);
    survives::<String>(data);
    survives::<Vec<u8>>(data);
    survives::<u64>(data);
    reads_alike(data);
}

/// Checks that reading a message field by field gives the same result as decoding it.
fn reads_alike(data: &[u8]) {
    let read = || {
        let (mut fields, mut read) = (Fields::new(data), prost_types::Timestamp::default());
        while let Some(key) = fields.next()? {
            match key {
                0x08 => read.seconds = fields.int64()?,
                0x10 => read.nanos = fields.int32()?,
                _ => fields.other(key, &[1, 2])?,
            }
        }
        Ok::<_, DecodeError>(read)
    };
    assert_eq!(read().ok(), <Prost as Codec<prost_types::Timestamp>>::decode(data).ok());
}

fn survives<M>(data: &[u8])
where
    Prost: Codec<M>,
{
    let Ok(message) = <Prost as Codec<M>>::decode(data) else { return };
    let encoded = |message: &M| {
        let mut bytes = Vec::with_capacity(<Prost as Codec<M>>::encoded_len(message));
        <Prost as Codec<M>>::encode(message, &mut bytes);
        assert_eq!(bytes.len(), <Prost as Codec<M>>::encoded_len(message));
        bytes
    };
    let bytes = encoded(&message);
    // Compares bytes instead of messages, because NaN does not equal itself.
    let again = <Prost as Codec<M>>::decode(&bytes).expect("an encoded message decodes");
    assert_eq!(encoded(&again), bytes);
}
