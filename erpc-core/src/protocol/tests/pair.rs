//! The harness: a client core and a server core, connected by the test.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;

use super::wire::Wire;
use crate::protocol::{
    Acceptor, Body, CallError, Cause, ClientId, Core, DropReason, EndpointConfig, Event,
    ListenGroup, Local, NewCall, Notice, QueueWait, Rejected, Reply, RequestHandle, ResponseBuffer,
    SessionEvent, SessionId,
};
use crate::status::{Code, Status};
use crate::time::Instant;
use crate::transport::{Capabilities, ChargeModel, Link, Path, Route, RxPacket};
use crate::wire::checksum::TRAILER_LEN;
use crate::wire::control::{Control, Parameters};
use crate::wire::extension::{EXTENSION_HEAD, put_extension};
use crate::wire::{ConnectionId, HEADER_LEN, Header, Kind};

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

    fn with_port(&self, port: u16) -> Self {
        Self(self.0 & 0xFFFF | u32::from(port) << 16)
    }

    fn port(&self) -> u16 {
        (self.0 >> 16) as u16
    }

    fn host(&self) -> u64 {
        (self.0 & 0xFFFF).into()
    }
}

pub(crate) const CLIENT: TestRoute = TestRoute(1);
pub(crate) const SERVER: TestRoute = TestRoute(2);
pub(crate) const STRANGER: TestRoute = TestRoute(3);
pub(crate) const ECHO: u32 = 7;

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) token: u64,
    pub(crate) result: Result<Vec<u8>, CallError>,
    /// True if the response begins with an extension.
    pub(crate) extended: bool,
}

/// A request that the server's handler has received and not answered.
pub(crate) struct Asked {
    pub(crate) handle: RequestHandle,
    pub(crate) method: u32,
    pub(crate) body: Vec<u8>,
    pub(crate) extended: bool,
    pub(crate) deadline: Instant,
    pub(crate) buffer: Option<ResponseBuffer>,
}

/// Capabilities and configuration of one of the two cores.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) capabilities: Capabilities,
    pub(crate) config: EndpointConfig,
}

impl Side {
    /// A receive ring of 1,024 entries, and the default configuration.
    pub(crate) fn new(max_datagram: usize) -> Self {
        Self { capabilities: capabilities(max_datagram), config: EndpointConfig::new() }
    }

    pub(crate) fn config(mut self, config: EndpointConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the charge model and capacity of the receive queue.
    pub(crate) fn queue(mut self, charge: ChargeModel, capacity: u32) -> Self {
        self.capabilities.charge = charge;
        self.capabilities.rx_capacity = capacity;
        self
    }

    /// Sets the capabilities of a transport that may deliver damaged packets.
    pub(crate) fn unprotected(mut self) -> Self {
        self.capabilities.integrity = false;
        self
    }

    /// Sets whether the transport splits bundles.
    pub(crate) fn bundles(mut self, bundles: bool) -> Self {
        self.capabilities.bundles = bundles;
        self
    }

    pub(crate) fn core(&self, seed: u64) -> Core<TestRoute> {
        let local = Local::from(self.capabilities);
        Core::new(local, self.config.clone().seed(seed), (0, 0)).expect("a valid configuration")
    }
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Core<TestRoute>,
    pub(crate) server: Core<TestRoute>,
    /// Waiting time of packets in each side's receive queue.
    pub(crate) client_wait: QueueWait,
    pub(crate) server_wait: QueueWait,
    pub(crate) to_server: Wire,
    pub(crate) to_client: Wire,
    pub(crate) asked: VecDeque<Asked>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) sessions: HashMap<SessionId, SessionEvent>,
    /// Every notice of the client, in order, as text.
    pub(crate) told: Vec<String>,
    /// If true, the handler answers each request immediately with the request's bytes.
    pub(crate) echo: bool,
    /// If true, delivered packets carry a congestion mark.
    pub(crate) marked: bool,
    /// The link between the two sides, as both know it.
    pub(crate) link: Link,
    /// Source address of the client's packets as the server sees it.
    pub(crate) client_seen_at: TestRoute,
    pub(crate) executed: u64,
    /// Number of times that the handler received each message, keyed by the message's first 8
    /// bytes.
    pub(crate) handled: HashMap<u64, u32>,
    /// Requests that the server reported as cancelled.
    pub(crate) cancelled: Vec<RequestHandle>,
    /// Clients that the server reported as having opened a session.
    pub(crate) came: Vec<ClientId>,
    /// Clients that the server reported as gone, and why.
    pub(crate) gone: Vec<(ClientId, Cause)>,
    /// Both sides' ids of the most recently opened session.
    pub(crate) client_id: ConnectionId,
    pub(crate) server_id: ConnectionId,
    /// The agreed parameters of that session.
    pub(crate) terms: Parameters,
    client_side: Side,
    server_side: Side,
}

pub(crate) fn capabilities(max_datagram: usize) -> Capabilities {
    Capabilities {
        max_datagram,
        charge: ChargeModel::Ring,
        rx_capacity: 1 << 20,
        min_rto: Duration::from_millis(5),
        rtt_noise: Duration::from_micros(5),
        burst: 32,
        inline: 0,
        steer: 0,
        integrity: true,
        bundles: false,
    }
}

/// The path as one side knows it: it carries the largest datagram of that side.
fn path(capabilities: &Capabilities, link: Link) -> Path {
    Path { datagram: capabilities.max_datagram, link }
}

impl Pair {
    /// Two cores with equal capabilities and configuration, without a session.
    pub(crate) fn new(max_datagram: usize, config: EndpointConfig) -> Self {
        let side = Side::new(max_datagram).config(config);
        Self::of(side.clone(), side)
    }

    /// Two cores without a session.
    pub(crate) fn of(client_side: Side, server_side: Side) -> Self {
        let mut pair = Self {
            now: Instant::from_nanos(1_000_000_000),
            client: client_side.core(1),
            server: server_side.core(2),
            client_wait: QueueWait::default(),
            server_wait: QueueWait::default(),
            to_server: Wire::default(),
            to_client: Wire::default(),
            asked: VecDeque::new(),
            outcomes: Vec::new(),
            sessions: HashMap::new(),
            told: Vec::new(),
            echo: true,
            marked: false,
            link: Link::Local,
            client_seen_at: CLIENT,
            executed: 0,
            handled: HashMap::new(),
            cancelled: Vec::new(),
            came: Vec::new(),
            gone: Vec::new(),
            client_id: ConnectionId::default(),
            server_id: ConnectionId::default(),
            terms: Parameters {
                max_datagram: 0,
                max_message: 0,
                eager: 0,
                window: 0,
                credits: 0,
                charge_model: 0,
                integrity: false,
                bundles: false,
                slots: 0,
            },
            client_side,
            server_side,
        };
        pair.server.listen(acceptor());
        pair
    }

    /// Replaces the link between the two sides by one of unknown kind.
    pub(crate) fn far(mut self) -> Self {
        self.link = Link::Unknown;
        self
    }

    /// Two cores with one open session.
    pub(crate) fn connected(max_datagram: usize, config: EndpointConfig) -> (Self, SessionId) {
        Self::new(max_datagram, config).and_connected()
    }

    /// Opens one session.
    pub(crate) fn and_connected(mut self) -> (Self, SessionId) {
        let session = self.open();
        (self, session)
    }

    /// Opens a session. Its first `Open` is lost, so the client has no RTT sample.
    pub(crate) fn open(&mut self) -> SessionId {
        let session = self.connect();
        self.challenged();
        self.pass(ms(26));
        self.settle();
        assert_eq!(self.sessions.get(&session), Some(&SessionEvent::Opened));
        session
    }

    pub(crate) fn connect(&mut self) -> SessionId {
        self.client.connect(self.now, SERVER, &mut self.to_server).expect("room for a session")
    }

    /// Delivers `Hello` and `Challenge`. Returns the client's id for the session, and its `Open`.
    pub(crate) fn challenged(&mut self) -> (ConnectionId, Vec<u8>) {
        let hello = self.take_to_server();
        self.burst_at_server(CLIENT, &hello);
        let challenge = self.take_to_client();
        self.burst_at_client(SERVER, &challenge);
        let open = self.take_to_server();
        (header(&challenge[0]).connection, open[0].clone())
    }

    /// Restarts the server without any state.
    pub(crate) fn restart_server(&mut self, seed: u64) {
        self.restart_server_with(seed, acceptor());
    }

    pub(crate) fn restart_server_with(&mut self, seed: u64, acceptor: Acceptor) {
        self.server = self.server_side.core(seed);
        self.server.listen(acceptor);
        self.asked.clear();
    }

    pub(crate) fn disconnect(&mut self, session: SessionId) {
        self.client.disconnect(self.now, session, &mut self.to_server);
        self.housekeeping();
    }

    pub(crate) fn shutdown_server(&mut self) {
        self.server.shutdown(self.now, &mut self.to_client);
        self.housekeeping();
    }

    pub(crate) fn try_call(
        &mut self,
        session: SessionId,
        token: u64,
        body: &[u8],
    ) -> Result<(), Rejected> {
        self.try_method(session, ECHO, token, body)
    }

    /// Calls a method.
    pub(crate) fn call_method(&mut self, session: SessionId, method: u32, token: u64, body: &[u8]) {
        self.try_method(session, method, token, body).expect("accepted");
    }

    fn try_method(
        &mut self,
        session: SessionId,
        method: u32,
        token: u64,
        body: &[u8],
    ) -> Result<(), Rejected> {
        let mut request = self.client.pool().alloc(body.len()).expect("memory");
        request.put_slice(body);
        let call = NewCall::new(method, request, token);
        let called = self.client.call(self.now, session, call, &mut self.to_server);
        self.check();
        called
    }

    pub(crate) fn call(&mut self, session: SessionId, token: u64, body: &[u8]) {
        self.try_call(session, token, body).expect("accepted");
    }

    /// Makes a call with a deadline, and therefore with an extension in front of its body.
    pub(crate) fn try_call_until(
        &mut self,
        session: SessionId,
        token: u64,
        body: &[u8],
        deadline: Instant,
    ) -> Result<(), Rejected> {
        let mut request = self.client.pool().alloc(EXTENSION_HEAD + body.len()).expect("memory");
        put_extension(0, &[], &mut request);
        request.put_slice(body);
        let call = NewCall { method: ECHO, request, token, extended: true, deadline };
        let called = self.client.call(self.now, session, call, &mut self.to_server);
        self.check();
        called
    }

    pub(crate) fn call_until(
        &mut self,
        session: SessionId,
        token: u64,
        body: &[u8],
        deadline: Instant,
    ) {
        self.try_call_until(session, token, body, deadline).expect("accepted");
    }

    /// Cancels the call with this token. Returns whether there was one.
    pub(crate) fn cancel(&mut self, session: SessionId, token: u64) -> bool {
        let (now, cause) = (self.now, Cause::Cancelled);
        let cancelled = self.client.cancel(now, session, token, cause, &mut self.to_server);
        self.housekeeping();
        cancelled
    }

    pub(crate) fn respond(&mut self, handle: RequestHandle, body: &[u8]) {
        self.respond_in(None, handle, body);
    }

    /// Responds in `buffer`, which was delivered with the request, or in a new buffer if it is
    /// `None`.
    fn respond_in(&mut self, buffer: Option<ResponseBuffer>, handle: RequestHandle, body: &[u8]) {
        let mut response = self.server.response_buffer(buffer, body.len()).expect("memory");
        response.put_slice(body);
        self.server.respond(self.now, handle, response, false, &mut self.to_client);
        self.check();
    }

    /// Answers the oldest waiting request.
    pub(crate) fn answer(&mut self, body: &[u8]) {
        let asked = self.asked.pop_front().expect("a request waits");
        self.respond_in(asked.buffer, asked.handle, body);
    }

    /// Fails the oldest waiting request.
    pub(crate) fn answer_failure(&mut self, code: Code, message: &'static str) {
        let asked = self.asked.pop_front().expect("a request waits");
        self.server.respond_status(
            self.now,
            asked.handle,
            &Status::new(code, message),
            &mut self.to_client,
        );
        self.check();
    }

    /// The server receives one packet in a burst of its own.
    pub(crate) fn at_server(&mut self, from: TestRoute, bytes: &[u8]) {
        self.burst_at_server(from, &[bytes]);
    }

    /// The server receives packets in one burst.
    pub(crate) fn burst_at_server<B: AsRef<[u8]>>(&mut self, from: TestRoute, packets: &[B]) {
        for bytes in packets {
            self.server_takes(from, bytes.as_ref());
        }
        self.server.end_of_burst(self.now, self.server_wait, &mut self.to_client);
        self.housekeeping();
    }

    fn server_takes(&mut self, route: TestRoute, bytes: &[u8]) {
        let packet = RxPacket { route, bytes, marked: self.marked };
        let mut event = Event::None;
        let (now, wait, tx) = (self.now, self.server_wait, &mut self.to_client);
        self.server
            .receive(now, wait, packet, tx, |_: &mut _, _: &mut _, received| event = received);
        if let Event::Cancelled(handle) = event {
            self.cancelled.push(handle);
        } else if let Event::Request(request) = event {
            self.executed += 1;
            if let Some(first) = request.body.as_slice().first_chunk() {
                *self.handled.entry(u64::from_le_bytes(*first)).or_default() += 1;
            }
            let asked = Asked {
                handle: request.handle,
                method: request.method,
                body: request.body.as_slice().to_vec(),
                extended: request.extended,
                deadline: request.deadline,
                buffer: request.buffer,
            };
            self.server.recycle(request.body);
            if self.echo {
                self.respond_in(asked.buffer, asked.handle, &asked.body);
            } else {
                self.asked.push_back(asked);
            }
        }
    }

    /// The client receives one packet in a burst of its own.
    pub(crate) fn at_client(&mut self, from: TestRoute, bytes: &[u8]) {
        self.burst_at_client(from, &[bytes]);
    }

    /// The client receives packets in one burst.
    pub(crate) fn burst_at_client<B: AsRef<[u8]>>(&mut self, from: TestRoute, packets: &[B]) {
        for bytes in packets {
            self.client_takes(from, bytes.as_ref());
        }
        self.client.end_of_burst(self.now, self.client_wait, &mut self.to_server);
        self.housekeeping();
    }

    fn client_takes(&mut self, route: TestRoute, bytes: &[u8]) {
        if let Some(Control::Opened { server, parameters }) = control(bytes) {
            self.client_id =
                Header::parse(bytes).expect("a control message has a header").connection;
            (self.server_id, self.terms) = (server, parameters);
        }
        let packet = RxPacket { route, bytes, marked: self.marked };
        let mut event = Event::None;
        let (now, wait, tx) = (self.now, self.client_wait, &mut self.to_server);
        self.client
            .receive(now, wait, packet, tx, |_: &mut _, _: &mut _, received| event = received);
        if let Event::Reply { token, result, mut request } = event {
            // The request belongs to the user again, so no queue may still read it. Overwriting it
            // makes an invalid read visible.
            request.as_mut_slice().fill(0xEE);
            let seen = result.as_ref().map(|reply| reply.as_slice().to_vec()).map_err(Clone::clone);
            let extended = result.as_ref().is_ok_and(|reply| reply.extended);
            self.outcomes.push(Outcome { token, result: seen, extended });
            if let Ok(Reply { body: Body::Message(message), .. }) = result {
                self.client.pool().recycle(message);
            }
            self.client.pool().recycle(request);
        }
    }

    /// Asserts that the server drops this packet, for this reason only.
    #[track_caller]
    pub(crate) fn server_drops(&mut self, from: TestRoute, bytes: &[u8], reason: DropReason) {
        let before = *self.server.stats();
        self.at_server(from, bytes);
        let after = self.server.stats();
        assert_eq!(
            after.dropped_in_all(),
            before.dropped_in_all() + 1,
            "the packet was not dropped"
        );
        assert_eq!(
            after.dropped(reason),
            before.dropped(reason) + 1,
            "the packet was not dropped as {reason:?}"
        );
    }

    /// Asserts that the client drops this packet, for this reason only.
    #[track_caller]
    pub(crate) fn client_drops(&mut self, from: TestRoute, bytes: &[u8], reason: DropReason) {
        let before = *self.client.stats();
        self.at_client(from, bytes);
        let after = self.client.stats();
        assert_eq!(
            after.dropped_in_all(),
            before.dropped_in_all() + 1,
            "the packet was not dropped"
        );
        assert_eq!(
            after.dropped(reason),
            before.dropped(reason) + 1,
            "the packet was not dropped as {reason:?}"
        );
    }

    pub(crate) fn housekeeping(&mut self) {
        while self.client.next_unrouted().is_some() {
            let path = path(&self.client_side.capabilities, self.link);
            self.client.routed(self.now, path, &mut self.to_server);
        }
        while self.server.next_unrouted().is_some() {
            let path = path(&self.server_side.capabilities, self.link);
            self.server.routed(self.now, path, &mut self.to_client);
        }
        while let Some(notice) = self.client.pop_notice() {
            match notice {
                Notice::CallFailed { token, error, mut request } => {
                    self.told.push(format!("call {token}"));
                    // As for a reply, the request belongs to the user again.
                    request.as_mut_slice().fill(0xEE);
                    self.outcomes.push(Outcome { token, result: Err(error), extended: false });
                    self.client.pool().recycle(request);
                }
                Notice::Session(session, event) => {
                    self.told.push(format!("{event:?}"));
                    self.sessions.insert(session, event);
                }
                Notice::Cancelled(_) | Notice::ClientCame(_) | Notice::ClientGone(..) => {
                    panic!("a client has no clients")
                }
            }
        }
        while let Some(notice) = self.server.pop_notice() {
            match notice {
                Notice::Cancelled(handle) => self.cancelled.push(handle),
                Notice::ClientCame(client) => self.came.push(client),
                Notice::ClientGone(client, cause) => self.gone.push((client, cause)),
                other => panic!("a server received the notice {other:?}"),
            }
        }
        self.to_server.release();
        self.to_client.release();
        self.check();
    }

    fn check(&self) {
        self.client.check_invariants();
        self.server.check_invariants();
    }

    /// Moves the clock and lets timers fire.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.pass_unread(time, Duration::ZERO);
    }

    /// Like [`Self::pass`], but the client's receive queue may still hold packets that arrived in
    /// the last `unread`.
    pub(crate) fn pass_unread(&mut self, time: Duration, unread: Duration) {
        self.now = self.now + time;
        let read_until = self.now.minus_nanos(unread.as_nanos() as u64);
        self.client.expire(self.now, read_until, &mut self.to_server);
        self.server.expire(self.now, self.now, &mut self.to_client);
        self.housekeeping();
    }

    /// Lets time pass from timer to timer; packets stay on the wire.
    pub(crate) fn pass_slowly(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let next = self.client.next_deadline().min(self.server.next_deadline()).min(end);
            self.pass(next.max(self.now) - self.now);
        }
    }

    /// Lets time pass from timer to timer and delivers all packets.
    pub(crate) fn live(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        while self.now < end {
            let next = self.client.next_deadline().min(self.server.next_deadline()).min(end);
            self.pass(next.max(self.now) - self.now);
            self.settle();
        }
    }

    /// Delivers all packets in flight, and all that they trigger, without time passing.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if let Some((to, bytes)) = self.to_server.packets.pop_front() {
                assert_eq!(to, SERVER);
                self.at_server(self.client_seen_at, &bytes);
            } else if let Some((to, bytes)) = self.to_client.packets.pop_front() {
                // Packets to strangers are not for the client.
                if to == CLIENT || to == self.client_seen_at {
                    self.at_client(SERVER, &bytes);
                }
            } else {
                return;
            }
        }
        panic!("the two sides do not stop sending packets");
    }

    /// Takes the packets to the server off the wire.
    pub(crate) fn take_to_server(&mut self) -> Vec<Vec<u8>> {
        self.to_server.take()
    }

    /// Takes the packets to the client off the wire.
    pub(crate) fn take_to_client(&mut self) -> Vec<Vec<u8>> {
        self.to_client.take()
    }

    /// Asserts that exactly one outcome has not been taken yet, and takes it.
    #[track_caller]
    pub(crate) fn outcome(&mut self) -> Outcome {
        assert_eq!(self.outcomes.len(), 1, "{:?}", self.outcomes);
        self.outcomes.remove(0)
    }

    /// Like [`Self::outcome`], and asserts that the call failed. Returns the error.
    #[track_caller]
    pub(crate) fn error(&mut self) -> CallError {
        self.outcome().result.expect_err("the call has failed")
    }

    /// The cause with which a session closed; `None` if it has not closed.
    pub(crate) fn closed(&self, session: SessionId) -> Option<Cause> {
        match self.sessions.get(&session) {
            Some(SessionEvent::Closed(cause)) => Some(*cause),
            _ => None,
        }
    }
}

/// An open session with the default configuration.
pub(crate) fn connected() -> (Pair, SessionId) {
    Pair::connected(1_472, EndpointConfig::new())
}

/// An open session whose handler does not answer until the test calls [`Pair::answer`].
pub(crate) fn deferring() -> (Pair, SessionId) {
    deferring_with(EndpointConfig::new())
}

pub(crate) fn deferring_with(config: EndpointConfig) -> (Pair, SessionId) {
    let (mut pair, session) = Pair::connected(1_472, config);
    pair.echo = false;
    (pair, session)
}

pub(crate) fn acceptor() -> Acceptor {
    acceptor_with(9)
}

/// An acceptor that makes its cookies with `secret`. Acceptors with other secrets refuse them.
pub(crate) fn acceptor_with(secret: u8) -> Acceptor {
    Acceptor::new(Arc::new(ListenGroup::new([secret; 16], vec![0])), 0)
}

/// The header of a packet.
#[track_caller]
pub(crate) fn header(packet: &[u8]) -> Header {
    Header::parse(packet).expect("a valid header")
}

/// The control message in a packet; `None` if there is none.
pub(crate) fn control(packet: &[u8]) -> Option<Control> {
    let header = Header::parse(packet).ok()?;
    let (rest, _) = packet.split_last_chunk::<TRAILER_LEN>()?;
    (header.kind == Kind::Control).then(|| Control::parse(&header, rest.get(HEADER_LEN..)?).ok())?
}

/// The kinds of packets, in order.
pub(crate) fn kinds(packets: &[Vec<u8>]) -> Vec<Kind> {
    packets.iter().map(|bytes| header(bytes).kind).collect()
}

/// Kind and packet number of packets, in order.
pub(crate) fn shape(packets: &[Vec<u8>]) -> Vec<(Kind, u32)> {
    packets.iter().map(|bytes| (header(bytes).kind, header(bytes).packet.get())).collect()
}

/// A message of `len` bytes that differs for each seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let start = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..len as u64).map(|at| (start.wrapping_add(at * at + at) >> 11) as u8).collect()
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
