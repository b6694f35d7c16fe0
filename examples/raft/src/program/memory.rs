//! `latency`: a client and three nodes in one thread or two, over the memory transport.
//!
//! No kernel takes part, so with one thread the times are those of the code alone. The time of the
//! consensus without calls stands beside them. The time that the leader sees, from a proposal to its
//! application, comes from a second run: to measure it takes two readings of a clock per write.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use erpc::service::{Method, Mode};
use erpc::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc::{Channel, Endpoint, EndpointConfig, Request, Response, Status, Transport};
use hdrhistogram::Histogram;

use super::alone::Alone;
use super::args::{Algorithm, LatencyArgs};
use super::failure::{Failure, say};
use super::load;
use crate::client::{Nodes, Patience};
use crate::consensus::omni::{self, OmniCore};
use crate::consensus::raft::{self, RaftCore};
use crate::consensus::{Addresses, Consensus, Start};
use crate::disk::Volatile;
use crate::machine::Command;
use crate::node::{self, Front, Parts, Settings};
use crate::proto::{LocalPeerClient, LocalStoreClient};

const NODES: u64 = 3;
/// So that no election disturbs the measurement.
const TICK: Duration = Duration::from_millis(20);
const ELECTION_TICKS: u32 = 15;
const ECHO: Method<u64, u64> = Method::new("raft.latency.Echo/Echo");
const VALUE: usize = 64;

/// Answers at once, to measure a round trip.
struct Echo;

impl Echo {
    #[expect(clippy::unnecessary_wraps, reason = "the signature of a handler")]
    fn echo(&self, request: Request<'_, u64>) -> Result<Response<u64>, Status> {
        Ok(Response::new(*request.message()))
    }
}

type MemEndpoint = Endpoint<MemTransport>;

/// What all nodes know.
struct Cluster {
    consensus: Algorithm,
    addresses: BTreeMap<u64, String>,
    routes: Arc<BTreeMap<String, MemRoute>>,
    /// Of the leader: from the proposal of a write to its application, in nanoseconds. None: not measured.
    commits: Option<Arc<Mutex<Histogram<u64>>>>,
}

impl Cluster {
    fn start(&self) -> Start {
        Start::first(Addresses(self.addresses.clone()))
    }
}

/// The nodes and their addresses.
fn addresses() -> BTreeMap<u64, String> {
    (1..=NODES).map(|id| (id, id.to_string())).collect()
}

pub(super) fn run(args: &LatencyArgs) -> Result<(), Failure> {
    alone(args)?;
    run_once(args, None)?;
    let commits = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid");
    let commits = Arc::new(Mutex::new(commits));
    run_once(args, Some(Arc::clone(&commits)))?;
    let commits = commits.lock().map_err(Failure::of("a node has panicked"))?;
    say(format!(
        "the leader, in a run of its own: median {:.2} us from the proposal of a write to its application",
        commits.value_at_percentile(50.0) as f64 / 1000.0
    ))
}

/// Prints the times that the client sees, unless those of the leader are measured.
fn run_once(
    args: &LatencyArgs,
    commits: Option<Arc<Mutex<Histogram<u64>>>>,
) -> Result<(), Failure> {
    let hub = MemHub::new();
    // Number 0 is the client.
    let mut ports: Vec<_> = (0..=NODES).map(|id| (id, hub.port(MemConfig::default()))).collect();
    let routes = ports.iter().map(|(id, port)| (id.to_string(), port.local_route())).collect();
    let (consensus, routes) = (args.consensus, Arc::new(routes));
    let cluster = Cluster { consensus, addresses: addresses(), routes, commits };
    // With two threads, the client and one node are in the first.
    let others = ports.split_off(if args.threads == 1 { ports.len() } else { 2 });
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            if others.is_empty() {
                return Ok(());
            }
            let endpoints = host(others, &cluster)?;
            while !is_over.load(Ordering::Relaxed) {
                for endpoint in &endpoints {
                    endpoint.run_once();
                }
            }
            Ok(())
        });
        let measured =
            host(ports, &cluster).and_then(|endpoints| measure(args, &cluster, &endpoints));
        is_over.store(true, Ordering::Relaxed);
        second.join().expect("the second thread does not panic")?;
        measured
    })
}

/// The endpoints of these ports, and their nodes.
fn host(ports: Vec<(u64, MemTransport)>, cluster: &Cluster) -> Result<Vec<MemEndpoint>, Failure> {
    let mut endpoints = Vec::new();
    for (id, port) in ports {
        let endpoint = Endpoint::new(port, EndpointConfig::new().slots(64))
            .map_err(Failure::of("no endpoint"))?;
        if id > 0 {
            let mut routes = Front::<MemTransport>::routes();
            let echo = Arc::new(Echo);
            routes
                .unary(ECHO, Mode::Dispatch, &echo, Echo::echo)
                .map_err(Failure::of("no echo"))?;
            endpoint.serve(Arc::new(routes), None);
            endpoint.listen();
            start(id, &endpoint, cluster)?;
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

/// Measures with the client, which is the first of the endpoints of this thread.
fn measure(
    args: &LatencyArgs,
    cluster: &Cluster,
    endpoints: &[MemEndpoint],
) -> Result<(), Failure> {
    let Cluster { addresses, routes, commits, .. } = cluster;
    let client = endpoints[0].clone();
    let turn = || {
        for endpoint in endpoints {
            endpoint.run_once();
        }
    };
    let until = |done: &dyn Fn() -> bool| {
        while !done() {
            turn();
        }
    };

    let known = Arc::clone(routes);
    let nodes = Nodes::new(
        &client,
        &addresses.values().cloned().collect::<Vec<_>>(),
        Box::new(move |endpoint: &MemEndpoint, address: &str| {
            let channel = Channel::to(endpoint, vec![*known.get(address)?]).build();
            Some(LocalStoreClient::new(channel))
        }),
        Patience::default(),
    );
    let nodes = nodes.map_err(|error| Failure::new(error.to_string()))?;

    let channel = Channel::to(&client, vec![routes["1"]]).build();
    let trips = load::shared();
    let echoes = {
        let (trips, count) = (trips.clone(), args.writes);
        client.spawn(async move {
            for number in 0..count {
                if number == count / 10 {
                    trips.borrow_mut().begin();
                }
                let begun = Instant::now();
                drop(channel.call(&ECHO, &number).await);
                trips.borrow_mut().answered(begun);
            }
        })
    };
    until(&|| echoes.is_finished());

    let seen = load::shared();
    let value = vec![b'v'; VALUE];
    let clients = u64::from(args.clients);
    let tasks: Vec<_> = (0..clients)
        .map(|task| {
            let key = move |number: u64| super::bench::key((number * clients + task) % 1_000_000);
            client.spawn(load::write(nodes.clone(), seen.clone(), value.clone(), key))
        })
        .collect();
    let warm = args.writes / 10;
    until(&|| seen.borrow().writes >= warm || seen.borrow().failure.is_some());
    seen.borrow_mut().begin();
    if let Some(Ok(mut commits)) = commits.as_ref().map(|commits| commits.lock()) {
        commits.reset();
    }
    let begun = Instant::now();
    until(&|| seen.borrow().writes >= args.writes || seen.borrow().failure.is_some());
    let elapsed = begun.elapsed().as_secs_f64();
    if let Some(error) = &seen.borrow().failure {
        return Err(Failure::new(error.to_string()));
    }
    let writes = seen.borrow().writes;
    seen.borrow_mut().is_over = true;
    let (trip, put) = (trips.borrow().micros(50.0), seen.borrow().micros(50.0));
    until(&|| tasks.iter().all(erpc::JoinHandle::is_finished));
    if commits.is_some() {
        return Ok(());
    }
    say(format!(
        "round trip: median {trip:.2} us; a write of {VALUE} bytes to three nodes, {clients} clients: median {put:.2} us, \
         99 % {:.2} us, {:.0} writes/s",
        seen.borrow().micros(99.0),
        writes as f64 / elapsed,
    ))
}

fn start(id: u64, endpoint: &MemEndpoint, cluster: &Cluster) -> Result<(), Failure> {
    let start = cluster.start();
    match cluster.consensus {
        Algorithm::Raft => start_with(id, endpoint, cluster, raft_core(id, &start)?, start),
        Algorithm::OmniPaxos => start_with(id, endpoint, cluster, omni_core(id, &start)?, start),
    }
}

fn raft_core(node: u64, start: &Start) -> Result<RaftCore, Failure> {
    let election_ticks = ELECTION_TICKS as usize;
    let settings = raft::Settings { node, election_ticks, heartbeat_ticks: 3, seed: 7 };
    RaftCore::new(&settings, start).map_err(Failure::new)
}

fn omni_core(node: u64, start: &Start) -> Result<OmniCore, Failure> {
    let settings = omni::Settings { node, election_ticks: ELECTION_TICKS };
    OmniCore::new(&settings, start).map_err(Failure::new)
}

/// Measures the consensus without calls.
fn alone(args: &LatencyArgs) -> Result<(), Failure> {
    let start = Start::first(Addresses(addresses()));
    let key = super::bench::key(0);
    let put = Command::Put { session: 1, sequence: 1, key: &key, value: &[b'v'; VALUE] };
    let command = put.encode().into();
    let micros = match args.consensus {
        Algorithm::Raft => {
            let cores: Result<_, _> = (1..=NODES).map(|id| raft_core(id, &start)).collect();
            Alone::new(cores?)?.micros_per_write(&command, args.writes)
        }
        Algorithm::OmniPaxos => {
            let cores: Result<_, _> = (1..=NODES).map(|id| omni_core(id, &start)).collect();
            Alone::new(cores?)?.micros_per_write(&command, args.writes)
        }
    };
    say(format!("the consensus of three nodes without calls: {:.2} us per write", micros?))
}

fn start_with<C: Consensus + 'static>(
    id: u64,
    endpoint: &MemEndpoint,
    cluster: &Cluster,
    core: C,
    start: Start,
) -> Result<(), Failure> {
    let settings = Settings {
        id,
        cluster: "memory".into(),
        tick: TICK,
        election_ticks: ELECTION_TICKS,
        lease: false,
        incarnation: id,
        snapshot_every: 256 << 20,
        keep: 1000,
    };
    let routes = Arc::clone(&cluster.routes);
    let connect = Box::new(move |endpoint: &MemEndpoint, address: &str| {
        Some(LocalPeerClient::new(Channel::to(endpoint, vec![*routes.get(address)?]).build()))
    });
    let begun = Instant::now();
    let hear = cluster.commits.clone().map(|commits| -> node::Hear {
        Box::new(move |took| {
            if let Ok(mut commits) = commits.lock() {
                commits.saturating_record(took.as_nanos() as u64);
            }
        })
    });
    let parts = Parts {
        settings,
        core,
        snapshot: start.snapshot,
        disk: Volatile::default(),
        clock: Rc::new(move || begun.elapsed()),
        connect,
        hear,
    };
    node::start(endpoint, parts).map(drop).map_err(|error| Failure::new(error.to_string()))
}
