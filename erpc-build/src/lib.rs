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
//! and where the code shall live, `erpc::include_proto!("kv.v1")` with the package's name. Well-known types
//! such as `google.protobuf.Timestamp` are those of `erpc::prost_types`, without another dependency.
//!
//! Generated code is silent under whatever lints your crate has: it is in `erpc::generated! { .. }`, which
//! allows them, without an `#[allow]` that `clippy::allow_attributes` would see. What a crate forbids
//! rather than denies cannot be allowed again, though. `#![forbid(unsafe_code, missing_docs)]` is fine, as there
//! is no unsafe code, and what has no comment in the `.proto` file gets its name as one; for lints such as
//! `clippy::pedantic`, which the macro names, write `deny`.
//!
//! - [What is generated](#what-is-generated)
//! - [Methods: what handlers and clients look like](#methods)
//! - [Options in `.proto` files](#options)
//! - [Fixed layouts](#fixed-layouts) and [views](#views)
//! - [Settings of the build](#settings)
//! - [What is supported of protobuf](#protobuf), and [what is refused](#refused)
//!
//! # What is generated
//!
//! For each package a file with the messages, as `prost` does, and for `service Kv` in it:
//!
//! | item | what for |
//! |---|---|
//! | `trait Kv` | servers implement it, one function per method, and derive the rest: `#[derive(erpc::Service)] #[erpc(service = proto::Kv)]` |
//! | `struct KvClient` | clients call it: `KvClient::connect(&endpoint, "10.0.0.7:31850")`, or `KvClient::new` with a session or a channel |
//! | `mod kv_service` | where both live, with what the derive uses: `NAME`, `methods`, `OPTIONS`, `register` |
//!
//! `Kv` and `KvClient` are re-exported from the package unless one of its messages has that name; then
//! they are `kv_service::Kv` and `kv_service::KvClient`, and `#[erpc(service = proto::kv_service::Kv)]`
//! finds the rest as well. Names that are keywords or taken get an underscore at their end: `New` is
//! `client.new_(..)`, `self` is `self_`.
//!
//! Only services of the files that are named are generated; imported files give their messages. Comments
//! become documentation. Messages and methods with `deprecated = true` are `#[deprecated]`, for callers.
//!
//! # Methods
//!
//! | in the `.proto` file | the trait's function | the client's function |
//! |---|---|---|
//! | `rpc Get(Key) returns (Entry)` | `fn get(&self, request: Request<'_, Key>) -> Result<Response<Entry>, Status>` | `get(key) -> Call<Entry>`, a future, and `get_with(key, callback)` |
//! | the same, `mode: ASYNC` | `async fn get(&self, request: Request<'_, Key>) -> Result<Response<Entry>, Status>` | the same |
//! | `rpc Watch(Key) returns (stream Entry)` | `async fn watch(&self, request: Request<'_, Key>, out: Outgoing<Entry>) -> Result<(), Status>` | `watch(key) -> Incoming<Entry>` |
//! | `rpc Upload(stream Entry) returns (Key)` | `async fn upload(&self, request: Request<'_, Incoming<Entry>>) -> Result<Response<Key>, Status>` | `upload() -> Upload<Entry, Key>` |
//! | `rpc Sync(stream Entry) returns (stream Entry)` | `async fn sync(&self, request: Request<'_, Incoming<Entry>>, out: Outgoing<Entry>) -> Result<(), Status>` | `sync() -> (Outgoing<Entry>, Incoming<Entry>)` |
//!
//! Clients take messages or references to them. `client.with(CallOptions::new().deadline(..))` is a
//! client whose calls have these options.
//!
//! # Options
//!
//! `import "erpc/options.proto";` works in every file, and nobody needs to have that file (it is
//! `proto/erpc/options.proto` in this crate, for other compilers):
//!
//! ```proto
//! import "erpc/options.proto";
//!
//! service Kv {
//!   rpc Scan(ScanRequest) returns (ScanResponse) {
//!     option (erpc.method) = { mode: ASYNC, deadline_us: 5000, idempotent: true };
//!   }
//! }
//! ```
//!
//! | option | of | what it says |
//! |---|---|---|
//! | `(erpc.method).mode` | methods | `DISPATCH` (default): in the event loop, on the request as it was received. `WORKER`: on a worker thread. `ASYNC`: in the event loop, as an `async fn`. |
//! | `(erpc.method).deadline_us` | methods | microseconds after which a call ends, unless the caller says otherwise; 0: none |
//! | `(erpc.method).idempotent` | methods | calls may be repeated. The standard `idempotency_level` says the same. |
//! | `(erpc.method).max_request`, `max_response` | methods | most bytes of an encoded message, enforced on both sides; 0: what sessions allow |
//! | `(erpc.message).layout` | messages | `FIXED`: [the message is its own bytes](#fixed-layouts) |
//! | `(erpc.message).view` | messages | handlers get [a view](#views) |
//! | `(erpc.field).size` | `bytes` fields of messages with `layout: FIXED` | how many bytes |
//!
//! What the file says of a method, the build script may say in its place, for files that are not one's own
//! to edit: [`Builder::mode`], [`Builder::deadline`], [`Builder::idempotent`], [`Builder::max_request`],
//! [`Builder::max_response`]. And so may a server, where it is implemented:
//!
//! ```ignore
//! #[derive(erpc::Service)]
//! #[erpc(service = proto::Kv, worker(Scan), dispatch(Get), method(Get, max_request = 4096, deadline = "20ms"))]
//! struct Store { .. }
//! ```
//!
//! That holds for this server, whatever its clients were built from: it moves methods between the event loop
//! and workers, refuses larger messages, and gives calls a deadline that come without one. Whether a call may be
//! repeated, and which deadline it is sent with, is decided where it is made: by the client's `.proto` file,
//! its build script, and the options of its calls. To and from `ASYNC` a method is moved in the file or the build
//! script only, as it is another trait then.
//!
//! # Fixed layouts
//!
//! ```proto
//! message Order {
//!   option (erpc.message).layout = FIXED;
//!   fixed64 quantity = 1;
//!   double price = 2;
//!   Side side = 3;                                // an enum
//!   bytes symbol = 4 [(erpc.field).size = 8];
//! }
//! ```
//!
//! is a `#[repr(C)]` struct of 28 bytes, the fields in the order of their numbers, little-endian and
//! without gaps: what is in memory is what travels. Encoding is one copy, and a handler gets
//! `Request<'_, &Order>`, a reference to the received bytes (asynchronous handlers get a copy).
//!
//! ```ignore
//! let order = Order::new().with_quantity(100).with_price(9.5).with_side(Side::Buy);
//! assert_eq!(order.quantity(), 100);
//! ```
//!
//! `new()` is all zeros, and a constant like the setters. A getter of an enum returns `None` for values
//! that this version does not know.
//!
//! Fields have fixed sizes: numbers, `bool`, enums, `bytes` with a size, and messages with a fixed layout.
//! None can be added later: peers refuse messages of another size. The message, and the types that it
//! uses, stand at a file's level; it is no `prost` message, so no other message can contain it.
//!
//! # Views
//!
//! ```proto
//! message PutRequest {
//!   option (erpc.message).view = true;
//!   string key = 1;
//!   bytes value = 2;
//! }
//! ```
//!
//! is the same on the wire and for clients. Handlers of methods that are neither asynchronous nor streams get
//! `Request<'_, PutRequestView<'_>>`, with `key: &str` and `value: &[u8]` borrowed from the received
//! packet: nothing is allocated. Embedded messages are views, too (and have the option); enums are
//! numbers; fields that may be missing are `Option`s. Of a field that comes twice the last counts, also if
//! it is a message, where `prost` would merge them; unknown fields are skipped. There are no views of
//! repeated fields, maps, oneofs, groups and defaults.
//!
//! # Settings
//!
//! [`configure`] has them, and [`Builder`] documents them:
//!
//! | setting | what for |
//! |---|---|
//! | [`build_client`](Builder::build_client), [`build_server`](Builder::build_server) | only one half |
//! | [`mode`](Builder::mode), [`deadline`](Builder::deadline), [`idempotent`](Builder::idempotent), [`max_request`](Builder::max_request), [`max_response`](Builder::max_response) | what holds of a method, whatever its `.proto` file says |
//! | [`type_attribute`](Builder::type_attribute), [`message_attribute`](Builder::message_attribute), [`enum_attribute`](Builder::enum_attribute), [`field_attribute`](Builder::field_attribute) | attributes of messages |
//! | [`trait_attribute`](Builder::trait_attribute), [`client_attribute`](Builder::client_attribute) | attributes of services |
//! | [`extern_path`](Builder::extern_path) | types of other crates |
//! | [`bytes`](Builder::bytes), [`btree_map`](Builder::btree_map) | `Bytes` and `BTreeMap` in messages |
//! | [`compile_well_known_types`](Builder::compile_well_known_types) | `google.protobuf` without `erpc::prost_types` |
//! | [`use_protoc`](Builder::use_protoc), [`compile_descriptor_set`](Builder::compile_descriptor_set) | files read by others |
//! | [`out_dir`](Builder::out_dir), [`include_file`](Builder::include_file), [`file_descriptor_set_path`](Builder::file_descriptor_set_path) | what is written where |
//! | [`erpc_path`](Builder::erpc_path) | `erpc` by another name |
//! | [`prost`](Builder::prost) | everything else that `prost_build` can |
//!
//! # Protobuf
//!
//! proto3 and proto2, with what `prost` makes of it: required and optional fields, defaults, groups,
//! oneofs, maps. Extensions are not kept by messages. Well-known types are those of
//! `erpc::prost_types`; `google.protobuf.Empty` is `()`, and the wrappers are what they wrap.
//!
//! Files with `edition = "2023";` are read as proto3, as far as they say what proto3 can: fields are `optional`
//! unless `features.field_presence` is `IMPLICIT`, and repeated ones packed unless their encoding is `EXPANDED`.
//! With `use_protoc` and `compile_descriptor_set` they are refused.
//!
//! # Refused
//!
//! Files with editions that are no proto3, two methods whose 32-bit ids are equal, names that meet in Rust and options that
//! cannot be fail the build; [`Error`] says which and what to do.

mod attributes;
mod builder;
mod check;
mod comments;
mod edition;
mod error;
mod finish;
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
