//! One end of a cable: a queue, and the direction of the cable away from it.

use std::collections::VecDeque;

use super::topology::{Link, Node};
use super::{LinkId, Packet};

/// The departure of a packet that waits at a stopped link.
const NEVER: u64 = u64::MAX;

/// Time to send 8 bits at 1 Mbit/s, in ns.
const NANOS_PER_BYTE_AT_ONE_MBPS: u64 = 8_000;

/// A packet in a queue or on the cable behind it. It has the size of a cache line.
#[derive(Debug)]
struct Queued {
    packet: Packet,
    /// When the packet's last bit leaves, in ns, or [`NEVER`].
    departs: u64,
    sequence: u64,
}

/// A FIFO queue and the cable that it feeds.
///
/// ```text
///   line:  | on the cable (gone) | being sent | waits .. | held, while the link is stopped |
///            arrives first                                  joined last
/// ```
///
/// A packet gets its departure time when it joins, and keeps it unless the link is stopped. It
/// stays in line until it arrives. `gone` and `queued_bytes` are correct as of the last
/// [`settle`](Self::settle).
#[derive(Debug)]
pub(super) struct Port {
    /// The node that sends here.
    pub(super) node: Node,
    /// The node at the other end.
    pub(super) peer: Node,
    rate_mbps: u64,
    delay_nanos: u64,
    line: VecDeque<Queued>,
    /// The number of packets at the head of the line that have left.
    gone: usize,
    /// Bytes of packets in line that have not left.
    queued_bytes: u64,
    /// When all packets with a departure have been sent: `free_at` ns, plus `free_fraction /
    /// rate_mbps` ns, because bytes leave at fractions of nanoseconds.
    free_at: u64,
    free_fraction: u64,
    stopped: bool,
    /// The number of packets at the end of the line without a departure. 0 unless stopped.
    held: usize,
}

impl Port {
    /// An empty queue.
    pub(super) fn new(node: Node, peer: Node, link: Link) -> Self {
        Self {
            node,
            peer,
            rate_mbps: link.rate_mbps,
            delay_nanos: link.delay_nanos,
            line: VecDeque::new(),
            gone: 0,
            queued_bytes: 0,
            free_at: 0,
            free_fraction: 0,
            stopped: false,
            held: 0,
        }
    }

    /// The two ports of a link.
    pub(super) fn of(link: LinkId) -> [u32; 2] {
        [2 * link.0, 2 * link.0 + 1]
    }

    /// Bytes that have not left, as of the last [`settle`](Self::settle).
    #[inline]
    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Packets that have not left, as of the last [`settle`](Self::settle).
    #[inline]
    pub(super) fn queued_packets(&self) -> usize {
        self.line.len() - self.gone
    }

    /// Packets in line, queued or on the cable.
    pub(super) fn packets(&self) -> usize {
        self.line.len()
    }

    /// When the first queued packet leaves, as of the last [`settle`](Self::settle). [`NEVER`] if
    /// it is held, `None` if nothing is queued.
    #[inline]
    pub(super) fn next_departure(&self) -> Option<u64> {
        self.line.get(self.gone).map(|queued| queued.departs)
    }

    /// When the first packet in line arrives, and its sequence number. `None` if no packet has a
    /// departure.
    #[inline]
    pub(super) fn next_arrival(&self) -> Option<(u64, u64)> {
        let first = self.line.front().filter(|first| first.departs != NEVER)?;
        Some((first.departs + self.delay_nanos, first.sequence))
    }

    /// Removes the packets that have left by `now` from the queue, and returns their bytes. Each
    /// packet is handled once, however often this is called.
    #[inline]
    pub(super) fn settle(&mut self, now: u64) -> u64 {
        let before = self.queued_bytes;
        while let Some(next) = self.line.get(self.gone)
            && next.departs <= now
        {
            self.queued_bytes -= next.packet.wire_bytes();
            self.gone += 1;
        }
        before - self.queued_bytes
    }

    /// Adds a packet at `now`. Returns when it leaves.
    #[inline]
    pub(super) fn join(&mut self, now: u64, packet: Packet, sequence: u64) -> u64 {
        let bytes = packet.wire_bytes();
        let departs = if self.stopped {
            self.held += 1;
            NEVER
        } else {
            self.transmit(now, bytes)
        };
        self.queued_bytes += bytes;
        self.line.push_back(Queued { packet, departs, sequence });
        departs
    }

    /// Removes the first packet in line, which has arrived. The caller has [settled](Self::settle)
    /// the port for the time of its arrival.
    ///
    /// # Panics
    /// Panics if no packet has left.
    #[inline]
    pub(super) fn arrive(&mut self) -> Packet {
        self.gone = self.gone.checked_sub(1).expect("a packet leaves before it arrives");
        self.line.pop_front().expect("a packet stays in line until it arrives").packet
    }

    /// Sends `bytes` as soon as the cable is free, not before `now`. Returns when the last bit has
    /// left, rounded up.
    #[inline]
    fn transmit(&mut self, now: u64, bytes: u64) -> u64 {
        if now >= self.all_sent() {
            self.free_at = now;
            self.free_fraction = 0;
        }
        let fractions = self.free_fraction + bytes * NANOS_PER_BYTE_AT_ONE_MBPS;
        self.free_at += fractions / self.rate_mbps;
        self.free_fraction = fractions % self.rate_mbps;
        self.all_sent()
    }

    /// The first whole nanosecond at which the cable is free.
    #[inline]
    fn all_sent(&self) -> u64 {
        self.free_at + u64::from(self.free_fraction > 0)
    }

    /// Stops sending after the packet that is being sent. The caller has [settled](Self::settle)
    /// the port.
    pub(super) fn stop(&mut self) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        // The first queued packet is being sent. The others follow it without a gap. So `free_at`
        // minus the times to send the others is the exact time at which the first packet leaves.
        let mut fractions = 0;
        for waits in self.line.range_mut(self.gone..).skip(1) {
            waits.departs = NEVER;
            self.held += 1;
            fractions += u128::from(waits.packet.wire_bytes() * NANOS_PER_BYTE_AT_ONE_MBPS);
        }
        let rate = u128::from(self.rate_mbps);
        let free = u128::from(self.free_at) * rate + u128::from(self.free_fraction) - fractions;
        self.free_at = (free / rate) as u64;
        self.free_fraction = (free % rate) as u64;
    }

    /// Continues to send after a stop. Costs O(packets held).
    pub(super) fn resume(&mut self, now: u64) {
        self.stopped = false;
        let first = self.line.len() - std::mem::take(&mut self.held);
        for held in first..self.line.len() {
            self.line[held].departs = self.transmit(now, self.line[held].packet.wire_bytes());
        }
    }

    /// Panics if the counters are inconsistent. O(packets in line).
    pub(super) fn check(&self) {
        let queued: u64 = self.line.range(self.gone..).map(|waits| waits.packet.wire_bytes()).sum();
        assert_eq!(self.queued_bytes, queued, "the queue's bytes");
        let held = self.line.iter().filter(|queued| queued.departs == NEVER).count();
        assert_eq!(self.held, held, "packets held");
        assert!(self.stopped || held == 0, "a running link holds packets");
        let mut pairs = self.line.iter().zip(self.line.iter().skip(1));
        assert!(
            pairs.all(|(a, b)| a.departs <= b.departs && a.sequence < b.sequence),
            "packets overtake each other"
        );
    }
}
