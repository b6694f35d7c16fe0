//! Runs every fuzz target over its corpus, so that a bug that fuzzing has found does not come back.

use std::fs;

use erpc_sim::fuzz::{TARGETS, seeds};
use erpc_test_tools::corpus;

#[test]
fn every_target_survives_its_corpus() {
    for (name, target) in TARGETS {
        corpus::survive(name, target);
    }
}

#[test]
fn every_target_has_its_seeds_in_its_corpus() {
    for (name, _) in TARGETS {
        let seeds: Vec<_> = seeds().into_iter().filter(|seed| seed.target == name).collect();
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            let file = fs::read(corpus::folder(name).join(&seed.name)).unwrap_or_default();
            assert_eq!(
                file, seed.bytes,
                "{name}/{} differs from its seed; see `write_the_seeds`",
                seed.name
            );
        }
    }
}

/// A generator, not a check: `cargo test -p erpc-sim --test corpora -- --ignored` writes the seeds
/// into the corpora. Files that fuzzing has added stay.
#[test]
#[ignore = "writes files"]
fn write_the_seeds() {
    for seed in seeds() {
        corpus::write(seed.target, &seed.name, &seed.bytes);
    }
}
