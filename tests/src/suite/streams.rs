//! Streams of all kinds: through losses, next to calls, and when the server ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use erpc::service::{Method, MethodCollision, Mode, Routes};
use erpc::transport::fault::{FaultPlan, Faults, Faulty};
use erpc::{
    CallError, Cause, Endpoint, EndpointConfig, Incoming, JoinHandle, Metadata, Outgoing, Request,
    Response, Service, Session, Status, Transport, join_all,
};
use erpc_test_tools::data::bytes_of;
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::random::Random;

use super::{Network, Side};

type Bytes = Vec<u8>;

/// Sends the request back.
pub const ECHO: Method<Bytes, Bytes> = Method::new("test.Streams/Echo");
/// The request is the number of messages that the server sends. Message `n` of the stream is
/// [`message(n)`](message).
const DOWN: Method<String, Bytes> = Method::new("test.Streams/Down");
/// Answers with the number of messages, if each is right.
const UP: Method<Bytes, u64> = Method::new("test.Streams/Up");
/// The server sends each message back.
const BOTH: Method<Bytes, Bytes> = Method::new("test.Streams/Both");
/// The server sends no message. The stream lasts until the client cancels it or disconnects.
pub const IDLE: Method<u64, u64> = Method::new("test.Streams/Idle");

/// Message `number` of all streams. Most are small, some need several packets.
fn message(number: u64) -> Bytes {
    let len = Random::new(number).below_one_of(&[(160, 100), (39, 5_000), (1, 100_000)]);
    bytes_of(number, len as usize).to_vec()
}

#[derive(Debug, Default)]
struct Streams {
    /// Number of running handlers of [`IDLE`].
    idle: AtomicU64,
    /// The metadata `tag` of the last call of [`DOWN`].
    tag: Mutex<Bytes>,
}

struct Runs<'a>(&'a AtomicU64);

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Streams {
    fn echo(&self, request: Request<'_, Bytes>) -> Result<Response<Bytes>, Status> {
        Ok(Response::new(request.into_message()))
    }

    async fn down(&self, request: Request<'_, String>, out: Outgoing<Bytes>) -> Result<(), Status> {
        *self.tag.lock().expect("no thread panicked") =
            request.metadata().get("tag").unwrap_or_default().to_vec();
        let count: u64 =
            request.message().parse().map_err(|_| Status::invalid_argument("count"))?;
        for number in 0..count {
            out.send(message(number)).await?;
        }
        Ok(())
    }

    async fn up(&self, request: Request<'_, Incoming<Bytes>>) -> Result<Response<u64>, Status> {
        let (mut messages, mut number) = (request.into_message(), 0);
        while let Some(got) = messages.next().await? {
            if got != message(number) {
                return Err(Status::invalid_argument(format!("message {number} is wrong")));
            }
            number += 1;
        }
        Ok(Response::new(number))
    }

    async fn both(
        &self,
        request: Request<'_, Incoming<Bytes>>,
        out: Outgoing<Bytes>,
    ) -> Result<(), Status> {
        let mut messages = request.into_message();
        while let Some(message) = messages.next().await? {
            out.send(message).await?;
        }
        Ok(())
    }

    async fn idle(&self, _: Request<'_, u64>, _out: Outgoing<u64>) -> Result<(), Status> {
        self.idle.fetch_add(1, Ordering::SeqCst);
        let _runs = Runs(&self.idle);
        std::future::pending().await
    }
}

impl Service for Streams {
    const NAME: &'static str = "test.Streams";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(ECHO, Mode::Dispatch, &self, Self::echo)?;
        routes.server_streaming(DOWN, &self, Self::down)?;
        routes.client_streaming(UP, &self, Self::up)?;
        routes.bidi_streaming(BOTH, &self, Self::both)?;
        routes.server_streaming(IDLE, &self, Self::idle)
    }
}

/// A server of streams.
#[derive(Debug)]
pub struct Server<T: Transport> {
    side: Side<T>,
    streams: Arc<Streams>,
}

impl<T: Transport + Send> Server<T> {
    /// Starts the server.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start<N: Network<Transport = T>>(network: &N) -> Self {
        let streams: Arc<Streams> = Arc::default();
        let transport = network.server(network.address());
        Self { side: Side::start_with(transport, Arc::clone(&streams), config()), streams }
    }

    /// Number of running handlers of [`IDLE`].
    pub fn idle(&self) -> u64 {
        self.streams.idle.load(Ordering::SeqCst)
    }
}

fn config() -> EndpointConfig {
    EndpointConfig::new().ping_interval(millis(200)).liveness_timeout(secs(2))
}

/// A client of `server`.
///
/// # Panics
/// If the configuration is wrong.
pub fn connect<N: Network>(
    network: &N,
    server: &Server<N::Transport>,
) -> (Endpoint<N::Transport>, Session<N::Transport>) {
    let endpoint = Endpoint::new(network.client(), config()).expect("the configuration is valid");
    let session = endpoint.open(server.side.route());
    (endpoint, session)
}

async fn take_down<T: Transport>(session: &Session<T>, count: u64) {
    let mut messages = session.server_streaming(&DOWN, &count.to_string());
    for number in 0..count {
        let got = messages.next().await.expect("the stream goes on");
        assert!(got == Some(message(number)), "message {number} of {count}");
    }
    assert_eq!(messages.next().await, Ok(None));
}

async fn send_up<T: Transport>(session: &Session<T>, count: u64) {
    let upload = session.client_streaming(&UP);
    for number in 0..count {
        upload.send(message(number)).await.expect("the stream goes on");
    }
    assert_eq!(upload.finish().await, Ok(count));
}

/// Sends messages from one task and reads them back in another. `spawn` starts the task that sends.
async fn send_both<T: Transport>(
    session: Session<T>,
    count: u64,
    spawn: impl Fn(Sending) -> JoinHandle<()>,
) {
    let (out, mut messages) = session.bidi_streaming(&BOTH);
    let sent = spawn(Box::pin(async move {
        for number in 0..count {
            out.send(message(number)).await.expect("the stream goes on");
        }
    }));
    for number in 0..count {
        let got = messages.next().await.expect("the stream goes on");
        assert!(got == Some(message(number)), "message {number} of {count}");
    }
    assert_eq!(messages.next().await, Ok(None));
    sent.await;
}

type Sending = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// Six streams at once, of three kinds.
pub fn every_message_arrives_once_and_in_order_despite_losses<N: Network>() {
    within(secs(120), || {
        let network = N::new();
        let server = Server::start(&network);
        for seed in 0..4 {
            let plan =
                FaultPlan::new(seed).both(Faults::none().drop(0.05).duplicate(0.05, 1, millis(1)));
            let endpoint = Endpoint::new(Faulty::new(network.client(), plan), config());
            let endpoint = endpoint.expect("the configuration is valid");
            let session = endpoint.open(server.side.route());
            let streams = (0..6).map(|stream| {
                let (session, own) = (session.clone(), endpoint.clone());
                endpoint.spawn(async move {
                    for round in 0..3 {
                        match (stream + round) % 3 {
                            0 => take_down(&session, 300).await,
                            1 => send_up(&session, 300).await,
                            _ => send_both(session.clone(), 300, |task| own.spawn(task)).await,
                        }
                    }
                })
            });
            let streams: Vec<_> = streams.collect();
            endpoint.block_on(join_all(streams));
            // The count includes sessions of ended streams, which stay until their last push is
            // answered.
            assert!(endpoint.stats().expect("called outside of the loop").client_sessions <= 17);
            endpoint.shutdown();
        }
    });
}

/// Streams of zero to two messages.
pub fn ten_thousand_short_streams_share_a_few_sessions<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = Server::start(&network);
        let (endpoint, session) = connect(&network, &server);
        endpoint.block_on(async {
            for stream in 0..2_500u64 {
                let take = |other: u64| Box::pin(take_down(&session, (stream + other) % 3));
                join_all((0..4).map(take)).await;
            }
        });
        let stats = endpoint.stats().expect("called outside of the loop");
        assert_eq!(stats.client_sessions, 5);
        assert!(stats.pool.in_use <= 5 * 8, "{:?}", stats.pool);
    });
}

/// The handler reads it.
pub fn a_stream_carries_metadata<N: Network>() {
    let network = N::new();
    let server = Server::start(&network);
    let (endpoint, session) = connect(&network, &server);
    let mut metadata = Metadata::new();
    metadata.insert("tag", b"seven").expect("the metadata has room");
    let options = erpc::CallOptions::new().metadata(metadata);
    let channel = erpc::Channel::from(session).with(options);
    let mut messages = channel.server_streaming(&DOWN, &"1".to_owned());
    assert!(endpoint.block_on(messages.next()).expect("the stream works").is_some());
    assert_eq!(*server.streams.tag.lock().expect("no thread panicked"), b"seven");
}

/// Streams in both directions, idle and busy.
pub fn streams_fail_when_their_server_ends<N: Network>() {
    within(secs(30), || {
        let network = N::new();
        let server = Server::start(&network);
        let (endpoint, session) = connect(&network, &server);
        let mut idle = session.server_streaming(&IDLE, &0);
        endpoint.run_until(|| server.idle() == 1);
        let (out, mut messages) = session.bidi_streaming(&BOTH);
        endpoint.block_on(out.send(message(0))).expect("the stream works");
        assert!(endpoint.block_on(messages.next()).expect("the stream works").is_some());
        server.side.stop();
        let ended = endpoint.block_on(idle.next());
        let closed = |error: &CallError| {
            matches!(error, CallError::MaybeExecuted(Cause::PeerClosed | Cause::PeerReset))
        };
        assert!(ended.as_ref().is_err_and(closed), "{ended:?}");
        let ended = endpoint.block_on(messages.next());
        assert!(ended.as_ref().is_err_and(closed), "{ended:?}");
        let sent = endpoint.block_on(out.send(message(1)));
        assert!(sent.is_err(), "{sent:?}");
    });
}

/// Ten idle handlers.
pub fn handlers_end_when_their_client_ends<N: Network>() {
    within(secs(30), || {
        let network = N::new();
        let server = Server::start(&network);
        let (endpoint, session) = connect(&network, &server);
        let streams: Vec<_> = (0..10).map(|_| session.server_streaming(&IDLE, &0)).collect();
        endpoint.run_until(|| server.idle() == 10);
        drop((endpoint, session, streams));
        while server.idle() > 0 {
            thread::yield_now();
        }
    });
}
