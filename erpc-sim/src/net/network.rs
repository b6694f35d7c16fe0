//! The network as a whole: takes packets, moves them, hands them out.

use erpc_core::time::Instant;

use super::port::Port;
use super::switch::{Switch, Verdict};
use super::topology::Node;
use super::tournament::Tournament;
use super::{LinkId, NetworkStats, Packet, Topology};

/// Packet buffers that are kept for reuse.
pub(super) const SPARE_BUFFERS: usize = 16_384;

/// Hosts, cables and switches at work.
///
/// The owner of the clock calls [`next_event`](Self::next_event) and, when nothing else comes
/// earlier, [`step`](Self::step). Packets enter with [`send`](Self::send), stamped with the present
/// time. Time must not run backwards: every call's `now` is at or after the last event, and should
/// be at or before the next one, so that things happen in order. And it must stay below half of
/// what 64 bits hold, 292 years.
///
/// Equal calls give equal results, always. Events at the same nanosecond happen in the order in
/// which their packets joined their last queues; what leaves a queue at some nanosecond has left
/// when something arrives at it.
#[derive(Debug)]
pub struct Network {
    /// The last event.
    now: u64,
    /// Given to the packets as they join queues.
    sequence: u64,
    hosts: u32,
    nic_packets: usize,
    /// The port of each host.
    nics: Vec<u32>,
    /// Both ends of each cable: see [`Port::of`].
    ports: Vec<Port>,
    switches: Vec<Switch>,
    /// Ports by when their next packet arrives at the other end.
    arrivals: Tournament,
    stats: NetworkStats,
    spare: Vec<Vec<u8>>,
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
        }
    }

    /// Puts a packet into the transmit queue of host `at_host`. Nothing looks at `packet.from`. A
    /// packet that the queue has no room for, or to a host that does not exist, is dropped and
    /// counted.
    ///
    /// # Panics
    /// If there is no host `at_host`, or `now` is before the last event.
    pub fn send(&mut self, now: Instant, at_host: u32, packet: Packet) {
        let now = self.present(now);
        self.stats.sent += 1;
        self.stats.in_flight += 1;
        let nic = self.nics[at_host as usize];
        if packet.to.host >= self.hosts {
            self.stats.dropped_unreachable += 1;
            return self.discard(packet);
        }
        let port = &mut self.ports[nic as usize];
        port.settle(now);
        if port.queued_packets() >= self.nic_packets {
            self.stats.dropped_full_nic += 1;
            return self.discard(packet);
        }
        self.join(now, nic, packet);
    }

    /// When [`step`](Self::step) has something to do. O(1).
    #[must_use]
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        self.arrivals.first().map(|(nanos, _)| Instant::from_nanos(nanos))
    }

    /// Does the one thing that happens at [`next_event`](Self::next_event): a packet arrives.
    /// Returns it if that is at host `packet.to.host`; at a switch it is queued again or dropped.
    /// Does nothing if there is nothing to do. Costs O(log links), amortised over the packets.
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
                self.discard(packet);
                None
            }
        }
    }

    /// Stops both directions of a link. Packets on the cable arrive, and a packet of which a bit
    /// has been sent is sent. The others wait, in order, and more may join them while there is
    /// room. Nothing happens if the link is stopped. Costs O(packets queued).
    ///
    /// # Panics
    /// If there is no such link, or `now` is before the last event.
    pub fn stop_link(&mut self, now: Instant, link: LinkId) {
        let now = self.present(now);
        for index in Port::of(link) {
            self.settle(now, index);
            self.ports[index as usize].stop();
            self.reschedule(index);
        }
    }

    /// Lets a link go on that was stopped. Nothing happens if it runs. Costs O(packets queued).
    ///
    /// # Panics
    /// If there is no such link, or `now` is before the last event.
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

    /// Bytes that wait at the other end of `host`'s cable to be sent to it, or are being sent. Costs O(packets that have
    /// left since somebody looked).
    ///
    /// # Panics
    /// If there is no such host, or `now` is before the last event.
    pub fn queue_towards(&mut self, now: Instant, host: u32) -> u64 {
        let now = self.present(now);
        let index = self.nics[host as usize] ^ 1;
        self.settle(now, index);
        self.ports[index as usize].queued_bytes()
    }

    /// The number of links: [`LinkId`]s are below it.
    #[must_use]
    pub fn links(&self) -> u32 {
        self.ports.len() as u32 / 2
    }

    /// What became of the packets so far.
    #[must_use]
    pub fn stats(&self) -> &NetworkStats {
        &self.stats
    }

    /// Takes the buffer of a packet that nobody needs any more, for [`buffer`](Self::buffer).
    #[inline]
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            self.spare.push(bytes);
        }
    }

    /// An empty buffer for a packet: one that was [recycled](Self::recycle) or whose packet was
    /// dropped, if there is one.
    #[must_use]
    #[inline]
    pub fn buffer(&mut self) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes
    }

    /// Checks that every packet is accounted for and that all books agree. Costs O(links and
    /// packets in flight).
    ///
    /// # Panics
    /// If something is wrong, which is a mistake in the network.
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

    /// A switch has a packet: to the right queue with it, if there is room.
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
                self.discard(packet);
            }
            Verdict::FullBuffer => {
                self.stats.dropped_full_buffer += 1;
                self.discard(packet);
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
        // Behind others it does not change what arrives next.
        if alone {
            self.reschedule(index);
        }
    }

    /// Notes what has left a port, and gives the room back.
    #[inline]
    fn settle(&mut self, now: u64, index: u32) {
        let port = &mut self.ports[index as usize];
        let freed = port.settle(now);
        if let Node::Switch(switch) = port.node {
            self.switches[switch as usize].free(freed);
        }
    }

    /// Updates when a port is due.
    #[inline]
    fn reschedule(&mut self, index: u32) {
        self.arrivals.set(index, self.ports[index as usize].next_arrival());
    }

    /// The end of a packet that was dropped and counted.
    fn discard(&mut self, packet: Packet) {
        self.stats.in_flight -= 1;
        self.recycle(packet.bytes);
    }
}
