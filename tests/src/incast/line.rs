//! One direction of a cable, and the queue in front of it: when each packet has been sent, and when it arrives.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::mark::mark;

/// What a frame has besides its packet, so that the port's rate means the same as a kernel's.
pub(super) const ETHERNET: u64 = 14;

/// A port, and the cable behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    /// In bytes per second, frames with their headers.
    pub(super) rate: u64,
    /// Bytes of frames that may wait; what comes then is dropped.
    pub(super) buffer: u64,
    /// Packets that find more bytes before them are marked, if their senders react to marks.
    pub(super) mark_above: u64,
    /// How long a bit is on the cable.
    pub(super) delay: Duration,
}

impl Port {
    /// A short cable without a limit, behind a queue that no test fills.
    pub(super) const OPEN: Self =
        Self { rate: u64::MAX, buffer: 64 << 20, mark_above: u64::MAX, delay: Duration::ZERO };

    /// What sending so many bytes takes.
    pub(super) fn time(&self, bytes: u64) -> Duration {
        Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(self.rate)) as u64)
    }
}

/// A packet that waits, is being sent, or is on the cable.
#[derive(Debug)]
struct OnItsWay {
    packet: Vec<u8>,
    /// When its last bit has left the queue, and when that arrives.
    departs: Instant,
    arrives: Instant,
}

impl OnItsWay {
    fn frame(&self) -> u64 {
        self.packet.len() as u64 + ETHERNET
    }
}

/// Packets leave in the order in which they came, each when those before it have left, and arrive `delay` later.
///
/// When is known as soon as a packet comes, so that a thread that looks late makes the line no slower. Holds what the port's
/// buffer takes, and what the port sends in `delay`.
#[derive(Debug)]
pub(super) struct Line {
    port: Port,
    packets: VecDeque<OnItsWay>,
    /// How many of them, from the first, have left the queue.
    left: usize,
    /// Bytes of frames in the queue.
    bytes: u64,
    /// When the port has sent what it was given.
    free: Instant,
}

impl Line {
    pub(super) fn new(port: Port) -> Self {
        Self { port, packets: VecDeque::new(), left: 0, bytes: 0, free: Instant::now() }
    }

    /// Takes up a packet that is found at `now` and may have come at `since`; false if there is no room for it. The port has sent
    /// as if it had come then, so that it stands still for no longer than it has to. It arrives as if it had come now, for no
    /// packet may be earlier than it can.
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
        // Whatever arrives has left.
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

    /// Notes what has left the queue.
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

    /// A byte takes a microsecond.
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
    fn the_port_keeps_its_rate_and_drops_beyond_the_buffer() {
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
        // It is late, and the packets are not: the last of them left behind the others.
        let arrived = std::iter::from_fn(|| line.pop(after(4_999))).count();
        assert_eq!((arrived, line.next_arrival()), (3, Some(after(5_000))));
        assert!(line.pop(after(5_000)).is_some());
        // A port that has nothing to send saves nothing up.
        (0..2).for_each(|_| assert!(line.push(after(100_000), after(100_000), packet(1_000))));
        assert_eq!(line.next_arrival(), Some(after(101_000)));
    }

    #[test]
    fn packets_are_on_the_cable_for_as_long_as_it_is_and_out_of_the_queue() {
        let (mut line, start) = line(Duration::from_micros(10_000));
        let after = |micros| start + Duration::from_micros(micros);
        for at in 0..8 {
            assert!(
                line.push(after(1_000 * at), after(1_000 * at), packet(1_000)),
                "one leaves as the next comes"
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
    fn a_late_look_makes_the_port_no_slower_and_no_packet_earlier() {
        let (mut line, start) = line(Duration::from_micros(10_000));
        let after = |micros| start + Duration::from_micros(micros);
        for _ in 0..3 {
            assert!(line.push(start, after(2_500), packet(1_000)));
        }
        assert_eq!(line.backlog(after(2_500)), 1_000, "two have left");
        let arrivals = [13_500, 13_500, 13_500].map(after);
        let arrived = arrivals.map(|at| (line.next_arrival(), line.pop(at).is_some()));
        assert_eq!(arrived, arrivals.map(|at| (Some(at), true)));
        assert!(line.push(after(2_500), after(2_500), packet(1_000)));
        assert_eq!(line.next_arrival(), Some(after(14_000)), "behind those that it was late for");
    }
}
