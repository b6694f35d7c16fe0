//! `shell`: reads and writes of single keys, and small transactions.
//!
//! * `command`: what a line means. `input`: where lines come from. `run`: what commands do.

mod command;
mod input;
mod run;

use std::io::IsTerminal;

use clap::Args;

use crate::failure::Failure;
use crate::output;
use crate::outside::{self, WhereArgs};
use command::Names;
use input::Lines;

#[derive(Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    at: WhereArgs,
}

/// Runs commands until the input ends. At a terminal, mistakes are shown and the shell goes on; in a
/// script, the first one ends it.
pub(crate) fn shell(args: &ShellArgs) -> Result<(), Failure> {
    let at = args.at.read()?;
    let endpoint = outside::endpoint()?;
    endpoint.block_on(async {
        let cluster = outside::connect(&endpoint, &at.addresses).await?;
        let described = cluster.describe().await.map_err(Failure::of("the node left"))?;
        let ids = described.tables.iter().filter_map(|table| u16::try_from(table.id).ok());
        let names = Names::new(ids, at.tables);
        let is_terminal = std::io::stdin().is_terminal();
        if is_terminal {
            let nodes = described.nodes.len();
            output::line(format_args!("{nodes} nodes, {names}. `help` lists the commands."))?;
        }
        let lines = Lines::open(is_terminal, names.words())?;
        run::run(&cluster, &names, lines, is_terminal).await
    })
}
