//! The end-to-end suite over ports that DPDK drives. Server and clients run in this process, on a pair
//! of ports whose queues are rings in memory (`net_ring`). Everything above the driver is the same
//! as over a network card.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::id;
use std::sync::{Mutex, OnceLock, PoisonError};

use erpc::transport::dpdk::{self, DpdkConfig, DpdkTransport};
use erpc::transport::udp::UdpRoute;
use erpc::{Listen, ServeError, ServerBuilder, ServerHandle};
use erpc_tests::suite::Network;

/// Endpoints of each host, at most.
const QUEUES: u16 = 2;

/// Pairs that no test uses. DPDK has 32 ports at most and cannot remove one, so tests reuse them.
static PAIRS: Mutex<Vec<Pair>> = Mutex::new(Vec::new());

/// Two ports that are connected.
struct Pair {
    server: String,
    client: String,
}

impl Pair {
    fn new() -> Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        static NEXT: Mutex<u32> = Mutex::new(0);
        STARTED.get_or_init(|| {
            let prefix = format!("--file-prefix=erpc-suite-{}", id());
            let memory = ["--no-huge", "-m", "1024"];
            let rest = ["--no-pci", "--no-telemetry", "-l", "0", &prefix];
            dpdk::init(&[&memory[..], &rest].concat()).expect("DPDK starts");
        });
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        let [server, client] = ["s", "c"].map(|side| format!("{side}{next}"));
        *next += 1;
        dpdk::ring_pair(&server, &client, QUEUES).expect("a pair of ports");
        Self { server: format!("net_ring_{server}"), client: format!("net_ring_{client}") }
    }
}

/// A host at each end of a pair.
struct Ports(Option<Pair>);

impl Ports {
    fn config(&self, device: impl Fn(&Pair) -> &String, host: u8) -> DpdkConfig {
        let pair = self.0.as_ref().expect("a network has a pair");
        DpdkConfig::new(device(pair), Ipv4Addr::new(10, 9, 0, host).into(), 24).mtu(9_000)
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        PAIRS.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.take());
    }
}

impl Network for Ports {
    type Transport = DpdkTransport;

    fn new() -> Self {
        let free = PAIRS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(Some(free.unwrap_or_else(Pair::new)))
    }

    fn settings(&self) -> DpdkConfig {
        self.config(|pair| &pair.server, 1)
    }

    fn address(&self) -> UdpRoute {
        SocketAddr::new(IpAddr::from([10, 9, 0, 1]), 31_850).into()
    }

    fn spawn(
        &self,
        builder: ServerBuilder<DpdkTransport>,
    ) -> Result<ServerHandle<DpdkTransport>, ServeError> {
        builder.spawn(self.address())
    }

    fn clients(&self, count: usize) -> Vec<DpdkTransport> {
        let any_port = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0).into();
        let opened = Listen::listen(&self.config(|pair| &pair.client, 2), any_port, count);
        opened.expect("the clients' port opens")
    }
}

erpc_tests::suite!(Ports);
