//! Bundles: datagrams of several packets.
//!
//! ```text
//! | header, message | zeros | header, message | zeros | header, message |
//!                           ^ a multiple of 8 bytes   ^
//! ```
//!
//! All packets of a bundle belong to sessions between the same two endpoints. All but the last are
//! whole requests, responses or failures without a trailer. Behind each of these the next one begins
//! at the next multiple of 8 bytes. A receiver that has announced in the handshake that it takes
//! bundles splits them, and handles each packet as if it had come alone. So a bundle saves what a
//! datagram costs besides its bytes, and changes nothing else.

use super::header::{HEADER_LEN, HeaderWords, VERSION};
use crate::mutants::mutant;

/// Most bytes of a bundle. Every path carries as many.
pub const MAX_BUNDLE: usize = 1_052;

/// Packets begin at multiples of this, in bytes.
pub const ALIGN: usize = 8;

/// The length of a datagram's first packet, in bytes, and the bytes from the second packet on: none
/// if the first one is the only one. `datagram` may be anything: what is no bundle is one packet,
/// which the protocol checks.
#[inline(always)]
#[must_use]
pub fn split_first(datagram: &[u8]) -> (usize, &[u8]) {
    let alone = (datagram.len(), &[][..]);
    // Without a look at the bytes, which may not be in the cache yet.
    if datagram.len() > MAX_BUNDLE {
        return alone;
    }
    let Some(header) = HeaderWords::read(datagram) else { return alone };
    let len = HEADER_LEN as u64 + u64::from(header.size());
    let at = (len + (ALIGN as u64 - 1)) & !(ALIGN as u64 - 1);
    // Nearly all datagrams that are no bundle, and the last packet of one.
    if at + HEADER_LEN as u64 > datagram.len() as u64 {
        return alone;
    }
    let (packet, rest) = datagram.split_at(at as usize);
    let Some(next) = HeaderWords::read(rest) else { return alone };
    // Padding has no version.
    let is_bundle = next.head().version() == VERSION
        && (header.head().is_first_of_message() || mutant!(BundleOfAnyKind))
        && (len == at || ends_with_zeros(packet, at - len));
    if is_bundle { (len as usize, rest) } else { alone }
}

/// Whether the last `zeros` bytes of `bytes` are 0, 1 to 7.
#[inline(always)]
fn ends_with_zeros(bytes: &[u8], zeros: u64) -> bool {
    let last_word = bytes.last_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    last_word >> (64 - 8 * zeros) == 0
}

/// Where the next packet of a bundle begins, if the packets before it have so many bytes.
#[inline(always)]
#[must_use]
pub const fn next(len: usize) -> usize {
    (len + (ALIGN - 1)) & !(ALIGN - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{ConnectionId, Flags, Head, Kind, RequestNumber};
    use super::*;

    fn packet(kind: Kind, flags: Flags, message: &[u8]) -> Vec<u8> {
        let (number, size) = (RequestNumber::from_u32(7), message.len() as u32);
        let head = Head::new(kind, flags);
        let header =
            HeaderWords::single(ConnectionId::from_u64(0x1234_5678), head, number, 9, size);
        [&header.to_bytes()[..], message].concat()
    }

    fn bundle(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for packet in packets {
            bytes.resize(next(bytes.len()), 0);
            bytes.extend_from_slice(packet);
        }
        bytes
    }

    fn split(mut datagram: &[u8]) -> Vec<&[u8]> {
        let mut packets = Vec::new();
        loop {
            let (len, rest) = split_first(datagram);
            packets.push(&datagram[..len]);
            if rest.is_empty() {
                return packets;
            }
            datagram = rest;
        }
    }

    proptest! {
        #[test]
        fn bundles_are_split_into_their_packets(
            messages in prop::collection::vec((0..3_u8, prop::collection::vec(any::<u8>(), 0..40)), 1..17)
        ) {
            let kinds = [Kind::Request, Kind::Response, Kind::Failure];
            let packets: Vec<_> = messages
                .iter()
                .map(|(kind, message)| packet(kinds[usize::from(*kind)], Flags::NONE, message))
                .collect();
            let datagram = bundle(&packets);
            prop_assert_eq!(split(&datagram), packets);
        }

        #[test]
        fn damaged_bundles_are_split_into_parts_of_themselves(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 2..17),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in any::<prop::sample::Index>(),
        ) {
            let packets: Vec<_> =
                messages.iter().map(|message| packet(Kind::Request, Flags::NONE, message)).collect();
            let mut datagram = bundle(&packets);
            for (at, byte) in &damage {
                let at = at.index(datagram.len());
                datagram[at] = *byte;
            }
            datagram.truncate(datagram.len().min(HEADER_LEN + cut.index(2 * datagram.len())));
            let parts = split(&datagram);
            let gaps = datagram.len() - parts.iter().map(|part| part.len()).sum::<usize>();
            prop_assert!(gaps < ALIGN * parts.len());
            prop_assert!(parts.iter().rev().skip(1).all(|part| part.len() >= HEADER_LEN));
            prop_assert!(parts.iter().all(|part| datagram.as_ptr_range().contains(&part.as_ptr())));
        }
    }

    #[test]
    fn other_datagrams_are_one_packet() {
        let request = |message: &[u8]| packet(Kind::Request, Flags::NONE, message);
        let two = |first: Vec<u8>| bundle(&[first, request(b"second")]);
        assert_eq!(split(&two(request(b"first"))).len(), 2);
        // The last packet may be of any kind.
        let last = packet(Kind::Control, Flags::TRAILER, b"last");
        assert_eq!(split(&bundle(&[request(b"first"), last])).len(), 2);
        let padded = [request(b"padded"), vec![0; 100]].concat();
        let mut gap = two(request(b"first"));
        gap[HEADER_LEN + 5] = 1;
        let mut later = two(request(b"first"));
        later[9] = 1;
        let mut version = two(request(b"first"));
        version[32 + 8] ^= 2;
        for (datagram, what) in [
            (request(b"alone"), "a packet"),
            (padded, "padding"),
            (gap, "a gap that is not zero"),
            (version, "another version"),
            (two(packet(Kind::Control, Flags::NONE, b"first")), "a control message first"),
            (two(packet(Kind::Request, Flags::TRAILER, b"first")), "a trailer"),
            (later, "a later packet of a message"),
            (two(request(b"first"))[..32 + HEADER_LEN - 1].to_vec(), "a header that is cut short"),
            (two(request(&[1; MAX_BUNDLE - 2 * HEADER_LEN])), "more bytes than a bundle has"),
            (Vec::new(), "no bytes"),
        ] {
            assert_eq!(split_first(&datagram), (datagram.len(), &[][..]), "{what}");
        }
    }
}
