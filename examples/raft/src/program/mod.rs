//! The commands.
//!
//! ```text
//! erpc-raft                                three nodes in this process, a checked load, a dead leader
//! erpc-raft node --id 1 --peers 1=127.0.0.1:4001,2=127.0.0.1:4002,3=127.0.0.1:4003 --dir data1
//! erpc-raft client --connect 127.0.0.1:4001 put KEY VALUE
//! erpc-raft client --connect 127.0.0.1:4001 status
//! ```

mod alone;
mod args;
mod bench;
mod client;
mod demo;
mod failure;
mod load;
mod member;
mod memory;
mod node;

use std::process::ExitCode;

use args::{Args, Command};
use clap::Parser;

/// Runs the command that the arguments of the process name.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.command {
        None => demo::run(args.consensus),
        Some(Command::Node(args)) => node::run(&args),
        Some(Command::Client(args)) => client::run(args),
        Some(Command::Latency(args)) => memory::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("raft: {failure}");
            ExitCode::FAILURE
        }
    }
}
