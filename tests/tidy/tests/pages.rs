//! The pages of the repository name only files, constants and commands that exist.

use std::path::Path;

use erpc_tidy::pages::Repository;

#[test]
fn pages_name_only_what_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let repository = Repository::read(&root).unwrap();
    assert!(repository.pages() >= 10, "found only {} pages", repository.pages());
    let problems = repository.problems();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
