//! The values, one after the other in a ring of words.
//!
//! A value takes 3 words and its own: the two words of its key, the word of its length and expiry,
//! and the words of its bytes, of which the last may be filled up.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use erpc::prefetch;

use super::hash::words;
use super::{Key, MAX_VALUE};

/// Words in front of a value's bytes.
const HEADER: u64 = 3;

/// An append loads the line that is so many words in front of the new head.
const AHEAD: u64 = 64;

/// Positions are counted modulo this in the index.
pub(super) const POSITIONS: u64 = 1 << 40;

/// What stands before a value's bytes, apart from its key.
///
/// ```text
/// bit 63 .. 17   expiry in ms; 0: none
///           16   dead: deleted, expired, or no longer the key's value
///     15 ..  0   length in bytes
/// ```
#[derive(Clone, Copy)]
pub(super) struct Header(u64);

const DEAD: u64 = 1 << 16;

impl Header {
    pub(super) fn new(len: usize, expiry: Option<u64>) -> Self {
        Self(expiry.unwrap_or(0) << 17 | len as u64)
    }

    pub(super) fn len(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }

    pub(super) fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    /// When the value expires, in ms.
    pub(super) fn expiry(self) -> Option<u64> {
        let expiry = self.0 >> 17;
        (expiry != 0).then_some(expiry)
    }

    /// Words of the value, header included.
    fn words(self) -> u64 {
        words_of(self.len())
    }
}

fn words_of(len: usize) -> u64 {
    HEADER + (len as u64).div_ceil(8)
}

/// The words are atomics, because services are shared by threads, and a word that is only ever used
/// by one thread costs the same as an ordinary one.
pub(super) struct Log {
    words: Box<[AtomicU64]>,
    /// Where the next value goes. Positions are numbers of words since the beginning.
    head: AtomicU64,
    /// The oldest value that is whole.
    tail: AtomicU64,
}

impl Log {
    /// A log of a power of two of bytes whose first position is `origin`.
    pub(super) fn new(bytes: usize, origin: u64) -> Self {
        let words = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Self { words, head: AtomicU64::new(origin), tail: AtomicU64::new(origin) }
    }

    pub(super) fn head(&self) -> u64 {
        self.head.load(Relaxed)
    }

    #[inline]
    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[position as usize & (self.words.len() - 1)]
    }

    /// The position whose low bits are in a slot, if the value there is whole.
    #[inline]
    pub(super) fn position(&self, low: u64) -> Option<u64> {
        let head = self.head();
        let distance = head.wrapping_sub(low) & (POSITIONS - 1);
        let whole = head - self.tail.load(Relaxed);
        (1..=whole).contains(&distance).then(|| head - distance)
    }

    /// How many words lie between a position and the head.
    pub(super) fn age(&self, position: u64) -> u64 {
        self.head().wrapping_sub(position)
    }

    #[inline]
    pub(super) fn prefetch(&self, low: u64) {
        prefetch(self.word(low));
        // A value of 48 bytes and its header are in two lines as a rule.
        prefetch(self.word(low + 7));
    }

    #[inline]
    pub(super) fn has_key(&self, position: u64, key: &Key) -> bool {
        let [low, high] = words(key);
        self.word(position).load(Relaxed) == low && self.word(position + 1).load(Relaxed) == high
    }

    #[inline]
    pub(super) fn header(&self, position: u64) -> Header {
        Header(self.word(position + 2).load(Relaxed))
    }

    /// Notes that a value is none any more.
    pub(super) fn kill(&self, position: u64) {
        let header = self.word(position + 2);
        header.store(header.load(Relaxed) | DEAD, Relaxed);
    }

    /// Appends the value at a position to `out`.
    #[inline]
    pub(super) fn read(&self, position: u64, len: usize, out: &mut Vec<u8>) {
        out.reserve(len);
        let mut at = position + HEADER;
        let mut left = len;
        while left >= 8 {
            out.extend_from_slice(&self.word(at).load(Relaxed).to_le_bytes());
            (at, left) = (at + 1, left - 8);
        }
        if left > 0 {
            out.extend_from_slice(&self.word(at).load(Relaxed).to_le_bytes()[..left]);
        }
    }

    /// Writes a value of at most [`MAX_VALUE`] bytes to the head. Returns its position, and how many
    /// values that were not dead it has overwritten.
    pub(super) fn append(&self, key: &Key, header: Header, value: &[u8]) -> (u64, u32) {
        debug_assert!(value.len() == header.len() && value.len() <= MAX_VALUE);
        let (position, mut tail, mut overwritten) = (self.head(), self.tail.load(Relaxed), 0);
        let end = position + header.words();
        while end - tail > self.words.len() as u64 {
            let oldest = self.header(tail);
            overwritten += u32::from(!oldest.is_dead());
            tail += oldest.words();
        }
        self.tail.store(tail, Relaxed);
        let [low, high] = words(key);
        let front = [low, high, header.0].into_iter();
        let bytes = value.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        for (at, word) in (position..).zip(front.chain(bytes)) {
            self.word(at).store(word, Relaxed);
        }
        self.head.store(end, Relaxed);
        // One of the next values goes there, and if the log is full, one of the oldest is there.
        prefetch(self.word(end + AHEAD));
        (position, overwritten)
    }
}
