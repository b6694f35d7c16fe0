//! Tests of the transport over real sockets, through its traits.

mod bundles;
mod capacity;
mod ecn;
mod errors;
mod group;
mod padding;

use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::time::{Duration, Instant};

use super::*;
use crate::buf::MsgBuf;
use crate::transport::{
    Link, MAX_BURST, MIN_DATAGRAM, Path, Route, RxQueue, Transport, TxPacket, TxQueue,
};
use crate::wire::checksum::{check, overhead};
use crate::wire::{ConnectionId, Flags, HEADER_LEN, Head, HeaderWords, Kind, RequestNumber};

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";
/// Longer than any scheduling delay.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

fn config(address: &str) -> UdpConfig {
    UdpConfig::new().address(address.parse().unwrap())
}

fn open(address: &str) -> UdpTransport {
    UdpTransport::bind(&config(address)).unwrap()
}

fn route(text: &str) -> UdpRoute {
    text.parse::<SocketAddr>().unwrap().into()
}

fn send(transport: &mut UdpTransport, to: &UdpRoute, packets: &[&[u8]]) {
    let (_, tx) = transport.split();
    packets.iter().for_each(|bytes| tx.push_bytes(to, bytes));
    tx.flush();
}

/// Receives until `count` packets have arrived, or the time limit is reached.
fn receive(transport: &mut UdpTransport, count: usize) -> Vec<(UdpRoute, Vec<u8>)> {
    let mut packets = Vec::new();
    let start = Instant::now();
    while packets.len() < count && start.elapsed() < WAIT_LIMIT {
        let (rx, _) = transport.split();
        let burst = rx.burst();
        packets.extend((0..burst).map(|i| (rx.packet(i).route, rx.packet(i).bytes.to_vec())));
        if burst == 0 {
            transport.wait(Some(Duration::from_millis(100)));
        }
    }
    packets
}

/// Sleeps until an event ends the sleep, and fails if that takes too long.
#[track_caller]
fn sleep(transport: &mut UdpTransport, expected: &str) {
    let start = Instant::now();
    transport.wait(Some(WAIT_LIMIT));
    assert!(start.elapsed() < WAIT_LIMIT, "the sleep did not end with {expected}");
}

fn lengths(packets: &[(UdpRoute, Vec<u8>)]) -> Vec<usize> {
    packets.iter().map(|(_, bytes)| bytes.len()).collect()
}

/// A message of `len` bytes. Each byte encodes its offset.
fn message(len: usize) -> MsgBuf {
    let mut msgbuf = MsgBuf::detached(len).unwrap();
    msgbuf.resize(len);
    msgbuf.as_mut_slice().iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    msgbuf
}

#[test]
fn packets_arrive_in_both_directions() {
    for address in [V4, V6] {
        let (mut client, mut server) = (open(address), open(address));
        let to = server.local_route();
        send(&mut client, &to, &[b"one", b"", b"three"]);
        let arrived = receive(&mut server, 3);
        assert_eq!(arrived[0], (client.local_route(), b"one".to_vec()));
        assert_eq!(lengths(&arrived), [3, 0, 5]);
        let (_, tx) = server.split();
        arrived.iter().for_each(|(from, bytes)| tx.push_bytes(from, bytes));
        tx.doorbell();
        assert_eq!(lengths(&receive(&mut client, 3)), [3, 0, 5]);
        let stats = client.stats();
        assert_eq!(
            (stats.tx_packets, stats.tx_bytes, stats.rx_packets, stats.rx_bytes),
            (3, 8, 3, 8)
        );
    }
}

#[test]
fn the_default_transport_supports_both_families() {
    let mut server = UdpTransport::bind(&UdpConfig::new()).unwrap();
    let port = server.local_route().port();
    assert_ne!(port, 0);
    for (own, to) in [(V4, "127.0.0.1:0"), (V6, "[::1]:0")] {
        let mut client = open(own);
        send(&mut client, &route(to).with_port(port), &[b"ping"]);
        let arrived = receive(&mut server, 1);
        assert_eq!(arrived[0].0, client.local_route(), "both ends see the same route");
        send(&mut server, &arrived[0].0, &[b"pong"]);
        assert_eq!(receive(&mut client, 1)[0].1, b"pong");
    }
}

#[test]
fn messages_of_every_shape_arrive_intact() {
    for address in [V4, V6] {
        for (offload, trailer) in [(false, false), (true, false), (false, true), (true, true)] {
            let open = || UdpTransport::bind(&config(address).offload(offload)).unwrap();
            let (mut client, mut server) = (open(), open());
            let to = server.local_route();
            let largest = client.path(&to).datagram - overhead(trailer);
            for sizes in [
                &[1_000, 1_000, 1_000, 400, 1_000][..],
                &[largest],
                &[20_000, 20_000, 500],
                &[9_000; 9],
            ] {
                let header = [7; HEADER_LEN];
                let messages: Vec<_> = sizes.iter().map(|&len| message(len)).collect();
                let (_, tx) = client.split();
                for message in &messages {
                    let packet = TxPacket::new(message, &header, message.as_slice());
                    tx.push(&to, packet.sealed(trailer));
                }
                tx.flush();
                assert!(messages.iter().all(MsgBuf::is_unique), "a flushed queue holds no msgbuf");
                let mut arrived = receive(&mut server, sizes.len());
                assert_eq!(arrived.len(), sizes.len());
                // Whole messages may arrive in any order.
                let mut messages = messages;
                messages.sort_by_key(MsgBuf::len);
                arrived.sort_by_key(|(_, bytes)| bytes.len());
                for ((from, bytes), message) in arrived.iter().zip(&messages) {
                    assert_eq!((*from, &bytes[..HEADER_LEN]), (client.local_route(), &header[..]));
                    let rest = if trailer { check(bytes).unwrap() } else { bytes };
                    assert!(rest[HEADER_LEN..] == *message.as_slice());
                }
            }
        }
    }
}

/// Makes `server` coalesce: sends it a few runs.
fn warm_up(client: &mut UdpTransport, server: &mut UdpTransport) {
    let to = server.local_route();
    while !server.rx.is_coalescing() {
        send(client, &to, &[&[0; 40][..]; 8]);
        assert_eq!(receive(server, 8).len(), 8);
    }
    while server.split().0.burst() > 0 {}
}

#[test]
fn packets_of_one_length_leave_together_but_long_messages_stay_in_order() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    warm_up(&mut client, &mut server);
    let header = [7; HEADER_LEN];
    let (small, large, long) = (message(50), message(3_000), message(150));
    let (_, tx) = client.split();
    for _ in 0..4 {
        for message in [&small, &large] {
            tx.push(&to, TxPacket::new(message, &header, message.as_slice()));
        }
    }
    // A message of three packets, of which the second has the length of the small messages.
    for range in [0..30, 30..80, 80..150] {
        tx.push(&to, TxPacket::new(&long, &header, &long.as_slice()[range]));
    }
    tx.flush();
    let arrived = receive(&mut server, 11);
    let lengths: Vec<_> = arrived.iter().map(|(_, bytes)| bytes.len() - HEADER_LEN).collect();
    let [l, s] = [3_000, 50];
    assert_eq!(lengths, [s, s, s, s, l, l, l, l, 30, 50, 70]);
    for (_, bytes) in &arrived[..8] {
        assert!(bytes[HEADER_LEN..] == message(bytes.len() - HEADER_LEN).as_slice()[..]);
    }
    // The first packet of the long message ends the run of large messages.
    assert_eq!(server.split().0.datagrams(), 4);
}

#[test]
fn a_full_run_is_sent_without_a_doorbell() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    let (header, small, large) = ([7; HEADER_LEN], message(50), message(9_000));
    let (_, tx) = client.split();
    for (message, full) in [(&small, 128), (&large, 7)] {
        for _ in 0..full {
            tx.push(&to, TxPacket::new(message, &header, message.as_slice()));
        }
        assert_eq!(receive(&mut server, full).len(), full);
        assert!(message.is_unique());
    }
}

#[test]
fn a_run_that_the_system_refuses_is_sent_one_by_one() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    let header = [7; HEADER_LEN];
    for (len, trailer) in [(100, false), (3_000, false), (100, true), (3_000, true)] {
        let messages = [message(len), message(len), message(len)];
        let (_, tx) = client.split();
        for message in &messages {
            let packet = TxPacket::new(message, &header, message.as_slice());
            tx.push(&to, packet.sealed(trailer));
        }
        tx.send_all_apart();
        assert!(messages.iter().all(MsgBuf::is_unique));
        for (_, bytes) in receive(&mut server, 3) {
            let rest = if trailer { check(&bytes).unwrap() } else { &bytes };
            assert!(rest[HEADER_LEN..] == *messages[0].as_slice());
        }
    }
    let stats = client.stats();
    assert_eq!((stats.tx_packets, stats.tx_dropped, server.stats().rx_packets), (12, 0, 12));
}

#[test]
fn small_messages_join_runs_without_a_change_of_bytes() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    warm_up(&mut client, &mut server);
    let (connection, head) = (ConnectionId::from_u64(7), Head::new(Kind::Request, Flags::NONE));
    let mut number = 0;
    let mut sent = vec![];
    // Several lengths, more than a run has, and a packet of another kind in the middle of a run.
    for (len, count) in [(32, 5), (50, 1), (0, 3), (50, 300), (33, 2), (2_000, 60), (3_000, 3)] {
        for _ in 0..count {
            let mut message = message(len);
            let request = RequestNumber::from_u32(number);
            let header = HeaderWords::single(connection, head, request, 5, len as u32);
            let (_, tx) = client.split();
            tx.push_single(&to, header, &mut message, false);
            sent.push([&header.to_bytes()[..], message.as_slice()].concat());
            if number == 100 {
                tx.push_bytes(&to, &[9; 40]);
                sent.push(vec![9; 40]);
            }
            number += 1;
        }
        client.split().1.flush();
        let arrived = receive(&mut server, sent.len());
        let mut arrived: Vec<_> = arrived.into_iter().map(|(_, bytes)| bytes).collect();
        // Messages of one packet may overtake others.
        arrived.sort();
        sent.sort();
        assert!(arrived == sent, "messages of {len} bytes");
        sent.clear();
    }
    assert_eq!(client.stats().tx_dropped, 0);
}

#[test]
fn runs_have_64_packets_after_the_kernel_has_refused_more() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    let header = [7; HEADER_LEN];
    let small = message(30);
    let (_, tx) = client.split();
    // No kernel splits so many.
    tx.set_run(200);
    for _ in 0..200 {
        tx.push(&to, TxPacket::new(&small, &header, small.as_slice()));
    }
    assert_eq!(receive(&mut server, 200).len(), 200, "each is sent");
    let (_, tx) = client.split();
    assert_eq!(tx.run(), 64);
    for _ in 0..64 {
        tx.push(&to, TxPacket::new(&small, &header, small.as_slice()));
    }
    assert_eq!(receive(&mut server, 64).len(), 64, "sent without a doorbell");
}

#[test]
fn a_peer_that_cannot_be_reached_makes_no_later_run_shorter() {
    let (mut client, mut server) = (open(V4), open(V4));
    // A socket may not send to the broadcast address unless it asks for that.
    let nowhere = UdpRoute::from("255.255.255.255:9".parse::<SocketAddr>().unwrap());
    send(&mut client, &nowhere, &[&[0; 40][..]; 100]);
    assert_eq!(client.stats().tx_dropped, 100);
    send(&mut client, &server.local_route(), &[&[0; 40][..]; 100]);
    assert_eq!(receive(&mut server, 100).len(), 100);
    assert_eq!(client.split().1.run(), 128);
}

#[test]
fn more_is_left_until_the_last_received_packet_is_handed_out() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    warm_up(&mut client, &mut server);
    // Each run is handed out in two bursts.
    for _ in 0..3 {
        send(&mut client, &to, &[&[0; 40][..]; 2 * MAX_BURST]);
    }
    sleep(&mut server, "packets");
    let (rx, _) = server.split();
    let mut more = vec![];
    while rx.burst() == MAX_BURST {
        more.push(rx.has_more());
    }
    assert_eq!(more, [true, true, true, true, true, false]);
}

#[test]
fn runs_are_handed_out_in_bursts_and_in_order() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    let mut next = 0_u32;
    // The first rounds make the receiver coalesce; the later rounds receive coalesced packets.
    for round in 0..20 {
        let (_, tx) = client.split();
        for number in 0..100_u32 {
            // Behind the bytes that name a member of a group, by which runs differ.
            let mut bytes = [0; 64];
            bytes[16..20].copy_from_slice(&(round * 100 + number).to_le_bytes());
            tx.push_bytes(&to, &bytes[..if number % 10 == 9 { 40 } else { 64 }]);
        }
        tx.flush();
        let (mut arrived, start) = (0, Instant::now());
        while arrived < 100 {
            assert!(start.elapsed() < WAIT_LIMIT, "packets are missing after {arrived}");
            let (rx, _) = server.split();
            let burst = rx.burst();
            assert!(burst <= MAX_BURST);
            for index in 0..burst {
                let bytes = rx.packet(index).bytes;
                assert_eq!(bytes.len(), if next % 10 == 9 { 40 } else { 64 });
                assert_eq!(u32::from_le_bytes(*bytes[16..].first_chunk().unwrap()), next);
                next += 1;
            }
            arrived += burst;
        }
    }
    // Single packets make the receiver stop coalescing, and nothing is lost meanwhile.
    for _ in 0..200 {
        send(&mut client, &to, &[b"single"]);
        assert_eq!(lengths(&receive(&mut server, 1)), [6]);
        assert_eq!(server.split().0.burst(), 0);
    }
    let stats = server.stats();
    assert_eq!((stats.rx_packets, stats.rx_truncated, stats.rx_overflow), (2_200, 0, 0));
}

#[test]
fn a_sleeping_receiver_does_not_miss_pending_packets() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    for _ in 0..3 {
        let (_, tx) = client.split();
        (0..96).for_each(|_| tx.push_bytes(&to, &[1; 32]));
        tx.flush();
        let mut arrived = 0;
        while arrived < 96 {
            // Packets that are received but not yet handed out must end the sleep, too.
            sleep(&mut server, "pending packets");
            arrived += server.split().0.burst();
        }
    }
}

#[test]
fn datagrams_that_are_too_long_are_dropped_and_counted() {
    for offload in [false, true] {
        let config = config(V4).max_datagram(MIN_DATAGRAM).offload(offload);
        let mut server = UdpTransport::bind(&config).unwrap();
        let client = StdSocket::bind(V4).unwrap();
        let to = server.local_route().socket_addr();
        for len in [MIN_DATAGRAM, MIN_DATAGRAM + 1, 3_000, 65_507, 10] {
            client.send_to(&vec![0; len], to).unwrap();
        }
        assert_eq!(lengths(&receive(&mut server, 2)), [MIN_DATAGRAM, 10]);
        assert_eq!(server.stats().rx_truncated, 3);
    }
}

#[test]
fn a_datagram_that_the_system_has_cut_is_dropped_whatever_its_length_is() {
    // The receive buffers have exactly this length, so that the rest of the datagram is cut off.
    let config = config(V4).max_datagram(23 * 64).offload(false);
    let mut server = UdpTransport::bind(&config).unwrap();
    let client = StdSocket::bind(V4).unwrap();
    let to = server.local_route().socket_addr();
    // The first datagram is received alone and without its flags, some of the others together.
    for len in [10, 3_000, 10, 3_000, 3_000, 10, 10] {
        client.send_to(&vec![0; len], to).unwrap();
    }
    assert_eq!(lengths(&receive(&mut server, 4)), [10; 4]);
    assert_eq!(server.stats().rx_truncated, 3);
}

#[test]
fn a_wake_before_or_during_a_sleep_ends_it() {
    let mut transport = open(V4);
    let waker = transport.waker();
    waker.wake();
    waker.wake();
    sleep(&mut transport, "an earlier wake");
    let start = Instant::now();
    transport.wait(Some(Duration::from_millis(20)));
    assert!(start.elapsed() >= Duration::from_millis(15), "two wakes ended two sleeps");
    for _ in 0..100 {
        let waker = transport.waker();
        let thread = std::thread::spawn(move || waker.wake());
        sleep(&mut transport, "a wake");
        thread.join().unwrap();
    }
}

#[test]
fn a_packet_ends_a_sleep() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    let (send_woken, woken) = std::sync::mpsc::channel();
    // The receiver sleeps on its own thread, which the test can abandon if it sleeps forever.
    std::thread::spawn(move || {
        server.wait(None);
        send_woken.send(server.split().0.burst())
    });
    send(&mut client, &to, &[b"x"]);
    assert_eq!(woken.recv_timeout(WAIT_LIMIT), Ok(1), "the packet did not end the sleep");
}

#[test]
fn the_path_and_the_interface_limit_the_datagram_size() {
    let mut any = UdpTransport::bind(&UdpConfig::new()).unwrap();
    assert_eq!(any.capabilities().max_datagram, MAX_DATAGRAM);
    assert_eq!(any.path(&route("127.0.0.1:9")), Path { datagram: 65_507, link: Link::Local });
    assert_eq!(any.path(&route("[::1]:9")), Path { datagram: 65_488, link: Link::Local });
    assert_eq!(open(V4).capabilities().max_datagram, 65_507);
    assert_eq!(open(V6).capabilities().max_datagram, 65_488);
    let mut small = UdpTransport::bind(&config(V4).max_datagram(2_000)).unwrap();
    assert_eq!(small.path(&route("127.0.0.1:9")).datagram, 2_000);
    // No route leads from a socket on loopback to RFC 6666's discard prefix.
    let mut local = open(V6);
    let unknown = local.path(&route("[100::1]:9")).datagram;
    assert!(unknown >= MIN_DATAGRAM, "{unknown}");
}

#[test]
fn one_unreachable_peer_does_not_stop_the_others() {
    let (mut client, mut server) = (open(V4), open(V4));
    let good = server.local_route();
    let closed = good.with_port(open(V4).local_route().port());
    let (bad_family, bad_port) = (route("[::1]:9"), route("127.0.0.1:0"));
    for _ in 0..5 {
        let (_, tx) = client.split();
        for to in [closed, good, bad_family, bad_port, bad_port, good, closed] {
            tx.push_bytes(&to, b"hello");
        }
        tx.flush();
        // The client also sends the packets one by one, because single packets use a separate code
        // path.
        for to in [closed, bad_port, good] {
            tx.push_bytes(&to, b"hello");
            tx.flush();
        }
    }
    assert_eq!(receive(&mut server, 15).len(), 15);
    let stats = client.stats();
    assert_eq!(stats.tx_packets + stats.tx_dropped, 50);
    assert_eq!(stats.tx_dropped, 20);
}

#[test]
fn packets_of_the_wrong_family_are_not_held() {
    let mut client = open(V4);
    let (header, large) = ([0; HEADER_LEN], message(5_000));
    let (_, tx) = client.split();
    for _ in 0..1_000 {
        tx.push_bytes(&route("[::1]:9"), &[0; MIN_DATAGRAM]);
        tx.push(&route("[::1]:9"), TxPacket::new(&large, &header, large.as_slice()));
    }
    assert!(large.is_unique());
    tx.flush();
    assert_eq!(client.stats().tx_dropped, 2_000);
}

#[test]
fn a_datagram_too_long_for_the_path_is_dropped_and_counted() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    let (header, huge, small) = ([0; HEADER_LEN], message(65_600), message(100));
    let (_, tx) = client.split();
    tx.push(&to, TxPacket::new(&huge, &header, huge.as_slice()));
    tx.push(&to, TxPacket::new(&small, &header, small.as_slice()));
    tx.flush();
    assert_eq!(lengths(&receive(&mut server, 1)), [HEADER_LEN + 100]);
    assert_eq!((client.stats().tx_packets, client.stats().tx_dropped), (1, 1));
}

#[test]
fn bind_errors_describe_the_cause() {
    let taken = open(V4);
    let address = taken.local_route().socket_addr();
    let error = UdpTransport::bind(&config(V4).address(address)).unwrap_err();
    assert_eq!(error, UdpError::AddressInUse { address });
    assert!(error.to_string().contains(&address.to_string()));
    let foreign = "192.0.2.1:7777".parse().unwrap();
    let error = UdpTransport::bind(&config(V4).address(foreign)).unwrap_err();
    assert_eq!(error, UdpError::AddressNotAvailable { address: foreign });
    let error = UdpTransport::bind(&config(V4).max_datagram(MIN_DATAGRAM - 1)).unwrap_err();
    assert_eq!(error, UdpError::DatagramSize { bytes: MIN_DATAGRAM - 1 });
    for members in [0, 257] {
        assert_eq!(
            UdpTransport::bind_group(&config(V4), members).unwrap_err(),
            UdpError::GroupSize { members }
        );
    }
}

#[test]
fn a_transport_is_send() {
    fn is_send<T: Send>() {}
    is_send::<UdpTransport>();
}

#[test]
fn after_long_datagrams_a_call_asks_for_few() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    let mut largest_call = |lengths: &[usize]| {
        for &len in lengths {
            let (_, tx) = client.split();
            let message = message(len);
            tx.push(&to, TxPacket::new(&message, &[7; HEADER_LEN], message.as_slice()));
            tx.flush();
        }
        let (mut arrived, mut most) = (0, 0);
        let start = Instant::now();
        while arrived < lengths.len() && start.elapsed() < WAIT_LIMIT {
            let count = server.split().0.burst();
            arrived += count;
            most = most.max(count);
        }
        assert_eq!(arrived, lengths.len());
        most
    };
    // Two datagrams make the queue request many, and show that they are long.
    largest_call(&[1_000; 16]);
    assert!(largest_call(&[1_000; 16]) > 8);
    largest_call(&[20_000; 4]);
    largest_call(&[20_000; 4]);
    assert!(largest_call(&[20_000; 12]) <= 8);
    assert!(largest_call(&[1_000; 16]) <= 8, "the queue learns the length with this call");
    assert!(largest_call(&[1_000; 16]) > 8);
}
