//! Threads for handlers that compute long or block.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::buf::MsgBuf;
use crate::clock;
use crate::event_loop::mailbox::Mailbox;
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

mod queue;

/// Worker threads and their queue, shared by any number of endpoints; see
/// [`Endpoint::serve`](crate::endpoint::Endpoint::serve).
///
/// Dropping the pool lets the workers finish what is queued, and waits for them. Endpoints that still
/// use it then answer worker methods with [`Code::Unavailable`](crate::status::Code::Unavailable).
pub struct WorkerPool {
    queue: WorkerQueue,
    threads: Vec<JoinHandle<()>>,
}

/// Where endpoints leave jobs.
pub(crate) struct WorkerQueue(Arc<JobQueue<WorkerJob>>);

/// A request for a worker.
pub(crate) struct WorkerJob {
    pub(crate) entry: Arc<RouteEntry>,
    pub(crate) body: MsgBuf,
    /// Bytes of the body that are its extension.
    pub(crate) front: usize,
    pub(crate) call: RequestHandle,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) deadline: Instant,
    /// Set when the caller has given the call up.
    pub(crate) cancelled: Arc<AtomicBool>,
    /// The endpoint that received the request, and gets the answer.
    pub(crate) mailbox: Arc<Mailbox>,
}

impl WorkerPool {
    /// `threads` workers and a queue of `queue` requests; a request beyond that is answered
    /// [`Code::ResourceExhausted`](crate::status::Code::ResourceExhausted).
    ///
    /// # Errors
    /// If `threads` is 0, or the system refuses a thread.
    #[expect(clippy::disallowed_methods, reason = "a pool is its threads")]
    pub fn new(threads: usize, queue: usize) -> io::Result<Self> {
        if threads == 0 {
            let error = "a worker pool needs a thread, or its requests would wait for ever";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let queue = WorkerQueue(Arc::new(JobQueue::new(queue.max(1))));
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
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.queue.0.stop();
        for thread in self.threads.drain(..) {
            // A handler may end the server; its thread cannot wait for itself, and finishes the queue when the
            // handler has returned. Panics of handlers are caught, so the thread's result says nothing.
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
    /// Queues a job without waiting. Every job that is queued is run; one that is not is the caller's to
    /// answer.
    pub(crate) fn push(&self, job: WorkerJob) -> Result<(), JobRefused> {
        self.0.push(job).map_err(|(refused, _)| refused)
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

/// The mailbox of the endpoint whose request this worker thread is handling.
pub(crate) fn origin() -> Option<Arc<Mailbox>> {
    ORIGIN.with_borrow(Clone::clone)
}

/// A worker thread.
fn work(queue: &WorkerQueue) {
    while let Some(job) = queue.0.pop() {
        run(job);
    }
}

/// Whether that is the current thread.
#[expect(clippy::disallowed_methods, reason = "threads are what this module is about")]
pub(crate) fn is_current<V>(thread: &JoinHandle<V>) -> bool {
    thread.thread().id() == current().id()
}

fn run(job: WorkerJob) {
    let call = job.call;
    let mailbox = Arc::clone(&job.mailbox);
    ORIGIN.set(Some(Arc::clone(&job.mailbox)));
    let outcome = match job.starts() {
        Ok(()) => {
            let (entries, message) = job.parts();
            let context = job
                .entry
                .context(call, &job)
                .with_extension(job.deadline, MetadataRef::new(entries));
            job.entry.call(&context, message)
        }
        Err(status) => HandlerOutcome::Failed(status),
    };
    ORIGIN.set(None);
    drop(job);
    match outcome {
        HandlerOutcome::Reply(reply) => mailbox.reply(call, Ok(reply)),
        HandlerOutcome::Failed(status) => mailbox.reply(call, Err(status)),
        HandlerOutcome::Deferred => {}
    }
}

impl WorkerJob {
    /// Whether the caller still waits for the answer, now that there is a worker for the request.
    fn starts(&self) -> Result<(), Status> {
        if self.is_cancelled() {
            return Err(Status::cancelled("the caller has given the call up"));
        }
        in_time(self.deadline, clock::now).inspect_err(|_| {
            self.mailbox.count_late();
        })
    }

    /// The metadata and the message.
    fn parts(&self) -> (&[u8], &[u8]) {
        let (extension, message) = self.body.as_slice().split_at(self.front);
        (extension.get(EXTENSION_HEAD..).unwrap_or_default(), message)
    }
}

impl CallHost for WorkerJob {
    /// A buffer of its own: the endpoint's pool belongs to its thread.
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        MsgBuf::detached(len).ok_or_else(no_memory)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn session_stats(&self, _: &RequestHandle) -> Option<ClientStats> {
        None
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(&self.mailbox) as _
    }

    fn cancel_flag(&self, _: RequestHandle) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }
}
