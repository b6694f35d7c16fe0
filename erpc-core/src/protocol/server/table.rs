//! All sessions that this endpoint accepted.

use std::collections::{HashMap, VecDeque};

use super::accept::Acceptor;
use super::grants::{self, Grants};
use super::slot::{ServerSession, Siblings, SlotState};
use crate::mutants::mutant;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::ids::KeyedHasher;
use crate::protocol::index::{SessionIndex, SlotIndex, Table};
use crate::protocol::turn::Turn;
use crate::protocol::wheel::TimerId;
use crate::protocol::{ClientId, ClientStats, Notice, RequestHandle};
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::{Control, Parameters};
use crate::wire::{ConnectionId, ReplyInfo, RequestNumber, Stamp};

/// An `Open` whose cookie is good, waiting for the path to its sender to be looked up.
pub(in crate::protocol) struct PendingOpen<R> {
    pub(in crate::protocol) route: R,
    pub(in crate::protocol) client: ConnectionId,
    pub(in crate::protocol) parameters: Parameters,
    pub(in crate::protocol) nonce: u32,
}

/// A slot that owes a credit return at the end of the burst.
pub(super) struct OwedCredit {
    pub(in crate::protocol::server) index: SessionIndex,
    pub(in crate::protocol::server) generation: u32,
    pub(in crate::protocol::server) number: RequestNumber,
    /// The last packet, if it has come, and its stamp.
    pub(in crate::protocol::server) last: Option<(u32, Stamp)>,
}

/// All sessions of one role.
pub(in crate::protocol) struct ServerSide<R> {
    pub(in crate::protocol::server) sessions: Table<SessionIndex, ServerSession<R>>,
    /// Sessions by the client's address and id: a repeated `Open` finds its session.
    pub(in crate::protocol::server) by_client:
        HashMap<(R, ConnectionId), SessionIndex, KeyedHasher>,
    pub(in crate::protocol::server) grants: Grants<R>,
    pub(in crate::protocol::server) acceptor: Option<Acceptor>,
    pub(in crate::protocol::server) pending: VecDeque<PendingOpen<R>>,
    pub(in crate::protocol::server) owed: Vec<OwedCredit>,
}

impl<R: Route> ServerSide<R> {
    pub(in crate::protocol) fn new(hasher: KeyedHasher) -> Self {
        Self {
            sessions: Table::new(),
            by_client: HashMap::with_hasher(hasher.clone()),
            grants: Grants::new(0, hasher),
            acceptor: None,
            pending: VecDeque::new(),
            owed: Vec::new(),
        }
    }

    pub(in crate::protocol) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(in crate::protocol) fn client_stats(&self, id: ClientId) -> Option<ClientStats> {
        let session = self.sessions.get(id.index)?;
        (session.generation == id.generation).then_some(ClientStats {
            credits: session.credits,
            payload: session.payload,
            max_response: session.max_response,
            integrity: session.flags.trailer(),
            held: session.held + session.kept,
            requests: session.requests,
        })
    }

    /// See [`Core::may_keep`](super::Core::may_keep).
    pub(in crate::protocol) fn may_keep(
        &self,
        endpoint: &EndpointState,
        id: ClientId,
        bytes: usize,
    ) -> bool {
        let session = self.sessions.get(id.index);
        let session = session.filter(|session| session.generation == id.generation);
        session.is_some_and(|session| session.held + bytes <= endpoint.config.session_budget())
    }

    /// See [`Core::keep`](super::Core::keep).
    pub(in crate::protocol) fn keep(&mut self, id: ClientId, bytes: usize) {
        let session = self.sessions.get_mut(id.index);
        if let Some(session) = session.filter(|session| session.generation == id.generation) {
            session.kept = bytes;
        }
    }

    pub(in crate::protocol) fn granted(&self) -> u32 {
        self.grants.told()
    }

    #[inline]
    pub(in crate::protocol) fn wants_route(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(in crate::protocol::server) fn timer(index: SessionIndex) -> TimerId {
        TimerId(index.get() * 2 + 1)
    }

    #[inline]
    pub(in crate::protocol::server) fn arm(
        endpoint: &mut EndpointState,
        index: SessionIndex,
        session: &mut ServerSession<R>,
        at: Instant,
    ) {
        if at < session.timer_at {
            session.timer_at = at;
            endpoint.timers.arm(Self::timer(index), at);
        }
    }

    pub(in crate::protocol::server) fn local_id(
        endpoint: &EndpointState,
        index: SessionIndex,
        generation: u32,
    ) -> ConnectionId {
        ConnectionId::new(endpoint.local.steer, true, index.get(), generation)
    }

    /// The session of a handle, if it still is at that request.
    pub(in crate::protocol::server) fn executing(
        &mut self,
        handle: &RequestHandle,
    ) -> Option<&mut ServerSession<R>> {
        let session = self.sessions.get_mut(handle.index)?;
        let slot = &session.slots[SlotIndex::of(handle.number)];
        let at_it = session.generation == handle.generation
            && slot.number == handle.number
            && slot.state.is_executing();
        at_it.then_some(session)
    }

    /// Takes a session out of the table. Requests still executing answer into the void.
    pub(in crate::protocol::server) fn remove(
        &mut self,
        endpoint: &mut EndpointState,
        index: SessionIndex,
    ) {
        let Some(session) = self.sessions.remove(index) else { return };
        endpoint.timers.cancel(Self::timer(index));
        if !mutant!(SessionLeak) {
            self.by_client.remove(&(session.route, session.remote));
        }
        let Siblings { before, after } = session.siblings;
        if let Some(sibling) = self.sessions.get_mut(before) {
            sibling.siblings.after = after;
        }
        if let Some(sibling) = self.sessions.get_mut(after) {
            sibling.siblings.before = before;
        }
        if !mutant!(GrantLeak) {
            self.grants.leave(&session.route, session.remote.steer(), index, after);
        }
        if let Some(acceptor) = &self.acceptor {
            acceptor.session_ended();
        }
        let generation = session.generation;
        for slot in session.slots.into_values() {
            let told = matches!(slot.state, SlotState::Accepted { cancelled: true, .. });
            let untold = slot.state.is_executing() && !told;
            if untold && !mutant!(GoneUntold) {
                let handle = RequestHandle { index, generation, number: slot.number };
                endpoint.notices.push_back(Notice::Cancelled(handle));
            }
            slot.discard(&mut endpoint.pool);
        }
        endpoint.notices.push_back(Notice::ClientGone(ClientId { index, generation }));
    }

    /// Tells every client that this endpoint goes, once.
    pub(in crate::protocol) fn shutdown<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        let indices: Vec<SessionIndex> = self.sessions.iter().map(|(index, _)| index).collect();
        for index in indices {
            let session = &self.sessions[index];
            let sender = Self::local_id(turn.endpoint, index, session.generation);
            let packet = Control::Close { sender }.emit(session.remote, 0, ReplyInfo::default());
            turn.tx.push_bytes(&session.route, packet.as_bytes());
            self.remove(turn.endpoint, index);
        }
    }

    /// Everything of ours adds up.
    pub(in crate::protocol) fn check_invariants(&self) {
        assert_eq!(self.by_client.len(), self.sessions.len());
        let mut listed = 0;
        for head in self.grants.heads() {
            let (mut before, mut at) = (grants::NONE, head);
            while let Some(session) = self.sessions.get(at) {
                assert_eq!(session.siblings.before, before, "a client's list of sessions is whole");
                (before, at) = (at, session.siblings.after);
                listed += 1;
            }
        }
        assert_eq!(listed, self.sessions.len(), "every session counts for its client endpoint");
        for (_, session) in self.sessions.iter() {
            let held: usize = session.slots.iter().map(|(_, slot)| slot.footprint()).sum();
            assert_eq!(held, session.held, "held memory is counted");
            for (at, slot) in session.slots.iter() {
                assert_eq!(SlotIndex::of(slot.number), at);
                assert!(
                    slot.buffer.is_some() || !matches!(slot.state, SlotState::Responding { .. })
                );
            }
        }
    }
}
