//! Tests of ports, on one thread and on several.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use erpc_test_tools::random::Random;

use super::*;
use crate::buf::MsgBuf;
use crate::event_loop::Rpc;
use crate::protocol::{CongestionControl, DcqcnConfig, EndpointConfig};
use crate::transport::{MAX_BURST, NoMarks, RxQueue, TxPacket};
use crate::wire::HeaderWords;
use crate::wire::checksum::check;

/// Time limit of tests with threads.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

fn two_ports() -> (MemTransport, MemTransport) {
    let hub = MemHub::new();
    (hub.port(MemConfig::default()), hub.port(MemConfig::default()))
}

fn send(from: &mut MemTransport, to: MemRoute, bytes: &[u8]) {
    let (_, tx) = from.split();
    tx.push_bytes(&to, bytes);
    tx.flush();
}

/// Sleeps until an event ends the sleep, and fails if that takes too long.
#[track_caller]
fn sleep(at: &mut MemTransport, expected: &str) {
    let start = Instant::now();
    at.wait(Some(WAIT_LIMIT));
    assert!(start.elapsed() < WAIT_LIMIT, "the sleep did not end with {expected}");
}

/// All packets that wait at a port, with their senders.
fn receive(at: &mut MemTransport) -> Vec<(MemRoute, Vec<u8>)> {
    let (rx, _) = at.split();
    let mut all = Vec::new();
    loop {
        match rx.burst() {
            0 => return all,
            count => all.extend(
                (0..count).map(|index| (rx.packet(index).route, rx.packet(index).bytes.to_vec())),
            ),
        }
    }
}

/// `number` followed by bytes that depend on it.
fn datagram(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((8..len as u64).map(|at| (number.wrapping_mul(31) ^ at) as u8));
    bytes
}

fn number_in(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    assert_eq!(bytes, datagram(number, bytes.len()), "datagram {number} was changed in flight");
    number
}

#[test]
fn packets_in_three_pieces_arrive_whole() {
    let (mut alice, mut bob) = two_ports();
    // Lengths of the message. With header and trailer, some packets are just below or above the
    // small slot's 184 bytes, and the longest is the largest datagram.
    for len in [0, 1, 8, 40, 155, 156, 157, 1_000, 4_092] {
        let mut message = MsgBuf::detached(len).unwrap();
        message.resize(len);
        message.as_mut_slice().fill(len as u8);
        let head = [0xA5; HEADER_LEN];
        for (head, data) in [(&head[..], message.as_slice()), (message.as_slice(), &[])] {
            if head.len() < HEADER_LEN {
                continue;
            }
            let (_, tx) = alice.split();
            tx.push(&bob.local_route(), TxPacket::new(&message, head, data).sealed(true));
            tx.flush();
            let arrived = receive(&mut bob);
            let rest = check(&arrived[0].1).unwrap();
            assert_eq!((arrived.len(), rest), (1, &[head, data].concat()[..]), "{len}");
        }
    }
}

#[test]
fn a_message_of_one_packet_arrives_as_if_its_header_were_in_front_of_it() {
    let (mut alice, mut bob) = two_ports();
    // In a batch, messages of 16 to 32 bytes take a shorter way than others, except for the first
    // and the last. The longest message does not fit a small slot.
    let lengths = [16, 0, 15, 16, 17, 31, 32, 33, 160, 161, 1_000, 24];
    let mut expect = Vec::new();
    for (number, len) in (0..).zip(lengths) {
        let mut message = MsgBuf::detached(len).unwrap();
        message.resize(len);
        message
            .as_mut_slice()
            .copy_from_slice(&(0..len).map(|at| at as u8 ^ number).collect::<Vec<_>>());
        let mut bytes = [number; HEADER_LEN];
        // The flag of a trailer, for some of the packets.
        bytes[8] = if number % 4 == 3 { 1 | 1 << 5 } else { 1 };
        let header = HeaderWords::read(&bytes).unwrap();
        let (_, tx) = alice.split();
        tx.push_single(&bob.local_route(), header, &mut message, false);
        let packet = [&bytes[..], message.as_slice()].concat();
        expect.push((packet, header.has_trailer()));
    }
    alice.split().1.flush();
    let arrived = receive(&mut bob);
    assert_eq!(arrived.len(), expect.len());
    for ((_, bytes), (packet, has_trailer)) in arrived.iter().zip(&expect) {
        let bytes = if *has_trailer { check(bytes).unwrap() } else { bytes };
        assert_eq!(bytes, packet);
    }
}

#[test]
fn packets_arrive_in_order_with_their_sender() {
    let (mut alice, mut bob) = two_ports();
    for number in 0..5_000u64 {
        send(&mut alice, bob.local_route(), &datagram(number, 8 + number as usize * 7 % 3_000));
        if number % 100 == 99 {
            let numbers: Vec<_> = receive(&mut bob)
                .iter()
                .map(|(from, bytes)| (from.number(), number_in(bytes)))
                .collect();
            assert_eq!(
                numbers,
                (number - 99..=number)
                    .map(|number| (alice.local_route().number(), number))
                    .collect::<Vec<_>>()
            );
        }
    }
    assert_eq!(alice.stats().tx_packets, 5_000);
    assert_eq!(alice.stats().tx_bytes, bob.stats().rx_bytes);
    assert_eq!(bob.stats().rx_packets, 5_000);
}

#[test]
fn staged_packets_are_visible_after_the_doorbell() {
    let (mut alice, mut bob) = two_ports();
    let (_, tx) = alice.split();
    tx.push_bytes(&bob.local_route(), b"one");
    tx.push_bytes(&bob.local_route(), b"two");
    assert_eq!(receive(&mut bob).len(), 0);
    tx.doorbell();
    assert_eq!(receive(&mut bob).len(), 2);
    for _ in 0..MAX_BURST {
        tx.push_bytes(&bob.local_route(), b"more");
    }
    assert_eq!(receive(&mut bob).len(), MAX_BURST, "a full batch is sent without a doorbell");
}

#[test]
fn a_ring_holds_its_capacity_and_one_burst_more() {
    let hub = MemHub::new();
    let (mut alice, mut bob) =
        (hub.port(MemConfig::default()), hub.port(MemConfig::default().entries(100)));
    assert_eq!(bob.capabilities().rx_capacity, 100 * 1_024);
    for _ in 0..100 + MAX_BURST + 7 {
        send(&mut alice, bob.local_route(), b"x");
    }
    let fits = 100 + MAX_BURST as u64;
    assert_eq!((alice.stats().tx_packets, alice.stats().tx_dropped), (fits, 7));
    assert_eq!(receive(&mut bob).len() as u64, fits);
    assert_eq!((bob.stats().rx_packets, bob.stats().rx_overflow), (fits, 7));
    send(&mut alice, bob.local_route(), b"x");
    assert_eq!(receive(&mut bob).len(), 1, "a full ring recovers");
}

#[test]
fn congestion_control_that_needs_marks_is_refused_without_them() {
    let (mut alice, bob) = two_ports();
    assert_eq!(alice.enable_ecn(), Err(NoMarks));
    let with = |control| EndpointConfig::new().congestion(control);
    let dcqcn = with(CongestionControl::Dcqcn(DcqcnConfig::new()));
    let refused = Rpc::new(bob, dcqcn).err().expect("memory has no marks");
    assert_eq!(refused, NoMarks.into());
    assert!(refused.to_string().contains("must be Swift, Timely or None"), "{refused}");
    assert!(Rpc::new(alice, with(CongestionControl::default())).is_ok());
}

#[test]
fn the_smaller_port_limits_the_datagram() {
    let hub = MemHub::new();
    let (mut alice, mut bob) =
        (hub.port(MemConfig::default()), hub.port(MemConfig::default().max_datagram(2_000)));
    let to = bob.local_route();
    assert_eq!(alice.path(&to).datagram, 2_000);
    assert_eq!(bob.path(&alice.local_route()).datagram, 2_000);
    assert_eq!(alice.path(&MemRoute::new(99)).datagram, alice.capabilities().max_datagram);
    send(&mut alice, to, &[0; 2_001]);
    send(&mut alice, to, &[0; 2_000]);
    assert_eq!(receive(&mut bob).len(), 1);
    assert_eq!(
        (alice.stats().tx_dropped, bob.stats().rx_truncated, bob.stats().rx_overflow),
        (1, 1, 0)
    );
}

#[test]
fn settings_out_of_range_are_clamped() {
    let config = MemConfig::default().max_datagram(0).entries(0);
    assert_eq!((config.datagram(), config.ring_entries()), (MIN_DATAGRAM, 32));
    let config = MemConfig::default().max_datagram(usize::MAX).entries(u32::MAX);
    assert_eq!((config.datagram(), config.ring_entries()), (1 << 20, 65_536));
}

#[test]
fn every_port_reaches_every_port_and_itself() {
    const PORTS: usize = 24;
    let hub = MemHub::new();
    let mut ports: Vec<_> = (0..PORTS).map(|_| hub.port(MemConfig::default())).collect();
    let routes: Vec<_> = ports.iter().map(Transport::local_route).collect();
    for round in 0..3u64 {
        for port in &mut ports {
            let from = u64::from(port.local_route().number());
            let (_, tx) = port.split();
            for to in &routes {
                tx.push_bytes(
                    to,
                    &datagram(round << 40 | from << 20 | u64::from(to.number()), 100),
                );
            }
            tx.doorbell();
        }
        for port in &mut ports {
            let mut got: Vec<_> =
                receive(port).iter().map(|(from, bytes)| (*from, number_in(bytes))).collect();
            got.sort_unstable();
            let own = u64::from(port.local_route().number());
            let expect: Vec<_> = routes
                .iter()
                .map(|from| (*from, round << 40 | u64::from(from.number()) << 20 | own))
                .collect();
            assert_eq!(got, expect);
        }
    }
}

#[test]
fn a_busy_sender_does_not_delay_another_one() {
    let hub = MemHub::new();
    let [mut loud, mut quiet, mut bob] = [(); 3].map(|()| hub.port(MemConfig::default()));
    let to = bob.local_route();
    for _ in 0..500 {
        send(&mut loud, to, b"loud");
    }
    send(&mut quiet, to, b"quiet");
    let (rx, _) = bob.split();
    let heard = (0..2).any(|_| {
        let count = rx.burst();
        (0..count).any(|index| rx.packet(index).bytes == b"quiet")
    });
    assert!(heard, "the quiet sender waits for more than one burst");
}

#[test]
fn packets_to_missing_ports_are_counted_as_dropped() {
    let (mut alice, bob) = two_ports();
    let to = bob.local_route();
    send(&mut alice, MemRoute::new(u32::MAX), b"x");
    send(&mut alice, MemRoute::new(0), b"x");
    assert_eq!(alice.stats().tx_dropped, 2);
    send(&mut alice, to, b"x");
    drop(bob);
    send(&mut alice, to, b"x");
    send(&mut alice, to, b"x");
    assert_eq!((alice.stats().tx_dropped, alice.stats().tx_packets), (4, 1));
}

#[test]
fn packets_staged_for_a_port_that_closes_are_counted_as_dropped() {
    let (mut alice, bob) = two_ports();
    let to = bob.local_route();
    let (_, tx) = alice.split();
    tx.push_bytes(&to, b"staged");
    drop(bob);
    tx.push_bytes(&to, b"after");
    tx.flush();
    assert_eq!((alice.stats().tx_dropped, alice.stats().tx_packets), (2, 0));
}

#[test]
fn a_new_port_with_an_old_number_receives_only_its_own_packets() {
    let hub = MemHub::new();
    let mut alice = hub.port(MemConfig::default());
    let bob = hub.port(MemConfig::default());
    let route = bob.local_route();
    assert_eq!(hub.port_at(route, MemConfig::default()).err(), Some(PortTaken(route)));
    assert!(hub.port_at(MemRoute::new(0), MemConfig::default()).is_err());
    assert!(hub.port_at(MemRoute::new(MemRoute::MAX + 1), MemConfig::default()).is_err());
    send(&mut alice, route, b"to the first");
    drop(bob);
    let mut bob = hub.port_at(route, MemConfig::default()).unwrap();
    send(&mut alice, route, b"to the second");
    assert_eq!(receive(&mut bob), [(alice.local_route(), b"to the second".to_vec())]);
}

#[test]
fn packets_of_a_closed_port_arrive_and_its_ring_is_removed() {
    let hub = MemHub::new();
    let mut bob = hub.port(MemConfig::default());
    let to = bob.local_route();
    for round in 0..50 {
        let mut alice = hub.port(MemConfig::default());
        assert_eq!(alice.local_route().number(), 2, "numbers are reused");
        send(&mut alice, to, &[round]);
        let (_, tx) = alice.split();
        tx.push_bytes(&to, b"staged only");
        drop(alice);
        assert_eq!(receive(&mut bob).len(), 2);
    }
    receive(&mut bob);
    assert_eq!(bob.rx.ring_count(), 0);
    assert_eq!(bob.stats().rx_packets, 100);
}

#[test]
fn the_ring_of_a_port_that_closes_later_is_removed() {
    let hub = MemHub::new();
    let mut bob = hub.port(MemConfig::default());
    let mut alice = hub.port(MemConfig::default());
    send(&mut alice, bob.local_route(), b"hello");
    assert_eq!(receive(&mut bob).len(), 1);
    assert_eq!(bob.rx.ring_count(), 1);
    drop(alice);
    receive(&mut bob);
    assert_eq!(bob.rx.ring_count(), 0);
}

#[test]
fn routes_have_bytes_and_ports() {
    let route = MemRoute::new(7);
    assert_eq!(route.to_string(), "mem:7");
    assert_eq!((route.port(), route.with_port(9)), (7, MemRoute::new(9)));
    let mut bytes = [0; 32];
    assert_eq!(route.to_bytes(&mut bytes), 4);
    assert_eq!(bytes[..4], [7, 0, 0, 0]);
}

#[test]
#[should_panic(expected = "the burst had 1 packets")]
fn reading_a_packet_beyond_the_burst_panics() {
    let (mut alice, mut bob) = two_ports();
    send(&mut alice, bob.local_route(), b"x");
    let (rx, _) = bob.split();
    rx.burst();
    let _ = rx.packet(1);
}

/// Echoes datagrams of all sizes between two threads, with many in flight, and checks every byte.
#[test]
fn two_threads_exchange_datagrams_of_all_sizes() {
    const TOTAL: u64 = 200_000;
    let (mut alice, mut bob) = two_ports();
    let (alices, bobs) = (alice.local_route(), bob.local_route());
    let done = AtomicBool::new(false);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while !done.load(Ordering::Relaxed) && start.elapsed() < WAIT_LIMIT {
                let (rx, tx) = bob.split();
                let count = rx.burst();
                for index in 0..count {
                    let packet = rx.packet(index);
                    assert_eq!(number_in(packet.bytes), next);
                    next += 1;
                    tx.push_bytes(&alices, packet.bytes);
                }
                tx.doorbell();
                if count == 0 {
                    thread::yield_now();
                }
            }
        });
        let (mut sent, mut answered) = (0u64, 0u64);
        let mut random = Random::new(1);
        while answered < TOTAL && start.elapsed() < WAIT_LIMIT {
            let (rx, tx) = alice.split();
            let count = rx.burst();
            for index in 0..count {
                assert_eq!(number_in(rx.packet(index).bytes), answered);
                answered += 1;
            }
            while sent < TOTAL && sent - answered < 400 {
                // Mostly small datagrams, as in practice; sometimes nearly up to the largest.
                let bound = if random.below(16) == 0 { 4_096 } else { 256 };
                let len = random.below(bound);
                tx.push_bytes(&bobs, &datagram(sent, 8 + len as usize));
                sent += 1;
            }
            tx.doorbell();
            if count == 0 {
                thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(answered, TOTAL, "timed out");
    });
    assert_eq!((alice.stats().tx_dropped, bob.stats().tx_dropped), (0, 0));
}

#[test]
fn a_wait_ends_with_a_timeout_a_wake_or_a_packet() {
    let (mut alice, mut bob) = two_ports();
    let start = Instant::now();
    bob.wait(Some(Duration::from_millis(20)));
    assert!(start.elapsed() >= Duration::from_millis(20));

    let waker = bob.waker();
    waker.wake();
    sleep(&mut bob, "an earlier wake");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            waker.wake();
        });
        sleep(&mut bob, "a wake");
    });

    let to = bob.local_route();
    send(&mut alice, to, b"x");
    sleep(&mut bob, "an earlier packet");
    receive(&mut bob);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            send(&mut alice, to, b"x");
        });
        while receive(&mut bob).is_empty() {
            bob.wait(Some(WAIT_LIMIT));
        }
        assert!(start.elapsed() < WAIT_LIMIT, "the packet did not wake the receiver");
    });
}

/// Two threads sleep before every packet and are woken by every packet. A lost wake-up would leave
/// both asleep until the timeout.
#[test]
fn no_wake_up_is_lost() {
    let (mut alice, mut bob) = two_ports();
    let (alices, bobs) = (alice.local_route(), bob.local_route());
    let start = Instant::now();
    let run = Duration::from_millis(700);
    let play = |own: &mut MemTransport, peer: MemRoute, first: bool| -> u64 {
        let mut turns = 0;
        if first {
            send(own, peer, b"ball");
        }
        loop {
            let got = receive(own);
            if let Some((_, bytes)) = got.first() {
                turns += 1;
                if bytes == b"stop" {
                    return turns;
                }
                if first && start.elapsed() >= run {
                    send(own, peer, b"stop");
                    return turns;
                }
                // Vary the delay, so that the packet arrives at any point between check and sleep.
                for _ in 0..turns * 7 % 900 {
                    std::hint::spin_loop();
                }
                send(own, peer, b"ball");
            }
            let before = Instant::now();
            own.wait(Some(WAIT_LIMIT));
            assert!(before.elapsed() < WAIT_LIMIT, "a wake-up was lost after {turns} turns");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(&mut bob, alices, false));
        let turns = play(&mut alice, bobs, true);
        assert!(turns > 100, "only {turns} turns");
    });
}

/// Like `no_wake_up_is_lost`, for wakers: they announce work that the port does not know of.
#[test]
fn no_call_of_a_waker_is_lost() {
    let (mut alice, _bob) = two_ports();
    let waker = alice.waker();
    let posted = std::sync::atomic::AtomicU64::new(0);
    let taken = std::sync::atomic::AtomicU64::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while start.elapsed() < Duration::from_millis(500) {
                number += 1;
                posted.store(number, Ordering::Relaxed);
                waker.wake();
                while taken.load(Ordering::Acquire) < number && start.elapsed() < WAIT_LIMIT {
                    thread::yield_now();
                }
            }
            posted.store(u64::MAX, Ordering::Relaxed);
            waker.wake();
        });
        loop {
            let seen = posted.load(Ordering::Relaxed);
            if seen == u64::MAX {
                break;
            }
            taken.store(seen, Ordering::Release);
            let before = Instant::now();
            alice.wait(Some(WAIT_LIMIT));
            assert!(before.elapsed() < WAIT_LIMIT, "a wake was lost after {seen}");
        }
    });
}

#[test]
fn a_receiver_may_close_while_others_send() {
    let hub = MemHub::new();
    let mut alice = hub.port(MemConfig::default());
    let (mut sent, mut received) = (0, 0);
    for _ in 0..50 {
        let bob = hub.port(MemConfig::default());
        let to = bob.local_route();
        let counted = thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                let mut bob = bob;
                let mut count = 0;
                while count < 100 {
                    count += receive(&mut bob).len() as u64;
                    thread::yield_now();
                }
                count
            });
            while !receiver.is_finished() {
                let (_, tx) = alice.split();
                for _ in 0..10 {
                    tx.push_bytes(&to, &[0; 300]);
                    sent += 1;
                }
                tx.flush();
                thread::yield_now();
            }
            receiver.join().unwrap()
        });
        received += counted;
    }
    let stats = alice.stats();
    assert_eq!(stats.tx_packets + stats.tx_dropped, sent, "every packet is either sent or dropped");
    assert!(stats.tx_packets >= received);
}
