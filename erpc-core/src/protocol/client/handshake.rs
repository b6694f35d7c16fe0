//! A session opens, and ends.
//!
//! ```text
//! client                                    server
//!   Hello(client id, versions), padded  ->    any endpoint; keeps nothing
//!   <-  Challenge(cookie, port, steer)
//!   Open(client id, cookie, parameters) ->    the endpoint that was named; checks the cookie
//!   <-  Opened(server id, parameters)
//! ```
//!
//! `Open` goes the way that data will go, so it probes the path, the firewall and the steering.

use super::*;
use crate::buf::MIN_PAYLOAD;
use crate::mutants::mutant;
use crate::protocol::ConnectError;
use crate::protocol::config::LINK_RATES;
use crate::protocol::congestion;
use crate::protocol::rtt::RttEstimator;
use crate::protocol::stats::DropReason;
use crate::transport::{ChargeModel, MIN_DATAGRAM, Path, TxQueue};
use crate::wire::checksum::overhead;
use crate::wire::control::{Control, Parameters, Refusal};
use crate::wire::{Flags, HEADER_LEN, Header, ReplyInfo, VERSION};

/// First pause between two copies of a handshake message, doubled once. Nanoseconds. Forty copies within the
/// default time-out open a session on a path that loses every third packet in bursts of eight.
const FIRST_REPEAT: u64 = 25_000_000;
/// Unanswered `Open`s after which the client asks for another cookie: the server may have restarted.
const OPENS_PER_COOKIE: u8 = 3;

impl<R: Route> ClientSide<R> {
    /// Starts to open a session. Calls may be queued on it at once.
    pub(in crate::protocol) fn connect<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: R,
    ) -> Result<SessionId, ConnectError> {
        if self.sessions.len() >= turn.endpoint.config.max_sessions as usize {
            return Err(ConnectError::TooManySessions);
        }
        let generation = turn.endpoint.ids.draw();
        let charges = Charges {
            model: turn.endpoint.local.charge,
            overhead: HEADER_LEN,
            bare: 0,
            bare_reply: 0,
            eager_reply: 0,
            full_reply: 0,
        };
        let slots = Slots::from_fn(Slot::new);
        let index = self.sessions.insert(ClientSession {
            generation,
            credits: 0,
            free: SlotSet::ALL,
            starved: SlotSet::EMPTY,
            starved_turn: SlotIndex::FIRST,
            overtaken: 0,
            paced: SlotSet::EMPTY,
            paced_turn: SlotIndex::FIRST,
            owes_done: SlotSet::EMPTY,
            told_done: SlotSet::EMPTY,
            told_at: turn.now,
            draining: false,
            flags: Flags::NONE,
            state: State::Hello,
            route,
            asked: route,
            remote: ConnectionId::default(),
            peer: PeerIndex::NONE,
            charges,
            granted: 0,
            payload: 0,
            eager: 0,
            offered: 0,
            max_request: turn.endpoint.config.max_message,
            rtt: RttEstimator::new(turn.endpoint.min_rto()),
            link_rate: None,
            congestion: Congestion::None,
            pace: Pace::FREE,
            last_heard: turn.now,
            last_ping: turn.now,
            since: turn.now,
            repeat_at: turn.now,
            repeats: 0,
            timer_at: Instant::NEVER,
            queue: VecDeque::new(),
            queue_deadline: Instant::NEVER,
            slots,
        });
        self.send_handshake(turn, index);
        Ok(SessionId { index, generation })
    }

    /// Ends a session: no new calls; when those accepted are done, the server is told.
    pub(in crate::protocol) fn disconnect<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
    ) {
        let session =
            self.sessions.get_mut(id.index).filter(|session| session.generation == id.generation);
        let Some(session) = session else { return };
        if session.draining {
            return;
        }
        session.draining = true;
        self.close_if_drained(turn, id.index);
    }

    /// Ends a session that was disconnected if it has no more calls.
    pub(super) fn close_if_drained<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let Some(session) = self.sessions.get(index) else { return };
        if !session.draining || !session.is_drained() {
            return;
        }
        match session.state {
            State::Open => self.begin_closing(turn, index),
            State::Closing => {}
            _ => self.remove(turn, index, Cause::Disconnected),
        }
    }

    /// The session is drained and says good-bye.
    fn begin_closing<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let session = &mut self.sessions[index];
        session.state = State::Closing;
        session.since = turn.now;
        session.repeats = 0;
        self.send_handshake(turn, index);
    }

    /// Tells every server that this endpoint goes, once, and ends every call.
    pub(in crate::protocol) fn shutdown<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        let ids: Vec<SessionId> = self.ids().collect();
        for id in ids {
            let session = &self.sessions[id.index];
            if matches!(session.state, State::Open | State::Closing) {
                let sender = Self::local_id(turn.endpoint, id.index, session);
                let packet =
                    Control::Close { sender }.emit(session.remote, 0, ReplyInfo::default());
                turn.tx.push_bytes(&session.route, packet.as_bytes());
            }
            self.remove(turn, id.index, Cause::Shutdown);
        }
    }

    /// The current handshake message or `Close`, and the timer for its next copy.
    fn send_handshake<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let session = &mut self.sessions[index];
        let client = Self::local_id(turn.endpoint, index, session);
        let nonce = u32::from(session.repeats);
        let none = ReplyInfo::default();
        let packet = match session.state {
            State::Hello => {
                let hello = Control::Hello { client, low: VERSION.into(), high: VERSION.into() };
                Some(hello.emit(ConnectionId::endpoint(0), nonce, none))
            }
            State::Opening { cookie, steer, max_datagram } => {
                let parameters =
                    turn.endpoint.parameters(max_datagram, session.eager, self.room.limit);
                Some(Control::Open { client, cookie, parameters }.emit(
                    ConnectionId::endpoint(steer),
                    nonce,
                    none,
                ))
            }
            State::Closing => {
                Some(Control::Close { sender: client }.emit(session.remote, nonce, none))
            }
            State::Routing { .. } | State::Open => None,
        };
        if let Some(packet) = packet {
            turn.tx.push_bytes(&session.route, packet.as_bytes());
        }
        // The time-out is kept exactly, not at the next copy; and a timer that was armed for a call or
        // an earlier message is moved, not left to fire too early.
        let pause = FIRST_REPEAT << session.repeats.min(1);
        let deadline =
            turn.now.plus_nanos(pause).min(session.since + turn.endpoint.config.connect_timeout);
        session.repeat_at = deadline;
        session.timer_at = Instant::NEVER;
        Self::arm(turn.endpoint, index, session, deadline.min(session.queue_deadline));
    }

    /// Nothing has come: again, or never.
    pub(super) fn handshake_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let session = &mut self.sessions[index];
        if turn.now < session.repeat_at {
            let deadline = session.repeat_at.min(session.queue_deadline);
            Self::arm(turn.endpoint, index, session, deadline);
            return;
        }
        let closing = matches!(session.state, State::Closing);
        let halves = if mutant!(ConnectHalved) { 2 } else { 1 };
        if turn.now - session.since >= turn.endpoint.config.connect_timeout / halves {
            let cause =
                if closing { Cause::Disconnected } else { Cause::Connect(ConnectError::Timeout) };
            self.remove(turn, index, cause);
            return;
        }
        session.repeats = session.repeats.saturating_add(1);
        if matches!(session.state, State::Opening { .. })
            && session.repeats.is_multiple_of(OPENS_PER_COOKIE)
        {
            session.state = State::Hello;
            // Whoever has answered since, and from wherever.
            session.route = session.asked;
        }
        self.send_handshake(turn, index);
    }

    /// The session whose path is to be looked up next, with the address.
    pub(in crate::protocol) fn next_routing(&mut self) -> Option<(SessionId, R)> {
        while let Some(&id) = self.routing.last() {
            if let Some(session) = self.sessions.get(id.index)
                && session.generation == id.generation
                && matches!(session.state, State::Routing { .. })
            {
                return Some((id, session.route));
            }
            self.routing.pop();
        }
        None
    }

    /// The path to the server carries datagrams of `path_datagram` bytes.
    pub(in crate::protocol) fn routed<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        path: Path,
    ) {
        self.routing.retain(|routing| *routing != id);
        let Some(session) = self.sessions.get_mut(id.index) else { return };
        let State::Routing { cookie, steer } = session.state else { return };
        let path_datagram = path.datagram.min(u32::MAX as usize) as u32;
        let told = path.link_rate.map(|rate| rate.clamp(LINK_RATES.0, LINK_RATES.1));
        session.link_rate = turn.endpoint.config.link_rate.or(told);
        let max_datagram = path_datagram.min(turn.endpoint.fitting_datagram(self.room.limit));
        if (max_datagram as usize) < MIN_DATAGRAM {
            self.remove(turn, id.index, Cause::Connect(ConnectError::Parameters));
            return;
        }
        session.state = State::Opening { cookie, steer, max_datagram };
        // Kept for good: the server may have noted it from an earlier `Open`.
        if session.eager == 0 {
            session.eager = turn.endpoint.eager(self.room.limit);
        }
        session.offered = session.offered.max(max_datagram);
        session.repeats = 0;
        self.send_handshake(turn, id.index);
    }

    /// A control message to a session of ours.
    pub(in crate::protocol) fn control<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        message: Control,
    ) -> Result<(), DropReason> {
        let index = SessionIndex::of(header.connection);
        let session = self.sessions.get_mut(index).ok_or(DropReason::UnknownConnection)?;
        if session.generation != header.connection.generation() {
            return Err(DropReason::UnknownConnection);
        }
        if session.route != *route {
            // A server with several addresses answers a `Hello` from the one that its kernel prefers.
            // Whoever answers knows the session's 32 random bits, and could have forged its address as
            // well; the session goes on with the address that answers, which `Open` then proves.
            let answers_hello = matches!(session.state, State::Hello)
                && matches!(message, Control::Challenge { .. } | Control::Refused { .. })
                && route.port() != 0
                && route.port() == session.route.port();
            if !answers_hello {
                return Err(DropReason::WrongRoute);
            }
            session.route = *route;
        }
        match (message, session.state) {
            (Control::Challenge { cookie, port, steer }, State::Hello) => {
                if port != 0 {
                    session.route = session.route.with_port(port);
                }
                session.state = State::Routing { cookie, steer };
                let id = SessionId { index, generation: session.generation };
                self.routing.push(id);
                Ok(())
            }
            (Control::Opened { server, parameters }, State::Opening { steer, .. }) => {
                self.opened(turn, index, server, steer, &parameters)
            }
            (Control::Refused { reason, low, high }, State::Hello | State::Opening { .. }) => {
                let error = match reason {
                    Refusal::Version => ConnectError::Version(low, high),
                    Refusal::Full => ConnectError::Full,
                    Refusal::NotListening => ConnectError::NotListening,
                    Refusal::Parameters => ConnectError::Parameters,
                };
                self.remove(turn, index, Cause::Connect(error));
                Ok(())
            }
            (Control::Ping { sender }, State::Open) if sender == session.remote => {
                session.last_heard = turn.now;
                self.peers[session.peer].heed(ReplyInfo::from_u32(header.aux));
                let pong = Control::Pong.emit(
                    session.remote,
                    header.request.to_u32(),
                    ReplyInfo::default(),
                );
                turn.tx.push_bytes(route, pong.as_bytes());
                Ok(())
            }
            (Control::Pong, State::Open) if mutant!(PongIgnored) => Ok(()),
            (Control::Pong, State::Open) => {
                session.last_heard = turn.now;
                self.peers[session.peer].heed(ReplyInfo::from_u32(header.aux));
                Ok(())
            }
            (Control::Close { sender }, State::Open | State::Closing)
                if sender == session.remote =>
            {
                let closed = Control::Closed.emit(
                    session.remote,
                    header.request.to_u32(),
                    ReplyInfo::default(),
                );
                turn.tx.push_bytes(route, closed.as_bytes());
                let cause = if session.is_open() { Cause::PeerClosed } else { Cause::Disconnected };
                self.remove(turn, index, cause);
                Ok(())
            }
            (Control::Reset { unknown }, State::Open) if unknown == session.remote => {
                self.remove(turn, index, Cause::PeerReset);
                Ok(())
            }
            (Control::Reset { unknown }, State::Closing) if unknown == session.remote => {
                self.remove(turn, index, Cause::Disconnected);
                Ok(())
            }
            (Control::Closed, State::Closing) => {
                self.remove(turn, index, Cause::Disconnected);
                Ok(())
            }
            _ => Err(DropReason::Handshake),
        }
    }

    /// The server has accepted.
    fn opened<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        server: ConnectionId,
        steer: u8,
        parameters: &Parameters,
    ) -> Result<(), DropReason> {
        let offered = self.sessions[index].offered;
        let model = ChargeModel::from_u8(parameters.charge_model);
        let overhead = overhead(parameters.integrity);
        let fits = (MIN_DATAGRAM as u32..=offered).contains(&parameters.max_datagram)
            && (1..=turn.endpoint.config.credits).contains(&parameters.credits)
            && (MIN_PAYLOAD as u32..=parameters.max_datagram - overhead as u32)
                .contains(&parameters.eager)
            && parameters.eager <= self.sessions[index].eager
            && parameters.max_message >= 1
            && (parameters.integrity
                || !turn.endpoint.wants_trailer()
                || mutant!(IntegrityIgnored));
        let Some(model) = model.filter(|_| fits) else {
            self.remove(turn, index, Cause::Connect(ConnectError::Parameters));
            return Err(DropReason::Handshake);
        };
        let session = &mut self.sessions[index];
        let payload = parameters.max_datagram - overhead as u32;
        // What the server has noted, from whichever `Open` reached it; both sides must cut alike.
        let eager = parameters.eager;
        let local = turn.endpoint.local.charge;
        session.state = State::Open;
        session.remote = server;
        session.flags = Flags::new(parameters.integrity, false);
        session.granted = parameters.credits;
        session.credits = parameters.credits;
        session.payload = payload;
        session.eager = eager;
        session.max_request = parameters.max_message;
        session.last_heard = turn.now;
        session.repeats = 0;
        session.charges = Charges {
            model,
            overhead,
            bare: model.charge(overhead),
            bare_reply: local.charge(overhead),
            eager_reply: local.charge(overhead + eager as usize),
            full_reply: local.charge(parameters.max_datagram as usize),
        };
        if let Some(line_rate) = session.link_rate {
            let noise = turn.endpoint.local.rtt_noise;
            let datagram = parameters.max_datagram;
            let path = congestion::Path { line_rate, noise, datagram };
            session.congestion = Congestion::new(&turn.endpoint.config.congestion, &path);
            session.set_pace(turn.endpoint.config.bypasses);
        }
        let key = *self.peer_index.entry((session.route, steer)).or_insert_with(|| {
            self.peers.insert(Peer {
                sessions: 0,
                window: Capacity::new(parameters.window),
                waiting: VecDeque::new(),
                ready: false,
            })
        });
        session.peer = key;
        let peer = &mut self.peers[key];
        peer.sessions += 1;
        peer.window.limit = parameters.window;
        let deadline = session.liveness_deadline(&turn.endpoint.config);
        Self::arm(turn.endpoint, index, session, deadline);
        let id = SessionId { index, generation: session.generation };
        turn.endpoint.notices.push_back(Notice::Session(id, SessionEvent::Opened));
        self.fail_oversized(turn.endpoint, index);
        self.start_queued(turn, index);
        self.close_if_drained(turn, index);
        Ok(())
    }

    /// Requests that were queued before the server's limit was known.
    fn fail_oversized(&mut self, endpoint: &mut EndpointState, index: SessionIndex) {
        let session = &mut self.sessions[index];
        let limit = session.max_request as usize;
        for _ in 0..session.queue.len() {
            let Some(queued) = session.queue.pop_front() else { return };
            if queued.request.len() <= limit {
                session.queue.push_back(queued);
                continue;
            }
            let cause = Cause::RequestTooLarge(queued.request.len() as u32);
            Self::fail_unsent(endpoint, queued, cause);
        }
    }
}
