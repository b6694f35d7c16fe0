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

/// Divides the receive queue's capacity among the sockets whose sessions are open here: see [`Shares`].
///
/// A socket is an address with its port. Its client endpoints, of which the client says itself how many there are, divide the
/// socket's share. Every reply tells the window; when one shrinks, clients that were told more get a ping with the
/// new one.
///
/// A socket is busy if it sends [`SAMPLE`] packets twice within [`BUSY_WITHIN`], and quiet again [`QUIET_AFTER`] the
/// last ones. One that becomes busy has its share as soon as the others were told of theirs, at the latest
/// [`EPOCH`] later. One that becomes quiet is told, and the others' shares grow a sweep later. All of this happens at ends of
/// bursts: while no client sends, none needs more.
pub(super) struct Grants<R> {
    shares: Shares,
    by_route: HashMap<R, SocketIndex, KeyedHasher>,
    sockets: Table<SocketIndex, Socket>,
    /// What replies tell, by socket.
    windows: Vec<ReplyInfo>,
    siblings: Siblings,
    /// Sockets that count as busy.
    busy: Vec<SocketIndex>,
    /// Sockets that have sent enough to count as busy. Some may be gone.
    candidates: Vec<SocketIndex>,
    /// Sockets that count as busy and do not have their share yet. Some may be gone.
    rising: Vec<SocketIndex>,
    /// When to look at the above next, [`Instant::NEVER`] if there is nothing to see.
    next_epoch: Instant,
    last_epoch: Instant,
    next_sweep: Instant,
    /// Sessions whose clients are to be told their window.
    untold: Vec<SessionIndex>,
}

/// An address and port that clients send from.
struct Socket {
    endpoints: Vec<ClientEndpoint>,
    /// Each of its endpoints has the socket's share divided by two to the power of this.
    halvings: u32,
    use_: Use,
    /// The largest window that its client endpoints may have been told.
    told: u32,
    /// Its place among the busy ones, if it is one.
    at: usize,
}

/// One of the endpoints that share a socket.
struct ClientEndpoint {
    steer: u8,
    /// One of its sessions; the others follow in [`Siblings`].
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
    /// Its last sample was then.
    Quiet(Option<Instant>),
    Candidate,
    Rising,
    /// Its last sample was then.
    Busy(Instant),
}

/// Packets of a session per sample of its socket's use.
pub(super) const SAMPLE: u8 = 16;

/// Two samples within this time make a socket busy: 80 packets per second. Nanoseconds.
const BUSY_WITHIN: u64 = 200_000_000;

/// Busy sockets are looked at so often, in nanoseconds.
const SWEEP: u64 = 200_000_000;

/// A busy socket without a sample for so long is quiet, in nanoseconds.
const QUIET_AFTER: u64 = 1_000_000_000;

/// Shares change at most so often for sockets that become busy, in nanoseconds.
const EPOCH: u64 = 1_000_000;

/// So few endpoints of a socket that pings to all of them cost little.
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

    /// What of the receive queue is granted, in charge units. Before the first session opens.
    pub(super) fn set_capacity(&mut self, units: u32) {
        self.shares = Shares::new(units);
    }

    /// What replies tell a socket, with a processing time of 0.
    #[inline(always)]
    pub(super) fn window(&self, socket: SocketIndex) -> ReplyInfo {
        self.windows[socket.place()]
    }

    /// What an endpoint of a socket may have on its way, in charge units.
    pub(super) fn share(&self, socket: SocketIndex) -> u32 {
        self.sockets.get(socket).map_or(0, |socket| socket.entitled(&self.shares))
    }

    /// Whether a session from there is open.
    pub(super) fn knows(&self, route: &R) -> bool {
        self.by_route.contains_key(route)
    }

    /// The window that clients of this address were told, `None` if it has no sessions.
    pub(super) fn told(&self, route: &R) -> Option<u32> {
        self.window(*self.by_route.get(route)?).window()
    }

    /// What an endpoint of the client would have if all sockets were busy, once a session of it has opened, in charge
    /// units. Datagrams are made to fit that.
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

    /// A session of the socket has sent [`SAMPLE`] packets, or as many packets are announced.
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

    /// A burst has been taken in.
    #[inline(always)]
    pub(super) fn end_of_burst(&mut self, now: Instant) {
        if now >= self.next_epoch {
            self.end_of_epoch(now);
        }
    }

    /// Sessions whose clients are to be told their window, each once.
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
            // The others need not make room.
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

    /// Looks which busy sockets are quiet. What they had is divided at the next sweep, when they know.
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

    /// Divides the capacity anew and grants the shares.
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

    /// Grants a socket's endpoints their share: by replies, and by pings if they were told more.
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

    /// Sockets that sessions are open from.
    pub(super) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Returns the number of sessions.
    ///
    /// # Panics
    /// If something does not add up.
    pub(super) fn check_invariants(&self) -> usize {
        let busy = self.sockets.iter().filter(|(_, socket)| socket.is_busy()).count();
        assert_eq!(busy, self.busy.len(), "busy sockets are counted");
        for (index, socket) in self.sockets.iter() {
            assert!(!socket.is_busy() || self.busy[socket.at] == index);
            let share = socket.entitled(&self.shares);
            assert_eq!(socket.told, share, "a socket has its share");
            assert_eq!(self.window(index), ReplyInfo::new(0, share), "replies tell it");
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

    /// Divides its share among its endpoints, with the hysteresis of [`Shares`].
    fn divide(&mut self) {
        let endpoints = self.endpoints.len();
        self.halvings = settle(self.halvings, halvings(endpoints), endpoints <= FEW_ENDPOINTS);
    }

    /// What each of its endpoints may have on its way.
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
