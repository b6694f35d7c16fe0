//! Workload w4 of erpc-bench with tonic. `benches/compare-tonic` runs it beside erpc-bench.

mod client;
mod latencies;
mod server;
#[path = "../../erpc-bench/src/values.rs"]
mod values;

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

/// Code that tonic generates from `bench.proto`.
#[allow(missing_docs, reason = "the generator documents no modules")]
mod proto {
    tonic::include_proto!("bench.v1");
}

/// An error that ends the program.
type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
#[command(version, about = "Workload w4 of erpc-bench with tonic")]
enum Command {
    /// Serves until it is killed; prints `READY` when it listens
    Server(server::ServerArgs),
    /// Calls a server over HTTP/2 and TCP; prints a line of JSON
    Client(client::ClientArgs),
}

/// A multi-thread runtime. Without `threads`, it has a thread for each core, tokio's default.
fn runtime(threads: Option<NonZeroUsize>) -> io::Result<Runtime> {
    let mut runtime = Builder::new_multi_thread();
    if let Some(threads) = threads {
        runtime.worker_threads(threads.get());
    }
    runtime.enable_all().build()
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Server(args) => server::run(&args),
        Command::Client(args) => client::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("erpc-bench-tonic: {failure}");
            // The text of tonic's errors lacks their causes.
            let mut cause = failure.source();
            while let Some(error) = cause {
                eprint!(": {error}");
                cause = error.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}
