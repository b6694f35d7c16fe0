//! The way to a peer: how large a datagram may be, and how fast the link is.

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
use crate::transport::{MIN_DATAGRAM, Path};

const IPV4_AND_UDP: usize = 20 + 8;
const IPV6_AND_UDP: usize = 40 + 8;
/// What to assume of a path that the kernel tells nothing about.
const ETHERNET: usize = 1_500;

/// The part of `mtu` that is left for a datagram's payload. Extension headers and IP options, which
/// nobody asked for, are not counted.
fn payload(mtu: usize, v4: bool) -> usize {
    mtu.saturating_sub(if v4 { IPV4_AND_UDP } else { IPV6_AND_UDP }).min(MAX_DATAGRAM)
}

/// Largest datagram that `socket` may send or receive: what its interface carries, or any that exists
/// if it is bound to all interfaces.
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

/// Finds the paths of one endpoint.
pub(super) struct Paths {
    local: SocketAddr,
    max_datagram: usize,
    links: Links,
}

impl Paths {
    /// For a socket that is bound to `local` and sends no more than `max_datagram` bytes.
    pub(super) fn new(local: SocketAddr, max_datagram: usize) -> Self {
        Self { local, max_datagram, links: Links::default() }
    }

    /// The path to `peer`: the route's MTU, less whatever path MTU discovery has learned, and the rate of
    /// the interface that the route uses, none if that leads back to this host. Asks with a socket of its own, connected
    /// for the purpose; nothing is sent. Takes some 9 us.
    pub(super) fn to(&mut self, peer: SocketAddr) -> Path {
        let probe = connected(self.local.ip(), peer).ok();
        let mtu = probe.as_ref().and_then(|probe| mtu(probe, peer)).unwrap_or(ETHERNET);
        Path {
            datagram: payload(mtu, peer.is_ipv4()).min(self.max_datagram),
            link_rate: probe.and_then(|probe| self.link_rate(&probe, peer)),
        }
    }

    fn link_rate(&mut self, probe: &Socket, peer: SocketAddr) -> Option<u64> {
        let source = probe.local_addr().ok()?.as_socket()?.ip();
        match Egress::find(source, peer)? {
            Egress::Local => None,
            Egress::Interface(index) => self.links.rate(index, clock::now(), || {
                Nic::with_index(index, probe.as_fd())?.link_rate(probe.as_fd())
            }),
        }
    }
}

/// How long a link's rate is believed, in nanoseconds: links negotiate it anew, and of many sessions that open at once not
/// each need ask.
const BELIEVED: u64 = 1_000_000_000;

/// The rate of the link that was last asked about, for most hosts use one. To ask takes a lock that all of the kernel's
/// network settings share, and some drivers ask their card.
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

/// A socket whose packets would go from `local` to `peer`.
fn connected(local: IpAddr, peer: SocketAddr) -> Result<Socket, Errno> {
    let domain = Domain::for_address(peer);
    let socket =
        Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(|error| errno(&error))?;
    // The route may depend on where the packets come from.
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
    fn the_rate_that_a_link_has_negotiated_anew_is_seen_a_second_later() {
        let (mut links, start) = (Links::default(), Instant::from_nanos(5_000_000_000));
        let mut at = |nanos, index, rate| links.rate(index, start.plus_nanos(nanos), || rate);
        assert_eq!(at(0, 2, Some(10)), Some(10));
        assert_eq!(at(BELIEVED - 1, 2, Some(1)), Some(10), "not asked again yet");
        assert_eq!(at(BELIEVED, 2, Some(1)), Some(1));
        assert_eq!(at(BELIEVED, 3, Some(25)), Some(25), "another link");
        assert_eq!(at(BELIEVED, 2, None), None);
        assert_eq!(at(2 * BELIEVED - 1, 2, Some(1)), None, "nor does who does not know");
        assert_eq!(at(2 * BELIEVED, 2, Some(1)), Some(1));
    }
}
