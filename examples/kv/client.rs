//! The load: threads with one endpoint each, and lanes (sequences of calls) as tasks on them.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use erpc::transport::udp::UdpRoute;
use erpc::{Endpoint, EndpointConfig, OpenError, Retransmissions, Transport, join_all};

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

/// Stores the files at `server`, runs the mixed load and prints the results. There is a thread for
/// each transport.
pub(crate) fn run<T: Transport<Route = UdpRoute> + Send>(
    transports: Vec<T>,
    server: &str,
    args: &LoadArgs,
    data: Data,
) -> Result<(), Failure> {
    let client = RandomState::new().hash_one(server);
    let common = Common {
        data,
        stop: AtomicBool::new(false),
        next: AtomicUsize::new(0),
        calls: AtomicU64::new(0),
    };
    let load = Load { server, args, client, common: Arc::new(common) };
    thread::scope(|scope| {
        let start = |(index, transport): (usize, T)| {
            let (phases, received) = channel();
            let (send, results) = channel();
            let load = &load;
            scope.spawn(move || load.thread(index, transport, &received, &send));
            LoadThread { phases, results }
        };
        let threads: Vec<_> = transports.into_iter().enumerate().map(start).collect();
        let stored = load.phase(&threads, Kind::Store)?;
        print_stored(&load.common.data, &stored).map_err(Failure::Output)?;
        let mixed = load.phase(&threads, Kind::Mix)?;
        print_mix(args, &mixed).map_err(Failure::Output)
    })
}

/// The work of a lane.
#[derive(Clone, Copy)]
enum Kind {
    Store,
    Mix,
}

/// A thread of the load. It ends when this is dropped.
struct LoadThread {
    phases: Sender<Kind>,
    results: Receiver<Result<Tally, Failure>>,
}

struct Load<'a> {
    server: &'a str,
    args: &'a LoadArgs,
    /// A random number, part of this client's keys, that distinguishes them from other clients'
    /// keys.
    client: u64,
    common: Arc<Common>,
}

impl Load<'_> {
    /// Runs a phase, in which all threads do the same kind of work.
    fn phase(&self, threads: &[LoadThread], kind: Kind) -> Result<Tally, Failure> {
        self.common.stop.store(false, Ordering::Relaxed);
        self.common.calls.store(0, Ordering::Relaxed);
        for thread in threads {
            // A thread that has panicked has no receiver. It has no result either.
            thread.phases.send(kind).unwrap_or(());
        }
        let begin = Instant::now();
        let duration = Duration::from_secs(self.args.secs.get().into());
        let progress = match kind {
            Kind::Store => Progress::files(self.common.data.files().len()),
            Kind::Mix => Progress::time(duration),
        };
        let result = |thread: &LoadThread| loop {
            match thread.results.recv_timeout(TICK) {
                Ok(result) => break result,
                Err(RecvTimeoutError::Disconnected) => break Err(Failure::Panicked),
                Err(RecvTimeoutError::Timeout) => {}
            }
            progress.show(begin.elapsed(), self.common.calls.load(Ordering::Relaxed));
            if matches!(kind, Kind::Mix) && begin.elapsed() >= duration {
                self.common.stop.store(true, Ordering::Relaxed);
            }
        };
        threads.iter().map(result).sum()
    }

    /// Runs a thread: one endpoint, enough sessions for the lanes, and one task per lane.
    fn thread<T: Transport<Route = UdpRoute>>(
        &self,
        index: usize,
        transport: T,
        phases: &Receiver<Kind>,
        results: &Sender<Result<Tally, Failure>>,
    ) {
        let opened = Endpoint::new(transport, EndpointConfig::new());
        let opened = opened.map_err(|error| Failure::Open(OpenError::Config(error)));
        let connected = opened.and_then(|endpoint| {
            let sessions = usize::from(self.args.outstanding.get()).div_ceil(SESSION_WINDOW);
            let connect = |_| LocalKvClient::connect(&endpoint, self.server);
            let clients: Result<Vec<_>, _> = (0..sessions).map(connect).collect();
            Ok((clients.map_err(Failure::Connect)?, endpoint))
        });
        let (clients, endpoint) = match connected {
            Ok(connected) => connected,
            Err(failure) => return self.end(results, Err(failure)),
        };
        for kind in phases {
            self.end(results, self.lanes(index, &endpoint, &clients, kind));
        }
    }

    /// Hands in the result of a thread. A failure ends the phase of all threads.
    fn end(&self, results: &Sender<Result<Tally, Failure>>, result: Result<Tally, Failure>) {
        if result.is_err() {
            self.common.stop.store(true, Ordering::Relaxed);
        }
        // After the failure of another thread, this result is not read.
        results.send(result).unwrap_or(());
    }

    /// Runs the lanes of a thread.
    fn lanes<T: Transport>(
        &self,
        index: usize,
        endpoint: &Endpoint<T>,
        clients: &[LocalKvClient<T>],
        kind: Kind,
    ) -> Result<Tally, Failure> {
        let begin = Instant::now();
        let lanes = usize::from(self.args.outstanding.get());
        let before = resent(endpoint);
        let shared = Shared { common: Arc::clone(&self.common), tally: Rc::default() };
        let tasks = (0..lanes).map(|lane| {
            let number = (index * lanes + lane) as u64;
            let kv = clients[lane % clients.len()].clone();
            let lane = Lane::new(kv, shared.clone(), self.client, number);
            endpoint.spawn(work(kind, lane, Arc::clone(&self.common)))
        });
        let results = endpoint.block_on(join_all(tasks.collect::<Vec<_>>()));
        results.into_iter().collect::<Result<(), Failure>>()?;
        let mut tally = shared.tally.take();
        tally.elapsed = begin.elapsed();
        tally.resent = resent(endpoint) - before;
        Ok(tally)
    }
}

fn resent<T: Transport>(endpoint: &Endpoint<T>) -> Retransmissions {
    endpoint.stats().map(|stats| stats.protocol.retransmissions).unwrap_or_default()
}

/// Runs a lane. A lane that fails stops all others.
async fn work<T: Transport>(kind: Kind, lane: Lane<T>, common: Arc<Common>) -> Result<(), Failure> {
    let result = match kind {
        Kind::Store => lane.store_files().await,
        Kind::Mix => lane.mix().await,
    };
    if result.is_err() {
        common.stop.store(true, Ordering::Relaxed);
    }
    result
}

/// State of all threads.
struct Common {
    data: Data,
    stop: AtomicBool,
    /// Index of the next file to store.
    next: AtomicUsize,
    /// Calls that all threads have completed in this phase.
    calls: AtomicU64,
}

/// State that the lanes of a thread share.
#[derive(Clone)]
pub(crate) struct Shared {
    common: Arc<Common>,
    tally: Rc<RefCell<Tally>>,
}

impl Shared {
    pub(crate) fn data(&self) -> &Data {
        &self.common.data
    }

    /// Whether the phase is over.
    pub(crate) fn is_over(&self) -> bool {
        self.common.stop.load(Ordering::Relaxed)
    }

    /// Claims the next file to store. `None` when all files are claimed or the phase is over.
    pub(crate) fn next_file(&self) -> Option<&File> {
        if self.is_over() {
            return None;
        }
        self.data().files().get(self.common.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts a completed call.
    pub(crate) fn count(&self, update: impl FnOnce(&mut Tally)) {
        update(&mut self.tally.borrow_mut());
        self.common.calls.fetch_add(1, Ordering::Relaxed);
    }
}
