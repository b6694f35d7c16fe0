//! Transactions over UDP, from other threads.
#![cfg(not(loom))]

use std::error::Error;
use std::sync::{Arc, mpsc};

use erpc::service::Routes;
use erpc::{Endpoint, Service};
use erpc_txn::cluster::{NodeId, Ring};
use erpc_txn::codec::TypedTable;
use erpc_txn::coordinator::{Node, NodeHandle, Reason, TransactError};
use erpc_txn::participant::{Participant, Settings};
use erpc_txn::service::Member;
use erpc_txn::table::Config;

const COUNTERS: TypedTable<u64, u64> = TypedTable::new(1);

/// A cluster of one node, in a thread. It ends when the sender is dropped.
fn start() -> Result<(NodeHandle, mpsc::Sender<()>), Box<dyn Error>> {
    let (stop, stopped) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let settings = Settings {
            tables: [(COUNTERS.id(), Config::new(100))].into(),
            threads: 1,
            log_bytes: 10_000,
            log_records: 16,
        };
        let ring = Arc::new(Ring::new(1, [NodeId(0)], 0).expect("one node"));
        let participant = Participant::new(NodeId(0), 1, ring, settings).expect("a small table");
        let participant = Arc::new(participant);
        let mut routes = Routes::new();
        let member = Arc::new(Member::new(Arc::clone(&participant)));
        member.register(&mut routes).expect("the methods do not collide");
        let endpoint = Endpoint::udp().expect("a socket");
        endpoint.serve(Arc::new(routes), None);
        let node = Node::open(&endpoint, participant, 0, []).expect("there are no other members");
        tell.send(node.handle()).expect("the test waits");
        endpoint.run_until(|| stopped.try_recv() == Err(mpsc::TryRecvError::Disconnected));
    });
    Ok((told.recv()?, stop))
}

async fn increment(node: &NodeHandle) -> Result<u64, TransactError> {
    node.transact(async |tx| {
        let Some(count) = tx.read_for_update(COUNTERS, 7).await? else {
            tx.insert(COUNTERS, 7, &1).await?;
            return Ok(1);
        };
        tx.write(COUNTERS, 7, &(count + 1))?;
        Ok(count + 1)
    })
    .await
}

#[test]
fn tasks_of_tokio_run_transactions() -> Result<(), Box<dyn Error>> {
    let (node, stop) = start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let tasks = (0..8).map(|_| {
        let node = node.clone();
        runtime.spawn(async move {
            for _ in 0..25 {
                increment(&node).await.expect("nobody holds the lock for long");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        runtime.block_on(task)?;
    }
    assert_eq!(runtime.block_on(increment(&node))?, 201);

    let refused: Result<(), _> =
        runtime.block_on(node.transact(async |tx| Err(tx.abort("not today"))));
    assert_eq!(refused.expect_err("the closure wants it").to_string(), "aborted: not today");

    drop(stop);
    // The endpoint looks at its condition when it is woken; until then it takes transactions.
    let gone = (0..1000).find_map(|_| runtime.block_on(increment(&node)).err());
    match gone.ok_or("the node does not end")? {
        TransactError::Aborted(Reason::Disconnected(_)) | TransactError::Unknown { .. } => Ok(()),
        other => Err(other.into()),
    }
}
