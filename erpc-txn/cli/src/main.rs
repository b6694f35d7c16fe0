//! Runs, measures and asks clusters of the transaction store.
//!
//! ```text
//! erpc-txn local                          a cluster of three nodes on this machine, until Ctrl-C
//! erpc-txn serve --config c.toml --node 0 one node of a cluster
//! erpc-txn status --config c.toml         its nodes, their partitions and their load
//! erpc-txn shell --config c.toml          reads, writes and small transactions
//! erpc-txn bench tatp                     a benchmark in this process
//! ```

mod bench;
mod config;
mod failure;
mod machine;
mod member;
mod output;
mod outside;
mod serve;
mod shell;
mod status;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "erpc-txn", version, about)]
enum Command {
    /// Runs one node of a cluster, until SIGINT or SIGTERM
    Serve(serve::ServeArgs),
    /// Runs a cluster on this machine, in one process, until SIGINT or SIGTERM
    Local(serve::LocalArgs),
    /// Shows the nodes of a cluster, their partitions and their load; fails if one does not serve
    Status(status::StatusArgs),
    /// Reads and writes keys, at a terminal or from a script
    Shell(shell::ShellArgs),
    /// Measures a workload in this process, and checks it on request
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Serve(args) => serve::serve(&args),
        Command::Local(args) => serve::local(&args),
        Command::Status(args) => status::status(&args),
        Command::Shell(args) => shell::shell(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("erpc-txn: {failure}");
            ExitCode::FAILURE
        }
    }
}
