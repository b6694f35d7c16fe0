//! Records as bytes. All numbers are little-endian.
//!
//! ```text
//! record   magic 4 | checksum 4 | length 4 | format 1 | 0 1 | partitions 2 | groups 4 | epoch 4
//!          node 2 | thread 2 | transaction 8 | 0 4                                    40 bytes
//!          partition 2, ..
//! group    table 2 | partition 2 | bucket 4 | base 8 | new 8 | entries 4              28 bytes
//! entry    key 8 | operation 1 | length 4 | value                                13 + n bytes
//! ```
//!
//! The length is that of the whole record. The checksum (CRC32C) is of all bytes after it. Each
//! record has exactly one encoding: what a reader accepts it would write again in the same way.

use std::fmt;

use super::record::{Coordinator, Entry, Group, Operation, Partitions, Record};
use crate::table::{Bucket, Owner, Version};

/// The longest record, in bytes: 64 MiB. One transaction's writes are at most as long.
pub const MAX_RECORD: usize = 64 << 20;

/// "eTXl". A ring of zeros or of text is no record.
const MAGIC: [u8; 4] = [0x65, 0x54, 0x58, 0x6c];
const FORMAT: u8 = 1;
const HEADER: usize = 40;
const GROUP: usize = 28;
const ENTRY: usize = 13;
/// The checksum is of the bytes from here.
const CHECKED: usize = 8;

const INSERT: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;

/// A record cannot be encoded. A mistake of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The record would have this many bytes, more than [`MAX_RECORD`].
    TooLong(usize),
    /// The record breaks a rule of [`Record`] or [`Group`].
    Inconsistent(Rule),
}

/// Bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the record, which needs at least this many.
    Incomplete(usize),
    /// The bytes do not begin like a record.
    Magic,
    /// The record has this format, which this program does not know.
    Format(u8),
    /// The record says that it has this many bytes, which is impossible.
    Length(usize),
    /// The bytes have changed since they were written.
    Checksum,
    /// The parts of the record do not fill it exactly, or a field has an impossible value.
    Malformed,
    /// The record breaks a rule of [`Record`] or [`Group`].
    Inconsistent(Rule),
}

/// What holds for each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// Partitions are in ascending order, each once.
    PartitionsAscend,
    /// The partitions are exactly those of the groups.
    PartitionsOfGroups,
    /// There is at least one group, and each group has at least one entry.
    NotEmpty,
    /// The new version of a group is the one after its base version.
    NextVersion,
    /// Groups are in ascending order of table, partition and bucket, each once.
    GroupsAscend,
    /// No key is twice in a group.
    KeysOnce,
}

impl Record<'_> {
    /// The length of the encoded record in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let entry = |entry: &Entry<'_>| ENTRY + value(entry.operation).len();
        let group = |group: &Group<'_>| GROUP + group.entries.iter().map(entry).sum::<usize>();
        HEADER + 2 * self.partitions.len() + self.groups.iter().map(group).sum::<usize>()
    }

    /// Appends the record's encoding to `out`.
    ///
    /// # Errors
    ///
    /// If the record is too long or breaks a rule. Then `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check().map_err(EncodeError::Inconsistent)?;
        let len = self.encoded_len();
        if len > MAX_RECORD {
            return Err(EncodeError::TooLong(len));
        }
        let start = out.len();
        out.reserve(len);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        put_u32(out, len);
        out.extend_from_slice(&[FORMAT, 0]);
        // At most 65,536 partitions exist, and a record of `MAX_RECORD` has room for fewer groups.
        out.extend_from_slice(&(self.partitions.len() as u16).to_le_bytes());
        put_u32(out, self.groups.len());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.coordinator.node.to_le_bytes());
        out.extend_from_slice(&self.coordinator.thread.to_le_bytes());
        out.extend_from_slice(&self.transaction.get().to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for partition in &self.partitions {
            out.extend_from_slice(&partition.to_le_bytes());
        }
        for group in &self.groups {
            encode_group(group, out);
        }
        debug_assert_eq!(out.len() - start, len);
        let checksum = crc32c::crc32c(&out[start + CHECKED..]);
        out[start + 4..start + CHECKED].copy_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    fn check(&self) -> Result<(), Rule> {
        if self.groups.is_empty() || self.groups.iter().any(|group| group.entries.is_empty()) {
            return Err(Rule::NotEmpty);
        }
        if !self.partitions.is_sorted_by(|a, b| a < b)
            || self.partitions.len() > usize::from(u16::MAX)
        {
            return Err(Rule::PartitionsAscend);
        }
        let mut of_groups: Partitions = self.groups.iter().map(|group| group.partition).collect();
        of_groups.sort_unstable();
        of_groups.dedup();
        if of_groups != self.partitions {
            return Err(Rule::PartitionsOfGroups);
        }
        if self.groups.iter().any(|group| group.base.next() != Some(group.new)) {
            return Err(Rule::NextVersion);
        }
        let bucket = |group: &Group<'_>| (group.table, group.partition, group.bucket);
        if !self.groups.is_sorted_by(|a, b| bucket(a) < bucket(b)) {
            return Err(Rule::GroupsAscend);
        }
        if self.groups.iter().any(has_key_twice) {
            return Err(Rule::KeysOnce);
        }
        Ok(())
    }
}

fn has_key_twice(group: &Group<'_>) -> bool {
    if group.entries.len() < 2 {
        return false;
    }
    let mut keys: Vec<_> = group.entries.iter().map(|entry| entry.key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

fn encode_group(group: &Group<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&group.table.to_le_bytes());
    out.extend_from_slice(&group.partition.to_le_bytes());
    out.extend_from_slice(&group.bucket.index().to_le_bytes());
    out.extend_from_slice(&group.base.get().to_le_bytes());
    out.extend_from_slice(&group.new.get().to_le_bytes());
    put_u32(out, group.entries.len());
    for entry in &group.entries {
        out.extend_from_slice(&entry.key.to_le_bytes());
        out.push(match entry.operation {
            Operation::Insert(_) => INSERT,
            Operation::Update(_) => UPDATE,
            Operation::Delete => DELETE,
        });
        let value = value(entry.operation);
        put_u32(out, value.len());
        out.extend_from_slice(value);
    }
}

/// Appends a number that is below `MAX_RECORD`.
fn put_u32(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

fn value(operation: Operation<'_>) -> &[u8] {
    match operation {
        Operation::Insert(value) | Operation::Update(value) => value,
        Operation::Delete => &[],
    }
}

/// The length of the record that these bytes begin with, of which only the first 12 are needed.
fn record_len(bytes: &[u8]) -> Result<usize, DecodeError> {
    let mut input = Input(bytes);
    let incomplete = DecodeError::Incomplete(HEADER);
    if input.array().ok_or(incomplete)? != MAGIC {
        return Err(DecodeError::Magic);
    }
    input.u32().ok_or(incomplete)?;
    let len = input.u32().ok_or(incomplete)? as usize;
    if !(HEADER..=MAX_RECORD).contains(&len) {
        return Err(DecodeError::Length(len));
    }
    Ok(len)
}

impl<'a> Record<'a> {
    /// Decodes the record that `bytes` begin with. Returns the record, whose values are in `bytes`,
    /// and the record's length.
    ///
    /// # Errors
    ///
    /// If the bytes are not a whole, unchanged and consistent record. The work is proportional to
    /// the length that the record says it has, at most [`MAX_RECORD`], and the memory to the number
    /// of bytes that are there.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let len = record_len(bytes)?;
        let record = bytes.get(..len).ok_or(DecodeError::Incomplete(len))?;
        let mut input = Input(&record[4..]);
        let checksum = input.u32().ok_or(DecodeError::Malformed)?;
        if checksum != crc32c::crc32c(&record[CHECKED..]) {
            return Err(DecodeError::Checksum);
        }
        input.u32().ok_or(DecodeError::Malformed)?;
        let [format] = input.array().ok_or(DecodeError::Malformed)?;
        if format != FORMAT {
            return Err(DecodeError::Format(format));
        }
        let record = input.record().ok_or(DecodeError::Malformed)?;
        record.check().map_err(DecodeError::Inconsistent)?;
        Ok((record, len))
    }
}

/// Table, partition and bucket of each group of a record, as far as the bytes tell. Nothing is checked:
/// they only hint at what to load.
#[cfg(not(loom))]
pub(crate) fn buckets(bytes: &[u8]) -> impl Iterator<Item = (u16, u16, Bucket)> {
    const PARTITIONS: usize = 14;
    let mut input = Input(bytes);
    let counts = input.take(PARTITIONS).and_then(|_| Some((input.u16()?, input.u32()?)));
    let (partitions, groups) = counts.unwrap_or_default();
    let skipped = HEADER - PARTITIONS - 6 + 2 * usize::from(partitions);
    let groups = if input.take(skipped).is_some() { groups } else { 0 };
    (0..groups).map_while(move |_| {
        let (table, partition, bucket) = (input.u16()?, input.u16()?, input.u32()?);
        input.take(16)?;
        for _ in 0..input.u32()? {
            input.take(9)?;
            let len = input.u32()? as usize;
            input.take(len)?;
        }
        Some((table, partition, Bucket::new(bucket)))
    })
}

/// What is still to be decoded. Its methods return none at the end and for impossible values.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes that are reserved and must be 0.
    fn zeros<const N: usize>(&mut self) -> Option<()> {
        (self.array()? == [0; N]).then_some(())
    }

    /// All of a record after its format.
    fn record(&mut self) -> Option<Record<'a>> {
        self.zeros::<1>()?;
        let partitions = usize::from(self.u16()?);
        let groups = self.u32()? as usize;
        let epoch = self.u32()?;
        let coordinator = Coordinator { node: self.u16()?, thread: self.u16()? };
        let transaction = Owner::new(self.u64()?)?;
        self.zeros::<4>()?;
        let partitions = self.list(partitions, 2, Self::u16)?;
        let groups = self.list(groups, GROUP, Self::group)?;
        self.0.is_empty().then_some(Record { epoch, coordinator, transaction, partitions, groups })
    }

    fn group(&mut self) -> Option<Group<'a>> {
        let (table, partition) = (self.u16()?, self.u16()?);
        let bucket = Bucket::new(self.u32()?);
        let base = Version::new(self.u64()?)?;
        let new = Version::new(self.u64()?)?;
        let entries = self.u32()? as usize;
        let entries = self.list(entries, ENTRY, Self::entry)?;
        Some(Group { table, partition, bucket, base, new, entries })
    }

    fn entry(&mut self) -> Option<Entry<'a>> {
        let key = self.u64()?;
        let [operation] = self.array()?;
        let len = self.u32()? as usize;
        let value = self.take(len)?;
        let operation = match operation {
            INSERT => Operation::Insert(value),
            UPDATE => Operation::Update(value),
            DELETE if value.is_empty() => Operation::Delete,
            _ => return None,
        };
        Some(Entry { key, operation })
    }

    /// Items that have at least `least` bytes each. Refuses a number of items for which there are
    /// not enough bytes before it allocates memory for them.
    fn list<T, L: FromIterator<T>>(
        &mut self,
        count: usize,
        least: usize,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<L> {
        if count > self.0.len() / least {
            return None;
        }
        (0..count).map(|_| item(self)).collect()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PartitionsAscend => "the partitions are not in ascending order",
            Self::PartitionsOfGroups => "the partitions are not those of the writes",
            Self::NotEmpty => "the record or one of its groups has no writes",
            Self::GroupsAscend => "the groups are not in ascending order",
            Self::KeysOnce => "a key has two writes",
            Self::NextVersion => "a new version is not the one after its base version",
        })
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => {
                write!(f, "a record of {len} bytes; at most {MAX_RECORD} work, write less at once")
            }
            Self::Inconsistent(rule) => rule.fmt(f),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete(needed) => write!(f, "the record needs at least {needed} bytes"),
            Self::Magic => f.write_str("the bytes do not begin like a record"),
            Self::Format(format) => {
                write!(f, "the record has format {format}; this program knows format {FORMAT}")
            }
            Self::Length(len) => write!(f, "no record can have {len} bytes"),
            Self::Checksum => f.write_str("the checksum is wrong; the record has changed"),
            Self::Malformed => f.write_str("the record is malformed"),
            Self::Inconsistent(rule) => rule.fmt(f),
        }
    }
}

impl std::error::Error for EncodeError {}
impl std::error::Error for DecodeError {}
