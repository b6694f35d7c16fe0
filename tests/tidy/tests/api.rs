//! Compares the public items of `erpc` with `docs/api.txt`.
//!
//! After an intended change, `UPDATE_API=1 cargo test -p erpc-tidy --test api` writes
//! `docs/api.txt`. Review the difference, and describe in `CHANGELOG.md` what users have to change.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use erpc_tidy::surface::{Crate, surface};
use erpc_tidy::tree::SourceTree;

#[test]
fn the_public_items_are_those_in_api_txt() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let facade = SourceTree::load(&root.join("src")).unwrap();
    let core = SourceTree::load(&root.join("erpc-core/src")).unwrap();
    let crates = [Crate { name: "erpc", tree: &facade }, Crate { name: "erpc_core", tree: &core }];
    let found = surface(&crates);
    let golden = root.join("docs/api.txt");
    if std::env::var_os("UPDATE_API").is_some() {
        fs::write(&golden, found.join("\n") + "\n").unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap();
    let expected: BTreeSet<&str> = expected.lines().collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let removed = expected.difference(&found).map(|line| format!("- {line}"));
    let added = found.difference(&expected).map(|line| format!("+ {line}"));
    let difference: Vec<_> = removed.chain(added).collect();
    assert!(
        difference.is_empty(),
        "the public items of erpc differ from docs/api.txt. If this is intended, run\n\
         UPDATE_API=1 cargo test -p erpc-tidy --test api\n\
         review the difference, and describe in CHANGELOG.md what users have to change:\n{}",
        difference.join("\n")
    );
}
