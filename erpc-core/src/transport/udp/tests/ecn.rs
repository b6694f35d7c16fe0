//! Marks of congested switches: which packets have them, and how they are received.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::group::header;
use super::*;
use crate::transport::fault::{FaultPlan, Faults, Faulty};
use crate::wire::Kind;

/// The ECN bits of a traffic class. They say that the sender is not ECN-capable, that it is
/// ECN-capable (two values), or that a switch has marked the packet.
const NOT_CAPABLE: u8 = 0b00;
const CAPABLE: u8 = 0b10;
const CAPABLE_TOO: u8 = 0b01;
const MARKED: u8 = 0b11;
/// Another use of the same byte: "expedited forwarding".
const DSCP: u8 = 46 << 2;

/// The receiver's address, and the loopback address that a sender binds and by which it reaches the
/// receiver.
const WAYS: [(&str, &str); 4] = [(V4, V4), (V6, V6), ("[::]:0", V4), ("[::]:0", V6)];

/// A receiver with marks enabled.
fn listen(address: &str) -> UdpTransport {
    let mut transport = open(address);
    assert_eq!(transport.enable_ecn(), Ok(()));
    transport
}

/// A sender that sets the class of each packet, as if a switch had set it.
struct Sender {
    socket: StdSocket,
    to: SocketAddr,
}

impl Sender {
    fn new(own: &str, receiver: &UdpTransport) -> Self {
        let port = receiver.local_route().port();
        Self { socket: StdSocket::bind(own).unwrap(), to: route(own).with_port(port).into() }
    }

    fn set(&self, level: i32, name: i32, value: i32) {
        sys::set_option(self.socket.as_fd(), level, name, value).unwrap();
    }

    /// Makes the kernel split sent datagrams into packets of this length.
    fn segment(&self, len: usize) {
        self.set(libc::SOL_UDP, libc::UDP_SEGMENT, len as i32);
    }

    fn send(&self, class: u8, bytes: &[u8]) {
        match self.to {
            SocketAddr::V4(_) => self.set(libc::SOL_IP, libc::IP_TOS, class.into()),
            SocketAddr::V6(_) => self.set(libc::SOL_IPV6, libc::IPV6_TCLASS, class.into()),
        }
        assert_eq!(self.socket.send_to(bytes, self.to).unwrap(), bytes.len());
    }
}

/// The first byte of `count` packets, and whether they were marked.
fn marks<T: Transport>(transport: &mut T, count: usize) -> Vec<(u8, bool)> {
    let mut marks = Vec::new();
    let start = Instant::now();
    while marks.len() < count && start.elapsed() < WAIT_LIMIT {
        let (rx, _) = transport.split();
        let burst = rx.burst();
        marks.extend((0..burst).map(|at| (rx.packet(at).bytes[0], rx.packet(at).marked)));
    }
    marks
}

#[test]
fn marked_packets_are_recognised_on_every_receive_path() {
    let classes = [
        (NOT_CAPABLE, false),
        (MARKED, true),
        (CAPABLE, false),
        (CAPABLE_TOO, false),
        (DSCP | MARKED, true),
        (DSCP | CAPABLE, false),
        (DSCP, false),
    ];
    for (address, own) in WAYS {
        let mut server = listen(address);
        let client = Sender::new(own, &server);
        // Packets that are sent one at a time are received by one system call each.
        for (class, marked) in classes {
            client.send(class, &[class]);
            assert_eq!(marks(&mut server, 1), [(class, marked)], "{own} to {address}");
            assert_eq!(server.split().0.burst(), 0);
        }
        // Packets that are sent together can be received by one system call.
        for _ in 0..3 {
            classes.iter().for_each(|(class, _)| client.send(*class, &[*class]));
            assert_eq!(marks(&mut server, classes.len()), classes, "{own} to {address}");
        }
    }
}

#[test]
fn each_packet_of_a_run_has_the_mark_of_the_run() {
    for (address, own) in WAYS {
        let mut server = listen(address);
        let client = Sender::new(own, &server);
        client.segment(100);
        for round in 0..50 {
            for class in [MARKED, CAPABLE, CAPABLE, MARKED, NOT_CAPABLE] {
                client.send(class, &[class; 100 * 40]);
                assert_eq!(marks(&mut server, 40), [(class, class == MARKED); 40]);
            }
            assert!(round == 0 || server.rx.is_coalescing(), "{own} to {address}");
        }
        // Single packets, first while the kernel coalesces, then after it has stopped.
        for round in 0..200 {
            let class = if round % 3 == 0 { MARKED } else { CAPABLE };
            client.send(class, &[class]);
            assert_eq!(marks(&mut server, 1), [(class, class == MARKED)]);
            assert_eq!(server.split().0.burst(), 0);
        }
        assert!(!server.rx.is_coalescing());
    }
}

#[test]
fn marks_are_reported_only_when_enabled() {
    let mut server = open(V4);
    let client = Sender::new(V4, &server);
    client.send(MARKED, &[MARKED]);
    assert_eq!(marks(&mut server, 1), [(MARKED, false)]);
    // A packet that is already queued when marks are enabled is reported with its mark.
    client.send(MARKED, &[MARKED]);
    assert_eq!(server.enable_ecn(), Ok(()));
    assert_eq!(marks(&mut server, 1), [(MARKED, true)]);
}

/// The class of one received packet.
fn class_received(socket: &StdSocket) -> u8 {
    let (mut bytes, mut controls) = ([0; 16], sys::Controls::default());
    let mut vector =
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size_of_val(&bytes) };
    let mut headers = sys::Headers::new(1);
    let start = Instant::now();
    while start.elapsed() < WAIT_LIMIT {
        let header = headers.get_mut(0);
        (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
        header.msg_control = (&raw mut controls).cast();
        header.msg_controllen = size_of_val(&controls) as _;
        // SAFETY: the header points to `vector` and `controls`, which outlive the call and are
        // accessed only here; `vector` points to `bytes` and has its length.
        if unsafe { headers.receive_first(socket.as_fd()) }.is_ok() {
            return controls.traffic_class(&headers.get(0).msg_hdr);
        }
    }
    panic!("no packet arrived");
}

#[test]
fn sent_packets_are_ecn_capable() {
    for (address, own) in WAYS {
        let receiver = StdSocket::bind(own).unwrap();
        let (level, tell) = match own {
            V4 => (libc::SOL_IP, libc::IP_RECVTOS),
            _ => (libc::SOL_IPV6, libc::IPV6_RECVTCLASS),
        };
        sys::set_option(receiver.as_fd(), level, tell, 1).unwrap();
        let to = UdpRoute::from(receiver.local_addr().unwrap());
        let mut client = open(address);
        send(&mut client, &to, &[b"not yet"]);
        assert_eq!(class_received(&receiver), NOT_CAPABLE);
        assert_eq!(client.enable_ecn(), Ok(()));
        // The client sends a single packet, two packets of different lengths, and a run.
        for packets in [vec![&b"1"[..]], vec![b"1", b"two"], vec![b"run"; 20]] {
            send(&mut client, &to, &packets);
            for _ in packets {
                assert_eq!(class_received(&receiver), CAPABLE, "{address} to {own}");
            }
        }
    }
}

#[test]
fn options_refused_in_part_are_all_reset() {
    let receiver = StdSocket::bind(V4).unwrap();
    sys::set_option(receiver.as_fd(), libc::SOL_IP, libc::IP_RECVTOS, 1).unwrap();
    let mut client = open(V4);
    let (class, tell) = (libc::IP_TOS, libc::IP_RECVTOS);
    // The last option is refused, because an IPv4 socket has no IPv6 options.
    let half = [
        (libc::SOL_IP, class, i32::from(CAPABLE)),
        (libc::SOL_IP, tell, 1),
        (libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1),
    ];
    assert_eq!(client.socket.set_all(&half), Err(Errno::NOPROTOOPT));
    send(&mut client, &UdpRoute::from(receiver.local_addr().unwrap()), &[b"x"]);
    assert_eq!(class_received(&receiver), NOT_CAPABLE);
    let own = StdSocket::from(client.socket.fd().try_clone_to_owned().unwrap());
    own.set_nonblocking(false).unwrap();
    Sender { socket: receiver, to: own.local_addr().unwrap() }.send(MARKED, b"y");
    assert_eq!(class_received(&own), 0, "the class is still reported");
}

#[test]
fn strays_keep_their_marks() {
    let mut group = UdpTransport::bind_group(&config(V4), 2).unwrap();
    assert!(group.iter_mut().all(|member| member.enable_ecn().is_ok()));
    let client = Sender::new(V4, &group[0]);
    client.segment(HEADER_LEN);
    let run = |steers: &[u8]| -> Vec<u8> {
        steers.iter().flat_map(|&steer| header(steer, Kind::Request, 0)).collect()
    };
    // A member that does not coalesce yet cannot detect strays. So this run makes member 0
    // coalesce.
    client.send(CAPABLE, &run(&[0; 32]));
    assert_eq!(marks(&mut group[0], 32).len(), 32);
    for class in [MARKED, CAPABLE, MARKED] {
        client.send(class, &run(&[0, 1, 0]));
        assert_eq!(marks(&mut group[0], 2), [(0, class == MARKED); 2]);
        assert_eq!(marks(&mut group[1], 1), [(1, class == MARKED)]);
    }
}

#[test]
fn delayed_and_duplicated_packets_keep_their_marks() {
    let late = Duration::from_millis(2);
    let faults = Faults::none().duplicate(0.5, 3, late).reorder(0.5, late);
    let server = open(V4);
    let client = Sender::new(V4, &server);
    let mut server = Faulty::new(server, FaultPlan::new(1).receiving(faults));
    assert_eq!(server.enable_ecn(), Ok(()));
    for round in 0..100 {
        let class = if round % 2 == 0 { MARKED } else { CAPABLE };
        client.send(class, &[class]);
    }
    let arrived = marks(&mut server, 130);
    assert!(arrived.len() >= 130, "{} packets", arrived.len());
    assert!(arrived.iter().all(|&(class, marked)| marked == (class == MARKED)), "{arrived:?}");
}
