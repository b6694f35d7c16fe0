//! Runs, measures and asks clusters of the transaction store.
//!
//! ```text
//! erpc-txn local                          a cluster of three nodes on this machine, until Ctrl-C
//! erpc-txn serve --config c.toml --node 0 one node of a cluster
//! erpc-txn bench tatp                     a benchmark in this process
//! ```

mod bench;
mod failure;
mod machine;
mod member;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "erpc-txn", version, about)]
enum Command {
    /// Measures a workload in this process, and checks it on request
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
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
