//! Checks that the simulator catches bugs. Plants bugs in the protocol, one at a time, and runs
//! seeds until one breaks a rule.

use erpc_core::mutants::{ALL, Catcher, Mutant, Planted, choose, is_chosen};

use crate::oracle::Violation;
use crate::plan::Cut;
use crate::runner::run_seeds;
use crate::shrink::command;
use crate::typed;

/// The number of columns in which `suggestions` lists all names.
const COLUMNS: usize = 3;

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
    /// The number of threads.
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
    for &Planted { mutant, effect: what, catcher } in which.filter_map(|at| ALL.get(at)) {
        let search = |from| match catcher {
            Catcher::Run => {
                run_seeds(from, most, None, threads, &Cut::default(), &|_, _| {}).failure
            }
            Catcher::Typed => typed::run_seeds(from, most, threads).failure,
            // `.ci/mutants` runs the tests.
            Catcher::Test(..) => None,
        };
        if matches!(catcher, Catcher::Test(..)) {
            continue;
        }
        choose(Some(mutant));
        let (mut next, mut seeds, mut caught) = (from, Vec::new(), None);
        for _ in 0..catches {
            let Some((seed, violation)) = search(next) else { break };
            seeds.push(seed - next + 1);
            next = seed + 1;
            let command = match catcher {
                Catcher::Typed => typed::command(seed),
                Catcher::Run | Catcher::Test(..) => command(seed, None, &Cut::default()),
            };
            caught.get_or_insert(Catch { seed, violation, command });
        }
        choose(None);
        let hunt = Hunt { mutant, what, caught, seeds };
        each(&hunt);
        hunts.push(hunt);
    }
    hunts
}

/// The bugs with the indices `which` that tests have to detect: their names, and the targets and
/// paths of the tests.
pub fn tested(
    which: impl Iterator<Item = usize>,
) -> impl Iterator<Item = (Mutant, &'static str, &'static str)> {
    which.filter_map(|at| match ALL.get(at)? {
        &Planted { mutant, catcher: Catcher::Test(target, test), .. } => {
            Some((mutant, target, test))
        }
        _ => None,
    })
}

/// The number of bugs.
#[must_use]
pub fn count() -> usize {
    ALL.len()
}

/// The index of the bug with this name.
#[must_use]
pub fn place(name: &str) -> Option<usize> {
    ALL.iter().position(|planted| format!("{:?}", planted.mutant) == name)
}

/// The names that are similar to `name`, as the end of a message. All names if none is similar.
#[must_use]
pub fn suggestions(name: &str) -> String {
    let names = || ALL.iter().map(|planted| format!("{:?}", planted.mutant));
    let wanted = name.to_lowercase();
    let is_near = |other: &String| {
        let other = other.to_lowercase();
        other.contains(&wanted) || distance(&wanted, &other) <= wanted.len() / 3
    };
    let near: Vec<_> = names().filter(is_near).collect();
    if !near.is_empty() && !name.is_empty() {
        return format!("similar names: {}", near.join(", "));
    }
    let columns: Vec<_> = names().collect();
    let width = columns.iter().map(String::len).max().unwrap_or(0) + 2;
    let rows = columns.chunks(COLUMNS).map(|row| {
        let row: String = row.iter().map(|name| format!("{name:width$}")).collect();
        format!("\n  {}", row.trim_end())
    });
    format!("there are:{}", rows.collect::<String>())
}

/// The number of letters to insert, remove or replace that turns one word into the other
/// (Levenshtein distance).
fn distance(from: &str, to: &str) -> usize {
    // In each step of the loop: the distances from the prefix of `from` that ends at `letter` to
    // every prefix of `to`.
    let mut distances: Vec<_> = (0..=to.chars().count()).collect();
    for (at, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut distances[0], at + 1);
        for (other, place) in to.chars().zip(1..) {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = distances[place];
            distances[place] = replaced.min(diagonal + 1).min(distances[place - 1] + 1);
        }
    }
    distances[to.chars().count()]
}

/// The planted bug, if any.
#[must_use]
pub fn chosen() -> Option<Mutant> {
    ALL.iter().map(|planted| planted.mutant).find(|mutant| is_chosen(*mutant))
}

#[cfg(test)]
mod tests {
    use super::suggestions;

    #[test]
    fn a_misspelt_bug_has_suggestions() {
        for name in ["ExecutedTwise", "executedtwice", "tedtwi"] {
            assert_eq!(suggestions(name), "similar names: ExecutedTwice");
        }
        let all = suggestions("NoSuchBug");
        assert!(all.starts_with("there are:\n  CreditLeak "), "{all}");
        assert!(all.lines().all(|line| line.len() <= 120), "{all}");
    }
}
