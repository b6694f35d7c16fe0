//! Nodes as processes, which are killed.
//!
//! `RAFT_SECS` is the length of the run with kills, 10 s by default.

mod cluster;
mod damaged;
mod members;
mod volatile;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Cluster, Durability, client};
use erpc_raft::check::{Call, Operation, Verdict, check};
use erpc_raft::client::{Nodes, Patience};

const OMNI_PAXOS: [&str; 2] = ["--consensus", "omni-paxos"];
/// For anything that takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The outages of a run with kills.
#[derive(Clone, Copy)]
struct Outages {
    /// The median must be below. A machine that is busy for a while prolongs some outages, not half of them.
    bound: Duration,
    /// So long a killed node is down. Longer outages are not told apart.
    down: Duration,
}

/// With the timers that a node has by default.
const DEFAULT: Outages =
    Outages { bound: Duration::from_millis(500), down: Duration::from_millis(600) };
/// With timers for a local network.
const FAST: Outages =
    Outages { bound: Duration::from_millis(100), down: Duration::from_millis(200) };

/// What the clients of a run share.
struct Shared {
    calls: RefCell<Vec<Call>>,
    is_over: Cell<bool>,
    value: Cell<u64>,
    answered: Cell<Instant>,
    gap: Cell<Duration>,
}

async fn load(nodes: Nodes, key: Vec<u8>, shared: Rc<Shared>, begun: Instant) {
    let session = nodes.open().await.expect("the cluster serves");
    let now = || begun.elapsed().as_nanos() as u64;
    let mut seen: Option<Vec<u8>> = None;
    while !shared.is_over.get() {
        shared.value.set(shared.value.get() + 1);
        let value = shared.value.get().to_string().into_bytes();
        let start = now();
        // No call may fail: a majority is always there again within the client's patience.
        let operation = match shared.value.get() % 3 {
            0 => {
                session.put(&key, &value).await.expect("a write is repeated until it is answered");
                Operation::Put(value)
            }
            1 => {
                let expected = seen.clone();
                let swapped = session.cas(&key, expected.as_deref(), &value).await;
                let swapped = Some(swapped.expect("a write is repeated until it is answered"));
                Operation::Cas { expected, value, swapped }
            }
            _ => {
                let read = nodes.get(&key).await.expect("a read is repeated until it is answered");
                seen = read.map(|value| value.to_vec());
                Operation::Get(seen.clone())
            }
        };
        let call = Call { key: key.clone(), begun: start, ended: Some(now()), operation };
        shared.calls.borrow_mut().push(call);
        shared.gap.set(shared.gap.get().max(shared.answered.get().elapsed()));
        shared.answered.set(Instant::now());
        erpc::sleep(Duration::from_micros(500)).await;
    }
}

/// Kills the leader and followers in turn while clients write and read. Nothing that was acknowledged is
/// lost, and no read is stale: the history is linearizable.
#[test]
fn killed_nodes_lose_nothing() {
    kill_nodes("kills", &[], DEFAULT);
}

#[test]
fn killed_nodes_of_omni_paxos_lose_nothing() {
    kill_nodes("kills-omni", &OMNI_PAXOS, DEFAULT);
}

#[test]
fn killed_nodes_with_short_timers_are_replaced_soon() {
    kill_nodes("kills-fast", &["--election-ms", "20"], FAST);
}

/// One run at a time: each has three nodes for two cores, and its outages have bounds.
static RUN: Mutex<()> = Mutex::new(());

fn kill_nodes(name: &str, arguments: &[&str], outages: Outages) {
    let _run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    let secs = std::env::var("RAFT_SECS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let mut cluster = Cluster::start(name, Durability::Disk, arguments);
    let patience = Patience { call: PATIENCE, ..Patience::default() };
    let (endpoint, nodes) = client(&cluster.addresses(), patience);
    let leader = cluster.leader(&endpoint, &nodes);
    let begun = Instant::now();
    let shared = Rc::new(Shared {
        calls: RefCell::default(),
        is_over: Cell::default(),
        value: Cell::default(),
        answered: Cell::new(begun),
        gap: Cell::default(),
    });
    let tasks: Vec<_> = (0..6_u8)
        .map(|task| endpoint.spawn(load(nodes.clone(), vec![task % 2], Rc::clone(&shared), begun)))
        .collect();
    let (mut kills, mut gaps, mut victim) = (0, Vec::new(), leader);
    while begun.elapsed() < Duration::from_secs(secs) {
        endpoint.run_for(outages.down / 2);
        shared.gap.set(Duration::ZERO);
        shared.answered.set(Instant::now());
        cluster.kill(victim);
        kills += 1;
        endpoint.run_for(outages.down);
        if kills % 2 == 1 {
            gaps.push(shared.gap.get().max(shared.answered.get().elapsed()));
        }
        cluster.restart(victim);
        // A leader, then a follower.
        let leader = cluster.leader(&endpoint, &nodes);
        victim = if kills % 2 == 0 { leader } else { leader % 3 + 1 };
    }
    shared.is_over.set(true);
    endpoint.block_on(async {
        for task in tasks {
            task.await;
        }
    });
    let calls = shared.calls.borrow();
    gaps.sort_unstable();
    println!(
        "{kills} kills, {} calls; longest times without an answer when the leader was killed: {gaps:?}",
        calls.len()
    );
    assert!(kills >= 4 && calls.len() >= 100, "{kills} kills, {} calls", calls.len());
    let median = gaps[(gaps.len() - 1) / 2];
    assert!(median < outages.bound, "half of the outages take {median:?} or more: {gaps:?}");
    assert_eq!(check(&calls, 1_000_000_000), Verdict::Linearizable);
}

/// SIGTERM lets another node lead before the process ends.
#[test]
fn a_leader_that_is_told_to_end_hands_over() {
    end_leader("handover", &[]);
}

#[test]
fn a_leader_of_omni_paxos_that_is_told_to_end_hands_over() {
    end_leader("handover-omni", &OMNI_PAXOS);
}

fn end_leader(name: &str, arguments: &[&str]) {
    let arguments = [&["--election-ms", "3000"], arguments].concat();
    let mut cluster = Cluster::start(name, Durability::Volatile, &arguments);
    let (endpoint, nodes) = client(&cluster.addresses(), Patience::default());
    let leader = cluster.leader(&endpoint, &nodes);
    cluster.signal(leader, "TERM");
    assert!(cluster.wait(leader).success(), "it ends without a failure");
    // Without the handover, nobody would lead for three seconds at least.
    let others = (1..=3).filter(|id| *id != leader);
    let leads = |id| {
        let address = cluster.address(id);
        endpoint.block_on(nodes.status(&address)).is_ok_and(|status| status.role == "leader")
    };
    assert!(others.into_iter().any(leads), "no node has taken over");
}

/// A leader that stands still for longer than its lease does not serve stale reads when it goes on.
#[test]
fn a_leader_that_was_stopped_reads_nothing_stale() {
    stop_leader("lease", &[]);
}

#[test]
fn a_leader_of_omni_paxos_that_was_stopped_reads_nothing_stale() {
    stop_leader("lease-omni", &OMNI_PAXOS);
}

fn stop_leader(name: &str, arguments: &[&str]) {
    let arguments = [&["--lease"], arguments].concat();
    let cluster = Cluster::start(name, Durability::Volatile, &arguments);
    let (endpoint, nodes) =
        client(&cluster.addresses(), Patience { call: PATIENCE, ..Patience::default() });
    for round in 0..3 {
        let leader = cluster.leader(&endpoint, &nodes);
        let address = cluster.address(leader);
        let old = client(&[address], Patience::default());
        endpoint.block_on(async {
            let session = nodes.open().await.expect("the cluster serves");
            session.put(b"key", b"old").await.expect("the cluster serves");
            // The lease begins.
            nodes.get(b"key").await.expect("the cluster serves");
        });
        cluster.signal(leader, "STOP");
        // The read waits in the socket of the stopped process.
        let read = old.0.spawn({
            let nodes = old.1.clone();
            async move { nodes.get(b"key").await }
        });
        endpoint.block_on(async {
            let session = nodes.open().await.expect("the others elect a leader");
            session.put(b"key", format!("new {round}").as_bytes()).await.expect("they serve");
        });
        // Begins after the write has ended, so it must not read the old value.
        let late = old.0.spawn({
            let nodes = old.1.clone();
            async move { nodes.get(b"key").await }
        });
        old.0.run_for(Duration::from_millis(20));
        cluster.signal(leader, "CONT");
        let value = old.0.block_on(late);
        if let Ok(value) = value {
            assert_eq!(value.as_deref(), Some(format!("new {round}").as_bytes()), "a stale read");
        }
        // Concurrent with the write: any of both values.
        drop(read);
    }
}

/// The program shows why a call is impossible, and fails at once.
#[test]
fn the_program_shows_why_a_call_is_impossible() {
    let cluster = Cluster::start("impossible", Durability::Volatile, &["--election-ms", "3000"]);
    let (endpoint, nodes) = client(&cluster.addresses(), Patience::default());
    let leader = cluster.leader(&endpoint, &nodes).to_string();
    let stays = format!("node {leader} leads; transfer the leadership first");
    for (arguments, text) in [
        (&["transfer", "77"][..], "node 77 cannot take over"),
        (&["change", "--remove", &leader], &stays),
    ] {
        let output = cluster.run_client(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(text), "{arguments:?}: {error}");
    }
    let output = cluster.run_client(&["transfer"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_folder_of_another_node_is_refused() {
    let mut cluster = Cluster::start("foreign", Durability::Disk, &[]);
    // Until then, a node may not have begun its data.
    let (endpoint, nodes) = client(&cluster.addresses(), Patience::default());
    cluster.leader(&endpoint, &nodes);
    let has_begun = |id| endpoint.block_on(nodes.status(&cluster.address(id))).is_ok();
    cluster::until("all nodes have begun", || (1..=3).all(has_begun));
    cluster.kill(1);
    cluster.kill(2);
    let output = cluster.run_with_folder_of(1, 2);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("node 1 of cluster") && text.contains("choose another --dir"), "{text}");
    // Node 3 runs.
    let output = cluster.run_with_folder_of(3, 2);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("another process uses"), "{text}");
}

/// A node whose disk is full stops with an error that says so. The others go on, and when there is room
/// again, so does the node.
#[test]
fn a_full_disk_stops_its_node_only() {
    let Some(small) = cluster::small_disk("full") else {
        println!("SKIPPED: cannot mount a tmpfs; this test needs root");
        assert_ne!(std::env::var("CI_FULL").as_deref(), Ok("1"));
        return;
    };
    let mut cluster =
        Cluster::start_at("full", Durability::Disk, &["--snapshot-kb", "1000000"], &small.path);
    let (endpoint, nodes) =
        client(&cluster.addresses(), Patience { call: PATIENCE, ..Patience::default() });
    cluster.leader(&endpoint, &nodes);
    let written = endpoint.block_on(async {
        let session = nodes.open().await.expect("the cluster serves");
        let mut written = 0_u32;
        // The small disk, of one node, has 4 MiB.
        while written < 120 {
            let value = vec![b'v'; 60_000];
            session.put(&written.to_le_bytes(), &value).await.expect("a majority has room");
            written += 1;
        }
        written
    });
    let status = cluster.wait(1);
    assert!(!status.success());
    let text = cluster.errors(1);
    assert!(text.contains("make room and start the node again"), "{text}");
    small.grow();
    cluster.restart(1);
    cluster.kill(2);
    endpoint.block_on(async {
        for key in 0..written {
            let value = nodes.get(&key.to_le_bytes()).await.expect("nodes 1 and 3 are a majority");
            assert_eq!(value.map(|value| value.len()), Some(60_000), "key {key} is lost");
        }
    });
}
