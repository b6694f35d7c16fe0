//! The headers in front of a sent datagram.

use std::net::IpAddr;

use super::{Interface, Mac, checksum};

/// Largest number of bytes in front of a datagram: Ethernet, 802.1Q, IPv6 and UDP.
pub const MAX_HEADER: usize = 14 + 4 + 40 + 8;

pub(super) const IPV4: [u8; 2] = [0x08, 0x00];
pub(super) const IPV6: [u8; 2] = [0x86, 0xdd];
pub(super) const ARP: [u8; 2] = [0x08, 0x06];
pub(super) const VLAN: [u8; 2] = [0x81, 0x00];
pub(super) const UDP: u8 = 17;
const HOPS: u8 = 64;
/// UDP's header, in bytes.
const UDP_LEN: usize = 8;
/// ECT(0) of RFC 3168: switches may mark the packet instead of dropping it.
const ECT: u8 = 0b10;

/// The headers of all datagrams to one peer host. Lengths, ports and checksums are filled in for
/// each datagram.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    bytes: [u8; MAX_HEADER],
    /// Where the IP header begins.
    ip: u8,
    /// Where the datagram begins.
    len: u8,
    is_v4: bool,
    checksums: bool,
    /// Sum of the constant parts of the IPv4 header.
    ip_sum: u64,
    /// Sum of the pseudo-header without the length.
    pseudo: u64,
}

impl Header {
    /// The header of datagrams from `interface` to `peer`, through the station `next_hop`. `None`
    /// if the interface has no address of the peer's family. With `ecn`, datagrams ask switches to
    /// mark them.
    #[must_use]
    pub fn new(interface: &Interface, peer: IpAddr, next_hop: Mac, ecn: bool) -> Option<Self> {
        let mut bytes = [0; MAX_HEADER];
        let ip = ethernet(&mut bytes, interface, next_hop, peer.is_ipv4());
        let traffic_class = if ecn { ECT } else { 0 };
        let (is_v4, udp, pseudo) = match (interface.source_for(peer)?, peer) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => {
                let header = &mut bytes[ip..ip + 20];
                header[0] = 0x45;
                header[1] = traffic_class;
                header[6] = 0x40; // Don't fragment.
                header[8] = HOPS;
                header[9] = UDP;
                header[12..16].copy_from_slice(&own.octets());
                header[16..20].copy_from_slice(&peer.octets());
                (true, ip + 20, checksum::pseudo(&header[12..20], UDP, 0))
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => {
                let header = &mut bytes[ip..ip + 40];
                header[0] = 0x60;
                header[1] = traffic_class << 4;
                header[6] = UDP;
                header[7] = HOPS;
                header[8..24].copy_from_slice(&own.octets());
                header[24..40].copy_from_slice(&peer.octets());
                (false, ip + 40, checksum::pseudo(&header[8..40], UDP, 0))
            }
            _ => return None,
        };
        Some(Self {
            ip_sum: checksum::add(0, &bytes[ip..udp]),
            bytes,
            ip: ip as u8,
            len: (udp + UDP_LEN) as u8,
            is_v4,
            checksums: interface.checksums || !is_v4,
            pseudo,
        })
    }

    /// Bytes in front of the datagram.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Completes a frame whose datagram is in place: `frame` is [`Header::len`] bytes for the header
    /// and then the datagram.
    ///
    /// # Panics
    /// If the frame is shorter than the header, or longer than IP can say.
    #[inline]
    pub fn write(&self, frame: &mut [u8], from: u16, to: u16) {
        self.complete::<false>(frame, &[], from, to);
    }

    /// As [`Header::write`], for a frame that continues elsewhere: `frame` ends with the first bytes
    /// of the datagram, a multiple of 4, and `rest` are the others.
    ///
    /// # Panics
    /// As [`Header::write`].
    pub fn write_in_front_of(&self, frame: &mut [u8], rest: &[u8], from: u16, to: u16) {
        self.complete::<false>(frame, rest, from, to);
    }

    /// As [`Header::write_in_front_of`], for a device that computes the checksums itself: that of
    /// IPv4 is 0, and that of UDP is the sum of the pseudo-header, which the device begins with.
    ///
    /// # Panics
    /// As [`Header::write`].
    #[inline]
    pub fn write_for_device(&self, frame: &mut [u8], rest: &[u8], from: u16, to: u16) {
        self.complete::<true>(frame, rest, from, to);
    }

    #[inline(always)]
    fn complete<const DEVICE: bool>(&self, frame: &mut [u8], rest: &[u8], from: u16, to: u16) {
        let (head, datagram) = frame.split_at_mut(self.len());
        debug_assert!(rest.is_empty() || datagram.len().is_multiple_of(4), "words of the checksum");
        head.copy_from_slice(&self.bytes[..head.len()]);
        let udp_len = UDP_LEN + datagram.len() + rest.len();
        assert!(udp_len + 20 <= usize::from(u16::MAX), "a UDP packet of {udp_len} bytes");
        let (ip, udp) =
            head[self.ip.into()..].split_at_mut(self.len() - UDP_LEN - usize::from(self.ip));
        if self.is_v4 {
            let total = (20 + udp_len as u16).to_be_bytes();
            ip[2..4].copy_from_slice(&total);
            if !DEVICE {
                let sum = checksum::add(self.ip_sum, &[0, 0, total[0], total[1]]);
                ip[10..12].copy_from_slice(&checksum::finish(sum));
            }
        } else {
            ip[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        }
        udp[0..2].copy_from_slice(&from.to_be_bytes());
        udp[2..4].copy_from_slice(&to.to_be_bytes());
        let len = (udp_len as u16).to_be_bytes();
        udp[4..6].copy_from_slice(&len);
        if self.checksums {
            let sum = checksum::add(self.pseudo, &[0, 0, len[0], len[1]]);
            if DEVICE {
                udp[6..8].copy_from_slice(&checksum::finish(sum).map(|byte| !byte));
                return;
            }
            let sum = checksum::add(checksum::add(sum, &udp[..6]), datagram);
            let sum = checksum::finish(checksum::add(sum, rest));
            // 0 means that there is no checksum.
            udp[6..8].copy_from_slice(&if sum == [0, 0] { [0xff, 0xff] } else { sum });
        }
    }
}

/// Writes the Ethernet header. Returns its length.
pub(super) fn ethernet(out: &mut [u8], interface: &Interface, to: Mac, is_v4: bool) -> usize {
    link(out, interface, to, if is_v4 { IPV4 } else { IPV6 })
}

/// Writes the Ethernet header of a frame with this type. Returns its length.
pub(super) fn link(out: &mut [u8], interface: &Interface, to: Mac, kind: [u8; 2]) -> usize {
    out[..6].copy_from_slice(&to.0);
    out[6..12].copy_from_slice(&interface.mac.0);
    let Some(vlan) = interface.vlan else {
        out[12..14].copy_from_slice(&kind);
        return 14;
    };
    out[12..14].copy_from_slice(&VLAN);
    out[14..16].copy_from_slice(&vlan.to_be_bytes());
    out[16..18].copy_from_slice(&kind);
    18
}
