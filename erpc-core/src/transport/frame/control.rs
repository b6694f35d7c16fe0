//! The frames of ARP, NDP and ICMP echo. They are rare, so each is a vector of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header::{ARP, ethernet, link};
use super::{Echo, Interface, Mac, checksum};

/// Asks for the MAC address of `target`, by ARP or NDP. `None` if the interface has no address of
/// its family.
#[must_use]
pub fn ask(interface: &Interface, target: IpAddr) -> Option<Vec<u8>> {
    match target {
        IpAddr::V4(target) => {
            let own = interface.v4()?;
            Some(arp(interface, own, 1, Mac::BROADCAST, Mac([0; 6]), target))
        }
        IpAddr::V6(target) => {
            let own = interface.v6()?;
            // The solicited-node group: only hosts whose address ends alike read the frame.
            let [.., a, b, c] = target.octets();
            let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
            let mac = Mac([0x33, 0x33, 0xff, a, b, c]);
            Some(neighbour(interface, mac, [own, group], target, true))
        }
    }
}

/// Tells `ip` at `mac` this host's MAC address.
#[must_use]
pub fn tell(interface: &Interface, ip: IpAddr, mac: Mac) -> Option<Vec<u8>> {
    match ip {
        IpAddr::V4(ip) => Some(arp(interface, interface.v4()?, 2, mac, mac, ip)),
        IpAddr::V6(ip) => {
            let own = interface.v6()?;
            Some(neighbour(interface, mac, [own, ip], own, false))
        }
    }
}

/// Tells all hosts of the link this host's MAC address, so that those that know an old one forget
/// it: an ARP announcement (RFC 5227), and an unsolicited advertisement of NDP.
#[must_use]
pub fn announce(interface: &Interface) -> Vec<Vec<u8>> {
    const ALL: (Ipv6Addr, Mac) =
        (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), Mac([0x33, 0x33, 0, 0, 0, 1]));
    let v4 = interface.v4().map(|own| arp(interface, own, 1, Mac::BROADCAST, Mac([0; 6]), own));
    let v6 = interface.v6().map(|own| neighbour(interface, ALL.1, [own, ALL.0], own, false));
    v4.into_iter().chain(v6).collect()
}

/// Answers an echo request.
#[must_use]
pub fn echo_reply(interface: &Interface, echo: &Echo<'_>) -> Option<Vec<u8>> {
    let kind = if echo.from.is_ipv4() { 0 } else { 129 };
    let mut message = vec![kind, 0, 0, 0];
    message.extend_from_slice(echo.rest);
    match (interface.source_for(echo.from)?, echo.from) {
        (IpAddr::V4(own), IpAddr::V4(to)) => {
            let sum = checksum::finish(checksum::add(0, &message));
            message[2..4].copy_from_slice(&sum);
            let mut frame = vec![0; 18];
            let start = ethernet(&mut frame, interface, echo.mac, true);
            frame.truncate(start);
            let total = (20 + message.len() as u16).to_be_bytes();
            let mut ip =
                [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            ip[12..16].copy_from_slice(&own.octets());
            ip[16..20].copy_from_slice(&to.octets());
            let sum = checksum::finish(checksum::add(0, &ip));
            ip[10..12].copy_from_slice(&sum);
            frame.extend_from_slice(&ip);
            frame.extend_from_slice(&message);
            Some(frame)
        }
        (IpAddr::V6(own), IpAddr::V6(to)) => {
            Some(icmpv6(interface, echo.mac, [own, to], 64, message))
        }
        _ => None,
    }
}

fn arp(
    interface: &Interface,
    own: Ipv4Addr,
    operation: u8,
    to: Mac,
    of: Mac,
    target: Ipv4Addr,
) -> Vec<u8> {
    let mut frame = vec![0; 18];
    let start = link(&mut frame, interface, to, ARP);
    frame.truncate(start);
    frame.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend_from_slice(&interface.mac.0);
    frame.extend_from_slice(&own.octets());
    frame.extend_from_slice(&of.0);
    frame.extend_from_slice(&target.octets());
    frame
}

/// A solicitation or an advertisement of NDP.
fn neighbour(
    interface: &Interface,
    mac: Mac,
    addresses: [Ipv6Addr; 2],
    target: Ipv6Addr,
    asks: bool,
) -> Vec<u8> {
    let (kind, flags, option) = if asks { (135, 0, 1) } else { (136, 0x60, 2) };
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend_from_slice(&target.octets());
    message.extend_from_slice(&[option, 1]);
    message.extend_from_slice(&interface.mac.0);
    icmpv6(interface, mac, addresses, 255, message)
}

fn icmpv6(
    interface: &Interface,
    mac: Mac,
    [from, to]: [Ipv6Addr; 2],
    hops: u8,
    mut message: Vec<u8>,
) -> Vec<u8> {
    let len = message.len() as u16;
    let addresses = [from.octets(), to.octets()].concat();
    let sum = checksum::add(checksum::pseudo(&addresses, 58, len), &message);
    message[2..4].copy_from_slice(&checksum::finish(sum));
    let mut frame = vec![0; 18];
    let start = ethernet(&mut frame, interface, mac, false);
    frame.truncate(start);
    let len = len.to_be_bytes();
    frame.extend_from_slice(&[0x60, 0, 0, 0, len[0], len[1], 58, hops]);
    frame.extend_from_slice(&addresses);
    frame.extend_from_slice(&message);
    frame
}
