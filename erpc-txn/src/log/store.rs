//! The bounded memory of a log.

use std::collections::BTreeMap;
use std::fmt;

use super::codec::DecodeError;
use super::record::Record;
use crate::mutants::mutant;

/// The records of one coordinator that are still needed, by the sequence number of their
/// transaction.
///
/// Records come and go in any order, because a coordinator runs many transactions at once. A record
/// is needed until all replicas have applied it. Below the *floor* all transactions have ended. A
/// repeated message cannot bring their records back.
#[derive(Debug)]
pub struct Log {
    records: BTreeMap<u64, Box<[u8]>>,
    bytes: usize,
    max_bytes: usize,
    max_records: usize,
    /// All transactions before this one have ended.
    floor: u64,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It was stored now.
    Now,
    /// It had been stored before, and may have been freed since. Nothing changed.
    Before,
}

/// A record was not stored. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// The log has no room now. Free records, then try again.
    Full,
    /// The record has this many bytes, more than the whole log.
    TooLong(usize),
    /// The log has another record of this transaction.
    Different,
}

impl Log {
    /// A log for records of at most `bytes` together, and at most `records` of them.
    #[must_use]
    pub fn new(bytes: usize, records: usize) -> Self {
        Self {
            records: BTreeMap::new(),
            bytes: 0,
            max_bytes: bytes,
            max_records: records,
            floor: 0,
        }
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The bytes of all records.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All transactions with a lower sequence number have ended.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Stores the encoded record of the transaction with this sequence number. The same record may
    /// come several times.
    ///
    /// # Errors
    ///
    /// If there is no room, or the log has another record of the transaction.
    pub fn append(&mut self, sequence: u64, record: &[u8]) -> Result<Appended, LogError> {
        if sequence < self.floor {
            return Ok(Appended::Before);
        }
        if let Some(stored) = self.records.get(&sequence) {
            return if **stored == *record {
                Ok(Appended::Before)
            } else {
                Err(LogError::Different)
            };
        }
        if record.len() > self.max_bytes {
            return Err(LogError::TooLong(record.len()));
        }
        if self.records.len() == self.max_records || record.len() > self.max_bytes - self.bytes {
            return Err(LogError::Full);
        }
        if mutant!(RecordNotKept) {
            return Ok(Appended::Now);
        }
        self.bytes += record.len();
        self.records.insert(sequence, record.into());
        Ok(Appended::Now)
    }

    /// Frees the record of a transaction that has ended: all replicas have applied it, or it was
    /// aborted. False if there is none.
    pub fn free(&mut self, sequence: u64) -> bool {
        let freed = self.records.remove(&sequence);
        self.bytes -= freed.as_ref().map_or(0, |record| record.len());
        freed.is_some()
    }

    /// Frees the records of all transactions before this one, which have ended. The floor never
    /// sinks.
    pub fn raise_floor(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        while let Some(first) = self.records.first_entry()
            && *first.key() < floor
        {
            self.bytes -= first.remove().len();
        }
    }

    /// The encoded record of a transaction.
    #[must_use]
    pub fn record(&self, sequence: u64) -> Option<&[u8]> {
        self.records.get(&sequence).map(|record| &**record)
    }

    /// The encoded records by sequence number.
    pub fn encoded(&self) -> impl Iterator<Item = &[u8]> {
        self.records.values().map(|record| &**record)
    }

    /// All records by sequence number, to replay them.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'_>, DecodeError>> {
        self.records.values().map(|bytes| Record::decode(bytes).map(|(record, _)| record))
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the log is full; free records, then try again"),
            Self::TooLong(len) => write!(f, "a record of {len} bytes; configure a larger log"),
            Self::Different => f.write_str("the log has another record of this transaction"),
        }
    }
}

impl std::error::Error for LogError {}
