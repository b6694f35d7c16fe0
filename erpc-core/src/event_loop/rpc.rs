//! The event loop of one endpoint.

use std::cell::Cell;
use std::time::Duration;

use crate::buf::{MsgBuf, NoMemory, Pool, PoolStats};
use crate::clock;
use crate::event_loop::doorbell::{self, Doorbell};
use crate::event_loop::turn::{HeldLoop, LoopGaps, Turns};
use crate::event_loop::unread::Unread;
use crate::log;
use crate::protocol::Stage;
use crate::protocol::{
    Acceptor, Body, CallError, Cause, ClientId, ClientStats, ConfigError, CongestionControl,
    ConnectError, Core, EndpointConfig, Event, EventSink, Local, NewCall, Notice, ProtocolStats,
    QueueWait, Rejected, Reply, Request, RequestHandle, ResponseBuffer, SessionAddress,
    SessionEvent, SessionId, SessionStats, UpcomingRequest,
};
use crate::random::random_key;
use crate::status::Status;
use crate::time::Instant;
use crate::transport::{Link, MAX_BURST, RxQueue, Transport, TransportStats, TxQueue, Waker};

/// A raw endpoint, eRPC's `Rpc`: a transport, the protocol on top of it, and a loop whose turns the
/// caller runs. It belongs to one thread. The handlers of requests and of replies are methods of an
/// [`App`].
///
/// [`Endpoint`](crate::endpoint::Endpoint) is the convenient wrapper for it.
///
/// ```
/// use erpc_core::protocol::{CallError, EndpointConfig, Reply, Request};
/// use erpc_core::event_loop::{App, Context, Rpc};
/// use erpc_core::buf::MsgBuf;
/// use erpc_core::transport::mem::{MemHub, MemTransport};
///
/// struct Print;
/// impl App<MemTransport> for Print {
///     fn on_request(&mut self, _: &mut Context<'_, MemTransport>, _: Request<'_, erpc_core::transport::mem::MemRoute>) {}
///     fn on_reply(&mut self, _: &mut Context<'_, MemTransport>, token: u64, reply: Result<Reply<'_>, CallError>, _: MsgBuf) {
///         println!("call {token}: {:?}", reply.map(|reply| reply.as_slice().to_vec()));
///     }
/// }
///
/// let hub = MemHub::new();
/// let mut rpc = Rpc::new(hub.port(Default::default()), EndpointConfig::new())?;
/// rpc.run_once(&mut Print);
/// # Ok::<(), erpc_core::protocol::ConfigError>(())
/// ```
pub struct Rpc<T: Transport> {
    core: Core<T::Route>,
    transport: T,
    /// Whether the clock is read for every received packet.
    stamps_packets: bool,
    /// The congestion control of sessions on links of unknown rate; `None` if a rate was
    /// configured.
    control_without_rate: Option<CongestionControl>,
    turns: Turns,
    unread: Unread,
    /// Whether packets may have been pushed since the last doorbell.
    is_staged: bool,
    doorbell: Doorbell,
}

/// Most paths per turn that are looked up in the operating system, at about 9 us each.
const LOOK_UPS: usize = 2;

/// Most reports of undelivered packets per turn that the protocol gets.
const REPORTS: usize = 16;

/// Most handshakes per turn that continue after they have waited for their path, at about a
/// microsecond each.
const HANDSHAKES: usize = 8;

/// The owner's code for the events of an endpoint.
///
/// The methods run on the endpoint's thread. The loop waits until they return.
pub trait App<T: Transport> {
    /// A request has arrived. Answer it with [`Context::respond`] or [`Context::respond_status`],
    /// now or in a later turn. The bytes of a request of one packet are lent until this method
    /// returns. The default answers [`Code::Unimplemented`](crate::status::Code::Unimplemented). An
    /// endpoint that does not listen receives no requests.
    ///
    /// [`Context::upcoming`] looks at the packets that follow in the burst, so that this method can
    /// prefetch what several requests will read, or look it up in one pass.
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        cx.respond_status(request.handle, &Status::unimplemented("this endpoint has no methods"));
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
    }

    /// A call has ended; `request` is its request buffer. The default does nothing; an endpoint
    /// that makes no calls receives no replies.
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, T>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        let _ = (cx, token, reply, request);
    }

    /// A session has opened or ended. The default does nothing.
    fn on_session(&mut self, cx: &mut Context<'_, T>, session: SessionId, event: SessionEvent) {
        let _ = (cx, session, event);
    }

    /// The client no longer waits for the response to this request, which has not been answered:
    /// the client cancelled it, its deadline passed at the client, or its session ended. The
    /// default does nothing.
    ///
    /// Called at most once per request. The request must still be answered, with any response or
    /// status: that frees its slot.
    fn on_cancel(&mut self, cx: &mut Context<'_, T>, request: RequestHandle) {
        let _ = (cx, request);
    }

    /// A peer has opened a session. The default does nothing.
    fn on_client(&mut self, cx: &mut Context<'_, T>, client: ClientId) {
        let _ = (cx, client);
    }

    /// A session opened by a peer has ended, for this reason. [`App::on_cancel`] was called before
    /// for each of its unanswered requests. The default does nothing.
    fn on_client_gone(&mut self, cx: &mut Context<'_, T>, client: ClientId, cause: Cause) {
        let _ = (cx, client, cause);
    }
}

/// Access to an endpoint for the methods of an [`App`], and for its owner between two turns.
pub struct Context<'a, T: Transport> {
    pub(super) core: &'a mut Core<T::Route>,
    pub(super) tx: &'a mut T::Tx,
    pub(super) turns: &'a mut Turns,
    pub(super) now: Instant,
    /// `None` between two bursts.
    burst: Option<&'a RxBurst<'a, T::Rx>>,
}

/// A burst whose packets are being received.
struct RxBurst<'p, Rx> {
    rx: &'p Rx,
    packets: usize,
    /// The index of the current packet.
    packet: Cell<usize>,
}

impl<'a, T: Transport> Context<'a, T> {
    #[inline]
    fn between_bursts(
        core: &'a mut Core<T::Route>,
        tx: &'a mut T::Tx,
        turns: &'a mut Turns,
        now: Instant,
    ) -> Self {
        Self { core, tx, turns, now, burst: None }
    }

    /// The time of this turn. By default the clock is read once per burst, not per packet or call.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The number of packets of the current burst, at most [`MAX_BURST`](crate::transport::MAX_BURST).
    /// 0 between two bursts.
    #[must_use]
    #[inline]
    pub fn packets(&self) -> usize {
        self.burst.map_or(0, |burst| burst.packets)
    }

    /// The index in the burst of the packet that has brought this request or reply. 0 between two
    /// bursts.
    #[must_use]
    #[inline]
    pub fn packet(&self) -> usize {
        self.burst.map_or(0, |burst| burst.packet.get())
    }

    /// The request that a packet of the burst will bring; see [`Core::upcoming`]. `None` for packets
    /// that were received already. The bytes are the same that [`App::on_request`] will get.
    ///
    /// # Panics
    /// If `packet` is not less than [`Context::packets`].
    #[must_use]
    #[inline(always)]
    pub fn upcoming(&self, packet: usize) -> Option<UpcomingRequest<'a>> {
        let burst = self.burst.filter(|burst| packet < burst.packets);
        let burst = burst.expect("the burst has no such packet");
        self.core.upcoming(burst.rx.packet(packet).bytes)
    }

    /// An empty msgbuf for at least `len` bytes.
    ///
    /// # Errors
    /// [`NoMemory`] if the endpoint's memory limit is reached.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<MsgBuf, NoMemory> {
        self.core.pool().alloc(len)
    }

    /// Returns a msgbuf to the pool. Dropping it does the same, a little slower.
    #[inline]
    pub fn recycle(&mut self, msgbuf: MsgBuf) {
        self.core.pool().recycle(msgbuf);
    }

    /// Starts to open a session. Returns immediately; calls are accepted and wait until it is open.
    /// [`App::on_session`] reports the outcome.
    ///
    /// # Errors
    /// [`ConnectError::TooManySessions`].
    pub fn connect(&mut self, peer: T::Route) -> Result<SessionId, ConnectError> {
        self.core.connect(self.now, peer, self.tx)
    }

    /// Makes a call. [`App::on_reply`] receives the outcome with the call's token, exactly once.
    ///
    /// # Errors
    /// [`Rejected`] if the call cannot be accepted. It contains the request.
    #[inline(always)]
    pub fn call(&mut self, session: SessionId, call: NewCall) -> Result<(), Rejected> {
        self.core.call(self.now, session, call, self.tx)
    }

    /// Ends the call with `token`, with this cause, and tells the server; see [`Core::cancel`].
    /// [`App::on_reply`] receives the outcome in the next turn. Returns whether the call existed:
    /// false if it has already ended.
    pub fn cancel(&mut self, session: SessionId, token: u64, cause: Cause) -> bool {
        self.core.cancel(self.now, session, token, cause, self.tx)
    }

    /// A buffer for a response of `len` bytes: `kept`, the [request's buffer](Request::buffer), if
    /// it is large enough, otherwise a new one. A handler that responds later need not keep the
    /// request's buffer, and then passes `None`.
    ///
    /// # Errors
    /// [`NoMemory`] if the endpoint's memory limit is reached.
    #[inline(always)]
    pub fn response_buffer(
        &mut self,
        kept: Option<ResponseBuffer>,
        len: usize,
    ) -> Result<MsgBuf, NoMemory> {
        self.core.response_buffer(kept, len)
    }

    /// Takes back a [request's buffer](Request::buffer) that the response does not use.
    #[inline]
    pub(crate) fn recycle_response_buffer(&mut self, kept: Option<ResponseBuffer>) {
        self.core.recycle_response_buffer(kept);
    }

    /// Answers a request. `extended`: the response begins with an
    /// [extension](crate::wire::extension).
    ///
    /// The response is sent with the other packets of the [turn](Rpc::run_once), or immediately if
    /// the handler took more than 10 us to make it and the loop recently had a long turn.
    #[inline(always)]
    pub fn respond(&mut self, request: RequestHandle, response: MsgBuf, extended: bool) {
        let answered = self.turns.answered(self.now);
        self.core.respond(answered.at, request, response, extended, self.tx);
        if answered.slow {
            self.tx.doorbell();
        }
    }

    /// Answers a request with a failure. The failure is sent at the same time as a response of
    /// [`Context::respond`] would be.
    pub fn respond_status(&mut self, request: RequestHandle, status: &Status) {
        let answered = self.turns.answered(self.now);
        self.core.respond_status(answered.at, request, status, self.tx);
        if answered.slow {
            self.tx.doorbell();
        }
    }

    /// Answers a request for which no handler has run and none will run; see [`Core::refuse`].
    pub fn refuse(&mut self, request: RequestHandle) {
        let answered = self.turns.answered(self.now);
        self.core.refuse(answered.at, request, self.tx);
    }

    /// Ends a session after the calls that it has accepted are done.
    pub fn disconnect(&mut self, session: SessionId) {
        self.core.disconnect(self.now, session, self.tx);
    }

    /// Statistics of a session that this endpoint opened, `None` if it is gone.
    #[must_use]
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        self.core.session_stats(session)
    }

    /// Addresses and connection ids of a session that this endpoint opened, `None` if it is
    /// gone.
    #[must_use]
    pub fn session_address(&self, session: SessionId) -> Option<SessionAddress<T::Route>> {
        self.core.session_address(session)
    }

    /// The address of a client whose session is open; `None` if it has ended.
    #[must_use]
    pub fn client_address(&self, client: ClientId) -> Option<T::Route> {
        self.core.client_address(client)
    }

    /// Whether `bytes` of a client's requests may be kept; see [`Core::may_keep`].
    #[must_use]
    pub fn may_keep(&self, client: ClientId, bytes: usize) -> bool {
        self.core.may_keep(client, bytes)
    }

    /// Sets how many bytes of a client's requests the owner keeps in total; see [`Core::keep`].
    pub fn keep(&mut self, client: ClientId, bytes: usize) {
        self.core.keep(client, bytes);
    }

    /// Periods in which the loop did not poll its receive queue for a long time; see [`LoopGaps`].
    #[must_use]
    pub fn loop_gaps(&self) -> LoopGaps {
        self.turns.gaps()
    }

    /// Statistics of a session that a peer opened, `None` if it is gone.
    #[must_use]
    pub fn client_stats(&self, client: ClientId) -> Option<ClientStats> {
        self.core.client_stats(client)
    }
}

/// All counters of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndpointStats {
    /// The protocol's counters.
    pub protocol: ProtocolStats,
    /// The transport's counters.
    pub transport: TransportStats,
    /// The msgbuf pool's counters.
    pub pool: PoolStats,
    /// Number of sessions that this endpoint opened and that are not gone.
    pub client_sessions: usize,
    /// Number of sessions that this endpoint accepted and that are not gone.
    pub server_sessions: usize,
    /// Number of requests answered with
    /// [`Code::DeadlineExceeded`](crate::status::Code::DeadlineExceeded) without running, because
    /// their deadline passed before their handler would have started.
    pub late_requests: u64,
    /// Periods in which the loop did not poll its receive queue for a long time; see [`LoopGaps`].
    pub loop_gaps: LoopGaps,
}

/// Passes an event to the endpoint's owner.
struct Delivery<'a, 'p, A, T: Transport> {
    app: &'a mut A,
    burst: &'a RxBurst<'p, T::Rx>,
    turns: &'a mut Turns,
    queue_wait: &'a mut QueueWait,
    now: Instant,
}

impl<'p, T: Transport, A: App<T>> EventSink<'p, T::Route, T::Tx> for Delivery<'_, 'p, A, T> {
    #[inline(always)]
    fn on_event(self, core: &mut Core<T::Route>, tx: &mut T::Tx, event: Event<'p, T::Route>) {
        let Self { app, burst, turns, queue_wait, now } = self;
        let burst = Some(burst);
        match event {
            Event::None => {}
            Event::Request(request) => {
                turns.dispatches(request.method);
                if turns.are_watched() {
                    turns.send_before_handler(core, now, *queue_wait, tx);
                }
                app.on_request(&mut Context { core, tx, turns, now, burst }, request);
                if turns.are_watched() {
                    // The later packets of the burst have waited for this handler.
                    queue_wait.delay = turns.resume(now);
                }
            }
            Event::Reply { token, result, request } => {
                app.on_reply(&mut Context { core, tx, turns, now, burst }, token, result, request);
            }
            Event::Cancelled(request) => {
                app.on_cancel(&mut Context { core, tx, turns, now, burst }, request);
            }
        }
    }
}

impl<T: Transport> Rpc<T> {
    /// Creates an endpoint over `transport`.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of range, or needs something that the transport does not
    /// support.
    pub fn new(mut transport: T, config: EndpointConfig) -> Result<Self, ConfigError> {
        let pool = Pool::in_arena(config.memory(), transport.arena());
        let key = if config.fixed_seed().is_some() { (0, 0) } else { random_key() };
        let (reads_marks, stamps_packets) = (config.reads_marks(), config.stamps_packets());
        let control_without_rate = config.control_without_rate();
        let slow_handler = config.slow_handler_limit();
        let capabilities = transport.capabilities();
        let core = Core::with_pool(Local::from(capabilities), config, key, pool)?;
        if reads_marks {
            transport.enable_ecn().map_err(ConfigError::from)?;
        }
        let turns = Turns::new(core.min_rto(), slow_handler);
        let unread = Unread::new(&capabilities);
        Ok(Self {
            core,
            transport,
            stamps_packets,
            control_without_rate,
            turns,
            unread,
            is_staged: false,
            doorbell: Doorbell::default(),
        })
    }

    /// Accepts sessions from now on.
    pub fn listen(&mut self, acceptor: Acceptor) {
        self.core.listen(acceptor);
    }

    /// Runs one turn: sends the packets pushed since the last turn, receives a burst, handles due
    /// timers, and rings the doorbell. Returns the amount of work; 0 means that the endpoint is
    /// idle.
    ///
    /// If the transport holds packets for the next burst ([`RxQueue::has_more`]), the turn may leave
    /// its own packets to a later turn, to the third one at most. So run turns until one returns 0,
    /// or call [`Rpc::ring_doorbell`] before other work.
    ///
    /// The work is bounded: one burst of at most [`MAX_BURST`](crate::transport::MAX_BURST)
    /// packets, at most 32 timers and 32 paced sessions that are due, at most 8 handshakes, at most
    /// 16 reports of undelivered packets, and the outcomes of all of these.
    #[inline]
    pub fn run_once<A: App<T>>(&mut self, app: &mut A) -> usize {
        self.turn(&mut clock::now(), false, app)
    }

    /// Like [`Rpc::run_once`], at the time `now`, for virtual clocks.
    #[inline]
    pub fn run_once_at<A: App<T>>(&mut self, mut now: Instant, app: &mut A) -> usize {
        self.turn(&mut now, true, app)
    }

    /// Runs one turn at `time`. With `is_virtual`, the clock is the caller's. Otherwise `time` is
    /// updated with later readings of the clock, so that time never runs backwards for the
    /// protocol.
    #[inline]
    pub(crate) fn turn<A: App<T>>(
        &mut self,
        time: &mut Instant,
        is_virtual: bool,
        app: &mut A,
    ) -> usize {
        let mut now = *time;
        let (rx, tx) = self.transport.split();
        if std::mem::take(&mut self.is_staged) && !rx.has_more() {
            // Send first: the burst may be a system call that finds nothing, and the packets would
            // wait for it.
            tx.doorbell();
        }
        let received = rx.burst();
        debug_assert!(received <= MAX_BURST, "see `RxQueue::burst`");
        let read_until = self.unread.polled(now, received, rx.is_drained());
        if T::Rx::IS_SYSTEM_CALL && received > 0 && !is_virtual {
            // Packets may have arrived during the system call, which can take milliseconds.
            // Without a new reading, round trips would seem shorter than they were.
            now = clock::now();
        }
        let turns = &mut self.turns;
        let absence = turns.begin(now, received, is_virtual);
        let mut queue_wait = QueueWait { absence, delay: 0 };
        let mut work = received;
        let stamps_packets = self.stamps_packets;
        let rx = &*rx;
        if received > 1 && self.core.is_crowded() {
            for stage in [Stage::Sessions, Stage::Messages] {
                for at in 0..received {
                    self.core.prefetch(rx.packet(at).bytes, stage);
                }
            }
        }
        let middle = doorbell::middle(received, self.core.outstanding_calls());
        let burst = &RxBurst { rx, packets: received, packet: Cell::new(0) };
        let mut at = 0;
        // The packets before `end` need neither a doorbell nor a new reading of the clock.
        let mut end = if stamps_packets { received.min(1) } else { middle };
        loop {
            while at < end {
                burst.packet.set(at);
                let delivery = Delivery { app, burst, turns, queue_wait: &mut queue_wait, now };
                self.core.receive(now, *delivery.queue_wait, rx.packet(at), tx, delivery);
                at += 1;
            }
            if at == received {
                break;
            }
            if at == middle {
                tx.doorbell();
            }
            if stamps_packets {
                now = clock::now();
            }
            end = if stamps_packets { at + 1 } else { received };
        }
        *time = now;
        if received > 0 {
            self.core.end_of_burst(now, queue_wait, tx);
        }
        let rings = self.doorbell.rings(now, rx.has_more(), self.turns.are_watched());
        if rings && received > 0 {
            // Before the timers: peers wait for these packets.
            tx.doorbell();
        }
        if self.transport.has_undelivered() {
            work += self.pass_in_reports(now);
        }
        let (_, tx) = self.transport.split();
        self.core.expire(now, read_until, tx);
        if self.core.wants_route() {
            work += self.look_up_paths(now);
        }
        work += self.deliver_notices(now, app);
        if rings {
            self.transport.split().1.doorbell();
        }
        work
    }

    fn deliver_notices<A: App<T>>(&mut self, now: Instant, app: &mut A) -> usize {
        let (_, tx) = self.transport.split();
        let mut delivered = 0;
        while let Some(notice) = self.core.pop_notice() {
            delivered += 1;
            let mut cx = Context::between_bursts(&mut self.core, tx, &mut self.turns, now);
            match notice {
                Notice::CallFailed { token, error, request } => {
                    app.on_reply(&mut cx, token, Err(error), request)
                }
                Notice::Session(session, event) => app.on_session(&mut cx, session, event),
                Notice::Cancelled(request) => app.on_cancel(&mut cx, request),
                Notice::ClientCame(client) => app.on_client(&mut cx, client),
                Notice::ClientGone(client, cause) => app.on_client_gone(&mut cx, client, cause),
            }
        }
        delivered
    }

    /// Tells the protocol which packets were not delivered. Called after the burst, because its
    /// packets may show that the peers are alive. Returns the number of packets.
    #[cold]
    fn pass_in_reports(&mut self, now: Instant) -> usize {
        for count in 0..REPORTS {
            let Some(report) = self.transport.next_undelivered() else { return count };
            self.core.undelivered(now, &report, self.transport.split().1);
        }
        REPORTS
    }

    /// Continues handshakes that wait for their path, only a few per turn, because each takes
    /// microseconds. Returns how many it considered.
    #[cold]
    fn look_up_paths(&mut self, now: Instant) -> usize {
        let (mut looked_up, mut seen) = (0, 0);
        // A path look-up needs the whole transport, so its halves cannot be borrowed yet.
        while let Some(route) = self.core.next_unrouted() {
            looked_up += usize::from(!self.transport.knows_path(&route));
            seen += 1;
            if looked_up > LOOK_UPS || seen > HANDSHAKES {
                break;
            }
            let path = self.transport.path(&route);
            if let (Link::Unknown, Some(control)) = (path.link, &self.control_without_rate)
                && self.core.opens_unrouted()
            {
                log::link_rate_unknown(now, control, &route);
            }
            let (_, tx) = self.transport.split();
            self.core.routed(now, path, tx);
        }
        seen
    }

    /// Access to the endpoint between two turns. Pushed packets are sent as those of the next
    /// [turn](Rpc::run_once), in most cases at its start, or with [`Rpc::ring_doorbell`].
    #[inline]
    pub fn context(&mut self) -> Context<'_, T> {
        self.context_at(clock::now())
    }

    /// Like [`Rpc::context`], at the time `now`.
    #[inline]
    pub fn context_at(&mut self, now: Instant) -> Context<'_, T> {
        self.is_staged = true;
        let tx = self.transport.split().1;
        Context::between_bursts(&mut self.core, tx, &mut self.turns, now)
    }

    /// Sends the packets that were pushed outside of a turn, or that a turn has left to later ones.
    pub fn ring_doorbell(&mut self) {
        self.is_staged = false;
        self.doorbell.rang();
        self.transport.split().1.doorbell();
    }

    /// Whether the last turn has left packets for the doorbell of a later one.
    #[inline]
    pub(crate) fn holds_packets(&self) -> bool {
        self.doorbell.holds()
    }

    /// The earliest time at which a timer may be due, `None` if no timer is armed. If there is work
    /// to do now, the result is a time in the past.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.core.wants_route() {
            return Some(Instant::ZERO);
        }
        let deadline = self.core.next_deadline();
        (deadline != Instant::NEVER).then_some(deadline)
    }

    /// Sleeps until a packet may have arrived, a timer may be due, the waker is used, or `limit`
    /// has passed.
    pub fn wait(&mut self, limit: Option<Duration>) {
        self.wait_at(clock::now(), limit);
    }

    /// Like [`Rpc::wait`], at the time `now`, for virtual clocks.
    pub(crate) fn wait_at(&mut self, now: Instant, limit: Option<Duration>) {
        let until_timer = self.next_deadline().map(|deadline| deadline - now);
        let timeout = match (until_timer, limit) {
            (Some(timer), Some(limit)) => Some(timer.min(limit)),
            (timer, limit) => timer.or(limit),
        };
        self.transport.wait(timeout);
        if T::WAKES_FOR_PACKETS { self.rested() } else { self.turns.pause() }
    }

    /// Declares that no packet has waited for the next turn, because the loop slept until something
    /// arrived. For loops that sleep elsewhere than in [`Rpc::wait`]. Without this call, the time
    /// since the last turn counts as the loop's absence, and is subtracted from measured round-trip
    /// times.
    pub fn rested(&mut self) {
        self.turns.rest();
    }

    /// A handle that ends [`Rpc::wait`] from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.transport.waker()
    }

    /// The address that peers see.
    #[must_use]
    pub fn local_route(&self) -> T::Route {
        self.transport.local_route()
    }

    /// Begins to shut down as a server: running requests go on, new ones are refused; see
    /// [`Core::drain`]. The clients are told with the next turn.
    pub fn drain(&mut self) {
        self.drain_at(clock::now());
    }

    /// Like [`Rpc::drain`], at the time `now`, for virtual clocks.
    pub fn drain_at(&mut self, now: Instant) {
        self.is_staged = true;
        self.core.drain(now, self.transport.split().1);
    }

    /// Disconnects from all peers and ends every call. The outcomes arrive with the next turn.
    pub fn shutdown(&mut self) {
        self.shutdown_at(clock::now());
    }

    /// Like [`Rpc::shutdown`], at the time `now`, for virtual clocks.
    pub fn shutdown_at(&mut self, now: Instant) {
        let (_, tx) = self.transport.split();
        self.core.shutdown(now, tx);
        tx.flush();
    }

    /// Number of sessions that this endpoint has opened, and that it has accepted, without those
    /// that are gone.
    #[must_use]
    pub fn sessions(&self) -> (usize, usize) {
        self.core.sessions()
    }

    /// How much each client endpoint at `route` may have in flight to this endpoint, in charge
    /// units; see [`Core::granted`].
    #[must_use]
    pub fn granted(&self, route: &T::Route) -> Option<u32> {
        self.core.granted(route)
    }

    /// Number of sessions that the host of `route` opened to this endpoint.
    #[must_use]
    pub fn host_sessions(&self, route: &T::Route) -> usize {
        self.core.host_sessions(route)
    }

    /// The transport, for its own methods.
    #[must_use]
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Checks the endpoint's invariants between two turns, as [`Core::check_invariants`] does.
    ///
    /// # Panics
    /// If an invariant is violated, which is a bug in this crate.
    pub fn check_invariants(&self) {
        self.core.check_invariants();
    }

    /// The protocol's counters.
    pub(crate) fn protocol_stats(&self) -> &ProtocolStats {
        self.core.stats()
    }

    /// The start of the last turn; `None` if the loop has slept since.
    pub(crate) fn last_turn(&self) -> Option<Instant> {
        self.turns.last()
    }

    /// The longest absence of the loop since the last call of this function, if it was longer than
    /// [`EndpointConfig::slow_handler`].
    pub(crate) fn take_held(&mut self) -> Option<HeldLoop> {
        self.turns.take_held()
    }

    /// The current counters.
    #[must_use]
    pub fn stats(&mut self) -> EndpointStats {
        let (client_sessions, server_sessions) = self.core.sessions();
        EndpointStats {
            protocol: *self.core.stats(),
            transport: self.transport.stats(),
            pool: self.core.pool_stats(),
            client_sessions,
            server_sessions,
            // Counted by the code that runs handlers.
            late_requests: 0,
            loop_gaps: self.turns.gaps(),
        }
    }
}
