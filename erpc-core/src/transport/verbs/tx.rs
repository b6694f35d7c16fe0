//! The sending half: a ring of slots and a chain of requests.
//!
//! ```text
//!        completed            posted              next
//!   ... free | the device may read | staged, ours | free ...
//! ```
//!
//! A packet takes the slot with its number, modulo the ring's length. Short packets are inline: the
//! device copies them when they are posted. Longer ones are copied to the slot and read from there.
//! Long ones in the arena are read in place: their header is copied to the slot, so the protocol may
//! write new headers while the device reads the message, and the msgbuf is held.
//!
//! One request in [`SIGNALED`] has a completion, which frees all slots before it. The last request
//! of a chain with messages in place has one, too: then a flush, which waits for these messages,
//! finds a completion at or after each of them, and never has to send a packet of its own.

use std::collections::{HashMap, VecDeque};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device::{AddressHandle, Completion, Device, Piece, Queue, SendRequest};
use super::exchange::Token;
use super::line::{Line, PRESENT, lock};
use super::memory::VerbsArena;
use super::peers::{Lookup, Target};
use crate::buf::MsgBuf;
use crate::clock;
use crate::transport::udp::UdpRoute;
use crate::transport::{MAX_BURST, TxPacket, TxQueue};
use crate::wire::HEADER_LEN;

/// Longest packet that is copied although the device could read it in place, in bytes.
pub(super) const COPY_LIMIT: usize = 1_024;
/// One request in so many has a completion (thesis section 3.6.3.2).
pub(super) const SIGNALED: u32 = 64;
/// Requests that can be staged. At this number, the doorbell rings.
const STAGED: usize = MAX_BURST;
/// How long a flush waits for the device, in ns. A device needs some 10 us for a chain; in an
/// emulated machine, which shares a processor with the device, milliseconds.
const FLUSH: u64 = 50_000_000;
/// Peers whose addresses are kept here. The table is emptied when it is full.
const TARGETS: usize = 16_384;
/// Lost packets that are reported when the queue pair is rebuilt: the newest ones.
const REPORTED: u64 = 16;

/// The sending half of a [`VerbsTransport`](super::VerbsTransport).
pub struct VerbsTx<D: Device> {
    line: Arc<Line<D>>,
    generation: u32,
    /// Numbers of the next packet, the first that is not posted, and the first that may be read.
    next: u64,
    posted: u64,
    completed: u64,
    depth: u64,
    staged: Vec<SendRequest>,
    /// Whether a staged request refers to a message in place after the last signaled one.
    has_unsignaled_hold: bool,
    since_signal: u32,
    /// Destinations of the packets in the slots.
    routes: Box<[UdpRoute]>,
    holds: VecDeque<(u64, MsgBuf)>,
    completions: [Completion; MAX_BURST],
    targets: HashMap<UdpRoute, Target>,
    last: Option<(UdpRoute, Target)>,
    version: u32,
    /// Handles that no packet from this number on uses.
    retired: VecDeque<(u64, AddressHandle)>,
    inline: usize,
    packets: u64,
    bytes: u64,
    dropped: u64,
    stuck: u64,
    doorbells: u64,
    signals: u64,
}

impl<D: Device> VerbsTx<D> {
    pub(super) fn new(line: Arc<Line<D>>) -> Self {
        let depth = line.send.count();
        Self {
            generation: line.generation.load(Ordering::Relaxed),
            next: 0,
            posted: 0,
            completed: 0,
            depth: depth as u64,
            staged: Vec::with_capacity(STAGED),
            has_unsignaled_hold: false,
            since_signal: 0,
            routes: vec![UdpRoute::from_v4(0, 0); depth].into(),
            holds: VecDeque::new(),
            completions: [Completion::EMPTY; MAX_BURST],
            targets: HashMap::new(),
            last: None,
            version: 0,
            retired: VecDeque::new(),
            inline: line.info.inline,
            packets: 0,
            bytes: 0,
            dropped: 0,
            stuck: 0,
            doorbells: 0,
            signals: 0,
            line,
        }
    }

    /// Packets and bytes that were sent, and packets that were dropped.
    pub(super) fn counters(&self) -> [u64; 3] {
        [self.packets, self.bytes, self.dropped]
    }

    pub(super) fn stuck_flushes(&self) -> u64 {
        self.stuck
    }

    pub(super) fn doorbells(&self) -> [u64; 2] {
        [self.doorbells, self.signals]
    }

    /// Where packets to the peer go; `None` if they have to wait, or if the peer must learn this
    /// endpoint's address first.
    #[inline(always)]
    fn target(&mut self, route: &UdpRoute) -> Option<Target> {
        if self.version == self.line.version.load(Ordering::Relaxed)
            && let Some((last, target)) = &self.last
            && last == route
        {
            return Some(*target);
        }
        self.find(route)
    }

    fn find(&mut self, route: &UdpRoute) -> Option<Target> {
        let version = self.line.version.load(Ordering::Relaxed);
        if version != self.version || self.targets.len() >= TARGETS {
            self.version = version;
            self.targets.clear();
            self.last = None;
            self.retire();
        }
        let target = *self.targets.get(route)?;
        self.last = Some((*route, target));
        Some(target)
    }

    /// Looks the peer up in the table that both halves share. `None` if it is not known, or not heard.
    #[cold]
    fn resolve(&mut self, route: &UdpRoute) -> Option<Target> {
        let Lookup::Send(target) = self.line.lookup(*route) else { return None };
        if target.token.is_none() {
            self.targets.insert(*route, target);
            return Some(target);
        }
        None
    }

    /// Takes over the handles that no peer uses any more. Packets up to now may use them.
    #[cold]
    fn retire(&mut self) {
        let next = self.next;
        let unused = self.line.with_peers(|peers, _| peers.take_unused());
        self.retired.extend(unused.into_iter().map(|handle| (next, handle)));
    }

    /// Stages a packet of `len` bytes, which `fill` writes.
    #[inline(always)]
    fn send(&mut self, route: &UdpRoute, len: usize, fill: impl FnOnce(&mut [u8])) {
        match self.target(route) {
            Some(target) => self.send_to(route, target, len, None, fill),
            None => self.send_unheard(route, len, fill),
        }
    }

    #[inline(always)]
    fn send_to(
        &mut self,
        route: &UdpRoute,
        target: Target,
        len: usize,
        immediate: Option<u32>,
        fill: impl FnOnce(&mut [u8]),
    ) {
        if len > self.line.send.stride() || !self.has_room() {
            self.dropped += 1;
            return;
        }
        let slot = (self.next % self.depth) as usize;
        // SAFETY: slots from `next` on are free: the device has completed the packet that was there
        // (`has_room`). The slot has `stride` bytes, which are initialized, and `len` are at most
        // these.
        fill(unsafe { slice::from_raw_parts_mut(self.line.send.at(slot), len) });
        let pieces = [self.line.send.piece(slot, len), Piece::EMPTY];
        self.stage(route, target, pieces, len, len <= self.inline, immediate);
    }

    /// Stages a packet whose message the device reads in place. False if it must be copied: the
    /// message is in other memory, or the peer's address is not known.
    fn send_in_place(&mut self, route: &UdpRoute, packet: &TxPacket<'_>) -> bool {
        let ([first, second], trailer) = packet.pieces();
        let (words, rest) = first.split_at(HEADER_LEN);
        // One piece follows the packet's header: the data of a first packet, or those of a later one.
        let data = match (rest, second) {
            (data, []) | ([], data) => data,
            _ => return false,
        };
        let in_arena = |arena: &VerbsArena| arena.piece(data);
        let Some(piece) = self.line.arena.as_ref().and_then(in_arena) else { return false };
        if trailer.is_some() {
            return false;
        }
        let Some(target) = self.target(route).or_else(|| self.resolve(route)) else { return false };
        if !self.has_room() {
            return false;
        }
        let slot = (self.next % self.depth) as usize;
        // SAFETY: as in `send_to`; a slot has room for a header.
        let header = unsafe { slice::from_raw_parts_mut(self.line.send.at(slot), HEADER_LEN) };
        header.copy_from_slice(words);
        self.holds.push_back((self.next, packet.hold()));
        self.has_unsignaled_hold = true;
        let pieces = [self.line.send.piece(slot, HEADER_LEN), piece];
        self.stage(route, target, pieces, packet.len(), false, None);
        true
    }

    /// Adds the request of packet `next`.
    #[inline(always)]
    fn stage(
        &mut self,
        route: &UdpRoute,
        target: Target,
        pieces: [Piece; 2],
        len: usize,
        inline: bool,
        immediate: Option<u32>,
    ) {
        self.since_signal += 1;
        let signaled = self.since_signal == SIGNALED;
        if signaled {
            self.since_signal = 0;
            self.has_unsignaled_hold = false;
        }
        self.routes[(self.next % self.depth) as usize] = *route;
        self.line.activity[target.index].sent.store(true, Ordering::Relaxed);
        self.staged.push(SendRequest {
            id: u64::from(self.generation) << 32 | u64::from(self.next as u32),
            host: target.handle,
            qpn: target.qpn,
            qkey: target.qkey,
            pieces,
            inline,
            signaled,
            immediate,
        });
        self.next += 1;
        self.packets += u64::from(immediate.is_none());
        self.bytes += if immediate.is_none() { len as u64 } else { 0 };
        if self.staged.len() == STAGED {
            self.ring();
        }
    }

    /// Whether slot `next` is free and another request can be staged.
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        (self.next - self.completed < self.depth && self.staged.len() < STAGED) || self.make_room()
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        self.ring();
        self.take_completions();
        self.next - self.completed < self.depth && self.staged.len() < STAGED
    }

    /// A packet to a peer that was not heard yet. Either its address is not known, and the packet
    /// waits, or this endpoint presents itself first.
    #[cold]
    fn send_unheard(&mut self, route: &UdpRoute, len: usize, fill: impl FnOnce(&mut [u8])) {
        match self.line.lookup(*route) {
            Lookup::Wait => {
                let mut packet = vec![0; len];
                fill(&mut packet);
                let is_lost = self.line.with_peers(|peers, _| peers.keep(*route, packet));
                self.dropped += u64::from(is_lost);
            }
            Lookup::Send(target) => {
                match target.token {
                    Some(token) => self.present(route, target, token),
                    None => {
                        self.targets.insert(*route, target);
                    }
                }
                self.send_to(route, target, len, None, fill);
            }
        }
    }

    fn present(&mut self, route: &UdpRoute, target: Target, token: Token) {
        let message = self.line.present(token);
        self.send_to(route, target, message.len(), Some(PRESENT), |out| {
            out.copy_from_slice(&message)
        });
    }

    /// Posts the staged requests, as one chain. What the device refuses stays staged.
    #[inline]
    fn ring(&mut self) {
        if self.generation != self.line.generation.load(Ordering::Relaxed) {
            self.restart();
        }
        if self.staged.is_empty() || self.line.is_broken.load(Ordering::Relaxed) {
            return;
        }
        if self.has_unsignaled_hold
            && let Some(last) = self.staged.last_mut()
        {
            last.signaled = true;
            self.since_signal = 0;
            self.has_unsignaled_hold = false;
        }
        self.doorbells += 1;
        // SAFETY: pieces are slots `posted..next`, which are not written before their completion
        // (`has_room`), and messages of the arena, whose msgbufs are held until then. The handles
        // are destroyed after it (`retired`).
        let posted = match unsafe { self.line.device.post_send(&self.staged) } {
            Ok(()) => self.staged.len(),
            Err((posted, error)) => {
                // A full queue empties. Everything else does not pass by itself.
                if error.raw_os_error() != Some(libc::ENOMEM) {
                    self.line.is_broken.store(true, Ordering::Relaxed);
                }
                posted
            }
        };
        self.posted += posted as u64;
        self.signals +=
            self.staged[..posted].iter().filter(|request| request.signaled).count() as u64;
        self.staged.drain(..posted);
    }

    /// Takes the available completions.
    #[inline]
    fn take_completions(&mut self) {
        loop {
            let count = self.line.device.poll(Queue::Send, &mut self.completions);
            for at in 0..count {
                let Completion { id, status, .. } = self.completions[at];
                if (id >> 32) as u32 != self.generation {
                    continue;
                }
                if status != 0 {
                    self.line.counters.errors.fetch_add(1, Ordering::Relaxed);
                    self.line.is_broken.store(true, Ordering::Relaxed);
                }
                // The number's low half, and the distance to what was posted, give the whole.
                let behind = (self.posted as u32).wrapping_sub(id as u32);
                let done = self.posted - u64::from(behind) + 1;
                self.completed = self.completed.max(done);
            }
            if count < MAX_BURST {
                break;
            }
        }
        self.release();
    }

    /// Releases what no request in progress refers to.
    fn release(&mut self) {
        while self.holds.front().is_some_and(|(number, _)| *number < self.completed) {
            self.holds.pop_front();
        }
        while let Some((number, handle)) = self.retired.front() {
            if *number > self.completed {
                break;
            }
            // SAFETY: all requests that may use the handle have completed, no table has it any
            // more, and it is taken out of the only list.
            unsafe { self.line.device.destroy_handle(*handle) };
            self.retired.pop_front();
        }
    }

    /// The queue pair was rebuilt. Requests that were posted are gone, and the device reads nothing.
    /// Requests that were only staged are posted with the next doorbell.
    #[cold]
    fn restart(&mut self) {
        self.generation = self.line.generation.load(Ordering::Relaxed);
        let lost = self.posted - self.completed;
        for number in self.posted - lost.min(REPORTED)..self.posted {
            let slot = (number % self.depth) as usize;
            // SAFETY: the slot is initialized, and the device does not write to slots of packets to
            // send.
            let packet = unsafe { slice::from_raw_parts(self.line.send.at(slot), HEADER_LEN) };
            self.line.report(self.routes[slot], packet);
        }
        self.completed = self.posted;
        for request in &mut self.staged {
            request.id = u64::from(self.generation) << 32 | request.id & u64::from(u32::MAX);
        }
        self.release();
    }

    /// Waits until the device has read all held messages. If it does not, the queue pair is rebuilt,
    /// which ends all its reads. Packets that were not posted then are dropped.
    #[cold]
    fn flush_held(&mut self) {
        let begun = clock::now();
        while !self.holds.is_empty() {
            self.ring();
            self.take_completions();
            let is_broken = self.line.is_broken.load(Ordering::Relaxed);
            if is_broken || clock::now().nanos_since(begun) >= FLUSH {
                return self.give_up();
            }
            std::hint::spin_loop();
        }
    }

    #[cold]
    fn give_up(&mut self) {
        self.stuck += 1;
        self.dropped += self.staged.len() as u64;
        self.staged.clear();
        self.next = self.posted;
        self.has_unsignaled_hold = false;
        while self.holds.back().is_some_and(|(number, _)| *number >= self.posted) {
            self.holds.pop_back();
        }
        if !self.holds.is_empty() {
            self.line.rebuild();
            if self.generation != self.line.generation.load(Ordering::Relaxed) {
                self.restart();
            }
        }
    }

    /// Sends packets that have waited for a peer's address.
    #[cold]
    fn send_late(&mut self) {
        for (route, packet) in self.line.late() {
            self.send(&route, packet.len(), |out| out.copy_from_slice(&packet));
        }
    }
}

impl<D: Device> TxQueue for VerbsTx<D> {
    type Route = UdpRoute;

    #[inline]
    fn push_bytes(&mut self, route: &UdpRoute, bytes: &[u8]) {
        self.send(route, bytes.len(), |out| out.copy_from_slice(bytes));
    }

    #[inline]
    fn push(&mut self, route: &UdpRoute, packet: TxPacket<'_>) {
        if packet.len() > COPY_LIMIT && self.send_in_place(route, &packet) {
            return;
        }
        self.send(route, packet.len(), |out| {
            packet.copy_to(out);
        });
    }

    /// Waits for the device only if it reads messages in place, at most 50 ms. A device that has not
    /// finished then is stuck: the queue pair is rebuilt, which ends all its reads. If the device
    /// refuses that too, the messages stay held.
    fn flush(&mut self) {
        self.doorbell();
        if !self.holds.is_empty() {
            self.flush_held();
        }
    }

    #[inline]
    fn reclaim(&mut self) {
        if !self.holds.is_empty() {
            self.take_completions();
        }
    }

    #[inline]
    fn doorbell(&mut self) {
        if self.line.has_late.load(Ordering::Relaxed) {
            self.send_late();
        }
        self.ring();
    }
}

impl<D: Device> Drop for VerbsTx<D> {
    fn drop(&mut self) {
        self.flush();
        // The device reads these messages until it is closed.
        lock(&self.line.left_over).extend(self.holds.drain(..).map(|(_, msgbuf)| msgbuf));
    }
}
