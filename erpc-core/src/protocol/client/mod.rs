//! The client's half: sessions this endpoint opened, and the calls on them.
//!
//! | file | what happens there |
//! |---|---|
//! | `handshake` | a session opens, and ends |
//! | `send` | a call takes a slot, its packets take room and go out, what waits goes on |
//! | `receive` | credit returns, responses, roll-back on a gap |
//! | `cancel` | calls that end before their answer comes, and what is left of them |
//! | `pacing` | what the congestion controller is told, and who waits for its rate |
//! | `timeout` | retransmission, deadlines, liveness |
//! | `plain` | the common case of both, alone |
//! | `flow`, `pace`, `session` | the state they work on |

mod cancel;
mod flow;
mod handshake;
mod pace;
mod pacing;
mod plain;
mod receive;
mod send;
mod session;
mod timeout;

use std::collections::{HashMap, VecDeque};

use self::flow::{Blocked, Capacity, Charges, Flow, Peer, Waiter};
use self::pace::Pace;
use self::send::Line;
use self::session::{Call, ClientSession, Patience, Quarantine, Response, Slot, State};
use super::congestion::{Congestion, Controller};
use super::endpoint::EndpointState;
use super::ids::KeyedHasher;
use super::index::{PeerIndex, SessionIndex, SlotIndex, SlotSet, Slots, Table, TableIndex};
use super::rtt::MAX_RTO;
use super::turn::Turn;
use super::wheel::{PaceWheel, TimerId};
use super::{CallError, Cause, NewCall, Notice, SessionEvent, SessionId, SessionStats, WINDOW};
use crate::mutants::mutant;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::ConnectionId;

/// A timer may be left from a longer pause than the present one: at most the longest and its jitter, in
/// nanoseconds.
const LONGEST_PAUSE: u64 = MAX_RTO + MAX_RTO / 4;

/// All sessions of one role.
pub(super) struct ClientSide<R> {
    sessions: Table<SessionIndex, ClientSession<R>>,
    /// The server endpoints that sessions go to, by address and place in their group.
    peers: Table<PeerIndex, Peer>,
    peer_index: HashMap<(R, u8), PeerIndex, KeyedHasher>,
    /// This endpoint's room for replies.
    room: Capacity,
    room_waiting: VecDeque<Waiter>,
    /// Peers whose window has opened while calls wait for it.
    ready_peers: Vec<PeerIndex>,
    /// Sessions that got credits back for which calls wait; fed at the end of the burst.
    released: Vec<SessionIndex>,
    /// Responses to be asked on for at the end of the burst.
    pulls: Vec<Waiter>,
    /// Sessions that wait for their next departure, one entry each, by their index.
    pacing: PaceWheel,
    /// Sessions whose path is to be looked up.
    routing: Vec<SessionId>,
}

impl<R: Route> ClientSide<R> {
    pub(super) fn new(room: u32, hasher: KeyedHasher) -> Self {
        Self {
            sessions: Table::new(),
            peers: Table::new(),
            peer_index: HashMap::with_hasher(hasher),
            room: Capacity::new(room),
            room_waiting: VecDeque::new(),
            ready_peers: Vec::new(),
            released: Vec::new(),
            pulls: Vec::new(),
            pacing: PaceWheel::new(),
            routing: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn wants_route(&self) -> bool {
        !self.routing.is_empty()
    }

    /// Sets how much of the receive queue is for replies.
    pub(super) fn set_room(&mut self, units: u32) {
        self.room.limit = units;
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn stats(&self, id: SessionId) -> Option<SessionStats> {
        let session = self.sessions.get(id.index)?;
        (session.generation == id.generation).then(|| SessionStats {
            rtt: session.rtt.smoothed(),
            rate: session.pace.is_limited().then(|| session.congestion.rate()),
            in_flight: session.slots.iter().filter(|(_, slot)| slot.call.is_some()).count(),
            quarantined: session.slots.iter().filter(|(_, slot)| slot.quarantine.is_some()).count(),
            queued: session.queue.len(),
            credits: session.credits,
            window: self.peers.get(session.peer).map_or(0, |peer| peer.window.limit),
            payload: session.payload,
            max_request: session.max_request,
            integrity: session.flags.trailer(),
        })
    }

    /// Ids of all sessions, open or not.
    pub(super) fn ids(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions
            .iter()
            .map(|(index, session)| SessionId { index, generation: session.generation })
    }

    fn timer(index: SessionIndex) -> TimerId {
        TimerId(index.get() * 2)
    }

    /// Makes sure that the session's timer fires at `at` or earlier.
    #[inline]
    fn arm(
        endpoint: &mut EndpointState,
        index: SessionIndex,
        session: &mut ClientSession<R>,
        at: Instant,
    ) {
        if at < session.timer_at {
            session.timer_at = at;
            endpoint.timers.arm(Self::timer(index), at);
        }
    }

    /// The session's own name in packets to it.
    fn local_id(
        endpoint: &EndpointState,
        index: SessionIndex,
        session: &ClientSession<R>,
    ) -> ConnectionId {
        ConnectionId::new(endpoint.local.steer, false, index.get(), session.generation)
    }

    /// What a packet of a call takes of the window and of the room.
    #[inline]
    fn charge(charges: &Charges, call: &Call, packet: u32) -> (u32, u32) {
        if packet + 1 == call.layout.packets() {
            return call.last_cost;
        }
        (charges.packet(call.layout.len(packet)), charges.bare_reply)
    }

    /// Gives back what the packets on their way have taken: those that nobody will answer any more.
    fn release_outstanding(charges: &Charges, call: &mut Call, flow: &mut Flow<'_>) {
        if let Some(response) = &mut call.response {
            for _ in response.assembly.next()..response.asked {
                flow.release(charges.bare, charges.full_reply);
            }
            response.asked = response.assembly.next();
        }
        for packet in call.acked..call.sent {
            let (units, reply) = Self::charge(charges, call, packet);
            flow.release(units, reply);
        }
        call.sent = call.acked;
    }

    /// After something was released: whoever waits for it is looked at when the burst ends.
    #[inline]
    fn note_release(peer: &mut Peer, peer_key: PeerIndex, ready_peers: &mut Vec<PeerIndex>) {
        if !peer.waiting.is_empty() && !peer.ready && !mutant!(WaiterForgotten) {
            peer.ready = true;
            ready_peers.push(peer_key);
        }
    }

    /// Takes a session out of the table; every call on it ends with `cause`, and the owner is told. No
    /// queue refers to the requests any more that go back to the user (thesis section 6.3.2.2).
    fn remove<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        cause: Cause,
    ) {
        let Some(mut session) = self.sessions.remove(index) else { return };
        turn.endpoint.timers.cancel(Self::timer(index));
        self.pacing.cancel(TimerId(index.get()));
        turn.tx.reclaim();
        let calls = session.slots.iter().filter_map(|(_, slot)| slot.call.as_ref());
        if calls.into_iter().any(|call| !call.request.is_unique()) && !mutant!(FlushForgottenAtEnd)
        {
            turn.tx.flush();
        }
        let peer = session.peer;
        if let Some(entry) = self.peers.get_mut(peer) {
            for slot in SlotIndex::all() {
                let mut flow = Flow {
                    credits: &mut session.credits,
                    window: &mut entry.window,
                    room: &mut self.room,
                };
                if let Some(mut quarantine) = session.slots[slot].quarantine.take() {
                    quarantine.release(&mut flow);
                }
                if let Some(mut call) = session.slots[slot].call.take() {
                    if !mutant!(WindowLeakAtEnd) {
                        Self::release_outstanding(&session.charges, &mut call, &mut flow);
                    }
                    let error = call.error(cause);
                    Self::fail(turn.endpoint, call, error);
                }
            }
            Self::note_release(entry, peer, &mut self.ready_peers);
        }
        self.leave_peer(peer);
        for queued in session.queue.drain(..) {
            if mutant!(QueuedCallsForgotten) {
                continue;
            }
            Self::fail_unsent(turn.endpoint, queued, cause);
        }
        let id = SessionId { index, generation: session.generation };
        let notice = Notice::Session(id, SessionEvent::Closed(cause));
        if mutant!(ClosedBeforeCalls) {
            turn.endpoint.notices.push_front(notice);
        } else {
            turn.endpoint.notices.push_back(notice);
        }
    }

    /// Ends a call that has given back what it took.
    fn fail(endpoint: &mut EndpointState, mut call: Call, error: CallError) {
        endpoint.stats.failures += 1;
        if let Some(response) = call.response.take() {
            response.assembly.discard(&mut endpoint.pool);
        }
        let (token, request) = (call.token, call.request);
        endpoint.notices.push_back(Notice::CallFailed { token, error, request });
    }

    /// Ends a call that has waited for a slot.
    fn fail_unsent(endpoint: &mut EndpointState, queued: NewCall, cause: Cause) {
        endpoint.stats.failures += 1;
        let NewCall { token, request, .. } = queued;
        let error = CallError::NotExecuted(cause);
        endpoint.notices.push_back(Notice::CallFailed { token, error, request });
    }

    fn leave_peer(&mut self, key: PeerIndex) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.sessions -= 1;
        if peer.sessions == 0 {
            self.peers.remove(key);
            self.peer_index.retain(|_, value| *value != key);
            self.ready_peers.retain(|ready| *ready != key);
        }
    }

    /// Everything of ours adds up.
    pub(super) fn check_invariants(&self, endpoint: &EndpointState) {
        self.check_conservation();
        self.check_nobody_is_forgotten(endpoint);
    }

    /// Credits, windows and room are where they are said to be.
    fn check_conservation(&self) {
        let mut room = 0;
        let keys = self.peers.iter().map(|(key, _)| key.place() + 1).max().unwrap_or(0);
        let (mut few, mut many) = ([(0, 0); 8], Vec::new());
        let windows = match few.get_mut(..keys) {
            Some(few) => few,
            None => {
                many.resize(keys, (0, 0));
                &mut many[..]
            }
        };
        for (_, session) in self.sessions.iter() {
            if let Some((_, sessions)) = windows.get_mut(session.peer.place()) {
                *sessions += 1;
            }
            let mut outstanding = 0;
            for (index, slot) in session.slots.iter() {
                let free = session.free.contains(index);
                let taken = slot.call.is_some() || slot.quarantine.is_some();
                assert_eq!(free, !taken, "the free mask tells the truth");
                assert!(slot.call.is_none() || slot.quarantine.is_none(), "one thing in a slot");
                if let Some(quarantine) = &slot.quarantine {
                    let (credits, units, reply) = quarantine.taken;
                    windows[session.peer.place()].0 += units;
                    room += reply;
                    outstanding += credits;
                }
                let Some(call) = &slot.call else { continue };
                assert_eq!(SlotIndex::of(slot.number), index);
                assert!(call.acked <= call.sent && call.sent <= call.layout.packets());
                for packet in call.acked..call.sent {
                    let (units, reply) = Self::charge(&session.charges, call, packet);
                    windows[session.peer.place()].0 += units;
                    room += reply;
                    outstanding += 1;
                }
                if let Some(response) = &call.response {
                    let pulled = response.asked - response.assembly.next();
                    windows[session.peer.place()].0 += pulled * session.charges.bare;
                    room += pulled * session.charges.full_reply;
                    outstanding += pulled;
                }
            }
            assert_eq!(
                u32::from(session.credits) + outstanding,
                u32::from(session.granted),
                "credits conserve"
            );
        }
        assert_eq!(room, self.room.taken(), "room conserves");
        assert_eq!(self.peer_index.len(), self.peers.len(), "peers are found by their address");
        assert!(self.peers.iter().all(|(_, peer)| peer.sessions > 0), "a peer has sessions");
        for (key, peer) in self.peers.iter() {
            let (taken, sessions) = windows[key.place()];
            assert_eq!(taken, peer.window.taken(), "the window conserves");
            assert_eq!(sessions, peer.sessions, "a peer goes with its last session");
        }
    }

    /// Whatever a call waits for will come: a packet, or else a timer; or somebody gives back what it
    /// stands in line for.
    fn check_nobody_is_forgotten(&self, endpoint: &EndpointState) {
        let lines = self.peers.iter().flat_map(|(_, peer)| peer.waiting.iter());
        let mut in_line: Vec<_> = lines
            .chain(&self.room_waiting)
            .map(|waiter| (waiter.index.get(), waiter.number.to_u32()))
            .collect();
        in_line.sort_unstable();
        for (index, session) in self.sessions.iter() {
            for (at, slot) in session.slots.iter() {
                let armed = |due: Instant| session.timer_at <= due.plus_nanos(LONGEST_PAUSE);
                if let Some(quarantine) = &slot.quarantine
                    && session.is_open()
                {
                    let due = quarantine.patience.due(endpoint, session);
                    assert!(armed(due), "a timer is armed for the end of a quarantine");
                }
                let Some(call) = &slot.call else { continue };
                assert!(armed(call.deadline()), "a timer is armed for the deadline");
                if let Some(lack) = call.waiting {
                    let starved = session.starved.contains(at);
                    let place = (index.get(), slot.number.to_u32());
                    let stands = in_line.binary_search(&place).is_ok();
                    let standing = match lack {
                        Blocked::Pace => session.paced.contains(at),
                        Blocked::Credits => starved,
                        Blocked::Window | Blocked::Room => stands,
                    };
                    assert!(standing, "who waits for {lack:?} stands in line");
                } else {
                    let pulls =
                        call.response.as_ref().is_some_and(|response| response.pull_pending);
                    assert!(
                        call.awaits_packets() || pulls,
                        "a call owes nothing and waits for nothing"
                    );
                }
                if let Some(due) = Self::due(endpoint, session, call) {
                    assert!(armed(due), "a timer is armed for what may be lost");
                }
            }
            let is_fed_later = self.released.contains(&index);
            assert!(
                session.starved.is_empty() || session.credits == 0 || is_fed_later,
                "no credit lies idle beyond the end of the burst while a call waits for it"
            );
            assert!(session.starved.is_empty() || session.granted > 0, "a credit will come back");
            assert!(
                session.paced.is_empty() || self.pacing.is_armed(TimerId(index.get())),
                "who waits for the session's time is in the wheel"
            );
            assert!(session.timer_at <= session.queue_deadline, "a timer is armed for the queue");
        }
        for (key, peer) in self.peers.iter() {
            let waits = peer.waiting.iter().any(|waiter| self.waits(*waiter, Line::Peer(key)));
            assert!(
                !waits || peer.ready || peer.window.taken() > 0,
                "room at the server will come back"
            );
        }
        let waits = self.room_waiting.iter().any(|waiter| self.waits(*waiter, Line::Room));
        assert!(!waits || self.room.taken() > 0, "room here will come back");
    }
}
