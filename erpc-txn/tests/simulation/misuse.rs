//! Closures, callers and programs that do not wait for what they have begun.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use erpc::Channel;
use erpc::testing::VirtualTransport;
use erpc_txn::cluster::{NodeId, Placement};
use erpc_txn::coordinator::{Limits, Reason, TransactError, endpoint_config};
use erpc_txn::proto::{Access, Kind, LocalGatewayClient, Step};
use erpc_txn::table::Config;

use crate::cluster::Cluster;
use crate::{KEYS, settings};

/// The first key of which this node is the primary.
fn key_of(cluster: &Cluster, primary: u16) -> u64 {
    let replicas = |key| cluster.ring.replicas(cluster.ring.partition_of(key));
    (0..).find(|&key| replicas(key)[0] == NodeId(primary)).expect("each node is a primary")
}

fn value() -> Vec<u8> {
    b"value".to_vec()
}

fn is_clean(cluster: &Cluster) -> bool {
    cluster.hosts.iter().all(|host| {
        let node = host.node().expect("it lives");
        let (active, records) = (node.active(), node.records());
        host.participant.locks().is_empty()
            && (host.participant.buried(), active, records) == (0, 0, 0)
    })
}

/// Waits until nothing is left of any transaction.
#[track_caller]
fn assert_clean(cluster: &Cluster) {
    assert!(cluster.run_until(Duration::from_secs(2), is_clean), "locks, notes or room stay");
}

#[test]
fn a_closure_that_gives_up_an_access_cannot_commit() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let (own, other) = (key_of(&cluster, 0), key_of(&cluster, 1));
    let ended = cluster.run(&cluster.hosts[0], move |node| async move {
        node.transact(async |tx| {
            tx.insert(KEYS, own, &value()).await?;
            let value = value();
            let insert = tx.insert(KEYS, other, &value);
            erpc::timeout(Duration::from_nanos(1), insert).await.expect_err("it travels");
            Ok(())
        })
        .await
    });
    assert!(matches!(ended, Err(TransactError::Aborted(Reason::Unfinished))), "{ended:?}");
    assert_clean(&cluster);
}

#[test]
fn an_access_of_another_task_ends_with_the_transaction() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let (own, other) = (key_of(&cluster, 0), key_of(&cluster, 1));
    for commits in [false, true] {
        let access = Rc::new(RefCell::new(None));
        let told = Rc::clone(&access);
        let ended = cluster.run(&cluster.hosts[0], move |node| async move {
            let told = &told;
            node.transact(async move |tx| {
                tx.insert(KEYS, own, &value()).await?;
                let (clone, told) = (tx.clone(), Rc::clone(told));
                erpc::spawn(async move {
                    told.replace(Some(clone.insert(KEYS, other, &value()).await));
                });
                erpc::sleep(Duration::from_nanos(100)).await;
                if commits { Ok(()) } else { Err(tx.abort("no money")) }
            })
            .await
        });
        assert!(ended.is_err(), "{ended:?}");
        cluster.driver.run_for(Duration::from_millis(10));
        assert!(matches!(&*access.borrow(), Some(Err(_))), "{access:?}");
        assert_clean(&cluster);
    }
}

/// Attempts without locks, which commit without a plan if nothing is in the way.
#[test]
fn an_attempt_that_only_reads_aborts_as_others_do() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let (own, other) = (key_of(&cluster, 0), key_of(&cluster, 1));
    let once = Limits::new().attempts(1);
    let host = &cluster.hosts[0];

    let gave_up = cluster.run(host, move |node| async move {
        node.transact(async |tx| {
            let read = tx.read(KEYS, other);
            erpc::timeout(Duration::from_nanos(1), read).await.expect_err("it travels");
            Ok(())
        })
        .await
    });
    assert!(matches!(gave_up, Err(TransactError::Aborted(Reason::Unfinished))), "{gave_up:?}");

    let access = Rc::new(RefCell::new(None));
    let told = Rc::clone(&access);
    let unfinished = cluster.run(host, move |node| async move {
        let told = &told;
        node.transact(async move |tx| {
            let told = Rc::clone(told);
            erpc::spawn(async move {
                told.replace(Some(tx.read(KEYS, other).await));
            });
            erpc::sleep(Duration::from_nanos(100)).await;
            Ok(())
        })
        .await
    });
    assert!(
        matches!(unfinished, Err(TransactError::Aborted(Reason::Unfinished))),
        "{unfinished:?}"
    );
    cluster.driver.run_for(Duration::from_millis(10));
    assert!(matches!(&*access.borrow(), Some(Err(_))), "{access:?}");

    let ignored = cluster.run(host, move |node| async move {
        let done = node.transact_within(once, async |tx| {
            tx.insert(KEYS, own, &value()).await?;
            let ignored = node.transact_within(once, async |tx| {
                tx.read(KEYS, own).await.expect_err("it is locked");
                Ok(())
            });
            Ok(ignored.await)
        });
        done.await.expect("nobody else writes")
    });
    assert!(matches!(ignored, Err(TransactError::Aborted(Reason::Conflict(_)))), "{ignored:?}");
    assert_clean(&cluster);
}

#[test]
fn a_transaction_that_only_read_is_over_after_its_commit() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let own = key_of(&cluster, 0);
    cluster.run(&cluster.hosts[0], move |node| async move {
        let clone = node.transact(async |tx| tx.read(KEYS, own).await.map(|_| tx.clone())).await;
        let clone = clone.expect("nobody else writes");
        let after = clone.read(KEYS, own).await.expect_err("it is over");
        assert!(matches!(after.reason(), Reason::Ended), "{after:?}");
        let counts = node.counts();
        assert_eq!((counts.attempts, counts.commits, node.active()), (1, 1, 0));
    });
    assert_clean(&cluster);
}

#[test]
fn of_two_inserts_at_once_one_is_refused() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let key = key_of(&cluster, 1);
    let ended = cluster.run(&cluster.hosts[0], move |node| async move {
        node.transact(async |tx| {
            let clone = tx.clone();
            let first = erpc::spawn(async move { clone.insert(KEYS, key, &value()).await });
            let second = tx.insert(KEYS, key, &b"other".to_vec()).await;
            first.await?;
            second
        })
        .await
    });
    assert!(matches!(ended, Err(TransactError::Aborted(Reason::Present(_)))), "{ended:?}");
    assert_clean(&cluster);
}

#[test]
fn transactions_that_are_dropped_give_back_their_room() {
    let mut settings = settings();
    settings.log_records = 2;
    let cluster = Cluster::start(1, 3, 1, &settings);
    for round in 0..40 {
        for key in 0..6 {
            cluster.spawn(&cluster.hosts[0], move |node| async move {
                let key = 10 * round + key;
                let insert = node.transact(async |tx| tx.insert(KEYS, key, &value()).await);
                // Some end in time.
                let _ended = erpc::timeout(Duration::from_micros(3 * round + key), insert).await;
            });
        }
        cluster.driver.run_for(Duration::from_millis(1));
    }
    assert_clean(&cluster);
}

#[test]
fn a_transaction_that_is_dropped_outside_of_the_loop_frees_its_locks() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let key = key_of(&cluster, 1);
    let endpoint = cluster.hosts[0].server.endpoint().expect("it runs");
    let node = cluster.hosts[0].node().expect("it lives");
    let mut held = Box::pin(async move {
        node.transact(async |tx| {
            tx.insert(KEYS, key, &value()).await?;
            erpc::sleep(Duration::from_secs(100)).await;
            Ok(())
        })
        .await
    });
    endpoint.block_on(async {
        erpc::timeout(Duration::from_millis(5), &mut held).await.expect_err("it sleeps");
    });
    assert_eq!(cluster.hosts[1].participant.locks().len(), 1);
    drop(held);
    assert_clean(&cluster);
}

#[test]
fn without_time_nothing_is_stored() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let own = key_of(&cluster, 0);
    for millis in [0, 5] {
        let late = cluster.run(&cluster.hosts[0], move |node| async move {
            let limits = Limits::new().deadline(Duration::from_millis(millis));
            let insert = node.transact_within(limits, async |tx| {
                tx.insert(KEYS, own, &value()).await?;
                erpc::sleep(Duration::from_millis(10)).await;
                Ok(())
            });
            insert.await
        });
        assert!(matches!(late, Err(TransactError::Aborted(Reason::Deadline))), "{late:?}");
        assert_clean(&cluster);
    }
}

/// What tells of the end of a transaction does not wait until the coordinator rests.
#[test]
fn notes_go_while_other_transactions_run() {
    let cluster = Cluster::start(1, 5, 1, &settings());
    let (own, other) = (key_of(&cluster, 0), key_of(&cluster, 3));
    cluster.spawn(&cluster.hosts[0], move |node| async move {
        loop {
            let read = node.transact(async |tx| tx.read(KEYS, own).await).await;
            read.expect("nobody writes");
            erpc::sleep(Duration::from_micros(500)).await;
        }
    });
    cluster.run(&cluster.hosts[0], move |node| async move {
        for _ in 0..20 {
            let insert = node.transact(async |tx| tx.insert(KEYS, other, &value()).await);
            erpc::timeout(Duration::from_nanos(1), insert).await.expect_err("it travels");
        }
    });
    let is_gone = |cluster: &Cluster| cluster.hosts[3].participant.buried() == 0;
    cluster.driver.run_for(Duration::from_millis(1));
    assert!(cluster.run_until(Duration::from_millis(300), is_gone), "the notes stay");
}

/// An access in a step.
fn access(key: u64, kind: Kind) -> Access {
    Access { table: KEYS.id().into(), key, kind: kind.into() }
}

#[test]
fn a_program_that_reads_no_replies_holds_no_lock_after_its_time() {
    let cluster = Cluster::start(1, 3, 1, &settings());
    let long = key_of(&cluster, 0);
    let put = cluster.run(&cluster.hosts[0], move |node| async move {
        node.transact(async |tx| tx.insert(KEYS, long, &vec![7; 1 << 16]).await).await
    });
    put.expect("nobody else writes");
    assert_clean(&cluster);
    let endpoint =
        cluster.network.endpoint_with(endpoint_config()).expect("the settings are valid");
    let channel = Channel::to(&endpoint, vec![cluster.hosts[0].server.route()]).build();
    let (steps, replies) = LocalGatewayClient::<VirtualTransport>::new(channel).run();
    endpoint.spawn(async move {
        let accesses = vec![access(long + 1, Kind::Insert)];
        let mut sent = steps.send(Step { time_us: 300_000, accesses, ..Default::default() }).await;
        while sent.is_ok() {
            let accesses = vec![access(long, Kind::Read)];
            sent = steps.send(Step { accesses, ..Default::default() }).await;
        }
    });
    let is_locked =
        |cluster: &Cluster| cluster.hosts.iter().any(|host| !host.participant.locks().is_empty());
    assert!(cluster.run_until(Duration::from_millis(100), is_locked), "it does not lock");
    assert!(cluster.run_until(Duration::from_millis(400), |now| !is_locked(now)), "locks stay");
    drop(replies);
}

/// More keys than fit into one message that unlocks.
#[test]
fn many_locks_are_freed() {
    const KEYS_LOCKED: u64 = 2500;
    let mut settings = settings();
    settings.tables = [(KEYS.id(), Config::new(10_000))].into();
    let cluster = Cluster::start(1, 3, 1, &settings);
    let locked = cluster.run(&cluster.hosts[0], |node| async move {
        let participant = std::sync::Arc::clone(node.participant());
        let aborted = node.transact(async |tx| {
            for keys in (0..KEYS_LOCKED).collect::<Vec<_>>().chunks(500) {
                let mut batch = tx.batch();
                keys.iter().for_each(|&key| batch.insert(KEYS, key, &value()));
                batch.send().await?;
            }
            Err::<(), _>(tx.abort("enough"))
        });
        let aborted = aborted.await.expect_err("it wants to");
        assert!(matches!(aborted, TransactError::Aborted(Reason::Explicit(_))), "{aborted:?}");
        participant.locks().len()
    });
    assert_eq!(locked, 0, "those at the own node");
    assert_clean(&cluster);
}
