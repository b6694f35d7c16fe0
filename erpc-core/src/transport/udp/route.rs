//! Addresses, in the protocol's form and in the kernel's.

use std::fmt;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::transport::Route;

/// A UDP address in three words: cheap to copy, compare and hash.
///
/// IPv4 addresses are stored IPv4-mapped, so that a peer has one route, whichever family of socket
/// received its packets. Flow labels are ignored. Scope ids are kept for link-local addresses only;
/// other addresses do not need them.
///
/// ```
/// use std::net::SocketAddr;
///
/// use erpc_core::transport::udp::UdpRoute;
///
/// let plain: SocketAddr = "10.0.0.7:31850".parse()?;
/// let mapped: SocketAddr = "[::ffff:10.0.0.7]:31850".parse()?;
/// assert_eq!(UdpRoute::from(plain), UdpRoute::from(mapped));
/// assert_eq!(UdpRoute::from(mapped).socket_addr(), plain);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpRoute {
    /// Port in the low 16 bits, scope id in the high 32 bits. Compared first: the routes of different
    /// peers mostly differ here.
    port_and_scope: u64,
    /// The address's bytes in network order, read as two native words.
    ip: [u64; 2],
}

const _: () = assert!(size_of::<UdpRoute>() == 24);

/// Bytes 8 to 11 of an IPv4-mapped address.
const MAPPED: [u8; 4] = [0, 0, 0xff, 0xff];

impl UdpRoute {
    /// The address; IPv4 if the route is IPv4-mapped.
    #[must_use]
    pub fn socket_addr(&self) -> SocketAddr {
        match self.ip().to_canonical() {
            IpAddr::V4(v4) => SocketAddr::new(IpAddr::V4(v4), self.port()),
            IpAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(v6, self.port(), 0, self.scope())),
        }
    }

    /// The IPv4 address in network order, `None` for an IPv6 route.
    #[inline]
    pub(in crate::transport) fn v4(self) -> Option<u32> {
        let [a, b, c, d, w, x, y, z] = self.ip[1].to_ne_bytes();
        (self.ip[0] == 0 && [a, b, c, d] == MAPPED).then_some(u32::from_ne_bytes([w, x, y, z]))
    }

    fn ip(self) -> Ipv6Addr {
        Ipv6Addr::from(self.octets())
    }

    #[inline]
    pub(in crate::transport) fn octets(self) -> [u8; 16] {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&self.ip[0].to_ne_bytes());
        octets[8..].copy_from_slice(&self.ip[1].to_ne_bytes());
        octets
    }

    fn scope(self) -> u32 {
        (self.port_and_scope >> 32) as u32
    }

    #[inline]
    pub(in crate::transport) fn from_v4(address: u32, port: u16) -> Self {
        let ([a, b, c, d], [w, x, y, z]) = (MAPPED, address.to_ne_bytes());
        Self { ip: [0, u64::from_ne_bytes([a, b, c, d, w, x, y, z])], port_and_scope: port.into() }
    }

    #[inline]
    pub(in crate::transport) fn from_v6(octets: [u8; 16], port: u16, scope: u32) -> Self {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&octets[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        let route = Self { ip: [word(0), word(8)], port_and_scope: port.into() };
        let scope = if route.is_link_local() { scope } else { 0 };
        Self { port_and_scope: u64::from(scope) << 32 | route.port_and_scope, ..route }
    }

    /// A hash of the address without its port.
    pub(super) fn host_bits(&self) -> u64 {
        self.ip[0] ^ self.ip[1].rotate_left(32) ^ u64::from(self.scope())
    }

    fn is_link_local(&self) -> bool {
        let [first, second, ..] = self.ip[0].to_ne_bytes();
        first == 0xfe && second & 0xc0 == 0x80
    }
}

impl Route for UdpRoute {
    fn to_bytes(&self, out: &mut [u8; 32]) -> usize {
        out[..16].copy_from_slice(&self.octets());
        out[16..24].copy_from_slice(&self.port_and_scope.to_le_bytes());
        24
    }

    fn with_port(&self, port: u16) -> Self {
        Self { port_and_scope: self.port_and_scope & !0xffff | u64::from(port), ..*self }
    }

    fn port(&self) -> u16 {
        self.port_and_scope as u16
    }

    /// The last 64 bits of the address if it is IPv4 (stored IPv4-mapped), is link-local, or begins
    /// with 64 zero bits as `::1` does; the first 64 bits of every other IPv6 address.
    fn host(&self) -> u64 {
        // The second word of a mapped IPv4 address differs from the first word of any IPv6 address
        // in use.
        if self.ip[0] == 0 || self.is_link_local() { self.ip[1] } else { self.ip[0] }
    }
}

impl From<SocketAddr> for UdpRoute {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::from_v4(u32::from_ne_bytes(v4.ip().octets()), v4.port()),
            SocketAddr::V6(v6) => Self::from_v6(v6.ip().octets(), v6.port(), v6.scope_id()),
        }
    }
}

impl From<UdpRoute> for SocketAddr {
    fn from(route: UdpRoute) -> Self {
        route.socket_addr()
    }
}

impl fmt::Display for UdpRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket_addr().fmt(f)
    }
}

impl fmt::Debug for UdpRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The address family of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    V4,
    /// IPv6, and also IPv4 as mapped addresses if the socket is bound to the unspecified address.
    V6,
}

/// A socket address in the kernel's form: a `sockaddr_in6`, or a `sockaddr_in` at its start.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Name(libc::sockaddr_in6);

// An IPv4 name is written through the fields of an IPv6 name, without a union.
const _: () = {
    assert!(offset_of!(libc::sockaddr_in, sin_port) == offset_of!(libc::sockaddr_in6, sin6_port));
    assert!(
        offset_of!(libc::sockaddr_in, sin_addr) == offset_of!(libc::sockaddr_in6, sin6_flowinfo)
    );
    assert!(size_of::<libc::sockaddr_in>() <= size_of::<libc::sockaddr_in6>());
};

impl Name {
    /// Number of bytes that the kernel may write.
    pub(super) const CAPACITY: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

    pub(super) const EMPTY: Self = Self(libc::sockaddr_in6 {
        sin6_family: 0,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
        sin6_scope_id: 0,
    });

    /// The name of `route` for a socket of `family`; `None` for an IPv6 route and an IPv4 socket.
    #[inline]
    pub(super) fn new(route: UdpRoute, family: Family) -> Option<Self> {
        let mut name = Self::EMPTY;
        name.0.sin6_port = route.port().to_be();
        match (family, route.v4()) {
            (Family::V4, Some(address)) => {
                name.0.sin6_family = libc::AF_INET as libc::sa_family_t;
                name.0.sin6_flowinfo = address;
            }
            (Family::V4, None) => return None,
            (Family::V6, _) => {
                name.0.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                name.0.sin6_addr.s6_addr = route.octets();
                name.0.sin6_scope_id = route.scope();
            }
        }
        Some(name)
    }

    /// The route of the name that the kernel wrote.
    #[inline]
    pub(super) fn route(&self) -> UdpRoute {
        let port = u16::from_be(self.0.sin6_port);
        if self.0.sin6_family == libc::AF_INET as libc::sa_family_t {
            UdpRoute::from_v4(self.0.sin6_flowinfo, port)
        } else {
            UdpRoute::from_v6(self.0.sin6_addr.s6_addr, port, self.0.sin6_scope_id)
        }
    }

    /// Length of the name in bytes, which depends on its family.
    #[inline]
    pub(super) fn len(&self) -> libc::socklen_t {
        if self.0.sin6_family == libc::AF_INET as libc::sa_family_t {
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        } else {
            Self::CAPACITY
        }
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.0).cast()
    }

    #[inline]
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> UdpRoute {
        text.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn addresses_are_unchanged_by_both_conversions() {
        for text in [
            "10.0.0.7:31850",
            "0.0.0.0:0",
            "255.255.255.255:65535",
            "[::1]:1",
            "[2001:db8::7]:443",
            "[fe80::1%3]:9",
        ] {
            let route = route(text);
            assert_eq!(route.to_string(), text);
            assert_eq!(SocketAddr::from(route), text.parse().unwrap());
            assert_eq!(Name::new(route, Family::V6).unwrap().route(), route);
            if let Some(name) = Name::new(route, Family::V4) {
                assert_eq!((name.route(), name.len()), (route, 16));
            }
        }
        assert!(Name::new(route("[::1]:1"), Family::V4).is_none());
    }

    #[test]
    fn one_peer_has_one_route() {
        assert_eq!(route("[::ffff:1.2.3.4]:5"), route("1.2.3.4:5"));
        assert_eq!(
            route("[2001:db8::1%7]:5"),
            route("[2001:db8::1]:5"),
            "a global address has no scope"
        );
        assert_ne!(route("[fe80::1%7]:5"), route("[fe80::1%8]:5"));
    }

    #[test]
    fn different_routes_have_different_bytes() {
        let bytes = |route: UdpRoute| {
            let mut out = [0; 32];
            let len = route.to_bytes(&mut out);
            out[..len].to_vec()
        };
        let base = route("[fe80::1%7]:5");
        assert_eq!(bytes(base), bytes(route("[fe80::1%7]:5")));
        for other in ["[fe80::1%7]:6", "[fe80::1%8]:5", "[fe80::2%7]:5", "1.2.3.4:5"] {
            assert_ne!(bytes(base), bytes(route(other)));
        }
    }

    #[test]
    fn with_port_changes_only_the_port() {
        let moved = route("[fe80::1%7]:5").with_port(65_535);
        assert_eq!((moved, moved.port()), (route("[fe80::1%7]:65535"), 65_535));
    }
}
