//! Threads for handlers that compute for long or block.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::buf::MsgBuf;
use crate::clock;
use crate::event_loop::mailbox::Mailbox;
use crate::mutants::mutant;
use crate::protocol::{ClientStats, RequestHandle};
use crate::service::{CallHost, HandlerOutcome, MetadataRef, ReplySink, RouteEntry};
use crate::serving::answer::no_memory;
use crate::serving::running::in_time;
use crate::serving::worker::queue::JobQueue;
use crate::status::Status;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{Builder, JoinHandle, current};
use crate::time::Instant;
use crate::wire::extension::EXTENSION_HEAD;

pub(crate) use crate::serving::worker::queue::JobRefused;
pub use crate::serving::worker::step::{StepWorkers, TakenJob};

mod queue;
mod step;

/// Worker threads and their queue, shared by any number of endpoints; see
/// [`Endpoint::serve`](crate::endpoint::Endpoint::serve).
///
/// Dropping the pool waits until the workers have finished all queued requests. Endpoints that
/// still use the pool then answer calls of worker methods with
/// [`Code::Unavailable`](crate::status::Code::Unavailable).
#[must_use = "dropping the pool ends its threads"]
pub struct WorkerPool {
    queue: WorkerQueue,
    threads: Vec<JoinHandle<()>>,
}

/// The sending side of the job queue, held by endpoints.
pub(crate) struct WorkerQueue(Arc<JobQueue<WorkerJob>>);

/// A request for a worker.
pub(crate) struct WorkerJob {
    pub(crate) entry: Arc<RouteEntry>,
    pub(crate) body: MsgBuf,
    /// Length of the extension at the front of the body, in bytes.
    pub(crate) front: usize,
    pub(crate) call: RequestHandle,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) deadline: Instant,
    /// Set when the caller has cancelled the call.
    pub(crate) cancelled: Arc<AtomicBool>,
    /// The mailbox of the endpoint that received the request. The answer goes there.
    pub(crate) mailbox: Arc<Mailbox>,
}

impl WorkerPool {
    /// A pool of `threads` workers with a queue of at most `queue` requests, where 0 counts as 1.
    /// Requests beyond that are answered
    /// [`Code::ResourceExhausted`](crate::status::Code::ResourceExhausted).
    ///
    /// # Errors
    /// If `threads` is 0 or the system refuses a thread.
    pub fn new(threads: usize, queue: usize) -> io::Result<Self> {
        Self::spinning(threads, queue, Duration::ZERO)
    }

    /// Like [`WorkerPool::new`], but a worker without a job spins for `spin` before it sleeps. To wake
    /// a worker that sleeps, an event loop makes a system call, which delays its other calls by
    /// several microseconds; a worker that spins needs none. Use it if each worker has a core.
    ///
    /// # Errors
    /// If `threads` is 0 or the system refuses a thread.
    #[expect(clippy::disallowed_methods, reason = "a pool consists of threads")]
    pub fn spinning(threads: usize, queue: usize, spin: Duration) -> io::Result<Self> {
        if threads == 0 {
            let error = "a worker pool needs at least one thread to run its requests";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let queue = WorkerQueue(Arc::new(JobQueue::new(queue.max(1), spin)));
        let mut pool = Self { queue, threads: Vec::with_capacity(threads) };
        for index in 0..threads {
            let queue = pool.queue();
            let builder = Builder::new().name(format!("erpc-worker-{index}"));
            pool.threads.push(builder.spawn(move || work(&queue))?);
        }
        Ok(pool)
    }

    pub(crate) fn queue(&self) -> WorkerQueue {
        self.queue.clone()
    }

    /// Ends the pool like a drop, but waits at most `within` for the handlers that run. The threads
    /// of handlers that run longer end with their handlers.
    pub(crate) fn end_within(mut self, within: Duration) {
        self.queue.0.stop();
        if !self.queue.0.wait_for_ends(self.threads.len(), within) {
            self.threads.clear();
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.queue.0.stop();
        for thread in self.threads.drain(..) {
            // A handler may drop the pool. The handler's thread cannot join itself. After the
            // handler has returned, this thread handles the jobs that are left in the queue.
            // Handlers' panics are caught, so the result of a join is of no interest.
            if !is_current(&thread) {
                drop(thread.join());
            }
        }
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl WorkerQueue {
    /// Queues a job without waiting. A worker takes every queued job, unless
    /// [`WorkerQueue::take_waiting`] takes it out before, and answers it, even if the job's handler
    /// may no longer start. The caller has to answer a refused job.
    pub(crate) fn push(&self, job: WorkerJob) -> Result<(), JobRefused> {
        self.0.push(job).map_err(|(refused, _)| refused)
    }

    /// Maximum number of waiting jobs.
    pub(crate) fn limit(&self) -> usize {
        self.0.limit()
    }

    /// Takes out the jobs of the endpoint with this mailbox that no worker has begun. The caller
    /// has to answer them.
    pub(crate) fn take_waiting(&self, mailbox: &Arc<Mailbox>) -> Vec<RequestHandle> {
        let is_own = |job: &WorkerJob| Arc::ptr_eq(&job.mailbox, mailbox);
        // The jobs are dropped here, without the queue's lock.
        self.0.take_waiting(is_own).into_iter().map(|job| job.call).collect()
    }
}

impl Clone for WorkerQueue {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

thread_local! {
    /// The mailbox of the endpoint whose request this worker thread is handling.
    static ORIGIN: RefCell<Option<Arc<Mailbox>>> = const { RefCell::new(None) };
}

/// The mailbox of the endpoint whose request this worker thread is handling; `None` on other
/// threads.
pub(crate) fn origin() -> Option<Arc<Mailbox>> {
    ORIGIN.with_borrow(Clone::clone)
}

/// The main function of a worker thread.
fn work(queue: &WorkerQueue) {
    while let Some(job) = queue.0.pop() {
        run(job, None);
    }
    queue.0.note_end();
}

/// Whether `thread` is the current thread.
#[expect(clippy::disallowed_methods, reason = "this module manages threads")]
pub(crate) fn is_current<V>(thread: &JoinHandle<V>) -> bool {
    thread.thread().id() == current().id()
}

/// Runs the job's handler and passes its answer on. `virtual_time` replaces the system's clock.
fn run(job: WorkerJob, virtual_time: Option<Instant>) {
    ORIGIN.set(Some(Arc::clone(&job.mailbox)));
    let host = JobHost { job: &job, virtual_time };
    let outcome = match host.starts() {
        Ok(()) => {
            let (entries, message) = job.parts();
            let context = job
                .entry
                .context(job.call, &host)
                .with_extension(job.deadline, MetadataRef::new(entries));
            job.entry.call(&context, message)
        }
        Err(status) => HandlerOutcome::Failed(status),
    };
    ORIGIN.set(None);
    let WorkerJob { entry, body, call, cancelled, mailbox, .. } = job;
    // The request's memory is free before its answer is queued.
    drop((entry, body, cancelled));
    match outcome {
        HandlerOutcome::Reply(reply) => mailbox.reply(call, Ok(reply)),
        HandlerOutcome::Failed(status) => mailbox.reply(call, Err(status)),
        HandlerOutcome::Deferred => {}
    }
}

impl WorkerJob {
    /// The metadata and the message.
    fn parts(&self) -> (&[u8], &[u8]) {
        let (extension, message) = self.body.as_slice().split_at(self.front);
        (extension.get(EXTENSION_HEAD..).unwrap_or_default(), message)
    }
}

/// The host of a job's handler.
struct JobHost<'j> {
    job: &'j WorkerJob,
    /// The time of a virtual clock; `None` if the system's clock is used.
    virtual_time: Option<Instant>,
}

impl JobHost<'_> {
    /// Checks that the handler may start: the call is not cancelled, and its deadline has not
    /// passed while the request waited for a worker. `Err` is the status for the caller.
    fn starts(&self) -> Result<(), Status> {
        if self.is_cancelled() && !mutant!(CancelledJobStarts) {
            return Err(Status::cancelled("the caller has cancelled the call"));
        }
        let deadline = if mutant!(LateJobStarts) { Instant::NEVER } else { self.job.deadline };
        in_time(deadline, || self.now()).inspect_err(|_| {
            self.job.mailbox.count_late();
        })
    }
}

impl CallHost for JobHost<'_> {
    /// A buffer outside of the endpoint's pool, which only the endpoint's thread may use.
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        MsgBuf::detached(len).ok_or_else(no_memory)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.job.peer
    }

    fn session_stats(&self, _: &RequestHandle) -> Option<ClientStats> {
        None
    }

    fn is_cancelled(&self) -> bool {
        self.job.cancelled.load(Ordering::Relaxed)
    }

    fn now(&self) -> Instant {
        self.virtual_time.unwrap_or_else(clock::now)
    }

    fn has_virtual_time(&self) -> bool {
        self.virtual_time.is_some()
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(&self.job.mailbox) as _
    }

    fn cancel_flag(&self, _: RequestHandle) -> Arc<AtomicBool> {
        Arc::clone(&self.job.cancelled)
    }
}
