//! Messages that share datagrams.

use std::os::fd::AsFd;

use super::*;
use crate::transport::bundles::BUNDLES;
use crate::wire::bundle::MAX_BUNDLE;

/// Most messages of 32 bytes in a bundle.
const MOST: usize = MAX_BUNDLE / (HEADER_LEN + 32);

/// Stages requests, and knows the bytes of their packets.
#[derive(Default)]
struct Sender {
    number: u32,
    sent: Vec<Vec<u8>>,
}

impl Sender {
    /// Stages a request of `len` bytes for a member of a peer.
    fn request(&mut self, from: &mut UdpTransport, to: &UdpRoute, member: u8, len: usize) {
        self.stage(from, to, member, len, true);
    }

    fn stage(
        &mut self,
        from: &mut UdpTransport,
        to: &UdpRoute,
        member: u8,
        len: usize,
        takes_bundles: bool,
    ) {
        self.number += 1;
        let mut message = message(len);
        let header = HeaderWords::single(
            ConnectionId::new(member, true, 5, 0xdead_beef),
            Head::new(Kind::Request, Flags::NONE),
            RequestNumber::from_u32(self.number),
            0,
            len as u32,
        );
        from.split().1.push_single(to, header, &mut message, takes_bundles);
        self.sent.push([&header.to_bytes()[..], message.as_slice()].concat());
    }

    /// Flushes, and checks that the packets arrive, in any order and perhaps padded. Returns the
    /// number of datagrams.
    #[track_caller]
    fn arrive(&mut self, client: &mut UdpTransport, server: &mut UdpTransport) -> u64 {
        client.split().1.flush();
        self.expect(server)
    }

    #[track_caller]
    fn expect(&mut self, server: &mut UdpTransport) -> u64 {
        let before = server.stats().rx_packets;
        let arrived = receive(server, self.sent.len());
        let mut arrived: Vec<_> = arrived.iter().map(|(_, bytes)| without_padding(bytes)).collect();
        let mut sent = std::mem::take(&mut self.sent);
        arrived.sort();
        sent.sort();
        assert!(arrived == sent, "the packets arrive whole, each once");
        server.stats().rx_packets - before
    }
}

fn without_padding(packet: &[u8]) -> Vec<u8> {
    let (head, body) = packet.split_at(HEADER_LEN);
    let header = HeaderWords::read(head).unwrap();
    [head, header.unpadded(body)].concat()
}

fn both(offload: bool) -> (UdpTransport, UdpTransport, UdpRoute) {
    let open = || UdpTransport::bind(&config(V4).offload(offload)).unwrap();
    let (client, server) = (open(), open());
    let to = server.local_route();
    (client, server, to)
}

#[test]
fn messages_that_leave_together_share_datagrams() {
    for offload in [false, true] {
        let (mut client, mut server, to) = both(offload);
        let mut sender = Sender::default();
        for (messages, datagrams) in
            [(1, 1), (2, 1), (MOST, 1), (MOST + 1, 2), (3 * MOST, 3), (5_000, 5_000 / MOST + 1)]
        {
            let before = client.stats();
            (0..messages).for_each(|_| sender.request(&mut client, &to, 0, 32));
            let got = sender.arrive(&mut client, &mut server);
            // A full staging area is sent early, which ends a bundle.
            let early = messages as u64 / 1_000;
            assert!((datagrams as u64..=datagrams as u64 + early).contains(&got), "{got}");
            let after = client.stats();
            assert_eq!(after.tx_packets - before.tx_packets, got);
            assert_eq!(after.tx_bytes - before.tx_bytes, (messages * (HEADER_LEN + 32)) as u64);
        }
        assert_eq!(client.stats().tx_bytes, server.stats().rx_bytes);
    }
}

#[test]
fn full_bundles_are_one_run() {
    let (mut client, mut server, to) = both(true);
    warm_up(&mut client, &mut server);
    let mut sender = Sender::default();
    (0..4 * MOST + 2).for_each(|_| sender.request(&mut client, &to, 0, 32));
    assert_eq!(sender.arrive(&mut client, &mut server), 5);
    assert_eq!(server.split().0.datagrams(), 1, "the kernel has got one message");
}

#[test]
fn bundles_of_similar_lengths_are_padded_to_one_run() {
    let (mut client, mut server, to) = both(true);
    warm_up(&mut client, &mut server);
    let mut sender = Sender::default();
    // Bundles of 1,008, 1,039 and 612 bytes.
    let [short, long, last] = [(32, MOST), (55, 13), (60, 7)];
    for lengths in [[short, long, last], [long, short, last]] {
        let before = client.stats().tx_bytes;
        for (len, count) in lengths {
            (0..count).for_each(|_| sender.request(&mut client, &to, 0, len));
        }
        client.split().1.flush();
        let sent = client.stats().tx_bytes - before;
        assert_eq!(sender.expect(&mut server), 3);
        assert_eq!(server.split().0.datagrams(), 1, "the kernel has got one message");
        assert_eq!(sent, 1_039 + 1_039 + 612, "zeros follow the short one");
    }
}

#[test]
fn a_run_of_bundles_that_the_system_refuses_is_sent_one_by_one() {
    let (mut client, mut server, to) = both(true);
    let mut sender = Sender::default();
    (0..100).for_each(|at| sender.request(&mut client, &to, 0, at));
    client.split().1.send_all_apart();
    sender.expect(&mut server);
}

#[test]
fn bundles_have_room_behind_any_number_of_runs() {
    let mut server = UdpTransport::bind(&config("0.0.0.0:0")).unwrap();
    let mut client = open(V4);
    let port = server.local_route().port();
    let peer = |at: usize| route(&format!("127.0.0.{}:{port}", at + 1));
    let mut sender = Sender::default();
    for runs in 50..80 {
        // Each long message is a run of its own, and is not copied.
        (0..runs).for_each(|at| sender.request(&mut client, &peer(at), 0, 3_000));
        (0..BUNDLES).for_each(|at| sender.request(&mut client, &peer(100 + at), 0, 32));
        let control = group::header(0, Kind::Control, 7);
        client.split().1.push_bytes(&peer(200), &control);
        sender.sent.push(control.to_vec());
        sender.arrive(&mut client, &mut server);
    }
}

#[test]
fn a_queue_that_sends_by_itself_sends_its_bundles_too() {
    let (mut client, mut server, to) = both(true);
    let mut sender = Sender::default();
    // As many messages as a run has room for. Nothing rings the doorbell.
    for (len, full) in [(8_000, 8), (2_000, 32)] {
        sender.request(&mut client, &to, 0, 32);
        (0..full).for_each(|_| sender.request(&mut client, &to, 0, len));
        sender.expect(&mut server);
    }
}

#[test]
fn messages_of_any_length_arrive_whole() {
    for offload in [false, true] {
        let (mut client, mut server, to) = both(offload);
        let mut sender = Sender::default();
        for round in 0..100 {
            // Empty messages, all remainders of 8, and some that are too long for a bundle.
            (0..60).for_each(|at| sender.request(&mut client, &to, 0, at * (round + 1) % 2_300));
            let datagrams = sender.arrive(&mut client, &mut server);
            assert!(datagrams < 60, "{datagrams}");
        }
    }
}

#[test]
fn a_longer_message_does_not_end_a_bundle_but_a_control_message_does() {
    let (mut client, mut server, to) = both(true);
    let mut sender = Sender::default();
    for len in [32, 3_000, 32, 1_000, 32, 600, 32] {
        sender.request(&mut client, &to, 0, len);
    }
    assert_eq!(sender.arrive(&mut client, &mut server), 3, "the one of 600 bytes has room");
    sender.request(&mut client, &to, 0, 32);
    client.split().1.push_bytes(&to, &[1; 40]);
    client.split().1.flush();
    let arrived = receive(&mut server, 2);
    assert_eq!(lengths(&arrived), [56, 40], "a control message overtakes no message");
}

#[test]
fn only_messages_that_may_share_a_datagram_do() {
    let (mut client, mut server, to) = both(true);
    let mut sender = Sender::default();
    for takes_bundles in [true, false, true, false] {
        sender.stage(&mut client, &to, 0, 32, takes_bundles);
    }
    assert_eq!(sender.arrive(&mut client, &mut server), 3);
    // A trailer covers all bytes in front of it.
    let head = Head::new(Kind::Request, Flags::TRAILER);
    let id = ConnectionId::new(0, true, 5, 0xdead_beef);
    let header = HeaderWords::single(id, head, RequestNumber::from_u32(1), 0, 32);
    for _ in 0..3 {
        client.split().1.push_single(&to, header, &mut message(32), true);
    }
    client.split().1.flush();
    let arrived = receive(&mut server, 3);
    assert_eq!(lengths(&arrived), [60; 3]);
    assert!(arrived.iter().all(|(_, bytes)| check(bytes).is_ok()));
}

#[test]
fn each_of_a_few_peers_has_a_bundle_of_its_own() {
    for peers in [2, BUNDLES, BUNDLES + 1, 20] {
        let mut client = open(V4);
        let mut servers: Vec<_> = (0..peers).map(|_| (open(V4), Sender::default())).collect();
        for _ in 0..5 {
            for (server, sender) in &mut servers {
                let to = server.local_route();
                sender.request(&mut client, &to, 0, 100);
            }
        }
        client.split().1.flush();
        let sent = client.stats().tx_packets;
        // Of more peers than places, all but one of the places keep their bundles.
        let kept = if peers <= BUNDLES { peers } else { BUNDLES - 1 };
        let expected = kept + 5 * (peers - kept);
        assert_eq!(sent, expected as u64, "{peers} peers");
        for (server, sender) in &mut servers {
            sender.arrive(&mut client, server);
        }
    }
}

#[test]
fn the_members_of_a_group_have_bundles_of_their_own() {
    let mut group = UdpTransport::bind_group(&config(V4), 3).unwrap();
    let to = group[0].local_route();
    let mut client = open(V4);
    let mut senders: [Sender; 3] = Default::default();
    for round in 0..20 {
        for at in 0..90 {
            let member = at * (round + 1) % 3;
            senders[member].request(&mut client, &to, member as u8, at);
        }
        client.split().1.flush();
        for (member, sender) in group.iter_mut().zip(&mut senders) {
            sender.arrive(&mut client, member);
        }
    }
}

#[test]
fn bundles_of_another_member_are_passed_on_whole() {
    let mut group = UdpTransport::bind_group(&config(V4), 2).unwrap();
    let to = group[0].local_route();
    let socket = StdSocket::bind(V4).unwrap();
    let mut client = open(V4);
    // A member that does not coalesce yet cannot detect strays.
    for (index, member) in group.iter_mut().enumerate() {
        while !member.rx.is_coalescing() {
            let packet = group::header(index as u8, Kind::Request, 0);
            send(&mut client, &to, &[&packet[..]; 8]);
            receive(member, 8);
        }
    }
    // A run of bundles for different members, as a network card's driver may coalesce it.
    let run = |members: &[u8], messages| -> Vec<u8> {
        let bundle =
            |&member: &u8| [group::header(member, Kind::Request, 0)].repeat(messages).concat();
        members.iter().flat_map(bundle).collect()
    };
    let most = MAX_BUNDLE / HEADER_LEN;
    // The last one has more packets for the second member than a burst may have.
    for (members, messages) in [(&[0, 1][..], 3), (&[1, 0, 0], most), (&[0, 1, 1, 1], most)] {
        let run = run(members, messages);
        let segment = (run.len() / members.len()) as i32;
        sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, segment).unwrap();
        let before: Vec<_> = group.iter().map(UdpTransport::stats).collect();
        assert_eq!(socket.send_to(&run, to.socket_addr()).unwrap(), run.len());
        // The kernel passes the run to the member that its first bundle names, which passes on the
        // others.
        for number in [members[0], 1 - members[0]] {
            let bundles = members.iter().filter(|member| **member == number).count();
            let member = &mut group[usize::from(number)];
            let arrived = receive(member, messages * bundles);
            assert_eq!(arrived.len(), messages * bundles, "{members:?}");
            let packet = group::header(number, Kind::Request, 0);
            assert!(arrived.iter().all(|(_, bytes)| bytes[..] == packet[..]), "{members:?}");
            let (stats, before) = (member.stats(), before[usize::from(number)]);
            assert_eq!(stats.rx_packets - before.rx_packets, bundles as u64, "datagrams");
            let bytes = messages * bundles * HEADER_LEN;
            assert_eq!(stats.rx_bytes - before.rx_bytes, bytes as u64, "{members:?}");
        }
    }
}

#[test]
fn more_packets_than_a_burst_come_in_several() {
    let (mut client, mut server, to) = both(true);
    warm_up(&mut client, &mut server);
    let mut sender = Sender::default();
    // Empty messages: the most in a datagram.
    let each = MAX_BUNDLE / HEADER_LEN;
    (0..3 * each).for_each(|_| sender.request(&mut client, &to, 0, 0));
    client.split().1.flush();
    sleep(&mut server, "packets");
    let (rx, _) = server.split();
    let bursts = [(); 4].map(|()| (rx.burst(), rx.has_more()));
    let last = 3 * each - 2 * MAX_BURST;
    assert_eq!(bursts, [(MAX_BURST, true), (MAX_BURST, true), (last, false), (0, false)]);
}

#[test]
fn a_bundle_to_a_peer_that_cannot_be_reached_changes_no_other_packet() {
    let (mut client, mut server, to) = both(true);
    let mut sender = Sender::default();
    let (v6, mut lost) = (route("[::1]:9"), Sender::default());
    // More bytes than the staging area has.
    for round in 0..400 {
        (0..30).for_each(|_| lost.request(&mut client, &v6, 0, 32));
        client.split().1.flush();
        if round % 100 == 0 {
            lost.request(&mut client, &v6, 0, 32);
            sender.request(&mut client, &to, 0, 100);
            sender.arrive(&mut client, &mut server);
        }
    }
    assert_eq!(client.stats().tx_dropped, 800 + 4, "each datagram counts");
    assert!(client.next_undelivered().is_some());
}
