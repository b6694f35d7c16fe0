//! A router in user space between two hosts, whose cables may be slow, long or both: not every kernel has a queue that marks
//! packets, or one that keeps them for some time.

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

/// Bytes of a packet: as Ethernet's largest, where cards and switches were told so.
pub(super) const LONGEST: usize = 9_000;
/// Packets of one side that are taken up before the other's turn comes, and the port's.
const BATCH: usize = 64;
/// A packet that is found late has come since the last look, but no longer ago than this.
const LATE: Duration = millis(1);
/// How soon the thread notices that it is to end.
const LOOK: Duration = millis(10);

#[derive(Default, Debug)]
struct Counts {
    backlog: AtomicU64,
    drops: AtomicU64,
    stop: AtomicBool,
}

/// A router that is a thread of its own.
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

/// A router that moves packets when it is told to.
#[derive(Debug)]
pub(super) struct Router {
    devices: [File; 2],
    /// From the first device to the second, and from the second to the first.
    lines: [Line; 2],
    drops: u64,
    /// Up to when it knows what has come.
    looked: Instant,
}

impl Router {
    /// Passes packets on between two TUN devices, each to the other through its port.
    pub(super) fn new(ports: [Port; 2], devices: [File; 2]) -> Self {
        Self { devices, lines: ports.map(Line::new), drops: 0, looked: Instant::now() }
    }

    /// Takes up what has come, 64 packets of each side at most, and delivers what has arrived. Does not wait. Returns how many
    /// packets it moved.
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
                // Not the time before: it may have come since.
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

    /// Bytes that wait for the first port.
    pub(super) fn backlog(&mut self) -> u64 {
        self.lines[0].backlog(self.looked)
    }

    /// Packets that a port had no room for.
    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    /// Until a packet comes or arrives, or for 10 ms.
    fn wait(&mut self) {
        let arrival = self.lines.iter().filter_map(Line::next_arrival).min();
        let left = |next: Instant| next.saturating_duration_since(Instant::now());
        let time = arrival.map_or(LOOK, left).min(LOOK);
        let devices = [self.devices[0].as_fd(), self.devices[1].as_fd()];
        let mut fds = devices.map(|device| PollFd::from_borrowed_fd(device, PollFlags::IN));
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        if let Err(errno) = poll(&mut fds, Some(&time)) {
            assert_eq!(errno, Errno::INTR, "two descriptors can be watched");
        }
        // What is there now has just come, for it ends the wait.
        self.looked = Instant::now();
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
