//! A client core and a server core, joined by the test.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;

use crate::buf::MsgBuf;
use crate::protocol::{
    Acceptor, Body, CallError, Cause, Core, EndpointConfig, Event, ListenGroup, Local, Notice, RequestHandle,
    SessionEvent, SessionId,
};
use crate::time::Instant;
use crate::transport::{Capabilities, ChargeModel, Route, TxPacket, TxQueue};
use crate::wire::{Header, Kind};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TestRoute(pub(crate) u32);

impl std::fmt::Display for TestRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "test:{}", self.0)
    }
}

impl Route for TestRoute {
    fn to_bytes(&self, out: &mut [u8; 32]) -> usize {
        out[..4].copy_from_slice(&self.0.to_le_bytes());
        4
    }

    fn with_port(&self, _port: u16) -> Self {
        *self
    }

    fn port(&self) -> u16 {
        0
    }
}

pub(crate) const CLIENT: TestRoute = TestRoute(1);
pub(crate) const SERVER: TestRoute = TestRoute(2);
pub(crate) const ECHO: u32 = 7;

/// A transmit queue that keeps what it is given, and holds msgbufs until it is flushed as a real one
/// does.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) packets: VecDeque<(TestRoute, Vec<u8>)>,
    held: Vec<MsgBuf>,
}

impl TxQueue for Wire {
    type Route = TestRoute;

    fn push_bytes(&mut self, route: &TestRoute, bytes: &[u8]) {
        self.packets.push_back((*route, bytes.to_vec()));
    }

    fn push(&mut self, route: &TestRoute, packet: TxPacket<'_>) {
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes);
        self.held.push(packet.hold());
        self.packets.push_back((*route, bytes));
    }

    fn flush(&mut self) {
        self.held.clear();
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) token: u64,
    pub(crate) result: Result<Vec<u8>, CallError>,
}

/// What the server's handler was given and has not answered.
pub(crate) struct Asked {
    pub(crate) handle: RequestHandle,
    pub(crate) method: u32,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Core<TestRoute>,
    pub(crate) server: Core<TestRoute>,
    pub(crate) to_server: Wire,
    pub(crate) to_client: Wire,
    pub(crate) asked: VecDeque<Asked>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) sessions: HashMap<SessionId, SessionEvent>,
    /// Requests are answered with their bytes at once.
    pub(crate) echo: bool,
    pub(crate) executed: u64,
    config: EndpointConfig,
    capabilities: Capabilities,
}

pub(crate) fn capabilities(max_datagram: usize) -> Capabilities {
    Capabilities {
        max_datagram,
        charge: ChargeModel::Ring,
        rx_capacity: 1 << 20,
        min_rto: Duration::from_millis(5),
        steer: 0,
    }
}

impl Pair {
    /// Two cores, no session.
    pub(crate) fn new(max_datagram: usize, config: EndpointConfig) -> Self {
        let capabilities = capabilities(max_datagram);
        let core = |seed| {
            Core::new(Local::from(capabilities), config.clone().seed(seed), (0, 0)).expect("a valid configuration")
        };
        let mut pair = Self {
            now: Instant::from_nanos(1_000_000_000),
            client: core(1),
            server: core(2),
            to_server: Wire::default(),
            to_client: Wire::default(),
            asked: VecDeque::new(),
            outcomes: Vec::new(),
            sessions: HashMap::new(),
            echo: true,
            executed: 0,
            config,
            capabilities,
        };
        pair.server.listen(acceptor());
        pair
    }

    /// Two cores with one open session.
    pub(crate) fn connected(max_datagram: usize, config: EndpointConfig) -> (Self, SessionId) {
        let mut pair = Self::new(max_datagram, config);
        let session = pair.connect();
        pair.settle();
        assert_eq!(pair.sessions.get(&session), Some(&SessionEvent::Opened));
        (pair, session)
    }

    pub(crate) fn connect(&mut self) -> SessionId {
        self.client.connect(self.now, SERVER, &mut self.to_server).expect("room for a session")
    }

    /// The server forgets everything and is there again.
    pub(crate) fn restart_server(&mut self, seed: u64) {
        self.server = Core::new(Local::from(self.capabilities), self.config.clone().seed(seed), (0, 0)).expect("valid");
        self.server.listen(acceptor());
        self.asked.clear();
    }

    pub(crate) fn call(&mut self, session: SessionId, token: u64, body: &[u8]) {
        let mut request = self.client.pool().alloc(body.len()).expect("memory");
        request.put_slice(body);
        self.client.call(self.now, session, (ECHO, request, token), &mut self.to_server).expect("accepted");
    }

    pub(crate) fn respond(&mut self, handle: RequestHandle, body: &[u8]) {
        let mut response = self.server.response_buffer(&handle, body.len()).expect("memory");
        response.put_slice(body);
        self.server.respond(self.now, handle, response, &mut self.to_client);
    }

    /// The server receives a packet.
    pub(crate) fn at_server(&mut self, from: TestRoute, bytes: &[u8]) {
        let event = self.server.receive(self.now, from, bytes, &mut self.to_client);
        if let Event::Request(request) = event {
            self.executed += 1;
            let asked =
                Asked { handle: request.handle, method: request.method, body: request.body.as_slice().to_vec() };
            self.server.recycle(request.body);
            if self.echo {
                self.respond(asked.handle, &asked.body);
            } else {
                self.asked.push_back(asked);
            }
        }
        self.after(true);
    }

    /// The client receives a packet.
    pub(crate) fn at_client(&mut self, from: TestRoute, bytes: &[u8]) {
        let event = self.client.receive(self.now, from, bytes, &mut self.to_server);
        if let Event::Reply { token, result, mut request } = event {
            // The request is the user's again: writing it must not meet a queue that still reads it.
            request.as_mut_slice().fill(0xEE);
            self.outcomes.push(Outcome { token, result: result.as_ref().map(|body| body.as_slice().to_vec()).map_err(Clone::clone) });
            if let Ok(Body::Message(message)) = result {
                self.client.pool().recycle(message);
            }
            self.client.pool().recycle(request);
        }
        self.after(false);
    }

    fn after(&mut self, at_server: bool) {
        if at_server {
            self.server.end_of_burst(self.now, &mut self.to_client);
        } else {
            self.client.end_of_burst(self.now, &mut self.to_server);
        }
        self.housekeeping();
    }

    pub(crate) fn housekeeping(&mut self) {
        while self.client.next_unrouted().is_some() {
            self.client.routed(self.now, self.capabilities.max_datagram, &mut self.to_server);
        }
        while self.server.next_unrouted().is_some() {
            self.server.routed(self.now, self.capabilities.max_datagram, &mut self.to_client);
        }
        while let Some(notice) = self.client.pop_notice() {
            match notice {
                Notice::CallFailed { token, error, request } => {
                    self.outcomes.push(Outcome { token, result: Err(error) });
                    self.client.pool().recycle(request);
                }
                Notice::Session(session, event) => {
                    self.sessions.insert(session, event);
                }
            }
        }
        self.to_server.flush();
        self.to_client.flush();
        self.client.check_invariants();
        self.server.check_invariants();
    }

    /// Moves the clock and lets timers fire.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.client.expire(self.now, &mut self.to_server);
        self.server.expire(self.now, &mut self.to_client);
        self.housekeeping();
    }

    /// Delivers everything that is on its way, and what that leads to, without time passing.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if let Some((_, bytes)) = self.to_server.packets.pop_front() {
                self.at_server(CLIENT, &bytes);
            } else if let Some((_, bytes)) = self.to_client.packets.pop_front() {
                self.at_client(SERVER, &bytes);
            } else {
                return;
            }
        }
        panic!("the two sides keep talking");
    }

    /// The packets to the server, taken off the wire.
    pub(crate) fn take_to_server(&mut self) -> Vec<Vec<u8>> {
        self.to_server.packets.drain(..).map(|(_, bytes)| bytes).collect()
    }

    /// The packets to the client, taken off the wire.
    pub(crate) fn take_to_client(&mut self) -> Vec<Vec<u8>> {
        self.to_client.packets.drain(..).map(|(_, bytes)| bytes).collect()
    }

    /// The only outcome so far, taken.
    pub(crate) fn outcome(&mut self) -> Outcome {
        assert_eq!(self.outcomes.len(), 1, "{:?}", self.outcomes);
        self.outcomes.remove(0)
    }

    /// The cause with which a session closed.
    pub(crate) fn closed(&self, session: SessionId) -> Option<Cause> {
        match self.sessions.get(&session) {
            Some(SessionEvent::Closed(cause)) => Some(*cause),
            _ => None,
        }
    }
}

pub(crate) fn acceptor() -> Acceptor {
    Acceptor::new(Arc::new(ListenGroup::new([9; 16], vec![0])), 0)
}

/// The kinds of packets, in order.
pub(crate) fn kinds(packets: &[Vec<u8>]) -> Vec<Kind> {
    packets.iter().map(|bytes| Header::parse(bytes).expect("a packet").kind).collect()
}

/// A message that no other looks like.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(at * at + at) >> 11) as u8).collect()
}
