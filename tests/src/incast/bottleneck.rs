//! Clients' host, router, server's host; the router's port to the server is slow. The router is the kernel, or a thread.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::hop::Hop;
use super::line::Port;
use erpc_test_tools::netns::{Namespace, run};
use erpc_test_tools::tun;

/// Addresses that nobody has: TEST-NET-1 and TEST-NET-2. The router has the first of each.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TO_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(super) const CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const TO_CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Bytes of a packet, as most links have it.
const ETHERNET: usize = 1_500;

/// Names of interfaces: the hosts' only one, and the router's two.
const HOST: &str = "erpc0";
const SLOW: &str = "erpc1";
const FAST: &str = "erpc2";

/// Bytes that the slow port may send at once: some 20 packets, for timers are not exact.
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
/// Packets that a router has taken up no longer count as the senders' own: the queue is the network's, not that of the senders'
/// socket buffers.
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

/// What the slow port's queue says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Queue {
    pub(super) backlog: u64,
    pub(super) drops: u64,
}

impl Bottleneck {
    /// The port's queue, in bytes: more than 20 sessions of 32 credits put into it.
    pub const BUFFER: u64 = 2 << 20;

    /// A port of `rate_mbit` million bits per second, frames with their headers.
    ///
    /// # Errors
    /// What the machine says against it.
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

    /// The same with a router that is a thread of this program, whose port marks packets (ECN) when its queue exceeds `queue`
    /// bytes: many kernels have no queue that does. It takes a part of a core, so compare runs through it with each other.
    ///
    /// # Errors
    /// What the machine says against it.
    pub fn marking(rate_mbit: u64, queue: u64) -> Result<Self, String> {
        let (clients, server) = (Namespace::new("clients")?, Namespace::new("server")?);
        let devices = [tunnel(&clients, CLIENTS, ETHERNET)?, tunnel(&server, SERVER, ETHERNET)?];
        let rate = rate_mbit * 125_000;
        let port = Port { rate, buffer: Self::BUFFER, mark_above: queue, delay: Duration::ZERO };
        let router = Router::Thread(Hop::start(port, devices));
        Ok(Self { router, clients, server, rate_mbit })
    }

    /// What the port sends, in bytes per second.
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
            let (_, rest) = said.split_once(&format!("\"{field}\":")).expect("tc tells it");
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse().expect("it is a number")
        };
        Queue { backlog: number("backlog"), drops: number("drops") }
    }
}

/// From `host` to the port of `router` that has the address `gateway`.
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
        // One frame at a time: a port counts what was not cut into packets yet as one.
        namespace.ip(&format!("link set {name} gso_max_segs 1 up"))?;
    }
    host.ip(&format!("route add default via {gateway}")).map(drop)
}

/// From `host` to a thread.
pub(super) fn tunnel(host: &Namespace, ip: Ipv4Addr, mtu: usize) -> Result<File, String> {
    let device = host.within(|| tun::open(HOST))?;
    host.ip(&format!("address add {ip}/32 dev {HOST}"))?;
    // No packet waits there for long, and none shall be lost.
    host.ip(&format!("link set {HOST} mtu {mtu} txqueuelen 4096 up"))?;
    host.ip(&format!("route add default dev {HOST}"))?;
    Ok(device)
}
