//! Does the net catch? Bugs are put into the protocol one at a time, and seeds run until one of them
//! breaks a rule.

use erpc_core::mutants::{ALL, Mutant, choose, is_chosen};

use crate::oracle::Violation;
use crate::plan::Cut;
use crate::runner::run_seeds;
use crate::shrink::command;

/// What became of one bug.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The bug.
    pub mutant: Mutant,
    /// What it does.
    pub what: &'static str,
    /// How it showed the first time; `None` if it was not caught.
    pub caught: Option<Catch>,
    /// Seeds that each catch took, from the one behind the catch before; the last hunt found nothing if there are fewer than
    /// asked for.
    pub seeds: Vec<u64>,
}

/// How a bug was caught.
#[derive(Clone, Debug)]
pub struct Catch {
    /// The first seed that failed.
    pub seed: u64,
    /// And how.
    pub violation: Violation,
    /// The command that runs it again.
    pub command: String,
}

/// Where a hunt begins, and when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// The first seed.
    pub from: u64,
    /// Seeds per catch, at most.
    pub seeds: u64,
    /// Catches of each bug; each hunt begins behind the catch before.
    pub catches: u64,
    /// Threads.
    pub threads: usize,
}

/// Puts in one bug after the other, those in `which`, and runs seeds with each of them; tells `each` of every outcome.
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

/// How many bugs there are.
#[must_use]
pub fn count() -> usize {
    ALL.len()
}

/// The place of the bug of that name.
#[must_use]
pub fn place(name: &str) -> Option<usize> {
    ALL.iter().position(|(mutant, _)| format!("{mutant:?}") == name)
}

/// The bug of that name.
#[must_use]
pub fn named(name: &str) -> Option<Mutant> {
    Some(ALL[place(name)?].0)
}

/// The bug that is in now.
#[must_use]
pub fn chosen() -> Option<Mutant> {
    ALL.iter().map(|(mutant, _)| *mutant).find(|mutant| is_chosen(*mutant))
}
