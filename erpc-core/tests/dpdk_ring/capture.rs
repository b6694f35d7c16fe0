//! The fields of sent frames.

use super::*;

/// The frames of a capture in pcap's format, in this machine's byte order.
fn frames_of(capture: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| {
        let bytes = capture[at..at + 4].try_into().expect("four bytes");
        u32::from_ne_bytes(bytes) as usize
    };
    assert!([0xa1b2_c3d4, 0xa1b2_3c4d].contains(&word(0)), "pcap with micro- or nanoseconds");
    assert_eq!(word(20), 1, "Ethernet");
    let (mut at, mut frames) = (24, Vec::new());
    while at < capture.len() {
        let len = word(at + 8);
        frames.push(&capture[at + 16..at + 16 + len]);
        at += 16 + len;
    }
    frames
}

/// The folded sum of 16-bit words in network order: 0xffff over bytes with a right checksum.
fn sum(parts: &[&[u8]]) -> u32 {
    let bytes = parts.concat();
    let words = bytes
        .chunks(2)
        .map(|word| (u32::from(word[0]) << 8) + u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn a_capture_shows_every_field_of_the_frames() {
    start();
    let peer = SocketAddr::new([10, 9, 0, 1].into(), 31_850);
    let config = port("net_pcap0", 2)
        .mtu(1_500)
        .udp_port(7_777)
        .vlan(5)
        .neighbour(peer.ip(), Mac([2, 0, 0, 0, 0, 1]));
    let mut transport = DpdkTransport::open(&config).expect("a port");
    transport.enable_ecn().expect("frames have ECN's bits");
    for len in [24, 1_001] {
        transport.split().1.push_bytes(&peer.into(), &message(len));
    }
    transport.split().1.flush();
    assert_eq!((transport.stats().tx_packets, transport.stats().tx_bytes), (2, 1_025));
    // The driver writes the file when the port stops.
    drop(transport);
    let file = std::fs::read(capture()).expect("the capture");
    std::fs::remove_file(capture()).expect("the capture is removed");
    let frames = frames_of(&file);
    let udp: Vec<_> = frames.iter().filter(|frame| frame[16..18] == [8, 0]).collect();
    assert_eq!(udp.len(), 2, "{frames:x?}");
    for (frame, len) in udp.into_iter().zip([24, 1_001]) {
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, 1], "destination");
        assert_eq!(frame[6], 2, "source: a locally administered address");
        assert_eq!(frame[12..18], [0x81, 0, 0, 5, 8, 0], "VLAN 5, IPv4");
        let (ip, rest) = frame[18..].split_at(20);
        assert_eq!(ip[..2], [0x45, 0b10], "IPv4 without options, ECT(0)");
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), 28 + len, "total length");
        assert_eq!(ip[4..8], [0, 0, 0x40, 0], "don't fragment");
        assert_eq!(ip[8..10], [64, 17], "hop limit, UDP");
        assert_eq!(ip[12..20], [10, 9, 0, 2, 10, 9, 0, 1], "addresses");
        assert_eq!(sum(&[ip]), 0xffff, "the checksum of IP");
        let udp = &rest[..8 + len];
        assert_eq!(udp[..4], [0x1e, 0x61, 0x7c, 0x6a], "ports 7,777 and 31,850");
        assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), 8 + len, "UDP's length");
        assert_ne!(udp[6..8], [0, 0], "a checksum of UDP");
        let pseudo = [0, 17, udp[4], udp[5]];
        assert_eq!(sum(&[&ip[12..20], &pseudo, udp]), 0xffff, "the checksum of UDP");
        assert_eq!(udp[8..], message(len), "the datagram");
    }
}
