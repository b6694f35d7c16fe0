//! Extensions in front of messages.

use super::pair::{CLIENT, ECHO, Pair, SERVER, connected, deferring, header, kinds, ms, pattern};
use crate::protocol::{CallError, Cause, DropReason, NewCall, SessionId};
use crate::status::{Code, Status};
use crate::time::Instant;
use crate::wire::extension::{Extension, push_entry, put_extension};
use crate::wire::{HEADER_LEN, Kind};
use bytes::BufMut;

/// The message after an extension with one entry.
fn extended(message: &[u8]) -> Vec<u8> {
    let (mut entries, mut out) = (Vec::new(), Vec::new());
    push_entry(&mut entries, "trace", b"17").expect("room");
    put_extension(4, &entries, &mut out);
    out.extend_from_slice(message);
    out
}

fn call_extended(pair: &mut Pair, session: SessionId, bytes: &[u8]) {
    let mut request = pair.client.pool().alloc(bytes.len()).expect("memory");
    request.put_slice(bytes);
    let call = NewCall { extended: true, ..NewCall::new(ECHO, request, 1) };
    assert!(pair.client.call(pair.now, session, call, &mut pair.to_server).is_ok());
}

/// Answers the oldest waiting request with these bytes, as an extended message.
fn answer_extended(pair: &mut Pair, bytes: &[u8]) {
    let asked = pair.asked.pop_front().expect("a request waits");
    let mut response = pair.server.response_buffer(asked.buffer, bytes.len()).expect("memory");
    response.put_slice(bytes);
    pair.server.respond(pair.now, asked.handle, response, true, &mut pair.to_client);
}

#[test]
fn a_request_and_its_response_carry_extensions_in_all_their_packets() {
    for len in [0, 100, 5_000] {
        let (mut pair, session) = deferring();
        let message = extended(&pattern(1, len));
        call_extended(&mut pair, session, &message);
        assert!(pair.to_server.packets.iter().all(|(_, bytes)| header(bytes).flags.extended()));
        pair.settle();
        let asked = pair.asked.front().expect("a request waits");
        assert!(asked.extended);
        assert_eq!((asked.body.as_slice(), asked.deadline), (&message[..], Instant::NEVER));
        answer_extended(&mut pair, &message);
        assert!(pair.to_client.packets.iter().all(|(_, bytes)| header(bytes).flags.extended()));
        pair.settle();
        let outcome = pair.outcome();
        assert!(outcome.extended);
        let response = outcome.result.expect("the call succeeds");
        let (extension, rest) = Extension::split(&response).expect("an extension");
        assert_eq!((extension.op(), rest), (4, &pattern(1, len)[..]));
        assert_eq!(extension.entries().collect::<Vec<_>>(), [("trace", &b"17"[..])]);
    }
}

#[test]
fn messages_without_extensions_do_not_have_the_flag() {
    let (mut pair, session) = connected();
    pair.call(session, 1, &pattern(1, 5_000));
    assert!(pair.to_server.packets.iter().all(|(_, bytes)| !header(bytes).flags.extended()));
    pair.settle();
    assert!(!pair.outcome().extended);
}

#[test]
fn request_and_response_may_be_extended_independently() {
    let (mut pair, session) = deferring();
    call_extended(&mut pair, session, &extended(b"ask"));
    pair.settle();
    pair.answer(b"plain");
    pair.settle();
    assert!(!pair.outcome().extended);
    pair.call(session, 2, b"plain");
    pair.settle();
    answer_extended(&mut pair, &extended(b"answer"));
    pair.settle();
    assert!(pair.outcome().extended);
}

#[test]
fn an_invalid_extension_reaches_the_handler_unchanged() {
    let (mut pair, _) = deferring();
    for (number, body) in [(0, &b""[..]), (1, b"1234567"), (2, &[0xFF; 40])] {
        let packet = pair.request(number, 0, body).extended(true).bytes();
        pair.at_server(CLIENT, &packet);
        let asked = pair.asked.pop_front().expect("a request waits");
        assert!(asked.extended);
        assert_eq!((&asked.body[..], asked.deadline), (body, Instant::NEVER));
    }
}

#[test]
fn packets_of_one_message_must_agree_on_the_extended_flag() {
    let (mut pair, session) = connected();
    let message = pair.message(3);
    let first = pair.request(0, 0, &message).extended(true).bytes();
    pair.at_server(CLIENT, &first);
    let second = pair.request(0, 1, &message).bytes();
    pair.server_drops(CLIENT, &second, DropReason::LyingSize);

    pair.call(session, 1, b"ask");
    let first = pair.response(0, 0, &message).bytes();
    pair.at_client(SERVER, &first);
    let second = pair.response(0, 1, &message).extended(true).bytes();
    pair.client_drops(SERVER, &second, DropReason::LyingSize);
}

#[test]
fn packets_without_a_message_must_not_have_the_extended_flag() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"ask");
    for packet in [pair.pull(0, 1, 1), pair.done(&[0]), pair.cancelled(0)] {
        pair.server_drops(CLIENT, &packet.extended(true).bytes(), DropReason::Flags);
    }
    for packet in [pair.credit_return(0, 0), pair.accepted(0)] {
        pair.client_drops(SERVER, &packet.extended(true).bytes(), DropReason::Flags);
    }
}

#[test]
fn the_status_of_an_extended_failure_follows_the_extension() {
    let status = Status::new(Code::NotFound, "no such thing");
    let (mut pair, session) = connected();
    pair.call(session, 1, b"ask");
    let plain = pair.failure(0, &status).bytes();
    let body = extended(&plain[HEADER_LEN..]);
    let failure =
        pair.failure(0, &status).extended(true).size(body.len() as u32).body(&body).bytes();
    pair.at_client(SERVER, &failure);
    assert_eq!(pair.error(), CallError::Status(status.clone()));

    pair.call(session, 2, b"ask");
    let broken = pair.failure(8, &status).extended(true).bytes();
    pair.at_client(SERVER, &broken);
    let CallError::Status(status) = pair.error() else { panic!("not a status") };
    assert_eq!(status.code(), Code::Unknown, "a failure that cannot be decoded is still a failure");
}

#[test]
fn a_retransmitted_extended_request_is_executed_once() {
    let (mut pair, session) = deferring();
    call_extended(&mut pair, session, &extended(b"once"));
    pair.settle();
    pair.pass(ms(25));
    assert_eq!(
        kinds(&pair.to_server.packets.iter().map(|(_, b)| b.clone()).collect::<Vec<_>>()),
        [Kind::Request]
    );
    pair.settle();
    assert_eq!((pair.executed, pair.asked.len()), (1, 1));
    assert!(pair.cancel(session, 1));
    assert_eq!(pair.error(), CallError::MaybeExecuted(Cause::Cancelled));
}
