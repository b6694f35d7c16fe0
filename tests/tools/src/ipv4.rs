//! Headers of IPv4, UDP and ICMP: reads and rewrites addresses, and keeps checksums right.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Protocol numbers in the header of IPv4.
const ICMP: u8 = 1;
const UDP: u8 = 17;
/// Type of the ICMP messages that say that a packet was not delivered.
const UNREACHABLE: u8 = 3;
/// Bytes of the headers of UDP and ICMP.
const TRANSPORT_HEADER: usize = 8;

/// The checksum of RFC 1071, over `bytes` whose checksum field is 0.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| (*low).into());
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Which end of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

/// An IPv4 packet with UDP. The data may be cut off, as in a quote of an ICMP message.
#[derive(Debug)]
pub struct UdpPacket<'p> {
    bytes: &'p mut [u8],
    /// Start of the UDP header.
    udp: usize,
}

impl<'p> UdpPacket<'p> {
    /// `None` if `bytes` are no unfragmented IPv4 packet with the headers of IPv4 and UDP.
    pub fn new(bytes: &'p mut [u8]) -> Option<Self> {
        let udp = transport(bytes, UDP)?;
        Some(Self { bytes, udp })
    }

    /// Address and port of an end.
    #[must_use]
    pub fn end(&self, end: End) -> SocketAddrV4 {
        let (ip, port) = self.place(end);
        let port = u16::from_be_bytes([self.bytes[port], self.bytes[port + 1]]);
        SocketAddrV4::new(address(self.bytes, ip), port)
    }

    /// Replaces address and port of an end, and adapts both checksums.
    pub fn set_end(&mut self, end: End, to: SocketAddrV4) {
        let (ip, port) = self.place(end);
        let [a, b, c, d] = to.ip().octets();
        let sums = [10, self.udp + 6];
        self.replace(ip, [a, b], &sums);
        self.replace(ip + 2, [c, d], &sums);
        self.replace(port, to.port().to_be_bytes(), &sums[1..]);
    }

    /// Places of the address and of the port.
    fn place(&self, end: End) -> (usize, usize) {
        match end {
            End::Source => (12, self.udp),
            End::Destination => (16, self.udp + 2),
        }
    }

    /// Replaces a word, and adapts the checksums at the places `sums` (RFC 1624, equation 3). A UDP
    /// checksum of 0 means that there is none.
    fn replace(&mut self, at: usize, word: [u8; 2], sums: &[usize]) {
        let read = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (old, new) = (read(self.bytes, at), u16::from_be_bytes(word));
        self.bytes[at..at + 2].copy_from_slice(&word);
        for &place in sums {
            let before = read(self.bytes, place);
            if before == 0 && place != 10 {
                continue;
            }
            let sum = u32::from(!before) + u32::from(!old) + u32::from(new);
            let sum = (sum & 0xffff) + (sum >> 16);
            let after = !((sum & 0xffff) + (sum >> 16)) as u16;
            let after = if after == 0 && place != 10 { 0xffff } else { after };
            self.bytes[place..place + 2].copy_from_slice(&after.to_be_bytes());
        }
    }
}

/// An ICMP message that says that a UDP packet was not delivered. It quotes the packet.
#[derive(Debug)]
pub struct UnreachableMessage<'p> {
    bytes: &'p mut [u8],
    /// Start of the ICMP header.
    icmp: usize,
}

impl<'p> UnreachableMessage<'p> {
    /// `None` if `bytes` are another packet, or the quote is too short to have ports.
    pub fn new(bytes: &'p mut [u8]) -> Option<Self> {
        let icmp = transport(bytes, ICMP)?;
        let is_unreachable = bytes[icmp] == UNREACHABLE;
        transport(&bytes[icmp + TRANSPORT_HEADER..], UDP).filter(|_| is_unreachable)?;
        Some(Self { bytes, icmp })
    }

    /// The receiver of the message.
    #[must_use]
    pub fn receiver(&self) -> Ipv4Addr {
        address(self.bytes, 16)
    }

    /// The quoted packet.
    pub fn quote(&mut self) -> UdpPacket<'_> {
        UdpPacket::new(&mut self.bytes[self.icmp + TRANSPORT_HEADER..]).expect("checked by `new`")
    }

    /// Sends the message to `receiver` instead, and computes both checksums again.
    pub fn readdress(self, receiver: Ipv4Addr) {
        let (header, message) = self.bytes.split_at_mut(self.icmp);
        header[16..20].copy_from_slice(&receiver.octets());
        for (bytes, place) in [(header, 10), (message, 2)] {
            bytes[place..place + 2].fill(0);
            let sum = checksum(bytes);
            bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

fn address(packet: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3])
}

/// Start of the header of `protocol`, if `packet` is an unfragmented IPv4 packet with this header.
fn transport(packet: &[u8], protocol: u8) -> Option<usize> {
    let first = *packet.first()?;
    let start = usize::from(first & 0xf) * 4;
    let is_whole = first >> 4 == 4 && start >= 20 && packet.len() >= start + TRANSPORT_HEADER;
    // The offset of a fragment, and the flag that more fragments follow.
    let is_it = is_whole
        && packet[9] == protocol
        && u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff == 0;
    is_it.then_some(start)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A UDP packet with right checksums.
    pub(crate) fn udp(from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) -> Vec<u8> {
        let len = (TRANSPORT_HEADER + data.len()) as u16;
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0];
        packet[2..4].copy_from_slice(&(20 + len).to_be_bytes());
        packet.extend([from.ip().octets(), to.ip().octets()].concat());
        packet.extend([from.port(), to.port(), len, 0].map(u16::to_be_bytes).concat());
        packet.extend(data);
        let (ip, sum) = (checksum(&packet[..20]), udp_sum(&packet));
        // In the header of UDP, 0 means that there is no checksum.
        let sum = if sum == 0 { 0xffff } else { sum };
        packet[10..12].copy_from_slice(&ip.to_be_bytes());
        packet[26..28].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// The checksum over the pseudo header and the datagram. 0 if the datagram has the right one.
    fn udp_sum(packet: &[u8]) -> u16 {
        let mut covered = packet[12..20].to_vec();
        covered.extend([0, UDP, packet[24], packet[25]]);
        covered.extend(&packet[20..]);
        checksum(&covered)
    }

    /// An ICMP message "port unreachable" from `from` about `packet`.
    pub(crate) fn port_unreachable(from: Ipv4Addr, packet: &[u8]) -> Vec<u8> {
        let mut message = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0];
        message.extend([from.octets(), address(packet, 12).octets()].concat());
        message.extend([UNREACHABLE, 3, 0, 0, 0, 0, 0, 0]);
        message.extend(packet);
        let len = message.len() as u16;
        message[2..4].copy_from_slice(&len.to_be_bytes());
        for (range, place) in [(0..20, 10), (20..message.len(), 22)] {
            let sum = checksum(&message[range]);
            message[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }

    #[track_caller]
    pub(crate) fn assert_sums(packet: &[u8]) {
        assert_eq!(checksum(&packet[..20]), 0, "the checksum of IPv4");
        match packet[9] {
            UDP => assert_eq!(udp_sum(packet), 0, "the checksum of UDP"),
            _ => {
                assert_eq!(checksum(&packet[20..]), 0, "the checksum of ICMP");
                assert_eq!(checksum(&packet[28..48]), 0, "the checksum of the quote");
            }
        }
    }

    fn at(last: u8, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), port)
    }

    #[test]
    fn the_ends_of_a_packet_are_replaced_and_its_checksums_stay_right() {
        for number in 0..=u16::MAX {
            let mut bytes = udp(at(1, 9), at(2, number), b"odd");
            let mut packet = UdpPacket::new(&mut bytes).expect("it is UDP");
            assert_eq!(
                (packet.end(End::Source), packet.end(End::Destination)),
                (at(1, 9), at(2, number))
            );
            packet.set_end(End::Source, at(77, !number));
            packet.set_end(End::Destination, at(0, 7));
            assert_eq!(
                (packet.end(End::Source), packet.end(End::Destination)),
                (at(77, !number), at(0, 7))
            );
            assert_sums(&bytes);
        }
    }

    #[test]
    fn a_packet_without_a_udp_checksum_gets_none() {
        let mut bytes = udp(at(1, 9), at(2, 9), b"data");
        bytes[26..28].fill(0);
        UdpPacket::new(&mut bytes).expect("it is UDP").set_end(End::Source, at(3, 4));
        assert_eq!(bytes[26..28], [0, 0]);
        assert_eq!(checksum(&bytes[..20]), 0);
    }

    #[test]
    fn packets_that_are_cut_fragmented_or_of_another_protocol_are_refused() {
        let whole = udp(at(1, 9), at(2, 9), b"");
        assert!(UdpPacket::new(&mut whole.clone()).is_some());
        assert!(UdpPacket::new(&mut whole[..27].to_vec()).is_none());
        assert!(UdpPacket::new(&mut []).is_none());
        for (place, byte) in [(0, 0x65), (0, 0x44), (6, 0x20), (7, 1), (9, 6)] {
            let mut other = whole.clone();
            other[place] = byte;
            assert!(UdpPacket::new(&mut other).is_none(), "byte {place} is {byte}");
        }
    }
}
