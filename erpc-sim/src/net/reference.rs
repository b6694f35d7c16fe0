//! A slow and obvious reference of the network. Departures are events of their own, queues are
//! summed up on demand, times are exact fractions, and routes come from the shape.
//! [`Network`](super::Network) must behave equally.

use std::collections::VecDeque;

use super::topology::Node;
use super::{LinkId, Network, NetworkStats, Packet, SwitchConfig, Topology};

/// The shape of a topology, from which the routes follow.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Pair,
    Star,
    TwoTier { racks: u32, hosts_per_rack: u32 },
}

/// The time of an arrival, in ns, and the packet.
pub(super) type Arrival = (u64, Packet);

#[derive(Debug)]
enum What {
    Departure,
    Arrival(Packet),
}

#[derive(Debug)]
struct Event {
    /// In parts of a nanosecond: see `Reference::parts`.
    at: u128,
    /// Departures have sequence number 0, so they come before arrivals at the same time.
    sequence: u64,
    port: usize,
    what: What,
}

#[derive(Debug)]
struct Port {
    node: Node,
    peer: Node,
    rate_mbps: u64,
    delay_nanos: u64,
    /// Sequence numbers and packets. The first packet is being sent if `sending`.
    queue: VecDeque<(u64, Packet)>,
    sending: bool,
    stopped: bool,
}

impl Port {
    fn queued_bytes(&self) -> u64 {
        self.queue.iter().map(|(_, packet)| packet.wire_bytes()).sum()
    }
}

#[derive(Debug)]
pub(super) struct Reference {
    shape: Shape,
    hosts: u32,
    nic_packets: usize,
    switches: Vec<SwitchConfig>,
    ports: Vec<Port>,
    events: Vec<Event>,
    /// Parts per nanosecond: a number that all rates divide.
    parts: u128,
    sequence: u64,
    pub(super) stats: NetworkStats,
}

impl Reference {
    pub(super) fn new(shape: Shape, topology: &Topology) -> Self {
        let ports = topology.ports().map(|(index, node, peer)| {
            let link = topology.cables[index as usize / 2].link;
            let (rate_mbps, delay_nanos) = (link.rate_mbps, link.delay_nanos);
            let queue = VecDeque::new();
            Port { node, peer, rate_mbps, delay_nanos, queue, sending: false, stopped: false }
        });
        let mut rates: Vec<u64> =
            topology.cables.iter().map(|cable| cable.link.rate_mbps).collect();
        rates.sort_unstable();
        rates.dedup();
        Self {
            shape,
            hosts: topology.hosts(),
            nic_packets: topology.nic_packets as usize,
            switches: topology.switches.clone(),
            ports: ports.collect(),
            events: Vec::new(),
            parts: rates.into_iter().map(u128::from).product(),
            sequence: 0,
            stats: NetworkStats::default(),
        }
    }

    pub(super) fn send(&mut self, now: u64, at_host: u32, packet: Packet) {
        self.stats.sent += 1;
        let nic = self.port(|port| port.node == Node::Host(at_host));
        if packet.to.host >= self.hosts {
            self.stats.dropped_unreachable += 1;
        } else if self.ports[nic].queue.len() >= self.nic_packets {
            self.stats.dropped_full_nic += 1;
        } else {
            self.join(now, nic, packet);
        }
    }

    pub(super) fn stop(&mut self, link: LinkId) {
        for index in [2 * link.0, 2 * link.0 + 1] {
            self.ports[index as usize].stopped = true;
        }
    }

    pub(super) fn resume(&mut self, now: u64, link: LinkId) {
        for index in [2 * link.0, 2 * link.0 + 1] {
            self.ports[index as usize].stopped = false;
            self.send_next(u128::from(now) * self.parts, index as usize);
        }
    }

    /// Processes all events up to and including `until`.
    pub(super) fn run(&mut self, until: u64, out: &mut Vec<Arrival>) {
        loop {
            let next = self.events.iter().enumerate().min_by_key(|(_, e)| (e.at, e.sequence));
            let Some((place, _)) =
                next.filter(|(_, event)| event.at <= u128::from(until) * self.parts)
            else {
                break;
            };
            let event = self.events.swap_remove(place);
            match event.what {
                What::Departure => self.depart(event.at, event.port),
                What::Arrival(packet) => {
                    // Arrivals are at whole nanoseconds.
                    let now = (event.at / self.parts) as u64;
                    self.arrive(now, self.ports[event.port].peer, packet, out);
                }
            }
        }
        let queued: usize = self.ports.iter().map(|port| port.queue.len()).sum();
        let flying = self.events.iter().filter(|event| matches!(event.what, What::Arrival(_)));
        self.stats.in_flight = (queued + flying.count()) as u64;
    }

    fn port(&self, is: impl Fn(&Port) -> bool) -> usize {
        self.ports.iter().position(is).expect("every node has a port")
    }

    fn join(&mut self, now: u64, index: usize, packet: Packet) {
        self.sequence += 1;
        self.ports[index].queue.push_back((self.sequence, packet));
        self.send_next(u128::from(now) * self.parts, index);
    }

    fn send_next(&mut self, at: u128, index: usize) {
        let port = &mut self.ports[index];
        if port.sending || port.stopped {
            return;
        }
        let Some((_, packet)) = port.queue.front() else { return };
        port.sending = true;
        let at =
            at + u128::from(packet.wire_bytes()) * 8_000 * self.parts / u128::from(port.rate_mbps);
        self.events.push(Event { at, sequence: 0, port: index, what: What::Departure });
    }

    fn depart(&mut self, at: u128, index: usize) {
        let port = &mut self.ports[index];
        let (sequence, packet) = port.queue.pop_front().expect("a packet was being sent");
        port.sending = false;
        let arrives = (at.div_ceil(self.parts) + u128::from(port.delay_nanos)) * self.parts;
        let what = What::Arrival(packet);
        self.events.push(Event { at: arrives, sequence, port: index, what });
        self.send_next(at, index);
    }

    fn arrive(&mut self, now: u64, at: Node, mut packet: Packet, out: &mut Vec<Arrival>) {
        let switch = match at {
            Node::Host(host) if host == packet.to.host => {
                self.stats.delivered += 1;
                return out.push((now, packet));
            }
            Node::Host(_) => {
                self.stats.dropped_unreachable += 1;
                return;
            }
            Node::Switch(switch) => switch,
        };
        let hop = self.next_hop(switch, packet.to.host);
        let index = self.port(|port| port.node == at && port.peer == hop);
        let config = self.switches[switch as usize];
        let used: u64 =
            self.ports.iter().filter(|port| port.node == at).map(Port::queued_bytes).sum();
        let free = config.buffer_bytes - used;
        let queued = self.ports[index].queued_bytes();
        // The alphas of the tests are multiples of 1/8, so this comparison is exact.
        if queued * 8 >= (config.alpha * 8.0) as u64 * free {
            self.stats.dropped_full_port += 1;
        } else if packet.wire_bytes() > free {
            self.stats.dropped_full_buffer += 1;
        } else {
            if queued > config.mark_bytes && !packet.marked {
                packet.marked = true;
                self.stats.marked += 1;
            }
            let peak = self.stats.peak_queue_bytes.max(queued + packet.wire_bytes());
            self.stats.peak_queue_bytes = peak;
            self.join(now, index, packet);
        }
    }

    fn next_hop(&self, switch: u32, host: u32) -> Node {
        match self.shape {
            Shape::Pair => unreachable!("a pair has no switch"),
            Shape::Star => Node::Host(host),
            Shape::TwoTier { racks, hosts_per_rack } => {
                let rack = host / hosts_per_rack;
                if switch == racks {
                    Node::Switch(rack)
                } else if switch == rack {
                    Node::Host(host)
                } else {
                    Node::Switch(racks)
                }
            }
        }
    }
}

/// Processes all events of `network` up to and including `until`.
pub(super) fn run(network: &mut Network, until: u64, out: &mut Vec<Arrival>) {
    while let Some(at) = network.next_event().filter(|at| at.as_nanos() <= until) {
        if let Some(packet) = network.step() {
            out.push((at.as_nanos(), packet));
        }
    }
}
