//! Message contents that are unique per message.

use std::sync::OnceLock;

use bytes::BufMut;
use erpc_core::wire::extension::{push_entry, put_extension};
use erpc_test_tools::random::mix;

use crate::stream_script::Direction;

/// Length in bytes of the noise from which contents are cut. It is a prime, so that no distance
/// between two packets of a message is a multiple of it.
const NOISE: usize = 131_071;

fn noise() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| (0..NOISE as u64).map(|at| mix(at + 1) as u8).collect())
}

/// The noise of a pattern, which follows its first 8 bytes. The key selects the start in the noise.
fn pieces(key: u64, len: usize) -> impl Iterator<Item = &'static [u8]> {
    let (mut from, mut left) = ((key >> 32) as usize % NOISE, len);
    std::iter::from_fn(move || {
        let piece = &noise()[from..NOISE.min(from + left)];
        (from, left) = (0, left - piece.len());
        (!piece.is_empty()).then_some(piece)
    })
}

/// The key of the request of call `id`. The request begins with the lower half of the key, the
/// call's number.
#[must_use]
pub(crate) fn key(seed: u64, id: u32) -> u64 {
    mix(seed ^ u64::from(id) << 20) << 32 | u64::from(id)
}

/// The number of the call with this request, if the request has at least 4 bytes.
#[must_use]
pub(crate) fn call(request: &[u8]) -> Option<u32> {
    request.first_chunk().map(|number| u32::from_le_bytes(*number))
}

/// The key of the response to a request with key `request` and length `len`. It is a hash of both,
/// because only both together determine the request.
#[must_use]
pub(crate) fn answer(request: u64, len: usize) -> u64 {
    mix(request ^ mix(len as u64))
}

/// The key of item `number` of stream `id`, sent in direction `of`.
#[must_use]
pub(crate) fn item(seed: u64, id: u32, of: Direction, number: u32) -> u64 {
    let stream = mix(seed ^ u64::from(id) << 20 ^ 1 << 62);
    mix(stream ^ u64::from(number) << 1 ^ u64::from(of == Direction::Down))
}

/// Writes a pattern of `len` bytes.
pub(crate) fn fill(out: &mut impl BufMut, key: u64, len: usize) {
    let head = len.min(8);
    out.put_slice(&key.to_le_bytes()[..head]);
    for piece in pieces(key, len - head) {
        out.put_slice(piece);
    }
}

/// Whether `bytes` are the complete pattern of `key`.
#[must_use]
pub(crate) fn matches(bytes: &[u8], key: u64) -> bool {
    let (head, mut rest) = bytes.split_at(bytes.len().min(8));
    *head == key.to_le_bytes()[..head.len()]
        && pieces(key, rest.len()).all(|piece| {
            let (mine, others) = rest.split_at(piece.len());
            rest = others;
            mine == piece
        })
}

/// The extension that belongs to a key. It has up to two entries, and at most about 260 bytes.
#[must_use]
pub(crate) fn extension(key: u64) -> Vec<u8> {
    let key = mix(key);
    let mut out = Vec::new();
    put_extension(key as u8, &entries(key), &mut out);
    out
}

/// The entries of an extension.
#[must_use]
pub(crate) fn entries(key: u64) -> Vec<u8> {
    let mut entries = Vec::new();
    for (at, name) in ["trace", "\u{e9}"].into_iter().enumerate().take((key >> 8) as usize % 3) {
        let value = [mix(key + at as u64) as u8; 120];
        push_entry(&mut entries, name, &value[..(key >> 16) as usize % value.len()])
            .expect("there is room for two entries");
    }
    entries
}

/// Whether the response with this key has an extension, if its request had one.
#[must_use]
pub(crate) fn answers_extended(key: u64) -> bool {
    key >> 40 & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_itself_and_no_other() {
        for len in [0, 1, 7, 8, 9, 1_000, 200_000] {
            let mut bytes = Vec::new();
            fill(&mut bytes, key(5, 9), len);
            assert_eq!(bytes.len(), len);
            assert!(matches(&bytes, key(5, 9)), "{len} bytes");
            assert_eq!(matches(&bytes, key(5, 10)), len == 0, "{len} bytes of another call");
            for at in (0..len).step_by(1 + len / 500) {
                bytes[at] ^= 1;
                assert!(!matches(&bytes, key(5, 9)), "byte {at} of {len}");
                bytes[at] ^= 1;
            }
        }
    }
}
