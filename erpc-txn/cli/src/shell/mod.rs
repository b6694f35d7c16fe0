//! `shell`: reads and writes of single keys, and small transactions.
//!
//! * `command`: what a line means. `input`: where lines come from. `run`: what commands do.

mod command;
mod input;
mod run;

use std::io::IsTerminal;

use clap::Args;

use crate::failure::Failure;
use crate::outside::{self, WhereArgs};
use crate::{config, output};
use command::Names;
use input::Lines;

#[derive(Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    at: WhereArgs,
    /// The name of a table, for example 1=users; a node tells only numbers
    #[arg(long = "table", value_name = "ID=NAME", value_parser = name, conflicts_with = "config")]
    tables: Vec<(u16, String)>,
}

fn name(text: &str) -> Result<(u16, String), String> {
    let (id, name) = text.split_once('=').ok_or("a number and a name, as 1=users")?;
    let id = id.parse().map_err(|_| format!("{id} is not the number of a table"))?;
    config::check_name(name)?;
    Ok((id, name.to_owned()))
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
        let ids: Vec<_> = ids.collect();
        let mut tables = at.tables;
        for (id, name) in &args.tables {
            if tables.contains_key(id) || tables.values().any(|other| other == name) {
                let why = format!("--table {id}={name}: the table or the name is there twice");
                return Err(Failure::new(why));
            }
            if !ids.contains(id) {
                let has = Names::new(ids, tables);
                let why = format!("--table {id}={name} does not fit; the cluster has {has}");
                return Err(Failure::new(why));
            }
            tables.insert(*id, name.clone());
        }
        let names = Names::new(ids, tables);
        let is_terminal = std::io::stdin().is_terminal();
        if is_terminal {
            let nodes = output::count(described.nodes.len(), "node");
            output::line(format_args!("{nodes}, {names}. `help` lists the commands."))?;
        }
        let lines = Lines::open(is_terminal, names.words())?;
        run::run(&cluster, &names, lines, is_terminal).await
    })
}
