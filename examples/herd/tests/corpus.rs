//! The cache survives what a fuzzer has found, and random inputs.

use erpc_herd::cache::operations;
use erpc_test_tools::corpus;
use erpc_test_tools::random::Random;

const TARGET: &str = "herd_operations";

#[test]
fn the_corpus_is_survived() {
    corpus::survive(TARGET, operations);
}

fn random(seed: u64, len: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.word() as u8).collect()
}

#[test]
fn random_operations_are_survived() {
    for seed in 0..300 {
        let outcome = std::panic::catch_unwind(|| operations(&random(seed, 4000)));
        assert!(outcome.is_ok(), "the cache fails with seed {seed}");
    }
}

/// A generator, not a check: `cargo test -p erpc-herd --test corpus -- --ignored` writes seeds into the
/// corpus. Files that fuzzing has added stay.
#[test]
#[ignore = "writes files"]
fn write_the_seeds() {
    for seed in 0..8 {
        corpus::write(TARGET, &format!("random-{seed}"), &random(seed, 300));
    }
}
