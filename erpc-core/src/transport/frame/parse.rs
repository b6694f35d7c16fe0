//! Reads received frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header::{ARP, IPV4, IPV6, UDP, VLAN};
use super::{FrameDrop, Interface, Mac, checksum};
use crate::transport::udp::UdpRoute;

/// What a frame contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// A datagram for this host.
    Datagram(Datagram<'a>),
    /// ARP or NDP.
    Resolve(Resolve),
    /// An ICMP echo request, which [`control::echo_reply`](super::control::echo_reply) answers.
    Echo(Echo<'a>),
}

/// A UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The sender.
    pub source: UdpRoute,
    /// Destination port.
    pub port: u16,
    /// The payload.
    pub payload: &'a [u8],
    /// Whether a switch has marked the packet (ECN's CE).
    pub marked: bool,
}

/// A message of ARP or NDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolve {
    /// `ip` at `mac` asks for this host's MAC address.
    Asks {
        /// The asking host.
        ip: IpAddr,
        /// Its MAC address.
        mac: Mac,
    },
    /// `ip` has the MAC address `mac`.
    Tells {
        /// The host.
        ip: IpAddr,
        /// Its MAC address.
        mac: Mac,
    },
}

/// An echo request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo<'a> {
    /// The station that sent the frame.
    pub mac: Mac,
    /// The host that asks.
    pub from: IpAddr,
    /// The ICMP message without type, code and checksum, which the answer repeats.
    pub rest: &'a [u8],
}

/// Reads a frame for `interface`. With `verified`, the device has found the checksums of IP and UDP
/// to be right. Bounded by one pass over the frame.
///
/// # Errors
/// Why the frame must be dropped.
#[inline]
pub fn parse<'a>(
    frame: &'a [u8],
    interface: &Interface,
    verified: bool,
) -> Result<Packet<'a>, FrameDrop> {
    let (link, body) = frame.split_first_chunk::<14>().ok_or(FrameDrop::Truncated)?;
    let to = &link[..6];
    if to != interface.mac.0 && to[0] & 1 == 0 {
        return Err(FrameDrop::NotOurs);
    }
    let mac = usable(Mac([link[6], link[7], link[8], link[9], link[10], link[11]]));
    let mac = mac.ok_or(FrameDrop::Source)?;
    let mut kind = [link[12], link[13]];
    let mut body = body;
    let mut vlan = None;
    if kind == VLAN {
        let (tag, rest) = body.split_first_chunk::<4>().ok_or(FrameDrop::Truncated)?;
        // Tag 0 carries a priority only.
        vlan = Some(u16::from_be_bytes([tag[0] & 0x0f, tag[1]])).filter(|tag| *tag != 0);
        (kind, body) = ([tag[2], tag[3]], rest);
    }
    if vlan != interface.vlan {
        return Err(FrameDrop::NotOurs);
    }
    match kind {
        IPV4 => ipv4(body, interface, mac, verified),
        IPV6 => ipv6(body, interface, mac, verified),
        ARP => arp(body, interface).map(Packet::Resolve),
        _ => Err(FrameDrop::Protocol),
    }
}

#[inline]
fn ipv4<'a>(
    body: &'a [u8],
    interface: &Interface,
    mac: Mac,
    verified: bool,
) -> Result<Packet<'a>, FrameDrop> {
    let (ip, _) = body.split_first_chunk::<20>().ok_or(FrameDrop::Truncated)?;
    if ip[0] != 0x45 {
        return Err(if ip[0] >> 4 == 4 && ip[0] & 0xf > 5 {
            FrameDrop::Options
        } else {
            FrameDrop::Truncated
        });
    }
    // Frames are padded to 60 bytes, so the body may be longer than the packet.
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let rest = body.get(20..total).ok_or(FrameDrop::Truncated)?;
    if !verified && checksum::finish(checksum::add(0, ip)) != [0, 0] {
        return Err(FrameDrop::Checksum);
    }
    if ip[6] & 0x3f != 0 || ip[7] != 0 {
        return Err(FrameDrop::Fragment);
    }
    let to = Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]);
    if interface.v4() != Some(to) {
        return Err(FrameDrop::NotOurs);
    }
    let from = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
    if from.is_unspecified() || from.is_multicast() || from.is_broadcast() {
        return Err(FrameDrop::Source);
    }
    match ip[9] {
        UDP => {
            let (ports, payload) = udp(&ip[12..20], rest, verified, false)?;
            let source = UdpRoute::from_v4(u32::from_ne_bytes(from.octets()), ports[0]);
            let marked = ip[1] & 0b11 == 0b11;
            Ok(Packet::Datagram(Datagram { source, port: ports[1], payload, marked }))
        }
        1 => {
            if checksum::finish(checksum::add(0, rest)) != [0, 0] {
                return Err(FrameDrop::Checksum);
            }
            match rest {
                [8, 0, _, _, rest @ ..] if rest.len() >= 4 => {
                    Ok(Packet::Echo(Echo { mac, from: from.into(), rest }))
                }
                _ => Err(FrameDrop::Protocol),
            }
        }
        _ => Err(FrameDrop::Protocol),
    }
}

#[inline]
fn ipv6<'a>(
    body: &'a [u8],
    interface: &Interface,
    mac: Mac,
    verified: bool,
) -> Result<Packet<'a>, FrameDrop> {
    let (ip, after) = body.split_first_chunk::<40>().ok_or(FrameDrop::Truncated)?;
    if ip[0] >> 4 != 6 {
        return Err(FrameDrop::Truncated);
    }
    let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let rest = after.get(..len).ok_or(FrameDrop::Truncated)?;
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&ip[at..at + 16]);
        Ipv6Addr::from(octets)
    };
    let (from, to) = (address(8), address(24));
    let own = interface.v6().ok_or(FrameDrop::NotOurs)?;
    match ip[6] {
        UDP if to != own => Err(FrameDrop::NotOurs),
        UDP if !is_host(from) => Err(FrameDrop::Source),
        UDP => {
            let (ports, payload) = udp(&ip[8..40], rest, verified, true)?;
            let source = UdpRoute::from_v6(from.octets(), ports[0], 0);
            let marked = ip[1] >> 4 & 0b11 == 0b11;
            Ok(Packet::Datagram(Datagram { source, port: ports[1], payload, marked }))
        }
        58 => {
            let sum = checksum::pseudo(&ip[8..40], 58, len as u16);
            if checksum::finish(checksum::add(sum, rest)) != [0, 0] {
                return Err(FrameDrop::Checksum);
            }
            if !is_host(from) {
                // Also duplicate address detection, which a fixed address does not take part in.
                return Err(FrameDrop::Source);
            }
            icmpv6(rest, mac, from, to, own, ip[7])
        }
        44 => Err(FrameDrop::Fragment),
        0 | 43 | 60 => Err(FrameDrop::Options),
        _ => Err(FrameDrop::Protocol),
    }
}

/// Whether a packet may come from this address. IPv4-mapped addresses are for the interfaces of
/// programs, not for packets: the packet would pass for one of the IPv4 host.
#[inline]
fn is_host(from: Ipv6Addr) -> bool {
    !from.is_unspecified() && !from.is_multicast() && from.to_ipv4_mapped().is_none()
}

fn icmpv6(
    message: &[u8],
    mac: Mac,
    from: Ipv6Addr,
    to: Ipv6Addr,
    own: Ipv6Addr,
    hops: u8,
) -> Result<Packet<'_>, FrameDrop> {
    match message {
        [128, 0, _, _, rest @ ..] if to == own && rest.len() >= 4 => {
            Ok(Packet::Echo(Echo { mac, from: from.into(), rest }))
        }
        // A router would have reduced the hop limit: the message comes from this link (RFC 4861).
        [kind @ (135 | 136), 0, _, _, _, _, _, _, rest @ ..] if hops == 255 => {
            let (target, options) = rest.split_first_chunk::<16>().ok_or(FrameDrop::Truncated)?;
            let target = Ipv6Addr::from(*target);
            if *kind == 135 {
                if target != own {
                    return Err(FrameDrop::NotOurs);
                }
                if from == own {
                    return Err(FrameDrop::Source);
                }
                let mac = link_option(options, 1)?.unwrap_or(mac);
                return Ok(Packet::Resolve(Resolve::Asks { ip: from.into(), mac }));
            }
            if target.is_unspecified() || target.is_multicast() || target == own {
                return Err(FrameDrop::Source);
            }
            let mac = link_option(options, 2)?.unwrap_or(mac);
            Ok(Packet::Resolve(Resolve::Tells { ip: target.into(), mac }))
        }
        _ => Err(FrameDrop::Protocol),
    }
}

/// The link-layer address among NDP's options, if there is one. A message with an option of length 0
/// or beyond the end must be discarded as a whole (RFC 4861 section 4.6).
fn link_option(options: &[u8], kind: u8) -> Result<Option<Mac>, FrameDrop> {
    let (mut options, mut found) = (options, None);
    while !options.is_empty() {
        let units = *options.get(1).filter(|units| **units != 0).ok_or(FrameDrop::Truncated)?;
        let (option, rest) =
            options.split_at_checked(usize::from(units) * 8).ok_or(FrameDrop::Truncated)?;
        if option[0] == kind && found.is_none() {
            let mac = Mac([option[2], option[3], option[4], option[5], option[6], option[7]]);
            found = Some(usable(mac).ok_or(FrameDrop::Source)?);
        }
        options = rest;
    }
    Ok(found)
}

/// A MAC address that one station can have.
#[inline]
fn usable(mac: Mac) -> Option<Mac> {
    (mac.0[0] & 1 == 0 && mac.0 != [0; 6]).then_some(mac)
}

fn arp(body: &[u8], interface: &Interface) -> Result<Resolve, FrameDrop> {
    let (arp, _) = body.split_first_chunk::<28>().ok_or(FrameDrop::Truncated)?;
    if arp[..6] != [0, 1, 8, 0, 6, 4] {
        return Err(FrameDrop::Protocol);
    }
    let own = interface.v4().ok_or(FrameDrop::NotOurs)?;
    // A host that asks for itself announces its address (RFC 5227).
    let announces = arp[14..18] == arp[24..28];
    if arp[24..28] != own.octets() && !announces {
        return Err(FrameDrop::NotOurs);
    }
    let ip = Ipv4Addr::new(arp[14], arp[15], arp[16], arp[17]);
    let mac = usable(Mac([arp[8], arp[9], arp[10], arp[11], arp[12], arp[13]]));
    let mac = mac.ok_or(FrameDrop::Source)?;
    if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip == own {
        return Err(FrameDrop::Source);
    }
    match arp[6..8] {
        [0, 1] if !announces => Ok(Resolve::Asks { ip: ip.into(), mac }),
        [0, 1 | 2] => Ok(Resolve::Tells { ip: ip.into(), mac }),
        _ => Err(FrameDrop::Protocol),
    }
}

/// Ports and payload of a datagram.
#[inline]
fn udp<'a>(
    addresses: &[u8],
    segment: &'a [u8],
    verified: bool,
    is_v6: bool,
) -> Result<([u16; 2], &'a [u8]), FrameDrop> {
    let (header, _) = segment.split_first_chunk::<8>().ok_or(FrameDrop::Truncated)?;
    let len = u16::from_be_bytes([header[4], header[5]]);
    let segment = segment.get(..len.into()).ok_or(FrameDrop::Truncated)?;
    let payload = segment.get(8..).ok_or(FrameDrop::Truncated)?;
    let has_none = header[6..8] == [0, 0];
    if has_none && is_v6 {
        return Err(FrameDrop::Checksum);
    }
    if !has_none && !verified {
        let sum = checksum::add(checksum::pseudo(addresses, UDP, len), segment);
        if checksum::finish(sum) != [0, 0] {
            return Err(FrameDrop::Checksum);
        }
    }
    let ports = [0, 2].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    if ports[0] == 0 { Err(FrameDrop::Source) } else { Ok((ports, payload)) }
}
