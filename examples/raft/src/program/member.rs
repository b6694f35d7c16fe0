//! One node over UDP, from its settings to its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use erpc::transport::udp::UdpRoute;
use erpc::{Channel, Endpoint, EndpointConfig, JoinHandle, Nexus, UdpConfig};
use rustix::time::{ClockId, clock_gettime};

use super::args::Algorithm;
use super::failure::Failure;
use crate::client::{self, Nodes, Patience};
use crate::consensus::omni::{self, OmniCore};
use crate::consensus::raft::{self, RaftCore};
use crate::consensus::{Addresses, Consensus, Start};
use crate::disk::{DiskThread, Folder, Identity, Log, Volatile};
use crate::node::{self, Front, Inbox, NodeError, Parts, Settings};
use crate::proto::{LocalPeerClient, LocalStoreClient};

/// Ticks of the shortest election timeout, and between heartbeats.
const ELECTION_TICKS: u32 = 15;
const HEARTBEAT_TICKS: u32 = 3;

/// The settings of a node of a process.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) id: u64,
    /// All nodes that the cluster begins with; none of a node that joins.
    pub(super) peers: BTreeMap<u64, SocketAddr>,
    /// None: volatile.
    pub(super) dir: Option<PathBuf>,
    pub(super) cluster: String,
    pub(super) consensus: Algorithm,
    pub(super) election: Duration,
    pub(super) lease: bool,
    pub(super) snapshot_every: u64,
}

/// A node that runs while its endpoint does.
pub(super) struct Member {
    pub(super) endpoint: Endpoint,
    pub(super) task: JoinHandle<NodeError>,
    /// Where it listens.
    pub(super) address: SocketAddr,
}

/// Sessions notice soon that a node is dead.
pub(super) fn endpoint_config() -> EndpointConfig {
    EndpointConfig::new()
        .slots(64)
        .ping_interval(Duration::from_millis(100))
        .liveness_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_millis(200))
}

/// A time that passes while the machine sleeps, too.
fn clock() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

pub(super) fn bind(listen: SocketAddr) -> Result<Nexus, Failure> {
    Nexus::bind(listen, 1, UdpConfig::new())
        .map_err(Failure::of(&format!("cannot listen at {listen}")))
}

/// Starts a node in this thread.
pub(super) fn open(config: &Config, nexus: Nexus) -> Result<Member, Failure> {
    match config.consensus {
        Algorithm::Raft => {
            let seed = random()?;
            let settings = raft::Settings {
                node: config.id,
                election_ticks: ELECTION_TICKS as usize,
                heartbeat_ticks: HEARTBEAT_TICKS as usize,
                seed,
            };
            open_with(config, nexus, |start| RaftCore::new(&settings, start))
        }
        Algorithm::OmniPaxos => {
            let settings = omni::Settings { node: config.id, election_ticks: ELECTION_TICKS };
            open_with(config, nexus, |start| OmniCore::new(&settings, start))
        }
    }
}

fn random() -> Result<u64, Failure> {
    getrandom::u64().map_err(Failure::of("the system has no random numbers"))
}

fn open_with<C: Consensus + 'static>(
    config: &Config,
    nexus: Nexus,
    core: impl FnOnce(&Start) -> Result<C, String>,
) -> Result<Member, Failure> {
    let address = nexus.local_addr();
    let seat = nexus.into_seats().into_iter().next().ok_or(Failure::new("no endpoint"))?;
    let endpoint = seat.open(endpoint_config()).map_err(Failure::of("no endpoint"))?;
    endpoint.serve(Arc::new(Front::<erpc::Udp>::routes()), None);
    let addresses: BTreeMap<_, _> =
        config.peers.iter().map(|(id, address)| (*id, address.to_string())).collect();
    let first = Start::first(Addresses(addresses));
    let (start, log) = match &config.dir {
        None => (first, None),
        Some(dir) => {
            let identity = Identity {
                cluster: config.cluster.clone(),
                algorithm: C::NAME.into(),
                node: config.id,
            };
            let no_data = Failure::of("the node cannot use its data");
            let folder = Folder::open(dir).map_err(&no_data)?;
            let mut opened = Log::open(folder, &identity).map_err(&no_data)?;
            if opened.torn > 0 {
                eprintln!("raft: removed {} bytes that a crash had left half written", opened.torn);
            }
            let start = match opened.start {
                Some(start) => start,
                None => {
                    let begun = opened.log.begin(&identity, &first.snapshot, random()? as u32);
                    begun.map_err(Failure::of("the node cannot begin"))?;
                    first
                }
            };
            (start, Some(opened.log))
        }
    };
    let tick = config.election / ELECTION_TICKS;
    let core = core(&start).map_err(Failure::of("the node's data contradict themselves"))?;
    let settings = Settings {
        id: config.id,
        cluster: config.cluster.clone(),
        tick,
        election_ticks: ELECTION_TICKS,
        lease: config.lease,
        incarnation: if log.is_none() { random()?.max(1) } else { 0 },
        snapshot_every: config.snapshot_every,
        keep: 10_000,
    };
    let connect = Box::new(|endpoint: &Endpoint, address: &str| {
        let route = UdpRoute::from(address.parse::<SocketAddr>().ok()?);
        Some(LocalPeerClient::new(Channel::to(endpoint, vec![route]).build()))
    });
    let clock = Rc::new(clock);
    let (snapshot, hear) = (start.snapshot, None);
    let task = match log {
        None => {
            let disk = Volatile::default();
            node::start(&endpoint, Parts { settings, core, snapshot, disk, clock, connect, hear })
        }
        Some(log) => {
            let handle = endpoint.handle();
            let wake = move || {
                // Fails if the endpoint has ended.
                handle.submit(|endpoint| Inbox::of(endpoint).wake()).unwrap_or_default();
            };
            let disk = DiskThread::start(log, wake).map_err(Failure::of("no thread"))?;
            node::start(&endpoint, Parts { settings, core, snapshot, disk, clock, connect, hear })
        }
    };
    let task = task.map_err(Failure::of("the node cannot start"))?;
    Ok(Member { endpoint, task, address })
}

/// A client over UDP.
pub(super) fn nodes(endpoint: &Endpoint, addresses: &[String]) -> Result<Nodes, Failure> {
    let connect: client::Connect<erpc::Udp> = Box::new(|endpoint, address| {
        let route = UdpRoute::from(address.parse::<SocketAddr>().ok()?);
        Some(LocalStoreClient::new(Channel::to(endpoint, vec![route]).build()))
    });
    let nodes = Nodes::new(endpoint, addresses, connect, Patience::default());
    nodes.map_err(|error| Failure::new(error.to_string()))
}
