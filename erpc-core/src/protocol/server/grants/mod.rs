//! The clients' shares of this endpoint's receive queue.

use std::collections::HashMap;

use super::shares::{Shares, halvings, settle};
use super::siblings::Siblings;
use crate::mutants::mutant;
use crate::protocol::ids::KeyedHasher;
use crate::protocol::index::{SessionIndex, SocketIndex, Table, TableIndex};
use crate::time::Instant;
use crate::transport::Route;
use crate::wire::ReplyInfo;

/// Divides the receive queue's capacity among the sockets with open sessions: see [`Shares`].
///
/// A socket is an address with its port. The client itself chooses how many endpoints it has behind
/// a socket, so they divide the socket's share. Every reply carries the window. When a window
/// shrinks, clients that know a larger one get a ping with the new one.
///
/// A socket becomes busy if two samples, of [`SAMPLE`] packets each, lie within [`BUSY_WITHIN`]. It
/// becomes quiet again if [`QUIET_AFTER`] passes without a sample. If other shares must shrink, the
/// server first tells their sockets, and the busy socket gets its share one [`EPOCH`] later;
/// otherwise it gets its share immediately. The server tells a socket that it has become quiet; the
/// shares of the others grow one sweep later. All of this happens at the end of a burst: while no
/// client sends, no client needs a larger share.
pub(super) struct Grants<R> {
    shares: Shares,
    by_route: HashMap<R, SocketIndex, KeyedHasher>,
    sockets: Table<SocketIndex, Socket>,
    /// The window that replies carry, by socket.
    windows: Vec<ReplyInfo>,
    siblings: Siblings,
    /// Sockets that count as busy.
    busy: Vec<SocketIndex>,
    /// Sockets that have sent enough to become busy at the next epoch. Some may be gone.
    candidates: Vec<SocketIndex>,
    /// Sockets that count as busy and do not have their share yet. Some may be gone.
    rising: Vec<SocketIndex>,
    /// When to check `busy`, `candidates` and `rising` next; [`Instant::NEVER`] before the first
    /// session.
    next_epoch: Instant,
    last_epoch: Instant,
    next_sweep: Instant,
    /// Sessions whose clients must be told their window.
    untold: Vec<SessionIndex>,
}

/// An address and port that clients send from.
struct Socket {
    endpoints: Vec<ClientEndpoint>,
    /// Each endpoint of the socket gets the socket's share, halved this many times.
    halvings: u32,
    use_: Use,
    /// The share that each endpoint of the socket was last granted, in charge units. Since then no
    /// endpoint was told a larger window.
    told: u32,
    /// Its index in the list of busy sockets, if it is busy.
    at: usize,
}

/// One of the endpoints that share a socket.
struct ClientEndpoint {
    steer: u8,
    /// The first of its sessions; the others follow in [`Siblings`].
    head: SessionIndex,
}

/// How a socket uses its share.
///
/// ```text
/// Quiet -two samples-> Candidate -counted-> Rising -others were told-> Busy
///   ^                                                                    |
///   +------------------------- no samples -------------------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// With the time of its last sample, if there was one.
    Quiet(Option<Instant>),
    /// It has sent enough to become busy, and waits for the next epoch.
    Candidate,
    /// It counts as busy, and waits until the others were told their smaller shares.
    Rising,
    /// With the time of its last sample.
    Busy(Instant),
}

/// One sample of a socket's use is taken per this number of packets of a session.
pub(super) const SAMPLE: u8 = 16;

/// Two samples within this time, in nanoseconds, make a socket busy: 80 packets per second.
const BUSY_WITHIN: u64 = 200_000_000;

/// Interval at which busy sockets are checked for silence, in nanoseconds.
const SWEEP: u64 = 200_000_000;

/// A busy socket becomes quiet after this time without a sample, in nanoseconds.
const QUIET_AFTER: u64 = 1_000_000_000;

/// Minimum interval between two changes of shares in favor of sockets that become busy, in
/// nanoseconds.
const EPOCH: u64 = 1_000_000;

/// Up to this number of endpoints per socket, pings to all of them cost little, so their shares
/// grow without hysteresis.
const FEW_ENDPOINTS: usize = 4;

impl<R: Route> Grants<R> {
    pub(super) fn new(capacity: u32, hasher: KeyedHasher) -> Self {
        Self {
            shares: Shares::new(capacity),
            by_route: HashMap::with_hasher(hasher),
            sockets: Table::new(),
            windows: Vec::new(),
            siblings: Siblings::default(),
            busy: Vec::new(),
            candidates: Vec::new(),
            rising: Vec::new(),
            next_epoch: Instant::NEVER,
            last_epoch: Instant::ZERO,
            next_sweep: Instant::NEVER,
            untold: Vec::new(),
        }
    }

    /// Sets the part of the receive queue that is granted, in charge units. To be called before the
    /// first session opens.
    pub(super) fn set_capacity(&mut self, units: u32) {
        self.shares = Shares::new(units);
    }

    /// The window for replies to a socket, with a processing time of 0.
    #[inline(always)]
    pub(super) fn window(&self, socket: SocketIndex) -> ReplyInfo {
        self.windows[socket.place()]
    }

    /// The share of each endpoint of a socket: what it may have in flight, in charge units.
    pub(super) fn share(&self, socket: SocketIndex) -> u32 {
        self.sockets.get(socket).map_or(0, |socket| socket.entitled(&self.shares))
    }

    /// Whether a session from this address is open.
    pub(super) fn knows(&self, route: &R) -> bool {
        self.by_route.contains_key(route)
    }

    /// The window that replies tell the clients at this address; `None` if it has no sessions.
    pub(super) fn told(&self, route: &R) -> Option<u32> {
        self.window(*self.by_route.get(route)?).window()
    }

    /// The share of the client endpoint if one more session of it opens and all sockets are busy,
    /// in charge units. The session's datagrams are made to fit it.
    pub(super) fn least_share(&self, route: &R, steer: u8) -> u32 {
        let Some(socket) = self.by_route.get(route).map(|&index| &self.sockets[index]) else {
            return self.shares.equal(self.sockets.len() + 1);
        };
        let is_new = !socket.endpoints.iter().any(|endpoint| endpoint.steer == steer);
        let endpoints = socket.endpoints.len() + usize::from(is_new);
        self.shares.equal(self.sockets.len()) >> socket.halvings.max(halvings(endpoints))
    }

    /// Session `index` of the client endpoint opens.
    pub(super) fn join(
        &mut self,
        now: Instant,
        route: R,
        steer: u8,
        index: SessionIndex,
    ) -> SocketIndex {
        let socket = match self.by_route.get(&route) {
            Some(&socket) => socket,
            None => self.add(now, route),
        };
        let endpoints = &mut self.sockets[socket].endpoints;
        match endpoints.iter_mut().find(|endpoint| endpoint.steer == steer) {
            Some(endpoint) => {
                self.siblings.insert(index, Some(endpoint.head));
                endpoint.head = index;
            }
            None => {
                self.siblings.insert(index, None);
                endpoints.push(ClientEndpoint { steer, head: index });
                self.sockets[socket].divide();
                self.grant(socket);
            }
        }
        socket
    }

    /// The first session of a socket opens.
    fn add(&mut self, now: Instant, route: R) -> SocketIndex {
        let index = self.sockets.insert(Socket {
            endpoints: Vec::new(),
            halvings: 0,
            use_: Use::Quiet(None),
            told: 0,
            at: 0,
        });
        self.by_route.insert(route, index);
        if self.windows.len() <= index.place() {
            self.windows.resize(index.place() + 1, ReplyInfo::default());
        }
        self.divide(false);
        if self.next_sweep == Instant::NEVER {
            self.next_sweep = now.plus_nanos(SWEEP);
            self.schedule(now);
        }
        index
    }

    /// Session `index` of the client endpoint has ended.
    pub(super) fn leave(&mut self, route: &R, steer: u8, index: SessionIndex) {
        let Some(&socket) = self.by_route.get(route) else { return };
        let endpoints = &mut self.sockets[socket].endpoints;
        let Some(at) = endpoints.iter().position(|endpoint| endpoint.steer == steer) else {
            return;
        };
        let after = self.siblings.remove(index);
        if endpoints[at].head != index {
            return;
        }
        if let Some(after) = after {
            endpoints[at].head = after;
            return;
        }
        endpoints.swap_remove(at);
        if !endpoints.is_empty() {
            self.sockets[socket].divide();
            return self.grant(socket);
        }
        self.by_route.remove(route);
        if self.sockets[socket].is_busy() {
            self.count_as_quiet(socket);
        }
        self.sockets.remove(socket);
        self.divide(false);
    }

    /// A session of the socket has sent [`SAMPLE`] packets. A session that begins a request of
    /// twice as many counts as two samples.
    #[cold]
    pub(super) fn sample(&mut self, now: Instant, index: SocketIndex) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        match &mut socket.use_ {
            Use::Busy(last) => *last = now,
            Use::Candidate | Use::Rising => {}
            Use::Quiet(last) => {
                let recent = last.is_some_and(|last| now.nanos_since(last) <= BUSY_WITHIN);
                *last = Some(now);
                if recent {
                    socket.use_ = Use::Candidate;
                    self.candidates.push(index);
                    let at = self.last_epoch.plus_nanos(EPOCH).max(now);
                    self.next_epoch = self.next_epoch.min(at);
                }
            }
        }
    }

    /// Runs at the end of each burst. Costs one comparison unless an epoch or a sweep is due.
    #[inline(always)]
    pub(super) fn end_of_burst(&mut self, now: Instant) {
        if now >= self.next_epoch {
            self.end_of_epoch(now);
        }
    }

    /// Takes out a session whose client must be told its window; `None` if none is left.
    #[inline(always)]
    pub(super) fn next_untold(&mut self) -> Option<SessionIndex> {
        self.untold.pop()
    }

    #[cold]
    fn end_of_epoch(&mut self, now: Instant) {
        self.last_epoch = now;
        for index in std::mem::take(&mut self.rising) {
            if self.is(index, Use::Rising) {
                self.sockets[index].use_ = Use::Busy(now);
                self.grant(index);
            }
        }
        let may_grow = now >= self.next_sweep;
        let before = self.shares.busy();
        for index in std::mem::take(&mut self.candidates) {
            if self.is(index, Use::Candidate) {
                self.count_as_busy(index, Use::Rising);
                self.rising.push(index);
            }
        }
        self.divide(may_grow);
        if self.shares.busy() >= before {
            // The shares of the others have not shrunk: there is nothing to wait for.
            for index in std::mem::take(&mut self.rising) {
                self.sockets[index].use_ = Use::Busy(now);
                self.grant(index);
            }
        }
        if may_grow {
            self.sweep(now);
            self.next_sweep = now.plus_nanos(SWEEP);
        }
        self.schedule(now);
    }

    /// Makes busy sockets quiet that have had no sample for [`QUIET_AFTER`]. The next sweep divides
    /// their shares among the others: by then the quiet sockets know their smaller windows.
    fn sweep(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(&index) = self.busy.get(at) {
            let socket = &mut self.sockets[index];
            at += 1;
            let Use::Busy(last) = socket.use_ else { continue };
            if now.nanos_since(last) >= QUIET_AFTER && !mutant!(IdleCountsAsBusy) {
                at -= 1;
                self.count_as_quiet(index);
                self.grant(index);
            }
        }
    }

    /// Divides the capacity again and grants the changed shares.
    fn divide(&mut self, may_grow: bool) {
        let before = self.shares;
        self.shares.divide(self.sockets.len(), self.busy.len(), may_grow);
        if self.shares.quiet() != before.quiet() {
            let all: Vec<_> = self.sockets.iter().map(|(index, _)| index).collect();
            all.into_iter().for_each(|index| self.grant(index));
        } else if self.shares.busy() != before.busy() {
            for at in 0..self.busy.len() {
                self.grant(self.busy[at]);
            }
        }
    }

    fn schedule(&mut self, now: Instant) {
        self.next_epoch = if self.rising.is_empty() && self.candidates.is_empty() {
            self.next_sweep
        } else {
            now.plus_nanos(EPOCH).min(self.next_sweep)
        };
    }

    /// Grants a socket's endpoints their share. Replies carry it; if it has shrunk, a ping to each
    /// endpoint carries it, too.
    fn grant(&mut self, index: SocketIndex) {
        let socket = &mut self.sockets[index];
        let share = socket.entitled(&self.shares);
        self.windows[index.place()] = ReplyInfo::new(0, share);
        if socket.told > share && !mutant!(DemotedUntold) {
            self.untold.extend(socket.endpoints.iter().map(|endpoint| endpoint.head));
        }
        socket.told = share;
    }

    fn is(&self, index: SocketIndex, use_: Use) -> bool {
        self.sockets.get(index).is_some_and(|socket| socket.use_ == use_)
    }

    fn count_as_busy(&mut self, index: SocketIndex, use_: Use) {
        let socket = &mut self.sockets[index];
        (socket.use_, socket.at) = (use_, self.busy.len());
        self.busy.push(index);
    }

    fn count_as_quiet(&mut self, index: SocketIndex) {
        let socket = &mut self.sockets[index];
        socket.use_ = Use::Quiet(None);
        let at = socket.at;
        self.busy.swap_remove(at);
        if let Some(&moved) = self.busy.get(at) {
            self.sockets[moved].at = at;
        }
    }

    /// The number of sockets with open sessions.
    pub(super) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Returns the number of sessions.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check_invariants(&self) -> usize {
        let busy = self.sockets.iter().filter(|(_, socket)| socket.is_busy()).count();
        assert_eq!(busy, self.busy.len(), "every busy socket is listed once");
        for (index, socket) in self.sockets.iter() {
            assert!(!socket.is_busy() || self.busy[socket.at] == index);
            let share = socket.entitled(&self.shares);
            assert_eq!(socket.told, share, "a socket is granted its share");
            assert_eq!(
                self.window(index),
                ReplyInfo::new(0, share),
                "replies carry the socket's share"
            );
        }
        assert_eq!(self.by_route.len(), self.sockets.len());
        let heads = self.sockets.iter().flat_map(|(_, socket)| &socket.endpoints);
        heads.map(|endpoint| self.siblings.check_list(endpoint.head)).sum()
    }
}

impl Socket {
    fn is_busy(&self) -> bool {
        matches!(self.use_, Use::Rising | Use::Busy(_))
    }

    /// Divides the socket's share among its endpoints, with the hysteresis of [`Shares`].
    fn divide(&mut self) {
        let endpoints = self.endpoints.len();
        self.halvings = settle(self.halvings, halvings(endpoints), endpoints <= FEW_ENDPOINTS);
    }

    /// What each of the socket's endpoints may have in flight, in charge units.
    fn entitled(&self, shares: &Shares) -> u32 {
        let share = match self.use_ {
            Use::Quiet(_) | Use::Candidate | Use::Rising => shares.quiet(),
            Use::Busy(_) => shares.busy(),
        };
        share >> self.halvings
    }
}

#[cfg(test)]
mod tests;
