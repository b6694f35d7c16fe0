//! Every fuzz target over its corpus: what fuzzing has once found stays found.

use std::fs;
use std::path::{Path, PathBuf};

use erpc_sim::fuzz::{TARGETS, seeds};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

#[test]
fn every_target_survives_its_corpus() {
    for (name, target) in TARGETS {
        let files = fs::read_dir(corpus(name));
        let files = files.unwrap_or_else(|error| panic!("{name} has no corpus: {error}"));
        let mut paths: Vec<PathBuf> =
            files.map(|file| file.expect("a readable folder").path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{name} has an empty corpus");
        for path in paths {
            let input = fs::read(&path).expect("a readable file");
            // A panic inside names no file: this does.
            let outcome = std::panic::catch_unwind(|| target(&input));
            assert!(outcome.is_ok(), "{name} fails on {}", path.display());
        }
    }
}

#[test]
fn every_target_survives_its_seeds() {
    for seed in seeds() {
        let target = TARGETS.iter().find(|(name, _)| *name == seed.target);
        let (_, target) = target.unwrap_or_else(|| panic!("{} is no target", seed.target));
        let outcome = std::panic::catch_unwind(|| target(&seed.bytes));
        assert!(outcome.is_ok(), "{} fails on {}", seed.target, seed.name);
    }
}

#[test]
fn every_target_has_seeds() {
    for (name, _) in TARGETS {
        assert!(seeds().iter().any(|seed| seed.target == name), "{name} has none");
    }
}

/// Not a check but the generator: `cargo test -p erpc-sim --test corpora -- --ignored` writes the seeds
/// into the corpora, where files that fuzzing has added stay.
#[test]
#[ignore = "writes files"]
fn write_the_seeds() {
    for seed in seeds() {
        let folder = corpus(seed.target);
        fs::create_dir_all(&folder).expect("a writable folder");
        fs::write(folder.join(&seed.name), &seed.bytes).expect("a writable file");
    }
}
