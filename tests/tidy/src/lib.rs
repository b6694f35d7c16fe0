//! Reads the source of a crate and the pages of the repository, for tests of their structure.
//!
//! ```text
//!   tree      the files of a crate as modules, and the names in each module
//!   resolve   the file that defines the item of a path, through imports, re-exports and globs
//!   imports   every path of every file, resolved
//!   graph     the files that import each other
//!   surface   the public items of a crate, one line each
//!   layers    the rules: order of folders, cycles, globs
//!   nesting   the files of modules that are not called `mod.rs` but have children
//!   pages     what the Markdown pages name: links, files, constants, commands
//! ```
//!
//! The crate knows only the syntax, not the types. A path `Type::method` or `Self::method` counts
//! as an import of the file with the `impl` block. A call `value.method()` does not count, but the
//! path that named the value's type does.

#![forbid(unsafe_code)]

pub mod graph;
pub mod imports;
pub mod layers;
pub mod nesting;
pub mod pages;
pub mod resolve;
pub mod surface;
pub mod tree;

mod cfg;
