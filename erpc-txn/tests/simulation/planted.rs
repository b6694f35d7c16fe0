//! Random runs find deliberate bugs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use erpc_txn::mutants::{ALL, choose};

use crate::chaos::run;

/// Within this many seeds, each bug must show.
const SEEDS: u64 = 1000;

/// All bugs, or the one that the environment variable `TXN_BUG` names. `TXN_FROM` is the first seed.
#[test]
fn every_planted_bug_is_found() {
    let from = std::env::var("TXN_FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(0);
    let only = std::env::var("TXN_BUG").ok();
    let mut missed = Vec::new();
    std::panic::set_hook(Box::new(|_| {}));
    for &(mutant, effect) in ALL {
        let name = format!("{mutant:?}");
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        choose(Some(mutant));
        let found = (from..from + SEEDS).find_map(|seed| {
            let error = match catch_unwind(AssertUnwindSafe(|| run(seed))) {
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
