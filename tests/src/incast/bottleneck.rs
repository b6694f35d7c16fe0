//! Clients' host, router, server's host; the router's port to the server is slow.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::netns::{Namespace, run};

/// Addresses that nobody has: TEST-NET-1 and TEST-NET-2. The router has the first of each.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TO_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const TO_CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Names of interfaces: the hosts' only one, and the router's two.
const HOST: &str = "erpc0";
const SLOW: &str = "erpc1";
const FAST: &str = "erpc2";

/// Bytes that the slow port may send at once: some 20 packets, for timers are not exact.
const BURST: u32 = 32_768;

/// Three network namespaces and two cables.
///
/// ```text
///   clients ─────────── router ══ tbf ═════ server
///  198.51.100.2      .1        192.0.2.1      .2
/// ```
///
/// A router between them, as packets that it has taken up no longer count as the senders' own: the queue is the
/// network's, not that of the senders' socket buffers.
#[derive(Debug)]
pub struct Bottleneck {
    pub(super) clients: Namespace,
    router: Namespace,
    pub(super) server: Namespace,
    rate_mbit: u64,
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
        let net = Self { clients, router, server, rate_mbit };
        net.cable(&net.server, SLOW, [SERVER, TO_SERVER])?;
        net.cable(&net.clients, FAST, [CLIENTS, TO_CLIENTS])?;
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        net.router.within(forward).map_err(|error| format!("no forwarding: {error}"))?;
        let (burst, limit) = (BURST, Self::BUFFER);
        net.router.tc(&format!(
            "qdisc add dev {SLOW} root handle 1: tbf rate {rate_mbit}mbit burst {burst} limit {limit}"
        ))?;
        Ok(net)
    }

    fn cable(
        &self,
        host: &Namespace,
        port: &str,
        [ip, gateway]: [Ipv4Addr; 2],
    ) -> Result<(), String> {
        let (at, router) = (host.name(), self.router.name());
        run(
            "ip",
            &format!("link add {HOST} netns {at} type veth peer name {port} netns {router}"),
        )?;
        for (namespace, name, ip) in [(host, HOST, ip), (&self.router, port, gateway)] {
            namespace.ip(&format!("address add {ip}/24 dev {name}"))?;
            // One frame at a time: a port counts what was not cut into packets yet as one.
            namespace.ip(&format!("link set {name} gso_max_segs 1 up"))?;
        }
        host.ip(&format!("route add default via {gateway}")).map(drop)
    }

    /// Has the port mark packets (ECN) when its queue exceeds `queue` bytes.
    ///
    /// # Errors
    /// What the kernel says, if it has no queue that does.
    pub fn mark_above(&self, queue: u64) -> Result<(), String> {
        // Always beyond the second threshold, never before the first.
        let (max, limit, rate) = (queue + 1_514, Self::BUFFER, self.rate_mbit);
        self.router
            .tc(&format!(
                "qdisc replace dev {SLOW} parent 1:1 handle 2: red limit {limit} min {queue} max {max} avpkt 1500 \
                 burst {} probability 1 bandwidth {rate}mbit ecn",
                queue / 1_500 + 1
            ))
            .map(drop)
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
        let said = self.router.tc(&format!("-s -j qdisc show dev {SLOW} root"));
        let said = said.expect("the port has a queue");
        let number = |field: &str| {
            let (_, rest) = said.split_once(&format!("\"{field}\":")).expect("tc tells it");
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse().expect("it is a number")
        };
        Queue { backlog: number("backlog"), drops: number("drops") }
    }
}
