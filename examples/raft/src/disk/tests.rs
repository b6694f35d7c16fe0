use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{fs, io};

use super::system::Call;
use super::system::recorder;
use super::{Files, Folder, Identity, Log, OpenError, frame};
use crate::consensus::{Addresses, Entry, EntryKind, HardState, Position, Snapshot, Start, Write};

/// Files in memory. Clones are the same files.
#[derive(Clone, Debug, Default)]
struct MemFiles(Rc<RefCell<BTreeMap<String, Vec<u8>>>>);

impl Files for MemFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.0.borrow().get(name).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().entry(name.into()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().insert(name.into(), bytes.to_vec());
        Ok(())
    }

    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()> {
        if let Some(bytes) = self.0.borrow_mut().get_mut(name) {
            bytes.truncate(len as usize);
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.0.borrow_mut().remove(name);
        Ok(())
    }
}

impl MemFiles {
    /// Other files with the same bytes.
    fn copy(&self) -> Self {
        Self(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    fn log(&self) -> String {
        let names = self.list().expect("it is in memory");
        names.into_iter().rfind(|name| name.starts_with("log-")).expect("there is a log")
    }
}

const SALT: u32 = 0x5eed;

fn identity() -> Identity {
    Identity { cluster: "test".into(), algorithm: "raft".into(), node: 1 }
}

fn entry(term: u64, index: u64) -> Entry {
    let data = format!("entry {index} of term {term}").into();
    let at = Position { term, index };
    Entry { at, kind: EntryKind::Command, data, context: Default::default() }
}

fn write(ticket: u64, entries: Vec<Entry>, commit: u64) -> Write {
    let hard = Some(HardState { term: 2, vote: 1, commit });
    Write { ticket, entries, hard, ..Write::default() }
}

fn begun() -> (MemFiles, Log<MemFiles>) {
    let files = MemFiles::default();
    let mut opened = Log::open(files.clone(), &identity()).expect("it is new");
    assert!(opened.start.is_none());
    let first = Start::first(Addresses([(1, "a".to_owned())].into())).snapshot;
    opened.log.begin(&identity(), &first, SALT).expect("it is in memory");
    (files, opened.log)
}

fn reopened(files: &MemFiles) -> Result<Start, OpenError> {
    Log::open(files.clone(), &identity()).map(|opened| opened.start.expect("it is not new"))
}

/// Three frames with the entries 2 to 7.
fn written() -> (MemFiles, Log<MemFiles>) {
    let (files, mut log) = begun();
    for frame in 1..=3 {
        let entries = vec![entry(2, 2 * frame), entry(2, 2 * frame + 1)];
        log.write(&[write(frame, entries, 2 * frame)]).expect("it is in memory");
    }
    (files, log)
}

#[test]
fn what_was_written_is_read_again() {
    let (files, _) = written();
    let start = reopened(&files).expect("it is whole");
    assert_eq!(start.hard, HardState { term: 2, vote: 1, commit: 6 });
    assert_eq!(start.snapshot.at, Position { term: 1, index: 1 });
    assert_eq!(start.entries, (2..=7).map(|index| entry(2, index)).collect::<Vec<_>>());
}

#[test]
fn later_entries_replace_earlier_ones() {
    let (files, mut log) = written();
    let hard = HardState { term: 3, vote: 2, commit: 4 };
    let entries = vec![entry(3, 5)];
    log.write(&[Write { ticket: 4, entries, hard: Some(hard), ..Write::default() }])
        .expect("memory");
    let start = reopened(&files).expect("it is whole");
    let expected = [entry(2, 2), entry(2, 3), entry(2, 4), entry(3, 5)];
    assert_eq!((start.entries, start.hard), (expected.to_vec(), hard));
}

#[test]
fn snapshots_make_files_obsolete_and_keep_the_votes() {
    let (files, mut log) = written();
    for index in [4, 6] {
        let at = Position { term: 2, index };
        log.save(&Snapshot { at, data: "state".into(), ..Snapshot::default() }).expect("memory");
    }
    let names = files.list().expect("memory");
    assert_eq!(names.iter().filter(|name| name.starts_with("snapshot-")).count(), 1, "{names:?}");
    let start = reopened(&files).expect("it is whole");
    assert_eq!(start.snapshot.at.index, 6);
    assert_eq!((start.entries, start.hard.vote), (vec![entry(2, 7)], 1));
}

#[test]
fn full_segments_keep_what_follows_the_snapshot() {
    let (files, mut log) = begun();
    log.set_segment(200);
    let at = Position { term: 2, index: 6 };
    for index in 2..=20 {
        log.write(&[write(index, vec![entry(2, index)], index - 1)]).expect("memory");
        if index == 12 {
            log.save(&Snapshot { at, data: "state".into(), ..Snapshot::default() })
                .expect("memory");
        }
    }
    let names = files.list().expect("memory");
    assert!(names.iter().filter(|name| name.starts_with("log-")).count() > 5, "{names:?}");
    assert!(!names.contains(&"log-00000000000000000001".to_owned()), "{names:?}");
    let start = reopened(&files).expect("it is whole");
    assert_eq!(start.snapshot.at, at);
    assert_eq!(start.entries, (7..=20).map(|index| entry(2, index)).collect::<Vec<_>>());
    assert_eq!(start.hard, HardState { term: 2, vote: 1, commit: 19 });
}

#[test]
fn a_snapshot_of_another_node_replaces_the_log() {
    let (files, mut log) = written();
    let at = Position { term: 2, index: 20 };
    let snapshot = Snapshot { at, data: "state".into(), ..Snapshot::default() };
    let install = Write { snapshot: Some(snapshot), ..write(4, vec![entry(2, 21)], 20) };
    log.write(&[install]).expect("memory");
    let start = reopened(&files).expect("it is whole");
    assert_eq!((start.snapshot.at, start.entries), (at, vec![entry(2, 21)]));
}

/// The end of the log is cut off or damaged at each byte of its last frame: the frame is as if it had
/// never been written, and the log goes on.
#[test]
fn a_torn_end_is_removed() {
    let (files, _) = written();
    let name = files.log();
    let whole = files.read(&name).expect("memory");
    let end_of_second = {
        let (files, mut log) = begun();
        for frame in 1..=2 {
            let entries = vec![entry(2, 2 * frame), entry(2, 2 * frame + 1)];
            log.write(&[write(frame, entries, 2 * frame)]).expect("memory");
        }
        files.read(&name).expect("memory").len()
    };
    for at in end_of_second..whole.len() {
        for cut in [true, false] {
            let files = files.copy();
            let mut bytes = whole.clone();
            if cut {
                bytes.truncate(at)
            } else {
                bytes[at] ^= 1
            }
            files.0.borrow_mut().insert(name.clone(), bytes);
            let opened = Log::open(files.clone(), &identity()).expect("only the end is torn");
            assert_eq!(opened.torn > 0, at > end_of_second || !cut);
            assert_eq!(opened.start.map(|start| start.entries.len()), Some(4), "byte {at}");
            let mut log = opened.log;
            log.write(&[write(9, vec![entry(2, 6)], 5)]).expect("memory");
            assert_eq!(reopened(&files).expect("it is whole").entries.len(), 5, "byte {at}");
        }
    }
}

#[test]
fn a_damaged_byte_before_the_end_is_an_error() {
    let (files, _) = written();
    let name = files.log();
    let whole = files.read(&name).expect("memory");
    // The last frame is one third.
    for at in 0..whole.len() / 3 * 2 {
        let files = files.copy();
        if let Some(bytes) = files.0.borrow_mut().get_mut(&name) {
            bytes[at] ^= 0x20;
        }
        let error = reopened(&files).expect_err("it is damaged");
        assert!(matches!(error, OpenError::Damaged { .. }), "byte {at}: {error}");
    }
}

#[test]
fn missing_and_damaged_files_are_errors_that_name_them() {
    let expect = |change: &dyn Fn(&MemFiles), text: &str| {
        let (files, mut log) = written();
        let at = Position { term: 2, index: 6 };
        log.save(&Snapshot { at, data: "state".into(), ..Snapshot::default() }).expect("memory");
        change(&files);
        let error = reopened(&files).expect_err("something is wrong").to_string();
        assert!(error.contains(text), "{error}");
    };
    let remove = |prefix: &'static str| {
        move |files: &MemFiles| files.0.borrow_mut().retain(|name, _| !name.starts_with(prefix))
    };
    expect(&remove("snapshot-"), "the snapshot of entry 1 is missing, or a later one");
    expect(&remove("identity"), "identity is damaged: it is missing");
    expect(&remove("log-"), "the log is damaged: it is missing");
    // The first segment has entry 7, the second one begins with the snapshot.
    expect(&remove("log-00000000000000000001"), "entries up to 7 are missing");
    expect(&remove("log-00000000000000000002"), "a later snapshot, of entry 6");
    expect(
        &|files| files.0.borrow_mut().values_mut().for_each(|bytes| bytes[9] ^= 1),
        "identity is damaged",
    );
}

#[test]
fn a_young_node_without_its_log_is_refused() {
    let (files, _) = begun();
    files.0.borrow_mut().retain(|name, _| !name.starts_with("log-"));
    let error = reopened(&files).expect_err("its vote is lost").to_string();
    assert!(error.contains("the log is damaged: it is missing"), "{error}");
}

/// The files after each of the steps in which a node begins, as a crash may leave them.
#[test]
fn a_begin_that_a_crash_has_ended_is_repeated() {
    let (whole, _) = begun();
    let names = ["snapshot-00000000000000000001", "log-00000000000000000001", "identity"];
    for steps in 0..names.len() {
        let files = whole.copy();
        files.0.borrow_mut().retain(|name, _| names[..steps].contains(&name.as_str()));
        let mut opened = Log::open(files.clone(), &identity()).expect("nothing is lost");
        assert!(opened.start.is_none(), "{steps} steps");
        let first = Start::first(Addresses([(1, "a".to_owned())].into())).snapshot;
        opened.log.begin(&identity(), &first, SALT).expect("it is in memory");
        assert_eq!(*files.0.borrow(), *whole.0.borrow());
    }
}

/// A crash after a snapshot was written, and before the log names it.
#[test]
fn a_snapshot_that_a_crash_has_interrupted_is_finished() {
    let (files, mut log) = written();
    let at = |index| Position { term: 2, index };
    let snapshot = |index| Snapshot { at: at(index), data: "state".into(), ..Snapshot::default() };
    log.save(&snapshot(4)).expect("memory");
    let crashed = files.copy();
    log.save(&snapshot(6)).expect("memory");
    let name = "snapshot-00000000000000000006";
    let bytes = files.read(name).expect("it was written");
    crashed.0.borrow_mut().insert(name.into(), bytes);
    for turn in 0..2 {
        let start = reopened(&crashed).expect("it is whole");
        assert_eq!((start.snapshot.at, start.entries), (at(6), vec![entry(2, 7)]), "turn {turn}");
        assert_eq!(start.hard, HardState { term: 2, vote: 1, commit: 6 });
    }
}

/// A crash after the snapshot of another node was written, and before the frame that names it. The log is
/// longer than the snapshot.
#[test]
fn an_install_that_a_crash_has_interrupted_is_finished() {
    let at = |term| Position { term, index: 4 };
    // Entries that contradict the snapshot are gone for good, the others stay.
    let kept: Vec<_> = (5..=7).map(|index| entry(2, index)).collect();
    let cases = [1, 1 << 20].map(|segment| [(segment, 5, vec![]), (segment, 2, kept.clone())]);
    for (segment, term, left) in cases.into_iter().flatten() {
        let (files, mut log) = begun();
        // With small segments, the first restart removes the entry that contradicts the snapshot.
        log.set_segment(segment);
        for indices in [2..=4, 5..=7] {
            let entries = indices.map(|index| entry(2, index)).collect();
            log.write(&[write(1, entries, 2)]).expect("memory");
        }
        let crashed = files.copy();
        let snapshot = Snapshot { at: at(term), data: "state".into(), ..Snapshot::default() };
        let install = Write { snapshot: Some(snapshot), ..write(2, Vec::new(), 4) };
        log.write(&[install]).expect("memory");
        let name = "snapshot-00000000000000000004";
        let bytes = files.read(name).expect("it was written");
        crashed.0.borrow_mut().insert(name.into(), bytes);
        for turn in 0..3 {
            let start = reopened(&crashed).expect("it is whole");
            assert_eq!((start.snapshot.at, &start.entries), (at(term), &left), "turn {turn}");
            assert_eq!(start.hard, HardState { term: term.max(2), vote: 1, commit: 4 });
        }
        // Without the crash, the log ends with the snapshot.
        let start = reopened(&files).expect("it is whole");
        assert_eq!((start.snapshot.at, start.entries), (at(term), vec![]));
    }
}

/// The same, if the log ends before the snapshot, and goes on after it before the next restart.
#[test]
fn a_log_that_ends_before_a_snapshot_goes_on_after_it() {
    let (crashed, _) = written();
    let (files, mut log) = begun();
    let at = Position { term: 5, index: 9 };
    let snapshot = Snapshot { at, data: "state".into(), ..Snapshot::default() };
    let install = Write { snapshot: Some(snapshot), ..Write::default() };
    log.write(&[install]).expect("memory");
    let name = "snapshot-00000000000000000009";
    crashed.0.borrow_mut().insert(name.into(), files.read(name).expect("it was written"));
    let mut log = Log::open(crashed.clone(), &identity()).expect("it is whole").log;
    log.write(&[write(4, vec![entry(5, 10)], 9)]).expect("memory");
    for _ in 0..2 {
        let start = reopened(&crashed).expect("it is whole");
        assert_eq!((start.snapshot.at, start.entries), (at, vec![entry(5, 10)]));
    }
}

/// A segment is full. The mark of the next one is torn at each of its bytes.
#[test]
fn a_torn_mark_of_a_full_segment_is_written_again() {
    let (files, mut log) = written();
    let name = "log-00000000000000000002";
    log.set_segment(1);
    log.write(&[write(4, vec![entry(2, 8)], 6)]).expect("memory");
    let whole = files.read(name).expect("it was begun");
    for len in 0..frame::MARK {
        let files = written().0;
        files.0.borrow_mut().insert(name.into(), whole[..len].to_vec());
        let mut log = Log::open(files.clone(), &identity()).expect("only the end is torn").log;
        log.write(&[write(4, vec![entry(2, 8)], 6)]).expect("memory");
        assert_eq!(files.read(name).expect("it is used again"), whole, "{len} bytes");
        let start = reopened(&files).expect("it is whole");
        assert_eq!(start.entries, (2..=8).map(|index| entry(2, index)).collect::<Vec<_>>());
        // The log's begin is missed.
        files.0.borrow_mut().remove("log-00000000000000000001");
        let error = reopened(&files).expect_err("entries are lost").to_string();
        assert!(error.contains("entries up to 7 are missing"), "{error}");
    }
}

/// The first segment has its mark only, as a begin leaves it. The second one tells that the node was more.
#[test]
fn a_folder_that_is_refused_is_not_changed() {
    let (files, mut log) = begun();
    let at = Position { term: 1, index: 1 };
    let bytes = files.read("log-00000000000000000001").expect("it was begun");
    log.save(&Snapshot { at, data: "state".into(), ..Snapshot::default() }).expect("memory");
    files.0.borrow_mut().insert("log-00000000000000000001".into(), bytes);
    files.0.borrow_mut().remove("identity");
    let before = files.copy();
    let error = reopened(&files).expect_err("it is no new node").to_string();
    assert!(error.contains("identity is damaged: it is missing"), "{error}");
    assert_eq!(*files.0.borrow(), *before.0.borrow());
}

/// A folder may forget that files were removed, any of them.
#[test]
fn removed_files_may_come_back() {
    let (files, mut log) = begun();
    let mut removed = BTreeMap::new();
    for index in 2..=6 {
        log.write(&[write(index, vec![entry(2, index), entry(2, index + 1)], index)])
            .expect("memory");
        let before = files.copy();
        let at = Position { term: 2, index: index + 1 };
        // Without entries after the snapshot, all earlier segments are obsolete.
        log.save(&Snapshot { at, data: "state".into(), ..Snapshot::default() }).expect("memory");
        removed.extend(before.0.take());
    }
    let expected = reopened(&files).expect("it is whole");
    removed.retain(|name, _| !files.0.borrow().contains_key(name));
    assert!(removed.len() >= 8, "{:?}", removed.keys());
    for subset in 0..1 << removed.len() {
        let files = files.copy();
        let returned = removed.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
        let returned = returned.map(|(_, (name, bytes))| (name.clone(), bytes.clone()));
        files.0.borrow_mut().extend(returned);
        for _ in 0..2 {
            let start = reopened(&files).unwrap_or_else(|error| panic!("{subset:b}: {error}"));
            assert_eq!(start.snapshot, expected.snapshot, "{subset:b}");
            assert_eq!((start.hard, &start.entries), (expected.hard, &expected.entries));
        }
    }
}

/// A client's value may look like a frame. With another salt, it is none.
#[test]
fn a_frame_in_a_torn_value_is_no_damage() {
    for (salt, is_found) in [(SALT ^ 1, false), (SALT, true)] {
        let (files, mut log) = written();
        let forged =
            frame::mark(salt, 1000, 4, Position { term: 2, index: 4 }, &HardState::default());
        let data = [forged, vec![0; 100]].concat().into();
        let entries = vec![Entry { data, ..entry(2, 8) }];
        log.write(&[write(4, entries, 6)]).expect("memory");
        let name = files.log();
        if let Some(bytes) = files.0.borrow_mut().get_mut(&name) {
            bytes.truncate(bytes.len() - 50);
        }
        let start = reopened(&files);
        // With the same salt, the frame that ends early seems to be damaged.
        assert_eq!(start.is_err(), is_found, "{start:?}");
    }
}

#[test]
fn the_data_of_another_node_are_refused() {
    let (files, _) = written();
    for other in [
        Identity { node: 2, ..identity() },
        Identity { cluster: "other".into(), ..identity() },
        Identity { algorithm: "omni-paxos".into(), ..identity() },
    ] {
        let error = Log::open(files.clone(), &other).expect_err("it is another node").to_string();
        let names = ["node 1 of cluster \"test\"", &other.to_string()];
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
    }
}

#[test]
fn entries_after_the_end_are_forgotten() {
    let (files, mut log) = begun();
    log.write(&[write(1, (2..=9).map(|index| entry(2, index)).collect(), 1)]).expect("memory");
    let end = |ticket, end, entries| Write { end: Some(end), ..write(ticket, entries, 1) };
    let last = |files| {
        let start = reopened(files).expect("it is whole");
        start.entries.last().map(|entry| entry.at)
    };
    log.write(&[end(2, 5, Vec::new())]).expect("memory");
    assert_eq!(last(&files), Some(Position { term: 2, index: 5 }));
    // One more than there is changes nothing.
    log.write(&[end(3, 6, Vec::new()), end(4, 3, vec![entry(3, 4)])]).expect("memory");
    assert_eq!(last(&files), Some(Position { term: 3, index: 4 }));
    log.write(&[end(5, 1, Vec::new())]).expect("memory");
    assert_eq!(last(&files), None);
}

#[test]
fn a_log_that_has_lost_committed_entries_is_refused() {
    let (files, mut log) = begun();
    log.write(&[write(1, vec![entry(2, 2)], 9)]).expect("memory");
    let error = reopened(&files).expect_err("entries are missing").to_string();
    assert!(error.contains("ends with entry 2, but entry 9 was committed"), "{error}");
}

/// What a crash of the machine may take, derived from the calls of a [`Folder`].
#[derive(Debug, Default)]
struct AtRisk {
    /// Files whose bytes changed after they were synced.
    bytes: BTreeSet<PathBuf>,
    /// Files and folders whose names changed after the folder that they are in was synced.
    names: BTreeSet<PathBuf>,
}

impl AtRisk {
    fn follow(&mut self, calls: Vec<(Call, PathBuf)>) {
        for (call, path) in calls {
            match call {
                Call::Create => {
                    self.names.insert(path);
                }
                Call::Change => {
                    self.bytes.insert(path);
                }
                Call::Sync => {
                    self.bytes.remove(&path);
                    self.names.retain(|name| name.parent() != Some(&path));
                }
                Call::Rename => {
                    assert!(!self.bytes.contains(&path), "{path:?} gets its name before its bytes");
                    self.names.remove(&path);
                    self.names.insert(path.with_extension(""));
                }
                // It may come back.
                Call::Remove => {
                    self.bytes.remove(&path);
                    self.names.remove(&path);
                }
            }
        }
    }

    fn is_nothing(&self) -> bool {
        self.bytes.is_empty() && self.names.is_empty()
    }
}

/// A life of a folder: it calls each of its methods that returns when something survives a crash. After each
/// of them, it calls `after`.
fn live(path: &Path, after: &mut dyn FnMut(&str)) -> io::Result<()> {
    let other = |error: OpenError| io::Error::other(error.to_string());
    let mut folder = Folder::open(path).map_err(other)?;
    after("open");
    for part in ["first", "second"] {
        for name in ["log-1", "log-2"] {
            folder.append(name, part.as_bytes())?;
            folder.sync(name)?;
            after("sync");
        }
        folder.replace("identity", part.as_bytes())?;
        after("replace");
        folder.truncate("log-1", 3)?;
        after("truncate");
    }
    folder.remove("log-1")
}

struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let temporary = fs::canonicalize(std::env::temp_dir()).expect("there is a folder for them");
        let path = temporary.join(format!("erpc-raft-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("there is room");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

#[test]
fn what_a_folder_has_done_survives_a_crash_of_the_machine() {
    let temporary = Temporary::new("done");
    let mut at_risk = AtRisk::default();
    recorder::begin(usize::MAX);
    let lived = live(&temporary.0.join("above/data"), &mut |method| {
        at_risk.follow(recorder::calls());
        assert!(at_risk.is_nothing(), "after {method}: {at_risk:?}");
    });
    lived.expect("there is room");
}

/// The process dies before each of its calls. The next one must not build on names that a crash of the
/// machine may still take.
#[test]
fn a_folder_is_safe_when_it_is_opened_again() {
    let temporary = Temporary::new("again");
    for limit in 0.. {
        let path = temporary.0.join(limit.to_string()).join("above/data");
        let mut at_risk = AtRisk::default();
        recorder::begin(limit);
        let has_died = live(&path, &mut |_| {}).is_err();
        at_risk.follow(recorder::calls());
        recorder::begin(usize::MAX);
        drop(Folder::open(&path).expect("there is room"));
        at_risk.follow(recorder::calls());
        assert!(at_risk.names.is_empty(), "after {limit} calls: {at_risk:?}");
        if !has_died {
            assert!(limit > 20, "{limit} calls");
            break;
        }
    }
}
