//! Compiles `.proto` files for [erpc](https://docs.rs/erpc): messages by `prost`, services as a trait to
//! implement and a client to call. There is no `protoc` to install; `protox` reads the files.
//!
//! ```toml
//! [dependencies]
//! erpc = "0.1"
//! prost = "0.14"
//!
//! [build-dependencies]
//! erpc-build = "0.1"
//! ```
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), erpc_build::Error> {
//!     erpc_build::compile_protos(&["proto/kv.proto"], &["proto"])
//! }
//! ```
//!
//! and where the code shall live, `erpc::include_proto!("kv.v1")` with the package's name. Settings are
//! those of [`configure`].
//!
//! # What is generated
//!
//! For each package a file with the messages, as `prost` does, and for `service Kv` in it:
//!
//! | item | what for |
//! |---|---|
//! | `trait Kv` | servers implement it, one function per method, and derive the rest: `#[derive(erpc::Service)] #[erpc(service = proto::Kv)]` |
//! | `struct KvClient` | clients call it |
//! | `mod kv_service` | where both live, with what the derive uses: `NAME`, `methods`, `Modes`, `register` |
//!
//! `Kv` and `KvClient` are re-exported from the package unless one of its messages has that name; then
//! they are `kv_service::Kv` and `kv_service::KvClient`, and `#[erpc(service = proto::kv_service::Kv)]`
//! finds the rest as well.
//!
//! Only services of the files that are named are generated; imported files give their messages.
//!
//! # What is refused
//!
//! Streaming methods, two methods whose 32-bit ids are equal and names that meet in Rust fail the build;
//! [`Error`] says which and what to do.

mod attributes;
mod builder;
mod check;
mod error;
mod generator;
mod layout;
mod method_id;
mod options;
mod schema;
mod source;
mod types;

use std::path::Path;

pub use builder::{Builder, configure};
pub use error::{Error, Misuse};
pub use schema::Mode;

/// Compiles `.proto` files with default settings: server and client, into `OUT_DIR`.
///
/// `includes` are the folders that imports are looked up in; each of `protos` must lie in one of them.
/// Tells cargo to run the build script again when one of the files, or a file they import, changes.
///
/// # Errors
/// [`Error`], whose `Debug` is as readable as its `Display`, as build scripts print that.
pub fn compile_protos(
    protos: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<(), Error> {
    configure().compile_protos(protos, includes)
}
