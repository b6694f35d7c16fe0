//! SmallBank: a bank with a savings and a checking account per customer.
//!
//! | transaction | share | reads and writes |
//! |---|---|---|
//! | AMALGAMATE | 15 % | writes savings and checking of a, checking of b: moves all money of a to b |
//! | BALANCE | 15 % | reads savings and checking |
//! | DEPOSIT_CHECKING | 15 % | writes checking: 1.30 more |
//! | SEND_PAYMENT | 25 % | writes checking of a and b: 5.00 from a to b; fails if a has less |
//! | TRANSACT_SAVING | 15 % | writes savings: 20.20 more |
//! | WRITE_CHECK | 15 % | reads savings, writes checking: 5.00 less, or 6.00 if there is less than 5.00 |
//!
//! Balances are whole cents, so that the sum of all money is exact. 90 % of the transactions choose
//! their customers among the first 4 %, the others among all.

use std::collections::BTreeMap;

use super::{Failed, Random, Workload, table};
use crate::cluster::Placement;
use crate::codec::TypedTable;
use crate::participant::Place;
use crate::table::Config;
use crate::transaction::{Abort, Backend, Transaction};

/// Balances of savings accounts in cents, by customer.
pub const SAVING: TypedTable<u64, i64> = TypedTable::new(1);
/// Balances of checking accounts in cents, by customer.
pub const CHECKING: TypedTable<u64, i64> = TypedTable::new(2);

/// The first balance of each account, in cents.
pub const INITIAL: i64 = 100_000_000_000;

/// What DEPOSIT_CHECKING adds, in cents.
pub const DEPOSIT: i64 = 130;
/// What SEND_PAYMENT moves, in cents.
pub const PAYMENT: i64 = 500;
/// What TRANSACT_SAVING adds, in cents.
pub const SAVED: i64 = 2020;
/// What WRITE_CHECK takes, in cents.
pub const CHECK: i64 = 500;
/// What WRITE_CHECK takes if both accounts together have less than [`CHECK`], in cents.
pub const OVERDRAWN_CHECK: i64 = 600;

/// SmallBank with a number of customers.
#[derive(Clone, Copy, Debug)]
pub struct SmallBank {
    customers: u64,
    initial: i64,
}

/// A transaction of SmallBank, with its customers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// AMALGAMATE, from and to.
    Amalgamate(u64, u64),
    /// BALANCE.
    Balance(u64),
    /// DEPOSIT_CHECKING.
    DepositChecking(u64),
    /// SEND_PAYMENT, from and to.
    SendPayment(u64, u64),
    /// TRANSACT_SAVING.
    TransactSaving(u64),
    /// WRITE_CHECK.
    WriteCheck(u64),
}

impl SmallBank {
    /// SmallBank with this many customers, at least 50, so that two of them are in the first 4 %.
    /// The benchmark has 100,000 per thread of the cluster.
    #[must_use]
    pub fn new(customers: u64) -> Self {
        Self { customers: customers.max(50), initial: INITIAL }
    }

    /// With this first balance of each account in cents, instead of [`INITIAL`].
    #[must_use]
    pub fn initial(mut self, cents: i64) -> Self {
        self.initial = cents;
        self
    }

    /// Two different customers of one class.
    fn customers(&self, random: &mut Random) -> (u64, u64) {
        let hot = self.customers / 25;
        let class = if random.percent(90) { hot } else { self.customers };
        let first = random.below(class);
        let second = (first + 1 + random.below(class - 1)) % class;
        (first, second)
    }
}

impl Workload for SmallBank {
    type Choice = Choice;

    const KINDS: &'static [&'static str] = &[
        "AMALGAMATE",
        "BALANCE",
        "DEPOSIT_CHECKING",
        "SEND_PAYMENT",
        "TRANSACT_SAVING",
        "WRITE_CHECK",
    ];

    fn tables(&self, partitions: u16) -> BTreeMap<u16, Config> {
        let accounts = table(self.customers, partitions, 8);
        [(SAVING.id(), accounts.clone()), (CHECKING.id(), accounts)].into()
    }

    fn rows<E>(&self, mut put: impl FnMut(u16, u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let balance = self.initial.to_le_bytes();
        (0..self.customers).try_for_each(|customer| {
            put(SAVING.id(), customer, &balance)?;
            put(CHECKING.id(), customer, &balance)
        })
    }

    fn choose(&self, _placement: &dyn Placement, random: &mut Random) -> Choice {
        let (a, b) = self.customers(random);
        match random.below(100) {
            ..15 => Choice::Amalgamate(a, b),
            15..30 => Choice::Balance(a),
            30..45 => Choice::DepositChecking(a),
            45..70 => Choice::SendPayment(a, b),
            70..85 => Choice::TransactSaving(a),
            _ => Choice::WriteCheck(a),
        }
    }

    fn kind(choice: &Choice) -> usize {
        match choice {
            Choice::Amalgamate(..) => 0,
            Choice::Balance(_) => 1,
            Choice::DepositChecking(_) => 2,
            Choice::SendPayment(..) => 3,
            Choice::TransactSaving(_) => 4,
            Choice::WriteCheck(_) => 5,
        }
    }

    fn places(&self, choice: &Choice, mut each: impl FnMut(Place)) {
        match *choice {
            Choice::Amalgamate(a, b) => {
                [SAVING.place(a), CHECKING.place(a), CHECKING.place(b)].into_iter().for_each(each);
            }
            Choice::Balance(a) | Choice::WriteCheck(a) => {
                [SAVING.place(a), CHECKING.place(a)].into_iter().for_each(each);
            }
            Choice::DepositChecking(a) => each(CHECKING.place(a)),
            Choice::TransactSaving(a) => each(SAVING.place(a)),
            Choice::SendPayment(a, b) => {
                [CHECKING.place(a), CHECKING.place(b)].into_iter().for_each(each);
            }
        }
    }

    async fn run<B: Backend>(&self, tx: &Transaction<B>, choice: &Choice) -> Result<i64, Abort> {
        let mut batch = tx.batch();
        match *choice {
            Choice::Amalgamate(a, b) => {
                let saving = batch.read_for_update(SAVING, a);
                let checking = batch.read_for_update(CHECKING, a);
                let to = batch.read_for_update(CHECKING, b);
                let mut found = batch.send().await?;
                let saving = found.take(saving)?.ok_or(Failed)?;
                let checking = found.take(checking)?.ok_or(Failed)?;
                let to = found.take(to)?.ok_or(Failed)?;
                tx.write(SAVING, a, &0)?;
                tx.write(CHECKING, a, &0)?;
                tx.write(CHECKING, b, &(to + saving + checking))?;
                Ok(0)
            }
            Choice::Balance(a) => {
                let saving = batch.read(SAVING, a);
                let checking = batch.read(CHECKING, a);
                let mut found = batch.send().await?;
                found.take(saving)?.ok_or(Failed)?;
                found.take(checking)?.ok_or(Failed)?;
                Ok(0)
            }
            Choice::DepositChecking(a) => {
                let checking = tx.read_for_update(CHECKING, a).await?.ok_or(Failed)?;
                tx.write(CHECKING, a, &(checking + DEPOSIT))?;
                Ok(DEPOSIT)
            }
            Choice::SendPayment(a, b) => {
                let from = batch.read_for_update(CHECKING, a);
                let to = batch.read_for_update(CHECKING, b);
                let mut found = batch.send().await?;
                let from = found.take(from)?.ok_or(Failed)?;
                let to = found.take(to)?.ok_or(Failed)?;
                if from < PAYMENT {
                    return Err(Failed.into());
                }
                tx.write(CHECKING, a, &(from - PAYMENT))?;
                tx.write(CHECKING, b, &(to + PAYMENT))?;
                Ok(0)
            }
            Choice::TransactSaving(a) => {
                let saving = tx.read_for_update(SAVING, a).await?.ok_or(Failed)?;
                tx.write(SAVING, a, &(saving + SAVED))?;
                Ok(SAVED)
            }
            Choice::WriteCheck(a) => {
                let saving = batch.read(SAVING, a);
                let checking = batch.read_for_update(CHECKING, a);
                let mut found = batch.send().await?;
                let saving = found.take(saving)?.ok_or(Failed)?;
                let checking = found.take(checking)?.ok_or(Failed)?;
                let is_covered = saving + checking >= CHECK;
                let amount = if is_covered { CHECK } else { OVERDRAWN_CHECK };
                tx.write(CHECKING, a, &(checking - amount))?;
                Ok(-amount)
            }
        }
    }

    fn total(&self, rows: &mut dyn Iterator<Item = (u16, &[u8])>) -> Option<i64> {
        rows.map(|(_, balance)| balance.try_into().map(i64::from_le_bytes).ok()).sum()
    }
}
