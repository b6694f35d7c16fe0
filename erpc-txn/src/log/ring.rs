//! The bounded memory of a log.

use std::collections::VecDeque;
use std::fmt;

use super::codec::{DecodeError, record_len};
use super::record::Record;

/// The number of a record: 0, 1, 2 and so on for each coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Index(pub u64);

/// The records of one coordinator, from the oldest that is not acknowledged.
///
/// Their bytes are in one ring, which is allocated once. A record is in one piece: one that does not
/// fit before the end of the ring is stored at the beginning.
#[derive(Debug)]
pub struct Log {
    ring: Box<[u8]>,
    records: VecDeque<Place>,
    max_records: usize,
    /// The index of the first record in `records`, or of the next one if there is none.
    first: u64,
}

/// Where a record is in the ring.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    len: usize,
}

impl Place {
    fn end(self) -> usize {
        self.start + self.len
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It was stored now.
    Now,
    /// It had been stored before, and may have been acknowledged since. Nothing changed.
    Before,
}

/// A record was not stored. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// The log has no room now. Acknowledge records, then try again.
    Full,
    /// The record has this many bytes, more than the whole log.
    TooLong(usize),
    /// Records before this one are missing; the next must have this index.
    Gap(Index),
    /// The log has another record with this index.
    Different,
    /// The bytes are not exactly one record.
    Record(DecodeError),
    /// The bytes go on after the record.
    Trailing,
}

impl Log {
    /// A log for records of at most `bytes` together, and at most `records` of them. All its memory
    /// is allocated now. Because a record is in one piece, there is room for the next one for sure only
    /// while twice the longest record's length is free.
    #[must_use]
    pub fn new(bytes: usize, records: usize) -> Self {
        Self {
            ring: vec![0; bytes].into_boxed_slice(),
            records: VecDeque::with_capacity(records),
            max_records: records,
            first: 0,
        }
    }

    /// The index of the next record.
    #[must_use]
    pub fn next(&self) -> Index {
        Index(self.first + self.records.len() as u64)
    }

    /// The number of records that are not acknowledged.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether all records are acknowledged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Stores a record. The same record may come several times, but records come in order.
    ///
    /// # Errors
    ///
    /// If the record is malformed, out of order, or too much for the log.
    pub fn append(&mut self, index: Index, bytes: &[u8]) -> Result<Appended, LogError> {
        let (_, len) = Record::decode(bytes).map_err(LogError::Record)?;
        if len != bytes.len() {
            return Err(LogError::Trailing);
        }
        if index < self.next() {
            return match self.bytes(index) {
                Some(stored) if stored != bytes => Err(LogError::Different),
                _ => Ok(Appended::Before),
            };
        }
        if index > self.next() {
            return Err(LogError::Gap(self.next()));
        }
        if len > self.ring.len() {
            return Err(LogError::TooLong(len));
        }
        if self.records.len() == self.max_records {
            return Err(LogError::Full);
        }
        let start = self.room(len).ok_or(LogError::Full)?;
        self.ring[start..start + len].copy_from_slice(bytes);
        self.records.push_back(Place { start, len });
        self.check_invariants();
        Ok(Appended::Now)
    }

    /// Where a record of this length has room.
    fn room(&self, len: usize) -> Option<usize> {
        let (Some(first), Some(last)) = (self.records.front(), self.records.back()) else {
            return (len <= self.ring.len()).then_some(0);
        };
        let end = last.end();
        if last.start >= first.start {
            // The records are in one stretch: there is room after it and before it.
            if len <= self.ring.len() - end {
                return Some(end);
            }
            return (len <= first.start).then_some(0);
        }
        (len <= first.start - end).then_some(end)
    }

    /// Frees all records before `next`: each replica has applied them. Returns how many there were.
    /// Of indices that the log has not had yet, only those that it had are freed.
    pub fn acknowledge(&mut self, next: Index) -> usize {
        let count = next.0.saturating_sub(self.first).min(self.records.len() as u64) as usize;
        self.records.drain(..count);
        self.first += count as u64;
        count
    }

    /// The bytes of a record; none if the log does not have it, or no longer.
    #[must_use]
    pub fn bytes(&self, index: Index) -> Option<&[u8]> {
        let place = self.records.get(usize::try_from(index.0.checked_sub(self.first)?).ok()?)?;
        self.ring.get(place.start..place.end())
    }

    /// All records that are not acknowledged, the oldest first, to replay them.
    pub fn records(&self) -> impl Iterator<Item = (Index, Result<Record<'_>, DecodeError>)> {
        (self.first..self.next().0).filter_map(|index| {
            let bytes = self.bytes(Index(index))?;
            Some((Index(index), Record::decode(bytes).map(|(record, _)| record)))
        })
    }

    /// Checks what must hold after each change, in debug builds.
    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let bytes: usize = self.records.iter().map(|place| place.len).sum();
        assert!(bytes <= self.ring.len() && self.records.len() <= self.max_records);
        if let Some(last) = self.records.back() {
            assert_eq!(record_len(&self.ring[last.start..]), Ok(last.len));
            let others = self.records.iter().take(self.records.len() - 1);
            let apart = |place: &Place| place.end() <= last.start || place.start >= last.end();
            assert!(others.clone().all(apart), "records overlap");
        }
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the log is full; acknowledge records, then try again"),
            Self::TooLong(len) => write!(f, "a record of {len} bytes; build a larger log"),
            Self::Gap(index) => write!(f, "records are missing; the next one has index {index}"),
            Self::Different => f.write_str("the log has another record with this index"),
            Self::Record(error) => error.fmt(f),
            Self::Trailing => f.write_str("bytes follow the record"),
        }
    }
}

impl std::error::Error for LogError {}
