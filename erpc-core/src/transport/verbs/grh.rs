//! The 40 bytes in front of a received datagram.
//!
//! Over InfiniBand, and over RoCE with IPv6, they are a Global Routing Header, which has the layout
//! of an IPv6 header. RoCE v2 over IPv4 puts the IPv4 header into the last 20 bytes and leaves the
//! first 20 undefined (libibverbs, `ibv_init_ah_from_wc`), so the header tells which it is.

use super::device::{GRH, Gid};

/// Where the IPv4 header is.
const V4: usize = 20;
/// Congestion experienced (RFC 3168).
const CE: u8 = 3;

/// What the header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source {
    pub(super) gid: Gid,
    /// Whether a switch has marked the packet.
    pub(super) marked: bool,
}

/// The sender's GID. `None` if the bytes are no header that this reads.
#[inline]
pub(super) fn source(header: &[u8; GRH]) -> Option<Source> {
    if is_v4(header) {
        let mut gid = [0; 16];
        gid[10..12].copy_from_slice(&[0xff; 2]);
        gid[12..].copy_from_slice(&header[V4 + 12..V4 + 16]);
        return Some(Source { gid: Gid(gid), marked: header[V4 + 1] & CE == CE });
    }
    if header[0] >> 4 != 6 {
        return None;
    }
    let mut gid = [0; 16];
    gid.copy_from_slice(&header[8..24]);
    // The traffic class is the second half of the first byte and the first half of the second one.
    Some(Source { gid: Gid(gid), marked: header[1] >> 4 & CE == CE })
}

/// Whether the last 20 bytes are an IPv4 header without options. If the first byte could also begin
/// an IPv6 header, the checksum decides. Of a GRH these bytes are addresses, which have a right
/// checksum by accident once in 65,536, and the right first byte more rarely still.
#[inline]
fn is_v4(header: &[u8; GRH]) -> bool {
    header[V4] == 0x45 && (header[0] >> 4 != 6 || sum(&header[V4..]) == 0xffff)
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// Writes an IPv4 or IPv6 header of a datagram from `from` to `to`, as a device would.
pub(super) fn write(header: &mut [u8; GRH], from: Gid, to: Gid, class: u8) {
    header.fill(0);
    match (from.ip(), to.ip()) {
        (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => {
            let v4 = &mut header[V4..];
            (v4[0], v4[1], v4[8], v4[9]) = (0x45, class, 64, 17);
            v4[12..16].copy_from_slice(&from.octets());
            v4[16..20].copy_from_slice(&to.octets());
            let checksum = !(sum(v4) as u16);
            v4[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        _ => {
            (header[0], header[1]) = (0x60 | class >> 4, class << 4);
            header[8..24].copy_from_slice(&from.0);
            header[24..].copy_from_slice(&to.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn gid(text: &str) -> Gid {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn the_source_and_its_mark_are_read_from_both_kinds_of_header() {
        for (from, to) in [("10.77.0.1", "10.77.0.2"), ("fe80::1", "fe80::2"), ("::1", "10.0.0.1")]
        {
            for (class, marked) in [(0, false), (1, false), (2, false), (3, true), (0xff, true)] {
                let mut header = [0; GRH];
                write(&mut header, gid(from), gid(to), class);
                let found = source(&header).expect("a header");
                assert_eq!((found.gid, found.marked), (gid(from), marked), "{from} {class}");
            }
        }
    }

    #[test]
    fn undefined_bytes_in_front_of_an_ipv4_header_are_ignored() {
        for first in 0..=255 {
            let mut header = [0; GRH];
            write(&mut header, gid("10.77.0.1"), gid("10.77.0.2"), 0);
            header[..V4].fill(first);
            assert_eq!(source(&header).map(|found| found.gid), Some(gid("10.77.0.1")), "{first}");
        }
    }

    #[test]
    fn an_ipv6_source_that_looks_like_ipv4_is_ipv6() {
        // Byte 20 of the header is byte 12 of the source.
        let from = gid("fe80::4500:1");
        let mut header = [0; GRH];
        write(&mut header, from, gid("fe80::2"), 0);
        assert_eq!(header[V4], 0x45);
        assert_eq!(source(&header).map(|found| found.gid), Some(from));
    }

    #[test]
    fn other_bytes_have_no_source() {
        for first in (0..=255).filter(|first| first >> 4 != 6) {
            let mut header = [0; GRH];
            header[0] = first;
            assert_eq!(source(&header), None);
        }
    }
}
