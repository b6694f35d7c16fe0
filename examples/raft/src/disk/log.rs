//! Which bytes are in which file, and what they mean after a restart.
//!
//! * `identity`: the cluster and the node, so that no node starts with the data of another one. It is
//!   written last: without it, the node is new.
//! * `log-N`: segments of the log, each a sequence of [frames](super::frame). Each begins with a mark: the
//!   last index, the place of the last snapshot, and the hard state. So the last segment has the vote. A log
//!   without the index has lost its begin. One without a mark for the last snapshot has lost its end.
//! * `snapshot-I`: the state up to index I. Only the last one is kept.
//!
//! A crash may bring files back that were removed. They are obsolete, and are removed again.

use bytes::Bytes;

use super::errors::{DiskError, OpenError};
use super::frame::{self, Next, Record};
use super::{Files, snapshot};
use crate::consensus::{HardState, Position, Snapshot, Start, Write};
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
    /// The last index.
    last: u64,
    /// Of the last snapshot.
    snapshot: Position,
    /// Begins the checksums of frames.
    salt: u32,
    /// Bytes of a segment, after which another one begins.
    segment: u64,
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
    /// The index of the last snapshot that the log names.
    mark: Option<u64>,
}

impl<F: Files> Log<F> {
    /// Opens the log in `files`, or begins one.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(files: F, identity: &Identity) -> Result<Opened<F>, OpenError> {
        let names = files.list().map_err(DiskError::of("list", "the folder"))?;
        if !names.iter().any(|name| name == IDENTITY) {
            let mut log = Self::new(files, 0);
            log.remove_begun(&names)?;
            return Ok(Opened { log, start: None, torn: 0 });
        }
        let salt = check_identity(&files, identity)?;
        let mut log = Self::new(files, salt);
        let mut replay = Replay::default();
        let mut snapshots: Vec<_> = names.iter().filter(|name| snapshot::is_name(name)).collect();
        snapshots.sort_unstable();
        if let Some(name) = snapshots.last() {
            let bytes = log.files.read(name).map_err(DiskError::of("read", name))?;
            let decoded = snapshot::decode(bytes.into());
            replay.start.snapshot =
                decoded.ok_or_else(|| OpenError::damaged(name, "its checksum is wrong"))?;
        }
        let mut numbers: Vec<_> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        let gap = numbers.windows(2).rposition(|pair| pair[0] + 1 != pair[1]);
        let (obsolete, numbers) = numbers.split_at(gap.map_or(0, |gap| gap + 1));
        let mut torn = 0;
        for (at, &number) in numbers.iter().enumerate() {
            let is_last = at + 1 == numbers.len();
            torn = log.read_segment(number, is_last, &mut replay)?;
        }
        let is_marked = replay.is_marked(&snapshots)?;
        let start = replay.finish()?;
        (log.hard, log.snapshot) = (start.hard, start.snapshot.at);
        log.last = start.snapshot.at.index + start.entries.len() as u64;
        // Without its mark, a segment does not say what came before it.
        if !is_marked || log.segments.last().is_some_and(|segment| segment.len == 0) {
            log.begin_segment()?;
        }
        for &number in obsolete {
            log.remove(&segment_name(number))?;
        }
        log.clean()?;
        Ok(Opened { log, start: Some(start), torn })
    }

    fn new(files: F, salt: u32) -> Self {
        let (hard, snapshot) = (HardState::default(), Position::default());
        Self {
            files,
            segments: Vec::new(),
            next: 1,
            hard,
            last: 0,
            snapshot,
            salt,
            segment: SEGMENT,
        }
    }

    /// There is no identity. Removes what [`Log::begin`] has left if a crash has ended it.
    /// If there is more than that, it changes nothing.
    fn remove_begun(&mut self, names: &[String]) -> Result<(), OpenError> {
        let mut begun = Vec::new();
        for name in names {
            let is_begun = match segment_number(name) {
                // A node has said nothing to others before it has more than the mark.
                Some(1) => {
                    let bytes = self.files.read(name).map_err(DiskError::of("read", name))?;
                    bytes.len() <= frame::MARK
                }
                Some(_) => false,
                None if snapshot::is_name(name) => *name == snapshot::name(1),
                None => continue,
            };
            if !is_begun {
                return Err(OpenError::damaged(IDENTITY, "it is missing, but there is a log"));
            }
            begun.push(name);
        }
        for name in begun {
            self.remove(name)?;
        }
        Ok(())
    }

    /// Writes the identity, and what the node starts from. `salt` is a random number.
    ///
    /// # Errors
    /// [`DiskError`]
    pub fn begin(
        &mut self,
        identity: &Identity,
        first: &Snapshot,
        salt: u32,
    ) -> Result<(), DiskError> {
        (self.salt, self.snapshot, self.last) = (salt, first.at, first.at.index);
        if first.at.index > 0 {
            self.write_snapshot(first)?;
        }
        self.begin_segment()?;
        // Last: without it, the node is new.
        let written = self.files.replace(IDENTITY, &identity.encode(salt));
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
        if self.segments.last().is_none_or(|segment| segment.len >= self.segment) {
            self.begin_segment()?;
        }
        let mut bytes = Vec::new();
        frame::put_writes(&mut bytes, self.salt, self.next, writes);
        let entries = writes.iter().flat_map(|write| &write.entries);
        let last = entries.map(|entry| entry.at.index).max().unwrap_or(0);
        let installed = writes.iter().filter_map(|write| write.snapshot.as_ref()).next_back();
        let last = last.max(installed.map_or(0, |snapshot| snapshot.at.index));
        self.append(&bytes, last)?;
        for write in writes {
            let installed = write.snapshot.as_ref().map(|snapshot| snapshot.at.index);
            let last = installed.unwrap_or(self.last).min(write.end.unwrap_or(u64::MAX));
            self.last = write.entries.last().map_or(last, |entry| entry.at.index);
        }
        self.hard = writes.iter().filter_map(|write| write.hard).next_back().unwrap_or(self.hard);
        if let Some(installed) = installed {
            self.snapshot = installed.at;
            self.clean()?;
        }
        Ok(())
    }

    /// Writes a snapshot of the node's own state. Deletes what it makes obsolete.
    ///
    /// # Errors
    /// [`DiskError`]. The log must not be used any more.
    pub fn save(&mut self, snapshot: &Snapshot) -> Result<(), DiskError> {
        self.write_snapshot(snapshot)?;
        self.snapshot = snapshot.at;
        // The segment that ends here becomes obsolete with one of the next snapshots.
        self.begin_segment()?;
        self.clean()
    }

    /// Bytes of a segment, after which another one begins. 64 MiB if it is not set.
    ///
    /// Segments are deleted as a whole, so large ones keep obsolete entries for longer. Each costs a file
    /// and two syncs.
    pub fn set_segment(&mut self, bytes: u64) {
        self.segment = bytes;
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

    /// Begins a segment with a mark. If the last one is empty because its mark was torn, it is that one.
    fn begin_segment(&mut self) -> Result<(), DiskError> {
        if self.segments.last().is_none_or(|segment| segment.len > 0) {
            let number = self.segments.last().map_or(1, |segment| segment.number + 1);
            self.segments.push(Segment { number, len: 0, last: 0 });
        }
        let bytes = frame::mark(self.salt, self.next, self.last, self.snapshot, &self.hard);
        self.append(&bytes, self.snapshot.index)
    }

    fn append(&mut self, bytes: &[u8], last: u64) -> Result<(), DiskError> {
        let Some(segment) = self.segments.last_mut() else { unreachable!("one was begun") };
        let name = segment_name(segment.number);
        self.files.append(&name, bytes).map_err(DiskError::of("write", &name))?;
        self.files.sync(&name).map_err(DiskError::of("sync", &name))?;
        segment.len += bytes.len() as u64;
        segment.last = segment.last.max(last);
        self.next += 1;
        Ok(())
    }

    /// Deletes snapshots and segments that the last snapshot makes obsolete. The last segment stays.
    fn clean(&mut self) -> Result<(), DiskError> {
        let keep = snapshot::name(self.snapshot.index);
        let names = self.files.list().map_err(DiskError::of("list", "the folder"))?;
        for name in names.iter().filter(|name| snapshot::is_name(name) && **name != keep) {
            self.remove(name)?;
        }
        while self.segments.len() > 1 && self.segments[0].last <= self.snapshot.index {
            let name = segment_name(self.segments.remove(0).number);
            self.remove(&name)?;
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.files.remove(name).map_err(DiskError::of("remove", name))
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
            self.next = frame::first_number(&file, self.salt).unwrap_or(self.next);
        }
        let mut torn = 0;
        loop {
            match frame::next(&file, segment.len as usize, self.salt, self.next) {
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
        if is_last {
            // A process that died may have written frames that a crash of the machine would still take.
            self.files.sync(&name).map_err(DiskError::of("sync", &name))?;
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
            Self::Snapshot(at) | Self::Mark { at, .. } => at.index,
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
                self.note(at)?;
                // All of them, as the node has done: entries that contradict it may be in removed segments.
                self.start.entries.clear();
            }
            Record::Mark { at, last } => {
                self.note(at)?;
                let entries = &mut self.start.entries;
                // The mark may be all that is left of a snapshot that has replaced these entries. The one
                // that contradicts it may be in a removed segment, but `last` says where the log ended.
                entries.retain(|entry| entry.at.index > at.index && entry.at.index <= last);
                let found = entries.last().map_or(0, |entry| entry.at.index);
                if last > found.max(self.start.snapshot.at.index) {
                    return Err(format!("entries up to {last} are missing before it"));
                }
            }
        }
        Ok(())
    }

    /// The log names a snapshot.
    fn note(&mut self, at: Position) -> Result<(), String> {
        if self.start.snapshot.at.index < at.index {
            let index = at.index;
            return Err(format!("the snapshot of entry {index} is missing, or a later one"));
        }
        self.mark = Some(at.index);
        Ok(())
    }

    /// The log before a snapshot is obsolete, and after it unless it contradicts the snapshot.
    fn cut(&mut self, at: Position) {
        let entries = &mut self.start.entries;
        let follows = entries.iter().any(|entry| entry.at == at)
            || entries.first().is_some_and(|first| first.at.index == at.index + 1);
        if follows {
            entries.retain(|entry| entry.at.index > at.index);
        } else {
            entries.clear();
        }
    }

    /// Whether the log names the last snapshot. If a crash came before that, the one that it names is still
    /// there.
    fn is_marked(&self, snapshots: &[&String]) -> Result<bool, OpenError> {
        let last = self.start.snapshot.at.index;
        let Some(mark) = self.mark else {
            return Err(OpenError::damaged("the log", "it is missing"));
        };
        if mark < last && mark > 0 && !snapshots.contains(&&snapshot::name(mark)) {
            let why = format!("its end is missing: there is a later snapshot, of entry {last}");
            return Err(OpenError::damaged("the log", why));
        }
        Ok(mark == last)
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
    fn encode(&self, salt: u32) -> Vec<u8> {
        let mut out = b"raftid03".to_vec();
        out.extend_from_slice(&salt.to_le_bytes());
        out.extend_from_slice(&self.node.to_le_bytes());
        crate::wire::put_bytes(&mut out, self.cluster.as_bytes());
        crate::wire::put_bytes(&mut out, self.algorithm.as_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// With the salt.
    fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut reader = crate::wire::Reader::new(body.strip_prefix(b"raftid03")?);
        let (salt, node) = (reader.u32()?, reader.u64()?);
        let mut text = || String::from_utf8(reader.bytes()?.to_vec()).ok();
        Some((Self { cluster: text()?, algorithm: text()?, node }, salt))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} of cluster {:?}, with {}", self.node, self.cluster, self.algorithm)
    }
}

/// Returns the salt.
fn check_identity(files: &impl Files, wanted: &Identity) -> Result<u32, OpenError> {
    let bytes = files.read(IDENTITY).map_err(DiskError::of("read", IDENTITY))?;
    let found = Identity::decode(&bytes);
    let (found, salt) =
        found.ok_or_else(|| OpenError::damaged(IDENTITY, "its checksum is wrong"))?;
    if found == *wanted {
        return Ok(salt);
    }
    Err(OpenError::Foreign { found: found.to_string(), wanted: wanted.to_string() })
}

fn segment_name(number: u64) -> String {
    format!("log-{number:020}")
}

fn segment_number(name: &str) -> Option<u64> {
    name.strip_prefix("log-")?.parse().ok()
}
