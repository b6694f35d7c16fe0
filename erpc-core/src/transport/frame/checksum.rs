//! The checksum of IP, UDP and ICMP (RFC 1071): the complement of the sum of 16-bit words.
//!
//! One's complement addition is the same in any byte order and any word length, so the sum is of
//! native 32-bit words in 64-bit lanes, which compilers turn into vector instructions.

/// Adds `bytes` to a sum. Every part but the last has an even length.
#[must_use]
#[inline]
pub fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

/// The checksum in network order: the complement of the folded sum. 0 if the summed bytes contain
/// a correct checksum.
#[must_use]
#[inline]
pub fn finish(sum: u64) -> [u8; 2] {
    let mut sum = sum;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_ne_bytes()
}

/// The sum of the pseudo-header of UDP or ICMPv6: both addresses, protocol and length.
#[must_use]
#[inline]
pub fn pseudo(addresses: &[u8], protocol: u8, len: u16) -> u64 {
    let [high, low] = len.to_be_bytes();
    add(add(0, addresses), &[0, protocol, high, low])
}
