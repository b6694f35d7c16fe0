//! `erpc-sim run` runs many seeds, each with the faults that it draws; `erpc-sim typed` runs typed
//! endpoints. `erpc-sim mutants` checks that both catch planted bugs.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Instant;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use erpc_sim::plan::{Cut, Plan};
use erpc_sim::runner::{SeedOutcome, run_seeds, silence_panics};
use erpc_sim::shrink::shrink;
use erpc_sim::{Feature, Features, Scenario, say, typed};

#[derive(Parser)]
#[command(about = "Runs erpc in a simulated network and looks at everything that happens")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs seeds with all faults. The first failure ends the run and is reduced.
    Run(Run),
    /// Runs seeds with typed endpoints: channels, retries, resolvers, workers, tasks.
    Typed(Typed),
    /// Plants bugs in the protocol, one at a time, and runs seeds until each is caught. Needs a
    /// build with `--cfg erpc_mutants`; see `.ci/mutants`.
    Mutants(Mutants),
}

#[derive(clap::Args)]
struct Mutants {
    /// The most seeds per bug.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 62))]
    from: u64,
    /// The number of shards. This run takes the bugs `shard`, `shard + shards`, and so on.
    #[arg(long, default_value = "1")]
    shards: NonZeroUsize,
    /// The number of this shard, from 0; less than `--shards`.
    #[arg(long, default_value_t = 0)]
    shard: usize,
    /// Only these bugs, by name.
    #[arg(long, value_delimiter = ',', value_parser = bug)]
    bugs: Vec<usize>,
    /// How often to catch each bug. Each catch may take at most `--seeds` seeds after the catch
    /// before. With more than 1, prints the median and the largest number of seeds per catch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    catches: u64,
    /// Threads. By default the number of processors.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Runs no seeds. Prints the bugs that tests have to catch: name, test target, path of the
    /// test.
    #[arg(long)]
    tests: bool,
}

#[derive(clap::Args)]
struct Typed {
    /// The number of seeds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 62))]
    from: u64,
    /// A bug to plant, by its name in erpc-core/src/mutants.rs. Needs a build with
    /// `--cfg erpc_mutants`.
    #[arg(long, value_parser = bug)]
    bug: Option<usize>,
    /// Threads. By default the number of processors.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Prints the events of a single seed: calls, executions, restarts, queries.
    #[arg(long)]
    events: bool,
    /// Prints how calls ended.
    #[arg(long)]
    verbose: bool,
}

#[derive(clap::Args)]
struct Run {
    /// The number of seeds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 62))]
    from: u64,
    /// The shape of all runs: pair, star, two-tier, incast, calm or path. By default each seed
    /// selects its own.
    #[arg(long, value_parser = scenario)]
    scenario: Option<Scenario>,
    /// Features to leave out of all runs, by name.
    #[arg(long, value_delimiter = ',', value_parser = feature)]
    without: Vec<Feature>,
    /// Events of a single seed to leave out, by number from 0. A reduced run tells the events that
    /// remain.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<usize>,
    /// A bug to plant in the protocol, by its name in erpc-core/src/mutants.rs. Like the command
    /// `erpc-sim mutants`, this option needs a build with `--cfg erpc_mutants`.
    #[arg(long, value_parser = bug)]
    bug: Option<usize>,
    /// Threads. By default the number of processors.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Prints every packet of a single seed, why packets are lost, and all events.
    #[arg(long)]
    packets: bool,
    /// Prints how often faults acted and, if there are at most 20 seeds, the outcome of each seed.
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

/// The index of a planted bug in the list of all planted bugs.
#[cfg(erpc_mutants)]
fn bug(name: &str) -> Result<usize, String> {
    use erpc_sim::mutants::{place, suggestions};

    place(name).ok_or_else(|| format!("there is no bug {name}; {}", suggestions(name)))
}

#[cfg(not(erpc_mutants))]
fn bug(_: &str) -> Result<usize, String> {
    Err(no_bugs())
}

fn main() -> ExitCode {
    silence_panics();
    match Arguments::parse().command {
        Command::Run(run) => run.run(),
        Command::Typed(typed) => typed.run(),
        Command::Mutants(mutants) => {
            let Mutants { shards, shard, .. } = mutants;
            if shard >= shards.get() {
                let why = format!("there is no shard {shard} of {shards}; the first is 0");
                misused("mutants", &why);
            }
            mutants.run()
        }
    }
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Exits with an error and the usage of a subcommand: each argument is valid, but their combination
/// is not.
fn misused(subcommand: &str, why: &str) -> ! {
    let mut program = Arguments::command();
    program.build();
    let subcommand = program.find_subcommand_mut(subcommand).expect("a name of `Command`");
    subcommand.error(ErrorKind::ValueValidation, why).exit()
}

#[cfg(not(erpc_mutants))]
fn no_bugs() -> String {
    use erpc_sim::shrink::WITH_BUGS;

    format!("this build contains no planted bugs; begin the command with {WITH_BUGS}")
}

/// Plants a bug.
#[cfg(erpc_mutants)]
fn put_in(bug: usize) {
    erpc_core::mutants::choose(Some(erpc_core::mutants::ALL[bug].mutant));
}

/// Does nothing: [`bug`] has refused every name.
#[cfg(not(erpc_mutants))]
fn put_in(_: usize) {}

impl Mutants {
    #[cfg(not(erpc_mutants))]
    fn run(self) -> ExitCode {
        eprintln!("{}", no_bugs());
        ExitCode::FAILURE
    }

    #[cfg(erpc_mutants)]
    fn run(self) -> ExitCode {
        use erpc_sim::mutants::{Ground, count, hunt, tested};

        let Self { seeds: most, from, shards, shard, bugs, catches, threads, tests } = self;
        let threads = threads.map_or_else(available_threads, usize::from);
        let which = (shard..count()).step_by(shards.get());
        let which = which.filter(|at| bugs.is_empty() || bugs.contains(at));
        if tests {
            for (mutant, target, test) in tested(which) {
                say!("{mutant:?} {target} {test}");
            }
            return ExitCode::SUCCESS;
        }
        let hunts = hunt(which, Ground { from, seeds: most, catches, threads }, |hunt| {
            let mutant = hunt.mutant;
            if catches > 1 {
                return tell_seeds(hunt, catches);
            }
            match &hunt.caught {
                Some(catch) => {
                    let words = catch.violation.to_string();
                    let words: Vec<_> = words.split_whitespace().collect();
                    let shown: String = words.join(" ").chars().take(200).collect();
                    let seeds = hunt.seeds[0];
                    say!("{mutant:?}: caught in {seeds} seeds: {shown}\n  {}", catch.command);
                }
                None => say!("{mutant:?}: NOT CAUGHT in {most} seeds: {}", hunt.what),
            }
        });
        let caught = hunts.iter().filter(|hunt| hunt.seeds.len() as u64 == catches).count();
        let seeds: u64 = hunts.iter().flat_map(|hunt| &hunt.seeds).sum();
        say!(r#"{{"mutants":{},"caught":{caught},"seeds":{seeds}}}"#, hunts.len());
        if hunts.is_empty() {
            eprintln!("there are {} bugs, but seeds have to catch none of this shard", count());
        }
        ExitCode::from(u8::from(caught < hunts.len()))
    }
}

/// Prints how many seeds each catch of a bug needed.
#[cfg(erpc_mutants)]
fn tell_seeds(hunt: &erpc_sim::mutants::Hunt, catches: u64) {
    let mutant = hunt.mutant;
    let mut seeds = hunt.seeds.clone();
    seeds.sort_unstable();
    let (count, median, most) = (seeds.len(), seeds.get(seeds.len() / 2), seeds.last());
    let (Some(median), Some(most)) = (median, most) else {
        return say!("{mutant:?}: NOT CAUGHT: {}", hunt.what);
    };
    let missing = if (count as u64) < catches { ", then NOT CAUGHT" } else { "" };
    say!("{mutant:?}: caught {count} times{missing}; seeds: median {median}, most {most}");
}

impl Typed {
    fn run(self) -> ExitCode {
        if self.events && self.seeds > 1 {
            misused("typed", "--events prints the events of one seed, and needs --seeds 1");
        }
        if let Some(bug) = self.bug {
            put_in(bug);
        }
        let threads = self.threads.map_or_else(available_threads, usize::from);
        let began = Instant::now();
        if self.events {
            drop(typed::run_seed(self.from, true));
        }
        let summary = typed::run_seeds(self.from, self.seeds, threads);
        let seconds = began.elapsed().as_secs_f64();
        if let Some((seed, violation)) = &summary.failure {
            say!("seed {seed} fails {violation}");
            if self.seeds > 1 {
                say!("  {}", typed::command(*seed));
            }
        }
        if self.verbose {
            say!("{:?}", summary.outcomes);
        }
        let failures = u32::from(summary.failure.is_some());
        say!(
            r#"{{"seeds":{},"threads":{threads},"packets":{},"calls":{},"failures":{failures},"seeds_per_s":{:.0},"trace_hash":"{:016x}"}}"#,
            summary.seeds,
            summary.packets,
            summary.calls,
            summary.seeds as f64 / seconds,
            summary.trace_hash,
        );
        ExitCode::from(u8::from(failures > 0))
    }
}

impl Run {
    /// Exits with an error if the arguments contradict each other.
    fn check(&self) {
        if self.seeds == 1 {
            let scenario = self.scenario.unwrap_or_else(|| Scenario::of_seed(self.from));
            let cut = Cut { without: Features::of(&self.without), ..Cut::default() };
            let events = Plan::draw(self.from, scenario, &cut).events.len();
            if let Some(none) = self.skip.iter().find(|&&at| at >= events) {
                let why = format!("there is no event {none} to skip: this seed has {events}");
                misused("run", &format!("{why}, from 0 on"));
            }
        } else if !self.skip.is_empty() {
            misused("run", "--skip takes the numbers of one seed's events, and needs --seeds 1");
        } else if self.packets {
            misused("run", "--packets prints the packets of one seed, and needs --seeds 1");
        }
    }

    fn run(self) -> ExitCode {
        self.check();
        if let Some(bug) = self.bug {
            put_in(bug);
        }
        let threads = self.threads.map_or_else(available_threads, usize::from);
        let cut = Cut {
            without: Features::of(&self.without),
            skip: self.skip.clone(),
            prints: self.packets,
        };
        let began = Instant::now();
        let verbose = self.verbose;
        let each = |seed: u64, outcome: &SeedOutcome| {
            if verbose && self.seeds <= 20 {
                say!("{seed}: {outcome:?}");
            }
        };
        let summary = run_seeds(self.from, self.seeds, self.scenario, threads, &cut, &each);
        let seconds = began.elapsed().as_secs_f64();
        if let Some((seed, violation)) = &summary.failure {
            say!("seed {seed} fails {violation}");
            let shrunk = shrink(*seed, self.scenario, &cut, violation.clone());
            let is_smaller = shrunk.is_smaller(&cut);
            match is_smaller {
                true => say!("made smaller in {} runs, it fails {}", shrunk.runs, shrunk.violation),
                false => say!("cannot be made smaller ({} runs)", shrunk.runs),
            }
            for line in shrunk.rest(*seed, self.scenario) {
                say!("  {line}");
            }
            // If the run had one seed and was not reduced, this is the command that the user has
            // just run.
            if is_smaller || self.seeds > 1 {
                say!("  {}", shrunk.command(*seed, self.scenario));
            }
        }
        if verbose {
            say!("{:?}\n{:?}\n{:?}", summary.faults, summary.happened, summary.outcomes);
            say!("{:?}", summary.streams);
            say!("at most {} thousandths of the time bound were used", summary.bound_used);
        }
        let failures = u32::from(summary.failure.is_some());
        say!(
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
