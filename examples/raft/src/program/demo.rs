//! Without arguments: three nodes in this process, a checked load, and a leader that dies.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use erpc::{Endpoint, Handle, Nexus, UdpConfig};

use super::args::Algorithm;
use super::failure::{Failure, say};
use super::load::{self, Shared};
use super::member::{self, Config};
use crate::client::Nodes;

const NODES: u64 = 3;
const TASKS: usize = 16;
const ELECTION: Duration = Duration::from_millis(150);
/// Of the load, before the leader dies and after.
const PHASE: Duration = Duration::from_secs(2);
/// For a leader to be elected, and for a node to catch up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A node in a thread.
struct Node {
    address: SocketAddr,
    thread: JoinHandle<Result<(), Failure>>,
    handle: Handle,
    is_killed: Arc<AtomicBool>,
}

pub(super) fn run(consensus: Algorithm) -> Result<(), Failure> {
    let folder = Temporary::new()?;
    let mut nexuses = BTreeMap::new();
    for id in 1..=NODES {
        nexuses.insert(id, member::bind((Ipv4Addr::LOCALHOST, 0).into())?);
    }
    let peers: BTreeMap<_, _> =
        nexuses.iter().map(|(id, nexus)| (*id, nexus.local_addr())).collect();
    let mut nodes = BTreeMap::new();
    for (id, nexus) in nexuses {
        nodes.insert(id, start(config(id, consensus, &peers, &folder.0), nexus)?);
    }
    let addresses: Vec<_> = peers.values().map(ToString::to_string).collect();
    say(format!(
        "3 nodes serve at {}, with fsync, in {}",
        addresses.join(", "),
        folder.0.display()
    ))?;

    let endpoint = Endpoint::udp_with(&UdpConfig::new(), member::endpoint_config())
        .map_err(Failure::of("no socket"))?;
    let client = member::nodes(&endpoint, &addresses)?;
    let (first, term) = leader(&endpoint, &client, &addresses)?;
    say(format!("node {first} leads in term {term}"))?;

    let seen = load::shared();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let count = load::count(client.clone(), seen.clone(), format!("counter {task}"));
            endpoint.spawn(count)
        })
        .collect();
    endpoint.run_for(Duration::from_millis(300));
    let calm = measure(&endpoint, &seen)?;
    say(format!("{TASKS} clients count up by compare-and-swap, and read each count back: {calm}"))?;

    let dead = nodes.remove(&first).ok_or(Failure::new("the leader is no node of this process"))?;
    seen.borrow_mut().begin();
    kill(dead)?;
    endpoint.run_for(PHASE);
    let outage = seen.borrow().gap;
    let (second, term) = leader(&endpoint, &client, &addresses)?;
    say(format!(
        "node {first} was killed; node {second} leads in term {term}; longest time without an answer: {:.1} ms",
        outage.as_secs_f64() * 1e3
    ))?;
    let again = member::bind(peers[&first])?;
    nodes.insert(first, start(config(first, consensus, &peers, &folder.0), again)?);
    let after = measure(&endpoint, &seen)?;
    say(format!("node {first} has restarted from its disk: {after}"))?;

    seen.borrow_mut().is_over = true;
    let mut total = 0;
    for task in tasks {
        total += endpoint.block_on(task);
    }
    check(&seen)?;
    catch_up(&endpoint, &client, &addresses)?;
    say(format!("all {total} counts were right, and all nodes have applied the same log"))?;
    nodes.into_values().try_for_each(kill)
}

fn config(
    id: u64,
    consensus: Algorithm,
    peers: &BTreeMap<u64, SocketAddr>,
    folder: &Path,
) -> Config {
    Config {
        id,
        peers: peers.clone(),
        dir: Some(folder.join(format!("node-{id}"))),
        cluster: "demo".into(),
        consensus,
        election: ELECTION,
        lease: false,
        snapshot_every: 1 << 20,
    }
}

/// Runs a node in a thread, until it is killed.
fn start(config: Config, nexus: Nexus) -> Result<Node, Failure> {
    let address = nexus.local_addr();
    let is_killed = Arc::new(AtomicBool::new(false));
    let killed = Arc::clone(&is_killed);
    let (give, take) = mpsc::channel();
    let run = move || {
        let mut member = member::open(&config, nexus)?;
        give.send(member.endpoint.handle()).unwrap_or_default();
        let endpoint = member.endpoint.clone();
        endpoint.run_until(|| killed.load(Ordering::Acquire) || member.task.is_finished());
        if member.task.is_finished() {
            return Err(Failure::new(endpoint.block_on(&mut member.task).to_string()));
        }
        Ok(())
    };
    let thread = thread::Builder::new().name("node".into()).spawn(run);
    let thread = thread.map_err(Failure::of("no thread"))?;
    match take.recv() {
        Ok(handle) => Ok(Node { address, thread, handle, is_killed }),
        Err(_) => Err(ended(thread)),
    }
}

/// Ends a node without a word to the others.
fn kill(node: Node) -> Result<(), Failure> {
    node.is_killed.store(true, Ordering::Release);
    node.handle.wake();
    let result = node.thread.join();
    result
        .unwrap_or_else(|_| Err(Failure::new(format!("the node at {} has panicked", node.address))))
}

fn ended(thread: JoinHandle<Result<(), Failure>>) -> Failure {
    match thread.join() {
        Ok(Err(failure)) => failure,
        _ => Failure::new("a node has ended"),
    }
}

/// Runs the load for a while. What it did, for people.
fn measure(endpoint: &Endpoint, seen: &Shared) -> Result<String, Failure> {
    seen.borrow_mut().begin();
    endpoint.run_for(PHASE);
    check(seen)?;
    let seen = seen.borrow();
    let rate = seen.writes as f64 / PHASE.as_secs_f64();
    Ok(format!("{rate:.0} counts/s, median {:.0} us", seen.micros(50.0)))
}

fn check(seen: &Shared) -> Result<(), Failure> {
    match &seen.borrow().failure {
        Some(error) => Err(Failure::new(error.to_string())),
        None => Ok(()),
    }
}

/// Waits for a leader. Its id and term.
fn leader(
    endpoint: &Endpoint,
    client: &Nodes,
    addresses: &[String],
) -> Result<(u64, u64), Failure> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for address in addresses {
            if let Ok(status) = endpoint.block_on(client.status(address))
                && status.role == "leader"
            {
                return Ok((status.id, status.term));
            }
        }
        endpoint.run_for(Duration::from_millis(5));
    }
    Err(Failure::new("no node has become leader"))
}

/// Waits until all nodes have applied the same.
fn catch_up(endpoint: &Endpoint, client: &Nodes, addresses: &[String]) -> Result<(), Failure> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let status = |address| endpoint.block_on(client.status(address)).ok();
        let applied: Vec<_> =
            addresses.iter().map(|address| Some(status(address)?.applied)).collect();
        if applied.iter().all(|index| index.is_some() && *index == applied[0]) {
            return Ok(());
        }
        endpoint.run_for(Duration::from_millis(20));
    }
    Err(Failure::new("the nodes do not agree on what is applied"))
}

/// A folder that is deleted at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("erpc-raft-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(Failure::of("no folder for the data"))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is left is in the system's folder for such files.
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}
