//! Nodes that join and stop.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use erpc::Channel;
use erpc_txn::client;
use erpc_txn::cluster::NodeId;
use erpc_txn::coordinator::{Reason, TransactError};

use crate::cluster::Cluster;
use crate::{KEYS, settings};

#[test]
fn a_node_that_drains_ends_what_has_begun_and_begins_nothing() {
    let cluster = Cluster::start(1, 3, 2, &settings());
    let endpoint = cluster.network.endpoint();
    let channel = Channel::to(&endpoint, vec![cluster.hosts[0].server.route()]).build();
    let outside = endpoint.block_on(client::Cluster::connect(channel)).expect("it lives");
    let ended = Rc::new(Cell::new(false));
    let (of_task, of_drain) = (Rc::clone(&ended), Rc::clone(&ended));
    cluster.spawn(&cluster.hosts[0], |node| async move {
        let slow = node.transact(async |tx| {
            tx.insert(KEYS, 1, &b"one".to_vec()).await?;
            erpc::sleep(Duration::from_millis(100)).await;
            Ok(())
        });
        slow.await.expect("it has begun before");
        of_task.set(true);
    });
    cluster.driver.run_for(Duration::from_millis(20));
    cluster.spawn(&cluster.hosts[0], |node| async move {
        node.drain().await;
        assert!(of_drain.get(), "it waits for what has begun");
    });
    cluster.driver.run_for(Duration::from_millis(1));
    let stopping = |error: &TransactError| {
        matches!(error, TransactError::Aborted(Reason::Stopping(NodeId(0))))
    };
    let refused = cluster.run(&cluster.hosts[0], |node| async move {
        node.transact(async |tx| tx.read(KEYS, 2).await).await
    });
    assert!(refused.as_ref().is_err_and(stopping), "{refused:?}");
    let refused = endpoint.block_on(outside.transact(async |tx| tx.read(KEYS, 2).await));
    assert!(refused.as_ref().is_err_and(stopping), "{refused:?}");
    assert!(!ended.get());
    assert!(cluster.run_until(Duration::from_millis(200), |_| ended.get()), "it does not end");
    // The node serves the others.
    for host in &cluster.hosts[1..] {
        let read = cluster.run(host, |node| async move {
            node.transact(async |tx| tx.read(KEYS, 1).await).await
        });
        assert_eq!(read.expect("all nodes live"), Some(b"one".to_vec()));
    }
}

#[test]
fn a_node_that_is_refused_learns_why() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let host = &cluster.hosts[2];
    host.kill();
    cluster.driver.run_for(Duration::from_millis(300));
    cluster.restart(host);
    let (node, told) = (host.again().expect("it has restarted"), Rc::new(Cell::new(None)));
    let tell = Rc::clone(&told);
    host.server.endpoint().expect("it runs").spawn(async move {
        tell.set(Some(node.ready().await));
    });
    cluster.driver.run_for(Duration::from_secs(1));
    let refused = told.take().expect("it has an answer").expect_err("it has lost its memory");
    assert!(refused.node != NodeId(2) && refused.why.contains("restarted"), "{refused}");
}

/// A transaction that pauses before its next attempt has begun, too.
#[test]
fn a_drain_waits_for_transactions_between_two_attempts() {
    let cluster = Cluster::start(1, 3, 0, &settings());
    let [holds, ended, drained] = [true, false, false].map(|is| Rc::new(Cell::new(is)));
    let hold = Rc::clone(&holds);
    cluster.spawn(&cluster.hosts[1], |node| async move {
        let held = node.transact(async |tx| {
            tx.insert(KEYS, 1, &vec![1]).await?;
            while hold.get() {
                erpc::sleep(Duration::from_micros(50)).await;
            }
            Err::<(), _>(tx.abort("enough"))
        });
        held.await.expect_err("it wants to");
    });
    cluster.driver.run_for(Duration::from_millis(1));
    let tell = Rc::clone(&ended);
    cluster.spawn(&cluster.hosts[0], |node| async move {
        let insert = node.transact(async |tx| tx.insert(KEYS, 1, &vec![1]).await).await;
        insert.expect("it gets the lock in time");
        tell.set(true);
    });
    cluster.driver.run_for(Duration::from_millis(20));
    let (tell, told) = (Rc::clone(&drained), Rc::clone(&ended));
    cluster.spawn(&cluster.hosts[0], |node| async move {
        node.drain().await;
        assert!(told.get(), "it waits for the transaction");
        tell.set(true);
    });
    cluster.driver.run_for(Duration::from_millis(100));
    assert!(!ended.get() && !drained.get());
    holds.set(false);
    assert!(cluster.run_until(Duration::from_millis(100), |_| drained.get()), "it does not drain");
}
