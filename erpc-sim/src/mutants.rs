//! Checks that the simulator catches bugs. Plants bugs in the protocol, one at a time, and runs
//! seeds until one breaks a rule.

use erpc_core::mutants::{ALL, Mutant, choose, is_chosen};

use crate::oracle::Violation;
use crate::plan::Cut;
use crate::runner::run_seeds;
use crate::shrink::command;

/// The result for one bug.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The bug.
    pub mutant: Mutant,
    /// A description of the bug.
    pub what: &'static str,
    /// The first catch; `None` if the bug was not caught.
    pub caught: Option<Catch>,
    /// The number of seeds of each catch, counted from the catch before. If there are fewer catches
    /// than asked for, the last search found nothing.
    pub seeds: Vec<u64>,
}

/// How a bug was caught.
#[derive(Clone, Debug)]
pub struct Catch {
    /// The failed seed.
    pub seed: u64,
    /// The violation.
    pub violation: Violation,
    /// The command that runs the seed again.
    pub command: String,
}

/// The settings of the search.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// The first seed.
    pub from: u64,
    /// The most seeds per catch.
    pub seeds: u64,
    /// The number of catches of each bug. Each search starts after the seed of the catch before.
    pub catches: u64,
    /// Threads.
    pub threads: usize,
}

/// Plants the bugs with the indices `which`, one at a time, and runs seeds with each. Skips indices
/// without a bug. Calls `each` with every result.
#[must_use]
pub fn hunt(
    which: impl Iterator<Item = usize>,
    ground: Ground,
    mut each: impl FnMut(&Hunt),
) -> Vec<Hunt> {
    let Ground { from, seeds: most, catches, threads } = ground;
    let mut hunts = Vec::new();
    for &(mutant, what) in which.filter_map(|at| ALL.get(at)) {
        choose(Some(mutant));
        let (mut next, mut seeds, mut caught) = (from, Vec::new(), None);
        for _ in 0..catches {
            let summary = run_seeds(next, most, None, threads, &Cut::default(), &|_, _| {});
            let Some((seed, violation)) = summary.failure else { break };
            seeds.push(seed - next + 1);
            next = seed + 1;
            let command = command(seed, None, &Cut::default());
            caught.get_or_insert(Catch { seed, violation, command });
        }
        choose(None);
        let hunt = Hunt { mutant, what, caught, seeds };
        each(&hunt);
        hunts.push(hunt);
    }
    hunts
}

/// The number of bugs.
#[must_use]
pub fn count() -> usize {
    ALL.len()
}

/// The index of the bug with this name.
#[must_use]
pub fn place(name: &str) -> Option<usize> {
    ALL.iter().position(|(mutant, _)| format!("{mutant:?}") == name)
}

/// The bug with this name.
#[must_use]
pub fn named(name: &str) -> Option<Mutant> {
    Some(ALL[place(name)?].0)
}

/// The planted bug, if any.
#[must_use]
pub fn chosen() -> Option<Mutant> {
    ALL.iter().map(|(mutant, _)| *mutant).find(|mutant| is_chosen(*mutant))
}
