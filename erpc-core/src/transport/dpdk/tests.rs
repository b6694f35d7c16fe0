//! Tests of a group from within: of what no endpoint shows.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::transport::{RxQueue, Transport, TxQueue};

/// A pair of ports. DPDK starts once for all tests of the process.
fn pair(number: u32) -> [String; 2] {
    let prefix = format!("--file-prefix=erpc-unit-{}", std::process::id());
    let arguments = ["--no-huge", "-m", "128", "--no-pci", "--no-telemetry", "-l", "0", &prefix];
    init(&arguments).unwrap();
    let [a, b] = [format!("unit_a{number}"), format!("unit_b{number}")];
    ring_pair(&a, &b, 1).unwrap();
    [a, b].map(|name| format!("net_ring_{name}"))
}

fn config(device: &str, last: u8) -> DpdkConfig {
    DpdkConfig::new(device, [10, 9, 0, last].into(), 24)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a member of a group sleeps on its own thread")]
fn a_datagram_that_is_handed_over_wakes_a_sleeping_member() {
    /// Much longer than any pause of [`Transport::wait`], which would hide a missing wake-up.
    const PAUSE: Duration = Duration::from_secs(10);
    let [a, b] = pair(0);
    let mut group = DpdkTransport::open_group(&config(&a, 1).udp_port(31_850), 2).unwrap();
    let mut client = DpdkTransport::open(&config(&b, 2)).unwrap();
    let (mut second, mut first) = (group.pop().unwrap(), group.pop().unwrap());
    let to_second = second.local_route();
    // The client learns the group's MAC address.
    let end = Instant::now() + PAUSE;
    while second.split().0.burst() == 0 {
        assert!(Instant::now() < end);
        client.split().1.push_bytes(&to_second, &[1; 32]);
        client.split().1.flush();
        first.split().0.burst();
        client.split().0.burst();
    }
    while second.split().0.burst() > 0 {}
    thread::scope(|scope| {
        let (sleeps, is_asleep) = channel();
        let (wakes, is_awake) = channel();
        let second = &mut second;
        scope.spawn(move || {
            for _ in 0..100 {
                let begun = Instant::now();
                let member = second.member();
                member.bell.pause(PAUSE, || {
                    // After this look, only a wake-up ends the pause early.
                    let has_item = member.inbox.has_item();
                    sleeps.send(has_item).unwrap();
                    has_item
                });
                let woken = begun.elapsed() < PAUSE;
                wakes.send((woken, second.split().0.burst())).unwrap();
            }
        });
        for round in 0..100 {
            assert!(!is_asleep.recv().unwrap(), "round {round}: the inbox is empty");
            client.split().1.push_bytes(&to_second, &[1; 32]);
            client.split().1.flush();
            assert_eq!(first.split().0.burst(), 0, "the datagram is for the second member");
            assert_eq!(
                is_awake.recv().unwrap(),
                (true, 1),
                "round {round}: woken, with a datagram"
            );
        }
    });
}
