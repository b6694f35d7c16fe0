//! The host of the clients, a router and the host of the server. The router's port to the server is
//! slow. The router is the kernel or a thread.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::hop::Hop;
use super::line::Port;
use erpc_test_tools::netns::{Namespace, run};
use erpc_test_tools::tun;

/// Reserved addresses: TEST-NET-1 and TEST-NET-2. The router has the first address of each net.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TO_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(super) const CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const TO_CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// MTU in bytes of the links to a marking router: that of Ethernet.
const ETHERNET: usize = 1_500;

/// Name of a host's only interface.
pub(super) const HOST: &str = "erpc0";
/// Name of the router's interface to the server.
const SLOW: &str = "erpc1";
/// Name of the router's interface to the clients.
const FAST: &str = "erpc2";

/// Largest burst of the slow port in bytes: some 20 packets, because the kernel's timers are not
/// exact.
const BURST: u32 = 32_768;

/// Network namespaces of the clients and of their server, and a router between them.
///
/// ```text
///   clients ─────────── router ══ tbf ═════ server        Bottleneck::new: a third namespace, two cables
///  198.51.100.2      .1        192.0.2.1      .2
///
///   clients ─────────── thread ════════════ server        Bottleneck::marking: two TUN devices
///  198.51.100.2                           192.0.2.2      LongPath::new: likewise, the thread is the server's
/// ```
///
/// A packet in a router is no longer charged to its sender's socket buffer. So the queue forms in
/// the network, and not in the socket buffers.
#[derive(Debug)]
pub struct Bottleneck {
    router: Router,
    pub(super) clients: Namespace,
    pub(super) server: Namespace,
    rate_mbit: u64,
}

#[derive(Debug)]
enum Router {
    Kernel(Namespace),
    Thread(Hop),
}

/// State of the slow port's queue: its length in bytes, and packets dropped so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Queue {
    pub(super) backlog: u64,
    pub(super) drops: u64,
}

impl Bottleneck {
    /// Capacity of the port's queue in bytes. 20 sessions with 32 credits each do not fill it.
    pub const BUFFER: u64 = 2 << 20;

    /// Makes a port of `rate_mbit` million bits per second, including frame headers.
    ///
    /// # Errors
    /// The reason why the machine cannot make the namespaces or the port.
    pub fn new(rate_mbit: u64) -> Result<Self, String> {
        let (clients, router, server) =
            (Namespace::new("clients")?, Namespace::new("router")?, Namespace::new("server")?);
        cable(&router, SLOW, TO_SERVER, &server, SERVER)?;
        cable(&router, FAST, TO_CLIENTS, &clients, CLIENTS)?;
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        router.within(forward).map_err(|error| format!("no forwarding: {error}"))?;
        let (burst, limit) = (BURST, Self::BUFFER);
        router.tc(&format!(
            "qdisc add dev {SLOW} root handle 1: tbf rate {rate_mbit}mbit burst {burst} limit {limit}"
        ))?;
        Ok(Self { router: Router::Kernel(router), clients, server, rate_mbit })
    }

    /// As [`Bottleneck::new`], with a router that is a thread of this process. The router's port
    /// marks packets (ECN) when its queue exceeds `queue` bytes; many kernels have no such queue.
    /// The thread uses a part of a core, so compare runs with such a router only with each other.
    ///
    /// # Errors
    /// The reason why the machine cannot make the namespaces or the devices.
    pub fn marking(rate_mbit: u64, queue: u64) -> Result<Self, String> {
        let (clients, server) = (Namespace::new("clients")?, Namespace::new("server")?);
        let devices = [
            tun::attach(&clients, HOST, CLIENTS, ETHERNET)?,
            tun::attach(&server, HOST, SERVER, ETHERNET)?,
        ];
        let rate = rate_mbit * 125_000;
        let port = Port { rate, buffer: Self::BUFFER, mark_above: queue, delay: Duration::ZERO };
        let router = Router::Thread(Hop::start(port, devices));
        Ok(Self { router, clients, server, rate_mbit })
    }

    /// Rate of the port in bytes per second.
    #[must_use]
    pub fn link_rate(&self) -> u64 {
        self.rate_mbit * 125_000
    }

    pub(super) fn server_at(port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(SERVER), port)
    }

    pub(super) fn clients_at(port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(CLIENTS), port)
    }

    pub(super) fn queue(&self) -> Queue {
        let router = match &self.router {
            Router::Kernel(router) => router,
            Router::Thread(hop) => return Queue { backlog: hop.backlog(), drops: hop.drops() },
        };
        let said = router.tc(&format!("-s -j qdisc show dev {SLOW} root"));
        let said = said.expect("the port has a queue");
        let number = |field: &str| {
            let (_, rest) = said.split_once(&format!("\"{field}\":")).expect("tc prints the field");
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse().expect("the field is a number")
        };
        Queue { backlog: number("backlog"), drops: number("drops") }
    }
}

/// Makes a cable from `host` to a port of `router` with the address `gateway`.
fn cable(
    router: &Namespace,
    port: &str,
    gateway: Ipv4Addr,
    host: &Namespace,
    ip: Ipv4Addr,
) -> Result<(), String> {
    let (at, to) = (host.name(), router.name());
    run("ip", &format!("link add {HOST} netns {at} type veth peer name {port} netns {to}"))?;
    for (namespace, name, ip) in [(host, HOST, ip), (router, port, gateway)] {
        namespace.ip(&format!("address add {ip}/24 dev {name}"))?;
        // No segmentation offload, because a port counts an uncut buffer as one packet.
        namespace.ip(&format!("link set {name} gso_max_segs 1 up"))?;
    }
    host.ip(&format!("route add default via {gateway}")).map(drop)
}
