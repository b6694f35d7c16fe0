//! One packet in ten is lost on its way there, one in ten on its way back: every call ends once, with
//! the right bytes, and was executed once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use erpc::transport::fault::{FaultHandle, FaultPlan, Faults, Faulty};
use erpc::{Endpoint, EndpointConfig, Handle, Session, Udp, UdpConfig};
use erpc_test_tools::limit::{secs, within};
use erpc_test_tools::random::Random;
use erpc_tests::lab::{LabService, loopback, work};
use erpc_tests::proto::*;

type Lossy = Faulty<Udp>;

const CALLS: u64 = 10_000;
/// Calls under way at once, over all sessions: some wait for a slot.
const OUTSTANDING: u64 = 64;
const SESSIONS: usize = 4;

/// A datagram that fits an Ethernet frame: 1,500 bytes less IPv4 and UDP headers.
const ETHERNET: usize = 1_472;
/// The largest that a loopback interface carries.
const LOOPBACK: usize = 65_507;

/// Request and response lengths of a call: mostly small, some of several packets at either datagram
/// size, a few of a MiB.
fn lengths(id: u64) -> (usize, usize) {
    let mut random = Random::new(id);
    let mut one = |id_is_large: bool| match random.below(100) {
        _ if id_is_large => 1 << 20,
        0..10 => 0,
        10..80 => random.below(200) as usize,
        80..97 => random.below(4_000) as usize,
        97..99 => random.below(40_000) as usize,
        _ => random.below(160_000) as usize,
    };
    // 40 of a MiB each way.
    (one(id % 250 == 7), one(id % 250 == 130))
}

/// A server on a thread of its own whose packets are not lost, but those of its clients are.
struct Server {
    address: SocketAddr,
    executed: Arc<Mutex<HashMap<u64, u32>>>,
    handle: Handle,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(udp: UdpConfig) -> Self {
        let executed: Arc<Mutex<HashMap<u64, u32>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (send, started) = channel();
        let (note, stopped) = (Arc::clone(&executed), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let endpoint =
                Endpoint::udp_with(&udp, EndpointConfig::new()).expect("the server's endpoint");
            let lab = LabService::new(move |id| {
                *note.lock().expect("no panic").entry(id).or_default() += 1
            });
            endpoint.listen();
            assert!(endpoint.serve(lab.routes(), None));
            let address = endpoint.local_route().expect("outside of the loop").socket_addr();
            send.send((address, endpoint.handle())).expect("the test waits");
            endpoint.run_until(|| stopped.load(Ordering::Acquire));
        });
        let (address, handle) = started.recv().expect("the server starts");
        Self { address, executed, handle, stop, thread: Some(thread) }
    }

    fn executed(&self) -> HashMap<u64, u32> {
        self.executed.lock().expect("no panic").clone()
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
    let transport = Faulty::new(Udp::bind(udp).expect("the client's socket"), plan);
    let handle = transport.handle();
    (transport, handle)
}

/// The load: keeps calls under way until all are done.
struct Load {
    sessions: Vec<LabClient<Lossy>>,
    next: Cell<u64>,
    ended: RefCell<Vec<u32>>,
    done: Cell<u64>,
}

impl Load {
    fn call(load: &Rc<Self>) {
        let id = load.next.get();
        if id == CALLS {
            return;
        }
        load.next.set(id + 1);
        let (request, expected) = work(id, lengths(id).0, lengths(id).1);
        let again = Rc::clone(load);
        load.sessions[id as usize % SESSIONS].work_with(request, move |reply| {
            let reply = reply.unwrap_or_else(|error| panic!("call {id}: {error}"));
            assert!(reply == expected, "call {id} of {:?} bytes brings other bytes", lengths(id));
            again.ended.borrow_mut()[id as usize] += 1;
            again.done.set(again.done.get() + 1);
            Self::call(&again);
        });
    }
}

fn every_call_ends_once(datagram: usize, seed: u64) {
    let udp = loopback().max_datagram(datagram);
    let server = Server::start(udp.clone());
    let (transport, faults) = lossy(&udp, seed);
    let endpoint = Endpoint::new(transport, EndpointConfig::new()).expect("the client's endpoint");
    let sessions: Vec<Session<Lossy>> = (0..SESSIONS)
        .map(|_| endpoint.connect(server.address).expect("a session opens in spite of losses"))
        .collect();
    let load = Rc::new(Load {
        sessions: sessions.into_iter().map(LabClient::new).collect(),
        next: Cell::new(0),
        ended: RefCell::new(vec![0; CALLS as usize]),
        done: Cell::new(0),
    });
    let began = Instant::now();
    for _ in 0..OUTSTANDING {
        Load::call(&load);
    }
    endpoint.run_until(|| load.done.get() == CALLS);
    let took = began.elapsed();

    assert!(load.ended.borrow().iter().all(|ended| *ended == 1), "every call ends once");
    let executed = server.executed();
    assert_eq!(executed.len() as u64, CALLS, "every call was executed");
    let repeated: Vec<_> = executed.iter().filter(|(_, times)| **times != 1).collect();
    assert!(repeated.is_empty(), "executed more than once: {repeated:?}");

    let (faults, stats) = (faults.stats(), endpoint.stats().expect("outside of the loop"));
    eprintln!(
        "datagrams of {datagram}: {took:?}, lost {} of {} sent and {} received; {} sent again, {} timeouts",
        faults.tx.dropped,
        stats.transport.tx_packets,
        faults.rx.dropped,
        stats.protocol.retransmissions,
        stats.protocol.timeouts
    );
    for (direction, lost, passed) in [
        ("there", faults.tx.dropped, stats.transport.tx_packets),
        ("back", faults.rx.dropped, stats.protocol.rx_packets),
    ] {
        let share = lost as f64 / (lost + passed) as f64;
        assert!(
            (0.08..0.12).contains(&share),
            "a tenth is lost on the way {direction}, not {share:.3}"
        );
    }
    assert!(stats.protocol.retransmissions > 500, "what was lost was sent again");
    assert_eq!(
        (stats.protocol.calls, stats.protocol.responses, stats.protocol.failures),
        (CALLS, CALLS, 0)
    );
}

#[test]
fn a_tenth_lost_each_way_at_ethernets_datagram_size() {
    within(secs(120), || every_call_ends_once(ETHERNET, 11));
}

#[test]
fn a_tenth_lost_each_way_at_loopbacks_datagram_size() {
    within(secs(120), || every_call_ends_once(LOOPBACK, 12));
}
