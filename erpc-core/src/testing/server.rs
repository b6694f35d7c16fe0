//! A server in a virtual network.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::VirtualNetwork;
use super::port::{VirtualRoute, VirtualTransport};
use crate::endpoint::Endpoint;
use crate::executor::JoinHandle;
use crate::protocol::{ConfigError, EndpointConfig};
use crate::service::{Routes, Service};

/// A server in a [`VirtualNetwork`], made by [`VirtualNetwork::serve`]. It has one event loop.
/// Handlers of worker methods run in that loop, too, so that a test repeats exactly. Dropping this
/// shuts the server down, and its clients are told.
#[must_use = "dropping this shuts the server down"]
pub struct VirtualServer {
    network: VirtualNetwork,
    route: VirtualRoute,
    config: EndpointConfig,
    /// `None` after [`VirtualServer::kill`].
    endpoint: RefCell<Option<Endpoint<VirtualTransport>>>,
}

impl VirtualServer {
    /// # Errors
    /// [`ConfigError`] if a setting is out of range.
    pub(super) fn start(
        network: VirtualNetwork,
        route: VirtualRoute,
        config: EndpointConfig,
        routes: Routes,
    ) -> Result<Self, ConfigError> {
        let server = Self { network, route, config, endpoint: RefCell::default() };
        server.run(routes)?;
        Ok(server)
    }

    /// The methods of one service.
    pub(super) fn routes_of(service: impl Service) -> Routes {
        let mut routes = Routes::new();
        let registered = Arc::new(service).register(&mut routes);
        registered.expect("the build script refuses a service whose methods collide");
        routes
    }

    fn run(&self, routes: Routes) -> Result<(), ConfigError> {
        let endpoint = self.network.open(self.route, self.config.clone())?;
        endpoint.listen();
        endpoint.serve(Arc::new(routes.without_workers()), None);
        self.endpoint.replace(Some(endpoint));
        Ok(())
    }

    /// The server's endpoint, for a server that also makes calls and runs tasks. None after
    /// [`VirtualServer::kill`]. A clone of it must not outlive the server's process: drop it before
    /// `kill`, or the tasks are not dropped.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint<VirtualTransport>> {
        self.endpoint.borrow().clone()
    }

    /// The address for clients.
    #[must_use]
    pub fn route(&self) -> VirtualRoute {
        self.route
    }

    /// Kills the process of the server. Its tasks are dropped, and clients are not told. Its host
    /// lives on and refuses packets, as a real host does with ICMP messages.
    pub fn kill(&self) {
        self.network.world().end_process(self.route);
        let killed = self.endpoint.take();
        drop(killed);
    }

    /// Starts the server again at its address, with a new service. A server that still runs is
    /// killed.
    pub fn restart(&self, service: impl Service) {
        self.restart_routes(Self::routes_of(service));
    }

    /// Like [`VirtualServer::restart`], with several services, or with interceptors.
    pub fn restart_routes(&self, routes: Routes) {
        self.kill();
        self.run(routes).expect("the settings were within bounds at the start");
    }

    /// Loses all packets from and to the server from now on, as if its host were down or its cable
    /// cut. The server itself continues to run.
    pub fn cut_off(&self) {
        self.network.world().cut_off(self.route, true);
    }

    /// Ends [`VirtualServer::cut_off`].
    pub fn reconnect(&self) {
        self.network.world().cut_off(self.route, false);
    }

    /// Begins to drain the server: calls that run go on for at most `within`, and new ones are
    /// refused; see [`Endpoint::drain`]. The result waits for the number of calls that had not ended.
    /// Kill the server then.
    ///
    /// # Panics
    /// If the server was killed.
    pub fn drain(&self, within: Duration) -> JoinHandle<usize> {
        let endpoint = self.endpoint.borrow();
        let endpoint = endpoint.as_ref().expect("a server that was killed cannot be drained");
        endpoint.spawn(endpoint.drain(within))
    }

    /// Number of requests that handlers have got since the start or the last restart; 0 after
    /// [`VirtualServer::kill`].
    #[must_use]
    pub fn requests(&self) -> u64 {
        let stats = self.endpoint.borrow().as_ref().and_then(Endpoint::stats);
        stats.map_or(0, |stats| stats.protocol.requests)
    }
}

impl fmt::Debug for VirtualServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualServer").field("route", &self.route).finish_non_exhaustive()
    }
}
