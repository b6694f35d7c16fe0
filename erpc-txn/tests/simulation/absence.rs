//! Nodes that do not answer.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use erpc_txn::cluster::{NodeId, Placement};
use erpc_txn::coordinator::{Limits, Reason, TransactError};

use crate::cluster::Cluster;
use crate::{KEYS, settings};

/// A key whose replicas these nodes are, the primary first.
fn key_at(cluster: &Cluster, replicas: &[u16]) -> u64 {
    let is_there = |key: &u64| {
        let of = cluster.ring.replicas(cluster.ring.partition_of(*key));
        of.iter().map(|node| node.0).eq(replicas.iter().copied())
    };
    (0..10_000).find(is_there).expect("each partition has keys")
}

fn insert(
    cluster: &Cluster,
    node: usize,
    key: u64,
    deadline: Duration,
) -> Result<(), TransactError> {
    cluster.run(&cluster.hosts[node], move |node| async move {
        let limits = Limits::new().deadline(deadline);
        let insert =
            node.transact_within(limits, async |tx| tx.insert(KEYS, key, &b"value".to_vec()).await);
        insert.await
    })
}

const PATIENT: Duration = Duration::from_secs(10);

#[test]
fn writes_without_a_replica_are_refused_within_a_second() {
    let cluster = Cluster::start(1, 4, 1, &settings());
    let lost = NodeId(2);
    cluster.host(lost).kill();
    // The coordinator, node 0, has its log at nodes 0 and 1. Node 2 is the backup, then the primary.
    for replicas in [[1, 2], [2, 3]] {
        let key = key_at(&cluster, &replicas);
        let before = cluster.network.elapsed();
        let refused = insert(&cluster, 0, key, PATIENT);
        let took = cluster.network.elapsed() - before;
        assert!(took < Duration::from_secs(1), "{took:?}");
        match refused {
            Err(TransactError::Aborted(Reason::Unavailable(node))) => assert_eq!(node, lost),
            // The first one found the backup dead when its record was stored.
            Err(TransactError::Unknown { node: Some(node), .. }) => assert_eq!(node, lost),
            other => panic!("{other:?}"),
        }
    }
    // It is known now, so the second one is refused before it locks or stores anything.
    let (again, locked) = (key_at(&cluster, &[1, 2]) + 1..10_000)
        .map(|key| (key, cluster.ring.replicas(cluster.ring.partition_of(key))))
        .find(|(_, replicas)| *replicas == [NodeId(1), NodeId(2)])
        .expect("the partition has many keys");
    assert_eq!(locked[1], lost);
    let locks = cluster.hosts[1].participant.locks().len();
    let refused = insert(&cluster, 0, again, PATIENT);
    assert!(
        matches!(refused, Err(TransactError::Aborted(Reason::Unavailable(node))) if node == lost),
        "{refused:?}"
    );
    assert_eq!(cluster.hosts[1].participant.locks().len(), locks, "no lock of it is left");
    // Others go on.
    insert(&cluster, 0, key_at(&cluster, &[0, 1]), PATIENT).expect("its nodes live");
}

/// A session that ends does not mean that its member is dead.
#[test]
fn a_member_that_answers_again_soon_is_not_called_unavailable() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let key = key_at(&cluster, &[2, 0]);
    insert(&cluster, 0, key, PATIENT).expect("all nodes live");
    // Longer than a session lives without an answer, but not by 300 ms.
    cluster.hosts[2].server.cut_off();
    let ended = Rc::new(RefCell::new(None));
    let tell = Rc::clone(&ended);
    cluster.spawn(&cluster.hosts[0], move |node| async move {
        let limits = Limits::new().deadline(PATIENT);
        let read = node.transact_within(limits, async |tx| tx.read(KEYS, key).await).await;
        tell.replace(Some(read));
    });
    let is_noticed =
        |cluster: &Cluster| !cluster.hosts[0].node().expect("it lives").unreachable().is_empty();
    assert!(cluster.run_until(Duration::from_secs(1), is_noticed), "the session lives");
    // The first introduction fails meanwhile, after 200 ms.
    cluster.driver.run_for(Duration::from_millis(230));
    cluster.hosts[2].server.reconnect();
    assert!(cluster.run_until(Duration::from_secs(2), |_| ended.borrow().is_some()), "no end");
    let read = ended.take().expect("it has ended");
    assert_eq!(read.expect("the member is there"), Some(b"value".to_vec()));
}

#[test]
fn an_unknown_transaction_commits_when_its_node_answers_again() {
    let cluster = Cluster::start(1, 3, 2, &settings());
    let key = key_at(&cluster, &[0, 1, 2]);
    cluster.hosts[2].server.cut_off();
    let unknown = insert(&cluster, 0, key, Duration::from_millis(50));
    assert!(matches!(unknown, Err(TransactError::Unknown { .. })), "{unknown:?}");
    // Its lock stays, because it may commit.
    assert_eq!(cluster.hosts[0].participant.locks().len(), 1);
    let limits = Limits::new().deadline(Duration::from_millis(5));
    let read = cluster.run(&cluster.hosts[1], move |node| async move {
        node.transact_within(limits, async |tx| tx.read(KEYS, key).await).await
    });
    assert!(matches!(read, Err(TransactError::Aborted(Reason::Conflict(_)))), "{read:?}");

    cluster.hosts[2].server.reconnect();
    let limits = Limits::new().deadline(PATIENT);
    let read = cluster.run(&cluster.hosts[1], move |node| async move {
        node.transact_within(limits, async |tx| tx.read(KEYS, key).await).await
    });
    assert_eq!(read.expect("the lock is freed"), Some(b"value".to_vec()));
}

#[test]
fn a_dropped_transaction_frees_its_locks() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    cluster.run(&cluster.hosts[0], |node| async move {
        for key in 0..10 {
            let held = node.transact(async |tx| {
                tx.insert(KEYS, key, &b"value".to_vec()).await?;
                erpc::sleep(Duration::from_secs(9)).await;
                Ok(())
            });
            // Some are dropped while their request travels.
            let within = Duration::from_micros(20 * key);
            erpc::timeout(within, held).await.expect_err("it sleeps");
        }
    });
    let is_free = |cluster: &Cluster| {
        let nodes = || cluster.hosts.iter();
        nodes().all(|host| host.participant.locks().is_empty() && host.participant.buried() == 0)
    };
    assert!(cluster.run_until(Duration::from_secs(1), is_free), "locks stay");
    assert_eq!(cluster.hosts[0].node().expect("it lives").active(), 0);
}

#[test]
fn a_member_that_lost_its_memory_does_not_serve() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let key = key_at(&cluster, &[2, 0]);
    insert(&cluster, 0, key, PATIENT).expect("all nodes live");
    cluster.hosts[2].kill();
    cluster.driver.run_for(Duration::from_millis(300));
    cluster.restart(&cluster.hosts[2]);
    cluster.driver.run_for(Duration::from_secs(2));
    assert!(!cluster.hosts[2].serves_again());
    let read = cluster.run(&cluster.hosts[1], move |node| async move {
        node.transact(async |tx| tx.read(KEYS, key).await).await
    });
    // And not that the key is absent.
    assert!(
        matches!(read, Err(TransactError::Aborted(Reason::Unavailable(NodeId(2))))),
        "{read:?}"
    );
}
