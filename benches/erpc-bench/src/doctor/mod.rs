//! `doctor` looks at the machine, and says which transports would work on it, which not, and what
//! to do about each.

mod facts;
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
}

/// Reads the facts, judges them, and prints both on standard output. A transport that would not
/// work is a finding and not a failure of the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let facts = facts::Facts::read(Path::new("/"));
    let verdicts = verdicts::judge(&facts);
    let advice = verdicts::advice(&facts);
    let text = if args.json {
        format!("{}\n", print::json(&facts, &verdicts, &advice))
    } else {
        print::text(&facts, &verdicts, &advice)
    };
    print::write(&text)
}
