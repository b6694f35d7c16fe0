use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::{Files, Identity, Log, OpenError};
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
    opened.log.begin(&identity(), &first).expect("it is in memory");
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
    expect(&remove("snapshot-"), "the snapshot of entry 6 is missing");
    expect(&remove("identity"), "identity is damaged: it is missing");
    expect(
        &|files| files.0.borrow_mut().values_mut().for_each(|bytes| bytes[9] ^= 1),
        "identity is damaged",
    );
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
