//! The two halves of a port.

use std::sync::Arc;

use super::MemRoute;
use super::hub::{Port, Ports};
use super::ring::{Consumer, Loan, Producer, Refused};
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::transport::{MAX_BURST, RxPacket, RxQueue, TransportStats, TxPacket, TxQueue};
use crate::wire::HeaderWords;

/// The receiving end of a ring, and the ring's sender.
pub(super) struct Incoming {
    from: MemRoute,
    consumer: Consumer,
}

impl Incoming {
    pub(super) fn new(from: MemRoute, consumer: Consumer) -> Self {
        Self { from, consumer }
    }
}

/// The receiving half of a [`MemTransport`](super::MemTransport).
///
/// A burst visits each ring at most once, in turn, and the next burst continues with the ring after
/// the last one visited. So one sender delays another by at most one burst.
#[repr(align(64))]
pub struct MemRx {
    port: Arc<Port>,
    /// [`Port::changes`] when the list of rings was last updated.
    seen: u32,
    rings: Vec<Incoming>,
    /// Index of the ring with which the next burst begins.
    next: usize,
    lent: [Loan<MemRoute>; MAX_BURST],
    count: usize,
    packets: u64,
    bytes: u64,
    /// Counters of rings that were removed.
    past: TransportStats,
    /// Whether a sender has closed its ring and the ring is not yet empty.
    is_draining: bool,
}

impl MemRx {
    pub(super) fn new(port: Arc<Port>) -> Self {
        Self {
            seen: 0,
            rings: Vec::new(),
            next: 0,
            lent: [Loan::none(port.route()); MAX_BURST],
            port,
            count: 0,
            packets: 0,
            bytes: 0,
            past: TransportStats::default(),
            is_draining: false,
        }
    }

    /// Whether a burst would find packets or changed rings.
    pub(super) fn is_ready(&self) -> bool {
        self.port.changes() != self.seen || self.rings.iter().any(|ring| ring.consumer.is_ready())
    }

    #[cfg(test)]
    pub(super) fn ring_count(&self) -> usize {
        self.rings.len()
    }

    /// Adds the receiving side's counters.
    pub(super) fn add_stats(&self, stats: &mut TransportStats) {
        stats.rx_packets += self.packets;
        stats.rx_bytes += self.bytes;
        stats.rx_overflow += self.past.rx_overflow;
        stats.rx_truncated += self.past.rx_truncated;
        for ring in &self.rings {
            count_losses(stats, &ring.consumer);
        }
    }

    /// Adds new rings and removes finished ones. Called only while no packet is lent.
    #[cold]
    fn look_through_rings(&mut self) {
        // Read the number of changes before the rings. So a change that happens in between is seen
        // by the next call.
        self.seen = self.port.changes();
        self.rings.append(&mut self.port.take_arrivals());
        self.is_draining = false;
        let (past, is_draining) = (&mut self.past, &mut self.is_draining);
        self.rings.retain(|ring| {
            let is_finished = ring.consumer.is_finished();
            if is_finished {
                count_losses(past, &ring.consumer);
            } else {
                *is_draining |= ring.consumer.is_abandoned();
            }
            !is_finished
        });
    }
}

fn count_losses(stats: &mut TransportStats, consumer: &Consumer) {
    stats.rx_overflow += consumer.overflowed();
    stats.rx_truncated += consumer.oversized();
}

impl RxQueue for MemRx {
    type Route = MemRoute;

    #[inline]
    fn burst(&mut self) -> usize {
        self.count = 0;
        if self.port.changes() != self.seen || self.is_draining && !mutant!(DrainedRingKept) {
            self.look_through_rings();
        }
        let mut count = 0;
        for _ in 0..self.rings.len() {
            if self.next >= self.rings.len() {
                self.next = 0;
            }
            let Incoming { from, consumer } = &mut self.rings[self.next];
            self.next += 1;
            consumer.release();
            let (taken, bytes) = consumer.take(*from, &mut self.lent[count..]);
            self.bytes += bytes;
            count += taken;
            if count == MAX_BURST {
                break;
            }
        }
        self.count = count;
        self.packets += count as u64;
        count
    }

    #[inline]
    fn is_drained(&self) -> bool {
        // A burst with room left has read every ring to its end.
        self.count < MAX_BURST
    }

    #[inline]
    fn packet(&self, index: usize) -> RxPacket<'_, MemRoute> {
        assert!(index < self.count, "the burst had {} packets", self.count);
        let loan = self.lent[index % MAX_BURST];
        // SAFETY: the ring that lent these bytes is released or removed only in `burst`. That needs
        // `&mut self`, so the borrow in the result has ended, and it starts by setting `count` to
        // 0, so older loans are unreachable.
        RxPacket { route: loan.from(), bytes: unsafe { loan.bytes() }, marked: false }
    }
}

/// The sending end of a ring, and the ring's receiver.
pub(super) struct Outgoing {
    producer: Producer,
    to: Arc<Port>,
}

impl Outgoing {
    pub(super) fn new(producer: Producer, to: Arc<Port>) -> Self {
        Self { producer, to }
    }

    /// Whether the receiver has closed, and no packet is staged for it. Packets that are staged
    /// when the receiver closes are dropped at the flush.
    #[inline(always)]
    fn begins_stale_batch(&self) -> bool {
        !self.producer.has_staged() && !self.to.is_open()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.producer.close();
        if !mutant!(ClosedRingKept) {
            self.to.note_change();
        }
    }
}

/// The sending half of a [`MemTransport`](super::MemTransport).
///
/// Packets are staged directly in the receiver's ring; the doorbell makes them visible.
#[repr(align(64))]
pub struct MemTx {
    local: Arc<Port>,
    ports: Arc<Ports>,
    /// The rings to other ports, indexed by the number of the receiving port.
    rings: Vec<Option<Outgoing>>,
    /// Numbers of the ports whose rings have staged packets.
    staged: Vec<u32>,
    sent: Batch64,
    dropped: u64,
}

#[derive(Default)]
struct Batch64 {
    packets: u64,
    bytes: u64,
}

impl MemTx {
    pub(super) fn new(local: Arc<Port>, ports: Arc<Ports>) -> Self {
        Self {
            local,
            ports,
            rings: Vec::new(),
            staged: Vec::new(),
            sent: Batch64::default(),
            dropped: 0,
        }
    }

    /// Adds the sending side's counters.
    pub(super) fn add_stats(&self, stats: &mut TransportStats) {
        stats.tx_packets += self.sent.packets;
        stats.tx_bytes += self.sent.bytes;
        stats.tx_dropped += self.dropped;
    }

    #[inline(always)]
    fn send(&mut self, route: MemRoute, stage: impl FnOnce(&mut Producer) -> Result<u32, Refused>) {
        let number = route.number();
        let ring = match self.rings.get_mut(number as usize) {
            Some(Some(ring)) if !ring.begins_stale_batch() || mutant!(OldRingUsed) => ring,
            // No ring yet, or one to a closed port, whose number another port may have now.
            _ => match self.connect(route) {
                Some(ring) => ring,
                None => {
                    self.dropped += 1;
                    return;
                }
            },
        };
        match stage(&mut ring.producer) {
            Ok(1) => self.staged.push(number),
            Ok(staged) if staged as usize >= MAX_BURST => self.flush(),
            Ok(_) => {}
            Err(_) => self.dropped += 1,
        }
    }

    #[inline(never)]
    fn send_plain(&mut self, route: MemRoute, head: &[u8], data: &[u8]) {
        self.send(route, |ring| ring.stage(head, data));
    }

    #[inline(never)]
    fn send_single(&mut self, route: MemRoute, header: HeaderWords, data: &[u8]) {
        self.send(route, |ring| ring.stage_single(header, data));
    }

    #[inline(never)]
    fn send_sealed(&mut self, route: MemRoute, pieces: [&[u8]; 3]) {
        self.send(route, |ring| ring.stage_three(pieces));
    }

    /// Creates a ring to the port `route`, and drops an older ring to a closed port of that number.
    /// `None` if there is no such port or no memory.
    #[cold]
    fn connect(&mut self, route: MemRoute) -> Option<&mut Outgoing> {
        let index = route.number() as usize;
        if let Some(Some(gone)) = self.rings.get_mut(index) {
            self.dropped += u64::from(gone.producer.publish().packets);
            self.staged.retain(|number| *number != route.number());
            self.rings[index] = None;
        }
        let port = self.ports.find(route)?;
        let ring = self.local.connect(&port)?;
        if self.rings.len() <= index {
            self.rings.resize_with(index + 1, || None);
        }
        Some(self.rings[index].insert(ring))
    }
}

impl TxQueue for MemTx {
    type Route = MemRoute;

    #[inline]
    fn push_bytes(&mut self, route: &MemRoute, bytes: &[u8]) {
        self.send_plain(*route, bytes, &[]);
    }

    #[inline(always)]
    fn push(&mut self, route: &MemRoute, packet: TxPacket<'_>) {
        match packet.pieces() {
            ([head, data], None) => self.send_plain(*route, head, data),
            ([head, data], Some(trailer)) => self.send_sealed(*route, [head, data, &trailer]),
        }
    }

    #[inline(always)]
    fn push_single(
        &mut self,
        route: &MemRoute,
        header: HeaderWords,
        message: &mut MsgBuf,
        _: bool,
    ) {
        if header.has_trailer() {
            self.push(route, message.single_packet(header));
            return;
        }
        let data = message.as_slice();
        if let Some(Some(ring)) = self.rings.get_mut(route.number() as usize)
            && ring.producer.stage_small(header, data)
        {
            return;
        }
        self.send_single(*route, header, data);
    }

    #[inline]
    fn flush(&mut self) {
        for number in self.staged.drain(..) {
            let place = &mut self.rings[number as usize];
            let Some(ring) = place else { continue };
            let batch = ring.producer.publish();
            if ring.to.notify() {
                self.sent.packets += u64::from(batch.packets);
                self.sent.bytes += batch.bytes;
            } else {
                self.dropped += u64::from(batch.packets);
                *place = None;
            }
        }
    }
}
