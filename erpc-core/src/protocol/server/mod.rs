//! The server's half: sessions this endpoint accepted, and the requests in their slots.
//!
//! Servers are passive (thesis section 6.4): no retransmission timer, every packet answers one.
//!
//! | file | what happens there |
//! |---|---|
//! | `accept` | a session opens, stays alive, ends |
//! | `receive` | request packets in order, credit returns, requests for response |
//! | `respond` | a response's way out |
//! | `plain` | the common case of both, alone |
//! | `grants` | what clients may have on their way to us |
//! | `slot` | the state they work on |

mod accept;
mod grants;
mod plain;
mod receive;
mod respond;
mod slot;

use std::collections::{HashMap, VecDeque};

pub use self::accept::{Acceptor, ListenGroup};
use self::grants::Grants;
pub use self::respond::KEPT_CAPACITY;
use self::slot::{ServerSession, ServerSlot, Siblings, SlotState};
use super::endpoint::EndpointState;
use super::ids::KeyedHasher;
use super::index::{SessionIndex, SlotIndex, Slots, Table};
use super::turn::Turn;
use super::wheel::TimerId;
use super::{ClientId, ClientStats, Notice, RequestHandle, WINDOW};
use crate::mutants::mutant;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::{Control, Cookie, Parameters};
use crate::wire::{ConnectionId, ReplyInfo, RequestNumber, Stamp};

/// An `Open` whose cookie is good, waiting for the path to its sender to be looked up.
pub(super) struct PendingOpen<R> {
    pub(super) route: R,
    pub(super) client: ConnectionId,
    pub(super) parameters: Parameters,
    pub(super) nonce: u32,
}

/// A slot that owes a credit return at the end of the burst.
struct OwedCredit {
    index: SessionIndex,
    generation: u32,
    number: RequestNumber,
    /// The last packet, if it has come, and its stamp.
    last: Option<(u32, Stamp)>,
}

/// All sessions of one role.
pub(super) struct ServerSide<R> {
    sessions: Table<SessionIndex, ServerSession<R>>,
    /// Sessions by the client's address and id: a repeated `Open` finds its session.
    by_client: HashMap<(R, ConnectionId), SessionIndex, KeyedHasher>,
    grants: Grants<R>,
    acceptor: Option<Acceptor>,
    pending: VecDeque<PendingOpen<R>>,
    owed: Vec<OwedCredit>,
}

impl<R: Route> ServerSide<R> {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self {
            sessions: Table::new(),
            by_client: HashMap::with_hasher(hasher.clone()),
            grants: Grants::new(0, hasher),
            acceptor: None,
            pending: VecDeque::new(),
            owed: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn client_stats(&self, id: ClientId) -> Option<ClientStats> {
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
    pub(super) fn may_keep(&self, endpoint: &EndpointState, id: ClientId, bytes: usize) -> bool {
        let session = self.sessions.get(id.index);
        let session = session.filter(|session| session.generation == id.generation);
        session.is_some_and(|session| session.held + bytes <= endpoint.config.session_budget())
    }

    /// See [`Core::keep`](super::Core::keep).
    pub(super) fn keep(&mut self, id: ClientId, bytes: usize) {
        let session = self.sessions.get_mut(id.index);
        if let Some(session) = session.filter(|session| session.generation == id.generation) {
            session.kept = bytes;
        }
    }

    pub(super) fn granted(&self) -> u32 {
        self.grants.told()
    }

    #[inline]
    pub(super) fn wants_route(&self) -> bool {
        !self.pending.is_empty()
    }

    fn timer(index: SessionIndex) -> TimerId {
        TimerId(index.get() * 2 + 1)
    }

    #[inline]
    fn arm(
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

    fn local_id(endpoint: &EndpointState, index: SessionIndex, generation: u32) -> ConnectionId {
        ConnectionId::new(endpoint.local.steer, true, index.get(), generation)
    }

    /// The session of a handle, if it still is at that request.
    fn executing(&mut self, handle: &RequestHandle) -> Option<&mut ServerSession<R>> {
        let session = self.sessions.get_mut(handle.index)?;
        let slot = &session.slots[SlotIndex::of(handle.number)];
        let at_it = session.generation == handle.generation
            && slot.number == handle.number
            && slot.state.is_executing();
        at_it.then_some(session)
    }

    /// Takes a session out of the table. Requests still executing answer into the void.
    fn remove(&mut self, endpoint: &mut EndpointState, index: SessionIndex) {
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
    pub(super) fn shutdown<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
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
    pub(super) fn check_invariants(&self) {
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
