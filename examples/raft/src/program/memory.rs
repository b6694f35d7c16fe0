//! `latency`: a client and three nodes in one thread or two, over the memory transport.
//!
//! No kernel takes part, so with one thread the times are those of the code alone.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use erpc::service::{Method, Mode};
use erpc::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc::{Channel, Endpoint, EndpointConfig, Request, Response, Status, Transport};

use super::args::{Algorithm, LatencyArgs};
use super::failure::{Failure, say};
use super::load;
use crate::client::{Nodes, Patience};
use crate::consensus::omni::{self, OmniCore};
use crate::consensus::raft::{self, RaftCore};
use crate::consensus::{Addresses, Consensus, Start};
use crate::disk::Volatile;
use crate::node::{self, Front, Parts, Settings};
use crate::proto::{LocalPeerClient, LocalStoreClient};

const NODES: u64 = 3;
/// So that no election disturbs the measurement.
const TICK: Duration = Duration::from_millis(20);
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
}

pub(super) fn run(args: &LatencyArgs) -> Result<(), Failure> {
    let hub = MemHub::new();
    // Number 0 is the client.
    let mut ports: Vec<_> = (0..=NODES).map(|id| (id, hub.port(MemConfig::default()))).collect();
    let routes = ports.iter().map(|(id, port)| (id.to_string(), port.local_route())).collect();
    let addresses = (1..=NODES).map(|id| (id, id.to_string())).collect();
    let cluster = Cluster { consensus: args.consensus, addresses, routes: Arc::new(routes) };
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
    let Cluster { addresses, routes, .. } = cluster;
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
    say(format!(
        "round trip: median {trip:.2} us; a write of {VALUE} bytes to three nodes, {clients} clients: median {put:.2} us, \
         99 % {:.2} us, {:.0} writes/s",
        seen.borrow().micros(99.0),
        writes as f64 / elapsed,
    ))
}

fn start(id: u64, endpoint: &MemEndpoint, cluster: &Cluster) -> Result<(), Failure> {
    let start = Start::first(Addresses(cluster.addresses.clone()));
    match cluster.consensus {
        Algorithm::Raft => {
            let settings =
                raft::Settings { node: id, election_ticks: 15, heartbeat_ticks: 3, seed: 7 };
            let core = RaftCore::new(&settings, &start).map_err(Failure::new)?;
            start_with(id, endpoint, &cluster.routes, core, start)
        }
        Algorithm::OmniPaxos => {
            let settings = omni::Settings { node: id, election_ticks: 15 };
            let core = OmniCore::new(&settings, &start).map_err(Failure::new)?;
            start_with(id, endpoint, &cluster.routes, core, start)
        }
    }
}

fn start_with<C: Consensus + 'static>(
    id: u64,
    endpoint: &MemEndpoint,
    routes: &Arc<BTreeMap<String, MemRoute>>,
    core: C,
    start: Start,
) -> Result<(), Failure> {
    let settings = Settings {
        id,
        cluster: "memory".into(),
        tick: TICK,
        election_ticks: 15,
        lease: false,
        incarnation: id,
        snapshot_every: 256 << 20,
        keep: 1000,
    };
    let routes = Arc::clone(routes);
    let connect = Box::new(move |endpoint: &MemEndpoint, address: &str| {
        Some(LocalPeerClient::new(Channel::to(endpoint, vec![*routes.get(address)?]).build()))
    });
    let begun = Instant::now();
    let parts = Parts {
        settings,
        core,
        snapshot: start.snapshot,
        disk: Volatile::default(),
        clock: Rc::new(move || begun.elapsed()),
        connect,
    };
    node::start(endpoint, parts).map(drop).map_err(|error| Failure::new(error.to_string()))
}
