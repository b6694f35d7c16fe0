//! The clients, each with its own endpoint, and their server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use erpc::raw::{
    App, Body, Context, MsgBuf, NewCall, Reply, Request, Rpc, SessionEvent, SessionId,
};
use erpc::{CallError, EndpointConfig, Retransmissions, Udp, UdpConfig};

use super::scheduling::LoopGaps;
use crate::raw::listening;

/// The only method. The response is the request's length in bytes, u64.
pub(super) const LENGTH: u32 = 1;

/// Answers requests. Has no counters of its own: the thread that serves reads the transport's count
/// of bytes.
pub(super) struct IncastServer;

impl App<Udp> for IncastServer {
    fn on_request(
        &mut self,
        cx: &mut Context<'_, Udp>,
        request: Request<'_, erpc::transport::udp::UdpRoute>,
    ) {
        let len = request.body.as_slice().len() as u64;
        let mut response = cx.response_buffer(request.buffer, 8).expect("memory for 8 bytes");
        response.resize(8);
        response.as_mut_slice().copy_from_slice(&len.to_le_bytes());
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
        cx.respond(request.handle, response, false);
    }
}

/// Counters that a server publishes while it serves.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of received datagrams.
    received: AtomicU64,
    /// Time for which other work kept the loop from its core, in nanoseconds.
    away: AtomicU64,
}

/// Serves at `address` until `stop`, and updates `progress`.
pub(super) fn serve(
    address: SocketAddr,
    config: EndpointConfig,
    progress: &Progress,
    stop: &AtomicBool,
) {
    let socket = Udp::bind(&UdpConfig::new().address(address)).expect("the server's socket");
    let mut rpc = listening(socket, config);
    let mut gaps = LoopGaps::new();
    while !stop.load(Ordering::Relaxed) {
        progress.away.store(gaps.turn().as_nanos() as u64, Ordering::Relaxed);
        if rpc.run_once(&mut IncastServer) > 0 {
            progress.received.store(rpc.stats().transport.rx_bytes, Ordering::Relaxed);
        }
    }
}

/// Sends requests in sequence.
struct IncastClient {
    request: usize,
    session: Option<SessionId>,
    is_over: bool,
}

impl IncastClient {
    fn call(&mut self, cx: &mut Context<'_, Udp>, request: MsgBuf) {
        let session = self.session.expect("the session is open");
        cx.call(session, NewCall::new(LENGTH, request, 0)).expect("the session is free");
    }
}

impl App<Udp> for IncastClient {
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, Udp>,
        _: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        if self.is_over {
            return;
        }
        let reply = reply.expect("no call fails while the load runs");
        assert_eq!(reply.as_slice(), (self.request as u64).to_le_bytes(), "the answer is wrong");
        self.call(cx, request);
    }

    fn on_session(&mut self, cx: &mut Context<'_, Udp>, session: SessionId, event: SessionEvent) {
        match event {
            SessionEvent::Opened => {
                self.session = Some(session);
                let mut request = cx.alloc(self.request).expect("memory for the request");
                request.resize(self.request);
                self.call(cx, request);
            }
            SessionEvent::Draining => panic!("no server shuts down gracefully"),
            SessionEvent::Closed(cause) => assert!(self.is_over, "the session closed: {cause}"),
        }
    }
}

/// Counters of one client.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ClientTotals {
    /// Bytes sent.
    pub(super) bytes: u64,
    pub(super) retransmissions: Retransmissions,
}

/// Counters of all clients and of the server at one time.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    /// Bytes of datagrams that the server received.
    pub(super) received: u64,
    /// Time for which other work kept the clients' loop and the server's loop from their cores.
    pub(super) away: [Duration; 2],
    pub(super) clients: Vec<ClientTotals>,
    /// The sessions' smoothed round trips.
    pub(super) rtts: Vec<Duration>,
}

/// The clients, which one thread runs.
pub(super) struct Clients<'a> {
    clients: Vec<(Rpc<Udp>, IncastClient)>,
    progress: &'a Progress,
    gaps: LoopGaps,
    away: Duration,
}

impl<'a> Clients<'a> {
    /// Makes `ways` endpoints and starts to open a session of each to `server`. Requests have
    /// `request` bytes. `progress` has the counters of the server.
    pub(super) fn new(
        ways: usize,
        [from, server]: [SocketAddr; 2],
        config: &EndpointConfig,
        request: usize,
        progress: &'a Progress,
    ) -> Self {
        let client = |_| {
            let socket = Udp::bind(&UdpConfig::new().address(from)).expect("a client's socket");
            let mut rpc = Rpc::new(socket, config.clone()).expect("the settings are within bounds");
            rpc.context().connect(server.into()).expect("the first session");
            (rpc, IncastClient { request, session: None, is_over: false })
        };
        let clients = (0..ways).map(client).collect();
        Self { clients, progress, gaps: LoopGaps::new(), away: Duration::ZERO }
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.away = self.gaps.turn();
            for (rpc, client) in &mut self.clients {
                rpc.run_once(client);
            }
        }
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        let sent = |(rpc, _): &mut (Rpc<Udp>, IncastClient)| {
            let stats = rpc.stats();
            ClientTotals {
                bytes: stats.transport.tx_bytes,
                retransmissions: stats.protocol.retransmissions,
            }
        };
        let rtt = |(rpc, client): &mut (Rpc<Udp>, IncastClient)| {
            rpc.context().session_stats(client.session?)?.rtt
        };
        Snapshot {
            at: Instant::now(),
            received: self.progress.received.load(Ordering::Relaxed),
            away: [self.away, Duration::from_nanos(self.progress.away.load(Ordering::Relaxed))],
            clients: self.clients.iter_mut().map(sent).collect(),
            rtts: self.clients.iter_mut().filter_map(rtt).collect(),
        }
    }

    /// Disconnects. Calls in flight fail.
    pub(super) fn end(mut self) {
        for (rpc, client) in &mut self.clients {
            client.is_over = true;
            rpc.shutdown();
            rpc.run_once(client);
        }
    }
}
