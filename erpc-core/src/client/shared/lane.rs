//! The queue from the clones of a shared channel to one endpoint's thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::vec::Drain;

use super::buffers::SMALL;
use super::threads::ClientThreads;
use crate::buf::MsgBuf;
use crate::calling::CallOptions;
use crate::calling::options::{CallFlags, CallHead, PreparedCall, TimeLeft};
use crate::calling::posted::{PostedCall, PostedCaller};
use crate::calling::table::CallOutcome;
use crate::client::channel::Channel;
use crate::endpoint::{Endpoint, Handle};
use crate::protocol::{CallError, Cause, RejectReason};
use crate::service::Keeper;
use crate::sync::{Mutex, MutexGuard};
use crate::transport::Transport;

/// Number of waiting posts at which new calls and streams are refused. The endpoint's thread takes
/// all posts thousands of times a second, so a full lane means that the thread is stuck or far too
/// slow.
const LANE_LIMIT: usize = 65_536;

/// The queue from the clones of a shared channel to one endpoint's thread. The endpoint finds its
/// own channel by the lane's `id`.
pub(super) struct Lane<T: Transport> {
    /// Distinguishes the lanes of a process.
    id: u64,
    endpoint: Handle<T>,
    queue: Mutex<LaneQueue<T>>,
    /// Keeps the endpoint's thread alive, also for calls and streams that outlive their channel.
    /// `None` if the endpoint is the user's.
    threads: Option<ClientThreads>,
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

/// Starts a stream on the endpoint's channel, or fails the stream with the error.
pub(super) type StreamJob<T> =
    Box<dyn FnOnce(Result<(&Endpoint<T>, &Channel<T>), CallError>) + Send>;

/// Runs at a lane's endpoint, with its channel. Dropped without running if that is impossible.
pub(super) type ChannelJob<T> = Box<dyn FnOnce(&Endpoint<T>, &Channel<T>) + Send>;

/// A request to a lane's endpoint.
pub(super) enum Post<T: Transport> {
    Call(NewPost),
    Stream(StreamJob<T>),
    Cancel(Arc<PostedCall>),
    /// A question about the channel.
    Ask(ChannelJob<T>),
    /// Drops the endpoint's own channel. Only cancels follow.
    End,
}

/// An encoded call that the endpoint has not started.
pub(super) struct NewPost {
    pub(super) caller: PostedCaller,
    pub(super) method: u32,
    pub(super) request: MsgBuf,
    pub(super) flags: CallFlags,
    pub(super) idempotent: bool,
    pub(super) time: TimeLeft,
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
            threads,
            build,
        }
    }

    fn queue(&self) -> MutexGuard<'_, LaneQueue<T>> {
        // No code that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a post for the endpoint, and wakes the endpoint if it sleeps. A full lane refuses only
    /// calls and streams: the other posts end something, or come from a few tasks. A call or a
    /// stream that is refused ends with an error.
    pub(super) fn post(self: &Arc<Self>, post: Post<T>) {
        let mut queue = self.queue();
        let refused = if queue.closed {
            Some(CallError::NotExecuted(Cause::Shutdown))
        } else if queue.posts.len() >= LANE_LIMIT && post.begins() {
            Some(CallError::Rejected(RejectReason::QueueFull))
        } else {
            None
        };
        if let Some(error) = refused {
            drop(queue);
            return post.refuse(error);
        }
        queue.posts.push(post);
        queue.used = true;
        let first = !std::mem::replace(&mut queue.scheduled, true);
        drop(queue);
        if first {
            let job = LaneJob { lane: Arc::clone(self), took: false };
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
        if self.queue().used {
            self.post(Post::End);
        }
    }

    /// What keeps the endpoint's thread alive. `None` if the endpoint is the user's.
    pub(super) fn keeper(&self) -> Option<Keeper> {
        self.threads.as_ref().map(ClientThreads::keeper)
    }
}

/// The job that takes a lane's posts at the endpoint. If it is dropped without having taken them,
/// the endpoint is gone.
struct LaneJob<T: Transport> {
    lane: Arc<Lane<T>>,
    took: bool,
}

impl<T: Transport> LaneJob<T> {
    fn run(mut self, endpoint: &Endpoint<T>) {
        let lanes = Lanes::of(endpoint);
        let mut posts = lanes.spare.take();
        self.lane.take(&mut posts);
        self.took = true;
        let mut unstarted = Unstarted(posts.drain(..));
        // A cancel may follow the channel's end, and needs no channel.
        let needed = unstarted.0.as_slice().iter().any(Post::needs_channel);
        let mut channel = needed.then(|| lanes.channel(&self.lane, endpoint));
        for post in unstarted.0.by_ref() {
            match (post, &channel) {
                (Post::Call(call), Some(channel)) => call.start(channel),
                (Post::Stream(start), Some(channel)) => start(Ok((endpoint, channel))),
                (Post::Ask(job), Some(channel)) => job(endpoint, channel),
                (Post::Cancel(call), _) => endpoint.parts().calls().cancel_posted(&call),
                (Post::End, _) => {
                    let ended = lanes.channels.borrow_mut().remove(&self.lane.id);
                    // Both references are dropped outside of the borrow: a channel's end runs its
                    // tasks' destructors.
                    drop((ended, channel.take()));
                }
                (post, None) => post.refuse(CallError::NotExecuted(Cause::Shutdown)),
            }
        }
        drop(unstarted);
        lanes.spare.replace(posts);
    }
}

impl<T: Transport> Drop for LaneJob<T> {
    fn drop(&mut self) {
        if !self.took {
            self.lane.close();
        }
    }
}

/// Posts that an endpoint has taken and not started. They are refused if a panic unwinds, which is
/// that of the channel's resolver.
struct Unstarted<'a, T: Transport>(Drain<'a, Post<T>>);

impl<T: Transport> Drop for Unstarted<'_, T> {
    fn drop(&mut self) {
        let unresolved = CallError::NotExecuted(Cause::Unresolved);
        self.0.by_ref().for_each(|post| post.refuse(unresolved.clone()));
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
    /// Whether the post begins a call or a stream.
    fn begins(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Stream(_))
    }

    fn needs_channel(&self) -> bool {
        self.begins() || matches!(self, Self::Ask(_))
    }

    /// Ends the post without running it.
    fn refuse(self, error: CallError) {
        match self {
            Self::Call(NewPost { caller, .. }) => {
                if let Some(waker) = caller.end(Err(error)) {
                    waker.wake();
                }
            }
            Self::Stream(start) => start(Err(error)),
            Self::Cancel(_) | Self::Ask(_) | Self::End => {}
        }
    }
}

impl NewPost {
    fn start<T: Transport>(self, channel: &Channel<T>) {
        let Self { caller, method, request, flags, idempotent, time, options } = self;
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
        let head = CallHead { method, flags, deadline: time.deadline(endpoint.scheduler()) };
        let prepared = request.map(|request| PreparedCall { head, request });
        let outcome = || CallOutcome::Posted(caller);
        let key = channel.start_prepared(prepared, idempotent, options.as_deref(), outcome);
        call.started(key);
    }
}
