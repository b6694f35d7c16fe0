//! One direction of a cable, and the queue in front of it: computes when each packet has left the
//! queue, and when it arrives.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::mark::mark;

/// Bytes of a frame besides its packet. The kernel's port rates include these bytes, so the rates
/// here do, too.
pub(super) const ETHERNET: u64 = 14;

/// A port, and the cable behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    /// Bytes per second, including frame headers.
    pub(super) rate: u64,
    /// Capacity of the queue in bytes of frames. A packet that does not fit is dropped.
    pub(super) buffer: u64,
    /// Queue length in bytes above which packets are marked, if their senders react to marks.
    pub(super) mark_above: u64,
    /// Propagation delay of the cable.
    pub(super) delay: Duration,
}

impl Port {
    /// A cable without delay and with unlimited rate, behind a queue that no test fills.
    pub(super) const OPEN: Self =
        Self { rate: u64::MAX, buffer: 64 << 20, mark_above: u64::MAX, delay: Duration::ZERO };

    /// The time to send `bytes`.
    pub(super) fn time(&self, bytes: u64) -> Duration {
        Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(self.rate)) as u64)
    }
}

/// A packet that waits, is being sent, or is on the cable.
#[derive(Debug)]
struct OnItsWay {
    packet: Vec<u8>,
    /// When the last bit leaves the queue.
    departs: Instant,
    /// When the last bit arrives at the end of the cable.
    arrives: Instant,
}

impl OnItsWay {
    fn frame(&self) -> u64 {
        self.packet.len() as u64 + ETHERNET
    }
}

/// A FIFO queue and a cable. A packet leaves the queue after all packets before it, and arrives
/// `delay` later.
///
/// Both times are computed when a packet is pushed, so a thread that polls late does not slow the
/// line down. The line holds at most the port's buffer and the packets that the port sends in
/// `delay`.
#[derive(Debug)]
pub(super) struct Line {
    port: Port,
    packets: VecDeque<OnItsWay>,
    /// Number of packets, from the first, that have left the queue.
    left: usize,
    /// Bytes of frames in the queue.
    bytes: u64,
    /// When the port has sent all packets pushed so far.
    free: Instant,
}

impl Line {
    pub(super) fn new(port: Port) -> Self {
        Self { port, packets: VecDeque::new(), left: 0, bytes: 0, free: Instant::now() }
    }

    /// Queues a packet that the caller found at `now` and that came at `since` or later. Returns
    /// false if the queue has no room for it.
    ///
    /// The port's schedule assumes that the packet came at `since`, so that late polling does not
    /// leave the port idle. The arrival assumes that it came at `now`, so that no packet arrives
    /// earlier than possible.
    pub(super) fn push(&mut self, since: Instant, now: Instant, mut packet: Vec<u8>) -> bool {
        self.settle(since);
        if self.bytes > self.port.mark_above {
            mark(&mut packet);
        }
        let bytes = packet.len() as u64 + ETHERNET;
        if self.bytes + bytes > self.port.buffer {
            return false;
        }
        self.bytes += bytes;
        let time = self.port.time(bytes);
        self.free = self.free.max(since) + time;
        let arrives = self.free.max(now + time) + self.port.delay;
        self.packets.push_back(OnItsWay { packet, departs: self.free, arrives });
        true
    }

    /// The next packet, if it has arrived.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next_arrival()? > now {
            return None;
        }
        // A packet that has arrived has left the queue.
        self.settle(now);
        let first = self.packets.pop_front()?;
        self.left -= 1;
        Some(first.packet)
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.packets.front().map(|first| first.arrives)
    }

    /// Bytes of frames that wait or are being sent.
    pub(super) fn backlog(&mut self, now: Instant) -> u64 {
        self.settle(now);
        self.bytes
    }

    /// Subtracts the packets that have left the queue from the queue's length.
    fn settle(&mut self, now: Instant) {
        while let Some(next) = self.packets.get(self.left).filter(|next| next.departs <= now) {
            self.bytes -= next.frame();
            self.left += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line on which a byte takes 1 us.
    fn line(delay: Duration) -> (Line, Instant) {
        let port = Port { rate: 1_000_000, buffer: 4_000, mark_above: 1_000, delay };
        let line = Line::new(port);
        let start = line.free;
        (line, start)
    }

    fn packet(bytes: u64) -> Vec<u8> {
        vec![0; (bytes - ETHERNET) as usize]
    }

    #[test]
    fn the_port_keeps_its_rate_and_drops_packets_beyond_the_buffer() {
        let (mut line, start) = line(Duration::ZERO);
        let after = |micros| start + Duration::from_micros(micros);
        let taken: Vec<bool> = (0..5).map(|_| line.push(start, start, packet(1_000))).collect();
        assert_eq!((taken, line.backlog(start)), (vec![true, true, true, true, false], 4_000));
        assert!(line.pop(after(999)).is_none() && line.pop(after(1_000)).is_some());
        assert_eq!((line.backlog(after(1_999)), line.next_arrival()), (3_000, Some(after(2_000))));
        assert!(
            line.push(after(1_999), after(1_999), packet(1_000))
                && !line.push(after(1_999), after(1_999), packet(1_000))
        );
        // The poll is late, but the schedule is not. The last packet left right after the others.
        let arrived = std::iter::from_fn(|| line.pop(after(4_999))).count();
        assert_eq!((arrived, line.next_arrival()), (3, Some(after(5_000))));
        assert!(line.pop(after(5_000)).is_some());
        // An idle port does not accumulate a burst allowance.
        (0..2).for_each(|_| assert!(line.push(after(100_000), after(100_000), packet(1_000))));
        assert_eq!(line.next_arrival(), Some(after(101_000)));
    }

    #[test]
    fn packets_on_the_cable_take_its_delay_and_do_not_count_as_queued() {
        let (mut line, start) = line(Duration::from_micros(10_000));
        let after = |micros| start + Duration::from_micros(micros);
        for at in 0..8 {
            assert!(
                line.push(after(1_000 * at), after(1_000 * at), packet(1_000)),
                "a packet leaves when the next one comes"
            );
        }
        assert_eq!(line.backlog(after(8_000)), 0);
        assert!(line.pop(after(10_999)).is_none());
        for at in 0..8 {
            assert_eq!(line.next_arrival(), Some(after(11_000 + 1_000 * at)));
            assert!(line.pop(after(11_000 + 1_000 * at)).is_some());
        }
        assert_eq!((line.pop(after(1_000_000)), line.next_arrival()), (None, None));
    }

    #[test]
    fn packets_behind_a_long_queue_are_marked() {
        let (mut line, start) = line(Duration::ZERO);
        let capable = |len| {
            let mut packet = packet(len);
            packet[..2].copy_from_slice(&[0x45, 0b10]);
            packet
        };
        (0..4).for_each(|_| assert!(line.push(start, start, capable(1_000))));
        let last = start + Duration::from_micros(4_000);
        let marks: Vec<u8> =
            std::iter::from_fn(|| line.pop(last)).map(|packet| packet[1]).collect();
        assert_eq!(marks, [0b10, 0b10, 0b11, 0b11]);
    }

    #[test]
    fn a_late_poll_makes_the_port_not_slower_and_no_packet_earlier() {
        let (mut line, start) = line(Duration::from_micros(10_000));
        let after = |micros| start + Duration::from_micros(micros);
        for _ in 0..3 {
            assert!(line.push(start, after(2_500), packet(1_000)));
        }
        assert_eq!(line.backlog(after(2_500)), 1_000, "two packets have left");
        let arrivals = [13_500, 13_500, 13_500].map(after);
        let arrived = arrivals.map(|at| (line.next_arrival(), line.pop(at).is_some()));
        assert_eq!(arrived, arrivals.map(|at| (Some(at), true)));
        assert!(line.push(after(2_500), after(2_500), packet(1_000)));
        assert_eq!(line.next_arrival(), Some(after(14_000)), "after the packets of the late poll");
    }
}
