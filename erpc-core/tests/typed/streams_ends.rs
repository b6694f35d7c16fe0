//! How streams end when something else does: their endpoint, their time, a message that is too large.
//! In virtual time.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use erpc_core::protocol::{CallError, Cause, EndpointConfig, RejectReason};
use erpc_core::runtime::{CallOptions, Channel, Endpoint, Session};
use erpc_core::service::{Incoming, Method, Outgoing, Request, Response, Routes, Status};
use erpc_core::time::Instant;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};

use crate::support::{Number, number};

/// Counts from 0 to the request's value, with its ballast.
const COUNT: Method<Number, Number> = Method::new("test.Ends/Count");
/// Adds numbers up.
const SUM: Method<Number, Number> = Method::new("test.Ends/Sum");
/// Answers with as much ballast as the number says.
const GROW: Method<Number, Number> = Method::new("test.Ends/Grow");
/// Sends one number and waits for ever.
const MUTE: Method<Number, Number> = Method::new("test.Ends/Mute");

const CLIENT: MemRoute = MemRoute::new(1);
const SERVER: MemRoute = MemRoute::new(2);

#[derive(Default)]
struct Ends {
    /// Handlers that run.
    running: AtomicU64,
}

/// Counts a handler that runs, however it ends.
struct Runs<'a>(&'a AtomicU64);

impl<'a> Runs<'a> {
    fn new(ends: &'a Ends) -> Self {
        ends.running.fetch_add(1, Ordering::SeqCst);
        Self(&ends.running)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ends {
    async fn count(
        &self,
        request: Request<'_, Number>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        let Number { value, ballast } = request.into_message();
        for value in 0..value {
            out.send(Number { value, ballast: ballast.clone() }).await?;
        }
        Ok(())
    }

    async fn sum(
        &self,
        request: Request<'_, Incoming<Number>>,
    ) -> Result<Response<Number>, Status> {
        let _runs = Runs::new(self);
        let (mut sum, mut numbers) = (0, request.into_message());
        while let Some(Number { value, .. }) = numbers.next().await? {
            sum += value;
        }
        Ok(Response::new(number(sum)))
    }

    async fn grow(
        &self,
        request: Request<'_, Incoming<Number>>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        let mut numbers = request.into_message();
        while let Some(Number { value, .. }) = numbers.next().await? {
            let sent = out.send(filled(value, value as usize)).await;
            if let Err(CallError::Rejected(RejectReason::TooLarge { limit, .. })) = sent {
                out.send(filled(value, limit - 100)).await?;
            }
        }
        Ok(())
    }

    async fn mute(
        &self,
        request: Request<'_, Incoming<Number>>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        let _numbers = request.into_message();
        out.send(number(1)).await?;
        std::future::pending().await
    }
}

fn filled(value: u64, len: usize) -> Number {
    Number { value, ballast: vec![7; len] }
}

/// A client and a server on one thread.
struct Bed {
    hub: MemHub,
    now: Cell<Instant>,
    client: RefCell<Option<Endpoint<MemTransport>>>,
    server: Endpoint<MemTransport>,
    ends: Arc<Ends>,
}

impl Bed {
    fn new() -> Self {
        Self::with(EndpointConfig::new(), EndpointConfig::new())
    }

    fn with(client: EndpointConfig, server: EndpointConfig) -> Self {
        let (hub, ends) = (MemHub::new(), Arc::new(Ends::default()));
        let start = Instant::from_nanos(1_000_000);
        let endpoint = |route, config: EndpointConfig| {
            let port = hub.port_at(route, MemConfig::default()).unwrap();
            let endpoint = Endpoint::new(port, config).unwrap();
            endpoint.run_once_at(start);
            endpoint
        };
        let (client, server) = (endpoint(CLIENT, client.seed(1)), endpoint(SERVER, server.seed(2)));
        let mut routes = Routes::new();
        routes.server_streaming(COUNT, &ends, Ends::count).unwrap();
        routes.client_streaming(SUM, &ends, Ends::sum).unwrap();
        routes.bidi_streaming(GROW, &ends, Ends::grow).unwrap();
        routes.bidi_streaming(MUTE, &ends, Ends::mute).unwrap();
        server.listen();
        assert!(server.serve(Arc::new(routes), None));
        Self { hub, now: Cell::new(start), client: RefCell::new(Some(client)), server, ends }
    }

    fn turn(&self) {
        let now = self.now.get().plus_nanos(2_000);
        self.now.set(now);
        let client = self.client.borrow().clone();
        let all = || client.iter().chain([&self.server]);
        let work: usize = all().map(|endpoint| endpoint.run_once_at(now)).sum();
        if work == 0 {
            let next = all().map(Endpoint::next_deadline).min().unwrap();
            self.now.set(now.max(next.min(now + Duration::from_millis(100))));
        }
    }

    fn run_for(&self, time: Duration) {
        let end = self.now.get() + time;
        while self.now.get() < end {
            self.turn();
        }
    }

    /// Runs until the future is done, for at most a minute.
    fn wait<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let end = self.now.get() + Duration::from_secs(60);
        loop {
            if let Poll::Ready(output) = poll(future.as_mut()) {
                return output;
            }
            assert!(self.now.get() < end, "it does not come to pass");
            self.turn();
        }
    }

    fn session(&self) -> Session<MemTransport> {
        let client = self.client.borrow().clone().unwrap();
        self.wait(client.connect_async(SERVER)).unwrap()
    }

    fn running(&self) -> u64 {
        self.ends.running.load(Ordering::SeqCst)
    }

    /// Lets the client's endpoint go.
    fn end_client(&self) {
        drop(self.client.take());
    }

    /// The client's port is free again when nothing holds its endpoint any more.
    fn client_is_gone(&self) -> bool {
        self.hub.port_at(CLIENT, MemConfig::default()).is_ok()
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_stream_that_outlives_its_endpoint_does_not_keep_it() {
    let bed = Bed::new();
    let session = bed.session();
    let mut numbers = session.server_streaming(&COUNT, &filled(1_000_000, 1_000));
    assert!(bed.wait(numbers.next()).unwrap().is_some());
    bed.end_client();
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
fn a_stream_that_is_begun_when_the_endpoint_has_ended_says_so_and_does_not_keep_it() {
    let bed = Bed::new();
    let session = bed.session();
    bed.end_client();
    let mut numbers = session.server_streaming(&COUNT, &number(3));
    let end = poll(pin!(numbers.next()));
    assert_eq!(end, Poll::Ready(Err(CallError::NotExecuted(Cause::Shutdown))));
    let (out, numbers_back) = session.bidi_streaming(&GROW);
    let sent = poll(pin!(out.send(number(1))));
    assert_eq!(sent, Poll::Ready(Err(CallError::NotExecuted(Cause::Shutdown))));
    drop((numbers, out, numbers_back, session));
    assert!(bed.client_is_gone());
}

thread_local! {
    static OTHER_HALF: RefCell<Option<Outgoing<Number>>> = RefCell::default();
}

/// Drops a stream's other half when it is dropped.
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
    let bed = Bed::new();
    let session = bed.session();
    let (out, mut numbers) = session.bidi_streaming(&GROW);
    OTHER_HALF.set(Some(out));
    let waker = Waker::from(Arc::new(Bomb));
    assert!(pin!(numbers.next()).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    // Somebody else reads now; the first one's waker is dropped.
    assert!(poll(pin!(numbers.next())).is_pending());
    assert_eq!(bed.wait(numbers.next()), Ok(None));
}

/// What the other side takes, in the tests of that.
const LIMIT: u32 = 8_192;

fn limited() -> EndpointConfig {
    EndpointConfig::new().max_message(LIMIT)
}

#[test]
fn small_messages_do_not_gather_into_a_call_that_the_server_refuses() {
    let bed = Bed::with(EndpointConfig::new(), limited());
    let session = bed.session();
    for round in 0..2 {
        // On a session that is being opened, and on one that is open.
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
fn small_messages_do_not_gather_into_a_response_that_the_client_refuses() {
    let bed = Bed::with(limited(), EndpointConfig::new());
    let session = bed.session();
    let mut numbers = session.server_streaming(&COUNT, &filled(100, 1_000));
    for value in 0..100 {
        assert_eq!(bed.wait(numbers.next()), Ok(Some(filled(value, 1_000))));
    }
    assert_eq!(bed.wait(numbers.next()), Ok(None));
}

#[test]
fn a_message_that_the_server_does_not_take_is_refused_and_the_stream_goes_on() {
    let bed = Bed::with(EndpointConfig::new(), limited());
    let session = bed.session();
    // The first one is so large, and waits until it is known what the server takes.
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
    // As large as it says.
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
fn a_message_that_the_client_does_not_take_is_refused_and_the_stream_goes_on() {
    let bed = Bed::with(limited(), EndpointConfig::new());
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
fn a_large_message_waits_for_a_channel_to_find_its_server() {
    let bed = Bed::with(EndpointConfig::new(), limited());
    let client = bed.client.borrow().clone().unwrap();
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
fn a_deadline_ends_a_stream_that_nobody_reads() {
    let bed = Bed::new();
    let options = CallOptions::new().deadline(Duration::from_millis(10));
    let channel = Channel::from(bed.session()).with(options);
    let mut numbers = channel.server_streaming(&COUNT, &filled(1_000_000, 1_000));
    assert!(bed.wait(numbers.next()).unwrap().is_some());
    assert_eq!(bed.running(), 1);
    bed.run_for(Duration::from_millis(20));
    assert_eq!(bed.running(), 0, "the handler was told, although no call is on its way");
    // What had come is still there.
    let end = loop {
        match bed.wait(numbers.next()) {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert_eq!(end, Err(CallError::MaybeExecuted(Cause::DeadlineExceeded)));
    drop(numbers);
    // The session serves the next one.
    let patient = channel.with(CallOptions::new().deadline(Duration::from_secs(60)));
    let mut numbers = patient.server_streaming(&COUNT, &number(1));
    assert_eq!(bed.wait(numbers.next()), Ok(Some(number(0))));
    assert_eq!(bed.wait(numbers.next()), Ok(None));
    drop((numbers, patient, channel));
    bed.end_client();
    assert!(bed.client_is_gone());
}

#[test]
fn a_handler_ends_at_its_deadline_although_its_client_has_fallen_silent() {
    let bed = Bed::new();
    let options = CallOptions::new().deadline(Duration::from_millis(10));
    let channel = Channel::from(bed.session()).with(options);
    let (_out, mut numbers) = channel.bidi_streaming(&MUTE);
    assert_eq!(bed.wait(numbers.next()), Ok(Some(number(1))));
    assert_eq!(bed.running(), 1);
    let silent = bed.client.take();
    bed.run_for(Duration::from_millis(20));
    assert_eq!(bed.running(), 0);
    drop(silent);
}
