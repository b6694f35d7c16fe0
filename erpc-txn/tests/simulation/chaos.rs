//! Random runs: transactions and faults from one seed, and what must hold at the end.

use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use erpc::transport::fault::Faults;
use erpc_txn::check::{self, Outcome, Verdict, lists};
use erpc_txn::cluster::{NodeId, Placement};
use erpc_txn::coordinator::TransactError;
use erpc_txn::log::{Coordinator, Record};
use erpc_txn::table::{Owner, Snapshot, Table, Version};

use crate::cluster::{Cluster, Host};
use crate::workload::{self, BALANCES, Plan, Results, START, Workload};
use crate::{KEYS, settings};
use erpc_test_tools::random::Random;

/// What one run did.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// Transactions: committed, aborted, unknown.
    pub(crate) outcomes: [u64; 3],
    pub(crate) kills: u64,
    pub(crate) cuts: u64,
    /// A hash of all that happened.
    pub(crate) trace: u64,
}

/// Which faults a run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    None,
    Packets,
    Partitions,
    Kills,
}

/// Runs a seed. An error says what does not hold.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let nodes = random.within(3, 7) as u16;
    let f = random.below(3) as usize;
    let trouble = match random.below(4) {
        0 => Trouble::None,
        1 => Trouble::Packets,
        2 => Trouble::Partitions,
        _ if f == 0 => Trouble::Packets,
        _ => Trouble::Kills,
    };
    let workload = match random.below(3) {
        0 => Workload::Bank,
        1 => Workload::Keys,
        _ => Workload::Lists,
    };
    let plan = Plan {
        workload,
        transactions: random.within(3, 15),
        keys: random.within(3, 40),
        task: 0,
        longest_value: if random.percent(20) { 3000 } else { 60 },
    };
    let cluster = Cluster::start(random.word(), nodes, f, &settings());
    let mut run = Run {
        cluster,
        trouble,
        f,
        plan,
        random,
        results: Rc::default(),
        report: Report::default(),
    };
    if std::env::var("TXN_SEEDS").as_deref() == Ok("1") {
        println!("{nodes} nodes, f = {f}, {trouble:?}, {:?}", run.plan);
    }
    run.load();
    run.work()?;
    run.settle()?;
    run.check()?;
    run.report.outcomes = *run.results.outcomes.borrow();
    Ok(run.report)
}

struct Run {
    cluster: Cluster,
    trouble: Trouble,
    f: usize,
    plan: Plan,
    random: Random,
    results: Rc<Results>,
    report: Report,
}

impl Run {
    /// Puts the accounts of a bank into all replicas.
    fn load(&self) {
        if self.plan.workload != Workload::Bank {
            return;
        }
        for account in 0..self.plan.keys {
            let partition = self.cluster.ring.partition_of(account);
            for &node in self.cluster.ring.replicas(partition) {
                let participant = &self.cluster.host(node).participant;
                let table = participant.replica(BALANCES.id(), partition).expect("it is there");
                table.load(account, &START.to_le_bytes()).expect("nobody else writes");
            }
        }
    }

    fn work(&mut self) -> Result<(), String> {
        let tasks = self.random.within(1, 4);
        for host in &self.cluster.hosts {
            for _ in 0..tasks {
                self.plan.task += 1;
                *self.results.running.borrow_mut() += 1;
                let (plan, random) = (self.plan.clone(), Random::new(self.random.word()));
                let results = Rc::clone(&self.results);
                self.cluster.spawn(host, |node| workload::run(node, plan, random, results));
            }
        }
        if self.trouble != Trouble::None {
            let begun = self.cluster.network.elapsed();
            while self.cluster.network.elapsed() - begun < Duration::from_secs(2) {
                let longest = 1 << self.random.within(8, 18);
                let pause = self.random.below(longest);
                self.cluster.driver.run_for(Duration::from_micros(pause));
                if *self.results.running.borrow() == 0 {
                    break;
                }
                self.disturb();
            }
        }
        self.cluster.network.set_faults(Faults::none());
        self.cluster.network.mend_links();
        self.cluster.live().for_each(|host| host.server.reconnect());
        Ok(())
    }

    fn disturb(&mut self) {
        let ms = Duration::from_millis(1);
        let random = &mut self.random;
        let network = &self.cluster.network;
        if random.percent(30) {
            let faults = Faults::none()
                .drop(random.below(20) as f64 / 100.0)
                .duplicate(random.below(20) as f64 / 100.0, 2, 3 * ms)
                .reorder(random.below(30) as f64 / 100.0, ms)
                .spike(random.below(3) as f64 / 100.0, 100 * ms);
            network.set_faults(if random.percent(30) { Faults::none() } else { faults });
        }
        let hosts = self.cluster.live().count() as u64;
        let one = random.below(hosts) as usize;
        let host = self.cluster.live().nth(one).expect("it is one of them");
        match self.trouble {
            Trouble::Partitions if random.percent(40) => {
                self.report.cuts += 1;
                match random.below(8) {
                    0 => host.server.cut_off(),
                    1 => host.server.reconnect(),
                    2..=6 => {
                        let other = random.below(hosts) as usize;
                        let other = self.cluster.live().nth(other).expect("it is one of them");
                        network.cut_link(host.server.route(), other.server.route());
                    }
                    _ => {
                        network.mend_links();
                        self.cluster.live().for_each(|host| host.server.reconnect());
                    }
                }
            }
            // A crash of f nodes loses nothing.
            Trouble::Kills if random.percent(25) && self.report.kills < self.f as u64 => {
                self.report.kills += 1;
                host.kill();
            }
            Trouble::Kills if random.percent(10) => {
                if let Some(dead) = self.cluster.hosts.iter().find(|host| host.is_dead.get()) {
                    self.cluster.restart(dead);
                }
            }
            _ => {}
        }
    }

    /// Without faults, everything ends that does not need a dead node.
    fn settle(&mut self) -> Result<(), String> {
        let has_kills = self.report.kills > 0;
        let results = Rc::clone(&self.results);
        let is_still = |cluster: &Cluster| {
            // Tasks on dead nodes never end.
            if has_kills || *results.running.borrow() > 0 {
                return false;
            }
            let nodes = || cluster.live().filter_map(Host::node);
            let tables = || cluster.live().map(|host| &host.participant);
            nodes().all(|node| {
                node.active() == 0 && node.records() == 0 && node.unreachable().is_empty()
            }) && tables().all(|member| member.buried() == 0)
        };
        let dead_time = if has_kills { 3 } else { 20 };
        let still = self.cluster.run_until(Duration::from_secs(dead_time), is_still);
        let running = *self.results.running.borrow();
        if !has_kills && (running > 0 || !still) {
            let active: Vec<_> = self.cluster.hosts.iter().filter_map(Host::node).collect();
            return Err(format!("no rest: {running} tasks run, {active:?}"));
        }
        if let Some(host) = self.cluster.hosts.iter().find(|host| host.serves_again()) {
            return Err(format!("node {} serves without its memory", host.participant.node()));
        }
        if let Some(wrong) = self.results.wrong.borrow().first() {
            return Err(wrong.clone());
        }
        self.read_all()
    }

    /// Reads every key, from every live node.
    fn read_all(&self) -> Result<(), String> {
        let table = match self.plan.workload {
            Workload::Bank => BALANCES.id(),
            Workload::Keys | Workload::Lists => KEYS.id(),
        };
        let keys = self.plan.keys;
        let reader = self.cluster.live().next().ok_or("all nodes are dead")?;
        let errors: Rc<RefCell<Vec<TransactError>>> = Rc::default();
        let to = Rc::clone(&errors);
        let lists = self.results.clone();
        let is_lists = self.plan.workload == Workload::Lists;
        self.cluster.run(reader, |node| async move {
            for key in 0..keys {
                let keys = erpc_txn::codec::TypedTable::<u64, Vec<u8>>::new(table);
                let id = std::cell::Cell::new(0);
                let began = node_now();
                let read = node
                    .transact(async |tx| {
                        id.set(tx.id().map_or(0, Owner::get));
                        tx.read(keys, key).await
                    })
                    .await;
                match read {
                    Ok(list) if is_lists => lists.lists.borrow_mut().push(lists::Transaction {
                        id: id.get(),
                        began,
                        ended: node_now(),
                        outcome: Outcome::Committed,
                        operations: vec![lists::Operation::Read {
                            key,
                            list: workload::elements(&list.unwrap_or_default()),
                        }],
                    }),
                    Ok(_) => {}
                    Err(error) => to.borrow_mut().push(error),
                }
            }
        });
        match errors.borrow().first() {
            Some(error) if self.report.kills == 0 => Err(format!("a last read failed: {error}")),
            _ => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let attempts = self.cluster.recorder.take();
        let mut trace = attempts.iter().map(|attempt| {
            attempt.id ^ attempt.ended ^ attempt.outcome as u64 ^ attempt.writes.len() as u64
        });
        self.report.trace = trace
            .try_fold(0u64, |hash, next| Some((hash ^ next).wrapping_mul(0x100_0000_01b3)))
            .unwrap_or(0);
        let mut history = check::History::new();
        if self.plan.workload == Workload::Bank {
            self.add_initial(&mut history);
        }
        attempts.iter().cloned().for_each(|attempt| history.push(attempt));
        history.check().map_err(|violation| violation.to_string())?;
        if self.plan.workload == Workload::Lists {
            match lists::check(&self.results.lists.borrow()) {
                Verdict::Valid(_) => {}
                other => return Err(format!("lists: {other:?}")),
            }
        }
        self.check_locks(&attempts)?;
        self.check_memory()?;
        self.check_replicas(&attempts)?;
        self.check_replay(&attempts)?;
        self.check_money()
    }

    /// The contents before all transactions: of each bucket, its version and accounts.
    fn add_initial(&self, history: &mut check::History) {
        let mut buckets: BTreeMap<check::Item, Vec<(u64, u64)>> = BTreeMap::new();
        let value = check::fingerprint(&START.to_le_bytes());
        for account in 0..self.plan.keys {
            let partition = self.cluster.ring.partition_of(account);
            let primary = self.cluster.ring.replicas(partition)[0];
            let table = self.cluster.host(primary).participant.replica(BALANCES.id(), partition);
            let bucket = table.expect("it is there").bucket(account).index();
            let item = check::Item { table: BALANCES.id(), partition, bucket };
            buckets.entry(item).or_default().push((account, value));
        }
        for (item, accounts) in buckets {
            history.set_initial(item, accounts.len() as u64, accounts);
        }
    }

    /// When nothing runs any more, all replicas of a partition use the same memory: what locks had
    /// reserved and what reads had held is free. Dead nodes may leave both.
    fn check_memory(&self) -> Result<(), String> {
        let ring = &self.cluster.ring;
        let all = (0..ring.partitions()).flat_map(|of| [1, 2].map(|table| (of, table)));
        for (partition, table) in all.filter(|_| self.report.kills == 0) {
            let usage = |node: &NodeId| {
                let replica = self.cluster.host(*node).participant.replica(table, partition);
                replica.expect("it is there").usage()
            };
            let usages: Vec<_> = ring.replicas(partition).iter().map(usage).collect();
            if usages.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(format!("memory of partition {partition}, table {table}: {usages:?}"));
            }
        }
        Ok(())
    }

    /// Locks are left only where a dead node is needed to free them.
    fn check_locks(&self, attempts: &[check::Transaction]) -> Result<(), String> {
        let by_id: HashMap<u64, &check::Transaction> =
            attempts.iter().map(|attempt| (attempt.id, attempt)).collect();
        for host in self.cluster.live() {
            for (table, partition, bucket, owner) in host.participant.locks() {
                let coordinator = NodeId(Coordinator::of(owner).0.node);
                let needs_dead = |attempt: &&check::Transaction| {
                    let of = |item: check::Item| self.cluster.ring.replicas(item.partition);
                    let replicas = attempt.writes.iter().flat_map(|written| of(written.item));
                    let logs = self.cluster.ring.log_replicas(coordinator);
                    replicas.chain(logs).any(|&node| self.cluster.host(node).is_dead.get())
                };
                let has_reason = self.cluster.host(coordinator).is_dead.get()
                    || by_id.get(&owner.get()).is_some_and(needs_dead);
                if !has_reason {
                    return Err(format!(
                        "node {}: bucket {bucket} of table {table} ({partition}) is locked by {owner}: {:?}",
                        host.participant.node(),
                        by_id.get(&owner.get()),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Each backup equals its primary or is one commit ahead. No acknowledged commit is missing.
    fn check_replicas(&self, attempts: &[check::Transaction]) -> Result<(), String> {
        let mut latest: HashMap<(u16, u16, u32), u64> = HashMap::new();
        for attempt in attempts.iter().filter(|attempt| attempt.outcome == Outcome::Committed) {
            for written in &attempt.writes {
                let at = written.item;
                let version = latest.entry((at.table, at.partition, at.bucket)).or_default();
                *version = (*version).max(written.base + 1);
            }
        }
        let ring = &self.cluster.ring;
        for (partition, table) in
            (0..ring.partitions()).flat_map(|partition| [1, 2].map(|table| (partition, table)))
        {
            let live = |node: &&NodeId| !self.cluster.host(**node).is_dead.get();
            let replica = |node: &NodeId| {
                let participant = &self.cluster.host(*node).participant;
                (*node, buckets(participant.replica(table, partition).expect("it is there")))
            };
            let replicas = ring.replicas(partition);
            let backups: Vec<_> = replicas[1..].iter().filter(live).map(replica).collect();
            let primary = replicas[..1].iter().find(live).map(replica);
            let at = |name: &str, node: NodeId, bucket: u32| {
                format!("{name} {node} of partition {partition}, table {table}, bucket {bucket}")
            };
            for (&(_, _, bucket), &version) in latest
                .iter()
                .filter(|((of_table, of, _), _)| (*of_table, *of) == (table, partition))
            {
                for (node, contents) in backups.iter().chain(primary.iter().filter(|_| self.f == 0))
                {
                    let has = contents.get(&bucket).map_or(0, |snapshot| snapshot.version.get());
                    if has < version {
                        let at = at("replica", *node, bucket);
                        return Err(format!("{at}: version {has}, but {version} was acknowledged"));
                    }
                }
            }
            let Some((primary, first)) = primary else { continue };
            for (node, contents) in &backups {
                let all = first.keys().chain(contents.keys());
                for bucket in all {
                    let version = |of: &BTreeMap<u32, Snapshot>| {
                        of.get(bucket).map_or(Version::ZERO, |snapshot| snapshot.version)
                    };
                    let (of_primary, of_backup) = (version(&first), version(contents));
                    let is_equal =
                        of_primary == of_backup && first.get(bucket) == contents.get(bucket);
                    let is_ahead = of_primary.next() == Some(of_backup) && self.report.kills > 0;
                    if !is_equal && !is_ahead {
                        return Err(format!(
                            "{} has version {of_backup}, and primary {primary} has {of_primary}",
                            at("backup", *node, *bucket)
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// The oldest live replica of each partition and the live logs have all that was acknowledged,
    /// and all that any live replica has.
    fn check_replay(&self, attempts: &[check::Transaction]) -> Result<(), String> {
        let ring = &self.cluster.ring;
        let coordinators =
            || ring.nodes().iter().map(|node| Coordinator { node: node.0, thread: 0 });
        let mut records = Vec::new();
        for host in self.cluster.live() {
            for log in coordinators().filter_map(|of| host.participant.log(of)) {
                records.extend(log.encoded().map(<[u8]>::to_vec));
            }
        }
        let records: Vec<Record<'_>> = records
            .iter()
            .map(|bytes| Record::decode(bytes).map(|(record, _)| record))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("a log has a record that cannot be read: {error}"))?;
        for (partition, table) in
            (0..ring.partitions()).flat_map(|partition| [1, 2].map(|table| (partition, table)))
        {
            let live = ring.replicas(partition).iter().map(|&node| self.cluster.host(node));
            let live = live.filter(|host| !host.is_dead.get());
            let replicas: Vec<_> = live
                .map(|host| host.participant.replica(table, partition).expect("it is there"))
                .map(buckets)
                .collect();
            let Some(first) = replicas.first() else { continue };
            let rebuilt = settings().tables[&table].clone().build().expect("the table is small");
            let mut oldest = first.clone();
            for (bucket, snapshot) in replicas.iter().flatten() {
                let has_all = replicas.iter().all(|replica| replica.contains_key(bucket));
                match oldest.entry(*bucket) {
                    Entry::Occupied(mut entry) if entry.get().version > snapshot.version => {
                        entry.insert(snapshot.clone());
                    }
                    Entry::Occupied(entry) if !has_all => {
                        entry.remove();
                    }
                    _ => {}
                }
            }
            oldest.values().for_each(|snapshot| {
                rebuilt.install(snapshot).expect("nobody else writes");
            });
            // A record that comes too early waits for the next round.
            for _ in 0..=records.len() {
                for group in records.iter().flat_map(|record| &record.groups) {
                    if (group.table, group.partition) == (table, partition) {
                        let writes: Vec<_> =
                            group.entries.iter().map(|entry| entry.write()).collect();
                        let _early = rebuilt.apply(group.bucket, group.base, &writes);
                    }
                }
            }
            let rebuilt = buckets(&rebuilt);
            for (bucket, snapshot) in replicas.iter().flatten() {
                let has = rebuilt.get(bucket);
                let version = has.map_or(Version::ZERO, |has| has.version);
                if version < snapshot.version
                    || (version == snapshot.version && has != Some(snapshot))
                {
                    return Err(format!(
                        "replay of partition {partition}, table {table}, bucket {bucket} ends at version {version}, \
                         and a replica has {}",
                        snapshot.version
                    ));
                }
            }
            let of = |item: &check::Item| (item.table, item.partition) == (table, partition);
            let committed = attempts.iter().filter(|attempt| attempt.outcome == Outcome::Committed);
            for written in
                committed.flat_map(|attempt| &attempt.writes).filter(|written| of(&written.item))
            {
                let version = rebuilt.get(&written.item.bucket).map_or(0, |has| has.version.get());
                if version <= written.base {
                    return Err(format!("an acknowledged commit is lost: {written:?}"));
                }
            }
        }
        Ok(())
    }

    fn check_money(&self) -> Result<(), String> {
        if self.plan.workload != Workload::Bank || self.report.kills > 0 {
            return Ok(());
        }
        let mut sum = 0;
        for account in 0..self.plan.keys {
            let partition = self.cluster.ring.partition_of(account);
            let primary = self.cluster.host(self.cluster.ring.replicas(partition)[0]);
            let table = primary.participant.replica(BALANCES.id(), partition).expect("it is there");
            let read = table.get(account, None).map_err(|_| "an account is locked")?;
            let value = read.value.ok_or("an account is missing")?;
            sum += i64::from_le_bytes(value.as_bytes().try_into().map_err(|_| "no balance")?);
        }
        let expected = START * self.plan.keys as i64 + *self.results.deposited.borrow();
        // Each unknown deposit was made or not.
        let maybe = self.results.maybe.borrow();
        let possible: i64 = maybe.iter().sum();
        let is_possible = if maybe.is_empty() {
            sum == expected
        } else {
            (expected..=expected + possible).contains(&sum)
        };
        if is_possible {
            Ok(())
        } else {
            Err(format!("the balances are {sum}, not {expected} and perhaps some of {maybe:?}"))
        }
    }
}

fn node_now() -> u64 {
    let endpoint = erpc::Endpoint::<erpc::testing::VirtualTransport>::current();
    endpoint.expect("a task runs in a loop").now().as_nanos()
}

fn buckets(table: &Table) -> BTreeMap<u32, Snapshot> {
    let snapshots = table.snapshots().map(|snapshot| snapshot.expect("nobody writes"));
    snapshots.map(|snapshot| (snapshot.bucket.index(), snapshot)).collect()
}

/// Seeds from the environment variables `TXN_FROM` and `TXN_SEEDS`, by default 400 from 0.
#[test]
fn random_runs_are_serializable() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (from, seeds) = (number("TXN_FROM", 0), number("TXN_SEEDS", 400));
    let mut total = Report::default();
    for seed in from..from + seeds {
        match run(seed) {
            Ok(report) => {
                for (sum, count) in total.outcomes.iter_mut().zip(report.outcomes) {
                    *sum += count;
                }
                total.kills += report.kills;
                total.cuts += report.cuts;
            }
            Err(error) => panic!("seed {seed}: {error}\nTXN_FROM={seed} TXN_SEEDS=1 repeats it"),
        }
    }
    let Report { outcomes: [committed, aborted, unknown], kills, cuts, .. } = total;
    println!(
        "{seeds} seeds: {committed} committed, {aborted} aborted, {unknown} unknown; {kills} kills, {cuts} cuts"
    );
    assert!(committed > seeds * 20 && aborted > seeds && unknown > 0, "the runs show too little");
    // About one seed in ten kills a node.
    assert!(kills > seeds / 20 && cuts > seeds / 10, "the runs have too few faults");
}

#[test]
fn a_seed_repeats_exactly() {
    for seed in 0..4 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
