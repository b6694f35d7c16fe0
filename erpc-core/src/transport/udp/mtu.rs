//! How large a datagram may be.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::MAX_DATAGRAM;
use super::socket::{UdpSocket, errno};
use super::sys;
use crate::transport::MIN_DATAGRAM;

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
    match sys::interface_mtu(socket.fd(), ip) {
        Some(mtu) => payload(mtu, ip.to_canonical().is_ipv4()).max(MIN_DATAGRAM),
        None => MAX_DATAGRAM,
    }
}

/// Largest datagram on the way from `local` to `peer`: the route's MTU, less whatever path MTU
/// discovery has learned. Asks with a socket of its own, connected for the purpose; nothing is sent.
pub(super) fn path(local: SocketAddr, peer: SocketAddr) -> usize {
    payload(path_mtu(local.ip(), peer).unwrap_or(ETHERNET), peer.is_ipv4())
}

fn path_mtu(local: IpAddr, peer: SocketAddr) -> Result<usize, Errno> {
    let domain = Domain::for_address(peer);
    let socket =
        Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(|error| errno(&error))?;
    // The route may depend on where the packets come from.
    if !local.is_unspecified() && local.is_ipv4() == peer.is_ipv4() {
        let any_port = SockAddr::from(SocketAddr::new(local, 0));
        socket.bind(&any_port).map_err(|error| errno(&error))?;
    }
    socket.connect(&SockAddr::from(peer)).map_err(|error| errno(&error))?;
    let mtu = if peer.is_ipv4() { sockopt::ip_mtu(&socket)? } else { sockopt::ipv6_mtu(&socket)? };
    Ok(mtu as usize)
}
