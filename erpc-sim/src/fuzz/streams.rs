//! Fuzz targets of streams: the frames, and a client that sends anything to a server with streaming
//! handlers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::endpoint::Endpoint;
use erpc_core::event_loop::{App, Context, Rpc};
use erpc_core::protocol::{
    CallError, Cause, EndpointConfig, NewCall, Reply, Request as RawRequest, SessionEvent,
    SessionId,
};
use erpc_core::service::{Incoming, Method, Outgoing, Request, Routes};
use erpc_core::status::Status;
use erpc_core::stream::{self, Batch, FRAME_HEAD, Items, StreamOp};
use erpc_core::time::Instant;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc_core::wire::extension::{Extension, put_extension};

use super::input::Input;
use super::steps::streams::{CALL, CANCEL, LEAP, RAW, RECONNECT, TURN};
use super::{MEMORY, seed_of};

/// Fuzzes the parsers of frames. `data` is the extension's `op`, and the frame of a stream's call
/// or of the reply to it.
///
/// # Panics
/// Panics if the items differ from the announced ones, or do not encode to the same bytes.
pub fn stream_frame(data: &[u8]) {
    let Some((&op, frame)) = data.split_first() else { return };
    if let Ok(request) = stream::StreamRequest::parse(op, frame) {
        assert_eq!(request.ask.op(request.end), op);
        assert_eq!(request.items.to, frame.len());
        assert!(request.items.count == 0 || request.ask.has_items());
        items(frame, request.items);
    }
    match stream::StreamReply::parse(op, frame) {
        Ok(stream::StreamReply::Items { items: found, end, .. }) => {
            assert_eq!(end.is_some(), op & 0x80 != 0);
            items(frame, found);
        }
        Ok(stream::StreamReply::Empty { .. }) => assert!(frame.is_empty()),
        Err(_) => {}
    }
}

fn items(frame: &[u8], items: Items) {
    let Some(mut message) = MsgBuf::detached(frame.len()) else { return };
    message.put_slice(frame);
    let mut batch = Batch::new(message, 0, items);
    let mut again = frame[..FRAME_HEAD].to_vec();
    for left in (0..items.count).rev() {
        let item = batch.next_item().expect("as many items as were announced");
        again.put_u32_le(item.len() as u32);
        again.put_slice(item);
        assert_eq!(batch.left(), left);
    }
    assert!(batch.next_item().is_none());
    assert_eq!(again, frame[..items.to], "the frame contains only the items");
}

const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("fuzz.Streams/Echo");
const COUNT: Method<Vec<u8>, Vec<u8>> = Method::new("fuzz.Streams/Count");
const HOLD: Method<Vec<u8>, Vec<u8>> = Method::new("fuzz.Streams/Hold");

struct Handlers {
    /// The number of running handlers.
    running: AtomicU64,
}

struct Runs<'a>(&'a AtomicU64);

impl<'a> Runs<'a> {
    fn new(handlers: &'a Handlers) -> Self {
        handlers.running.fetch_add(1, Ordering::Relaxed);
        Self(&handlers.running)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Handlers {
    async fn echo(
        &self,
        request: Request<'_, Incoming<Vec<u8>>>,
        out: Outgoing<Vec<u8>>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        let mut messages = request.into_message();
        while let Some(message) = messages.next().await? {
            out.send(message).await?;
        }
        Ok(())
    }

    async fn count(
        &self,
        request: Request<'_, Vec<u8>>,
        out: Outgoing<Vec<u8>>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        for _ in request.message() {
            out.send(vec![7; 9_000]).await?;
        }
        Err(Status::aborted("counted"))
    }

    /// A handler that neither reads nor sends nor ends.
    async fn hold(
        &self,
        _messages: Request<'_, Incoming<Vec<u8>>>,
        _out: Outgoing<Vec<u8>>,
    ) -> Result<(), Status> {
        let _runs = Runs::new(self);
        std::future::pending().await
    }
}

/// The hostile client: its calls are correct, but their contents are arbitrary.
#[derive(Default)]
struct StreamClient {
    session: Option<SessionId>,
    /// Calls in flight, by token.
    calls: BTreeMap<u64, ()>,
    next: u64,
}

impl App<MemTransport> for StreamClient {
    fn on_request(&mut self, _: &mut Context<'_, MemTransport>, _: RawRequest<'_, MemRoute>) {
        panic!("a server makes no calls");
    }

    fn on_reply(
        &mut self,
        _: &mut Context<'_, MemTransport>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        _: MsgBuf,
    ) {
        assert!(self.calls.remove(&token).is_some(), "call {token} ends twice");
        let Ok(reply) = reply else { return };
        assert!(reply.extended, "streams are answered with extended messages");
        let (extension, frame) = Extension::split(reply.as_slice()).expect("an extension");
        let parsed = stream::StreamReply::parse(extension.op(), frame);
        assert!(parsed.is_ok(), "the server sends a malformed reply: {parsed:?}");
    }

    fn on_session(
        &mut self,
        _: &mut Context<'_, MemTransport>,
        session: SessionId,
        event: SessionEvent,
    ) {
        if matches!(event, SessionEvent::Closed(_)) && self.session == Some(session) {
            self.session = None;
        }
    }
}

/// The server and the hostile client, in virtual time.
struct StreamHarness {
    server: Endpoint<MemTransport>,
    handlers: Arc<Handlers>,
    rpc: Rpc<MemTransport>,
    client: StreamClient,
    peer: MemRoute,
    now: Instant,
    /// The numbers of the current stream and of its latest batch, as an honest client counts them.
    stream: u32,
    seq: u32,
}

impl StreamHarness {
    fn new(seed: u64) -> Self {
        let hub = MemHub::new();
        let config =
            || EndpointConfig::new().seed(seed).max_message(100_000).memory_limit(4 * MEMORY);
        let server = Endpoint::new(hub.port(MemConfig::default()), config());
        let server = server.expect("a valid configuration");
        let handlers = Arc::new(Handlers { running: AtomicU64::new(0) });
        let mut routes = Routes::new();
        let registered = routes
            .bidi_streaming(ECHO, &handlers, Handlers::echo)
            .and_then(|()| routes.server_streaming(COUNT, &handlers, Handlers::count))
            .and_then(|()| routes.bidi_streaming(HOLD, &handlers, Handlers::hold));
        registered.expect("three methods");
        server.listen();
        assert!(server.serve(Arc::new(routes), None));
        let peer = server.local_route().expect("the endpoint's loop is not running");
        let rpc = Rpc::new(hub.port(MemConfig::default()), config());
        let rpc = rpc.expect("a valid configuration");
        let now = Instant::from_nanos(1_000_000_000);
        let client = StreamClient::default();
        let mut harness = Self { server, handlers, rpc, client, peer, now, stream: 0, seq: 0 };
        harness.connect();
        harness
    }

    fn turn(&mut self) {
        self.now = self.now + Duration::from_micros(10);
        self.rpc.run_once_at(self.now, &mut self.client);
        self.server.run_once_at(self.now);
    }

    /// Takes 20 turns: enough for everything that happens without a further step.
    fn settle(&mut self) {
        (0..20).for_each(|_| self.turn());
    }

    fn connect(&mut self) {
        if let Some(session) = self.client.session {
            self.rpc.context_at(self.now).disconnect(session);
        }
        (self.stream, self.seq) = (0, 0);
        self.client.session = self.rpc.context_at(self.now).connect(self.peer).ok();
        self.settle();
    }

    /// Makes a call of a stream with values near those of an honest client.
    fn call(&mut self, input: &mut Input<'_>) {
        let (method, ask) = (input.u8(), input.u8());
        let end = ask & 0x80 != 0;
        let ask =
            [StreamOp::Open, StreamOp::Push, StreamOp::Pull, StreamOp::Close][usize::from(ask) % 4];
        match ask {
            StreamOp::Open => (self.stream, self.seq) = (self.stream + 1, 0),
            StreamOp::Push => self.seq += 1,
            StreamOp::Pull | StreamOp::Close => {}
        }
        let seq = if ask.has_items() { self.seq } else { 0 };
        let (stream, seq) = (input.near(self.stream), input.near(seq));
        let count = if ask.has_items() { u32::from(input.u8() % 8) } else { 0 };
        let mut frame = Vec::new();
        frame.put_u32_le(stream);
        frame.put_u32_le(seq);
        frame.put_u32_le(input.near(count));
        for _ in 0..count {
            // A protobuf message whose field 1 has up to 10,455 bytes.
            let len = usize::from(input.u8()) * 41;
            frame.put_u32_le((len + 3) as u32);
            frame.put_slice(&[0x0A, len as u8 & 0x7F | 0x80, (len >> 7) as u8]);
            frame.put_bytes(7, len);
        }
        self.send(method, ask.op(end), &frame);
    }

    fn send(&mut self, method: u8, op: u8, frame: &[u8]) {
        let Some(session) = self.client.session else { return };
        let Some(mut request) = MsgBuf::detached(8 + frame.len()) else { return };
        put_extension(op, &[], &mut request);
        request.put_slice(frame);
        let method = [ECHO.id(), COUNT.id(), HOLD.id(), 1][usize::from(method) % 4];
        let token = self.client.next;
        self.client.next += 1;
        let call = NewCall { method, request, token, extended: true, deadline: Instant::NEVER };
        self.client.calls.insert(token, ());
        if self.rpc.context_at(self.now).call(session, call).is_err() {
            self.client.calls.remove(&token);
        }
    }

    fn cancel(&mut self, which: u8) {
        let Some(session) = self.client.session else { return };
        let count = self.client.calls.len().max(1);
        let token = self.client.calls.keys().nth(usize::from(which) % count).copied();
        if let Some(token) = token {
            self.rpc.context_at(self.now).cancel(session, token, Cause::Cancelled);
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 8 {
            TURN => self.turn(),
            RAW => {
                let (method, op, len) = (input.u8(), input.u8(), input.u8());
                let frame = input.take(len.into()).to_vec();
                self.send(method, op, &frame);
            }
            CANCEL => {
                let which = input.u8();
                self.cancel(which);
            }
            LEAP => {
                self.now = self.now + Duration::from_millis(input.u8().into());
                self.settle();
            }
            RECONNECT => self.connect(),
            CALL => self.call(input),
            // Steps 6 and 7 make a call, and take enough turns to complete it.
            _ => {
                self.call(input);
                self.settle();
            }
        }
        let running = self.handlers.running.load(Ordering::Relaxed);
        assert!(running <= 1 + self.server_sessions(), "{running} handlers run");
    }

    fn server_sessions(&self) -> u64 {
        self.server.stats().map_or(0, |stats| stats.server_sessions as u64)
    }

    /// Checks that an honest stream is served. Then the client leaves, and nothing may remain.
    fn end(mut self) {
        self.connect();
        self.settle();
        let before = self.client.calls.len();
        if self.client.session.is_some() {
            self.stream = 1;
            let mut frame = Vec::new();
            frame.put_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0x0A, 1, 9]);
            self.send(0, StreamOp::Open.op(true), &frame);
            self.settle();
            assert!(self.client.calls.len() <= before, "an honest stream is not served");
        }
        if let Some(session) = self.client.session.take() {
            self.rpc.context_at(self.now).disconnect(session);
        }
        self.rpc.shutdown_at(self.now);
        for _ in 0..400 {
            self.now = self.now + Duration::from_millis(100);
            self.turn();
        }
        assert!(self.client.calls.is_empty(), "every call ends");
        assert_eq!(self.server_sessions(), 0);
        assert_eq!(
            self.handlers.running.load(Ordering::Relaxed),
            0,
            "handlers end with their client"
        );
        let pool = self.server.stats().expect("the endpoint's loop is not running").pool;
        assert_eq!(pool.in_use, 0, "all msgbufs are free");
    }
}

/// Plays a hostile client against a server with streaming handlers. The client's calls are correct,
/// but its streams are not.
///
/// # Panics
/// Panics if a call is answered twice, never, or with a malformed reply, or if the server keeps
/// handlers or memory after the client has left.
pub fn hostile_streams(data: &[u8]) {
    let mut input = Input::new(data);
    let mut harness = StreamHarness::new(seed_of(data));
    while !input.is_empty() {
        harness.step(&mut input);
    }
    harness.end();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn a_server_survives_any_client(steps in proptest::collection::vec((0u8..8, any::<[u8; 9]>()), 0..60)) {
            let bytes: Vec<u8> = steps.into_iter().flat_map(|(step, rest)| [&[step][..], &rest].concat()).collect();
            hostile_streams(&bytes);
        }

        #[test]
        fn a_server_survives_clients_near_the_truth(steps in proptest::collection::vec((0u8..6, 0u8..3, any::<[u8; 2]>()), 0..100)) {
            let step = |(step, method, rest): (u8, u8, [u8; 2])| match step {
                // Usually honest calls.
                0..3 => vec![0, method, rest[0] % 16, 0, 0, 2, 0, rest[1], rest[1] / 2],
                _ => vec![step, rest[0]],
            };
            hostile_streams(&steps.into_iter().flat_map(step).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn the_stream_targets_survive_their_seeds() {
        for seed in crate::fuzz::seeds() {
            match seed.target {
                "stream_frame" => stream_frame(&seed.bytes),
                "hostile_streams" => hostile_streams(&seed.bytes),
                _ => {}
            }
        }
    }
}
