//! Chains, signaling, inline data, and who owns slots and messages.

use super::super::tx::{COPY_LIMIT, SIGNALED};
use super::*;
use crate::buf::Pool;
use crate::transport::MAX_BURST;

fn pair() -> (SoftFabric, Soft, Soft) {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    (fabric, a, b)
}

#[test]
fn datagrams_arrive_in_the_order_in_which_they_were_pushed() {
    let (_fabric, mut a, mut b) = pair();
    let to = b.local_route();
    // More than the send queue has entries, in bursts of odd sizes.
    let mut next = 0u32;
    let mut expected = 0u32;
    for burst in (0..200).map(|at| at % 37 + 1) {
        for _ in 0..burst {
            let mut packet = vec![0; 24 + (next as usize * 97) % 3_000];
            packet[..4].copy_from_slice(&next.to_le_bytes());
            a.split().1.push_bytes(&to, &packet);
            next += 1;
        }
        a.split().1.doorbell();
        for (from, bytes) in drain(&mut b) {
            assert_eq!(from, a.local_route());
            assert_eq!(bytes[..4], expected.to_le_bytes());
            assert_eq!(bytes.len(), 24 + (expected as usize * 97) % 3_000);
            expected += 1;
        }
    }
    assert_eq!(expected, next);
    assert_eq!(a.stats().tx_dropped, 0);
}

#[test]
fn a_turn_rings_one_doorbell_and_a_full_chain_rings_by_itself() {
    let (_fabric, mut a, mut b) = pair();
    let to = b.local_route();
    let before = a.verbs_stats().doorbells;
    for _ in 0..40 {
        a.split().1.push_bytes(&to, &[7; 32]);
    }
    assert_eq!(a.verbs_stats().doorbells, before, "nothing is posted before the doorbell");
    assert!(drain(&mut b).is_empty());
    a.split().1.doorbell();
    a.split().1.doorbell();
    assert_eq!(a.verbs_stats().doorbells, before + 1, "one chain, and no empty one");
    assert_eq!(drain(&mut b).len(), 40);
    for _ in 0..MAX_BURST {
        a.split().1.push_bytes(&to, &[7; 32]);
    }
    assert_eq!(a.verbs_stats().doorbells, before + 2, "a full chain");
    assert_eq!(drain(&mut b).len(), MAX_BURST);
}

#[test]
fn one_request_of_sixty_four_has_a_completion() {
    let (_fabric, mut a, mut b) = pair();
    let to = b.local_route();
    let (signals, packets) = (a.verbs_stats().signals, a.stats().tx_packets);
    for _ in 0..100 {
        for _ in 0..32 {
            a.split().1.push_bytes(&to, &[7; 32]);
        }
        a.split().1.doorbell();
        assert_eq!(drain(&mut b).len(), 32);
    }
    assert_eq!(a.stats().tx_packets - packets, 3_200);
    assert_eq!(a.verbs_stats().signals - signals, u64::from(3_200 / SIGNALED));
}

#[test]
fn a_slot_is_not_written_again_before_the_device_has_read_it() {
    let (fabric, mut a, mut b) = pair();
    let to = b.local_route();
    fabric.hold();
    // Not inline, so the device reads the slots when it sends. The queue has 512 entries.
    let packet = |number: u32| {
        let mut packet = vec![number as u8; 1_000];
        packet[..4].copy_from_slice(&number.to_le_bytes());
        packet
    };
    let dropped = a.stats().tx_dropped;
    for number in 0..700 {
        a.split().1.push_bytes(&to, &packet(number));
        a.split().1.doorbell();
    }
    let sent = 700 - (a.stats().tx_dropped - dropped) as u32;
    assert!((400..=512).contains(&sent), "{sent} packets fit the queue, the others are dropped");
    fabric.release();
    // The server's ring has 256 buffers: what is beyond is lost, and nothing is mixed.
    let arrived = drain(&mut b);
    assert!(arrived.len() >= 200, "{} arrive", arrived.len());
    for (number, (_, bytes)) in (0..).zip(arrived) {
        assert!(bytes == packet(number), "packet {number} is what was pushed");
    }
    // After completions, the queue has room again.
    for number in 0..200 {
        a.split().1.push_bytes(&to, &packet(number));
        a.split().1.doorbell();
        let arrived = drain(&mut b);
        assert!(arrived.len() == 1 && arrived[0].1 == packet(number));
    }
}

#[test]
fn a_message_in_place_is_held_until_the_device_has_read_it() {
    let (fabric, mut a, mut b) = pair();
    let to = b.local_route();
    assert!(a.is_zero_copy());
    let mut message = filled(&mut Pool::in_arena(1 << 20, a.arena()), 5, 3_000);
    fabric.hold();
    let (_, tx) = a.split();
    tx.push_single(&to, WORDS, &mut message, false);
    tx.doorbell();
    tx.reclaim();
    assert!(!message.is_unique(), "the device may read the message");
    fabric.release();
    let (_, tx) = a.split();
    tx.reclaim();
    assert!(message.is_unique(), "the completion releases the message, without a flush");
    let arrived = drain(&mut b);
    assert_eq!((arrived.len(), arrived[0].1.len()), (1, 3_024));
    assert_eq!(arrived[0].1[24..], [5; 3_000]);
}

#[test]
fn a_flush_waits_for_messages_in_place_only() {
    let (fabric, mut a, mut b) = pair();
    let to = b.local_route();
    let mut message = filled(&mut Pool::in_arena(1 << 20, a.arena()), 5, 2_000);
    let signals = a.verbs_stats().signals;
    let (_, tx) = a.split();
    tx.push_single(&to, WORDS, &mut message, false);
    tx.push_bytes(&to, &[7; 32]);
    tx.flush();
    assert!(message.is_unique(), "the queue holds no msgbuf");
    assert_eq!(a.verbs_stats().signals, signals + 1, "the last request of the chain");
    assert_eq!(drain(&mut b).len(), 2);
    // Copied packets need no wait: the device does not move.
    fabric.hold();
    let stuck = a.verbs_stats().stuck_flushes;
    send(&mut a, to, &[7; 1_000]);
    a.split().1.flush();
    assert_eq!(a.verbs_stats().stuck_flushes, stuck);
    fabric.release();
}

#[test]
fn a_flush_of_a_stuck_device_ends_its_reads() {
    let (fabric, mut a, mut b) = pair();
    let to = b.local_route();
    let mut message = filled(&mut Pool::in_arena(1 << 20, a.arena()), 5, 2_000);
    fabric.hold();
    let (_, tx) = a.split();
    tx.push_single(&to, WORDS, &mut message, false);
    tx.flush();
    assert!(message.is_unique(), "the queue pair was rebuilt, so the device reads nothing");
    assert_eq!((a.verbs_stats().stuck_flushes, a.verbs_stats().rebuilds), (1, 1));
    fabric.release();
    burst(&mut a);
    assert!(drain(&mut b).is_empty(), "the packet is lost");
    send(&mut a, to, b"next");
    assert_eq!(drain(&mut b).len(), 1, "the queue pair works");
}

#[test]
fn messages_outside_of_the_arena_and_short_ones_are_copied() {
    let (fabric, mut a, mut b) = pair();
    let to = b.local_route();
    let mut outside = filled(&mut Pool::new(1 << 20), 5, 3_000);
    let mut short = filled(&mut Pool::in_arena(1 << 20, a.arena()), 6, COPY_LIMIT - 24);
    fabric.hold();
    let (_, tx) = a.split();
    tx.push_single(&to, WORDS, &mut outside, false);
    tx.push_single(&to, WORDS, &mut short, false);
    tx.doorbell();
    assert!(outside.is_unique() && short.is_unique(), "copied");
    fabric.release();
    let lengths: Vec<_> = drain(&mut b).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [3_024, COPY_LIMIT]);
}

#[test]
fn a_packet_that_is_longer_than_a_datagram_is_dropped_and_counted() {
    let (_fabric, mut a, mut b) = pair();
    let to = b.local_route();
    let dropped = a.stats().tx_dropped;
    send(&mut a, to, &[1; 4_097]);
    assert_eq!(a.stats().tx_dropped, dropped + 1);
    send(&mut a, to, &[1; 4_096]);
    assert_eq!(drain(&mut b).len(), 1);
}
