//! Tests against hostile peers, which break the protocol.

use bytes::BufMut;
use proptest::prelude::*;

use crate::buf::{MsgBuf, Pool};
use crate::protocol::{CallError, Cause};
use crate::status::{Code, Status};
use crate::stream::{
    Batch, ClientNext, MAX_HELD, MAX_UNREAD, ServerNext, StreamAnswer, StreamClient, StreamOp,
    StreamRequest, StreamServer,
};
use crate::wire::extension::{Extension, put_extension};

/// A call or a reply with `items` items of one byte each.
fn message(op: u8, stream: u32, seq: u32, items: u32) -> MsgBuf {
    let mut message = MsgBuf::detached(1_000).unwrap();
    put_extension(op, &[], &mut message);
    message.put_u32_le(stream);
    message.put_u32_le(seq);
    message.put_u32_le(items);
    for _ in 0..items {
        message.put_slice(&[1, 0, 0, 0, b'x']);
    }
    message
}

/// A reply that ends the stream with status OK.
fn end(stream: u32, seq: u32) -> MsgBuf {
    let mut message = message(0x81, stream, seq, 0);
    message.put_slice(&[0; 8]);
    message
}

fn request(
    server: &mut StreamServer<u32>,
    call: u32,
    message: MsgBuf,
) -> Option<crate::stream::Effect> {
    let (extension, frame) = Extension::split(message.as_slice()).unwrap();
    let request = StreamRequest::parse(extension.op(), frame).ok()?;
    let offset = message.len() - frame.len();
    let batch = Batch::new(message, offset, request.items);
    Some(server.request(call, request, (request.items.count > 0).then_some(batch)))
}

/// Takes all answers. Returns the call of each answer, with the failure's code or 0 for a reply.
fn answers(server: &mut StreamServer<u32>) -> Vec<(u32, u32)> {
    let mut pool = Pool::new(1 << 20);
    let mut answers = Vec::new();
    while let Some((call, answer)) = server.poll_answer(&mut pool) {
        let code = match answer {
            StreamAnswer::Reply(_) => 0,
            StreamAnswer::Failed(status) => status.code() as u32,
        };
        answers.push((call, code));
    }
    answers
}

fn ask(server: &mut StreamServer<u32>, call: u32, ask: StreamOp, stream: u32, seq: u32) {
    let _ = request(server, call, message(ask.op(false), stream, seq, 0));
}

const INVALID: u32 = Code::InvalidArgument as u32;

#[test]
fn a_server_refuses_impossible_batches_and_continues() {
    let mut server = StreamServer::new(1 << 20);
    ask(&mut server, 0, StreamOp::Open, 1, 0);
    ask(&mut server, 1, StreamOp::Push, 1, 0);
    ask(&mut server, 2, StreamOp::Push, 1, 9);
    ask(&mut server, 3, StreamOp::Push, 1, u32::MAX);
    assert_eq!(answers(&mut server), [(1, INVALID), (2, INVALID), (3, INVALID)]);
    ask(&mut server, 4, StreamOp::Open, 1, 0);
    assert_eq!(answers(&mut server), [(4, INVALID)], "the stream is open already");
    ask(&mut server, 5, StreamOp::Pull, 0, 0);
    assert_eq!(answers(&mut server), [(5, 0)], "an older stream");
    ask(&mut server, 6, StreamOp::Close, 1, 0);
    assert_eq!(answers(&mut server), [(0, 0), (6, 0)]);
    assert!(server.is_idle());
}

#[test]
fn a_server_holds_as_many_unread_batches_as_an_honest_client_pushes() {
    let mut server = StreamServer::new(1 << 20);
    ask(&mut server, 0, StreamOp::Open, 1, 0);
    for call in 1..8 {
        ask(&mut server, call, StreamOp::Push, 1, call);
    }
    let refused: Vec<(u32, u32)> = (MAX_UNREAD as u32..8).map(|call| (call, INVALID)).collect();
    assert_eq!(answers(&mut server), refused);
}

#[test]
fn a_server_holds_at_most_the_documented_number_of_early_calls() {
    let mut server = StreamServer::new(1 << 20);
    for call in 0..100 {
        ask(&mut server, call, StreamOp::Push, 2 + call, 0);
    }
    let refused = answers(&mut server);
    assert_eq!(refused.len(), 100 - MAX_HELD);
    assert!(refused.iter().all(|(_, code)| *code == Code::ResourceExhausted as u32));
    ask(&mut server, 100, StreamOp::Close, u32::MAX, 0);
    assert_eq!(answers(&mut server).len(), MAX_HELD + 1, "all held calls are of older streams now");
    assert!(server.is_idle());
    ask(&mut server, 101, StreamOp::Open, u32::MAX, 0);
    assert_eq!(answers(&mut server), [(101, 0)], "the stream was closed before OPEN arrived");
}

#[test]
fn a_server_counts_unread_bytes_of_open_and_future_streams() {
    let mut server = StreamServer::new(1 << 20);
    let size = message(1, 1, 0, 1).footprint();
    let push = StreamOp::Push.op(false);
    for (call, stream, seq, unread) in [(0, 2, 0, 1), (1, 1, 1, 2), (2, 1, 2, 3)] {
        let _ = request(&mut server, call, message(push, stream, seq, 1));
        assert_eq!(server.unread(), unread * size, "before their streams are opened");
    }
    let _ = request(&mut server, 3, message(StreamOp::Open.op(false), 1, 0, 1));
    assert_eq!(server.unread(), 4 * size);
    assert!(matches!(server.next_batch(1), ServerNext::Batch(_)));
    assert_eq!(server.unread(), 3 * size);
    server.drop_reader(1);
    assert_eq!(server.unread(), size, "the batch of the stream that is not open yet");
    ask(&mut server, 4, StreamOp::Close, 2, 0);
    assert_eq!(server.unread(), 0);
}

#[test]
fn a_newer_stream_ends_the_current_one() {
    let mut server = StreamServer::new(1 << 20);
    ask(&mut server, 0, StreamOp::Open, 1, 0);
    let effect = request(&mut server, 1, message(1, 5, 0, 1)).unwrap();
    assert!(effect.stop && effect.start);
    assert!(!server.is_sending(1) && server.is_sending(5));
    server.drop_reader(1);
    server.finish(1, Ok(()));
    assert!(server.is_sending(5), "the old handler does not affect the new stream");
    assert_eq!(answers(&mut server), [(0, 0)]);
}

/// A client whose OPEN is in flight.
fn opened() -> (StreamClient, Pool) {
    let (mut client, mut pool) = (StreamClient::new(1, Vec::new()), Pool::new(1 << 20));
    assert!(matches!(client.poll_call(&mut pool), Ok(Some((StreamOp::Open, _)))));
    (client, pool)
}

#[test]
fn a_client_does_not_wait_for_a_batch_that_cannot_arrive() {
    let lost = Err(CallError::ResponseLost(Cause::Malformed));
    let gave_up = |client: &mut StreamClient| match client.next_batch() {
        ClientNext::End(result) => result,
        other => panic!("{other:?}"),
    };
    for reply in [
        message(1, 2, 0, 1), // a batch of another stream
        message(1, 1, 1, 1), // a gap, and no pull is in flight
        message(1, 1, 99, 1),
        end(1, 1),
        message(0x81, 1, 0, 0), // an end without a status
        message(3, 1, 0, 0),
        message(2, 1, 0, 0), // EMPTY with bytes after the extension
    ] {
        let text = format!("{:?}", reply.as_slice());
        let (mut client, mut pool) = opened();
        client.replied(StreamOp::Open, Ok(Some(reply)));
        assert_eq!(gave_up(&mut client), lost, "{text}");
        assert!(matches!(client.poll_call(&mut pool), Ok(Some((StreamOp::Close, _)))), "{text}");
        client.replied(StreamOp::Close, Err(CallError::NotExecuted(Cause::PeerDead)));
        assert!(client.is_over() && client.is_spoilt());
    }
    let (mut client, _pool) = opened();
    client.replied(StreamOp::Open, Ok(None));
    assert_eq!(gave_up(&mut client), lost, "the reply is not extended");
    let (mut client, _pool) = opened();
    let mut empty = MsgBuf::detached(8).unwrap();
    put_extension(0x82, &[], &mut empty);
    client.replied(StreamOp::Open, Ok(Some(empty)));
    assert!(
        matches!(gave_up(&mut client), Err(CallError::Status(status)) if status.code() == Code::Cancelled)
    );
}

#[test]
fn an_open_that_fails_is_followed_by_close_if_its_handler_may_run() {
    let closes = |error: CallError| {
        let (mut client, mut pool) = opened();
        client.replied(StreamOp::Open, Err(error.clone()));
        let next = client.poll_call(&mut pool).unwrap().map(|(ask, _)| ask);
        assert!(matches!(client.next_batch(), ClientNext::End(Err(told)) if told == error));
        assert_eq!(client.is_over(), next.is_none());
        next == Some(StreamOp::Close)
    };
    // This status does not prove that no handler runs: the server may have lacked memory for the
    // handler's answer.
    assert!(closes(CallError::Status(Status::resource_exhausted("no room"))));
    assert!(closes(CallError::MaybeExecuted(Cause::NoProgress)));
    assert!(closes(CallError::ResponseLost(Cause::NoMemory)));
    assert!(!closes(CallError::Status(Status::unimplemented("no such method"))));
    assert!(!closes(CallError::NotExecuted(Cause::PeerDead)));
}

#[test]
fn a_client_without_memory_for_close_is_over_when_its_calls_have_ended() {
    let (mut client, _pool) = opened();
    client.drop_reader();
    let mut nothing = Pool::new(0);
    assert!(client.poll_call(&mut nothing).is_err());
    assert!(!client.is_over(), "OPEN is in flight");
    client.replied(StreamOp::Open, Err(CallError::MaybeExecuted(Cause::NoMemory)));
    assert!(client.is_over() && client.is_spoilt());
    assert!(matches!(client.poll_call(&mut nothing), Ok(None)));
}

proptest! {
    /// Every call is answered once, at the latest when a CLOSE ends the stream.
    #[test]
    fn a_server_answers_every_call(calls in proptest::collection::vec((1u8..6, 0u32..4, 0u32..12, 0u32..3, any::<bool>()), 0..60)) {
        let mut server = StreamServer::new(1 << 20);
        let mut open = std::collections::HashSet::new();
        let (mut started, mut stopped) = (0, 0);
        for (number, (op, stream, seq, items, end)) in calls.into_iter().enumerate() {
            let call = number as u32;
            let op = if end { op | 0x80 } else { op };
            if let Some(effect) = request(&mut server, call, message(op, stream, seq, items)) {
                open.insert(call);
                started += u32::from(effect.start);
                stopped += u32::from(effect.stop);
            }
            if seq % 2 == 0 {
                let _ = server.next_batch(stream);
            }
            for (call, _) in answers(&mut server) {
                prop_assert!(open.remove(&call));
            }
        }
        if let Some(effect) = request(&mut server, u32::MAX, message(4, u32::MAX, 0, 0)) {
            stopped += u32::from(effect.stop);
        }
        for (call, _) in answers(&mut server) {
            prop_assert!(open.remove(&call) || call == u32::MAX);
        }
        prop_assert!(open.is_empty() && server.is_idle());
        prop_assert_eq!(started, stopped);
    }

    /// Whatever replies arrive, the client ends when its calls have failed.
    #[test]
    fn a_client_ends_whatever_the_server_replies(replies in proptest::collection::vec((0u8..5, 0u32..4, 0u32..3, any::<bool>()), 0..40)) {
        let (mut client, mut pool) = opened();
        let mut out = vec![StreamOp::Open];
        for (op, seq, items, ends) in replies {
            let _ = client.next_batch();
            client.batch_read();
            while let Ok(Some((ask, _))) = client.poll_call(&mut pool) {
                out.push(ask);
            }
            prop_assert!(out.len() <= 6);
            let Some(ask) = out.pop() else { break };
            let reply = if ends && op == 1 { end(1, seq) } else { message(op, 1, seq, items) };
            client.replied(ask, Ok(Some(reply)));
        }
        while !out.is_empty() || !client.is_over() {
            for ask in std::mem::take(&mut out) {
                client.replied(ask, Err(CallError::MaybeExecuted(Cause::PeerDead)));
            }
            client.drop_reader();
            while let Ok(Some((ask, _))) = client.poll_call(&mut pool) {
                out.push(ask);
            }
        }
    }
}
