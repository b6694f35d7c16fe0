//! Nodes that join, and nodes that leave.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use erpc::Endpoint;
use erpc_raft::client::{Nodes, Patience};

use crate::PATIENCE;
use crate::cluster::{Cluster, Durability, client, until};

/// Writes one key after another, until it is told to end. `written` counts those that were acknowledged.
async fn write(nodes: Nodes, is_over: Rc<Cell<bool>>, written: Rc<Cell<u32>>) {
    let session = nodes.open().await.expect("the cluster serves");
    while !is_over.get() {
        let key = written.get().to_le_bytes();
        session.put(&key, &key).await.expect("a write is repeated until it is answered");
        written.set(written.get() + 1);
        erpc::sleep(Duration::from_millis(1)).await;
    }
}

/// Changes the members with the program. A leader that leaves hands over first; returns whether one has.
fn change(cluster: &Cluster, endpoint: &Endpoint, arguments: &[&str]) -> bool {
    let begun = Instant::now();
    let mut has_handed_over = false;
    loop {
        let output = cluster.run_client_beside(endpoint, &[&["change"], arguments].concat());
        if output.status.success() {
            return has_handed_over;
        }
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("leads; transfer the leadership first"), "{arguments:?}: {error}");
        assert!(begun.elapsed() < PATIENCE, "no other node takes over: {error}");
        let output = cluster.run_client_beside(endpoint, &["transfer"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        has_handed_over = true;
    }
}

/// Waits until each member names these, and nothing else.
fn expect_members(cluster: &Cluster, endpoint: &Endpoint, of: &[u64], expected: &[String]) {
    for &id in of {
        let mut seen = None;
        let begun = Instant::now();
        while seen.as_deref() != Some(expected) {
            let late = begun.elapsed() > PATIENCE;
            assert!(!late, "node {id} names the members {seen:?} instead of {expected:?}");
            endpoint.run_for(Duration::from_millis(5));
            seen = cluster.members(id);
        }
    }
}

/// A client writes without a pause. Two nodes join and two leave: one at a time, and one in the place of
/// another. Then only the new nodes are left, and they have all that was acknowledged.
#[test]
fn new_nodes_take_the_place_of_old_ones() {
    let mut cluster = Cluster::start("members", Durability::Disk, &[]);
    let patience = Patience { call: PATIENCE, ..Patience::default() };
    let (endpoint, nodes) = client(&cluster.addresses(), patience);
    let leader = cluster.leader(&endpoint, &nodes);
    let (is_over, written) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let task = endpoint.spawn(write(nodes.clone(), Rc::clone(&is_over), Rc::clone(&written)));
    let texts = |ids: &[u64]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    expect_members(&cluster, &endpoint, &[1, 2, 3], &texts(&[1, 2, 3]));

    // First without a vote, then with one.
    let fourth = cluster.join();
    let added = format!("{fourth}={}", cluster.address(fourth));
    change(&cluster, &endpoint, &["--learner", &added]);
    let learner = [texts(&[1, 2, 3]), vec!["4 (no vote)".to_owned()]].concat();
    expect_members(&cluster, &endpoint, &[1, 2, 3, 4], &learner);
    change(&cluster, &endpoint, &["--add", &added]);
    expect_members(&cluster, &endpoint, &[1, 2, 3, 4], &texts(&[1, 2, 3, 4]));

    // The leader leaves, unless the leadership has moved meanwhile.
    let leaves = leader.to_string();
    let has_handed_over = change(&cluster, &endpoint, &["--remove", &leaves]);
    println!("the leader left: {has_handed_over}");
    let left: Vec<_> = (1..=4).filter(|id| *id != leader).collect();
    expect_members(&cluster, &endpoint, &left, &texts(&left));

    // One in the place of another, in one change.
    let fifth = cluster.join();
    let added = format!("{fifth}={}", cluster.address(fifth));
    let replaced = leader % 3 + 1;
    change(&cluster, &endpoint, &["--add", &added, "--remove", &replaced.to_string()]);
    let left: Vec<_> = (1..=5).filter(|id| ![leader, replaced].contains(id)).collect();
    expect_members(&cluster, &endpoint, &left, &texts(&left));

    is_over.set(true);
    endpoint.block_on(task);
    // Nodes 4 and 5 are a majority of what is left.
    (1..=3).for_each(|id| cluster.kill(id));
    let (endpoint, nodes) = client(&[cluster.address(4), cluster.address(5)], patience);
    endpoint.block_on(async {
        for key in 0..written.get() {
            let value = nodes.get(&key.to_le_bytes()).await.expect("the new nodes are a majority");
            assert_eq!(value.as_deref(), Some(&key.to_le_bytes()[..]), "write {key} is lost");
        }
        let session = nodes.open().await.expect("the new nodes are a majority");
        session.put(b"key", b"value").await.expect("the new nodes are a majority");
    });
    assert!(written.get() >= 20, "only {} writes", written.get());
    expect_members(&cluster, &endpoint, &[4, 5], &texts(&left));
    until("an old node is named as silent", || {
        let output = cluster.run_client_beside(&endpoint, &["status"]);
        let error = String::from_utf8_lossy(&output.stderr);
        !output.status.success() && error.contains("silent")
    });
}
