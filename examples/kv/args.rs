//! The command line.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::network::NetworkArgs;

/// A key-value store over erpc, and a load that checks every answer.
///
/// Without a command, server and client run in this process and talk over UDP.
#[derive(Parser)]
#[command(name = "kv", args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs the server.
    Server(ServerArgs),
    /// Stores files at a server, then reads, writes, deletes and lists, and checks every answer.
    ///
    /// All clients of one server must use the same files.
    Client(ClientArgs),
    /// Writes one value to standard output.
    Get(GetArgs),
}

#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// The address to listen on.
    #[arg(long, value_name = "ADDR", default_value_t = format!("0.0.0.0:{}", erpc::DEFAULT_PORT))]
    pub(crate) listen: String,
    /// Event loops, each on a thread.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroU16,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(clap::Args)]
pub(crate) struct ClientArgs {
    /// The server's address.
    #[arg(long, value_name = "ADDR")]
    pub(crate) connect: String,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(clap::Args)]
pub(crate) struct GetArgs {
    /// The key.
    pub(crate) key: String,
    /// The server's address.
    #[arg(long, value_name = "ADDR")]
    pub(crate) connect: String,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(clap::Args)]
pub(crate) struct LoadArgs {
    /// Stores the files of this folder instead of this project's sources.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// How long to run once the files are stored.
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    pub(crate) secs: NonZeroU16,
    /// Calls that each thread keeps in flight.
    #[arg(long, value_name = "N", default_value = "64")]
    pub(crate) outstanding: NonZeroU16,
    /// Client threads; without a command, also the event loops of the server.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroU16,
}

/// The arguments of this process. `--help` prints the help and exits.
pub(crate) fn parse() -> Result<Args, Failure> {
    Args::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        _ => Failure::Usage(one_line(&error.to_string())),
    })
}

/// The first paragraph of clap's error, as one line. The usage in further paragraphs is dropped.
fn one_line(error: &str) -> String {
    let first = error.split("\n\n").next().unwrap_or(error);
    let words: Vec<_> = first.trim_start_matches("error: ").split_whitespace().collect();
    words.join(" ")
}
