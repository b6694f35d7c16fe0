//! Many transactions at once, which fill queues and logs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use erpc_txn::cluster::{NodeId, Placement};
use erpc_txn::coordinator::{Limits, Reason, TransactError};
use erpc_txn::participant::Settings;
use erpc_txn::table::Config;

use crate::cluster::Cluster;
use crate::{KEYS, settings};

/// Keys of which this node is the primary.
fn keys_of(cluster: &Cluster, primary: u16) -> impl Iterator<Item = u64> + '_ {
    (0..100_000).filter(move |&key| {
        cluster.ring.replicas(cluster.ring.partition_of(key))[0] == NodeId(primary)
    })
}

fn large() -> Settings {
    Settings { tables: [(KEYS.id(), Config::new(100_000))].into(), ..settings() }
}

/// Calls leave at once if many are queued, so one of a batch may lock before the next is made.
#[test]
fn an_attempt_that_fails_between_two_calls_leaves_no_locks() {
    let cluster = Cluster::start(1, 4, 0, &large());
    cluster.hosts[3].kill();
    let down = keys_of(&cluster, 3).next().expect("each node is a primary");
    let gone = cluster.run(&cluster.hosts[0], move |node| async move {
        let limits = Limits::new().deadline(Duration::from_secs(5));
        node.transact_within(limits, async |tx| tx.read(KEYS, down).await).await
    });
    assert!(matches!(gone, Err(TransactError::Aborted(Reason::Unavailable(_)))), "{gone:?}");
    let live: Vec<_> = keys_of(&cluster, 1).take(400).collect();
    let (read, failed) = (live[0], Rc::new(Cell::new(0)));
    cluster.spawn(&cluster.hosts[0], move |node| async move {
        node.transact(async |tx| tx.read(KEYS, read).await).await.expect("node 1 lives");
    });
    for key in live.iter().skip(1).step_by(9).take(40).copied() {
        let failed = Rc::clone(&failed);
        cluster.spawn(&cluster.hosts[0], move |node| async move {
            let limits = Limits::new().attempts(1);
            let aborted = node.transact_within(limits, async |tx| {
                let mut batch = tx.batch();
                batch.insert(KEYS, key, &vec![1]);
                batch.insert(KEYS, down, &vec![1]);
                batch.send().await.map(drop)
            });
            let aborted = aborted.await;
            assert!(matches!(aborted, Err(TransactError::Aborted(_))), "{aborted:?}");
            failed.set(failed.get() + 1);
        });
    }
    let has_ended = |_: &Cluster| failed.get() == 40;
    assert!(cluster.run_until(Duration::from_secs(2), has_ended), "{} ended", failed.get());
    let is_free = |cluster: &Cluster| cluster.hosts[1].participant.locks().is_empty();
    assert!(cluster.run_until(Duration::from_secs(1), is_free), "locks stay");
}

#[test]
fn a_full_log_at_a_dead_node_does_not_hold_the_loop() {
    let settings = Settings { log_records: 4, ..large() };
    let cluster = Cluster::start(1, 3, 1, &settings);
    // Node 0 has its log at nodes 0 and 1. The backups of node 2 are at node 0.
    let keys: Vec<_> = keys_of(&cluster, 2).take(400).collect();
    let (committed, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for keys in keys.chunks(10) {
        let (keys, committed, ended) = (keys.to_vec(), Rc::clone(&committed), Rc::clone(&ended));
        cluster.spawn(&cluster.hosts[0], move |node| async move {
            for key in keys {
                let limits = Limits::new().deadline(Duration::from_secs(5)).attempts(1);
                let insert =
                    node.transact_within(limits, async |tx| tx.insert(KEYS, key, &vec![1]).await);
                if insert.await.is_ok() {
                    committed.set(committed.get() + 1);
                }
            }
            ended.set(ended.get() + 1);
        });
    }
    while committed.get() < 20 {
        cluster.driver.run_for(Duration::from_micros(5));
    }
    cluster.hosts[1].kill();
    let has_ended = |_: &Cluster| ended.get() == 40;
    assert!(cluster.run_until(Duration::from_secs(2), has_ended), "{} tasks ended", ended.get());
}

#[test]
fn the_outcomes_of_many_transactions_are_certain() {
    const TASKS: usize = 3000;
    let settings = Settings { log_bytes: 16 << 20, log_records: 1024, ..large() };
    let cluster = Cluster::start(1, 3, 1, &settings);
    let keys: Vec<_> = keys_of(&cluster, 1).take(TASKS).collect();
    let (ended, failed) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    for key in keys {
        let (ended, failed) = (Rc::clone(&ended), Rc::clone(&failed));
        cluster.spawn(&cluster.hosts[0], move |node| async move {
            let limits = Limits::new().deadline(Duration::from_secs(5));
            let insert =
                node.transact_within(limits, async |tx| tx.insert(KEYS, key, &vec![1]).await);
            if let Err(error) = insert.await {
                failed.borrow_mut().push(error);
            }
            ended.set(ended.get() + 1);
        });
    }
    assert!(cluster.run_until(Duration::from_secs(20), |_| ended.get() == TASKS), "no end");
    assert!(failed.borrow().is_empty(), "all nodes live: {:?}", failed.borrow().first());
}
