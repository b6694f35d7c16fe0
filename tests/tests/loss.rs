//! One packet in ten is lost in each direction. Every call ends once with the right bytes, and was
//! executed once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use erpc::transport::fault::{FaultHandle, FaultPlan, Faults, Faulty};
use erpc::{Endpoint, EndpointConfig, Handle, Udp, UdpConfig};
use erpc_test_tools::limit::{secs, within};
use erpc_tests::lab::{LabService, loopback};
use erpc_tests::load::{Ending, Lengths, Load, judge};
use erpc_tests::proto::*;

type Lossy = Faulty<Udp>;

const CALLS: usize = 10_000;

/// Bytes of a datagram that fits an Ethernet frame: 1,500 minus the headers of IPv4 and UDP.
const ETHERNET: usize = 1_472;
/// Bytes of the largest datagram over loopback.
const LOOPBACK: usize = 65_507;

/// Most messages are small, some need several packets at either datagram size, a few have up to 1
/// MiB.
const LENGTHS: Lengths =
    &[(100, 1), (700, 200), (170, 4_000), (20, 40_000), (6, 160_000), (4, 1 << 20)];

/// A server on its own thread. Its transport loses no packets; that of its clients loses packets of
/// both directions.
struct Server {
    address: SocketAddr,
    executed: Arc<Mutex<Vec<u64>>>,
    handle: Handle,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(udp: UdpConfig) -> Self {
        let executed: Arc<Mutex<Vec<u64>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (send, started) = channel();
        let (note, stopped) = (Arc::clone(&executed), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let endpoint = Endpoint::udp_with(&udp, EndpointConfig::new())
                .expect("the server's endpoint opens");
            let lab = LabService::new(move |id| note.lock().expect("no thread panicked").push(id));
            endpoint.listen();
            assert!(endpoint.serve(lab.routes(), None));
            let address = endpoint.local_route().expect("called outside of the loop").socket_addr();
            send.send((address, endpoint.handle())).expect("the test receives the address");
            endpoint.run_until(|| stopped.load(Ordering::Acquire));
        });
        let (address, handle) = started.recv().expect("the server starts");
        Self { address, executed, handle, stop, thread: Some(thread) }
    }

    /// The ids of all executions, in order. A call executed twice is in it twice.
    fn executed(&self) -> Vec<u64> {
        self.executed.lock().expect("no thread panicked").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.handle.wake();
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || thread::panicking());
    }
}

fn lossy(udp: &UdpConfig, seed: u64) -> (Lossy, FaultHandle) {
    let plan = FaultPlan::new(seed).both(Faults::none().drop(0.1));
    let transport = Faulty::new(Udp::bind(udp).expect("the client's socket opens"), plan);
    let handle = transport.handle();
    (transport, handle)
}

fn every_call_ends_once(datagram: usize, seed: u64) {
    let udp = loopback().max_datagram(datagram);
    let server = Server::start(udp.clone());
    let (transport, faults) = lossy(&udp, seed);
    let endpoint =
        Endpoint::new(transport, EndpointConfig::new()).expect("the client's endpoint opens");
    let load = Load::new(LENGTHS);
    let began = Instant::now();
    Load::start(&load, || {
        LocalLabClient::connect(&endpoint, server.address).expect("a session opens despite losses")
    });
    load.run(&endpoint, CALLS);
    load.drain(&endpoint, secs(20));
    let took = began.elapsed();

    let counts = judge(&server.executed(), &load.endings());
    assert_eq!(counts, HashMap::from([(Ending::Answered, load.made() as usize)]));

    let (faults, stats) = (faults.stats(), endpoint.stats().expect("called outside of the loop"));
    eprintln!(
        "datagrams of {datagram}: {took:?}, lost {} of {} sent and {} received; {} retransmitted, {} of them probes",
        faults.tx.dropped,
        stats.transport.tx_packets,
        faults.rx.dropped,
        stats.protocol.retransmissions.packets(),
        stats.protocol.retransmissions.probes
    );
    for (direction, lost, passed) in [
        ("sending", faults.tx.dropped, stats.transport.tx_packets),
        ("receiving", faults.rx.dropped, stats.protocol.rx_packets),
    ] {
        let share = lost as f64 / (lost + passed) as f64;
        assert!(
            (0.08..0.12).contains(&share),
            "the client loses {share:.3} of the packets when {direction}, expected 0.1"
        );
    }
    assert!(stats.protocol.retransmissions.packets() > 500, "lost packets are retransmitted");
    assert_eq!(
        (stats.protocol.calls, stats.protocol.responses, stats.protocol.failures),
        (load.made(), load.made(), 0)
    );
}

#[test]
fn calls_survive_a_tenth_lost_with_datagrams_of_ethernets_size() {
    within(secs(120), || every_call_ends_once(ETHERNET, 11));
}

#[test]
fn calls_survive_a_tenth_lost_with_datagrams_of_loopbacks_size() {
    within(secs(120), || every_call_ends_once(LOOPBACK, 12));
}
