//! Compares random networks under random load with the [reference](super::reference).

use std::collections::BTreeMap;

use erpc_core::time::Instant;
use proptest::prelude::*;

use super::reference::{Arrival, Reference, Shape, run};
use super::{Link, LinkId, Network, Packet, SwitchConfig, Topology};
use crate::SimRoute;

/// A time in ns, later than the last event of every run.
const END: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
enum Op {
    Send { from: u32, to: u32, len: usize, count: u8 },
    Stop(u32),
    Resume(u32),
}

/// The numbers of hosts and links in an operation are arbitrary. They are taken modulo the number
/// of hosts or links.
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (any::<u32>(), any::<u32>(), len(), 1_u8..6)
            .prop_map(|(from, to, len, count)| Op::Send { from, to, len, count }),
        // Many packets to one receiver, so that queues fill.
        10 => (any::<u32>(), len(), 1_u8..12)
            .prop_map(|(from, len, count)| Op::Send { from, to: 0, len, count }),
        1 => any::<u32>().prop_map(Op::Stop),
        1 => any::<u32>().prop_map(Op::Resume),
    ]
}

/// Often a packet that takes 800 ns at 10 Gbit/s, so that events coincide.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![Just(954), 4_usize..1_500]
}

fn wait() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), 0_u64..500, 0_u64..20_000, (0_u64..10).prop_map(|k| 800 * k)]
}

fn topology() -> impl Strategy<Value = (Shape, Topology)> {
    let delay = prop_oneof![(0_u64..5).prop_map(|k| 400 * k), 0_u64..3_000];
    let link = (prop::sample::select(vec![1_000, 7_000, 10_000, 10_000, 25_000, 40_000]), delay)
        .prop_map(|(rate_mbps, delay_nanos)| Link { rate_mbps, delay_nanos });
    let switch = (2_000_u64..40_000, 1_u32..40, prop_oneof![Just(u64::MAX), 0_u64..10_000])
        .prop_map(|(buffer_bytes, eighths, mark_bytes)| {
            let alpha = f64::from(eighths) / 8.0;
            SwitchConfig { buffer_bytes, alpha, mark_bytes }
        });
    (link, switch, 0_u32..3, 1_u32..9, 1_u32..5, 1_u32..4, 1_u32..40).prop_map(
        |(link, switch, shape, hosts, racks, oversubscription, nic)| {
            let (shape, topology) = match shape {
                0 => (Shape::Pair, Topology::pair(link)),
                1 => (Shape::Star, Topology::star(hosts, link, switch)),
                _ => {
                    let two = Topology::two_tier(racks, hosts, oversubscription, link, switch);
                    (Shape::TwoTier { racks, hosts_per_rack: hosts }, two)
                }
            };
            (shape, topology.nic_packets(nic))
        },
    )
}

/// Applies the same operations to a network and to the reference, and compares them after each
/// step.
struct Both {
    network: Network,
    reference: Reference,
    hosts: u32,
    now: u64,
    next: u32,
    arrived: Vec<Arrival>,
    expected: Vec<Arrival>,
}

impl Both {
    fn advance(&mut self, until: u64) {
        self.now = until;
        run(&mut self.network, until, &mut self.arrived);
        self.reference.run(until, &mut self.expected);
        self.network.check();
        assert_eq!(self.arrived, self.expected);
        assert_eq!(*self.network.stats(), self.reference.stats);
    }

    fn act(&mut self, op: &Op) {
        let now = Instant::from_nanos(self.now);
        let links = self.network.links();
        match *op {
            Op::Send { from, to, len, count } => {
                for _ in 0..count {
                    self.next += 1;
                    let mut bytes = self.network.buffer();
                    bytes.extend_from_slice(&self.next.to_le_bytes());
                    bytes.resize(len, 0);
                    // One host too many: some destinations do not exist.
                    let (from, to) = (from % self.hosts, to % (self.hosts + 1));
                    let (from_route, to) = (SimRoute::new(from, 1), SimRoute::new(to, 1));
                    let packet = Packet::new(from_route, to, bytes);
                    self.network.send(now, from, packet.clone());
                    self.reference.send(self.now, from, packet);
                }
            }
            Op::Stop(link) => {
                self.network.stop_link(now, LinkId(link % links));
                self.reference.stop(LinkId(link % links));
            }
            Op::Resume(link) => {
                self.network.resume_link(now, LinkId(link % links));
                self.reference.resume(self.now, LinkId(link % links));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_network_behaves_as_the_reference(
        (shape, topology) in topology(),
        ops in prop::collection::vec((wait(), op()), 1..80),
    ) {
        let mut both = Both {
            network: Network::new(&topology),
            reference: Reference::new(shape, &topology),
            hosts: topology.hosts(),
            now: 0,
            next: 0,
            arrived: Vec::new(),
            expected: Vec::new(),
        };
        for (wait, op) in &ops {
            both.advance(both.now + wait);
            both.act(op);
            both.network.check();
        }
        both.advance(both.now + 1_000);
        for link in 0..both.network.links() {
            both.act(&Op::Resume(link));
        }
        both.advance(END);
        prop_assert_eq!(both.network.stats().in_flight, 0);
        prop_assert_eq!(both.network.next_event(), None);

        // Packets between two hosts arrive in the order in which they were sent.
        let mut last = BTreeMap::new();
        for (_, packet) in &both.arrived {
            let number = u32::from_le_bytes(packet.bytes[..4].try_into().unwrap());
            let before = last.insert((packet.from, packet.to), number);
            prop_assert!(before < Some(number), "{:?} before {}", before, number);
        }
    }
}
