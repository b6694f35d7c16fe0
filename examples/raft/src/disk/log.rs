//! Which bytes are in which file, and what they mean after a restart.
//!
//! * `identity`: the cluster and the node, so that no node starts with the data of another one.
//! * `log-N`: segments of the log, each a sequence of [frames](super::frame).
//! * `snapshot-I`: the state up to index I. Only the last one is kept.

use bytes::Bytes;

use super::errors::{DiskError, OpenError};
use super::frame::{self, Next, Record};
use super::{Files, snapshot};
use crate::consensus::{HardState, Snapshot, Start, Write};
use crate::mutants::mutant;

/// Bytes of a segment, after which another one begins.
const SEGMENT: u64 = 64 << 20;
const IDENTITY: &str = "identity";

/// Whose data they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the cluster.
    pub cluster: String,
    /// The [name](crate::consensus::Consensus::NAME) of the algorithm, which says what the log means.
    pub algorithm: String,
    /// The node.
    pub node: u64,
}

/// The log of a node, in files.
#[derive(Debug)]
pub struct Log<F> {
    files: F,
    segments: Vec<Segment>,
    /// The number of the next frame.
    next: u64,
    hard: HardState,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    len: u64,
    /// The highest index of its entries, or of a snapshot's mark.
    last: u64,
}

/// A log that was opened.
#[derive(Debug)]
pub struct Opened<F> {
    /// The log.
    pub log: Log<F>,
    /// What it has. None if it is new.
    pub start: Option<Start>,
    /// Bytes at its end that were not written completely, and that were removed.
    pub torn: u64,
}

/// What the segments say, as far as they are read.
#[derive(Default)]
struct Replay {
    start: Start,
    frames: u64,
}

impl<F: Files> Log<F> {
    /// Opens the log in `files`, or begins one.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(files: F, identity: &Identity) -> Result<Opened<F>, OpenError> {
        let names = files.list().map_err(DiskError::of("list", "the folder"))?;
        let is_new = !names.iter().any(|name| name == IDENTITY);
        if is_new && names.iter().any(|name| segment_number(name).is_some()) {
            return Err(OpenError::damaged(IDENTITY, "it is missing, but there is a log"));
        }
        if is_new {
            let log = Self { files, segments: Vec::new(), next: 1, hard: HardState::default() };
            return Ok(Opened { log, start: None, torn: 0 });
        }
        check_identity(&files, identity)?;
        let mut replay = Replay::default();
        let mut snapshots: Vec<_> = names.iter().filter(|name| snapshot::is_name(name)).collect();
        snapshots.sort_unstable();
        if let Some(name) = snapshots.pop() {
            let bytes = files.read(name).map_err(DiskError::of("read", name))?;
            let decoded = snapshot::decode(bytes.into());
            replay.start.snapshot =
                decoded.ok_or_else(|| OpenError::damaged(name, "its checksum is wrong"))?;
        }
        let mut numbers: Vec<_> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        let mut log = Self { files, segments: Vec::new(), next: 1, hard: HardState::default() };
        let mut torn = 0;
        for (at, &number) in numbers.iter().enumerate() {
            let is_last = at + 1 == numbers.len();
            torn = log.read_segment(number, is_last, &mut replay)?;
        }
        // A crash may leave snapshots that are obsolete.
        for name in snapshots {
            log.files.remove(name).map_err(DiskError::of("remove", name))?;
        }
        let start = replay.finish()?;
        log.hard = start.hard;
        Ok(Opened { log, start: Some(start), torn })
    }

    /// Writes the identity, and the snapshot that the node starts from.
    ///
    /// # Errors
    /// [`DiskError`]
    pub fn begin(&mut self, identity: &Identity, first: &Snapshot) -> Result<(), DiskError> {
        if first.at.index > 0 {
            let name = snapshot::name(first.at.index);
            let written = self.files.replace(&name, &snapshot::encode(first));
            written.map_err(DiskError::of("write", &name))?;
        }
        // Last: without it, the node is new.
        let written = self.files.replace(IDENTITY, &identity.encode());
        written.map_err(DiskError::of("write", IDENTITY))
    }

    /// Writes in one frame, and syncs it. Afterwards all of it survives a crash.
    ///
    /// # Errors
    /// [`DiskError`]. The log must not be used any more.
    pub fn write(&mut self, writes: &[Write]) -> Result<(), DiskError> {
        for installed in writes.iter().filter_map(|write| write.snapshot.as_ref()) {
            self.write_snapshot(installed)?;
        }
        let mut bytes = Vec::new();
        frame::put_writes(&mut bytes, self.next, writes);
        let entries = writes.iter().flat_map(|write| &write.entries);
        let last = entries.map(|entry| entry.at.index).max().unwrap_or(0);
        let installed = writes.iter().filter_map(|write| write.snapshot.as_ref()).next_back();
        let last = last.max(installed.map_or(0, |snapshot| snapshot.at.index));
        self.append(&bytes, last)?;
        self.hard = writes.iter().filter_map(|write| write.hard).next_back().unwrap_or(self.hard);
        if let Some(installed) = installed {
            self.clean(installed.at.index)?;
        }
        Ok(())
    }

    /// Writes a snapshot of the node's own state. Deletes what it makes obsolete.
    ///
    /// # Errors
    /// [`DiskError`]. The log must not be used any more.
    pub fn save(&mut self, snapshot: &Snapshot) -> Result<(), DiskError> {
        self.write_snapshot(snapshot)?;
        // The segment that ends here becomes obsolete with one of the next snapshots. The new one
        // begins with the hard state, which was in old segments only.
        self.begin_segment();
        let mut bytes = Vec::new();
        frame::put_mark(&mut bytes, self.next, snapshot.at, &self.hard);
        self.append(&bytes, snapshot.at.index)?;
        self.clean(snapshot.at.index)
    }

    /// Gives back the files.
    pub fn into_files(self) -> F {
        self.files
    }

    /// The files.
    pub fn files(&mut self) -> &mut F {
        &mut self.files
    }

    fn write_snapshot(&mut self, of: &Snapshot) -> Result<(), DiskError> {
        let name = snapshot::name(of.at.index);
        let written = self.files.replace(&name, &snapshot::encode(of));
        written.map_err(DiskError::of("write", &name))
    }

    fn begin_segment(&mut self) {
        let number = self.segments.last().map_or(1, |segment| segment.number + 1);
        self.segments.push(Segment { number, len: 0, last: 0 });
    }

    fn append(&mut self, bytes: &[u8], last: u64) -> Result<(), DiskError> {
        let is_full = |segment: &Segment| segment.len >= SEGMENT;
        if self.segments.last().is_none_or(is_full) {
            self.begin_segment();
        }
        let Some(segment) = self.segments.last_mut() else { unreachable!("one was begun") };
        let name = segment_name(segment.number);
        self.files.append(&name, bytes).map_err(DiskError::of("write", &name))?;
        self.files.sync(&name).map_err(DiskError::of("sync", &name))?;
        segment.len += bytes.len() as u64;
        segment.last = segment.last.max(last);
        self.next += 1;
        Ok(())
    }

    /// Deletes snapshots and segments that the snapshot at `index` makes obsolete. The last segment
    /// stays, and with it the hard state.
    fn clean(&mut self, index: u64) -> Result<(), DiskError> {
        let keep = snapshot::name(index);
        let names = self.files.list().map_err(DiskError::of("list", "the folder"))?;
        for name in names.iter().filter(|name| snapshot::is_name(name) && **name != keep) {
            self.files.remove(name).map_err(DiskError::of("remove", name))?;
        }
        while self.segments.len() > 1 && self.segments[0].last <= index {
            let name = segment_name(self.segments.remove(0).number);
            self.files.remove(&name).map_err(DiskError::of("remove", &name))?;
        }
        Ok(())
    }

    /// Reads a segment. Returns the number of bytes that were torn off its end.
    fn read_segment(
        &mut self,
        number: u64,
        is_last: bool,
        replay: &mut Replay,
    ) -> Result<u64, OpenError> {
        let name = segment_name(number);
        let read = self.files.read(&name).map_err(DiskError::of("read", &name))?;
        let file = Bytes::from(read);
        let mut segment = Segment { number, len: 0, last: 0 };
        if replay.frames == 0 {
            self.next = frame::first_number(&file).unwrap_or(self.next);
        }
        let mut torn = 0;
        loop {
            match frame::next(&file, segment.len as usize, self.next) {
                Next::End => break,
                Next::Frame { records, end } => {
                    if mutant!(TailNotRead) && is_last && end == file.len() {
                        break;
                    }
                    segment.len = end as u64;
                    self.next += 1;
                    replay.frames += 1;
                    for record in records {
                        segment.last = segment.last.max(record.index());
                        replay.take(record).map_err(|why| OpenError::damaged(&name, why))?;
                    }
                }
                Next::Torn if is_last => {
                    torn = file.len() as u64 - segment.len;
                    let cut = self.files.truncate(&name, segment.len);
                    cut.map_err(DiskError::of("shorten", &name))?;
                    break;
                }
                Next::Torn => {
                    return Err(OpenError::damaged(
                        &name,
                        "it ends early, but the next one exists",
                    ));
                }
                Next::Damaged(why) => return Err(OpenError::damaged(&name, why)),
            }
        }
        self.segments.push(segment);
        Ok(torn)
    }
}

impl Record {
    fn index(&self) -> u64 {
        match self {
            Self::Entry(entry) => entry.at.index,
            Self::Hard(_) | Self::End(_) => 0,
            Self::Snapshot(at) => at.index,
        }
    }
}

impl Replay {
    fn take(&mut self, record: Record) -> Result<(), String> {
        let entries = &mut self.start.entries;
        match record {
            Record::Hard(hard) => self.start.hard = hard,
            Record::End(index) => {
                let first = entries.first().map_or(0, |first| first.at.index);
                entries.truncate((index + 1).saturating_sub(first) as usize);
            }
            Record::Entry(entry) => {
                let index = entry.at.index;
                if let Some(first) = entries.first().map(|first| first.at.index) {
                    let last = first + entries.len() as u64 - 1;
                    if index > last + 1 {
                        return Err(format!("entry {index} follows entry {last}"));
                    }
                    entries.truncate(index.saturating_sub(first) as usize);
                }
                entries.push(entry);
            }
            Record::Snapshot(at) => {
                if self.start.snapshot.at.index < at.index {
                    return Err(format!("the snapshot of entry {} is missing", at.index));
                }
                self.cut(at);
            }
        }
        Ok(())
    }

    /// The log before a snapshot is obsolete, and after it unless it contradicts the snapshot.
    fn cut(&mut self, at: crate::consensus::Position) {
        let entries = &mut self.start.entries;
        let follows = entries.iter().any(|entry| entry.at == at)
            || entries.first().is_some_and(|first| first.at.index == at.index + 1);
        if follows {
            entries.retain(|entry| entry.at.index > at.index);
        } else {
            entries.clear();
        }
    }

    fn finish(mut self) -> Result<Start, OpenError> {
        let at = self.start.snapshot.at;
        let first = self.start.entries.first().map_or(0, |first| first.at.index);
        if first > at.index + 1 {
            let why = format!("entries {} to {} are missing", at.index + 1, first - 1);
            return Err(OpenError::damaged("the log", why));
        }
        self.cut(at);
        let last = at.index + self.start.entries.len() as u64;
        if self.start.hard.commit > last {
            let commit = self.start.hard.commit;
            let why = format!("it ends with entry {last}, but entry {commit} was committed");
            return Err(OpenError::damaged("the log", why));
        }
        self.start.hard.commit = self.start.hard.commit.max(at.index);
        self.start.hard.term = self.start.hard.term.max(at.term);
        Ok(self.start)
    }
}

impl Identity {
    fn encode(&self) -> Vec<u8> {
        let mut out = b"raftid02".to_vec();
        out.extend_from_slice(&self.node.to_le_bytes());
        crate::wire::put_bytes(&mut out, self.cluster.as_bytes());
        crate::wire::put_bytes(&mut out, self.algorithm.as_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut reader = crate::wire::Reader::new(body.strip_prefix(b"raftid02")?);
        let node = reader.u64()?;
        let mut text = || String::from_utf8(reader.bytes()?.to_vec()).ok();
        Some(Self { cluster: text()?, algorithm: text()?, node })
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} of cluster {:?}, with {}", self.node, self.cluster, self.algorithm)
    }
}

fn check_identity(files: &impl Files, wanted: &Identity) -> Result<(), OpenError> {
    let bytes = files.read(IDENTITY).map_err(DiskError::of("read", IDENTITY))?;
    let found = Identity::decode(&bytes);
    let found = found.ok_or_else(|| OpenError::damaged(IDENTITY, "its checksum is wrong"))?;
    if found == *wanted {
        return Ok(());
    }
    Err(OpenError::Foreign { found: found.to_string(), wanted: wanted.to_string() })
}

fn segment_name(number: u64) -> String {
    format!("log-{number:020}")
}

fn segment_number(name: &str) -> Option<u64> {
    name.strip_prefix("log-")?.parse().ok()
}
