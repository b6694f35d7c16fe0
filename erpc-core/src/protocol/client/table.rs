//! All sessions of the client's role. Finds the session of a packet, a timer or a caller, runs its
//! step, and carries out the follow-up that the step asks for.

use std::collections::HashMap;

use super::call::Finished;
use super::closing::Closing;
use super::common::{Common, fail_unsent};
use super::connecting::Connecting;
use super::followup::{Finding, Followup, Terms};
use super::lines::{LineId, Lines, Sums};
use super::phases::ClientSession;
use super::session::OpenSession;
use crate::mutants::mutant;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::ids::KeyedHasher;
use crate::protocol::index::{SessionIndex, Table};
use crate::protocol::stats::{DropReason, Retransmissions};
use crate::protocol::turn::{Stage, Turn};
use crate::protocol::wheel::MAX_EXPIRED;
use crate::protocol::{
    Cause, ConnectError, Event, NewCall, Notice, RejectReason, Rejected, SessionAddress,
    SessionEvent, SessionId, SessionStats,
};
use crate::time::Instant;
use crate::transport::{NetworkError, Path, Route, TxQueue, Undelivered};
use crate::wire::control::Control;
use crate::wire::{ConnectionId, Header, HeaderWords};

/// All sessions that this endpoint opened.
pub(in crate::protocol) struct ClientTable<R> {
    sessions: Table<SessionIndex, ClientSession<R>>,
    lines: Lines<R>,
    /// Open and closing sessions by the server's address and its id of the session. Each packet to
    /// the server has both, so this map finds the session of an undelivered packet. If a hostile
    /// server has chosen the same id for two sessions, the map holds the later one.
    by_server: HashMap<(R, ConnectionId), SessionIndex, KeyedHasher>,
    /// Sessions whose path is to be looked up. May list sessions that no longer need a look-up.
    routing: Vec<SessionId>,
}

impl<R: Route> ClientTable<R> {
    pub(in crate::protocol) fn new(room: u32, hasher: KeyedHasher) -> Self {
        Self {
            sessions: Table::new(),
            by_server: HashMap::with_hasher(hasher.clone()),
            lines: Lines::new(room, hasher),
            routing: Vec::new(),
        }
    }

    /// Sets how much of the receive queue is reserved for replies, in charge units.
    pub(in crate::protocol) fn set_room(&mut self, units: u32) {
        self.lines.set_room(units);
    }

    pub(in crate::protocol) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// The session with this id; `None` if it has ended.
    fn named(&self, id: SessionId) -> Option<&ClientSession<R>> {
        let session = self.sessions.get(id.index);
        session.filter(|session| session.common().id == id)
    }

    fn named_mut(&mut self, id: SessionId) -> Option<&mut ClientSession<R>> {
        let session = self.sessions.get_mut(id.index);
        session.filter(|session| session.common().id == id)
    }

    pub(in crate::protocol) fn address(
        &self,
        endpoint: &EndpointState,
        id: SessionId,
    ) -> Option<SessionAddress<R>> {
        let session = self.named(id)?;
        let common = session.common();
        Some(SessionAddress {
            server: common.route,
            to_server: session.opened().map(|session| session.remote().to_u64()),
            to_client: common.local_id(endpoint).to_u64(),
        })
    }

    pub(in crate::protocol) fn stats(
        &self,
        endpoint: &EndpointState,
        id: SessionId,
    ) -> Option<SessionStats> {
        let session = self.named(id)?;
        Some(match session.opened() {
            Some(session) => session.stats(&self.lines),
            None => SessionStats {
                rtt: None,
                rate: None,
                slots: endpoint.config.slots,
                in_flight: 0,
                quarantined: 0,
                queued: session.common().queue.len(),
                credits: 0,
                window: 0,
                payload: 0,
                max_request: endpoint.config.max_message,
                integrity: false,
                retransmissions: Retransmissions::default(),
            },
        })
    }

    // The life of a session.

    /// Starts to open a session. Calls may be queued on it immediately.
    pub(in crate::protocol) fn connect<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: R,
    ) -> Result<SessionId, ConnectError> {
        if self.sessions.len() >= turn.endpoint.config.max_sessions as usize {
            return Err(ConnectError::TooManySessions);
        }
        let generation = turn.endpoint.ids.draw();
        let room = self.lines.room();
        let (index, session) = self.sessions.insert_with(|index| {
            let common = Common::new(SessionId { index, generation }, route);
            ClientSession::Connecting(Connecting::new(common, turn.now))
        });
        if let ClientSession::Connecting(connecting) = session {
            connecting.send(turn, room);
        }
        Ok(SessionId { index, generation })
    }

    /// The next session whose path is to be looked up, with the server's address.
    pub(in crate::protocol) fn next_routing(&mut self) -> Option<(SessionId, R)> {
        while let Some(&id) = self.routing.last() {
            if let Some(ClientSession::Connecting(connecting)) = self.named(id)
                && connecting.wants_route()
            {
                return Some((id, connecting.common.route));
            }
            self.routing.pop();
        }
        None
    }

    #[inline]
    pub(in crate::protocol) fn wants_route(&self) -> bool {
        !self.routing.is_empty()
    }

    /// Continues the handshake, now that the path to the server is known.
    pub(in crate::protocol) fn routed<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        path: Path,
    ) {
        self.routing.retain(|routing| *routing != id);
        let room = self.lines.room();
        if let Some(ClientSession::Connecting(connecting)) = self.named_mut(id) {
            let followup = connecting.routed(turn, path, room);
            // No packet led to this step, so there is none to drop.
            let _ = self.follow_up(turn, id.index, followup);
        }
    }

    /// A control message to one of these sessions, in a datagram of `datagram` bytes.
    pub(in crate::protocol) fn control<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        message: Control,
        datagram: u32,
    ) -> Result<(), DropReason> {
        let index = SessionIndex::of(header.connection);
        let session = self.sessions.get_mut(index).ok_or(DropReason::UnknownConnection)?;
        let Common { id, route: expected, .. } = *session.common();
        // `Moved` names the session by the server's id. Its header has no valid generation: the
        // server does not reveal the client's id to an unknown address.
        let is_named = match (message, session.opened()) {
            (Control::Moved { server }, Some(session)) => server == session.remote(),
            _ => id.generation == header.connection.generation(),
        };
        if !is_named {
            return Err(DropReason::UnknownConnection);
        }
        let followup = match session {
            ClientSession::Connecting(connecting) => {
                let proof = (header.request.to_u32(), datagram);
                connecting.on_control(turn.now, turn.endpoint, route, message, proof)
            }
            _ if expected != *route => Err(DropReason::WrongRoute),
            ClientSession::Open(session) => {
                session.on_control(turn, &mut self.lines, header, message, datagram)
            }
            ClientSession::Closing(closing) => closing.on_control(turn, header, message),
        };
        self.follow_up(turn, index, followup?)
    }

    /// Carries out the follow-up of a session's step. Fails if the packet that led to it is to be
    /// dropped.
    fn follow_up<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        followup: Followup,
    ) -> Result<(), DropReason> {
        match followup {
            Followup::None => {}
            Followup::Route => self.routing.push(self.sessions[index].common().id),
            Followup::Open(terms) => self.open(turn, index, &terms),
            Followup::End(cause) => self.remove(turn, index, cause),
            Followup::Unanswered(error, since) => self.end_unanswered(turn, index, error, since),
            Followup::Unreachable(finding) => self.end_unreachable(turn, index, finding),
            Followup::Refuse => {
                self.remove(turn, index, Cause::Connect(ConnectError::Parameters));
                return Err(DropReason::Handshake);
            }
        }
        Ok(())
    }

    /// Opens a session that the server has accepted.
    fn open<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        terms: &Terms,
    ) {
        let lines = &mut self.lines;
        let session = &mut self.sessions[index];
        session.advance(turn.now, |session| match session {
            ClientSession::Connecting(Connecting { common, .. }) => {
                ClientSession::Open(OpenSession::new(turn, lines, common, terms))
            }
            session => session,
        });
        let Common { id, route, .. } = *session.common();
        self.by_server.insert((route, terms.server), index);
        turn.endpoint.notices.push_back(Notice::Session(id, SessionEvent::Opened));
        if let Some(session) = session.open_mut() {
            session.begin(turn, lines);
        }
        self.close_if_drained(turn, index);
    }

    /// Disconnects a session. It takes no new calls, and sends `Close` once the accepted calls are
    /// done.
    pub(in crate::protocol) fn disconnect<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
    ) {
        if let Some(session) = self.named_mut(id) {
            session.common_mut().intake.disconnect();
            self.close_if_drained(turn, id.index);
        }
    }

    /// Closes a disconnected session if it has no calls left.
    fn close_if_drained<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if !session.common().intake.disconnects() || !session.is_drained() {
            return;
        }
        match session {
            ClientSession::Connecting(_) => self.remove(turn, index, Cause::Disconnected),
            ClientSession::Closing(_) => {}
            ClientSession::Open(_) => session.advance(turn.now, |session| match session {
                ClientSession::Open(session) => {
                    let mut closing = Closing::new(Box::new(session), turn.now);
                    closing.send(turn);
                    ClientSession::Closing(closing)
                }
                session => session,
            }),
        }
    }

    /// Ends every session and its calls. For each session that is open or closing, sends one
    /// `Close` to its server.
    pub(in crate::protocol) fn shutdown<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        let indices: Vec<SessionIndex> = self.sessions.iter().map(|(index, _)| index).collect();
        for index in indices {
            if let Some(session) = self.sessions[index].opened() {
                session.send_close(turn, 0);
            }
            self.remove(turn, index, Cause::Shutdown);
        }
    }

    /// Removes a session from the table. Every call on it ends with `cause`, and the owner is
    /// notified.
    fn remove<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        cause: Cause,
    ) {
        let Some(mut session) = self.sessions.remove(index) else { return };
        let Common { id, timer, .. } = session.common();
        let id = *id;
        timer.cancel(&mut turn.endpoint.timers);
        if let Some(opened) = session.opened() {
            let key = (*opened.route(), opened.remote());
            if self.by_server.get(&key) == Some(&index) && !mutant!(GoneSessionStaysFindable) {
                self.by_server.remove(&key);
            }
        }
        match &mut session {
            ClientSession::Connecting(connecting) => connecting.end(turn.endpoint, cause),
            ClientSession::Open(session) => session.end(turn, &mut self.lines, cause),
            ClientSession::Closing(closing) => closing.session.end(turn, &mut self.lines, cause),
        }
        let notice = Notice::Session(id, SessionEvent::Closed(cause));
        if mutant!(ClosedBeforeCalls) {
            turn.endpoint.notices.push_front(notice);
        } else {
            turn.endpoint.notices.push_back(notice);
        }
    }

    // Reports of undelivered packets.

    /// A packet was not delivered, says a report. Returns whether the report is about a recent
    /// packet of one of these sessions. Takes constant time, unless it ends sessions.
    pub(in crate::protocol) fn undelivered<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        report: &Undelivered<R>,
    ) -> bool {
        let Ok(header) = Header::parse(report.quote()) else { return false };
        let (index, client) = if header.connection.is_endpoint() {
            let Some(client) = Control::quoted_client(report.quote()) else { return false };
            (SessionIndex::of(client), Some(client))
        } else {
            let key = (report.route, header.connection);
            let Some(index) = self.by_server.get(&key) else { return false };
            (*index, None)
        };
        let room = self.lines.room();
        let Some(session) = self.sessions.get_mut(index) else { return false };
        let common = session.common();
        let is_other = client.is_some_and(|client| client != common.local_id(turn.endpoint));
        if is_other || common.route != report.route {
            return false;
        }
        let followup = match session {
            ClientSession::Connecting(connecting) if client.is_some() => {
                connecting.on_undelivered(turn, room, &header, report.error)
            }
            ClientSession::Open(session) if client.is_none() => {
                session.on_undelivered(turn, &header, report.error)
            }
            ClientSession::Closing(closing) if client.is_none() => {
                closing.on_undelivered(turn, &header)
            }
            _ => None,
        };
        let Some(followup) = followup else { return false };
        // A report led to this step, not a packet, so there is none to drop.
        let _ = self.follow_up(turn, index, followup);
        true
    }

    /// The handshake of session `index` has failed. Ends all handshakes that have begun with the
    /// same address and have had no answer since `since`. An open session to this address is not
    /// ended without an inquiry of its own: its server knows it, and may be slow to answer
    /// strangers. Takes time in proportion to the number of sessions.
    #[cold]
    fn end_unanswered<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        error: NetworkError,
        since: Instant,
    ) {
        let route = self.sessions[index].common().route;
        let cause = Cause::Connect(ConnectError::Unreachable(error));
        self.remove(turn, index, cause);
        self.end_handshakes(turn, &route, cause, since);
        if self.is_heard(&route, since, None) {
            return;
        }
        // One session is enough: what it finds is true of all of them.
        let asking = self.sessions.iter().find(|(_, session)| session.is_open_to(&route));
        let Some(asking) = asking.map(|(at, _)| at) else { return };
        if let Some(session) = self.sessions[asking].open_mut() {
            session.on_failed_handshake(turn, error);
        }
    }

    /// No packet of session `index` reaches its server, its inquiry has found. Ends all sessions to
    /// the same address and port: their packets meet the same error, but hosts send only a few ICMP
    /// messages per second, so not every session gets a report. If one of these sessions has heard
    /// the server, none ends, and the inquiry goes on. Takes time in proportion to the number of
    /// sessions.
    #[cold]
    fn end_unreachable<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        Finding { error, since, quiet_since }: Finding,
    ) {
        let route = self.sessions[index].common().route;
        if self.is_heard(&route, quiet_since, Some(index)) && !mutant!(InquiryAnswerIgnored) {
            if let Some(session) = self.sessions[index].open_mut() {
                session.doubt_inquiry(turn);
            }
            return;
        }
        // A closing session has no calls. Its `Close` will not be answered, and its timer ends it.
        let open = self.sessions.iter().filter(|(_, session)| session.is_open_to(&route));
        let open: Vec<_> = open.map(|(at, _)| at).collect();
        for at in open {
            self.remove(turn, at, Cause::Unreachable(error));
        }
        let cause = Cause::Connect(ConnectError::Unreachable(error));
        self.end_handshakes(turn, &route, cause, since);
    }

    /// Whether an open session to `route`, other than `asking`, has heard its server after `since`.
    fn is_heard(&self, route: &R, since: Instant, asking: Option<SessionIndex>) -> bool {
        self.sessions.iter().any(|(at, session)| {
            let is_other = session.is_open_to(route) && asking != Some(at);
            is_other && session.opened().is_some_and(|session| session.is_heard_since(since))
        })
    }

    /// Ends all handshakes that began with `route` at `since` or before, and that have had no
    /// answer.
    fn end_handshakes<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        cause: Cause,
        since: Instant,
    ) {
        let is_unanswered = |session: &ClientSession<R>| match session {
            ClientSession::Connecting(connecting) => connecting.is_unanswered_since(route, since),
            ClientSession::Open(_) | ClientSession::Closing(_) => false,
        };
        let unanswered = self.sessions.iter().filter(|(_, session)| is_unanswered(session));
        let unanswered: Vec<_> = unanswered.map(|(at, _)| at).collect();
        for at in unanswered {
            self.remove(turn, at, cause);
        }
    }

    // Calls.

    /// Accepts a call: starts it in a free slot, or queues it.
    #[inline(always)]
    pub(in crate::protocol) fn call<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        new: NewCall,
    ) -> Result<(), Rejected> {
        debug_assert!(
            new.extended || new.deadline == Instant::NEVER,
            "a call with a deadline carries it in an extension"
        );
        let open = self.sessions.get_mut(id.index).and_then(ClientSession::open_mut);
        let Some(session) = open else {
            return self.call_or_queue(&mut turn.reborrow(), id, new);
        };
        match session.plain_call(turn, &mut self.lines, id, new) {
            Ok(()) => Ok(()),
            Err(new) => self.call_or_queue(&mut turn.reborrow(), id, new),
        }
    }

    /// Accepts a call that the fast path has handed back.
    #[inline(never)]
    fn call_or_queue<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        new: NewCall,
    ) -> Result<(), Rejected> {
        let reject = |reason, request| Err(Rejected { reason, request });
        let session = self.sessions.get_mut(id.index);
        let Some(session) = session.filter(|session| session.common().id == id) else {
            return reject(RejectReason::NoSession, new.request);
        };
        let intake = session.common().intake;
        if intake.disconnects() {
            return reject(RejectReason::Disconnecting, new.request);
        }
        if intake.server_drains() && !new.continues() {
            return reject(RejectReason::PeerDraining, new.request);
        }
        let limit =
            session.opened().map_or(turn.endpoint.config.max_message, OpenSession::max_request);
        let (size, limit) = (new.request.len(), limit as usize);
        if size > limit {
            return reject(RejectReason::TooLarge { size, limit }, new.request);
        }
        if new.deadline <= turn.now {
            return reject(RejectReason::DeadlineExceeded, new.request);
        }
        if let Some(session) = session.open_mut() {
            session.check_after_absence(turn);
            if session.takes_calls() {
                turn.endpoint.stats.calls += 1;
                session.start(turn, &mut self.lines, new);
                return Ok(());
            }
        }
        let common = session.common_mut();
        if common.queue.len() >= turn.endpoint.config.queue_limit {
            return reject(RejectReason::QueueFull, new.request);
        }
        turn.endpoint.stats.calls += 1;
        common.timer.arm(&mut turn.endpoint.timers, new.deadline);
        common.queue.push(new);
        Ok(())
    }

    /// Ends the call with this token. False if it has already ended.
    pub(in crate::protocol) fn cancel<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        token: u64,
        cause: Cause,
    ) -> bool {
        let session = self.sessions.get_mut(id.index);
        let Some(session) = session.filter(|session| session.common().id == id) else {
            return false;
        };
        let open = session.open_mut();
        let in_slot = open.is_some_and(|open| open.cancel(turn, &mut self.lines, token, cause));
        if !in_slot {
            let Some(queued) = session.common_mut().queue.remove(token) else { return false };
            fail_unsent(queued, cause, turn.endpoint);
        }
        self.close_if_drained(turn, id.index);
        if in_slot {
            self.feed(turn);
            self.serve_lines(turn);
        }
        true
    }

    // Packets.

    /// Loads the session of this packet, or the request that it answers, into the cache.
    #[inline]
    pub(in crate::protocol) fn prefetch(&self, header: HeaderWords, stage: Stage) {
        let session = self.sessions.get(SessionIndex::of(header.connection()));
        let Some(ClientSession::Open(session)) = session else { return };
        match stage {
            Stage::Sessions => session.prefetch(header.request()),
            Stage::Messages => session.prefetch_request(header.request()),
        }
    }

    /// Handles a response of one packet to a plain call. For any other packet, changes nothing and
    /// returns `None`.
    #[inline(always)]
    pub(in crate::protocol) fn plain_response<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: HeaderWords,
        body_len: usize,
    ) -> Option<Finished> {
        let session = self.sessions.get_mut(SessionIndex::of(header.connection()))?.open_mut()?;
        session.plain_response(turn, &mut self.lines, route, header, body_len)
    }

    /// Handles a packet of kind `Response`, `Failure`, `CreditReturn` or `Accepted`.
    pub(in crate::protocol) fn receive<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let connection: ConnectionId = header.connection;
        let index = SessionIndex::of(connection);
        let session = self.sessions.get_mut(index).ok_or(DropReason::UnknownConnection)?;
        let common = session.common();
        if common.id.generation != connection.generation() && !mutant!(StaleGenerationAtClient) {
            return Err(DropReason::UnknownConnection);
        }
        if common.route != *route && !mutant!(WrongRouteAtClient) {
            return Err(DropReason::WrongRoute);
        }
        let Some(session) = session.open_mut() else { return Err(DropReason::Unsolicited) };
        let outcome = session.on_packet(turn, &mut self.lines, header, body);
        if session.common().intake.disconnects() {
            self.close_if_drained(turn, index);
        }
        outcome
    }

    // Time.

    /// The session's timer has fired.
    pub(in crate::protocol) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if let Some(session) = session.open_mut()
            && session.is_only_waiting(turn, &self.lines)
        {
            return;
        }
        let common = session.common_mut();
        let back = turn.endpoint.config.back_since(turn.now, common.timer.at());
        common.timer.fired();
        if !mutant!(DeadlineForgotten) {
            common.queue.fail_late(turn.now, turn.endpoint);
        }
        if let Some(session) = session.open_mut() {
            if let Some(since) = back {
                session.back(turn, since);
            }
            if !mutant!(DeadlineForgotten) {
                session.end_late_calls(turn, &mut self.lines);
            }
        }
        self.close_if_drained(turn, index);
        let room = self.lines.room();
        let Some(session) = self.sessions.get_mut(index) else { return };
        let followup = match session {
            ClientSession::Connecting(connecting) => connecting.on_timer(turn, room),
            ClientSession::Open(session) => session.on_timer(turn, &mut self.lines),
            ClientSession::Closing(closing) => closing.on_timer(turn),
        };
        // No packet led to this step, so there is none to drop.
        let _ = self.follow_up(turn, index, followup);
    }

    /// Resumes sessions whose departure is due: at most 32 in this turn, the others in the next.
    #[inline]
    pub(in crate::protocol) fn depart<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        for _ in 0..MAX_EXPIRED {
            let Some(index) = self.lines.depart(turn.now) else { return };
            turn.endpoint.stats.departures += 1;
            if let Some(session) = self.sessions.get_mut(index).and_then(ClientSession::open_mut) {
                session.depart(turn, &mut self.lines);
            }
        }
    }

    /// When the next paced session may send; [`Instant::NEVER`] if none waits.
    pub(in crate::protocol) fn next_departure(&self) -> Instant {
        self.lines.next_departure()
    }

    // The end of a burst.

    /// Does the work that the burst has made possible: asks for more of responses, and resumes
    /// waiting calls. The work is bounded by what was released: each pass over a line ends at the
    /// first call for which there is no capacity.
    pub(in crate::protocol) fn end_of_burst<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) {
        self.feed(turn);
        let pulls = self.lines.take_pulls();
        for waiter in &pulls {
            let session = self.sessions.get_mut(waiter.index).and_then(ClientSession::open_mut);
            if let Some(session) = session {
                session.pull_pending(turn, &mut self.lines, *waiter);
            }
        }
        self.lines.return_pulls(pulls);
        self.serve_lines(turn);
        while let Some(index) = self.lines.next_roused() {
            if let Some(session) = self.sessions.get_mut(index).and_then(ClientSession::open_mut) {
                session.rouse(turn);
            }
        }
    }

    /// Resumes calls that waited for a credit, session by session.
    fn feed<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        let released = self.lines.take_released();
        for index in &released {
            if let Some(session) = self.sessions.get_mut(*index).and_then(ClientSession::open_mut) {
                session.feed(turn, &mut self.lines);
            }
        }
        self.lines.return_released(released);
    }

    /// Resumes calls that waited for room in a server's window or in this endpoint's receive queue.
    fn serve_lines<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        while let Some(peer) = self.lines.next_ready() {
            self.serve_line(turn, LineId::Peer(peer));
        }
        if !self.lines.is_empty(LineId::Room) {
            self.serve_line(turn, LineId::Room);
        }
    }

    /// Serves waiting calls in order, until a call has to wait in this line again.
    fn serve_line<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, line: LineId) {
        for _ in 0..self.lines.places(line) {
            let Some(waiter) = self.lines.pop(line) else { return };
            let session = self.sessions.get_mut(waiter.index).and_then(ClientSession::open_mut);
            let Some(session) = session else { continue };
            let Some(at) = session.waits_in(waiter, line.lack()) else { continue };
            session.resume(turn, &mut self.lines, at, line.lack());
            if session.waits_in(waiter, line.lack()).is_some() {
                // Whether or not the call sent something, the line's capacity is used up. The call
                // keeps the first place.
                self.lines.back_to_front(line);
                return;
            }
        }
    }

    // Checks.

    /// Checks that reservations, lines and timers of all sessions are consistent.
    pub(in crate::protocol) fn check_invariants(&self, endpoint: &EndpointState) {
        let places = self.lines.sorted_places();
        let mut sums = Sums::default();
        for (index, session) in self.sessions.iter() {
            let common = session.common();
            assert_eq!(common.id.index, index, "a session's id holds its index");
            let timer_at = common.timer.at().max(common.timer.others());
            assert!(timer_at <= common.queue.deadline(), "a timer is armed for the queue");
            let is_open = matches!(session, ClientSession::Open(_));
            if let Some(session) = session.opened() {
                session.check_invariants(endpoint, &self.lines, &places, is_open, &mut sums);
            }
        }
        for ((route, server), index) in &self.by_server {
            let session = self.sessions.get(*index).and_then(ClientSession::opened);
            assert!(
                session.is_some_and(|s| s.route() == route && s.remote() == *server),
                "a session is found by its server's id until it ends"
            );
        }
        self.lines.check_invariants(&sums);
    }

    /// Number of occupied places in all lines.
    #[cfg(test)]
    pub(in crate::protocol) fn places_in_lines(&self) -> usize {
        self.lines.taken_places()
    }
}
