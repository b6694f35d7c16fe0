//! Metadata: keys and values that are sent with a message.

use std::fmt;

use crate::debug_text::debug_is_display;
use crate::status::Status;
use crate::wire::extension::{Entries, EntryError, MAX_ENTRIES, push_entry};

/// Largest size of one message's metadata, in bytes: keys, values, and 3 bytes per entry.
pub const MAX_METADATA: usize = MAX_ENTRIES;

/// Keys and values that are sent with a request or a response but are not part of the message:
/// trace ids, credentials, shard hints. Stored in wire format. Metadata without entries costs
/// nothing.
///
/// A key has 1 to 255 bytes: lower-case letters of ASCII, digits, `-`, `_` and `.`, as in gRPC.
/// Values are arbitrary bytes. Received metadata may have other keys, because peers may be other
/// programs: keys of a peer are UTF-8 and may contain line breaks.
///
/// ```
/// use erpc_core::service::{Metadata, MetadataError};
///
/// let mut metadata = Metadata::new();
/// metadata.insert("trace-id", b"\x17\x2a")?;
/// metadata.insert("token", "old")?;
/// metadata.insert("token", "new")?;
/// assert_eq!(metadata.get("trace-id"), Some(&b"\x17\x2a"[..]));
/// assert_eq!(metadata.get("token"), Some(&b"new"[..]));
/// assert_eq!(metadata.insert("Token", ""), Err(MetadataError::KeyCharacter('T')));
/// # Ok::<(), MetadataError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// In the format of an [extension](crate::wire::extension).
    entries: Vec<u8>,
}

/// Borrowed metadata, such as that of a request.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct MetadataRef<'a> {
    entries: &'a [u8],
}

/// Why metadata was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataError {
    /// The key is empty.
    NoKey,
    /// The key is longer than 255 bytes.
    LongKey,
    /// The key contains this character, which is not allowed: allowed are lower-case letters of
    /// ASCII, digits, `-`, `_` and `.`.
    KeyCharacter(char),
    /// All entries together would be longer than [`MAX_METADATA`].
    Full {
        /// Total bytes that the metadata would have.
        size: usize,
    },
}

impl Metadata {
    /// Metadata without entries.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Sets the value of a key: adds an entry, in place of all entries with this key.
    ///
    /// # Errors
    /// [`MetadataError`]. The metadata is then unchanged.
    pub fn insert(&mut self, key: &str, value: impl AsRef<[u8]>) -> Result<(), MetadataError> {
        if self.get(key).is_none() {
            return self.append(key, value);
        }
        let mut replaced = Self { entries: Vec::with_capacity(self.entries.len()) };
        for (other, kept) in self.iter().filter(|(other, _)| *other != key) {
            replaced.push(other, kept)?;
        }
        replaced.append(key, value)?;
        *self = replaced;
        Ok(())
    }

    /// Adds an entry. Entries with the same key stay: [`Metadata::get`] returns the first, and
    /// [`Metadata::iter`] all of them.
    ///
    /// # Errors
    /// [`MetadataError`]. The metadata is then unchanged.
    pub fn append(&mut self, key: &str, value: impl AsRef<[u8]>) -> Result<(), MetadataError> {
        match key.chars().find(|&character| !is_allowed(character)) {
            Some(character) => Err(MetadataError::KeyCharacter(character)),
            None => self.push(key, value.as_ref()),
        }
    }

    /// Adds an entry whose key may come from a peer.
    fn push(&mut self, key: &str, value: &[u8]) -> Result<(), MetadataError> {
        push_entry(&mut self.entries, key, value).map_err(|error| match error {
            EntryError::KeyLength(0) => MetadataError::NoKey,
            EntryError::KeyLength(_) => MetadataError::LongKey,
            EntryError::Full(size) => MetadataError::Full { size },
        })
    }

    /// The value of the first entry with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.as_ref().get(key)
    }

    /// The entries, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.as_ref().iter()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Borrows the metadata.
    #[must_use]
    pub fn as_ref(&self) -> MetadataRef<'_> {
        MetadataRef { entries: &self.entries }
    }
}

impl<'a> MetadataRef<'a> {
    /// Reads the entries of a message's extension. Never fails: a malformed entry and the entries
    /// after it are ignored.
    #[must_use]
    pub(crate) fn new(entries: &'a [u8]) -> Self {
        Self { entries }
    }

    /// The value of the first entry with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// The entries, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        Entries::new(self.entries)
    }

    /// Whether there are no entries.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// An owned copy.
    #[must_use]
    pub fn to_owned(&self) -> Metadata {
        Metadata { entries: self.entries.to_vec() }
    }

    /// The entries in wire format.
    pub(crate) fn as_bytes(&self) -> &'a [u8] {
        self.entries
    }
}

/// Whether a key may contain this character. The set is gRPC's, so that a gateway can pass keys on.
/// Without upper case, `Token` and `token` cannot become two keys by mistake.
const fn is_allowed(character: char) -> bool {
    matches!(character, 'a'..='z' | '0'..='9' | '-' | '_' | '.')
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Debug for MetadataRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(key, value)| (key, value.escape_ascii().to_string())))
            .finish()
    }
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("metadata needs a key"),
            Self::LongKey => f.write_str("a metadata key has at most 255 bytes"),
            Self::KeyCharacter(character) => write!(
                f,
                "a metadata key must not contain {character:?}; use lower-case ASCII letters, digits, `-`, `_` and `.`"
            ),
            Self::Full { size } => write!(
                f,
                "the metadata would have {size} bytes, the limit is {MAX_METADATA}; send more as part of the message"
            ),
        }
    }
}

debug_is_display!(MetadataError);

impl std::error::Error for MetadataError {}

/// Lets handlers use `?` when they add metadata to an answer. Metadata that does not fit is an
/// error of the server.
impl From<MetadataError> for Status {
    fn from(error: MetadataError) -> Self {
        Self::internal(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Code;

    #[test]
    fn appended_entries_keep_their_order_and_get_returns_the_first_of_a_key() {
        let mut metadata = Metadata::new();
        for (key, value) in [("a", &b"1"[..]), ("b", b""), ("a", b"2")] {
            metadata.append(key, value).unwrap();
        }
        let entries: Vec<_> = metadata.iter().collect();
        assert_eq!(entries, [("a", &b"1"[..]), ("b", b""), ("a", b"2")]);
        assert_eq!(metadata.get("a"), Some(&b"1"[..]));
        assert_eq!(metadata.get("b"), Some(&b""[..]));
        assert_eq!(metadata.get("c"), None);
        assert_eq!(metadata.as_ref().to_owned(), metadata);
    }

    #[test]
    fn an_inserted_entry_replaces_all_entries_of_its_key() {
        let mut metadata = Metadata::new();
        metadata.insert("token", "old").unwrap();
        metadata.append("b", "1").unwrap();
        metadata.append("token", "older").unwrap();
        metadata.append("b", "2").unwrap();
        metadata.insert("token", "new").unwrap();
        assert_eq!(metadata.get("token"), Some(&b"new"[..]));
        let entries: Vec<_> = metadata.iter().collect();
        assert_eq!(entries, [("b", &b"1"[..]), ("b", b"2"), ("token", b"new")]);
    }

    #[test]
    fn an_insertion_that_does_not_fit_keeps_the_old_value() {
        let mut metadata = Metadata::new();
        metadata.insert("k", [1; MAX_METADATA - 4]).unwrap();
        let full = Err(MetadataError::Full { size: MAX_METADATA + 1 });
        assert_eq!(metadata.insert("k", [2; MAX_METADATA - 3]), full);
        assert_eq!(metadata.get("k"), Some(&[1; MAX_METADATA - 4][..]));
        assert_eq!(metadata.insert("k", [2; MAX_METADATA - 4]), Ok(()), "in place of the old one");
    }

    #[test]
    fn keys_with_other_characters_are_refused() {
        let mut metadata = Metadata::new();
        for key in ["trace-id", "a_b.c", "0", "-"] {
            assert_eq!(metadata.insert(key, ""), Ok(()), "{key}");
        }
        let before = metadata.clone();
        for (key, refused) in [
            ("a\nb", '\n'),
            ("a\r", '\r'),
            ("\0", '\0'),
            ("a b", ' '),
            ("a\u{7f}", '\u{7f}'),
            ("Token", 'T'),
            ("a:b", ':'),
            ("schl\u{fc}ssel", '\u{fc}'),
        ] {
            assert_eq!(metadata.insert(key, ""), Err(MetadataError::KeyCharacter(refused)));
            assert_eq!(metadata.append(key, ""), Err(MetadataError::KeyCharacter(refused)));
        }
        assert_eq!(metadata, before);
        let text = MetadataError::KeyCharacter('\n').to_string();
        assert!(text.contains(r"'\n'") && text.contains("lower-case"), "{text}");
    }

    #[test]
    fn received_keys_may_have_other_characters() {
        let mut entries = Vec::new();
        push_entry(&mut entries, "A\nb", b"1").unwrap();
        push_entry(&mut entries, "\u{fc}", b"2").unwrap();
        let received = MetadataRef::new(&entries);
        assert_eq!(received.get("A\nb"), Some(&b"1"[..]));
        let printed = format!("{received:?}");
        assert_eq!(printed, "{\"A\\nb\": \"1\", \"\u{fc}\": \"2\"}", "one line");
        let mut copy = received.to_owned();
        copy.insert("token", "x").unwrap();
        copy.insert("token", "y").unwrap();
        let entries: Vec<_> = copy.iter().collect();
        assert_eq!(entries, [("A\nb", &b"1"[..]), ("\u{fc}", b"2"), ("token", b"y")]);
    }

    #[test]
    fn a_metadata_error_becomes_an_internal_status() {
        fn handler() -> Result<(), Status> {
            Metadata::new().insert("", "x")?;
            Ok(())
        }
        let status = handler().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Internal, "metadata needs a key"));
    }

    #[test]
    fn an_entry_that_does_not_fit_changes_nothing() {
        let mut metadata = Metadata::new();
        assert_eq!(metadata.insert("", "x"), Err(MetadataError::NoKey));
        assert_eq!(metadata.insert(&"k".repeat(256), "x"), Err(MetadataError::LongKey));
        metadata.insert("k", [0; MAX_METADATA - 4]).unwrap();
        let full = Err(MetadataError::Full { size: MAX_METADATA + 4 });
        assert_eq!(metadata.append("k", ""), full);
        assert_eq!(metadata.insert("l", ""), full);
        assert_eq!(metadata.iter().count(), 1);
        let mut metadata = Metadata::new();
        assert!(metadata.insert("k", vec![0; 70_000]).is_err());
        assert!(metadata.is_empty());
    }
}
