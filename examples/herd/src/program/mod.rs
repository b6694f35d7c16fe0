//! The program `herd`.

mod bench;
mod load;
mod memory;
mod peers;
mod serve;

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use erpc::{CallError, Endpoint, EndpointConfig, UdpConfig};

use crate::client::Partitions;
use crate::proto::{LocalCacheClient, LocalSequencerClient, NextRequest};
use crate::sequencer::BLOCK;
use crate::service::MAX_COUNT;
use load::{Load, Mix};
use serve::Servers;

/// HERD's cache and a sequencer over erpc, and a load that checks every answer.
///
/// Without a command, server and client run in this process and talk over UDP.
#[derive(Parser)]
#[command(name = "herd", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the partitions, each on a thread and a port of its own, until SIGINT or SIGTERM
    Server {
        /// The address of partition 0; the others have the next ports
        #[arg(long, value_name = "ADDR", default_value_t = format!("0.0.0.0:{}", erpc::DEFAULT_PORT))]
        listen: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Makes calls to a server and checks every answer. This load is the only one
    Client {
        /// The address of partition 0
        #[arg(long, value_name = "ADDR")]
        connect: String,
        /// Partitions of the server
        #[arg(long, value_name = "N", default_value = "2")]
        partitions: NonZeroU16,
        #[command(flatten)]
        cpu: Cpu,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Makes the same load for Redis or memcached, to compare
    Peer {
        /// The protocol
        #[arg(long, value_enum)]
        protocol: peers::Protocol,
        /// The server's address
        #[arg(long, value_name = "ADDR")]
        connect: String,
        #[command(flatten)]
        cpu: Cpu,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Compares the calls with calls whose handlers do nothing, over memory and over UDP
    Bench {
        #[command(flatten)]
        load: LoadArgs,
    },
}

#[derive(clap::Args, Clone)]
struct ServerArgs {
    /// Partitions of the cache
    #[arg(long, value_name = "N", default_value = "2")]
    partitions: NonZeroU16,
    /// Memory of each partition's log in MiB: a power of two
    #[arg(long, value_name = "MIB", default_value = "64")]
    log_mib: NonZeroU32,
    /// The sequencer's file. Without it, there is no sequencer
    #[arg(long, value_name = "FILE")]
    sequencer: Option<PathBuf>,
    /// Numbers that the sequencer reserves at once, at least two calls' worth
    #[arg(long, value_name = "N", hide = true, default_value_t = BLOCK.get(), value_parser = clap::value_parser!(u64).range(2 * u64::from(MAX_COUNT)..))]
    block: u64,
}

#[derive(clap::Args, Clone)]
struct LoadArgs {
    /// Keys
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = clap::value_parser!(u64).range(2..=1 << 32))]
    keys: u64,
    /// Bytes of a value; HERD's items have 48 bytes, 16 of which are the key
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u16).range(16..=1000))]
    value: u16,
    /// How long each mix runs
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    secs: NonZeroU16,
    /// Calls at a time. At most 64 are in flight to a partition; further ones wait
    #[arg(long, value_name = "N", default_value = "32")]
    outstanding: NonZeroU16,
}

/// The server's process, on this machine.
#[derive(clap::Args, Clone, Copy, Default)]
struct Cpu {
    /// Print a line of JSON for each mix, with the CPU time that this process spends per call
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
}

impl Cpu {
    /// The CPU time that the server has spent.
    fn spent(self) -> Result<Option<Duration>, Box<dyn Error>> {
        peers::cpu_time(self.server_pid)
    }

    /// A line of JSON for calls of a mix. `before` was spent before them.
    fn json(
        self,
        server: &str,
        mix: Mix,
        calls: u64,
        elapsed: Duration,
        before: Option<Duration>,
    ) -> Result<String, Box<dyn Error>> {
        let rate = calls as f64 / elapsed.as_secs_f64();
        let spent = self.spent()?.zip(before).map(|(after, before)| after - before);
        let cpu = spent.map(|spent| spent.as_secs_f64() * 1e9 / calls as f64);
        let cpu = cpu.map_or("null".into(), |ns| format!("{ns:.0}"));
        Ok(format!(
            "{{\"server\":\"{server}\",\"mix\":\"{mix}\",\"calls_per_s\":{rate:.0},\
             \"server_cpu_ns\":{cpu}}}"
        ))
    }
}

/// The program. Reads the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("herd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    match &args.command {
        None => {
            let file = TemporaryFile::new("numbers");
            let mut server = args.server.clone();
            server.sequencer.get_or_insert_with(|| file.0.clone());
            let servers = Servers::start("127.0.0.1:0", &server)?;
            client(&servers.addresses(), Cpu::default(), &args.load)?;
            servers.stop();
            bench::run(&args.load)
        }
        Some(Command::Server { listen, server }) => {
            let servers = Servers::start(listen, server)?;
            let addresses: Vec<_> = servers.addresses().iter().map(ToString::to_string).collect();
            println!("listening {}", addresses.join(" "));
            servers.wait()
        }
        Some(Command::Peer { protocol, connect, cpu, load }) => {
            peers::run(*protocol, connect, *cpu, load)
        }
        Some(Command::Client { connect, partitions, cpu, load }) => {
            let first = connect.to_socket_addrs()?.next();
            let first = first.ok_or_else(|| format!("{connect} has no address"))?;
            let addresses: Option<Vec<_>> = (0..partitions.get())
                .map(|number| Some((first.ip(), first.port().checked_add(number)?).into()))
                .collect();
            client(&addresses.ok_or("the ports end at 65535")?, *cpu, load)
        }
        Some(Command::Bench { load }) => bench::run(load),
    }
}

/// How to open an endpoint, at both ends: a client has one session to a partition, which carries all its
/// calls, and has as many slots as the end with fewer.
fn endpoint_config() -> EndpointConfig {
    EndpointConfig::new().slots(64)
}

/// Checks all mixes against a server, and its sequencer if it has one.
fn client(addresses: &[SocketAddr], cpu: Cpu, args: &LoadArgs) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::udp_with(&UdpConfig::new(), endpoint_config())?;
    let clients: Result<Vec<_>, _> =
        addresses.iter().map(|&address| LocalCacheClient::connect(&endpoint, address)).collect();
    let partitions = endpoint.block_on(Partitions::new(clients?))?;
    let (window, time) =
        (args.outstanding.get().into(), Duration::from_secs(args.secs.get().into()));
    let mut load = Load::new(partitions, args.keys, args.value.into());
    let turn = || {
        endpoint.run_once();
    };
    let tally = load.fill(window, turn)?;
    println!("{:24} {:9.0} calls/s", "all keys written", tally.rate());
    for mix in Mix::ALL {
        let before = cpu.spent()?;
        let tally = load.run(mix, window, time, turn)?;
        if before.is_some() {
            println!("{}", cpu.json("erpc", mix, tally.calls(), tally.elapsed, before)?);
        }
        println!(
            "{:24} {:9.0} calls/s, {:.1} % of the reads found a value",
            mix.to_string(),
            tally.rate(),
            100.0 * tally.hits as f64 / tally.reads.max(1) as f64
        );
    }
    let counts = endpoint.block_on(load.counts())?;
    println!(
        "{} values; {} forgotten for want of memory, {} of slots, {} expired",
        counts.values, counts.overwritten, counts.displaced, counts.expired
    );
    let sequencer = LocalSequencerClient::connect(&endpoint, addresses[0])?;
    match endpoint.block_on(sequencer.next(NextRequest::new().with_count(1))) {
        Err(CallError::NoSuchMethod(_)) => println!("the server has no sequencer"),
        _ => {
            let rate = load::numbers(&sequencer, window, time, turn)?;
            println!("{:24} {rate:9.0} calls/s", "sequencer");
        }
    }
    println!("all answers were correct");
    Ok(())
}

/// A file that is removed at the end, with those beside it.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(purpose: &str) -> Self {
        let name = format!("erpc-herd-{}-{purpose}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        for ending in ["", ".lock", ".new"] {
            let mut path = self.0.as_os_str().to_owned();
            path.push(ending);
            // It may not be there.
            std::fs::remove_file(path).unwrap_or_default();
        }
    }
}
