//! An endpoint in the world: its interface, its workers, its lives.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use erpc_core::endpoint::Endpoint;
use erpc_core::executor::JoinHandle;
use erpc_core::protocol::{Acceptor, EndpointConfig, ListenGroup};
use erpc_core::serving::StepWorkers;
use erpc_core::time::Instant;
use erpc_test_tools::random::mix;

use super::oracle::Shared;
use super::plan::ServerPlan;
use super::service::Site;
use crate::SimRoute;
use crate::transport::{Nic, Port, SimTransport};

/// How long the peer may be silent.
pub(super) const LIVENESS: Duration = Duration::from_millis(300);
/// How long an attempt to connect may take.
pub(super) const CONNECT: Duration = Duration::from_millis(100);

/// An endpoint, which runs or not.
pub(super) struct Node {
    pub(super) route: SimRoute,
    pub(super) port: Rc<Port>,
    pub(super) endpoint: Option<Endpoint<SimTransport>>,
    /// The workers of a server, and how many of them are idle.
    pub(super) workers: Option<StepWorkers>,
    pub(super) idle: usize,
    /// The drain of a server, and when it restarts afterwards.
    pub(super) drain: Option<(JoinHandle<usize>, Duration)>,
    /// Number of starts so far.
    pub(super) lives: u64,
    seed: u64,
}

fn nic() -> Nic {
    Nic { min_rto: Duration::from_millis(1), ..Nic::ring(1_472, 1_024) }
}

impl Node {
    /// An endpoint that does not run yet, on a host of its own.
    pub(super) fn new(host: u32, seed: u64) -> Self {
        let route = SimRoute::new(host, SimRoute::SERVICE);
        Self {
            route,
            port: Port::new(route, nic()),
            endpoint: None,
            workers: None,
            idle: 0,
            drain: None,
            lives: 0,
            seed: mix(seed ^ u64::from(host + 1) << 32),
        }
    }

    fn open(&mut self, now: Instant) -> Endpoint<SimTransport> {
        self.lives += 1;
        self.port = Port::new(self.route, nic());
        self.port.set_now(now);
        let config = EndpointConfig::new()
            .seed(mix(self.seed ^ self.lives))
            .connect_timeout(CONNECT)
            .ping_interval(LIVENESS / 4)
            .liveness_timeout(LIVENESS);
        let endpoint = Endpoint::new(SimTransport::new(Rc::clone(&self.port)), config)
            .expect("the settings are within their bounds");
        // From now on, the endpoint has the virtual time.
        endpoint.run_once_at(now);
        self.endpoint = Some(endpoint.clone());
        endpoint
    }

    /// Starts a client.
    pub(super) fn start_client(&mut self, now: Instant) {
        drop(self.open(now));
    }

    /// Starts a server.
    pub(super) fn start_server(
        &mut self,
        now: Instant,
        server: usize,
        plan: ServerPlan,
        oracle: &Shared,
    ) {
        let endpoint = self.open(now);
        let workers = StepWorkers::new(plan.queue);
        let site = Arc::new(Site { server, oracle: Arc::clone(oracle) });
        endpoint.set_task_limit(plan.task_limit);
        endpoint.serve(Arc::new(site.routes()), Some(workers.pool()));
        let group = ListenGroup::new([7; 16], vec![self.route.port]);
        endpoint.listen_in(Acceptor::new(Arc::new(group), 0));
        (self.workers, self.idle) = (Some(workers), plan.workers);
    }
}
