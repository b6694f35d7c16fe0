//! The path to a peer: its largest datagram, and the rate of the local link.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::MAX_DATAGRAM;
use super::egress::Egress;
use super::nic::Nic;
use super::socket::{UdpSocket, errno};
use crate::clock;
use crate::time::Instant;
use crate::transport::udp::UdpRoute;
use crate::transport::{Link, MIN_DATAGRAM, Path, Route};

const IPV4_AND_UDP: usize = 20 + 8;
const IPV6_AND_UDP: usize = 40 + 8;
/// The MTU to assume for a path when the kernel reports none, in bytes.
const ETHERNET: usize = 1_500;

/// The largest UDP payload for `mtu`, in bytes. Extension headers and IP options are not counted;
/// this transport uses none.
fn payload(mtu: usize, v4: bool) -> usize {
    mtu.saturating_sub(if v4 { IPV4_AND_UDP } else { IPV6_AND_UDP }).min(MAX_DATAGRAM)
}

/// Largest datagram that `socket` may send or receive, in bytes: the limit of its interface, or the
/// largest possible one if it is bound to all interfaces.
pub(super) fn largest(socket: &UdpSocket) -> usize {
    let ip = socket.address().ip();
    if ip.is_unspecified() {
        return MAX_DATAGRAM;
    }
    match Nic::with_address(ip).and_then(|interface| interface.mtu(socket.fd())) {
        Some(mtu) => payload(mtu, ip.to_canonical().is_ipv4()).max(MIN_DATAGRAM),
        None => MAX_DATAGRAM,
    }
}

/// Finds the paths of one endpoint, and caches recent ones.
pub(super) struct Paths {
    local: SocketAddr,
    max_datagram: usize,
    links: Links,
    recent: Recent,
}

impl Paths {
    /// The paths of a socket that is bound to `local` and sends datagrams of at most `max_datagram`
    /// bytes.
    pub(super) fn new(local: SocketAddr, max_datagram: usize) -> Self {
        Self { local, max_datagram, links: Links::default(), recent: Recent::default() }
    }

    /// Whether [`Self::to`] has the path to `peer` in its cache.
    pub(super) fn knows(&self, now: Instant, peer: &UdpRoute) -> bool {
        self.recent.path(now, peer).is_some()
    }

    /// The path to `peer`: the route's MTU, reduced by path MTU discovery, and the rate of the
    /// interface that the route uses, unless the peer is on this host. Results are cached for a
    /// second, for all ports of the peer.
    pub(super) fn to(&mut self, now: Instant, peer: &UdpRoute) -> Path {
        if let Some(path) = self.recent.path(now, peer) {
            return path;
        }
        let path = self.find(peer.socket_addr());
        self.recent.remember(now, peer, path);
        path
    }

    /// Asks the kernel through a temporary connected socket; nothing is sent. Takes about 9 us.
    fn find(&mut self, peer: SocketAddr) -> Path {
        let probe = connected(self.local.ip(), peer).ok();
        let mtu = probe.as_ref().and_then(|probe| mtu(probe, peer)).unwrap_or(ETHERNET);
        Path {
            datagram: payload(mtu, peer.is_ipv4()).min(self.max_datagram),
            link: probe.map_or(Link::Unknown, |probe| self.link(&probe, peer)),
        }
    }

    fn link(&mut self, probe: &Socket, peer: SocketAddr) -> Link {
        let source = probe.local_addr().ok().and_then(|address| address.as_socket());
        let egress = source.and_then(|source| Egress::find(source.ip(), peer));
        let rate = match egress {
            None => None,
            Some(Egress::Local) => return Link::Local,
            Some(Egress::Interface(index)) => self.links.rate(index, clock::now(), || {
                Nic::with_index(index, probe.as_fd())?.link_rate(probe.as_fd())
            }),
        };
        rate.map_or(Link::Unknown, Link::Rate)
    }
}

/// How long a path and a link's rate are cached, in ns. Routes change and links renegotiate their
/// rate; but when many sessions open together, not each of them should ask.
const BELIEVED: u64 = 1_000_000_000;

/// Recently found paths, one per slot. The slot follows from the peer's address; a newer path
/// replaces an older one.
struct Recent(Box<[Option<Found>; PLACES]>);

/// Slots of the cache, 16 KiB in all.
const PLACES: usize = 256;

#[derive(Clone, Copy)]
struct Found {
    /// The peer, with port 0.
    peer: UdpRoute,
    at: Instant,
    path: Path,
}

impl Default for Recent {
    fn default() -> Self {
        Self(Box::new([None; PLACES]))
    }
}

impl Recent {
    fn place(peer: &UdpRoute) -> usize {
        // Two peers that share a slot evict each other, so each is looked up again. The number of
        // lookups per turn is limited.
        let spread = peer.host_bits().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (spread >> 32) as usize % PLACES
    }

    fn path(&self, now: Instant, peer: &UdpRoute) -> Option<Path> {
        let found = self.0[Self::place(peer)]?;
        let holds = found.peer == peer.with_port(0) && now.nanos_since(found.at) < BELIEVED;
        holds.then_some(found.path)
    }

    fn remember(&mut self, now: Instant, peer: &UdpRoute, path: Path) {
        self.0[Self::place(peer)] = Some(Found { peer: peer.with_port(0), at: now, path });
    }
}

/// The rate of the last link asked for; most hosts use only one link. Asking takes a lock that is
/// shared by all network settings of the kernel, and some drivers query their card.
#[derive(Default)]
struct Links {
    last: Option<(u32, Instant, Option<u64>)>,
}

impl Links {
    fn rate(&mut self, index: u32, now: Instant, ask: impl FnOnce() -> Option<u64>) -> Option<u64> {
        match self.last {
            Some((of, at, rate)) if of == index && now.nanos_since(at) < BELIEVED => rate,
            _ => {
                let rate = ask();
                self.last = Some((index, now, rate));
                rate
            }
        }
    }
}

/// A socket connected to `peer`, bound to `local` if that has the peer's family.
fn connected(local: IpAddr, peer: SocketAddr) -> Result<Socket, Errno> {
    let domain = Domain::for_address(peer);
    let socket =
        Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(|error| errno(&error))?;
    // The route may depend on the source address.
    if !local.is_unspecified() && local.is_ipv4() == peer.is_ipv4() {
        let any_port = SockAddr::from(SocketAddr::new(local, 0));
        socket.bind(&any_port).map_err(|error| errno(&error))?;
    }
    socket.connect(&SockAddr::from(peer)).map_err(|error| errno(&error))?;
    Ok(socket)
}

fn mtu(probe: &Socket, peer: SocketAddr) -> Option<usize> {
    let mtu = if peer.is_ipv4() { sockopt::ip_mtu(probe) } else { sockopt::ipv6_mtu(probe) };
    mtu.ok().map(|mtu| mtu as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cached_for_a_second_and_for_all_ports_of_its_peer() {
        let (mut recent, now) = (Recent::default(), Instant::from_nanos(5_000_000_000));
        let route = |text: &str| UdpRoute::from(text.parse::<SocketAddr>().unwrap());
        let (peer, path) = (route("10.0.0.1:7"), Path { datagram: 1_472, link: Link::Unknown });
        assert_eq!(recent.path(now, &peer), None);
        recent.remember(now, &peer, path);
        let late = now.plus_nanos(BELIEVED - 1);
        assert_eq!(recent.path(late, &route("10.0.0.1:8")), Some(path));
        assert_eq!(recent.path(late.plus_nanos(1), &peer), None, "too old");
        for other in ["10.0.0.2:7", "[2001:db8::1]:7", "[::ffff:10.0.1.1]:7"] {
            assert_eq!(recent.path(now, &route(other)), None, "{other}");
        }
        // More peers than slots do not grow the cache.
        for last in 0..=255 {
            for third in 0..8 {
                recent.remember(now, &route(&format!("10.0.{third}.{last}:7")), path);
            }
        }
        assert_eq!(recent.path(now, &route("10.0.7.255:9")), Some(path), "the newest is known");
    }

    #[test]
    fn a_renegotiated_link_rate_is_seen_a_second_later() {
        let (mut links, start) = (Links::default(), Instant::from_nanos(5_000_000_000));
        let mut at = |nanos, index, rate| links.rate(index, start.plus_nanos(nanos), || rate);
        assert_eq!(at(0, 2, Some(10)), Some(10));
        assert_eq!(at(BELIEVED - 1, 2, Some(1)), Some(10), "not asked again yet");
        assert_eq!(at(BELIEVED, 2, Some(1)), Some(1));
        assert_eq!(at(BELIEVED, 3, Some(25)), Some(25), "another link");
        assert_eq!(at(BELIEVED, 2, None), None);
        assert_eq!(at(2 * BELIEVED - 1, 2, Some(1)), None, "an unknown rate is cached, too");
        assert_eq!(at(2 * BELIEVED, 2, Some(1)), Some(1));
    }
}
