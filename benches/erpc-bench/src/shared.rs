//! A closed loop of typed calls from the tasks of a tokio runtime, through a shared client.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use erpc::{ClientThreads, EndpointConfig, IdlePolicy, SharedChannel, UdpConfig};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
use crate::report::Latencies;
use crate::service::{self, proto};

/// A closed loop that calls `Get`, one call at a time in each task.
pub(crate) struct SharedLoad {
    runtime: Runtime,
    client: proto::BenchClient,
    tasks: usize,
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
        Ok(Self { runtime, client, tasks: setup.tasks, latencies: None })
    }

    /// Runs the tasks for `duration`. Returns the number of answered calls and the elapsed time.
    pub(crate) fn run(&mut self, duration: Duration) -> Result<(u64, Duration), Failure> {
        let start = Instant::now();
        let end = start + duration;
        let tasks: Vec<_> = (0..self.tasks as u64)
            .map(|task| self.runtime.spawn(call(self.client.clone(), task << 40, end)))
            .collect();
        let mut calls = 0;
        for task in tasks {
            let latencies = self.runtime.block_on(task).map_err(Failure::of("a task failed"))??;
            calls += latencies.count();
            if let Some(all) = &mut self.latencies {
                all.merge(&latencies);
            }
        }
        Ok((calls, start.elapsed()))
    }

    pub(crate) fn measure_latencies(&mut self) {
        self.latencies = Some(Latencies::new());
    }

    pub(crate) fn take_latencies(&mut self) -> Latencies {
        self.latencies.take().unwrap_or_else(Latencies::new)
    }
}

/// Makes one call after the other until `end`. Returns their latencies.
async fn call(client: proto::BenchClient, first: u64, end: Instant) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new();
    let mut sent = Instant::now();
    for key in first.. {
        let answer = client.get(proto::GetRequest { key }).await;
        let answer = answer.map_err(Failure::of("a call failed"))?;
        if !service::is_answer(&answer, key) {
            return Err(Failure::new(format!("the answer for key {key} is wrong")));
        }
        let now = Instant::now();
        latencies.record((now - sent).as_nanos() as u64);
        sent = now;
        if now >= end {
            break;
        }
    }
    Ok(latencies)
}
