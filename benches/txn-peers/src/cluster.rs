//! erpc-txn, from a program outside of the cluster. The transactions are those of
//! `erpc_txn::workloads` themselves.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use erpc::{Channel, Endpoint, IdlePolicy};
use erpc_txn::transaction::Backend;
use erpc_txn::workloads::{Failed, Workload};
use erpc_txn::{Abort, Cluster, Limits, Reason, TransactError, Transaction, TypedTable};

use crate::failure::Failure;
use crate::session::{Ran, Session};
use crate::work::{Choice, Row, Values};

pub(crate) struct Connected(Rc<Cluster>);

/// Attempts go on for this time.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn endpoint() -> Result<Endpoint, Failure> {
    let endpoint = Endpoint::udp().map_err(Failure::of("no endpoint"))?;
    // There are more threads than cores.
    endpoint.set_idle_policy(IdlePolicy::YieldThenSleep { spin: IdlePolicy::DEFAULT_SPIN });
    Ok(endpoint)
}

pub(crate) fn sessions(
    on: &Endpoint,
    members: &[SocketAddr],
    count: u32,
) -> Result<Vec<Connected>, Failure> {
    let channel = Channel::connect(on, members).map_err(Failure::of("no member"))?;
    let cluster = on.block_on(Cluster::connect(channel)).map_err(Failure::of("no member"))?;
    let cluster = Rc::new(cluster);
    Ok((0..count).map(|_| Connected(Rc::clone(&cluster))).collect())
}

fn failed(error: TransactError) -> Failure {
    Failure::new(format!("erpc-txn: {error}"))
}

fn bytes(row: Row) -> TypedTable<u64, Vec<u8>> {
    TypedTable::new(row.table)
}

async fn body<B: Backend>(tx: Transaction<B>, choice: &Choice) -> Result<i64, Abort> {
    match choice {
        Choice::SmallBank(bank, choice) => bank.run(&tx, choice).await,
        Choice::Tatp(tatp, choice) => tatp.run(&tx, choice).await,
    }
}

impl Session for Connected {
    /// So few that clients that load at the same time are seldom in each other's way.
    const CHUNK: usize = 20;

    async fn load(&mut self, rows: &[(Row, Vec<u8>)]) -> Result<(), Failure> {
        let limits = Limits::new().deadline(PATIENCE);
        let loaded = self.0.transact_within(limits, async |tx| {
            let mut batch = tx.batch();
            for (row, value) in rows {
                batch.insert(bytes(*row), row.key, value);
            }
            batch.send().await.map(drop)
        });
        loaded.await.map_err(failed)
    }

    async fn read(&mut self, rows: &[Row]) -> Result<Values, Failure> {
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let keys = || rows.iter().map(|row| row.key);
        let limits = Limits::new().deadline(PATIENCE);
        let read =
            self.0.transact_within(limits, async |tx| tx.read_all(bytes(*first), keys()).await);
        read.await.map_err(failed)
    }

    async fn run(&mut self, choice: &Choice) -> Result<Ran, Failure> {
        let attempts = Cell::new(0);
        let limits = Limits::new().deadline(PATIENCE);
        let ran = self.0.transact_within(limits, async |tx| {
            attempts.set(attempts.get() + 1);
            body(tx, choice).await
        });
        let added = match ran.await {
            Ok(added) => Some(added),
            // The reason of a failed predicate comes back as the closure gave it.
            Err(TransactError::Aborted(Reason::Explicit(why))) if why.is::<Failed>() => None,
            Err(error) => return Err(failed(error)),
        };
        Ok(Ran { attempts: attempts.get(), added })
    }
}
