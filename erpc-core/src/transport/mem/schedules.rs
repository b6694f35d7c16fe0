//! Sleeping owners, and ports that open and close, under every schedule. A lost wake-up appears as
//! a deadlock.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::barrier::Barrier;
use super::parker::Parker;
use super::*;
use crate::transport::{RxQueue, TxQueue};

fn parker() -> (Arc<Parker>, Arc<AtomicU32>) {
    (Arc::new(Parker::new()), Arc::new(AtomicU32::new(0)))
}

/// On each of two threads, increments the count and runs `notify`. The calling thread parks until
/// the count is 2.
fn two_notify(notify: fn(&Parker), is_ready: fn(u32) -> bool) {
    let (parker, count) = parker();
    let threads = [(); 2].map(|()| {
        let (parker, count) = (Arc::clone(&parker), Arc::clone(&count));
        thread::spawn(move || {
            count.fetch_add(1, Ordering::Relaxed);
            notify(&parker);
        })
    });
    loop {
        let seen = count.load(Ordering::Relaxed);
        if seen == 2 {
            break;
        }
        let look = || is_ready(count.load(Ordering::Relaxed) - seen);
        parker.park(Barrier::of_process(), None, look);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn every_packet_ends_a_sleep() {
    // The count represents packets: `is_ready` sees whether it has changed.
    loom::model(|| {
        two_notify(|parker| assert!(parker.ring(Barrier::of_process())), |new| new > 0);
    });
}

#[test]
fn every_call_of_a_waker_ends_a_sleep() {
    // `is_ready` never sees anything, as with wakers: only the parker records the wake.
    loom::model(|| two_notify(|parker| parker.wake(Barrier::of_process()), |_| false));
}

#[test]
fn a_packet_and_a_waker_both_wake_one_sleeper() {
    loom::model(|| {
        let (parker, count) = parker();
        let (sender, sent) = (Arc::clone(&parker), Arc::clone(&count));
        let (caller, called) = (Arc::clone(&parker), Arc::clone(&count));
        let threads = [
            thread::spawn(move || {
                sent.fetch_add(1, Ordering::Relaxed);
                sender.ring(Barrier::of_process());
            }),
            thread::spawn(move || {
                called.fetch_add(16, Ordering::Relaxed);
                caller.wake(Barrier::of_process());
            }),
        ];
        loop {
            let seen = count.load(Ordering::Relaxed);
            if seen == 17 {
                break;
            }
            let is_ready = || count.load(Ordering::Relaxed) & 15 != seen & 15;
            parker.park(Barrier::of_process(), None, is_ready);
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn senders_see_that_an_owner_is_closed() {
    loom::model(|| {
        let parker = Arc::new(Parker::new());
        let senders = [(); 2].map(|()| {
            let parker = Arc::clone(&parker);
            thread::spawn(move || parker.ring(Barrier::of_process()))
        });
        parker.wake(Barrier::of_process());
        parker.park(Barrier::of_process(), None, || false);
        parker.close();
        for sender in senders {
            let _open_or_closed = sender.join().expect("no panic");
        }
        assert!(!parker.ring(Barrier::of_process()) && !parker.is_open());
    });
}

fn small() -> MemConfig {
    MemConfig::default().entries(32).max_datagram(0)
}

/// Sleeps until a burst returns packets.
fn next_burst(transport: &mut MemTransport) -> usize {
    loop {
        match transport.rx.burst() {
            0 => transport.wait(None),
            count => return count,
        }
    }
}

#[test]
fn a_packet_over_a_new_ring_wakes_its_receiver() {
    loom::model(|| {
        let hub = MemHub::new();
        let (mut alice, mut bob) = (hub.port(small()), hub.port(small()));
        let route = bob.local_route();
        let sender = thread::spawn(move || {
            for number in 0..2 {
                alice.tx.push_bytes(&route, &[number; 40]);
                alice.tx.flush();
            }
            alice
        });
        let mut received = 0;
        while received < 2 {
            for index in 0..next_burst(&mut bob) {
                assert_eq!(bob.rx.packet(index).bytes, [received; 40]);
                received += 1;
            }
        }
        drop(sender.join().expect("no panic"));
    });
}

#[test]
fn packets_of_a_closed_port_arrive_and_its_ring_is_removed() {
    loom::model(|| {
        let hub = MemHub::new();
        let (mut alice, mut bob) = (hub.port(small()), hub.port(small()));
        let route = bob.local_route();
        let sender = thread::spawn(move || {
            alice.tx.push_bytes(&route, &[7; 40]);
            drop(alice);
        });
        assert_eq!(next_burst(&mut bob), 1);
        // An event loop sleeps only after an empty burst.
        bob.rx.burst();
        while bob.rx.ring_count() > 0 {
            bob.wait(None);
            bob.rx.burst();
        }
        sender.join().expect("no panic");
    });
}

#[test]
fn a_sender_that_connects_to_a_closing_port_counts_its_drops() {
    loom::model(|| {
        let hub = MemHub::new();
        let (mut alice, bob) = (hub.port(small()), hub.port(small()));
        let route = bob.local_route();
        let receiver = thread::spawn(move || drop(bob));
        alice.tx.push_bytes(&route, &[7; 40]);
        alice.tx.flush();
        receiver.join().expect("no panic");
        // By now the receiver is closed and the sender can see it.
        let dropped = alice.stats().tx_dropped;
        alice.tx.push_bytes(&route, &[7; 40]);
        assert_eq!(alice.stats().tx_dropped, dropped + 1);
    });
}
