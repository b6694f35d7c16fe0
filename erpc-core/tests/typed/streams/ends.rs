//! Streams that end with their endpoint or at a deadline, and messages that are too large.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use erpc_core::calling::CallOptions;
use erpc_core::client::Channel;
use erpc_core::protocol::{CallError, Cause, EndpointConfig, RejectReason};
use erpc_core::service::Outgoing;
use erpc_core::status::Code;

use super::{COUNT, DOUBLE, FOREVER, GROW, MUTE, SUM, StreamBed, TIGHT, filled};
use crate::support::{Number, number};
use crate::test_bed::{SERVER, poll};

#[test]
fn a_stream_does_not_keep_its_endpoint_alive() {
    let bed = StreamBed::new();
    let session = bed.session();
    let mut numbers = session.server_streaming(&FOREVER, &filled(0, 1_000));
    assert!(bed.wait(numbers.next()).unwrap().is_some());
    drop(bed.end_client());
    let end = loop {
        match poll(pin!(numbers.next())) {
            Poll::Ready(Ok(Some(_))) => {}
            end => break end,
        }
    };
    assert_eq!(end, Poll::Ready(Err(CallError::MaybeExecuted(Cause::Shutdown))));
    drop((numbers, session));
    assert!(bed.client_is_gone());
}

#[test]
fn a_stream_on_a_session_with_few_slots_fails_and_names_the_setting() {
    for (client, server) in [(1, 8), (8, 1), (4, 64)] {
        let slots = |count| EndpointConfig::new().slots(count);
        let bed = StreamBed::with(slots(client), slots(server));
        let session = bed.session();
        let (out, mut doubles) = session.bidi_streaming(&DOUBLE);
        let end = bed.wait(doubles.next());
        let Err(CallError::Status(status)) = end else { panic!("{client}, {server}: {end:?}") };
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("EndpointConfig::slots"), "{status}");
        drop(out);
    }
    let bed = StreamBed::with(EndpointConfig::new().slots(64), EndpointConfig::new());
    let mut numbers = bed.session().server_streaming(&COUNT, &number(3));
    assert!(bed.wait(numbers.next()).unwrap().is_some());
}

#[test]
fn a_stream_opened_after_the_endpoint_has_ended_fails() {
    let bed = StreamBed::new();
    let session = bed.session();
    drop(bed.end_client());
    let mut numbers = session.server_streaming(&COUNT, &number(3));
    let end = poll(pin!(numbers.next()));
    assert_eq!(end, Poll::Ready(Err(CallError::NotExecuted(Cause::Shutdown))));
    let (out, numbers_back) = session.bidi_streaming(&GROW);
    let sent = poll(pin!(out.send(number(1))));
    assert_eq!(sent, Poll::Ready(Err(CallError::NotExecuted(Cause::Shutdown))));
    drop((numbers, out, numbers_back, session));
    assert!(bed.client_is_gone());
}

#[test]
fn a_stream_of_a_channel_without_a_session_fails_after_the_endpoint_has_ended() {
    let bed = StreamBed::new();
    let client = bed.client();
    let channel = Channel::to(&client, vec![SERVER]).build();
    drop(client);
    drop(bed.end_client());
    let mut numbers = channel.server_streaming(&COUNT, &number(3));
    let end = poll(pin!(numbers.next()));
    assert_eq!(end, Poll::Ready(Err(CallError::NotExecuted(Cause::Shutdown))));
    assert_eq!(
        poll(pin!(channel.client_streaming(&SUM).finish())),
        Poll::Ready(Err(CallError::NotExecuted(Cause::Shutdown)))
    );
    drop((numbers, channel));
    assert!(bed.client_is_gone());
}

thread_local! {
    static OTHER_HALF: RefCell<Option<Outgoing<Number>>> = RefCell::default();
}

/// A waker that drops the stream's [`Outgoing`] when it is dropped.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Bomb {
    fn drop(&mut self) {
        drop(OTHER_HALF.take());
    }
}

#[test]
fn a_waker_may_drop_the_other_half_of_its_stream() {
    let bed = StreamBed::new();
    let session = bed.session();
    let (out, mut numbers) = session.bidi_streaming(&GROW);
    OTHER_HALF.set(Some(out));
    let waker = Waker::from(Arc::new(Bomb));
    assert!(pin!(numbers.next()).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    // This poll replaces the waker of the first poll, which is dropped.
    assert!(poll(pin!(numbers.next())).is_pending());
    assert_eq!(bed.wait(numbers.next()), Ok(None));
}

/// The message limit of the other side, in bytes.
const LIMIT: u32 = 8_192;

fn limited() -> EndpointConfig {
    EndpointConfig::new().max_message(LIMIT)
}

#[test]
fn a_batch_of_small_messages_stays_within_the_limit_of_the_server() {
    let bed = StreamBed::with(EndpointConfig::new(), limited());
    let session = bed.session();
    for round in 0..2 {
        // The first round opens a session for the stream, the second round reuses the session.
        let sum = bed.wait(async {
            let upload = session.client_streaming(&SUM);
            for _ in 0..100 {
                upload.send(filled(1, 1_000)).await?;
            }
            upload.finish().await
        });
        assert_eq!(sum, Ok(number(100)), "round {round}");
    }
}

#[test]
fn a_batch_of_small_messages_stays_within_the_limit_of_the_client() {
    let bed = StreamBed::with(limited(), EndpointConfig::new());
    let session = bed.session();
    let mut numbers = session.server_streaming(&COUNT, &filled(100, 1_000));
    for value in 0..100 {
        assert_eq!(bed.wait(numbers.next()), Ok(Some(filled(value, 1_000))));
    }
    assert_eq!(bed.wait(numbers.next()), Ok(None));
}

#[test]
fn a_message_above_the_limit_of_the_server_is_refused_and_the_stream_continues() {
    let bed = StreamBed::with(EndpointConfig::new(), limited());
    let session = bed.session();
    // The first message is too large. It waits until the server's limit is known.
    let (refused, sum) = bed.wait(async {
        let upload = session.client_streaming(&SUM);
        let refused = upload.send(filled(1, LIMIT as usize)).await;
        upload.send(number(5)).await.unwrap();
        (refused, upload.finish().await)
    });
    assert_eq!(sum, Ok(number(5)));
    let Err(CallError::Rejected(RejectReason::TooLarge { size, limit })) = refused else {
        panic!("{refused:?}");
    };
    assert!(size > LIMIT as usize && limit < LIMIT as usize);
    // A message of exactly the reported limit is accepted.
    let largest = filled(1, limit - (size - LIMIT as usize));
    let sum = bed.wait(async {
        let upload = session.client_streaming(&SUM);
        upload.send(&largest).await?;
        upload.send(&largest).await?;
        upload.finish().await
    });
    assert_eq!(sum, Ok(number(2)));
}

#[test]
fn a_message_above_the_limit_of_the_client_is_refused_and_the_stream_continues() {
    let bed = StreamBed::with(limited(), EndpointConfig::new());
    let session = bed.session();
    let (out, mut numbers) = session.bidi_streaming(&GROW);
    for (value, len) in [(10, 10), (20_000, LIMIT as usize - 100 - 24), (20, 20)] {
        bed.wait(out.send(number(value))).unwrap();
        assert_eq!(bed.wait(numbers.next()), Ok(Some(filled(value, len))));
    }
    drop(out);
    assert_eq!(bed.wait(numbers.next()), Ok(None));
}

#[test]
fn a_message_above_the_limit_of_its_method_ends_the_stream_with_out_of_range() {
    let bed = StreamBed::new();
    let session = bed.session();
    let mut numbers = session.server_streaming(&TIGHT, &filled(2, 30));
    assert_eq!(bed.wait(numbers.next()), Ok(Some(filled(0, 30))));
    drop(numbers);
    let mut numbers = session.server_streaming(&TIGHT, &filled(2, 100));
    let end = bed.wait(numbers.next()).unwrap_err();
    assert_eq!(end.code(), Code::OutOfRange, "{end}");
}

#[test]
fn a_large_message_waits_for_a_channel_to_find_its_server() {
    let bed = StreamBed::with(EndpointConfig::new(), limited());
    let client = bed.client();
    let channel = Channel::to(&client, vec![SERVER]).build();
    drop(client);
    let sum = bed.wait(async {
        let upload = channel.client_streaming(&SUM);
        upload.send(filled(3, 7_000)).await?;
        upload.finish().await
    });
    assert_eq!(sum, Ok(number(3)));
}

#[test]
fn a_deadline_ends_a_stream_that_is_not_read() {
    let bed = StreamBed::new();
    let options = CallOptions::new().deadline(Duration::from_millis(10));
    let channel = Channel::from(bed.session()).with(options);
    let mut numbers = channel.server_streaming(&FOREVER, &filled(0, 1_000));
    assert!(bed.wait(numbers.next()).unwrap().is_some());
    assert_eq!(bed.running(), 1);
    bed.run_for(Duration::from_millis(20));
    assert_eq!(bed.running(), 0, "the handler ends, although no call is in flight");
    // Batches received before the deadline can still be read.
    let end = loop {
        match bed.wait(numbers.next()) {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert_eq!(end, Err(CallError::MaybeExecuted(Cause::DeadlineExceeded)));
    drop(numbers);
    // The session can be used for the next stream.
    let patient = channel.with(CallOptions::new().deadline(Duration::from_secs(60)));
    let mut numbers = patient.server_streaming(&COUNT, &number(1));
    assert_eq!(bed.wait(numbers.next()), Ok(Some(number(0))));
    assert_eq!(bed.wait(numbers.next()), Ok(None));
    drop((numbers, patient, channel));
    drop(bed.end_client());
    assert!(bed.client_is_gone());
}

#[test]
fn a_handler_ends_at_its_deadline_even_if_its_client_is_silent() {
    let bed = StreamBed::new();
    let options = CallOptions::new().deadline(Duration::from_millis(10));
    let channel = Channel::from(bed.session()).with(options);
    let (_out, mut numbers) = channel.bidi_streaming(&MUTE);
    assert_eq!(bed.wait(numbers.next()), Ok(Some(number(1))));
    assert_eq!(bed.running(), 1);
    let silent = bed.end_client();
    bed.run_for(Duration::from_millis(20));
    assert_eq!(bed.running(), 0);
    drop(silent);
}
