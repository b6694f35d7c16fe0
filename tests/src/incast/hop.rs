//! A router in user space, whose slow port marks packets behind a long queue: not every kernel has a queue that does.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::scheduling::{Priority, raise_priority};
use erpc_test_tools::limit::millis;

/// What a frame has besides its packet, so that the port's rate means the same as a kernel's.
const ETHERNET: u64 = 14;
const LONGEST: usize = 1_500;
/// Packets of one side that are taken up before the other's turn comes, and the port's.
const BATCH: usize = 64;
/// How soon it notices that it is to end.
const LOOK: Duration = millis(10);

/// A slow port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    /// In bytes per second, frames with their headers.
    pub(super) rate: u64,
    /// Bytes of frames that may wait; what comes then is dropped.
    pub(super) buffer: u64,
    /// Bytes that it may be late by and send at once then.
    pub(super) burst: u64,
    /// Packets that find more bytes before them are marked, if their senders react to marks.
    pub(super) mark_above: u64,
}

#[derive(Default, Debug)]
struct Counts {
    backlog: AtomicU64,
    drops: AtomicU64,
    stop: AtomicBool,
}

/// The router, a thread of its own.
#[derive(Debug)]
pub(super) struct Hop {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Hop {
    /// Passes packets on between two TUN devices: to the second through `port`, to the first at once.
    pub(super) fn start(port: Port, devices: [File; 2]) -> Self {
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let thread = thread::spawn(move || {
            raise_priority(Priority::Probe);
            let [clients, server] = devices;
            let queue = Queue { port, waiting: VecDeque::new(), bytes: 0, free: Instant::now() };
            Router { clients, server, queue, counts: shared }.run();
        });
        Self { counts, thread: Some(thread) }
    }

    pub(super) fn backlog(&self) -> u64 {
        self.counts.backlog.load(Ordering::Relaxed)
    }

    pub(super) fn drops(&self) -> u64 {
        self.counts.drops.load(Ordering::Relaxed)
    }
}

impl Drop for Hop {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the router has failed");
    }
}

/// The port's queue.
struct Queue {
    port: Port,
    waiting: VecDeque<Vec<u8>>,
    bytes: u64,
    /// When the port has sent what it was given.
    free: Instant,
}

impl Queue {
    /// Takes up a packet; false if there is no room for it.
    fn push(&mut self, mut packet: Vec<u8>) -> bool {
        if self.bytes > self.port.mark_above {
            mark(&mut packet);
        }
        let bytes = packet.len() as u64 + ETHERNET;
        if self.bytes + bytes > self.port.buffer {
            return false;
        }
        self.bytes += bytes;
        self.waiting.push_back(packet);
        true
    }

    fn time(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes * 1_000_000_000 / self.port.rate)
    }

    /// The next packet, if its time has come.
    fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.free > now {
            return None;
        }
        let packet = self.waiting.pop_front()?;
        let bytes = packet.len() as u64 + ETHERNET;
        self.bytes -= bytes;
        let earliest = now.checked_sub(self.time(self.port.burst)).unwrap_or(now);
        self.free = self.free.max(earliest) + self.time(bytes);
        Some(packet)
    }

    /// How long until a packet's time comes.
    fn idle(&self, now: Instant) -> Duration {
        match self.waiting.is_empty() {
            true => LOOK,
            false => self.free.saturating_duration_since(now).min(LOOK),
        }
    }
}

struct Router {
    clients: File,
    server: File,
    queue: Queue,
    counts: Arc<Counts>,
}

impl Router {
    fn run(mut self) {
        let mut buffer = [0; LONGEST];
        while !self.counts.stop.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                let Some(packet) = read(&self.clients, &mut buffer) else { break };
                if !self.queue.push(packet.to_vec()) {
                    self.counts.drops.fetch_add(1, Ordering::Relaxed);
                }
            }
            for _ in 0..BATCH {
                let Some(packet) = read(&self.server, &mut buffer) else { break };
                write(&self.clients, packet);
            }
            let now = Instant::now();
            while let Some(packet) = self.queue.pop(now) {
                write(&self.server, &packet);
            }
            self.counts.backlog.store(self.queue.bytes, Ordering::Relaxed);
            self.wait(self.queue.idle(Instant::now()));
        }
    }

    fn wait(&self, time: Duration) {
        let devices = [&self.clients, &self.server];
        let mut fds = devices.map(|device| PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN));
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        if let Err(errno) = poll(&mut fds, Some(&time)) {
            assert_eq!(errno, Errno::INTR, "two descriptors can be watched");
        }
    }
}

fn read<'b>(mut device: &File, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    match device.read(buffer) {
        Ok(len) => Some(&buffer[..len]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("a device has gone: {error}"),
    }
}

fn write(mut device: &File, packet: &[u8]) {
    let len = device.write(packet).expect("the host takes its packets");
    assert_eq!(len, packet.len());
}

/// Sets the mark (CE, RFC 3168) of an IPv4 packet whose sender reacts to it.
fn mark(packet: &mut [u8]) {
    let is_capable = matches!(packet, [version, class, ..] if *version >> 4 == 4 && !matches!(*class & 0b11, 0b00 | 0b11));
    if !is_capable {
        return;
    }
    packet[1] |= 0b11;
    let len = usize::from(packet[0] & 0xf) * 4;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// RFC 1071, of whole words.
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071's readers everywhere: its checksum is 0xb861.
    const HEADER: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    fn with_class(class: u8) -> [u8; 20] {
        let mut header = HEADER;
        header[1] = class;
        header[10..12].fill(0);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    #[test]
    fn only_those_who_heed_marks_are_marked_and_the_checksum_is_right() {
        assert_eq!(with_class(0), HEADER);
        for (class, after) in [(0b00, 0b00), (0b01, 0b11), (0b10, 0b11), (0b11, 0b11), (0xba, 0xbb)]
        {
            let mut packet = with_class(class);
            mark(&mut packet);
            assert_eq!(packet, with_class(after), "class {class:#b}");
        }
        let mut six = [0x60, 0x20, 0, 0];
        mark(&mut six);
        assert_eq!(six, [0x60, 0x20, 0, 0], "another protocol");
    }

    fn queue() -> (Queue, Instant) {
        // A byte takes a microsecond.
        let port = Port { rate: 1_000_000, buffer: 4_000, burst: 2_000, mark_above: 1_000 };
        let free = Instant::now();
        (Queue { port, waiting: VecDeque::new(), bytes: 0, free }, free)
    }

    fn packet(bytes: u64) -> Vec<u8> {
        let mut packet = with_class(0b10).to_vec();
        packet.resize((bytes - ETHERNET) as usize, 0);
        packet
    }

    #[test]
    fn the_port_keeps_its_rate_marks_behind_the_threshold_and_drops_beyond_the_buffer() {
        let (mut queue, start) = queue();
        let after = |micros| start + Duration::from_micros(micros);
        let taken: Vec<bool> = (0..5).map(|_| queue.push(packet(1_000))).collect();
        assert_eq!((taken, queue.bytes), (vec![true, true, true, true, false], 4_000));
        let marks: Vec<u8> = queue.waiting.iter().map(|packet| packet[1]).collect();
        assert_eq!(marks, [0b10, 0b10, 0b11, 0b11]);
        assert!(queue.pop(start).is_some() && queue.pop(after(999)).is_none());
        assert_eq!(queue.idle(after(400)), Duration::from_micros(600));
        assert!(queue.pop(after(1_000)).is_some());
        // Late by less than the burst, it makes up for it; later, for no more than that.
        assert!(queue.pop(after(3_500)).is_some() && queue.pop(after(3_500)).is_some());
        assert_eq!((queue.bytes, queue.idle(after(3_500))), (0, LOOK));
        (0..4).for_each(|_| assert!(queue.push(packet(1_000))));
        let sent = (0..4).map_while(|_| queue.pop(after(100_000))).count();
        assert_eq!(sent, 3, "two of the burst, and the one whose time it is");
    }
}
