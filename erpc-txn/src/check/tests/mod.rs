mod exhaustive;
mod generator;
mod graph;
mod injected;
mod list_generator;
mod lists;
mod speed;
mod unknown;
mod valid;

use super::Violation;

/// The ids of a violation, sorted: where a cycle begins does not matter.
fn involved(violation: &Violation) -> Vec<u64> {
    let mut ids = violation.transactions.clone();
    ids.sort_unstable();
    ids
}
