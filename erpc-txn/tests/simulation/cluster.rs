//! A cluster in a virtual network.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use erpc::service::Routes;
use erpc::testing::{VirtualNetwork, VirtualServer, VirtualTransport};
use erpc::{Channel, Endpoint, Service};
use erpc_txn::cluster::{NodeId, Placement, Ring};
use erpc_txn::coordinator::{Node, Recorder, endpoint_config};
use erpc_txn::gateway::{Gateway, GatewayLimits};
use erpc_txn::participant::{Participant, Settings};
use erpc_txn::service::Member;

pub(crate) type VirtualNode = Node<VirtualTransport>;

pub(crate) const EPOCH: u32 = 3;

/// One member.
pub(crate) struct Host {
    pub(crate) server: VirtualServer,
    pub(crate) participant: Arc<Participant>,
    node: RefCell<Option<VirtualNode>>,
    pub(crate) is_dead: Cell<bool>,
    /// After a restart, which no other member must accept.
    again: RefCell<Option<(Arc<Participant>, VirtualNode)>>,
}

pub(crate) struct Cluster {
    pub(crate) network: VirtualNetwork,
    pub(crate) ring: Arc<Ring>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) recorder: Recorder,
    /// Runs the network. Not a member.
    pub(crate) driver: Endpoint<VirtualTransport>,
}

/// Low ones, which tests reach.
pub(crate) fn gateway_limits() -> GatewayLimits {
    GatewayLimits::new().time(Duration::from_secs(5)).keys(100).attempts(50)
}

fn routes(participant: &Arc<Participant>) -> Routes {
    let mut routes = Routes::new();
    let member = Arc::new(Member::new(Arc::clone(participant)));
    member.register(&mut routes).expect("the methods do not collide");
    let gateway = Arc::new(Gateway::<VirtualTransport>::with_limits(gateway_limits()));
    gateway.register(&mut routes).expect("the methods do not collide");
    routes
}

/// The coordinator of a member.
fn open(hosts: &[Host], host: &Host, participant: &Arc<Participant>) -> VirtualNode {
    let endpoint = host.server.endpoint().expect("it runs");
    let others = hosts.iter().filter(|other| !std::ptr::eq(*other, host));
    let channels = others.map(|other| {
        let channel = Channel::to(&endpoint, vec![other.server.route()]);
        (other.participant.node(), channel.build())
    });
    let node = Node::open(&endpoint, Arc::clone(participant), 0, channels);
    node.expect("there is a channel to each other member")
}

impl Cluster {
    /// Members that have met.
    pub(crate) fn start(seed: u64, nodes: u16, f: usize, settings: &Settings) -> Self {
        let network = VirtualNetwork::new(seed);
        let ring = Arc::new(Ring::new(EPOCH, (0..nodes).map(NodeId), f).expect("a possible ring"));
        let host = |&node: &NodeId| {
            let participant = Participant::new(node, 1, ring.clone(), settings.clone());
            let participant = Arc::new(participant.expect("the tables are small"));
            let server = network.serve_routes_with(routes(&participant), endpoint_config());
            let server = server.expect("the settings are within bounds");
            Host {
                server,
                participant,
                node: RefCell::default(),
                is_dead: Cell::new(false),
                again: RefCell::default(),
            }
        };
        let hosts: Vec<Host> = ring.nodes().iter().map(host).collect();
        let recorder = Recorder::new();
        for host in &hosts {
            let node = open(&hosts, host, &host.participant);
            node.record(&recorder);
            host.node.replace(Some(node));
        }
        let driver = network.endpoint();
        let cluster = Self { network, ring, hosts, recorder, driver };
        let is_active = |host: &Host| host.participant.is_active();
        cluster.run_until(Duration::from_secs(1), |cluster| cluster.hosts.iter().all(is_active));
        assert!(cluster.hosts.iter().all(is_active), "the members do not meet");
        cluster
    }

    /// Starts a dead member again, without its memory.
    pub(crate) fn restart(&self, host: &Host) {
        let former = &host.participant;
        let participant =
            Participant::new(former.node(), 2, self.ring.clone(), former.settings().clone());
        let participant = Arc::new(participant.expect("the tables are small"));
        host.server.restart_routes(routes(&participant));
        let node = open(&self.hosts, host, &participant);
        host.again.replace(Some((participant, node)));
    }

    /// Runs the network until something holds, but at most for a time. Returns whether it holds.
    pub(crate) fn run_until(&self, limit: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let end = self.network.elapsed() + limit;
        while !holds(self) {
            if self.network.elapsed() >= end {
                return false;
            }
            self.driver.run_for(Duration::from_micros(500));
        }
        true
    }

    /// Starts a task of a member.
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        host: &Host,
        task: impl FnOnce(VirtualNode) -> F,
    ) {
        if let (Some(endpoint), Some(node)) = (host.server.endpoint(), host.node()) {
            endpoint.spawn(task(node));
        }
    }

    /// Runs one task of a member to its end.
    pub(crate) fn run<O: 'static, F: Future<Output = O> + 'static>(
        &self,
        host: &Host,
        task: impl FnOnce(VirtualNode) -> F,
    ) -> O {
        let output = Rc::new(RefCell::new(None));
        let result = Rc::clone(&output);
        self.spawn(host, |node| {
            let task = task(node);
            async move {
                result.replace(Some(task.await));
            }
        });
        assert!(self.run_until(Duration::from_secs(20), |_| output.borrow().is_some()), "no end");
        output.take().expect("the task has ended")
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(|host| !host.is_dead.get())
    }

    pub(crate) fn host(&self, node: NodeId) -> &Host {
        &self.hosts[usize::from(node.0)]
    }
}

impl Host {
    /// None if the member is dead.
    pub(crate) fn node(&self) -> Option<VirtualNode> {
        self.node.borrow().clone()
    }

    /// The coordinator of the member after its restart.
    pub(crate) fn again(&self) -> Option<VirtualNode> {
        self.again.borrow().as_ref().map(|(_, node)| node.clone())
    }

    /// Whether the member has restarted and serves.
    pub(crate) fn serves_again(&self) -> bool {
        self.again.borrow().as_ref().is_some_and(|(participant, _)| participant.is_active())
    }

    pub(crate) fn kill(&self) {
        self.is_dead.set(true);
        self.node.take();
        self.server.kill();
    }
}
