//! Streams over memory, in virtual time.

mod ends;
mod flow;
mod shared;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use erpc_core::protocol::{CallError, EndpointConfig, RejectReason};
use erpc_core::service::{
    Incoming, Method, MethodCollision, Outgoing, Request, Response, Routes, Service,
};
use erpc_core::status::Status;

use crate::support::{Math, Number, number};
use crate::test_bed::TestBed;

/// Sends the numbers from 0 to the request's value, exclusive, each with the request's ballast.
const COUNT: Method<Number, Number> = Method::new("test.Streams/Count");
/// Counts like [`COUNT`], but the server's limit for a message is 50 bytes.
const TIGHT: Method<Number, Number> = Method::new("test.Streams/Tight");
/// Counts, then panics after the last number.
const PANIC: Method<Number, Number> = Method::new("test.Streams/Panic");
/// Sends the request's message forever.
const FOREVER: Method<Number, Number> = Method::new("test.Streams/Forever");
/// Sends three numbers and fails.
const FAIL: Method<Number, Number> = Method::new("test.Streams/Fail");
/// Adds up numbers until the end or a 0. Answers with the sum and the request's metadata.
const SUM: Method<Number, Number> = Method::new("test.Streams/Sum");
/// Reads nothing until the test allows it, then sums.
const LATE: Method<Number, Number> = Method::new("test.Streams/Late");
/// Sends each number's double; fails if one is 13.
const DOUBLE: Method<Number, Number> = Method::new("test.Streams/Double");
/// Answers each number with a message of that many bytes. If that is too large, the message has 100
/// bytes less than the limit.
const GROW: Method<Number, Number> = Method::new("test.Streams/Grow");
/// Sends one number and waits forever.
const MUTE: Method<Number, Number> = Method::new("test.Streams/Mute");

/// State of the handlers that tests read and set.
#[derive(Default)]
struct Streams {
    /// Number of messages that handlers have sent.
    sent: AtomicU64,
    /// Number of running handlers.
    running: AtomicU64,
    /// Whether [`LATE`] may read.
    go: AtomicBool,
}

/// Counts as a running handler until it is dropped.
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
            out.send(Number { value, ballast: ballast.clone() }).await?;
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    async fn panic(
        &self,
        request: Request<'_, Number>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        self.count(request, out).await?;
        panic!("after the last number")
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
        Err(Status::aborted("the test's status").with_details(b"details"))
    }

    async fn sum(
        &self,
        request: Request<'_, Incoming<Number>>,
    ) -> Result<Response<Number>, Status> {
        let _runs = Runs::new(self);
        let metadata = request.metadata().to_owned();
        let (mut sum, mut numbers) = (0, request.into_message());
        while let Some(Number { value, .. }) = numbers.next().await? {
            if value == 0 {
                break;
            }
            sum += value;
        }
        Ok(Response::new(number(sum)).with_metadata(metadata))
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
                return Err(Status::out_of_range("13 is refused"));
            }
            out.send(Number { value: value * 2, ballast }).await?;
        }
        Ok(())
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

impl Service for Streams {
    const NAME: &'static str = "test.Streams";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.server_streaming(COUNT, &self, Self::count)?;
        routes.server_streaming(TIGHT.max_response(50), &self, Self::count)?;
        routes.server_streaming(PANIC, &self, Self::panic)?;
        routes.server_streaming(FOREVER, &self, Self::forever)?;
        routes.server_streaming(FAIL, &self, Self::fail)?;
        routes.client_streaming(SUM, &self, Self::sum)?;
        routes.client_streaming(LATE, &self, Self::late)?;
        routes.bidi_streaming(DOUBLE, &self, Self::double)?;
        routes.bidi_streaming(GROW, &self, Self::grow)?;
        routes.bidi_streaming(MUTE, &self, Self::mute)
    }
}

/// A test bed that serves [`Streams`].
struct StreamBed {
    bed: TestBed,
    streams: Arc<Streams>,
}

impl StreamBed {
    fn new() -> Self {
        Self::with(EndpointConfig::new(), EndpointConfig::new())
    }

    fn with(client: EndpointConfig, server: EndpointConfig) -> Self {
        let streams = Arc::new(Streams::default());
        let mut routes = Routes::new();
        Arc::clone(&streams).register(&mut routes).unwrap();
        Arc::new(Math::default()).register(&mut routes).unwrap();
        Self { bed: TestBed::with(routes, client, server), streams }
    }

    fn running(&self) -> u64 {
        self.streams.running.load(Ordering::SeqCst)
    }

    fn no_handler_runs(&self) {
        self.until("handlers end", || self.running() == 0);
    }
}

impl Deref for StreamBed {
    type Target = TestBed;

    fn deref(&self) -> &TestBed {
        &self.bed
    }
}

/// Reads all messages. Returns their values and the end of the stream.
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
