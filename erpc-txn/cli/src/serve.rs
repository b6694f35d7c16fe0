//! `serve` and `local`: members of a cluster, until a signal.

use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Context, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Args;
use erpc::{Handle, IdlePolicy, Nexus, Seat, Udp, UdpConfig};
use erpc_txn::cluster::{Membership, NodeId};
use erpc_txn::coordinator::{JoinError, Node, endpoint_config};
use erpc_txn::participant::Participant;

use crate::config::Cluster;
use crate::failure::Failure;
use crate::member::{self, Addresses};
use crate::output;

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The file that describes the cluster, the same at all nodes
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The node that this process is; a file with one node needs no choice
    #[arg(long)]
    node: Option<u16>,
}

#[derive(Args)]
pub(crate) struct LocalArgs {
    /// Nodes of the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Copies of each partition, the primary included
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=3))]
    replicas: u16,
    /// Threads per node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    threads: u16,
    /// Port of the first node; the others have the next ones. 0: the system chooses all ports
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// How long a member that stops waits for its own transactions, and then for answers that others
/// wait for.
const LAST_TRANSACTIONS: Duration = Duration::from_secs(2);
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// A member that has not joined after this time names the nodes that do not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What happens to a process with members.
pub(crate) enum Event {
    /// This member serves.
    Ready,
    /// A member cannot serve.
    Failed(Failure),
    /// The process shall end.
    Signal,
    /// A thread of a member runs no transaction any more.
    Drained,
}

/// What the threads of members do after they have served.
#[derive(Clone, Copy)]
enum Stage {
    /// They run their transactions to the end.
    Drain = 1,
    /// They end.
    End,
}

/// The stage of all threads.
#[derive(Default)]
struct Stages(AtomicU8);

impl Stages {
    fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Release);
    }

    fn has_come(&self, stage: Stage) -> bool {
        self.0.load(Ordering::Acquire) >= stage as u8
    }
}

/// The members of this process.
struct Members {
    threads: Vec<JoinHandle<()>>,
    handles: Vec<Handle>,
    stages: Arc<Stages>,
}

pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let cluster = Cluster::read(&args.config)?;
    let (file, placement) = (args.config.display(), cluster.membership.placement());
    let nodes: Vec<_> = placement.nodes().iter().map(ToString::to_string).collect();
    let nodes = nodes.join(", ");
    let node = match (args.node, placement.nodes()) {
        (Some(node), _) => NodeId(node),
        (None, &[only]) => only,
        (None, _) => {
            let why = format!("{file} has the nodes {nodes}; say with --node which one this is");
            return Err(Failure::new(why));
        }
    };
    let Some(address) = cluster.membership.address(node) else {
        return Err(Failure::new(format!("{file} has no node {node}, but {nodes}; see --node")));
    };
    let nexus = bind(address, cluster.settings.threads)?;
    let what = format!("node {node} of cluster {}", cluster.name);
    run(&cluster, vec![(node, nexus)], &format!("{what} serves at {address}"))
}

pub(crate) fn local(args: &LocalArgs) -> Result<(), Failure> {
    let LocalArgs { nodes, replicas, threads, port } = *args;
    if replicas > nodes {
        let why = format!("--replicas {replicas} needs as many nodes, but --nodes is {nodes}");
        return Err(Failure::new(why));
    }
    let mut members = Vec::new();
    for node in 0..nodes {
        let port = match port {
            0 => Some(0),
            port => port.checked_add(node),
        };
        let port = port.ok_or_else(|| Failure::new("--port is too high for so many nodes"))?;
        let nexus = bind((Ipv4Addr::LOCALHOST, port).into(), threads)?;
        members.push((NodeId(node), nexus));
    }
    let addresses: Addresses =
        members.iter().map(|(node, nexus)| (*node, nexus.local_addr())).collect();
    let cluster = Cluster::local(&addresses, replicas, threads)?;
    let listed: Vec<_> = addresses.values().map(SocketAddr::to_string).collect();
    let (listed, serve) = (listed.join(","), if nodes == 1 { "serves" } else { "serve" });
    let nodes = output::count(nodes.into(), "node");
    let names = cluster.tables.iter().map(|(id, name)| format!(" --table {id}={name}"));
    let names: String = names.collect();
    let ready = format!(
        "{nodes} {serve} at {listed}\ntry: erpc-txn shell --connect {listed}{names}\nCtrl-C stops them"
    );
    run(&cluster, members, &ready)
}

fn bind(address: SocketAddr, threads: u16) -> Result<Nexus, Failure> {
    let nexus = Nexus::bind(address, threads.into(), UdpConfig::new());
    nexus.map_err(Failure::of("cannot listen"))
}

/// Runs members until a signal, or until one fails. Prints `ready` when all serve.
fn run(cluster: &Cluster, members: Vec<(NodeId, Nexus)>, ready: &str) -> Result<(), Failure> {
    let (tell, events) = mpsc::channel();
    await_signal(tell.clone())?;
    let count = members.len();
    let mut running = Members { threads: Vec::new(), handles: Vec::new(), stages: Arc::default() };
    let started = members
        .into_iter()
        .try_for_each(|(node, nexus)| running.start(cluster, node, nexus, &tell));
    let result = started.and_then(|()| wait(&events, count, ready));
    running.stop(&events);
    result
}

fn wait(events: &Receiver<Event>, count: usize, ready: &str) -> Result<(), Failure> {
    let mut serving = 0;
    loop {
        match events.recv() {
            Ok(Event::Ready) => {
                serving += 1;
                if serving == count {
                    output::line(ready)?;
                }
            }
            Ok(Event::Failed(failure)) => return Err(failure),
            Ok(Event::Signal) => {
                eprintln!("erpc-txn: stopping");
                return Ok(());
            }
            // Only after the stop.
            Ok(Event::Drained) => {}
            Err(_) => return Err(Failure::new("all members have ended")),
        }
    }
}

impl Members {
    /// Starts the threads of a member.
    fn start(
        &mut self,
        cluster: &Cluster,
        node: NodeId,
        nexus: Nexus,
        tell: &Sender<Event>,
    ) -> Result<(), Failure> {
        let placement = cluster.membership.placement();
        let participant = Participant::new(
            node,
            member::incarnation()?,
            Arc::clone(&placement),
            cluster.settings.clone(),
        );
        let participant = Arc::new(participant.map_err(Failure::of("no tables"))?);
        let of = |&node: &NodeId| Some((node, cluster.membership.address(node)?));
        let addresses: Addresses = placement.nodes().iter().filter_map(of).collect();
        for (seat, thread) in nexus.into_seats().into_iter().zip(0..) {
            let (participant, addresses) = (Arc::clone(&participant), addresses.clone());
            let (tell, stages) = (tell.clone(), Arc::clone(&self.stages));
            let (give, take) = mpsc::channel();
            let body = move || {
                let serve =
                    || serve_seat(seat, &participant, thread, addresses, &tell, &stages, &give);
                // The panic hook has reported a panic.
                let served = catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|_| {
                    Err(Failure::new(format!("thread {thread} of node {node} has panicked")))
                });
                if let Err(failure) = served {
                    // The receiver lives as long as the members.
                    tell.send(Event::Failed(failure)).unwrap_or_default();
                }
            };
            let spawned = thread::Builder::new().name(format!("node-{node}-{thread}")).spawn(body);
            self.threads.push(spawned.map_err(Failure::of("no thread"))?);
            // Fails if the thread has failed, which it tells.
            self.handles.extend(take.recv());
        }
        Ok(())
    }

    fn enter(&self, stage: Stage) {
        self.stages.set(stage);
        self.handles.iter().for_each(Handle::wake);
    }

    /// Ends all threads, after all of them have drained: a transaction of one may need another.
    fn stop(self, events: &Receiver<Event>) {
        self.enter(Stage::Drain);
        let end = Instant::now() + LAST_TRANSACTIONS;
        let mut left = self.handles.len();
        while left > 0 {
            match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Event::Drained) => left -= 1,
                Ok(_) => {}
                // What goes on has an unknown outcome anyway: the memory is lost.
                Err(_) => break,
            }
        }
        self.enter(Stage::End);
        for thread in self.threads {
            // A panic was reported by the panic hook.
            drop(thread.join());
        }
    }
}

/// One thread of a member, until the stage is over.
fn serve_seat(
    seat: Seat,
    participant: &Arc<Participant>,
    thread: u16,
    addresses: Addresses,
    tell: &Sender<Event>,
    stages: &Stages,
    give: &Sender<Handle>,
) -> Result<(), Failure> {
    let (endpoint, node) = member::open(seat, endpoint_config(), participant, thread, &addresses)?;
    // Members on one machine may have more threads than it has cores.
    endpoint.set_idle_policy(IdlePolicy::YieldThenSleep { spin: IdlePolicy::DEFAULT_SPIN });
    give.send(endpoint.handle()).unwrap_or_default();
    if thread == 0 {
        let (node, tell) = (node.clone(), tell.clone());
        drop(endpoint.spawn(async move {
            // The receiver lives as long as the members.
            tell.send(join(&node, &addresses).await).unwrap_or_default();
        }));
    }
    endpoint.run_until(|| stages.has_come(Stage::Drain));
    {
        let (node, tell) = (node.clone(), tell.clone());
        drop(endpoint.spawn(async move {
            node.drain().await;
            tell.send(Event::Drained).unwrap_or_default();
        }));
    }
    endpoint.run_until(|| stages.has_come(Stage::End));
    endpoint.block_on(endpoint.drain(LAST_ANSWERS));
    endpoint.shutdown();
    Ok(())
}

/// Waits until the member serves, or another member refuses it.
async fn join(node: &Node<Udp>, addresses: &Addresses) -> Event {
    let ready = match erpc::timeout(PATIENCE, node.ready()).await {
        Ok(ready) => ready,
        Err(_) => {
            let silent: Vec<_> = node.unreachable().iter().map(ToString::to_string).collect();
            if !silent.is_empty() {
                let (me, silent) = (node.participant().node(), silent.join(", "));
                eprintln!("erpc-txn: node {me} waits for nodes {silent}");
            }
            node.ready().await
        }
    };
    let Err(JoinError { node: expected, why }) = ready else { return Event::Ready };
    let me = node.participant().node();
    let address = addresses.get(&expected).map_or_else(String::new, ToString::to_string);
    let text = format!("node {me} cannot join: at {address}, expected node {expected}: {why}");
    Event::Failed(Failure::new(text))
}

/// Tells of the first signal that asks the process to end.
fn await_signal(tell: Sender<Event>) -> Result<(), Failure> {
    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let signal = erpc::shutdown_signal().map_err(Failure::of("no handler of signals"))?;
    let wait = move || {
        let mut signal = std::pin::pin!(signal);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        while signal.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            thread::park();
        }
        // The receiver is gone if the process ends for another reason.
        tell.send(Event::Signal).unwrap_or_default();
    };
    let spawned = thread::Builder::new().name("signal".into()).spawn(wait);
    spawned.map(drop).map_err(Failure::of("no thread"))
}
