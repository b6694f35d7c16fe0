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
/// A machine that will die while it changes its files has so long to change them.
const DIES_WITHIN: Duration = Duration::from_millis(100);

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
    /// Bytes of a segment of the nodes' logs, if it is a small one.
    segment: Option<u64>,
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

impl Options {
    fn has_snapshots(&self) -> bool {
        self.snapshot_every < u64::MAX
    }
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
        mut options: Options,
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
        let mut random = Random::new(seed);
        let mut segment = None;
        if options.has_snapshots() {
            // Nodes meet more snapshots of others, and more ends of segments.
            options.snapshot_every >>= if random.percent(50) { random.within(2, 5) } else { 0 };
            segment = random.percent(50).then(|| 1 << random.within(7, 14));
        }
        let random = RefCell::new(random);
        let routes = Rc::new(routes);
        let (torn, returned) = (Cell::new(0), Cell::new(0));
        let cluster = Self {
            network,
            hosts,
            driver,
            routes,
            first,
            options,
            segment,
            random,
            torn,
            returned,
        };
        for host in &cluster.hosts {
            cluster.will_die(host);
            let mut begun = cluster.run_node(host);
            if host.files.is_over() {
                cluster.end(host);
                begun = cluster.begin_again(host);
            }
            host.files.live_on();
            begun?;
        }
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
        if let Some(bytes) = self.segment {
            opened.log.set_segment(bytes);
        }
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

    /// The machine of a host crashes: between two calls, or between two changes of its files. The latter
    /// takes up to [`DIES_WITHIN`], and is only done in runs with snapshots.
    pub(crate) fn crash(&self, host: &Host) {
        if self.will_die(host) {
            self.run_until_it_dies(host);
        }
        // Otherwise `failure` would miss that.
        if !host.has_stopped() {
            self.end(host);
        }
    }

    /// Starts the node of a host that has crashed. In runs with snapshots, it may crash once more.
    pub(crate) fn restart(&self, host: &Host) -> Result<(), String> {
        let will_die = self.will_die(host);
        let mut begun = self.begin_again(host);
        if will_die && begun.is_ok() {
            self.run_until_it_dies(host);
        }
        if host.files.is_over() {
            self.end(host);
            begun = self.begin_again(host);
        }
        begun
    }

    /// Sometimes decides that a host will die between two changes of its files.
    fn will_die(&self, host: &Host) -> bool {
        let mut random = self.random.borrow_mut();
        let will_die = self.options.has_snapshots() && random.percent(30);
        if will_die {
            host.files.die_after(random.below(10), random.percent(50));
        }
        will_die
    }

    fn run_until_it_dies(&self, host: &Host) {
        let end = self.network.elapsed() + DIES_WITHIN;
        while self.network.elapsed() < end && !host.files.is_over() && !host.has_stopped() {
            self.driver.run_for(Duration::from_micros(500));
        }
        host.files.live_on();
    }

    fn end(&self, host: &Host) {
        host.task.take();
        host.server.kill();
        let returned = host.files.crash(&mut self.random.borrow_mut());
        self.returned.set(self.returned.get() + returned);
    }

    fn begin_again(&self, host: &Host) -> Result<(), String> {
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

    /// The node has stopped although its machine runs.
    fn has_stopped(&self) -> bool {
        self.task.borrow().as_ref().is_some_and(JoinHandle::is_finished)
    }
}
