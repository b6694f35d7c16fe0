//! Calls and streams of shared channels whose endpoint is late, full, or gone.

use std::future::{pending, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use erpc_core::calling::CallOptions;
use erpc_core::client::{ClientThreads, Resolver, SharedCall, SharedChannel};
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::{CallError, Cause, EndpointConfig, RejectReason};
use erpc_core::server::Server;
use erpc_core::service::SharedIncoming;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use futures_core::Stream;

use super::{COUNT, DOUBLE as DOUBLES, MUTE, StreamBed, Streams};
use crate::support::{DOUBLE, Number, number};
use crate::test_bed::{SERVER, poll};

const QUEUE_FULL: CallError = CallError::Rejected(RejectReason::QueueFull);
const LATE: CallError = CallError::NotExecuted(Cause::DeadlineExceeded);

/// Resolves to the server, or never if it is `stuck`. Counts its clones: each channel that is built
/// at an endpoint has one.
#[derive(Default)]
struct Counted {
    clones: Arc<AtomicU32>,
    stuck: bool,
    /// Whether the first clone panics.
    panics: bool,
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        let earlier = self.clones.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics || earlier > 0, "the test's resolver panics");
        Self { clones: Arc::clone(&self.clones), ..*self }
    }
}

impl Resolver<MemRoute> for Counted {
    async fn resolve(&mut self) -> io::Result<Vec<MemRoute>> {
        match self.stuck {
            true => pending().await,
            false => ready(Ok(vec![SERVER])).await,
        }
    }
}

/// A shared channel of the bed's client, and the counter of its resolver.
fn channel(bed: &StreamBed, resolver: Counted) -> (SharedChannel<MemTransport>, Arc<AtomicU32>) {
    let clones = Arc::clone(&resolver.clones);
    let channel = SharedChannel::on(&bed.client().handle(), resolver);
    (channel.build().unwrap(), clones)
}

/// Posts calls until one is refused because too many are queued for the endpoint.
fn fill(channel: &SharedChannel<MemTransport>) {
    let mut calls: Vec<SharedCall<Number, MemTransport>> = Vec::new();
    while !calls.last().is_some_and(SharedCall::is_ready) {
        assert!(calls.len() < 1 << 20, "a channel refuses calls that its endpoint does not take");
        calls.push(channel.call(&DOUBLE, &number(4)));
    }
    let refused = poll(pin!(calls.pop().unwrap()));
    assert_eq!(refused, Poll::Ready(Err(QUEUE_FULL)));
    // Dropped before the endpoint takes them, these calls are never executed.
    drop(calls);
}

#[test]
fn a_call_that_outlives_its_channel_builds_no_other_channel() {
    let bed = StreamBed::new();
    let (channel, clones) = channel(&bed, Counted::default());
    assert_eq!(bed.wait(channel.call(&DOUBLE, &number(4))), Ok(number(8)));
    let call = channel.call(&DOUBLE, &number(5));
    drop(channel);
    bed.turn();
    assert!(!call.is_ready(), "the endpoint has started the call and has no answer");
    drop(call);
    bed.run_for(Duration::from_millis(10));
    assert_eq!(clones.load(Ordering::SeqCst), 1, "one channel was built");
    assert_eq!(Arc::strong_count(&clones), 1, "the channel is gone");
}

#[test]
fn a_resolver_that_panics_fails_its_calls_and_not_the_channel() {
    let bed = StreamBed::new();
    let (channel, _) = channel(&bed, Counted { panics: true, ..Counted::default() });
    let (first, mut stream) =
        (channel.call(&DOUBLE, &number(4)), channel.server_streaming(&COUNT, &number(1)));
    let failed = CallError::NotExecuted(Cause::Unresolved);
    assert_eq!(bed.wait(first), Err(failed.clone()));
    assert_eq!(bed.wait(stream.next()), Err(failed));
    assert_eq!(bed.wait(channel.call(&DOUBLE, &number(4))), Ok(number(8)));
}

#[test]
fn a_full_queue_accepts_cancels() {
    let bed = StreamBed::new();
    let resolver = Counted { stuck: true, ..Counted::default() };
    let channel = SharedChannel::on(&bed.client().handle(), resolver).queue_limit(1);
    let channel = channel.build().unwrap();
    let call = channel.call(&DOUBLE, &number(5));
    bed.run_for(Duration::from_millis(10));
    assert!(!call.is_ready(), "the call waits for a server");
    fill(&channel);
    drop(call);
    bed.run_for(Duration::from_millis(10));
    let call = channel.call(&DOUBLE, &number(5));
    bed.run_for(Duration::from_millis(10));
    assert!(!call.is_ready(), "this call has taken the place of the cancelled one");
}

#[test]
fn a_full_queue_accepts_the_end_of_its_channel() {
    let bed = StreamBed::new();
    let (channel, clones) = channel(&bed, Counted::default());
    assert_eq!(bed.wait(channel.call(&DOUBLE, &number(4))), Ok(number(8)));
    fill(&channel);
    drop(channel);
    bed.run_for(Duration::from_millis(10));
    assert_eq!(Arc::strong_count(&clones), 1, "the channel is gone");
}

#[test]
fn a_full_queue_refuses_streams_like_calls() {
    let bed = StreamBed::new();
    let (channel, _) = channel(&bed, Counted::default());
    fill(&channel);
    let mut numbers = channel.server_streaming(&COUNT, &number(3));
    assert_eq!(poll(pin!(numbers.next())), Poll::Ready(Err(QUEUE_FULL)));
    let (out, mut doubles) = channel.bidi_streaming(&DOUBLES);
    assert_eq!(poll(pin!(out.send(number(3)))), Poll::Ready(Err(QUEUE_FULL)));
    assert_eq!(poll(pin!(doubles.next())), Poll::Ready(Err(QUEUE_FULL)));
    // Questions about the channel are never refused.
    assert!(bed.wait(channel.ready()).is_ok());
    let mut numbers = channel.server_streaming(&COUNT, &number(1));
    assert_eq!(bed.wait(numbers.next()), Ok(Some(number(0))));
}

#[test]
fn a_dropped_wait_for_a_server_does_not_keep_the_channel() {
    let bed = StreamBed::new();
    let (channel, clones) = channel(&bed, Counted { stuck: true, ..Counted::default() });
    let mut waits = Box::pin(channel.ready());
    assert!(poll(waits.as_mut()).is_pending());
    bed.run_for(Duration::from_millis(10));
    assert!(poll(waits.as_mut()).is_pending(), "the resolver does not answer");
    drop(waits);
    drop(channel);
    bed.run_for(Duration::from_millis(10));
    assert_eq!(Arc::strong_count(&clones), 1, "the channel is gone");
}

/// An endpoint that runs in real time, and a channel with calls of at most `within`.
fn hurried(within: Duration) -> (Endpoint<MemTransport>, SharedChannel<MemTransport>) {
    let port = MemHub::new().port(MemConfig::default());
    let endpoint = Endpoint::new(port, EndpointConfig::new()).unwrap();
    let channel = SharedChannel::on(&endpoint.handle(), vec![SERVER]);
    let channel = channel.options(CallOptions::new().deadline(within).wait_for_ready(true));
    (endpoint, channel.build().unwrap())
}

#[test]
fn the_time_that_an_endpoint_is_stuck_counts_against_a_deadline() {
    let within = Duration::from_millis(100);
    let (endpoint, channel) = hurried(within);
    let call = channel.call(&DOUBLE, &number(4));
    let mut numbers = channel.server_streaming(&COUNT, &number(4));
    // The endpoint's thread is stuck.
    std::thread::sleep(within);
    for _ in 0..20 {
        endpoint.run_once();
    }
    assert_eq!(poll(pin!(call)), Poll::Ready(Err(LATE)));
    assert_eq!(poll(pin!(numbers.next())), Poll::Ready(Err(LATE)));
}

#[test]
fn a_deadline_in_virtual_time_does_not_depend_on_the_systems_clock() {
    let bed = StreamBed::new();
    let (channel, _) = channel(&bed, Counted::default());
    assert!(bed.wait(channel.ready()).is_ok());
    let within = Duration::from_millis(10);
    let hurried = channel.with(CallOptions::new().deadline(within));
    let call = hurried.call(&DOUBLE, &number(4));
    let mut numbers = hurried.server_streaming(&COUNT, &number(1));
    std::thread::sleep(within * 2);
    assert_eq!(bed.wait(call), Ok(number(8)));
    assert_eq!(bed.wait(numbers.next()), Ok(Some(number(0))));
    let (_out, mut silent) = hurried.bidi_streaming(&MUTE);
    let begun = bed.now();
    assert_eq!(bed.wait(silent.next()), Ok(Some(number(1))));
    let late = CallError::MaybeExecuted(Cause::DeadlineExceeded);
    assert_eq!(bed.wait(silent.next()), Err(late));
    assert!((within..within * 2).contains(&(bed.now() - begun)));
}

#[test]
fn a_stream_keeps_its_threads() {
    let server = Server::builder().add_service(Streams::default()).spawn("127.0.0.1:0").unwrap();
    let threads = ClientThreads::builder().start().unwrap();
    let handle = threads.handles().next().unwrap().clone();
    let channel = SharedChannel::to(vec![server.local_addr().into()]).threads(&threads);
    let channel = channel.build().unwrap();
    let caller = Endpoint::udp().unwrap();
    let upload = channel.client_streaming(&super::SUM);
    let (out, mut doubles) = channel.bidi_streaming(&DOUBLES);
    caller.block_on(async {
        out.send(number(3)).await.unwrap();
        assert_eq!(doubles.next().await, Ok(Some(number(6))));
        drop((channel, threads));
        // Long enough for threads that nothing keeps.
        caller.sleep(Duration::from_millis(50)).await;
        out.send(number(4)).await.unwrap();
        assert_eq!(doubles.next().await, Ok(Some(number(8))));
        drop(out);
        assert_eq!(doubles.next().await, Ok(None));
        drop(doubles);
        upload.send(number(7)).await.unwrap();
        assert_eq!(upload.finish().await, Ok(number(7)));
    });
    // Now nothing keeps the threads.
    caller.block_on(async {
        while handle.submit(|_| ()).is_ok() {
            caller.sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_shared_stream_of_messages_is_a_stream_of_futures() {
    fn next<S: Stream>(stream: Pin<&mut S>) -> Poll<Option<S::Item>> {
        stream.poll_next(&mut Context::from_waker(Waker::noop()))
    }
    let bed = StreamBed::new();
    let (channel, _) = channel(&bed, Counted::default());
    let mut numbers: Pin<Box<SharedIncoming<Number>>> =
        Box::pin(channel.server_streaming(&COUNT, &number(2)));
    assert!(next(numbers.as_mut()).is_pending());
    let mut read = Vec::new();
    bed.wait(std::future::poll_fn(|_| {
        while let Poll::Ready(item) = next(numbers.as_mut()) {
            match item {
                Some(item) => read.push(item),
                None => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }));
    assert_eq!(read, [Ok(number(0)), Ok(number(1))]);
    assert_eq!(next(numbers.as_mut()), Poll::Ready(None), "the end stays");
}
