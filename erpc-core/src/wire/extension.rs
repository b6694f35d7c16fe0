//! The extension at the front of a message: data of a call beside its message.
//!
//! Only messages whose packets have the header's extended flag begin with an extension.
//!
//! ```text
//!  0      2    3    4          8                       len
//! +------+----+----+----------+-------+-------+-- .. --+-----------
//! | len  | op | 0  | deadline | entry | entry |        | message
//! | u16  | u8 | u8 |   u32    |       |       |        |
//! +------+----+----+----------+-------+-------+-- .. --+-----------
//!
//!  0        1         3          3+k     3+k+v
//! +--------+---------+----------+-------+
//! | k  u8  | v  u16  | key (k)  | value |      an entry
//! +--------+---------+----------+-------+
//! ```
//!
//! `len` counts the whole extension. The protocol itself reads and writes only `deadline`, and reads
//! `op` of the requests to a server that shuts down, with functions of its own in this module. So a
//! long extension costs the protocol no extra time.

use bytes::BufMut;

use crate::mutants::mutant;
use crate::time::Instant;

/// Bytes of an extension without entries.
pub const EXTENSION_HEAD: usize = 8;

/// Maximum number of bytes of an extension. An extension always fits the first packet of a message.
pub const MAX_EXTENSION: usize = 1_024;

/// Maximum number of bytes of all entries together.
pub const MAX_ENTRIES: usize = MAX_EXTENSION - EXTENSION_HEAD;

/// Offset in a message of `op`.
const OP_AT: usize = 2;

/// The largest `op`, without [`OP_FLAG`], of a request that does not continue an earlier request.
/// Streams are opened with this value.
const LAST_BEGINNING: u8 = 1;

/// The bit of `op` that is a flag. The other bits are the message's purpose.
const OP_FLAG: u8 = 0x80;

/// Offset in a message of the deadline field, which [`remaining`] computes.
pub(crate) const DEADLINE_AT: usize = 4;

/// The extension of a message, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension<'m> {
    op: u8,
    deadline: u32,
    entries: &'m [u8],
}

/// Why the front of a message is not an extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtensionError {
    /// The message is shorter than the length in its extension, or shorter than any extension.
    Truncated,
    /// The extension's length is outside of 8 to 1,024 bytes.
    Length(u16),
    /// The reserved byte is not zero.
    Reserved(u8),
    /// An entry has no key, or extends beyond the end of the extension.
    Entry,
    /// A key is not UTF-8.
    Key,
}

impl<'m> Extension<'m> {
    /// Splits a message into its extension and the rest, the message proper. Reads every entry, at
    /// most 1,024 bytes in all.
    ///
    /// # Errors
    /// [`ExtensionError`] if the message does not begin with a valid extension. No input makes it
    /// panic.
    pub fn split(message: &'m [u8]) -> Result<(Self, &'m [u8]), ExtensionError> {
        let head = message.first_chunk::<EXTENSION_HEAD>().ok_or(ExtensionError::Truncated)?;
        let [l0, l1, op, reserved, d0, d1, d2, d3] = *head;
        let len = u16::from_le_bytes([l0, l1]);
        if !(EXTENSION_HEAD..=MAX_EXTENSION).contains(&usize::from(len)) {
            return Err(ExtensionError::Length(len));
        }
        if reserved != 0 {
            return Err(ExtensionError::Reserved(reserved));
        }
        let (extension, rest) =
            message.split_at_checked(len.into()).ok_or(ExtensionError::Truncated)?;
        let entries = &extension[EXTENSION_HEAD..];
        let mut left = entries;
        while !left.is_empty() {
            left = split_entry(left)?.rest;
        }
        let deadline = u32::from_le_bytes([d0, d1, d2, d3]);
        Ok((Self { op, deadline, entries }, rest))
    }

    /// Purpose of the message beyond a plain call or reply, such as a stream's `PULL`; 0 for none.
    /// This module does not interpret it.
    #[must_use]
    pub const fn op(&self) -> u8 {
        self.op
    }

    /// The time left when the message was sent, in wire form: microseconds; 0 for no deadline,
    /// `u32::MAX` for that value or more.
    #[must_use]
    pub const fn deadline(&self) -> u32 {
        self.deadline
    }

    /// The entries, in order.
    #[must_use]
    pub const fn entries(&self) -> Entries<'m> {
        Entries(self.entries)
    }

    /// The entries in wire form, for [`put_extension`] or [`Entries::new`].
    #[must_use]
    pub const fn as_bytes(&self) -> &'m [u8] {
        self.entries
    }
}

/// Entries of an extension: keys and values, in order. Iteration ends at the first byte that does
/// not begin a valid entry.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'m>(&'m [u8]);

impl<'m> Entries<'m> {
    /// The entries in `bytes`, which must come from [`push_entry`] or [`Extension::as_bytes`].
    #[must_use]
    pub const fn new(bytes: &'m [u8]) -> Self {
        Self(bytes)
    }
}

impl<'m> Iterator for Entries<'m> {
    type Item = (&'m str, &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let Split { key, value, rest } = split_entry(self.0).ok()?;
        self.0 = rest;
        Some((key, value))
    }
}

/// The first entry, and the bytes after it.
struct Split<'m> {
    key: &'m str,
    value: &'m [u8],
    rest: &'m [u8],
}

fn split_entry(bytes: &[u8]) -> Result<Split<'_>, ExtensionError> {
    let ([key, v0, v1], rest) = bytes.split_first_chunk().ok_or(ExtensionError::Entry)?;
    if *key == 0 {
        return Err(ExtensionError::Entry);
    }
    let (key, rest) = rest.split_at_checked((*key).into()).ok_or(ExtensionError::Entry)?;
    let value = u16::from_le_bytes([*v0, *v1]);
    let (value, rest) = rest.split_at_checked(value.into()).ok_or(ExtensionError::Entry)?;
    let key = std::str::from_utf8(key).map_err(|_| ExtensionError::Key)?;
    Ok(Split { key, value, rest })
}

/// Why an entry was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryError {
    /// The key is empty or has more than 255 bytes. Contains the key's length in bytes.
    KeyLength(usize),
    /// With this entry, all entries would have this number of bytes, more than [`MAX_ENTRIES`].
    Full(usize),
}

/// Appends an entry to `entries`. On an error `entries` is unchanged. The key may be any UTF-8;
/// `Metadata` restricts the keys that users send.
///
/// # Errors
/// [`EntryError`] if the key's length is invalid or the entry does not fit.
pub fn push_entry(entries: &mut Vec<u8>, key: &str, value: &[u8]) -> Result<(), EntryError> {
    let key_len = u8::try_from(key.len()).ok().filter(|len| *len > 0);
    let key_len = key_len.ok_or(EntryError::KeyLength(key.len()))?;
    let all = entries.len() + 3 + key.len() + value.len();
    if all > MAX_ENTRIES {
        return Err(EntryError::Full(all));
    }
    entries.push(key_len);
    entries.extend_from_slice(&(value.len() as u16).to_le_bytes());
    entries.extend_from_slice(key.as_bytes());
    entries.extend_from_slice(value);
    Ok(())
}

/// Writes an extension, which must be the first thing in a message. The protocol fills in the
/// deadline when it sends the message.
///
/// # Panics
/// If `entries` has more than [`MAX_ENTRIES`] bytes, or `out` has no room.
pub fn put_extension(op: u8, entries: &[u8], out: &mut impl BufMut) {
    assert!(
        entries.len() <= MAX_ENTRIES,
        "an extension has at most {MAX_ENTRIES} bytes of entries"
    );
    let [l0, l1] = ((EXTENSION_HEAD + entries.len()) as u16).to_le_bytes();
    out.put_slice(&[l0, l1, op, 0, 0, 0, 0, 0]);
    out.put_slice(entries);
}

/// Whether an extended request continues what an earlier request of its session began, such as a
/// stream. A server that shuts down accepts only such requests. `body` is at least the request's
/// first packet.
#[must_use]
pub(crate) fn continues(body: &[u8]) -> bool {
    body.get(OP_AT).is_some_and(|op| op & !OP_FLAG > LAST_BEGINNING)
}

/// The deadline field of a request that is sent now, in us. It is rounded up, so that the server's
/// deadline is never earlier than the client's, and is at least 1.
#[must_use]
pub(crate) fn remaining(deadline: Instant, now: Instant) -> u32 {
    let nanos = deadline.nanos_since(now);
    let micros = if mutant!(DeadlineRoundedDown) { nanos / 1_000 } else { nanos.div_ceil(1_000) };
    let micros = micros.max(1);
    u32::try_from(micros).unwrap_or(u32::MAX)
}

/// The deadline of a request whose first packet, with this body, arrives at `now`;
/// [`Instant::NEVER`] if the request has no deadline, a deadline of `u32::MAX` us or more, or a
/// body too short for one.
#[must_use]
pub(crate) fn deadline_of(body: &[u8], now: Instant) -> Instant {
    let field = body.get(DEADLINE_AT..).and_then(|rest| rest.first_chunk().copied());
    match field.map_or(0, u32::from_le_bytes) {
        0 | u32::MAX => Instant::NEVER,
        micros => now.plus_nanos(u64::from(micros) * 1_000),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(op: u8, entries: &[(&str, &[u8])], rest: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::new();
        for (key, value) in entries {
            push_entry(&mut encoded, key, value).expect("room for the entry");
        }
        let mut out = Vec::new();
        put_extension(op, &encoded, &mut out);
        out.extend_from_slice(rest);
        out
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = message(3, &[("ab", &[7, 8, 9])], &[0xEE]);
        let head = [16, 0, 3, 0, 0, 0, 0, 0];
        let entry = [2, 3, 0, b'a', b'b', 7, 8, 9];
        assert_eq!(bytes, [&head[..], &entry, &[0xEE]].concat());
    }

    #[test]
    fn a_written_extension_is_read_unchanged() {
        let entries: [(&str, &[u8]); 3] = [("trace-id", &[0; 16]), ("k", b""), ("é", b"\xFF")];
        let bytes = message(9, &entries, b"hello");
        let (extension, rest) = Extension::split(&bytes).expect("an extension");
        assert_eq!((extension.op(), extension.deadline(), rest), (9, 0, &b"hello"[..]));
        assert_eq!(extension.entries().collect::<Vec<_>>(), entries);
        assert_eq!(Entries::new(extension.as_bytes()).count(), 3);
    }

    #[test]
    fn each_fault_has_its_own_error() {
        let good = message(0, &[("key", b"value")], b"");
        for len in 0..good.len() {
            assert_eq!(Extension::split(&good[..len]), Err(ExtensionError::Truncated), "{len}");
        }
        let spoiled = |at: usize, byte: u8| {
            let mut bytes = [&good[..], &[0; 2_000]].concat();
            bytes[at] = byte;
            Extension::split(&bytes).map(|_| ())
        };
        assert_eq!(spoiled(0, 7), Err(ExtensionError::Length(7)));
        assert_eq!(spoiled(1, 4), Err(ExtensionError::Length(4 << 8 | good.len() as u16)));
        assert_eq!(spoiled(3, 1), Err(ExtensionError::Reserved(1)));
        assert_eq!(spoiled(8, 0), Err(ExtensionError::Entry), "no key");
        assert_eq!(spoiled(8, 9), Err(ExtensionError::Entry), "a key too long");
        assert_eq!(spoiled(9, 4), Err(ExtensionError::Entry), "a value too short");
        assert_eq!(spoiled(9, 6), Err(ExtensionError::Entry), "a value too long");
        assert_eq!(spoiled(11, 0xFF), Err(ExtensionError::Key));
    }

    #[test]
    fn entries_fill_an_extension_to_the_last_byte_but_not_beyond() {
        let mut entries = Vec::new();
        assert_eq!(push_entry(&mut entries, "", b""), Err(EntryError::KeyLength(0)));
        let long = "x".repeat(256);
        assert_eq!(push_entry(&mut entries, &long, b""), Err(EntryError::KeyLength(256)));
        assert_eq!(push_entry(&mut entries, &long[..255], &[1; MAX_ENTRIES - 258]), Ok(()));
        assert_eq!(push_entry(&mut entries, "k", b""), Err(EntryError::Full(MAX_ENTRIES + 4)));
        let mut bytes = Vec::new();
        put_extension(0, &entries, &mut bytes);
        assert_eq!(bytes.len(), MAX_EXTENSION);
        let (extension, rest) = Extension::split(&bytes).expect("an extension");
        assert_eq!((extension.entries().count(), rest.len()), (1, 0));
    }

    #[test]
    fn a_call_and_the_first_call_of_a_stream_begin_something() {
        let continuing = |op: u8| continues(&message(op, &[], b"frame"));
        assert!([0, 1, 0x80, 0x81].into_iter().all(|op| !continuing(op)));
        assert!([2, 3, 4, 0x83, 0x7F].into_iter().all(continuing));
        assert!(!continues(&[8, 0]));
    }

    #[test]
    fn the_remaining_time_is_rounded_up_and_never_zero() {
        let now = Instant::from_nanos(5_000_000);
        for (nanos, micros) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (7_999_999, 8_000)] {
            assert_eq!(remaining(now.plus_nanos(nanos), now), micros, "{nanos} ns");
        }
        assert_eq!(remaining(Instant::ZERO, now), 1, "past");
        assert_eq!(remaining(Instant::NEVER, now), u32::MAX);
    }

    #[test]
    fn a_deadline_counts_from_the_arrival_and_is_optional() {
        let now = Instant::from_nanos(7);
        let of = |field: u32| deadline_of(&[&[8, 0, 0, 0], &field.to_le_bytes()[..]].concat(), now);
        assert_eq!(of(0), Instant::NEVER);
        assert_eq!(of(1), now.plus_nanos(1_000));
        assert_eq!(of(u32::MAX - 1), now.plus_nanos((u64::from(u32::MAX) - 1) * 1_000));
        assert_eq!(of(u32::MAX), Instant::NEVER, "u32::MAX us or more");
        for len in 0..EXTENSION_HEAD {
            assert_eq!(deadline_of(&[1; EXTENSION_HEAD][..len], now), Instant::NEVER);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            head in proptest::collection::vec(any::<u8>(), 0..4),
            body in proptest::collection::vec(0..20u8, 0..200),
        ) {
            for bytes in [[&head[..], &body].concat(), [&[body.len() as u8, 0, 0, 0], &body[..]].concat()] {
                if let Ok((extension, rest)) = Extension::split(&bytes) {
                    let mut again = Vec::new();
                    extension.entries().for_each(|(key, value)| {
                        push_entry(&mut again, key, value).expect("a parsed entry is valid");
                    });
                    prop_assert_eq!(&again, extension.as_bytes());
                    prop_assert_eq!(EXTENSION_HEAD + again.len() + rest.len(), bytes.len());
                }
            }
        }
    }
}
