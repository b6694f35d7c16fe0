//! The ring of buffers.

use super::*;
use crate::transport::MAX_BURST;

#[test]
fn buffers_are_posted_again_and_loans_stay_whole_until_the_next_burst() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    let to = b.local_route();
    let mut next = 0u32;
    // 256 buffers, used many times.
    for _ in 0..100 {
        for at in 0..MAX_BURST as u32 {
            a.split().1.push_bytes(&to, &[(next + at) as u8; 300]);
        }
        a.split().1.doorbell();
        let (rx, _) = b.split();
        let count = rx.burst();
        assert_eq!(count, MAX_BURST);
        // More arrive while the burst is lent.
        for at in 0..MAX_BURST as u32 {
            a.split().1.push_bytes(&to, &[(next + 64 + at) as u8; 300]);
        }
        a.split().1.doorbell();
        let (rx, _) = b.split();
        for at in 0..count {
            assert_eq!(rx.packet(at).bytes, [(next + at as u32) as u8; 300]);
        }
        next += 64;
        assert!(!rx.is_drained(), "a full burst may have successors");
        let count = rx.burst();
        assert_eq!(count, MAX_BURST);
        for at in 0..count {
            assert_eq!(rx.packet(at).bytes, [(next + at as u32) as u8; 300]);
        }
        next += 64;
        assert_eq!(rx.burst(), 0);
        assert!(rx.is_drained());
    }
    assert_eq!(fabric.lost(), 0);
    assert_eq!((b.stats().rx_packets, b.stats().rx_overflow), (12_801, 0));
    assert_eq!(b.stats().rx_bytes, 12_800 * 300 + 5);
}

#[test]
fn an_exhausted_ring_loses_datagrams_counts_them_and_recovers() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    let to = b.local_route();
    // All 256 buffers are posted.
    assert!(burst(&mut b).is_empty());
    for number in 0..300u32 {
        a.split().1.push_bytes(&to, &number.to_le_bytes());
    }
    a.split().1.doorbell();
    assert_eq!(b.stats().rx_overflow, 44);
    let arrived = drain(&mut b);
    assert_eq!(arrived.len(), 256);
    assert_eq!(arrived[255].1, 255u32.to_le_bytes());
    send(&mut a, to, b"next");
    assert_eq!(drain(&mut b).len(), 1, "the ring works");
}

#[test]
fn datagrams_of_queue_pairs_that_have_not_presented_themselves_are_dropped_and_counted() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    // A queue pair that knows B's number and Q_Key, and sends without an introduction.
    let stranger = fabric.open(&config(3)).expect("a device");
    let handle = stranger.create_handle(Host::Gid(b.device().info().gid), false).expect("a handle");
    let bytes = [9u8; 40];
    let qpn = b.queue_pair();
    let request = |immediate, len| SendRequest {
        id: 0,
        host: handle,
        qpn,
        qkey: 0x4572_5043,
        pieces: [Piece { start: bytes.as_ptr(), len, lkey: 0 }, Piece::EMPTY],
        inline: true,
        signaled: true,
        immediate,
    };
    // A datagram, an introduction that is none, an empty one.
    let requests =
        [request(None, 40), request(Some(super::super::line::PRESENT), 40), request(None, 0)];
    // SAFETY: inline data, which exist.
    unsafe { stranger.post_send(&requests) }.expect("room");
    assert!(drain(&mut b).is_empty());
    assert_eq!((b.verbs_stats().strangers, b.verbs_stats().malformed), (2, 1));
    // Another Q_Key does not even arrive.
    let lost = fabric.lost();
    let wrong = SendRequest { qkey: 1, ..request(None, 40) };
    // SAFETY: as above.
    unsafe { stranger.post_send(&[wrong]) }.expect("room");
    assert_eq!(fabric.lost(), lost + 1);
}

#[test]
fn marks_of_switches_are_reported_if_both_sides_enable_them() {
    for (sender, receiver) in [(false, false), (true, false), (false, true), (true, true)] {
        let fabric = SoftFabric::default();
        fabric.mark();
        let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
        if sender {
            a.enable_ecn().expect("RoCE has marks");
        }
        if receiver {
            b.enable_ecn().expect("RoCE has marks");
        }
        introduce(&mut a, &mut b);
        let to = b.local_route();
        send(&mut a, to, &[1; 40]);
        let (rx, _) = b.split();
        assert_eq!(rx.burst(), 1);
        assert_eq!(rx.packet(0).marked, sender && receiver, "{sender} {receiver}");
    }
}

#[test]
fn a_wait_ends_for_a_datagram_a_question_and_a_waker() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    let to = b.local_route();
    // The datagram is there before the wait, which must not sleep: the limit is 100 ms, and the sum of
    // 200 waits would be 20 s.
    let begun = clock::now();
    for _ in 0..200 {
        send(&mut a, to, &[1; 40]);
        b.wait(None);
        assert_eq!(burst(&mut b).len(), 1);
    }
    for _ in 0..200 {
        let waker = b.waker();
        waker.wake();
        b.wait(None);
    }
    assert!(clock::now().nanos_since(begun) < 15_000_000_000);
}
