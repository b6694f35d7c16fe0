//! A networked ordered index: `erpc-masstree` over erpc, after the second port of Kalia's thesis
//! (CMU-CS-19-126, section 6.6.2).
//!
//! ```text
//! masstree                                    server and clients in this process, over UDP
//! masstree server --listen 0.0.0.0:31850      the server alone
//! masstree client --connect 10.0.0.7:31850    the load alone, from this machine or another
//! masstree bench                              what the network costs, and what scans cost reads
//! ```
//!
//! The server begins with a million keys of 8 bytes. Every answer is checked.

mod bench;
mod data;
mod load;
mod store;

use std::error::Error;
use std::num::{NonZeroU16, NonZeroU64};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use erpc::{Endpoint, Server, ServerHandle};

use load::{Load, Mix, Tally};
use proto::LocalIndexClient;
use store::Store;

mod proto {
    erpc::include_proto!("masstree.v1");
}

/// Calls that a session has in flight. Further calls would wait in the session's queue.
const SESSION_WINDOW: usize = 8;

/// An ordered index over erpc, and a load that checks every answer.
///
/// Without a command, server and clients run in this process and talk over UDP.
#[derive(Parser)]
#[command(name = "masstree", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the server.
    Server {
        /// The address to listen on.
        #[arg(long, value_name = "ADDR", default_value_t = format!("0.0.0.0:{}", erpc::DEFAULT_PORT))]
        listen: String,
        /// Event loops, each on a thread.
        #[arg(long, value_name = "N", default_value = "1")]
        threads: NonZeroU16,
        /// Threads that run scans.
        #[arg(long, value_name = "N", default_value = "1")]
        workers: NonZeroU16,
        /// Keys that the index begins with.
        #[arg(long, value_name = "N", default_value = "1000000")]
        keys: NonZeroU64,
    },
    /// Makes calls to a server and checks every answer. The server is new, and the only load is
    /// this one.
    Client {
        /// The server's address.
        #[arg(long, value_name = "ADDR")]
        connect: String,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Compares the rate of reads over the network with the cost of its parts, and the latency of
    /// reads beside scans in worker threads with that beside scans in event loops.
    Bench {
        #[command(flatten)]
        load: LoadArgs,
    },
}

#[derive(clap::Args)]
struct LoadArgs {
    /// Keys that the server begins with.
    #[arg(long, value_name = "N", default_value = "1000000")]
    keys: NonZeroU64,
    /// How long each mix runs.
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    secs: NonZeroU16,
    /// Calls in flight.
    #[arg(long, value_name = "N", default_value = "32")]
    outstanding: NonZeroU16,
    /// Only this mix. By default all but `get`, one after the other.
    #[arg(long, value_enum)]
    mix: Option<Mix>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("masstree: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    match &args.command {
        None => {
            let server = serve("127.0.0.1:0", 1, 1, args.load.keys.get())?;
            client(&server.local_addr().to_string(), &args.load)
        }
        Some(Command::Server { listen, threads, workers, keys }) => {
            let server = serve(listen, threads.get().into(), workers.get().into(), keys.get())?;
            eprintln!("masstree: {keys} keys on {}", server.local_addr());
            Ok(server.wait()?)
        }
        Some(Command::Client { connect, load }) => client(connect, load),
        Some(Command::Bench { load }) => {
            let (keys, time) = (load.keys.get(), Duration::from_secs(load.secs.get().into()));
            bench::run(keys, load.outstanding.get().into(), time)
        }
    }
}

fn serve(
    address: &str,
    threads: usize,
    workers: usize,
    keys: u64,
) -> Result<ServerHandle, Box<dyn Error>> {
    let store = Store::filled(data::entries(keys));
    Ok(Server::builder().add_service(store).threads(threads).workers(workers).spawn(address)?)
}

/// Runs the mixes against a server.
fn client(server: &str, args: &LoadArgs) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::udp()?;
    let window = usize::from(args.outstanding.get());
    let clients = (0..window.div_ceil(SESSION_WINDOW))
        .map(|_| LocalIndexClient::connect(&endpoint, server))
        .collect::<Result<Vec<_>, _>>()?;
    let all = [Mix::Thesis, Mix::A, Mix::B, Mix::C, Mix::D, Mix::E, Mix::F];
    let mixes = args.mix.as_ref().map_or(all.as_slice(), std::slice::from_ref);
    for (seed, &mix) in (1..).zip(mixes) {
        let mut load = Load::new(clients.clone(), mix, args.keys.get(), seed);
        let time = Duration::from_secs(args.secs.get().into());
        let tally = load.run(window, time, || {
            endpoint.run_once();
        })?;
        print(&format!("{mix:?}"), &tally);
    }
    println!("all answers were correct");
    Ok(())
}

/// Prints a run's rate and latencies.
fn print(name: &str, tally: &Tally) {
    let rate = tally.calls() as f64 / tally.elapsed.as_secs_f64();
    print!("{name:8} {rate:9.0} calls/s");
    for (what, latencies) in
        [("get", &tally.gets), ("scan", &tally.scans), ("write", &tally.writes)]
    {
        if !latencies.is_empty() {
            let [half, most] =
                [0.5, 0.99].map(|part| latencies.value_at_quantile(part) as f64 / 1e3);
            print!("; {what}: p50 {half:.1} us, p99 {most:.1} us");
        }
    }
    println!();
}
