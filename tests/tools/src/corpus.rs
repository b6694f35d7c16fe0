//! Inputs of fuzz targets that are kept: seeds, and what a fuzzer has found.

use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The folder of a target's inputs.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../erpc-sim/fuzz/corpus").join(target)
}

/// Runs a target over all its inputs. Returns their number.
///
/// # Panics
/// If the target panics; the message names the file. If there is no input.
pub fn survive<R>(target: &str, run: impl Fn(&[u8]) -> R + RefUnwindSafe) -> usize {
    let files = fs::read_dir(folder(target));
    let files = files.unwrap_or_else(|error| panic!("{target} has no corpus: {error}"));
    let mut paths: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{target} has an empty corpus");
    for path in &paths {
        let bytes = fs::read(path).expect("a readable file");
        let outcome = catch_unwind(|| drop(run(&bytes)));
        assert!(outcome.is_ok(), "{target} fails on {}", path.display());
    }
    paths.len()
}

/// Writes an input. Others stay.
///
/// # Panics
/// If it cannot be written.
pub fn write(target: &str, name: &str, bytes: &[u8]) {
    fs::create_dir_all(folder(target)).expect("a writable folder");
    fs::write(folder(target).join(name), bytes).expect("a writable file");
}
