//! What the tasks of a run do.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use erpc::Endpoint;
use erpc::testing::VirtualTransport;
use erpc_txn::check::{Outcome, lists};
use erpc_txn::codec::TypedTable;
use erpc_txn::coordinator::{Abort, Limits, Reason, TransactError, Transaction};
use erpc_txn::table::Owner;

use crate::KEYS;
use crate::cluster::VirtualNode;
use erpc_test_tools::random::Random;

pub(crate) const BALANCES: TypedTable<u64, i64> = TypedTable::new(2);
/// The balance of each account at the start.
pub(crate) const START: i64 = 1000;

type Tx = Transaction<VirtualTransport>;

/// What a run's transactions do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    /// Transfers, deposits and audits.
    Bank,
    /// Reads, inserts, updates and deletes of any keys.
    Keys,
    /// Appends to lists, and reads of them.
    Lists,
}

/// What happened, apart from what the recorder knows.
#[derive(Default)]
pub(crate) struct Results {
    /// Transactions on lists, one per attempt.
    pub(crate) lists: RefCell<Vec<lists::Transaction>>,
    /// What deposits added to all balances.
    pub(crate) deposited: RefCell<i64>,
    /// Deposits with unknown outcome.
    pub(crate) maybe: RefCell<Vec<i64>>,
    /// What went wrong.
    pub(crate) wrong: RefCell<Vec<String>>,
    /// Transactions by outcome: committed, aborted, unknown.
    pub(crate) outcomes: RefCell<[u64; 3]>,
    pub(crate) running: RefCell<u32>,
    /// The last element that was appended to a list.
    element: Cell<u64>,
}

/// One task: several transactions, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) transactions: u64,
    pub(crate) keys: u64,
    /// Names the task's values.
    pub(crate) task: u64,
    pub(crate) longest_value: u64,
}

pub(crate) async fn run(node: VirtualNode, plan: Plan, mut random: Random, results: Rc<Results>) {
    for number in 0..plan.transactions {
        let longest = if random.percent(30) { 1500 } else { 300_000 };
        let deadline = Duration::from_micros(random.within(60, longest));
        let before = now();
        let outcome = one(&node, &plan, number, deadline, &mut random, &results).await;
        let took = now() - before;
        // A commit that has begun is not interrupted before a node has been asked.
        if took > deadline + Duration::from_millis(1) {
            let text = format!("a transaction with a deadline of {deadline:?} took {took:?}");
            results.wrong.borrow_mut().push(text);
        }
        results.outcomes.borrow_mut()[outcome as usize] += 1;
        if random.percent(20) {
            erpc::sleep(Duration::from_micros(random.below(3000))).await;
        }
    }
    *results.running.borrow_mut() -= 1;
}

fn now() -> erpc::raw::Instant {
    Endpoint::<VirtualTransport>::current().expect("the task runs in a loop").now()
}

fn outcome<R>(result: &Result<R, TransactError>, results: &Results) -> Outcome {
    match result {
        Err(TransactError::Aborted(reason @ (Reason::Refused { .. } | Reason::Ended))) => {
            results.wrong.borrow_mut().push(reason.to_string());
            Outcome::Aborted
        }
        Ok(_) => Outcome::Committed,
        Err(TransactError::Unknown { .. }) => Outcome::Unknown,
        Err(_) => Outcome::Aborted,
    }
}

async fn one(
    node: &VirtualNode,
    plan: &Plan,
    number: u64,
    deadline: Duration,
    random: &mut Random,
    results: &Rc<Results>,
) -> Outcome {
    let limits = Limits::new().deadline(deadline);
    // The same for all attempts.
    let random = Random::new(random.word());
    match plan.workload {
        Workload::Bank => {
            let done =
                node.transact_within(limits, async |tx| bank(&tx, plan, random.clone()).await);
            let done = done.await;
            let outcome = outcome(&done, results);
            match done {
                Ok(delta) => *results.deposited.borrow_mut() += delta,
                // The closure of a deposit is random, but the same each time.
                Err(TransactError::Unknown { .. }) => {
                    results.maybe.borrow_mut().push(delta(random.clone()));
                }
                Err(_) => {}
            }
            outcome
        }
        Workload::Keys => {
            let name = (plan.task << 32) | (number << 8);
            let done = node
                .transact_within(limits, async |tx| keys(&tx, plan, name, random.clone()).await)
                .await;
            outcome(&done, results)
        }
        Workload::Lists => {
            let began = now().as_nanos();
            let attempts = RefCell::new(Vec::new());
            let done = node
                .transact_within(limits, async |tx| {
                    let place = results.begin_lists(tx.id().map_or(0, Owner::get), began);
                    attempts.borrow_mut().push(place);
                    append_and_read(&tx, plan, random.clone(), results, place).await
                })
                .await;
            let outcome = outcome(&done, results);
            let mut lists = results.lists.borrow_mut();
            let attempts = attempts.into_inner();
            for (at, &place) in attempts.iter().enumerate() {
                let is_last = at + 1 == attempts.len();
                lists[place].outcome = if is_last { outcome } else { Outcome::Aborted };
                lists[place].ended = now().as_nanos();
            }
            outcome
        }
    }
}

impl Results {
    /// Notes an attempt on lists, whose outcome is unknown as yet: its node may be killed. Returns
    /// its place.
    fn begin_lists(&self, id: u64, began: u64) -> usize {
        let (outcome, operations) = (Outcome::Unknown, Vec::new());
        let mut lists = self.lists.borrow_mut();
        lists.push(lists::Transaction { id, began, ended: u64::MAX, outcome, operations });
        lists.len() - 1
    }
}

/// What a deposit adds.
fn delta(mut random: Random) -> i64 {
    random.below(4);
    random.within(1, 50) as i64
}

/// Moves money, adds some, or looks. Returns by how much the sum of all balances changes.
async fn bank(tx: &Tx, plan: &Plan, mut random: Random) -> Result<i64, Abort> {
    let kind = random.below(4);
    let amount = random.within(1, 50) as i64;
    let (from, to) = (random.below(plan.keys), random.below(plan.keys));
    match kind {
        0 if amount % 2 == 0 => balance_of(tx, from).await,
        // An audit of some accounts.
        0 => {
            let accounts = (0..random.within(2, 5)).map(|_| random.below(plan.keys));
            for balance in tx.read_all(BALANCES, accounts.collect::<Vec<_>>()).await? {
                balance.ok_or_else(|| tx.abort("an account is missing"))?;
            }
            Ok(0)
        }
        1 => {
            let balance = balance(tx, from).await?;
            tx.write(BALANCES, from, &(balance + amount))?;
            Ok(amount)
        }
        _ if from == to => Ok(0),
        _ => {
            let mut batch = tx.batch();
            let first = batch.read_for_update(BALANCES, from);
            let second = batch.read_for_update(BALANCES, to);
            let mut results = batch.send().await?;
            let missing = || tx.abort("an account is missing");
            let (first, second) = (
                results.take(first)?.ok_or_else(missing)?,
                results.take(second)?.ok_or_else(missing)?,
            );
            if first < amount {
                return Err(tx.abort("too little money"));
            }
            tx.write(BALANCES, from, &(first - amount))?;
            tx.write(BALANCES, to, &(second + amount))?;
            Ok(0)
        }
    }
}

/// A look at one account, which is not validated because it is alone.
async fn balance_of(tx: &Tx, account: u64) -> Result<i64, Abort> {
    let balance = tx.read(BALANCES, account).await?;
    balance.map(|_| 0).ok_or_else(|| tx.abort("an account is missing"))
}

async fn balance(tx: &Tx, account: u64) -> Result<i64, Abort> {
    let balance = tx.read_for_update(BALANCES, account).await?;
    balance.ok_or_else(|| tx.abort("an account is missing"))
}

/// Some accesses of any kind.
async fn keys(tx: &Tx, plan: &Plan, name: u64, mut random: Random) -> Result<(), Abort> {
    if random.percent(30) {
        // Not validated, because it is alone.
        return tx.read(KEYS, random.below(plan.keys)).await.map(drop);
    }
    for step in 0..random.within(1, 5) {
        let key = random.below(plan.keys);
        let longest = 8 + random.below(plan.longest_value);
        let len = random.within(8, longest);
        let mut value = (name | step).to_le_bytes().to_vec();
        value.resize(len as usize, step as u8);
        match random.below(6) {
            0 | 1 => {
                tx.read(KEYS, key).await?;
            }
            2 => {
                let more = (0..3).map(|_| random.below(plan.keys)).collect::<Vec<_>>();
                tx.read_all(KEYS, more).await?;
            }
            3 => {
                if tx.read_for_update(KEYS, key).await?.is_some() {
                    tx.delete(KEYS, key)?;
                }
            }
            // Locks, and mostly writes.
            _ => match tx.read_for_update(KEYS, key).await? {
                Some(_) if random.percent(20) => {}
                Some(_) => tx.write(KEYS, key, &value)?,
                None => tx.insert(KEYS, key, &value).await?,
            },
        }
    }
    if random.percent(5) {
        return Err(tx.abort("because"));
    }
    Ok(())
}

async fn append_and_read(
    tx: &Tx,
    plan: &Plan,
    mut random: Random,
    results: &Results,
    place: usize,
) -> Result<(), Abort> {
    let note = |operation| results.lists.borrow_mut()[place].operations.push(operation);
    let alone = random.percent(30);
    for _ in 0..if alone { 1 } else { random.within(1, 4) } {
        let key = random.below(plan.keys);
        if alone || random.percent(50) {
            let list = tx.read(KEYS, key).await?.unwrap_or_default();
            note(lists::Operation::Read { key, list: elements(&list) });
        } else {
            let element = results.element.get() + 1;
            results.element.set(element);
            // Before the append, because an attempt that fails may have done it.
            note(lists::Operation::Append { key, element });
            match tx.read_for_update(KEYS, key).await? {
                Some(mut list) => {
                    list.extend_from_slice(&element.to_le_bytes());
                    tx.write(KEYS, key, &list)?;
                }
                None => tx.insert(KEYS, key, &element.to_le_bytes().to_vec()).await?,
            }
        }
    }
    Ok(())
}

pub(crate) fn elements(list: &[u8]) -> Vec<u64> {
    list.as_chunks().0.iter().map(|&element| u64::from_le_bytes(element)).collect()
}
