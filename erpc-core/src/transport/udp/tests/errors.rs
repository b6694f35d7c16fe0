//! Packets that were not delivered: reported, and without effect on other packets.

use super::*;
use crate::transport::{NetworkError, Undelivered};
use crate::wire::control::Control;
use crate::wire::{ConnectionId, ReplyInfo};

/// A packet of a client session. The kernel delivers it to the given member of a group.
fn packet(member: u8) -> Vec<u8> {
    let to = ConnectionId::new(member, true, 5, 0x1234_5678);
    let sender = ConnectionId::new(0, false, 6, 0x8765_4321);
    Control::Ping { sender }.emit(to, 1, ReplyInfo::default()).as_bytes().to_vec()
}

/// An address at which nothing listens. The port was free a moment ago.
fn nobody(address: &str) -> UdpRoute {
    let socket = StdSocket::bind(address).unwrap();
    socket.local_addr().unwrap().into()
}

/// Waits until at least `count` reports have arrived, for at most [`WAIT_LIMIT`], and returns them.
fn reports(transport: &mut UdpTransport, count: usize) -> Vec<Undelivered<UdpRoute>> {
    let (start, mut reports) = (Instant::now(), Vec::new());
    while reports.len() < count && start.elapsed() < WAIT_LIMIT {
        while let Some(report) = transport.next_undelivered() {
            reports.push(report);
        }
        if reports.len() < count {
            transport.wait(Some(Duration::from_millis(100)));
            transport.split().0.burst();
        }
    }
    reports
}

#[test]
fn a_packet_to_a_closed_port_is_reported_with_its_first_bytes() {
    for (own, address) in [(V4, V4), (V6, V6), ("[::]:0", V4), ("[::]:0", V6)] {
        let (mut client, to) = (open(own), nobody(address));
        let mut long = packet(0);
        long.resize(1_000, 7);
        for packet in [packet(0), long] {
            send(&mut client, &to, &[&packet]);
            let expected = Undelivered::new(to, NetworkError::NothingListens, &packet);
            assert_eq!(reports(&mut client, 1), [expected], "{own} to {address}");
            assert!(!client.has_undelivered() || client.next_undelivered().is_none());
        }
        assert_eq!(client.stats().tx_dropped, 0);
    }
}

#[test]
fn a_send_that_fails_with_another_peers_error_is_repeated() {
    for address in [V4, V6] {
        let mut server = open(address);
        let (mut client, gone, to) = (open(address), nobody(address), server.local_route());
        let (bad, good) = (packet(0), vec![9; 100]);
        for round in 0..50 {
            // The ICMP message comes back before `send` returns: the next call on the socket fails.
            send(&mut client, &gone, &[&bad]);
            match round % 4 {
                0 => send(&mut client, &to, &[&good]),
                1 => send(&mut client, &to, &[&good, &good[..50], &good]),
                // A run, which the kernel splits.
                2 => send(&mut client, &to, &[&good[..]; 20]),
                _ => {
                    let (_, tx) = client.split();
                    for _ in 0..3 {
                        tx.push_bytes(&gone, &bad);
                        tx.push_bytes(&to, &good);
                    }
                    tx.flush();
                }
            }
            let expected = [1, 3, 20, 3][round % 4];
            let arrived = receive(&mut server, expected);
            assert_eq!(arrived.len(), expected, "round {round}");
            assert!(arrived.iter().all(|(_, bytes)| bytes[0] == 9));
        }
        assert_eq!(client.stats().tx_dropped, 0, "no packet was lost");
    }
}

#[test]
fn a_send_that_takes_the_error_of_an_earlier_packet_tells_that_there_is_a_report() {
    let (mut client, server, gone) = (open(V4), open(V4), nobody(V4));
    let (to, bad) = (server.local_route(), packet(0));
    for count in [1, 3] {
        send(&mut client, &gone, &[&bad]);
        // One of these calls takes the error. Nothing else would tell a loop that does not sleep.
        let start = Instant::now();
        while !client.has_undelivered() {
            assert!(start.elapsed() < WAIT_LIMIT, "{count} packets: the report is not read");
            send(&mut client, &to, &vec![&b"good"[..]; count]);
        }
        let expected = Undelivered::new(gone, NetworkError::NothingListens, &bad);
        assert_eq!(client.next_undelivered(), Some(expected));
        while client.next_undelivered().is_some() {}
    }
}

#[test]
fn a_receive_call_that_takes_an_error_is_repeated() {
    let (mut client, mut server, gone) = (open(V4), open(V4), nobody(V4));
    let (here, bad) = (client.local_route(), packet(0));
    for round in 0..20 {
        send(&mut server, &here, &[b"one"]);
        send(&mut client, &gone, &[&bad]);
        let start = Instant::now();
        while !client.has_undelivered() {
            assert!(start.elapsed() < WAIT_LIMIT, "no report");
            client.wait(Some(Duration::from_millis(100)));
        }
        let (rx, _) = client.split();
        assert_eq!(rx.burst(), 1, "round {round}: the packet waits for the next turn");
        while client.split().0.burst() > 0 || client.next_undelivered().is_some() {}
    }
}

#[test]
fn a_report_ends_a_sleep_and_hides_no_packet() {
    let (mut client, mut server, gone) = (open(V4), open(V4), nobody(V4));
    let (here, bad) = (client.local_route(), packet(0));
    for _ in 0..20 {
        send(&mut client, &gone, &[&bad]);
        sleep(&mut client, "a report");
        assert!(client.has_undelivered());
        send(&mut server, &here, &[b"one", b"two"]);
        let (rx, _) = client.split();
        let mut arrived = rx.burst();
        assert!(arrived == 2 || !rx.is_drained(), "packets are queued");
        while arrived < 2 {
            arrived += client.split().0.burst();
        }
        assert_eq!(reports(&mut client, 1).len(), 1);
        while client.split().0.burst() > 0 || client.next_undelivered().is_some() {}
    }
    let start = Instant::now();
    client.wait(Some(Duration::from_millis(50)));
    assert!(start.elapsed() >= Duration::from_millis(50), "a report ends one sleep");
}

#[test]
fn a_packet_that_the_system_does_not_send_is_reported() {
    let mut client = open(V4);
    // A socket at 127.0.0.1 sends only within this host. An IPv4 socket sends no IPv6 packets.
    let refused = [("192.0.2.1:7", libc::EINVAL), ("[2001:db8::1]:7", libc::EAFNOSUPPORT)];
    for (to, errno) in refused.map(|(to, errno)| (route(to), errno)) {
        let packet = packet(0);
        for count in [1, 2, 20] {
            send(&mut client, &to, &vec![&packet[..]; count]);
            let expected = Undelivered::new(to, NetworkError::NotSent(errno), &packet);
            assert_eq!(reports(&mut client, count), vec![expected; count]);
        }
    }
    assert_eq!(client.stats().tx_dropped, 2 * (1 + 2 + 20));
}

#[test]
fn each_member_of_a_group_gets_the_reports_of_its_packets() {
    let mut group = UdpTransport::bind_group(&config(V4), 4).unwrap();
    for sender in 0..4 {
        // The kernel selects a member by a hash, so the receiver of the ICMP message varies.
        for _ in 0..16 {
            let to = nobody(V4);
            let client = ConnectionId::new(sender, false, 6, 0x8765_4321);
            let hello = Control::Hello { client, low: 1, high: 1 };
            let hello = hello.emit(ConnectionId::endpoint(0), 0, ReplyInfo::default());
            let ping = packet(0);
            send(&mut group[usize::from(sender)], &to, &[hello.as_bytes(), &ping]);
            let start = Instant::now();
            let mut counts = [0; 4];
            while counts.iter().sum::<usize>() < 5 && start.elapsed() < WAIT_LIMIT {
                for (count, member) in counts.iter_mut().zip(&mut group) {
                    member.split().0.burst();
                    while let Some(report) = member.next_undelivered() {
                        assert_eq!(report.route, to);
                        *count += 1;
                    }
                }
            }
            let mut expected = [1; 4];
            expected[usize::from(sender)] = 2;
            assert_eq!(counts, expected, "the ping may be any member's, the hello is not");
        }
    }
}
