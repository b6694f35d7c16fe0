//! The values, one after the other in a ring of words.
//!
//! A value takes 3 words and its own: the two words of its key, the word of its length and expiry,
//! and the words of its bytes, of which the last may be filled up.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use erpc::memory::{OutOfMemory, ZeroedArray, prefetch};

use super::hash::words;
use super::{Key, MAX_VALUE};

/// Words in front of a value's bytes.
const HEADER: u64 = 3;

/// An append loads the line that is so many words in front of the new head.
const AHEAD: u64 = 64;

/// Bytes of the smallest page.
pub(super) const PAGE: usize = 4096;

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
    words: ZeroedArray<AtomicU64>,
    /// Where the next value goes. Positions are numbers of words since the beginning.
    head: AtomicU64,
    /// The oldest value that is whole.
    tail: AtomicU64,
}

impl Log {
    /// A log of a power of two of bytes whose first position is `origin`.
    pub(super) fn new(bytes: usize, origin: u64) -> Result<Self, OutOfMemory> {
        let words = ZeroedArray::<AtomicU64>::new(bytes / 8)?;
        // Takes the memory from the system now. The operations would wait for it.
        words.iter().step_by(PAGE / 8).for_each(|word| word.store(0, Relaxed));
        Ok(Self { words, head: AtomicU64::new(origin), tail: AtomicU64::new(origin) })
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
        // Threads that mix values may read any length.
        let len = len.min(MAX_VALUE);
        let start = out.len();
        out.resize(start + len, 0);
        let [first, second] = self.parts(position + HEADER, len.div_ceil(8));
        let (chunks, rest) = out[start..].as_chunks_mut::<8>();
        let load = |word: &AtomicU64| word.load(Relaxed).to_le_bytes();
        let (front, back) = chunks.split_at_mut(first.len().min(chunks.len()));
        front.iter_mut().zip(first).for_each(|(chunk, word)| *chunk = load(word));
        back.iter_mut().zip(second).for_each(|(chunk, word)| *chunk = load(word));
        if !rest.is_empty()
            && let Some(word) = second.last().or(first.last())
        {
            rest.copy_from_slice(&load(word)[..rest.len()]);
        }
    }

    /// The words from a position on: two parts if they go over the end of the ring.
    #[inline]
    fn parts(&self, position: u64, count: usize) -> [&[AtomicU64]; 2] {
        let (front, back) = self.words.split_at(position as usize & (self.words.len() - 1));
        let first = count.min(back.len());
        [&back[..first], &front[..count - first]]
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
        self.word(position).store(low, Relaxed);
        self.word(position + 1).store(high, Relaxed);
        self.write(position, header, value);
        self.head.store(end, Relaxed);
        // One of the next values goes there, and if the log is full, one of the oldest is there.
        prefetch(self.word(end + AHEAD));
        (position, overwritten)
    }

    /// Replaces the value at a position. It takes as many words as before.
    pub(super) fn write(&self, position: u64, header: Header, value: &[u8]) {
        debug_assert!(value.len() == header.len());
        self.word(position + 2).store(header.0, Relaxed);
        let [first, second] = self.parts(position + HEADER, value.len().div_ceil(8));
        let (chunks, rest) = value.as_chunks::<8>();
        let store = |place: &AtomicU64, word| place.store(u64::from_le_bytes(word), Relaxed);
        let (front, back) = chunks.split_at(first.len().min(chunks.len()));
        first.iter().zip(front).for_each(|(place, chunk)| store(place, *chunk));
        second.iter().zip(back).for_each(|(place, chunk)| store(place, *chunk));
        if !rest.is_empty()
            && let Some(place) = second.last().or(first.last())
        {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            store(place, word);
        }
    }

    /// Whether a value may be replaced where it is: it takes as many words as the old one, and the old
    /// one is in the younger half of the log. So a value that is written again and again stays.
    pub(super) fn can_replace(&self, position: u64, old: Header, new: Header) -> bool {
        old.words() == new.words() && self.age(position) <= self.words.len() as u64 / 2
    }
}
