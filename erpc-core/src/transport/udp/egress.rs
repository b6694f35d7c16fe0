//! Finds out, from this host's routing table, where packets to a peer leave the host.

use std::net::{IpAddr, SocketAddr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socket_with};

/// Where packets to a peer leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Egress {
    /// They stay on this host: the peer's address belongs to one of its interfaces.
    Local,
    /// Through the interface with this index.
    Interface(u32),
}

/// Lengths in bytes of the header of a netlink message (`struct nlmsghdr`), of a route in one
/// (`struct rtmsg`), and of the header of each route attribute (`struct rtattr`).
const HEAD: usize = 16;
const ROUTE: usize = 12;
const ATTRIBUTE: usize = 4;

impl Egress {
    /// Looks up the route from `source`, an address of this host in the peer's family, to `peer`.
    /// Costs two system calls and a socket, whatever the number of interfaces and addresses. `None`
    /// if there is no route, or the kernel does not answer.
    pub(super) fn find(source: IpAddr, peer: SocketAddr) -> Option<Self> {
        let kind = SocketType::DGRAM;
        let socket = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, None).ok()?;
        send(&socket, &request(source, peer), SendFlags::empty()).ok()?;
        let mut answer = [0; 1_024];
        // The answer is queued when `send` returns.
        let (len, _) = recv(&socket, &mut answer, RecvFlags::DONTWAIT).ok()?;
        Self::parse(&answer[..len])
    }

    fn parse(answer: &[u8]) -> Option<Self> {
        let (head, rest) = answer.split_at_checked(HEAD)?;
        if u16::from_ne_bytes([head[4], head[5]]) != libc::RTM_NEWROUTE {
            return None;
        }
        let (route, mut attributes) = rest.split_at_checked(ROUTE)?;
        if route[7] == libc::RTN_LOCAL {
            return Some(Self::Local);
        }
        while let Some((&[a, b, kind, more], rest)) = attributes.split_first_chunk() {
            let len = usize::from(u16::from_ne_bytes([a, b])).checked_sub(ATTRIBUTE)?;
            let value = rest.get(..len)?;
            if u16::from_ne_bytes([kind, more]) == libc::RTA_OIF {
                return Some(Self::Interface(u32::from_ne_bytes(value.try_into().ok()?)));
            }
            attributes = rest.get(len.next_multiple_of(4)..)?;
        }
        None
    }
}

/// An `RTM_GETROUTE` message.
fn request(source: IpAddr, peer: SocketAddr) -> Vec<u8> {
    let mut attributes = Vec::with_capacity(64);
    let mut add = |kind: u16, value: &[u8]| {
        attributes.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        attributes.extend(kind.to_ne_bytes());
        attributes.extend(value);
    };
    let mut add_address = |kind, ip| match ip {
        IpAddr::V4(v4) => add(kind, &v4.octets()),
        IpAddr::V6(v6) => add(kind, &v6.octets()),
    };
    add_address(libc::RTA_DST, peer.ip());
    add_address(libc::RTA_SRC, source);
    let (family, bits) = match peer {
        SocketAddr::V4(_) => (libc::AF_INET, 32),
        SocketAddr::V6(v6) => {
            // A link-local address is valid only on its link.
            if v6.scope_id() != 0 {
                add(libc::RTA_OIF, &v6.scope_id().to_ne_bytes());
            }
            (libc::AF_INET6, 128)
        }
    };
    let len = (HEAD + ROUTE + attributes.len()) as u32;
    let mut message = Vec::with_capacity(len as usize);
    message.extend(len.to_ne_bytes());
    message.extend(libc::RTM_GETROUTE.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence number and sender, which are not read; then the route's header.
    message.extend([0; 8]);
    message.extend([family as u8, bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(attributes);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(source: &str, peer: &str) -> Option<Egress> {
        Egress::find(source.parse().unwrap(), peer.parse().unwrap())
    }

    #[test]
    fn all_addresses_of_this_host_are_local() {
        for (source, peer) in
            [("127.0.0.1", "127.0.0.1:9"), ("127.0.0.1", "127.1.2.3:9"), ("::1", "[::1]:9")]
        {
            assert_eq!(find(source, peer), Some(Egress::Local), "{source} to {peer}");
        }
        assert_eq!(find("192.0.2.1", "127.0.0.1:9"), None, "no interface has the source address");
    }

    #[test]
    fn a_truncated_answer_gives_no_egress() {
        let mut answer = [0; HEAD + ROUTE + 16];
        answer[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
        // The answer has an attribute of five bytes, padded to eight, and then the interface.
        let attributes = [[5_u16, libc::RTA_PREFSRC], [7, 0], [8, libc::RTA_OIF]];
        let bytes = attributes.iter().flatten().flat_map(|number| number.to_ne_bytes());
        answer[HEAD + ROUTE..].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        answer[HEAD + ROUTE + 12] = 3;
        let whole = Some(Egress::Interface(u32::from_ne_bytes([3, 0, 0, 0])));
        assert_eq!(Egress::parse(&answer), whole);
        for len in 0..answer.len() {
            assert_eq!(Egress::parse(&answer[..len]), None, "{len} bytes");
        }
        // An attribute whose length is smaller than its header is refused.
        answer[HEAD + ROUTE..][..2].copy_from_slice(&3_u16.to_ne_bytes());
        assert_eq!(Egress::parse(&answer), None);
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert_eq!(Egress::parse(&answer), None);
    }
}
