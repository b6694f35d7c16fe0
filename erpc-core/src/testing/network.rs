//! The network that tests hold.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::port::{VirtualRoute, VirtualTransport};
use super::server::VirtualServer;
use super::world::World;
use crate::endpoint::Endpoint;
use crate::event_loop::IdlePolicy;
use crate::protocol::{ConfigError, EndpointConfig};
use crate::service::{Routes, Service};
use crate::transport::fault::{FaultCounts, Faults};

/// A network in virtual time; see the [module](super). Clones are the same network.
///
/// All its endpoints belong to one thread. The endpoint that runs, for example in
/// [`Endpoint::block_on`], also runs the others while it has no work. Then time passes; the code of
/// handlers and tasks takes no time. Everything in an endpoint uses this time: timers, deadlines,
/// retransmissions, pings.
///
/// Types of a service that name a transport, such as clients in handlers, must be generic over it:
/// here it is [`VirtualTransport`].
#[derive(Clone)]
pub struct VirtualNetwork {
    world: Rc<World>,
}

impl VirtualNetwork {
    /// A network without endpoints and without faults. `seed` determines all random decisions:
    /// those of faults, and those of the endpoints.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { world: Rc::new(World::new(seed)) }
    }

    /// A new endpoint with default settings, for clients.
    ///
    /// # Panics
    /// After 65,535 endpoints.
    pub fn endpoint(&self) -> Endpoint<VirtualTransport> {
        let endpoint = self.endpoint_with(EndpointConfig::new());
        endpoint.expect("the default settings are within bounds")
    }

    /// A new endpoint. The seed in `config` is replaced.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of range.
    ///
    /// # Panics
    /// After 65,535 endpoints.
    pub fn endpoint_with(
        &self,
        config: EndpointConfig,
    ) -> Result<Endpoint<VirtualTransport>, ConfigError> {
        self.open(self.world.new_route(), config)
    }

    /// A new server of `service`, with default settings.
    pub fn serve(&self, service: impl Service) -> VirtualServer {
        self.serve_routes(VirtualServer::routes_of(service))
    }

    /// A new server of several services, or with interceptors, with default settings.
    pub fn serve_routes(&self, routes: Routes) -> VirtualServer {
        let server = self.serve_routes_with(routes, EndpointConfig::new());
        server.expect("the default settings are within bounds")
    }

    /// Like [`VirtualNetwork::serve_routes`], with other settings. The seed in `config` is replaced.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of range.
    pub fn serve_routes_with(
        &self,
        routes: Routes,
        config: EndpointConfig,
    ) -> Result<VirtualServer, ConfigError> {
        VirtualServer::start(self.clone(), self.world.new_route(), config, routes)
    }

    /// Loses all packets between two endpoints from now on, in both directions.
    pub fn cut_link(&self, one: VirtualRoute, other: VirtualRoute) {
        self.world.cut_link(one, other);
    }

    /// Ends the effect of all calls of [`VirtualNetwork::cut_link`].
    pub fn mend_links(&self) {
        self.world.mend_links();
    }

    /// Sets what happens to all packets that are sent from now on. Outages are relative to now.
    /// Packets that are in flight still arrive.
    pub fn set_faults(&self, faults: Faults) {
        self.world.set_faults(faults);
    }

    /// Sets the time that a packet takes without faults. Default: 25 us.
    pub fn set_delay(&self, delay: Duration) {
        self.world.set_delay(delay);
    }

    /// How often each fault has acted. Tells a service that survives a fault from a fault that never
    /// happened.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.world.fault_counts()
    }

    /// Virtual time since the start of the network.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.world.elapsed()
    }

    pub(super) fn world(&self) -> &Rc<World> {
        &self.world
    }

    /// Opens an endpoint at `route`.
    pub(super) fn open(
        &self,
        route: VirtualRoute,
        config: EndpointConfig,
    ) -> Result<Endpoint<VirtualTransport>, ConfigError> {
        let config = config.seed(self.world.draw());
        let endpoint = Endpoint::new(self.world.open(route), config)?;
        // A loop that spins would not let time pass.
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        self.world.add(route, &endpoint);
        Ok(endpoint)
    }
}

impl fmt::Debug for VirtualNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualNetwork").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}
