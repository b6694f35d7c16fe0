//! The entry points of the protocol, for both roles.

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
use super::turn::{QueueWait, Stage, Turn};
use super::wheel::{MAX_EXPIRED, TimerId, Timers};
use super::{
    Body, Cause, ClientId, ClientStats, ConfigError, ConnectError, Event, NewCall, Notice,
    Rejected, Reply, Request, RequestHandle, ResponseBuffer, SessionAddress, SessionId,
    SessionStats, UpcomingRequest,
};
use crate::buf::{MsgBuf, NoMemory, Pool, PoolStats};
use crate::mutants::mutant;
use crate::status::Status;
use crate::time::Instant;
use crate::transport::{Path, Route, RxPacket, TxQueue, Undelivered};
use crate::wire::checksum;
use crate::wire::control::Control;
use crate::wire::extension::deadline_of;
use crate::wire::{HEADER_LEN, Header, HeaderError, HeaderWords, Kind, ReplyInfo, VERSION};

/// Minimum capacity of a response buffer that is taken from the pool, in bytes.
const FIRST_BUFFER: usize = 40;

/// An endpoint's half of all its sessions: a state machine that does no I/O and reads no clock.
///
/// The owner is a loop with a transport and a clock, such as [`Rpc`](crate::event_loop::Rpc). It
/// passes packets and the time in. The core pushes packets into the owner's [`TxQueue`] and returns
/// what the owner must do.
///
/// # One turn of the loop
///
/// 1. Call [`receive`](Self::receive) for each packet of a burst, in order, and handle its
///    [`Event`]:
///    * [`Event::Request`]: run the handler. Answer with [`respond`](Self::respond) or
///      [`respond_status`](Self::respond_status), once, in this turn or any later one. The request
///      occupies one of the client's slots until it is answered. Answers to sessions that have
///      ended are counted and dropped.
///    * [`Event::Reply`]: a call has ended. `token` identifies it, and `request` is the msgbuf that
///      the caller gets back.
///    * [`Event::Cancelled`]: the client no longer waits for this request. Answer it all the same.
///
///    A body of one packet is borrowed from the receive queue; [`recycle`](Self::recycle) takes the
///    other bodies back.
/// 2. Call [`end_of_burst`](Self::end_of_burst) once if there was a packet. For each message with
///    packets in the burst it sends one credit return or one request for response. It also resumes
///    calls that waited for credits or room. Call it earlier as well if the next handler is
///    expected to take long.
/// 3. If the transport reports undelivered packets, pass the reports to
///    [`undelivered`](Self::undelivered). Then call [`expire`](Self::expire) with the time up to
///    which the receive queue has been read. It costs a few comparisons if nothing is due.
/// 4. While [`wants_route`](Self::wants_route), look up the path to
///    [`next_unrouted`](Self::next_unrouted) and pass it to [`routed`](Self::routed). A handshake
///    waits for the path.
/// 5. Take every [`Notice`] with [`pop_notice`](Self::pop_notice): failed calls, sessions that
///    opened or closed.
/// 6. Ring the queue's [`doorbell`](TxQueue::doorbell).
///
/// Between and within turns the owner may [`connect`](Self::connect), [`call`](Self::call),
/// [`cancel`](Self::cancel), [`disconnect`](Self::disconnect) and answer; the packets leave with
/// the next doorbell. Every accepted call ends exactly once, with an [`Event::Reply`] or a
/// [`Notice::CallFailed`]. To sleep, wait for a packet or until
/// [`next_deadline`](Self::next_deadline).
///
/// # Clock
///
/// `now` is the owner's monotonic clock: it must not run backwards between two calls, of the same
/// method or of two methods. One reading per burst is enough. The delay that the loop adds to a
/// packet's round trip goes into [`QueueWait`], so that it is not mistaken for congestion. A late
/// `expire` only delays retransmissions. After a long pause the core asks peers for a sign of life
/// before it declares them dead.
///
/// # Buffers
///
/// The transmit queue may refer to a msgbuf after it was pushed. The core flushes the queue before
/// it rewrites or returns such a msgbuf. The owner need not do anything.
///
/// # Bounds
///
/// `receive` takes constant time, with three exceptions:
///
/// * A reply that frees a slot fails the queued calls of its session whose deadline has passed:
///   bounded by the session's queue.
/// * The end of a session that this endpoint opened fails all of its calls.
/// * The end of a client endpoint's last session divides the receive queue again: bounded by the
///   number of client endpoints.
///
/// `end_of_burst` takes time in proportion to the work that the burst has enabled. `expire` handles
/// at most 32 paced sessions and at most 32 timers. No packet makes the core panic: packets that it
/// does not understand or expect are dropped for a [`DropReason`] and counted in
/// [`stats`](Self::stats).
///
/// Aligned to cache lines, so that performance does not depend on its address.
#[repr(align(64))]
pub struct Core<R> {
    endpoint: EndpointState,
    client: ClientTable<R>,
    server: ServerTable<R>,
}

/// The owner's handler of a packet's event: a closure, or a type whose method is certain to be
/// inlined.
///
/// Each packet has at most one event, which [`Core::receive`] passes on as its last act. So the
/// core is consistent and not borrowed, the handler may use it, and a request can be lent from the
/// receive queue. The alternatives are worse:
///
/// * A returned event of this size is written to memory and read back, which takes 7 % more
///   instructions per call.
/// * A handler that is called earlier, in the middle of a change, would find an inconsistent core.
/// * A queue of events needs allocations and a second pass.
///
/// Events without a packet (timeouts, ends of sessions) are rare and queued: see [`Notice`].
pub trait EventSink<'p, R, X> {
    /// Handles the event. The owner may use the core and its transmit queue here.
    fn on_event(self, core: &mut Core<R>, tx: &mut X, event: Event<'p, R>);
}

impl<'p, R, X, F: FnOnce(&mut Core<R>, &mut X, Event<'p, R>)> EventSink<'p, R, X> for F {
    #[inline]
    fn on_event(self, core: &mut Core<R>, tx: &mut X, event: Event<'p, R>) {
        self(core, tx, event);
    }
}

impl<R: Route> Core<R> {
    /// A core for a transport with these properties. `key` must be secret and random: connection
    /// ids are derived from it. A configured [seed](EndpointConfig::seed) replaces `key`.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is out of bounds.
    pub fn new(local: Local, config: EndpointConfig, key: (u64, u64)) -> Result<Self, ConfigError> {
        let pool = Pool::new(config.memory_limit);
        Self::with_pool(local, config, key, pool)
    }

    /// As [`Self::new`], with the given pool. Its limit replaces [`EndpointConfig::memory_limit`].
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is out of bounds.
    pub fn with_pool(
        local: Local,
        mut config: EndpointConfig,
        key: (u64, u64),
        pool: Pool,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let key = config.seed.map_or(key, |seed| (seed, !seed));
        config.ping_phase = key.0;
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

    /// Starts to accept sessions. A quarter of the receive queue stays for replies to this
    /// endpoint's own calls, the rest is granted to clients.
    pub fn listen(&mut self, acceptor: Acceptor) {
        let replies = self.endpoint.local.capacity / 4;
        self.client.set_room(replies);
        self.server.listen(acceptor, self.endpoint.local.capacity - replies);
    }

    /// Number of calls that this endpoint has accepted and that have not ended.
    #[inline]
    pub(crate) fn outstanding_calls(&self) -> u64 {
        let stats = &self.endpoint.stats;
        stats.calls.saturating_sub(stats.responses + stats.failures)
    }

    /// Whether this endpoint has so many sessions that they do not stay in the fastest caches.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        /// Sessions whose state fits the first-level cache.
        const FEW: usize = 64;
        self.client.len().max(self.server.len()) > FEW
    }

    /// Loads into the cache what [`Core::receive`] will read and write for a packet. Called for the
    /// packets of a burst before the first is received, one stage after the other, so that many
    /// cache misses overlap instead of following each other.
    #[inline(always)]
    pub(crate) fn prefetch(&self, packet: &[u8], stage: Stage) {
        let Some(header) = HeaderWords::read(packet) else { return };
        if header.connection().is_server_role() {
            self.server.prefetch(header, stage);
        } else {
            self.client.prefetch(header, stage);
        }
    }

    /// The request that a packet will bring when it is received, to prepare for its handler. Changes
    /// nothing.
    ///
    /// Foresees requests of one packet that are the next of their slots. The packet may still be
    /// dropped: its checksum may be wrong, it may come from another address, or another packet of
    /// the burst may bring the same request. And a packet that is not foreseen may bring a request:
    /// the last of several packets does.
    #[must_use]
    #[inline(always)]
    pub fn upcoming<'p>(&self, packet: &'p [u8]) -> Option<UpcomingRequest<'p>> {
        let header = HeaderWords::read(packet)?;
        let is_expected = header.connection().is_server_role() && self.server.expects(header);
        let body = packet[HEADER_LEN..].get(..header.size() as usize).filter(|_| is_expected)?;
        Some(UpcomingRequest { method: header.aux(), body, extended: header.is_extended() })
    }

    /// Receives a packet. Pushes the packets that answer it into `tx`, and as its last act passes
    /// the event to `sink`. If the packet has no valid header, `sink` is not called.
    ///
    /// The common case, a request or a response of one packet, is written out here and inlined into
    /// the event loop. Its events go directly to the sink: a returned event would be written to
    /// memory and read again.
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
        let (header, body) = match split(bytes) {
            Ok(parts) => parts,
            Err(error) => return self.bad_header(&route, bytes, error, tx),
        };
        if header.connection().is_server_role() {
            let plain = self.server.plain_request::<false, _>(turn, &route, header, body.len());
            if let Some((handle, buffer)) = plain {
                turn.endpoint.stats.rx_delivered += 1;
                let request = request(handle, buffer, header, body, route);
                return sink.on_event(self, tx, Event::Request(request));
            }
        } else {
            let plain = self.client.plain_response(turn, &route, header, body.len());
            if let Some(Finished { token, request }) = plain {
                turn.endpoint.stats.rx_delivered += 1;
                let result = Ok(Reply { body: Body::Packet(body), extended: false });
                return sink.on_event(self, tx, Event::Reply { token, result, request });
            }
        }
        match Header::from_words(header) {
            Ok(header) => {
                let packet = RxPacket { route, bytes: body, marked };
                let event = self.receive_any(now, queue_wait, header, packet, tx);
                sink.on_event(self, tx, event);
            }
            Err(error) => self.bad_header(&route, bytes, error, tx),
        }
    }

    /// Receives a packet that is not the common case. `packet.bytes` holds only the body.
    #[inline(never)]
    fn receive_any<'p, X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        queue_wait: QueueWait,
        header: Header,
        mut packet: RxPacket<'p, R>,
        tx: &mut X,
    ) -> Event<'p, R> {
        if packet.bytes.len() > header.size as usize {
            let body = header.to_words().unpadded(packet.bytes);
            let is_padded = body.len() < packet.bytes.len();
            packet.bytes = body;
            if is_padded
                && let Some(event) = self.plain_message(now, queue_wait, header, packet, tx)
            {
                return event;
            }
        }
        let to_server = header.connection.is_server_role();
        if to_server
            && header.flags.extended()
            && let Some(event) = self.extended_request(now, queue_wait, header, packet, tx)
        {
            return event;
        }
        let RxPacket { route, bytes: body, marked } = packet;
        let turn = &mut Turn { queue_wait, marked, ..Turn::new(now, &mut self.endpoint, tx) };
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

    /// Receives a message that was padded, if it is the common case otherwise. `packet.bytes` holds
    /// only the body.
    #[inline(never)]
    fn plain_message<'p, X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        queue_wait: QueueWait,
        header: Header,
        packet: RxPacket<'p, R>,
        tx: &mut X,
    ) -> Option<Event<'p, R>> {
        let RxPacket { route, bytes: body, marked } = packet;
        let turn = &mut Turn { queue_wait, marked, ..Turn::new(now, &mut self.endpoint, tx) };
        let words = header.to_words();
        let event = if header.connection.is_server_role() {
            let plain = self.server.plain_request::<false, _>(turn, &route, words, body.len());
            let (handle, buffer) = plain?;
            Event::Request(request(handle, buffer, words, body, route))
        } else {
            let plain = self.client.plain_response(turn, &route, words, body.len());
            let Finished { token, request } = plain?;
            Event::Reply {
                token,
                result: Ok(Reply { body: Body::Packet(body), extended: false }),
                request,
            }
        };
        self.endpoint.stats.rx_delivered += 1;
        Some(event)
    }

    /// Receives a request of one packet with an extension, if it is the common case otherwise.
    /// `packet.bytes` holds only the body.
    #[inline(never)]
    fn extended_request<'p, X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        queue_wait: QueueWait,
        header: Header,
        packet: RxPacket<'p, R>,
        tx: &mut X,
    ) -> Option<Event<'p, R>> {
        let RxPacket { route, bytes: body, marked } = packet;
        let turn = &mut Turn { queue_wait, marked, ..Turn::new(now, &mut self.endpoint, tx) };
        let words = header.to_words();
        let plain = self.server.plain_request::<true, _>(turn, &route, words, body.len());
        let (handle, buffer) = plain?;
        self.endpoint.stats.rx_delivered += 1;
        let request = request(handle, buffer, words, body, route);
        Some(Event::Request(Request {
            extended: true,
            deadline: deadline_of(body, now),
            ..request
        }))
    }

    /// Drops a packet without a valid header. A `Hello` of another protocol version is answered in
    /// that version.
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
            // The peer has a session that this endpoint does not know. The reset is not longer than
            // the message that it answers, so forged source addresses give no amplification.
            let reset = Control::Reset { unknown: header.connection };
            tx.push_bytes(route, reset.emit(sender, nonce, ReplyInfo::default()).as_bytes());
        }
        outcome
    }

    /// Ends a burst, or a part of it: sends credit returns, requests response packets, resumes
    /// waiting calls.
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

    /// Runs the timers: lets paced sessions send whose departure is due, and handles sessions whose
    /// timer is due. At most 32 of each; the next call handles the rest.
    ///
    /// `read_until` is at most `now`. The owner has passed in every packet that arrived before
    /// `read_until`. A peer's silence is counted up to `read_until`, because a missing answer may
    /// still lie in the receive queue. For a call's timeout, a server's silence is counted further
    /// if its answers prove that later packets of this server were received. Deadlines and rates
    /// use `now`.
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

    /// The earliest time at which [`Self::expire`] may have work; [`Instant::NEVER`] if no timer is
    /// armed.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.endpoint.timers.next().min(self.client.next_departure())
    }

    /// Takes out the oldest notice.
    #[inline]
    pub fn pop_notice(&mut self) -> Option<Notice> {
        self.endpoint.notices.pop_front()
    }

    /// The address of a handshake that waits until the path to this address is known. The owner
    /// looks up the path and passes it to [`Core::routed`].
    pub fn next_unrouted(&mut self) -> Option<R> {
        self.client.next_routing().map(|(_, route)| route).or_else(|| self.server.next_unrouted())
    }

    /// Whether the address that [`Core::next_unrouted`] last returned is a server's, to which this
    /// endpoint opens a session.
    pub(crate) fn opens_unrouted(&self) -> bool {
        self.client.wants_route()
    }

    /// Passes in the path to the address that [`Core::next_unrouted`] last returned. Its handshake
    /// continues.
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

    /// Passes in a report that a packet of this endpoint was not delivered. If the packet is a
    /// recent one of a session that this endpoint opened, the server is asked for a sign of life
    /// immediately; the report alone ends no session. Other reports are counted and ignored.
    ///
    /// Takes constant time. If no packet reaches a server, its sessions end, which takes time in
    /// proportion to all sessions.
    #[cold]
    pub fn undelivered<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        report: &Undelivered<R>,
        tx: &mut X,
    ) {
        self.endpoint.timers.begin(now);
        let turn = &mut Turn::new(now, &mut self.endpoint, tx);
        if self.client.undelivered(turn, report) {
            turn.endpoint.stats.undelivered += 1;
        } else {
            turn.endpoint.stats.stray_reports += 1;
        }
    }

    /// Starts to open a session to `peer`. Calls are accepted and wait until it has opened. A
    /// notice says when it has opened or failed.
    ///
    /// # Errors
    /// [`ConnectError::TooManySessions`] if this endpoint has [`EndpointConfig::max_sessions`]
    /// sessions to servers.
    pub fn connect<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        peer: R,
        tx: &mut X,
    ) -> Result<SessionId, ConnectError> {
        self.endpoint.timers.begin(now);
        self.client.connect(&mut Turn::new(now, &mut self.endpoint, tx), peer)
    }

    /// Makes a call on a session. Every accepted call has exactly one outcome, which carries the
    /// call's token.
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

    /// Cancels the call on `session` that was made with `token`. The call ends with `cause`: a
    /// notice says so, and the server learns that the response is not wanted. Takes time in
    /// proportion to the calls that wait for a slot. False if there is no such call, or it has
    /// ended already.
    ///
    /// If its response was announced or had begun to arrive, and is not a failure, the call ends as
    /// [`ResponseLost`](super::CallError::ResponseLost). Otherwise, if all packets of its request
    /// were sent, it ends as [`MaybeExecuted`](super::CallError::MaybeExecuted), else as
    /// [`NotExecuted`](super::CallError::NotExecuted). If a packet was sent and no response has
    /// begun, the call's slot and its share of the window stay occupied until the server has
    /// answered.
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

    /// Ends a session after its calls have ended. A notice says when the session is closed.
    pub fn disconnect<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        session: SessionId,
        tx: &mut X,
    ) {
        self.client.disconnect(&mut Turn::new(now, &mut self.endpoint, tx), session);
    }

    /// A buffer for a response of `len` bytes: the one that came with the
    /// [request](Request::buffer) if it is large enough and no queue reads it any more, otherwise
    /// one from the pool.
    ///
    /// # Errors
    /// [`NoMemory`] if a buffer from the pool is needed and the pool has none.
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

    /// A buffer from the pool; `kept` goes back to the pool.
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

    /// Answers a request. `extended` says that the response begins with an
    /// [extension](crate::wire::extension). If the request's session has ended, the response is
    /// dropped and counted.
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

    /// Answers a request with a failure status. If the request's session has ended, the status is
    /// dropped and counted.
    pub fn respond_status<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        request: RequestHandle,
        status: &Status,
        tx: &mut X,
    ) {
        self.server.respond_status(&mut Turn::new(now, &mut self.endpoint, tx), request, status);
    }

    /// Begins to shut down as a server. From now on this endpoint refuses sessions, and requests
    /// that do not continue a stream: no handler runs, and clients learn that. Running requests go
    /// on. Every client is told, and closes its sessions when their calls have ended, so that
    /// [`Core::sessions`] reports when the last client has all that it waits for. The sessions of
    /// clients that do not answer end after half a second if they are idle.
    ///
    /// Calls of this endpoint to other servers go on as before. Call [`Core::shutdown`] in the end.
    /// A second call of this function does nothing.
    pub fn drain<X: TxQueue<Route = R>>(&mut self, now: Instant, tx: &mut X) {
        self.endpoint.timers.begin(now);
        self.server.drain(&mut Turn::new(now, &mut self.endpoint, tx));
    }

    /// Whether [`Core::drain`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.server.is_draining()
    }

    /// Answers a request that no handler has run and that none will run, because this endpoint
    /// shuts down. The call fails as [`NotExecuted`](super::CallError::NotExecuted), with
    /// [`Cause::PeerDraining`](super::Cause::PeerDraining), so that the client may make it on
    /// another server.
    pub fn refuse<X: TxQueue<Route = R>>(
        &mut self,
        now: Instant,
        request: RequestHandle,
        tx: &mut X,
    ) {
        self.server.refuse(&mut Turn::new(now, &mut self.endpoint, tx), request);
    }

    /// Tells all peers once that this endpoint shuts down, and ends every call with
    /// [`Cause::Shutdown`](super::Cause::Shutdown).
    pub fn shutdown<X: TxQueue<Route = R>>(&mut self, now: Instant, tx: &mut X) {
        let turn = &mut Turn::new(now, &mut self.endpoint, tx);
        self.client.shutdown(turn);
        self.server.shutdown(turn);
    }

    /// The endpoint's buffer pool.
    #[inline]
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.endpoint.pool
    }

    /// Statistics of the endpoint's buffer pool.
    pub fn pool_stats(&mut self) -> PoolStats {
        self.endpoint.pool.stats()
    }

    /// The minimum margin of the retransmission timeout above the round trip.
    pub(crate) fn min_rto(&self) -> std::time::Duration {
        self.endpoint.min_rto()
    }

    /// The counters of this endpoint since it was made.
    #[must_use]
    pub fn stats(&self) -> &ProtocolStats {
        &self.endpoint.stats
    }

    /// The state of a session that this endpoint opened; `None` if it has ended.
    #[must_use]
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        self.client.stats(&self.endpoint, session)
    }

    /// Addresses and connection ids of a session that this endpoint opened, `None` if it has
    /// ended.
    #[must_use]
    pub fn session_address(&self, session: SessionId) -> Option<SessionAddress<R>> {
        self.client.address(&self.endpoint, session)
    }

    /// The state of a session that a peer opened; `None` if it has ended.
    #[must_use]
    pub fn client_stats(&self, client: ClientId) -> Option<ClientStats> {
        self.server.client_stats(client)
    }

    /// The address of a client whose session is open; `None` if it has ended.
    #[must_use]
    pub fn client_address(&self, client: ClientId) -> Option<R> {
        self.server.client_address(client)
    }

    /// Whether the owner may keep `bytes` of a client's requests in addition to the memory that the
    /// session's slots hold, within [`EndpointConfig::session_memory_limit`].
    #[must_use]
    pub fn may_keep(&self, client: ClientId, bytes: usize) -> bool {
        self.server.may_keep(&self.endpoint, client, bytes)
    }

    /// Reports that the owner keeps `bytes` of a client's requests in all. They count against
    /// [`EndpointConfig::session_memory_limit`] until the next report: beyond the limit, further
    /// requests are refused before they are complete.
    pub fn keep(&mut self, client: ClientId, bytes: usize) {
        self.server.keep(client, bytes);
    }

    /// The number of sessions that this endpoint opened, and the number that it accepted.
    #[must_use]
    pub fn sessions(&self) -> (usize, usize) {
        (self.client.len(), self.server.len())
    }

    /// The window of each client endpoint at `route`: what it may have in flight to this endpoint,
    /// in units of this transport's [`ChargeModel`](crate::transport::ChargeModel). The client sees
    /// it as [`SessionStats::window`] after a reply or a ping has carried it. `None` if no session
    /// from `route` is open.
    #[must_use]
    pub fn granted(&self, route: &R) -> Option<u32> {
        self.server.granted(route)
    }

    /// The number of open sessions to this endpoint from the host of `route`: see
    /// [`EndpointConfig::max_sessions_per_host`].
    #[must_use]
    pub fn host_sessions(&self, route: &R) -> usize {
        self.server.host_sessions(route)
    }

    /// Checks that credits, windows, room, slots and memory add up, and that every waiting call
    /// will be resumed. Takes time in proportion to the sessions and their calls: for tests and
    /// simulations, after every event.
    ///
    /// # Panics
    /// If an invariant does not hold, which is a bug of this crate.
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

    /// The number of entries in the lines for windows and room: of calls that wait, and of calls
    /// that no longer wait but still have an entry.
    #[cfg(test)]
    pub(in crate::protocol) fn places_in_lines(&self) -> usize {
        self.client.places_in_lines()
    }

    /// Takes back the memory of a message. Does nothing for a body that is borrowed from the
    /// receive queue.
    #[inline]
    pub fn recycle(&mut self, body: Body<'_>) {
        if let Body::Message(msgbuf) = body {
            self.endpoint.pool.recycle(msgbuf);
        }
    }
}

/// A request of one packet without an extension.
#[inline(always)]
fn request<R>(
    handle: RequestHandle,
    buffer: Option<MsgBuf>,
    header: HeaderWords,
    body: &[u8],
    peer: R,
) -> Request<'_, R> {
    Request {
        handle,
        method: header.aux(),
        body: Body::Packet(body),
        peer,
        extended: false,
        deadline: Instant::NEVER,
        buffer: buffer.map(ResponseBuffer),
    }
}

/// A packet's header, whose version is not checked, and its body. The trailer, if there is one, has
/// been verified and removed.
#[inline(always)]
fn split(bytes: &[u8]) -> Result<(HeaderWords, &[u8]), HeaderError> {
    let header = HeaderWords::read(bytes).ok_or(HeaderError::Truncated)?;
    let bytes = if header.has_trailer() { unseal(header, bytes)? } else { bytes };
    Ok((header, &bytes[HEADER_LEN..]))
}

/// A packet without its trailer, which is verified before anything else but the version is used.
#[inline(never)]
fn unseal(header: HeaderWords, bytes: &[u8]) -> Result<&[u8], HeaderError> {
    Header::from_words(header)?;
    verify(bytes)
}

/// A packet without its trailer.
///
/// # Errors
/// [`HeaderError::Checksum`] if the checksum is wrong, [`HeaderError::Truncated`] if there is no
/// room for it.
#[inline]
fn verify(bytes: &[u8]) -> Result<&[u8], HeaderError> {
    let verified = checksum::check(bytes);
    if verified == Err(HeaderError::Checksum) && mutant!(ChecksumNotVerified) {
        return Ok(&bytes[..bytes.len() - checksum::TRAILER_LEN]);
    }
    verified
}
