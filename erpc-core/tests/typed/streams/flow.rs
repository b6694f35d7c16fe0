//! Messages in all directions, flow control, and how each side learns of the end.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use erpc_core::calling::CallOptions;
use erpc_core::client::Channel;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::{CallError, Cause, EndpointConfig, RejectReason};
use erpc_core::service::{Metadata, Method};
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::{MemConfig, MemHub};

use super::{COUNT, DOUBLE, FAIL, FOREVER, LATE, PANIC, SUM, StreamBed, all, filled};
use crate::support::{Number, number};
use crate::test_bed::{SERVER, poll};

#[test]
fn a_server_sends_a_stream() {
    let bed = StreamBed::new();
    let session = bed.session();
    for (count, size) in [(0, 0), (1, 0), (5, 10), (2_000, 100), (300, 5_000), (10, 100_000)] {
        let numbers = session.server_streaming(&COUNT, &filled(count, size));
        assert_eq!(bed.wait(all(numbers)), ((0..count).collect(), Ok(())));
    }
    let (values, end) = bed.wait(all(session.server_streaming(&PANIC, &filled(13, 1_000))));
    assert_eq!(values, (0..13).collect::<Vec<u64>>(), "messages sent before the panic arrive");
    assert!(matches!(end, Err(CallError::Status(status)) if status.code() == Code::Internal));
    bed.no_handler_runs();
}

#[test]
fn a_client_sends_a_stream() {
    let bed = StreamBed::new();
    let session = bed.session();
    for (count, size) in [(0, 0), (1, 0), (2_000, 100), (300, 5_000), (10, 100_000)] {
        let sum = bed.wait(async {
            let upload = session.client_streaming(&SUM);
            for value in 1..=count {
                upload.send(filled(value, size)).await?;
            }
            upload.finish().await
        });
        assert_eq!(sum, Ok(number(count * (count + 1) / 2)));
    }
    let early = bed.wait(async {
        let upload = session.client_streaming(&SUM);
        for value in [1, 2, 0, 3] {
            upload.send(number(value)).await?;
        }
        while !upload.is_closed() {
            upload.send(filled(5, 1_000)).await?;
        }
        upload.finish().await
    });
    assert_eq!(early, Ok(number(3)), "messages after the answer are dropped");
    bed.no_handler_runs();
}

#[test]
fn the_response_to_a_stream_carries_metadata() {
    let bed = StreamBed::new();
    let mut metadata = Metadata::new();
    metadata.insert("trace", [7; 300]).unwrap();
    let channel = Channel::from(bed.session());
    let with = channel.with(CallOptions::new().metadata(metadata.clone()));
    for (channel, expected) in [(&with, &metadata), (&channel, &Metadata::new())] {
        for early in [false, true] {
            let upload = channel.client_streaming(&SUM);
            bed.wait(upload.send(filled(3, 2_000))).unwrap();
            if early {
                bed.wait(upload.send(number(0))).unwrap();
            }
            let response = bed.wait(upload.finish_with_metadata());
            assert_eq!(response, Ok((number(3), expected.clone())), "early: {early}");
        }
    }
    let upload = with.client_streaming(&SUM);
    assert_eq!(bed.wait(upload.finish()), Ok(number(0)), "`finish` returns only the message");
}

#[test]
fn both_sides_send_a_stream() {
    let bed = StreamBed::new();
    let session = bed.session();
    // First one message at a time, then all without waiting.
    bed.wait(async {
        let (out, mut doubles) = session.bidi_streaming(&DOUBLE);
        for value in 20..520 {
            out.send(number(value)).await.unwrap();
            assert_eq!(doubles.next().await, Ok(Some(number(value * 2))));
        }
        drop(out);
        assert_eq!(doubles.next().await, Ok(None));
        assert_eq!(doubles.next().await, Ok(None), "every later call returns the end");
    });
    let (out, doubles) = session.bidi_streaming(&DOUBLE);
    let sender = bed.client().spawn(async move {
        for value in 20..3_020 {
            out.send(filled(value, 500)).await?;
        }
        Ok::<(), CallError>(())
    });
    let doubles = bed.wait(all(doubles));
    assert_eq!(doubles, ((20..3_020).map(|value| value * 2).collect(), Ok(())));
    assert_eq!(bed.wait(sender), Ok(()));
    bed.no_handler_runs();
}

#[test]
fn a_status_ends_a_stream_after_its_messages() {
    let bed = StreamBed::new();
    let session = bed.session();
    let numbers = session.server_streaming(&FAIL, &number(0));
    let failed = Status::aborted("the test's status").with_details(b"details");
    let expected = (vec![0, 1, 2], Err(CallError::Status(failed)));
    assert_eq!(bed.wait(all(numbers)), expected);
    bed.wait(async {
        let (out, mut doubles) = session.bidi_streaming(&DOUBLE);
        out.send(number(13)).await.unwrap();
        let refused = Err(CallError::Status(Status::out_of_range("13 is refused")));
        assert_eq!(doubles.next().await, refused);
        assert!(out.is_closed());
        let ended = Err(CallError::Rejected(RejectReason::StreamEnded));
        assert_eq!(out.send(number(1)).await, ended);
        assert_eq!(doubles.next().await, Ok(None), "the error is returned once");
    });
    bed.no_handler_runs();
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer() {
    let bed = StreamBed::new();
    let session = bed.session();
    let mut numbers = session.server_streaming(&FOREVER, &filled(7, 1_000));
    let sent = || bed.streams.sent.load(Ordering::SeqCst);
    bed.until("the handler starts", || sent() > 0);
    bed.run_for(Duration::from_millis(300));
    // The unread messages are three full batches at the client, and one batch that fills at the
    // server.
    let stalled = sent();
    assert!((60..=4 * 34).contains(&stalled), "{stalled} messages without a reader");
    bed.run_for(Duration::from_millis(100));
    assert_eq!(sent(), stalled, "the writer has stopped");
    for _ in 0..1_000 {
        assert!(bed.wait(numbers.next()).unwrap().is_some());
    }
    bed.run_for(Duration::from_millis(300));
    let ahead = sent() - 1_000;
    assert!((30..=4 * 34).contains(&ahead), "{ahead} messages ahead of the reader");
    drop(numbers);
    bed.no_handler_runs();
}

#[test]
fn a_handler_that_does_not_read_stops_the_client() {
    let bed = StreamBed::new();
    let session = bed.session();
    let upload = session.client_streaming(&LATE);
    let message = filled(1, 1_000);
    let mut sent = 0;
    let stall = bed.now() + Duration::from_millis(10);
    while bed.now() < stall {
        let mut sending = pin!(upload.send(&message));
        while bed.now() < stall {
            if poll(sending.as_mut()).is_ready() {
                sent += 1;
                break;
            }
            bed.turn();
        }
    }
    // The unread messages are the batch of OPEN, two pushes, and one batch that fills at the
    // client.
    assert!((64..=4 * 34).contains(&sent), "{sent} messages without a reader");
    bed.streams.go.store(true, Ordering::SeqCst);
    assert_eq!(bed.wait(upload.finish()), Ok(number(sent)));
}

#[test]
fn dropping_an_end_ends_the_handler() {
    let bed = StreamBed::new();
    let session = bed.session();
    let running = || bed.running();
    let mut numbers = session.server_streaming(&FOREVER, &number(0));
    assert!(bed.wait(numbers.next()).unwrap().is_some());
    assert_eq!(running(), 1);
    drop(numbers);
    bed.no_handler_runs();
    let upload = session.client_streaming(&SUM);
    bed.wait(upload.send(number(1))).unwrap();
    bed.until("the handler starts", || running() == 1);
    drop(upload);
    bed.no_handler_runs();
    let (out, doubles) = session.bidi_streaming(&DOUBLE);
    bed.wait(out.send(number(1))).unwrap();
    bed.until("the handler starts", || running() == 1);
    drop(doubles);
    bed.no_handler_runs();
    assert!(out.is_closed());
}

#[test]
fn a_deadline_ends_a_stream_on_both_sides() {
    const BRIEF: Method<Number, Number> =
        Method::new("test.Streams/Forever").deadline(Duration::from_millis(100));
    let bed = StreamBed::new();
    let session = bed.session();
    let numbers = session.server_streaming(&BRIEF, &filled(0, 1_000));
    let (values, end) = bed.wait(all(numbers));
    assert!(!values.is_empty());
    // The error depends on whether a batch was in flight at the deadline.
    let (open, coming) = (CallError::MaybeExecuted, CallError::ResponseLost);
    let expected = [open(Cause::DeadlineExceeded), coming(Cause::DeadlineExceeded)];
    assert!(expected.map(Err).contains(&end), "{end:?}");
    bed.no_handler_runs();
}

#[test]
fn a_shutdown_of_the_endpoint_ends_its_streams() {
    let bed = StreamBed::new();
    let session = bed.session();
    let (out, mut doubles) = session.bidi_streaming(&DOUBLE);
    bed.wait(out.send(number(1))).unwrap();
    assert_eq!(bed.wait(doubles.next()), Ok(Some(number(2))));
    let mut numbers = session.server_streaming(&FOREVER, &number(0));
    assert!(bed.wait(numbers.next()).unwrap().is_some());
    bed.client().shutdown();
    let ended = Err(CallError::MaybeExecuted(Cause::Shutdown));
    assert_eq!(bed.wait(all(numbers)).1, ended);
    assert_eq!(bed.wait(out.send(number(1))), ended);
    assert_eq!(bed.wait(all(doubles)).1, ended);
    bed.no_handler_runs();
}

#[test]
fn a_thousand_streams_use_one_session() {
    let bed = StreamBed::new();
    let session = bed.session();
    for count in 0..1_000 {
        let numbers = session.server_streaming(&COUNT, &number(count % 13));
        assert_eq!(bed.wait(all(numbers)), ((0..count % 13).collect(), Ok(())));
    }
    assert_eq!(bed.client().stats().unwrap().client_sessions, 2);
    let pool = bed.client().stats().unwrap().pool;
    assert!(pool.in_use <= 8, "{pool:?}");
}

#[test]
fn a_call_of_the_wrong_kind_is_refused() {
    const PLAIN_COUNT: Method<Number, Number> = Method::new("test.Streams/Count");
    const STREAMED_DOUBLE: Method<Number, Number> = Method::new("test.Math/Double");
    let bed = StreamBed::new();
    let session = bed.session();
    let invalid = |error: Option<CallError>| {
        assert!(
            matches!(&error, Some(CallError::Status(status)) if status.code() == Code::InvalidArgument),
            "{error:?}"
        );
    };
    invalid(bed.wait(session.call(&PLAIN_COUNT, &number(1))).err());
    let streamed = session.server_streaming(&STREAMED_DOUBLE, &number(1));
    invalid(bed.wait(all(streamed)).1.err());
    const UNKNOWN: Method<Number, Number> = Method::new("test.Streams/Unknown");
    let (_, end) = bed.wait(all(session.server_streaming(&UNKNOWN, &number(1))));
    assert_eq!(end, Err(CallError::NoSuchMethod("test.Streams/Unknown")));
    let upload = session.client_streaming(&UNKNOWN);
    let end = bed.wait(upload.finish());
    assert_eq!(end, Err(CallError::NoSuchMethod("test.Streams/Unknown")));
    // The session can still be used.
    let numbers = session.server_streaming(&COUNT, &number(2));
    assert_eq!(bed.wait(all(numbers)), (vec![0, 1], Ok(())));
    assert_eq!(bed.client().stats().unwrap().client_sessions, 2);
}

#[test]
fn messages_larger_than_their_method_allows_are_refused() {
    const SMALL: Method<Number, Number> =
        Method::new("test.Streams/Double").max_request(100).max_response(50);
    let bed = StreamBed::new();
    let session = bed.session();
    bed.wait(async {
        let (out, mut doubles) = session.bidi_streaming(&SMALL);
        let sent = out.send(filled(1, 200)).await;
        assert!(
            matches!(sent, Err(CallError::Rejected(RejectReason::TooLarge { limit: 100, .. }))),
            "{sent:?}"
        );
        out.send(filled(1, 20)).await.unwrap();
        assert_eq!(doubles.next().await, Ok(Some(filled(2, 20))), "the stream continues");
        // The server does not know the limit that the client has set for responses, and exceeds it.
        out.send(filled(1, 80)).await.unwrap();
        let lost = Err(CallError::ResponseLost(Cause::Malformed));
        assert_eq!(doubles.next().await, lost);
        assert_eq!(doubles.next().await, Ok(None));
    });
    bed.no_handler_runs();
}

#[test]
fn a_stream_on_a_channel_waits_for_a_server() {
    let bed = StreamBed::new();
    let channel = Channel::to(&bed.client(), vec![SERVER]).build();
    let first = channel.server_streaming(&COUNT, &number(5));
    let (out, doubles) = channel.bidi_streaming(&DOUBLE);
    bed.wait(out.send(number(20))).unwrap();
    drop(out);
    assert_eq!(bed.wait(all(first)), ((0..5).collect(), Ok(())));
    assert_eq!(bed.wait(all(doubles)), (vec![40], Ok(())));
    let upload = channel.client_streaming(&SUM);
    bed.wait(upload.send(number(20))).unwrap();
    assert_eq!(bed.wait(upload.finish()), Ok(number(20)));
    let sessions = || bed.client().stats().unwrap().client_sessions;
    // One session is for calls, two are for the streams that ran at the same time.
    assert_eq!(sessions(), 3);
    drop(channel);
    bed.until("the channel's sessions end with it", || sessions() == 0);
}

#[test]
fn a_stream_without_a_server_fails() {
    let hub = MemHub::new();
    let unserved = crate::support::client(&hub).local_route().unwrap();
    let config = EndpointConfig::new().connect_timeout(Duration::from_millis(50));
    let client = Endpoint::new(hub.port(MemConfig::default()), config).unwrap();
    let channel = Channel::to(&client, vec![unserved]).build();
    let (values, end) = client.block_on(all(channel.server_streaming(&COUNT, &number(5))));
    assert!(values.is_empty() && matches!(end, Err(CallError::NoServer(_))), "{end:?}");
    let patient = CallOptions::new().wait_for_ready(true).deadline(Duration::from_millis(150));
    let stream = channel.with(patient).server_streaming(&COUNT, &number(5));
    let late = Err(CallError::NotExecuted(Cause::DeadlineExceeded));
    assert_eq!(client.block_on(all(stream)), (vec![], late));
}
