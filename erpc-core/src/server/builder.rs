//! A server: threads, each with an endpoint, behind one address.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use crossbeam_channel::{Sender, bounded};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::endpoint::handle::Handle;
use crate::event_loop::EndpointStats;
use crate::event_loop::idle::IdlePolicy;
use crate::protocol::{ConfigError, EndpointConfig};
use crate::server::nexus::{Nexus, Seat};
use crate::service::{Interceptor, MethodCollision, Mode, Routes, Service};
use crate::serving::worker::{WorkerPool, WorkerQueue, is_current};
use crate::sync::thread::{Builder, JoinHandle};
use crate::transport::udp::{UdpConfig, UdpError};

/// Serves services over UDP.
///
/// ```no_run
/// # use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
/// # use erpc_core::service::{MethodCollision, Routes, Service};
/// # struct Store;
/// # impl Service for Store {
/// #     const NAME: &'static str = "kv.v1.Kv";
/// #     fn register(self: Arc<Self>, _: &mut Routes) -> Result<(), MethodCollision> { Ok(()) }
/// # }
/// use erpc_core::server::Server;
///
/// Server::builder().add_service(Store).threads(2).serve("0.0.0.0:31850")?;
/// # Ok::<(), erpc_core::server::ServeError>(())
/// ```
#[derive(Debug)]
pub enum Server {}

impl Server {
    /// A builder with the defaults that its methods name.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }
}

/// Describes a server; see [`Server`].
#[derive(Debug)]
#[must_use = "a builder serves nothing until `serve` or `spawn`"]
pub struct ServerBuilder {
    routes: Routes,
    collision: Option<MethodCollision>,
    threads: usize,
    workers: Option<usize>,
    worker_queue: usize,
    idle: IdlePolicy,
    config: EndpointConfig,
    udp: UdpConfig,
    core: Option<usize>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            routes: Routes::new(),
            collision: None,
            threads: 1,
            workers: None,
            worker_queue: 1_024,
            idle: IdlePolicy::default(),
            config: EndpointConfig::new(),
            udp: UdpConfig::new(),
            core: None,
        }
    }
}

impl ServerBuilder {
    /// Adds the methods of a service. If one of them cannot stand beside those that are there,
    /// [`ServerBuilder::spawn`] says so.
    pub fn add_service<S: Service>(self, service: S) -> Self {
        self.add_shared(Arc::new(service))
    }

    /// As [`ServerBuilder::add_service`], for a service that others hold, too.
    pub fn add_shared<S: Service>(mut self, service: Arc<S>) -> Self {
        if let Err(collision) = service.register(&mut self.routes) {
            self.collision.get_or_insert(collision);
        }
        self
    }

    /// Has every call of every method pass `interceptor`, within those that were added before; see
    /// [`Interceptor`].
    pub fn intercept(mut self, interceptor: impl Interceptor) -> Self {
        self.routes.intercept(interceptor);
        self
    }

    /// Threads that run an event loop, each with an endpoint of its own, 1 to 256; default 1. Sessions
    /// are spread over them as they are opened; a session stays on its thread.
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Threads that run worker methods, shared by all endpoints. Default: as many as the machine has
    /// cores if there are worker methods, else none. With 0, worker methods are answered
    /// [`Code::FailedPrecondition`](crate::status::Code::FailedPrecondition).
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Requests that may wait for a worker; default 1,024. One more is answered
    /// [`Code::ResourceExhausted`](crate::status::Code::ResourceExhausted) at once.
    pub const fn worker_queue(mut self, requests: usize) -> Self {
        self.worker_queue = requests;
        self
    }

    /// What the event loops do when there is nothing to do; default [`IdlePolicy::default`].
    pub const fn idle(mut self, policy: IdlePolicy) -> Self {
        self.idle = policy;
        self
    }

    /// Limits and time-outs of each endpoint.
    pub fn config(mut self, config: EndpointConfig) -> Self {
        self.config = config;
        self
    }

    /// Settings of each socket; the address in them is not used.
    pub fn udp(mut self, config: UdpConfig) -> Self {
        self.udp = config;
        self
    }

    /// Pins the first event loop to core `first`, the second to the next, and so on. Default: the
    /// system places them. For servers that own their cores.
    pub const fn core(mut self, first: usize) -> Self {
        self.core = Some(first);
        self
    }

    /// Serves, and does not return unless it fails: a bind error comes at once.
    ///
    /// # Errors
    /// As [`ServerBuilder::spawn`]; and if a thread ends by a panic, which ends the server.
    pub fn serve(self, address: impl ToSocketAddrs) -> Result<(), ServeError> {
        self.spawn(address)?.wait()
    }

    /// Serves in the background until the handle is dropped.
    ///
    /// # Errors
    /// [`ServeError`], before the first request could be handled. Nothing is left running.
    pub fn spawn(self, address: impl ToSocketAddrs) -> Result<ServerHandle, ServeError> {
        if let Some(collision) = self.collision {
            return Err(ServeError::Collision(collision));
        }
        if self.routes.entries().next().is_none() {
            return Err(ServeError::NoService);
        }
        self.config.check().map_err(ServeError::Config)?;
        let nexus = bind(address, self.threads, &self.udp)?;
        let workers = match self.worker_threads() {
            0 => None,
            threads => {
                Some(WorkerPool::new(threads, self.worker_queue).map_err(ServeError::Thread)?)
            }
        };
        let mut server = ServerHandle {
            address: nexus.local_addr(),
            loops: Vec::new(),
            workers,
            stop: Arc::new(Stop::default()),
        };
        let routes = Arc::new(self.routes);
        for (index, seat) in nexus.into_seats().into_iter().enumerate() {
            let setup = Setup {
                seat,
                routes: Arc::clone(&routes),
                workers: server.workers.as_ref().map(WorkerPool::queue),
                idle: self.idle,
                config: self.config.clone(),
                core: self.core.map(|first| first + index),
                stop: Arc::clone(&server.stop),
            };
            // On an error the handle is dropped, which ends the threads that have been started.
            server.loops.push(start(index, setup)?);
        }
        Ok(server)
    }

    fn worker_threads(&self) -> usize {
        let wanted = self.routes.entries().any(|entry| entry.mode() == Some(Mode::Worker));
        let default = || if wanted { available_parallelism().map_or(1, usize::from) } else { 0 };
        self.workers.unwrap_or_else(default)
    }
}

/// The first of the addresses that can be bound.
fn bind(
    address: impl ToSocketAddrs,
    endpoints: usize,
    udp: &UdpConfig,
) -> Result<Nexus, ServeError> {
    let addresses = address.to_socket_addrs().map_err(ServeError::Resolve)?;
    let mut failed =
        ServeError::Resolve(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for address in addresses {
        match Nexus::bind(address, endpoints, udp.clone()) {
            Ok(nexus) => return Ok(nexus),
            Err(error) => failed = ServeError::Bind(error),
        }
    }
    Err(failed)
}

/// What an event loop's thread starts with.
struct Setup {
    seat: Seat,
    routes: Arc<Routes>,
    workers: Option<WorkerQueue>,
    idle: IdlePolicy,
    config: EndpointConfig,
    core: Option<usize>,
    stop: Arc<Stop>,
}

/// Ends all event loops of a server.
#[derive(Default)]
struct Stop {
    flag: AtomicBool,
    loops: Mutex<Vec<Handle>>,
}

impl Stop {
    fn loops(&self) -> MutexGuard<'_, Vec<Handle>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    fn set(&self) {
        self.flag.store(true, Ordering::Release);
        for event_loop in self.loops().iter() {
            event_loop.wake();
        }
    }
}

/// An event loop's thread.
struct Loop {
    handle: Handle,
    thread: JoinHandle<Result<(), ServeError>>,
}

/// Starts an event loop and waits until it has an endpoint.
#[expect(clippy::disallowed_methods, reason = "a server is its threads")]
fn start(index: usize, setup: Setup) -> Result<Loop, ServeError> {
    let (ready, started) = bounded(1);
    let builder = Builder::new().name(format!("erpc-{index}"));
    let thread = builder.spawn(move || run(setup, &ready)).map_err(ServeError::Thread)?;
    match started.recv() {
        Ok(handle) => Ok(Loop { handle, thread }),
        // It has ended instead.
        Err(_) => Err(thread
            .join()
            .unwrap_or(Err(ServeError::Panicked))
            .err()
            .unwrap_or(ServeError::Panicked)),
    }
}

/// An event loop.
fn run(setup: Setup, ready: &Sender<Handle>) -> Result<(), ServeError> {
    if let Some(core) = setup.core {
        pin(core)?;
    }
    let endpoint = setup.seat.open(setup.config).map_err(ServeError::Config)?;
    endpoint.set_idle_policy(setup.idle);
    endpoint.serve_with(setup.routes, setup.workers);
    setup.stop.loops().push(endpoint.handle());
    if ready.send(endpoint.handle()).is_err() {
        return Ok(());
    }
    let looped = catch_unwind(AssertUnwindSafe(|| {
        endpoint.run_server(|| setup.stop.is_set());
        // What the last turn answered goes out with the next.
        endpoint.run_once();
    }));
    // One loop's end is the server's: the address would go on leading clients to it.
    looped.map_err(|_panic| {
        setup.stop.set();
        ServeError::Panicked
    })
}

fn pin(core: usize) -> Result<(), ServeError> {
    let refused = |error| ServeError::Pin { core, error };
    if core >= CpuSet::MAX_CPU {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|errno| refused(errno.into()))
}

/// A running server. Dropping it shuts it down.
#[must_use = "dropping it shuts the server down"]
pub struct ServerHandle {
    address: SocketAddr,
    loops: Vec<Loop>,
    workers: Option<WorkerPool>,
    stop: Arc<Stop>,
}

impl ServerHandle {
    /// The address that clients connect to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The counters of all endpoints, added up. Asks every event loop and waits for its answer, which
    /// takes as long as the longest handler that is running in one.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        let mut sum = EndpointStats::default();
        self.endpoint_stats().into_iter().for_each(|stats| sum += stats);
        sum
    }

    /// The counters of each endpoint; see [`ServerHandle::stats`].
    #[must_use]
    pub fn endpoint_stats(&self) -> Vec<EndpointStats> {
        let (send, answers) = bounded(self.loops.len());
        for event_loop in &self.loops {
            let send = send.clone();
            // An endpoint that is gone or overrun drops its sender and is left out.
            let _asked = event_loop.handle.submit(move |endpoint| {
                if let Some(stats) = endpoint.stats() {
                    // The asker waits for it.
                    send.send(stats).unwrap_or(());
                }
            });
        }
        drop(send);
        answers.iter().collect()
    }

    /// Handles of the endpoints, one per event loop.
    pub fn handles(&self) -> impl Iterator<Item = Handle> {
        self.loops.iter().map(|event_loop| event_loop.handle.clone())
    }

    /// Ends the server and waits for its threads. Requests that wait for a worker are answered first,
    /// later ones refused.
    pub fn shutdown(mut self) {
        self.end(true).unwrap_or(());
    }

    /// Waits until the server ends, which it does by itself only if an event loop panics.
    ///
    /// # Errors
    /// [`ServeError::Panicked`] then.
    pub fn wait(mut self) -> Result<(), ServeError> {
        self.end(false)
    }

    fn end(&mut self, now: bool) -> Result<(), ServeError> {
        if now {
            // Workers first: their answers travel through the event loops.
            drop(self.workers.take());
            self.stop.set();
        }
        let mut result = Ok(());
        for event_loop in self.loops.drain(..) {
            // A handler may be who ends the server; its loop cannot wait for itself, and ends by the flag.
            if !is_current(&event_loop.thread) {
                result = result.and(event_loop.thread.join().unwrap_or(Err(ServeError::Panicked)));
            }
        }
        result
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        // Whoever wants to know about a panicked loop waits.
        self.end(true).unwrap_or(());
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("address", &self.address)
            .field("threads", &self.loops.len())
            .finish()
    }
}

/// Why a server could not start, or ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// Two methods cannot be served side by side.
    Collision(MethodCollision),
    /// There is nothing to serve.
    NoService,
    /// A setting is out of bounds.
    Config(ConfigError),
    /// The listening address could not be looked up.
    Resolve(io::Error),
    /// The listening address could not be bound.
    Bind(UdpError),
    /// An event loop could not be pinned.
    Pin {
        /// The core.
        core: usize,
        /// What the system said.
        error: io::Error,
    },
    /// The system refused a thread.
    Thread(io::Error),
    /// An event loop panicked; the panic hook has reported where.
    Panicked,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot serve: ")?;
        match self {
            Self::Collision(error) => error.fmt(f),
            Self::NoService => f.write_str("there is no method; add a service with `add_service`"),
            Self::Config(error) => error.fmt(f),
            Self::Resolve(error) => {
                write!(f, "the listening address is not known: {error}; give it as host:port")
            }
            Self::Bind(error) => error.fmt(f),
            Self::Pin { core, error } => {
                write!(
                    f,
                    "no thread can be pinned to core {core}: {error}; `core` and `threads` name cores beyond those allowed"
                )
            }
            Self::Thread(error) => {
                write!(f, "the system refuses a thread: {error}; raise its limit or use fewer")
            }
            Self::Panicked => f.write_str("an event loop panicked"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Collision(error) => Some(error),
            Self::Config(error) => Some(error),
            Self::Resolve(error) | Self::Thread(error) | Self::Pin { error, .. } => Some(error),
            Self::Bind(error) => Some(error),
            Self::NoService | Self::Panicked => None,
        }
    }
}
