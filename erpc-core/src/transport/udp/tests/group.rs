//! Groups: the kernel finds the member that a packet names.

use super::*;
use crate::wire::{ConnectionId, Header, Kind, PacketNumber, RequestNumber};

/// Control message type of a client's first packet.
const HELLO: u32 = 1;

fn header(steer: u8, kind: Kind, packet: u32) -> [u8; HEADER_LEN] {
    Header {
        connection: ConnectionId::new(steer, true, 5, 0xdead_beef),
        kind,
        packet: PacketNumber::new(packet),
        request: RequestNumber::default(),
        aux: 0,
        size: 0,
    }
    .to_bytes()
}

/// Which member received something; exactly one must.
fn receiver(group: &mut [UdpTransport]) -> usize {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(index) = group.iter_mut().position(|member| member.split().0.burst() > 0) {
            return index;
        }
    }
    panic!("nobody received the packet");
}

#[test]
fn packets_reach_the_member_they_name() {
    // Server's address, and where a client of either family finds it.
    for (address, client, server) in [(V4, V4, V4), (V6, V6, V6), ("[::]:0", V4, V4), ("[::]:0", V6, V6)] {
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
                    // The packet number of a hello, in a packet that is none.
                    send(sender, &to, &[&header(steer, kind, HELLO)]);
                    assert_eq!(receiver(&mut group), usize::from(steer), "{address} {kind:?}");
                }
            }
        }
        for control in [0, 2, 3, HELLO << 8, HELLO << 16] {
            send(&mut clients[0], &to, &[&header(4, Kind::Control, control)]);
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
fn noise_and_unknown_members_reach_somebody() {
    let mut group = UdpTransport::bind_group(&config(V4), 2).unwrap();
    let to = group[0].local_route();
    let mut client = open(V4);
    for noise in [&[][..], &[1], &[1; 11], &header(200, Kind::Request, 0)] {
        send(&mut client, &to, &[noise]);
        receiver(&mut group);
    }
}

#[test]
fn runs_are_steered_as_their_first_packet() {
    let mut group = UdpTransport::bind_group(&config(V4), 3).unwrap();
    let to = group[0].local_route();
    let mut client = open(V4);
    let packet = header(2, Kind::Request, 0);
    send(&mut client, &to, &[&packet[..]; 16]);
    assert_eq!(receive(&mut group[2], 16).len(), 16);
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
