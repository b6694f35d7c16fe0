//! The handlers of simulated servers.

use std::sync::Arc;
use std::time::Duration;

use erpc_core::endpoint::{sleep, spawn};
use erpc_core::service::{Burst, Method, Mode, Request, Responder, Response, Routes};
use erpc_core::status::Status;

use super::oracle::{Shared, lock};

/// How a method's handler runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// In the loop.
    Now,
    /// As a task.
    Task,
    /// On a worker.
    Worker,
    /// In the loop; the answer comes later, from another task.
    Deferred,
}

type Bytes = Method<Vec<u8>, Vec<u8>>;

const NOW: [Bytes; 2] =
    [Method::new("sim.Typed/Now"), Method::new("sim.Typed/NowAgain").idempotent()];
const TASK: [Bytes; 2] =
    [Method::new("sim.Typed/Task"), Method::new("sim.Typed/TaskAgain").idempotent()];
const WORKER: [Bytes; 2] =
    [Method::new("sim.Typed/Worker"), Method::new("sim.Typed/WorkerAgain").idempotent()];
const DEFERRED: [Bytes; 2] =
    [Method::new("sim.Typed/Deferred"), Method::new("sim.Typed/DeferredAgain").idempotent()];

/// The method whose handler runs like this.
pub(super) fn method(kind: Kind, idempotent: bool) -> &'static Bytes {
    let methods: &[Bytes; 2] = match kind {
        Kind::Now => &NOW,
        Kind::Task => &TASK,
        Kind::Worker => &WORKER,
        Kind::Deferred => &DEFERRED,
    };
    &methods[usize::from(idempotent)]
}

/// A request: the number of its call, how long its handler takes, and the length of the response.
pub(super) struct Ask {
    pub(super) call: usize,
    pub(super) work: Duration,
    pub(super) response_len: usize,
}

impl Ask {
    /// The request, with `ballast` further bytes.
    pub(super) fn encode(&self, ballast: usize) -> Vec<u8> {
        let nanos = self.work.as_nanos() as u64;
        let mut bytes = Vec::with_capacity(24 + ballast);
        for word in [self.call as u64, nanos, self.response_len as u64] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.resize(24 + ballast, 0x5A);
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            call: word(bytes, 0) as usize,
            work: Duration::from_nanos(word(bytes, 1)),
            response_len: word(bytes, 2) as usize,
        }
    }
}

/// A response: the number of its call and of the server.
pub(super) struct Reply {
    pub(super) call: usize,
    pub(super) server: usize,
}

impl Reply {
    fn encode(&self, ballast: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + ballast);
        for word in [self.call as u64, self.server as u64] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.resize(16 + ballast, 0xA5);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        Self { call: word(bytes, 0) as usize, server: word(bytes, 1) as usize }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(8 * at..8 * at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(u64::MAX, u64::from_le_bytes)
}

/// A server, as its handlers see it.
pub(super) struct Site {
    pub(super) server: usize,
    pub(super) oracle: Shared,
}

/// A handler that runs as a task. If the task is dropped before its end, the oracle learns it.
struct Running<'s> {
    site: &'s Site,
    call: usize,
    has_ended: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            lock(&self.site.oracle).task_dropped(self.call);
        }
    }
}

impl Site {
    /// The table of handlers.
    pub(super) fn routes(self: &Arc<Self>) -> Routes {
        let mut routes = Routes::new();
        for idempotent in [false, true] {
            let of = |kind| *method(kind, idempotent);
            let added = routes
                .unary(of(Kind::Now), Mode::Dispatch, self, Self::now)
                .and_then(|()| routes.unary_async(of(Kind::Task), self, Self::task))
                .and_then(|()| routes.unary(of(Kind::Worker), Mode::Worker, self, Self::worker))
                .and_then(|()| routes.unary(of(Kind::Deferred), Mode::Dispatch, self, Self::defer));
            added.expect("the methods have different names");
            if idempotent {
                for kind in [Kind::Now, Kind::Task, Kind::Worker, Kind::Deferred] {
                    routes.on_burst(of(kind), self, Self::look_ahead);
                }
            }
        }
        routes
    }

    /// The burst hook of the idempotent methods.
    fn look_ahead(&self, burst: Burst<'_, Vec<u8>>) {
        for request in &burst {
            lock(&self.oracle).foreseen(Ask::decode(request.message()).call);
        }
    }

    /// An execution of the call begins. `Err` if it has to be refused.
    fn begin(&self, ask: &Ask, kind: Kind) -> Result<(), Status> {
        match lock(&self.oracle).begins(ask.call, self.server, kind) {
            true => Ok(()),
            false => Err(Status::unavailable("the plan refuses this execution")),
        }
    }

    fn answer(&self, ask: &Ask) -> Vec<u8> {
        Reply { call: ask.call, server: self.server }.encode(ask.response_len)
    }

    fn now(&self, request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let ask = Ask::decode(request.message());
        self.begin(&ask, Kind::Now)?;
        Ok(Response::new(self.answer(&ask)))
    }

    async fn task(&self, request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let ask = Ask::decode(request.message());
        let begun = self.begin(&ask, Kind::Task);
        let mut running = Running { site: self, call: ask.call, has_ended: false };
        sleep(ask.work).await;
        running.has_ended = true;
        lock(&self.oracle).task_ended(ask.call);
        begun.map(|()| Response::new(self.answer(&ask)))
    }

    fn worker(&self, request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let ask = Ask::decode(request.message());
        lock(&self.oracle).worker_sees(ask.call, request.is_cancelled());
        self.begin(&ask, Kind::Worker)?;
        Ok(Response::new(self.answer(&ask)))
    }

    fn defer(&self, request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let ask = Ask::decode(request.message());
        let begun = self.begin(&ask, Kind::Deferred);
        let reply = self.answer(&ask);
        Ok(request.defer(move |_, responder: Responder<Vec<u8>>| {
            drop(spawn(async move {
                sleep(ask.work).await;
                match begun {
                    Ok(()) => responder.send(&reply),
                    Err(status) => responder.fail(status),
                }
            }));
        }))
    }
}
