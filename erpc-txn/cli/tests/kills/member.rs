//! What the process of a member runs.

use std::io::{BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;
use std::{env, io, thread};

use erpc::service::Routes;
use erpc::transport::udp::UdpRoute;
use erpc::{Channel, Endpoint, EndpointConfig, Handle, Nexus, Service, UdpConfig};
use erpc_txn::cluster::{NodeId, Ring};
use erpc_txn::codec::TypedTable;
use erpc_txn::coordinator::Node;
use erpc_txn::gateway::Gateway;
use erpc_txn::participant::{Participant, Settings};
use erpc_txn::service::Member;
use erpc_txn::table::Config;

use crate::fatal::{Mortal, Trigger};
use crate::holdings;

pub(crate) const NODES: u16 = 3;

/// The only table: lists of numbers.
pub(crate) const LISTS: TypedTable<u64, Vec<u8>> = TypedTable::new(1);

/// The environment variable that makes this process a member: its node and the number of replicas.
pub(crate) const MEMBER: &str = "TXN_MEMBER";

/// Of a deliberate bug in the members, in builds that have them.
pub(crate) const BUG: &str = "TXN_BUG";

/// Small, so that logs fill up and keys share buckets.
pub(crate) fn settings() -> Settings {
    let lists = Config::new(4000).max_value(1 << 16);
    let tables = [(LISTS.id(), lists)].into();
    Settings { tables, threads: 1, log_bytes: 1 << 20, log_records: 16 }
}

pub(crate) fn ring(replicas: usize) -> Ring {
    Ring::new(1, (0..NODES).map(NodeId), replicas - 1).expect("a possible ring")
}

/// Notices within a second that a process is dead.
pub(crate) fn config() -> EndpointConfig {
    EndpointConfig::new()
        .slots(64)
        .ping_interval(Duration::from_millis(200))
        .liveness_timeout(Duration::from_millis(800))
        .connect_timeout(Duration::from_millis(400))
}

/// Prints a line with one system call. Begins with a newline, because the test harness may have
/// printed the start of a line.
pub(crate) fn say(line: &str) {
    let text = format!("\n{line}\n");
    io::stdout().lock().write_all(text.as_bytes()).unwrap_or_default();
    io::stdout().lock().flush().unwrap_or_default();
}

pub(crate) fn run_if_asked() {
    let Ok(text) = env::var(MEMBER) else { return };
    let (node, replicas) = text.split_once(' ').expect("a node and a number");
    let (node, replicas) = (node.parse().expect("a node"), replicas.parse().expect("a number"));
    #[cfg(erpc_mutants)]
    if let Ok(bug) = env::var(BUG) {
        let bugs = erpc_txn::mutants::ALL.iter();
        let chosen = bugs.map(|(mutant, _)| *mutant).find(|of| format!("{of:?}") == bug);
        erpc_txn::mutants::choose(chosen);
    }
    run(NodeId(node), replicas);
}

/// Runs until standard input ends.
fn run(me: NodeId, replicas: usize) {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let nexus = Nexus::bind(loopback, 1, UdpConfig::new()).expect("there are ports");
    let address = nexus.local_addr();
    let seat = nexus.into_seats().into_iter().next().expect("there is one");
    let endpoint = seat.open(config()).expect("the settings are within bounds");
    let ring = Arc::new(ring(replicas));
    let incarnation = std::process::id();
    let participant = Participant::new(me, incarnation, ring.clone(), settings());
    let participant = Arc::new(participant.expect("the table is small"));
    let trigger = Arc::new(Trigger::default());
    let mut routes = Routes::new();
    let member = Member::new(Arc::clone(&participant));
    let member = Arc::new(Mortal::new(member, Arc::clone(&trigger)));
    member.register(&mut routes).expect("the methods do not collide");
    Arc::new(Gateway::<erpc::Udp>::new())
        .register(&mut routes)
        .expect("the methods do not collide");
    endpoint.serve(Arc::new(routes), None);
    say(&format!("pid {}", std::process::id()));
    say(&format!("at {address}"));

    let lines = lines(endpoint.handle());
    let mut node = None;
    endpoint.run_until(|| {
        loop {
            let line = match lines.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            };
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "meet" => node = Some(open(&endpoint, &participant, rest)),
                "arm" => {
                    let (pids, shot) = rest.split_once(';').expect("processes and a shot");
                    let pids = pids.split(' ').map(|pid| pid.parse().expect("a number"));
                    trigger.arm(shot.parse().expect("a shot"), pids.collect());
                }
                "hold" => {
                    let node: &Node = node.as_ref().expect("the members have met");
                    say(&holdings::of(&participant, node));
                }
                "active" => say(&format!("active {}", participant.is_active())),
                _ => panic!("no such command: {line}"),
            }
        }
    });
}

fn open(endpoint: &Endpoint, participant: &Arc<Participant>, addresses: &str) -> Node {
    let addresses = addresses.split(' ').map(|at| at.parse().expect("an address"));
    let all = participant.placement().nodes().iter().copied().zip(addresses);
    let others = all.filter(|(node, _)| *node != participant.node());
    let channels = others.map(|(node, address): (_, SocketAddr)| {
        (node, Channel::to(endpoint, vec![UdpRoute::from(address)]).build())
    });
    Node::open(endpoint, Arc::clone(participant), 0, channels).expect("all have channels")
}

/// The lines of standard input.
fn lines(wake: Handle) -> Receiver<String> {
    let (give, take) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            give.send(line).unwrap_or_default();
            wake.wake();
        }
        drop(give);
        wake.wake();
    });
    take
}
