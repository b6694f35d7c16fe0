//! Reads the source of a crate, for tests of its structure.
//!
//! ```text
//!   tree      the files of a crate as modules, and which names each module has
//!   resolve   which file defines what a path names, through imports, re-exports and globs
//!   imports   every path of every file, resolved
//!   graph     the files that import each other
//!   surface   what a crate makes public, one line each
//!   layers    the rules: order of folders, cycles, globs, nesting of modules
//! ```
//!
//! Only the syntax is known, not the types. `Type::method` and `Self::method` count as the file with the `impl` block.
//! `value.method()` counts as nothing; the path that brought the value's type does.

#![forbid(unsafe_code)]

pub mod graph;
pub mod imports;
pub mod layers;
pub mod nesting;
pub mod resolve;
pub mod surface;
pub mod tree;

mod cfg;
