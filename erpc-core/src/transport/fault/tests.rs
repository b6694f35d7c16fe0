use super::*;
use crate::transport::mem::{MemConfig, MemHub, MemTransport};

/// A sender with faults, a receiver with faults, and numbered packets in between.
struct Pair {
    sender: Faulty<MemTransport>,
    receiver: Faulty<MemTransport>,
}

impl Pair {
    fn new(plan: FaultPlan) -> Self {
        let hub = MemHub::new();
        let port = || hub.port(MemConfig::default());
        Self { sender: Faulty::new(port(), plan), receiver: Faulty::new(port(), plan) }
    }

    /// Sends `count` packets of `len` bytes, one flush each, and returns what arrives.
    fn run(&mut self, count: u32, len: usize) -> Vec<Vec<u8>> {
        let to = self.receiver.local_route();
        let mut arrived = Vec::new();
        for number in 0..count {
            let mut bytes = vec![0xa5; len];
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            let (_, tx) = self.sender.split();
            tx.push_bytes(&to, &bytes);
            tx.flush();
            self.receive(&mut arrived);
        }
        self.sender.wait(Some(Duration::ZERO));
        self.receive(&mut arrived);
        self.receiver.wait(Some(Duration::ZERO));
        self.receive(&mut arrived);
        arrived
    }

    fn receive(&mut self, arrived: &mut Vec<Vec<u8>>) {
        let from = self.sender.local_route();
        let (rx, _) = self.receiver.split();
        for index in 0..rx.burst() {
            let packet = rx.packet(index);
            assert_eq!(packet.route, from);
            arrived.push(packet.bytes.to_vec());
        }
    }

    fn stats(&self) -> (FaultCounts, FaultCounts) {
        (self.sender.handle().stats().tx, self.receiver.handle().stats().rx)
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().unwrap())
}

#[test]
fn without_faults_it_is_transparent() {
    let mut pair = Pair::new(FaultPlan::new(1));
    let arrived = pair.run(1_000, 100);
    assert_eq!(
        arrived.iter().map(|bytes| number(bytes)).collect::<Vec<_>>(),
        (0..1_000).collect::<Vec<_>>()
    );
    assert_eq!(pair.stats(), Default::default());
    let inner = MemHub::new().port(MemConfig::default());
    assert_eq!(pair.sender.capabilities().max_datagram, inner.capabilities().max_datagram);
    assert_eq!(pair.sender.stats().tx_packets, 1_000);
}

#[test]
fn packets_are_dropped_in_each_direction() {
    let drop = Faults::none().drop(0.1);
    for plan in [FaultPlan::new(2).sending(drop), FaultPlan::new(2).receiving(drop)] {
        let mut pair = Pair::new(plan);
        let arrived = pair.run(2_000, 64).len() as u64;
        let (tx, rx) = pair.stats();
        assert_eq!(arrived + tx.dropped + rx.dropped, 2_000);
        assert!((150..250).contains(&(tx.dropped + rx.dropped)), "{tx:?} {rx:?}");
        assert!(tx.dropped == 0 || rx.dropped == 0);
    }
}

#[test]
fn packets_are_duplicated_in_each_direction() {
    let duplicate = Faults::none().duplicate(0.2);
    for plan in [FaultPlan::new(3).sending(duplicate), FaultPlan::new(3).receiving(duplicate)] {
        let mut pair = Pair::new(plan);
        let arrived = pair.run(1_000, 64);
        let (tx, rx) = pair.stats();
        let duplicated = tx.duplicated + rx.duplicated;
        assert!(duplicated > 100);
        assert_eq!(arrived.len() as u64, 1_000 + duplicated);
    }
}

#[test]
fn packets_are_overtaken_but_not_lost() {
    let reorder = Faults::none().reorder(0.1, 5);
    for plan in [FaultPlan::new(4).sending(reorder), FaultPlan::new(4).receiving(reorder)] {
        let mut pair = Pair::new(plan);
        let mut numbers: Vec<_> = pair.run(1_000, 64).iter().map(|bytes| number(bytes)).collect();
        let (tx, rx) = pair.stats();
        assert!(tx.reordered + rx.reordered > 50);
        assert!(!numbers.is_sorted());
        let furthest = numbers.iter().enumerate().map(|(at, &n)| at.abs_diff(n as usize)).max();
        assert!(furthest <= Some(5 + 5), "held back longer than asked for: {furthest:?}");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
    }
}

#[test]
fn bytes_that_arrive_are_damaged() {
    let faults = Faults::none().corrupt(0.1).truncate(0.1);
    for plan in [FaultPlan::new(5).sending(faults), FaultPlan::new(5).receiving(faults)] {
        let mut pair = Pair::new(plan);
        let (mut flipped, mut cut) = (0, 0);
        for (sent, arrived) in pair.run(1_000, 200).iter().enumerate() {
            let mut intact = vec![0xa5; 200];
            intact[..4].copy_from_slice(&(sent as u32).to_le_bytes());
            if arrived.len() < intact.len() {
                cut += 1;
                continue;
            }
            let bits: u32 = arrived.iter().zip(&intact).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert!(bits <= 1);
            flipped += u64::from(bits);
        }
        let (tx, rx) = pair.stats();
        assert_eq!((flipped, cut), (tx.corrupted + rx.corrupted, tx.truncated + rx.truncated));
        assert!(flipped > 50 && cut > 50);
    }
}

#[test]
fn one_seed_is_one_history() {
    let faults = Faults::none().drop(0.1).duplicate(0.1).reorder(0.1, 4).corrupt(0.1).truncate(0.1);
    let history = |seed| Pair::new(FaultPlan::new(seed).both(faults)).run(500, 64);
    assert_eq!(history(6), history(6));
    assert_ne!(history(6), history(7));
}

#[test]
fn a_fault_does_not_change_what_another_decides() {
    let drops = |faults: Faults| {
        let mut pair = Pair::new(FaultPlan::new(8).receiving(faults.drop(0.1)));
        pair.run(500, 64);
        pair.stats().1.dropped
    };
    assert_eq!(drops(Faults::none()), drops(Faults::none().duplicate(0.5).corrupt(0.5)));
}

#[test]
fn a_plan_can_be_changed_from_outside() {
    let mut pair = Pair::new(FaultPlan::new(9).receiving(Faults::none().drop(1.0)));
    assert!(pair.run(100, 64).is_empty(), "a partition");
    pair.receiver.handle().set_plan(FaultPlan::new(9));
    assert_eq!(pair.run(100, 64).len(), 100, "healed");
    assert_eq!(pair.stats().1.dropped, 100);
}

#[test]
fn a_packet_held_back_comes_even_if_no_other_does() {
    let mut pair = Pair::new(FaultPlan::new(10).both(Faults::none().reorder(1.0, 1_000)));
    let to = pair.receiver.local_route();
    let (_, tx) = pair.sender.split();
    tx.push_bytes(&to, &[1; 64]);
    let mut arrived = Vec::new();
    for _ in 0..40 {
        pair.sender.split().1.flush();
        pair.receive(&mut arrived);
    }
    assert_eq!(arrived.len(), 1);
}
