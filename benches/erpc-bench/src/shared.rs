//! A closed loop of typed calls from the tasks of a tokio runtime, through a shared client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use erpc::{ClientThreads, EndpointConfig, IdlePolicy, SharedChannel, UdpConfig};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
use crate::report::Latencies;
use crate::service::proto;
use crate::values::is_answer;

/// A closed loop that calls `Get`, one call at a time in each task.
pub(crate) struct SharedLoad {
    runtime: Runtime,
    client: proto::BenchClient,
    tasks: usize,
    workers: usize,
    latencies: Option<Latencies>,
}

/// How a [`SharedLoad`] runs.
pub(crate) struct SharedSetup {
    /// Threads of the runtime.
    pub(crate) workers: usize,
    pub(crate) tasks: usize,
    /// Sessions to the server.
    pub(crate) sessions: usize,
    /// What the thread that makes the calls does while it has no work.
    pub(crate) idle: IdlePolicy,
}

impl SharedLoad {
    pub(crate) fn connect(
        server: SocketAddr,
        socket: &UdpConfig,
        config: EndpointConfig,
        setup: &SharedSetup,
    ) -> Result<Self, Failure> {
        let threads = ClientThreads::builder().udp(socket.clone()).config(config).idle(setup.idle);
        let threads = threads.start().map_err(Failure::of("no client thread"))?;
        let channel = SharedChannel::to(vec![server.into()]).threads(&threads);
        let channel = channel.sessions(setup.sessions).build();
        let channel = channel.map_err(Failure::of("no channel"))?;
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(setup.workers).enable_all().build();
        let runtime = runtime.map_err(Failure::of("no runtime"))?;
        runtime.block_on(channel.ready()).map_err(Failure::of("cannot connect"))?;
        let client = proto::BenchClient::new(channel);
        Ok(Self { runtime, client, tasks: setup.tasks, workers: setup.workers, latencies: None })
    }

    /// Runs the tasks for `duration`. Returns the number of answered calls and the elapsed time.
    pub(crate) fn run(&mut self, duration: Duration) -> Result<(u64, Duration), Failure> {
        let start = Instant::now();
        let end = start + duration;
        let latencies = Arc::new(ThreadLatencies::new(self.workers));
        // Together the tasks use every key once, as the loads without tasks do.
        let tasks: Vec<_> = (0..self.tasks)
            .map(|task| (task as u64..).step_by(self.tasks))
            .map(|keys| call(self.client.clone(), keys, end, Arc::clone(&latencies)))
            .map(|task| self.runtime.spawn(task))
            .collect();
        for task in tasks {
            self.runtime.block_on(task).map_err(Failure::of("a task failed"))??;
        }
        let latencies = latencies.merged();
        if let Some(all) = &mut self.latencies {
            all.merge(&latencies);
        }
        Ok((latencies.count(), start.elapsed()))
    }

    pub(crate) fn measure_latencies(&mut self) {
        self.latencies = Some(Latencies::new());
    }

    pub(crate) fn take_latencies(&mut self) -> Latencies {
        self.latencies.take().unwrap_or_else(Latencies::new)
    }
}

/// Makes one call after the other until `end`.
async fn call(
    client: proto::BenchClient,
    keys: impl Iterator<Item = u64>,
    end: Instant,
    latencies: Arc<ThreadLatencies>,
) -> Result<(), Failure> {
    let mut sent = Instant::now();
    for key in keys {
        let answer = client.get(proto::GetRequest { key }).await;
        let answer = answer.map_err(Failure::of("a call failed"))?;
        if !is_answer(&answer.value, answer.found, key) {
            return Err(Failure::new(format!("the answer for key {key} is wrong")));
        }
        let now = Instant::now();
        latencies.record((now - sent).as_nanos() as u64);
        sent = now;
        if now >= end {
            break;
        }
    }
    Ok(())
}

/// The latencies that each thread of a runtime has recorded. A histogram per task would take more
/// memory than a core's cache has.
struct ThreadLatencies {
    threads: Vec<Mutex<Latencies>>,
}

impl ThreadLatencies {
    fn new(threads: usize) -> Self {
        Self { threads: (0..threads).map(|_| Mutex::new(Latencies::new())).collect() }
    }

    fn record(&self, nanos: u64) {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        let thread = NUMBER.with(|number| number % self.threads.len());
        self.threads[thread].lock().unwrap_or_else(PoisonError::into_inner).record(nanos);
    }

    fn merged(&self) -> Latencies {
        let mut all = Latencies::new();
        for thread in &self.threads {
            all.merge(&thread.lock().unwrap_or_else(PoisonError::into_inner));
        }
        all
    }
}
