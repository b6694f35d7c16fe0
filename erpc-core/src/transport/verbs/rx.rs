//! The receiving half: a ring of buffers that the device fills in any order of their numbers, and
//! that are posted again in place.
//!
//! ```text
//!            post_recv                    poll                     burst
//!   ours ----------------> the device's ---------> lent, or ours ---------> ours
//! ```
//!
//! A buffer is posted again at the next burst, when nothing is lent from it any more. All buffers of
//! a burst are posted as one chain, with one doorbell (thesis section 3.6.2.1).

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device::{Completion, Device, GRH, Host, Queue, RecvRequest};
use super::grh;
use super::line::{Line, PRESENT};
use super::peers::QueuePair;
use crate::clock;
use crate::time::Instant;
use crate::transport::udp::UdpRoute;
use crate::transport::{MAX_BURST, RxPacket, RxQueue};

/// Bursts between two looks at the socket of the exchange, which are system calls.
const BURSTS_PER_LOOK: u32 = 256;
/// The same while an answer is expected.
const BURSTS_PER_EAGER_LOOK: u32 = 8;
/// Time between two rounds of housekeeping, in ns.
const HOUSEKEEPING: u64 = 100_000_000;
/// Senders that are kept. The table is emptied when it is full.
const SENDERS: usize = 16_384;

/// A peer, as packets name it.
#[derive(Clone, Copy)]
struct Sender {
    pair: QueuePair,
    route: UdpRoute,
    index: usize,
}

#[derive(Clone, Copy)]
struct Lent {
    route: UdpRoute,
    slot: u32,
    len: u32,
    marked: bool,
}

/// The receiving half of a [`VerbsTransport`](super::VerbsTransport).
pub struct VerbsRx<D: Device> {
    line: Arc<Line<D>>,
    generation: u32,
    /// Buffers that are ours, to be posted with the next burst.
    ours: Vec<u32>,
    requests: Vec<RecvRequest>,
    completions: [Completion; MAX_BURST],
    /// Completions that were polled before the burst, by [`VerbsRx::has_arrived`].
    polled: usize,
    lent: [Lent; MAX_BURST],
    count: usize,
    is_drained: bool,
    senders: HashMap<QueuePair, Sender>,
    last: Option<Sender>,
    version: u32,
    marks: bool,
    bursts: u32,
    looked: Instant,
    packets: u64,
    bytes: u64,
    /// Bursts that found all buffers filled, so that datagrams may have been lost.
    exhausted: u64,
}

impl<D: Device> VerbsRx<D> {
    pub(super) fn new(line: Arc<Line<D>>) -> Self {
        let count = line.recv.count();
        let lent = Lent { route: UdpRoute::from_v4(0, 0), slot: 0, len: 0, marked: false };
        let mut rx = Self {
            generation: line.generation.load(Ordering::Relaxed),
            ours: (0..count as u32).collect(),
            requests: Vec::with_capacity(count),
            completions: [Completion::EMPTY; MAX_BURST],
            polled: 0,
            lent: [lent; MAX_BURST],
            count: 0,
            is_drained: true,
            senders: HashMap::new(),
            last: None,
            version: 0,
            marks: false,
            bursts: 0,
            looked: Instant::ZERO,
            packets: 0,
            bytes: 0,
            exhausted: 0,
            line,
        };
        rx.post();
        rx
    }

    pub(super) fn received(&self) -> (u64, u64) {
        (self.packets, self.bytes)
    }

    pub(super) fn exhausted(&self) -> u64 {
        self.exhausted
    }

    pub(super) fn enable_marks(&mut self) {
        self.marks = true;
    }

    /// Posts the buffers that are ours. What the device refuses stays ours.
    #[inline]
    fn post(&mut self) {
        if self.ours.is_empty() || self.line.is_broken.load(Ordering::Relaxed) {
            return;
        }
        let (slots, generation) = (&self.line.recv, u64::from(self.generation) << 32);
        let request = |&slot: &u32| RecvRequest {
            id: generation | u64::from(slot),
            buffer: slots.piece(slot as usize, slots.stride()),
        };
        self.requests.clear();
        self.requests.extend(self.ours.iter().map(request));
        // SAFETY: the slots are ours: they were never posted, or have completed, or were posted to a
        // generation that is gone. Nothing is lent from them, because a loan borrows `self`. They
        // are accessed again only after a completion, and freed after the device is closed.
        match unsafe { self.line.device.post_recv(&self.requests) } {
            Ok(()) => self.ours.clear(),
            Err((posted, _)) => {
                self.ours.drain(..posted);
                self.line.is_broken.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Rebuilds a broken queue pair. Then, or if the other half has rebuilt it, all buffers are ours.
    #[cold]
    fn recover(&mut self) {
        if self.line.is_broken.load(Ordering::Relaxed) {
            self.line.rebuild();
        }
        let generation = self.line.generation.load(Ordering::Relaxed);
        if generation != self.generation {
            self.generation = generation;
            self.polled = 0;
            self.ours = (0..self.line.recv.count() as u32).collect();
        }
    }

    /// Does the housekeeping if it is due, and looks at the socket of the exchange.
    #[cold]
    pub(super) fn look(&mut self) {
        let now = clock::now();
        if now.nanos_since(self.looked) >= HOUSEKEEPING {
            self.looked = now;
            self.line.housekeeping();
        } else {
            self.line.exchange();
        }
    }

    /// Whether a datagram or an error waits for the next burst.
    pub(super) fn has_arrived(&mut self) -> bool {
        if self.polled == 0 {
            self.polled = self.line.device.poll(Queue::Receive, &mut self.completions);
        }
        self.polled > 0 || self.line.is_broken.load(Ordering::Relaxed)
    }

    /// Handles completion `at`.
    #[inline(always)]
    fn sort(&mut self, at: usize) {
        let completion = self.completions[at];
        if (completion.id >> 32) as u32 != self.generation {
            return;
        }
        let slot = completion.id as u32;
        self.ours.push(slot);
        if completion.status != 0 {
            self.line.counters.errors.fetch_add(1, Ordering::Relaxed);
            self.line.is_broken.store(true, Ordering::Relaxed);
            return;
        }
        let len = completion.len as usize;
        if len < GRH || len > self.line.recv.stride() {
            self.line.counters.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let buffer = self.line.recv.at(slot as usize);
        // SAFETY: the slot has completed, so the device does not write to it any more.
        let header: &[u8; GRH] = unsafe { &*buffer.cast() };
        let (host, marked) = if completion.has_grh {
            match grh::source(header) {
                Some(source) => (Host::Gid(source.gid), source.marked),
                None => {
                    self.line.counters.malformed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        } else {
            (Host::Lid(completion.source_lid), false)
        };
        let pair = QueuePair { host, qpn: completion.source_qpn };
        if completion.immediate == Some(PRESENT) {
            // SAFETY: as above; the device has written `len` bytes.
            let message = unsafe { slice::from_raw_parts(buffer.wrapping_add(GRH), len - GRH) };
            self.line.presented(pair, message);
            return;
        }
        let Some(sender) = self.sender(pair) else {
            self.line.counters.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.line.activity[sender.index].heard.store(true, Ordering::Relaxed);
        self.bytes += (len - GRH) as u64;
        self.lent[self.count] = Lent {
            route: sender.route,
            slot,
            len: (len - GRH) as u32,
            marked: marked && self.marks,
        };
        self.count += 1;
    }

    #[inline(always)]
    fn sender(&mut self, pair: QueuePair) -> Option<Sender> {
        if self.version == self.line.version.load(Ordering::Relaxed)
            && let Some(last) = self.last
            && last.pair == pair
        {
            return Some(last);
        }
        self.find(pair)
    }

    fn find(&mut self, pair: QueuePair) -> Option<Sender> {
        let version = self.line.version.load(Ordering::Relaxed);
        if version != self.version || self.senders.len() >= SENDERS {
            self.version = version;
            self.senders.clear();
            self.last = None;
        }
        if let Some(sender) = self.senders.get(&pair) {
            self.last = Some(*sender);
            return self.last;
        }
        let (route, index) = self.line.with_peers(|peers, _| peers.find(pair))?;
        let sender = Sender { pair, route, index };
        // The version may have changed: then the next packet begins with an empty table.
        self.senders.insert(pair, sender);
        self.last = Some(sender);
        Some(sender)
    }
}

impl<D: Device> RxQueue for VerbsRx<D> {
    type Route = UdpRoute;

    #[inline]
    fn burst(&mut self) -> usize {
        self.count = 0;
        if self.line.is_broken.load(Ordering::Relaxed)
            || self.line.generation.load(Ordering::Relaxed) != self.generation
        {
            self.recover();
        }
        self.post();
        self.bursts = self.bursts.wrapping_add(1);
        let pause = if self.line.is_asking.load(Ordering::Relaxed) {
            BURSTS_PER_EAGER_LOOK
        } else {
            BURSTS_PER_LOOK
        };
        if self.bursts.is_multiple_of(pause) {
            self.look();
        }
        let mut completed = std::mem::take(&mut self.polled);
        if completed == 0 {
            completed = self.line.device.poll(Queue::Receive, &mut self.completions);
        }
        for at in 0..completed {
            self.sort(at);
        }
        self.is_drained = completed < MAX_BURST;
        self.exhausted += u64::from(self.ours.len() == self.line.recv.count());
        self.packets += self.count as u64;
        self.count
    }

    #[inline]
    fn is_drained(&self) -> bool {
        self.is_drained
    }

    #[inline]
    fn packet(&self, index: usize) -> RxPacket<'_, UdpRoute> {
        let lent = &self.lent[..self.count][index];
        let start = self.line.recv.at(lent.slot as usize).wrapping_add(GRH);
        // SAFETY: the slot has completed with `GRH + len` bytes, at most its stride. It is posted
        // again only by the next burst, which needs `&mut self`, so the borrow has ended.
        let bytes = unsafe { slice::from_raw_parts(start, lent.len as usize) };
        RxPacket { route: lent.route, bytes, marked: lent.marked }
    }
}
