//! The longest datagram and calls in both directions, of one packet and of many, and what the kernel of the other end
//! thinks of the port.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use erpc_core::transport::{RxQueue, Transport, TxQueue};
use socket2::{Domain, Protocol, Socket, Type};

use super::*;

/// Bytes of the calls: one, a whole Ethernet frame and one more, messages of many packets.
const LENGTHS: [usize; 6] = [1, 1_448, 1_449, 1_472, 100_000, 1 << 20];
/// Address of the first end's kernel.
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 101);

/// The second end sends the longest datagram and gets it back whole. Calls do not show this: where
/// long datagrams are lost, sessions use shorter ones.
fn exchange_longest(transport: &mut DpdkTransport, end: End) {
    let longest = transport.capabilities().max_datagram;
    let datagram = vec![0xaa; longest];
    let start = Instant::now();
    let mut sent = None;
    loop {
        assert!(start.elapsed() < PATIENCE, "no datagram: {:?}", transport.frame_drops());
        if end == End::Second && sent.is_none_or(|at: Instant| at.elapsed() > secs(1)) {
            transport.split().1.push_bytes(&end.peer().into(), &datagram);
            transport.split().1.flush();
            sent = Some(Instant::now());
        }
        let (rx, tx) = transport.split();
        if rx.burst() > 0 {
            assert_eq!(rx.packet(0).bytes, datagram);
            if end == End::First {
                tx.push_bytes(&end.peer().into(), &datagram);
                tx.flush();
            }
            return;
        }
    }
}

fn end(driver: Driver, mtu: u16, end: End) {
    start_dpdk();
    let mut transport = DpdkTransport::open(&config(driver, end, mtu)).expect("a port");
    if end == End::First {
        say("LISTENS");
    }
    exchange_longest(&mut transport, end);
    let endpoint = serve(transport);
    if end == End::First {
        // The second end is there when it calls.
        endpoint.run_until(|| ANSWERED.load(Ordering::Relaxed) > 0);
    }
    let session: Session<DpdkTransport> = endpoint.open(end.peer().into());
    for len in LENGTHS {
        call(&endpoint, &session, len);
    }
    let stats = endpoint.stats().expect("outside of a turn");
    assert_eq!(stats.transport.tx_dropped, 0, "{:?}", stats.transport);
    assert_eq!((stats.transport.link_ups, stats.transport.link_downs), (1, 0), "the link stays up");
    say(&format!("CALLED {:?}", stats.protocol.retransmissions));
    endpoint.run_until(|| false);
}

/// Sends an echo request (a ping) from the kernel of this thread's namespace.
fn ping(ip: Ipv4Addr) {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).expect("a socket");
    socket.set_read_timeout(Some(secs(1))).expect("a timeout");
    // Type 8; the checksum is that of these bytes.
    let mut request = [8, 0, 0, 0, 0x12, 0x34, 0, 1];
    let sum = 0x0800 + 0x1234 + 1;
    request[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let to = SocketAddr::new(ip.into(), 0).into();
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "{ip} does not answer an echo request");
        socket.send_to(&request, &to).expect("the kernel sends");
        let mut answer = [0; 64];
        if let Ok(len) = std::io::Read::read(&mut &socket, &mut answer) {
            // After the IP header: type 0, and the request's identifier and number.
            let message = &answer[20..len.max(20)];
            if message.first() == Some(&0) && message.get(4..8) == Some(&request[4..]) {
                return;
            }
        }
    }
}

/// The two ends call each other over `device`.
fn both_ways(net: &Net, test: &str, driver: Driver, device: &str) {
    let first = net.start(End::First, test, device);
    first.expect("LISTENS");
    let second = net.start(End::Second, test, device);
    for (port, end) in [(&second, End::Second), (&first, End::First)] {
        println!("{test}, {}: {}", end.name(), port.expect("CALLED"));
    }
    if driver == Driver::Xdp {
        // The kernel of an end receives nothing: its driver takes all frames.
        return;
    }
    // The kernel of the first end has an address, too, and asks for that of the second port.
    net.first.ip(&format!("address add {KERNEL}/24 dev {INTERFACE}")).expect("an address");
    net.first.within(|| ping(Ipv4Addr::new(10, 9, 0, 2)));
    let neighbour = net.first.ip("neighbour show 10.9.0.2").expect("the kernel's neighbours");
    assert!(neighbour.contains("lladdr"), "{neighbour}");
}

/// Defines a test of calls over a driver, its further arguments, and an MTU.
macro_rules! calls {
    ($name:ident, $driver:expr, $arguments:literal, $mtu:literal) => {
        #[test]
        fn $name() {
            let name = concat!("calls::", stringify!($name));
            let device = format!("{},iface={INTERFACE}{}", $driver.device(), $arguments);
            play(
                name,
                $driver,
                $mtu,
                |role| end($driver, $mtu, role),
                |net| {
                    both_ways(net, name, $driver, &device);
                },
            );
        }
    };
}

calls!(over_af_packet, Driver::Packet, "", 1_500);
// The largest packets that fit the driver's default entries of 2,048 bytes.
calls!(over_af_packet_with_full_entries, Driver::Packet, "", 1_968);
calls!(over_af_packet_with_jumbo_frames, Driver::Packet, ",framesz=16384,blocksz=16384", 9_000);
calls!(over_af_xdp, Driver::Xdp, "", 1_500);
// The largest packets that fit the driver's buffers of a page, and XDP on a veth interface.
calls!(over_af_xdp_with_long_frames, Driver::Xdp, "", 3_438);
