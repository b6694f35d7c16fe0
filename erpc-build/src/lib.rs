//! Compiles `.proto` files for [erpc](https://docs.rs/erpc). `prost` generates the messages; each
//! service becomes a trait to implement and a client to call. `protoc` is not needed, because
//! `protox` reads the files.
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
//! Then write `erpc::include_proto!("kv.v1")`, with the name of the package, in the module that
//! should contain the generated code. Well-known types such as `google.protobuf.Timestamp` come
//! from `erpc::prost_types`, so they need no other dependency.
//!
//! Generated code causes no warnings, whichever lints your crate enables. It is inside
//! `erpc::generated! { .. }`, which allows the lints without an `#[allow]` that
//! `clippy::allow_attributes` would report. A lint that your crate forbids (not only denies) cannot
//! be allowed again, however. `#![forbid(unsafe_code, missing_docs)]` works: generated code has no
//! unsafe code, and an item without a comment in the `.proto` file gets its name as documentation.
//! For lints that the macro names, such as `clippy::pedantic`, write `deny` instead of `forbid`.
//!
//! - [What is generated](#what-is-generated)
//! - [Methods: what handlers and clients look like](#methods)
//! - [Options in `.proto` files](#options)
//! - [Fixed layouts](#fixed-layouts) and [views](#views)
//! - [Settings of the build](#settings)
//! - [The supported part of protobuf](#protobuf), and [what is refused](#refused)
//!
//! # What is generated
//!
//! Each package gets a file with its messages, as `prost` generates it. (Their code uses
//! `erpc::protobuf` instead of `prost`: the same traits and types, and faster functions for some
//! fields.) For `service Kv`, that file
//! also contains:
//!
//! | item | use |
//! |---|---|
//! | `trait Kv` | servers implement it, one function per method, and derive the rest: `#[derive(erpc::Service)] #[erpc(service = proto::Kv)]` |
//! | `struct LocalKvClient` | calls the service from the thread of an endpoint: `LocalKvClient::connect(&endpoint, "10.0.0.7:31850")`, or `LocalKvClient::new` with a session or a channel |
//! | `struct KvClient` | calls the service from any thread: `KvClient::connect("10.0.0.7:31850").await`, or `KvClient::new` with a shared channel |
//! | `mod kv_service` | contains the trait, both clients, and the items that the derive uses: `NAME`, `methods`, `OPTIONS`, `register` |
//!
//! `Kv` and the clients are re-exported from the package, unless one of its messages, enums or
//! views has that name. In that case use `kv_service::Kv` and `kv_service::KvClient`; the derive
//! also accepts `#[erpc(service = proto::kv_service::Kv)]`. A keyword gets `r#` in front: `Move` is
//! `client.r#move(..)`. A name that is already used gets an underscore at its end, as does a
//! keyword that allows no `r#`: `New` is `client.new_(..)`, `self` is `self_`.
//!
//! Services are generated only for the files that are passed to the build; imported files
//! contribute only their messages. Comments become documentation. Messages and methods with
//! `deprecated = true` are `#[deprecated]` for callers.
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
//! The last column shows `LocalKvClient`. `KvClient` has the same functions except `get_with`; its
//! types are `SharedCall`, `SharedIncoming`, `SharedUpload` and `SharedOutgoing`.
//!
//! Client functions accept a message or a reference to it.
//! `client.with(CallOptions::new().deadline(..))` returns a client whose calls have these options.
//!
//! # Options
//!
//! `import "erpc/options.proto";` works in every file; you need no copy of that file. For other
//! compilers it is `proto/erpc/options.proto` in this crate:
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
//! | option | applies to | meaning |
//! |---|---|---|
//! | `(erpc.method).mode` | methods | `DISPATCH` (default): in the event loop, on the received request. `WORKER`: on a worker thread. `ASYNC`: in the event loop, as an `async fn`. |
//! | `(erpc.method).deadline_us` | methods | a call times out after this time, in microseconds, unless the caller sets another deadline; 0: none |
//! | `(erpc.method).idempotent` | methods | calls may be retried. The standard `idempotency_level` has the same meaning. |
//! | `(erpc.method).max_request`, `max_response` | methods | maximum size of an encoded message in bytes, enforced on both sides; 0: the limit of the session |
//! | `(erpc.message).layout` | messages | `FIXED`: [the bytes in memory are the encoding](#fixed-layouts) |
//! | `(erpc.message).view` | messages | handlers get [a view](#views) |
//! | `(erpc.field).size` | `bytes` fields of messages with `layout: FIXED` | the number of bytes |
//!
//! The build script can override the options of a method, for example if you cannot edit the file:
//! [`Builder::mode`], [`Builder::deadline`], [`Builder::idempotent`], [`Builder::max_request`],
//! [`Builder::max_response`]. A server can override them at its implementation:
//!
//! ```ignore
//! #[derive(erpc::Service)]
//! #[erpc(service = proto::Kv, worker(Scan), dispatch(Get), method(Get, max_request = 4096, deadline = "20ms"))]
//! struct Store { .. }
//! ```
//!
//! These overrides apply to this server, independent of how its clients were built. They move
//! methods between the event loop and worker threads, refuse larger messages, and give a deadline
//! to calls that arrive without one. The client's side decides whether a call may be retried and
//! with which deadline it is sent: its `.proto` file, its build script, and the options of its
//! calls. Only the file or the build script can change a method to or from `ASYNC`, because that
//! changes the trait.
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
//! This message becomes a `#[repr(C)]` struct of 28 bytes: the fields in the order of their
//! numbers, little-endian and without gaps. The bytes in memory are the bytes in the packet.
//! Encoding is one copy, and a handler gets `Request<'_, &Order>`, a reference to the received
//! bytes (asynchronous handlers get a copy).
//!
//! ```ignore
//! let order = Order::new().with_quantity(100).with_price(9.5).with_side(Side::Buy);
//! assert_eq!(order.quantity(), 100);
//! ```
//!
//! `new()` sets all fields to zero; it is a `const fn`, as are the setters. A getter of an enum
//! returns `None` for a value that this version does not know.
//!
//! Fields have fixed sizes: numbers, `bool`, enums, `bytes` with a size, and messages with a fixed
//! layout. No field can be added later, because peers refuse messages of another size. The message
//! must be at the top level of a file, and no message or enum can be nested in it. It is not a
//! `prost` message, so only messages with a fixed layout can contain it.
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
//! The option `view` changes nothing on the wire. Handlers of methods that are neither asynchronous
//! nor streaming get `Request<'_, PutRequestView<'_>>`, with `key: &str` and `value: &[u8]` borrowed
//! from the received packet, so nothing is allocated. A client can call with a view. If a response has
//! the option, a handler can answer with a view of what it stores (`request.answer(&view)`), and a
//! callback of the client gets a view.
//!
//! Embedded messages are views, too, and must have the option. Enums are `i32` numbers. Fields that
//! may be missing are `Option`s. If a field occurs twice, the last value counts; a message that occurs
//! twice is merged, as in `prost`. Unknown fields are skipped. Views do not support repeated fields,
//! maps, oneofs, groups and defaults.
//!
//! # Settings
//!
//! [`configure`] returns a [`Builder`], which has these settings:
//!
//! | setting | effect |
//! |---|---|
//! | [`build_client`](Builder::build_client), [`build_server`](Builder::build_server) | only one half |
//! | [`mode`](Builder::mode), [`deadline`](Builder::deadline), [`idempotent`](Builder::idempotent), [`max_request`](Builder::max_request), [`max_response`](Builder::max_response) | the options of a method, in place of those in its `.proto` file |
//! | [`type_attribute`](Builder::type_attribute), [`message_attribute`](Builder::message_attribute), [`enum_attribute`](Builder::enum_attribute), [`field_attribute`](Builder::field_attribute) | attributes of messages |
//! | [`trait_attribute`](Builder::trait_attribute), [`client_attribute`](Builder::client_attribute) | attributes of services |
//! | [`extern_path`](Builder::extern_path) | types of other crates |
//! | [`bytes`](Builder::bytes), [`btree_map`](Builder::btree_map) | `Bytes` and `BTreeMap` in messages |
//! | [`compile_well_known_types`](Builder::compile_well_known_types) | `google.protobuf` without `erpc::prost_types` |
//! | [`use_protoc`](Builder::use_protoc), [`compile_descriptor_set`](Builder::compile_descriptor_set) | files that another compiler reads |
//! | [`out_dir`](Builder::out_dir), [`include_file`](Builder::include_file), [`file_descriptor_set_path`](Builder::file_descriptor_set_path) | the paths of the output files |
//! | [`erpc_path`](Builder::erpc_path) | the path of the `erpc` crate, if it has another name |
//! | [`prost`](Builder::prost) | all other settings of `prost_build` |
//!
//! # Protobuf
//!
//! This crate supports proto3 and proto2 as `prost` does: required and optional fields, defaults,
//! groups, oneofs, maps. Messages drop extensions. Well-known types are those of
//! `erpc::prost_types`; `google.protobuf.Empty` is `()`, and each wrapper is the type that it
//! wraps.
//!
//! Files with `edition = "2023";` are read as proto3, if proto3 can express them: fields are
//! `optional` unless `features.field_presence` is `IMPLICIT`, and repeated fields are packed unless
//! their encoding is `EXPANDED`. `use_protoc` and `compile_descriptor_set` refuse such files.
//!
//! # Refused
//!
//! The build fails for files with an edition that cannot be read as proto3, two methods with equal
//! 32-bit ids, names that collide in Rust, and options that are not possible. [`Error`] says what
//! is wrong and what to do.

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

/// Compiles `.proto` files with default settings: both the server's and the client's half, into
/// `OUT_DIR`.
///
/// `includes` are the folders in which imports are looked up; each of `protos` must be in one of
/// them. Cargo runs the build script again when one of the files, or a file that they import,
/// changes.
///
/// # Errors
/// [`Error`]. Its `Debug` is the same text as its `Display`, because build scripts print `Debug`.
pub fn compile_protos(
    protos: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<(), Error> {
    configure().compile_protos(protos, includes)
}
