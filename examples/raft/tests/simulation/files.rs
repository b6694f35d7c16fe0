//! A disk in virtual time, which loses what was not synced.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use std::{io, mem};

use erpc_raft::consensus::{Snapshot, Write};
use erpc_raft::disk::{Disk, DiskError, Files, Job, Log};
use erpc_raft::node::Inbox;

use erpc_test_tools::random::Random;

/// The files of a node. Clones are the same files.
#[derive(Clone, Default)]
pub(crate) struct SimFiles {
    files: Rc<RefCell<BTreeMap<String, SimFile>>>,
    /// Files that were removed since the folder was synced.
    removed: Rc<RefCell<BTreeMap<String, SimFile>>>,
}

#[derive(Clone, Default)]
struct SimFile {
    bytes: Vec<u8>,
    /// So many bytes survive a crash.
    synced: usize,
}

impl SimFiles {
    /// The machine crashes. Of what was not synced, a part survives, and a part of that is damaged. Some
    /// files that were removed come back. Returns the number of those.
    pub(crate) fn crash(&self, random: &mut Random) -> u64 {
        let mut returned = 0;
        for file in self.files.borrow_mut().values_mut() {
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
        }
        let mut files = self.files.borrow_mut();
        files.retain(|_, file| !file.bytes.is_empty());
        for (name, file) in mem::take(&mut *self.removed.borrow_mut()) {
            if random.percent(50) {
                returned += 1;
                files.insert(name, file);
            }
        }
        returned
    }

    /// All that was written is on disk. Names are not.
    pub(crate) fn settle(&self) {
        self.files.borrow_mut().values_mut().for_each(|file| file.synced = file.bytes.len());
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Files for SimFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.borrow().keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files.borrow().get(name).map(|file| file.bytes.clone()).ok_or_else(missing)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files.borrow_mut();
        if !files.contains_key(name) {
            self.removed.borrow_mut().clear();
        }
        files.entry(name.into()).or_default().bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The sync of the last frame takes a while. It ends with [`SimFiles::settle`].
    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.files.borrow().get(name).map(drop).ok_or_else(missing)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let file = SimFile { bytes: bytes.to_vec(), synced: bytes.len() };
        self.files.borrow_mut().insert(name.into(), file);
        self.removed.borrow_mut().clear();
        Ok(())
    }

    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()> {
        let mut files = self.files.borrow_mut();
        let file = files.get_mut(name).ok_or_else(missing)?;
        file.bytes.truncate(len as usize);
        file.synced = file.bytes.len();
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let file = self.files.borrow_mut().remove(name).ok_or_else(missing)?;
        self.removed.borrow_mut().insert(name.into(), file);
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

/// Dropped in the middle if the node crashes. Then the last frame is not synced.
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
                    let needs_sync = writes.iter().any(|write| write.snapshot.is_some());
                    let result = if writes.iter().all(Write::is_empty) {
                        Ok(())
                    } else {
                        state.log.write(&writes)
                    };
                    if let Some(snapshot) = snapshot {
                        state.jobs.push_front(Job::Snapshot(snapshot));
                    }
                    if needs_sync {
                        state.log.files().settle();
                    }
                    (result.map(|()| Some(ticket)), delay)
                }
                (None, Some(snapshot)) => {
                    let result = state.log.save(&snapshot);
                    state.log.files().settle();
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
