//! Groups: the kernel selects the member that a packet names.

use std::os::fd::AsFd;

use super::*;
use crate::wire::{ConnectionId, Flags, Header, Kind, PacketNumber, RequestNumber};

/// Control message type of a client's first packet.
const HELLO: u32 = 1;

pub(super) fn header(steer: u8, kind: Kind, packet: u32) -> [u8; HEADER_LEN] {
    Header {
        connection: ConnectionId::new(steer, true, 5, 0xdead_beef),
        kind,
        packet: PacketNumber::new(packet),
        request: RequestNumber::default(),
        aux: 0,
        size: 0,
        flags: Flags::new(kind == Kind::Control, false),
    }
    .to_bytes()
}

/// Index of the member that received a packet.
fn receiver(group: &mut [UdpTransport]) -> usize {
    let start = Instant::now();
    while start.elapsed() < WAIT_LIMIT {
        if let Some(index) = group.iter_mut().position(|member| member.split().0.burst() > 0) {
            return index;
        }
    }
    panic!("no member received the packet");
}

#[test]
fn packets_reach_the_member_that_they_name() {
    // The server's address, the client's address, and the address by which the client reaches the
    // server.
    for (address, client, server) in
        [(V4, V4, V4), (V6, V6, V6), ("[::]:0", V4, V4), ("[::]:0", V6, V6)]
    {
        let mut group = UdpTransport::bind_group(&config(address), 5).unwrap();
        let port = group[0].local_route().port();
        for (index, member) in group.iter().enumerate() {
            assert_eq!(usize::from(member.capabilities().steer), index);
            assert_eq!(member.local_route().port(), port, "one port for all");
        }
        let to = route(server).with_port(port);
        let mut clients: Vec<_> = (0..3).map(|_| open(client)).collect();
        for kind in [Kind::Request, Kind::RequestForResponse, Kind::Done] {
            for steer in [0, 1, 2, 3, 4, 3, 0] {
                for sender in &mut clients {
                    // This packet has the packet number of a hello, but the kind of another packet.
                    send(sender, &to, &[&header(steer, kind, HELLO)]);
                    assert_eq!(receiver(&mut group), usize::from(steer), "{address} {kind:?}");
                }
            }
        }
        assert_eq!(steer::member_of(&header(4, Kind::Control, HELLO)), None);
        for control in [0, 2, 3, HELLO << 8, HELLO << 16] {
            send(&mut clients[0], &to, &[&header(4, Kind::Control, control)]);
            assert_eq!(steer::member_of(&header(4, Kind::Control, control)), Some(4));
            assert_eq!(receiver(&mut group), 4, "other control messages are steered");
        }
    }
}

#[test]
fn new_clients_are_spread_over_the_members() {
    for address in [V4, V6] {
        let mut group = UdpTransport::bind_group(&config(address), 4).unwrap();
        let to = group[0].local_route();
        let mut hits = [0; 4];
        for _ in 0..64 {
            let mut client = open(address);
            send(&mut client, &to, &[&header(0, Kind::Control, HELLO)]);
            hits[receiver(&mut group)] += 1;
        }
        assert!(hits.iter().filter(|&&count| count > 4).count() >= 3, "{hits:?}");
    }
}

#[test]
fn invalid_packets_and_unknown_members_reach_some_member() {
    let mut group = UdpTransport::bind_group(&config(V4), 2).unwrap();
    let to = group[0].local_route();
    let mut client = open(V4);
    for noise in [&[][..], &[1], &[1; 11], &header(200, Kind::Request, 0)] {
        send(&mut client, &to, &[noise]);
        receiver(&mut group);
    }
}

#[test]
fn runs_are_steered_and_never_mix_members() {
    let mut group = UdpTransport::bind_group(&config(V4), 3).unwrap();
    let to = group[0].local_route();
    let mut client = open(V4);
    let packets: Vec<_> =
        [2, 2, 1, 1, 1, 2, 0, 1].map(|steer| header(steer, Kind::Request, 0)).into();
    for _ in 0..100 {
        send(&mut client, &to, &packets.iter().map(|packet| &packet[..]).collect::<Vec<_>>());
        for (member, expect) in group.iter_mut().zip([1, 4, 3]) {
            assert_eq!(receive(member, expect).len(), expect);
        }
    }
}

#[test]
fn padded_runs_never_mix_members() {
    let mut group = UdpTransport::bind_group(&config(V4), 2).unwrap();
    let to = group[0].local_route();
    let (mut client, mut other) = (open(V4), open(V4));
    let messages: Vec<_> = (0..12).map(|at| message(50 + at)).collect();
    let (_, tx) = client.split();
    for (at, message) in messages.iter().enumerate() {
        let header = header((at % 2) as u8, Kind::Request, 0);
        let to = if at % 3 == 0 { other.local_route() } else { to };
        tx.push(&to, TxPacket::new(message, &header, message.as_slice()));
    }
    tx.flush();
    assert_eq!(receive(&mut other, 4).len(), 4);
    for (steer, member) in group.iter_mut().enumerate() {
        let arrived = receive(member, 4);
        assert_eq!(arrived.len(), 4);
        assert!(arrived.iter().all(|(_, bytes)| usize::from(bytes[0]) == steer));
        let first = lengths(&arrived)[0];
        assert!(lengths(&arrived).iter().all(|len| *len == first), "they are padded");
    }
}

/// Sends a run with packets for several members, as a network card's driver may coalesce it.
fn send_mixed_run(client: &StdSocket, to: SocketAddr, steers: &[u8]) {
    let packets: Vec<_> =
        steers.iter().flat_map(|&steer| header(steer, Kind::Request, 0)).collect();
    assert_eq!(client.send_to(&packets, to).unwrap(), packets.len());
}

#[test]
fn strays_reach_their_member() {
    let mut group = UdpTransport::bind_group(&config(V4), 3).unwrap();
    let to = group[0].local_route().socket_addr();
    let client = StdSocket::bind(V4).unwrap();
    sys::set_option(client.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, HEADER_LEN as i32).unwrap();
    // A member that does not coalesce yet cannot detect strays; make all of them coalesce.
    for steer in 0..3 {
        send_mixed_run(&client, to, &[steer; 32]);
        assert_eq!(receive(&mut group[usize::from(steer)], 32).len(), 32);
    }
    let from = UdpRoute::from(client.local_addr().unwrap());
    for _ in 0..100 {
        send_mixed_run(&client, to, &[1, 0, 1, 2, 2, 7, 1]);
        let own = receive(&mut group[1], 4);
        assert_eq!(own.iter().map(|(_, bytes)| bytes[0]).collect::<Vec<_>>(), [1, 1, 7, 1]);
        for (index, expect) in [(0, 1), (2, 2)] {
            sleep(&mut group[index], "strays that another member has received");
            let strays = receive(&mut group[index], expect);
            assert_eq!(strays.len(), expect);
            assert!(
                strays
                    .iter()
                    .all(|(route, bytes)| *route == from && usize::from(bytes[0]) == index)
            );
        }
    }
    // While member 2 does not empty its inbox, 12,400 packets arrive for it: more than the inbox
    // has room for.
    for _ in 0..400 {
        send_mixed_run(&client, to, &[[1].as_slice(), &[2; 31]].concat());
        receive(&mut group[1], 1);
    }
    let overflow = group[1].stats().rx_overflow;
    let kept = receive(&mut group[2], 12_400 - overflow as usize).len() as u64;
    assert!(overflow > 0);
    assert_eq!(kept + overflow, 12_400);
    assert_eq!(group[2].stats().rx_packets, 32 + 200 + kept);
}

#[test]
fn a_second_group_is_refused_the_port() {
    for address in [V4, V6, "[::]:0"] {
        let group = UdpTransport::bind_group(&config(address), 3).unwrap();
        let mut taken: SocketAddr = address.parse().unwrap();
        taken.set_port(group[0].local_route().port());
        let again = config(address).address(taken);
        let refusal = UdpError::AddressInUse { address: taken };
        assert_eq!(UdpTransport::bind_group(&again, 3).unwrap_err(), refusal);
        assert_eq!(UdpTransport::bind(&again).unwrap_err(), refusal);
        drop(group);
        assert_eq!(UdpTransport::bind_group(&again, 3).unwrap().len(), 3);
    }
}
