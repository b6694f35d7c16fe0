//! Runs every fuzz target over its corpus, so that a bug that fuzzing has found does not come back.

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
            // A panic of the target does not name the file; this assertion does.
            let outcome = std::panic::catch_unwind(|| target(&input));
            assert!(outcome.is_ok(), "{name} fails on {}", path.display());
        }
    }
}

#[test]
fn every_target_has_its_seeds_in_its_corpus() {
    for (name, _) in TARGETS {
        let seeds: Vec<_> = seeds().into_iter().filter(|seed| seed.target == name).collect();
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            let file = fs::read(corpus(name).join(&seed.name)).unwrap_or_default();
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
        let folder = corpus(seed.target);
        fs::create_dir_all(&folder).expect("a writable folder");
        fs::write(folder.join(&seed.name), &seed.bytes).expect("a writable file");
    }
}
