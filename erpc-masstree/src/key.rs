//! Keys, and the 8 bytes of them that one layer of the trie compares.

use std::error::Error;
use std::fmt;

/// Longest key, in bytes. A key of this length passes through 128 layers.
pub const MAX_KEY: usize = 1024;

/// Bytes of the key that a layer compares.
pub(crate) const SLICE: usize = 8;

/// The key of a write is longer than [`MAX_KEY`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyTooLong {
    /// Length of the key in bytes.
    pub length: usize,
}

impl fmt::Display for KeyTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key has {} bytes; at most {MAX_KEY} are allowed", self.length)
    }
}

impl Error for KeyTooLong {}

pub(crate) fn check(key: &[u8]) -> Result<(), KeyTooLong> {
    if key.len() > MAX_KEY { Err(KeyTooLong { length: key.len() }) } else { Ok(()) }
}

/// What one layer sees of a key: its next 8 bytes, and how many of them there are.
///
/// Parts are ordered like the keys they begin. Two keys with the same part of class [`Part::LONG`]
/// differ in later bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Part {
    /// The bytes as a big-endian number, with zeros after the key's end.
    pub(crate) slice: u64,
    /// Bytes of the key in this slice, or [`Part::LONG`].
    pub(crate) class: u64,
}

impl Part {
    /// The class of keys that go on after the slice.
    pub(crate) const LONG: u64 = SLICE as u64 + 1;

    /// The part of a key of which `rest` is left in this layer.
    #[inline]
    pub(crate) fn of(rest: &[u8]) -> Self {
        if let Some(bytes) = rest.first_chunk::<SLICE>() {
            let class = if rest.len() == SLICE { SLICE as u64 } else { Self::LONG };
            return Self { slice: u64::from_be_bytes(*bytes), class };
        }
        let mut bytes = [0; SLICE];
        bytes[..rest.len()].copy_from_slice(rest);
        Self { slice: u64::from_be_bytes(bytes), class: rest.len() as u64 }
    }

    #[inline]
    pub(crate) fn is_long(self) -> bool {
        self.class == Self::LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_ordered_like_keys() {
        let keys: [&[u8]; 8] =
            [b"", b"\0", b"\0\0", b"a", b"a\0", b"abcdefgh", b"abcdefgh\0", b"abcdefgi"];
        for pair in keys.windows(2) {
            assert!(Part::of(pair[0]) < Part::of(pair[1]), "{pair:?}");
        }
    }
}
