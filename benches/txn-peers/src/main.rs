//! SmallBank and TATP's reads in Redis, PostgreSQL and erpc-txn, to compare. The script
//! `benches/compare-txn` starts the servers and runs this.
//!
//! * `work`: the workloads of `erpc_txn::workloads`, for stores that are not erpc-txn.
//! * `session`: what a store has to do. `redis`, `postgres`, `cluster`: the stores.
//! * `measure`: the load, and its figures. `cpu`: CPU time of servers.
//! * `toml`: a cluster of erpc-txn for a workload.

mod cluster;
mod cpu;
mod failure;
mod measure;
mod postgres;
mod redis;
mod session;
mod toml;
mod work;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use failure::Failure;
use work::Work;

#[derive(Parser)]
#[command(about)]
enum Command {
    /// Prints the configuration of a cluster of erpc-txn that has the workload's tables
    Toml {
        #[command(flatten)]
        work: WorkArgs,
        /// Copies of each partition
        #[arg(long)]
        replicas: u16,
        /// The nodes
        #[arg(long, value_delimiter = ',', required = true)]
        nodes: Vec<SocketAddr>,
    },
    /// Loads a workload into a store, runs it, and prints a line of JSON
    Run(RunArgs),
}

#[derive(Args, Clone, Copy)]
struct WorkArgs {
    #[arg(long, value_enum)]
    workload: Workload,
    /// Customers of SmallBank, or subscribers of TATP
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(50..))]
    rows: u32,
}

#[derive(Args, Clone)]
struct RunArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(subcommand)]
    store: Store,
    /// The name of the row in the results
    #[arg(long, global = true, default_value = "")]
    label: String,
    /// Transactions in flight, each with a connection of its own where the store needs one
    #[arg(long, global = true, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: u32,
    /// Duration of the measurement in seconds, after a warm-up of a fifth of it
    #[arg(long, global = true, default_value_t = 5.0, value_parser = seconds)]
    secs: f64,
    /// Processes of the store. Their children count too
    #[arg(long, global = true, value_delimiter = ',')]
    server_pids: Vec<u32>,
    /// Seed of the choices of keys and transactions
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
}

#[derive(Subcommand, Clone)]
enum Store {
    /// Redis: WATCH, MULTI and EXEC
    Redis {
        /// As redis://127.0.0.1:6379
        url: String,
    },
    /// PostgreSQL: serializable transactions of prepared statements
    Postgres {
        /// As "host=127.0.0.1 port=5432 user=bench dbname=bench"
        settings: String,
    },
    /// erpc-txn, from outside of the cluster
    ErpcTxn {
        /// Members
        #[arg(value_delimiter = ',', required = true)]
        members: Vec<SocketAddr>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    Smallbank,
    TatpReads,
}

/// Parses a duration of a measurement.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(secs) if (0.1..=3600.0).contains(&secs) => Ok(secs),
        _ => Err("a number of seconds from 0.1 to 3600".into()),
    }
}

impl WorkArgs {
    fn work(self) -> Work {
        match self.workload {
            Workload::Smallbank => Work::smallbank(self.rows),
            Workload::TatpReads => Work::tatp_reads(self.rows),
        }
    }
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Toml { work, replicas, nodes } => {
            print!("{}", toml::cluster(&work.work(), replicas, &nodes));
            Ok(())
        }
        Command::Run(args) => run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("erpc-bench-txn-peers: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let work = args.work.work();
    let in_tokio = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(Failure::of("no runtime"))
    };
    let line = match &args.store {
        Store::Redis { url } => in_tokio()?.block_on(async {
            measure::run(redis::sessions(url, args.clients).await?, &work, args).await
        }),
        Store::Postgres { settings } => in_tokio()?.block_on(async {
            measure::run(postgres::sessions(settings, &work, args.clients).await?, &work, args)
                .await
        }),
        Store::ErpcTxn { members } => {
            let endpoint = cluster::endpoint()?;
            let sessions = cluster::sessions(&endpoint, members, args.clients)?;
            endpoint.block_on(measure::run(sessions, &work, args))
        }
    };
    println!("{}", line?);
    Ok(())
}
