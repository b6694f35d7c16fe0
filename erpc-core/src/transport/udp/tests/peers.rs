//! Sockets that are connected to their only peer.

use super::super::only_peer::CONNECT_AFTER;
use super::*;

/// Sends as many packets as connect a socket, and takes them from the peer.
fn settle_on(client: &mut UdpTransport, server: &mut UdpTransport, to: &UdpRoute) {
    for _ in 0..=CONNECT_AFTER {
        send(client, to, &[b"again"]);
        receive(server, 1);
    }
}

/// Sends three packets of one length and a longer one in each direction.
fn works(client: &mut UdpTransport, server: &mut UdpTransport, to: &UdpRoute, from: UdpRoute) {
    // The queue of the client is found empty.
    assert_eq!(client.split().0.burst(), 0);
    let packets: [&[u8]; 4] = [b"one", b"two", b"six", b"seven"];
    for _ in 0..3 {
        send(client, to, &packets);
        let arrived = receive(server, 4);
        let expected = packets.map(|bytes| (from, bytes.to_vec()));
        assert_eq!(arrived, expected);
        send(server, &from, &packets);
        let arrived = receive(client, 4);
        assert_eq!(arrived, packets.map(|bytes| (*to, bytes.to_vec())));
    }
}

#[test]
fn a_socket_with_one_peer_is_connected_and_continues_to_work() {
    for (address, offload) in [(V4, true), (V6, true), (V4, false)] {
        let open = || UdpTransport::bind(&config(address).offload(offload)).unwrap();
        let (mut client, mut server) = (open(), open());
        let (to, from) = (server.local_route(), client.local_route());
        settle_on(&mut client, &mut server, &to);
        assert_eq!(client.socket.peer(), Some(&to));
        works(&mut client, &mut server, &to, from);
    }
}

#[test]
fn a_socket_of_both_families_is_connected_to_a_peer_of_either() {
    for address in [V4, V6] {
        let mut client = UdpTransport::bind(&UdpConfig::new()).unwrap();
        let mut server = open(address);
        let (to, port) = (server.local_route(), client.local_route().port());
        settle_on(&mut client, &mut server, &to);
        assert_eq!(client.socket.peer(), Some(&to));
        works(&mut client, &mut server, &to, route(address).with_port(port));
    }
}

#[test]
fn a_connected_socket_takes_only_packets_of_its_peer() {
    let [mut client, mut server, mut stranger] = [V4; 3].map(open);
    let (to, from) = (server.local_route(), client.local_route());
    // This one is queued before the socket is connected, so it keeps its sender.
    send(&mut stranger, &from, &[b"early"]);
    settle_on(&mut client, &mut server, &to);
    send(&mut server, &from, &[b"late"]);
    let arrived = receive(&mut client, 2);
    assert_eq!(arrived, [(stranger.local_route(), b"early".to_vec()), (to, b"late".to_vec())]);
    send(&mut stranger, &from, &[b"refused"]);
    send(&mut server, &from, &[b"taken"]);
    assert_eq!(receive(&mut client, 1), [(to, b"taken".to_vec())]);
}

#[test]
fn the_second_peer_ends_the_connection() {
    for address in [V4, V6] {
        let [mut client, mut server, mut second] = [address; 3].map(open);
        let (to, from) = (server.local_route(), client.local_route());
        let other = second.local_route();
        settle_on(&mut client, &mut server, &to);
        assert_eq!(client.split().0.burst(), 0);
        send(&mut client, &other, &[b"hello"]);
        assert_eq!(client.socket.peer(), None);
        assert_eq!(receive(&mut second, 1)[0].0, from, "the port stays the same");
        for _ in 0..2 {
            works(&mut client, &mut second, &other, from);
            works(&mut client, &mut server, &to, from);
        }
        settle_on(&mut client, &mut server, &to);
        assert_eq!(client.socket.peer(), None, "a socket is connected only once");
    }
}

#[test]
fn a_socket_that_listens_or_alternates_is_never_connected() {
    let [mut server, mut client, mut second] = [V4; 3].map(open);
    let [to, other] = [&client, &second].map(Transport::local_route);
    server.listens();
    settle_on(&mut server, &mut client, &to);
    assert_eq!(server.socket.peer(), None);
    let mut alternating = open(V4);
    for _ in 0..CONNECT_AFTER {
        send(&mut alternating, &to, &[b"a"]);
        send(&mut alternating, &other, &[b"b"]);
        receive(&mut client, 1);
        receive(&mut second, 1);
    }
    assert_eq!(alternating.socket.peer(), None);
}

#[test]
fn an_endpoint_that_begins_to_listen_accepts_packets_of_all() {
    let [mut client, mut server, mut stranger] = [V4; 3].map(open);
    let (to, from) = (server.local_route(), client.local_route());
    settle_on(&mut client, &mut server, &to);
    assert_eq!(client.split().0.burst(), 0);
    client.listens();
    send(&mut stranger, &from, &[b"hello"]);
    assert_eq!(receive(&mut client, 1), [(stranger.local_route(), b"hello".to_vec())]);
}
