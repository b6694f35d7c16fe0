//! Measures the time of a hop.

use erpc_core::time::Instant;

use super::{Link, Network, Packet, SwitchConfig, Topology};
use crate::{Random, SimRoute};

/// Processor time of this thread, in ns.
fn processor_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// A measurement: `cargo test --release -p erpc-sim speed -- --ignored --nocapture`. The measured
/// time includes making the packets.
#[test]
#[ignore = "measures"]
fn speed() {
    let link = Link { rate_mbps: 25_000, delay_nanos: 300 };
    let cx4 = Topology::two_tier(5, 20, 2, link, SwitchConfig::default());
    let small = SwitchConfig { buffer_bytes: 1_000_000, ..SwitchConfig::default() };
    let star = Topology::star(1_001, link, small);
    let cases: [(&str, Topology, u64, u32); 5] = [
        ("pair, 64 in flight", Topology::pair(link), 64, 2),
        ("two tiers, 100 in flight", cx4.clone(), 100, 100),
        ("two tiers, 5,000 in flight", cx4.clone(), 5_000, 100),
        ("two tiers, 100,000 in flight", cx4, 100_000, 100),
        ("incast of 1,000", star, 20_000, 1),
    ];
    for (name, topology, flying, receivers) in cases {
        let mut network = Network::new(&topology);
        let hosts = u64::from(topology.hosts());
        let mut random = Random::new(1);
        let mut now = Instant::ZERO;
        let mut steps = 0_u64;
        let start = processor_nanos();
        while steps < 10_000_000 {
            while network.stats().in_flight < flying {
                let from = random.below(hosts) as u32;
                let to = (from + 1 + random.below(hosts - 1) as u32) % hosts as u32;
                let mut bytes = network.buffer();
                bytes.resize(random.within(20, 80) as usize, 0);
                let (from, to) = (SimRoute::new(from, 1), SimRoute::new(to % receivers, 1));
                network.send(now, from.host, Packet::new(from, to, bytes));
            }
            now = network.next_event().unwrap();
            if let Some(packet) = network.step() {
                network.recycle(packet.bytes);
            }
            steps += 1;
        }
        let nanos = processor_nanos() - start;
        let stats = network.stats();
        network.check();
        println!(
            "{name}: {} ns per hop, {} ns per packet; {} packets delivered, {} dropped",
            nanos / steps,
            nanos / stats.sent,
            stats.delivered,
            stats.dropped(),
        );
    }
}
