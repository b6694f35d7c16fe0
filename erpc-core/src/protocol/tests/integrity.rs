//! Checksums: which sessions have them, and that these sessions drop every damaged packet.

use std::collections::HashSet;

use proptest::prelude::*;

use super::craft::{PARAMETERS, emit, sealed};
use super::pair::{CLIENT, Pair, SERVER, Side, control, header, ms, pattern, shape};
use super::times;
use crate::protocol::{Cause, ConnectError, DropReason, EndpointConfig, Integrity, SessionId};
use crate::status::Code;
use crate::time::Instant;
use crate::transport::ChargeModel;
use crate::wire::checksum::{TRAILER_LEN, check};
use crate::wire::control::{Control, Parameters};
use crate::wire::{ConnectionId, HEADER_LEN, Kind};

fn always() -> EndpointConfig {
    EndpointConfig::new().integrity(Integrity::Always)
}

/// Two cores and a session with checksums.
fn connected() -> (Pair, SessionId) {
    Pair::connected(1_472, always())
}

/// The packets that the client's next timer sends.
fn next_from_client(pair: &mut Pair) -> Vec<Vec<u8>> {
    for _ in 0..100 {
        let next = pair.client.next_deadline();
        pair.pass(next - pair.now);
        if !pair.to_server.packets.is_empty() {
            return pair.take_to_server();
        }
    }
    panic!("no timer of the client sends a packet");
}

#[test]
fn a_session_has_checksums_if_either_side_requests_them() {
    let auto = Side::new(1_472);
    let sides =
        [(auto.clone(), false), (auto.clone().unprotected(), true), (auto.config(always()), true)];
    for (client, client_wants) in &sides {
        for (server, server_wants) in &sides {
            let (mut pair, session) = Pair::of(client.clone(), server.clone()).and_connected();
            let expected = *client_wants || *server_wants;
            let stats = pair.client.session_stats(session).expect("open");
            assert_eq!((pair.terms.integrity, stats.integrity), (expected, expected));
            let overhead = if expected { 28 } else { 24 };
            assert_eq!((stats.payload, pair.terms.max_datagram), (1_472 - overhead, 1_472));
            let message = pattern(1, 100_000);
            pair.call(session, 1, &message);
            pair.call(session, 2, b"small");
            loop {
                let (requests, replies) = (pair.take_to_server(), pair.take_to_client());
                if requests.is_empty() && replies.is_empty() {
                    break;
                }
                for packet in requests.iter().chain(&replies) {
                    assert_eq!(header(packet).flags.trailer(), expected, "{:?}", header(packet));
                    assert!(packet.len() <= 1_472);
                }
                pair.burst_at_server(CLIENT, &requests);
                pair.burst_at_client(SERVER, &replies);
            }
            assert_eq!(pair.outcomes[0].result, Ok(b"small".to_vec()));
            assert_eq!(pair.outcomes[1].result, Ok(message));
        }
    }
}

#[test]
fn a_client_rejects_a_session_without_the_checksums_it_requested() {
    for (wanted, given, opens) in
        [(true, true, true), (true, false, false), (false, true, true), (false, false, true)]
    {
        let config = if wanted { always() } else { EndpointConfig::new() };
        let mut pair = Pair::new(1_472, config);
        let session = pair.connect();
        let (client, open) = pair.challenged();
        let Some(Control::Open { parameters, .. }) = control(&open) else { panic!("no open") };
        assert_eq!(parameters.integrity, wanted);
        let server = ConnectionId::new(0, true, 0, 1);
        let parameters = Parameters { max_datagram: 1_472, integrity: given, ..PARAMETERS };
        let opened = emit(client, Control::Opened { server, parameters });
        pair.at_client(SERVER, &opened);
        let refused = Cause::Connect(ConnectError::Parameters);
        assert_eq!(pair.closed(session), (!opens).then_some(refused), "{wanted} {given}");
    }
}

#[test]
fn the_first_response_packet_leaves_room_for_the_trailer() {
    let opened = |eager, integrity| {
        let mut pair = Pair::new(1_472, EndpointConfig::new());
        let session = pair.connect();
        let hello = pair.take_to_server();
        pair.burst_at_server(CLIENT, &hello);
        let challenge = pair.take_to_client();
        pair.burst_at_client(SERVER, &challenge);
        let server = ConnectionId::new(0, true, 0, 1);
        let parameters = Parameters { max_datagram: 1_472, eager, integrity, ..PARAMETERS };
        let opened = emit(header(&challenge[0]).connection, Control::Opened { server, parameters });
        pair.at_client(SERVER, &opened);
        pair.closed(session).is_none()
    };
    assert!(opened(1_448, false) && opened(1_444, true) && !opened(1_445, true));
}

/// Bytes of a request and of a response whose datagrams have 576 and 1,598 bytes. A trailer adds 4
/// bytes, which raises the charge of these datagrams.
const CHEAP_REQUEST: usize = 552;
const CHEAP_EAGER: u32 = 1_574;

#[test]
fn the_window_counts_the_trailer() {
    for (config, packets) in [(EndpointConfig::new(), 8), (always(), 5)] {
        let client = Side::new(1_472).config(config);
        let server = Side::new(1_472).queue(ChargeModel::LinuxUdp, 16_384);
        let (mut pair, session) = Pair::of(client, server).and_connected();
        for token in 0..8 {
            pair.call(session, token, &pattern(token, CHEAP_REQUEST));
        }
        // The server grants 12,288 units.
        assert_eq!(pair.to_server.packets.len(), packets);
        assert!(pair.to_server.load(ChargeModel::LinuxUdp).1 <= 12_288);
        pair.settle();
        assert_eq!(pair.outcomes.len(), 8);
    }
}

#[test]
fn room_for_replies_counts_the_trailer() {
    for (config, calls) in [(EndpointConfig::new(), 4), (always(), 2)] {
        let client =
            Side::new(1_800).queue(ChargeModel::LinuxUdp, 10_000).config(config.eager(CHEAP_EAGER));
        let (mut pair, session) = Pair::of(client, Side::new(1_800)).and_connected();
        for token in 0..8 {
            pair.call(session, token, &pattern(token, CHEAP_EAGER as usize));
        }
        assert_eq!(pair.to_server.packets.len(), calls);
        let requests = pair.take_to_server();
        pair.burst_at_server(CLIENT, &requests);
        assert!(pair.to_client.load(ChargeModel::LinuxUdp).1 <= 10_000);
        pair.settle();
        assert_eq!(pair.outcomes.len(), 8);
    }
}

#[test]
fn a_retransmitted_packet_has_the_right_trailer() {
    // The harness checks the trailer of every packet that is sent.
    let (mut pair, session) = connected();
    pair.echo = false;
    let message = pair.message(3);
    pair.call(session, 1, &message);
    let lost = pair.take_to_server();
    let again = next_from_client(&mut pair);
    assert_eq!((again.len(), &again[0]), (1, &lost[0]));
    pair.burst_at_server(CLIENT, &again);
    pair.settle();
    pair.pass(ms(1));
    pair.answer(&message);
    let lost = pair.take_to_client();
    // Another client joins, so the window changes, and the header of the second copy differs.
    pair.open_stranger(1);
    pair.take_to_client();
    pair.burst_at_server(CLIENT, &[pair.request(0, 2, &message).bytes()]);
    let again = pair.take_to_client();
    assert_eq!(shape(&again), [(Kind::Response, 0)]);
    assert_ne!(again[0][16..20], lost[0][16..20], "the reply info has changed");
    assert_ne!(
        again[0].last_chunk::<TRAILER_LEN>(),
        lost[0].last_chunk(),
        "the trailer has changed"
    );
    pair.burst_at_client(SERVER, &again);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
}

/// A pair of cores with a valid packet in flight to one of them.
struct Case {
    name: &'static str,
    pair: Pair,
    to_server: bool,
    packet: Vec<u8>,
}

/// State that a packet could change.
type Trace = (Vec<u64>, usize, usize, u64, usize, usize, (Instant, Instant), [(usize, usize); 2]);

impl Case {
    fn new(name: &'static str, to_server: bool, pair: Pair, packet: Vec<u8>) -> Self {
        Self { name, pair, to_server, packet }
    }

    fn deliver(&mut self, packet: &[u8]) {
        if self.to_server {
            self.pair.at_server(CLIENT, packet);
        } else {
            self.pair.at_client(SERVER, packet);
        }
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        let core = if self.to_server { &self.pair.server } else { &self.pair.client };
        core.stats().dropped(reason)
    }

    fn trace(&self) -> Trace {
        let pair = &self.pair;
        let counts = [*pair.client.stats(), *pair.server.stats()].map(|stats| {
            [
                stats.rx_delivered,
                stats.retransmissions.packets() + stats.repeated_responses,
                stats.inquiries,
                stats.calls,
                stats.responses,
                stats.failures,
                stats.requests,
                stats.orphaned_responses,
                stats.refused,
            ]
        });
        (
            counts.concat(),
            pair.outcomes.len(),
            pair.asked.len(),
            pair.executed,
            pair.told.len(),
            pair.to_server.packets.len() + pair.to_client.packets.len(),
            (pair.client.next_deadline(), pair.server.next_deadline()),
            [pair.client.sessions(), pair.server.sessions()],
        )
    }

    /// Asserts that a damaged packet is dropped and counted, and changes nothing else. Returns the
    /// reason.
    fn assert_dropped(&mut self, packet: &[u8], what: &str) -> DropReason {
        let before = (self.trace(), DropReason::ALL.map(|reason| self.dropped(reason)));
        let sent = self.pair.to_client.packets.len();
        self.deliver(packet);
        let after = DropReason::ALL.map(|reason| self.dropped(reason));
        let counted = DropReason::ALL.into_iter().zip(after.iter().zip(before.1));
        let reasons: Vec<_> =
            counted.filter(|(_, (after, before))| *after > before).map(|(why, _)| why).collect();
        let [reason] = reasons[..] else {
            panic!("{}, {what}: dropped for {reasons:?}", self.name);
        };
        if reason == DropReason::Version && self.name == "Hello" {
            // A `Hello` that seems to be of another version is answered in that version, from the
            // packet alone.
            for (_, answer) in self.pair.to_client.packets.drain(sent..) {
                assert_eq!(answer[8] & 0b11, packet[8] & 0b11);
            }
        }
        assert_eq!(self.trace(), before.0, "{}, {what}: the state has changed", self.name);
        reason
    }

    /// Asserts that the undamaged packet is still accepted.
    fn assert_works(&mut self) {
        let before = self.trace();
        let packet = std::mem::take(&mut self.packet);
        self.deliver(&packet);
        let after = self.trace();
        assert_eq!(after.0[0] + after.0[9], before.0[0] + before.0[9] + 1, "{}", self.name);
    }
}

/// Runs a session's handshake up to packet number `step`, and returns that packet.
fn handshake(step: usize) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(1_472, always());
    pair.connect();
    let mut packet = pair.take_to_server().remove(0);
    for at in 0..step {
        if at % 2 == 0 {
            pair.at_server(CLIENT, &packet);
            packet = pair.take_to_client().remove(0);
        } else {
            pair.at_client(SERVER, &packet);
            packet = pair.take_to_server().remove(0);
        }
    }
    (pair, packet)
}

/// A pair whose client has just called with a request of `packets` packets, which the handler will
/// not answer.
fn executing(packets: usize) -> (Pair, SessionId) {
    let (mut pair, session) = connected();
    pair.echo = false;
    let message = pair.message(packets);
    pair.call(session, 1, &message);
    (pair, session)
}

/// A control message with the sender's id.
type Message = fn(ConnectionId) -> Control;

/// One packet of every kind that a server receives.
fn server_cases() -> Vec<Case> {
    let case = |name, pair, packet| Case::new(name, true, pair, packet);
    let mut cases = Vec::new();
    let (mut pair, session) = connected();
    pair.call(session, 1, b"a small request");
    let packet = pair.take_to_server().remove(0);
    cases.push(case("Request", pair, packet));
    let (mut pair, _) = executing(3);
    let mut packets = pair.take_to_server();
    pair.at_server(CLIENT, &packets[0]);
    cases.push(case("Request, later packet", pair, packets.swap_remove(1)));
    let (mut pair, _) = executing(1);
    pair.settle();
    let message = pair.message(4);
    pair.answer(&message);
    let first = pair.take_to_client();
    pair.burst_at_client(SERVER, &first);
    let packet = pair.take_to_server().remove(0);
    assert_eq!(header(&packet).kind, Kind::RequestForResponse);
    cases.push(case("RequestForResponse", pair, packet));
    let (mut pair, session) = connected();
    let message = pair.message(2);
    pair.call(session, 1, &message);
    pair.settle();
    let packet = next_from_client(&mut pair).remove(0);
    assert_eq!(header(&packet).kind, Kind::Done);
    cases.push(case("Done", pair, packet));
    for (name, step) in [("Hello", 0), ("Open", 2)] {
        let (pair, packet) = handshake(step);
        cases.push(case(name, pair, packet));
    }
    let to_session: [(&str, Message); 4] = [
        ("Ping", |client| Control::Ping { sender: client }),
        ("Pong", |_| Control::Pong),
        ("Close", |client| Control::Close { sender: client }),
        ("Reset", |client| Control::Reset { unknown: client }),
    ];
    for (name, message) in to_session {
        let (pair, _) = connected();
        let packet = emit(pair.server_id, message(pair.client_id));
        cases.push(case(name, pair, packet));
    }
    cases
}

/// One packet of every kind that a client receives.
fn client_cases() -> Vec<Case> {
    let case = |name, pair, packet| Case::new(name, false, pair, packet);
    let mut cases = Vec::new();
    for (name, size) in [("Response", 100), ("Response, first of several", 4_000)] {
        let (mut pair, _) = executing(1);
        let requests = pair.take_to_server();
        pair.burst_at_server(CLIENT, &requests);
        pair.answer(&pattern(3, size));
        let packet = pair.take_to_client().remove(0);
        cases.push(case(name, pair, packet));
    }
    let (mut pair, _) = executing(1);
    pair.settle();
    pair.answer(&pattern(3, 4_000));
    let first = pair.take_to_client();
    pair.burst_at_client(SERVER, &first);
    let pull = pair.take_to_server();
    pair.burst_at_server(CLIENT, &pull);
    let packet = pair.take_to_client().remove(0);
    cases.push(case("Response, later packet", pair, packet));
    let (mut pair, _) = executing(1);
    let requests = pair.take_to_server();
    pair.burst_at_server(CLIENT, &requests);
    pair.answer_failure(Code::NotFound, "no such key");
    let packet = pair.take_to_client().remove(0);
    cases.push(case("Failure", pair, packet));
    let (mut pair, _) = executing(3);
    let requests = pair.take_to_server();
    pair.at_server(CLIENT, &requests[0]);
    let packet = pair.take_to_client().remove(0);
    assert_eq!(header(&packet).kind, Kind::CreditReturn);
    cases.push(case("CreditReturn", pair, packet));
    let (mut pair, _) = executing(1);
    let requests = pair.take_to_server();
    pair.at_server(CLIENT, &requests[0]);
    pair.at_server(CLIENT, &requests[0]);
    let packet = pair.take_to_client().remove(0);
    assert_eq!(header(&packet).kind, Kind::Accepted);
    cases.push(case("Accepted", pair, packet));
    for (name, step) in [("Challenge", 1), ("Opened", 3)] {
        let (pair, packet) = handshake(step);
        cases.push(case(name, pair, packet));
    }
    let (mut pair, hello) = handshake(0);
    // The client's own endpoint does not listen.
    pair.at_client(CLIENT, &hello);
    let packet = pair.take_to_server().remove(0);
    cases.push(case("Refused", pair, packet));
    let to_session: [(&str, Message); 4] = [
        ("Ping", |server| Control::Ping { sender: server }),
        ("Pong", |_| Control::Pong),
        ("Close", |server| Control::Close { sender: server }),
        ("Reset", |server| Control::Reset { unknown: server }),
    ];
    for (name, message) in to_session {
        let (pair, _) = connected();
        let packet = emit(pair.client_id, message(pair.server_id));
        cases.push(case(name, pair, packet));
    }
    let (mut pair, session) = connected();
    pair.disconnect(session);
    let close = pair.take_to_server();
    pair.burst_at_server(CLIENT, &close);
    let packet = pair.take_to_client().remove(0);
    assert_eq!(control(&packet), Some(Control::Closed));
    cases.push(case("Closed", pair, packet));
    cases
}

fn cases() -> Vec<Case> {
    let mut cases = server_cases();
    cases.extend(client_cases());
    cases
}

#[test]
fn the_cases_cover_all_kinds_and_control_messages() {
    let kinds: HashSet<_> = cases()
        .iter()
        .map(|case| {
            let header = header(&case.packet);
            (header.kind, if header.kind == Kind::Control { header.packet.get() } else { 0 })
        })
        .collect();
    assert_eq!(kinds.len(), 7 + 10, "{kinds:?}");
}

#[test]
fn a_packet_with_any_bit_flipped_is_dropped() {
    for mut case in cases() {
        // Under Miri, only every seventh bit is flipped. This still covers each bit position of a
        // byte.
        for bit in (0..case.packet.len() * 8).step_by(if cfg!(miri) { 7 } else { 1 }) {
            let mut damaged = case.packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let reason = case.assert_dropped(&damaged, &format!("bit {bit}"));
            let expected: &[DropReason] = match bit {
                64 | 65 => &[DropReason::Version],
                // Bit 69 is the flag for the trailer. Without the flag, the packet lacks a required
                // trailer, or has the wrong length.
                69 => &[DropReason::Trailer, DropReason::LyingSize],
                _ => &[DropReason::Checksum],
            };
            assert!(expected.contains(&reason), "{}, bit {bit}: {reason:?}", case.name);
        }
        case.assert_works();
    }
}

#[test]
fn a_packet_of_any_other_length_is_dropped() {
    for mut case in cases() {
        for len in 0..case.packet.len() {
            let cut = case.packet[..len].to_vec();
            case.assert_dropped(&cut, &format!("cut to {len}"));
        }
        for more in 1..40 {
            for byte in [0, 0xFF] {
                let mut longer = case.packet.clone();
                longer.resize(longer.len() + more, byte);
                case.assert_dropped(&longer, &format!("with {more} more"));
            }
        }
        case.assert_works();
    }
}

#[test]
fn a_packet_without_its_trailer_is_dropped() {
    for mut case in cases() {
        let mut bare = case.packet[..case.packet.len() - TRAILER_LEN].to_vec();
        bare[8] &= !(1 << 5);
        assert_eq!(case.assert_dropped(&bare, "bare"), DropReason::Trailer, "{}", case.name);
        case.assert_works();
    }
}

#[test]
fn a_packet_with_a_trailer_is_dropped_on_a_session_without_trailers() {
    let (mut pair, session) = Pair::connected(1_472, EndpointConfig::new());
    pair.echo = false;
    let message = pair.message(3);
    pair.call(session, 1, &message);
    let requests = pair.take_to_server();
    for packet in [
        pair.request(0, 0, b"small"),
        pair.request(0, 0, &message),
        pair.pull(0, 1, 1),
        pair.done(&[0]),
    ] {
        pair.server_drops(CLIENT, &packet.trailer(true).bytes(), DropReason::Trailer);
    }
    for packet in [
        pair.response(0, 0, b"small"),
        pair.response(0, 0, &message),
        pair.credit_return(0, 1),
        pair.accepted(0),
    ] {
        pair.client_drops(SERVER, &packet.trailer(true).bytes(), DropReason::Trailer);
    }
    pair.burst_at_server(CLIENT, &requests);
    pair.settle();
    pair.answer(b"fine");
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(b"fine".to_vec()));
}

#[test]
fn a_header_that_announces_a_trailer_and_has_none_is_truncated() {
    let (mut pair, _) = connected();
    let packet = pair.request(0, 0, b"").bytes();
    for len in HEADER_LEN..HEADER_LEN + TRAILER_LEN {
        pair.server_drops(CLIENT, &packet[..len], DropReason::Truncated);
    }
}

#[test]
fn a_valid_trailer_does_not_replace_the_other_checks() {
    let (mut pair, _) = connected();
    let forged = pair.request(0, 0, b"x").to(ConnectionId::new(0, true, 0, 5)).bytes();
    pair.server_drops(CLIENT, &forged, DropReason::UnknownConnection);
    let lying = pair.request(0, 0, b"five!").size(4).bytes();
    assert!(check(&lying).is_ok());
    pair.server_drops(CLIENT, &lying, DropReason::LyingSize);
}

#[test]
fn a_damaged_packet_is_treated_as_lost() {
    let (mut pair, session) = connected();
    let message = pair.message(4);
    pair.call(session, 1, &message);
    let mut damages = 0;
    while pair.outcomes.is_empty() {
        // Every other packet is damaged.
        for to_server in [true, false] {
            let packets = if to_server { pair.take_to_server() } else { pair.take_to_client() };
            for mut packet in packets {
                damages += 1;
                if damages % 2 == 0 {
                    let at = damages * 7 % packet.len();
                    packet[at] ^= 0x10;
                }
                if to_server {
                    pair.at_server(CLIENT, &packet);
                } else {
                    pair.at_client(SERVER, &packet);
                }
            }
        }
        pair.pass(ms(1));
        assert!(damages < 1_000);
    }
    assert_eq!(pair.outcome().result, Ok(message));
    assert_eq!(pair.executed, 1);
    let dropped =
        |reason| pair.client.stats().dropped(reason) + pair.server.stats().dropped(reason);
    assert!(dropped(DropReason::Checksum) > 3);
}

/// Accidental damage.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Vec<prop::sample::Index>),
    Cut(prop::sample::Index),
    Extend(Vec<u8>),
    Overwrite(prop::sample::Index, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => prop::collection::vec(any::<prop::sample::Index>(), 1..4).prop_map(Damage::Flip),
        1 => any::<prop::sample::Index>().prop_map(Damage::Cut),
        1 => prop::collection::vec(any::<u8>(), 1..64).prop_map(Damage::Extend),
        1 => (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..5))
            .prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
    ]
}

impl Damage {
    fn inflict(&self, packet: &mut Vec<u8>) {
        match self {
            Self::Flip(bits) => {
                for bit in bits {
                    let bit = bit.index(packet.len() * 8);
                    packet[bit / 8] ^= 1 << (bit % 8);
                }
            }
            Self::Cut(at) => packet.truncate(at.index(packet.len())),
            Self::Extend(bytes) => packet.extend_from_slice(bytes),
            Self::Overwrite(at, bytes) => {
                let at = at.index(packet.len());
                let len = bytes.len().min(packet.len() - at);
                packet[at..at + len].copy_from_slice(&bytes[..len]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(300)))]

    /// Up to three flipped bits, another length, or a burst of up to four bytes: such a packet is
    /// never delivered.
    #[test]
    fn no_damaged_packet_is_delivered(
        which in any::<prop::sample::Index>(),
        damages in prop::collection::vec(damage(), 1..20),
    ) {
        let mut cases = cases();
        let at = which.index(cases.len());
        let mut case = cases.swap_remove(at);
        for damage in &damages {
            let mut packet = case.packet.clone();
            damage.inflict(&mut packet);
            if packet != case.packet {
                case.assert_dropped(&packet, &format!("{damage:?}"));
            }
        }
        case.assert_works();
    }

    /// Any bytes with a valid trailer and a known id: no core panics, and every packet is counted.
    #[test]
    fn no_body_with_a_valid_trailer_breaks_a_core(
        packets in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 16..80)), 1..40),
    ) {
        let (mut pair, _) = connected();
        for (to_server, mut bytes) in packets {
            let id = if to_server { pair.server_id } else { pair.client_id };
            bytes.splice(..8, id.to_u64().to_le_bytes());
            bytes[8] = bytes[8] & 0b0011_1100 | 1;
            let packet = if bytes[8] & 1 << 5 == 0 { bytes } else { sealed(&bytes) };
            if to_server {
                pair.at_server(CLIENT, &packet);
            } else {
                pair.at_client(SERVER, &packet);
            }
        }
        for stats in [*pair.client.stats(), *pair.server.stats()] {
            prop_assert_eq!(stats.rx_packets, stats.rx_delivered + stats.dropped_in_all());
        }
    }
}
