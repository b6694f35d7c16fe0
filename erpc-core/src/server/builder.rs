//! The builder of a server.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use super::error::ServeError;
use super::handle::ServerHandle;
use super::listen::Listen;
use super::nexus::Nexus;
use super::signals::shutdown_signal;
use super::thread::{LoopSetup, LoopThread, StopSignal};
use crate::client::Target;
use crate::event_loop::idle::IdlePolicy;
use crate::health::HealthReporter;
use crate::protocol::EndpointConfig;
use crate::service::{Interceptor, MethodCollision, Mode, Routes, Service};
use crate::serving::worker::WorkerPool;
#[cfg(feature = "dpdk")]
use crate::transport::dpdk::{DpdkConfig, DpdkTransport};
use crate::transport::udp::{UdpConfig, UdpTransport};
#[cfg(feature = "ibverbs")]
use crate::transport::verbs::{IbvDevice, Ibverbs, VerbsConfig, VerbsTransport};

/// A server, over UDP unless its builder says otherwise; made by [`Server::builder`].
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
    /// A builder with the defaults that its methods document.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }
}

/// Builder of a server; see [`Server`].
#[must_use = "a builder serves nothing until `serve` or `spawn`"]
pub struct ServerBuilder<T: Listen = UdpTransport> {
    routes: Routes,
    collision: Option<MethodCollision>,
    threads: usize,
    workers: Option<usize>,
    worker_queue: usize,
    worker_spin: Duration,
    task_limit: Option<usize>,
    idle: IdlePolicy,
    config: EndpointConfig,
    settings: T::Settings,
    core: Option<usize>,
    health: Option<HealthReporter>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            routes: Routes::new(),
            collision: None,
            threads: 1,
            workers: None,
            worker_queue: 1_024,
            worker_spin: Duration::ZERO,
            task_limit: None,
            idle: IdlePolicy::default(),
            config: EndpointConfig::new(),
            settings: UdpConfig::new(),
            core: None,
            health: None,
        }
    }
}

impl<T: Listen> ServerBuilder<T> {
    /// Adds the methods of a service. If one of them collides with a method that was added before,
    /// [`ServerBuilder::spawn`] fails.
    pub fn add_service<S: Service>(self, service: S) -> Self {
        self.add_shared(Arc::new(service))
    }

    /// Adds a service that is also used elsewhere; otherwise like [`ServerBuilder::add_service`].
    pub fn add_shared<S: Service>(mut self, service: Arc<S>) -> Self {
        if let Err(collision) = service.register(&mut self.routes) {
            self.collision.get_or_insert(collision);
        }
        self
    }

    /// Also serves `erpc.health.v1.Health`, which reports the state in `health`. The server's
    /// services serve unless `health` says otherwise. When the server begins to drain, clients that
    /// watch are told that no service serves any more.
    pub fn health(mut self, health: &HealthReporter) -> Self {
        self.health = Some(health.clone());
        self.add_service(health.clone())
    }

    /// Passes every call of every method through `interceptor`. Interceptors that were added before
    /// wrap this one; see [`Interceptor`].
    pub fn intercept(mut self, interceptor: impl Interceptor) -> Self {
        self.routes.intercept(interceptor);
        self
    }

    /// Number of threads that run an event loop, each with its own endpoint: 1 to 256, default 1.
    /// New sessions are spread over the threads; a session stays on its thread.
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Number of threads that run worker methods, shared by all endpoints. Default: the number of
    /// cores if there are worker methods, else 0. With 0, calls of worker methods are answered
    /// [`Code::FailedPrecondition`](crate::status::Code::FailedPrecondition).
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Maximum number of requests that wait for a worker. Default: 1,024. Requests beyond that are
    /// immediately answered [`Code::ResourceExhausted`](crate::status::Code::ResourceExhausted).
    pub const fn worker_queue(mut self, requests: usize) -> Self {
        self.worker_queue = requests;
        self
    }

    /// For how long a worker without a request spins before it sleeps. Default: it sleeps at once.
    /// To wake it, an event loop makes a system call, which delays its other calls by several
    /// microseconds. Use it if each worker has a core.
    pub const fn worker_spin(mut self, time: Duration) -> Self {
        self.worker_spin = time;
        self
    }

    /// The tokio runtime that runs the handlers of methods with the mode `TOKIO`, as tasks on its
    /// own threads. There, `tokio::time::sleep` and other libraries for tokio work, and futures are
    /// `Send`. Without it, [`ServerBuilder::spawn`] fails if there are such methods. Other methods
    /// do not use it. Needs the feature `tokio`.
    ///
    /// When a call ends early, its handler is dropped at its next `await`, soon after. Until then it
    /// counts against [`ServerBuilder::task_limit`], and [`ServerHandle::drain`] waits for it within
    /// its limit.
    ///
    /// The runtime must run as long as the server: calls that arrive later are answered
    /// [`Code::Unavailable`](crate::status::Code::Unavailable). A runtime of one thread must not be
    /// blocked by [`ServerBuilder::serve`] or [`ServerHandle::drain`].
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use erpc_core::service::{MethodCollision, Routes, Service};
    /// # struct Store;
    /// # impl Service for Store {
    /// #     const NAME: &'static str = "kv.v1.Kv";
    /// #     fn register(self: Arc<Self>, _: &mut Routes) -> Result<(), MethodCollision> { Ok(()) }
    /// # }
    /// use erpc_core::server::Server;
    /// use tokio::runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// let server = Server::builder().add_service(Store).tokio(runtime.handle().clone());
    /// server.serve_until_signal("0.0.0.0:31850", Duration::from_secs(10))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn tokio(mut self, runtime: ::tokio::runtime::Handle) -> Self {
        self.routes.tokio(runtime);
        self
    }

    /// Maximum number of calls of asynchronous methods in progress on each thread. Default: 65,536.
    /// See
    /// [`Endpoint::set_task_limit`](crate::endpoint::Endpoint::set_task_limit).
    pub const fn task_limit(mut self, calls: usize) -> Self {
        self.task_limit = Some(calls);
        self
    }

    /// What idle event loops do: spin or sleep. Default: [`IdlePolicy::default`].
    pub const fn idle(mut self, policy: IdlePolicy) -> Self {
        self.idle = policy;
        self
    }

    /// Limits and timeouts of each endpoint.
    pub fn config(mut self, config: EndpointConfig) -> Self {
        self.config = config;
        self
    }

    /// Serves over the transport `U` instead, with these settings. Handlers do not change.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use erpc_core::service::{Method, MethodCollision, Mode, Request, Response, Routes, Service};
    /// # struct Store;
    /// # impl Service for Store {
    /// #     const NAME: &'static str = "kv.v1.Kv";
    /// #     fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
    /// #         const GET: Method<u32, u32> = Method::new("kv.v1.Kv/Get");
    /// #         routes.unary(GET, Mode::Dispatch, &self, |_, request: Request<'_, u32>| {
    /// #             Ok(Response::new(request.into_message()))
    /// #         })
    /// #     }
    /// # }
    /// use erpc_core::server::Server;
    /// use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
    ///
    /// let network = (MemHub::new(), MemConfig::default());
    /// let builder = Server::builder().add_service(Store).transport::<MemTransport>(network);
    /// let server = builder.spawn(MemRoute::new(1))?;
    /// # Ok::<(), erpc_core::server::ServeError>(())
    /// ```
    pub fn transport<U: Listen>(self, settings: U::Settings) -> ServerBuilder<U> {
        ServerBuilder {
            routes: self.routes,
            collision: self.collision,
            threads: self.threads,
            workers: self.workers,
            worker_queue: self.worker_queue,
            worker_spin: self.worker_spin,
            task_limit: self.task_limit,
            idle: self.idle,
            config: self.config,
            settings,
            core: self.core,
            health: self.health,
        }
    }

    /// Serves on a port that DPDK drives. DPDK must have been started
    /// ([`dpdk::init`](crate::transport::dpdk::init)). The listening address is the port's, or
    /// unspecified (`0.0.0.0`). Thread `i` receives at the UDP port of the listening address plus
    /// `i`. Needs the feature `dpdk`.
    #[cfg(feature = "dpdk")]
    pub fn dpdk(self, config: DpdkConfig) -> ServerBuilder<DpdkTransport> {
        self.transport(config)
    }

    /// Serves over a verbs device. Clients connect to the listening address, a UDP address of this
    /// host, at which they learn the address of the queue pair. Thread `i` answers at the UDP port of
    /// the listening address plus `i`. Needs the feature `ibverbs`.
    #[cfg(feature = "ibverbs")]
    pub fn verbs(self, config: VerbsConfig) -> ServerBuilder<VerbsTransport<IbvDevice>> {
        self.transport((Ibverbs, config))
    }

    /// Pins the first event loop to core `first`, the second to core `first + 1`, and so on. Use
    /// this if nothing else runs on these cores. Default: not pinned. If the system refuses,
    /// [`ServerBuilder::spawn`] fails.
    pub const fn core(mut self, first: usize) -> Self {
        self.core = Some(first);
        self
    }

    /// Serves until the server fails. A bind error is returned immediately.
    ///
    /// # Errors
    /// Those of [`ServerBuilder::spawn`], and [`ServeError::Panicked`] if an event loop panics,
    /// which ends the server.
    pub fn serve(self, address: impl Target<T::Route>) -> Result<(), ServeError> {
        self.spawn(address)?.wait()
    }

    /// Serves until `shutdown` completes. Then finishes the calls and streams that run, at most
    /// for `drain`, refuses new ones, and ends; see [`ServerHandle::drain`].
    ///
    /// This thread polls `shutdown`, without a runtime. For SIGTERM and SIGINT use
    /// [`ServerBuilder::serve_until_signal`].
    ///
    /// # Errors
    /// As [`ServerBuilder::serve`].
    pub fn serve_with_shutdown(
        self,
        address: impl Target<T::Route>,
        shutdown: impl Future<Output = ()>,
        drain: Duration,
    ) -> Result<(), ServeError> {
        self.spawn(address)?.wait_with_shutdown(shutdown, drain)
    }

    /// Serves until the process receives SIGTERM or SIGINT, also as process 1 of a container. Then
    /// finishes the calls and streams that run, at most for `drain`, refuses new ones, and ends;
    /// see [`ServerHandle::drain`]. A second signal ends the process immediately; see
    /// [`shutdown_signal`].
    ///
    /// # Errors
    /// As [`ServerBuilder::serve`], and [`ServeError::Signals`].
    pub fn serve_until_signal(
        self,
        address: impl Target<T::Route>,
        drain: Duration,
    ) -> Result<(), ServeError> {
        let signal = shutdown_signal().map_err(ServeError::Signals)?;
        self.serve_with_shutdown(address, signal, drain)
    }

    /// Serves in the background until the handle is dropped.
    ///
    /// # Errors
    /// [`ServeError`] if the server cannot start. No thread is left running.
    pub fn spawn(self, address: impl Target<T::Route>) -> Result<ServerHandle<T>, ServeError> {
        if let Some(collision) = self.collision {
            return Err(ServeError::Collision(collision));
        }
        if self.routes.entries().next().is_none() {
            return Err(ServeError::NoService);
        }
        if self.routes.runtime().is_none()
            && let Some(entry) = self.routes.entries().find(|entry| entry.needs_runtime())
        {
            return Err(ServeError::NoRuntime { method: entry.full_name() });
        }
        self.config.check().map_err(ServeError::Config)?;
        let nexus = bind(address, self.threads, &self.settings)?;
        let workers = match self.worker_threads() {
            0 => None,
            threads => Some(
                WorkerPool::spinning(threads, self.worker_queue, self.worker_spin)
                    .map_err(ServeError::Thread)?,
            ),
        };
        let stop = Arc::new(StopSignal::default());
        if let Some(health) = &self.health {
            let services =
                self.routes.entries().filter_map(|entry| entry.full_name().split_once('/'));
            services.for_each(|(service, _)| health.add(service));
        }
        let mut server =
            ServerHandle::new(nexus.local_route(), workers, Arc::clone(&stop), self.health);
        let routes = Arc::new(self.routes);
        for (index, seat) in nexus.into_seats().into_iter().enumerate() {
            let setup = LoopSetup {
                seat,
                routes: Arc::clone(&routes),
                workers: server.worker_queue(),
                task_limit: self.task_limit,
                idle: self.idle,
                config: self.config.clone(),
                core: self.core.map(|first| first + index),
                stop: Arc::clone(&stop),
            };
            // On an error the handle is dropped, which ends the threads that were started.
            server.add(LoopThread::start(index, setup)?);
        }
        Ok(server)
    }

    fn worker_threads(&self) -> usize {
        let wanted = self.routes.entries().any(|entry| entry.mode() == Some(Mode::Worker));
        let default = || if wanted { available_parallelism().map_or(1, usize::from) } else { 0 };
        self.workers.unwrap_or_else(default)
    }
}

impl ServerBuilder {
    /// Settings of each socket. The address in `config` is ignored.
    pub fn udp(mut self, config: UdpConfig) -> Self {
        self.settings = config;
        self
    }
}

impl<T: Listen> fmt::Debug for ServerBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("routes", &self.routes)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Binds the first address that can be bound.
fn bind<T: Listen>(
    address: impl Target<T::Route>,
    endpoints: usize,
    settings: &T::Settings,
) -> Result<Nexus<T>, ServeError> {
    let unresolved = |error| ServeError::Resolve { address: address.name(), error };
    let routes = address.routes().map_err(unresolved)?;
    let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut failed = unresolved(none);
    for route in routes {
        match Nexus::listen(route, endpoints, settings) {
            Ok(nexus) => return Ok(nexus),
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}
