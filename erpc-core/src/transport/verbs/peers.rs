//! The peers of an endpoint: which queue pair belongs to which UDP address.
//!
//! ```text
//!             a packet for the peer           Answer            a datagram of the peer
//!   unknown -----------------------> asked ------------> told -----------------------> heard
//!      |                                ^                  |                             |
//!      |                                +------------------+-----------------------------+
//!      |                                  packets are sent, and none come back
//!      |                                                                                 ^
//!      +---------------------------------------------------------------------------------+
//!                     Present, with a token, from the peer's queue pair
//! ```
//!
//! While a known peer is asked again, packets go to the address that it had. The table is bounded.
//! A new peer replaces the one that was silent for longest.

use std::collections::{HashMap, VecDeque};

use super::device::{AddressHandle, Host};
use super::exchange::{Answer, Token};
use crate::time::Instant;
use crate::transport::udp::UdpRoute;

/// Time until the first question is repeated, in ns. It doubles with each repetition.
const REPEAT: u64 = 20_000_000;
/// Longest time between two repetitions, in ns.
const LONGEST_REPEAT: u64 = 640_000_000;
/// Questions without an answer until the peer is left alone. The next packet asks again.
const QUESTIONS: u32 = 12;
/// Packets that wait for an answer, for each peer. The oldest is dropped for a new one.
const WAITING: usize = 4;
/// Rounds without a datagram, although packets were sent, until the peer is asked again.
const SILENT_ROUNDS: u32 = 2;
/// A peer that was heard within so many rounds is not forgotten for another.
const BUSY_ROUNDS: u32 = 10;

/// A queue pair in the network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct QueuePair {
    pub(super) host: Host,
    pub(super) qpn: u32,
}

/// Where a peer receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) pair: QueuePair,
    pub(super) qkey: u32,
}

/// Where to send a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    /// The peer's place in the table.
    pub(super) index: usize,
    pub(super) handle: AddressHandle,
    pub(super) qpn: u32,
    pub(super) qkey: u32,
    /// Sent in front of the packet: the peer has not been heard yet.
    pub(super) token: Option<Token>,
}

/// What to do with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lookup {
    Send(Target),
    /// The packet must wait ([`Peers::keep`]) for the peer's address.
    Wait,
}

struct Asking {
    nonce: u64,
    questions: u32,
    next: Instant,
}

struct Known {
    address: Address,
    handle: AddressHandle,
    token: Option<Token>,
}

struct Peer {
    route: UdpRoute,
    asking: Option<Asking>,
    known: Option<Known>,
    waiting: VecDeque<Vec<u8>>,
    /// The last round in which a datagram of the peer arrived, or in which the peer was asked for.
    active: u32,
    /// Rounds in which packets were sent and none arrived.
    silent: u32,
}

/// An address handle, shared by the peers of a host.
struct Shared {
    handle: AddressHandle,
    users: u32,
}

/// The table.
pub(super) struct Peers {
    slots: Vec<Option<Peer>>,
    free: Vec<usize>,
    by_route: HashMap<UdpRoute, usize>,
    by_pair: HashMap<QueuePair, usize>,
    handles: HashMap<Host, Shared>,
    /// Handles without users, to be destroyed when no request in progress uses them.
    unused: Vec<AddressHandle>,
    asking: usize,
    round: u32,
    /// Changes whenever an answer of `lookup` or `find` may differ from an earlier one.
    version: u32,
    /// Peers that were not accepted, because all places are in use or a queue pair was claimed
    /// twice.
    refused: u64,
}

impl Peers {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            by_route: HashMap::new(),
            by_pair: HashMap::new(),
            handles: HashMap::new(),
            unused: Vec::new(),
            asking: 0,
            round: 0,
            version: 1,
            refused: 0,
        }
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether questions wait for answers.
    pub(super) fn is_asking(&self) -> bool {
        self.asking > 0
    }

    /// Handles that no peer uses any more.
    pub(super) fn take_unused(&mut self) -> Vec<AddressHandle> {
        std::mem::take(&mut self.unused)
    }

    /// Where packets to `route` go. Begins to ask if nothing is known.
    pub(super) fn lookup(
        &mut self,
        route: UdpRoute,
        now: Instant,
        nonce: impl FnOnce() -> u64,
    ) -> Lookup {
        let Some(index) = self.entry(route) else { return Lookup::Wait };
        let Some(peer) = &mut self.slots[index] else { return Lookup::Wait };
        let Some(known) = &peer.known else {
            peer.active = self.round;
            self.ask(index, now, nonce());
            return Lookup::Wait;
        };
        let Address { pair, qkey } = known.address;
        Lookup::Send(Target {
            index,
            handle: known.handle,
            qpn: pair.qpn,
            qkey,
            token: known.token,
        })
    }

    /// Asks a peer whose address may have changed, because a session opens. A peer that was heard
    /// just now is not asked.
    pub(super) fn refresh(&mut self, route: UdpRoute, now: Instant, nonce: impl FnOnce() -> u64) {
        let Some(index) = self.entry(route) else { return };
        let Some(peer) = &mut self.slots[index] else { return };
        let is_heard = peer.known.as_ref().is_some_and(|known| known.token.is_none());
        if !(is_heard && peer.silent == 0 && self.round.wrapping_sub(peer.active) <= 1) {
            peer.active = self.round;
            self.ask(index, now, nonce());
        }
    }

    /// Keeps a packet until the peer's address is known. Returns whether one was dropped instead.
    pub(super) fn keep(&mut self, route: UdpRoute, packet: Vec<u8>) -> bool {
        let Some(index) = self.by_route.get(&route) else { return true };
        let Some(peer) = &mut self.slots[*index] else { return true };
        peer.waiting.push_back(packet);
        peer.waiting.len() > WAITING && peer.waiting.pop_front().is_some()
    }

    /// The questions that are due now. Peers that do not answer at all are left alone, and their
    /// packets dropped; returns the number of these as well.
    pub(super) fn due(&mut self, now: Instant) -> (Vec<(UdpRoute, u64)>, u64) {
        let (mut due, mut dropped) = (Vec::new(), 0);
        if self.asking == 0 {
            return (due, dropped);
        }
        for peer in self.slots.iter_mut().flatten() {
            let Some(asking) = &mut peer.asking else { continue };
            if asking.next > now {
                continue;
            }
            if asking.questions == QUESTIONS {
                peer.asking = None;
                self.asking -= 1;
                dropped += peer.waiting.len() as u64;
                peer.waiting.clear();
                continue;
            }
            let pause = (REPEAT << asking.questions).min(LONGEST_REPEAT);
            asking.questions += 1;
            asking.next = now.plus_nanos(pause);
            due.push((peer.route, asking.nonce));
        }
        (due, dropped)
    }

    /// When the next question is due; [`Instant::NEVER`] if none is.
    pub(super) fn next_due(&self) -> Instant {
        let asked = self.slots.iter().flatten().filter_map(|peer| peer.asking.as_ref());
        asked.map(|asking| asking.next).min().unwrap_or(Instant::NEVER)
    }

    /// Whether the peer at `route` is asked for the answer with this nonce.
    pub(super) fn expects(&self, route: UdpRoute, nonce: u64) -> bool {
        let peer = self.by_route.get(&route).and_then(|&index| self.slots[index].as_ref());
        peer.and_then(|peer| peer.asking.as_ref()).is_some_and(|asking| asking.nonce == nonce)
    }

    /// The peer has answered that it receives at `host`. Returns the packets that have waited.
    /// `handle` makes the host's address handle if there is none.
    pub(super) fn answered<E>(
        &mut self,
        route: UdpRoute,
        answer: &Answer,
        host: Host,
        handle: impl FnOnce() -> Result<AddressHandle, E>,
    ) -> Result<Vec<Vec<u8>>, E> {
        if !self.expects(route, answer.nonce) {
            return Ok(Vec::new());
        }
        let index = self.by_route[&route];
        let address = Address { pair: QueuePair { host, qpn: answer.qpn }, qkey: answer.qkey };
        let accepted = self.learn(index, address, Some(answer.token), handle)?;
        let Some(peer) = &mut self.slots[index] else { return Ok(Vec::new()) };
        if peer.asking.take().is_some() {
            self.asking -= 1;
        }
        peer.silent = 0;
        Ok(if accepted { peer.waiting.drain(..).collect() } else { Vec::new() })
    }

    /// The peer at `route` has presented itself from queue pair `address.pair`, with a token.
    /// Returns the packets that have waited, as `answered` does.
    pub(super) fn presented<E>(
        &mut self,
        route: UdpRoute,
        address: Address,
        handle: impl FnOnce() -> Result<AddressHandle, E>,
    ) -> Result<Vec<Vec<u8>>, E> {
        let Some(index) = self.entry(route) else { return Ok(Vec::new()) };
        if !self.learn(index, address, None, handle)? {
            return Ok(Vec::new());
        }
        let Some(peer) = &mut self.slots[index] else { return Ok(Vec::new()) };
        peer.active = self.round;
        if peer.asking.take().is_some() {
            self.asking -= 1;
        }
        Ok(peer.waiting.drain(..).collect())
    }

    /// The peer that has this queue pair, and its place in the table. It is heard.
    pub(super) fn find(&mut self, pair: QueuePair) -> Option<(UdpRoute, usize)> {
        let index = *self.by_pair.get(&pair)?;
        let peer = self.slots[index].as_mut()?;
        if let Some(known) = &mut peer.known
            && known.token.take().is_some()
        {
            self.version += 1;
        }
        peer.active = self.round;
        Some((peer.route, index))
    }

    /// Ends a round. `activity` tells of each place of the table whether packets were sent to it and
    /// received from it since the last round.
    pub(super) fn end_round(
        &mut self,
        now: Instant,
        mut activity: impl FnMut(usize) -> (bool, bool),
        mut nonce: impl FnMut() -> u64,
    ) {
        self.round = self.round.wrapping_add(1);
        for index in 0..self.slots.len() {
            let Some(peer) = &mut self.slots[index] else { continue };
            match activity(index) {
                (_, true) => (peer.active, peer.silent) = (self.round, 0),
                (true, false) => peer.silent += 1,
                (false, false) => {}
            }
            if peer.silent >= SILENT_ROUNDS && peer.known.is_some() {
                peer.silent = 0;
                self.ask(index, now, nonce());
            }
        }
    }

    /// Asks all peers again: this endpoint's queue pair has another number, so it must present
    /// itself to each.
    pub(super) fn ask_all(&mut self, now: Instant, mut nonce: impl FnMut() -> u64) {
        for index in 0..self.slots.len() {
            if self.slots[index].as_ref().is_some_and(|peer| peer.known.is_some()) {
                self.ask(index, now, nonce());
            }
        }
    }

    fn ask(&mut self, index: usize, now: Instant, nonce: u64) {
        let Some(peer) = &mut self.slots[index] else { return };
        if peer.asking.is_none() {
            peer.asking = Some(Asking { nonce, questions: 0, next: now });
            self.asking += 1;
        }
    }

    /// The peer's place; a new one if it has none. `None` if all places are in use.
    fn entry(&mut self, route: UdpRoute) -> Option<usize> {
        if let Some(index) = self.by_route.get(&route) {
            return Some(*index);
        }
        if self.free.is_empty() {
            self.forget_one();
        }
        let Some(index) = self.free.pop() else {
            self.refused += 1;
            return None;
        };
        self.slots[index] = Some(Peer {
            route,
            asking: None,
            known: None,
            waiting: VecDeque::new(),
            active: self.round,
            silent: 0,
        });
        self.by_route.insert(route, index);
        Some(index)
    }

    /// Forgets the peer that was silent for longest, unless all are busy. Takes time in proportion
    /// to the table.
    #[cold]
    fn forget_one(&mut self) {
        let age = |peer: &Peer| self.round.wrapping_sub(peer.active);
        let peers =
            self.slots.iter().enumerate().filter_map(|(at, peer)| Some((at, peer.as_ref()?)));
        let oldest = peers.max_by_key(|(_, peer)| age(peer));
        let oldest = oldest.filter(|(_, peer)| peer.known.is_none() || age(peer) >= BUSY_ROUNDS);
        let Some((index, _)) = oldest else { return };
        self.forget_address(index);
        if let Some(peer) = self.slots[index].take() {
            self.asking -= usize::from(peer.asking.is_some());
            self.by_route.remove(&peer.route);
            self.free.push(index);
        }
        self.version += 1;
    }

    fn forget_address(&mut self, index: usize) {
        let Some(known) = self.slots[index].as_mut().and_then(|peer| peer.known.take()) else {
            return;
        };
        self.by_pair.remove(&known.address.pair);
        let host = known.address.pair.host;
        if let Some(shared) = self.handles.get_mut(&host) {
            shared.users -= 1;
            if shared.users == 0 {
                self.unused.push(shared.handle);
                self.handles.remove(&host);
            }
        }
    }

    /// Stores an address. False if another peer that is heard has this queue pair.
    fn learn<E>(
        &mut self,
        index: usize,
        address: Address,
        token: Option<Token>,
        handle: impl FnOnce() -> Result<AddressHandle, E>,
    ) -> Result<bool, E> {
        if let Some(&owner) = self.by_pair.get(&address.pair)
            && owner != index
        {
            let peer = self.slots[owner].as_ref();
            let is_heard = |peer: &Peer| {
                let heard = peer.known.as_ref().is_some_and(|known| known.token.is_none());
                heard && self.round.wrapping_sub(peer.active) < BUSY_ROUNDS
            };
            // The queue pair itself presents itself without a token here, and may have another UDP
            // address than before.
            if token.is_some() && peer.is_some_and(is_heard) {
                self.refused += 1;
                return Ok(false);
            }
            self.forget_address(owner);
        }
        let known = self.slots[index].as_ref().and_then(|peer| peer.known.as_ref());
        let handle = match known.filter(|known| known.address.pair.host == address.pair.host) {
            Some(known) => {
                self.by_pair.remove(&known.address.pair);
                known.handle
            }
            None => {
                let host = address.pair.host;
                let handle = match self.handles.get_mut(&host) {
                    Some(shared) => {
                        shared.users += 1;
                        shared.handle
                    }
                    None => {
                        let handle = handle()?;
                        self.handles.insert(host, Shared { handle, users: 1 });
                        handle
                    }
                };
                self.forget_address(index);
                handle
            }
        };
        self.by_pair.insert(address.pair, index);
        if let Some(peer) = &mut self.slots[index] {
            peer.known = Some(Known { address, handle, token });
        }
        self.version += 1;
        Ok(true)
    }

    /// Panics if the table contradicts itself.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let peers =
            || self.slots.iter().enumerate().filter_map(|(at, peer)| Some((at, peer.as_ref()?)));
        assert_eq!(peers().count() + self.free.len(), self.slots.len());
        assert_eq!(self.by_route.len(), peers().count());
        assert_eq!(self.asking, peers().filter(|(_, peer)| peer.asking.is_some()).count());
        let mut users: HashMap<Host, u32> = HashMap::new();
        for (index, peer) in peers() {
            assert_eq!(self.by_route.get(&peer.route), Some(&index));
            assert!(peer.waiting.len() <= WAITING);
            if let Some(known) = &peer.known {
                assert_eq!(self.by_pair.get(&known.address.pair), Some(&index));
                assert_eq!(self.handles[&known.address.pair.host].handle, known.handle);
                *users.entry(known.address.pair.host).or_default() += 1;
            }
        }
        assert_eq!(self.by_pair.len(), peers().filter(|(_, peer)| peer.known.is_some()).count());
        assert_eq!(users.len(), self.handles.len());
        assert!(users.iter().all(|(host, users)| self.handles[host].users == *users));
    }
}
