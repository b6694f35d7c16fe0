//! The exchange of addresses, and the table of peers.

use std::net::{SocketAddr, UdpSocket};

use super::super::device::AddressHandle;
use super::super::exchange::{Answer, Ask, MESSAGE_LEN, Message, Token, TokenMaker};
use super::super::peers::{Address, Lookup, Peers, QueuePair};
use super::*;
use crate::time::Instant;

#[test]
fn two_strangers_meet_and_the_first_packet_is_not_lost() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    let to = b.local_route();
    assert_eq!(to.socket_addr().ip(), IpAddr::from([127, 0, 0, 2]));
    // Four packets wait for the address; the oldest of five is dropped.
    for number in 0..5 {
        send(&mut a, to, &[number; 40]);
    }
    assert_eq!(a.stats().tx_dropped, 1);
    let mut arrived = Vec::new();
    run(&mut [&mut a, &mut b], "the packets arrive", |ends| {
        burst(ends[0]);
        arrived.extend(burst(ends[1]));
        arrived.len() == 4
    });
    let numbers: Vec<_> = arrived.iter().map(|(_, bytes)| bytes[0]).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(arrived.iter().all(|(from, _)| *from == a.local_route()));
    assert_eq!(fabric.lost(), 0);
}

#[test]
fn a_server_that_starts_again_is_found_at_its_address() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    let (to, number) = (b.local_route(), b.queue_pair());
    drop(b);
    let again = config(2).exchange(to.socket_addr());
    let mut b = Soft::open(&fabric, &again).expect("the address is free");
    assert_ne!(b.queue_pair(), number);
    // A session opens, and asks for the path. The peer was heard just now, so nothing is asked yet:
    // the silence is noticed after two rounds of housekeeping.
    a.path(&to);
    run(&mut [&mut a, &mut b], "the server is found again", |ends| {
        send(ends[0], to, b"hello");
        burst(ends[0]);
        !burst(ends[1]).is_empty()
    });
}

#[test]
fn a_server_keeps_nothing_for_strangers_and_answers_no_more_bytes_than_were_sent() {
    let fabric = SoftFabric::default();
    let mut b = open(&fabric, 2);
    let socket = UdpSocket::bind("127.0.0.3:0").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let version = b.halves().2.peers().version();
    for nonce in 0..100 {
        let ask = Message::Ask(Ask { nonce }).to_bytes();
        socket.send_to(&ask, b.local_route().socket_addr()).expect("sent");
        b.halves().2.exchange();
        let mut bytes = [0; 2_000];
        let len = socket.recv(&mut bytes).expect("an answer");
        assert!(len <= ask.len());
        let Ok(Message::Answer(answer)) = Message::parse(&bytes[..len]) else {
            panic!("an answer, not {:?}", &bytes[..len]);
        };
        assert_eq!((answer.nonce, answer.qpn), (nonce, b.queue_pair()));
    }
    // Everything else is dropped and counted.
    for odd in [&[][..], &[0; MESSAGE_LEN], &[0xff; 1_400], b"GET / HTTP/1.1\r\n\r\n"] {
        socket.send_to(odd, b.local_route().socket_addr()).expect("sent");
    }
    run(&mut [&mut b], "four odd datagrams are counted", |ends| {
        ends[0].halves().2.exchange();
        ends[0].verbs_stats().malformed == 4
    });
    assert_eq!(b.halves().2.peers().version(), version, "the table has not changed");
}

#[test]
fn answers_that_nobody_has_asked_for_change_nothing() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    let version = a.halves().2.peers().version();
    // From B's own address, which A knows, with a nonce that A has not drawn.
    let forged = Message::Answer(Answer {
        nonce: 7,
        gid: Gid::from(IpAddr::from([127, 0, 0, 9])),
        lid: 0,
        qpn: 99,
        qkey: 1,
        token: Token([0; 40]),
    });
    let to_a = a.local_route();
    b.halves().2.socket().send(to_a, &forged);
    for _ in 0..100 {
        a.halves().2.exchange();
    }
    assert_eq!(a.halves().2.peers().version(), version);
    send(&mut a, b.local_route(), b"still there");
    assert_eq!(drain(&mut b).len(), 1);
}

#[test]
fn a_presentation_with_a_forged_token_is_dropped_and_counted() {
    let fabric = SoftFabric::default();
    let (mut a, mut b) = (open(&fabric, 1), open(&fabric, 2));
    introduce(&mut a, &mut b);
    let line = b.halves().2;
    let token = TokenMaker::new((1, 2))
        .issue(clock::now(), "10.0.0.1:1".parse::<SocketAddr>().unwrap().into());
    let pair = QueuePair { host: Host::Gid(Gid([7; 16])), qpn: 99 };
    let version = line.peers().version();
    line.presented(pair, &line.present(token));
    assert_eq!(line.peers().version(), version);
    line.presented(pair, b"no message");
    assert_eq!((b.verbs_stats().bad_tokens, b.verbs_stats().malformed), (1, 1));
}

#[test]
fn an_absent_server_is_asked_a_bounded_number_of_times() {
    let fabric = SoftFabric::default();
    let mut a = open(&fabric, 1);
    let socket = UdpSocket::bind("127.0.0.3:0").expect("a socket that never answers");
    let to = socket.local_addr().expect("its address").into();
    send(&mut a, to, &[1; 40]);
    let line = a.halves().2;
    let mut now = clock::now();
    let mut questions = 1;
    while line.peers().is_asking() {
        now = now.plus_nanos(1_000_000);
        questions += line.peers().due(now).0.len();
        assert!(questions < 100);
    }
    assert_eq!(questions, 12);
}

fn route(number: u8) -> UdpRoute {
    SocketAddr::from(([10, 0, 0, number], 31_850)).into()
}

fn address(number: u8) -> Address {
    let host = Host::Gid(Gid::from(IpAddr::from([10, 0, 0, number])));
    Address { pair: QueuePair { host, qpn: u32::from(number) + 100 }, qkey: 7 }
}

/// Handles are numbered by the host.
fn handle(number: u8) -> Result<AddressHandle, ()> {
    Ok(AddressHandle(number.into()))
}

fn present(peers: &mut Peers, number: u8) {
    let late = peers.presented(route(number), address(number), || handle(number));
    assert_eq!(late, Ok(Vec::new()));
    peers.check_invariants();
}

#[test]
fn the_table_is_bounded_and_forgets_the_peer_that_was_silent_for_longest() {
    let mut peers = Peers::new(4);
    let now = Instant::from_nanos(1);
    for number in 0..4 {
        present(&mut peers, number);
    }
    // All are busy: a fifth is refused.
    present(&mut peers, 4);
    assert_eq!((peers.refused(), peers.find(address(4).pair)), (1, None));
    // Peer 2 is silent for long.
    for _ in 0..20 {
        peers.end_round(now, |index| (false, index != 2), || 9);
        peers.check_invariants();
    }
    present(&mut peers, 4);
    assert!(peers.find(address(4).pair).is_some());
    assert_eq!(peers.find(address(2).pair), None);
    assert_eq!(peers.take_unused(), [AddressHandle(2)], "its handle is not used any more");
    assert_eq!(peers.lookup(route(2), now, || 9), Lookup::Wait, "it would be asked again");
}

#[test]
fn peers_of_a_host_share_a_handle() {
    let mut peers = Peers::new(8);
    for port in 0..4u16 {
        let route = crate::transport::Route::with_port(&route(1), port);
        let mut address = address(1);
        address.pair.qpn += u32::from(port);
        let made = peers.presented(route, address, || if port == 0 { handle(1) } else { Err(()) });
        assert_eq!(made, Ok(Vec::new()));
        peers.check_invariants();
    }
    assert!(peers.take_unused().is_empty());
}

#[test]
fn a_peer_that_is_sent_to_and_not_heard_is_asked_again() {
    let mut peers = Peers::new(4);
    let now = Instant::from_nanos(1);
    present(&mut peers, 1);
    peers.end_round(now, |_| (true, true), || 5);
    peers.end_round(now, |_| (true, false), || 5);
    peers.end_round(now, |_| (false, false), || 5);
    assert!(!peers.is_asking(), "one silent round");
    peers.end_round(now, |_| (true, false), || 5);
    assert_eq!(peers.due(now), (vec![(route(1), 5)], 0));
    let Lookup::Send(target) = peers.lookup(route(1), now, || 6) else {
        panic!("packets go to the known address meanwhile");
    };
    assert_eq!((target.qpn, target.token), (101, None));
    // The answer names another queue pair, to which this endpoint presents itself.
    let answer = Answer {
        nonce: 5,
        gid: Gid::from(IpAddr::from([10, 0, 0, 1])),
        lid: 0,
        qpn: 500,
        qkey: 7,
        token: Token([3; 40]),
    };
    let host = address(1).pair.host;
    let wrong = Answer { nonce: 6, ..answer };
    assert_eq!(peers.answered(route(1), &wrong, host, || handle(1)), Ok(Vec::new()));
    assert!(peers.is_asking(), "another nonce");
    assert_eq!(peers.answered(route(1), &answer, host, || handle(1)), Ok(Vec::new()));
    peers.check_invariants();
    let Lookup::Send(target) = peers.lookup(route(1), now, || 6) else { panic!("known") };
    assert_eq!((target.qpn, target.token), (500, Some(Token([3; 40]))));
    // Once it is heard, nothing is presented.
    assert!(peers.find(QueuePair { host, qpn: 500 }).is_some());
    let Lookup::Send(target) = peers.lookup(route(1), now, || 6) else { panic!("known") };
    assert_eq!(target.token, None);
}

#[test]
fn a_peer_cannot_claim_the_queue_pair_of_another_one() {
    let mut peers = Peers::new(4);
    let now = Instant::from_nanos(1);
    present(&mut peers, 1);
    assert_eq!(peers.lookup(route(2), now, || 5), Lookup::Wait);
    let Address { pair, qkey } = address(1);
    let answer = Answer {
        nonce: 5,
        gid: Gid::from(IpAddr::from([10, 0, 0, 1])),
        lid: 0,
        qpn: pair.qpn,
        qkey,
        token: Token([3; 40]),
    };
    assert_eq!(peers.answered(route(2), &answer, pair.host, || handle(1)), Ok(Vec::new()));
    peers.check_invariants();
    assert_eq!(peers.refused(), 1);
    assert_eq!(peers.find(pair).map(|(route, _)| route), Some(route(1)));
}
