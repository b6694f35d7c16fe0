//! A program that uses a cluster: it moves money between two accounts.

use std::error::Error;

use erpc::{Channel, Endpoint};
use erpc_txn::{Cluster, TypedTable};

/// Balances of accounts, in the table that `erpc-txn local` has.
const BALANCES: TypedTable<u64, i64> = TypedTable::new(1);

fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::udp()?;
    let channel = Channel::connect(&endpoint, "127.0.0.1:31900")?;
    let cluster = endpoint.block_on(Cluster::connect(channel))?;

    // The closure runs again if another transaction is in the way.
    let (from, to) = endpoint.block_on(cluster.transact(async |tx| {
        for account in [1, 2] {
            if tx.read(BALANCES, account).await?.is_none() {
                tx.insert(BALANCES, account, &100).await?;
            }
        }
        let from = tx.read_for_update(BALANCES, 1).await?.unwrap_or(0);
        let to = tx.read_for_update(BALANCES, 2).await?.unwrap_or(0);
        if from < 30 {
            return Err(tx.abort("too little money"));
        }
        tx.write(BALANCES, 1, &(from - 30))?;
        tx.write(BALANCES, 2, &(to + 30))?;
        Ok((from - 30, to + 30))
    }))?;
    println!("account 1 has {from}, account 2 has {to}");
    Ok(())
}
