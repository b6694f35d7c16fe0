//! Packets that padding follows, runs of them, and bundles.

use bytes::BufMut;
use erpc_core::wire::extension::put_extension;
use erpc_core::wire::{ConnectionId, HEADER_LEN, Kind, encode_status};
use erpc_sim::hostile::craft::{Craft, PARAMETERS, seal};
use erpc_test_tools::data::fill;
use erpc_test_tools::random::Random;

use crate::capture::{BY_PORT, Capture, Fields, Flow};
use crate::{Sent, compare_all, compare_runs, is_skipped};

/// Most bytes of padding.
const MOST: usize = 800;

fn padded(packet: &[u8], zeros: usize) -> Vec<u8> {
    [packet, &vec![0; zeros]].concat()
}

/// The packets with padding that makes all of them except the last as long as the longest.
fn padded_run(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let longest = packets.iter().map(Vec::len).max().expect("a packet");
    let (_, padded) = packets.split_last_mut().expect("a packet");
    padded.iter_mut().for_each(|packet| packet.resize(longest, 0));
    packets
}

/// A packet that is the whole message `body`.
fn whole(connection: ConnectionId, kind: Kind, request: u32, body: &[u8]) -> Vec<u8> {
    let size = body.len() as u32;
    let craft = Craft::new(connection, kind, &PARAMETERS);
    Craft { request, size, aux: 0x0808_0010, ..craft }.bytes(body)
}

/// Packets with padding, correct or not.
pub(crate) fn packets(
    to_server: ConnectionId,
    to_client: ConnectionId,
) -> Vec<(ConnectionId, Vec<u8>)> {
    let mut status = Vec::new();
    let failure = erpc::Status::new(erpc::Code::NotFound, "no such key").with_details(&[1, 0]);
    encode_status(&failure, &mut status);
    let mut packets = Vec::new();
    for (connection, kind, message) in [
        (to_server, Kind::Request, &b"ends with a zero\0"[..]),
        (to_client, Kind::Response, b"hello"),
        (to_client, Kind::Response, b""),
        (to_client, Kind::Failure, &status),
    ] {
        for (extended, large) in [(false, false), (true, true)] {
            let mut body = Vec::new();
            if extended {
                put_extension(0, &[], &mut body);
            }
            body.extend_from_slice(message);
            let craft = Craft {
                size: body.len() as u32,
                aux: 0x0803_0010,
                extended,
                large,
                ..Craft::new(connection, kind, &PARAMETERS)
            };
            let packet = craft.bytes(&body);
            let mut add = |packet| packets.push((connection, packet));
            // The last one has padding that is too long.
            for zeros in [1, 264, MOST, MOST + 1] {
                add(padded(&packet, zeros));
            }
            for place in [0, MOST - 1] {
                let mut padded = padded(&packet, MOST);
                padded[packet.len() + place] = 1;
                add(padded);
            }
            // A packet with a trailer has no padding before it, and later packets of a message have
            // none.
            add(Craft { trailer: true, ..craft }.bytes(&padded(&body, 40)));
            let later = Craft { packet: 1, size: 1_024 + body.len() as u32, ..craft };
            if kind == Kind::Request {
                add(padded(&later.bytes(&body), 40));
            }
        }
    }
    packets
}

/// Padded runs, and whether they go to the server.
fn runs() -> Vec<(bool, Vec<Vec<u8>>)> {
    let mut runs = Vec::new();
    let lengths = [
        &[10, 200, 50, 30][..],
        &[200, 10, 60, 40],
        &[200, 10, 60, 200],
        &[10, 20, 30, 200],
        &[0, 100],
        &[0, 100, 0, 7],
        &[0, 0, 1, 0],
        &[100, 0, 0],
        &[2_000, 2_800, 2_100],
        &[2_800, 2_000, 2_100],
        &[2_000, 2_400, 2_800],
    ];
    // Ids that begin with up to 7 zeros, and ids whose bytes look like fields of a header that is
    // read some bytes too early.
    let ids = [
        ConnectionId::new(0, false, 5, 0x1234_5678),
        ConnectionId::new(0, false, 0, 0x1234_5678),
        ConnectionId::new(0, false, 0, 0x0100_0000),
        ConnectionId::new(0, false, 0, 0x0500_0001),
        ConnectionId::new(0, false, 0x05_0000, 0x0900_0000),
        ConnectionId::new(1, false, 0, 0x0505_0505),
        ConnectionId::new(3, true, 7, 0xDEAD_BEEF),
        ConnectionId::new(0, true, 0, 0x0100_0000),
    ];
    let kinds = |id: ConnectionId| match id.is_server_role() {
        true => [Kind::Request; 2],
        false => [Kind::Response, Kind::Failure],
    };
    // A body that begins with its length, and is a status with a message.
    let body = |len: usize, byte: u8| {
        let mut body = vec![byte; len];
        if len >= 8 {
            (&mut body[..4]).put_u32_le(5);
            (&mut body[4..8]).put_u32_le(len as u32 - 8);
        }
        body
    };
    for id in ids {
        for lengths in lengths {
            for kind in kinds(id) {
                // An empty failure is malformed.
                let len = |len: &usize| if kind == Kind::Failure { 8 + len } else { *len };
                let packets = (0..).zip(lengths);
                let packets =
                    packets.map(|(at, l)| whole(id, kind, 1 + 4 * at, &body(len(l), b'A')));
                runs.push((id.is_server_role(), padded_run(packets.collect())));
            }
        }
    }
    // Read 4 bytes too late, the second message looks like one, too: the request number is version and
    // kind, and the body begins with the number of bytes that follow.
    let late = ConnectionId::new(0, false, 0, 0x1234_5678);
    let packets = [40_u8, 90].map(|len| {
        let body = [&[len, 0, 0, 0], &vec![b'A'; len.into()][..]].concat();
        whole(late, Kind::Response, 5, &body)
    });
    runs.push((false, padded_run(packets.into())));
    // All short paddings, of messages that end with zeros.
    for id in ids {
        let kind = kinds(id)[0];
        for zeros in 1..30 {
            let packets = [40, 40 + zeros, 41].map(|len| whole(id, kind, 9, &body(len, 0)));
            runs.push((id.is_server_role(), padded_run(packets.into())));
        }
    }
    // Random messages of several sessions, with and without an extension.
    let mut random = Random::new(23);
    for _ in 0..100 {
        let mut packets = Vec::new();
        for _ in 0..2 + random.below(20) {
            let server = random.below(2) == 0;
            let (index, generation) = (random.below(3) as u32, random.word() as u32 | 1);
            let id = ConnectionId::new(random.below(2) as u8, server, index, generation);
            let extended = random.below(2) == 0;
            let (mut bytes, mut message) = (Vec::new(), vec![0; random.below(250) as usize]);
            fill(random.word(), &mut message);
            if extended {
                put_extension(0, &[], &mut bytes);
            }
            bytes.extend_from_slice(&message);
            let craft = Craft {
                request: random.below(300) as u32,
                size: bytes.len() as u32,
                aux: random.word() as u32,
                extended,
                ..Craft::new(id, kinds(id)[0], &PARAMETERS)
            };
            packets.push(craft.bytes(&bytes));
        }
        runs.push((true, padded_run(packets)));
    }
    runs
}

#[test]
fn zeros_behind_a_trailer_are_no_padding() {
    if is_skipped("zeros_behind_a_trailer_are_no_padding") {
        return;
    }
    let (flow, to_server, id) = (Flow(0), false, ConnectionId::new(0, false, 5, 0x1234_5678));
    let mut packets = Vec::new();
    for len in [0, 5] {
        let craft = Craft { trailer: true, ..Craft::new(id, Kind::Response, &PARAMETERS) };
        let packet = Craft { size: len as u32, ..craft }.bytes(&vec![7; len]);
        for zeros in [1, 40, MOST] {
            let bytes = padded(&packet, zeros);
            let mut sealed = bytes.clone();
            seal(&mut sealed, 0);
            packets.extend([bytes, sealed].map(|bytes| Sent { flow, to_server, bytes }));
        }
    }
    let seen = compare_all(&packets, &BY_PORT);
    assert!(!seen.contains("erpc.padding"));
}

#[test]
fn padded_runs_are_shown_packet_by_packet() {
    if is_skipped("padded_runs_are_shown_packet_by_packet") {
        return;
    }
    let runs = runs();
    let padded = runs.iter().filter(|(_, run)| run[0].ends_with(&[0; 8]));
    assert!(padded.count() > 200, "runs whose first packet is padded");
    compare_runs(&runs);
}

#[test]
fn bundles_are_shown_packet_by_packet() {
    if is_skipped("bundles_are_shown_packet_by_packet") {
        return;
    }
    let id = ConnectionId::new(3, true, 7, 0xDEAD_BEEF);
    let mut random = Random::new(31);
    let mut bundles = Vec::new();
    for count in 2..43 {
        // At most 1,052 bytes in all.
        let longest = (1_052 / count - 24).min(90);
        let mut packets: Vec<_> = (0..count)
            .map(|at| (at, random.below((longest / 8 * 8 + 1).into()) as usize))
            .map(|(at, len)| whole(id, Kind::Request, at, &vec![7; len]))
            .collect();
        // What aligns the next packet is shown as padding.
        let (_, others) = packets.split_last_mut().expect("a packet");
        others.iter_mut().for_each(|packet| packet.resize(packet.len().next_multiple_of(8), 0));
        bundles.push((true, packets));
    }
    compare_runs(&bundles);
}

#[test]
fn runs_of_bundles_are_shown_packet_by_packet() {
    if is_skipped("runs_of_bundles_are_shown_packet_by_packet") {
        return;
    }
    let id = ConnectionId::new(3, true, 7, 0xDEAD_BEEF);
    let mut random = Random::new(37);
    let mut runs = Vec::new();
    for round in 0..60 {
        let mut bundles = Vec::new();
        for _ in 0..2 + random.below(5) {
            let (mut packets, mut len) = (Vec::new(), 0_usize);
            // Every second run has messages of one length, and so bundles of one length.
            let mut next =
                || if round % 2 == 0 { 30 + round as usize } else { random.below(200) as usize };
            while len < 800 {
                let body = vec![7; next()];
                let packet = whole(id, Kind::Request, packets.len() as u32, &body);
                len = len.next_multiple_of(8) + packet.len();
                packets.push(packet);
            }
            let (_, others) = packets.split_last_mut().expect("a packet");
            others.iter_mut().for_each(|packet| packet.resize(packet.len().next_multiple_of(8), 0));
            bundles.push(packets);
        }
        let len = |packets: &Vec<Vec<u8>>| packets.iter().map(Vec::len).sum::<usize>();
        let longest = bundles.iter().map(len).max().expect("a bundle");
        let (_, padded) = bundles.split_last_mut().expect("a bundle");
        for packets in padded {
            let zeros = longest - len(packets);
            let last = packets.last_mut().expect("a packet");
            last.resize(last.len() + zeros, 0);
        }
        runs.push((true, bundles.concat()));
    }
    compare_runs(&runs);
}

#[test]
fn a_capture_with_a_part_of_a_bundle_does_not_call_it_malformed() {
    if is_skipped("a_capture_with_a_part_of_a_bundle_does_not_call_it_malformed") {
        return;
    }
    let id = ConnectionId::new(3, true, 7, 0xDEAD_BEEF);
    let packets = [30, 0, 100].map(|len| whole(id, Kind::Request, 9, &vec![7; len]));
    let bundle =
        packets.map(|packet| padded(&packet, packet.len().next_multiple_of(8) - packet.len()));
    let bundle = bundle.concat();
    let mut capture = Capture::new();
    for kept in HEADER_LEN..bundle.len() {
        capture.add(Flow(0), true, 0, &bundle, bundle.len() - kept);
    }
    for (at, row) in capture.show(&BY_PORT).iter().enumerate() {
        assert!(!row.contains_key("erpc.malformed"), "capture {at}: {row:?}");
        assert!(row.contains_key("erpc.cut"), "capture {at}: {row:?}");
        assert_eq!(row["erpc.connection"][0], id.to_u64().to_string());
    }
}

#[test]
fn a_padded_run_with_padding_that_is_not_zero_is_malformed() {
    if is_skipped("a_padded_run_with_padding_that_is_not_zero_is_malformed") {
        return;
    }
    let id = ConnectionId::new(0, false, 5, 0x1234_5678);
    let mut capture = Capture::new();
    for bad in 0..3 {
        let packets = [30, 100, 60, 100, 50].map(|len| whole(id, Kind::Response, 9, &vec![7; len]));
        let mut packets = padded_run(packets.into());
        packets[bad][HEADER_LEN + 99] ^= 1;
        capture.add(Flow(0), false, 0, &packets.concat(), 0);
    }
    let rows = capture.show(&BY_PORT);
    let is_malformed = |row: &Fields| row.contains_key("erpc.malformed");
    // The second message has 100 bytes and no padding, so the change is one of its content.
    assert_eq!(rows.iter().map(is_malformed).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn a_capture_with_a_part_of_a_padded_run_does_not_call_it_malformed() {
    if is_skipped("a_capture_with_a_part_of_a_padded_run_does_not_call_it_malformed") {
        return;
    }
    let id = ConnectionId::new(0, false, 0, 0x1234_5600);
    let mut capture = Capture::new();
    for lengths in [[30, 100, 60, 50], [100, 30, 60, 50], [500, 1_200, 600, 100]] {
        let packets = lengths.map(|len| whole(id, Kind::Response, 9, &vec![7; len]));
        let run = padded_run(packets.into()).concat();
        for kept in HEADER_LEN..run.len() {
            capture.add(Flow(0), false, 0, &run, run.len() - kept);
        }
    }
    // Zeros that are too many for the front of a header are padding.
    let packet = padded(&whole(id, Kind::Response, 9, &[7; 30]), 100);
    let runs = capture.frames();
    for zeros in 9..100 {
        capture.add(Flow(0), false, 0, &packet, 100 - zeros);
    }
    let rows = capture.show(&BY_PORT);
    for (zeros, row) in (9..).zip(&rows[runs..]) {
        assert_eq!(row["erpc.padding"], ["00".repeat(zeros)]);
    }
    for (at, row) in rows.iter().enumerate() {
        assert!(!row.contains_key("erpc.malformed"), "capture {at}: {row:?}");
        assert!(row.contains_key("erpc.cut"), "capture {at}: {row:?}");
        assert_eq!(row["erpc.connection"][0], id.to_u64().to_string());
    }
}

#[test]
fn the_heuristic_takes_padded_messages_but_not_zeros_behind_a_few_bytes() {
    if is_skipped("the_heuristic_takes_padded_messages_but_not_zeros_behind_a_few_bytes") {
        return;
    }
    let id = ConnectionId::new(3, true, 7, 0xDEAD_BEEF);
    let packet = |len: usize| whole(id, Kind::Request, 9, &vec![7; len]);
    let mut capture = Capture::new();
    let mut add_part = |bytes: &[u8], cut| {
        let flow = Flow(capture.frames() as u16);
        capture.add(flow, true, 0, bytes, cut);
    };
    // Padding that is not all in the capture is no evidence.
    add_part(&padded(&packet(1), 264), 100);
    let mut add = |bytes: &[u8]| add_part(bytes, 0);
    for zeros in [1, 264, MOST] {
        add(&padded(&packet(1), zeros));
    }
    add(&padded_run([30, 100, 60].map(packet).into()).concat());
    let mut not_zero = padded(&packet(1), 264);
    not_zero[100] = 1;
    for bytes in [padded(&packet(0), 264), padded(&packet(1), MOST + 1), not_zero] {
        add(&bytes);
    }
    // Random headers before zeros.
    let mut random = Random::new(29);
    for at in 0..6_000 {
        let mut bytes = vec![0; 1_200];
        fill(random.word(), &mut bytes[..HEADER_LEN]);
        // Most have a first packet, a third of them a small size.
        bytes[8] = if at % 4 > 0 { bytes[8] & 0b1101_1100 | 1 } else { bytes[8] };
        if at % 3 == 0 {
            bytes[HEADER_LEN - 2..].fill(0);
        }
        bytes.truncate(HEADER_LEN + random.below(1_100) as usize);
        add(&bytes);
    }
    let rows = capture.show(&[]);
    let is_erpc = |row: &Fields| row.keys().any(|name| name.starts_with("erpc."));
    let taken: Vec<_> = (0..rows.len()).filter(|at| is_erpc(&rows[*at])).collect();
    assert_eq!(taken, [1, 2, 3, 4]);
}
