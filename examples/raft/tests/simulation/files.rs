//! A disk in virtual time, which loses what was not synced.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use std::{io, mem};

use erpc_raft::consensus::{
    Addresses, Entry, EntryKind, HardState, Position, Snapshot, Start, Write,
};
use erpc_raft::disk::{Disk, DiskError, Files, Identity, Job, Log, OpenError};
use erpc_raft::node::Inbox;

use erpc_test_tools::random::Random;

/// The files of a node. Clones are the same files.
#[derive(Clone, Default)]
pub(crate) struct SimFiles(Rc<RefCell<Folder>>);

#[derive(Clone, Default)]
struct Folder {
    files: BTreeMap<String, SimFile>,
    /// Files that were removed since the folder was synced.
    removed: BTreeMap<String, SimFile>,
    /// A sync of this file takes a while. It ends when something else is done, or with
    /// [`SimFiles::settle`].
    syncing: Option<String>,
    life: Life,
}

#[derive(Clone, Default)]
struct SimFile {
    bytes: Vec<u8>,
    /// So many bytes survive a crash.
    synced: usize,
    /// A crash does not forget the file, even if it is empty.
    has_name: bool,
}

/// How long the process lives.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Unlimited,
    /// The process dies after so many changes of files. They are counted from the next
    /// [`Files::replace`] on if `is_waiting`.
    Changes { left: u64, is_waiting: bool },
    /// It has died, and nothing can be done.
    Over,
}

impl SimFiles {
    /// The machine crashes, or its process alone. Of what was not synced, a part survives, and a part of
    /// that is damaged. Some files that were removed come back. Returns the number of those.
    pub(crate) fn crash(&self, random: &mut Random) -> u64 {
        let folder = &mut *self.0.borrow_mut();
        (folder.life, folder.syncing) = (Life::Unlimited, None);
        if random.percent(25) {
            // The process alone: the system still has all. But a crash of the machine may come yet.
            return 0;
        }
        folder.files.retain(|_, file| {
            let unsynced = file.bytes.len() - file.synced;
            let survives = match random.below(3) {
                0 => 0,
                1 => unsynced,
                _ => random.below(unsynced as u64 + 1) as usize,
            };
            file.bytes.truncate(file.synced + survives);
            if survives > 0 && random.percent(50) {
                let at = file.synced + random.below(survives as u64) as usize;
                file.bytes[at] ^= 1 << random.below(8);
            }
            file.synced = file.bytes.len();
            file.has_name |= !file.bytes.is_empty() || random.percent(50);
            file.has_name
        });
        let mut returned = 0;
        for (name, file) in mem::take(&mut folder.removed) {
            if random.percent(50) {
                returned += 1;
                folder.files.insert(name, file);
            }
        }
        returned
    }

    /// The process will die after so many changes of files, or after so many from the next snapshot on.
    pub(crate) fn die_after(&self, changes: u64, from_snapshot: bool) {
        self.0.borrow_mut().life = Life::Changes { left: changes, is_waiting: from_snapshot };
    }

    /// The process will not die, unless it has.
    pub(crate) fn live_on(&self) {
        let folder = &mut *self.0.borrow_mut();
        if folder.life != Life::Over {
            folder.life = Life::Unlimited;
        }
    }

    /// The process has died. It is time for [`SimFiles::crash`].
    pub(crate) fn is_over(&self) -> bool {
        self.0.borrow().life == Life::Over
    }

    /// Other files with the same bytes.
    fn copy(&self) -> Self {
        Self(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    /// The last sync has ended.
    pub(crate) fn settle(&self) {
        self.0.borrow_mut().settle();
    }
}

impl Folder {
    fn settle(&mut self) {
        let name = self.syncing.take_if(|_| self.life != Life::Over);
        if let Some(file) = name.and_then(|name| self.files.get_mut(&name)) {
            (file.synced, file.has_name) = (file.bytes.len(), true);
        }
    }

    /// Something is done: so what was done before has ended.
    fn look(&mut self) -> io::Result<()> {
        self.settle();
        if self.life == Life::Over { Err(io::Error::other("the process has died")) } else { Ok(()) }
    }

    /// A file is changed, or the process dies before that.
    fn change(&mut self) -> io::Result<()> {
        self.settle();
        if let Life::Changes { left, is_waiting: false } = &mut self.life {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => self.life = Life::Over,
            }
        }
        self.look()
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Files for SimFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut folder = self.0.borrow_mut();
        folder.look()?;
        Ok(folder.files.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut folder = self.0.borrow_mut();
        folder.look()?;
        folder.files.get(name).map(|file| file.bytes.clone()).ok_or_else(missing)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut folder = self.0.borrow_mut();
        folder.change()?;
        if !folder.files.contains_key(name) {
            folder.removed.clear();
        }
        folder.files.entry(name.into()).or_default().bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends later.
    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut folder = self.0.borrow_mut();
        folder.change()?;
        if !folder.files.contains_key(name) {
            return Err(missing());
        }
        folder.syncing = Some(name.into());
        Ok(())
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut folder = self.0.borrow_mut();
        if let Life::Changes { is_waiting, .. } = &mut folder.life {
            *is_waiting = false;
        }
        folder.change()?;
        let file = SimFile { bytes: bytes.to_vec(), synced: bytes.len(), has_name: true };
        folder.files.insert(name.into(), file);
        folder.removed.clear();
        Ok(())
    }

    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()> {
        let mut folder = self.0.borrow_mut();
        folder.change()?;
        let file = folder.files.get_mut(name).ok_or_else(missing)?;
        file.bytes.truncate(len as usize);
        (file.synced, file.has_name) = (file.bytes.len(), true);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut folder = self.0.borrow_mut();
        folder.change()?;
        let file = folder.files.remove(name).ok_or_else(missing)?;
        folder.removed.insert(name.into(), file);
        Ok(())
    }
}

/// Writes after a delay, in which further jobs wait and are written together.
pub(crate) struct SimDisk {
    state: Rc<RefCell<State>>,
}

struct State {
    log: Log<SimFiles>,
    jobs: VecDeque<Job>,
    is_writing: bool,
    written: Result<u64, DiskError>,
    random: Random,
    inbox: Rc<Inbox>,
}

impl SimDisk {
    pub(crate) fn new(log: Log<SimFiles>, random: Random, inbox: Rc<Inbox>) -> Self {
        let state =
            State { log, jobs: VecDeque::new(), is_writing: false, written: Ok(0), random, inbox };
        Self { state: Rc::new(RefCell::new(state)) }
    }
}

impl Disk for SimDisk {
    fn submit(&mut self, job: Job) {
        let mut state = self.state.borrow_mut();
        state.jobs.push_back(job);
        if !mem::replace(&mut state.is_writing, true) {
            drop(erpc::spawn(write(Rc::clone(&self.state))));
        }
    }

    fn written(&mut self) -> Result<u64, DiskError> {
        self.state.borrow().written.clone()
    }
}

/// Dropped in the middle if the node crashes. Then the last sync has not ended.
async fn write(state: Rc<RefCell<State>>) {
    loop {
        let (ticket, delay) = {
            let mut state = state.borrow_mut();
            let longest = 1 << state.random.within(6, 13);
            let delay = Duration::from_micros(state.random.below(longest));
            let is_write = |job: &Job| matches!(job, Job::Write(_));
            let count = state.jobs.iter().take_while(|job| is_write(job)).count();
            let writes: Vec<Write> = state.jobs.drain(..count).filter_map(write_of).collect();
            match (writes.last().map(|write| write.ticket), state.jobs.pop_front_snapshot()) {
                (Some(ticket), snapshot) => {
                    let result = if writes.iter().all(Write::is_empty) {
                        Ok(())
                    } else {
                        state.log.write(&writes)
                    };
                    if let Some(snapshot) = snapshot {
                        state.jobs.push_front(Job::Snapshot(snapshot));
                    }
                    (result.map(|()| Some(ticket)), delay)
                }
                (None, Some(snapshot)) => {
                    let result = state.log.save(&snapshot);
                    (result.map(|()| None), delay)
                }
                (None, None) => {
                    state.is_writing = false;
                    return;
                }
            }
        };
        erpc::sleep(delay).await;
        let mut state = state.borrow_mut();
        state.log.files().settle();
        if state.log.files().is_over() {
            // The machine crashes soon. Until then, the disk does nothing.
            return;
        }
        match ticket {
            Ok(Some(ticket)) => state.written = Ok(ticket),
            Ok(None) => {}
            Err(error) => state.written = Err(error),
        }
        state.inbox.wake();
    }
}

fn write_of(job: Job) -> Option<Write> {
    match job {
        Job::Write(write) => Some(write),
        Job::Snapshot(_) => None,
    }
}

trait Jobs {
    /// The snapshot that is the next job, if it is one.
    fn pop_front_snapshot(&mut self) -> Option<Snapshot>;
}

impl Jobs for VecDeque<Job> {
    fn pop_front_snapshot(&mut self) -> Option<Snapshot> {
        match self.pop_front() {
            Some(Job::Snapshot(snapshot)) => Some(snapshot),
            Some(job) => {
                self.push_front(job);
                None
            }
            None => None,
        }
    }
}

fn identity() -> Identity {
    Identity { cluster: "test".into(), algorithm: "raft".into(), node: 1 }
}

/// Opens a log as a node does, and begins it if it is new.
fn opened(files: &SimFiles) -> Result<(Log<SimFiles>, Start), String> {
    let opened =
        Log::open(files.clone(), &identity()).map_err(|error: OpenError| error.to_string())?;
    let (mut log, start) = (opened.log, opened.start);
    log.set_segment(300);
    let start = match start {
        Some(start) => start,
        None => {
            let first = Start::first(Addresses([(1, "a".to_owned())].into()));
            let begun = log.begin(&identity(), &first.snapshot, 7);
            begun.map_err(|error| error.to_string())?;
            first
        }
    };
    files.settle();
    Ok((log, start))
}

/// Jobs with full segments, and with snapshots of both kinds, some of which contradict the log.
fn jobs() -> Vec<Job> {
    let snapshot =
        |term, index| Snapshot { at: Position { term, index }, ..Start::default().snapshot };
    let write = |term, commit, indices: std::ops::RangeInclusive<u64>| {
        let hard = Some(HardState { term, vote: term, commit });
        let entries = indices.map(|index| Entry {
            at: Position { term, index },
            kind: EntryKind::Command,
            data: vec![index as u8; 40].into(),
            context: Default::default(),
        });
        Job::Write(Write { entries: entries.collect(), hard, ..Write::default() })
    };
    let install = |term, index| {
        let hard = Some(HardState { term, vote: term, commit: index });
        Job::Write(Write { snapshot: Some(snapshot(term, index)), hard, ..Write::default() })
    };
    vec![
        write(2, 1, 2..=4),
        write(2, 3, 5..=5),
        Job::Snapshot(snapshot(2, 3)),
        write(2, 6, 6..=9),
        write(3, 7, 8..=14),
        write(3, 7, 15..=16),
        // Lower than the log's end.
        install(5, 9),
        write(5, 9, 10..=12),
        Job::Snapshot(snapshot(5, 12)),
        write(5, 12, 13..=13),
        // Higher than that.
        install(6, 30),
        write(6, 31, 31..=33),
        Job::Snapshot(snapshot(6, 31)),
        Job::Write(Write { end: Some(32), ..Write::default() }),
        write(7, 32, 33..=36),
    ]
}

fn perform(log: &mut Log<SimFiles>, job: &Job) -> Result<(), DiskError> {
    match job {
        Job::Write(write) => log.write(std::slice::from_ref(write)),
        Job::Snapshot(snapshot) => log.save(snapshot),
    }
}

/// The process dies before each of its changes of files in turn. Then it has what it had before the job or
/// what it has after it, and later restarts find the same.
#[test]
fn a_crash_between_two_changes_loses_nothing() {
    let jobs = jobs();
    let files = SimFiles::default();
    let (mut log, first) = opened(&files).expect("nothing fails");
    let mut states = vec![first];
    for job in &jobs {
        perform(&mut log, job).expect("nothing fails");
        files.settle();
        states.push(opened(&files.copy()).expect("it is whole").1);
    }
    let has = |start: &Start, state: &Start| {
        start.snapshot == state.snapshot && start.entries == state.entries
    };
    let mut random = Random::new(1);
    for changes in 0.. {
        let mut is_over = false;
        for _ in 0..200 {
            let files = SimFiles::default();
            files.die_after(changes, false);
            let mut done = 0;
            if let Ok((mut log, _)) = opened(&files) {
                while done < jobs.len() && perform(&mut log, &jobs[done]).is_ok() {
                    done += 1;
                    files.settle();
                }
            }
            is_over = files.is_over();
            files.crash(&mut random);
            for restart in 0..4 {
                // The first restarts may be interrupted, too.
                if restart < 2 {
                    files.die_after(random.below(8), false);
                }
                match opened(&files) {
                    Ok((_, start)) => {
                        let after = &states[(done + 1).min(jobs.len())];
                        assert!(
                            has(&start, &states[done]) || has(&start, after),
                            "dead after {changes} changes, in job {done}, restart {restart}: {start:?}"
                        );
                        assert!(
                            [states[done].hard.vote, after.hard.vote].contains(&start.hard.vote)
                        );
                    }
                    Err(error) => assert!(files.is_over(), "{changes} changes: {error}"),
                }
                files.crash(&mut random);
            }
        }
        if !is_over {
            assert!(changes > 50, "there are more than {changes} changes");
            return;
        }
    }
}
