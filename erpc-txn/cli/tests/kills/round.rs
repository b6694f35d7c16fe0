//! One cluster, one kill or pause, and what must hold afterwards.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use erpc_txn::check::lists::{self, Operation};
use erpc_txn::check::{Outcome, Verdict};
use erpc_txn::cluster::{NodeId, Placement, Ring};
use erpc_txn::coordinator::{Limits, Reason, TransactError};
use erpc_txn::table::Table;
use erpc_txn::workloads::Random;

use crate::callers::{self, Learned, Signals};
use crate::cluster::Cluster;
use crate::fatal::Shot;
use crate::holdings::Holdings;
use crate::member::{LISTS, NODES, ring, settings};
use crate::replay;

/// What happens to a member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// A request kills it, or its sender.
    Kill(Shot),
    /// It dies whatever it does.
    KillAnytime,
    /// It is stopped for a time.
    Pause(Duration),
}

pub(crate) struct Round {
    pub(crate) trouble: Trouble,
    pub(crate) replicas: usize,
    pub(crate) seed: u64,
    /// A deliberate bug of the members; empty if they have none.
    pub(crate) bug: String,
}

/// What happened in rounds.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) rounds: u64,
    /// Attempts by outcome.
    pub(crate) committed: u64,
    aborted: u64,
    unknown: u64,
    /// Of the unknown ones with appends, those that the replay has.
    unknown_found: u64,
    /// Reads and appends by survivors after the kill.
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Buckets that are locked until recovery.
    locked: u64,
}

/// Commits before the trouble.
const COMMITS: u64 = 40;
/// The load goes on after the trouble.
const AFTERWARDS: Duration = Duration::from_millis(400);
/// The time for survivors to settle, and for one transaction afterwards. Wide, for busy machines.
const SETTLING: Duration = Duration::from_secs(60);

impl Round {
    /// # Errors
    ///
    /// What does not hold.
    pub(crate) fn run(&self) -> Result<Report, String> {
        let mut random = Random::new(self.seed);
        let mut cluster = Cluster::start(self.replicas, &self.bug);
        let signals = Arc::new(Signals::default());
        let (addresses, seed) = (cluster.addresses.clone(), random.word());
        let shared = Arc::clone(&signals);
        let load = thread::spawn(move || callers::run(&addresses, seed, shared));
        while signals.commits.load(Ordering::Acquire) < COMMITS && !load.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let node = NodeId(random.below(NODES.into()) as u16);
        match self.trouble {
            Trouble::Kill(shot) => {
                let before = signals.commits.load(Ordering::Acquire);
                cluster.shoot(node, shot).map_err(|error| {
                    let commits = signals.commits.load(Ordering::Acquire) - before;
                    let held =
                        cluster.holdings().map(|all| all.iter().map(Holdings::brief).collect());
                    let held: Vec<String> = held.unwrap_or_default();
                    format!("{error}, with {commits} commits; {}", held.join("; "))
                })?;
            }
            Trouble::KillAnytime => {
                thread::sleep(Duration::from_micros(random.below(20_000)));
                cluster.kill(node);
            }
            Trouble::Pause(time) => cluster.pause(node, time),
        }
        thread::sleep(AFTERWARDS);
        signals.stop.store(true, Ordering::Release);
        let learned = load.join().map_err(|_| "the callers panicked")??;
        if let Some(wrong) = learned.wrong.first() {
            return Err(wrong.clone());
        }
        let after = After {
            ring: ring(self.replicas),
            table: settings().tables[&LISTS.id()].clone().build().expect("it is small"),
            dead: cluster.dead,
            learned,
        };
        after.check(&mut cluster)
    }
}

/// After the load.
struct After {
    ring: Ring,
    /// Knows the buckets of keys.
    table: Table,
    dead: Option<NodeId>,
    learned: Learned,
}

impl After {
    fn check(mut self, cluster: &mut Cluster) -> Result<Report, String> {
        let mut report = Report { rounds: 1, ..Report::default() };
        for attempt in &self.learned.history {
            *match attempt.outcome {
                Outcome::Committed => &mut report.committed,
                Outcome::Aborted => &mut report.aborted,
                Outcome::Unknown => &mut report.unknown,
            } += 1;
        }
        let settled = self.settle(cluster)?;
        self.read_all(cluster, &settled, &mut report)?;
        self.append_where_all_live(cluster, &settled, &mut report)?;
        let last = self.settle(cluster)?;
        report.locked = replay::locks(&last, &self.ring, self.dead)? as u64;
        if self.dead.is_none() {
            self.check_equal(&last)?;
        }
        let lists = replay::lists(&last)?;
        self.check_acknowledged(&lists)?;
        report.unknown_found = self.unknown_found(&lists);
        self.check_history(&lists)?;
        Ok(report)
    }

    /// Waits until no lock is left that has no reason. Without a dead member, until nothing is left.
    fn settle(&self, cluster: &mut Cluster) -> Result<Vec<Holdings>, String> {
        let end = Instant::now() + SETTLING;
        loop {
            let holdings = cluster.holdings()?;
            let rest = replay::locks(&holdings, &self.ring, self.dead)
                .and_then(|_| self.at_rest(&holdings));
            match rest {
                Ok(()) => return Ok(holdings),
                Err(why) if Instant::now() > end => {
                    return Err(format!("after {SETTLING:?}: {why}"));
                }
                Err(_) => thread::sleep(Duration::from_millis(30)),
            }
        }
    }

    fn at_rest(&self, holdings: &[Holdings]) -> Result<(), String> {
        for of in holdings {
            let node = of.node;
            match self.dead {
                Some(dead) if !of.unreachable.contains(&dead.0) => {
                    return Err(format!("node {node} has not noticed that {dead} is dead"));
                }
                None if of.active + of.locks.len() + of.records.len() > 0 => {
                    return Err(of.brief());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All keys that were appended to.
    fn keys(&self) -> Vec<u64> {
        let operations = self.learned.history.iter().flat_map(|attempt| &attempt.operations);
        let keys = operations.filter_map(|operation| match operation {
            Operation::Append { key, .. } => Some(*key),
            Operation::Read { .. } => None,
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Whether a key is locked at its primary.
    fn is_locked(&self, holdings: &[Holdings], key: u64) -> bool {
        let partition = self.ring.partition_of(key);
        let place = (partition, self.table.bucket(key).index());
        let locks = holdings.iter().flat_map(|of| &of.locks);
        locks.into_iter().any(|(locked, _)| *locked == place)
    }

    /// Each survivor reads each key whose primary lives, unless it is locked. The others are refused.
    fn read_all(
        &self,
        cluster: &Cluster,
        holdings: &[Holdings],
        report: &mut Report,
    ) -> Result<(), String> {
        let endpoint = callers::endpoint();
        let limits = Limits::new().deadline(SETTLING).attempts(3);
        for node in cluster.live() {
            let way = callers::connect(&endpoint, cluster.addresses[usize::from(node.0)])?;
            for key in self.keys() {
                let primary = self.ring.replicas(self.ring.partition_of(key))[0];
                let read = endpoint
                    .block_on(way.transact_within(limits, async |tx| tx.read(LISTS, key).await));
                let is_right = match &read {
                    Ok(_) => Some(primary) != self.dead,
                    Err(TransactError::Aborted(Reason::Conflict(_))) => {
                        self.is_locked(holdings, key)
                    }
                    Err(TransactError::Aborted(reason)) => {
                        Some(primary) == self.dead && callers::is_expected(reason)
                    }
                    Err(_) => false,
                };
                if !is_right {
                    return Err(format!(
                        "node {node} reads key {key}, whose primary is {primary}: {read:?}"
                    ));
                }
                report.read += u64::from(read.is_ok());
            }
        }
        Ok(())
    }

    /// Survivors append where neither a replica nor a log is at the dead node.
    fn append_where_all_live(
        &mut self,
        cluster: &Cluster,
        holdings: &[Holdings],
        report: &mut Report,
    ) -> Result<(), String> {
        let endpoint = callers::endpoint();
        let limits = Limits::new().deadline(SETTLING);
        let lives = |nodes: &[NodeId]| !nodes.iter().any(|&node| Some(node) == self.dead);
        let coordinators = cluster.live().filter(|&node| lives(self.ring.log_replicas(node)));
        let mut appended = Vec::new();
        for node in coordinators {
            let way = callers::connect(&endpoint, cluster.addresses[usize::from(node.0)])?;
            let of = |key: &u64| self.ring.replicas(self.ring.partition_of(*key));
            let keys = self.keys().into_iter().filter(|key| lives(of(key)));
            for key in keys.filter(|&key| !self.is_locked(holdings, key)).take(20) {
                let element = u64::MAX / 2 - appended.len() as u64;
                let done =
                    endpoint.block_on(way.transact_within(limits, async |tx| {
                        callers::append(&tx, key, element).await
                    }));
                done.map_err(|error| format!("node {node} appends to key {key}: {error}"))?;
                appended.push(Operation::Append { key, element });
            }
        }
        report.written += appended.len() as u64;
        // After the load and before the last look.
        let began = self.end();
        for operation in appended {
            let history = &mut self.learned.history;
            history.push(lists::Transaction {
                id: history.len() as u64 + 1,
                began,
                ended: began + 1,
                outcome: Outcome::Committed,
                operations: vec![operation],
            });
        }
        Ok(())
    }

    /// A time after all that has ended.
    fn end(&self) -> u64 {
        let known = self.learned.history.iter().filter(|of| of.outcome != Outcome::Unknown);
        known.map(|attempt| attempt.ended).max().unwrap_or(0) + 1
    }

    /// All replicas are equal.
    fn check_equal(&self, all: &[Holdings]) -> Result<(), String> {
        for holdings in all {
            for (place, contents) in &holdings.buckets {
                for &node in self.ring.replicas(place.0) {
                    let other = all.iter().find(|of| of.node == node);
                    if other.and_then(|of| of.buckets.get(place)) != Some(contents) {
                        return Err(format!(
                            "nodes {} and {node} differ in bucket {place:?}",
                            holdings.node
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// The appends of attempts with an outcome.
    fn appends(&self, outcome: Outcome) -> impl Iterator<Item = (u64, u64, u64)> {
        let attempts = self.learned.history.iter().filter(move |of| of.outcome == outcome);
        attempts.flat_map(|attempt| {
            attempt.operations.iter().filter_map(|operation| match operation {
                Operation::Append { key, element } => Some((attempt.id, *key, *element)),
                Operation::Read { .. } => None,
            })
        })
    }

    fn check_acknowledged(&self, lists: &BTreeMap<u64, Vec<u64>>) -> Result<(), String> {
        let has = |key, element| lists.get(&key).is_some_and(|list| list.contains(&element));
        let mut acknowledged = self.appends(Outcome::Committed);
        match acknowledged.find(|&(_, key, element)| !has(key, element)) {
            None => Ok(()),
            Some((id, key, element)) => Err(format!(
                "an acknowledged commit is lost: element {element} of key {key}, of attempt {id}"
            )),
        }
    }

    fn unknown_found(&self, lists: &BTreeMap<u64, Vec<u64>>) -> u64 {
        let unknown = self.appends(Outcome::Unknown);
        let found = unknown
            .filter(|(_, key, element)| lists.get(key).is_some_and(|list| list.contains(element)));
        let mut ids: Vec<_> = found.map(|(id, ..)| id).collect();
        ids.dedup();
        ids.len() as u64
    }

    /// What callers saw and what the replay gives is strictly serializable. So an aborted transaction
    /// has left nothing, and an unknown one all of its writes or none.
    fn check_history(&mut self, lists: &BTreeMap<u64, Vec<u64>>) -> Result<(), String> {
        let read =
            |key: u64| Operation::Read { key, list: lists.get(&key).cloned().unwrap_or_default() };
        let began = self.end() + 1;
        let last = lists::Transaction {
            id: u64::MAX,
            began,
            ended: began + 1,
            outcome: Outcome::Committed,
            operations: self.keys().into_iter().map(read).collect(),
        };
        self.learned.history.push(last);
        match lists::check(&self.learned.history) {
            Verdict::Valid(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }
}

impl Report {
    pub(crate) fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.unknown_found += other.unknown_found;
        self.read += other.read;
        self.written += other.written;
        self.locked += other.locked;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, committed, aborted, unknown, unknown_found, read, written, locked } =
            self;
        write!(
            f,
            "{rounds} rounds: {committed} committed, {aborted} aborted, {unknown} unknown, of which \
             {unknown_found} are in the replay; survivors read {read} and appended {written} times; \
             {locked} buckets wait for recovery"
        )
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trouble, replicas, .. } = self;
        match trouble {
            Trouble::Kill(shot) => write!(f, "{shot}, {replicas} replicas"),
            Trouble::KillAnytime => write!(f, "killed at any time, {replicas} replicas"),
            Trouble::Pause(time) => write!(f, "paused for {time:?}, {replicas} replicas"),
        }
    }
}
