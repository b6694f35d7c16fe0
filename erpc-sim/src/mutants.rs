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
    /// How it showed; `None` if it was not caught.
    pub caught: Option<Catch>,
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

/// Puts in one bug after the other, those in `which`, and runs up to `seeds` seeds from `from` on with
/// each of them; tells `each` of every outcome.
#[must_use]
pub fn hunt(
    which: impl Iterator<Item = usize>,
    from: u64,
    seeds: u64,
    threads: usize,
    mut each: impl FnMut(&Hunt),
) -> Vec<Hunt> {
    let mut hunts = Vec::new();
    for &(mutant, what) in which.filter_map(|at| ALL.get(at)) {
        choose(Some(mutant));
        let summary = run_seeds(from, seeds, None, threads, &Cut::default(), &|_, _| {});
        let caught = summary.failure.map(|(seed, violation)| {
            let command = command(seed, None, &Cut::default());
            Catch { seed, violation, command }
        });
        choose(None);
        let hunt = Hunt { mutant, what, caught };
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

/// The bug of that name.
#[must_use]
pub fn named(name: &str) -> Option<Mutant> {
    ALL.iter().map(|(mutant, _)| *mutant).find(|mutant| format!("{mutant:?}") == name)
}

/// The bug that is in now.
#[must_use]
pub fn chosen() -> Option<Mutant> {
    ALL.iter().map(|(mutant, _)| *mutant).find(|mutant| is_chosen(*mutant))
}
