//! The endpoint that users hold.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use super::entered::{self, AnyEndpoint};
use super::handle::Handle;
use super::parts::EndpointParts;
use super::watch::Watch;
use crate::buf::{MsgBuf, NoMemory};
use crate::debug_text::debug_is_display;
use crate::event_loop::idle::IdlePolicy;
use crate::event_loop::{EndpointStats, Rpc};
use crate::executor::join::JoinHandle;
use crate::executor::scheduler::Scheduler;
use crate::executor::sleep::{Elapsed, Sleep};
use crate::protocol::{Acceptor, ConfigError, EndpointConfig, ListenGroup};
use crate::random::{random_key, secret};
use crate::service::Routes;
use crate::serving::worker::{WorkerPool, WorkerQueue};
use crate::time::Instant;
#[cfg(feature = "dpdk")]
use crate::transport::dpdk::{DpdkConfig, DpdkError, DpdkTransport};
use crate::transport::udp::{UdpConfig, UdpError, UdpTransport};
#[cfg(feature = "ibverbs")]
use crate::transport::verbs::{IbvDevice, Ibverbs, VerbsConfig, VerbsError, VerbsTransport};
use crate::transport::{Route, Transport};

/// An endpoint: sessions to peers, calls on them, handlers for requests of peers, and the loop that
/// drives them. It belongs to one thread; a thread may have several.
///
/// Packets move only while the loop runs: in [`Endpoint::block_on`], [`Endpoint::run_until`] or
/// [`Endpoint::run_once`]. Tasks, callbacks and handlers run within the loop, one after the other,
/// on this thread. A call takes no lock, and touches no reference count that another thread
/// touches.
///
/// Cheap to clone; all clones are the same endpoint. When the last clone is dropped, its tasks are
/// dropped, its sessions end and its calls fail. Tasks and callbacks should hold
/// [`Session`](crate::client::Session)s, which do not keep the endpoint alive. A task or callback
/// that holds an `Endpoint` keeps the endpoint alive permanently; use [`Endpoint::current`]
/// instead.
///
/// A future of an endpoint completes only while the endpoint's loop runs. Await it in
/// [`Endpoint::block_on`] or a task of the same endpoint. If it is polled elsewhere, for example in
/// the loop of another endpoint, and the loop of its own endpoint does not run a turn for a second
/// (or for the liveness timeout, if that is shorter), then the future panics.
///
/// # Panics in your code
/// The panic hook reports each panic. What it ends depends on the code that panicked:
///
/// | code | effect of a panic |
/// |---|---|
/// | handler, interceptor, codec of a handler | the call fails with [`Code::Internal`] |
/// | task | awaiting its [`JoinHandle`] panics with the same payload |
/// | job of [`Handle::submit`] or `Remote::run` | the job ends; `Remote::run` returns an error |
/// | [`Resolver`], [`Target`] of a `Lookup` | the query fails; the channel asks again |
/// | callback of a call, with its codec | passes through, at the end of the turn |
/// | future of `block_on`, condition of `run_until` | passes through |
///
/// "Passes through" means: through the function that runs the loop. The endpoint can then be used
/// as before. The threads of a [`Server`] continue after a panic of a callback.
///
/// [`Code::Internal`]: crate::status::Code::Internal
/// [`Resolver`]: crate::client::Resolver
/// [`Target`]: crate::client::Target
/// [`Server`]: crate::server::Server
///
/// ```no_run
/// use erpc_core::endpoint::Endpoint;
/// use erpc_core::service::Method;
///
/// const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double");
///
/// let endpoint = Endpoint::udp()?;
/// let session = endpoint.connect("10.0.0.7:31850")?;
/// assert_eq!(endpoint.block_on(session.call(&DOUBLE, &21))?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the last handle ends the endpoint"]
pub struct Endpoint<T: Transport = UdpTransport> {
    pub(super) owner: Rc<EndpointOwner<T>>,
}

/// The part that is dropped with the last [`Endpoint`]. Sessions and calls may keep the
/// [`EndpointParts`] alive longer.
pub(super) struct EndpointOwner<T: Transport> {
    pub(super) parts: Rc<EndpointParts<T>>,
    pub(super) idle: Cell<IdlePolicy>,
    /// See [`Endpoint::local`].
    pub(super) locals: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    pub(super) watch: Watch,
}

impl<T: Transport> Drop for EndpointOwner<T> {
    fn drop(&mut self) {
        drop(self.locals.take());
        self.parts.shut_down();
        self.parts.orphan();
    }
}

impl<T: Transport> AnyEndpoint for EndpointOwner<T> {
    fn scheduler(&self) -> &Rc<Scheduler> {
        self.parts.scheduler()
    }
}

impl Endpoint {
    /// An endpoint over UDP, on a port chosen by the system, with default settings.
    ///
    /// # Errors
    /// [`OpenError`] if the system refuses a socket.
    pub fn udp() -> Result<Self, OpenError> {
        Self::udp_with(&UdpConfig::new(), EndpointConfig::new())
    }

    /// An endpoint over UDP.
    ///
    /// # Errors
    /// [`OpenError`] if the system refuses the socket, or a setting is out of range.
    pub fn udp_with(udp: &UdpConfig, config: EndpointConfig) -> Result<Self, OpenError> {
        let transport = UdpTransport::bind(udp).map_err(OpenError::Udp)?;
        Self::new(transport, config).map_err(OpenError::Config)
    }
}

#[cfg(feature = "dpdk")]
impl Endpoint<DpdkTransport> {
    /// An endpoint on a port that DPDK drives, with default settings. DPDK must have been started
    /// ([`dpdk::init`](crate::transport::dpdk::init)).
    ///
    /// # Errors
    /// [`OpenError`] if the port cannot be opened.
    pub fn dpdk(port: &DpdkConfig) -> Result<Self, OpenError> {
        Self::dpdk_with(port, EndpointConfig::new())
    }

    /// An endpoint on a port that DPDK drives.
    ///
    /// # Errors
    /// [`OpenError`] if the port cannot be opened, or a setting is out of range.
    pub fn dpdk_with(port: &DpdkConfig, config: EndpointConfig) -> Result<Self, OpenError> {
        let transport = DpdkTransport::open(port).map_err(OpenError::Dpdk)?;
        Self::new(transport, config).map_err(OpenError::Config)
    }
}

#[cfg(feature = "ibverbs")]
impl Endpoint<VerbsTransport<IbvDevice>> {
    /// An endpoint over a verbs device, with default settings.
    ///
    /// # Errors
    /// [`OpenError`] if the device cannot be opened.
    pub fn verbs(device: &VerbsConfig) -> Result<Self, OpenError> {
        Self::verbs_with(device, EndpointConfig::new())
    }

    /// An endpoint over a verbs device.
    ///
    /// # Errors
    /// [`OpenError`] if the device cannot be opened, or a setting is out of range.
    pub fn verbs_with(device: &VerbsConfig, config: EndpointConfig) -> Result<Self, OpenError> {
        let transport = VerbsTransport::open(&Ibverbs, device).map_err(OpenError::Verbs)?;
        Self::new(transport, config).map_err(OpenError::Config)
    }
}

impl<T: Transport> Endpoint<T> {
    /// An endpoint over `transport`.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of range.
    pub fn new(transport: T, config: EndpointConfig) -> Result<Self, ConfigError> {
        let (memory, (_, liveness)) = (config.memory(), config.timeouts());
        let seed = config.fixed_seed().unwrap_or_else(|| random_key().0);
        let parts =
            Rc::new(EndpointParts::new(Rpc::new(transport, config)?, memory, seed, liveness));
        let owner = EndpointOwner {
            parts,
            idle: Cell::default(),
            locals: RefCell::default(),
            watch: Watch::default(),
        };
        Ok(Self { owner: Rc::new(owner) })
    }

    /// Sets what the loop does while it has no work. Default: [`IdlePolicy::default`]. Takes effect
    /// when a loop starts.
    pub fn set_idle_policy(&self, policy: IdlePolicy) {
        self.owner.idle.set(policy);
    }

    /// Sets how many calls of asynchronous methods may run concurrently; default 65,536. Each such
    /// call has a task, which holds the memory of its handler. A call above the limit is
    /// immediately answered with
    /// [`Code::ResourceExhausted`](crate::status::Code::ResourceExhausted), and its handler does
    /// not run. Streams do not count: each has its own session.
    pub fn set_task_limit(&self, calls: usize) {
        self.owner.parts.requests().set_task_limit(calls);
    }

    /// Serves `routes` on this endpoint. Worker methods need a pool; endpoints may share one.
    ///
    /// Call [`Endpoint::listen`] to accept sessions. An endpoint serves once: a second call changes
    /// nothing and returns `false`.
    pub fn serve(&self, routes: Arc<Routes>, workers: Option<&WorkerPool>) -> bool {
        self.serve_with(routes, workers.map(WorkerPool::queue))
    }

    pub(crate) fn serve_with(&self, routes: Arc<Routes>, workers: Option<WorkerQueue>) -> bool {
        self.owner.parts.requests().serve(routes, workers)
    }

    /// Accepts sessions of peers, as the only endpoint at its address.
    ///
    /// # Panics
    /// Within a handler or callback, and if the system provides no randomness.
    pub fn listen(&self) {
        let mut rpc = self.owner.parts.rpc().expect(NOT_HERE);
        let group = ListenGroup::new(secret(), vec![rpc.local_route().port()]);
        rpc.listen(Acceptor::new(Arc::new(group), 0));
    }

    /// Accepts sessions of peers, as a member of a group. [`Nexus`](crate::server::Nexus) calls
    /// this.
    ///
    /// # Panics
    /// Within a handler or callback.
    pub fn listen_in(&self, acceptor: Acceptor) {
        self.owner.parts.rpc().expect(NOT_HERE).listen(acceptor);
    }

    /// The time at which the next turn must run if no packet arrives and no call is made before;
    /// [`Instant::NEVER`] if nothing is due. Within handlers and callbacks, the protocol's timers
    /// are not included.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.owner.parts.next_deadline()
    }

    /// The current time, on the clock of deadlines.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.owner.parts.scheduler().now()
    }

    /// Waits for `duration`, which starts now, not at the first poll. The resolution is a turn of
    /// the loop while the loop spins, and that of the system's timers, about 50 us, while the loop
    /// sleeps.
    ///
    /// ```
    /// use std::time::Duration;
    /// use erpc_core::endpoint::Endpoint;
    ///
    /// let endpoint = Endpoint::udp()?;
    /// endpoint.block_on(endpoint.sleep(Duration::from_millis(2)));
    /// # Ok::<(), erpc_core::endpoint::OpenError>(())
    /// ```
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Waits until `deadline`. If that has passed, the wait ends with the next turn.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::new(self.owner.parts.scheduler(), deadline)
    }

    /// Waits for `future`, but at most for `within`, which starts now. At the timeout the future is
    /// dropped, which cancels a [`Call`](crate::client::Call).
    ///
    /// # Errors
    /// The future's output is [`Elapsed`] at the timeout.
    pub fn timeout<F: Future>(
        &self,
        within: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F, T> {
        self.sleep(within).limit(future)
    }

    /// Ends the endpoint now, even if other handles exist: its tasks and the values of
    /// [`Endpoint::local`] are dropped, its sessions end, and its calls fail with
    /// [`Cause::Shutdown`](crate::protocol::Cause::Shutdown), as do later calls. Dropping the last
    /// handle does the same. A second call does nothing. Within a handler or callback, the endpoint
    /// accepts no more calls from now on, and the rest happens at the end of the turn.
    pub fn shutdown(&self) {
        // A value of `local` may hold the endpoint, which would then never be dropped.
        drop(self.owner.locals.take());
        self.owner.parts.shut_down();
    }

    /// Starts a task. It runs within this endpoint's loop and need not be `Send`.
    ///
    /// A panic in the task ends only the task; see [`JoinHandle`].
    ///
    /// A task that holds an `Endpoint` keeps it alive as long as the task runs. Hold sessions
    /// instead, call [`Endpoint::current`] when needed, or end the endpoint with
    /// [`Endpoint::shutdown`].
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.owner.parts.scheduler().spawn(future)
    }

    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle<T> {
        Handle::new(Arc::clone(self.owner.parts.mailbox()))
    }

    /// The endpoint whose loop this thread runs, for handlers, callbacks and tasks that make calls.
    /// `None` outside of a loop, and if the transport is not `T`. [`sleep`](super::sleep),
    /// [`timeout`](super::timeout) and [`spawn`](super::spawn) use this endpoint whatever its
    /// transport is.
    #[must_use]
    pub fn current() -> Option<Self> {
        let owner: Rc<dyn Any> = entered::current()?;
        owner.downcast::<EndpointOwner<T>>().ok().map(|owner| Self { owner })
    }

    /// The endpoint's own value of type `V`, created by `init` at the first use. All endpoints of a
    /// server share their handlers; handlers keep state that belongs to one thread here, such as
    /// clients and caches.
    ///
    /// ```
    /// use erpc_core::endpoint::Endpoint;
    /// use erpc_core::client::Session;
    /// use erpc_core::transport::mem::{MemRoute, MemTransport};
    ///
    /// struct Backend(Session<MemTransport>);
    ///
    /// fn backend(endpoint: &Endpoint<MemTransport>) -> Session<MemTransport> {
    ///     endpoint.local(|endpoint| Backend(endpoint.open(MemRoute::new(1)))).0.clone()
    /// }
    /// ```
    pub fn local<V: 'static>(&self, init: impl FnOnce(&Self) -> V) -> Rc<V> {
        let found = self.owner.locals.borrow().get(&TypeId::of::<V>()).cloned();
        if let Some(value) = found.and_then(|value| value.downcast().ok()) {
            return value;
        }
        let value = Rc::new(init(self));
        self.owner.locals.borrow_mut().insert(TypeId::of::<V>(), Rc::clone(&value) as _);
        value
    }

    /// An empty message buffer for at least `len` bytes.
    ///
    /// # Errors
    /// [`NoMemory`] if the endpoint's memory limit is reached.
    pub fn alloc(&self, len: usize) -> Result<MsgBuf, NoMemory> {
        self.owner.parts.pool().alloc(len)
    }

    /// The address that peers see, as far as the transport knows it. `None` within handlers and
    /// callbacks.
    #[must_use]
    pub fn local_route(&self) -> Option<T::Route> {
        self.owner.parts.rpc().map(|rpc| rpc.local_route())
    }

    /// The current counters. `None` within handlers and callbacks.
    #[must_use]
    pub fn stats(&self) -> Option<EndpointStats> {
        let mut stats = self.owner.parts.rpc()?.stats();
        // Requests are encoded into buffers of a separate pool.
        stats.pool += self.owner.parts.pool().stats();
        stats.late_requests = self.owner.parts.requests().late();
        Some(stats)
    }

    pub(crate) fn parts(&self) -> &Rc<EndpointParts<T>> {
        &self.owner.parts
    }

    /// Sets the time of a virtual clock, also while a turn runs; see [`Endpoint::run_once_at`].
    pub(crate) fn set_time(&self, now: Instant) {
        self.owner.parts.scheduler().set_time(now);
    }

    pub(crate) fn downgrade(&self) -> WeakEndpoint<T> {
        WeakEndpoint(Rc::downgrade(&self.owner))
    }
}

/// An endpoint that this does not keep alive.
pub(crate) struct WeakEndpoint<T: Transport>(Weak<EndpointOwner<T>>);

impl<T: Transport> WeakEndpoint<T> {
    pub(crate) fn upgrade(&self) -> Option<Endpoint<T>> {
        self.0.upgrade().map(|owner| Endpoint { owner })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl<T: Transport> Clone for Endpoint<T> {
    fn clone(&self) -> Self {
        Self { owner: Rc::clone(&self.owner) }
    }
}

impl<T: Transport> fmt::Debug for Endpoint<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("local_route", &self.local_route()).finish_non_exhaustive()
    }
}

/// Panic message of methods that must not be called within the loop.
const NOT_HERE: &str =
    "the endpoint is busy running this handler or callback; call this outside of the loop";

/// Why an endpoint could not be opened.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused the socket, or a setting of the socket is out of range.
    Udp(UdpError),
    /// The port could not be opened.
    #[cfg(feature = "dpdk")]
    Dpdk(DpdkError),
    /// The verbs device could not be opened.
    #[cfg(feature = "ibverbs")]
    Verbs(VerbsError),
    /// A setting is out of range.
    Config(ConfigError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(error) => write!(f, "cannot open an endpoint: {error}"),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(error) => write!(f, "cannot open an endpoint: {error}"),
            #[cfg(feature = "ibverbs")]
            Self::Verbs(error) => write!(f, "cannot open an endpoint: {error}"),
            Self::Config(error) => write!(f, "cannot open an endpoint: {error}"),
        }
    }
}

debug_is_display!(OpenError);

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Udp(error) => Some(error),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(error) => Some(error),
            #[cfg(feature = "ibverbs")]
            Self::Verbs(error) => Some(error),
            Self::Config(error) => Some(error),
        }
    }
}
