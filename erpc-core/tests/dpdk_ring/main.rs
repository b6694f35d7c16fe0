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
use erpc_core::protocol::{Acceptor, EndpointConfig, Integrity, ListenGroup};
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::status::Status;
use erpc_core::transport::dpdk::{self, DpdkConfig, DpdkTransport, Steering};
use erpc_core::transport::frame::{FrameDrop, Header, Interface, Mac, Network, checksum};
use erpc_core::transport::udp::UdpRoute;
use erpc_core::transport::{RxQueue, Transport, TxQueue};
use erpc_core::wire::{ConnectionId, Flags, HeaderWords, Kind, PacketNumber, RequestNumber};

mod bundles;
mod calls;
mod capture;
mod groups;
mod losses;
mod malformed;
mod null;
mod zero_copy;

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
            // A port announces its address when it is first polled, so the other one needs a
            // second round.
            for _ in 0..2 {
                for port in &mut ports {
                    let rx = port.split().0;
                    rx.burst();
                    while !rx.is_drained() {
                        rx.burst();
                    }
                }
            }
            // Another test may take the pair as soon as it is in the list.
            drop(ports);
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
        dpdk::init(&[&arguments[..], &null::DEVICES].concat()).expect("DPDK starts");
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

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7) as u8).collect()
}

/// Sends a datagram of `len` bytes, and returns the frame that the other port receives.
fn sent_frame(from: &DpdkConfig, to: &str, peer: SocketAddr, len: usize) -> Vec<u8> {
    let mut transport = DpdkTransport::open(from).expect("a port");
    transport.split().1.push_bytes(&peer.into(), &message(len));
    transport.split().1.flush();
    let is_ours = |frame: &&[u8]| frame.ends_with(&message(len));
    Unread::take(to).frames().find(is_ours).expect("a datagram").to_vec()
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
