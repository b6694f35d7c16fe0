//! Malformed frames are dropped and counted.

use erpc_core::transport::frame::control;

use super::*;

/// Sends any bytes into queue 1 of a port, which an idle member of the port's group has.
struct RawPort {
    port: u16,
    pool: *mut dpdk_sys::rte_mempool,
}

impl RawPort {
    fn new(device: &str) -> Self {
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let c_name = CString::new(device).expect("no zero byte");
        let mut found = dpdk_sys::erpc_device::default();
        // SAFETY: a terminated string and a struct to write; DPDK runs.
        let error = unsafe { dpdk_sys::erpc_device_find(c_name.as_ptr(), &raw mut found) };
        assert_eq!(error, 0, "{device} exists");
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("raw_{number}")).expect("no zero byte");
        // SAFETY: as above.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(name.as_ptr(), 511, 0, 0, 10_000, found.socket)
        };
        assert!(!pool.is_null(), "memory for the sender");
        Self { port: found.port, pool }
    }

    fn mbuf(&self, bytes: &[u8]) -> *mut dpdk_sys::rte_mbuf {
        let (mut mbuf, mut data) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: room for one pointer each.
        let error = unsafe { dpdk_sys::erpc_take(self.pool, &raw mut mbuf, &raw mut data, 1) };
        assert_eq!(error, 0, "a mbuf");
        // SAFETY: a mbuf of this pool has room for 10,000 bytes less the headroom.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
        mbuf
    }

    /// Sends `parts` as the segments of one frame, at most two.
    fn send(&self, parts: &[&[u8]]) {
        let mut head = self.mbuf(parts[0]);
        let mut len = parts[0].len() as u16;
        if let Some(tail) = parts.get(1) {
            // SAFETY: two mbufs of our own, filled with so many bytes.
            unsafe { dpdk_sys::erpc_chain(head, len, self.mbuf(tail), tail.len() as u16) };
            len = dpdk_sys::ERPC_CHAINED as u16;
        }
        // SAFETY: one frame of our own. No endpoint uses queue 1: its member does nothing.
        let sent = unsafe {
            dpdk_sys::erpc_tx_burst(self.port, 1, &raw mut head, &raw const len, ptr::null(), 1)
        };
        assert_eq!(sent, 1, "the ring has room");
    }

    /// Whether the receiver has returned all mbufs.
    fn has_all_mbufs(&self) -> bool {
        // SAFETY: the mempool exists, and this thread alone uses it.
        unsafe { dpdk_sys::erpc_pool_is_full(self.pool) != 0 }
    }
}

impl Drop for RawPort {
    fn drop(&mut self) {
        if self.has_all_mbufs() {
            // SAFETY: no mbuf is in use, and nothing knows the mempool any more.
            unsafe { dpdk_sys::rte_mempool_free(self.pool) };
        }
    }
}

/// A host whose frames reach every station.
fn stranger() -> Interface {
    Interface {
        mac: Mac([2, 0, 0, 0, 0, 9]),
        vlan: None,
        networks: vec![Network { address: [10, 9, 0, 9].into(), prefix: 24 }],
        gateways: Vec::new(),
        checksums: true,
    }
}

fn frame(from: &Interface, to: SocketAddr, len: usize) -> Vec<u8> {
    let header = Header::new(from, to.ip(), Mac::BROADCAST, false).expect("the same family");
    let mut frame = vec![0; header.len()];
    frame.extend_from_slice(&message(len));
    header.write(&mut frame, 7_777, to.port());
    frame
}

/// The frame with bytes of its IPv4 header replaced and the header's checksum made right.
fn with_ip(mut frame: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    for (at, byte) in changes {
        frame[14 + at] = *byte;
    }
    frame[24..26].fill(0);
    let sum = checksum::finish(checksum::add(0, &frame[14..34]));
    frame[24..26].copy_from_slice(&sum);
    frame
}

fn with_byte(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    assert_ne!(frame[at], byte, "a change");
    frame[at] = byte;
    frame
}

#[test]
fn malformed_frames_are_dropped_and_counted_and_calls_go_on() {
    let pair = pair(2);
    let [a, b] = pair.names();
    let mut server =
        DpdkTransport::open(&port(&a, 1).mtu(1_500).udp_port(SERVER.port())).expect("a port");
    let mut clients = group(&port(&b, 2).mtu(1_500), 2);
    let _idle = clients.pop();
    let client = clients.pop().expect("two members");
    let raw = RawPort::new(&b);
    let good = || frame(&stranger(), SERVER, 100);
    let elsewhere = |ip: [u8; 4], port| frame(&stranger(), (ip, port).into(), 100);
    let tagged = Interface { vlan: Some(5), ..stranger() };
    let nobody = Network { address: [0, 0, 0, 0].into(), prefix: 24 };
    let nobody = Interface { networks: vec![nobody], ..stranger() };
    let cases: [(&str, FrameDrop, Vec<u8>); 17] = [
        ("a runt", FrameDrop::Truncated, vec![0xff; 9]),
        ("an empty frame", FrameDrop::Truncated, good()[..14].to_vec()),
        ("half an IP header", FrameDrop::Truncated, good()[..24].to_vec()),
        ("half a datagram", FrameDrop::Truncated, good()[..80].to_vec()),
        ("a long UDP length", FrameDrop::Truncated, with_byte(good(), 39, 0xff)),
        ("a damaged IP header", FrameDrop::Checksum, with_byte(good(), 22, 3)),
        ("a damaged datagram", FrameDrop::Checksum, with_byte(good(), 90, 0xEE)),
        ("a first fragment", FrameDrop::Fragment, with_ip(good(), &[(6, 0x20)])),
        ("a later fragment", FrameDrop::Fragment, with_ip(good(), &[(6, 0), (7, 9)])),
        ("IP options", FrameDrop::Options, with_ip(good(), &[(0, 0x46)])),
        ("another ethertype", FrameDrop::Protocol, with_byte(good(), 13, 0x01)),
        ("TCP", FrameDrop::Protocol, with_ip(good(), &[(9, 6)])),
        ("another host", FrameDrop::NotOurs, elsewhere([10, 9, 0, 77], SERVER.port())),
        ("another VLAN", FrameDrop::NotOurs, frame(&tagged, SERVER, 100)),
        ("another UDP port", FrameDrop::NoEndpoint, elsewhere([10, 9, 0, 1], 99)),
        ("no source", FrameDrop::Source, frame(&nobody, SERVER, 100)),
        ("a jumbo frame", FrameDrop::Oversized, frame(&stranger(), SERVER, 1_473)),
    ];
    let before = server.frame_drops();
    for (at, (what, reason, frame)) in cases.iter().enumerate() {
        let counted = server.frame_drops().of(*reason);
        raw.send(&[frame]);
        assert_eq!(server.split().0.burst(), 0, "{what}");
        let drops = server.frame_drops();
        assert_eq!(drops.of(*reason), counted + 1, "{what}: {drops:?}");
        assert_eq!(drops.total(), before.total() + 1 + at as u64, "{what}: {drops:?}");
    }
    let long = frame(&stranger(), SERVER, 4_000);
    raw.send(&[&long[..1_000], &long[1_000..]]);
    assert_eq!(server.split().0.burst(), 0, "two long segments");
    assert_eq!(server.frame_drops().of(FrameDrop::Oversized), 2, "two long segments");
    let whole = frame(&stranger(), SERVER, 1_472);
    raw.send(&[&whole[..60], &whole[60..]]);
    assert_eq!(server.split().0.burst(), 1, "two segments are made one");
    assert_eq!(server.split().0.packet(0).bytes, message(1_472));
    raw.send(&[&whole]);
    assert_eq!(server.split().0.burst(), 1, "the largest datagram");
    assert_eq!(server.split().0.packet(0).bytes, message(1_472));
    let server = endpoint(server);
    serve(&server);
    let session: Session<DpdkTransport> = client.open(SERVER.into());
    call(&client, &session, 20_000, &[&server, &client]);
    assert!(raw.has_all_mbufs(), "no mbuf is lost");
}

/// A port, and a way to send any frame to it.
struct Target {
    server: DpdkTransport,
    raw: RawPort,
    _clients: Vec<DpdkTransport>,
}

impl Target {
    fn new(pair: &Pair, server: DpdkConfig, client: DpdkConfig) -> Self {
        let server = DpdkTransport::open(&server.udp_port(SERVER.port())).expect("a port");
        let clients = DpdkTransport::open_group(&client, 2).expect("a group");
        Self { server, raw: RawPort::new(&pair.names()[1]), _clients: clients }
    }

    /// Sends a frame, which is dropped for `reason` and no other.
    fn drops(&mut self, what: &str, frame: &[u8], reason: FrameDrop) {
        let before = self.server.frame_drops();
        self.raw.send(&[frame]);
        assert_eq!(self.server.split().0.burst(), 0, "{what}");
        let after = self.server.frame_drops();
        assert_eq!(after.of(reason), before.of(reason) + 1, "{what}: {after:?}");
        assert_eq!(after.total(), before.total() + 1, "{what}: {after:?}");
    }

    /// Sends a frame, which is not dropped. Returns the number of datagrams in it.
    fn takes(&mut self, what: &str, frame: &[u8]) -> usize {
        let before = self.server.frame_drops();
        self.raw.send(&[frame]);
        let count = self.server.split().0.burst();
        assert_eq!(self.server.frame_drops(), before, "{what}");
        count
    }

    /// Asserts that all mbufs are back, after the burst that returns the last one.
    fn finish(mut self) {
        while self.server.split().0.burst() > 0 {}
        assert!(self.raw.has_all_mbufs(), "no mbuf is lost");
    }
}

const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// Where the parts of a frame over IPv6 begin.
const IPV6: usize = 14;
const AFTER_IPV6: usize = IPV6 + 40;

fn target_v6(pair: &Pair) -> Target {
    let [a, b] = pair.names();
    let client = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into();
    Target::new(pair, DpdkConfig::new(a, SERVER_V6.into(), 64), DpdkConfig::new(b, client, 64))
}

fn target_v4(pair: &Pair) -> Target {
    let [a, b] = pair.names();
    Target::new(pair, port(&a, 1).mtu(1_500), port(&b, 2).mtu(1_500))
}

fn stranger_v6() -> Interface {
    let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9).into();
    Interface { networks: vec![Network { address, prefix: 64 }], ..stranger() }
}

/// An ICMP message in place of the datagram of a frame over IPv4.
fn icmp(message: &[u8]) -> Vec<u8> {
    let mut frame = frame(&stranger(), SERVER, message.len() - 8);
    frame[34..].copy_from_slice(message);
    frame[36..38].fill(0);
    let sum = checksum::finish(checksum::add(0, &frame[34..]));
    frame[36..38].copy_from_slice(&sum);
    with_ip(frame, &[(9, 1)])
}

/// The frame with bytes of its ICMPv6 message replaced and the message's checksum made right.
fn with_icmpv6(mut frame: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    for (at, byte) in changes {
        frame[AFTER_IPV6 + at] = *byte;
    }
    let len = (frame.len() - AFTER_IPV6) as u16;
    frame[AFTER_IPV6 + 2..AFTER_IPV6 + 4].fill(0);
    let sum = checksum::pseudo(&frame[IPV6 + 8..AFTER_IPV6], 58, len);
    let sum = checksum::finish(checksum::add(sum, &frame[AFTER_IPV6..]));
    frame[AFTER_IPV6 + 2..AFTER_IPV6 + 4].copy_from_slice(&sum);
    frame
}

fn ask(from: &Interface, target: IpAddr) -> Vec<u8> {
    control::ask(from, target).expect("an address of the family")
}

#[test]
fn a_frame_that_ends_early_is_dropped_wherever_it_ends() {
    let pair = pair(2);
    let mut over_v4 = target_v4(&pair);
    let echo = [8, 0, 0, 0, 1, 2, 3, 4, 5, 6];
    for (what, good, datagrams) in [
        ("a datagram", frame(&stranger(), SERVER, 100), 1),
        ("a question", ask(&stranger(), SERVER.ip()), 0),
        ("an echo request", icmp(&echo), 0),
    ] {
        assert_eq!(over_v4.takes(what, &good), datagrams, "{what}");
        for len in 0..good.len() {
            over_v4.drops(&format!("{len} bytes of {what}"), &good[..len], FrameDrop::Truncated);
        }
    }
    over_v4.finish();
    let mut over_v6 = target_v6(&pair);
    let datagram = frame(&stranger_v6(), (SERVER_V6, SERVER.port()).into(), 100);
    for (what, good, datagrams) in
        [("a datagram", datagram, 1), ("a question", ask(&stranger_v6(), SERVER_V6.into()), 0)]
    {
        assert_eq!(over_v6.takes(what, &good), datagrams, "{what}");
        for len in 0..good.len() {
            over_v6.drops(&format!("{len} bytes of {what}"), &good[..len], FrameDrop::Truncated);
        }
    }
    over_v6.finish();
}

#[test]
fn wrong_lengths_and_headers_of_ipv4_are_dropped() {
    let pair = pair(2);
    let mut target = target_v4(&pair);
    let good = || frame(&stranger(), SERVER, 100);
    for (what, reason, frame) in [
        ("version 5", FrameDrop::Truncated, with_ip(good(), &[(0, 0x55)])),
        ("a short IP header", FrameDrop::Truncated, with_ip(good(), &[(0, 0x44)])),
        ("a header that is all options", FrameDrop::Options, with_ip(good(), &[(0, 0x4f)])),
        ("no length", FrameDrop::Truncated, with_ip(good(), &[(2, 0), (3, 0)])),
        ("an IP header alone", FrameDrop::Truncated, with_ip(good(), &[(2, 0), (3, 20)])),
        ("half a UDP header", FrameDrop::Truncated, with_ip(good(), &[(2, 0), (3, 24)])),
        ("an IP packet shorter than UDP says", FrameDrop::Truncated, with_ip(good(), &[(3, 100)])),
        ("an IP packet beyond the frame", FrameDrop::Truncated, with_ip(good(), &[(3, 129)])),
        ("the longest IP packet", FrameDrop::Truncated, with_ip(good(), &[(2, 0xff), (3, 0xff)])),
        ("UDP without a length", FrameDrop::Truncated, with_byte(good(), 39, 0)),
        ("UDP shorter than its header", FrameDrop::Truncated, with_byte(good(), 39, 7)),
        ("UDP with a wrong length", FrameDrop::Checksum, with_byte(good(), 39, 107)),
        ("a middle fragment", FrameDrop::Fragment, with_ip(good(), &[(6, 0x20), (7, 9)])),
        ("a far fragment", FrameDrop::Fragment, with_ip(good(), &[(6, 0x1f)])),
        (
            "from all hosts",
            FrameDrop::Source,
            with_ip(good(), &[(12, 255), (13, 255), (14, 255), (15, 255)]),
        ),
        ("an echo answer", FrameDrop::Protocol, icmp(&[0, 0, 0, 0, 1, 2, 3, 4])),
        ("an error of ICMP", FrameDrop::Protocol, icmp(&[3, 4, 0, 0, 0, 0, 5, 0, 0x45])),
        (
            "a damaged echo request",
            FrameDrop::Checksum,
            with_byte(icmp(&[8, 0, 0, 0, 1, 2, 3, 4]), 41, 5),
        ),
    ] {
        target.drops(what, &frame, reason);
    }
    assert_eq!(target.takes("padding", &[&good()[..], &[0xee; 46]].concat()), 1);
    target.finish();
}

#[test]
fn wrong_lengths_and_headers_of_ipv6_are_dropped() {
    let pair = pair(2);
    let mut target = target_v6(&pair);
    let good = || frame(&stranger_v6(), (SERVER_V6, SERVER.port()).into(), 100);
    let with = |at: usize, byte| with_byte(good(), at, byte);
    for (what, reason, frame) in [
        ("version 5", FrameDrop::Truncated, with(IPV6, 0x50)),
        ("a packet beyond the frame", FrameDrop::Truncated, with(IPV6 + 5, 109)),
        ("the longest packet", FrameDrop::Truncated, with(IPV6 + 4, 0xff)),
        ("no payload", FrameDrop::Truncated, with(IPV6 + 5, 0)),
        ("half a UDP header", FrameDrop::Truncated, with(IPV6 + 5, 5)),
        ("a packet shorter than UDP says", FrameDrop::Truncated, with(IPV6 + 5, 90)),
        ("UDP without a length", FrameDrop::Truncated, with(AFTER_IPV6 + 5, 0)),
        ("UDP shorter than its header", FrameDrop::Truncated, with(AFTER_IPV6 + 5, 7)),
        ("UDP with a wrong length", FrameDrop::Checksum, with(AFTER_IPV6 + 5, 107)),
        ("a fragment", FrameDrop::Fragment, with(IPV6 + 6, 44)),
        ("hop-by-hop options", FrameDrop::Options, with(IPV6 + 6, 0)),
        ("a routing header", FrameDrop::Options, with(IPV6 + 6, 43)),
        ("destination options", FrameDrop::Options, with(IPV6 + 6, 60)),
        ("TCP", FrameDrop::Protocol, with(IPV6 + 6, 6)),
        ("another host", FrameDrop::NotOurs, with(IPV6 + 39, 7)),
        ("from a group", FrameDrop::Source, with(IPV6 + 8, 0xff)),
        ("another UDP port", FrameDrop::Checksum, with(AFTER_IPV6 + 3, 1)),
    ] {
        target.drops(what, &frame, reason);
    }
    let mut unprotected = good();
    unprotected[AFTER_IPV6 + 6..AFTER_IPV6 + 8].fill(0);
    target.drops("no checksum", &unprotected, FrameDrop::Checksum);
    target.finish();
}

#[test]
fn nonsense_of_arp_is_dropped() {
    let pair = pair(2);
    let mut target = target_v4(&pair);
    let good = || ask(&stranger(), SERVER.ip());
    let with = |at: usize, byte| with_byte(good(), 14 + at, byte);
    let own_address = || {
        let mut frame = good();
        frame[28..32].copy_from_slice(&[10, 9, 0, 1]);
        frame
    };
    for (what, reason, frame) in [
        ("another hardware", FrameDrop::Protocol, with(1, 6)),
        ("another protocol", FrameDrop::Protocol, with(2, 0x86)),
        ("a long hardware address", FrameDrop::Protocol, with(4, 8)),
        ("a short protocol address", FrameDrop::Protocol, with(5, 2)),
        ("no operation", FrameDrop::Protocol, with(7, 0)),
        ("a reverse question", FrameDrop::Protocol, with(7, 3)),
        ("a question for another host", FrameDrop::NotOurs, with(27, 77)),
        ("a hardware address of a group", FrameDrop::Source, with(8, 3)),
        ("from a group", FrameDrop::Source, with(14, 224)),
        ("another host with this address", FrameDrop::Source, own_address()),
        ("an announcement of this address", FrameDrop::Source, {
            let mut frame = own_address();
            frame[21] = 2;
            frame
        }),
    ] {
        target.drops(what, &frame, reason);
    }
    let mut nobody = good();
    nobody[22..28].fill(0);
    target.drops("no hardware address", &nobody, FrameDrop::Source);
    target.finish();
}

#[test]
fn nonsense_of_ndp_is_dropped() {
    let pair = pair(2);
    let mut target = target_v6(&pair);
    let good = || ask(&stranger_v6(), SERVER_V6.into());
    // A message has 4 bytes, 4 of flags, 16 of the target, and an option of 8.
    let with = |changes: &[(usize, u8)]| with_icmpv6(good(), changes);
    let (option, length) = (24, 25);
    for (what, reason, frame) in [
        ("a wrong checksum", FrameDrop::Checksum, with_byte(good(), AFTER_IPV6 + 2, 0)),
        ("through a router", FrameDrop::Protocol, with_byte(good(), IPV6 + 7, 64)),
        ("a code", FrameDrop::Protocol, with(&[(1, 1)])),
        ("an advertisement of a router", FrameDrop::Protocol, with(&[(0, 134)])),
        ("a redirect", FrameDrop::Protocol, with(&[(0, 137)])),
        ("a question for another host", FrameDrop::NotOurs, with(&[(23, 77)])),
        ("an advertisement of this address", FrameDrop::Source, with(&[(0, 136)])),
        ("an advertisement of a group", FrameDrop::Source, with(&[(0, 136), (8, 0xff)])),
        ("an option without a length", FrameDrop::Truncated, with(&[(length, 0)])),
        ("an option beyond the end", FrameDrop::Truncated, with(&[(length, 2)])),
        ("a hardware address of a group", FrameDrop::Source, with(&[(option + 2, 3)])),
    ] {
        target.drops(what, &frame, reason);
    }
    target.finish();
}

/// Frames over IPv4 and IPv6 beyond the MTU, in one segment and in two.
#[test]
fn frames_beyond_the_mtu_are_dropped_and_the_longest_ones_are_not() {
    let pair = pair(2);
    for (is_v4, longest) in [(true, 1_472), (false, 1_452)] {
        let mut target = if is_v4 { target_v4(&pair) } else { target_v6(&pair) };
        let frame = |len| {
            let v6 = (SERVER_V6, SERVER.port()).into();
            if is_v4 { frame(&stranger(), SERVER, len) } else { frame(&stranger_v6(), v6, len) }
        };
        for len in [longest + 1, 2_000, 8_900] {
            target.drops("too long", &frame(len), FrameDrop::Oversized);
            let long = frame(len);
            let truncated = target.server.stats().rx_truncated;
            target.raw.send(&[&long[..1_000], &long[1_000..]]);
            assert_eq!(target.server.split().0.burst(), 0, "{len} bytes in two segments");
            assert_eq!(target.server.stats().rx_truncated, truncated + 1);
        }
        assert_eq!(target.takes("the longest", &frame(longest)), 1);
        target.finish();
    }
}
