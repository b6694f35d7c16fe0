//! Endpoints on pairs of DPDK ports (`net_ring`) within this process. DPDK starts once for all tests;
//! each has a pair of its own.

use std::env;
use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BufMut;
use erpc_core::buf::{MsgBuf, Pool};
use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::{Acceptor, EndpointConfig, ListenGroup};
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::status::Status;
use erpc_core::transport::dpdk::{self, DpdkConfig, DpdkTransport, Steering};
use erpc_core::transport::frame::{FrameDrop, Header, Interface, Mac, Network, checksum};
use erpc_core::transport::{RxQueue, Transport, TxQueue};
use erpc_core::wire::{ConnectionId, Flags, HeaderWords, Kind, PacketNumber, RequestNumber};

const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("test.v1.Test/Echo");
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), 31_850);
const PATIENCE: Duration = Duration::from_secs(30);

fn echo(_: &(), request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
    Ok(Response::new(request.into_message()))
}

/// A pair of ports of this test alone. DPDK has 32 ports, so tests use pairs again.
struct Pair {
    names: [String; 2],
    queues: u16,
}

static IDLE: Mutex<Vec<Pair>> = Mutex::new(Vec::new());

impl Pair {
    fn names(&self) -> [String; 2] {
        self.names.clone()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // After a failure the ports may be in use.
        if !thread::panicking() {
            // Frames of this test would reach the next one.
            let ports = [(0, 1), (1, 2)].map(|(at, last)| port(&self.names[at], last));
            let mut ports = ports.map(|port| DpdkTransport::open(&port).expect("an idle port"));
            for port in &mut ports {
                let drops = |port: &DpdkTransport| port.frame_drops().total();
                let mut before = None;
                while before != Some(drops(port)) {
                    before = Some(drops(port));
                    while port.split().0.burst() > 0 {}
                }
            }
            let pair = Self { names: self.names(), queues: self.queues };
            IDLE.lock().expect("no panic while locked").push(pair);
        }
    }
}

/// Where `net_pcap0` writes what is sent through it.
fn capture() -> PathBuf {
    env::temp_dir().join(format!("erpc-capture-{}.pcap", std::process::id()))
}

fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let prefix = format!("--file-prefix=erpc-ring-{}", std::process::id());
        let pcap = format!("--vdev=net_pcap0,tx_pcap={}", capture().display());
        let arguments =
            ["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "-l", "0", &prefix, &pcap];
        dpdk::init(&arguments).expect("DPDK starts");
    });
}

fn pair(queues: u16) -> Pair {
    static PAIRS: AtomicU32 = AtomicU32::new(0);
    start();
    let mut idle = IDLE.lock().expect("no panic while locked");
    if let Some(at) = idle.iter().position(|pair| pair.queues == queues) {
        return idle.swap_remove(at);
    }
    let number = PAIRS.fetch_add(1, Ordering::Relaxed);
    let [a, b] = [format!("a{number}"), format!("b{number}")];
    dpdk::ring_pair(&a, &b, queues).expect("a pair of ports");
    Pair { names: [a, b].map(|name| format!("net_ring_{name}")), queues }
}

fn port(device: &str, last: u8) -> DpdkConfig {
    DpdkConfig::new(device, [10, 9, 0, last].into(), 24).mtu(9_000)
}

fn routes() -> Arc<Routes> {
    let mut routes = Routes::new();
    routes.unary(ECHO, Mode::Dispatch, &Arc::new(()), echo).expect("one method");
    Arc::new(routes)
}

fn serve(endpoint: &Endpoint<DpdkTransport>) {
    assert!(endpoint.serve(routes(), None));
    endpoint.listen();
}

fn endpoint(transport: DpdkTransport) -> Endpoint<DpdkTransport> {
    Endpoint::new(transport, EndpointConfig::new()).expect("default settings")
}

/// The endpoints of a port's group.
fn group(config: &DpdkConfig, count: usize) -> Vec<Endpoint<DpdkTransport>> {
    let group = DpdkTransport::open_group(config, count).expect("a group");
    group.into_iter().map(endpoint).collect()
}

/// Serves on all endpoints as one listening group.
fn serve_as_group(members: &[Endpoint<DpdkTransport>]) {
    let ports = (0..members.len() as u16).map(|at| SERVER.port() + at).collect();
    let group = Arc::new(ListenGroup::new([7; 16], ports));
    for (member, steer) in members.iter().zip(0..) {
        assert!(member.serve(routes(), None));
        member.listen_in(Acceptor::new(Arc::clone(&group), steer));
    }
}

/// Calls `session` and runs turns of `all` until the answer has arrived.
fn call(
    client: &Endpoint<DpdkTransport>,
    session: &Session<DpdkTransport>,
    len: usize,
    all: &[&Endpoint<DpdkTransport>],
) {
    let request = message(len);
    let call = client.spawn(session.call(&ECHO, &request));
    let end = Instant::now() + PATIENCE;
    while !call.is_finished() {
        assert!(Instant::now() < end, "{len} bytes take too long");
        for endpoint in all {
            endpoint.run_once();
        }
    }
    let answer = client.block_on(call).expect("an answer");
    assert!(answer == request, "{len} bytes");
}

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7) as u8).collect()
}

#[test]
fn a_name_is_used_once_and_is_checked() {
    let pair = pair(1);
    let [a, _] = pair.names();
    let a = a.strip_prefix("net_ring_").expect("the driver's prefix");
    assert!(dpdk::ring_pair(a, "other", 1).is_err(), "the name is in use");
    assert!(dpdk::ring_pair("same", "same", 1).is_err(), "two equal names");
    assert!(dpdk::ring_pair("none", "queues", 0).is_err(), "no queue");
    assert!(dpdk::ring_pair("", "empty", 1).is_err(), "an empty name");
    assert!(dpdk::ring_pair(&"x".repeat(23), "long", 1).is_err(), "a long name");
}

#[test]
fn client_and_server_on_two_threads() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let stop = Arc::new(AtomicBool::new(false));
    let server = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let endpoint = Endpoint::dpdk(&port(&a, 1).udp_port(31_850)).expect("a port");
            serve(&endpoint);
            let end = Instant::now() + PATIENCE;
            endpoint.run_until(|| stop.load(Ordering::Relaxed) || Instant::now() > end);
        }
    });
    let endpoint = Endpoint::dpdk(&port(&b, 2)).expect("a port");
    let session: Session<DpdkTransport> = endpoint.connect(SERVER).expect("an address");
    for len in [0, 32, 5_000, 1_000_000] {
        let request = message(len);
        let call = endpoint.timeout(PATIENCE, session.call(&ECHO, &request));
        let answer = endpoint.block_on(call).expect("in time").expect("an answer");
        assert!(answer == request, "{len} bytes");
    }
    stop.store(true, Ordering::Relaxed);
    server.join().expect("the server ends");
}

#[test]
fn client_and_server_on_one_thread_by_turns() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let server = Endpoint::dpdk(&port(&a, 1).udp_port(31_850)).expect("a port");
    let client = Endpoint::dpdk(&port(&b, 2)).expect("a port");
    serve(&server);
    let session: Session<DpdkTransport> = client.open(SERVER.into());
    for len in [0, 32, 100_000] {
        call(&client, &session, len, &[&server, &client]);
    }
}

#[test]
fn a_group_is_counted_and_closes_with_its_last_member() {
    let pair = pair(1);
    let [a, _] = pair.names();
    let first = port(&a, 1).udp_port(65_530);
    for count in [0, 7, 65] {
        assert!(DpdkTransport::open_group(&first, count).is_err(), "{count} endpoints");
    }
    let mut group = DpdkTransport::open_group(&first, 6).expect("UDP ports up to 65,535");
    assert!(group.iter().all(|member| member.steering() == Steering::Software));
    let last = group.pop();
    drop(group);
    assert!(DpdkTransport::open(&first).is_err(), "the last member uses the port");
    drop(last);
    // Mempools of the device are used again: there is memory for about ten.
    for _ in 0..40 {
        let single = DpdkTransport::open(&first).expect("the port is closed");
        assert_eq!(single.steering(), Steering::Single);
    }
}

#[test]
fn groups_call_groups_over_shared_and_own_queues() {
    for queues in [1, 2, 3] {
        let pair = pair(queues);
        let [a, b] = pair.names();
        let servers = group(&port(&a, 1).udp_port(SERVER.port()).mtu(1_500), 3);
        let clients = group(&port(&b, 2).mtu(1_500), 2);
        serve_as_group(&servers);
        let all: Vec<_> = servers.iter().chain(&clients).collect();
        // Servers get sessions at random, and each its share after some dozens.
        let stats =
            |endpoint: &Endpoint<DpdkTransport>| endpoint.stats().expect("outside").transport;
        let is_idle = |endpoint: &&Endpoint<DpdkTransport>| stats(endpoint).rx_packets <= 50;
        let mut rounds = 0;
        while rounds < 12 || all.iter().any(is_idle) {
            rounds += 1;
            assert!(rounds < 100, "{queues} queues: a member receives next to nothing");
            for client in &clients {
                let session: Session<DpdkTransport> = client.open(SERVER.into());
                call(client, &session, 32, &all);
                call(client, &session, 20_000, &all);
            }
        }
        let lost: u64 = all.iter().map(|endpoint| stats(endpoint).rx_overflow).sum();
        assert_eq!(lost, 0, "{queues} queues");
    }
}

#[test]
fn a_member_needs_no_other_member_to_run() {
    for queues in [1, 2] {
        let pair = pair(queues);
        let [a, b] = pair.names();
        let servers = group(&port(&a, 1).udp_port(SERVER.port()), 2);
        let client = Endpoint::dpdk(&port(&b, 2)).expect("a port");
        serve(&servers[1]);
        // The client sends into queue 0, and the first member, whose queue that is, stands still.
        let second = SocketAddr::new(SERVER.ip(), SERVER.port() + 1);
        let session: Session<DpdkTransport> = client.open(second.into());
        for len in [32, 100_000] {
            call(&client, &session, len, &[&servers[1], &client]);
        }
    }
}

/// Sends any bytes into queue 1 of a port, which an idle member of the port's group has.
struct RawPort {
    port: u16,
    pool: *mut dpdk_sys::rte_mempool,
}

impl RawPort {
    fn new(device: &str) -> Self {
        let c_name = CString::new(device).expect("no zero byte");
        let mut found = dpdk_sys::erpc_device::default();
        // SAFETY: a terminated string and a struct to write; DPDK runs.
        let error = unsafe { dpdk_sys::erpc_device_find(c_name.as_ptr(), &raw mut found) };
        assert_eq!(error, 0, "{device} exists");
        // SAFETY: as above. The name is unique, because each device is opened once here.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(c_name.as_ptr(), 511, 0, 0, 10_000, found.socket)
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
}

/// Sends to a peer that does not receive until `limit` datagrams are lost; returns how many the
/// port took.
fn fill(from: &mut DpdkTransport, to: &mut DpdkTransport, limit: u64) -> u64 {
    let route = to.local_route();
    // The two learn each other's MAC addresses.
    while from.stats().tx_packets == 0 {
        from.split().1.push_bytes(&route, &[1; 32]);
        from.split().1.doorbell();
        to.split().0.burst();
        from.split().0.burst();
    }
    let begun = Instant::now();
    while from.stats().tx_dropped < limit {
        assert!(begun.elapsed() < PATIENCE, "no datagram is lost: {:?}", from.stats());
        from.split().1.push_bytes(&route, &[1; 32]);
        // A flush is bounded, also at a port that takes nothing.
        from.split().1.flush();
    }
    from.stats().tx_packets
}

fn drain(to: &mut DpdkTransport, from: &mut DpdkTransport) {
    let begun = Instant::now();
    loop {
        from.split().1.flush();
        let got = to.split().0.burst();
        if got == 0 && to.stats().rx_packets == from.stats().tx_packets {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "lost: {:?} {:?}", from.stats(), to.stats());
    }
}

#[test]
fn a_peer_that_does_not_receive_costs_counted_datagrams_only() {
    // The ring has 2,047 entries. With few descriptors, the mempool is dry before it is full.
    for (descriptors, what) in [(2_048, "a full ring"), (128, "a dry mempool")] {
        let pair = pair(1);
        let [a, b] = pair.names();
        let config = |device, last| port(device, last).mtu(1_500).descriptors(descriptors);
        let mut server = DpdkTransport::open(&config(&a, 1)).expect("a port");
        let mut client = DpdkTransport::open(&config(&b, 2)).expect("a port");
        for round in 0..3 {
            let sent = fill(&mut client, &mut server, 500 * (round + 1));
            assert!(sent > 500, "{what}: {sent} datagrams");
            drain(&mut server, &mut client);
        }
        let [server, client] = [server, client].map(endpoint);
        serve(&server);
        let session: Session<DpdkTransport> = client.open(server.local_route().expect("outside"));
        call(&client, &session, 100_000, &[&server, &client]);
    }
}

#[test]
fn a_member_that_does_not_receive_loses_what_its_inbox_cannot_hold() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let mut servers =
        DpdkTransport::open_group(&port(&a, 1).mtu(1_500).descriptors(128), 2).expect("a group");
    let mut client = DpdkTransport::open(&port(&b, 2).mtu(1_500)).expect("a port");
    let mut second = servers.pop().expect("two");
    let mut first = servers.pop().expect("two");
    let route = second.local_route();
    let end = Instant::now() + PATIENCE;
    while second.stats().rx_overflow < 100 {
        assert!(Instant::now() < end, "nothing is lost: {:?}", second.stats());
        client.split().1.push_bytes(&route, &[1; 32]);
        client.split().1.flush();
        first.split().0.burst();
        client.split().0.burst();
    }
    let mut received = 0;
    while received < 128 {
        assert!(Instant::now() < end, "{received} datagrams");
        received += second.split().0.burst();
    }
    let sent = client.stats().tx_packets;
    assert_eq!(second.stats().rx_overflow + received as u64, sent, "each is received or counted");
    let [second, client] = [second, client].map(endpoint);
    serve(&second);
    let session: Session<DpdkTransport> = client.open(route);
    call(&client, &session, 20_000, &[&second, &client]);
}

#[test]
fn a_server_that_is_opened_again_serves_again() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let client = Endpoint::dpdk(&port(&b, 2)).expect("a port");
    for _ in 0..3 {
        let server = Endpoint::dpdk(&port(&a, 1).udp_port(SERVER.port())).expect("a port");
        serve(&server);
        let session: Session<DpdkTransport> = client.open(SERVER.into());
        call(&client, &session, 32, &[&server, &client]);
        call(&client, &session, 50_000, &[&server, &client]);
        // The next server finds the old one's calls in its ring.
        let request = message(50_000);
        let lost = client.spawn(session.call(&ECHO, &request));
        for _ in 0..10 {
            client.run_once();
        }
        drop((server, lost));
    }
}

#[test]
fn link_local_peers_may_have_a_scope() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let config = |device: &str, last| {
        let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
        DpdkConfig::new(device, address.into(), 64).udp_port(SERVER.port())
    };
    let server = Endpoint::dpdk(&config(&a, 1)).expect("a port");
    let client = Endpoint::dpdk(&config(&b, 2)).expect("a port");
    serve(&server);
    let address =
        SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), SERVER.port(), 0, 7);
    let session: Session<DpdkTransport> = client.open(SocketAddr::V6(address).into());
    call(&client, &session, 32, &[&server, &client]);
    call(&client, &session, 20_000, &[&server, &client]);
}

/// Calls from one port to the other, each with settings of its own.
fn call_over(server: &DpdkConfig, client: &DpdkConfig) {
    let server = DpdkTransport::open(server).expect("a port");
    let address = server.local_route();
    let [server, client] = [server, DpdkTransport::open(client).expect("a port")].map(endpoint);
    serve(&server);
    let session: Session<DpdkTransport> = client.open(address);
    for len in [0, 32, 20_000] {
        call(&client, &session, len, &[&server, &client]);
    }
    let lost = [&server, &client].map(|endpoint| {
        let stats = endpoint.stats().expect("outside of a turn").transport;
        stats.tx_dropped + stats.rx_overflow
    });
    assert_eq!(lost, [0, 0]);
}

#[test]
fn calls_over_global_ipv6_addresses() {
    let pair = pair(1);
    let [a, b] = pair.names();
    for mtu in [1_500, 9_000] {
        let config = |device: &str, last| {
            let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            DpdkConfig::new(device, address.into(), 64).mtu(mtu)
        };
        call_over(&config(&a, 1), &config(&b, 2));
    }
}

#[test]
fn calls_with_a_vlan_tag() {
    let pair = pair(1);
    let [a, b] = pair.names();
    call_over(&port(&a, 1).vlan(5), &port(&b, 2).vlan(5));
    let v6 = |device: &str, last| {
        let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
        DpdkConfig::new(device, address.into(), 64).vlan(4_094)
    };
    call_over(&v6(&a, 1), &v6(&b, 2));
}

/// Sends a datagram of `len` bytes, and returns the frame that the other port receives.
fn sent_frame(from: &DpdkConfig, to: &str, peer: SocketAddr, len: usize) -> Vec<u8> {
    let mut transport = DpdkTransport::open(from).expect("a port");
    transport.split().1.push_bytes(&peer.into(), &message(len));
    transport.split().1.flush();
    let is_ours = |frame: &&[u8]| frame.ends_with(&message(len));
    Unread::take(to).frames().find(is_ours).expect("a datagram").to_vec()
}

#[test]
fn calls_through_gateways() {
    let pair = pair(1);
    let [a, b] = pair.names();
    // Every station receives frames to a group of stations, so no router is needed.
    let routers = [Mac([3, 0, 0, 0, 0, 1]), Mac([3, 0, 0, 0, 0, 2])];
    let config = |device: &str, network: usize| {
        let subnet = 8 + network as u8;
        let router = [10, subnet, 0, 254].into();
        DpdkConfig::new(device, [10, subnet, 0, 1].into(), 24)
            .gateway(router)
            .neighbour(router, routers[network])
    };
    {
        let _receives = DpdkTransport::open(&config(&a, 0)).expect("a port");
        let peer = |subnet| SocketAddr::new([10, subnet, 0, 1].into(), 99);
        let frame = sent_frame(&config(&b, 1), &a, peer(8), 100);
        assert_eq!(frame[..6], routers[1].0, "the next station is the router");
        assert_eq!(frame[30..34], [10, 8, 0, 1], "the packet is for the peer");
        let mut isolated =
            DpdkTransport::open(&DpdkConfig::new(&*b, [10, 9, 0, 1].into(), 24)).expect("a port");
        isolated.split().1.push_bytes(&peer(8).into(), &[1; 32]);
        assert_eq!(isolated.stats().tx_dropped, 1, "there is no way without a router");
    }
    call_over(&config(&a, 0), &config(&b, 1));
}

#[test]
fn calls_without_checksums() {
    let pair = pair(1);
    let [a, b] = pair.names();
    {
        let _receives = DpdkTransport::open(&port(&a, 1)).expect("a port");
        for on in [true, false] {
            let from = port(&b, 2).checksums(on).neighbour(SERVER.ip(), Mac::BROADCAST);
            let frame = sent_frame(&from, &a, SERVER, 100);
            assert_eq!(frame[40..42] != [0, 0], on, "a checksum: {on}");
        }
    }
    call_over(&port(&a, 1).checksums(false), &port(&b, 2).checksums(false));
}

/// Frames that a port has received and nobody has freed.
struct Unread {
    mbufs: [*mut dpdk_sys::rte_mbuf; 64],
    frames: [dpdk_sys::erpc_frame; 64],
    count: usize,
}

impl Unread {
    /// Takes the frames out of queue 0 of `device`, whose endpoint does not poll meanwhile.
    fn take(device: &str) -> Self {
        let c_name = CString::new(device).expect("no zero byte");
        let mut found = dpdk_sys::erpc_device::default();
        // SAFETY: a terminated string and a struct to write; DPDK runs.
        assert_eq!(unsafe { dpdk_sys::erpc_device_find(c_name.as_ptr(), &raw mut found) }, 0);
        let mut mbufs = [ptr::null_mut(); 64];
        let mut frames = [dpdk_sys::erpc_frame::default(); 64];
        // SAFETY: room for 64 entries each; the port is started, and nobody else polls the queue.
        let count = unsafe {
            dpdk_sys::erpc_rx_burst(found.port, 0, mbufs.as_mut_ptr(), frames.as_mut_ptr(), 64)
        };
        Self { mbufs, frames, count: count.into() }
    }

    /// The frames, up to the end of their first segments.
    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames[..self.count].iter().map(|frame| {
            // SAFETY: the mbuf is ours, and its first segment has `len` bytes at `data`.
            unsafe { slice::from_raw_parts(frame.data, frame.len as usize) }
        })
    }

    /// The addresses of the frames' second segments.
    fn outside(&self) -> Vec<*const u8> {
        // SAFETY: the mbufs are ours.
        let second = |mbuf: &*mut _| unsafe { dpdk_sys::erpc_second_segment(*mbuf) };
        self.mbufs[..self.count].iter().map(second).collect()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // SAFETY: the mbufs are ours, and nothing uses them after this.
        unsafe { dpdk_sys::erpc_give_back(self.mbufs.as_mut_ptr(), self.count as u16) };
    }
}

/// The header of a message of one packet.
fn single_packet() -> HeaderWords {
    let header = erpc_core::wire::Header {
        connection: ConnectionId::new(0, true, 0, 1),
        kind: Kind::Request,
        packet: PacketNumber::new(0),
        request: RequestNumber::from_u32(1),
        aux: 0,
        size: 8_000,
        flags: Flags::NONE,
    };
    header.to_words()
}

#[test]
fn the_device_reads_messages_in_place_and_they_are_not_written_meanwhile() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let mut server = DpdkTransport::open(&port(&a, 1)).expect("a port");
    let mut client = DpdkTransport::open(&port(&b, 2).zero_copy(true)).expect("a port");
    assert!(client.is_zero_copy() && !server.is_zero_copy());
    let route = server.local_route();
    meet(&mut client, &mut server);
    let mut pool = Pool::in_arena(1 << 20, client.arena());
    let mut msgbuf = pool.alloc(8_000).expect("memory");
    msgbuf.put_slice(&message(8_000));
    let mut small = pool.alloc(1_000).expect("memory");
    small.put_slice(&message(1_000));
    let mut elsewhere = MsgBuf::detached(8_000).expect("memory");
    elsewhere.put_slice(&message(8_000));
    let (_, tx) = client.split();
    for message in [&mut small, &mut elsewhere, &mut msgbuf] {
        tx.push_single(&route, single_packet(), message);
    }
    tx.doorbell();
    let unread = Unread::take(&a);
    let outside = unread.outside();
    assert_eq!(outside[..2], [ptr::null(); 2], "a short message and one elsewhere are copied");
    assert_eq!(outside[2], msgbuf.as_slice().as_ptr(), "the pointer that was sent");
    // The peer has not freed the frame, as a driver that is slow to send.
    let begun = Instant::now();
    tx.flush();
    assert!(begun.elapsed() < Duration::from_secs(1), "a flush is bounded");
    assert_eq!(client.stuck_flushes(), 1);
    let write = AssertUnwindSafe(|| msgbuf.as_mut_slice()[0] = 0);
    assert!(catch_unwind(write).is_err(), "the device may still read");
    assert_eq!(msgbuf.as_slice(), message(8_000));
    // A retransmission before the device has read the first copy.
    client.split().1.push_single(&route, single_packet(), &mut msgbuf);
    client.split().1.doorbell();
    drop(unread);
    client.split().1.reclaim();
    let write = AssertUnwindSafe(|| msgbuf.as_mut_slice()[0] = 0);
    assert!(catch_unwind(write).is_err(), "the second copy is in the ring");
    assert_eq!(server.split().0.burst(), 1);
    assert_eq!(server.split().0.packet(0).bytes[24..], message(8_000), "unchanged");
    server.split().0.burst();
    client.split().1.flush();
    assert_eq!(client.stuck_flushes(), 1, "everything has been read");
    msgbuf.as_mut_slice()[0] = 0;
}

/// Lets the two learn each other's MAC addresses.
fn meet(from: &mut DpdkTransport, to: &mut DpdkTransport) {
    let route = to.local_route();
    while to.stats().rx_packets < 2 {
        from.split().1.push_bytes(&route, &[1; 32]);
        from.split().1.flush();
        to.split().0.burst();
        from.split().0.burst();
    }
    while to.split().0.burst() > 0 {}
}

#[test]
fn calls_without_copies() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let server = port(&a, 1).udp_port(SERVER.port()).zero_copy(true);
    let server = Endpoint::dpdk(&server).expect("a port");
    let client = Endpoint::dpdk(&port(&b, 2).zero_copy(true)).expect("a port");
    serve(&server);
    let session: Session<DpdkTransport> = client.open(SERVER.into());
    for len in [32, 3_000, 20_000, 2_000_000] {
        call(&client, &session, len, &[&server, &client]);
        call(&client, &session, len, &[&server, &client]);
    }
}

/// The frames of a capture in pcap's format, in this machine's byte order.
fn frames_of(capture: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| {
        let bytes = capture[at..at + 4].try_into().expect("four bytes");
        u32::from_ne_bytes(bytes) as usize
    };
    assert!([0xa1b2_c3d4, 0xa1b2_3c4d].contains(&word(0)), "pcap with micro- or nanoseconds");
    assert_eq!(word(20), 1, "Ethernet");
    let (mut at, mut frames) = (24, Vec::new());
    while at < capture.len() {
        let len = word(at + 8);
        frames.push(&capture[at + 16..at + 16 + len]);
        at += 16 + len;
    }
    frames
}

/// The folded sum of 16-bit words in network order: 0xffff over bytes with a right checksum.
fn sum(parts: &[&[u8]]) -> u32 {
    let bytes = parts.concat();
    let words = bytes
        .chunks(2)
        .map(|word| (u32::from(word[0]) << 8) + u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn a_capture_shows_every_field_of_the_frames() {
    start();
    let peer = SocketAddr::new([10, 9, 0, 1].into(), 31_850);
    let config = port("net_pcap0", 2)
        .mtu(1_500)
        .udp_port(7_777)
        .vlan(5)
        .neighbour(peer.ip(), Mac([2, 0, 0, 0, 0, 1]));
    let mut transport = DpdkTransport::open(&config).expect("a port");
    transport.enable_ecn().expect("frames have ECN's bits");
    for len in [24, 1_001] {
        transport.split().1.push_bytes(&peer.into(), &message(len));
    }
    transport.split().1.flush();
    assert_eq!((transport.stats().tx_packets, transport.stats().tx_bytes), (2, 1_025));
    // The driver writes the file when the port stops.
    drop(transport);
    let file = std::fs::read(capture()).expect("the capture");
    std::fs::remove_file(capture()).expect("the capture is removed");
    let frames = frames_of(&file);
    let udp: Vec<_> = frames.iter().filter(|frame| frame[16..18] == [8, 0]).collect();
    assert_eq!(udp.len(), 2, "{frames:x?}");
    for (frame, len) in udp.into_iter().zip([24, 1_001]) {
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, 1], "destination");
        assert_eq!(frame[6], 2, "source: a locally administered address");
        assert_eq!(frame[12..18], [0x81, 0, 0, 5, 8, 0], "VLAN 5, IPv4");
        let (ip, rest) = frame[18..].split_at(20);
        assert_eq!(ip[..2], [0x45, 0b10], "IPv4 without options, ECT(0)");
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), 28 + len, "total length");
        assert_eq!(ip[4..8], [0, 0, 0x40, 0], "don't fragment");
        assert_eq!(ip[8..10], [64, 17], "hop limit, UDP");
        assert_eq!(ip[12..20], [10, 9, 0, 2, 10, 9, 0, 1], "addresses");
        assert_eq!(sum(&[ip]), 0xffff, "the checksum of IP");
        let udp = &rest[..8 + len];
        assert_eq!(udp[..4], [0x1e, 0x61, 0x7c, 0x6a], "ports 7,777 and 31,850");
        assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), 8 + len, "UDP's length");
        assert_ne!(udp[6..8], [0, 0], "a checksum of UDP");
        let pseudo = [0, 17, udp[4], udp[5]];
        assert_eq!(sum(&[&ip[12..20], &pseudo, udp]), 0xffff, "the checksum of UDP");
        assert_eq!(udp[8..], message(len), "the datagram");
    }
}
