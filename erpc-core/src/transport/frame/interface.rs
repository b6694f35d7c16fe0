//! The addresses of this host on a network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Mac;

/// An address and the length of its network's prefix, such as 10.0.0.1/24.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// This host's address.
    pub address: IpAddr,
    /// Leading bits that the addresses of the network share.
    pub prefix: u8,
}

impl Network {
    /// Whether `peer` is in the network, so that frames reach it without a gateway.
    #[must_use]
    pub fn contains(&self, peer: IpAddr) -> bool {
        let shared = |differing: u128, bits: u8| {
            bits == 0 || differing >> u32::from(bits.saturating_sub(self.prefix)) == 0
        };
        match (self.address, peer) {
            _ if self.prefix == 0 => self.address.is_ipv4() == peer.is_ipv4(),
            (IpAddr::V4(own), IpAddr::V4(peer)) => {
                shared(u128::from(own.to_bits() ^ peer.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => shared(own.to_bits() ^ peer.to_bits(), 128),
            _ => false,
        }
    }
}

/// Everything that frames say about this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The port's MAC address.
    pub mac: Mac,
    /// 802.1Q tag of sent frames; received frames must have it.
    pub vlan: Option<u16>,
    /// The host's addresses, at most one of each family.
    pub networks: Vec<Network>,
    /// Routers for peers in no network of this host, at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Whether sent IPv4 datagrams have a UDP checksum. IPv6 datagrams always have one.
    pub checksums: bool,
}

impl Interface {
    /// The address of the family of `peer`.
    #[must_use]
    pub fn source_for(&self, peer: IpAddr) -> Option<IpAddr> {
        let own = self.networks.iter().map(|network| network.address);
        own.into_iter().find(|own| own.is_ipv4() == peer.is_ipv4())
    }

    /// The host that frames to `peer` are addressed to: the peer itself or a gateway. `None` if
    /// there is no way.
    #[must_use]
    pub fn next_hop(&self, peer: IpAddr) -> Option<IpAddr> {
        let is_link_local = matches!(peer, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if is_link_local || self.networks.iter().any(|network| network.contains(peer)) {
            return Some(peer);
        }
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == peer.is_ipv4())
    }

    /// Bytes in front of a datagram to a peer of the first network's family.
    #[must_use]
    pub fn header_len(&self) -> usize {
        let is_v4 = self.networks.first().is_none_or(|network| network.address.is_ipv4());
        14 + if self.vlan.is_some() { 4 } else { 0 } + if is_v4 { 20 } else { 40 } + 8
    }

    /// The IPv4 address.
    #[must_use]
    #[inline]
    pub fn v4(&self) -> Option<Ipv4Addr> {
        self.networks.iter().find_map(|network| match network.address {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        })
    }

    /// The IPv6 address.
    #[must_use]
    #[inline]
    pub fn v6(&self) -> Option<Ipv6Addr> {
        self.networks.iter().find_map(|network| match network.address {
            IpAddr::V6(v6) => Some(v6),
            IpAddr::V4(_) => None,
        })
    }
}
