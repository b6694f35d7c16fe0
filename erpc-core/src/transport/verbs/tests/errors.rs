//! Broken queue pairs.

use super::*;
use crate::transport::NetworkError;

#[test]
fn a_broken_queue_pair_is_rebuilt_with_its_number_and_sessions_are_told() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    let (to, number) = (b.local_route(), a.queue_pair());
    for round in 1..=3 {
        fabric.hold();
        send(&mut a, to, &[round; 1_000]);
        fabric.break_pair(number);
        fabric.release();
        burst(&mut a);
        burst(&mut a);
        assert_eq!((a.verbs_stats().rebuilds, a.queue_pair()), (u64::from(round), number));
        assert!(a.verbs_stats().errors > 0, "flushed requests are counted");
        // The sending half notices at its next doorbell.
        send(&mut a, to, b"next");
        assert!(a.has_undelivered());
        let mut told = Vec::new();
        while let Some(report) = a.next_undelivered() {
            assert_eq!((report.route, report.error), (to, NetworkError::NotSent(libc::EIO)));
            told.push(report.quote().to_vec());
        }
        assert!(told.contains(&vec![round; 24]), "the lost packet is reported: {told:?}");
        assert_eq!(drain(&mut b).pop(), Some((a.local_route(), b"next".to_vec())));
        // It receives, too: all buffers are posted.
        let back = a.local_route();
        for _ in 0..250 {
            b.split().1.push_bytes(&back, &[3; 32]);
        }
        b.split().1.doorbell();
        assert_eq!(drain(&mut a).len(), 250);
    }
}

#[test]
fn a_replaced_queue_pair_presents_itself_to_all_peers() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    fabric.replace_pairs(true);
    let (to_a, to_b, number) = (a.local_route(), b.local_route(), a.queue_pair());
    fabric.break_pair(number);
    burst(&mut a);
    burst(&mut a);
    assert_ne!(a.queue_pair(), number);
    // B's datagrams go to the old number until A has presented itself.
    run(&mut [&mut a, &mut b], "the peers meet again", |ends| {
        send(ends[0], to_b, b"ping");
        let heard = drain(ends[1]);
        if !heard.is_empty() {
            assert!(heard.iter().all(|(from, _)| *from == to_a), "the same peer as before");
            send(ends[1], to_a, b"pong");
        }
        !drain(ends[0]).is_empty()
    });
}

#[test]
fn a_receive_error_breaks_only_the_receiver() {
    let fabric = SoftFabric::new(4_096);
    let mut a = open(&fabric, 1);
    let small = SoftFabric::clone(&fabric);
    let mut b = open(&small, 2);
    introduce(&mut a, &mut b);
    let (to, number) = (b.local_route(), b.queue_pair());
    fabric.break_pair(number);
    // Lost, because the queue pair does not work.
    send(&mut a, to, b"lost");
    burst(&mut b);
    burst(&mut b);
    assert_eq!((b.verbs_stats().rebuilds, a.verbs_stats().rebuilds), (1, 0));
    send(&mut a, to, b"next");
    assert_eq!(drain(&mut b).len(), 1);
}

#[test]
fn a_transport_is_dropped_while_the_device_reads_its_messages() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    let to = b.local_route();
    let mut pool = crate::buf::Pool::in_arena(1 << 20, a.arena());
    let mut message = filled(&mut pool, 5, 2_000);
    fabric.hold();
    let (_, tx) = a.split();
    tx.push_single(&to, WORDS, &mut message, false);
    tx.doorbell();
    drop(a);
    drop(message);
    fabric.release();
    assert!(drain(&mut b).is_empty(), "the queue pair is gone, and its requests with it");
}
