//! Checks the rules of a crate's structure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::graph::{Graph, cycles};
use crate::imports::PathUse;
use crate::tree::{FileId, SourceTree};

/// Maximum number of files that may import each other in a cycle.
pub const MAX_CYCLE: usize = 3;

/// The order of the files and folders in a folder. Each file or folder imports only from
/// earlier ones.
pub struct Order<'a> {
    /// Path relative to the folder of `lib.rs`, without slashes at its ends; empty for that folder
    /// itself.
    pub folder: &'a str,
    /// Names of files, without `.rs`, and of folders. If the folder's `mod.rs` (or `lib.rs`) is not
    /// listed, it comes last.
    pub entries: &'a [&'a str],
}

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Violation {
    /// The rule and the files, without line numbers.
    pub key: String,
    /// The place, what is wrong, and what to do.
    pub text: String,
}

/// Checks a crate. `folder` is the folder of its `lib.rs`, as violations show it.
#[must_use]
pub fn check(tree: &SourceTree, folder: &str, orders: &[Order<'_>]) -> Vec<Violation> {
    let uses = tree.path_uses();
    let mut check = Check { tree, folder, violations: Vec::new() };
    for order in orders {
        check.order(order, &uses.crossing);
    }
    check.cycles(&uses.crossing);
    for (file, line, path) in &uses.globs {
        let advice =
            "A glob may only import items that the same file defines; import the items by name.";
        check.add("glob", *file, *line, &format!("{path}. {advice}"));
    }
    for (file, line, path) in &uses.unresolved {
        let advice = "This test does not find the item of this path, so it cannot check it; correct the path, or the \
                      resolver in tests/tidy/src/resolve.rs.";
        check.add("unresolved", *file, *line, &format!("{path}. {advice}"));
    }
    check.violations.sort();
    check.violations
}

struct Check<'a> {
    tree: &'a SourceTree,
    folder: &'a str,
    violations: Vec<Violation>,
}

impl Check<'_> {
    fn add(&mut self, rule: &str, file: FileId, line: usize, text: &str) {
        let path = self.tree.path(file);
        self.violations.push(Violation {
            key: format!("{rule} {path}"),
            text: format!("{}/{path}:{line}: {text}", self.folder),
        });
    }

    fn order(&mut self, order: &Order<'_>, uses: &[PathUse]) {
        let mut listed: BTreeSet<_> = order.entries.iter().copied().collect();
        let mut places = BTreeMap::new();
        for file in self.tree.files() {
            let Some(entry) = entry(order.folder, self.tree.path(file)) else { continue };
            let place = order.entries.iter().position(|listed| *listed == entry);
            listed.remove(entry);
            if place.is_none() && !matches!(entry, "mod" | "lib") {
                self.add(
                    "unlisted",
                    file,
                    1,
                    &format!(
                        "`{entry}` is missing in the order {order}. {}",
                        order.how_to_change()
                    ),
                );
            }
            places.insert(file, (entry, place.unwrap_or(order.entries.len())));
        }
        for entry in listed {
            self.violations.push(Violation {
                key: format!("listed {entry}"),
                text: format!(
                    "`{entry}` does not exist, but it is in the order {order}. {}",
                    order.how_to_change()
                ),
            });
        }
        for path in uses {
            let (Some(from), Some(to)) = (places.get(&path.from), places.get(&path.to)) else {
                continue;
            };
            if to.1 > from.1 {
                let target = self.tree.path(path.to);
                self.violations.push(Violation {
                    key: format!("upward {} {target}", self.tree.path(path.from)),
                    text: format!(
                        "{}/{}:{}: {} is defined in {target}, but `{}` comes before `{}`: {order}. Move the item \
                         to a file that comes before this one, or this code to a file that comes after {target}.",
                        self.folder, self.tree.path(path.from), path.line, path.path, from.0, to.0,
                    ),
                });
            }
        }
    }

    fn cycles(&mut self, uses: &[PathUse]) {
        let mut graph = Graph::new();
        for path in uses {
            graph.entry(path.from).or_default().insert(path.to);
        }
        for cycle in cycles(&graph) {
            let folders: BTreeSet<_> =
                cycle.iter().map(|file| parent(self.tree.path(*file))).collect();
            let count = cycle.len();
            let text = format!(
                "{count} files of {} folders import each other; at most {MAX_CYCLE} files of one folder may do this. Move \
                 the items that two of them need from each other to a file that comes before both:\n{}",
                folders.len(),
                self.arrows(&cycle, uses)
            );
            let rules = [("folders", folders.len() > 1), ("cycle", count > MAX_CYCLE)];
            let files: Vec<_> = cycle.iter().map(|file| self.tree.path(*file)).collect();
            if let Some((rule, _)) = rules.into_iter().find(|(_, is_broken)| *is_broken) {
                let key = format!("{rule} {}", files.join(" "));
                self.violations.push(Violation { key, text });
            }
        }
    }

    /// The imports between the files of a cycle, one line for each pair of files.
    fn arrows(&self, cycle: &BTreeSet<FileId>, uses: &[PathUse]) -> String {
        let mut paths: BTreeMap<(FileId, FileId), (usize, BTreeSet<&str>)> = BTreeMap::new();
        for path in
            uses.iter().filter(|path| cycle.contains(&path.from) && cycle.contains(&path.to))
        {
            let arrow = paths.entry((path.from, path.to)).or_insert((path.line, BTreeSet::new()));
            arrow.1.insert(&path.path);
        }
        let mut out = String::new();
        for ((from, to), (line, paths)) in paths {
            // If a `use` is shown, the uses of the imported names are not.
            let is_import =
                |path: &&str| path.starts_with("super::") || path.starts_with("crate::");
            let all = !paths.iter().any(is_import);
            let paths: Vec<_> = paths.into_iter().filter(|path| all || is_import(path)).collect();
            let (from, to) = (self.tree.path(from), self.tree.path(to));
            let _ =
                writeln!(out, "    {}/{from}:{line} -> {to}: {}", self.folder, paths.join(", "));
        }
        out
    }
}

/// The file or folder directly in `folder` that contains `path`; `None` if `path` is not below
/// `folder`.
fn entry<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let below =
        if folder.is_empty() { path } else { path.strip_prefix(folder)?.strip_prefix('/')? };
    let first = below.split('/').next()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// The folder of a file.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl Order<'_> {
    /// Advice where to change this order.
    fn how_to_change(&self) -> String {
        let lib = if self.folder.is_empty() { " and in the documentation of lib.rs" } else { "" };
        format!(
            "Change the entries of `Order {{ folder: {:?}, .. }}` in ORDERS of tests/layers.rs{lib}: each file and folder \
             comes after everything that it imports.",
            self.folder
        )
    }
}

impl std::fmt::Display for Order<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.entries.join(" < "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &[Order<'_>] = &[Order { folder: "", entries: &["low", "high"] }];

    /// Keys of the violations in a crate with these files and the order `low < high`.
    fn keys(files: &[(&str, &str)]) -> Vec<String> {
        let tree = SourceTree::of_texts(files).unwrap();
        let mut keys: Vec<_> =
            check(&tree, "src", ORDER).into_iter().map(|violation| violation.key).collect();
        keys.dedup();
        keys
    }

    /// As [`keys`], for a crate of `low.rs` with this text and a `high.rs` with a type `High`.
    fn keys_of_low(low: &str) -> Vec<String> {
        keys(&[
            ("lib.rs", "mod high; mod low; pub use high::High as Above;"),
            ("low.rs", low),
            ("high.rs", "pub struct High; pub fn make() {} pub enum Kind { One } impl High { pub fn new() {} }
                #[macro_export] macro_rules! raise { () => {} }
                macro_rules! made { ($name:ident) => { pub struct Made { a: u8 } impl Made { fn f() {} } }; }
                made! { pub struct Other; }"),
        ])
    }

    const UPWARD: &str = "upward low.rs high.rs";

    #[test]
    fn downward_imports_are_allowed() {
        let files = [
            ("lib.rs", "mod low; mod high;"),
            ("low.rs", "pub struct Low; use std::fmt::Debug; fn f(x: impl Debug) {}"),
            ("high.rs", "use crate::low::Low; fn f(low: Low) -> super::low::Low { low }"),
        ];
        assert_eq!(keys(&files), [""; 0]);
    }

    #[test]
    fn an_upward_import_is_found_in_every_position_of_a_path() {
        for low in [
            "use crate::high::High;",
            "use super::high::{self};",
            "fn f() { crate::high::make() }",
            "fn f() { use crate::high; high::make() }",
            "fn f() { let make = super::high::High::new(); }",
            "fn f(x: Option<crate::high::High>) {}",
            "fn f<T>(x: T) where T: Into<crate::high::High> {}",
            "struct Low; impl From<crate::high::High> for Low {}",
            "fn f(x: u8) { match x { crate::high::Kind::One => {} _ => {} } }",
            "fn f() { assert!(1 == crate::high::make(), \"{}\", 1); }",
            "fn f() { crate::raise!() }",
            "macro_rules! make { () => { $crate::high::make() } }",
            "mod inner { fn f() { super::super::high::make() } }",
            "#[cfg(loom)] use crate::high::High;",
            "#[cfg(not(test))] use crate::high::High;",
            "type A = dyn Fn(&crate::high::High);",
            "pub use crate::high::High;",
            "use crate::high::Made;",
            "fn f(x: crate::high::Other) {}",
        ] {
            assert_eq!(keys_of_low(low), [UPWARD], "{low}");
        }
    }

    #[test]
    fn a_reexport_counts_as_the_file_that_defines_the_item() {
        assert_eq!(keys_of_low("use crate::Above;"), [UPWARD]);
        assert_eq!(keys_of_low("fn f() -> super::Above { todo!() }"), [UPWARD]);
        let files = |last| {
            [
                ("lib.rs", "mod high; mod low;"),
                ("low.rs", "use crate::high::B;"),
                ("high/mod.rs", last),
                ("high/inner.rs", "pub struct A;"),
            ]
        };
        let expected = ["upward low.rs high/inner.rs"];
        assert_eq!(keys(&files("mod inner; pub use inner::A as B;")), expected);
        assert_eq!(
            keys(&files(
                "mod inner; pub use renamed::B; mod renamed { pub use super::inner::A as B; }"
            )),
            expected
        );
        assert_eq!(
            keys(&files("mod inner; use self::inner::A; pub type B = A;"))[0],
            "upward low.rs high/mod.rs"
        );
    }

    #[test]
    fn tests_may_import_upward() {
        for low in [
            "#[cfg(test)] mod tests { use crate::high::High; use super::*; }",
            "#[cfg(test)] use crate::high::High;",
            "#[cfg(all(test, loom))] mod tests { use crate::high::High; }",
            "#[test] fn f() { crate::high::make() }",
            "struct Low; impl Low { #[cfg(test)] fn f() { crate::high::make() } }",
            "fn f() { #[cfg(test)] let x = crate::high::make(); }",
            "/// See [`crate::high::High`].\nstruct Low;",
        ] {
            assert_eq!(keys_of_low(low), [""; 0], "{low}");
        }
    }

    #[test]
    fn a_file_without_a_place_and_a_place_without_a_file_are_found() {
        let files = [
            ("lib.rs", "mod low; mod new;"),
            ("low.rs", ""),
            ("new/mod.rs", "mod a;"),
            ("new/a.rs", ""),
        ];
        assert_eq!(keys(&files), ["listed high", "unlisted new/a.rs", "unlisted new/mod.rs"]);
    }

    #[test]
    fn a_path_that_names_nothing_is_a_violation() {
        assert_eq!(keys_of_low("use crate::heigh::High;"), ["unresolved low.rs"]);
    }

    #[test]
    fn a_glob_is_a_violation_unless_it_imports_from_its_own_file() {
        assert_eq!(keys_of_low("use std::fmt::*;"), ["glob low.rs"]);
        assert_eq!(keys_of_low("use crate::high::*;"), ["glob low.rs", UPWARD]);
        assert_eq!(
            keys_of_low("mod a { use super::*; } enum B { C } fn f() { use B::*; }"),
            [""; 0]
        );
    }

    #[test]
    fn a_name_from_a_glob_is_resolved() {
        let files = [
            ("lib.rs", "mod high; mod low;"),
            ("low.rs", "use crate::both::*; fn f(x: High) {}"),
            ("both.rs", "pub use crate::high::High;"),
            ("high.rs", "pub struct High;"),
        ];
        let files = files.map(|(path, text)| {
            if path == "lib.rs" { (path, "mod both; mod high; mod low;") } else { (path, text) }
        });
        assert!(keys(&files).contains(&UPWARD.to_owned()));
    }

    #[test]
    fn a_method_counts_as_the_file_with_its_impl_block() {
        let files = |call| {
            [
                ("lib.rs", "mod low; mod high;"),
                ("high.rs", "impl crate::low::Low { pub fn rise() {} pub const MAX: u8 = 0; }"),
                ("low.rs", call),
            ]
        };
        for call in [
            "pub struct Low; fn f() { Low::rise() }",
            "pub struct Low; impl Low { fn f() { Self::rise() } }",
            "pub struct Low; impl Clone for Low { fn clone(&self) -> Self { [0; Self::MAX as usize]; Low } }",
        ] {
            assert_eq!(keys(&files(call)), [UPWARD], "{call}");
        }
        assert_eq!(
            keys(&files("pub struct Low; impl Low { fn f() { Self::other() } fn other() {} }")),
            [""; 0]
        );
    }

    #[test]
    fn three_files_may_import_each_other_but_four_may_not() {
        let ring = |count: usize| {
            let mut modules = String::new();
            let mut files = Vec::new();
            for at in 0..count {
                let _ = write!(modules, "mod f{at};");
                files.push((
                    format!("low/f{at}.rs"),
                    format!("pub struct A; use super::f{}::A as B;", (at + 1) % count),
                ));
            }
            files.push(("low/mod.rs".to_owned(), modules));
            files.push(("lib.rs".to_owned(), "mod low; mod high;".to_owned()));
            files.push(("high.rs".to_owned(), String::new()));
            let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
            keys(&files)
        };
        assert_eq!(ring(3), [""; 0]);
        assert_eq!(ring(4), ["cycle low/f0.rs low/f1.rs low/f2.rs low/f3.rs"]);
    }

    #[test]
    fn a_cycle_may_not_leave_its_folder() {
        let files = [
            ("lib.rs", "mod low; mod high;"),
            ("high.rs", ""),
            ("low/mod.rs", "mod a; mod b;"),
            ("low/a.rs", "use super::b::inner::B; pub struct A;"),
            ("low/b/mod.rs", "pub mod inner;"),
            ("low/b/inner.rs", "use crate::low::a::A; pub struct B;"),
        ];
        assert_eq!(keys(&files), ["folders low/a.rs low/b/inner.rs"]);
    }

    #[test]
    fn the_reexports_of_a_module_are_not_part_of_a_cycle() {
        let files = [
            ("lib.rs", "mod low; mod high;"),
            ("high.rs", ""),
            ("low/mod.rs", "mod a; pub use a::A; pub trait T {}"),
            ("low/a.rs", "pub struct A; impl super::T for A {}"),
        ];
        assert_eq!(keys(&files), [""; 0]);
        let files = files.map(|(path, text)| {
            (
                path,
                if path == "low/mod.rs" {
                    "mod a; mod b; pub use a::A; pub use b::X; pub trait T { fn f(a: A); }"
                } else {
                    text
                },
            )
        });
        let mut files = files.to_vec();
        files.push(("low/b/mod.rs", "pub struct X; impl super::T for X {}"));
        assert_eq!(keys(&files), [""; 0]);
    }
}
