//! The first inputs of fuzzing: every kind of packet, every control message, some conversations.

use std::net::IpAddr;

use erpc_core::service::{Codec, Prost};
use erpc_core::status::{Code, Status};
use erpc_core::transport::frame::{Echo, Header, Interface, control};
use erpc_core::wire::checksum::TRAILER_LEN;
use erpc_core::wire::control::{Control, Refusal};
use erpc_core::wire::extension::{push_entry, put_extension};
use erpc_core::wire::{ConnectionId, HEADER_LEN, Kind, encode_status};

use super::conversations::{CLIENTS, SERVERS, STREAMS};
use super::frame::{REPAIRED, TAGGED, VERIFIED, host};
use super::{transactions, verbs};
use crate::hostile::craft::{self, Craft, PARAMETERS};

/// A first input.
pub struct Seed {
    /// The target of the input.
    pub target: &'static str,
    /// The name of the input and of its file.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// The seeds of all targets. `erpc-sim/fuzz/corpus` contains these, and inputs that fuzzing has
/// added.
#[must_use]
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    packets(&mut seeds);
    messages(&mut seeds);
    streams(&mut seeds);
    frames(&mut seeds);
    conversations(&mut seeds);
    transactions::seeds(&mut seeds);
    verbs::seeds(&mut seeds);
    seeds
}

pub(super) fn push(
    seeds: &mut Vec<Seed>,
    target: &'static str,
    name: impl Into<String>,
    bytes: impl Into<Vec<u8>>,
) {
    seeds.push(Seed { target, name: name.into(), bytes: bytes.into() });
}

fn packets(seeds: &mut Vec<Seed>) {
    let to_server = ConnectionId::new(3, true, 70_000, 0xDEAD_BEEF);
    let to_client = ConnectionId::new(0, false, 1, 0x1234_5678);
    let kinds = [
        (Kind::Request, to_server),
        (Kind::Response, to_client),
        (Kind::Failure, to_client),
        (Kind::CreditReturn, to_client),
        (Kind::RequestForResponse, to_server),
        (Kind::Accepted, to_client),
        (Kind::Done, to_server),
    ];
    for (kind, connection) in kinds {
        let mut craft = Craft {
            packet: 1,
            request: 8,
            aux: 0x0801_0010,
            size: 3_000,
            ..Craft::new(connection, kind, &PARAMETERS)
        };
        let name = format!("{kind:?}").to_lowercase();
        push(seeds, "header", &*name, craft.bytes(b"body"));
        craft.trailer = true;
        push(seeds, "header", format!("{name}-trailer"), craft.bytes(b"body"));
        craft.trailer = false;
        craft.extended = true;
        push(seeds, "header", format!("{name}-extended"), craft.bytes(b"body"));
        craft.extended = false;
        (craft.packet, craft.size) = (u32::MAX, u32::MAX);
        push(seeds, "header", format!("{name}-extreme"), craft.bytes(&[]));
    }
    push(seeds, "header", "short", vec![0; HEADER_LEN - 1]);
    push(seeds, "header", "other-version", vec![2; HEADER_LEN]);
    for (name, message) in control_messages() {
        let to_endpoint = matches!(message, Control::Hello { .. } | Control::Open { .. });
        let to = if to_endpoint { ConnectionId::endpoint(0) } else { to_client };
        let packet = craft::control(to, 5, message);
        push(seeds, "header", format!("control-{name}"), packet.clone());
        // The target computes the trailer itself.
        let unsealed = &packet[..packet.len() - TRAILER_LEN];
        push(seeds, "control", name, unsealed);
        push(seeds, "control", format!("{name}-short"), &unsealed[..unsealed.len() - 1]);
    }
    let mut hello = craft::control(
        ConnectionId::endpoint(0),
        0,
        Control::Hello { client: to_client, low: 3, high: 3 },
    );
    hello[8] |= 3;
    push(seeds, "control", "hello-other-version", hello);
}

fn control_messages() -> [(&'static str, Control); 16] {
    let id = ConnectionId::from_u64(0x0123_4567_89AB_CDEF);
    [
        ("hello", Control::Hello { client: id, low: 1, high: 1 }),
        ("challenge", Control::Challenge { cookie: [7; 16], port: 31_850, steer: 3, proof: 1_472 }),
        ("open", Control::Open { client: id, cookie: [9; 16], parameters: PARAMETERS }),
        ("opened", Control::Opened { server: id, parameters: PARAMETERS }),
        ("refused", Control::Refused { reason: Refusal::Full, low: 1, high: 2 }),
        ("ping", Control::Ping { sender: id }),
        ("pong", Control::Pong),
        ("reset", Control::Reset { unknown: id }),
        ("close", Control::Close { sender: id }),
        ("closed", Control::Closed),
        ("probe", Control::Probe),
        ("probed", Control::Probed),
        ("resize", Control::Resize { max_datagram: 1_372 }),
        ("resized", Control::Resized),
        ("moved", Control::Moved { server: id }),
        ("go-away", Control::GoAway { sender: id }),
    ]
}

fn messages(seeds: &mut Vec<Seed>) {
    let statuses = [
        ("plain", Status::new(Code::NotFound, "no such key")),
        ("with-details", Status::new(Code::Internal, "é").with_details(&[1, 2, 3])),
        ("long", Status::new(Code::Unknown, "é".repeat(600))),
        ("empty", Status::new(Code::Unavailable, "")),
    ];
    for (name, status) in statuses {
        let mut bytes = Vec::new();
        encode_status(&status, &mut bytes);
        push(seeds, "status", name, bytes);
    }
    push(seeds, "status", "short", [3, 0, 0]);
    push(seeds, "status", "lying-length", [3, 0, 0, 0, 255, 255, 255, 255, b'x']);
    push(seeds, "status", "not-utf8", [3, 0, 0, 0, 2, 0, 0, 0, 0xC3, 0x28, 9]);

    extensions(seeds);

    let encoded = |value: prost_types::Value| {
        let mut bytes = Vec::new();
        <Prost as Codec<prost_types::Value>>::encode(&value, &mut bytes);
        bytes
    };
    let number = || prost_types::Value::from(1.5);
    let mut nested = number();
    for _ in 0..40 {
        nested = prost_types::Value::from(vec![nested]);
    }
    push(seeds, "message", "number", encoded(number()));
    push(seeds, "message", "list", encoded(prost_types::Value::from(vec![number(), number()])));
    push(seeds, "message", "nested", encoded(nested));
    push(seeds, "message", "text", encoded(prost_types::Value::from("text".to_owned())));
    push(seeds, "message", "timestamp", [0x08, 0x80, 0x01, 0x10, 0x05]);
    push(
        seeds,
        "message",
        "overlong-varint",
        [0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F],
    );
    push(seeds, "message", "lying-length", [0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
}

/// Frames of streams, each after one byte for the extension's `op`, and the conversations of
/// streaming clients.
fn streams(seeds: &mut Vec<Seed>) {
    let frame = |op: u8, count: u8, rest: &[u8]| {
        [&[op, 1, 0, 0, 0, 0, 0, 0, 0, count, 0, 0, 0], rest].concat()
    };
    let two: &[u8] = &[3, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0];
    push(seeds, "stream_frame", "open", frame(1, 2, two));
    push(seeds, "stream_frame", "open-end", frame(0x81, 2, two));
    push(seeds, "stream_frame", "pull", frame(2, 0, &[]));
    push(seeds, "stream_frame", "push-end", frame(0x83, 2, two));
    push(seeds, "stream_frame", "close", frame(4, 0, &[]));
    push(seeds, "stream_frame", "empty", [0x82]);
    push(seeds, "stream_frame", "end-ok", frame(0x81, 2, &[two, &[0; 8]].concat()));
    let status = [5, 0, 0, 0, 2, 0, 0, 0, b'n', b'o', 9];
    push(seeds, "stream_frame", "end-status", frame(0x81, 0, &status));
    push(seeds, "stream_frame", "lying-count", frame(3, 9, two));
    push(seeds, "stream_frame", "lying-length", frame(3, 1, &[255, 255, 255, 255, 1]));
    for (name, steps) in STREAMS {
        push(seeds, "hostile_streams", name, steps.concat());
    }
}

fn extensions(seeds: &mut Vec<Seed>) {
    let (mut entries, mut bytes) = (Vec::new(), Vec::new());
    put_extension(3, &entries, &mut bytes);
    push(seeds, "extension", "empty", bytes.clone());
    bytes.extend_from_slice(b"message");
    push(seeds, "extension", "no-entries", bytes.clone());
    for (key, value) in [("trace-id", &[7; 16][..]), ("\u{e9}", b""), ("k", b"value")] {
        push_entry(&mut entries, key, value).expect("there is room");
    }
    bytes.clear();
    put_extension(0, &entries, &mut bytes);
    bytes.extend_from_slice(b"message");
    push(seeds, "extension", "entries", bytes.clone());
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    push(seeds, "extension", "late", bytes.clone());
    bytes[3] = 1;
    push(seeds, "extension", "reserved", bytes.clone());
    bytes[3] = 0;
    bytes[9] = 200;
    push(seeds, "extension", "lying-length", bytes.clone());
    push(seeds, "extension", "short", &bytes[..7]);
}

/// Frames from host 1 to host 2, each after a byte of options.
fn frames(seeds: &mut Vec<Seed>) {
    let (from, to) = (host(1, false), host(2, false));
    let [v4, v6] = [0, 1].map(|family| to.networks[family].address);
    let datagram = |from: &Interface, to: IpAddr, ecn: bool| {
        let header = Header::new(from, to, host(2, false).mac, ecn).expect("one family");
        let mut frame = vec![0; header.len()];
        frame.extend_from_slice(b"datagram");
        header.write(&mut frame, 40_000, 31_850);
        frame
    };
    let changed = |mut frame: Vec<u8>, changes: &[(usize, u8)]| {
        for &(at, byte) in changes {
            frame[at] = byte;
        }
        frame
    };
    // An echo request is the reply with another type.
    let echo = |own: IpAddr, request: (usize, u8)| {
        let echo = Echo { mac: to.mac, from: own, rest: &[0, 7, 0, 1, b'e', b'c', b'h', b'o'] };
        changed(control::echo_reply(&from, &echo).expect("one family"), &[request])
    };
    let tagged = host(1, true);
    let (plain_v4, plain_v6) = (datagram(&from, v4, false), datagram(&from, v6, false));
    let mut options = changed(plain_v4.clone(), &[(14, 0x46), (17, 40)]);
    options.splice(34..34, [1, 1, 1, 0]);
    let mut padded = plain_v4.clone();
    padded.resize(60, 0);
    let ask = |target| control::ask(&from, target).expect("one family");
    let tell = |ip| control::tell(&from, ip, to.mac).expect("one family");
    let mut announced = control::announce(&from);
    let frames = [
        ("v4", 0, plain_v4.clone()),
        ("v6", 0, plain_v6.clone()),
        ("v4-vlan", TAGGED, datagram(&tagged, v4, false)),
        ("v6-vlan", TAGGED, datagram(&tagged, v6, false)),
        ("v4-other-vlan", 0, datagram(&tagged, v4, false)),
        ("v4-marked", REPAIRED, changed(datagram(&from, v4, true), &[(15, 3)])),
        ("v6-marked", 0, changed(datagram(&from, v6, true), &[(15, 0x30)])),
        ("v4-padded", 0, padded),
        ("v4-without-checksum", VERIFIED, changed(plain_v4.clone(), &[(40, 0), (41, 0)])),
        ("v4-wrong-checksum", 0, changed(plain_v4.clone(), &[(45, b'x')])),
        ("v4-options", REPAIRED, options),
        ("v4-first-fragment", REPAIRED, changed(plain_v4.clone(), &[(20, 0x20)])),
        ("v4-later-fragment", REPAIRED, changed(plain_v4.clone(), &[(21, 9)])),
        ("v4-tcp", REPAIRED, changed(plain_v4.clone(), &[(23, 6)])),
        ("v4-short-udp", REPAIRED, changed(plain_v4.clone(), &[(39, 7)])),
        ("v4-truncated", 0, plain_v4[..40].to_vec()),
        ("v6-options", 0, changed(plain_v6.clone(), &[(20, 60)])),
        ("v6-fragment", 0, changed(plain_v6.clone(), &[(20, 44)])),
        ("v6-mapped", REPAIRED, changed(plain_v6.clone(), &[(22, 0), (32, 0xff), (33, 0xff)])),
        ("v6-truncated", 0, plain_v6[..50].to_vec()),
        ("other-station", 0, changed(plain_v4, &[(5, 9)])),
        ("arp-asks", 0, ask(v4)),
        ("arp-tells", 0, tell(v4)),
        ("ndp-asks", 0, ask(v6)),
        ("ndp-tells", 0, tell(v6)),
        ("ndp-asks-as-this-host", REPAIRED, changed(ask(v6), &[(37, 2)])),
        ("ndp-tells-of-no-host", REPAIRED, changed(tell(v6), &[(62, 0), (77, 0)])),
        ("arp-announces", 0, announced.next().expect("IPv4")),
        ("ndp-announces", 0, announced.next().expect("IPv6")),
        ("echo-v4", REPAIRED, echo(v4, (34, 8))),
        ("echo-v6", REPAIRED, echo(v6, (54, 128))),
    ];
    for (name, options, frame) in frames {
        push(seeds, "frame", name, [&[options], &frame[..]].concat());
    }
}

fn conversations(seeds: &mut Vec<Seed>) {
    for (name, steps) in CLIENTS {
        push(seeds, "hostile_client", name, steps.concat());
    }
    for (name, steps) in SERVERS {
        push(seeds, "hostile_server", name, steps.concat());
    }
}
