//! Nodes without a disk, which must not come back.

use erpc::{CallError, Code};
use erpc_raft::client::Patience;
use erpc_raft::{node, proto};

use crate::PATIENCE;
use crate::cluster::{Cluster, Durability, client, peer, until};

const RESTARTED: &str = "has restarted without its data; add it under another id";

/// The cluster goes on without it.
#[test]
fn a_node_without_its_data_is_refused() {
    let mut cluster = Cluster::start("forgetful", Durability::Volatile, &[]);
    let (endpoint, nodes) =
        client(&cluster.addresses(), Patience { call: PATIENCE, ..Patience::default() });
    let leader = cluster.leader(&endpoint, &nodes);
    let victim = leader % 3 + 1;
    // A node hears of a commit only up to what it has acknowledged. The first entry is part of the start.
    let address = cluster.address(victim);
    let applied = || endpoint.block_on(nodes.status(&address)).map_or(0, |status| status.applied);
    until("the node has acknowledged an entry", || applied() > 1);
    cluster.kill(victim);
    cluster.restart(victim);
    endpoint.block_on(async {
        let session = nodes.open().await.expect("a majority serves");
        session.put(b"key", b"value").await.expect("a majority serves");
    });
    assert!(!cluster.wait(victim).success(), "it takes part without its data");
    let text = cluster.errors(victim);
    // The leader knows what is lost, and the others have met the node before. One of them is first.
    let lost = "lost entries that it had acknowledged";
    assert!(text.contains(lost) || text.contains(RESTARTED), "{text}");
}

/// A node restarts before it has acknowledged an entry, so the leader cannot know that it has lost one. But
/// it may have voted. It stops, and says why. A new node takes its place.
#[test]
fn a_node_that_has_only_voted_does_not_come_back() {
    let mut cluster = Cluster::stopped("voted", Durability::Volatile, &[]);
    cluster.restart(1);
    cluster.restart(2);
    let patience = Patience { call: PATIENCE, ..Patience::default() };
    let (endpoint, nodes) = client(&cluster.addresses(), patience);
    // The first life of node 3: only node 2 has met it.
    let second = peer(&endpoint, &cluster.address(2));
    let parcel = proto::Parcel {
        cluster: node::hash("raft", "raft"),
        from: 3,
        to: 2,
        incarnation: 1,
        ..proto::Parcel::default()
    };
    until("node 2 has met node 3", || endpoint.block_on(second.deliver(parcel.clone())).is_ok());
    cluster.restart(3);
    let status = cluster.wait(3);
    let text = cluster.errors(3);
    assert_eq!(status.code(), Some(1), "{text}");
    assert_eq!(text, format!("raft: node 2 refuses this node: node 3 {RESTARTED}\n"));
    let fourth = cluster.join();
    let added = format!("{fourth}={}", cluster.address(fourth));
    let output = cluster.run_client(&["change", "--add", &added, "--remove", "3"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The leader has completed the change. The others follow when they hear of it; until then they count the
    // old members, too.
    let members = Some(["1", "2", "4"].map(String::from).to_vec());
    until("the change has ended", || (1..=4).all(|id| id == 3 || cluster.members(id) == members));
    cluster.kill(1);
    endpoint.block_on(async {
        let session = nodes.open().await.expect("nodes 2 and 4 are a majority");
        session.put(b"key", b"value").await.expect("nodes 2 and 4 are a majority");
    });
}

/// Nodes that are no members cannot fill the memory of a node, and do not keep members from it.
#[test]
fn too_many_nodes_that_are_no_members_are_refused_and_members_are_not() {
    const KNOWN: u64 = 64;
    let mut cluster = Cluster::stopped("strangers", Durability::Volatile, &[]);
    cluster.restart(1);
    let (endpoint, _) = client(&cluster.addresses(), Patience::default());
    let first = peer(&endpoint, &cluster.address(1));
    let deliver = |from| {
        let cluster = node::hash("raft", "raft");
        let parcel =
            proto::Parcel { cluster, from, to: 1, incarnation: from, ..proto::Parcel::default() };
        endpoint.block_on(first.deliver(parcel))
    };
    until("the node serves", || deliver(100).is_ok());
    // Its members are nodes 2 and 3.
    (101..100 + KNOWN - 2).for_each(|from| assert!(deliver(from).is_ok(), "node {from}"));
    let Err(CallError::Status(status)) = deliver(100 + KNOWN) else {
        panic!("there is no place for it")
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(deliver(100).is_ok(), "it is known");
    assert!(deliver(2).is_ok(), "it is a member");
}
