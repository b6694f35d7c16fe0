//! Workers whose steps a simulation takes.

use std::sync::Arc;
use std::time::Duration;

use super::queue::JobQueue;
use super::{WorkerJob, WorkerPool, WorkerQueue, run};
use crate::time::Instant;

/// Workers without threads, for simulations. The owner decides when a worker takes a job, and when
/// it runs the job's handler, on the owner's thread. The queue is that of a [`WorkerPool`].
#[derive(Debug)]
pub struct StepWorkers(WorkerPool);

/// A job that a worker has taken out of the queue and whose handler has not run yet.
pub struct TakenJob(WorkerJob);

impl StepWorkers {
    /// Workers with a queue of at most `queue` requests, where 0 counts as 1.
    #[must_use]
    pub fn new(queue: usize) -> Self {
        let queue = WorkerQueue(Arc::new(JobQueue::new(queue.max(1), Duration::ZERO)));
        Self(WorkerPool { queue, threads: Vec::new() })
    }

    /// The pool to [serve](crate::endpoint::Endpoint::serve) with.
    #[must_use = "without the pool, no endpoint uses the workers"]
    pub fn pool(&self) -> &WorkerPool {
        &self.0
    }

    /// Takes the next job, as an idle worker does. `None` if none is queued.
    #[must_use = "a job that is dropped is never answered"]
    pub fn take(&self) -> Option<TakenJob> {
        self.0.queue.0.try_pop().map(TakenJob)
    }
}

impl TakenJob {
    /// Runs the handler at the time `now`, and passes its answer to the endpoint, whose loop then
    /// has work.
    pub fn run(self, now: Instant) {
        run(self.0, Some(now));
    }
}

impl std::fmt::Debug for TakenJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TakenJob").finish_non_exhaustive()
    }
}
