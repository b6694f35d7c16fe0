//! Streams compared with calls: the same messages over UDP, as calls and as items of streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use erpc::service::{Method, MethodCollision, Mode, Routes};
use erpc::{
    CallError, Endpoint, IdlePolicy, Incoming, Outgoing, Request, Response, Server, Service,
    Session, Status, join_all,
};

use crate::failure::Failure;
use crate::machine;
use crate::report::{Latencies, Line};

#[derive(Args)]
pub(crate) struct StreamArgs {
    /// Bytes of a message
    #[arg(long, default_value_t = 32)]
    size: usize,
    /// Seconds for each of the four measurements
    #[arg(long, default_value_t = 2.0, value_parser = machine::seconds)]
    secs: f64,
    /// The client's core
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// The server's core
    #[arg(long, default_value_t = 1)]
    server_core: usize,
}

/// Calls in flight.
const WINDOW: usize = 64;

/// Messages between two checks of the clock.
const ROUND: u64 = 256;

type Message = Vec<u8>;

const ECHO: Method<Message, Message> = Method::new("bench.Streams/Echo");
const DOWN: Method<Message, Message> = Method::new("bench.Streams/Down");
const ONE: Method<Message, Message> = Method::new("bench.Streams/One");
const UP: Method<Message, u64> = Method::new("bench.Streams/Up");

struct Streams;

impl Streams {
    fn echo(&self, request: Request<'_, Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(request.into_message()))
    }

    /// Sends the request repeatedly until the client cancels.
    async fn down(
        &self,
        request: Request<'_, Message>,
        out: Outgoing<Message>,
    ) -> Result<(), Status> {
        loop {
            out.send(request.message()).await?;
        }
    }

    /// Sends the request once.
    async fn one(
        &self,
        request: Request<'_, Message>,
        out: Outgoing<Message>,
    ) -> Result<(), Status> {
        Ok(out.send(request.into_message()).await?)
    }

    /// Answers with the number of messages.
    async fn up(&self, request: Request<'_, Incoming<Message>>) -> Result<Response<u64>, Status> {
        let (mut messages, mut count) = (request.into_message(), 0);
        while messages.next().await?.is_some() {
            count += 1;
        }
        Ok(Response::new(count))
    }
}

impl Service for Streams {
    const NAME: &'static str = "bench.Streams";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(ECHO, Mode::Dispatch, &self, Self::echo)?;
        routes.server_streaming(DOWN, &self, Self::down)?;
        routes.server_streaming(ONE, &self, Self::one)?;
        routes.client_streaming(UP, &self, Self::up)
    }
}

pub(crate) fn run(args: &StreamArgs) -> Result<(), Failure> {
    let server = Server::builder()
        .add_service(Streams)
        .threads(1)
        .core(args.server_core)
        .idle(IdlePolicy::Spin)
        .spawn("127.0.0.1:0")
        .map_err(Failure::of("no server"))?;
    machine::pin(args.core)?;
    let endpoint = Endpoint::udp().map_err(Failure::of("no endpoint"))?;
    endpoint.set_idle_policy(IdlePolicy::Spin);
    let session = endpoint.connect(server.local_addr()).map_err(Failure::of("cannot connect"))?;
    let message = vec![0xEE; args.size];
    let duration = Duration::from_secs_f64(args.secs);
    let figures = endpoint.block_on(measure(&session, &message, duration));
    let figures = figures.map_err(Failure::of("a call or a stream failed"))?;
    let mb = |rate: f64| rate * args.size as f64 / 1e6;
    let micros = |latencies: &Latencies| latencies.micros(0.5).unwrap_or(f64::NAN);
    let Figures { calls, down, up, call, one } = figures;
    eprintln!(
        "{calls:.0} calls/s, {down:.0} messages/s down and {up:.0} up; a call takes {:.1} us, a stream of one {:.1} us",
        micros(&call),
        micros(&one),
    );
    Line::new()
        .int("size", args.size as u64)
        .number("calls_per_s", Some(calls))
        .number("items_per_s", Some(down))
        .number("mb_per_s", Some(mb(down)))
        .number("up_items_per_s", Some(up))
        .number("up_mb_per_s", Some(mb(up)))
        .number("call_rtt_us", call.micros(0.5))
        .number("first_item_us", one.micros(0.5))
        .print();
    Ok(())
}

struct Figures {
    /// Calls per second, with [`WINDOW`] in flight.
    calls: f64,
    /// Messages per second of one stream from the server.
    down: f64,
    /// Messages per second of one stream from the client.
    up: f64,
    /// Latencies of calls in sequence.
    call: Latencies,
    /// Latencies from the start of a stream to its first message. The streams run in sequence, and
    /// each has one message.
    one: Latencies,
}

async fn measure(
    session: &Session,
    message: &Message,
    duration: Duration,
) -> Result<Figures, CallError> {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < duration {
        let calls = (0..WINDOW).map(|_| session.call(&ECHO, message));
        for answer in join_all(calls).await {
            count += u64::from(answer?.len() == message.len());
        }
    }
    let calls = count as f64 / start.elapsed().as_secs_f64();

    let mut messages = session.server_streaming(&DOWN, message);
    let (start, mut count) = (Instant::now(), 0);
    while count % ROUND != 0 || start.elapsed() < duration {
        count += u64::from(messages.next().await?.is_some());
    }
    let down = count as f64 / start.elapsed().as_secs_f64();
    drop(messages);

    let upload = session.client_streaming(&UP);
    let (start, mut count) = (Instant::now(), 0u64);
    while count % ROUND != 0 || start.elapsed() < duration {
        upload.send(message).await?;
        count += 1;
    }
    assert_eq!(upload.finish().await?, count, "every message arrives");
    let up = count as f64 / start.elapsed().as_secs_f64();

    let (mut call, mut one) = (Latencies::new(), Latencies::new());
    let start = Instant::now();
    while start.elapsed() < duration {
        let sent = Instant::now();
        session.call(&ECHO, message).await?;
        let answered = Instant::now();
        call.record((answered - sent).as_nanos() as u64);
        let mut messages = session.server_streaming(&ONE, message);
        messages.next().await?;
        one.record(answered.elapsed().as_nanos() as u64);
        messages.next().await?;
    }
    Ok(Figures { calls, down, up, call, one })
}
