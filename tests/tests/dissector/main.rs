//! The dissector for Wireshark, `docs/wireshark/erpc.lua`, shows what the parsers of erpc read.
//!
//! The tests write captures, let tshark show them with the dissector, and compare every field. They
//! need tshark. Without it, they print that they are skipped; if `CI_FULL` is 1, they fail instead.

mod capture;
mod expected;
mod padding;

use std::collections::BTreeSet;
use std::process::Command;

use bytes::BufMut;
use erpc_core::wire::checksum::trailer_of;
use erpc_core::wire::control::{Control, Parameters, Refusal};
use erpc_core::wire::extension::{push_entry, put_extension};
use erpc_core::wire::{
    ANNOUNCEMENT, CANCEL, ConnectionId, HEADER_LEN, Header, Kind, ReplyInfo, encode_status,
};
use erpc_sim::hostile::craft::{Craft, PARAMETERS, seal, seal_again};
use erpc_test_tools::data::fill;
use erpc_test_tools::netns::skip_unsupported;
use erpc_test_tools::random::Random;

use capture::{BY_PORT, Capture, Fields, Flow, NOTES, TWICE, names};
use expected::{Fault, Observer};

const TRANSCRIPT: &str = include_str!("../../../erpc-core/src/protocol/tests/transcript.txt");

/// A packet and its direction.
#[derive(Clone)]
struct Sent {
    flow: Flow,
    to_server: bool,
    bytes: Vec<u8>,
}

/// Whether tshark is missing. Then the test is skipped.
fn is_skipped(test: &str) -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok();
    if !found {
        skip_unsupported(
            test,
            "tshark is missing; install it, for example Debian's package tshark",
        );
    }
    !found
}

/// The packets of the transcript. Each of its sections is a flow.
fn transcript() -> Vec<Sent> {
    let mut packets = Vec::new();
    let mut flow = 0;
    for block in TRANSCRIPT.split("\n\n") {
        let Some((words, hex)) = block.trim().split_once('\n') else {
            // The title of a section.
            flow += 1;
            continue;
        };
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| {
            let text = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(text, 16).expect("hexadecimal")
        };
        let bytes = digits.chunks(2).map(byte).collect();
        packets.push(Sent { flow: Flow(flow), to_server: words.starts_with("client: "), bytes });
    }
    assert!(packets.len() > 60 && flow == 4, "{} packets in {flow} sections", packets.len());
    packets
}

/// Packets with the fields that the transcript does not have.
fn others() -> Vec<Sent> {
    let flow = Flow(9);
    let to_client = ConnectionId::new(0, false, 5, 0x1234_5678);
    let to_server = ConnectionId::new(3, true, 70_000, 0xDEAD_BEEF);
    let mut packets = Vec::new();
    let id = to_client;
    let controls = [
        Control::Refused { reason: Refusal::Draining, low: 1, high: 2 },
        Control::Ping { sender: id },
        Control::Pong,
        Control::Probe,
        Control::Probed,
        Control::Resize { max_datagram: 1_372 },
        Control::Resized,
        Control::Moved { server: id },
        Control::GoAway { sender: id },
        Control::Opened { server: to_server, parameters: Parameters { slots: 4, ..PARAMETERS } },
        Control::Open { client: id, cookie: [9; 16], parameters: PARAMETERS },
        Control::Challenge { cookie: [7; 16], port: 31_850, steer: 3, proof: 1_472 },
    ];
    let info = ReplyInfo::new(1_234_567, 300_000).with_mark(true);
    for (nonce, control) in controls.iter().enumerate() {
        for connection in [to_client, to_server] {
            let packet = control.emit(connection, nonce as u32, info).as_bytes().to_vec();
            let is_padded = matches!(
                control,
                Control::Probe | Control::Probed | Control::Open { .. } | Control::Opened { .. }
            );
            if is_padded {
                let mut padded = packet[..packet.len() - 4].to_vec();
                padded.extend_from_slice(&[0; 33]);
                padded.extend_from_slice(&trailer_of(&padded, &[]));
                packets.push((connection, padded));
            }
            packets.push((connection, packet));
        }
    }
    let item = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let batch = |seq: u32, items: &[&str]| {
        let head = [3, seq, items.len() as u32].into_iter().flat_map(u32::to_le_bytes);
        let items = items.iter().flat_map(|text| item(text));
        head.chain(items).collect::<Vec<u8>>()
    };
    let status = |code: u8, text: &str| [&[code, 0, 0, 0][..], &item(text), b"details"].concat();
    let mut encoded = Vec::new();
    let failure = erpc::Status::new(erpc::Code::Internal, "caf\u{e9}").with_details(&[1, 2, 3]);
    encode_status(&failure, &mut encoded);
    let messages: [(Kind, u8, Vec<u8>); 14] = [
        (Kind::Request, 1, batch(0, &["first", ""])),
        (Kind::Request, 0x81, batch(0, &[])),
        (Kind::Request, 2, batch(0, &[])),
        (Kind::Request, 3, batch(7, &["next"])),
        (Kind::Request, 0x83, batch(8, &["the", "last"])),
        (Kind::Request, 4, batch(0, &[])),
        (Kind::Response, 1, batch(0, &["one", "two"])),
        (Kind::Response, 0x81, [batch(1, &["x"]), status(5, "not found")].concat()),
        (Kind::Response, 0x81, [batch(1, &[]), vec![0; 8]].concat()),
        (Kind::Response, 2, Vec::new()),
        (Kind::Response, 0x82, Vec::new()),
        (Kind::Failure, 0, encoded),
        // What a receiver refuses.
        (Kind::Request, 0x82, batch(0, &[])),
        (Kind::Response, 3, batch(0, &[])),
    ];
    for (number, (kind, op, message)) in messages.into_iter().enumerate() {
        let connection = if kind == Kind::Request { to_server } else { to_client };
        let (mut entries, mut body) = (Vec::new(), Vec::new());
        for (key, value) in [("user", &b"nobody"[..]), ("caf\u{e9}", &[0, 1, 2]), ("empty", b"")] {
            push_entry(&mut entries, key, value).expect("room");
        }
        put_extension(op, &entries, &mut body);
        body.extend_from_slice(&message);
        let mut craft = Craft {
            request: number as u32,
            aux: info.to_u32(),
            size: body.len() as u32,
            extended: true,
            ..Craft::new(connection, kind, &PARAMETERS)
        };
        for trailer in [false, true] {
            craft.trailer = trailer;
            packets.push((connection, craft.bytes(&body)));
        }
    }
    // An extension that is longer than any may be.
    let mut body = vec![0; 1_040];
    body[..2].copy_from_slice(&1_030_u16.to_le_bytes());
    body[8..16].copy_from_slice(&[1, 0xfa, 3, b'k', 0, 0, 0, 0]);
    let craft =
        Craft { size: 1_040, extended: true, ..Craft::new(id, Kind::Response, &PARAMETERS) };
    packets.push((id, craft.bytes(&body)));
    packets.extend(parts(to_server, to_client, info));
    packets.extend(padding::packets(to_server, to_client));
    packets
        .into_iter()
        .map(|(connection, bytes)| Sent { flow, to_server: connection == to_server, bytes })
        .collect()
}

/// Packets of longer messages, with stamps, and without a message.
fn parts(
    to_server: ConnectionId,
    to_client: ConnectionId,
    info: ReplyInfo,
) -> Vec<(ConnectionId, Vec<u8>)> {
    let stamp = 0x8000_1234;
    let packet = |kind: Kind, packet: u32, aux: u32, size: u32, body: &[u8]| {
        let is_of_client = matches!(kind, Kind::Request | Kind::RequestForResponse | Kind::Done);
        let connection = if is_of_client { to_server } else { to_client };
        let request = 77;
        let craft = Craft::new(connection, kind, &PARAMETERS);
        (connection, Craft { packet, request, aux, size, ..craft }.bytes(body))
    };
    let info = info.to_u32();
    let full = [5; 1_024];
    vec![
        packet(Kind::Request, 0, 99, 3_000, &full),
        packet(Kind::Request, 1, stamp, 3_000, &full),
        packet(Kind::Request, 2, stamp + 2, 3_000, &full[..952]),
        packet(Kind::Request, 2, stamp + 2, 3_000, &full[..951]),
        packet(Kind::CreditReturn, 2, info, stamp | 1, &[]),
        packet(Kind::CreditReturn, 2, info, 0, &[]),
        packet(Kind::Response, 0, info, 3_000, &full),
        packet(Kind::RequestForResponse, 1, stamp + 4, 2, &[]),
        packet(Kind::Response, 1, info, stamp + 4, &full),
        packet(Kind::Failure, 1, info, stamp + 4, &full),
        packet(Kind::Response, 1, info, stamp + 4, &[]),
        packet(Kind::Response, ANNOUNCEMENT, info, 3_000, &[]),
        packet(Kind::Response, ANNOUNCEMENT, info, 3_000, b"more"),
        packet(Kind::Accepted, 2, info, 0, &[]),
        packet(Kind::Accepted, 2, info, 0, b"more"),
        packet(Kind::Done, 0, 0, 0, &[1, 0, 0, 0, 9, 0, 0, 0]),
        packet(Kind::Done, 0, 0, 0, &[1, 0, 0, 0, 9]),
        packet(Kind::Done, CANCEL, 0, 0, &[]),
        packet(Kind::Done, 2, 0, 0, &[]),
        packet(Kind::Request, 0, 99, 3_000, &full[..1_000]),
    ]
}

/// Compares what tshark shows of a packet with what the parsers read. `seen` gets the names of the
/// fields.
fn compare(
    observer: &mut Observer,
    sent: &Sent,
    nanos: u64,
    row: &Fields,
    seen: &mut BTreeSet<String>,
) {
    let Sent { flow, to_server, bytes } = sent;
    let expected = observer.expect(*flow, *to_server, nanos, bytes);
    let Some(expected) = expected else { return assert!(row.is_empty(), "{row:?}") };
    seen.extend(row.keys().cloned());
    let noted = |name: &str| row.contains_key(name);
    let verdict = (noted("erpc.malformed"), noted("erpc.checksum.bad"), noted("erpc.cut"));
    let mut shown = row.clone();
    shown.retain(|name, _| name.starts_with("erpc.") && !NOTES.contains(&&**name));
    match expected.body {
        Ok(body) => {
            assert_eq!(verdict, (false, false, false), "{row:?}: {bytes:02x?}");
            let mut fields = expected.header;
            fields.extend(body);
            // tshark prints other characters in its own way.
            let is_plain = |text: &String| !text.contains(|letter: char| letter.is_control());
            for name in ["erpc.message", "erpc.ext.key"] {
                if !fields.get(name).is_none_or(|texts| texts.iter().all(is_plain)) {
                    fields.remove(name);
                    shown.remove(name);
                }
            }
            assert_eq!(shown, fields, "{bytes:02x?}");
        }
        Err(fault) => {
            let is_right = match fault {
                Fault::Checksum => verdict.1,
                Fault::Malformed => verdict == (true, false, false),
            };
            assert!(is_right, "{fault:?}, but {row:?}: {bytes:02x?}");
            // Of a wrong body, anything may be shown.
            shown.retain(|name, _| expected.header.contains_key(name));
            assert_eq!(shown, expected.header, "{bytes:02x?}");
        }
    }
}

/// Lets tshark show packets, 1,000 ns apart, and compares all of them.
fn compare_all(packets: &[Sent], options: &[&str]) -> BTreeSet<String> {
    let mut capture = Capture::new();
    for (at, Sent { flow, to_server, bytes }) in packets.iter().enumerate() {
        capture.add(*flow, *to_server, at as u64 * 1_000, bytes, 0);
    }
    let (mut observer, mut seen) = (Observer::default(), BTreeSet::new());
    for (at, (sent, row)) in packets.iter().zip(capture.show(options)).enumerate() {
        compare(&mut observer, sent, at as u64 * 1_000, &row, &mut seen);
    }
    seen
}

/// Some lengths below `len`: all of a short packet, the first and the last of a long one.
fn lengths(len: usize) -> impl Iterator<Item = usize> {
    (0..len).filter(move |at| *at < 120 || at + 40 > len)
}

#[test]
fn every_field_is_shown_as_the_parsers_read_it() {
    if is_skipped("every_field_is_shown_as_the_parsers_read_it") {
        return;
    }
    let mut packets = transcript();
    packets.extend(others());
    let seen = compare_all(&packets, &BY_PORT);
    let twice = compare_all(&packets, &[TWICE, BY_PORT[0], BY_PORT[1]]);
    assert_eq!(seen, twice, "fields after one pass over the capture, and after two");
    let all = names();
    let missing: Vec<_> = all.iter().filter(|name| !seen.contains(*name)).collect();
    assert_eq!(
        missing,
        ["erpc.checksum.bad", "erpc.cut"],
        "fields that no packet of this test has"
    );
}

#[test]
fn packets_of_any_length_are_shown_as_the_parsers_read_them() {
    if is_skipped("packets_of_any_length_are_shown_as_the_parsers_read_them") {
        return;
    }
    let mut packets = Vec::new();
    for Sent { flow, to_server, bytes } in transcript().into_iter().chain(others()) {
        for len in lengths(bytes.len()) {
            // Half of the packets get a checksum for their new length.
            let mut bytes = bytes[..len].to_vec();
            if len % 2 == 1 && len >= HEADER_LEN {
                seal(&mut bytes, 0);
            }
            packets.push(Sent { flow, to_server, bytes });
        }
    }
    compare_all(&packets, &BY_PORT);
}

#[test]
fn damaged_packets_are_shown_as_the_parsers_read_them() {
    if is_skipped("damaged_packets_are_shown_as_the_parsers_read_them") {
        return;
    }
    let mut random = Random::new(19);
    let mut packets = Vec::new();
    for Sent { flow, to_server, bytes } in transcript().into_iter().chain(others()) {
        for round in 0..40 {
            let mut bytes = bytes.clone();
            for _ in 0..=round % 3 {
                // Most fields are in the first 80 bytes. Small values are lengths that may be right.
                let at = random.below(bytes.len().min(80) as u64) as usize;
                bytes[at] = match random.below(3) {
                    0 => bytes[at] ^ 1 << random.below(8),
                    1 => random.word() as u8,
                    _ => random.below(32) as u8,
                };
            }
            if round % 4 > 0 {
                seal_again(&mut bytes);
            }
            packets.push(Sent { flow, to_server, bytes });
        }
    }
    compare_all(&packets, &BY_PORT);
}

#[test]
fn a_capture_with_parts_of_packets_shows_the_fields_that_it_has() {
    if is_skipped("a_capture_with_parts_of_packets_shows_the_fields_that_it_has") {
        return;
    }
    let mut capture = Capture::new();
    let mut wholes = Vec::new();
    for Sent { flow, to_server, bytes } in transcript().into_iter().chain(others()) {
        capture.add(flow, to_server, 0, &bytes, 0);
        let whole = capture.frames() - 1;
        wholes.push((whole, 0));
        // A capture that ends in the UDP header has no packet for the dissector.
        for kept in lengths(bytes.len()).filter(|kept| *kept > 0) {
            capture.add(flow, to_server, 0, &bytes, bytes.len() - kept);
            wholes.push((whole, kept));
        }
    }
    let rows = capture.show(&BY_PORT);
    for (row, (whole, kept)) in rows.iter().zip(wholes) {
        let whole = &rows[whole];
        if kept == 0 {
            assert!(!row.contains_key("erpc.cut"), "{row:?}");
            continue;
        }
        assert!(row.contains_key("erpc.cut"), "{kept} bytes: {row:?}");
        let is_noted = row.contains_key("erpc.malformed");
        assert!(!is_noted || whole.contains_key("erpc.malformed"), "{kept} bytes: {row:?}");
        assert_eq!(row.contains_key("erpc.kind"), kept >= HEADER_LEN, "{kept} bytes: {row:?}");
        for (name, values) in row.iter().filter(|(name, _)| name.starts_with("erpc.")) {
            // The zeros before a wrong byte may be padding, as far as the capture tells.
            let may_be_padding = name == "erpc.padding" && whole.contains_key("erpc.malformed");
            if NOTES.contains(&&**name) || may_be_padding {
                continue;
            }
            let all = whole.get(name).unwrap_or_else(|| panic!("{kept} bytes: {name}: {row:?}"));
            let is_beginning = values
                .iter()
                .zip(all)
                .all(|(part, all)| all.starts_with(part.trim_end_matches('\u{fffd}')));
            assert!(is_beginning && values.len() <= all.len(), "{name}: {values:?} of {all:?}");
        }
    }
}

#[test]
fn a_run_that_was_captured_as_one_datagram_is_shown_packet_by_packet() {
    if is_skipped("a_run_that_was_captured_as_one_datagram_is_shown_packet_by_packet") {
        return;
    }
    let (client, server) =
        (ConnectionId::new(0, false, 5, 0x1234_5678), ConnectionId::new(3, true, 7, 0xDEAD_BEEF));
    let mut runs: Vec<(bool, Vec<Vec<u8>>)> = Vec::new();
    for trailer in [false, true] {
        let craft = |connection, kind, packet, request, size: usize| Craft {
            trailer,
            packet,
            request,
            size: size as u32,
            aux: 0x0803_0010,
            ..Craft::new(connection, kind, &PARAMETERS)
        };
        let requests = [30, 30, 30, 12].into_iter().enumerate().map(|(at, len)| {
            craft(server, Kind::Request, 0, at as u32, len).bytes(&vec![0x41; len])
        });
        runs.push((true, requests.collect()));
        let parts = [1_200, 1_200, 1_200, 400].into_iter().enumerate().map(|(at, len)| {
            craft(server, Kind::Request, at as u32, 9, 4_000).bytes(&vec![0x41; len])
        });
        runs.push((true, parts.collect()));
        let parts = (3..9)
            .map(|at| craft(client, Kind::Response, at, 9, 0x1234_5678).bytes(&[0x42; 1_024]));
        runs.push((false, parts.collect()));
        let returns =
            (3..9).map(|at| craft(client, Kind::CreditReturn, 7, at, 0x1234_5670).bytes(&[]));
        runs.push((false, returns.collect()));
        let lists = [32, 32, 8].into_iter().map(|len| {
            let aux = 0;
            Craft { aux, ..craft(server, Kind::Done, 0, 0, 0) }.bytes(&vec![3; len])
        });
        runs.push((true, lists.collect()));
    }
    let pongs = (1..70)
        .map(|nonce| Control::Pong.emit(server, nonce, ReplyInfo::default()).as_bytes().to_vec());
    runs.push((true, pongs.collect()));
    compare_runs(&runs);
}

/// Lets tshark show runs, each captured as one datagram, and compares all of their packets. `runs`:
/// whether the run goes to the server, and its packets.
fn compare_runs(runs: &[(bool, Vec<Vec<u8>>)]) {
    let mut capture = Capture::new();
    for (at, (to_server, packets)) in runs.iter().enumerate() {
        capture.add(Flow(at as u16), *to_server, 0, &packets.concat(), 0);
    }
    for (at, ((to_server, packets), row)) in runs.iter().zip(capture.show(&BY_PORT)).enumerate() {
        let mut fields = Fields::new();
        let mut observer = Observer::default();
        for packet in packets {
            let expected = observer.expect(Flow(at as u16), *to_server, 0, packet);
            let expected = expected.expect("the packet is not empty");
            let body = expected.body.expect("a packet that a receiver accepts");
            for (name, values) in expected.header.into_iter().chain(body) {
                fields.entry(name).or_default().extend(values);
            }
        }
        assert_eq!(row, fields, "run {at}");
    }
}

#[test]
fn the_first_packet_of_a_long_batch_shows_its_part_of_the_items() {
    if is_skipped("the_first_packet_of_a_long_batch_shows_its_part_of_the_items") {
        return;
    }
    let mut body = Vec::new();
    put_extension(3, &[], &mut body);
    for word in [3_u32, 5, 2, 4, 0x6969_6969, 5_000] {
        body.put_u32_le(word);
    }
    body.resize(1_100, 7);
    let id = ConnectionId::new(0, true, 5, 0x1234_5678);
    let craft = Craft { size: 5_036, extended: true, ..Craft::new(id, Kind::Request, &PARAMETERS) };
    let mut capture = Capture::new();
    capture.add(Flow(0), true, 0, &craft.bytes(&body), 0);
    let row = &capture.show(&BY_PORT)[0];
    assert!(!row.contains_key("erpc.malformed"), "{row:?}");
    assert_eq!(row["erpc.stream"], ["3"]);
    assert_eq!(row["erpc.stream.seq"], ["5"]);
    assert_eq!(row["erpc.stream.count"], ["2"]);
    assert_eq!(row["erpc.stream.item.len"], ["4", "5000"]);
    assert_eq!(row["erpc.stream.item"], ["69696969".to_owned(), "07".repeat(1_068)]);
}

#[test]
fn the_heuristic_takes_the_packets_of_erpc_and_no_others() {
    if is_skipped("the_heuristic_takes_the_packets_of_erpc_and_no_others") {
        return;
    }
    let mut capture = Capture::new();
    let mut random = Random::new(3);
    // Random payloads: of any length, of the lengths of headers, and with the first bytes of
    // packets. Some flows have many packets with one connection id.
    for at in 0..12_000_u64 {
        let flow = Flow(1_000 + (at % 3_000) as u16);
        let len = match at % 3 {
            0 => random.below(1_400),
            1 => 24 + 4 * random.below(2),
            _ => 24 + random.below(60),
        };
        let mut bytes = vec![0; len as usize];
        fill(random.word(), &mut bytes);
        if at % 3_000 < 100 && len >= 8 {
            bytes[..8].fill(0x83);
        }
        let to_server = random.below(2) == 0;
        capture.add(flow, to_server, at, &bytes, 0);
    }
    let others = capture.frames();
    let transcript = transcript();
    for Sent { flow, to_server, bytes } in &transcript {
        capture.add(*flow, *to_server, 0, bytes, 0);
    }
    // A capture that begins after the handshakes, with parts of a long message.
    let part = |flow: Flow, packet: u32, index: u32, capture: &mut Capture| {
        let id = ConnectionId::new(0, true, index, 0x1234_5678);
        let (aux, size) = (2, 100_000);
        let craft = Craft { packet, aux, size, ..Craft::new(id, Kind::Request, &PARAMETERS) };
        capture.add(flow, true, 0, &craft.bytes(&[7; 1_200]), 1_000);
    };
    for packet in 0..10 {
        part(Flow(9), packet, 5, &mut capture);
    }
    // The same packets are no evidence if each has another id, or if others are among them.
    for packet in 0..10 {
        part(Flow(10), packet, packet, &mut capture);
        part(Flow(11), packet, 5, &mut capture);
        if packet % 3 == 2 {
            capture.add(Flow(11), true, 0, &[0; 30], 0);
        }
    }
    let rows = capture.show(&[]);
    let is_erpc = |row: &Fields| row.keys().any(|name| name.starts_with("erpc."));
    let taken = rows[..others].iter().filter(|row| is_erpc(row)).count();
    assert_eq!(taken, 0, "random payloads shown as erpc");
    let (known, rest) = rows[others..].split_at(transcript.len());
    let (later, unclear) = rest.split_at(10);
    for (at, (row, sent)) in known.iter().zip(&transcript).enumerate() {
        assert!(is_erpc(row), "packet {at} is not recognized: {:02x?}", sent.bytes);
        let header = Header::parse(&sent.bytes).expect("a packet of the transcript");
        assert_eq!(row["erpc.connection"], [header.connection.to_u64().to_string()]);
    }
    let taken: Vec<bool> = later.iter().map(is_erpc).collect();
    assert!(!unclear.iter().any(is_erpc), "packets that are no evidence");
    let twice = capture.show(&[TWICE]);
    assert_eq!(twice[..others], rows[..others], "random payloads, in two passes");
    let (all, unclear) = twice[others..].split_at(transcript.len() + 10);
    assert!(all.iter().all(is_erpc), "two passes show all packets of the conversation");
    assert!(!unclear.iter().any(is_erpc), "packets that are no evidence, in two passes");
    assert_eq!(taken, (0..10).map(|at| at >= 3).collect::<Vec<_>>(), "from the fourth packet on");
}

#[test]
fn random_payloads_cause_no_errors_of_the_dissector() {
    if is_skipped("random_payloads_cause_no_errors_of_the_dissector") {
        return;
    }
    let mut capture = Capture::new();
    let mut random = Random::new(4);
    for at in 0..8_000_u64 {
        let len = match at % 4 {
            0 => random.below(1_400),
            _ => 24 + random.below(100),
        };
        let mut bytes = vec![0; len as usize];
        fill(random.word(), &mut bytes);
        if len >= 24 && at % 4 > 0 {
            bytes[8] = bytes[8] & !0b11 | 1;
            if at % 4 > 1 {
                // A first packet, and small numbers in the fields.
                bytes[9..12].fill(0);
                bytes.iter_mut().skip(20).for_each(|byte| *byte &= 0x83);
            }
        }
        let cut = if at % 8 < 2 { random.below(len) as usize } else { 0 };
        capture.add(Flow((at % 4) as u16), random.below(2) == 0, at, &bytes, cut);
    }
    // `show` fails if there is an error.
    assert_eq!(capture.show(&BY_PORT).len(), 8_000);
}
