//! Endpoints on pairs of DPDK ports (`net_ring`) within this process. DPDK starts once for all tests;
//! each has a pair of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::EndpointConfig;
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::status::Status;
use erpc_core::transport::dpdk::{self, DpdkConfig, DpdkError, DpdkTransport};

const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("test.v1.Test/Echo");
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), 31_850);
const PATIENCE: Duration = Duration::from_secs(30);

fn echo(_: &(), request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
    Ok(Response::new(request.into_message()))
}

/// The names of a new pair of ports.
fn pair(queues: u16) -> [String; 2] {
    static STARTED: OnceLock<()> = OnceLock::new();
    static PAIRS: AtomicU32 = AtomicU32::new(0);
    STARTED.get_or_init(|| {
        let prefix = format!("--file-prefix=erpc-ring-{}", std::process::id());
        let arguments =
            ["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "-l", "0", &prefix];
        dpdk::init(&arguments).expect("DPDK starts");
    });
    let number = PAIRS.fetch_add(1, Ordering::Relaxed);
    let [a, b] = [format!("a{number}"), format!("b{number}")];
    dpdk::ring_pair(&a, &b, queues).expect("a pair of ports");
    [a, b].map(|name| format!("net_ring_{name}"))
}

fn port(device: &str, last: u8) -> DpdkConfig {
    DpdkConfig::new(device, [10, 9, 0, last].into(), 24).mtu(9_000)
}

fn serve(endpoint: &Endpoint<DpdkTransport>) {
    let mut routes = Routes::new();
    routes.unary(ECHO, Mode::Dispatch, &Arc::new(()), echo).expect("one method");
    assert!(endpoint.serve(Arc::new(routes), None));
    endpoint.listen();
}

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7) as u8).collect()
}

#[test]
fn a_name_is_used_once_and_is_checked() {
    let [a, _] = pair(1);
    let a = a.strip_prefix("net_ring_").expect("the driver's prefix");
    assert!(dpdk::ring_pair(a, "other", 1).is_err(), "the name is in use");
    assert!(dpdk::ring_pair("same", "same", 1).is_err(), "two equal names");
    assert!(dpdk::ring_pair("none", "queues", 0).is_err(), "no queue");
    assert!(dpdk::ring_pair("", "empty", 1).is_err(), "an empty name");
    assert!(dpdk::ring_pair(&"x".repeat(23), "long", 1).is_err(), "a long name");
}

#[test]
fn client_and_server_on_two_threads() {
    let [a, b] = pair(1);
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
    let [a, b] = pair(1);
    let server = Endpoint::dpdk(&port(&a, 1).udp_port(31_850)).expect("a port");
    let client = Endpoint::dpdk(&port(&b, 2)).expect("a port");
    serve(&server);
    let session: Session<DpdkTransport> = client.open(SERVER.into());
    for len in [0, 32, 100_000] {
        let request = message(len);
        let call = client.spawn(session.call(&ECHO, &request));
        let end = Instant::now() + PATIENCE;
        while !call.is_finished() {
            assert!(Instant::now() < end, "{len} bytes take too long");
            server.run_once();
            client.run_once();
        }
        let answer = client.block_on(call).expect("an answer");
        assert!(answer == request, "{len} bytes");
    }
}

/// Two endpoints at each end, on two pairs of queues that are connected one to one. Only one loop of
/// the clients runs at a time, so packets for it arrive at queues that nobody else polls.
#[test]
fn endpoints_of_a_port_hand_over_packets_also_for_siblings_that_stand_still() {
    let [a, b] = pair(2);
    let stop = Arc::new(AtomicBool::new(false));
    let servers = DpdkTransport::open_group(&port(&a, 1).queues(2), 31_850, 2).expect("a port");
    let threads: Vec<_> = servers
        .into_iter()
        .map(|transport| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let endpoint =
                    Endpoint::new(transport, EndpointConfig::new()).expect("default settings");
                serve(&endpoint);
                let end = Instant::now() + PATIENCE;
                endpoint.run_until(|| stop.load(Ordering::Relaxed) || Instant::now() > end);
            })
        })
        .collect();
    let clients = DpdkTransport::open_group(&port(&b, 2).queues(2), 0, 2).expect("a port");
    let open = |transport| Endpoint::new(transport, EndpointConfig::new());
    let clients: Vec<_> =
        clients.into_iter().map(|transport| open(transport).expect("default settings")).collect();
    for client in &clients {
        for number in 0..2 {
            let server = SocketAddr::new(SERVER.ip(), SERVER.port() + number);
            let session: Session<DpdkTransport> = client.connect(server).expect("an address");
            for len in [0, 32, 100_000] {
                let request = message(len);
                let call = client.timeout(PATIENCE, session.call(&ECHO, &request));
                let answer = client.block_on(call).expect("in time").expect("an answer");
                assert!(answer == request, "{len} bytes");
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("the server ends");
    }
}

#[test]
fn a_group_that_has_no_room_is_refused() {
    let [a, _] = pair(1);
    for (udp_port, endpoints) in [(1, 0), (1, 65), (65_535, 2)] {
        let error = DpdkTransport::open_group(&port(&a, 1), udp_port, endpoints).err();
        assert_eq!(error, Some(DpdkError::Endpoints { endpoints, udp_port }));
    }
    drop(DpdkTransport::open_group(&port(&a, 1), 65_534, 2).expect("room for two"));
    drop(DpdkTransport::open(&port(&a, 1)).expect("the port is free again"));
}
