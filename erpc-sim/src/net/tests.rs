//! Networks whose numbers are easy to calculate by hand.

use erpc_core::time::Instant;

use super::network::SPARE_BUFFERS;
use super::reference::{Arrival, run};
use super::{Link, LinkId, Network, Packet, SwitchConfig, Topology, WIRE_OVERHEAD_BYTES};
use crate::{Random, SimRoute};

/// 1,000 bytes on this cable take 800 ns.
const TEN_GIGABIT: Link = Link { rate_mbps: 10_000, delay_nanos: 500 };
/// The payload of a packet with 1,000 bytes on the cable.
const LEN: usize = 1_000 - WIRE_OVERHEAD_BYTES as usize;
const NEVER: u64 = u64::MAX;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn packet(from: u32, to: u32, len: usize) -> Packet {
    let (from, to) = (SimRoute::new(from, 7), SimRoute::new(to, 7));
    Packet::new(from, to, vec![0; len])
}

/// Sends a packet whose first byte is `label`.
fn send(network: &mut Network, now: u64, from: u32, to: u32, label: u8) {
    let mut packet = packet(from, to, LEN);
    packet.bytes[0] = label;
    network.send(at(now), from, packet);
}

/// Runs until no event remains. Returns the times and labels of the arrivals.
fn drain(network: &mut Network) -> Vec<(u64, u8)> {
    let mut arrived = Vec::new();
    run(network, NEVER, &mut arrived);
    network.check();
    arrived.iter().map(|(nanos, packet)| (*nanos, packet.bytes[0])).collect()
}

fn no_marks(buffer_bytes: u64, alpha: f64) -> SwitchConfig {
    SwitchConfig { buffer_bytes, alpha, mark_bytes: u64::MAX }
}

#[test]
fn a_pair_is_exact_to_the_nanosecond() {
    let mut network = Network::new(&Topology::pair(TEN_GIGABIT));
    assert_eq!((network.links(), network.next_event()), (1, None));
    send(&mut network, 100, 0, 1, 1);
    send(&mut network, 100, 0, 1, 2);
    // A packet in the other direction does not wait for these two.
    send(&mut network, 150, 1, 0, 3);
    // At 5,000 ns the cable is free again.
    send(&mut network, 5_000, 0, 1, 4);
    assert_eq!(network.next_event(), Some(at(1_400)));
    assert_eq!(drain(&mut network), [(1_400, 1), (1_450, 3), (2_200, 2), (6_300, 4)]);
    assert_eq!(network.stats().delivered, 4);
}

/// 47 bytes at 25 Gbit/s are 15.04 ns: fractions add up over a burst and are rounded up once.
#[test]
fn fractions_of_a_nanosecond_are_kept() {
    let mut network = Network::new(&Topology::pair(Link { rate_mbps: 25_000, delay_nanos: 10 }));
    for _ in 0..100 {
        network.send(at(0), 0, packet(0, 1, 1));
    }
    let mut arrived = Vec::new();
    run(&mut network, NEVER, &mut arrived);
    let times: Vec<u64> = arrived.iter().map(|(nanos, _)| *nanos).collect();
    let expected: Vec<u64> = (1..=100_u64).map(|k| (k * 1_504).div_ceil(100) + 10).collect();
    assert_eq!(times, expected);
}

#[test]
fn a_switch_stores_and_forwards() {
    let star = Topology::star(3, TEN_GIGABIT, SwitchConfig::default());
    let mut network = Network::new(&star);
    send(&mut network, 0, 0, 2, 1);
    send(&mut network, 10, 1, 2, 2);
    // From a host to itself, through the switch.
    send(&mut network, 20, 1, 1, 3);
    assert_eq!(drain(&mut network), [(2_600, 1), (3_400, 2), (3_410, 3)]);

    // Host, switch of rack 0, spine, switch of rack 1, host. The upper cables are as fast as two
    // host cables.
    let mut network =
        Network::new(&Topology::two_tier(2, 4, 2, TEN_GIGABIT, SwitchConfig::default()));
    assert_eq!(network.links(), 10);
    send(&mut network, 0, 1, 6, 1);
    send(&mut network, 0, 0, 3, 2);
    assert_eq!(drain(&mut network), [(2_600, 2), (2 * 1_300 + 2 * 900, 1)]);
}

#[test]
fn a_packet_to_an_unknown_host_is_dropped() {
    let mut network = Network::new(&Topology::pair(TEN_GIGABIT));
    send(&mut network, 0, 0, 2, 1);
    assert_eq!(network.next_event(), None);
    send(&mut network, 0, 0, 0, 2);
    assert_eq!(drain(&mut network), []);
    assert_eq!(network.stats().dropped_unreachable, 2);
    assert_eq!(network.stats().dropped(), 2);
}

/// A forged source address has no effect.
#[test]
fn the_network_ignores_the_source_address() {
    let mut network = Network::new(&Topology::star(3, TEN_GIGABIT, SwitchConfig::default()));
    network.send(at(0), 1, packet(77, 2, LEN));
    assert_eq!(drain(&mut network), [(2_600, 0)]);
}

#[test]
fn a_full_transmit_queue_drops() {
    let mut network = Network::new(&Topology::pair(TEN_GIGABIT).nic_packets(3));
    (1..=5).for_each(|label| send(&mut network, 0, 0, 1, label));
    assert_eq!(network.stats().dropped_full_nic, 2);
    // The first packet has been sent at 800 ns, so there is room for one.
    send(&mut network, 799, 0, 1, 6);
    assert_eq!(network.stats().dropped_full_nic, 3);
    send(&mut network, 800, 0, 1, 7);
    send(&mut network, 800, 0, 1, 8);
    assert_eq!(network.stats().dropped_full_nic, 4);
    assert_eq!(drain(&mut network), [(1_300, 1), (2_100, 2), (2_900, 3), (3_700, 7)]);
}

/// Four senders send five packets each to host 0, over one switch.
fn incast(switch: SwitchConfig) -> (Network, Vec<Arrival>) {
    let mut network = Network::new(&Topology::star(5, TEN_GIGABIT, switch));
    for sender in 1..=4 {
        (0..5).for_each(|_| send(&mut network, 0, sender, 0, sender as u8));
    }
    let mut arrived = Vec::new();
    run(&mut network, NEVER, &mut arrived);
    network.check();
    (network, arrived)
}

/// A queue in a buffer of 10,000 bytes may grow while it is below the free rest, so below 5,000.
/// Every 800 ns one packet leaves, and directly afterwards four packets arrive. Of these, the queue
/// takes 4 at first, then 2, then 1 each time.
#[test]
fn incast_drops_by_the_dynamic_threshold() {
    let (network, arrived) = incast(no_marks(10_000, 1.0));
    let labels: Vec<u8> = arrived.iter().map(|(_, packet)| packet.bytes[0]).collect();
    assert_eq!(labels, [1, 2, 3, 4, 1, 2, 1, 1, 1]);
    let stats = network.stats();
    assert_eq!((stats.sent, stats.delivered, stats.dropped_full_port), (20, 9, 11));
    assert_eq!((stats.peak_queue_bytes, stats.dropped(), stats.marked), (5_000, 11, 0));
    // The packets arrive one after another, without a gap.
    let times: Vec<u64> = arrived.iter().map(|(nanos, _)| *nanos).collect();
    assert_eq!(times, (0..9).map(|place| 2_600 + 800 * place).collect::<Vec<_>>());
}

/// The peak is alpha / (1 + alpha) of 10,000 bytes, rounded up to packets.
#[test]
fn a_smaller_alpha_is_a_smaller_share() {
    for (alpha, peak) in [(0.125, 2_000), (0.25, 2_000), (0.5, 4_000), (1.0, 5_000), (4.0, 8_000)] {
        let (network, _) = incast(no_marks(10_000, alpha));
        assert_eq!(network.stats().peak_queue_bytes, peak, "alpha {alpha}");
    }
    // This alpha is half of the unit of alphas, and is rounded up to one unit. So an empty queue
    // can take one packet.
    let (network, _) = incast(no_marks(10_000, 1.0 / 131_072.0));
    assert_eq!(network.stats().peak_queue_bytes, 1_000);
    let (network, arrived) = incast(no_marks(10_000, 0.0));
    assert_eq!((network.stats().dropped_full_port, arrived.len()), (20, 0));
}

/// The threshold would allow a tenth packet, but the buffer has room for only half of it.
#[test]
fn no_threshold_overfills_the_buffer() {
    let (network, _) = incast(no_marks(9_500, 100.0));
    let stats = network.stats();
    assert_eq!((stats.peak_queue_bytes, stats.dropped_full_port), (9_000, 0));
    assert!(stats.dropped_full_buffer > 0);
}

/// Two busy ports get a third of the buffer each; one busy port gets half.
#[test]
fn busy_ports_share_the_buffer() {
    let mut peaks = Vec::new();
    for receivers in [1, 2] {
        let mut network = Network::new(&Topology::star(10, TEN_GIGABIT, no_marks(12_000, 1.0)));
        for round in 0..8 {
            for sender in 0..4 * receivers {
                send(&mut network, 800 * round, 2 + sender, sender % receivers, 0);
            }
        }
        drain(&mut network);
        peaks.push(network.stats().peak_queue_bytes);
    }
    assert_eq!(peaks, [6_000, 4_000]);
}

/// A packet that has left a switch port takes no more room in the switch's buffer. That holds while
/// the packet is still on the cable, and if no other packet has used the port since.
#[test]
fn a_packet_that_has_left_makes_room() {
    let slow = Link { delay_nanos: 1_000_000, ..TEN_GIGABIT };
    let mut network = Network::new(&Topology::star(4, slow, no_marks(9_000, 1.0)));
    // Four packets in a row for host 1. Each one leaves before the next one arrives.
    (0..4).for_each(|_| send(&mut network, 0, 0, 1, 1));
    // Eight packets for host 3 from two hosts, while the four are on the cable. The last of the
    // eight finds 4,000 bytes in the queue. That is below the free 5,000 bytes only if the buffer
    // holds nothing else.
    for _ in 0..4 {
        send(&mut network, 100_000, 0, 3, 2);
        send(&mut network, 100_000, 2, 3, 3);
    }
    assert_eq!(drain(&mut network).len(), 12);
    assert_eq!(network.stats().dropped(), 0);
}

/// The buffer holds one packet. It leaves one port at the very nanosecond at which the next packet
/// arrives for another port.
#[test]
fn a_leaving_packet_makes_room_immediately() {
    for (sent, dropped) in [(799, 1), (800, 0)] {
        let mut network = Network::new(&Topology::star(4, TEN_GIGABIT, no_marks(1_000, 4.0)));
        send(&mut network, 0, 0, 1, 1);
        send(&mut network, sent, 2, 3, 2);
        drain(&mut network);
        assert_eq!(network.stats().dropped_full_port, dropped, "sent at {sent}");
    }
}

/// Packets that find at most 2,000 bytes in the queue are not marked; the others are.
#[test]
fn marks_begin_above_the_threshold() {
    let marking = SwitchConfig { mark_bytes: 2_000, ..no_marks(100_000, 1.0) };
    let (network, arrived) = incast(marking);
    // The first four packets find 0, 1, 2 and 3 packets in the queue, the others 3 or more.
    let marked: Vec<bool> = arrived.iter().map(|(_, packet)| packet.marked).collect();
    assert_eq!(marked[..4], [false, false, false, true]);
    assert!(marked[4..].iter().all(|marked| *marked));
    assert_eq!(network.stats().marked, 17);
    let (network, _) = incast(SwitchConfig { mark_bytes: 19_000, ..marking });
    assert_eq!(network.stats().marked, 0);
}

/// Ten hosts send as fast as possible to ten hosts in another rack.
#[test]
fn oversubscription_makes_the_uplink_the_bottleneck() {
    const HOSTS: u64 = 10;
    for oversubscription in [1, 2, 5] {
        let rack = HOSTS as u32;
        let switch = no_marks(1_000_000, 1.0);
        let mut network =
            Network::new(&Topology::two_tier(2, rack, oversubscription, TEN_GIGABIT, switch));
        for host in 0..rack {
            (0..2_000).for_each(|_| send(&mut network, 0, host, rack + host, 0));
        }
        let mut arrived = Vec::new();
        run(&mut network, 1_600_000, &mut arrived);
        network.check();
        let (from, until) = (400_000, 1_600_000);
        let bytes: u64 = arrived
            .iter()
            .filter(|(nanos, _)| (from..until).contains(nanos))
            .map(|(_, packet)| packet.wire_bytes())
            .sum();
        let mbps = bytes * 8_000 / (until - from);
        let expected = TEN_GIGABIT.rate_mbps * HOSTS / u64::from(oversubscription);
        assert!(mbps.abs_diff(expected) * 100 <= expected, "{mbps} instead of {expected} Mbit/s");
        assert_eq!(network.stats().dropped() > 0, oversubscription > 1);
    }
}

/// Three packets join at 0 ns. The cable would begin to send them at 0, 800 and 1,600 ns, but its
/// link stops at `stop` ns.
fn three_with_a_stop_at(stop: u64) -> Network {
    let mut network = Network::new(&Topology::pair(TEN_GIGABIT));
    (1..=3).for_each(|label| send(&mut network, 0, 0, 1, label));
    network.stop_link(at(stop), LinkId(0));
    network.check();
    network
}

#[test]
fn a_stopped_link_finishes_its_packet_and_keeps_the_others() {
    let mut network = three_with_a_stop_at(1_000);
    send(&mut network, 1_200, 0, 1, 4);
    send(&mut network, 1_200, 1, 0, 5);
    assert_eq!(drain(&mut network), [(1_300, 1), (2_100, 2)]);
    assert_eq!(network.stats().in_flight, 3);
    network.resume_link(at(5_000), LinkId(0));
    assert_eq!(drain(&mut network), [(6_300, 3), (6_300, 5), (7_100, 4)]);

    // The first bit of the second packet leaves at 800 ns. So a stop at 800 ns does not hold this
    // packet.
    assert_eq!(drain(&mut three_with_a_stop_at(799)), [(1_300, 1)]);
    assert_eq!(drain(&mut three_with_a_stop_at(800)), [(1_300, 1), (2_100, 2)]);
    assert_eq!(drain(&mut three_with_a_stop_at(5_000)).len(), 3);
}

#[test]
fn a_stop_shorter_than_a_packet_leaves_no_gap() {
    let mut network = three_with_a_stop_at(1_000);
    network.stop_link(at(1_100), LinkId(0));
    network.resume_link(at(1_600), LinkId(0));
    network.resume_link(at(1_700), LinkId(0));
    assert_eq!(drain(&mut network), [(1_300, 1), (2_100, 2), (2_900, 3)]);
}

/// The port of a stopped link fills the switch up to its threshold. The other ports continue with
/// the rest of the buffer.
#[test]
fn a_stopped_link_holds_buffer_and_the_limits_apply() {
    let star = Topology::star(4, TEN_GIGABIT, no_marks(10_000, 1.0));
    let mut network = Network::new(&star);
    network.stop_link(at(0), star.host_link(0));
    (0..10).for_each(|label| send(&mut network, 0, 1, 0, label));
    (0..10).for_each(|label| send(&mut network, 10, 2, 3, label));
    assert_eq!(drain(&mut network).len(), 10);
    let stats = *network.stats();
    assert_eq!((stats.dropped_full_port, stats.in_flight), (5, 5));
    network.resume_link(at(100_000), star.host_link(0));
    let expected: Vec<_> = (0..5).map(|label| (101_300 + 800 * u64::from(label), label)).collect();
    assert_eq!(drain(&mut network), expected);
}

/// Runs a busy two-tier network whose links stop and resume. Returns all arrivals, and the
/// counters.
fn trace(seed: u64) -> (Vec<Arrival>, super::NetworkStats) {
    let mut random = Random::new(seed);
    let switch = SwitchConfig { buffer_bytes: 50_000, alpha: 0.5, mark_bytes: 10_000 };
    let mut network = Network::new(&Topology::two_tier(3, 4, 2, TEN_GIGABIT, switch));
    let mut arrived = Vec::new();
    let mut now = 0;
    for _ in 0..5_000 {
        now += random.below(200);
        run(&mut network, now, &mut arrived);
        let link = LinkId(random.below(u64::from(network.links())) as u32);
        match random.below(100) {
            0 => network.stop_link(at(now), link),
            1..=3 => network.resume_link(at(now), link),
            _ => {
                let (from, to) = (random.below(12) as u32, random.below(12) as u32);
                network.send(at(now), from, packet(from, to, random.below(1_500) as usize));
            }
        }
    }
    run(&mut network, NEVER, &mut arrived);
    network.check();
    (arrived, *network.stats())
}

#[test]
fn equal_calls_give_equal_traces() {
    let (arrived, stats) = trace(1);
    assert_eq!((&arrived, stats), (&trace(1).0, stats));
    assert_ne!(arrived, trace(2).0);
    // The runs contain enough events for the comparison to mean something.
    assert!(stats.dropped() > 100 && stats.marked > 100 && stats.delivered > 1_000, "{stats:?}");
}

#[test]
fn buffers_come_back() {
    let mut network = Network::new(&Topology::pair(TEN_GIGABIT));
    assert_eq!(network.buffer().capacity(), 0);
    let mut bytes = Vec::with_capacity(1_234);
    bytes.push(1);
    network.recycle(bytes);
    let bytes = network.buffer();
    assert_eq!((bytes.len(), bytes.capacity()), (0, 1_234));
    // The buffer of a dropped packet is reused, too.
    let mut nowhere = packet(0, 9, 0);
    nowhere.bytes = bytes;
    network.send(at(0), 0, nowhere);
    assert_eq!(network.buffer().capacity(), 1_234);
}

#[test]
fn spare_buffers_are_bounded() {
    let mut network = Network::new(&Topology::pair(TEN_GIGABIT));
    (0..=SPARE_BUFFERS).for_each(|_| network.recycle(Vec::with_capacity(1)));
    let spare = std::iter::repeat_with(|| network.buffer()).take_while(|b| b.capacity() > 0);
    assert_eq!(spare.count(), SPARE_BUFFERS);
}

#[test]
fn a_topology_numbers_its_links() {
    let pair = Topology::pair(TEN_GIGABIT);
    assert_eq!((pair.host_link(0), pair.host_link(1)), (LinkId(0), LinkId(0)));
    let two_tier = Topology::two_tier(5, 20, 2, TEN_GIGABIT, SwitchConfig::default());
    assert_eq!((two_tier.hosts(), two_tier.links()), (100, 105));
    assert_eq!(two_tier.host_link(99), LinkId(99));
    assert_eq!(two_tier.uplink(0), Some(LinkId(100)));
    assert_eq!((two_tier.uplink(4), two_tier.uplink(5)), (Some(LinkId(104)), None));
    assert_eq!((pair.host_rate(1), two_tier.host_rate(99)), (1_250_000_000, 1_250_000_000));
}

/// A stopped uplink separates the racks and nothing else.
#[test]
fn a_stopped_uplink_separates_racks() {
    let topology = Topology::two_tier(2, 2, 1, TEN_GIGABIT, SwitchConfig::default());
    let mut network = Network::new(&topology);
    network.stop_link(at(0), topology.uplink(1).unwrap());
    for (label, (from, to)) in [(0, 1), (0, 2), (3, 2), (3, 1)].into_iter().enumerate() {
        send(&mut network, 0, from, to, label as u8);
    }
    let labels: Vec<u8> = drain(&mut network).iter().map(|(_, label)| *label).collect();
    assert_eq!(labels, [0, 2]);
    assert_eq!(network.stats().in_flight, 2);
    network.resume_link(at(1_000_000), topology.uplink(1).unwrap());
    let mut labels: Vec<u8> = drain(&mut network).iter().map(|(_, label)| *label).collect();
    labels.sort_unstable();
    assert_eq!(labels, [1, 3]);
}

#[test]
#[should_panic(expected = "a rate of 0")]
fn a_cable_without_a_rate_is_refused() {
    // The uplinks have a tenth of 5 Mbit/s, rounded down.
    let link = Link { rate_mbps: 5, ..TEN_GIGABIT };
    let _ = Topology::two_tier(2, 1, 10, link, SwitchConfig::default());
}

#[test]
#[should_panic(expected = "time runs backwards")]
fn time_does_not_run_backwards() {
    let mut network = Network::new(&Topology::pair(TEN_GIGABIT));
    send(&mut network, 0, 0, 1, 0);
    drain(&mut network);
    send(&mut network, 1_299, 0, 1, 0);
}
