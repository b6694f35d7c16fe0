//! A client below the typed layer, for packets that typed clients cannot send.

use std::sync::Arc;
use std::time::{Duration, Instant};

use erpc_core::buf::MsgBuf;
use erpc_core::endpoint::Endpoint;
use erpc_core::event_loop::{App, Context, Rpc};
use erpc_core::protocol::{
    CallError, Cause, EndpointConfig, Integrity, NewCall, Reply, Request, SessionId,
};
use erpc_core::service::{Metadata, Routes};
use erpc_core::serving::WorkerPool;
use erpc_core::time;
use erpc_core::transport::Transport;
use erpc_core::transport::fault::{FaultPlan, Faulty};
use erpc_core::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc_core::transport::udp::{UdpConfig, UdpTransport};
use erpc_core::wire::extension::{EXTENSION_HEAD, Extension, push_entry, put_extension};

/// A wait that takes longer fails the test.
const TEST_LIMIT: Duration = Duration::from_secs(20);

/// The outcome of a call: the metadata, if there was an extension, and the message.
pub(crate) type Outcome = Result<(Option<Metadata>, Vec<u8>), CallError>;

/// Metadata and the remaining time.
pub(crate) type Extras<'a> = (&'a [(&'a str, &'a [u8])], Option<Duration>);

/// A client with one session. A call is identified by its token.
pub(crate) struct Client<T: Transport> {
    rpc: Rpc<T>,
    session: SessionId,
    replies: Replies,
}

#[derive(Default)]
struct Replies(Vec<(u64, Outcome)>);

impl<T: Transport> Client<T> {
    fn connect(transport: T, config: EndpointConfig, peer: T::Route) -> Self {
        let mut rpc = Rpc::new(transport, config).unwrap();
        let session = rpc.context().connect(peer).unwrap();
        Self { rpc, session, replies: Replies::default() }
    }

    /// Makes a call without an extension.
    pub(crate) fn send(&mut self, method: u32, body: &[u8], token: u64) {
        let request = self.request(&[], body);
        self.rpc.context().call(self.session, NewCall::new(method, request, token)).unwrap();
    }

    /// Makes a call with metadata and perhaps a deadline.
    pub(crate) fn send_extended(
        &mut self,
        method: u32,
        (metadata, time_left): Extras<'_>,
        body: &[u8],
        token: u64,
    ) {
        let mut entries = Vec::new();
        for (key, value) in metadata {
            push_entry(&mut entries, key, value).unwrap();
        }
        let mut front = Vec::with_capacity(EXTENSION_HEAD);
        put_extension(0, &entries, &mut front);
        self.send_raw(method, &front, time_left, body, token);
    }

    /// Makes a call that is marked as extended, with `front` as its extension.
    pub(crate) fn send_raw(
        &mut self,
        method: u32,
        front: &[u8],
        time_left: Option<Duration>,
        body: &[u8],
        token: u64,
    ) {
        let request = self.request(front, body);
        let mut cx = self.rpc.context();
        let deadline = time_left.map_or(time::Instant::NEVER, |left| cx.now() + left);
        let call = NewCall { extended: true, deadline, ..NewCall::new(method, request, token) };
        cx.call(self.session, call).unwrap();
    }

    fn request(&mut self, front: &[u8], body: &[u8]) -> MsgBuf {
        let mut request = self.rpc.context().alloc(front.len() + body.len()).unwrap();
        request.resize(front.len() + body.len());
        request.as_mut_slice()[..front.len()].copy_from_slice(front);
        request.as_mut_slice()[front.len()..].copy_from_slice(body);
        request
    }

    pub(crate) fn cancel(&mut self, token: u64) -> bool {
        self.rpc.context().cancel(self.session, token, Cause::Cancelled)
    }

    /// Shuts the client down, which closes its session.
    pub(crate) fn leave(&mut self) {
        self.rpc.shutdown();
    }

    pub(crate) fn turn(&mut self) {
        self.rpc.run_once(&mut self.replies);
    }

    /// The outcome of a call, if it has ended.
    pub(crate) fn take(&mut self, token: u64) -> Option<Outcome> {
        let at = self.replies.0.iter().position(|(found, _)| *found == token)?;
        Some(self.replies.0.swap_remove(at).1)
    }
}

/// A server and its client on one thread.
pub(crate) struct Pair<T: Transport> {
    pub(crate) server: Endpoint<T>,
    pub(crate) client: Client<T>,
}

pub(crate) fn mem_pair(routes: Routes, workers: &WorkerPool) -> Pair<MemTransport> {
    let hub = MemHub::new();
    Pair::new(|| hub.port(MemConfig::default()), routes, workers)
}

/// A pair over memory, of which each endpoint has these faults. Packets have checksums.
pub(crate) fn faulty_pair(
    routes: Routes,
    workers: &WorkerPool,
    plan: &FaultPlan,
) -> Pair<Faulty<MemTransport>> {
    let hub = MemHub::new();
    let port = || Faulty::new(hub.port(MemConfig::default()), plan.clone());
    let config = EndpointConfig::new().integrity(Integrity::Always);
    Pair::with(port, &config, routes, workers)
}

pub(crate) fn udp_pair(routes: Routes, workers: &WorkerPool) -> Pair<UdpTransport> {
    let config = UdpConfig::new().address(([127, 0, 0, 1], 0).into());
    Pair::new(|| UdpTransport::bind(&config).unwrap(), routes, workers)
}

impl<T: Transport> Pair<T> {
    /// A server of `routes` and a client with an open session.
    fn new(transport: impl Fn() -> T, routes: Routes, workers: &WorkerPool) -> Self {
        Self::with(transport, &EndpointConfig::new(), routes, workers)
    }

    fn with(
        transport: impl Fn() -> T,
        config: &EndpointConfig,
        routes: Routes,
        workers: &WorkerPool,
    ) -> Self {
        let server = Endpoint::new(transport(), config.clone()).unwrap();
        server.listen();
        assert!(server.serve(Arc::new(routes), Some(workers)));
        let client = Client::connect(transport(), config.clone(), server.local_route().unwrap());
        let mut pair = Self { server, client };
        pair.run_until(|pair| pair.server.stats().unwrap().server_sessions == 1);
        let open = |pair: &mut Self| {
            let session = pair.client.session;
            pair.client.rpc.context().session_stats(session).is_some()
        };
        pair.run_until(open);
        pair
    }

    /// Runs both sides until `done`.
    pub(crate) fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.client.turn();
            self.server.run_once();
            assert!(start.elapsed() < TEST_LIMIT, "the condition does not become true");
        }
    }

    /// Runs the server alone until `done`.
    pub(crate) fn serve_until(&mut self, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.server.run_once();
            assert!(start.elapsed() < TEST_LIMIT, "the condition does not become true");
        }
    }

    /// Number of requests whose deadline passed before their handler could start.
    pub(crate) fn late(&self) -> u64 {
        self.server.stats().unwrap().late_requests
    }

    /// Number of requests that the server has received.
    pub(crate) fn requests(&self) -> u64 {
        self.server.stats().unwrap().protocol.requests
    }

    /// Waits for the outcome of a call.
    pub(crate) fn outcome(&mut self, token: u64) -> Outcome {
        let mut outcome = None;
        self.run_until(|pair| {
            outcome = pair.client.take(token);
            outcome.is_some()
        });
        outcome.unwrap()
    }

    /// Waits until these calls have ended.
    pub(crate) fn exchange(&mut self, tokens: &[u64]) {
        tokens.iter().for_each(|token| drop(self.outcome(*token)));
    }

    /// One call without an extension.
    pub(crate) fn call(&mut self, method: u32, body: &[u8]) -> Outcome {
        self.client.send(method, body, 0);
        self.outcome(0)
    }

    /// One call with metadata and perhaps a deadline.
    pub(crate) fn call_extended(
        &mut self,
        method: u32,
        extras: Extras<'_>,
        body: &[u8],
    ) -> Outcome {
        self.client.send_extended(method, extras, body, 0);
        self.outcome(0)
    }
}

impl<T: Transport> App<T> for Replies {
    fn on_request(&mut self, _: &mut Context<'_, T>, _: Request<'_, T::Route>) {}

    fn on_reply(
        &mut self,
        _: &mut Context<'_, T>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        _: MsgBuf,
    ) {
        self.0.push((token, reply.map(|reply| opened(&reply))));
    }
}

fn opened(reply: &Reply<'_>) -> (Option<Metadata>, Vec<u8>) {
    let bytes = reply.as_slice();
    if !reply.extended {
        return (None, bytes.to_vec());
    }
    let (extension, message) = Extension::split(bytes).expect("servers send valid extensions");
    let mut metadata = Metadata::new();
    for (key, value) in extension.entries() {
        metadata.append(key, value).expect("received metadata fits");
    }
    (Some(metadata), message.to_vec())
}
