//! Random runs find deliberate bugs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use erpc_raft::mutants::{ALL, Mutant, choose};

use crate::chaos::run;
use crate::cluster::Algorithm;
use crate::{leases, overtaken};

/// Within this many seeds, each bug must show.
const SEEDS: u64 = 200;

fn chaos(algorithm: Algorithm, seed: u64) -> Result<(), String> {
    run(algorithm, seed).map(drop)
}

/// All bugs, or the one that the environment variable `RAFT_BUG` names. `RAFT_FROM` is the first seed.
#[test]
fn every_planted_bug_is_found() {
    let from = std::env::var("RAFT_FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(0);
    let only = std::env::var("RAFT_BUG").ok();
    let mut missed = Vec::new();
    std::panic::set_hook(Box::new(|_| {}));
    for &(mutant, effect) in ALL {
        let name = format!("{mutant:?}");
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        choose(Some(mutant));
        let is_lease = name.contains("Lease");
        let algorithms: &[_] = match effect.trim().starts_with("Omni-Paxos") {
            true => &[Algorithm::OmniPaxos],
            // A hand-over of Omni-Paxos takes one round of messages.
            false if is_lease => &[Algorithm::Raft, Algorithm::OmniPaxos],
            false => &[Algorithm::Raft],
        };
        let runs = algorithms
            .iter()
            .flat_map(|algorithm| (from..from + SEEDS).map(move |seed| (*algorithm, seed)));
        let found = runs.into_iter().find_map(|(algorithm, seed)| {
            // Random runs rarely do what these bugs need.
            let run = match mutant {
                Mutant::TermNotCompared => overtaken::run,
                _ if is_lease => leases::run,
                _ => chaos,
            };
            let error = match catch_unwind(AssertUnwindSafe(|| run(algorithm, seed))) {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => error,
                Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or("a panic".into()),
            };
            Some((seed, error))
        });
        choose(None);
        match found {
            Some((seed, error)) => {
                println!("{name}: seed {seed}: {}", error.lines().next().unwrap_or_default());
            }
            None => {
                println!("{name}: NOT FOUND ({})", effect.trim());
                missed.push(name);
            }
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
