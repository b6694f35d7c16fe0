//! Marks packets in long queues, as routers do (explicit congestion notification, RFC 3168).

use erpc_test_tools::ipv4::checksum;

/// Sets the mark (CE, RFC 3168) of an IPv4 packet if its sender reacts to marks.
pub(super) fn mark(packet: &mut [u8]) {
    let is_capable = matches!(packet, [version, class, ..] if *version >> 4 == 4 && !matches!(*class & 0b11, 0b00 | 0b11));
    if !is_capable {
        return;
    }
    packet[1] |= 0b11;
    let len = usize::from(packet[0] & 0xf) * 4;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A well-known example of an IPv4 header. Its checksum is 0xb861.
    const HEADER: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    fn with_class(class: u8) -> [u8; 20] {
        let mut header = HEADER;
        header[1] = class;
        header[10..12].fill(0);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    #[test]
    fn only_capable_packets_are_marked_and_the_checksum_is_right() {
        assert_eq!(with_class(0), HEADER);
        for (class, after) in [(0b00, 0b00), (0b01, 0b11), (0b10, 0b11), (0b11, 0b11), (0xba, 0xbb)]
        {
            let mut packet = with_class(class);
            mark(&mut packet);
            assert_eq!(packet, with_class(after), "class {class:#b}");
        }
        let mut six = [0x60, 0x20, 0, 0];
        mark(&mut six);
        assert_eq!(six, [0x60, 0x20, 0, 0], "another protocol");
    }
}
