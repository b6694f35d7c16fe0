//! Threads for handlers that compute long or block.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::mailbox::Mailbox;
use crate::buf::MsgBuf;
use crate::protocol::RequestHandle;
use crate::service::{CallContext, ErasedHandler, Outcome, ReplyBuffers, ReplySink, Status};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// Worker threads and their queue, shared by any number of endpoints; see
/// [`Endpoint::serve`](super::Endpoint::serve).
///
/// Dropping the pool lets the workers finish what is queued, and waits for them. Endpoints that still
/// use it then answer worker methods with [`Code::Unavailable`](crate::service::Code::Unavailable).
pub struct WorkerPool<T: Transport = UdpTransport> {
    queue: WorkerQueue<T>,
    receiver: Receiver<Message<T>>,
    threads: Vec<JoinHandle<()>>,
}

/// Where endpoints leave jobs.
pub(super) struct WorkerQueue<T: Transport> {
    sender: Sender<Message<T>>,
    stopped: Arc<AtomicBool>,
}

/// A request for a worker.
pub(super) struct Job<T: Transport> {
    pub(super) handler: Arc<ErasedHandler>,
    pub(super) body: MsgBuf,
    pub(super) call: RequestHandle,
    pub(super) peer: Option<SocketAddr>,
    /// The endpoint that received the request, and gets the answer.
    pub(super) mailbox: Arc<Mailbox<T>>,
    /// Somebody answers: a worker has it, or whoever could not queue it.
    pub(super) is_taken: bool,
}

impl<T: Transport> Drop for Job<T> {
    /// A job that is dropped in the queue is answered all the same.
    fn drop(&mut self) {
        if !self.is_taken {
            self.mailbox.reply(self.call, Err(Status::unavailable("the server is shutting down")));
        }
    }
}

enum Message<T: Transport> {
    Job(Job<T>),
    /// One worker ends.
    Stop,
}

/// Why a job was not queued.
pub(super) enum Refused {
    Full,
    Stopped,
}

impl<T: Transport> WorkerPool<T> {
    /// `threads` workers and a queue of `queue` requests; a request beyond that is answered
    /// [`Code::ResourceExhausted`](crate::service::Code::ResourceExhausted).
    ///
    /// # Errors
    /// If `threads` is 0, or the system refuses a thread.
    #[expect(clippy::disallowed_methods, reason = "a pool is its threads")]
    pub fn new(threads: usize, queue: usize) -> io::Result<Self> {
        if threads == 0 {
            let error = "a worker pool needs a thread, or its requests would wait for ever";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let (sender, receiver) = bounded(queue.max(1));
        let queue = WorkerQueue { sender, stopped: Arc::new(AtomicBool::new(false)) };
        let mut pool = Self { queue, receiver, threads: Vec::with_capacity(threads) };
        for index in 0..threads {
            let receiver = pool.receiver.clone();
            let builder = std::thread::Builder::new().name(format!("erpc-worker-{index}"));
            pool.threads.push(builder.spawn(move || work(&receiver))?);
        }
        Ok(pool)
    }

    pub(super) fn queue(&self) -> WorkerQueue<T> {
        self.queue.clone()
    }
}

impl<T: Transport> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        self.queue.stopped.store(true, Ordering::Release);
        for _ in &self.threads {
            // Waits for room in the queue, which the workers make. An error means that none is left.
            if self.queue.sender.send(Message::Stop).is_err() {
                break;
            }
        }
        for thread in self.threads.drain(..) {
            // A handler may be who ends the server; its thread cannot wait for itself. Handlers' panics
            // are caught; there is nothing else to learn from a worker's end.
            if !is_current(&thread) {
                drop(thread.join());
            }
        }
        // An endpoint may have queued something just before it could see the flag: dropping answers it.
        self.receiver.try_iter().for_each(drop);
    }
}

impl<T: Transport> fmt::Debug for WorkerPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl<T: Transport> WorkerQueue<T> {
    /// Queues a job without waiting.
    pub(super) fn push(&self, job: Job<T>) -> Result<(), Refused> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(Refused::Stopped);
        }
        self.sender.try_send(Message::Job(job)).map_err(|error| {
            let (refused, message) = match error {
                TrySendError::Full(message) => (Refused::Full, message),
                TrySendError::Disconnected(message) => (Refused::Stopped, message),
            };
            if let Message::Job(mut job) = message {
                job.is_taken = true;
            }
            refused
        })
    }
}

impl<T: Transport> Clone for WorkerQueue<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), stopped: Arc::clone(&self.stopped) }
    }
}

thread_local! {
    /// The mailbox of the endpoint whose request this worker thread is handling.
    static ORIGIN: RefCell<Option<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(None) };
}

/// The mailbox of the endpoint that the request came from which this worker thread is handling.
pub(super) fn origin<T: Transport>() -> Option<Arc<Mailbox<T>>> {
    ORIGIN.with_borrow(|origin| origin.clone()?.downcast().ok())
}

/// A worker thread.
fn work<T: Transport>(receiver: &Receiver<Message<T>>) {
    while let Ok(Message::Job(job)) = receiver.recv() {
        run(job);
    }
}

/// Whether that is the thread that asks.
#[expect(clippy::disallowed_methods, reason = "threads are what this module is about")]
pub(super) fn is_current<V>(thread: &JoinHandle<V>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

fn run<T: Transport>(mut job: Job<T>) {
    job.is_taken = true;
    let call = job.call;
    let sink: Arc<dyn ReplySink> = job.mailbox.clone();
    ORIGIN.set(Some(job.mailbox.clone()));
    let context = CallContext::new(job.peer, call, &sink);
    let outcome = (job.handler)(&context, job.body.as_slice(), &mut OwnBuffers);
    ORIGIN.set(None);
    drop(job);
    match outcome {
        Outcome::Reply(response) => sink.reply(call, Ok(response)),
        Outcome::Failed(status) => sink.reply(call, Err(status)),
        Outcome::Deferred => {}
    }
}

/// Responses of workers go into buffers of their own: the endpoint's pool belongs to its thread.
struct OwnBuffers;

impl ReplyBuffers for OwnBuffers {
    fn buffer(&mut self, len: usize) -> Result<MsgBuf, Status> {
        MsgBuf::detached(len)
            .ok_or_else(|| Status::resource_exhausted("the server has no memory for the response"))
    }
}
