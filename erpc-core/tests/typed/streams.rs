//! Streams over memory, with handlers on a thread of their own.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use erpc_core::protocol::{CallError, Cause, EndpointConfig, RejectReason};
use erpc_core::runtime::{CallOptions, Channel, Endpoint, Session};
use erpc_core::service::{
    Code, Incoming, Method, MethodCollision, Outgoing, Request, Response, Routes, Service, Status,
};
use erpc_core::transport::mem::{MemConfig, MemHub, MemTransport};

use crate::support::{Background, Math, Number, number};

/// Counts from 0 to the request's value, and ends well; of 13 it panics behind the 13th.
const COUNT: Method<Number, Number> = Method::new("test.Streams/Count");
/// Counts for ever.
const FOREVER: Method<Number, Number> = Method::new("test.Streams/Forever");
/// Sends three numbers and fails.
const FAIL: Method<Number, Number> = Method::new("test.Streams/Fail");
/// Adds numbers up; answers as soon as one is 0.
const SUM: Method<Number, Number> = Method::new("test.Streams/Sum");
/// Reads nothing until the test says so, and then sums.
const LATE: Method<Number, Number> = Method::new("test.Streams/Late");
/// Sends each number's double; fails if one is 13.
const DOUBLE: Method<Number, Number> = Method::new("test.Streams/Double");

/// What handlers tell the tests.
#[derive(Default)]
struct Streams {
    /// Messages that handlers have sent.
    sent: AtomicU64,
    /// Handlers that run.
    running: AtomicU64,
    /// Whether [`LATE`] may read.
    go: AtomicBool,
}

/// Counts a handler that runs, however it ends.
struct Runs<'a>(&'a AtomicU64);

impl<'a> Runs<'a> {
    fn new(streams: &'a Streams) -> Self {
        streams.running.fetch_add(1, Ordering::SeqCst);
        Self(&streams.running)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Streams {
    async fn count(
        &self,
        request: Request<'_, Number>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        let Number { value, ballast } = request.into_message();
        for value in 0..value {
            assert!(value != 13, "unlucky");
            out.send(Number { value, ballast: ballast.clone() }).await?;
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    async fn forever(
        &self,
        request: Request<'_, Number>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        let message = request.into_message();
        loop {
            out.send(&message).await?;
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn fail(&self, _: Request<'_, Number>, out: Outgoing<Number>) -> Result<(), Status> {
        for value in 0..3 {
            out.send(number(value)).await?;
        }
        Err(Status::aborted("as arranged").with_details(b"details"))
    }

    async fn sum(
        &self,
        request: Request<'_, Incoming<Number>>,
    ) -> Result<Response<Number>, Status> {
        let _runs = Runs::new(self);
        let (mut sum, mut numbers) = (0, request.into_message());
        while let Some(Number { value, .. }) = numbers.next().await? {
            if value == 0 {
                break;
            }
            sum += value;
        }
        Ok(Response::new(number(sum)))
    }

    async fn late(
        &self,
        request: Request<'_, Incoming<Number>>,
    ) -> Result<Response<Number>, Status> {
        std::future::poll_fn(|cx| match self.go.load(Ordering::SeqCst) {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
        self.sum(request).await
    }

    async fn double(
        &self,
        request: Request<'_, Incoming<Number>>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        let mut numbers = request.into_message();
        while let Some(Number { value, ballast }) = numbers.next().await? {
            if value == 13 {
                return Err(Status::out_of_range("unlucky"));
            }
            out.send(Number { value: value * 2, ballast }).await?;
        }
        Ok(())
    }
}

impl Service for Streams {
    const NAME: &'static str = "test.Streams";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.server_streaming(COUNT, &self, Self::count)?;
        routes.server_streaming(FOREVER, &self, Self::forever)?;
        routes.server_streaming(FAIL, &self, Self::fail)?;
        routes.client_streaming(SUM, &self, Self::sum)?;
        routes.client_streaming(LATE, &self, Self::late)?;
        routes.bidi_streaming(DOUBLE, &self, Self::double)
    }
}

struct Bed {
    streams: Arc<Streams>,
    session: Session<MemTransport>,
    client: Endpoint<MemTransport>,
    _server: Background,
}

impl Bed {
    fn new() -> Self {
        let (hub, streams) = (MemHub::new(), Arc::new(Streams::default()));
        let mut routes = Routes::new();
        Arc::clone(&streams).register(&mut routes).unwrap();
        Arc::new(Math::default()).register(&mut routes).unwrap();
        let server = Background::start(&hub, Arc::new(routes), None);
        let (client, session) = server.connect(&hub);
        Self { streams, session, client, _server: server }
    }

    /// Runs the client until `done`.
    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let start = Instant::now();
        self.client.run_until(|| done() || start.elapsed() > Duration::from_secs(20));
        assert!(done(), "{what}");
    }

    fn no_handler_runs(&self) {
        self.until("handlers end", || self.streams.running.load(Ordering::SeqCst) == 0);
    }
}

/// All that comes, and how it ends.
async fn all(mut numbers: Incoming<Number>) -> (Vec<u64>, Result<(), CallError>) {
    let mut values = Vec::new();
    loop {
        match numbers.next().await {
            Ok(Some(number)) => values.push(number.value),
            end => return (values, end.map(|_| ())),
        }
    }
}

fn filled(value: u64, len: usize) -> Number {
    Number { value, ballast: vec![0xEE; len] }
}

#[test]
fn a_server_streams() {
    let bed = Bed::new();
    for (count, size) in [(0, 0), (1, 0), (5, 10), (2_000, 100), (300, 5_000), (10, 100_000)] {
        let numbers = bed.session.server_streaming(&COUNT, &filled(count, size));
        if count > 13 {
            // The 13th panics: everything before it arrives.
            let (values, end) = bed.client.block_on(all(numbers));
            assert_eq!(values, (0..13).collect::<Vec<u64>>());
            assert!(
                matches!(end, Err(CallError::Status(status)) if status.code() == Code::Internal)
            );
        } else {
            assert_eq!(bed.client.block_on(all(numbers)), ((0..count).collect(), Ok(())));
        }
    }
    bed.no_handler_runs();
}

#[test]
fn a_client_streams() {
    let bed = Bed::new();
    for (count, size) in [(0, 0), (1, 0), (2_000, 100), (300, 5_000), (10, 100_000)] {
        let sum = bed.client.block_on(async {
            let upload = bed.session.client_streaming(&SUM);
            for value in 1..=count {
                upload.send(filled(value, size)).await?;
            }
            upload.finish().await
        });
        assert_eq!(sum, Ok(number(count * (count + 1) / 2)));
    }
    let early = bed.client.block_on(async {
        let upload = bed.session.client_streaming(&SUM);
        for value in [1, 2, 0, 3] {
            upload.send(number(value)).await?;
        }
        while !upload.is_closed() {
            upload.send(filled(5, 1_000)).await?;
        }
        upload.finish().await
    });
    assert_eq!(early, Ok(number(3)), "what comes behind the answer is dropped");
    bed.no_handler_runs();
}

#[test]
fn both_sides_stream() {
    let bed = Bed::new();
    // In step, and all at once.
    bed.client.block_on(async {
        let (out, mut doubles) = bed.session.bidi_streaming(&DOUBLE);
        for value in 20..520 {
            out.send(number(value)).await.unwrap();
            assert_eq!(doubles.next().await, Ok(Some(number(value * 2))));
        }
        drop(out);
        assert_eq!(doubles.next().await, Ok(None));
        assert_eq!(doubles.next().await, Ok(None), "and so on");
    });
    let (out, doubles) = bed.session.bidi_streaming(&DOUBLE);
    let sender = bed.client.spawn(async move {
        for value in 20..3_020 {
            out.send(filled(value, 500)).await?;
        }
        Ok::<(), CallError>(())
    });
    let doubles = bed.client.block_on(all(doubles));
    assert_eq!(doubles, ((20..3_020).map(|value| value * 2).collect(), Ok(())));
    assert_eq!(bed.client.block_on(sender), Ok(()));
    bed.no_handler_runs();
}

#[test]
fn a_status_ends_a_stream_behind_its_messages() {
    let bed = Bed::new();
    let numbers = bed.session.server_streaming(&FAIL, &number(0));
    let failed = Status::aborted("as arranged").with_details(b"details");
    let expected = (vec![0, 1, 2], Err(CallError::Status(failed)));
    assert_eq!(bed.client.block_on(all(numbers)), expected);
    bed.client.block_on(async {
        let (out, mut doubles) = bed.session.bidi_streaming(&DOUBLE);
        out.send(number(13)).await.unwrap();
        let unlucky = Err(CallError::Status(Status::out_of_range("unlucky")));
        assert_eq!(doubles.next().await, unlucky);
        assert!(out.is_closed());
        let ended = Err(CallError::Rejected(RejectReason::StreamEnded));
        assert_eq!(out.send(number(1)).await, ended);
        assert_eq!(doubles.next().await, Ok(None), "it is told once");
    });
    bed.no_handler_runs();
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer() {
    let bed = Bed::new();
    let mut numbers = bed.session.server_streaming(&FOREVER, &filled(7, 1_000));
    let sent = || bed.streams.sent.load(Ordering::SeqCst);
    bed.until("it starts", || sent() > 0);
    bed.client.run_for(Duration::from_millis(300));
    // Three batches at the client, as they come full, and one gathering at the server.
    let stalled = sent();
    assert!((60..=4 * 34).contains(&stalled), "{stalled} messages without a reader");
    bed.client.run_for(Duration::from_millis(100));
    assert_eq!(sent(), stalled, "and no more");
    for _ in 0..1_000 {
        assert!(bed.client.block_on(numbers.next()).unwrap().is_some());
    }
    bed.client.run_for(Duration::from_millis(300));
    let ahead = sent() - 1_000;
    assert!((30..=4 * 34).contains(&ahead), "{ahead} messages ahead of the reader");
    drop(numbers);
    bed.no_handler_runs();
}

#[test]
fn a_handler_that_does_not_read_stops_the_client() {
    let bed = Bed::new();
    let upload = bed.session.client_streaming(&LATE);
    let message = filled(1, 1_000);
    let mut sent = 0;
    let stall = Instant::now() + Duration::from_millis(300);
    while Instant::now() < stall {
        let mut sending = pin!(upload.send(&message));
        while sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
            && Instant::now() < stall
        {
            bed.client.run_once();
        }
        sent += 1;
    }
    // The last one was not.
    sent -= 1;
    // OPEN's batch, two pushes, one that gathers.
    assert!((64..=4 * 34).contains(&sent), "{sent} messages without a reader");
    bed.streams.go.store(true, Ordering::SeqCst);
    assert_eq!(bed.client.block_on(upload.finish()), Ok(number(sent)));
}

#[test]
fn dropping_an_end_ends_the_handler() {
    let bed = Bed::new();
    let running = || bed.streams.running.load(Ordering::SeqCst);
    let mut numbers = bed.session.server_streaming(&FOREVER, &number(0));
    assert!(bed.client.block_on(numbers.next()).unwrap().is_some());
    assert_eq!(running(), 1);
    drop(numbers);
    bed.no_handler_runs();
    let upload = bed.session.client_streaming(&SUM);
    bed.client.block_on(upload.send(number(1))).unwrap();
    bed.until("it starts", || running() == 1);
    drop(upload);
    bed.no_handler_runs();
    let (out, doubles) = bed.session.bidi_streaming(&DOUBLE);
    bed.client.block_on(out.send(number(1))).unwrap();
    bed.until("it starts", || running() == 1);
    drop(doubles);
    bed.no_handler_runs();
    assert!(out.is_closed());
}

#[test]
fn a_deadline_ends_a_stream_on_both_sides() {
    const BRIEF: Method<Number, Number> =
        Method::new("test.Streams/Forever").deadline(Duration::from_millis(100));
    let bed = Bed::new();
    let numbers = bed.session.server_streaming(&BRIEF, &filled(0, 1_000));
    let (values, end) = bed.client.block_on(all(numbers));
    assert!(!values.is_empty());
    // Which of the two depends on whether a batch was on its way just then.
    let (open, coming) = (CallError::MaybeExecuted, CallError::ResponseLost);
    let expected = [open(Cause::DeadlineExceeded), coming(Cause::DeadlineExceeded)];
    assert!(expected.map(Err).contains(&end), "{end:?}");
    bed.no_handler_runs();
}

#[test]
fn the_end_of_the_endpoint_ends_streams() {
    let bed = Bed::new();
    let (out, mut doubles) = bed.session.bidi_streaming(&DOUBLE);
    bed.client.block_on(out.send(number(1))).unwrap();
    assert_eq!(bed.client.block_on(doubles.next()), Ok(Some(number(2))));
    let mut numbers = bed.session.server_streaming(&FOREVER, &number(0));
    assert!(bed.client.block_on(numbers.next()).unwrap().is_some());
    bed.client.shutdown();
    let ended = Err(CallError::MaybeExecuted(Cause::Shutdown));
    assert_eq!(bed.client.block_on(all(numbers)).1, ended);
    assert_eq!(bed.client.block_on(out.send(number(1))), ended);
    assert_eq!(bed.client.block_on(all(doubles)).1, ended);
    let start = Instant::now();
    while bed.streams.running.load(Ordering::SeqCst) > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "handlers end with the session");
        std::thread::yield_now();
    }
}

#[test]
fn a_thousand_streams_use_one_session() {
    let bed = Bed::new();
    for count in 0..1_000 {
        let numbers = bed.session.server_streaming(&COUNT, &number(count % 13));
        assert_eq!(bed.client.block_on(all(numbers)), ((0..count % 13).collect(), Ok(())));
    }
    assert_eq!(bed.client.stats().unwrap().client_sessions, 2);
    let pool = bed.client.stats().unwrap().pool;
    assert!(pool.in_use <= 8, "{pool:?}");
}

#[test]
fn calls_and_streams_are_told_apart() {
    const PLAIN_COUNT: Method<Number, Number> = Method::new("test.Streams/Count");
    const STREAMED_DOUBLE: Method<Number, Number> = Method::new("test.Math/Double");
    let bed = Bed::new();
    let invalid = |error: Option<CallError>| {
        assert!(
            matches!(&error, Some(CallError::Status(status)) if status.code() == Code::InvalidArgument),
            "{error:?}"
        );
    };
    invalid(bed.client.block_on(bed.session.call(&PLAIN_COUNT, &number(1))).err());
    let streamed = bed.session.server_streaming(&STREAMED_DOUBLE, &number(1));
    invalid(bed.client.block_on(all(streamed)).1.err());
    const UNKNOWN: Method<Number, Number> = Method::new("test.Streams/Unknown");
    let (_, end) = bed.client.block_on(all(bed.session.server_streaming(&UNKNOWN, &number(1))));
    assert!(matches!(end, Err(CallError::Status(status)) if status.code() == Code::Unimplemented));
    // The session serves on.
    let numbers = bed.session.server_streaming(&COUNT, &number(2));
    assert_eq!(bed.client.block_on(all(numbers)), (vec![0, 1], Ok(())));
    assert_eq!(bed.client.stats().unwrap().client_sessions, 2);
}

#[test]
fn messages_have_the_limits_of_their_methods() {
    const SMALL: Method<Number, Number> =
        Method::new("test.Streams/Double").max_request(100).max_response(50);
    let bed = Bed::new();
    bed.client.block_on(async {
        let (out, mut doubles) = bed.session.bidi_streaming(&SMALL);
        let sent = out.send(filled(1, 200)).await;
        assert!(
            matches!(sent, Err(CallError::Rejected(RejectReason::TooLarge { limit: 100, .. }))),
            "{sent:?}"
        );
        out.send(filled(1, 20)).await.unwrap();
        assert_eq!(doubles.next().await, Ok(Some(filled(2, 20))), "the stream goes on");
        // The server does not know of the client's own limit.
        out.send(filled(1, 80)).await.unwrap();
        let lost = Err(CallError::ResponseLost(Cause::Malformed));
        assert_eq!(doubles.next().await, lost);
        assert_eq!(doubles.next().await, Ok(None));
    });
    bed.no_handler_runs();
}

#[test]
fn a_stream_on_a_channel_waits_for_a_server() {
    let hub = MemHub::new();
    let streams = Arc::new(Streams::default());
    let mut routes = Routes::new();
    Arc::clone(&streams).register(&mut routes).unwrap();
    let server = Background::start(&hub, Arc::new(routes), None);
    let client = crate::support::client(&hub);
    let channel = Channel::to(&client, vec![server.route]).build();
    let first = channel.server_streaming(&COUNT, &number(5));
    let (out, doubles) = channel.bidi_streaming(&DOUBLE);
    client.block_on(out.send(number(20))).unwrap();
    drop(out);
    assert_eq!(client.block_on(all(first)), ((0..5).collect(), Ok(())));
    assert_eq!(client.block_on(all(doubles)), (vec![40], Ok(())));
    let upload = channel.client_streaming(&SUM);
    client.block_on(upload.send(number(20))).unwrap();
    assert_eq!(client.block_on(upload.finish()), Ok(number(20)));
    // One for calls, two for the streams that ran side by side.
    assert_eq!(client.stats().unwrap().client_sessions, 3);
    drop(channel);
    let start = Instant::now();
    client.run_until(|| {
        let sessions = client.stats().map_or(0, |stats| stats.client_sessions);
        sessions == 0 || start.elapsed() > Duration::from_secs(20)
    });
    assert_eq!(client.stats().unwrap().client_sessions, 0, "its sessions end with it");
}

#[test]
fn a_stream_without_a_server_says_so() {
    let hub = MemHub::new();
    let nobody = crate::support::client(&hub).local_route().unwrap();
    let config = EndpointConfig::new().connect_timeout(Duration::from_millis(50));
    let client = Endpoint::new(hub.port(MemConfig::default()), config).unwrap();
    let channel = Channel::to(&client, vec![nobody]).build();
    let (values, end) = client.block_on(all(channel.server_streaming(&COUNT, &number(5))));
    assert!(values.is_empty() && matches!(end, Err(CallError::NotExecuted(_))), "{end:?}");
    let patient = CallOptions::new().wait_for_ready(true).deadline(Duration::from_millis(150));
    let stream = channel.with(patient).server_streaming(&COUNT, &number(5));
    let late = Err(CallError::NotExecuted(Cause::DeadlineExceeded));
    assert_eq!(client.block_on(all(stream)), (vec![], late));
}
