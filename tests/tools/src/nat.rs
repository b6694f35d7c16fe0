//! A network address translator (NAT) between two TUN devices, in user space: not every machine has
//! the kernel's, or the program that configures it.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::ipv4::{End, UdpPacket, UnreachableMessage};
use crate::limit::millis;

/// Longest packet in bytes.
const LONGEST: usize = 9_000;
/// The first port that the NAT gives to a client.
const FIRST_PORT: u16 = 20_000;
/// Longest wait, after which the thread checks whether it should stop.
const LOOK: Duration = millis(10);

/// A NAT with its own thread. Hosts inside share its address outside, each socket with its own
/// port. Translates UDP, and the ICMP messages that say that a packet was not delivered. Drops
/// everything else.
#[derive(Debug)]
pub struct Nat {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    mappings: Mutex<Mappings>,
    stop: AtomicBool,
}

/// Counts of packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NatCounts {
    /// Ports that were given to sockets inside.
    pub mapped: u64,
    /// UDP packets that were translated, in both directions.
    pub translated: u64,
    /// ICMP messages that were translated.
    pub messages: u64,
    /// Packets from outside to a port without a mapping.
    pub unexpected: u64,
}

impl Nat {
    /// Translates between two TUN devices. `address` is the NAT's own address outside. Between the
    /// NAT and the hosts outside, a packet takes `delay` in each direction.
    #[must_use]
    pub fn start(inside: File, outside: File, address: Ipv4Addr, delay: Duration) -> Self {
        let shared = Arc::new(Shared {
            mappings: Mutex::new(Mappings::new(address)),
            stop: AtomicBool::new(false),
        });
        let run = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut cables =
                Cables { inside, outside, delay, out: VecDeque::new(), back: VecDeque::new() };
            while !run.stop.load(Ordering::Relaxed) {
                cables.turn(&run);
                cables.wait();
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Forgets all mappings, as a NAT does that restarts, or whose timeout has passed. Later packets
    /// of a socket inside leave from another port, and packets to the old port are dropped.
    pub fn forget(&self) {
        let mut mappings = self.shared.mappings();
        mappings.inside.clear();
        mappings.outside.clear();
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> NatCounts {
        self.shared.mappings().counts
    }
}

impl Shared {
    fn mappings(&self) -> MutexGuard<'_, Mappings> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the NAT has failed");
    }
}

/// The ports outside, and the sockets inside to which they belong.
#[derive(Debug)]
struct Mappings {
    address: Ipv4Addr,
    inside: HashMap<SocketAddrV4, u16>,
    outside: HashMap<u16, SocketAddrV4>,
    counts: NatCounts,
}

impl Mappings {
    fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            inside: HashMap::new(),
            outside: HashMap::new(),
            counts: NatCounts::default(),
        }
    }

    /// The port outside of a socket inside. A port is never given again.
    fn port_of(&mut self, socket: SocketAddrV4) -> u16 {
        *self.inside.entry(socket).or_insert_with(|| {
            let port = FIRST_PORT + self.counts.mapped as u16;
            self.counts.mapped += 1;
            self.outside.insert(port, socket);
            port
        })
    }

    /// Translates a packet that leaves. False if it is dropped.
    fn out(&mut self, bytes: &mut [u8]) -> bool {
        let Some(mut packet) = UdpPacket::new(bytes) else { return false };
        let port = self.port_of(packet.end(End::Source));
        packet.set_end(End::Source, SocketAddrV4::new(self.address, port));
        self.counts.translated += 1;
        true
    }

    /// Translates a packet from outside. False if it is dropped.
    fn back(&mut self, bytes: &mut [u8]) -> bool {
        if let Some(mut packet) = UdpPacket::new(bytes) {
            let socket = self.socket_at(packet.end(End::Destination));
            let Some(socket) = socket else { return false };
            packet.set_end(End::Destination, socket);
            self.counts.translated += 1;
        } else if let Some(mut message) = UnreachableMessage::new(bytes) {
            // The quoted packet is one that the NAT has sent.
            let mut quote = message.quote();
            let socket = self.socket_at(quote.end(End::Source));
            let Some(socket) = socket else { return false };
            quote.set_end(End::Source, socket);
            message.readdress(*socket.ip());
            self.counts.messages += 1;
        } else {
            return false;
        }
        true
    }

    fn socket_at(&mut self, end: SocketAddrV4) -> Option<SocketAddrV4> {
        let found = self.outside.get(&end.port()).copied().filter(|_| *end.ip() == self.address);
        self.counts.unexpected += u64::from(found.is_none());
        found
    }
}

/// The packets on a cable, and when they arrive at its end.
type Cable = VecDeque<(Instant, Vec<u8>)>;

/// The devices, and the cable to the hosts outside.
struct Cables {
    inside: File,
    outside: File,
    delay: Duration,
    out: Cable,
    back: Cable,
}

impl Cables {
    /// Moves all packets that can be moved now.
    fn turn(&mut self, shared: &Shared) {
        let mut buffer = [0; LONGEST];
        while let Some(len) = read(&self.inside, &mut buffer) {
            let packet = &mut buffer[..len];
            if shared.mappings().out(packet) {
                self.out.push_back((Instant::now() + self.delay, packet.to_vec()));
            }
        }
        while let Some(len) = read(&self.outside, &mut buffer) {
            self.back.push_back((Instant::now() + self.delay, buffer[..len].to_vec()));
        }
        let now = Instant::now();
        while let Some(packet) = arrived(&mut self.out, now) {
            write(&self.outside, &packet);
        }
        while let Some(mut packet) = arrived(&mut self.back, now) {
            if shared.mappings().back(&mut packet) {
                write(&self.inside, &packet);
            }
        }
    }

    /// Waits until a device has a packet or a packet arrives at the end of the cable, at most 10 ms.
    fn wait(&self) {
        let arrivals = [self.out.front(), self.back.front()];
        let next = arrivals.iter().flatten().map(|(arrival, _)| *arrival).min();
        let left = |next: Instant| next.saturating_duration_since(Instant::now());
        let time = next.map_or(LOOK, left).min(LOOK);
        let devices = [self.inside.as_fd(), self.outside.as_fd()];
        let mut fds = devices.map(|device| PollFd::from_borrowed_fd(device, PollFlags::IN));
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        if let Err(errno) = poll(&mut fds, Some(&time)) {
            assert_eq!(errno, Errno::INTR, "poll can wait for two descriptors");
        }
    }
}

/// Takes the next packet of the cable, if it has arrived.
fn arrived(cable: &mut Cable, now: Instant) -> Option<Vec<u8>> {
    cable.front().filter(|(arrival, _)| *arrival <= now)?;
    cable.pop_front().map(|(_, packet)| packet)
}

fn read(mut device: &File, buffer: &mut [u8]) -> Option<usize> {
    match device.read(buffer) {
        Ok(len) => Some(len),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("cannot read from a device: {error}"),
    }
}

fn write(mut device: &File, packet: &[u8]) {
    let len = device.write(packet).expect("the host accepts packets");
    assert_eq!(len, packet.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::tests::{assert_sums, port_unreachable, udp};

    const NAT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 7_000);
    const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 2), 40_000);

    /// Sends a packet of the client through the NAT.
    fn send(nat: &mut Mappings) -> (Vec<u8>, SocketAddrV4) {
        let mut packet = udp(CLIENT, SERVER, b"request");
        assert!(nat.out(&mut packet));
        assert_sums(&packet);
        let mut seen = packet.clone();
        let source = UdpPacket::new(&mut seen).expect("it is UDP").end(End::Source);
        (packet, source)
    }

    #[test]
    fn packets_are_translated_in_both_directions_until_the_mapping_is_forgotten() {
        let mut nat = Mappings::new(NAT);
        let (_, source) = send(&mut nat);
        assert_eq!((*source.ip(), send(&mut nat).1), (NAT, source));
        let mut answer = udp(SERVER, source, b"answer");
        assert!(nat.back(&mut answer));
        assert_eq!(answer, udp(SERVER, CLIENT, b"answer"));

        (nat.inside, nat.outside) = Default::default();
        assert!(!nat.back(&mut udp(SERVER, source, b"answer")));
        assert_ne!(send(&mut nat).1, source);
        assert_eq!(nat.counts, NatCounts { mapped: 2, translated: 4, messages: 0, unexpected: 1 });
    }

    #[test]
    fn a_message_about_a_packet_reaches_its_sender_and_quotes_the_packet_as_it_was_sent() {
        let mut nat = Mappings::new(NAT);
        let (packet, source) = send(&mut nat);
        let mut message = port_unreachable(*SERVER.ip(), &packet);
        assert!(nat.back(&mut message));
        assert_sums(&message);
        assert_eq!(message[16..20], CLIENT.ip().octets());
        assert_eq!(message[28..], udp(CLIENT, SERVER, b"request"));

        let other = SocketAddrV4::new(NAT, source.port() + 1);
        assert!(!nat.back(&mut port_unreachable(*SERVER.ip(), &udp(other, SERVER, b"request"))));
        assert_eq!(nat.counts.unexpected, 1);
    }
}
