//! `erpc-sim run`: many seeds, all faults; `erpc-sim mutants`: does the net catch?

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use erpc_sim::plan::Cut;
use erpc_sim::runner::{Outcome, run_seeds, silence_panics};
use erpc_sim::shrink::shrink;
use erpc_sim::{Feature, Features, Scenario};

#[derive(Parser)]
#[command(about = "Runs erpc in a simulated network and looks at everything that happens")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs seeds with all faults; the first failure is made smaller and ends it.
    Run(Run),
    /// Puts bugs into the protocol, one at a time, and runs seeds until each is caught. Needs a build
    /// with `--cfg erpc_mutants`; see `.ci/mutants`.
    Mutants(Mutants),
}

#[derive(clap::Args)]
struct Mutants {
    /// Seeds per bug, at most.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 62))]
    from: u64,
    /// Only every so many-th bug, from the one with the number `--shard` on.
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// The number of the first bug.
    #[arg(long, default_value_t = 0)]
    shard: usize,
    /// Threads. By default as many as there are processors.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

#[derive(clap::Args)]
struct Run {
    /// How many seeds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 62))]
    from: u64,
    /// The shape of all runs: pair, star, two-tier, incast or calm. By default each seed's own.
    #[arg(long, value_parser = scenario)]
    scenario: Option<Scenario>,
    /// Features that no run shall have, by name.
    #[arg(long, value_delimiter = ',', value_parser = feature)]
    without: Vec<Feature>,
    /// Single happenings to leave out, by number.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<usize>,
    /// Threads. By default as many as there are processors.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Prints every packet.
    #[arg(long)]
    packets: bool,
    /// Prints how often faults acted, and with up to 20 seeds what came of each.
    #[arg(long)]
    verbose: bool,
}

fn scenario(name: &str) -> Result<Scenario, String> {
    Scenario::named(name).ok_or_else(|| {
        let names: Vec<_> = Scenario::ALL.iter().map(|scenario| scenario.name()).collect();
        format!("no such scenario; there are {}", names.join(", "))
    })
}

fn feature(name: &str) -> Result<Feature, String> {
    Feature::named(name).ok_or_else(|| {
        let names: Vec<_> = Feature::ALL.iter().map(|feature| feature.name()).collect();
        format!("no such feature; there are {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    silence_panics();
    match Arguments::parse().command {
        Command::Run(run) => run.run(),
        Command::Mutants(mutants) => mutants.run(),
    }
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Mutants {
    #[cfg(not(erpc_mutants))]
    fn run(self) -> ExitCode {
        eprintln!("this build has no bugs to put in; `.ci/mutants` makes one that has");
        ExitCode::FAILURE
    }

    #[cfg(erpc_mutants)]
    fn run(self) -> ExitCode {
        use erpc_sim::mutants::{count, hunt};

        let threads = self.threads.map_or_else(available_threads, usize::from);
        let which = (self.shard..count()).step_by(self.shards.max(1));
        let hunts = hunt(which, self.from, self.seeds, threads, |hunt| match &hunt.caught {
            Some((seeds, violation)) => {
                let shown: String = violation.what.chars().take(100).collect();
                println!("{:?}: caught in {seeds} seeds: {shown}", hunt.mutant);
            }
            None => {
                println!("{:?}: NOT CAUGHT in {} seeds: {}", hunt.mutant, self.seeds, hunt.what)
            }
        });
        let caught: Vec<_> = hunts.iter().filter_map(|hunt| hunt.caught.as_ref()).collect();
        let seeds: u64 = caught.iter().map(|(seeds, _)| seeds).sum();
        println!(r#"{{"mutants":{},"caught":{},"seeds":{seeds}}}"#, hunts.len(), caught.len());
        ExitCode::from(u8::from(caught.len() < hunts.len()))
    }
}

impl Run {
    fn run(self) -> ExitCode {
        let threads = self.threads.map_or_else(available_threads, usize::from);
        let cut = Cut {
            without: Features::of(&self.without),
            skip: self.skip.clone(),
            prints: self.packets,
        };
        let began = Instant::now();
        let verbose = self.verbose;
        let each = |seed: u64, outcome: &Outcome| {
            if verbose && self.seeds <= 20 {
                println!("{seed}: {outcome:?}");
            }
        };
        let summary = run_seeds(self.from, self.seeds, self.scenario, threads, &cut, &each);
        let seconds = began.elapsed().as_secs_f64();
        if let Some((seed, violation)) = &summary.failure {
            println!("seed {seed} fails {violation}");
            let shrunk = shrink(*seed, self.scenario, &cut, violation.clone());
            println!("made smaller in {} runs, it fails {}", shrunk.runs, shrunk.violation);
            println!("  {}", shrunk.command(*seed, self.scenario));
        }
        if verbose {
            println!("{:?}\n{:?}\n{:?}", summary.faults, summary.happened, summary.outcomes);
            println!("at most {} thousandths of the time bound were used", summary.bound_used);
        }
        let failures = u32::from(summary.failure.is_some());
        println!(
            r#"{{"seeds":{},"threads":{threads},"packets":{},"calls":{},"failures":{failures},"packets_per_s":{:.0},"trace_hash":"{:016x}"}}"#,
            summary.seeds,
            summary.packets,
            summary.calls,
            summary.packets as f64 / seconds,
            summary.trace_hash,
        );
        ExitCode::from(u8::from(failures > 0))
    }
}
