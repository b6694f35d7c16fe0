//! A thread that writes while the node goes on.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::{Disk, DiskError, Files, Job, Log};

/// Jobs that are written together, at most.
const GROUP: usize = 1024;

/// Writes to a [`Log`] in a thread. All jobs that wait are written together, with one fsync. Dropping
/// this waits until all jobs are written.
#[derive(Debug)]
pub struct DiskThread {
    jobs: Option<Sender<Job>>,
    state: Arc<Mutex<Result<u64, DiskError>>>,
    thread: Option<JoinHandle<()>>,
}

impl DiskThread {
    /// Starts the thread. It calls `wake` after each group.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start<F: Files + Send + 'static>(
        log: Log<F>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, waiting) = mpsc::channel();
        let state = Arc::new(Mutex::new(Ok(0)));
        let result = Arc::clone(&state);
        let thread = thread::Builder::new()
            .name("disk".into())
            .spawn(move || run(log, &waiting, &result, wake))?;
        Ok(Self { jobs: Some(jobs), state, thread: Some(thread) })
    }
}

impl Disk for DiskThread {
    fn submit(&mut self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Fails after a failure only, which `written` tells.
            jobs.send(job).unwrap_or_default();
        }
    }

    fn written(&mut self) -> Result<u64, DiskError> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the panic hook.
            drop(thread.join());
        }
    }
}

fn run<F: Files>(
    mut log: Log<F>,
    waiting: &Receiver<Job>,
    state: &Mutex<Result<u64, DiskError>>,
    wake: impl Fn(),
) {
    while let Ok(first) = waiting.recv() {
        let group: Vec<_> = [first].into_iter().chain(waiting.try_iter().take(GROUP - 1)).collect();
        let written = write(&mut log, group);
        let has_failed = written.is_err();
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match written {
            Ok(Some(ticket)) => *state = Ok(ticket),
            Ok(None) => {}
            Err(error) => *state = Err(error),
        }
        drop(state);
        wake();
        if has_failed {
            return;
        }
    }
}

/// Writes jobs in their order; the last ticket, if there is one.
fn write<F: Files>(log: &mut Log<F>, group: Vec<Job>) -> Result<Option<u64>, DiskError> {
    let mut ticket = None;
    let mut writes = Vec::new();
    for job in group {
        match job {
            Job::Write(write) => writes.push(write),
            Job::Snapshot(snapshot) => {
                ticket = flush(log, &mut writes)?.or(ticket);
                log.save(&snapshot)?;
            }
        }
    }
    Ok(flush(log, &mut writes)?.or(ticket))
}

fn flush<F: Files>(
    log: &mut Log<F>,
    writes: &mut Vec<crate::consensus::Write>,
) -> Result<Option<u64>, DiskError> {
    let Some(ticket) = writes.last().map(|write| write.ticket) else { return Ok(None) };
    if writes.iter().any(|write| !write.is_empty()) {
        log.write(writes)?;
    }
    writes.clear();
    Ok(Some(ticket))
}
