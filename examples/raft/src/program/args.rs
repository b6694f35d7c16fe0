//! The arguments of the commands.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(name = "raft", version, about = "A replicated key-value store: Raft over erpc")]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    /// How the nodes of the demonstration agree
    #[arg(long, value_enum, default_value_t)]
    pub(super) consensus: Algorithm,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Runs one node, until SIGINT or SIGTERM
    Node(NodeArgs),
    /// Reads, writes, measures and asks
    Client(ClientArgs),
    /// Measures writes to three nodes in this process, over the memory transport
    Latency(LatencyArgs),
}

/// How the nodes agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Algorithm {
    /// Raft, by the crate `raft`
    #[default]
    Raft,
    /// Omni-Paxos, by the crate `omnipaxos`. The members do not change
    OmniPaxos,
}

#[derive(clap::Args)]
pub(super) struct NodeArgs {
    /// The number of the node, not 0. A number is used once: a node that has lost its data comes back
    /// under another one
    #[arg(long)]
    pub(super) id: u64,
    /// All nodes that the cluster begins with. Of a node that joins: itself
    #[arg(long, value_delimiter = ',', value_parser = peer, required = true, value_name = "ID=ADDRESS,..")]
    pub(super) peers: Vec<(u64, SocketAddr)>,
    /// The folder for the node's data
    #[arg(long, required_unless_present = "volatile")]
    pub(super) dir: Option<PathBuf>,
    /// Keep nothing on disk. A node that has stopped must not come back under its number
    #[arg(long, conflicts_with = "dir")]
    pub(super) volatile: bool,
    /// Wait to be added to a cluster, with `client change`
    #[arg(long)]
    pub(super) join: bool,
    /// The name of the cluster
    #[arg(long, default_value = "raft")]
    pub(super) cluster: String,
    /// How the nodes agree. All nodes of a cluster have the same
    #[arg(long, value_enum, default_value_t)]
    pub(super) consensus: Algorithm,
    /// Milliseconds after which a node without a leader wants an election, up to twice as many
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(super) election_ms: u64,
    /// Read by leases. Only for machines whose clocks run at the same rate, within a tenth
    #[arg(long)]
    pub(super) lease: bool,
    /// Make a snapshot after so many kilobytes of commands
    #[arg(long, default_value_t = 65_536)]
    pub(super) snapshot_kb: u64,
}

#[derive(clap::Args)]
pub(super) struct ClientArgs {
    /// Addresses of nodes. One is enough if it is up
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "127.0.0.1:4001",
        value_name = "ADDRESS,.."
    )]
    pub(super) connect: Vec<String>,
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Subcommand)]
pub(super) enum Action {
    /// Sets a key
    Put {
        /// The key
        key: String,
        /// Its value
        value: String,
    },
    /// Prints the value of a key; fails if there is none
    Get {
        /// The key
        key: String,
    },
    /// Sets a key if it has the expected value; fails if not
    Cas {
        /// The key
        key: String,
        /// The expected value
        #[arg(required_unless_present = "absent")]
        expected: Option<String>,
        /// Expect no value
        #[arg(long, conflicts_with = "expected")]
        absent: bool,
        /// The new value
        #[arg(long)]
        to: String,
    },
    /// Writes with many clients, and prints how many and how fast
    Bench(BenchArgs),
    /// Prints what the nodes say of themselves; fails if one is silent
    Status,
    /// Changes the members. Several changes at once are made together
    Change {
        /// Nodes that get a vote
        #[arg(long, value_parser = peer, value_name = "ID=ADDRESS")]
        add: Vec<(u64, SocketAddr)>,
        /// Nodes that get the log, but no vote
        #[arg(long, value_parser = peer, value_name = "ID=ADDRESS")]
        learner: Vec<(u64, SocketAddr)>,
        /// Nodes that leave
        #[arg(long, value_name = "ID")]
        remove: Vec<u64>,
    },
    /// Hands the leadership over
    Transfer {
        /// To this node; without it, to the one with the longest log
        #[arg(default_value_t = 0)]
        to: u64,
    },
}

#[derive(clap::Args)]
pub(super) struct BenchArgs {
    /// Clients, each with one write at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) clients: u32,
    /// Seconds to measure
    #[arg(long, default_value_t = 5)]
    pub(super) secs: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub(super) value: u32,
    /// Different keys, of 16 bytes
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) keys: u64,
}

#[derive(clap::Args)]
pub(super) struct LatencyArgs {
    /// Writes to measure
    #[arg(long, default_value_t = 200_000)]
    pub(super) writes: u64,
    /// Clients, each with one write at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) clients: u32,
    /// How the nodes agree
    #[arg(long, value_enum, default_value_t)]
    pub(super) consensus: Algorithm,
    /// Threads; with two, two of the nodes are in the second
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(super) threads: u32,
}

/// `ID=ADDRESS`.
fn peer(text: &str) -> Result<(u64, SocketAddr), String> {
    let (id, address) = text.split_once('=').ok_or("give ID=ADDRESS, as 1=127.0.0.1:4001")?;
    let id = id.parse().ok().filter(|id| *id != 0).ok_or("an id is a number above 0")?;
    let address =
        address.parse().map_err(|_| format!("{address:?} is no address, as 127.0.0.1:4001"))?;
    Ok((id, address))
}
