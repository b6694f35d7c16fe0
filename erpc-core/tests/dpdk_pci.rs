//! Calls between two PCI devices of this machine, which are cabled to each other and bound to
//! vfio-pci. `erpc-core/tests/dpdk-vm` runs this in a virtual machine with emulated cards.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::EndpointConfig;
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::status::Status;
use erpc_core::transport::dpdk::{self, DpdkConfig, DpdkTransport};
use erpc_core::transport::{Transport, TransportStats};

const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("test.v1.Test/Echo");
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), 31_850);
/// Emulated processors are slow.
const PATIENCE: Duration = Duration::from_secs(60);

fn echo(_: &(), request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
    Ok(Response::new(request.into_message()))
}

/// Opens a port and waits for its link.
fn open(device: &str, last: u8) -> DpdkTransport {
    let config = DpdkConfig::new(device, [10, 9, 0, last].into(), 24).udp_port(31_850);
    let transport = DpdkTransport::open(&config).expect("a port");
    let end = Instant::now() + PATIENCE;
    while !transport.is_link_up() {
        assert!(Instant::now() < end, "{device}: the link stays down");
        thread::sleep(Duration::from_millis(10));
    }
    transport
}

/// What a port did, for the log of the test.
struct Summary<'a>(&'a str, TransportStats);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.1;
        write!(f, "{}: sent {}, received {}", self.0, stats.tx_packets, stats.rx_packets)?;
        write!(f, ", dropped {}, overflow {}", stats.tx_dropped, stats.rx_overflow)
    }
}

#[test]
#[ignore = "needs two PCI devices; erpc-core/tests/dpdk-vm runs it"]
fn calls_between_two_devices() {
    let devices = env::var("ERPC_DPDK_DEVICES").expect("two PCI addresses, separated by a space");
    let (first, second) = devices.split_once(' ').expect("two PCI addresses");
    let arguments =
        ["-l", "0", "-m", "128", "--no-huge", "--no-telemetry", "-a", first, "-a", second];
    dpdk::init(&arguments).expect("DPDK starts");
    let stop = Arc::new(AtomicBool::new(false));
    let server = thread::spawn({
        let (stop, first) = (Arc::clone(&stop), first.to_owned());
        move || {
            let transport = open(&first, 1);
            let endpoint = Endpoint::new(transport, EndpointConfig::new()).expect("settings");
            let mut routes = Routes::new();
            routes.unary(ECHO, Mode::Dispatch, &Arc::new(()), echo).expect("one method");
            assert!(endpoint.serve(Arc::new(routes), None));
            endpoint.listen();
            let end = Instant::now() + 5 * PATIENCE;
            endpoint.run_until(|| stop.load(Ordering::Relaxed) || Instant::now() > end);
            println!("{}", Summary(&first, endpoint.stats().expect("outside").transport));
        }
    });
    let transport = open(second, 2);
    let (zero_copy, steering) = (transport.is_zero_copy(), transport.steering());
    println!("{second}: zero copy {zero_copy}, {steering:?}, {:?}", transport.capabilities());
    let endpoint = Endpoint::new(transport, EndpointConfig::new()).expect("settings");
    let session: Session<DpdkTransport> = endpoint.open(SERVER.into());
    for len in [0, 1, 1_448, 1_472, 100_000, 1 << 20] {
        let request: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let call = endpoint.timeout(PATIENCE, session.call(&ECHO, &request));
        let answer = endpoint.block_on(call).expect("in time").expect("an answer");
        assert!(answer == request, "{len} bytes");
    }
    let small = vec![7; 32];
    for _ in 0..1_000 {
        let call = endpoint.timeout(PATIENCE, session.call(&ECHO, &small));
        endpoint.block_on(call).expect("in time").expect("an answer");
    }
    println!("{}", Summary(second, endpoint.stats().expect("outside").transport));
    stop.store(true, Ordering::Relaxed);
    server.join().expect("the server ends");
}
