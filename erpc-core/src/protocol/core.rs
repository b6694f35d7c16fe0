//! Both roles together: the door of the protocol.

use std::collections::VecDeque;

use super::client::{ClientTable, Finished};
use super::config::EndpointConfig;
use super::endpoint::{EndpointState, Local};
use super::flushes::ForcedFlushes;
use super::ids::IdSource;
use super::index::SessionIndex;
use super::proofs::Proofs;
use super::server::{Acceptor, Open, ServerTable};
use super::stats::{DropReason, ProtocolStats};
use super::turn::{QueueWait, Turn};
use super::wheel::{MAX_EXPIRED, TimerId, Timers};
use super::{
    Body, Cause, ClientId, ClientStats, ConfigError, ConnectError, Event, NewCall, Notice,
    Rejected, Reply, Request, RequestHandle, ResponseBuffer, SessionId, SessionStats,
};
use crate::buf::{MsgBuf, NoMemory, Pool, PoolStats};
use crate::mutants::mutant;
use crate::status::Status;
use crate::time::Instant;
use crate::transport::{Path, Route, RxPacket, TxQueue};
use crate::wire::checksum;
use crate::wire::control::Control;
use crate::wire::{HEADER_LEN, Header, HeaderError, Kind, ReplyInfo, VERSION};

/// What a slot's first response buffer holds at least, in bytes.
const FIRST_BUFFER: usize = 40;

/// An endpoint's half of all its sessions: a state machine without input, output or clock.
///
/// The owner is a loop with a transport and a clock, such as [`Rpc`](crate::event_loop::Rpc). It feeds packets and the
/// time in; the core pushes packets into the owner's [`TxQueue`] and returns what the owner has to do.
///
/// # One turn of the loop
///
/// 1. Call [`receive`](Self::receive) for each packet of a burst, in order, and handle its [`Event`]:
///    * [`Event::Request`]: run the handler. Answer with [`respond`](Self::respond) or
///      [`respond_status`](Self::respond_status), once, in this turn or any later one. The request occupies one of the
///      client's slots until then. Answers to sessions that are gone are counted and dropped.
///    * [`Event::Reply`]: a call has ended. `token` says which one, and `request` is the caller's msgbuf again.
///    * [`Event::Cancelled`]: the client does not wait for this request any more. Answer it all the same.
///
///    A body of one packet is borrowed from the receive queue; [`recycle`](Self::recycle) takes the others back.
/// 2. Call [`end_of_burst`](Self::end_of_burst) once if there was a packet. It sends one credit return and one request for
///    response for all packets of a message in the burst, and lets calls go on that waited for credits or room. Call it
///    earlier as well if the next handler is expected to take long.
/// 3. Call [`expire`](Self::expire), and say up to when the receive queue has been read. It costs a few comparisons if
///    nothing is due.
/// 4. While [`wants_route`](Self::wants_route), look up the path to [`next_unrouted`](Self::next_unrouted) and tell it with
///    [`routed`](Self::routed). A handshake waits for that.
/// 5. Take every [`Notice`] with [`pop_notice`](Self::pop_notice): failed calls, sessions that opened or closed.
/// 6. Ring the queue's [`doorbell`](TxQueue::doorbell).
///
/// Between and within turns the owner may [`connect`](Self::connect), [`call`](Self::call), [`cancel`](Self::cancel),
/// [`disconnect`](Self::disconnect) and answer; the packets leave with the next doorbell. Every accepted call ends exactly
/// once, with an [`Event::Reply`] or a [`Notice::CallFailed`]. To sleep, wait for a packet, or until
/// [`next_deadline`](Self::next_deadline).
///
/// # Clock
///
/// `now` is the owner's monotonic clock: it never runs backwards from one call to the next, whichever methods they are. One
/// reading per burst is enough. What the loop adds to a packet's round trip goes into [`QueueWait`], so that it is not
/// mistaken for congestion. A late `expire` delays retransmissions and loses nothing; after a long pause the core asks
/// peers for a sign of life before it gives them up.
///
/// # Buffers
///
/// The transmit queue may refer to a msgbuf after it was pushed. The core flushes the queue before it rewrites or returns
/// such a msgbuf, so the owner need not care.
///
/// # Bounds
///
/// `receive` takes constant time, with three exceptions. A reply that frees a slot fails the queued calls of its session
/// whose deadline has passed: the session's queue bounds this. A session of this client that ends fails all its calls. If the last session of a client endpoint ends, the
/// server divides the receive queue anew: the client endpoints bound this. `end_of_burst` takes time in
/// proportion to what the burst made possible, `expire` looks at 32 sessions at most. No packet makes the core panic: what it
/// does not understand or expect is dropped for a [`DropReason`] and counted in [`stats`](Self::stats).
///
/// Aligned to cache lines, so that its speed does not depend on where it happens to lie.
#[repr(align(64))]
pub struct Core<R> {
    endpoint: EndpointState,
    client: ClientTable<R>,
    server: ServerTable<R>,
}

/// What the owner of a [`Core`] does with the event of a packet: a closure, or a type whose method is inlined for certain.
pub trait EventSink<'p, R, X> {
    /// Handles the event. The core and its transmit queue are the owner's again.
    fn on_event(self, core: &mut Core<R>, tx: &mut X, event: Event<'p, R>);
}

impl<'p, R, X, F: FnOnce(&mut Core<R>, &mut X, Event<'p, R>)> EventSink<'p, R, X> for F {
    #[inline]
    fn on_event(self, core: &mut Core<R>, tx: &mut X, event: Event<'p, R>) {
        self(core, tx, event);
    }
}

impl<R: Route> Core<R> {
    /// A core over a transport with these properties. `key` is secret and random: connection ids are
    /// derived from it.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is out of bounds.
    pub fn new(local: Local, config: EndpointConfig, key: (u64, u64)) -> Result<Self, ConfigError> {
        let pool = Pool::new(config.memory_limit);
        Self::with_pool(local, config, key, pool)
    }

    /// The same with a pool of one's own making, whose limit is the one that counts.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is out of bounds.
    pub fn with_pool(
        local: Local,
        config: EndpointConfig,
        key: (u64, u64),
        pool: Pool,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let key = config.seed.map_or(key, |seed| (seed, !seed));
        let mut ids = IdSource::new(key);
        let client = ClientTable::new(local.capacity, ids.table_hasher());
        let server = ServerTable::new(ids.table_hasher());
        let endpoint = EndpointState {
            config,
            local,
            pool,
            stats: ProtocolStats::default(),
            timers: Timers::new(),
            read_until: Instant::ZERO,
            ids,
            notices: VecDeque::new(),
            forced_flushes: ForcedFlushes::default(),
            proofs: Proofs::default(),
        };
        Ok(Self { endpoint, client, server })
    }

    /// Accepts sessions from now on. A quarter of the receive queue stays for replies to this
    /// endpoint's own calls, the rest is granted to clients.
    pub fn listen(&mut self, acceptor: Acceptor) {
        let replies = self.endpoint.local.capacity / 4;
        self.client.set_room(replies);
        self.server.listen(acceptor, self.endpoint.local.capacity - replies);
    }

    /// Receives a packet: pushes what it asks for in return into `tx`, and hands what the owner has to do to `sink`, last. A
    /// packet without a header has no event.
    ///
    /// The common case, a request or a response of one packet, is written out here and inlined into the event loop. Its
    /// events go to the sink from where they are made: returned, they would be put together in memory and taken apart
    /// again.
    #[inline(always)]
    pub fn receive<'p, X: TxQueue<Route = R>, S: EventSink<'p, R, X>>(
        &mut self,
        now: Instant,
        queue_wait: QueueWait,
        packet: RxPacket<'p, R>,
        tx: &mut X,
        sink: S,
    ) {
        let RxPacket { route, bytes, marked } = packet;
        let turn = &mut Turn { queue_wait, marked, ..Turn::new(now, &mut self.endpoint, tx) };
        turn.endpoint.stats.rx_packets += 1;
        let (header, body) = match parse(bytes) {
            Ok(Parsed { header, body }) => (header, body),
            Err(error) => return self.bad_header(&route, bytes, error, tx),
        };
        if header.kind == Kind::Request {
            let plain = self.server.plain_request(turn, &route, &header, body.len());
            if let Some((handle, buffer)) = plain {
                turn.endpoint.stats.rx_delivered += 1;
                let request = Request {
                    handle,
                    method: header.aux,
                    body: Body::Packet(body),
                    peer: route,
                    extended: false,
                    deadline: Instant::NEVER,
                    buffer: buffer.map(ResponseBuffer),
                };
                return sink.on_event(self, tx, Event::Request(request));
            }
        } else if header.kind == Kind::Response {
            let plain = self.client.plain_response(turn, &route, &header, body.len());
            if let Some(Finished { token, request }) = plain {
                turn.endpoint.stats.rx_delivered += 1;
                let result = Ok(Reply { body: Body::Packet(body), extended: false });
                return sink.on_event(self, tx, Event::Reply { token, result, request });
            }
        }
        let packet = RxPacket { route, bytes: body, marked };
        let event = self.receive_any(now, queue_wait, header, packet, tx);
        sink.on_event(self, tx, event);
    }

    /// Receives a packet that is not the common case; only its body is left of its bytes.
    #[inline(never)]
    fn receive_any<'p, X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        queue_wait: QueueWait,
        header: Header,
        packet: RxPacket<'p, R>,
        tx: &mut X,
    ) -> Event<'p, R> {
        let RxPacket { route, bytes: body, marked } = packet;
        let turn = &mut Turn { queue_wait, marked, ..Turn::new(now, &mut self.endpoint, tx) };
        let to_server = header.connection.is_server_role();
        let outcome = match header.kind {
            Kind::RequestForResponse
            | Kind::Done
            | Kind::CreditReturn
            | Kind::Accepted
            | Kind::Control
                if header.flags.extended() =>
            {
                Err(DropReason::Flags)
            }
            Kind::Request | Kind::RequestForResponse | Kind::Done if to_server => {
                self.server.receive(turn, &route, &header, body)
            }
            Kind::CreditReturn | Kind::Accepted if !to_server && !body.is_empty() => {
                Err(DropReason::LyingSize)
            }
            Kind::Response | Kind::Failure | Kind::CreditReturn | Kind::Accepted if !to_server => {
                self.client.receive(turn, &route, &header, body)
            }
            Kind::Control => self.control(now, &route, &header, body, tx).map(|()| Event::None),
            _ => Err(DropReason::WrongRole),
        };
        match outcome {
            Ok(event) => {
                self.endpoint.stats.rx_delivered += 1;
                event
            }
            Err(reason) => {
                self.endpoint.stats.count_drop(reason);
                Event::None
            }
        }
    }

    /// Drops a packet that has no header of ours.
    #[cold]
    fn bad_header<X: TxQueue<Route = R>>(
        &mut self,
        route: &R,
        bytes: &[u8],
        error: HeaderError,
        tx: &mut X,
    ) {
        let reason = match error {
            HeaderError::Truncated => DropReason::Truncated,
            HeaderError::Checksum => DropReason::Checksum,
            HeaderError::Version(_) => {
                if let Some(client) = Control::hello_of_any_version(bytes) {
                    let mut refused = self.server.accepting().version_refusal(client);
                    refused.set_version(bytes[8]);
                    tx.push_bytes(route, refused.as_bytes());
                }
                DropReason::Version
            }
        };
        self.endpoint.stats.count_drop(reason);
    }

    #[cold]
    fn control<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        route: &R,
        header: &Header,
        body: &[u8],
        tx: &mut X,
    ) -> Result<(), DropReason> {
        if !header.flags.trailer() {
            return Err(DropReason::Trailer);
        }
        let message = Control::parse(header, body).map_err(|_| DropReason::Control)?;
        let nonce = header.request.to_u32();
        let datagram = (body.len() + checksum::overhead(true)).min(u32::MAX as usize) as u32;
        let turn = &mut Turn::new(now, &mut self.endpoint, tx);
        if header.connection.is_endpoint() {
            return match message {
                Control::Hello { client, low, high } => {
                    let version_fits = (low..=high).contains(&u16::from(VERSION));
                    self.server.accepting().hello(turn, route, client, version_fits, nonce);
                    Ok(())
                }
                Control::Open { client, cookie, parameters } => {
                    let is_padded = datagram as usize > message.datagram_len();
                    let proof = if is_padded { datagram } else { 0 };
                    let open = Open { route: *route, client, parameters, nonce, proof };
                    self.server.open(turn, open, &cookie)
                }
                _ => Err(DropReason::Handshake),
            };
        }
        let outcome = if header.connection.is_server_role() {
            self.server.control(turn, route, header, message, datagram)
        } else {
            self.client.control(turn, route, header, message, datagram)
        };
        if let (
            Err(DropReason::UnknownConnection),
            Control::Ping { sender } | Control::Close { sender },
        ) = (outcome, message)
        {
            // The peer remembers a session that we do not. It is not longer than what asked for it.
            let reset = Control::Reset { unknown: header.connection };
            tx.push_bytes(route, reset.emit(sender, nonce, ReplyInfo::default()).as_bytes());
        }
        outcome
    }

    /// Ends a burst, or a part of it: sends credit returns, asks for response packets, lets waiting calls go on.
    #[inline]
    pub fn end_of_burst<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        queue_wait: QueueWait,
        tx: &mut X,
    ) {
        let mut turn = Turn { queue_wait, ..Turn::new(now, &mut self.endpoint, tx) };
        self.server.end_of_burst(&mut turn);
        self.client.end_of_burst(&mut turn);
    }

    /// Does what time demands: lets sessions send whose turn it is at their rate, and looks at those whose timer is
    /// due. Bounded: 32 of each, and the others the next time.
    ///
    /// `read_until` is at most `now`: every packet that had arrived by then was received. Silence counts up to there, or to
    /// where answers show that a server's packets were received, because
    /// what is missed may lie in the receive queue; deadlines and rates go by `now`.
    #[inline]
    pub fn expire<X: TxQueue<Route = R>>(&mut self, now: Instant, read_until: Instant, tx: &mut X) {
        self.endpoint.read_until = read_until;
        let turn = &mut Turn::new(now, &mut self.endpoint, tx);
        self.client.depart(turn);
        let mut any = false;
        for _ in 0..MAX_EXPIRED {
            let Some(TimerId(id)) = turn.endpoint.timers.expire(now) else { break };
            any = true;
            let index = SessionIndex::new(id / 2);
            if id % 2 == 0 {
                self.client.on_timer(turn, index);
            } else {
                self.server.on_timer(turn, index);
            }
        }
        if any {
            self.client.end_of_burst(turn);
        }
    }

    /// No timer fires before this; [`Instant::NEVER`] if none is armed.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.endpoint.timers.next().min(self.client.next_departure())
    }

    /// The next notice, in order.
    #[inline]
    pub fn pop_notice(&mut self) -> Option<Notice> {
        self.endpoint.notices.pop_front()
    }

    /// The address of a handshake that waits to know its path; answer with [`Core::routed`].
    pub fn next_unrouted(&mut self) -> Option<R> {
        self.client.next_routing().map(|(_, route)| route).or_else(|| self.server.next_unrouted())
    }

    /// Whether the address that [`Core::next_unrouted`] last returned is that of a server, to which this endpoint opens a session.
    pub(crate) fn opens_unrouted(&self) -> bool {
        self.client.wants_route()
    }

    /// The path to the address that [`Core::next_unrouted`] last returned is `path`; its handshake goes
    /// on.
    pub fn routed<X: TxQueue<Route = R>>(&mut self, now: Instant, path: Path, tx: &mut X) {
        let turn = &mut Turn::new(now, &mut self.endpoint, tx);
        turn.endpoint.timers.begin(now);
        match self.client.next_routing() {
            Some((id, _)) => self.client.routed(turn, id, path),
            None => {
                let datagram = path.datagram.min(u32::MAX as usize) as u32;
                self.server.accept(turn, datagram);
            }
        }
    }

    /// Whether [`Core::next_unrouted`] would return an address.
    #[must_use]
    #[inline]
    pub fn wants_route(&self) -> bool {
        self.client.wants_route() || self.server.wants_route()
    }

    /// Starts to open a session to `peer`. Calls are accepted and wait until it has opened; a notice
    /// tells when it has, or has not.
    ///
    /// # Errors
    /// [`ConnectError::TooManySessions`].
    pub fn connect<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        peer: R,
        tx: &mut X,
    ) -> Result<SessionId, ConnectError> {
        self.endpoint.timers.begin(now);
        self.client.connect(&mut Turn::new(now, &mut self.endpoint, tx), peer)
    }

    /// Makes a call on a session. Its token comes back with the outcome, which comes exactly once for
    /// every accepted call.
    ///
    /// # Errors
    /// [`Rejected`] with the request if it cannot be accepted.
    #[inline(always)]
    pub fn call<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        session: SessionId,
        call: NewCall,
        tx: &mut X,
    ) -> Result<(), Rejected> {
        self.client.call(&mut Turn::new(now, &mut self.endpoint, tx), session, call)
    }

    /// Ends the call on `session` that was made with `token`, with this cause: a notice says so, and
    /// the server is told that the response is not wanted. Takes time in proportion to the calls that
    /// wait for a slot. Returns whether there is such a call: whether it has not ended already.
    ///
    /// If the request was complete on the wire, the call ends as
    /// [`MaybeExecuted`](super::CallError::MaybeExecuted); its slot and its share of the window stay taken until the server
    /// has answered. If its response had begun to come, as [`ResponseLost`](super::CallError::ResponseLost); otherwise as
    /// [`NotExecuted`](super::CallError::NotExecuted).
    pub fn cancel<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        session: SessionId,
        token: u64,
        cause: Cause,
        tx: &mut X,
    ) -> bool {
        self.client.cancel(&mut Turn::new(now, &mut self.endpoint, tx), session, token, cause)
    }

    /// Ends a session once its calls are done. A notice tells when it is gone.
    pub fn disconnect<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        session: SessionId,
        tx: &mut X,
    ) {
        self.client.disconnect(&mut Turn::new(now, &mut self.endpoint, tx), session);
    }

    /// A buffer for a response of `len` bytes: the one that came with the [request](Request::buffer), if it is
    /// large enough and no queue reads it any more.
    ///
    /// # Errors
    /// [`NoMemory`] if it is not and the pool has none.
    #[inline(always)]
    pub fn response_buffer(
        &mut self,
        kept: Option<ResponseBuffer>,
        len: usize,
    ) -> Result<MsgBuf, NoMemory> {
        match kept {
            Some(ResponseBuffer(mut buffer)) if buffer.capacity() >= len && buffer.is_unique() => {
                buffer.clear();
                Ok(buffer)
            }
            kept => self.other_response_buffer(kept, len),
        }
    }

    /// A buffer from the pool, in exchange for the one that was kept.
    #[inline(never)]
    fn other_response_buffer(
        &mut self,
        kept: Option<ResponseBuffer>,
        len: usize,
    ) -> Result<MsgBuf, NoMemory> {
        self.recycle_response_buffer(kept);
        self.endpoint.pool.alloc(len.max(FIRST_BUFFER))
    }

    /// Takes back a [request's buffer](Request::buffer) that the response does not need.
    #[inline]
    pub(crate) fn recycle_response_buffer(&mut self, kept: Option<ResponseBuffer>) {
        if let Some(ResponseBuffer(buffer)) = kept {
            self.endpoint.pool.recycle(buffer);
        }
    }

    /// Answers a request; `extended` if the response begins with an [extension](crate::wire::extension).
    /// If the request's session is gone, the response is counted and dropped.
    #[inline(always)]
    pub fn respond<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        request: RequestHandle,
        response: MsgBuf,
        extended: bool,
        tx: &mut X,
    ) {
        self.server.respond(
            &mut Turn::new(now, &mut self.endpoint, tx),
            request,
            response,
            extended,
        );
    }

    /// Answers a request with a failure.
    pub fn respond_status<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        request: RequestHandle,
        status: &Status,
        tx: &mut X,
    ) {
        self.server.respond_status(&mut Turn::new(now, &mut self.endpoint, tx), request, status);
    }

    /// Says good-bye to all peers, once, and ends every call with
    /// [`Cause::Shutdown`](super::Cause::Shutdown).
    pub fn shutdown<X: TxQueue<Route = R>>(&mut self, now: Instant, tx: &mut X) {
        let turn = &mut Turn::new(now, &mut self.endpoint, tx);
        self.client.shutdown(turn);
        self.server.shutdown(turn);
    }

    /// The endpoint's buffers.
    #[inline]
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.endpoint.pool
    }

    /// The endpoint's buffers, counted.
    pub fn pool_stats(&mut self) -> PoolStats {
        self.endpoint.pool.stats()
    }

    /// The floor of the retransmission timeout.
    pub(crate) fn min_rto(&self) -> std::time::Duration {
        self.endpoint.min_rto()
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> &ProtocolStats {
        &self.endpoint.stats
    }

    /// What a session is at, `None` if it is gone.
    #[must_use]
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        self.client.stats(&self.endpoint, session)
    }

    /// What a session is at that a peer opened, `None` if it is gone.
    #[must_use]
    pub fn client_stats(&self, client: ClientId) -> Option<ClientStats> {
        self.server.client_stats(client)
    }

    /// Whether the owner may keep `bytes` of a client's requests beside what the session holds already: within
    /// [`EndpointConfig::session_memory_limit`].
    #[must_use]
    pub fn may_keep(&self, client: ClientId, bytes: usize) -> bool {
        self.server.may_keep(&self.endpoint, client, bytes)
    }

    /// Tells that the owner keeps `bytes` in all, of a client's requests that it was handed. From then on they
    /// count against [`EndpointConfig::session_memory_limit`], until it tells otherwise: further
    /// requests are turned down before they are whole.
    pub fn keep(&mut self, client: ClientId, bytes: usize) {
        self.server.keep(client, bytes);
    }

    /// Sessions this endpoint opened, and sessions it accepted.
    #[must_use]
    pub fn sessions(&self) -> (usize, usize) {
        (self.client.len(), self.server.len())
    }

    /// What each client endpoint at `route` may have on its way to this one, in units of its transport's
    /// [`ChargeModel`](crate::transport::ChargeModel): [`SessionStats::window`] once the client was told. `None` if no
    /// session from there is open.
    #[must_use]
    pub fn granted(&self, route: &R) -> Option<u32> {
        self.server.granted(route)
    }

    /// Sessions that were opened to this endpoint from the host of `route`: see
    /// [`EndpointConfig::max_sessions_per_host`].
    #[must_use]
    pub fn host_sessions(&self, route: &R) -> usize {
        self.server.host_sessions(route)
    }

    /// Looks whether credits, windows, room, slots and memory add up, and whether everything that waits
    /// is waited for by somebody. Takes time in proportion to the sessions and their calls: for tests
    /// and simulations, after every event.
    ///
    /// # Panics
    /// If something does not add up, which is a fault of this crate.
    pub fn check_invariants(&self) {
        let stats = &self.endpoint.stats;
        assert_eq!(
            stats.rx_packets,
            stats.rx_delivered + stats.dropped_in_all(),
            "packets received are delivered or dropped for a reason"
        );
        self.client.check_invariants(&self.endpoint);
        self.server.check_invariants(&self.endpoint.config);
    }

    /// How many places are taken in the lines for room, by calls that wait and by those that did.
    #[cfg(test)]
    pub(in crate::protocol) fn places_in_lines(&self) -> usize {
        self.client.places_in_lines()
    }

    /// Takes back the memory of a message.
    #[inline]
    pub fn recycle(&mut self, body: Body<'_>) {
        if let Body::Message(msgbuf) = body {
            self.endpoint.pool.recycle(msgbuf);
        }
    }
}

/// A packet's header and body, the trailer checked and taken off.
struct Parsed<'p> {
    header: Header,
    body: &'p [u8],
}

/// Parses a packet. The checksum, if there is one, is verified before anything else is used.
#[inline(always)]
fn parse(bytes: &[u8]) -> Result<Parsed<'_>, HeaderError> {
    let header = Header::parse(bytes)?;
    let bytes = if header.flags.trailer() { verify(bytes)? } else { bytes };
    Ok(Parsed { header, body: &bytes[HEADER_LEN..] })
}

/// A packet without its trailer, if its checksum is right.
#[inline]
fn verify(bytes: &[u8]) -> Result<&[u8], HeaderError> {
    let verified = checksum::check(bytes);
    if verified == Err(HeaderError::Checksum) && mutant!(ChecksumNotVerified) {
        return Ok(&bytes[..bytes.len() - checksum::TRAILER_LEN]);
    }
    verified
}
