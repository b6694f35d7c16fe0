//! Microsecond RPCs for datacenters: a `.proto` service over plain datagrams.
//!
//! erpc is [eRPC]'s design in Rust. Requests and responses of up to megabytes travel as datagrams, over
//! UDP without any setup or over shared memory within a process; sessions, retransmission and
//! flow control are done in user space, at the ends. Handlers run where the packet was received,
//! on the bytes as they lie there, and a small call is two packets.
//!
//! # A service
//!
//! What it offers is written in a `.proto` file:
//!
//! ```proto
//! syntax = "proto3";
//! package hello.v1;
//!
//! service Greeter {
//!   rpc Greet(GreetRequest) returns (GreetReply);
//! }
//!
//! message GreetRequest { string name = 1; }
//! message GreetReply { string greeting = 1; }
//! ```
//!
//! and compiled by the build script; there is no `protoc` to install:
//!
//! ```ignore
//! // build.rs; dependencies: erpc, prost; build-dependencies: erpc-build
//! fn main() -> Result<(), erpc_build::Error> {
//!     erpc_build::compile_protos(&["proto/hello.proto"], &["proto"])
//! }
//! ```
//!
//! Servers implement the trait that comes of it, and derive the glue:
//!
//! ```ignore
//! use erpc::{Request, Response, Server, Status};
//!
//! mod proto {
//!     erpc::include_proto!("hello.v1");
//! }
//!
//! #[derive(erpc::Service)]
//! #[erpc(service = proto::Greeter)]
//! struct Hello;
//!
//! impl proto::Greeter for Hello {
//!     fn greet(&self, request: Request<'_, proto::GreetRequest>) -> Result<Response<proto::GreetReply>, Status> {
//!         let greeting = format!("Hello, {}!", request.message().name);
//!         Ok(Response::new(proto::GreetReply { greeting }))
//!     }
//! }
//!
//! Server::builder().add_service(Hello).threads(2).serve("0.0.0.0:31850")?;
//! ```
//!
//! Clients call it, from a thread of their own:
//!
//! ```ignore
//! let endpoint = erpc::Endpoint::udp()?;
//! let greeter = proto::GreeterClient::connect(&endpoint, "10.0.0.7:31850")?;
//! let reply = endpoint.block_on(greeter.greet(proto::GreetRequest { name: "you".into() }))?;
//! ```
//!
//! # How it runs
//!
//! ```text
//!   client thread                                     server thread, one of several
//!  +-----------------------------+                   +------------------------------+
//!  | your code, tasks, callbacks |                   | dispatch handlers            |   worker threads
//!  | Endpoint: one event loop    |  <== session ==>  | Endpoint: one event loop     | <-> worker handlers
//!  +-----------------------------+     datagrams     +------------------------------+
//! ```
//!
//! * An [`Endpoint`] belongs to one thread and does nothing by itself: its loop runs in
//!   [`Endpoint::block_on`] and its like, and in a [`Server`]'s threads. No lock is taken on the way of
//!   a call.
//! * A [`Session`] is a connection to one peer. Calls on it complete in any order; those beyond its
//!   window wait their turn.
//! * A call is a future, [`Call`], or takes a callback: `greeter.greet_with(request, |result| ..)`. Futures are
//!   driven by the endpoint itself, so no async runtime is needed.
//! * A handler runs in the event loop ([`Mode::Dispatch`](service::Mode::Dispatch)), so it should take
//!   microseconds; methods that take longer are declared `WORKER` in the `.proto` file, or marked
//!   `worker(..)` in the derive's attribute, and run on worker threads. Those that wait for others are
//!   declared `ASYNC`, and their handlers are `async fn`s on the loop's own executor. A handler that cannot
//!   answer yet calls [`Request::defer`] and answers later, from any thread.
//! * [`Interceptor`]s see every call before and after its handler, wherever it runs.
//! * A method may stream, either way or both: [`Incoming`], [`Outgoing`], [`Upload`].
//! * A client calls over a [`Channel`]: one session, or several servers between which it chooses. Its calls
//!   may have [`CallOptions`]: a deadline, metadata, retries. Dropping a call cancels it.
//!
//! The guide in the repository, `docs/`, takes a reader through all of it.
//!
//! # When something goes wrong
//!
//! A call ends once, with the response or a [`CallError`], whose variants say first of all whether the
//! handler has run: a [`Status`] from the handler, not executed, maybe executed, executed with the
//! response lost. A handler is never run twice for one call. A server that is gone is noticed within
//! seconds, and its calls fail. Whatever is used wrongly fails with a typed error that says what to do.
//!
//! # Below the generated code
//!
//! [`service`] has what generated code uses: a [`Method`](service::Method) is all that a call needs, and
//! a [`Codec`](service::Codec) other than protocol buffers is a trait implementation away:
//!
//! ```
//! use std::sync::Arc;
//!
//! use erpc::service::{Method, MethodCollision, Mode, Routes};
//! use erpc::{Endpoint, Request, Response, Server, Status};
//!
//! const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double");
//!
//! struct Math;
//!
//! impl Math {
//!     fn double(&self, request: Request<'_, u32>) -> Result<Response<u32>, Status> {
//!         let twice = request.message().checked_mul(2);
//!         twice.map(Response::new).ok_or_else(|| Status::out_of_range("more than 32 bits"))
//!     }
//! }
//!
//! impl erpc::Service for Math {
//!     const NAME: &'static str = "math.v1.Math";
//!
//!     fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
//!         routes.unary(DOUBLE, Mode::Dispatch, &self, Self::double)
//!     }
//! }
//!
//! let server = Server::builder().add_service(Math).spawn("127.0.0.1:0")?;
//! let endpoint = Endpoint::udp()?;
//! let session = endpoint.connect(server.local_addr())?;
//! assert_eq!(endpoint.block_on(session.call(&DOUBLE, &21))?, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`raw`] is the layer below that: message buffers, request types as numbers, continuations and one
//! function, [`Rpc::run_once`](raw::Rpc::run_once), for those who want every nanosecond.
//!
//! [eRPC]: https://www.usenix.org/conference/nsdi19/presentation/kalia

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub use erpc_core::calling::{CallOptions, RetryPolicy};
pub use erpc_core::client::{
    BackendStats, Balance, Call, Channel, ChannelBuilder, ChannelStats, Connect, ConnectFailed,
    ConnectFailure, Disconnect, Lookup, Resolver, Session, Target, WithMetadata,
};
#[cfg(feature = "tokio")]
pub use erpc_core::endpoint::tokio;
pub use erpc_core::endpoint::{Endpoint, Handle, OpenError, SubmitError};
pub use erpc_core::event_loop::{EndpointStats, IdlePolicy, LoopGaps, MAILBOX_LIMIT};
pub use erpc_core::executor::{Elapsed, JoinAll, JoinHandle, Sleep, join_all};
pub use erpc_core::protocol::{
    CallError, Cause, ConfigError, CongestionControl, ConnectError, DcqcnConfig, EndpointConfig,
    Integrity, RejectReason, Retransmissions, SessionStats, SwiftConfig, TimelyConfig,
};
pub use erpc_core::server::{
    DEFAULT_PORT, Nexus, Seat, ServeError, Server, ServerBuilder, ServerHandle,
};
pub use erpc_core::service::{
    CallContext, FixedLayout, Incoming, Interceptor, Metadata, MetadataError, MetadataRef,
    Outgoing, Request, Responder, Response, Service, Upload,
};
pub use erpc_core::serving::WorkerPool;
pub use erpc_core::status::{Code, Status};
pub use erpc_core::transport::Transport;
pub use erpc_core::transport::udp::{UdpConfig, UdpTransport as Udp};
pub use erpc_core::zerocopy;
pub use erpc_derive::{FixedLayout, Service};
/// The well-known types of protocol buffers, such as `Timestamp`, as generated code uses them.
pub use prost_types;

/// What generated code uses: methods, codecs and the table of a server's methods.
pub mod service {
    pub use erpc_core::service::{
        Borrowed, Codec, DecodeError, Field, Fields, Fixed, FixedLayout, Method, MethodCollision,
        MethodOptions, Mode, Prost, Routes, ServiceOptions, SharedByThreads, Viewable, method_id,
    };
}

/// Datagrams in bursts: the networks there are, and the traits of one that is not there yet.
///
/// A [`Transport`] is one queue pair of one endpoint. Its halves, [`RxQueue`](transport::RxQueue) and
/// [`TxQueue`](transport::TxQueue), are borrowed at once, as packets are handled in place.
pub mod transport {
    pub use erpc_core::transport::{
        Arena, Capabilities, ChargeModel, Link, MAX_BURST, MIN_DATAGRAM, NoMarks, Path, Route,
        RxPacket, RxQueue, TransportStats, TxPacket, TxQueue, Waker,
    };

    /// A transport that loses, repeats, delays and damages packets, for tests.
    pub mod fault {
        pub use erpc_core::transport::fault::{
            FaultCounts, FaultHandle, FaultPlan, FaultStats, Faults, Faulty, FaultyRx, FaultyTx,
            Outage,
        };
    }

    /// Datagrams between endpoints of one process, through shared memory.
    pub mod mem {
        pub use erpc_core::transport::mem::{
            MemConfig, MemHub, MemRoute, MemRx, MemTransport, MemTx, PortTaken,
        };
    }

    /// Kernel UDP.
    pub mod udp {
        pub use erpc_core::transport::udp::{OVERFLOW_HINT, UdpError, UdpRoute, UdpRx, UdpTx};
    }
}

/// The layer below types: what [`Endpoint`] is made of.
pub mod raw {
    pub use erpc_core::buf::{MsgBuf, NoMemory, Pool, PoolStats};
    pub use erpc_core::event_loop::{App, Context, Rpc};
    pub use erpc_core::protocol::{
        Acceptor, Body, ClientId, ClientStats, DropReason, ListenGroup, NewCall, ProtocolStats,
        Rejected, Reply, Request, RequestHandle, ResponseBuffer, SessionEvent, SessionId,
    };
    pub use erpc_core::time::Instant;
}

/// Includes what `erpc-build` generated for a package, named as in the `.proto` file.
///
/// ```ignore
/// mod proto {
///     erpc::include_proto!("kv.v1");
/// }
/// ```
///
/// Where packages refer to each other, their modules must be nested as the packages are:
///
/// ```ignore
/// pub mod shop {
///     pub mod v1 {
///         erpc::include_proto!("shop.v1");
///     }
///     pub mod common {
///         erpc::include_proto!("shop.common");
///     }
/// }
/// ```
///
/// A file without a package is `"_"`; words of a package that are Rust keywords are written as in Rust:
/// `"my.r#type"`. For code that was generated into a folder of its own, use
/// `include!`.
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// What `erpc-build` puts generated code into: the same items, silent under any lints that a crate may
/// have, unless it forbids one of these. `missing_docs` is not among them: everything has a comment, so that
/// crates may forbid what has none. Not for other code.
#[macro_export]
#[doc(hidden)]
macro_rules! generated {
    ($($item:item)*) => {$(
        #[allow(
            dead_code,
            single_use_lifetimes,
            unnameable_types,
            unreachable_pub,
            unused_imports,
            unused_qualifications,
            rustdoc::all,
            clippy::all,
            clippy::nursery,
            clippy::pedantic,
            // Of the restrictions what is there, as a crate that forbids another would object to all.
            clippy::absolute_paths,
            clippy::as_conversions,
            clippy::decimal_literal_representation,
            clippy::exhaustive_enums,
            clippy::exhaustive_structs,
            clippy::impl_trait_in_params,
            clippy::implicit_return,
            clippy::missing_docs_in_private_items,
            clippy::missing_inline_in_public_items,
            clippy::missing_trait_methods,
            clippy::pattern_type_mismatch,
            clippy::pub_use,
            clippy::question_mark_used,
            clippy::single_call_fn,
            clippy::single_char_lifetime_names,
            clippy::std_instead_of_alloc,
            clippy::std_instead_of_core,
            reason = "a crate's lints are for what people write"
        )]
        $item
    )*};
}
