//! Values that reads return.

use std::fmt;
use std::ops::Deref;

use zerocopy::IntoBytes;

use super::layout::INLINE_WORDS;
use super::memory::Shared;

/// A value that was read: the bytes of one version. Later commits do not change it.
///
/// A short value is copied out of the table. Of a long one this is a reference: reading and cloning
/// it copy nothing, and its memory is freed when neither the table nor a `Value` needs it.
#[derive(Clone)]
pub struct Value(Repr);

#[derive(Clone)]
enum Repr {
    Inline(Inline),
    Shared(Shared),
}

/// All fields are whole words. With a length of one byte, the compiler copies a `Value` in pieces
/// that begin in the middle of words, and a processor cannot forward such a piece from the stores of
/// the words, which costs 5 ns.
#[derive(Clone, Copy)]
struct Inline {
    len: usize,
    words: [u64; INLINE_WORDS],
}

impl Value {
    #[inline]
    pub(super) fn inline(len: u8, words: [u64; INLINE_WORDS]) -> Self {
        Self(Repr::Inline(Inline { len: usize::from(len), words }))
    }

    #[inline]
    pub(super) fn shared(cell: Shared) -> Self {
        Self(Repr::Shared(cell))
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(Inline { len, words }) => &words.as_bytes()[..*len],
            Repr::Shared(cell) => cell.bytes(),
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 32;
        let bytes = self.as_bytes();
        write!(f, "{:02x?}", &bytes[..bytes.len().min(SHOWN)])?;
        if bytes.len() > SHOWN {
            write!(f, " and {} more bytes", bytes.len() - SHOWN)
        } else {
            Ok(())
        }
    }
}
