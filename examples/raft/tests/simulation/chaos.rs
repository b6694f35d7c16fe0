//! Random runs: calls and faults from one seed, and what must hold.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use erpc::testing::VirtualTransport;
use erpc::transport::fault::Faults;
use erpc_raft::check::{Call, Operation, Verdict, check};
use erpc_raft::client::{ClientError, Nodes, Patience, Session};
use erpc_raft::proto::{ChangeRequest, Member, StatusReply};

use crate::cluster::{Algorithm, Cluster, Host, Options};
use erpc_test_tools::random::Random;

/// Of the search for an order of the calls.
const STEPS: u64 = 20_000_000;

/// What one run did.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) calls: u64,
    /// Calls without an answer.
    pub(crate) unknown: u64,
    pub(crate) crashes: u64,
    pub(crate) torn: u64,
    /// Removed files that a crash has brought back.
    pub(crate) returned: u64,
    pub(crate) cuts: u64,
    pub(crate) jumps: u64,
    pub(crate) changes: u64,
    pub(crate) transfers: u64,
    pub(crate) snapshots: u64,
    /// A hash of all that clients have seen.
    pub(crate) trace: u64,
}

/// What the clients of a run share.
struct Shared {
    calls: RefCell<Vec<Call>>,
    running: Cell<u64>,
    is_over: Cell<bool>,
    value: Cell<u64>,
    changes: Cell<u64>,
    transfers: Cell<u64>,
}

/// Runs a seed. An error says what does not hold.
pub(crate) fn run(algorithm: Algorithm, seed: u64) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let first = if random.percent(60) { 3 } else { 5 };
    // With Omni-Paxos, no node can be added.
    let spare = u64::from(algorithm == Algorithm::Raft);
    let options = Options {
        algorithm,
        lease: random.percent(40),
        snapshot_every: if random.percent(70) { 1 << random.within(9, 13) } else { u64::MAX },
        keep: random.below(30),
    };
    let cluster = Cluster::start(random.word(), first, spare, options)?;
    let shared = Rc::new(Shared {
        calls: RefCell::default(),
        running: Cell::default(),
        is_over: Cell::default(),
        value: Cell::default(),
        changes: Cell::default(),
        transfers: Cell::default(),
    });
    let mut run = Run { cluster, random, shared, options, report: Report::default(), joint: None };
    run.start_clients(first + spare);
    run.work()?;
    run.settle()?;
    run.verdict()
}

struct Run {
    cluster: Cluster,
    random: Random,
    shared: Rc<Shared>,
    options: Options,
    report: Report,
    joint: Option<erpc::JoinHandle<()>>,
}

impl Run {
    fn start_clients(&mut self, nodes: u64) {
        let keys = self.random.within(1, 4);
        for _ in 0..self.random.within(3, 6) {
            let ms = Duration::from_millis;
            // A client that gives up soon leaves many calls without an answer.
            let call = if self.random.percent(50) { ms(10_000) } else { ms(300) };
            let patience = Patience { attempt: ms(100), pause: ms(5), call };
            let (endpoint, nodes) = self.cluster.clients(patience);
            let network = self.cluster.network.clone();
            let now = move || network.elapsed().as_nanos() as u64;
            let (random, shared) = (Random::new(self.random.word()), Rc::clone(&self.shared));
            self.shared.running.set(self.shared.running.get() + 1);
            drop(endpoint.spawn(client(nodes, random, keys, now, shared)));
            std::mem::forget(endpoint);
        }
        if self.random.percent(60) {
            let patience = Patience { attempt: Duration::from_millis(300), ..Patience::default() };
            let (endpoint, known) = self.cluster.clients(patience);
            let (random, shared) = (Random::new(self.random.word()), Rc::clone(&self.shared));
            self.joint = Some(endpoint.spawn(administrator(known, random, nodes, shared)));
            std::mem::forget(endpoint);
        }
    }

    fn work(&mut self) -> Result<(), String> {
        let begun = self.cluster.network.elapsed();
        self.cluster.driver.run_for(Duration::from_millis(300));
        while self.cluster.network.elapsed() - begun < Duration::from_secs(4) {
            let longest = 1 << self.random.within(10, 18);
            let pause = self.random.below(longest);
            self.cluster.driver.run_for(Duration::from_micros(pause));
            if let Some(failure) = self.cluster.failure() {
                return Err(failure);
            }
            self.disturb()?;
        }
        Ok(())
    }

    fn disturb(&mut self) -> Result<(), String> {
        let ms = Duration::from_millis(1);
        let random = &mut self.random;
        let (network, hosts) = (&self.cluster.network, &self.cluster.hosts);
        let host = &hosts[random.below(hosts.len() as u64) as usize];
        match random.below(10) {
            0 => {
                let faults = Faults::none()
                    .drop(random.below(20) as f64 / 100.0)
                    .duplicate(random.below(20) as f64 / 100.0, 2, 3 * ms)
                    .reorder(random.below(30) as f64 / 100.0, ms)
                    .spike(random.below(3) as f64 / 100.0, 100 * ms);
                network.set_faults(if random.percent(50) { Faults::none() } else { faults });
            }
            // Any number of nodes may crash: their disks are kept.
            1 | 2 if host.is_up() => {
                self.report.crashes += 1;
                self.cluster.crash(host);
            }
            3..=5 => {
                if let Some(down) = hosts.iter().find(|host| !host.is_up()) {
                    self.cluster.restart(down)?;
                }
            }
            6 => {
                self.report.cuts += 1;
                let other = &hosts[random.below(hosts.len() as u64) as usize];
                match random.below(3) {
                    0 => host.server.cut_off(),
                    _ => network.cut_link(host.server.route(), other.server.route()),
                }
            }
            7 => {
                network.mend_links();
                hosts.iter().for_each(|host| host.server.reconnect());
            }
            // Leases are only for clocks that run at about the same rate.
            8 if !self.options.lease => {
                self.report.jumps += 1;
                self.cluster.jump(host, random.below(500) as u32 * ms);
            }
            _ => {}
        }
        Ok(())
    }

    /// Without faults, everything ends.
    fn settle(&mut self) -> Result<(), String> {
        let cluster = &self.cluster;
        cluster.network.set_faults(Faults::none());
        cluster.network.mend_links();
        for host in &cluster.hosts {
            host.server.reconnect();
            if !host.is_up() {
                cluster.restart(host)?;
            }
        }
        cluster.driver.run_for(Duration::from_millis(500));
        self.shared.is_over.set(true);
        let end = cluster.network.elapsed() + Duration::from_secs(30);
        while self.shared.running.get() > 0 {
            if let Some(failure) = cluster.failure() {
                return Err(failure);
            }
            if cluster.network.elapsed() >= end {
                let statuses = statuses(cluster);
                return Err(format!(
                    "{} clients do not end: {statuses:?}",
                    self.shared.running.get()
                ));
            }
            cluster.driver.run_for(Duration::from_millis(20));
        }
        // All members apply the same.
        let end = cluster.network.elapsed() + Duration::from_secs(10);
        loop {
            let statuses = statuses(cluster);
            let members = statuses
                .iter()
                .find(|status| status.role == "leader")
                .map(|leader| &leader.members);
            let is_member =
                |id| members.is_some_and(|members| members.iter().any(|member| member.id == id));
            let applied = statuses.iter().filter(|status| is_member(status.id));
            let mut applied = applied.map(|status| (status.applied, status.keys));
            let first = applied.next();
            if first.is_some() && applied.all(|other| Some(other) == first) {
                self.report.snapshots =
                    statuses.iter().filter(|status| status.snapshot > 1).count() as u64;
                return Ok(());
            }
            if cluster.network.elapsed() >= end {
                return Err(format!("the nodes do not agree: {statuses:?}"));
            }
            cluster.driver.run_for(Duration::from_millis(50));
        }
    }

    fn verdict(mut self) -> Result<Report, String> {
        let calls = self.shared.calls.borrow();
        self.report.torn = self.cluster.torn.get();
        self.report.returned = self.cluster.returned.get();
        self.report.changes = self.shared.changes.get();
        self.report.transfers = self.shared.transfers.get();
        self.report.calls = calls.len() as u64;
        self.report.unknown = calls.iter().filter(|call| call.ended.is_none()).count() as u64;
        let mut trace = 0xcbf2_9ce4_8422_2325_u64;
        for byte in calls.iter().flat_map(|call| format!("{call:?}").into_bytes()) {
            trace = (trace ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        self.report.trace = trace;
        match check(&calls, STEPS) {
            Verdict::Linearizable => Ok(self.report.clone()),
            Verdict::Violation(key) => {
                let of_key =
                    calls.iter().filter(|call| call.key == key).map(|call| format!("\n  {call:?}"));
                Err(format!("not linearizable:{}", of_key.collect::<String>()))
            }
            Verdict::Unknown(steps) => Err(format!("no verdict after {steps} steps")),
        }
    }
}

fn statuses(cluster: &Cluster) -> Vec<StatusReply> {
    let (endpoint, nodes) = cluster.clients(Patience::default());
    let ask = |host: &Host| endpoint.block_on(nodes.status(&host.id.to_string())).ok();
    cluster.hosts.iter().filter_map(ask).collect()
}

/// Makes calls until the run is over, and writes down what it was told.
async fn client(
    nodes: Nodes<VirtualTransport>,
    mut random: Random,
    keys: u64,
    now: impl Fn() -> u64,
    shared: Rc<Shared>,
) {
    let mut session: Option<Session<VirtualTransport>> = None;
    // Values that this client has seen: good guesses for compare-and-swap.
    let mut seen: Option<Vec<u8>> = None;
    while !shared.is_over.get() {
        let Some(open) = &session else {
            session = nodes.open().await.ok();
            continue;
        };
        let key = vec![random.below(keys) as u8];
        shared.value.set(shared.value.get() + 1);
        let value = shared.value.get().to_string().into_bytes();
        let begun = now();
        let (operation, error) = match random.below(3) {
            0 => {
                let done = open.put(&key, &value).await;
                (Some(Operation::Put(value)), done.err())
            }
            1 => {
                let expected = if random.percent(80) { seen.clone() } else { None };
                let done = open.cas(&key, expected.as_deref(), &value).await;
                let swapped = done.as_ref().ok().copied();
                (Some(Operation::Cas { expected, value, swapped }), done.err())
            }
            _ => match nodes.get(&key).await {
                Ok(value) => {
                    let value = value.map(|value| value.to_vec());
                    seen.clone_from(&value);
                    (Some(Operation::Get(value)), None)
                }
                Err(_) => (None, None),
            },
        };
        let ended = error.is_none().then(&now);
        if let Some(operation) = operation {
            shared.calls.borrow_mut().push(Call { key, begun, ended, operation });
        }
        match error {
            None => {}
            // A write may still be made. The session's next write would settle that; a new session is
            // the harder case.
            Some(ClientError::Unavailable(_) | ClientError::Expired) => session = None,
            Some(error) => panic!("{error}"),
        }
        let longest = 1 << random.within(8, 15);
        erpc::sleep(Duration::from_micros(random.below(longest))).await;
    }
    shared.running.set(shared.running.get() - 1);
}

/// Changes the members and the leader until the run is over. Two of the first three nodes stay.
async fn administrator(
    nodes: Nodes<VirtualTransport>,
    mut random: Random,
    count: u64,
    shared: Rc<Shared>,
) {
    while !shared.is_over.get() {
        erpc::sleep(Duration::from_millis(random.below(400))).await;
        if random.percent(40) {
            if nodes.transfer(random.below(count + 1)).await.is_ok() {
                shared.transfers.set(shared.transfers.get() + 1);
            }
            continue;
        }
        let changing: Vec<_> = (3..=count).filter(|_| random.percent(50)).collect();
        let mut change = ChangeRequest::default();
        for id in changing {
            if random.percent(50) {
                let learner = random.percent(20);
                change.add.push(Member { id, address: id.to_string(), learner });
            } else {
                change.remove.push(id);
            }
        }
        // Fails if it asks the leader to leave, or nobody answers.
        let is_empty = change.add.is_empty() && change.remove.is_empty();
        if !is_empty && nodes.change(&change).await.is_ok() {
            shared.changes.set(shared.changes.get() + 1);
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `RAFT_SEEDS` runs from `RAFT_FROM` on.
#[test]
fn random_runs_are_linearizable() {
    many_runs(Algorithm::Raft, "random_runs_are");
}

/// The same with the other algorithm.
#[test]
fn random_runs_of_omni_paxos_are_linearizable() {
    many_runs(Algorithm::OmniPaxos, "random_runs_of_omni");
}

fn many_runs(algorithm: Algorithm, test: &str) {
    let (from, seeds) = (number("RAFT_FROM", 0), number("RAFT_SEEDS", 12));
    let mut sum = Report::default();
    for seed in from..from + seeds {
        let report = run(algorithm, seed).unwrap_or_else(|error| {
            panic!("seed {seed}: {error}\nagain: RAFT_FROM={seed} RAFT_SEEDS=1 cargo test -p erpc-raft --test simulation {test}")
        });
        if seeds == 1 {
            println!("{report:?}");
        }
        sum.calls += report.calls;
        sum.unknown += report.unknown;
        sum.crashes += report.crashes;
        sum.torn += report.torn;
        sum.returned += report.returned;
        sum.cuts += report.cuts;
        sum.jumps += report.jumps;
        sum.changes += report.changes;
        sum.transfers += report.transfers;
        sum.snapshots += report.snapshots;
    }
    println!("{seeds} runs: {sum:?}");
    if seeds >= 12 {
        assert!(sum.calls >= 50 * seeds && sum.crashes > 0 && sum.cuts > 0, "{sum:?}");
    }
    if seeds >= 100 {
        let Report { unknown, crashes, torn, returned, cuts, jumps, .. } = sum;
        let Report { changes, transfers, snapshots, .. } = sum;
        // Those of Omni-Paxos do not change.
        let changes = if algorithm == Algorithm::OmniPaxos { 1 } else { changes };
        let counts = [unknown, crashes, torn, returned, cuts, jumps, changes, transfers, snapshots];
        assert!(counts.iter().all(|count| *count > 0), "some fault never acts: {sum:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for (seed, algorithm) in [(0, Algorithm::Raft), (1, Algorithm::Raft), (2, Algorithm::OmniPaxos)]
    {
        assert_eq!(run(algorithm, seed), run(algorithm, seed), "seed {seed}");
    }
}
