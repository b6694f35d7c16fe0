//! All sessions that this endpoint has accepted: finds them, and passes them packets and timers.

use std::collections::HashMap;

use super::accept::{Accepting, Open};
use super::credit_returns::CreditReturns;
use super::grants::Grants;
use super::hosts::Hosts;
use super::listen::Acceptor;
use super::session::{ControlEffect, ServerSession};
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::protocol::config::EndpointConfig;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::ids::KeyedHasher;
use crate::protocol::index::{SessionIndex, Table};
use crate::protocol::stats::DropReason;
use crate::protocol::turn::{Stage, Turn};
use crate::protocol::wheel::TimerId;
use crate::protocol::{Cause, ClientId, ClientStats, Event, Notice, RequestHandle};
use crate::status::Status;
use crate::transport::{Route, TxQueue};
use crate::wire::control::{Control, Cookie, Refusal};
use crate::wire::{ConnectionId, Header, HeaderWords};

/// The server sessions of an endpoint.
pub(in crate::protocol) struct ServerTable<R> {
    sessions: Table<SessionIndex, ServerSession<R>>,
    /// Sessions by the client's address and id: a repeated `Open` finds its session.
    by_client: HashMap<(R, ConnectionId), SessionIndex, KeyedHasher>,
    grants: Grants<R>,
    hosts: Hosts,
    accepting: Accepting<R>,
    returns: CreditReturns,
}

impl<R: Route> ServerTable<R> {
    pub(in crate::protocol) fn new(hasher: KeyedHasher) -> Self {
        Self {
            sessions: Table::new(),
            by_client: HashMap::with_hasher(hasher.clone()),
            grants: Grants::new(0, hasher.clone()),
            accepting: Accepting::new(hasher.clone()),
            hosts: Hosts::new(hasher),
            returns: CreditReturns::default(),
        }
    }

    pub(in crate::protocol) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Starts to accept sessions, and grants `capacity` units of the receive queue to clients.
    pub(in crate::protocol) fn listen(&mut self, acceptor: Acceptor, capacity: u32) {
        self.accepting.listen(acceptor);
        self.grants.set_capacity(capacity);
    }

    pub(in crate::protocol) fn accepting(&self) -> &Accepting<R> {
        &self.accepting
    }

    /// Handles an `Open`. A repeated `Open` is answered immediately. A new `Open` waits until the
    /// path to its sender is known.
    pub(in crate::protocol) fn open<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        open: Open<R>,
        cookie: &Cookie,
    ) -> Result<(), DropReason> {
        self.accepting.check_cookie(turn.now, &open, cookie)?;
        match self.by_client.get(&(open.route, open.client)) {
            Some(&index) if !mutant!(OpenedTwice) => {
                let session = &self.sessions[index];
                let share = self.grants.share(session.socket());
                session.send_opened(turn, share, (open.nonce, open.proof));
            }
            _ => match self.admit(turn.endpoint, &open.route) {
                Ok(()) => self.accepting.enqueue(turn, open)?,
                Err(reason) => open.refuse(turn, reason),
            },
        }
        Ok(())
    }

    /// Checks that one more session from this address may open.
    fn admit(&self, endpoint: &EndpointState, route: &R) -> Result<(), Refusal> {
        if self.accepting.is_draining() {
            return Err(Refusal::Draining);
        }
        let is_new_socket = !self.grants.knows(route);
        self.hosts.admit(&endpoint.config, self.sessions.len(), route.host(), is_new_socket)
    }

    /// The address of the next `Open` whose path must be looked up.
    pub(in crate::protocol) fn next_unrouted(&self) -> Option<R> {
        self.accepting.next().map(|open| open.route)
    }

    #[inline]
    pub(in crate::protocol) fn wants_route(&self) -> bool {
        self.accepting.is_waiting()
    }

    /// Opens the session of the [next](Self::next_unrouted) address, whose path carries datagrams
    /// of `path_datagram` bytes.
    pub(in crate::protocol) fn accept<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        path_datagram: u32,
    ) {
        let Some(open) = self.accepting.pop() else { return };
        let (route, remote) = (open.route, open.client);
        if self.by_client.contains_key(&(route, remote)) && !mutant!(OpenedTwice) {
            return;
        }
        if let Err(reason) = self.admit(turn.endpoint, &route) {
            return open.refuse(turn, reason);
        }
        let share = self.grants.least_share(&route, remote.steer());
        let Some(agreed) = open.agree(turn, path_datagram, share) else { return };
        let index = self.sessions.next_index();
        let id = ClientId { index, generation: turn.endpoint.ids.draw() };
        self.hosts.join(route.host(), !self.grants.knows(&route));
        let socket = self.grants.join(turn.now, route, remote.steer(), index);
        let session = ServerSession::new(turn, id, remote, (route, socket), agreed);
        turn.endpoint.timers.arm(timer(index), session.timer_due());
        self.by_client.insert((route, remote), index);
        if let Some(acceptor) = self.accepting.acceptor() {
            acceptor.session_began();
        }
        session.send_opened(turn, self.grants.share(socket), (open.nonce, open.proof));
        self.sessions.insert(session);
        turn.endpoint.notices.push_back(Notice::ClientCame(id));
        self.announce_windows(turn);
    }

    /// Handles a packet of kind `Request`, `RequestForResponse` or `Done`.
    #[inline]
    pub(in crate::protocol) fn receive<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        body: &'p [u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let session = self.sessions.get_mut(SessionIndex::of(header.connection));
        let session = session.ok_or(DropReason::UnknownConnection)?;
        if let Err(reason) = session.check_sender(header.connection, route) {
            session.tell_moved(turn, header.connection, route);
            return Err(reason);
        }
        let socket = session.socket();
        if session.is_sample() {
            self.grants.sample(turn.now, socket);
        }
        if session.begins_burst(header) {
            // Two samples make the socket busy.
            self.grants.sample(turn.now, socket);
            self.grants.sample(turn.now, socket);
        }
        session.on_packet(turn, self.grants.window(socket), &mut self.returns, header, body)
    }

    /// Loads the session of this packet, or the buffer for its response, into the cache.
    #[inline]
    pub(in crate::protocol) fn prefetch(&self, header: HeaderWords, stage: Stage) {
        let index = SessionIndex::of(header.connection());
        let Some(session) = self.sessions.get(index) else { return };
        match stage {
            Stage::Sessions => session.prefetch(header.request()),
            Stage::Messages => session.prefetch_buffer(header.request()),
        }
    }

    /// Whether this is the first packet of the next request of its slot.
    #[inline(always)]
    pub(in crate::protocol) fn expects(&self, header: HeaderWords) -> bool {
        let session = self.sessions.get(SessionIndex::of(header.connection()));
        session.is_some_and(|session| session.expects(header))
    }

    /// Receives a new request of one packet. Returns its handle, and the slot's last response
    /// buffer. `None` if the packet is not the common case.
    #[inline(always)]
    pub(in crate::protocol) fn plain_request<const EXTENDED: bool, X>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: HeaderWords,
        body_len: usize,
    ) -> Option<(RequestHandle, Option<MsgBuf>)> {
        let session = self.sessions.get_mut(SessionIndex::of(header.connection()))?;
        let plain = session.plain_request::<EXTENDED, _>(turn, route, header, body_len)?;
        if session.is_plain_sample() {
            self.grants.sample(turn.now, session.socket());
        }
        Some(plain)
    }

    /// Handles a control message to a session, in a datagram of `datagram` bytes.
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
        if let Err(reason) = session.check_sender(header.connection, route) {
            session.tell_moved(turn, header.connection, route);
            return Err(reason);
        }
        let proof = (header.request.to_u32(), datagram);
        let window = self.grants.window(session.socket());
        match session.on_control(turn, window, message, proof)? {
            ControlEffect::Stays => {}
            ControlEffect::Ends(cause) => {
                self.remove(turn, index, cause);
                // If few sockets remain, all shares become equal, so the share of a busy socket may
                // shrink.
                self.announce_windows(turn);
            }
        }
        Ok(())
    }

    /// Handles a session's timer.
    pub(in crate::protocol) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let window = self.grants.window(session.socket());
        match session.on_timer(turn, window) {
            ControlEffect::Stays => {
                turn.endpoint.timers.arm(timer(index), session.timer_due());
            }
            ControlEffect::Ends(cause) => {
                self.remove(turn, index, cause);
                if let Some(acceptor) = self.accepting.acceptor()
                    && mutant!(LostClientCounts)
                {
                    acceptor.session_began();
                }
                // If few sockets remain, all shares become equal, so the share of a busy socket may
                // shrink.
                self.announce_windows(turn);
            }
        }
    }

    /// Sends the credit returns of the burst, and adapts the shares to the sockets' use.
    #[inline]
    pub(in crate::protocol) fn end_of_burst<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) {
        self.grants.end_of_burst(turn.now);
        self.announce_windows(turn);
        if mutant!(CreditReturnForgotten) {
            return;
        }
        for owed in self.returns.drain() {
            if let Some(session) = self.sessions.get_mut(owed.session.index)
                && session.is(owed.session)
            {
                session.return_credit(turn, self.grants.window(session.socket()), &owed);
            }
        }
    }

    /// Sends a response and keeps it.
    #[inline(always)]
    pub(in crate::protocol) fn respond<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        request: RequestHandle,
        response: MsgBuf,
        extended: bool,
    ) {
        let Some(session) = session(&mut self.sessions, request.client()) else {
            return orphaned(turn.endpoint, Some(response));
        };
        let window = self.grants.window(session.socket());
        let response = if extended {
            response
        } else {
            match session.plain_respond(turn, window, request.number, response) {
                Ok(()) => return,
                Err(response) => response,
            }
        };
        match session.execution(request.number) {
            Some(execution) => {
                let turn = &mut turn.reborrow();
                session.respond(turn, window, request.number, execution, response, extended);
            }
            None => orphaned(turn.endpoint, Some(response)),
        }
    }

    /// Sends a status in place of a response.
    pub(in crate::protocol) fn respond_status<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        request: RequestHandle,
        status: &Status,
    ) {
        let session = session(&mut self.sessions, request.client());
        match session.and_then(|session| Some((session.execution(request.number)?, session))) {
            Some((execution, session)) => {
                let window = self.grants.window(session.socket());
                session.respond_status(turn, window, request.number, execution, status);
            }
            None => orphaned(turn.endpoint, None),
        }
    }

    pub(in crate::protocol) fn client_stats(&self, id: ClientId) -> Option<ClientStats> {
        let session = self.sessions.get(id.index)?;
        session.is(id).then(|| session.stats())
    }

    /// See [`Core::client_address`](crate::protocol::Core::client_address).
    pub(in crate::protocol) fn client_address(&self, id: ClientId) -> Option<R> {
        let session = self.sessions.get(id.index)?;
        session.is(id).then(|| session.client().0)
    }

    /// See [`Core::may_keep`](crate::protocol::Core::may_keep).
    pub(in crate::protocol) fn may_keep(
        &self,
        endpoint: &EndpointState,
        id: ClientId,
        bytes: usize,
    ) -> bool {
        let session = self.sessions.get(id.index);
        session.is_some_and(|session| session.is(id) && session.may_keep(endpoint, bytes))
    }

    /// See [`Core::keep`](crate::protocol::Core::keep).
    pub(in crate::protocol) fn keep(&mut self, id: ClientId, bytes: usize) {
        if let Some(session) = session(&mut self.sessions, id) {
            session.keep(bytes);
        }
    }

    /// See [`Core::granted`](crate::protocol::Core::granted).
    pub(in crate::protocol) fn granted(&self, route: &R) -> Option<u32> {
        self.grants.told(route)
    }

    /// See [`Core::host_sessions`](crate::protocol::Core::host_sessions).
    pub(in crate::protocol) fn host_sessions(&self, route: &R) -> usize {
        self.hosts.sessions(route.host())
    }

    /// Begins to shut down: sessions and requests are refused from now on, and every client is
    /// told. Running requests go on. A second call of this function does nothing.
    pub(in crate::protocol) fn drain<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        if self.accepting.is_draining() {
            return;
        }
        self.accepting.drain();
        let indices: Vec<SessionIndex> = self.sessions.iter().map(|(index, _)| index).collect();
        for index in indices {
            let session = &mut self.sessions[index];
            session.drain(turn);
            turn.endpoint.timers.arm(timer(index), session.timer_due());
        }
    }

    pub(in crate::protocol) fn is_draining(&self) -> bool {
        self.accepting.is_draining()
    }

    /// Answers a request that no handler has run and that none will run.
    pub(in crate::protocol) fn refuse<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        request: RequestHandle,
    ) {
        let session = session(&mut self.sessions, request.client());
        match session.and_then(|session| Some((session.execution(request.number)?, session))) {
            Some((execution, session)) => {
                let window = self.grants.window(session.socket());
                session.refuse(turn, window, request.number, execution);
            }
            None => orphaned(turn.endpoint, None),
        }
    }

    /// Tells every client once that this endpoint shuts down, and ends all sessions.
    pub(in crate::protocol) fn shutdown<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        let indices: Vec<SessionIndex> = self.sessions.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.sessions[index].send_close(turn);
            self.remove(turn, index, Cause::Shutdown);
        }
    }

    /// # Panics
    /// If an invariant does not hold.
    pub(in crate::protocol) fn check_invariants(&self, config: &EndpointConfig) {
        assert_eq!(self.by_client.len(), self.sessions.len());
        let granted = self.grants.check_invariants();
        assert_eq!(granted, self.sessions.len(), "every session is listed at its client endpoint");
        let counted = self.hosts.check_invariants(config);
        assert_eq!(
            counted,
            (granted, self.grants.sockets()),
            "every session is counted at its host"
        );
        for (index, session) in self.sessions.iter() {
            assert_eq!(self.by_client.get(&session.client()), Some(&index));
            session.check_invariants(index);
        }
    }

    /// Takes a session out of the table and ends it.
    fn remove<X>(&mut self, turn: &mut Turn<'_, X>, index: SessionIndex, cause: Cause) {
        let Some(session) = self.sessions.remove(index) else { return };
        turn.endpoint.timers.cancel(timer(index));
        let (route, remote) = session.client();
        if !mutant!(SessionLeak) {
            self.by_client.remove(&(route, remote));
        }
        if !mutant!(GrantLeak) {
            self.grants.leave(&route, remote.steer(), index);
            self.hosts.leave(route.host(), !self.grants.knows(&route));
        }
        if let Some(acceptor) = self.accepting.acceptor() {
            acceptor.session_ended();
        }
        session.end(turn.endpoint, cause);
    }

    /// Pings one session of each client endpoint whose window has shrunk.
    #[inline(always)]
    fn announce_windows<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        while let Some(index) = self.grants.next_untold() {
            if let Some(session) = self.sessions.get(index) {
                session.send_ping(turn, self.grants.window(session.socket()));
            }
        }
    }
}

#[inline(always)]
fn session<R: Route>(
    sessions: &mut Table<SessionIndex, ServerSession<R>>,
    id: ClientId,
) -> Option<&mut ServerSession<R>> {
    sessions.get_mut(id.index).filter(|session| session.is(id))
}

fn timer(index: SessionIndex) -> TimerId {
    TimerId(index.get() * 2 + 1)
}

/// Drops and counts a response whose session has ended or whose request is not executing.
#[cold]
fn orphaned(endpoint: &mut EndpointState, response: Option<MsgBuf>) {
    endpoint.stats.orphaned_responses += 1;
    if let Some(response) = response {
        endpoint.pool.recycle(response);
    }
}
