//! The load: threads with one endpoint each, and lanes (sequences of calls) as tasks on them.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use erpc::{Endpoint, join_all};

use crate::args::LoadArgs;
use crate::data::{Data, File};
use crate::failure::Failure;
use crate::lane::Lane;
use crate::proto::LocalKvClient;
use crate::report::{Progress, Tally, print_mix, print_stored};

/// Calls that a session has in flight by default. Further calls would wait in the session's queue.
const SESSION_WINDOW: usize = 8;
/// Interval between updates of the progress bar.
const TICK: Duration = Duration::from_millis(100);

/// Stores the files at `server`, runs the mixed load and prints the results.
pub(crate) fn run(server: &str, args: &LoadArgs, data: Data) -> Result<(), Failure> {
    let data = Arc::new(data);
    let stored = Phase::new(server, args, &data, Kind::Store).run()?;
    print_stored(&data, &stored).map_err(Failure::Output)?;
    let mixed = Phase::new(server, args, &data, Kind::Mix).run()?;
    print_mix(args, &mixed).map_err(Failure::Output)
}

/// The work of a lane.
#[derive(Clone, Copy)]
enum Kind {
    Store,
    Mix,
}

/// A phase of the load, in which all threads do the same kind of work.
struct Phase<'a> {
    server: &'a str,
    args: &'a LoadArgs,
    data: &'a Arc<Data>,
    kind: Kind,
    /// A random number, part of this client's keys, that distinguishes them from other clients'
    /// keys.
    client: u64,
    stop: Arc<AtomicBool>,
    next: Arc<AtomicUsize>,
    calls: Arc<AtomicU64>,
}

impl<'a> Phase<'a> {
    fn new(server: &'a str, args: &'a LoadArgs, data: &'a Arc<Data>, kind: Kind) -> Self {
        let client = RandomState::new().hash_one(server);
        Self {
            server,
            args,
            data,
            kind,
            client,
            stop: Arc::default(),
            next: Arc::default(),
            calls: Arc::default(),
        }
    }

    fn run(&self) -> Result<Tally, Failure> {
        let (alive, ended) = channel::<()>();
        thread::scope(|scope| {
            let threads = 0..usize::from(self.args.threads.get());
            let started: Vec<_> = threads
                .map(|index| {
                    let alive = alive.clone();
                    scope.spawn(move || {
                        let result = self.thread(index);
                        if result.is_err() {
                            self.stop.store(true, Ordering::Relaxed);
                        }
                        drop(alive);
                        result
                    })
                })
                .collect();
            drop(alive);
            self.watch(&ended);
            let results =
                started.into_iter().map(|thread| thread.join().unwrap_or(Err(Failure::Panicked)));
            results.sum()
        })
    }

    /// Updates the progress bar until all threads have ended. Stops a mixed load when its time is
    /// over.
    fn watch(&self, ended: &Receiver<()>) {
        let begin = Instant::now();
        let duration = Duration::from_secs(self.args.secs.get().into());
        let progress = match self.kind {
            Kind::Store => Progress::files(self.data.files().len()),
            Kind::Mix => Progress::time(duration),
        };
        while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            progress.show(begin.elapsed(), self.calls.load(Ordering::Relaxed));
            if matches!(self.kind, Kind::Mix) && begin.elapsed() >= duration {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Runs a thread: one endpoint, enough sessions for the lanes, and one task per lane.
    fn thread(&self, index: usize) -> Result<Tally, Failure> {
        let endpoint = Endpoint::udp().map_err(Failure::Open)?;
        let lanes = usize::from(self.args.outstanding.get());
        let sessions = lanes.div_ceil(SESSION_WINDOW);
        let clients: Result<Vec<_>, _> =
            (0..sessions).map(|_| LocalKvClient::connect(&endpoint, self.server)).collect();
        let clients = clients.map_err(Failure::Connect)?;
        let begin = Instant::now();
        let shared = self.shared();
        let tasks = (0..lanes).map(|lane| {
            let number = (index * lanes + lane) as u64;
            let lane =
                Lane::new(clients[lane % sessions].clone(), shared.clone(), self.client, number);
            endpoint.spawn(work(self.kind, lane, Arc::clone(&self.stop)))
        });
        let results = endpoint.block_on(join_all(tasks.collect::<Vec<_>>()));
        results.into_iter().collect::<Result<(), Failure>>()?;
        let mut tally = shared.tally.take();
        tally.elapsed = begin.elapsed();
        if let Some(stats) = endpoint.stats() {
            tally.resent = stats.protocol.retransmissions;
        }
        Ok(tally)
    }

    fn shared(&self) -> Shared {
        Shared {
            data: Arc::clone(self.data),
            stop: Arc::clone(&self.stop),
            next: Arc::clone(&self.next),
            calls: Arc::clone(&self.calls),
            tally: Rc::default(),
        }
    }
}

/// Runs a lane. A lane that fails stops all others.
async fn work(kind: Kind, lane: Lane, stop: Arc<AtomicBool>) -> Result<(), Failure> {
    let result = match kind {
        Kind::Store => lane.store_files().await,
        Kind::Mix => lane.mix().await,
    };
    if result.is_err() {
        stop.store(true, Ordering::Relaxed);
    }
    result
}

/// State that the lanes of a thread share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) data: Arc<Data>,
    stop: Arc<AtomicBool>,
    /// Index of the next file to store.
    next: Arc<AtomicUsize>,
    /// Calls that all threads have completed.
    calls: Arc<AtomicU64>,
    tally: Rc<RefCell<Tally>>,
}

impl Shared {
    /// Whether the phase is over.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Claims the next file to store. `None` when all files are claimed or the phase is over.
    pub(crate) fn next_file(&self) -> Option<&File> {
        if self.is_over() {
            return None;
        }
        self.data.files().get(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts a completed call.
    pub(crate) fn count(&self, update: impl FnOnce(&mut Tally)) {
        update(&mut self.tally.borrow_mut());
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}
