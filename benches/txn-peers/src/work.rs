//! The workloads. What they choose and load is `erpc_txn::workloads`. What the transactions do is
//! here once more, as one read of several rows and one write, for stores that are not erpc-txn.

use erpc_txn::cluster::{NodeId, Ring};
use erpc_txn::codec::Key;
use erpc_txn::workloads::smallbank::{self, CHECKING, SAVING, SmallBank};
use erpc_txn::workloads::tatp::{self, Start, Tatp, Typed};
use erpc_txn::workloads::{Random, Workload};

/// A table and a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Row {
    pub(crate) table: u16,
    pub(crate) key: u64,
}

/// The values of rows.
pub(crate) type Values = Vec<Option<Vec<u8>>>;

pub(crate) struct Work {
    kind: Kind,
    /// Workloads choose by it; these two do not look at it.
    ring: Ring,
}

#[derive(Clone, Copy)]
enum Kind {
    SmallBank { bank: SmallBank, customers: u64 },
    TatpReads(Tatp),
}

/// A transaction.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    SmallBank(SmallBank, smallbank::Choice),
    Tatp(Tatp, tatp::Choice),
}

/// What a transaction writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) writes: Vec<(Row, i64)>,
    /// By how much they change the sum of all money.
    pub(crate) added: i64,
}

impl Work {
    pub(crate) fn smallbank(customers: u32) -> Self {
        let customers = customers.into();
        Self::new(Kind::SmallBank { bank: SmallBank::new(customers), customers })
    }

    pub(crate) fn tatp_reads(subscribers: u32) -> Self {
        Self::new(Kind::TatpReads(Tatp::new(subscribers).only_reads()))
    }

    fn new(kind: Kind) -> Self {
        Self { kind, ring: Ring::new(1, [NodeId(0)], 0).expect("one node is a ring") }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::SmallBank { .. } => "smallbank",
            Kind::TatpReads(_) => "tatp-reads",
        }
    }

    /// The ids of the tables.
    pub(crate) fn tables(&self) -> Vec<u16> {
        match self.kind {
            Kind::SmallBank { bank, .. } => bank.tables(1).into_keys().collect(),
            Kind::TatpReads(tatp) => tatp.tables(1).into_keys().collect(),
        }
    }

    /// Calls `put` with each row of the population.
    pub(crate) fn rows<E>(
        &self,
        put: impl FnMut(u16, u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.kind {
            Kind::SmallBank { bank, .. } => bank.rows(put),
            Kind::TatpReads(tatp) => tatp.rows(put),
        }
    }

    pub(crate) fn choose(&self, random: &mut Random) -> Choice {
        match self.kind {
            Kind::SmallBank { bank, .. } => {
                Choice::SmallBank(bank, bank.choose(&self.ring, random))
            }
            Kind::TatpReads(tatp) => Choice::Tatp(tatp, tatp.choose(&self.ring, random)),
        }
    }

    /// All accounts, whose sum the workload knows; none if it has no accounts.
    pub(crate) fn accounts(&self) -> Vec<Row> {
        let Kind::SmallBank { customers, .. } = self.kind else { return Vec::new() };
        let of = |table: u16| (0..customers).map(move |key| Row { table, key });
        of(SAVING.id()).chain(of(CHECKING.id())).collect()
    }
}

fn saving(key: u64) -> Row {
    Row { table: SAVING.id(), key }
}

fn checking(key: u64) -> Row {
    Row { table: CHECKING.id(), key }
}

impl Choice {
    /// The rows that the transaction reads.
    pub(crate) fn reads(&self) -> Vec<Row> {
        match self {
            Self::SmallBank(_, choice) => match *choice {
                smallbank::Choice::Amalgamate(a, b) => vec![saving(a), checking(a), checking(b)],
                smallbank::Choice::Balance(a) | smallbank::Choice::WriteCheck(a) => {
                    vec![saving(a), checking(a)]
                }
                smallbank::Choice::DepositChecking(a) => vec![checking(a)],
                smallbank::Choice::SendPayment(a, b) => vec![checking(a), checking(b)],
                smallbank::Choice::TransactSaving(a) => vec![saving(a)],
            },
            Self::Tatp(_, choice) => match *choice {
                tatp::Choice::GetSubscriberData { s_id } => {
                    vec![Row { table: tatp::SUBSCRIBER.id(), key: s_id.into() }]
                }
                tatp::Choice::GetAccessData { key } => {
                    vec![Row { table: tatp::ACCESS_INFO.id(), key: key.number() }]
                }
                tatp::Choice::GetNewDestination { key, .. } => {
                    let Start { s_id, sf_type, start_time } = key;
                    let facility = Typed { s_id, of: sf_type };
                    let of = |start_time| {
                        let key = Start { start_time, ..key };
                        Row { table: tatp::CALL_FORWARDING.id(), key: key.number() }
                    };
                    let facility =
                        Row { table: tatp::SPECIAL_FACILITY.id(), key: facility.number() };
                    [facility].into_iter().chain((0..=start_time).step_by(8).map(of)).collect()
                }
                ref other => unreachable!("{other:?} writes, and only reads are chosen"),
            },
        }
    }

    /// Whether the transaction only reads.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Self::Tatp(..) | Self::SmallBank(_, smallbank::Choice::Balance(_)))
    }

    /// What the transaction writes after it has read `values`, in the order of
    /// [`reads`](Self::reads). None if the workload's predicate does not hold.
    pub(crate) fn changes(&self, values: &[Option<Vec<u8>>]) -> Option<Changes> {
        match self {
            Self::SmallBank(_, choice) => {
                let balance = |value: &Option<Vec<u8>>| {
                    let bytes = value.as_deref()?.try_into().ok()?;
                    Some(i64::from_le_bytes(bytes))
                };
                let balances: Vec<i64> = values.iter().map(balance).collect::<Option<_>>()?;
                smallbank_changes(*choice, &balances)
            }
            Self::Tatp(_, choice) => {
                let is_found = match *choice {
                    tatp::Choice::GetNewDestination { end_time, .. } => {
                        let (facility, forwardings) = values.split_first()?;
                        // The first byte of a facility is 1 if it is active, and the first byte of a
                        // forwarding is the hour at which it ends.
                        let mut ends = forwardings.iter().flatten().filter_map(|row| row.first());
                        facility.as_deref()?.first() == Some(&1) && ends.any(|&end| end_time < end)
                    }
                    _ => values.iter().all(Option::is_some),
                };
                is_found.then(|| Changes { writes: Vec::new(), added: 0 })
            }
        }
    }
}

fn smallbank_changes(choice: smallbank::Choice, balances: &[i64]) -> Option<Changes> {
    use smallbank::{CHECK, DEPOSIT, OVERDRAWN_CHECK, PAYMENT, SAVED};

    let (writes, added) = match (choice, balances) {
        (smallbank::Choice::Amalgamate(a, b), &[saved, checked, to]) => {
            (vec![(saving(a), 0), (checking(a), 0), (checking(b), to + saved + checked)], 0)
        }
        (smallbank::Choice::Balance(_), &[_, _]) => (Vec::new(), 0),
        (smallbank::Choice::DepositChecking(a), &[checked]) => {
            (vec![(checking(a), checked + DEPOSIT)], DEPOSIT)
        }
        (smallbank::Choice::SendPayment(..), &[from, _]) if from < PAYMENT => return None,
        (smallbank::Choice::SendPayment(a, b), &[from, to]) => {
            (vec![(checking(a), from - PAYMENT), (checking(b), to + PAYMENT)], 0)
        }
        (smallbank::Choice::TransactSaving(a), &[saved]) => {
            (vec![(saving(a), saved + SAVED)], SAVED)
        }
        (smallbank::Choice::WriteCheck(a), &[saved, checked]) => {
            let amount = if saved + checked >= CHECK { CHECK } else { OVERDRAWN_CHECK };
            (vec![(checking(a), checked - amount)], -amount)
        }
        _ => return None,
    };
    Some(Changes { writes, added })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;

    use super::*;

    type Store = HashMap<(u16, u64), Vec<u8>>;

    fn loaded(work: &Work) -> Store {
        let mut store = Store::new();
        let Ok(()) = work.rows(|table, key, value| {
            store.insert((table, key), value.to_vec());
            Ok::<_, Infallible>(())
        });
        store
    }

    fn read(store: &Store, rows: &[Row]) -> Values {
        rows.iter().map(|row| store.get(&(row.table, row.key)).cloned()).collect()
    }

    fn money(store: &Store) -> i64 {
        store.values().map(|value| i64::from_le_bytes(value[..].try_into().expect("8 bytes"))).sum()
    }

    #[test]
    fn reads_of_tatp_succeed_as_often_as_the_definition_says() {
        let work = Work::tatp_reads(5_000);
        let store = loaded(&work);
        let mut random = Random::new(3);
        // Those that were made and those that succeeded, by kind.
        let mut counts = [(0, 0); 3];
        for _ in 0..60_000 {
            let choice = work.choose(&mut random);
            let Choice::Tatp(_, kind) = &choice else { panic!("{choice:?}") };
            let (made, succeeded) = &mut counts[Tatp::kind(kind)];
            *made += 1;
            *succeeded += u32::from(choice.changes(&read(&store, &choice.reads())).is_some());
        }
        for ((made, succeeded), expected) in counts.into_iter().zip([1.0, 0.625, 0.204]) {
            let share = f64::from(succeeded) / f64::from(made);
            assert!((share - expected).abs() < 0.03, "{counts:?}, and {expected} was expected");
        }
    }

    #[test]
    fn smallbank_changes_the_sum_of_all_money_by_what_it_says() {
        let work = Work::smallbank(100);
        let mut store = loaded(&work);
        let mut random = Random::new(4);
        for _ in 0..5_000 {
            let choice = work.choose(&mut random);
            let before = money(&store);
            let changes = choice.changes(&read(&store, &choice.reads()));
            assert_eq!(choice.only_reads(), changes.as_ref().is_some_and(|c| c.writes.is_empty()));
            let Some(changes) = changes else { continue };
            for (row, balance) in changes.writes {
                store.insert((row.table, row.key), balance.to_le_bytes().to_vec());
            }
            assert_eq!(money(&store), before + changes.added, "{choice:?}");
        }
        assert_eq!(read(&store, &work.accounts()).len(), store.len());
    }
}
