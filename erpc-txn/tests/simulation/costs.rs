//! How many requests transactions make: the model of FaSST at f = 2.

use erpc_txn::cluster::Placement;
use erpc_txn::codec::TypedTable;
use erpc_txn::coordinator::{Counts, Limits, Reason, TransactError};

use crate::cluster::Cluster;
use crate::{KEYS, settings};

/// Keys whose primaries are not node 0, each in a bucket of its own, and present.
fn remote_keys(cluster: &Cluster, count: usize) -> Vec<u64> {
    let mut buckets = Vec::new();
    let mut keys = Vec::new();
    for key in 0.. {
        let partition = cluster.ring.partition_of(key);
        let replicas = cluster.ring.replicas(partition);
        let primary = &cluster.host(replicas[0]).participant;
        let table = primary.replica(KEYS.id(), partition).expect("it is the primary");
        let bucket = (partition, table.bucket(key));
        if replicas[0].0 == 0 || buckets.contains(&bucket) {
            continue;
        }
        for &node in replicas {
            let replica = cluster.host(node).participant.replica(KEYS.id(), partition);
            replica.expect("it is a replica").load(key, b"loaded").expect("nobody else writes");
        }
        buckets.push(bucket);
        keys.push(key);
        if keys.len() == count {
            break;
        }
    }
    keys
}

/// What one transaction costs that reads the first keys and updates the others.
fn cost(cluster: &Cluster, reads: usize, updates: usize) -> Counts {
    let keys = remote_keys(cluster, reads + updates);
    let before = cluster.hosts[0].node().expect("it lives").counts();
    let done = cluster.run(&cluster.hosts[0], |node| async move {
        node.transact(async |tx| {
            let (reads, updates) = keys.split_at(reads);
            let mut batch = tx.batch();
            let tickets: Vec<_> = reads.iter().map(|&key| batch.read(KEYS, key)).collect();
            let locked: Vec<_> =
                updates.iter().map(|&key| batch.read_for_update(KEYS, key)).collect();
            let mut results = batch.send().await?;
            for ticket in tickets.into_iter().chain(locked) {
                assert_eq!(results.take(ticket)?.as_deref(), Some(&b"loaded"[..]));
            }
            updates.iter().try_for_each(|&key| tx.write(KEYS, key, &b"loaded".to_vec()))
        })
        .await
    });
    done.expect("nobody else writes");
    let after = cluster.hosts[0].node().expect("it lives").counts();
    let mut cost = after;
    cost.requests -= before.requests;
    cost.messages -= before.messages;
    cost.commits -= before.commits;
    cost
}

#[test]
fn requests_are_those_of_the_model() {
    // Many nodes, so that nearly all keys have a primary of their own.
    let cluster = Cluster::start(1, 7, 2, &settings());
    for (reads, updates, requests) in [(1, 0, 1), (4, 0, 8), (2, 2, 14), (0, 1, 6), (1, 1, 8)] {
        let cost = cost(&cluster, reads, updates);
        assert_eq!(
            (cost.requests, cost.commits),
            (requests, 1),
            "{reads} reads, {updates} updates"
        );
        assert!(cost.messages <= requests, "{} messages for {requests} requests", cost.messages);
    }
    // With three nodes, one message carries the requests for several keys.
    let few = Cluster::start(1, 3, 2, &settings());
    let cost = cost(&few, 2, 2);
    assert_eq!(cost.requests, 14);
    assert!(cost.messages <= 10, "{} messages", cost.messages);
}

#[test]
fn a_local_transaction_sends_nothing() {
    let cluster = Cluster::start(1, 3, 0, &settings());
    let key = (0..).find(|&key| cluster.ring.partition_of(key) == 0).expect("one of three");
    cluster.run(&cluster.hosts[0], |node| async move {
        let put = node.transact(async |tx| tx.insert(KEYS, key, &b"here".to_vec()).await);
        put.await.expect("nobody else writes");
        let read = node.transact(async |tx| tx.read(KEYS, key).await).await;
        assert_eq!(read.expect("nobody else writes"), Some(b"here".to_vec()));
        let counts = node.counts();
        assert_eq!((counts.requests, counts.messages), (3, 0), "insert, commit, read");
    });
}

#[test]
fn a_local_read_sees_locks_and_only_a_single_one_is_not_validated() {
    let cluster = Cluster::start(1, 3, 0, &settings());
    let mut local = (0..).filter(|&key| cluster.ring.partition_of(key) == 0);
    let [first, second] = [(); 2].map(|()| local.next().expect("one of three"));
    cluster.run(&cluster.hosts[0], |node| async move {
        let write = async |key, value: &'static [u8]| {
            let put = node.transact(async |tx| {
                tx.read_for_update(KEYS, key).await?;
                tx.write(KEYS, key, &value.to_vec())
            });
            put.await
        };
        for key in [first, second] {
            let put = node.transact(async |tx| tx.insert(KEYS, key, &b"old".to_vec()).await);
            put.await.expect("nobody else writes");
        }
        let once = Limits::new().attempts(1);
        // A lock of another transaction.
        let locked = node.transact_within(once, async |tx| {
            tx.read_for_update(KEYS, first).await?;
            let other = node.transact_within(once, async |tx| tx.read(KEYS, first).await).await;
            Ok(other)
        });
        let other = locked.await.expect("nobody else writes");
        let refused = matches!(&other, Err(TransactError::Aborted(Reason::Conflict(at))) if *at == KEYS.place(first));
        assert!(refused, "{other:?}");
        // A change between the read and the commit: one read held when it was made, two must be
        // validated. The change makes two requests.
        for (also, requests) in [(None, 1 + 2), (Some(second), 2 + 2 + 2)] {
            let before = node.counts().requests;
            let read = node.transact_within(once, async |tx| {
                let value = tx.read(KEYS, first).await?;
                if let Some(also) = also {
                    tx.read(KEYS, also).await?;
                }
                write(first, b"new").await?;
                assert_eq!(tx.read(KEYS, first).await?, value, "a second read is the first");
                Ok(())
            });
            match (read.await, also) {
                (Ok(()), None) => {}
                (Err(TransactError::Aborted(Reason::Changed(at))), Some(_)) => {
                    assert_eq!(at, KEYS.place(first));
                }
                (ended, _) => panic!("also read: {also:?}; {ended:?}"),
            }
            assert_eq!(node.counts().requests - before, requests, "also read: {also:?}");
        }
        assert_eq!((node.active(), node.counts().messages), (0, 0));
    });
}

#[test]
fn prefetched_keys_may_be_anywhere() {
    const NO_TABLE: TypedTable<u64, u64> = TypedTable::new(KEYS.id() + 1);
    let cluster = Cluster::start(1, 3, 1, &settings());
    cluster.run(&cluster.hosts[0], |node| async move {
        let put = node.transact(async |tx| {
            for key in 0..100 {
                tx.insert(KEYS, key, &key.to_le_bytes().to_vec()).await?;
            }
            Ok(())
        });
        put.await.expect("nobody else writes");
        let before = node.counts();
        node.prefetch(&[]);
        node.prefetch(&[NO_TABLE.place(1)]);
        // Of all nodes, present and absent, and more than are prefetched.
        let places: Vec<_> = (0..200).map(|key| KEYS.place(key)).collect();
        node.prefetch(&places);
        assert_eq!(node.counts(), before);
        for key in 0..200 {
            let read = node.transact(async |tx| tx.read(KEYS, key).await).await;
            let expected = (key < 100).then(|| key.to_le_bytes().to_vec());
            assert_eq!(read.expect("nobody else writes"), expected);
        }
    });
}
