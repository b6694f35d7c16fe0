//! The fuzz target of received frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use erpc_core::transport::Route;
use erpc_core::transport::frame::{
    Datagram, Echo, FrameDrop, Header, Interface, Mac, Network, Packet, Resolve, checksum, control,
    parse,
};

/// Bit of an input's first byte: the device has found the checksums to be right.
pub(super) const VERIFIED: u8 = 1;
/// Bit of an input's first byte: the host is in [`VLAN_ID`].
pub(super) const TAGGED: u8 = 2;
/// Bit of an input's first byte: the target computes the checksums of IP, UDP and ICMP, which no
/// fuzzer would guess.
pub(super) const REPAIRED: u8 = 4;

/// The VLAN of a host with [`TAGGED`].
const VLAN_ID: u16 = 7;

/// Interface number `last` of a network.
pub(super) fn host(last: u8, is_tagged: bool) -> Interface {
    let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into());
    Interface {
        mac: Mac([2, 0, 0, 0, 0, last]),
        vlan: is_tagged.then_some(VLAN_ID),
        networks: vec![
            Network { address: Ipv4Addr::new(10, 0, 0, last).into(), prefix: 24 },
            Network { address: v6.into(), prefix: 64 },
        ],
        gateways: Vec::new(),
        checksums: true,
    }
}

/// The interface of the peer that has sent a packet.
fn peer(own: &Interface, address: IpAddr, mac: Mac) -> Interface {
    Interface { mac, networks: vec![Network { address, prefix: 0 }], ..own.clone() }
}

/// Fuzzes the parser of received frames. `data` is a byte of options, and the frame.
///
/// # Panics
/// Panics if a parsed datagram is not the one in the frame, if a frame with the same datagram does
/// not parse to it, or if the answer to a frame does not parse.
pub fn frame(data: &[u8]) {
    let Some((&options, frame)) = data.split_first() else { return };
    let own = host(2, options & TAGGED != 0);
    let mut frame = frame.to_vec();
    if options & REPAIRED != 0 {
        repair(&mut frame);
    }
    let is_verified = options & VERIFIED != 0;
    let parsed = parse(&frame, &own, is_verified);
    if !is_verified && parsed != Err(FrameDrop::Checksum) {
        assert_eq!(parse(&frame, &own, true), parsed, "right checksums change nothing");
    }
    let Ok(packet) = parsed else { return };
    assert!(frame[..6] == own.mac.0 || frame[0] & 1 == 1, "a frame for another station");
    match packet {
        Packet::Datagram(datagram) => check_datagram(&frame, &own, &datagram),
        Packet::Resolve(resolve) => check_resolve(&own, resolve),
        Packet::Echo(echo) => check_echo(&frame, &own, &echo),
    }
}

/// The offset of `part` in `frame`.
fn offset(frame: &[u8], part: &[u8]) -> usize {
    let (outer, inner) = (frame.as_ptr_range(), part.as_ptr_range());
    assert!(outer.start <= inner.start && inner.end <= outer.end, "bytes outside of the frame");
    inner.start as usize - outer.start as usize
}

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// The offset of the IP header.
fn ip_of(frame: &[u8]) -> usize {
    if word(frame, 12) == 0x8100 { 18 } else { 14 }
}

fn check_datagram(frame: &[u8], own: &Interface, datagram: &Datagram<'_>) {
    let Datagram { source, port, payload, marked } = *datagram;
    let at = offset(frame, payload);
    let (ip, udp) = (ip_of(frame), at - 8);
    let is_v4 = word(frame, ip - 2) == 0x0800;
    assert_eq!(udp, ip + if is_v4 { 20 } else { 40 }, "the datagram is behind its headers");
    assert_eq!(usize::from(word(frame, udp + 4)), 8 + payload.len(), "UDP's length");
    let end = match is_v4 {
        true => ip + usize::from(word(frame, ip + 2)),
        false => ip + 40 + usize::from(word(frame, ip + 4)),
    };
    assert!(at + payload.len() <= end && end <= frame.len(), "the datagram is within IP's length");
    let traffic_class = if is_v4 { frame[ip + 1] } else { frame[ip + 1] >> 4 };
    assert_eq!(marked, traffic_class & 3 == 3, "the mark of a switch");
    let ports = (word(frame, udp), word(frame, udp + 2));
    assert_eq!((source.port(), port), ports);
    let address = source.socket_addr().ip();
    let (from, to) = match is_v4 {
        true => (frame[ip + 12..ip + 16].to_vec(), frame[ip + 16..ip + 20].to_vec()),
        false => (frame[ip + 8..ip + 24].to_vec(), frame[ip + 24..ip + 40].to_vec()),
    };
    let is_own = own.networks.iter().any(|network| match network.address {
        IpAddr::V4(v4) => v4.octets()[..] == to,
        IpAddr::V6(v6) => v6.octets()[..] == to,
    });
    assert!(is_own, "a datagram for another host");
    let octets = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    assert_eq!(octets, from, "the sender's address");

    // A frame with the same datagram, as a sender here would write it.
    let sender = peer(own, address, Mac([2, 0, 0, 0, 0, 9]));
    let Some(to) = own.source_for(address) else { return };
    for ecn in [false, true] {
        let header = Header::new(&sender, to, own.mac, ecn).expect("addresses of one family");
        let mut written = vec![0; header.len()];
        written.extend_from_slice(payload);
        header.write(&mut written, source.port(), port);
        let again = Packet::Datagram(Datagram { marked: false, ..*datagram });
        assert_eq!(parse(&written, own, false), Ok(again), "a frame that was written here");
    }
}

fn check_resolve(own: &Interface, resolve: Resolve) {
    let (Resolve::Asks { ip, mac } | Resolve::Tells { ip, mac }) = resolve;
    let is_own = own.networks.iter().any(|network| network.address == ip);
    assert!(!ip.is_unspecified() && !ip.is_multicast() && !is_own, "{resolve:?}");
    if let Resolve::Asks { .. } = resolve {
        let asker = peer(own, ip, mac);
        let answer = control::tell(own, ip, mac).expect("an address of this family");
        let told = own.source_for(ip).expect("an address of this family");
        let tells = Packet::Resolve(Resolve::Tells { ip: told, mac: own.mac });
        assert_eq!(parse(&answer, &asker, false), Ok(tells), "the answer to {resolve:?}");
    }
}

fn check_echo(frame: &[u8], own: &Interface, echo: &Echo<'_>) {
    let at = offset(frame, echo.rest);
    assert!(echo.rest.len() >= 4 && at >= ip_of(frame) + 24, "identifier and number of the echo");
    let reply = control::echo_reply(own, echo).expect("an address of this family");
    assert!(reply.ends_with(echo.rest), "the reply repeats the message");
    assert!(reply.len() <= frame.len(), "the reply is not longer than the request");
    let asker = peer(own, echo.from, echo.mac);
    // The asker's checks of lengths and checksums pass. It has no use for a reply.
    assert_eq!(parse(&reply, &asker, false), Err(FrameDrop::Protocol), "the reply");
}

/// Computes the checksums of a frame, as far as its lengths allow.
fn repair(frame: &mut [u8]) {
    let Some(kind) = frame.get(12..14) else { return };
    let at = if kind == [0x81, 0] { 18 } else { 14 };
    match frame.get(at - 2..at) {
        Some([8, 0]) => repair_v4(&mut frame[at..]),
        Some([0x86, 0xdd]) => repair_v6(&mut frame[at..]),
        _ => {}
    }
}

fn repair_v4(packet: &mut [u8]) {
    let Some((ip, rest)) = packet.split_at_mut_checked(20) else { return };
    ip[10..12].fill(0);
    let sum = checksum::finish(checksum::add(0, ip));
    ip[10..12].copy_from_slice(&sum);
    let len = usize::from(word(ip, 2)).saturating_sub(20);
    let Some(rest) = rest.get_mut(..len) else { return };
    match ip[9] {
        17 => repair_udp(&ip[12..20], rest),
        1 => put_sum(rest, 2, 0),
        _ => {}
    }
}

fn repair_v6(packet: &mut [u8]) {
    let Some((ip, rest)) = packet.split_at_mut_checked(40) else { return };
    let len = word(ip, 4);
    let Some(rest) = rest.get_mut(..len.into()) else { return };
    match ip[6] {
        17 => repair_udp(&ip[8..40], rest),
        58 => put_sum(rest, 2, checksum::pseudo(&ip[8..40], 58, len)),
        _ => {}
    }
}

fn repair_udp(addresses: &[u8], rest: &mut [u8]) {
    if rest.len() < 8 {
        return;
    }
    let len = word(rest, 4);
    if let Some(segment) = rest.get_mut(..len.into()) {
        put_sum(segment, 6, checksum::pseudo(addresses, 17, len));
    }
}

/// Writes the checksum of `message` and of what `sum` is the sum of, at this offset.
fn put_sum(message: &mut [u8], at: usize, sum: u64) {
    if message.len() < at + 2 {
        return;
    }
    message[at..at + 2].fill(0);
    let sum = checksum::finish(checksum::add(sum, message));
    // For UDP, 0 means that there is no checksum. To ICMP, both values are the same.
    message[at..at + 2].copy_from_slice(&if sum == [0, 0] { [0xff, 0xff] } else { sum });
}
