//! Frames: the units in which the log is written.
//!
//! ```text
//!   magic 4 | number 8 | length 4 | CRC32C of the body 4 | CRC32C of the 20 bytes before 4 | body
//! ```
//!
//! A frame is written only when the one before it is on disk. So a crash can damage the last frame only.
//! If a damaged frame is followed by a whole one, it was not a crash, and the log cannot be trusted.
//!
//! The second checksum begins with the salt, a random number of the folder. So no client can write a value
//! that looks like a frame when it is in a half-written one.

use bytes::Bytes;

use crate::consensus::{Entry, HardState, Position, Write};
use crate::mutants::mutant;
use crate::wire::{self, Reader};

const MAGIC: u32 = u32::from_le_bytes(*b"RAFT");
const HEADER: usize = 24;
/// The length of a frame that [`mark`] returns.
pub(super) const MARK: usize = HEADER + 25 + 25;

const ENTRY: u8 = 1;
const HARD: u8 = 2;
const SNAPSHOT: u8 = 3;
const END: u8 = 4;
const MARK_RECORD: u8 = 5;

/// A part of a frame's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// An entry. It replaces those at its index and after.
    Entry(Entry),
    /// The hard state.
    Hard(HardState),
    /// The log ends with this index.
    End(u64),
    /// A snapshot of another node replaces the log.
    Snapshot(Position),
    /// There is a snapshot at a place. The log ends with the index `last`; a later snapshot may have replaced
    /// its entries.
    Mark { at: Position, last: u64 },
}

/// What is at a place of a file.
pub(super) enum Next {
    /// A frame, which ends at `end`.
    Frame { records: Vec<Record>, end: usize },
    /// The file's end.
    End,
    /// A frame that was not written completely. Nothing follows it.
    Torn,
    /// The text says what is wrong.
    Damaged(String),
}

/// Appends a frame with writes.
pub(super) fn put_writes(out: &mut Vec<u8>, salt: u32, number: u64, writes: &[Write]) {
    put(out, salt, number, |body| {
        for write in writes {
            if let Some(snapshot) = &write.snapshot {
                put_snapshot(body, snapshot.at);
            }
            if let Some(end) = write.end {
                body.push(END);
                body.extend_from_slice(&end.to_le_bytes());
            }
            for entry in &write.entries {
                body.push(ENTRY);
                wire::put_entry(body, entry);
            }
            // After the entries: a commit index is never beyond the log.
            if let Some(hard) = &write.hard {
                put_hard(body, hard);
            }
        }
    });
}

/// The frame that begins a segment: it names the last snapshot and the last index, and repeats the hard
/// state.
pub(super) fn mark(salt: u32, number: u64, last: u64, at: Position, hard: &HardState) -> Vec<u8> {
    let mut out = Vec::with_capacity(MARK);
    put(&mut out, salt, number, |body| {
        body.push(MARK_RECORD);
        for field in [at.term, at.index, last] {
            body.extend_from_slice(&field.to_le_bytes());
        }
        put_hard(body, hard);
    });
    assert_eq!(out.len(), MARK, "the records have fixed lengths");
    out
}

fn put_hard(body: &mut Vec<u8>, hard: &HardState) {
    body.push(HARD);
    for field in [hard.term, hard.vote, hard.commit] {
        body.extend_from_slice(&field.to_le_bytes());
    }
}

fn put_snapshot(body: &mut Vec<u8>, at: Position) {
    body.push(SNAPSHOT);
    body.extend_from_slice(&at.term.to_le_bytes());
    body.extend_from_slice(&at.index.to_le_bytes());
}

fn put(out: &mut Vec<u8>, salt: u32, number: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.resize(begin + HEADER, 0);
    fill(out);
    let (header, body) = out[begin..].split_at_mut(HEADER);
    let len = u32::try_from(body.len()).expect("the limits of proposals are far below 4 GiB");
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..12].copy_from_slice(&number.to_le_bytes());
    header[12..16].copy_from_slice(&len.to_le_bytes());
    header[16..20].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    let checksum = crc32c::crc32c_append(salt, &header[..20]);
    header[20..].copy_from_slice(&checksum.to_le_bytes());
}

/// The frame at `at`, which must have this number.
pub(super) fn next(file: &Bytes, at: usize, salt: u32, number: u64) -> Next {
    if at == file.len() {
        return Next::End;
    }
    match whole(&file[at..], salt) {
        Some((found, body)) if found == number => {
            let begin = at + HEADER;
            let body = file.slice(begin..begin + body.len());
            match records(&body) {
                Some(records) => Next::Frame { records, end: begin + body.len() },
                None => Next::Damaged(format!("frame {number} has unknown contents")),
            }
        }
        Some((found, _)) => Next::Damaged(format!("frame {found} is in the place of {number}")),
        None => match later(&file[at + 1..], salt, number) {
            Some(found) => Next::Damaged(format!(
                "frame {number} at byte {at} is damaged, but frame {found} after it is whole"
            )),
            None => Next::Torn,
        },
    }
}

/// The number and the body of a whole frame.
fn whole(bytes: &[u8], salt: u32) -> Option<(u64, &[u8])> {
    let mut reader = Reader::new(bytes);
    let header = reader.take(20)?;
    if reader.u32()? != crc32c::crc32c_append(salt, header) {
        return None;
    }
    let mut fields = Reader::new(header);
    let (magic, number) = (fields.u32()?, fields.u64()?);
    let (len, checksum) = (fields.u32()? as usize, fields.u32()?);
    let body = reader.take(len)?;
    let fits = crc32c::crc32c(body) == checksum || mutant!(ChecksumNotCompared);
    (magic == MAGIC && fits).then_some((number, body))
}

/// The number of the first whole frame after `number`.
fn later(bytes: &[u8], salt: u32, number: u64) -> Option<u64> {
    let magic = MAGIC.to_le_bytes();
    let begins = bytes.windows(4).enumerate().filter(|(_, window)| *window == magic);
    begins
        .filter_map(|(at, _)| whole(&bytes[at..], salt))
        .map(|(found, _)| found)
        .find(|found| *found > number)
}

fn records(body: &Bytes) -> Option<Vec<Record>> {
    let mut reader = Reader::new(body);
    let mut records = Vec::new();
    while !reader.is_empty() {
        records.push(match reader.u8()? {
            ENTRY => Record::Entry(wire::entry(&mut reader, body)?),
            HARD => {
                let (term, vote, commit) = (reader.u64()?, reader.u64()?, reader.u64()?);
                Record::Hard(HardState { term, vote, commit })
            }
            END => Record::End(reader.u64()?),
            MARK_RECORD => {
                let at = Position { term: reader.u64()?, index: reader.u64()? };
                Record::Mark { at, last: reader.u64()? }
            }
            SNAPSHOT => Record::Snapshot(Position { term: reader.u64()?, index: reader.u64()? }),
            _ => return None,
        });
    }
    Some(records)
}

/// The number of the first frame of a file, if it is whole.
pub(super) fn first_number(file: &[u8], salt: u32) -> Option<u64> {
    whole(file, salt).map(|(number, _)| number)
}
