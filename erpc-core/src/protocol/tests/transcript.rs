//! A golden file of the wire format: all packets of several sessions, byte by byte.
//!
//! A change of the format shows in `transcript.txt`. To rewrite the file from two cores with fixed
//! random seeds, run
//! ```text
//! UPDATE_GOLDEN=1 cargo test -p erpc-core transcript
//! ```

use std::fmt::Write;

use bytes::BufMut;

use super::pair::{CLIENT, ECHO, Pair, SERVER, Side, ms, pattern};
use crate::protocol::{EndpointConfig, NewCall, SessionId};
use crate::status::{Code, Status};
use crate::wire::checksum;
use crate::wire::control::Control;
use crate::wire::extension::{Extension, push_entry, put_extension};
use crate::wire::{
    ANNOUNCEMENT, CANCEL, DRAINING, HEADER_LEN, Header, Kind, PacketLayout, ReplyInfo,
    decode_status, is_refusal,
};

const GOLDEN: &str = include_str!("transcript.txt");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocol/tests/transcript.txt");

/// Bytes of a packet per line of the file.
const LINE: usize = 48;

/// A session, and the text of its packets.
struct Scribe {
    pair: Pair,
    session: SessionId,
    text: String,
}

impl Scribe {
    /// Opens a session and writes its handshake.
    fn new(pair: Pair, text: String) -> Self {
        let mut pair = pair;
        pair.echo = false;
        let session = pair.connect();
        let mut scribe = Self { pair, session, text };
        for (words, answer) in [("Hello", "Challenge"), ("Open", "Opened")] {
            scribe.client_says(&[words]);
            scribe.server_says(&[answer]);
        }
        scribe
    }

    fn write(&mut self, who: &str, words: &str, packet: &[u8]) {
        writeln!(self.text, "\n{who}: {words}").expect("memory");
        for line in packet.chunks(LINE) {
            let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(self.text, "{hex}").expect("memory");
        }
    }

    /// Writes the packets that the client has sent, and delivers them to the server.
    fn client_says(&mut self, words: &[&str]) {
        let sent = self.pair.take_to_server();
        assert_eq!(sent.len(), words.len(), "packets for {words:?}");
        for (words, packet) in words.iter().zip(&sent) {
            self.write("client", words, packet);
        }
        self.pair.burst_at_server(CLIENT, &sent);
    }

    /// Writes the packets that the server has sent, and delivers them to the client.
    fn server_says(&mut self, words: &[&str]) {
        let sent = self.pair.take_to_client();
        assert_eq!(sent.len(), words.len(), "packets for {words:?}");
        for (words, packet) in words.iter().zip(&sent) {
            self.write("server", words, packet);
        }
        self.pair.burst_at_client(SERVER, &sent);
    }

    fn call(&mut self, body: &[u8]) {
        self.pair.call(self.session, 1, body);
    }

    /// A request and a response of one packet each, and a status.
    fn small_calls(&mut self) {
        self.call(b"hello");
        self.client_says(&["Request, one packet"]);
        self.pair.answer(b"world");
        self.server_says(&["Response, one packet"]);
        self.call(b"");
        self.client_says(&["Request, empty, which acknowledges the slot's last response"]);
        let asked = self.pair.asked.pop_front().expect("a request waits");
        let status = Status::new(Code::NotFound, "no such key").with_details(&[1, 2, 3]);
        let Pair { server, now, to_client, .. } = &mut self.pair;
        server.respond_status(*now, asked.handle, &status, to_client);
        self.server_says(&["Failure: code 5, a message, three bytes of details"]);
    }

    fn large_call(&mut self) {
        let message = pattern(1, self.pair.payload() + 3);
        self.call(&message);
        let sent = self.pair.take_to_server();
        self.write("client", "Request, packet 0 of 2", &sent[0]);
        self.pair.at_server(CLIENT, &sent[0]);
        self.server_says(&["CreditReturn: the next packet is 1"]);
        self.write("client", "Request, packet 1 of 2", &sent[1]);
        self.pair.at_server(CLIENT, &sent[1]);
        self.pair.answer(&message);
        self.server_says(&["Response, packet 0 of 2"]);
        self.client_says(&["RequestForResponse: one packet from 1 on"]);
        self.server_says(&["Response, packet 1 of 2"]);
        self.pair.pass(ms(25));
        self.client_says(&["Done: the response may be dropped"]);
    }

    fn gap(&mut self) {
        let message = pattern(2, 3 * self.pair.payload());
        self.call(&message);
        let sent = self.pair.take_to_server();
        self.pair.burst_at_server(CLIENT, &[&sent[0], &sent[2]]);
        self.server_says(&["CreditReturn: the next packet is 1, a later one was dropped"]);
        self.pair.settle();
        self.pair.answer(b"");
        self.pair.settle();
    }

    /// A call that takes longer than a timeout.
    fn slow_call(&mut self) {
        self.call(b"slow");
        self.pair.settle();
        self.pair.pass(ms(25));
        self.client_says(&["Request, once more"]);
        self.server_says(&["Accepted: it is executing"]);
        self.pair.answer(b"at last");
        self.server_says(&["Response, announced: 7 bytes"]);
        self.client_says(&["RequestForResponse: one packet from 0 on"]);
        self.server_says(&["Response, one packet, pulled"]);
    }

    fn extended_call(&mut self) {
        let mut entries = Vec::new();
        push_entry(&mut entries, "trace-id", &[0x17; 4]).expect("room");
        let mut request = self.pair.client.pool().alloc(100).expect("memory");
        put_extension(0, &entries, &mut request);
        request.put_slice(b"hello");
        let deadline = self.pair.now + ms(50);
        let call = NewCall { method: ECHO, request, token: 2, extended: true, deadline };
        let Pair { client, now, to_server, .. } = &mut self.pair;
        client.call(*now, self.session, call, to_server).expect("accepted");
        self.client_says(&["Request, extended: 50,000 us left, one entry"]);
        let asked = self.pair.asked.pop_front().expect("a request waits");
        let Pair { server, now, to_client, .. } = &mut self.pair;
        let mut response = server.response_buffer(asked.buffer, 100).expect("memory");
        put_extension(1, &entries, &mut response);
        response.put_slice(b"world");
        server.respond(*now, asked.handle, response, true, to_client);
        self.server_says(&["Response, extended: op 1, one entry"]);
    }

    fn cancelled_call(&mut self) {
        self.call(b"never mind");
        assert_eq!(self.pair.take_to_server().len(), 1, "the request is lost");
        assert!(self.pair.cancel(self.session, 1));
        self.client_says(&["Done, of the form Cancel: the call was cancelled"]);
        self.server_says(&["Failure: code 1, the request was dropped"]);
    }

    fn good_byes(mut self) -> String {
        self.pair.pass(ms(3_800));
        self.client_says(&["Ping"]);
        self.server_says(&["Pong"]);
        self.pair.disconnect(self.session);
        self.client_says(&["Close"]);
        self.server_says(&["Closed"]);
        self.text
    }

    /// The server shuts down while a request is on its way.
    fn drain(mut self) -> String {
        self.call(b"hello");
        let Pair { server, now, to_client, .. } = &mut self.pair;
        server.drain(*now, to_client);
        self.client_says(&["Request, which was on its way"]);
        self.server_says(&["GoAway", "Failure: code 17, a refusal"]);
        self.client_says(&["Pong"]);
        self.text
    }

    /// The server restarts and does not know the session.
    fn restart(mut self) -> String {
        self.pair.restart_server(7);
        self.pair.pass(ms(3_800));
        self.client_says(&["Ping, to a server that has restarted"]);
        self.server_says(&["Reset"]);
        self.text
    }
}

fn transcript() -> String {
    let text =
        "Packets of a client and a server, written by erpc-core/src/protocol/tests/transcript.rs\n";
    let config = EndpointConfig::new;
    let mut scribe = Scribe::new(Pair::new(1_200, config()), text.into());
    scribe.small_calls();
    scribe.large_call();
    scribe.gap();
    scribe.slow_call();
    scribe.extended_call();
    scribe.cancelled_call();
    let text = scribe.good_byes();

    let sealed = Pair::of(Side::new(1_200).unprotected(), Side::new(1_200));
    let mut scribe = Scribe::new(sealed, text + "\nThe same with trailers.\n");
    scribe.small_calls();
    scribe.slow_call();
    scribe.extended_call();
    scribe.cancelled_call();
    let text = scribe.restart();

    let full = Pair::of(Side::new(1_200), Side::new(1_200).config(config().max_sessions(1)));
    let mut scribe = Scribe::new(full, text + "\nA server with room for one session.\n");
    scribe.pair.connect();
    for words in [["Hello", "Challenge"], ["Open", "Refused: reason 2"]] {
        scribe.client_says(&words[..1]);
        scribe.server_says(&words[1..]);
    }
    let text = scribe.text + "\nA server that shuts down.\n";
    Scribe::new(Pair::new(1_200, config()), text).drain()
}

#[test]
fn the_packets_are_those_of_the_golden_file() {
    let text = transcript();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(PATH, &text).expect("a writable file");
    }
    for (at, (said, written)) in text.lines().zip(GOLDEN.lines()).enumerate() {
        assert_eq!(said, written, "line {}", at + 1);
    }
    assert_eq!(text.len(), GOLDEN.len(), "the transcripts have different lengths");
}

/// The packets in the file, each with its description.
fn written() -> Vec<(&'static str, Vec<u8>)> {
    let blocks = GOLDEN.split("\n\n").filter_map(|block| block.trim().split_once('\n'));
    let bytes = |hex: &str| {
        let digits: Vec<char> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
        digits.chunks(2).map(|pair| byte(pair).expect("hexadecimal")).collect()
    };
    blocks.map(|(words, hex)| (words, bytes(hex))).collect()
}

#[test]
fn the_parser_reads_the_golden_file() {
    let (mut kinds, mut forms) = (Vec::new(), Vec::new());
    // Size of the last response whose first packet was read, because later packets do not carry the
    // size.
    let mut response_size = 0;
    for (words, packet) in written() {
        let header = Header::parse(&packet).unwrap_or_else(|error| panic!("{words}: {error:?}"));
        assert_eq!(header.to_bytes()[..], packet[..HEADER_LEN], "{words}");
        let rest = match header.flags.trailer() {
            true => checksum::check(&packet).unwrap_or_else(|error| panic!("{words}: {error:?}")),
            false => &packet[..],
        };
        let body = &rest[HEADER_LEN..];
        let (_, words) = words.split_once(": ").expect("a sender and a description");
        match header.kind {
            Kind::Control => {
                let message = Control::parse(&header, body).expect(words);
                let name = format!("{message:?}");
                let name = name.split([' ', '{']).next().unwrap_or_default();
                assert!(words.starts_with(name), "{words}: {message:?}");
                let info = ReplyInfo::from_u32(header.aux);
                let nonce = header.request.to_u32();
                let again = message.emit(header.connection, nonce, info);
                assert_eq!(again.as_bytes(), packet, "{words}");
                forms.push(header.packet.get());
            }
            Kind::Request | Kind::Response | Kind::Failure => {
                let payload = if header.flags.trailer() { 1_172 } else { 1_176 };
                let later = header.kind == Kind::Response
                    && !matches!(header.packet.get(), 0 | ANNOUNCEMENT);
                let size = if later { response_size } else { header.size };
                response_size = size;
                let layout = PacketLayout::new(size, payload, payload);
                let announced = header.packet.get() == ANNOUNCEMENT;
                let len = if announced { 0 } else { layout.len(header.packet.get()) };
                assert_eq!(body.len(), len, "{words}");
                if header.flags.extended() {
                    let (extension, message) = Extension::split(body).expect(words);
                    assert_eq!(
                        extension.entries().collect::<Vec<_>>(),
                        [("trace-id", &[0x17; 4][..])]
                    );
                    assert!(matches!(message, b"hello" | b"world"), "{words}");
                    let request = header.kind == Kind::Request;
                    assert_eq!(extension.deadline(), if request { 50_000 } else { 0 }, "{words}");
                }
                if header.kind == Kind::Failure {
                    let refused = is_refusal(body).then_some(DRAINING);
                    let code = refused.unwrap_or_else(|| decode_status(body).code() as u32);
                    assert!(words.contains(&format!("code {code}")), "{words}: {code}");
                }
                assert_eq!(announced, words.contains("announced"), "{words}");
            }
            Kind::CreditReturn | Kind::RequestForResponse | Kind::Accepted => {
                assert!(body.is_empty(), "{words}");
            }
            Kind::Done if header.packet.get() == CANCEL => assert!(body.is_empty(), "{words}"),
            Kind::Done => assert_eq!(body.len(), 4, "{words}"),
        }
        let extended = format!("{:?}", header.kind);
        assert!(words.starts_with(&extended) || header.kind == Kind::Control, "{words}");
        kinds.push(header.kind as u8);
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (0..8).collect::<Vec<_>>(), "every kind of packet");
    forms.sort_unstable();
    forms.dedup();
    let expected: Vec<u32> = (1..=10).chain([16]).collect();
    assert_eq!(forms, expected, "the control messages");
}
