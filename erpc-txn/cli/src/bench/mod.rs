//! Measures a workload.
//!
//! * `plan`: the cluster and the workload, built.
//! * `lane`: one thread of one node: its tasks and their tally.
//! * `mem`, `udp`: the lanes run, on one thread or on one each.
//! * `processes`: one process per node. `pipe`: what it says of its lanes.
//! * `audit`: whether all was right. `intervals`: whether nothing grows.
//! * `figures`, `report`: the results.

mod audit;
mod figures;
mod intervals;
mod lane;
mod mem;
mod pipe;
mod plan;
mod processes;
mod report;
mod tally;
mod udp;

use std::num::{NonZeroU16, NonZeroU64};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use erpc_txn::workloads::Workload;
use erpc_txn::workloads::objects::{self, Objects};
use erpc_txn::workloads::smallbank::SmallBank;
use erpc_txn::workloads::tatp::Tatp;
use erpc_txn::workloads::ycsb::{Mix, Size, Ycsb};

use crate::failure::Failure;
use crate::output;
use intervals::Verdict;
use plan::Plan;

#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Subcommand)]
enum What {
    /// A mobile telephone network: mostly reads of one row
    Tatp {
        /// Only the transactions that read
        #[arg(long)]
        only_reads: bool,
    },
    /// A bank: mostly small writes, many to popular accounts
    Smallbank,
    /// Objects of 40 bytes: each transaction accesses R keys, and writes W of them on average
    Objects {
        /// Keys of a transaction
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(objects::MAX_KEYS)))]
        reads: u32,
        /// How many of them are written on average
        #[arg(long, default_value_t = 2)]
        writes: u32,
    },
    /// Records of which few are popular
    Ycsb {
        /// The mix of transactions: A, B, C, D or F
        #[arg(long, value_enum, default_value = "a", ignore_case = true)]
        mix: Letter,
        /// Fields of a record
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
        fields: u16,
        /// Bytes of a field
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        field_bytes: u16,
        /// With mix D: new records for which there is room, per thread of a node. By default the
        /// larger of --rows and what lasts for the run, 4 million for all threads at most
        #[arg(long)]
        inserts: Option<u64>,
    },
}

/// New records per second and thread for which there is room: several times what threads make.
const INSERTS_PER_SEC: u64 = 100_000;
/// The most new records for which there is room by default. With three replicas, they take 0.6 GB.
const MOST_ROOM: u64 = 4_000_000;

#[derive(Args, Clone)]
struct SettingsArgs {
    /// Nodes of the cluster
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Copies of each partition, the primary included
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=3))]
    replicas: u16,
    /// Duration of the measurement in seconds, after a warm-up
    #[arg(long, global = true, default_value_t = 5.0, value_parser = seconds)]
    secs: f64,
    /// What carries the messages
    #[arg(long, global = true, value_enum, default_value = "mem")]
    transport: Transport,
    /// Transactions in flight per thread of a node
    #[arg(long, global = true, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tasks: u32,
    /// Transactions that a task chooses together, as from a burst of requests. If there are several,
    /// the task prefetches their keys, 64 at most. By default 8 with one node, which waits for nothing
    /// but memory, and 1 with several
    #[arg(long, global = true, value_parser = clap::value_parser!(u16).range(1..=64))]
    burst: Option<u16>,
    /// Threads per node; `mem` has one thread for all nodes
    #[arg(long, global = true, default_value = "1")]
    threads: NonZeroU16,
    /// With `--transport udp`, run each node in a process of its own
    #[arg(long, global = true)]
    processes: bool,
    /// The node of this process; the benchmark starts these processes
    #[arg(long, global = true, hide = true, requires = "processes")]
    member: Option<u16>,
    /// Rows per thread of a node: subscribers, customers, objects or records
    #[arg(long, global = true, default_value = "100000")]
    rows: NonZeroU64,
    /// Attempts of a transaction that conflicts with others. The published figures are for 1
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// The core for `mem`
    #[arg(long, global = true, default_value_t = 0)]
    core: usize,
    /// Seed of the choices of keys and transactions
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Record all transactions and check that they were strictly serializable. Costs time, and about
    /// 1 kB of memory per transaction
    #[arg(long, global = true)]
    check: bool,
    /// With `--check`, end the run after this many attempts
    #[arg(long, global = true, default_value = "2000000")]
    check_limit: NonZeroU64,
    /// Print a line of JSON for each interval of so many seconds: the resident memory, the most
    /// records and bytes that all logs had together, the commits and their latencies. Fail if memory,
    /// logs or latencies grow: compares the last third of the run with the first
    #[arg(long, global = true, value_name = "SECS", value_parser = seconds)]
    interval: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// Memory: one thread drives all nodes, and the figures are per second of its CPU time
    Mem,
    /// Sockets on loopback, one thread per node or more, and the figures are per second
    Udp,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Letter {
    A,
    B,
    C,
    D,
    F,
}

/// Parses a duration of a measurement.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(secs) if (0.05..=86_400.0).contains(&secs) => Ok(secs),
        _ => Err("a number of seconds from 0.05 to 86400".into()),
    }
}

impl SettingsArgs {
    /// Threads of all nodes.
    fn lanes(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.threads.get())
    }

    fn secs(&self) -> Duration {
        Duration::from_secs_f64(self.secs)
    }

    /// Transactions that a task chooses together.
    fn burst(&self) -> usize {
        usize::from(self.burst.unwrap_or(if self.nodes == 1 { 8 } else { 1 }))
    }

    /// Room for new records per thread. It lasts for the whole run, unless the run is long or the
    /// machine very fast.
    fn inserts(&self) -> u64 {
        let secs = (self.secs() + plan::LONGEST_WARMUP).as_secs() + 1;
        // With `mem`, one thread makes the transactions of all nodes.
        let makers = if self.transport == Transport::Mem { 1 } else { self.lanes() };
        let all = (makers * INSERTS_PER_SEC).saturating_mul(secs).min(MOST_ROOM);
        self.rows.get().max(all / self.lanes())
    }

    fn interval(&self) -> Option<Duration> {
        self.interval.map(Duration::from_secs_f64)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.replicas > self.nodes {
            let Self { replicas, nodes, .. } = self;
            return Err(Failure::new(format!(
                "--replicas {replicas} needs as many nodes, but --nodes is {nodes}"
            )));
        }
        if self.transport == Transport::Mem && self.threads.get() > 1 {
            return Err(Failure::new(
                "--transport mem has one thread for all nodes; use --transport udp for --threads",
            ));
        }
        if self.processes && self.transport == Transport::Mem {
            return Err(Failure::new("--processes needs --transport udp"));
        }
        if self.processes && (self.check || self.interval.is_some()) {
            return Err(Failure::new(
                "--check and --interval look into all nodes; leave them out, or --processes",
            ));
        }
        if self.interval.is_some() && self.check {
            return Err(Failure::new(
                "--check records all transactions, so memory grows; leave out --check or --interval",
            ));
        }
        if let Some(interval) = self.interval
            && interval * intervals::PARTS as f64 > self.secs
        {
            let Self { secs, .. } = self;
            return Err(Failure::new(format!(
                "--interval {interval} does not fit three times into --secs {secs}"
            )));
        }
        Ok(())
    }
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let settings = &args.settings;
    settings.check()?;
    let rows = settings.rows.get().saturating_mul(settings.lanes());
    match args.what {
        What::Tatp { only_reads } => {
            let subscribers = u32::try_from(rows).map_err(|_| {
                Failure::new(format!("{rows} subscribers; lower --rows, 4 billion is the most"))
            })?;
            let tatp = Tatp::new(subscribers);
            match only_reads {
                true => measure("tatp-reads", tatp.only_reads(), settings),
                false => measure("tatp", tatp, settings),
            }
        }
        What::Smallbank => measure("smallbank", SmallBank::new(rows), settings),
        What::Objects { reads, writes } if writes > reads => {
            Err(Failure::new(format!("--writes {writes} of --reads {reads} keys; at most all")))
        }
        What::Objects { reads, writes } => {
            let name = format!("objects({reads},{writes})");
            measure(&name, Objects::new(rows, reads, writes), settings)
        }
        What::Ycsb { mix: Letter::D, .. } if settings.processes => {
            Err(Failure::new("--mix d counts records in one process; leave out --processes"))
        }
        What::Ycsb { mix, inserts: Some(_), .. } if mix != Letter::D => {
            Err(Failure::new("--inserts is room for new records, and only --mix d inserts"))
        }
        What::Ycsb { mix, fields, field_bytes, inserts } => {
            let (name, mix) = match mix {
                Letter::A => ("ycsb-a", Mix::A),
                Letter::B => ("ycsb-b", Mix::B),
                Letter::C => ("ycsb-c", Mix::C),
                Letter::D => ("ycsb-d", Mix::D),
                Letter::F => ("ycsb-f", Mix::F),
            };
            let (fields, field) = (fields.into(), field_bytes.into());
            let inserts = inserts.unwrap_or_else(|| settings.inserts());
            let inserts = inserts.saturating_mul(settings.lanes());
            let size = Size { records: rows, inserts, fields, field };
            measure(name, Ycsb::new(mix, size), settings)
        }
    }
}

/// What a run yields.
#[derive(Default)]
struct Run {
    lanes: Vec<lane::Ran>,
    /// If it was watched for growth.
    verdict: Option<Verdict>,
    /// If it was checked.
    audit: Option<audit::Audit>,
}

/// Runs a workload, prints the results, and fails if something was wrong.
fn measure<W: Workload>(name: &str, workload: W, args: &SettingsArgs) -> Result<(), Failure> {
    let Run { lanes, verdict, audit } = match args.member {
        Some(_) => return processes::member(&Plan::new(workload, args)?),
        None if args.processes => {
            Run { lanes: processes::run(args, W::KINDS.len())?, ..Run::default() }
        }
        None => here(workload, args)?,
    };
    if let Some(verdict) = &verdict {
        output::line(verdict.json())?;
    }
    let figures = figures::Figures::new(args, &lanes, audit.as_ref());
    let text = report::text(name, W::KINDS, args, &lanes, &figures, audit.as_ref());
    output::line(text.map_err(Failure::of("no report"))?)?;
    if let Some(wrong) = audit.and_then(|audit| audit.wrong.into_iter().next()) {
        return Err(Failure::new(format!("the check failed: {wrong}")));
    }
    let broken = lanes.iter().find_map(|lane| lane.tally.broken.clone());
    if let Some(error) = broken {
        return Err(Failure::new(error));
    }
    let grown = verdict.and_then(|verdict| verdict.grown());
    grown.map_or(Ok(()), |grown| Err(Failure::new(format!("the run is not flat: {grown}"))))
}

/// Runs all nodes in this process.
fn here<W: Workload>(workload: W, args: &SettingsArgs) -> Result<Run, Failure> {
    let plan = Plan::new(workload, args)?;
    let before = args.check.then(|| audit::Before::of(&plan)).transpose()?;
    let (mut lanes, verdict) = match args.transport {
        Transport::Mem => mem::run(&plan)?,
        Transport::Udp => udp::run(&plan, &mut udp::NoOthers)?,
    };
    let audit = before.map(|before| before.audit(&plan, &mut lanes)).transpose()?;
    Ok(Run { lanes, verdict, audit })
}
