//! Single transactions.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use erpc_txn::check::{Outcome, check};
use erpc_txn::cluster::Placement;
use erpc_txn::coordinator::{Limits, Reason, TransactError};
use erpc_txn::participant::Place;
use erpc_txn::table::Config;

use crate::cluster::{Cluster, VirtualNode};
use crate::{KEYS, settings};

async fn put(node: &VirtualNode, key: u64, value: &[u8]) -> Result<bool, TransactError> {
    let value = &value.to_vec();
    node.transact(async |tx| match tx.read_for_update(KEYS, key).await? {
        Some(_) => tx.write(KEYS, key, value).map(|()| false),
        None => tx.insert(KEYS, key, value).await.map(|()| true),
    })
    .await
}

async fn get(node: &VirtualNode, key: u64) -> Result<Option<Vec<u8>>, TransactError> {
    node.transact(async |tx| tx.read(KEYS, key).await).await
}

#[test]
fn what_one_node_commits_others_read() {
    for f in 0..=2 {
        let cluster = Cluster::start(f as u64, 3, f, &settings());
        for key in 0..20 {
            let value = format!("value {key}").into_bytes();
            let writer = &cluster.hosts[key as usize % 3];
            let done = cluster.run(writer, |node| {
                let value = value.clone();
                async move { put(&node, key, &value).await }
            });
            assert!(matches!(done, Ok(true)), "{done:?}");
            for reader in &cluster.hosts {
                let read = cluster.run(reader, move |node| async move { get(&node, key).await });
                assert_eq!(read.expect("nobody writes"), Some(value.clone()));
            }
        }
        let deleted = cluster.run(&cluster.hosts[0], |node| async move {
            node.transact(async |tx| {
                tx.read_for_update(KEYS, 3).await?;
                tx.delete(KEYS, 3)?;
                assert_eq!(tx.read(KEYS, 3).await?, None, "its own delete");
                Ok(())
            })
            .await
        });
        deleted.expect("nobody else writes");
        let read = cluster.run(&cluster.hosts[2], |node| async move { get(&node, 3).await });
        assert_eq!(read.expect("nobody writes"), None);
        let history = cluster.recorder.take();
        assert!(history.iter().all(|attempt| attempt.outcome == Outcome::Committed));
        let summary = check(&history).expect("it is serializable");
        assert_eq!(summary.committed, history.len());
    }
}

#[test]
fn an_abort_changes_nothing_and_says_why() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let host = &cluster.hosts[0];
    let run = |body: &'static str| {
        cluster.run(host, move |node| async move {
            node.transact(async |tx| {
                tx.insert(KEYS, 5, &b"five".to_vec()).await?;
                match body {
                    "explicit" => return Err(tx.abort("no money")),
                    "present" => tx.insert(KEYS, 5, &b"again".to_vec()).await?,
                    "not locked" => tx.write(KEYS, 6, &b"six".to_vec())?,
                    "too long" => tx.insert(KEYS, 7, &vec![0; (1 << 16) + 1]).await?,
                    _ => return Err("x".parse::<u8>().expect_err("no number").into()),
                }
                Ok(())
            })
            .await
        })
    };
    let reason = |error: Result<(), TransactError>| match error {
        Err(TransactError::Aborted(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(run("explicit")).to_string(), "no money");
    assert!(matches!(reason(run("present")), Reason::Present(Place { table: 1, key: 5 })));
    assert!(matches!(reason(run("not locked")), Reason::NotLocked(Place { table: 1, key: 6 })));
    assert!(matches!(reason(run("too long")), Reason::ValueTooLong { len: 65_537, .. }));
    assert!(matches!(reason(run("error")), Reason::Explicit(_)));
    let read = cluster.run(host, |node| async move { get(&node, 5).await });
    assert_eq!(read.expect("nobody writes"), None);
    for host in &cluster.hosts {
        assert_eq!(host.participant.locks(), []);
        assert_eq!(host.node().expect("it lives").active(), 0);
    }
}

#[test]
fn a_conflict_is_tried_again_until_the_deadline() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let deadline = Duration::from_millis(20);
    cluster.spawn(&cluster.hosts[0], move |node| async move {
        let held = node.transact(async |tx| {
            tx.insert(KEYS, 5, &b"five".to_vec()).await?;
            erpc::sleep(Duration::from_millis(50)).await;
            Ok(())
        });
        held.await.expect("nobody else holds the lock");
    });
    cluster.driver.run_for(Duration::from_millis(1));
    let before = cluster.network.elapsed();
    let refused = cluster.run(&cluster.hosts[1], move |node| async move {
        let limits = Limits::new().deadline(deadline);
        node.transact_within(limits, async |tx| tx.read(KEYS, 5).await).await
    });
    let conflict = Place { table: 1, key: 5 };
    match refused {
        Err(TransactError::Aborted(Reason::Conflict(place))) => assert_eq!(place, conflict),
        other => panic!("{other:?}"),
    }
    let took = cluster.network.elapsed() - before;
    assert!(took > deadline / 2 && took < deadline * 2, "{took:?}");
    let attempts = cluster.hosts[1].node().expect("it lives").counts().attempts;
    assert!(attempts > 5, "{attempts} attempts");
    let patient = cluster.run(&cluster.hosts[1], |node| async move { get(&node, 5).await });
    assert_eq!(patient.expect("the lock is freed in time"), Some(b"five".to_vec()));
}

#[test]
fn values_of_megabytes_are_committed() {
    let mut settings = settings();
    settings.tables.insert(1, Config::new(20).max_value(4 << 20));
    settings.log_bytes = 9 << 20;
    let cluster = Cluster::start(1, 3, 2, &settings);
    let value: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    for key in 0..3 {
        let (writer, reader) = (&cluster.hosts[key], &cluster.hosts[(key + 1) % 3]);
        let key = key as u64;
        let (written, long) = (value.clone(), vec![0; (4 << 20) + 1]);
        let done = cluster.run(writer, |node| async move { put(&node, key, &written).await });
        assert!(matches!(done, Ok(true)), "{done:?}");
        let read = cluster.run(reader, move |node| async move { get(&node, key).await });
        assert_eq!(read.expect("nobody writes"), Some(value.clone()));
        let refused = cluster.run(reader, |node| async move { put(&node, key, &long).await });
        let Err(TransactError::Aborted(Reason::ValueTooLong { .. })) = refused else {
            panic!("{refused:?}");
        };
    }
    // Three of them in one transaction are too much for the log.
    let refused = cluster.run(&cluster.hosts[0], |node| async move {
        node.transact(async |tx| {
            for key in 0..3 {
                tx.read_for_update(KEYS, key).await?;
                tx.write(KEYS, key, &vec![1; 3 << 20])?;
            }
            Ok(())
        })
        .await
    });
    assert!(matches!(refused, Err(TransactError::Aborted(Reason::TooLong(_)))), "{refused:?}");
    for host in &cluster.hosts {
        assert_eq!(host.participant.locks(), []);
    }
}

#[test]
fn local_transactions_let_others_run() {
    let cluster = Cluster::start(1, 3, 0, &settings());
    let key = (0..).find(|&key| cluster.ring.partition_of(key) == 0).expect("one of three");
    let seen = cluster.run(&cluster.hosts[0], |node| async move {
        let other = Rc::new(Cell::new(0));
        let runs = Rc::clone(&other);
        erpc::spawn(async move {
            loop {
                runs.set(runs.get() + 1);
                erpc::sleep(Duration::from_nanos(1)).await;
            }
        });
        for _ in 0..1000 {
            get(&node, key).await.expect("nobody writes");
        }
        other.get()
    });
    assert!(seen >= 10, "another task ran {seen} times");
}

#[test]
fn a_record_that_no_message_holds_is_refused() {
    let mut settings = settings();
    settings.tables.insert(1, Config::new(20).max_value(8 << 20));
    settings.log_bytes = 64 << 20;
    let cluster = Cluster::start(1, 3, 1, &settings);
    let refused = cluster.run(&cluster.hosts[0], |node| async move {
        node.transact(async |tx| {
            // Sessions take messages of 8 MiB.
            tx.insert(KEYS, 1, &vec![1; 6 << 20]).await?;
            tx.insert(KEYS, 2, &vec![2; 6 << 20]).await
        })
        .await
    });
    assert!(matches!(refused, Err(TransactError::Aborted(Reason::Refused { .. }))), "{refused:?}");
    cluster.driver.run_for(Duration::from_millis(50));
    for host in &cluster.hosts {
        let node = host.node().expect("it lives");
        assert_eq!((host.participant.locks(), node.active(), node.records()), (vec![], 0, 0));
        assert_eq!(host.participant.buried(), 0);
    }
    let small = cluster.run(&cluster.hosts[0], |node| async move { put(&node, 1, b"one").await });
    assert!(matches!(small, Ok(true)), "{small:?}");
}
