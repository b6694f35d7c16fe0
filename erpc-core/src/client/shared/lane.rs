//! The queue from the clones of a shared channel to one endpoint's thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::buffers::SMALL;
use super::threads::ClientThreads;
use crate::buf::MsgBuf;
use crate::calling::CallOptions;
use crate::calling::options::{CallFlags, CallHead, PreparedCall};
use crate::calling::posted::{PostedCall, PostedCaller};
use crate::calling::table::CallOutcome;
use crate::client::channel::Channel;
use crate::endpoint::{Endpoint, Handle};
use crate::protocol::{CallError, Cause, RejectReason};
use crate::sync::{Mutex, MutexGuard};
use crate::time::Instant;
use crate::transport::Transport;

/// Most posts that may wait for an endpoint's thread. The thread takes all posts thousands of times
/// a second, so a full lane means that the thread is stuck or far too slow.
const LANE_LIMIT: usize = 65_536;

/// The queue from the clones of a shared channel to one endpoint's thread. The endpoint finds its
/// own channel by the lane's `id`.
pub(super) struct Lane<T: Transport> {
    /// Distinguishes the lanes of a process.
    id: u64,
    endpoint: Handle<T>,
    queue: Mutex<LaneQueue<T>>,
    /// Keeps the endpoint's thread alive, also for calls that outlive their channel. `None` if the
    /// endpoint is the user's.
    _threads: Option<ClientThreads>,
    /// Builds the endpoint's own channel.
    build: Arc<BuildChannel<T>>,
}

/// Builds a channel at an endpoint.
pub(super) type BuildChannel<T> = dyn Fn(&Endpoint<T>) -> Channel<T> + Send + Sync;

struct LaneQueue<T: Transport> {
    posts: Vec<Post<T>>,
    /// Whether a job that takes the posts is queued at the endpoint.
    scheduled: bool,
    /// Whether the lane was ever used.
    used: bool,
    /// Whether the endpoint is gone.
    closed: bool,
}

/// Runs at a lane's endpoint, with its channel.
pub(super) type ChannelJob<T> = Box<dyn FnOnce(&Channel<T>) + Send>;

/// A request to a lane's endpoint.
pub(super) enum Post<T: Transport> {
    Call(NewPost),
    Cancel(Arc<PostedCall>),
    /// Runs at the endpoint, with its channel. Dropped without running if the endpoint is gone.
    Job(ChannelJob<T>),
}

/// An encoded call that the endpoint has not started.
pub(super) struct NewPost {
    pub(super) caller: PostedCaller,
    pub(super) method: u32,
    pub(super) request: MsgBuf,
    pub(super) flags: CallFlags,
    pub(super) idempotent: bool,
    pub(super) within: Option<Duration>,
    pub(super) options: Option<Arc<CallOptions>>,
}

impl<T: Transport> Lane<T> {
    pub(super) fn new(
        endpoint: Handle<T>,
        threads: Option<ClientThreads>,
        build: Arc<BuildChannel<T>>,
    ) -> Self {
        static LANES: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LANES.fetch_add(1, Ordering::Relaxed),
            endpoint,
            queue: Mutex::new(LaneQueue {
                posts: Vec::new(),
                scheduled: false,
                used: false,
                closed: false,
            }),
            _threads: threads,
            build,
        }
    }

    fn queue(&self) -> MutexGuard<'_, LaneQueue<T>> {
        // No code that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a post for the endpoint, and wakes the endpoint if it sleeps. A post that is refused
    /// ends: a call with an error, a job by being dropped.
    pub(super) fn post(self: &Arc<Self>, post: Post<T>) {
        let mut queue = self.queue();
        if queue.closed || queue.posts.len() >= LANE_LIMIT {
            let error = match queue.closed {
                true => CallError::NotExecuted(Cause::Shutdown),
                false => CallError::Rejected(RejectReason::QueueFull),
            };
            drop(queue);
            return post.refuse(error);
        }
        queue.posts.push(post);
        queue.used = true;
        let first = !std::mem::replace(&mut queue.scheduled, true);
        drop(queue);
        if first {
            let job = LaneJob { lane: Arc::clone(self), ran: false };
            // If the endpoint is gone, the job is dropped, which closes the lane.
            self.endpoint.submit_always(move |endpoint| job.run(endpoint));
        }
    }

    /// Wakes the tasks that wait for calls of this endpoint and that the endpoint has not woken
    /// itself; see [`wakes`](crate::event_loop::wakes).
    pub(super) fn release_tasks(&self) {
        self.endpoint.release_tasks();
    }

    /// Takes the posts into the empty vector `posts`.
    fn take(&self, posts: &mut Vec<Post<T>>) {
        let mut queue = self.queue();
        queue.scheduled = false;
        std::mem::swap(&mut queue.posts, posts);
    }

    /// Refuses all posts from now on, because the endpoint is gone.
    fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let posts = std::mem::take(&mut queue.posts);
        drop(queue);
        posts.into_iter().for_each(|post| post.refuse(CallError::NotExecuted(Cause::Shutdown)));
    }

    /// Drops the endpoint's own channel, once the endpoint has handled the posts that are queued.
    pub(super) fn end(self: &Arc<Self>) {
        if !self.queue().used {
            return;
        }
        let id = self.id;
        self.post(Post::Job(Box::new(move |channel| {
            let lanes = Endpoint::<T>::current().map(|endpoint| Lanes::of(&endpoint));
            let ended = lanes.and_then(|lanes| lanes.channels.borrow_mut().remove(&id));
            // Both references are dropped outside of the borrow: a channel's end runs its tasks'
            // destructors.
            drop((ended, channel));
        })));
    }
}

/// The job that takes a lane's posts at the endpoint. If it is dropped without having run, the
/// endpoint is gone.
struct LaneJob<T: Transport> {
    lane: Arc<Lane<T>>,
    ran: bool,
}

impl<T: Transport> LaneJob<T> {
    fn run(mut self, endpoint: &Endpoint<T>) {
        self.ran = true;
        let lanes = Lanes::of(endpoint);
        let channel = lanes.channel(&self.lane, endpoint);
        let mut posts = lanes.spare.take();
        self.lane.take(&mut posts);
        for post in posts.drain(..) {
            post.start(&channel);
        }
        lanes.spare.replace(posts);
    }
}

impl<T: Transport> Drop for LaneJob<T> {
    fn drop(&mut self) {
        if !self.ran {
            self.lane.close();
        }
    }
}

/// The channels of an endpoint that lanes use.
struct Lanes<T: Transport> {
    channels: RefCell<HashMap<u64, Channel<T>>>,
    /// An empty vector, to swap with a lane's posts.
    spare: RefCell<Vec<Post<T>>>,
}

impl<T: Transport> Lanes<T> {
    fn of(endpoint: &Endpoint<T>) -> Rc<Self> {
        endpoint.local(|_| Self { channels: RefCell::default(), spare: RefCell::default() })
    }

    /// The channel of `lane`, which is built at the first use.
    fn channel(&self, lane: &Lane<T>, endpoint: &Endpoint<T>) -> Channel<T> {
        if let Some(channel) = self.channels.borrow().get(&lane.id) {
            return channel.clone();
        }
        let channel = (lane.build)(endpoint);
        self.channels.borrow_mut().insert(lane.id, channel.clone());
        channel
    }
}

impl<T: Transport> Post<T> {
    fn start(self, channel: &Channel<T>) {
        match self {
            Self::Call(call) => call.start(channel),
            Self::Cancel(call) => channel.cancel_posted(&call),
            Self::Job(job) => job(channel),
        }
    }

    /// Ends the post without running it.
    fn refuse(self, error: CallError) {
        if let Self::Call(NewPost { caller, .. }) = self
            && let Some(waker) = caller.end(Err(error))
        {
            waker.wake();
        }
    }
}

impl NewPost {
    fn start<T: Transport>(self, channel: &Channel<T>) {
        let Self { caller, method, request, flags, idempotent, within, options } = self;
        let call = match caller.call() {
            Some(call) if !call.is_over() => Arc::clone(call),
            _ => return,
        };
        let endpoint = channel.endpoint();
        // Small requests are bounded by `LANE_LIMIT`, and their buffers return to the caller's
        // thread. Large ones count against the endpoint's memory limit.
        let request = match request.capacity() > SMALL {
            true => endpoint.pool().adopt(request).map_err(RejectReason::NoMemory),
            false => Ok(request),
        };
        let now = || endpoint.scheduler().now();
        let deadline = within.map_or(Instant::NEVER, |within| now() + within);
        let head = CallHead { method, flags, deadline };
        let prepared = request.map(|request| PreparedCall { head, request });
        let outcome = || CallOutcome::Posted(caller);
        let key = channel.start_prepared(prepared, idempotent, options.as_deref(), outcome);
        call.started(key);
    }
}
