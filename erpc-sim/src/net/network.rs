//! The network: accepts packets, moves them, and returns them at their destination.

use erpc_core::time::Instant;

use super::port::Port;
use super::switch::{Switch, Verdict};
use super::topology::Node;
use super::tournament::Tournament;
use super::{LinkId, NetworkStats, Packet, Topology};
use crate::trace;

/// The most packet buffers that are kept for reuse.
pub(super) const SPARE_BUFFERS: usize = 16_384;

/// Hosts, cables and switches with their packets.
///
/// The owner of the clock calls [`next_event`](Self::next_event) and, when nothing else comes
/// earlier, [`step`](Self::step). Packets enter with [`send`](Self::send), with the current time.
/// Time must not run backwards. The argument `now` of each function must be at or after the time of
/// the last event. It should be at or before the time of the next event, so that events happen in
/// order. `now` must stay below 2^63 ns, 292 years.
///
/// Equal calls always give equal results. Events at the same nanosecond happen in the order in
/// which their packets joined their last queues. A packet that leaves a queue at the nanosecond of
/// an arrival there has left before the arrival.
#[derive(Debug)]
pub struct Network {
    /// The time of the last event.
    now: u64,
    /// The sequence number of the last packet that joined a queue.
    sequence: u64,
    hosts: u32,
    nic_packets: usize,
    /// The port of each host.
    nics: Vec<u32>,
    /// Both ends of each cable: see [`Port::of`].
    ports: Vec<Port>,
    switches: Vec<Switch>,
    /// Ports by the time when their next packet arrives at the other end.
    arrivals: Tournament,
    stats: NetworkStats,
    spare: Vec<Vec<u8>>,
    /// Print dropped packets.
    prints: bool,
}

impl Network {
    /// An idle network.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let mut nics = vec![0; topology.hosts() as usize];
        let mut ports = Vec::with_capacity(2 * topology.cables.len());
        for (index, node, peer) in topology.ports() {
            if let Node::Host(host) = node {
                nics[host as usize] = index;
            }
            ports.push(Port::new(node, peer, topology.cables[index as usize / 2].link));
        }
        let switches = topology.switches.iter().zip(topology.routes());
        Self {
            now: 0,
            sequence: 0,
            hosts: topology.hosts(),
            nic_packets: topology.nic_packets as usize,
            nics,
            switches: switches
                .map(|(config, routes)| Switch::new(config, routes, ports.len()))
                .collect(),
            arrivals: Tournament::new(ports.len()),
            ports,
            stats: NetworkStats::default(),
            spare: Vec::new(),
            prints: false,
        }
    }

    /// From now on, prints every packet that is dropped, with the reason.
    pub fn print_drops(&mut self) {
        self.prints = true;
    }

    /// Puts a packet into the transmit queue of host `at_host`. `packet.from` is ignored. A packet
    /// is dropped and counted if the queue is full or the destination host does not exist.
    ///
    /// # Panics
    /// Panics if there is no host `at_host`, or `now` is before the last event.
    pub fn send(&mut self, now: Instant, at_host: u32, packet: Packet) {
        let now = self.present(now);
        self.stats.sent += 1;
        self.stats.in_flight += 1;
        let nic = self.nics[at_host as usize];
        if packet.to.host >= self.hosts {
            self.stats.dropped_unreachable += 1;
            return self.discard(now, packet, "there is no such host");
        }
        let port = &mut self.ports[nic as usize];
        port.settle(now);
        if port.queued_packets() >= self.nic_packets {
            self.stats.dropped_full_nic += 1;
            return self.discard(now, packet, "the transmit queue is full");
        }
        self.join(now, nic, packet);
    }

    /// The time of the next event, or `None`. O(1).
    #[must_use]
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        self.arrivals.first().map(|(nanos, _)| Instant::from_nanos(nanos))
    }

    /// Processes the next event: the arrival of a packet. Returns the packet if it arrives at host
    /// `packet.to.host`. At a switch it is queued again or dropped. Does nothing without a next
    /// event. Costs O(log links), amortised over the packets.
    pub fn step(&mut self) -> Option<Packet> {
        let (now, index) = self.arrivals.first()?;
        self.now = now;
        self.settle(now, index);
        let port = &mut self.ports[index as usize];
        let packet = port.arrive();
        let peer = port.peer;
        self.reschedule(index);
        match peer {
            Node::Switch(switch) => {
                self.forward(now, switch, packet);
                None
            }
            Node::Host(host) if packet.to.host == host => {
                self.stats.delivered += 1;
                self.stats.in_flight -= 1;
                Some(packet)
            }
            Node::Host(_) => {
                self.stats.dropped_unreachable += 1;
                self.discard(now, packet, "no cable leads to its host");
                None
            }
        }
    }

    /// Stops both directions of a link. Packets on the cable still arrive, and a packet whose first
    /// bit has been sent is sent completely. The other packets wait, in order, and more may join
    /// them while there is room. No effect on a stopped link. Costs O(packets queued).
    ///
    /// # Panics
    /// Panics if there is no such link, or `now` is before the last event.
    pub fn stop_link(&mut self, now: Instant, link: LinkId) {
        let now = self.present(now);
        for index in Port::of(link) {
            self.settle(now, index);
            self.ports[index as usize].stop();
            self.reschedule(index);
        }
    }

    /// Starts a stopped link again. No effect on a running link. Costs O(packets queued).
    ///
    /// # Panics
    /// Panics if there is no such link, or `now` is before the last event.
    pub fn resume_link(&mut self, now: Instant, link: LinkId) {
        let now = self.present(now);
        for index in Port::of(link) {
            self.settle(now, index);
            let port = &mut self.ports[index as usize];
            port.resume(now);
            let departure = port.next_departure();
            if let Node::Switch(switch) = port.node {
                self.switches[switch as usize].reschedule(index, departure);
            }
            self.reschedule(index);
        }
    }

    /// Bytes that are queued or being sent at the other end of `host`'s cable. Costs O(packets that
    /// have left since the last call).
    ///
    /// # Panics
    /// Panics if there is no such host, or `now` is before the last event.
    pub fn queue_towards(&mut self, now: Instant, host: u32) -> u64 {
        let now = self.present(now);
        let index = self.nics[host as usize] ^ 1;
        self.settle(now, index);
        self.ports[index as usize].queued_bytes()
    }

    /// The number of links. All [`LinkId`]s are below this number.
    #[must_use]
    pub fn links(&self) -> u32 {
        self.ports.len() as u32 / 2
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> &NetworkStats {
        &self.stats
    }

    /// Returns the buffer of a packet that is no longer needed, for [`buffer`](Self::buffer).
    #[inline]
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            self.spare.push(bytes);
        }
    }

    /// An empty buffer for a packet. Reuses the buffer of a [recycled](Self::recycle) or dropped
    /// packet, if there is one.
    #[must_use]
    #[inline]
    pub fn buffer(&mut self) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes
    }

    /// Checks that every packet is counted once and that all counters are consistent. Costs O(links
    /// + packets in flight).
    ///
    /// # Panics
    /// Panics if the network has a bug.
    pub fn check(&self) {
        self.stats.check();
        self.arrivals.check();
        let mut in_flight = 0;
        for (port, index) in self.ports.iter().zip(0..) {
            port.check();
            in_flight += port.packets() as u64;
            let arrival = port.next_arrival().map(|(nanos, _)| nanos);
            assert_eq!(
                self.arrivals.due(index),
                arrival,
                "the tournament is wrong about port {index}"
            );
        }
        assert_eq!(self.stats.in_flight, in_flight, "packets in flight");
        for (switch, number) in self.switches.iter().zip(0..) {
            let ports = self.ports.iter().zip(0..).map(|(port, index)| (index, port));
            switch.check(ports.filter(|(_, port)| port.node == Node::Switch(number)));
        }
    }

    fn present(&self, now: Instant) -> u64 {
        let now = now.as_nanos();
        assert!(now >= self.now, "time runs backwards, from {} to {now}", self.now);
        now
    }

    /// A packet has arrived at a switch: queues the packet, or drops it if there is no room.
    #[inline]
    fn forward(&mut self, now: u64, switch: u32, mut packet: Packet) {
        let switch = &mut self.switches[switch as usize];
        let index = switch.route(packet.to.host);
        let bytes = packet.wire_bytes();
        match switch.judge(now, index, bytes, &mut self.ports) {
            Verdict::Queue { mark } => {
                self.stats.marked += u64::from(mark && !packet.marked);
                packet.marked |= mark;
                self.join(now, index, packet);
            }
            Verdict::FullPort => {
                self.stats.dropped_full_port += 1;
                self.discard(now, packet, "the switch port is full");
            }
            Verdict::FullBuffer => {
                self.stats.dropped_full_buffer += 1;
                self.discard(now, packet, "the switch buffer is full");
            }
        }
    }

    /// Puts a packet into a queue that has room for it.
    #[inline]
    fn join(&mut self, now: u64, index: u32, packet: Packet) {
        let bytes = packet.wire_bytes();
        let port = &mut self.ports[index as usize];
        self.sequence += 1;
        let departs = port.join(now, packet, self.sequence);
        let (node, alone) = (port.node, port.packets() == 1);
        if let Node::Switch(switch) = node {
            let queued = port.queued_bytes();
            self.stats.peak_queue_bytes = self.stats.peak_queue_bytes.max(queued);
            self.switches[switch as usize].fill(index, bytes, departs);
        }
        // If other packets are in front of this one, the port's next arrival stays the same.
        if alone {
            self.reschedule(index);
        }
    }

    /// Removes the packets that have left a port, and frees their room in the switch.
    #[inline]
    fn settle(&mut self, now: u64, index: u32) {
        let port = &mut self.ports[index as usize];
        let freed = port.settle(now);
        if let Node::Switch(switch) = port.node {
            self.switches[switch as usize].free(freed);
        }
    }

    /// Updates the time of a port's next arrival.
    #[inline]
    fn reschedule(&mut self, index: u32) {
        self.arrivals.set(index, self.ports[index as usize].next_arrival());
    }

    /// Discards a packet whose drop has been counted by reason. Prints it if wanted, and keeps its
    /// buffer for reuse.
    fn discard(&mut self, now: u64, packet: Packet, why: &str) {
        if self.prints {
            trace::lost(Instant::from_nanos(now), &packet, why);
        }
        self.stats.in_flight -= 1;
        self.recycle(packet.bytes);
    }
}
