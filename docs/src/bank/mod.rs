//! A small bank: transactions of a program outside of the cluster. For chapter 11.

pub mod member;

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use erpc_txn::transaction::Backend;
use erpc_txn::{Abort, Cluster, Limits, Reason, TransactError, Transaction, TypedTable};

/// Balances in cents, by account.
pub const ACCOUNTS: TypedTable<u64, i64> = TypedTable::new(1);

/// Which transfers were made or cancelled, by the number that their client gave them.
pub const TRANSFERS: TypedTable<u64, [u8; 1]> = TypedTable::new(2);

const MADE: [u8; 1] = [1];
const CANCELLED: [u8; 1] = [2];

/// Why the bank makes no transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no such account.
    NoAccount(u64),
    /// Both accounts are the same.
    SameAccount,
    /// The account has only this many cents.
    TooLittle(i64),
    /// Its client has cancelled it.
    Cancelled,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAccount(account) => write!(f, "there is no account {account}"),
            Self::SameAccount => f.write_str("both accounts are the same"),
            Self::TooLittle(cents) => write!(f, "the account has only {cents} cents"),
            Self::Cancelled => f.write_str("the transfer was cancelled"),
        }
    }
}

impl Error for Refused {}

/// What to transfer.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// A number that no other transfer has, for example a random one.
    pub id: u64,
    /// The account that pays.
    pub from: u64,
    /// The account that gets the money.
    pub to: u64,
    /// The money.
    pub cents: u32,
}

/// Opens an account. Fails with [`Reason::Present`] if there is one with this number.
///
/// # Errors
///
/// As [`Cluster::transact`].
pub async fn open(cluster: &Cluster, account: u64, cents: i64) -> Result<(), TransactError> {
    cluster.transact(async |tx| tx.insert(ACCOUNTS, account, &cents).await).await
}

/// Moves money. A part of a transaction.
async fn move_money<B: Backend>(tx: &Transaction<B>, transfer: &Transfer) -> Result<(), Abort> {
    let Transfer { from, to, cents, .. } = *transfer;
    if from == to {
        return Err(Refused::SameAccount.into());
    }
    // Both keys in one round trip.
    let mut batch = tx.batch();
    let payer = batch.read_for_update(ACCOUNTS, from);
    let payee = batch.read_for_update(ACCOUNTS, to);
    let mut found = batch.send().await?;
    let payer = found.take(payer)?.ok_or(Refused::NoAccount(from))?;
    let payee = found.take(payee)?.ok_or(Refused::NoAccount(to))?;
    if payer < cents.into() {
        return Err(Refused::TooLittle(payer).into());
    }
    tx.write(ACCOUNTS, from, &(payer - i64::from(cents)))?;
    tx.write(ACCOUNTS, to, &(payee + i64::from(cents)))
}

/// Makes a transfer. If it was made before, nothing happens.
///
/// # Errors
///
/// As [`Cluster::transact`]; the reason of an abort may be [`Refused`].
pub async fn transfer(cluster: &Cluster, transfer: &Transfer) -> Result<(), TransactError> {
    let made = cluster.transact(async |tx| match tx.read(TRANSFERS, transfer.id).await? {
        Some(MADE) => Ok(()),
        Some(_) => Err(Refused::Cancelled.into()),
        None => {
            move_money(&tx, transfer).await?;
            tx.insert(TRANSFERS, transfer.id, &MADE).await
        }
    });
    made.await
}

/// Why the bank refused a transfer; none if it did not.
#[must_use]
pub fn refusal(error: &TransactError) -> Option<Refused> {
    match error {
        TransactError::Aborted(Reason::Explicit(why)) => why.downcast_ref().copied(),
        _ => None,
    }
}

/// Whether a transfer was made. If it was not, it never will be.
///
/// # Errors
///
/// As [`Cluster::transact`]. Then nothing is certain yet.
pub async fn settle(cluster: &Cluster, id: u64) -> Result<bool, TransactError> {
    let settled = cluster.transact(async |tx| match tx.read(TRANSFERS, id).await? {
        Some(state) => Ok(state == MADE),
        None => {
            tx.insert(TRANSFERS, id, &CANCELLED).await?;
            Ok(false)
        }
    });
    settled.await
}

/// The sum of all money in these accounts, at one moment.
///
/// # Errors
///
/// As [`Cluster::transact`].
pub async fn audit(cluster: &Cluster, accounts: Range<u64>) -> Result<i64, TransactError> {
    let limits = Limits::new().deadline(Duration::from_secs(10));
    let sum = cluster.transact_within(limits, async |tx| {
        let balances = tx.read_all(ACCOUNTS, accounts.clone()).await?;
        Ok(balances.into_iter().flatten().sum())
    });
    sum.await
}
