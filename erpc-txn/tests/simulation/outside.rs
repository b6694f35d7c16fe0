//! Programs outside of the cluster.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use erpc::testing::VirtualTransport;
use erpc::{Channel, Endpoint};
use erpc_txn::client;
use erpc_txn::coordinator::{Limits, Reason, TransactError, endpoint_config};
use erpc_txn::participant::Place;
use erpc_txn::table::Config;

use crate::cluster::{Cluster, gateway_limits};
use crate::{KEYS, settings};

type Outside = client::Cluster<VirtualTransport>;

/// A program with an endpoint of its own, and its way to these members.
fn program(cluster: &Cluster, members: &[usize]) -> (Endpoint<VirtualTransport>, Outside) {
    let endpoint =
        cluster.network.endpoint_with(endpoint_config()).expect("the settings are within bounds");
    let routes: Vec<_> = members.iter().map(|&at| cluster.hosts[at].server.route()).collect();
    let channel = Channel::to(&endpoint, routes).build();
    let connected = endpoint.block_on(Outside::connect(channel)).expect("they live");
    (endpoint, connected)
}

#[test]
fn a_program_reads_its_own_writes_and_commits() {
    let cluster = Cluster::start(1, 3, 2, &settings());
    let (endpoint, outside) = program(&cluster, &[0, 1, 2]);
    let value = b"value".to_vec();
    endpoint.block_on(async {
        let inserted = outside.transact(async |tx| {
            assert_eq!(tx.read(KEYS, 1).await?, None);
            tx.insert(KEYS, 1, &value).await?;
            tx.insert(KEYS, 2, &value).await?;
            assert_eq!(tx.read(KEYS, 1).await?, Some(value.clone()));
            tx.write(KEYS, 1, &b"other".to_vec())?;
            assert!(tx.id().is_some());
            Ok(())
        });
        inserted.await.expect("nobody else writes");
        let read = outside.transact(async |tx| {
            let mut batch = tx.batch();
            let (one, two) = (batch.read(KEYS, 1), batch.read_for_update(KEYS, 2));
            let mut results = batch.send().await?;
            let read = (results.take(one)?, results.take(two)?);
            tx.delete(KEYS, 2)?;
            Ok(read)
        });
        let read = read.await.expect("nobody else writes");
        assert_eq!(read, (Some(b"other".to_vec()), Some(value.clone())));
        let gone = outside.transact(async |tx| tx.read_for_update(KEYS, 2).await).await;
        assert_eq!(gone.expect("nobody else writes"), None);
        let nothing = outside.transact(async |tx| {
            tx.insert(KEYS, 3, &value).await?;
            tx.delete(KEYS, 3)?;
            tx.insert(KEYS, 4, &value).await?;
            tx.delete(KEYS, 4)?;
            tx.insert(KEYS, 4, &value).await
        });
        nothing.await.expect("nobody else writes");
        let read = outside.transact(async |tx| tx.read_all(KEYS, [3, 4]).await).await;
        assert_eq!(read.expect("nobody else writes"), [None, Some(value.clone())]);
        // It has accessed nothing.
        outside.transact(async |_| Ok(())).await.expect("there is nothing to do");
        let description = outside.describe().await.expect("they live");
        assert!(description.active && description.nodes == [0, 1, 2]);
        assert_eq!(description.partitions[1].nodes, [1, 2, 0]);
    });
    endpoint.run_for(Duration::from_millis(50));
    for host in &cluster.hosts {
        assert_eq!(host.participant.locks(), []);
        assert_eq!(host.node().map(|node| (node.active(), node.records())), Some((0, 0)));
    }
}

#[test]
fn a_program_learns_why_it_was_aborted() {
    let cluster = Cluster::start(2, 3, 1, &settings());
    let (endpoint, outside) = program(&cluster, &[1]);
    let fail = |body: &'static str| {
        let failed = endpoint.block_on(outside.transact(async |tx| {
            tx.insert(KEYS, 5, &b"five".to_vec()).await?;
            match body {
                "present" => tx.insert(KEYS, 5, &b"again".to_vec()).await,
                "not locked" => tx.write(KEYS, 6, &b"six".to_vec()),
                "too long" => tx.insert(KEYS, 7, &vec![0; (1 << 16) + 1]).await,
                _ => Err(tx.abort("no money")),
            }
        }));
        match failed {
            Err(TransactError::Aborted(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(fail("present"), Reason::Present(Place { table: 1, key: 5 })));
    assert!(matches!(fail("not locked"), Reason::NotLocked(Place { table: 1, key: 6 })));
    assert!(matches!(fail("too long"), Reason::ValueTooLong { len: 65_537, .. }));
    assert_eq!(fail("explicit").to_string(), "no money");

    // A member holds the lock.
    cluster.spawn(&cluster.hosts[0], |node| async move {
        let held = node.transact(async |tx| {
            tx.insert(KEYS, 9, &b"nine".to_vec()).await?;
            erpc::sleep(Duration::from_millis(500)).await;
            Ok(())
        });
        held.await.expect("it has the lock");
    });
    endpoint.run_for(Duration::from_millis(1));
    let limits = Limits::new().deadline(Duration::from_millis(20));
    let refused = endpoint
        .block_on(outside.transact_within(limits, async |tx| tx.read(KEYS, 9).await))
        .expect_err("it is locked");
    let conflict = Place { table: 1, key: 9 };
    assert!(
        matches!(refused, TransactError::Aborted(Reason::Conflict(place)) if place == conflict),
        "{refused:?}"
    );
}

/// Whatever a program does, its locks go.
#[test]
fn a_program_that_dies_or_dawdles_leaves_no_locks() {
    let cluster = Cluster::start(3, 3, 1, &settings());
    let is_locked =
        |cluster: &Cluster| cluster.hosts.iter().any(|host| !host.participant.locks().is_empty());
    let hold = |deadline: Duration| {
        let (endpoint, outside) = program(&cluster, &[0]);
        let error = Rc::new(RefCell::new(None));
        let told = Rc::clone(&error);
        endpoint.spawn(async move {
            let limits = Limits::new().deadline(deadline).attempts(1);
            let held = outside.transact_within(limits, async |tx| {
                tx.insert(KEYS, 1, &b"one".to_vec()).await?;
                erpc::sleep(Duration::from_secs(1)).await;
                tx.read(KEYS, 2).await
            });
            told.replace(held.await.err());
        });
        assert!(cluster.run_until(Duration::from_secs(1), is_locked), "it does not lock");
        (endpoint, error)
    };
    let is_free = |cluster: &Cluster| !is_locked(cluster);

    // It waits too long. The member does not wait for it.
    let (endpoint, error) = hold(Duration::from_millis(300));
    assert!(cluster.run_until(Duration::from_millis(400), is_free), "locks stay");
    assert!(cluster.run_until(Duration::from_secs(2), |_| error.borrow().is_some()));
    let late = error.take();
    assert!(matches!(late, Some(TransactError::Aborted(Reason::Deadline))), "{late:?}");
    drop(endpoint);

    // It dies, and its session with it.
    let (endpoint, _) = hold(Duration::from_secs(60));
    drop(endpoint);
    assert!(cluster.run_until(Duration::from_secs(1), is_free), "locks stay");

    // Its member dies: the outcome is certain, because it had not begun to commit.
    let (endpoint, error) = hold(Duration::from_secs(60));
    cluster.hosts[0].kill();
    assert!(cluster.run_until(Duration::from_secs(3), |_| error.borrow().is_some()));
    let lost = error.take();
    assert!(matches!(lost, Some(TransactError::Aborted(Reason::Disconnected(_)))), "{lost:?}");
    drop(endpoint);
}

/// The program knows that its member is gone before it commits.
#[test]
fn a_commit_that_cannot_be_sent_is_an_abort() {
    let cluster = Cluster::start(6, 3, 1, &settings());
    let (endpoint, outside) = program(&cluster, &[0]);
    let error = Rc::new(RefCell::new(None));
    let [has_inserted, commits] = [(); 2].map(|()| Rc::new(Cell::new(false)));
    let (told, inserted, commit) =
        (Rc::clone(&error), Rc::clone(&has_inserted), Rc::clone(&commits));
    endpoint.spawn(async move {
        let limits = Limits::new().deadline(Duration::from_secs(60)).attempts(1);
        let held = outside.transact_within(limits, async |tx| {
            tx.insert(KEYS, 1, &b"one".to_vec()).await?;
            inserted.set(true);
            erpc::sleep(Duration::from_secs(3)).await;
            commit.set(true);
            Ok(())
        });
        told.replace(held.await.err());
    });
    assert!(cluster.run_until(Duration::from_secs(1), |_| has_inserted.get()));
    cluster.hosts[0].kill();
    assert!(cluster.run_until(Duration::from_secs(5), |_| error.borrow().is_some()));
    assert!(commits.get(), "the closure has not failed");
    let lost = error.take();
    assert!(matches!(lost, Some(TransactError::Aborted(Reason::Disconnected(_)))), "{lost:?}");
}

#[test]
fn a_program_that_wants_too_much_is_refused() {
    let cluster = Cluster::start(4, 3, 1, &settings());
    let (endpoint, outside) = program(&cluster, &[0]);
    let limits = gateway_limits();

    let keys = limits.keys as u64;
    let read = |count| outside.transact(async move |tx| tx.read_all(KEYS, 0..count).await);
    endpoint.block_on(read(keys)).expect("as many keys are allowed");
    let refused = endpoint.block_on(read(keys + 1)).expect_err("one key more");
    assert!(
        matches!(refused, TransactError::Aborted(Reason::TooManyKeys(most)) if most == limits.keys),
        "{refused:?}"
    );

    let waiting = Rc::new(Cell::new(0));
    for _ in 0..limits.attempts {
        let (outside, waiting) = (outside.clone(), Rc::clone(&waiting));
        endpoint.spawn(async move {
            let held = outside.transact(async |tx| {
                tx.read(KEYS, 1).await?;
                waiting.set(waiting.get() + 1);
                erpc::sleep(Duration::from_millis(100)).await;
                Ok(())
            });
            held.await.expect("nobody writes");
            waiting.set(waiting.get() - 1);
        });
    }
    endpoint.run_for(Duration::from_millis(50));
    assert_eq!(waiting.get(), limits.attempts, "as many attempts are allowed");
    let one = || outside.transact(async |tx| tx.read(KEYS, 1).await);
    let refused = endpoint.block_on(one()).expect_err("one attempt more");
    let TransactError::Aborted(Reason::Disconnected(why)) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("run fewer"), "{why}");
    endpoint.run_for(Duration::from_millis(100));
    assert_eq!(waiting.get(), 0);
    endpoint.block_on(one()).expect("the others have ended");
}

#[test]
fn a_program_gets_no_more_time_than_members_allow() {
    let cluster = Cluster::start(5, 3, 1, &settings());
    let (endpoint, outside) = program(&cluster, &[0]);
    let ever = Limits::new().deadline(Duration::from_secs(1 << 40)).attempts(1);
    let begun = cluster.network.elapsed();
    let held = outside.transact_within(ever, async |tx| {
        tx.insert(KEYS, 1, &b"one".to_vec()).await?;
        erpc::sleep(gateway_limits().time * 2).await;
        Ok(())
    });
    let ended = endpoint.block_on(held);
    assert!(cluster.network.elapsed() - begun >= gateway_limits().time);
    assert!(matches!(ended, Err(TransactError::Aborted(Reason::Deadline))), "{ended:?}");
    for host in &cluster.hosts {
        assert_eq!(host.participant.locks(), []);
    }
}

#[test]
fn a_program_does_not_wait_for_a_member_that_is_silent() {
    let cluster = Cluster::start(6, 3, 1, &settings());
    let (endpoint, outside) = program(&cluster, &[0]);
    let deadline = Duration::from_millis(100);
    let limits = Limits::new().deadline(deadline);
    for is_silent_at_commit in [false, true] {
        let begun = cluster.network.elapsed();
        let ended = endpoint.block_on(outside.transact_within(limits, async |tx| {
            if !is_silent_at_commit {
                cluster.hosts[0].server.cut_off();
            }
            tx.insert(KEYS, 1, &b"one".to_vec()).await?;
            cluster.hosts[0].server.cut_off();
            Ok(())
        }));
        let took = cluster.network.elapsed() - begun;
        assert!(took >= deadline && took < deadline * 2, "{took:?}");
        match ended {
            Err(TransactError::Unknown { .. }) if is_silent_at_commit => {}
            Err(TransactError::Aborted(Reason::Deadline)) if !is_silent_at_commit => {}
            other => panic!("{other:?}"),
        }
        cluster.hosts[0].server.reconnect();
        endpoint.run_for(Duration::from_secs(2));
    }
}

#[test]
fn a_program_that_writes_or_reads_more_than_a_message_learns_so() {
    let mut settings = settings();
    settings.tables = [(KEYS.id(), Config::new(1000).max_value(1 << 20))].into();
    settings.log_bytes = 16 << 20;
    let cluster = Cluster::start(7, 3, 0, &settings);
    let (endpoint, outside) = program(&cluster, &[0]);
    let long = vec![1; 1 << 20];
    let begun = cluster.network.elapsed();
    let ended = endpoint.block_on(outside.transact(async |tx| {
        for key in 0..12 {
            tx.insert(KEYS, key, &long).await?;
        }
        Ok(())
    }));
    let took = cluster.network.elapsed() - begun;
    assert!(matches!(ended, Err(TransactError::Aborted(Reason::TooLong(_)))), "{ended:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");

    let put = outside.transact(async |tx| tx.insert(KEYS, 1, &long).await);
    endpoint.block_on(put).expect("one value fits");
    let put = outside.transact(async |tx| tx.insert(KEYS, 2, &long).await);
    endpoint.block_on(put).expect("one value fits");
    let most = gateway_limits().bytes;
    assert_eq!(most, 4 << 20);
    let put_all = outside.transact(async |tx| {
        for key in 3..6 {
            tx.insert(KEYS, key, &long).await?;
        }
        Ok(())
    });
    endpoint.block_on(put_all).expect("three values fit");
    let read = outside.transact(async |tx| tx.read_all(KEYS, 1..6).await);
    let ended = endpoint.block_on(read);
    assert!(
        matches!(ended, Err(TransactError::Aborted(Reason::AnswerTooLong(len))) if len == 5 << 20),
        "{ended:?}"
    );
    let read = outside.transact(async |tx| tx.read_all(KEYS, 1..5).await.map(|all| all.len()));
    assert_eq!(endpoint.block_on(read).expect("four values fit"), 4);
    for host in &cluster.hosts {
        assert_eq!(host.participant.locks(), []);
    }
}
