//! `doctor` looks at the machine, and says which transports would work on it, which not, and what
//! to do about each. If a port of DPDK is named, it also says what that offers.

mod facts;
mod port;
mod print;
mod verdicts;

#[cfg(test)]
mod tests;

use std::path::Path;

use clap::Args;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Prints facts and verdicts as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    port: port::PortArgs,
}

/// Reads the facts, judges them, and prints both on standard output. A transport that would not
/// work is a finding and not a failure of the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let port = args.port.open()?;
    let facts = facts::Facts::read(Path::new("/"));
    let verdicts = verdicts::judge(&facts);
    let advice = verdicts::advice(&facts);
    let text = if args.json {
        format!("{}\n", print::json(&facts, &verdicts, &advice, port.as_ref()))
    } else {
        print::text(&facts, &verdicts, &advice, port.as_ref())
    };
    print::write(&text)
}
