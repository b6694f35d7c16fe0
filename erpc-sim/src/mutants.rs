//! Does the net catch? Bugs are put into the protocol one at a time, and seeds run until one of them
//! breaks a rule.

use erpc_core::mutants::{ALL, Mutant, choose};

use crate::oracle::Violation;
use crate::plan::Cut;
use crate::runner::run_seeds;

/// What became of one bug.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The bug.
    pub mutant: Mutant,
    /// What it does.
    pub what: &'static str,
    /// The number of seeds it took and how it showed; `None` if it was not caught.
    pub caught: Option<(u64, Violation)>,
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
        choose(None);
        let caught = summary.failure.map(|(seed, violation)| (seed - from + 1, violation));
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
