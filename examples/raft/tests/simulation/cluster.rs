//! A cluster in a virtual network.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use erpc::testing::{VirtualNetwork, VirtualRoute, VirtualServer, VirtualTransport};
use erpc::{Channel, Endpoint, EndpointConfig, JoinHandle};
use erpc_raft::client::{Nodes, Patience};
use erpc_raft::consensus::omni::{self, OmniCore};
use erpc_raft::consensus::raft::{self, RaftCore};
use erpc_raft::consensus::{Addresses, Consensus, Start};
use erpc_raft::disk::{Identity, Log};
use erpc_raft::node::{self, Front, Inbox, NodeError, Parts, Settings};
use erpc_raft::proto::{LocalPeerClient, LocalStoreClient};

use crate::files::{SimDisk, SimFiles};
use erpc_test_tools::random::Random;

pub(crate) type VirtualEndpoint = Endpoint<VirtualTransport>;

pub(crate) const ELECTION_TICKS: u32 = 10;
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// One node, which may be down.
pub(crate) struct Host {
    pub(crate) id: u64,
    pub(crate) server: VirtualServer,
    files: SimFiles,
    task: RefCell<Option<JoinHandle<NodeError>>>,
    /// Its clock is ahead by this.
    ahead: Rc<Cell<Duration>>,
    starts: Cell<u64>,
}

pub(crate) struct Cluster {
    pub(crate) network: VirtualNetwork,
    pub(crate) hosts: Vec<Host>,
    /// Runs the network. Not a node.
    pub(crate) driver: VirtualEndpoint,
    routes: Rc<BTreeMap<String, VirtualRoute>>,
    /// Nodes that the cluster begins with.
    first: u64,
    options: Options,
    random: RefCell<Random>,
    /// Frames that a crash has left half written.
    pub(crate) torn: Cell<u64>,
    /// Removed files that a crash has brought back.
    pub(crate) returned: Cell<u64>,
}

/// How the nodes agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Raft,
    OmniPaxos,
}

/// What all nodes have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) algorithm: Algorithm,
    pub(crate) lease: bool,
    pub(crate) snapshot_every: u64,
    pub(crate) keep: u64,
}

fn config() -> EndpointConfig {
    EndpointConfig::new()
        .ping_interval(Duration::from_millis(100))
        .liveness_timeout(Duration::from_millis(400))
        .connect_timeout(Duration::from_millis(100))
}

impl Cluster {
    /// `first` nodes that run, and `spare` ones that wait to be added.
    pub(crate) fn start(
        seed: u64,
        first: u64,
        spare: u64,
        options: Options,
    ) -> Result<Self, String> {
        let network = VirtualNetwork::new(seed);
        let host = |id| {
            let server = network.serve_routes_with(Front::<VirtualTransport>::routes(), config());
            Host {
                id,
                server: server.expect("the settings are within bounds"),
                files: SimFiles::default(),
                task: RefCell::default(),
                ahead: Rc::default(),
                starts: Cell::default(),
            }
        };
        let hosts: Vec<_> = (1..=first + spare).map(host).collect();
        let routes = hosts.iter().map(|host| (host.id.to_string(), host.server.route())).collect();
        let driver = network.endpoint();
        let random = RefCell::new(Random::new(seed));
        let routes = Rc::new(routes);
        let (torn, returned) = (Cell::new(0), Cell::new(0));
        let cluster =
            Self { network, hosts, driver, routes, first, options, random, torn, returned };
        cluster.hosts.iter().try_for_each(|host| cluster.run_node(host))?;
        Ok(cluster)
    }

    /// Starts the node of a host from its disk.
    fn run_node(&self, host: &Host) -> Result<(), String> {
        let node = host.id;
        let seed = self.random.borrow_mut().word();
        match self.options.algorithm {
            Algorithm::Raft => {
                let election_ticks = ELECTION_TICKS as usize;
                let settings = raft::Settings { node, election_ticks, heartbeat_ticks: 3, seed };
                self.run_with(host, |start| RaftCore::new(&settings, start))
            }
            Algorithm::OmniPaxos => {
                let settings = omni::Settings { node, election_ticks: ELECTION_TICKS };
                self.run_with(host, |start| OmniCore::new(&settings, start))
            }
        }
    }

    fn run_with<C: Consensus + 'static>(
        &self,
        host: &Host,
        core: impl FnOnce(&Start) -> Result<C, String>,
    ) -> Result<(), String> {
        let endpoint = host.server.endpoint().ok_or("the server is down")?;
        let (cluster, algorithm) = ("simulated".into(), C::NAME.into());
        let identity = Identity { cluster, algorithm, node: host.id };
        let mut opened = Log::open(host.files.clone(), &identity)
            .map_err(|error| format!("node {} cannot restart: {error}", host.id))?;
        self.torn.set(self.torn.get() + u64::from(opened.torn > 0));
        let start = match opened.start {
            Some(start) => start,
            None => {
                let mut addresses = Addresses::default();
                if host.id <= self.first {
                    addresses.0 = (1..=self.first).map(|id| (id, id.to_string())).collect();
                }
                let first = Start::first(addresses);
                let salt = self.random.borrow_mut().word() as u32;
                let begun = opened.log.begin(&identity, &first.snapshot, salt);
                begun.map_err(|error| error.to_string())?;
                first
            }
        };
        host.files.settle();
        host.starts.set(host.starts.get() + 1);
        let core = core(&start)?;
        let settings = Settings {
            id: host.id,
            cluster: "simulated".into(),
            tick: TICK,
            election_ticks: ELECTION_TICKS,
            lease: self.options.lease,
            incarnation: 0,
            snapshot_every: self.options.snapshot_every,
            keep: self.options.keep,
        };
        let routes = Rc::clone(&self.routes);
        let connect = Box::new(move |endpoint: &VirtualEndpoint, address: &str| {
            Some(LocalPeerClient::new(Channel::to(endpoint, vec![*routes.get(address)?]).build()))
        });
        let (network, ahead) = (self.network.clone(), Rc::clone(&host.ahead));
        let clock = Rc::new(move || network.elapsed() + ahead.get());
        let disk = SimDisk::new(
            opened.log,
            Random::new(self.random.borrow_mut().word()),
            Inbox::of(&endpoint),
        );
        let (snapshot, hear) = (start.snapshot, None);
        let parts = Parts { settings, core, snapshot, disk, clock, connect, hear };
        let task = node::start(&endpoint, parts).map_err(|error| error.to_string())?;
        host.task.replace(Some(task));
        Ok(())
    }

    /// The machine of a host crashes.
    pub(crate) fn crash(&self, host: &Host) {
        host.task.take();
        host.server.kill();
        let returned = host.files.crash(&mut self.random.borrow_mut());
        self.returned.set(self.returned.get() + returned);
    }

    pub(crate) fn restart(&self, host: &Host) -> Result<(), String> {
        host.server.restart_routes(Front::<VirtualTransport>::routes());
        self.run_node(host)
    }

    /// The clock of a host jumps ahead.
    pub(crate) fn jump(&self, host: &Host, by: Duration) {
        host.ahead.set(host.ahead.get() + by);
    }

    /// Clients that know all nodes, at an endpoint of their own.
    pub(crate) fn clients(&self, patience: Patience) -> (VirtualEndpoint, Nodes<VirtualTransport>) {
        let all: Vec<_> = self.hosts.iter().map(|host| host.id).collect();
        self.clients_of(&all, patience)
    }

    /// Clients that know these nodes.
    pub(crate) fn clients_of(
        &self,
        nodes: &[u64],
        patience: Patience,
    ) -> (VirtualEndpoint, Nodes<VirtualTransport>) {
        let endpoint =
            self.network.endpoint_with(config()).expect("the settings are within bounds");
        let routes = Rc::clone(&self.routes);
        let addresses: Vec<_> = nodes.iter().map(ToString::to_string).collect();
        let connect = Box::new(move |endpoint: &VirtualEndpoint, address: &str| {
            let channel = Channel::to(endpoint, vec![*routes.get(address)?]).build();
            Some(LocalStoreClient::new(channel))
        });
        let nodes = Nodes::new(&endpoint, &addresses, connect, patience);
        (endpoint, nodes.expect("all addresses have routes"))
    }

    /// The first node that says that it leads.
    pub(crate) fn leader(&self) -> Option<&Host> {
        let (endpoint, nodes) = self.clients(Patience::default());
        self.hosts.iter().find(|host| {
            let status = endpoint.block_on(nodes.status(&host.id.to_string()));
            status.is_ok_and(|status| status.role == "leader")
        })
    }

    /// Nodes that have stopped although they must not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.hosts.iter().find_map(|host| {
            let mut task = host.task.borrow_mut();
            let task = task.as_mut().filter(|task| task.is_finished())?;
            Some(format!("node {} has stopped: {}", host.id, self.driver.block_on(task)))
        })
    }
}

impl Host {
    pub(crate) fn is_up(&self) -> bool {
        self.task.borrow().is_some()
    }
}
