//! The cache survives what a fuzzer has found, and random inputs.

use std::fs;
use std::path::{Path, PathBuf};

use erpc_herd::cache::operations;
use erpc_test_tools::random::Random;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../erpc-sim/fuzz/corpus/herd_operations")
}

#[test]
fn the_corpus_is_survived() {
    let files = fs::read_dir(corpus()).expect("there is a corpus");
    let mut paths: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "the corpus is empty");
    for path in paths {
        let bytes = fs::read(&path).expect("a readable file");
        let outcome = std::panic::catch_unwind(|| operations(&bytes));
        assert!(outcome.is_ok(), "the cache fails on {}", path.display());
    }
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
    fs::create_dir_all(corpus()).expect("a writable folder");
    for seed in 0..8 {
        fs::write(corpus().join(format!("random-{seed}")), random(seed, 300))
            .expect("a writable file");
    }
}
