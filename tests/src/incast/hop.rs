//! A router in user space between two hosts. Its cables may be slow, long or both. The tests need
//! this router because not every kernel has queues that mark or delay packets.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::line::{Line, Port};
use super::scheduling::{Priority, raise_priority};
use erpc_test_tools::limit::millis;

/// Largest packet in bytes: that of Ethernet with jumbo frames.
pub(super) const LONGEST: usize = 9_000;
/// Most packets that are read from one device before the other device is read and packets are
/// delivered.
const BATCH: usize = 64;
/// Longest time that a packet is assumed to have waited before it was read. The router assumes that
/// a packet came directly after the last poll, but at most this long ago.
const LATE: Duration = millis(1);
/// Longest wait, after which the thread checks whether it should stop.
const LOOK: Duration = millis(10);

#[derive(Default, Debug)]
struct Counts {
    backlog: AtomicU64,
    drops: AtomicU64,
    stop: AtomicBool,
}

/// A router with its own thread.
#[derive(Debug)]
pub(super) struct Hop {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Hop {
    /// Forwards packets between two TUN devices: to the second through `port`, to the first
    /// immediately.
    pub(super) fn start(port: Port, devices: [File; 2]) -> Self {
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let thread = thread::spawn(move || {
            raise_priority(Priority::Probe);
            let mut router = Router::new([port, Port::OPEN], devices);
            while !shared.stop.load(Ordering::Relaxed) {
                router.turn();
                shared.backlog.store(router.backlog(), Ordering::Relaxed);
                shared.drops.store(router.drops(), Ordering::Relaxed);
                router.wait();
            }
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

/// A router without a thread, which moves packets in [`Router::turn`].
#[derive(Debug)]
pub(super) struct Router {
    devices: [File; 2],
    /// The line from the first device to the second, and the line from the second to the first.
    lines: [Line; 2],
    drops: u64,
    /// When the devices were last polled.
    looked: Instant,
}

impl Router {
    /// A router between two TUN devices. `ports[0]` leads from the first device to the second,
    /// `ports[1]` back.
    pub(super) fn new(ports: [Port; 2], devices: [File; 2]) -> Self {
        Self { devices, lines: ports.map(Line::new), drops: 0, looked: Instant::now() }
    }

    /// Reads packets, at most 64 from each device, and delivers those that have arrived. Does not
    /// wait. Returns the number of packets read and delivered.
    pub(super) fn turn(&mut self) -> usize {
        let since = self.looked;
        self.looked = Instant::now();
        let late = self.looked.checked_sub(LATE).unwrap_or(self.looked);
        let since = since.max(late);
        let mut buffer = [0; LONGEST];
        let mut moved = 0;
        for (device, line) in self.devices.iter().zip(&mut self.lines) {
            for _ in 0..BATCH {
                let Some(packet) = read(device, &mut buffer) else { break };
                moved += 1;
                // Reads the clock per packet, because the packet may have come after `looked`.
                self.drops += u64::from(!line.push(since, Instant::now(), packet.to_vec()));
            }
        }
        let now = Instant::now();
        for (line, device) in self.lines.iter_mut().zip(self.devices.iter().rev()) {
            while let Some(packet) = line.pop(now) {
                moved += 1;
                write(device, &packet);
            }
        }
        moved
    }

    /// Bytes in the queue of the first port.
    pub(super) fn backlog(&mut self) -> u64 {
        self.lines[0].backlog(self.looked)
    }

    /// Packets that the ports dropped.
    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    /// Waits until a device has a packet or a line has to deliver one, at most 10 ms.
    fn wait(&mut self) {
        let arrival = self.lines.iter().filter_map(Line::next_arrival).min();
        let left = |next: Instant| next.saturating_duration_since(Instant::now());
        let time = arrival.map_or(LOOK, left).min(LOOK);
        let devices = [self.devices[0].as_fd(), self.devices[1].as_fd()];
        let mut fds = devices.map(|device| PollFd::from_borrowed_fd(device, PollFlags::IN));
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        if let Err(errno) = poll(&mut fds, Some(&time)) {
            assert_eq!(errno, Errno::INTR, "poll can wait for two descriptors");
        }
        // A packet ends the wait, so a packet that can be read now has just come.
        self.looked = Instant::now();
    }
}

fn read<'b>(mut device: &File, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    match device.read(buffer) {
        Ok(len) => Some(&buffer[..len]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("cannot read from a device: {error}"),
    }
}

fn write(mut device: &File, packet: &[u8]) {
    let len = device.write(packet).expect("the host accepts packets");
    assert_eq!(len, packet.len());
}
