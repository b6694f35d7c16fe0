//! What calls of several sessions compete for, and the lines (queues) in which they wait for it.

use std::collections::{HashMap, VecDeque};

use super::credits::Credits;
use super::method_times::{MethodTimes, Told, Wait};
use super::pacer::Pacer;
use super::probing::Probing;
use super::reservation::{Blocked, Capacity, Cost, Flow};
use crate::mutants::mutant;
use crate::protocol::ids::KeyedHasher;
use crate::protocol::index::{PeerIndex, SessionIndex, Table};
use crate::protocol::wheel::{PaceWheel, TimerId};
use crate::time::Instant;
use crate::transport::Route;
use crate::wire::{ReplyInfo, RequestNumber};

/// Names a call that waits. Names no call once that call has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub(super) index: SessionIndex,
    pub(super) generation: u32,
    pub(super) number: RequestNumber,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineId {
    /// Calls that wait for room in a server's window.
    Peer(PeerIndex),
    /// Calls that wait for room for replies in this endpoint's receive queue.
    Room,
}

impl LineId {
    /// What the calls in this line wait for.
    pub(super) fn lack(self) -> Blocked {
        match self {
            Self::Peer(_) => Blocked::Window,
            Self::Room => Blocked::Room,
        }
    }
}

/// Calls in the order in which they began to wait. A place is skipped if its call has ended, or has
/// already got what it lacked.
#[derive(Default)]
struct Line {
    places: VecDeque<Waiter>,
    /// Calls that wait. `places` may have more entries.
    waiting: u32,
}

impl Line {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    fn join(&mut self, waiter: Waiter) {
        self.places.push_back(waiter);
        self.waiting += 1;
    }

    /// A call does not wait any more. When the last one leaves, all places are cleared.
    fn leave(&mut self) {
        debug_assert!(self.waiting > 0, "a call that leaves has waited");
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            self.places.clear();
        }
    }

    /// Removes the place of a call that ends. Such a call is usually the newest or the oldest one,
    /// so only both ends are searched. A place further inside stays, and is skipped later.
    fn vacate(&mut self, place: Waiter) {
        const LOOKED_AT: usize = 64;
        let tail = self.places.len().saturating_sub(LOOKED_AT).max(LOOKED_AT);
        let near = (0..self.places.len().min(LOOKED_AT)).chain(tail..self.places.len());
        if let Some(at) = { near }.find(|at| self.places[*at] == place) {
            self.places.remove(at);
        }
    }
}

/// One server endpoint: what all sessions to it have in flight, which calls wait for its window,
/// and what the client knows if the server is silent.
struct Peer<R> {
    /// The server endpoint's address, and its index in its group.
    key: (R, u8),
    sessions: u32,
    window: Capacity,
    line: Line,
    /// Listed in `ready_peers`: its waiting calls may be resumed.
    ready: bool,
    probing: Probing,
    /// Sessions with overdue calls. They are checked when an answer may pass these calls, or when
    /// the wait for a probe's answer ends.
    overdue: Vec<SessionIndex>,
    /// When the earliest overdue call of these sessions was sent. An answer to a packet sent later
    /// passes that call. [`Instant::NEVER`] if no call is overdue.
    overdue_since: Instant,
    /// `None` while no method of the server is known to be slow.
    method_times: Option<Box<MethodTimes>>,
}

impl<R> Peer<R> {
    #[inline(always)]
    fn on_reply_info(&mut self, info: ReplyInfo) {
        if let Some(window) = info.window()
            && !mutant!(WindowIgnored)
        {
            self.window.set_limit(window);
        }
    }

    /// Whether some of the server's methods are known to be slow.
    #[inline(always)]
    fn has_slow_methods(&self) -> bool {
        self.method_times.is_some()
    }

    /// Lists the sessions with overdue calls for checking.
    fn rouse(&mut self, roused: &mut Vec<SessionIndex>) {
        self.overdue_since = Instant::NEVER;
        roused.append(&mut self.overdue);
    }
}

/// A server endpoint, while no call waits for room in its window or in this endpoint's receive
/// queue.
pub(super) struct Uncontended<'a, R> {
    peer: &'a mut Peer<R>,
    room: &'a mut Capacity,
}

impl<R> Uncontended<'_, R> {
    /// Reserves what a plain call costs. On failure, reserves nothing and returns false.
    #[inline(always)]
    pub(super) fn take(self, credits: &mut Credits, cost: Cost) -> bool {
        Flow::new(credits, &mut self.peer.window, self.room).take(cost).is_ok()
    }
}

/// The server endpoints of all sessions, the room for replies, the lines for both, and the work to
/// do at the end of the burst.
pub(super) struct Lines<R> {
    peers: Table<PeerIndex, Peer<R>>,
    /// Peers by address and index in their group.
    peer_index: HashMap<(R, u8), PeerIndex, KeyedHasher>,
    /// This endpoint's room for replies.
    room: Capacity,
    room_line: Line,
    /// Peers at which capacity was released while calls wait for it.
    ready_peers: Vec<PeerIndex>,
    /// Sessions that may have got credits back while their calls wait for one. May hold duplicates.
    released: Vec<SessionIndex>,
    /// Sessions whose overdue calls are to be checked at the end of the burst, because of an answer
    /// of their peer.
    roused: Vec<SessionIndex>,
    /// Responses to pull at the end of the burst.
    pulls: Vec<Waiter>,
    /// Sessions whose calls wait because of pacing: one entry each, due at the session's next
    /// departure (the time at which it may send again).
    departures: PaceWheel,
}

impl<R: Route> Lines<R> {
    pub(super) fn new(room: u32, hasher: KeyedHasher) -> Self {
        Self {
            peers: Table::new(),
            peer_index: HashMap::with_hasher(hasher),
            room: Capacity::new(room),
            room_line: Line::default(),
            ready_peers: Vec::new(),
            released: Vec::new(),
            roused: Vec::new(),
            pulls: Vec::new(),
            departures: PaceWheel::new(),
        }
    }

    // Capacities.

    /// How much of the receive queue is reserved for replies, in charge units.
    pub(super) fn room(&self) -> u32 {
        self.room.limit()
    }

    /// Whether more than half of the room for replies is reserved.
    #[inline(always)]
    pub(super) fn is_room_scarce(&self) -> bool {
        self.room.is_scarce()
    }

    pub(super) fn set_room(&mut self, units: u32) {
        self.room.set_limit(units);
    }

    pub(super) fn window(&self, peer: PeerIndex) -> u32 {
        self.peers[peer].window.limit()
    }

    /// Adds a session to the server endpoint `steer` of the group at `route`. Returns its peer.
    pub(super) fn join_peer(&mut self, route: R, steer: u8, window: u32) -> PeerIndex {
        let peers = &mut self.peers;
        let key = (route, steer);
        let key = *self.peer_index.entry(key).or_insert_with(|| {
            peers.insert(Peer {
                key,
                sessions: 0,
                window: Capacity::new(window),
                line: Line::default(),
                ready: false,
                probing: Probing::new(),
                overdue: Vec::new(),
                overdue_since: Instant::NEVER,
                method_times: None,
            })
        });
        let peer = &mut peers[key];
        peer.sessions += 1;
        peer.window.set_limit(window);
        key
    }

    /// A session has ended, and has released its reservations. The last session removes the peer.
    pub(super) fn leave_peer(&mut self, key: PeerIndex) {
        let peer = &mut self.peers[key];
        peer.sessions -= 1;
        if (peer.sessions == 0 || mutant!(PeerLeftEarly))
            && let Some(gone) = self.peers.remove(key)
        {
            self.peer_index.remove(&gone.key);
            if gone.ready {
                self.ready_peers.retain(|ready| *ready != key);
            }
        }
    }

    /// Takes over the peer's window if the reply carries it.
    #[inline(always)]
    pub(super) fn on_reply_info(&mut self, peer: PeerIndex, info: ReplyInfo) {
        self.peers[peer].on_reply_info(info);
    }

    /// The peer, if no call waits for room in its window or in this endpoint's receive queue.
    #[inline(always)]
    pub(super) fn uncontended(&mut self, peer: PeerIndex) -> Option<Uncontended<'_, R>> {
        let peer = &mut self.peers[peer];
        let is_empty = peer.line.is_empty() & self.room_line.is_empty();
        is_empty.then_some(Uncontended { peer, room: &mut self.room })
    }

    /// The reply to a plain call has arrived: releases its cost. Returns whether some of the peer's
    /// methods are known to be slow.
    #[inline(always)]
    pub(super) fn on_plain_reply(
        &mut self,
        key: PeerIndex,
        info: ReplyInfo,
        credits: &mut Credits,
        cost: Cost,
    ) -> bool {
        let peer = &mut self.peers[key];
        peer.on_reply_info(info);
        Flow::new(credits, &mut peer.window, &mut self.room).release(cost);
        let has_slow = peer.has_slow_methods();
        if !peer.line.is_empty() {
            self.note_release(key);
        }
        has_slow
    }

    /// The capacities that limit a session.
    #[inline(always)]
    pub(super) fn flow<'a>(&'a mut self, credits: &'a mut Credits, peer: PeerIndex) -> Flow<'a> {
        Flow::new(credits, &mut self.peers[peer].window, &mut self.room)
    }

    // Overdue calls and probes.

    /// A packet that was sent to the peer at `sent_at` was answered: see [`Probing::note_answer`].
    /// Returns whether to call [`Self::on_answer`].
    #[inline(always)]
    pub(super) fn note_answer(&mut self, peer: PeerIndex, sent_at: Instant) -> bool {
        let peer = &mut self.peers[peer];
        peer.probing.note_answer(sent_at) | (sent_at > peer.overdue_since)
    }

    /// As [`Self::note_answer`], for the second copy of a packet.
    pub(super) fn note_copys_answer(&mut self, peer: PeerIndex, sent_at: Instant) -> bool {
        let peer = &mut self.peers[peer];
        peer.probing.note_copys_answer(sent_at) | (sent_at > peer.overdue_since)
    }

    /// A packet was answered while a probe was out, or its answer passes overdue calls. `timeout`
    /// is the timeout of such a packet, in ns.
    #[cold]
    pub(super) fn on_answer(
        &mut self,
        key: PeerIndex,
        now: Instant,
        sent_at: Instant,
        timeout: u64,
    ) {
        let peer = &mut self.peers[key];
        peer.probing.on_answer(now, sent_at, timeout);
        peer.rouse(&mut self.roused);
    }

    /// A call that was sent more than once was answered; see [`Probing::on_ambiguous_answer`].
    pub(super) fn on_ambiguous_answer(
        &mut self,
        key: PeerIndex,
        now: Instant,
        since: Instant,
        processing: u64,
        rtt: u64,
        timeout: u64,
    ) {
        let peer = &mut self.peers[key];
        if peer.probing.on_ambiguous_answer(now, since, processing, rtt, timeout) {
            peer.rouse(&mut self.roused);
        }
    }

    /// The peer does not know one of its sessions any more: the other sessions to the peer send
    /// pings, to learn whether the peer still knows them.
    pub(super) fn on_reset(&mut self, key: PeerIndex, now: Instant) {
        let peer = &mut self.peers[key];
        peer.probing.on_reset(now);
        peer.rouse(&mut self.roused);
    }

    pub(super) fn probing(&self, peer: PeerIndex) -> &Probing {
        &self.peers[peer].probing
    }

    pub(super) fn probing_mut(&mut self, peer: PeerIndex) -> &mut Probing {
        &mut self.peers[peer].probing
    }

    /// A session has overdue calls, the earliest sent at `since`, which wait for an answer that
    /// passes them. If `since` is [`Instant::ZERO`], any answer counts. `is_listed`: the session is
    /// already listed.
    pub(super) fn rouse_later(
        &mut self,
        key: PeerIndex,
        index: SessionIndex,
        is_listed: bool,
        since: Instant,
    ) {
        let peer = &mut self.peers[key];
        peer.overdue_since = peer.overdue_since.min(since);
        if !is_listed {
            peer.overdue.push(index);
        }
    }

    /// A listed session ends.
    pub(super) fn rouse_no_more(&mut self, key: PeerIndex, index: SessionIndex) {
        self.peers[key].overdue.retain(|listed| *listed != index);
        self.roused.retain(|listed| *listed != index);
    }

    /// The next session whose overdue calls are to be checked, because of an answer of its peer.
    #[inline]
    pub(super) fn next_roused(&mut self) -> Option<SessionIndex> {
        self.roused.pop()
    }

    pub(super) fn has_slow_methods(&self, peer: PeerIndex) -> bool {
        self.peers[peer].has_slow_methods()
    }

    /// An answer tells how long the server had a request; see [`MethodTimes::record`].
    pub(super) fn record_method(&mut self, peer: PeerIndex, now: Instant, told: &Told, floor: u64) {
        self.change_times(peer, |times| times.record(now, told, floor));
    }

    /// The extra time, beyond its timeout, that a call of this method waits for its answer. The
    /// call was last sent at `sent_at`.
    pub(super) fn method_wait(
        &self,
        key: PeerIndex,
        now: Instant,
        method: u32,
        sent_at: Instant,
    ) -> Wait {
        let peer = &self.peers[key];
        let times = peer.method_times.as_ref();
        times.map_or(Wait::NONE, |times| times.get(now, method, peer.probing.is_passed(sent_at)))
    }

    /// A passed call of this method is sent again; see [`MethodTimes::ask`].
    pub(super) fn ask_method(&mut self, peer: PeerIndex, now: Instant, method: u32, rtt: u64) {
        // While calls wait in a line, no passed call is held back: the answer to a passed call
        // releases capacity.
        if self.are_empty(peer)
            && let Some(times) = &mut self.peers[peer].method_times
        {
            times.ask(now, method, rtt);
        }
    }

    /// The handler of a call has run for the time in `told`; see [`MethodTimes::runs`].
    pub(super) fn method_runs(&mut self, peer: PeerIndex, now: Instant, told: &Told, floor: u64) {
        let holds_on = self.are_empty(peer);
        self.change_times(peer, |times| {
            times.runs(now, told, floor);
            if holds_on {
                times.hold_on(now, told, floor);
            }
        });
    }

    /// Changes the peer's handler times. Drops them once no method is slow.
    fn change_times(&mut self, peer: PeerIndex, change: impl FnOnce(&mut MethodTimes)) {
        let kept = &mut self.peers[peer].method_times;
        let times = kept.get_or_insert_with(|| Box::new(MethodTimes::new()));
        change(times);
        if times.is_empty() {
            *kept = None;
        }
    }

    // Lines.

    /// Whether no call waits for room in the peer's window or in this endpoint's receive queue.
    #[inline(always)]
    pub(super) fn are_empty(&self, peer: PeerIndex) -> bool {
        self.is_empty(LineId::Peer(peer)) && self.is_empty(LineId::Room)
    }

    #[inline(always)]
    pub(super) fn is_empty(&self, line: LineId) -> bool {
        match line {
            LineId::Peer(peer) => self.peers[peer].line.is_empty(),
            LineId::Room => self.room_line.is_empty(),
        }
    }

    fn line(&mut self, line: LineId) -> Option<&mut Line> {
        match line {
            LineId::Peer(peer) => self.peers.get_mut(peer).map(|peer| &mut peer.line),
            LineId::Room => Some(&mut self.room_line),
        }
    }

    /// Appends a call to a line.
    pub(super) fn join(&mut self, line: LineId, waiter: Waiter) {
        if let Some(line) = self.line(line) {
            line.join(waiter);
        }
    }

    /// A call in a line does not wait any more: it was resumed, answered or has ended.
    pub(super) fn leave(&mut self, line: LineId) {
        if let Some(line) = self.line(line) {
            line.leave();
        }
    }

    /// A call that has left a line has ended early: its place can be removed.
    pub(super) fn vacate(&mut self, line: LineId, place: Waiter) {
        if let Some(line) = self.line(line) {
            line.vacate(place);
        }
    }

    /// Places in the line, including those to be skipped.
    pub(super) fn places(&mut self, line: LineId) -> usize {
        self.line(line).map_or(0, |line| line.places.len())
    }

    /// Removes the first place of a line. Its call may have ended.
    pub(super) fn pop(&mut self, line: LineId) -> Option<Waiter> {
        self.line(line)?.places.pop_front()
    }

    /// A call that was served had to join its line again: its place moves to the front.
    pub(super) fn back_to_front(&mut self, line: LineId) {
        if let Some(line) = self.line(line) {
            line.places.rotate_right(1);
        }
    }

    // Work for the end of the burst.

    /// Capacity was released at a peer: if calls wait for it, they are resumed at the end of the
    /// burst.
    #[inline(always)]
    pub(super) fn note_release(&mut self, key: PeerIndex) {
        let peer = &mut self.peers[key];
        if !peer.line.is_empty() && !peer.ready && !mutant!(WaiterForgotten) {
            peer.ready = true;
            self.ready_peers.push(key);
        }
    }

    /// The next peer whose waiting calls may be resumed.
    pub(super) fn next_ready(&mut self) -> Option<PeerIndex> {
        let key = self.ready_peers.pop()?;
        self.peers[key].ready = false;
        Some(key)
    }

    /// A session may have got a credit back: its calls that wait for one are resumed at the end of
    /// the burst.
    ///
    /// If each credit return resumed the next call in line, that call could send only as many
    /// packets as were just acknowledged, and get a credit return for only those. Bursts that once
    /// became short would stay short (a silly window), down to one credit return for every 4
    /// packets.
    #[inline]
    pub(super) fn feed_later(&mut self, index: SessionIndex, credits: &Credits) {
        if credits.is_short() && self.released.last() != Some(&index) {
            self.released.push(index);
        }
    }

    /// Takes the sessions whose waiting calls are to be resumed. May hold duplicates.
    pub(super) fn take_released(&mut self) -> Vec<SessionIndex> {
        std::mem::take(&mut self.released)
    }

    /// Returns the list's memory for reuse.
    pub(super) fn return_released(&mut self, mut list: Vec<SessionIndex>) {
        debug_assert!(self.released.is_empty());
        list.clear();
        self.released = list;
    }

    /// Lists a response to be pulled at the end of the burst.
    pub(super) fn pull_later(&mut self, waiter: Waiter) {
        self.pulls.push(waiter);
    }

    pub(super) fn take_pulls(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.pulls)
    }

    pub(super) fn return_pulls(&mut self, mut list: Vec<Waiter>) {
        debug_assert!(self.pulls.is_empty());
        list.clear();
        self.pulls = list;
    }

    // Departures.

    /// If calls of a session wait for its next departure, arms the wheel for it.
    pub(super) fn wait_for_departure(
        &mut self,
        now: Instant,
        index: SessionIndex,
        pacer: &mut Pacer,
    ) {
        let id = TimerId(index.get());
        if !pacer.is_awaited() || mutant!(DepartureForgotten) {
            return;
        }
        let next = pacer.await_next();
        // The entry may be armed already: it stays armed when the last call that waits for it
        // leaves.
        if !self.departures.is_armed(id) {
            self.departures.begin(now);
            self.departures.arm(id, next);
        }
    }

    /// A session ends: disarms its entry.
    pub(super) fn cancel_departure(&mut self, index: SessionIndex) {
        self.departures.cancel(TimerId(index.get()));
    }

    /// The next session whose departure is due.
    #[inline]
    pub(super) fn depart(&mut self, now: Instant) -> Option<SessionIndex> {
        self.departures.expire(now).map(|TimerId(index)| SessionIndex::new(index))
    }

    /// When the next paced session may send; [`Instant::NEVER`] if none waits.
    pub(super) fn next_departure(&self) -> Instant {
        self.departures.next()
    }

    // Checks.

    /// Number of occupied places in all lines.
    #[cfg(test)]
    pub(super) fn taken_places(&self) -> usize {
        let lines = self.peers.iter().map(|(_, peer)| peer.line.places.len());
        lines.sum::<usize>() + self.room_line.places.len()
    }

    pub(super) fn is_departing(&self, index: SessionIndex) -> bool {
        self.departures.is_armed(TimerId(index.get()))
    }

    pub(super) fn is_fed_later(&self, index: SessionIndex) -> bool {
        self.released.contains(&index)
    }

    fn all_lines(&self) -> impl Iterator<Item = (LineId, &Line)> {
        let peers = self.peers.iter().map(|(key, peer)| (LineId::Peer(key), &peer.line));
        peers.chain([(LineId::Room, &self.room_line)])
    }

    /// The session and the request number of every place in all lines, sorted.
    pub(super) fn sorted_places(&self) -> Vec<(SessionIndex, u32)> {
        let places = self.all_lines().flat_map(|(_, line)| &line.places);
        let mut places: Vec<_> =
            places.map(|waiter| (waiter.index, waiter.number.to_u32())).collect();
        places.sort_unstable();
        places
    }

    /// Checks the sums over all sessions: their reservations, and their waiting calls.
    pub(super) fn check_invariants(&self, sums: &Sums) {
        assert_eq!(sums.room, self.room.taken(), "reserved room adds up");
        assert_eq!(self.peer_index.len(), self.peers.len(), "each peer has one entry in the index");
        for (key, peer) in self.peers.iter() {
            assert!(peer.sessions > 0, "a peer has sessions");
            let sum = sums.peers.get(&key).copied().unwrap_or_default();
            assert_eq!(sum.window, peer.window.taken(), "reserved window adds up");
            assert_eq!(sum.sessions, peer.sessions, "a peer counts its sessions");
            assert_eq!(sum.waiting, peer.line.waiting, "waiting calls are counted");
            assert!(
                peer.line.is_empty() || peer.ready || peer.window.taken() > 0,
                "room at the server will come back"
            );
        }
        assert_eq!(sums.waiting_for_room, self.room_line.waiting, "waiting calls are counted");
        assert!(self.room_line.is_empty() || self.room.taken() > 0, "room here will come back");
    }
}

/// What all sessions together have reserved, and the number of their waiting calls.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) room: u32,
    pub(super) waiting_for_room: u32,
    pub(super) peers: std::collections::BTreeMap<PeerIndex, PeerSums>,
}

/// The part of [`Sums`] at one peer.
#[derive(Clone, Copy, Default)]
pub(super) struct PeerSums {
    pub(super) sessions: u32,
    pub(super) window: u32,
    pub(super) waiting: u32,
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::protocol::ids::IdSource;
    use crate::transport::mem::MemRoute;

    /// The shortest time to remove eight peers, measured over the first half of `peers` peers.
    fn leaving(peers: u32) -> Duration {
        let mut lines = Lines::new(1 << 20, IdSource::new((1, 2)).table_hasher());
        let keys: Vec<_> = (0..peers).map(|at| lines.join_peer(MemRoute::new(at), 0, 1)).collect();
        let (first, rest) = keys.split_at(keys.len() / 2);
        let eights = first.chunks_exact(8).map(|eight| {
            let began = Instant::now();
            eight.iter().for_each(|key| lines.leave_peer(*key));
            began.elapsed()
        });
        let quickest = eights.min().expect("at least eight peers");
        let rest = first.chunks_exact(8).remainder().iter().chain(rest);
        rest.for_each(|key| lines.leave_peer(*key));
        assert!(lines.peers.iter().next().is_none() && lines.peer_index.is_empty());
        quickest
    }

    #[test]
    fn a_peer_is_removed_as_quickly_among_thousands_as_among_hundreds() {
        // Preemption lengthens some of the samples of eight, but not the shortest one.
        let quickest = |peers| (0..5).map(|_| leaving(peers)).min().expect("five runs");
        let (few, many) = (quickest(500), quickest(16_000));
        assert!(many < few * 8, "{few:?} among 500 peers, {many:?} among 16,000");
    }
}
