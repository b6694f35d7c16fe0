//! Shared channels and their settings.

use std::fmt::{self, Display};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::BufMut;
use futures_channel::oneshot;

use super::buffers::take_buffer;
use super::call::SharedCall;
use super::lane::{BuildChannel, Lane, NewPost, Post};
use super::threads::{ClientThreads, ClientThreadsError};
use crate::calling::CallOptions;
use crate::calling::options::{TimeLeft, encode};
use crate::calling::posted::{PostedCall, PostedCaller};
use crate::calling::retry::Backoff;
use crate::client::channel::{
    BackendStats, Balance, BalancerSettings, Channel, ChannelBuilder, ChannelStats, Lookup,
    Resolver,
};
use crate::client::connect_error::{ConnectFailed, ConnectFailure};
use crate::client::stream::caller::ClientStream;
use crate::client::stream::start::StreamStart;
use crate::endpoint::{Endpoint, Handle};
use crate::protocol::{CallError, Cause, RejectReason};
use crate::service::{
    Codec, Encodes, InPipe, InPump, Method, OutPipe, OutPump, Reader, SharedIncoming,
    SharedOutgoing, SharedUpload, is_of_item,
};
use crate::transport::Transport;
use crate::transport::udp::{UdpRoute, UdpTransport};

/// Calls to a service, for all threads and every runtime: `Clone`, `Send` and `Sync`.
///
/// Endpoints on threads of their own make the calls ([`ClientThreads`]). A call costs more than one
/// on a [`Channel`], which belongs to one thread, and its response arrives after a wake-up between
/// threads. Requests are encoded and responses decoded on the caller's thread.
///
/// ```no_run
/// use erpc_core::client::SharedChannel;
/// use erpc_core::service::Method;
///
/// const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double");
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let channel = SharedChannel::connect("math.example:31850").await?;
/// assert_eq!(channel.call(&DOUBLE, &21).await?, 42);
/// # Ok(())
/// # }
/// ```
///
/// Cheap to clone; all clones use the same sessions. When the last clone is dropped, the sessions
/// end after the calls that are in progress.
#[must_use = "dropping the last clone disconnects the channel"]
pub struct SharedChannel<T: Transport = UdpTransport> {
    lanes: Arc<Lanes<T>>,
    options: Option<Arc<CallOptions>>,
}

/// A stream that has begun, and its endpoint.
type OpenStream<'a, T> = (&'a Endpoint<T>, Rc<ClientStream<T>>);

/// The lanes of a channel, one per thread.
struct Lanes<T: Transport> {
    lanes: Vec<Arc<Lane<T>>>,
}

impl<T: Transport> Lanes<T> {
    /// The lane for calls of this thread.
    fn of_this_thread(&self) -> &Arc<Lane<T>> {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        match &*self.lanes {
            [only] => only,
            lanes => &lanes[NUMBER.with(|number| *number as usize % lanes.len())],
        }
    }
}

impl<T: Transport> Drop for Lanes<T> {
    fn drop(&mut self) {
        self.lanes.iter().for_each(Lane::end);
    }
}

impl SharedChannel {
    /// Connects to `server`, a name or an address with a port: `"10.0.0.7:31850"`,
    /// `"kv.example:31850"`, a `SocketAddr`. If the name has several addresses, each is a server
    /// and gets a share of the calls. The name is resolved again when a session ends.
    ///
    /// # Errors
    /// [`ConnectFailed`] if the name cannot be resolved or no server answers.
    pub async fn connect(server: impl Display) -> Result<Self, ConnectFailed> {
        let server = server.to_string();
        let channel = Self::to(Lookup::new(server.clone())).build();
        let channel =
            channel.map_err(|error| ConnectFailed::new(server, ConnectFailure::Threads(error)))?;
        channel.ready().await?;
        Ok(channel)
    }

    /// Builds a channel to the servers that `resolver` returns: a `Vec` of routes, a [`Lookup`] of
    /// a name, or a custom resolver. Each client thread that makes calls of the channel asks its
    /// own clone of the resolver. Nothing is resolved or connected before the first call or
    /// [`SharedChannel::ready`].
    pub fn to(
        resolver: impl Resolver<UdpRoute> + Clone + Send + Sync,
    ) -> SharedChannelBuilder<UdpTransport> {
        SharedChannelBuilder::new(SharedEndpoints::Default(default_endpoints), resolver)
    }
}

impl<T: Transport> SharedChannel<T> {
    /// Like [`SharedChannel::to`], for an endpoint of the user, whose thread must run the
    /// endpoint's loop. For other transports, such as the one in memory for tests.
    pub fn on(
        endpoint: &Handle<T>,
        resolver: impl Resolver<T::Route> + Clone + Send + Sync,
    ) -> SharedChannelBuilder<T> {
        SharedChannelBuilder::new(SharedEndpoints::Chosen(vec![endpoint.clone()], None), resolver)
    }

    /// The same channel with `options` for its calls. Options that are not set stay unchanged.
    pub fn with(&self, options: CallOptions) -> Self {
        let options = match self.options.as_deref() {
            Some(defaults) => options.or(defaults),
            None => options,
        };
        Self { lanes: Arc::clone(&self.lanes), options: Some(Arc::new(options)) }
    }

    /// Calls `method`. The request is encoded now, and the endpoint's thread sends it, whether or
    /// not the future is polled. Dropping the future cancels the call.
    ///
    /// # Errors
    /// The future returns every error.
    pub fn call<Req, Resp, C, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
    ) -> SharedCall<Resp, T>
    where
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        let options = self.options.as_deref();
        let time = TimeLeft::from_now(CallOptions::time_limit(options, method));
        let encoded = encode(method, request, options, time.is_limited(), take_buffer);
        let posted = encoded.map(|(request, flags)| {
            let (lane, call) = (self.lanes.of_this_thread(), Arc::new(PostedCall::new()));
            lane.post(Post::Call(NewPost {
                caller: PostedCaller::new(&call),
                method: method.id(),
                request,
                flags,
                idempotent: method.is_idempotent(),
                time,
                options: self.options.clone(),
            }));
            (call, Arc::clone(lane))
        });
        SharedCall::new(method, posted)
    }

    /// Calls a method that answers with a stream of messages, on one of the channel's servers; see
    /// [`Channel::server_streaming`].
    ///
    /// # Errors
    /// [`SharedIncoming::next`] returns every error.
    pub fn server_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
    ) -> SharedIncoming<Resp> {
        let lane = self.lanes.of_this_thread();
        let (pipe, limit) =
            (Arc::new(InPipe::new(Reader::Caller)), method.request_limit() as usize);
        let pump = InPump::new(&pipe);
        let size = request.encoded_len::<C>();
        if size > limit {
            pump.fail(CallError::Rejected(RejectReason::TooLarge { size, limit }));
        } else {
            let mut bytes = Vec::with_capacity(size);
            request.encode::<C>(&mut bytes);
            self.stream(lane, method, move |stream| match stream {
                Ok((endpoint, stream)) => {
                    stream.put_only(bytes.len(), limit, &mut |out| out.put_slice(&bytes));
                    drop(endpoint.spawn(pump.run(stream)));
                }
                Err(error) => pump.fail(error),
            });
        }
        SharedIncoming::new::<D>(pipe, method.response_limit(), lane.keeper())
    }

    /// Calls a method that takes a stream of messages and answers with one message; see
    /// [`Channel::client_streaming`].
    pub fn client_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
    ) -> SharedUpload<Req, Resp> {
        let (messages, response) = self.bidi_streaming(method);
        SharedUpload::new(messages, response)
    }

    /// Calls a method that takes and answers with a stream of messages; see
    /// [`Channel::bidi_streaming`]. Dropping the [`SharedOutgoing`] ends the client's messages;
    /// dropping the [`SharedIncoming`] ends the stream.
    pub fn bidi_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
    ) -> (SharedOutgoing<Req>, SharedIncoming<Resp>) {
        let lane = self.lanes.of_this_thread();
        let (items, batches) =
            (Arc::new(OutPipe::default()), Arc::new(InPipe::new(Reader::Caller)));
        let (out, pump) = (OutPump::new(&items), InPump::new(&batches));
        self.stream(lane, method, move |stream| match stream {
            Ok((endpoint, stream)) => {
                let upload = Rc::clone(&stream);
                drop(endpoint.spawn(async move {
                    if let Err(error) = out.run(Rc::clone(&upload) as _).await
                        && is_of_item(&error)
                    {
                        upload.end(error);
                    }
                }));
                drop(endpoint.spawn(pump.run(stream)));
            }
            Err(error) => {
                out.fail(error.clone());
                pump.fail(error);
            }
        });
        (
            SharedOutgoing::new::<C>(items, method.request_limit(), lane.keeper()),
            SharedIncoming::new::<D>(batches, method.response_limit(), lane.keeper()),
        )
    }

    /// Opens a stream at the lane's endpoint and passes it to `begin`, or the reason why the stream
    /// cannot begin.
    fn stream<Req, Resp, C, D>(
        &self,
        lane: &Arc<Lane<T>>,
        method: &Method<Req, Resp, C, D>,
        begin: impl FnOnce(Result<OpenStream<'_, T>, CallError>) + Send + 'static,
    ) {
        let start = StreamStart::posted(method, self.options.as_deref());
        lane.post(Post::Stream(Box::new(move |place| {
            begin(place.map(|(endpoint, channel)| (endpoint, channel.open_stream(&start))));
        })));
    }

    /// Waits until a server is connected. Starts to connect if the channel has not been used
    /// before.
    ///
    /// # Errors
    /// [`ConnectFailed`] if all servers were tried and none could be reached. The channel keeps
    /// trying.
    pub async fn ready(&self) -> Result<(), ConnectFailed> {
        let ready = self.at_endpoint(|channel| {
            let channel = channel.clone();
            async move { channel.ready().await }
        });
        let gone = ConnectFailed::new(String::new(), ConnectFailure::Ended(Cause::Shutdown));
        ready.await.unwrap_or(Err(gone))
    }

    /// The channel's current servers, as the endpoint that makes the calls of this thread sees
    /// them. Empty if that endpoint is gone.
    pub async fn backends(&self) -> Vec<BackendStats<T::Route>> {
        let backends = self.at_endpoint(|channel| std::future::ready(channel.backends()));
        backends.await.unwrap_or_default()
    }

    /// The counters of this channel at the endpoint that makes the calls of this thread.
    pub async fn stats(&self) -> ChannelStats {
        let stats = self.at_endpoint(|channel| std::future::ready(channel.stats()));
        stats.await.unwrap_or_default()
    }

    /// Runs the future of `job` at the endpoint. `None` if the endpoint is gone.
    async fn at_endpoint<F>(
        &self,
        job: impl FnOnce(&Channel<T>) -> F + Send + 'static,
    ) -> Option<F::Output>
    where
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (mut sender, receiver) = oneshot::channel();
        self.lanes.of_this_thread().post(Post::Ask(Box::new(move |endpoint, channel| {
            let future = job(channel);
            let task = async move {
                let mut future = pin!(future);
                let answer = poll_fn(|cx| match sender.poll_canceled(cx) {
                    // Nobody waits any more; the future may hold the channel.
                    Poll::Ready(()) => Poll::Ready(None),
                    Poll::Pending => future.as_mut().poll(cx).map(Some),
                });
                if let Some(answer) = answer.await {
                    drop(sender.send(answer));
                }
            };
            drop(endpoint.spawn(task));
        })));
        receiver.await.ok()
    }
}

impl<T: Transport> Clone for SharedChannel<T> {
    fn clone(&self) -> Self {
        Self { lanes: Arc::clone(&self.lanes), options: self.options.clone() }
    }
}

impl<T: Transport> fmt::Debug for SharedChannel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedChannel")
            .field("threads", &self.lanes.lanes.len())
            .field("options", &self.options)
            .finish()
    }
}

/// Builder of a shared channel; see [`SharedChannel::to`].
#[must_use = "a builder connects nothing until `build`"]
pub struct SharedChannelBuilder<T: Transport = UdpTransport> {
    endpoints: SharedEndpoints<T>,
    settings: BalancerSettings,
    options: Option<CallOptions>,
    start: Arc<StartChannel<T>>,
}

/// Builds a channel with these settings at an endpoint.
type StartChannel<T> = dyn Fn(&Endpoint<T>, BalancerSettings) -> Channel<T> + Send + Sync;

/// Default number of sessions to each server: 64 calls in flight.
const SESSIONS: usize = 8;
/// Default number of calls that wait for a session.
const QUEUE_LIMIT: usize = 16_384;

impl<T: Transport> SharedChannelBuilder<T> {
    fn new(
        endpoints: SharedEndpoints<T>,
        resolver: impl Resolver<T::Route> + Clone + Send + Sync,
    ) -> Self {
        let settings = BalancerSettings {
            sessions: SESSIONS,
            queue_limit: QUEUE_LIMIT,
            ..BalancerSettings::default()
        };
        let start = move |endpoint: &Endpoint<T>, settings| {
            ChannelBuilder::with_settings(endpoint, resolver.clone(), settings).build()
        };
        Self { endpoints, settings, options: None, start: Arc::new(start) }
    }

    /// How calls are spread over the servers. Default: [`Balance::RoundRobin`].
    pub const fn balance(mut self, balance: Balance) -> Self {
        self.settings.balance = balance;
        self
    }

    /// Sessions to each server from each thread; at least 1, default 8. A session has up to 8 calls
    /// in flight, or as many as it has [slots](crate::protocol::EndpointConfig::slots). One thread
    /// of the server serves it.
    pub const fn sessions(mut self, per_server: usize) -> Self {
        self.settings.sessions = if per_server == 0 { 1 } else { per_server };
        self
    }

    /// Pause before a server is tried again; see [`ChannelBuilder::backoff`].
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.settings.backoff = Backoff { base, cap };
        self
    }

    /// Shortest time from an answer of the resolver to the next query; see
    /// [`ChannelBuilder::resolve_pause`].
    pub const fn resolve_pause(mut self, pause: Duration) -> Self {
        self.settings.resolve_pause = pause;
        self
    }

    /// Maximum number of calls that wait for a session, per thread. Default: 16,384. A further call
    /// fails with [`RejectReason::QueueFull`].
    pub const fn queue_limit(mut self, calls: usize) -> Self {
        self.settings.queue_limit = calls;
        self
    }

    /// Asks each server whether it serves `service`; see [`ChannelBuilder::health_check`].
    pub fn health_check(mut self, service: &str) -> Self {
        self.settings.health = Some(Arc::from(service));
        self
    }

    /// Options of all calls; [`SharedChannel::with`] overrides single ones. Default: nothing set.
    pub fn options(mut self, options: CallOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Builds the channel. It resolves and connects nothing until its first use.
    ///
    /// # Errors
    /// [`ClientThreadsError`] if the default threads are needed and cannot be started.
    pub fn build(self) -> Result<SharedChannel<T>, ClientThreadsError> {
        let Self { endpoints, settings, options, start } = self;
        let (handles, threads) = match endpoints {
            SharedEndpoints::Default(start) => start()?,
            SharedEndpoints::Chosen(handles, threads) => (handles, threads),
        };
        let build: Arc<BuildChannel<T>> =
            Arc::new(move |endpoint: &Endpoint<T>| start(endpoint, settings.clone()));
        let lane = |handle| Arc::new(Lane::new(handle, threads.clone(), Arc::clone(&build)));
        let lanes = Arc::new(Lanes { lanes: handles.into_iter().map(lane).collect() });
        Ok(SharedChannel { lanes, options: options.map(Arc::new) })
    }
}

impl SharedChannelBuilder<UdpTransport> {
    /// The threads that make the calls. Default: [`ClientThreads::default_threads`].
    pub fn threads(mut self, threads: &ClientThreads) -> Self {
        let handles = threads.handles().cloned().collect();
        self.endpoints = SharedEndpoints::Chosen(handles, Some(threads.clone()));
        self
    }
}

impl<T: Transport> fmt::Debug for SharedChannelBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedChannelBuilder")
            .field("settings", &self.settings)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The endpoints that make the calls of a shared channel, and the threads to keep alive for them.
enum SharedEndpoints<T: Transport> {
    /// Those that the function returns.
    Default(fn() -> Result<EndpointChoice<T>, ClientThreadsError>),
    Chosen(Vec<Handle<T>>, Option<ClientThreads>),
}

type EndpointChoice<T> = (Vec<Handle<T>>, Option<ClientThreads>);

fn default_endpoints() -> Result<EndpointChoice<UdpTransport>, ClientThreadsError> {
    let threads = ClientThreads::default_threads()?;
    Ok((threads.handles().cloned().collect(), Some(threads)))
}
