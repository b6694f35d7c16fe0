//! Whether a run was right: serializable, with equal replicas, and with the right total.

use std::collections::BTreeMap;

use erpc_txn::check::{History, Item, Observed, Outcome, Transaction, fingerprint};
use erpc_txn::cluster::Placement;
use erpc_txn::table::Snapshot;
use erpc_txn::workloads::Workload;

use super::lane::Ran;
use super::plan::Plan;
use crate::failure::Failure;

/// The contents of the store before the run.
pub(super) struct Before {
    history: History,
    total: Option<i64>,
}

/// What the check says.
pub(super) struct Audit {
    /// Attempts that were looked at.
    pub(super) attempts: usize,
    /// What was wrong; empty if all was right.
    pub(super) wrong: Vec<String>,
}

/// The buckets of all primaries.
type Contents = BTreeMap<Item, Snapshot>;

impl Before {
    pub(super) fn of<W: Workload>(plan: &Plan<W>) -> Result<Self, Failure> {
        let mut history = History::new();
        let mut wrong = Vec::new();
        let contents = contents(plan, &mut wrong)?;
        if let Some(wrong) = wrong.pop() {
            return Err(Failure::new(wrong));
        }
        for (&item, snapshot) in &contents {
            let entries = snapshot.entries.iter().map(|(key, value)| (*key, fingerprint(value)));
            history.set_initial(item, snapshot.version.get(), entries);
        }
        Ok(Self { history, total: total(plan, &contents) })
    }

    pub(super) fn audit<W: Workload>(
        mut self,
        plan: &Plan<W>,
        lanes: &mut [Ran],
    ) -> Result<Audit, Failure> {
        let mut wrong = Vec::new();
        let contents = contents(plan, &mut wrong)?;
        for lane in &mut *lanes {
            self.history.extend(lane.recorded.drain(..));
        }
        let attempts = self.history.transactions().len();
        self.history.push(last_look(&contents));
        if let Err(violation) = self.history.check() {
            wrong.push(violation.to_string());
        }
        let added: i64 = lanes.iter().map(|lane| lane.tally.added).sum();
        // A transaction with unknown outcome may have added something.
        if let (Some(before), Some(after), false) =
            (self.total, total(plan, &contents), lanes.iter().any(|lane| lane.tally.is_unsure))
            && before + added != after
        {
            wrong.push(format!(
                "the total was {before}, and transactions added {added}, but it is {after}"
            ));
        }
        for participant in &plan.participants {
            if let Some((table, partition, ..)) = participant.locks().first() {
                let node = participant.node();
                wrong.push(format!(
                    "node {node} still has locks in table {table}, partition {partition}"
                ));
            }
        }
        Ok(Audit { attempts, wrong })
    }
}

/// A transaction that reads everything at the end, so that no lost write is missed.
fn last_look(contents: &Contents) -> Transaction {
    let reads = contents.iter().flat_map(|(&item, snapshot)| {
        let version = snapshot.version.get();
        snapshot.entries.iter().map(move |(key, value)| {
            let value = Some(fingerprint(value));
            Observed { item, key: *key, version, value }
        })
    });
    let (id, began, ended) = (u64::MAX, u64::MAX, u64::MAX);
    let outcome = Outcome::Committed;
    Transaction { id, began, ended, outcome, reads: reads.collect(), writes: Vec::new() }
}

/// The contents of all primaries. Notes replicas that differ from them.
fn contents<W: Workload>(plan: &Plan<W>, wrong: &mut Vec<String>) -> Result<Contents, Failure> {
    let mut all = Contents::new();
    for partition in 0..plan.ring.partitions() {
        for &table in plan.workload.tables(plan.ring.partitions()).keys() {
            let replicas = plan.ring.replicas(partition);
            let of = |node: &_| {
                let holder = plan.participants.iter().find(|of| of.node() == *node);
                let replica = holder.and_then(|of| of.replica(table, partition));
                let replica = replica.ok_or_else(|| Failure::new("a replica is missing"))?;
                let snapshots: Result<Vec<_>, _> = replica.snapshots().collect();
                snapshots.map_err(Failure::of("a bucket is locked"))
            };
            let (primary, backups) =
                replicas.split_first().ok_or_else(|| Failure::new("a primary is missing"))?;
            let contents = of(primary)?;
            for node in backups {
                if of(node)? != contents {
                    wrong.push(format!(
                        "table {table}, partition {partition}: nodes {primary} and {node} differ"
                    ));
                }
            }
            all.extend(contents.into_iter().map(|snapshot| {
                let bucket = snapshot.bucket.index();
                (Item { table, partition, bucket }, snapshot)
            }));
        }
    }
    Ok(all)
}

fn total<W: Workload>(plan: &Plan<W>, contents: &Contents) -> Option<i64> {
    let rows = contents.iter().flat_map(|(item, snapshot)| {
        snapshot.entries.iter().map(|(_, value)| (item.table, &**value))
    });
    plan.workload.total(&mut { rows })
}
