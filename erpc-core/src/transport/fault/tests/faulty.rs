//! Tests over the memory transport, which delivers packets in order and without loss.

use bytes::BufMut;

use super::*;
use crate::buf::MsgBuf;
use crate::clock;
use crate::time::Instant;
use crate::transport::mem::{MemConfig, MemHub, MemTransport};
use crate::transport::{MAX_BURST, MIN_DATAGRAM};

/// A sender, a receiver, and a link that carries numbered packets.
struct Pair {
    sender: Faulty<MemTransport>,
    receiver: Faulty<MemTransport>,
}

const SHORT: usize = 64;
/// Length of a packet that is too long for `push_bytes`, and is sent from a msgbuf.
const LONG: usize = 3_000;

impl Pair {
    fn new(plan: FaultPlan) -> Self {
        let hub = MemHub::new();
        let config = MemConfig::default().entries(2_048);
        let port = || Faulty::new(hub.port(config), plan.clone());
        Self { sender: port(), receiver: port() }
    }

    /// Sends a packet: a short one with `push_bytes`, a long one from a msgbuf.
    fn send(&mut self, bytes: &[u8]) {
        let to = self.receiver.local_route();
        let (_, tx) = self.sender.split();
        if bytes.len() <= MIN_DATAGRAM {
            tx.push_bytes(&to, bytes);
        } else {
            let mut message = MsgBuf::detached(bytes.len()).expect("memory");
            message.put_slice(bytes);
            let (header, data) = message.as_slice().split_at(100);
            tx.push(&to, TxPacket::new(&message, header, data));
        }
        tx.flush();
    }

    /// Receives one burst and returns the number of its packets.
    fn receive(&mut self, arrived: &mut Vec<Vec<u8>>) -> usize {
        let from = self.sender.local_route();
        let (rx, _) = self.receiver.split();
        let count = rx.burst();
        for index in 0..count {
            let packet = rx.packet(index);
            assert_eq!(packet.route, from);
            arrived.push(packet.bytes.to_vec());
        }
        count
    }

    /// Sends packets and returns those that arrive without waiting.
    fn run(&mut self, packets: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
        let mut arrived = Vec::new();
        for packet in packets {
            self.send(&packet);
            while self.receive(&mut arrived) > 0 {}
        }
        arrived
    }

    fn stats(&self) -> (FaultCounts, FaultCounts) {
        (self.sender.handle().stats().tx, self.receiver.handle().stats().rx)
    }
}

fn packet(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().unwrap())
}

/// Short and long packets alternate.
fn mixed(count: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|n| packet(n, if n % 2 == 0 { SHORT } else { LONG }))
}

/// All faults that add no delay.
fn prompt() -> Faults {
    let faults = Faults::none().drop(0.1).bursts(0.02, 3.0, 0.9).duplicate(0.1, 5, Duration::ZERO);
    faults.corrupt(0.1).truncate(0.1).extend(0.1)
}

#[test]
fn a_transport_without_faults_is_transparent() {
    let mut pair = Pair::new(FaultPlan::new(1));
    let sent: Vec<_> = mixed(1_000).collect();
    assert_eq!(pair.run(sent.iter().cloned()), sent);
    assert_eq!(pair.stats(), Default::default());
    assert_eq!(pair.sender.stats().tx_packets, 1_000);
}

#[test]
fn a_transport_applies_the_decisions_of_its_injectors() {
    for (plan, is_sending) in [
        (FaultPlan::new(2).sending(prompt()), true),
        (FaultPlan::new(3).receiving(prompt()), false),
    ] {
        let mut injector = match is_sending {
            true => plan.tx_injector(Instant::ZERO),
            false => plan.rx_injector(Instant::ZERO),
        };
        let mut expected = Vec::new();
        for packet in mixed(3_000) {
            for copy in injector.judge(Instant::ZERO, packet.len()).copies() {
                let mut bytes = packet.clone();
                if let Some(damage) = copy.damage {
                    damage.inflict(&mut bytes);
                }
                expected.push(bytes);
            }
        }
        let mut pair = Pair::new(plan);
        let arrived = pair.run(mixed(3_000));
        assert!(arrived == expected, "{} arrive, {} expected", arrived.len(), expected.len());
        let (tx, rx) = pair.stats();
        let (acted, idle) = if is_sending { (tx, rx) } else { (rx, tx) };
        assert_eq!(acted, injector.counts());
        assert_eq!(idle, FaultCounts::default());
        let FaultCounts {
            dropped, burst_dropped, duplicated, corrupted, truncated, extended, ..
        } = acted;
        let acted = [dropped, burst_dropped, duplicated, corrupted, truncated, extended];
        assert!(acted.iter().all(|&times| times > 50), "{acted:?}");
    }
}

#[test]
fn late_packets_arrive_when_they_are_due_and_not_earlier() {
    let late = Faults::none()
        .reorder(0.7, millis(40))
        .duplicate(0.2, 2, millis(40))
        .spike(0.1, millis(80));
    for (plan, is_sending) in [
        (FaultPlan::new(4).sending(late.clone()), true),
        (FaultPlan::new(5).receiving(late), false),
    ] {
        let mut injector = match is_sending {
            true => plan.tx_injector(Instant::ZERO),
            false => plan.rx_injector(Instant::ZERO),
        };
        // Delays of the copies of each packet.
        let delays: Vec<Vec<Duration>> = (0..100)
            .map(|_| injector.judge(Instant::ZERO, SHORT).copies().map(|copy| copy.delay).collect())
            .collect();
        let mut pair = Pair::new(plan);
        // A delay counts from the transport's last reading of its clock. For the first packet sent,
        // this reading was in `Pair::new`. For all other packets it is not earlier than `began`.
        let began = clock::now();
        for number in 0..100 {
            pair.send(&packet(number, SHORT));
        }
        let mut arrivals = vec![Vec::new(); delays.len()];
        let mut order = Vec::new();
        let wanted: usize = delays.iter().map(Vec::len).sum();
        while order.len() < wanted {
            let mut arrived = Vec::new();
            while pair.receive(&mut arrived) > 0 {}
            for number in arrived.iter().map(|bytes| number(bytes)) {
                arrivals[number as usize].push(clock::now() - began);
                order.push(number);
            }
            // Waits as an event loop does. Only held-back packets are in flight. If they did not
            // end the wait, it would last for a minute.
            if order.len() < wanted {
                let sleeper = if is_sending { &mut pair.sender } else { &mut pair.receiver };
                sleeper.wait(Some(Duration::from_secs(60)));
                pair.sender.split().1.doorbell();
            }
        }
        let took = clock::now() - began;
        assert!(took < Duration::from_secs(30), "a wait slept past a late packet: {took:?}");
        for (mut delays, arrivals) in delays.into_iter().zip(arrivals) {
            delays.sort_unstable();
            assert_eq!(delays.len(), arrivals.len());
            for (delay, arrival) in delays.into_iter().zip(arrivals) {
                assert!(arrival >= delay, "arrived after {arrival:?}, the delay is {delay:?}");
            }
        }
        assert!(!order.is_sorted(), "no packet overtook another");
        let (tx, rx) = pair.stats();
        let acted = if is_sending { tx } else { rx };
        assert!(acted.reordered > 30 && acted.duplicated > 10 && acted.spiked > 2, "{acted:?}");
    }
}

#[test]
fn a_wait_without_limit_ends_when_a_late_packet_is_due() {
    let late = Faults::none().reorder(1.0, millis(20));
    let mut pair = Pair::new(FaultPlan::new(6).both(late));
    let (send, woken) = std::sync::mpsc::channel();
    // The transports run on their own thread, which the test can abandon if it sleeps forever.
    std::thread::spawn(move || {
        pair.send(&packet(1, LONG));
        // First the sender holds the packet back, then the receiver.
        while pair.sender.stats().tx_packets == 0 {
            pair.sender.wait(None);
            pair.sender.split().1.flush();
        }
        let mut arrived = Vec::new();
        while pair.receive(&mut arrived) == 0 {
            pair.receiver.wait(None);
        }
        send.send(arrived)
    });
    assert_eq!(woken.recv_timeout(Duration::from_secs(30)), Ok(vec![packet(1, LONG)]));
}

#[test]
fn a_short_wait_stays_short() {
    let plan = |seed| FaultPlan::new(seed).sending(Faults::none().spike(1.0, Faults::MAX_DELAY));
    let is_long = |seed: &u64| {
        let fate = plan(*seed).tx_injector(Instant::ZERO).judge(Instant::ZERO, SHORT);
        fate.copies().all(|copy| copy.delay > Duration::from_secs(9))
    };
    let mut pair =
        Pair::new(plan((0..).find(is_long).expect("one seed in ten gives a long delay")));
    pair.send(&packet(0, SHORT));
    let began = clock::now();
    pair.sender.wait(Some(millis(2)));
    assert!(
        clock::now() - began < Duration::from_secs(5),
        "the wait lasted until the packet was due"
    );
}

#[test]
fn copies_that_do_not_fit_into_a_burst_come_with_the_next() {
    let twofold = Faults::none().duplicate(1.0, 1, Duration::ZERO);
    let mut pair = Pair::new(FaultPlan::new(8).receiving(twofold));
    for number in 0..1_000 {
        pair.send(&packet(number, SHORT));
    }
    let mut arrived = Vec::new();
    let mut bursts = 0;
    loop {
        match pair.receive(&mut arrived) {
            0 => break,
            count => assert!(count <= MAX_BURST),
        }
        bursts += 1;
    }
    assert_eq!((arrived.len(), bursts), (2_000, 2_000_usize.div_ceil(MAX_BURST)));
    // No copy is delayed for long: all copies of a packet are in one burst or the next.
    let numbers: Vec<_> = arrived.iter().map(|bytes| number(bytes)).collect();
    for number in 0..1_000 {
        let at = |n: &u32| *n == number;
        let first = numbers.iter().position(at).expect("the packet arrives");
        let last = numbers.iter().rposition(at).expect("the packet arrives");
        assert!(last > first && last - first <= 2 * MAX_BURST, "{number}: {first} and {last}");
    }
}

#[test]
fn a_handle_changes_the_plan() {
    let mut pair = Pair::new(FaultPlan::new(9).receiving(Faults::none().drop(1.0)));
    let handle = pair.receiver.handle();
    assert!(pair.run(mixed(100)).is_empty(), "packets passed a partition");
    handle.set_plan(FaultPlan::new(9));
    assert_eq!(pair.run(mixed(100)).len(), 100, "packets were lost without faults");
    handle.set_plan(FaultPlan::new(10).receiving(Faults::none().corrupt(1.0)));
    assert_eq!(pair.run(mixed(100)).len(), 100, "damaged packets were lost");
    // The counts cover all plans, and another thread can read them.
    let counted = std::thread::spawn(move || handle.stats()).join().unwrap();
    let rx = FaultCounts { dropped: 100, corrupted: 100, ..FaultCounts::default() };
    assert_eq!(counted, FaultStats { rx, tx: FaultCounts::default() });
}

#[test]
fn a_plan_starts_over_when_it_is_set() {
    let plan = || FaultPlan::new(11).both(prompt());
    let mut pair = Pair::new(plan());
    let mut again = || {
        pair.sender.handle().set_plan(plan());
        pair.receiver.handle().set_plan(plan());
        pair.run(mixed(200))
    };
    assert_eq!(again(), again());
}

#[test]
fn outages_are_relative_to_the_start_of_their_plan() {
    let hour = Duration::from_secs(3_600);
    let outage = |from, until| {
        FaultPlan::new(12).sending(Faults::none().outage(Outage { from, until, over: 1_400 }))
    };
    let mut pair = Pair::new(outage(Duration::ZERO, hour));
    let arrived = pair.run(mixed(100));
    assert_eq!(arrived.len(), 50, "only the short half arrives");
    assert!(arrived.iter().all(|bytes| bytes.len() == SHORT));

    let began = clock::now();
    pair.sender.handle().set_plan(outage(millis(20), hour));
    // The outage begins 20 ms after its plan was set, not after the transport was created.
    while pair.run(std::iter::once(packet(0, LONG))).len() == 1 {
        assert!(clock::now() - began < Duration::from_secs(20), "the outage does not begin");
    }
    assert!(clock::now() - began >= millis(20));
    assert_eq!(pair.run(std::iter::once(packet(0, SHORT))).len(), 1);
}

#[test]
fn the_number_of_held_back_packets_is_limited() {
    let plan = FaultPlan::new(13).sending(Faults::none().spike(1.0, Faults::MAX_DELAY));
    let hub = MemHub::new();
    let receiver = hub.port(MemConfig::default());
    let mut sender = Faulty::new(hub.port(MemConfig::default()), plan);
    let (_, tx) = sender.split();
    for _ in 0..65_536 + 10 {
        tx.push_bytes(&receiver.local_route(), &[1; 24]);
    }
    assert_eq!(sender.stats().tx_dropped, 10);
}

#[test]
fn packets_longer_than_the_largest_datagram_are_dropped() {
    let mut pair = Pair::new(FaultPlan::new(14).receiving(Faults::none().extend(1.0)));
    let largest = pair.receiver.capabilities().max_datagram;
    assert!(pair.run((0..10).map(|n| packet(n, largest))).is_empty());
    assert_eq!(pair.receiver.stats().rx_truncated, 10);
    assert_eq!(pair.run((0..10).map(|n| packet(n, largest - 64))).len(), 10);
}

#[test]
fn a_faulty_transport_has_no_integrity_and_otherwise_the_inner_capabilities() {
    let inner = MemHub::new().port(MemConfig::default());
    let able = inner.capabilities();
    let faulty = Faulty::new(inner, FaultPlan::new(15)).capabilities();
    assert!(!faulty.integrity);
    assert_eq!((faulty.max_datagram, faulty.rx_capacity), (able.max_datagram, able.rx_capacity));
}

#[test]
fn a_faulty_transport_and_its_handle_are_send() {
    fn is_send<T: Send>() {}
    is_send::<Faulty<MemTransport>>();
    is_send::<FaultHandle>();
}

#[test]
fn packets_that_are_late_arrive_after_the_end_of_the_faults() {
    let late = Faults::none().spike(1.0, millis(20));
    for plan in [FaultPlan::new(13).sending(late.clone()), FaultPlan::new(14).receiving(late)] {
        let mut pair = Pair::new(plan);
        let mut arrived = Vec::new();
        (0..50).for_each(|number| pair.send(&packet(number, SHORT)));
        pair.receive(&mut arrived);
        pair.sender.handle().set_plan(FaultPlan::new(0));
        pair.receiver.handle().set_plan(FaultPlan::new(0));
        let began = clock::now();
        while arrived.len() < 50 {
            pair.sender.split().1.flush();
            pair.receive(&mut arrived);
            assert!(clock::now() - began < Duration::from_secs(20), "{} arrive", arrived.len());
        }
    }
}
