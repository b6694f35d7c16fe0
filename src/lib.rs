//! Microsecond RPCs for datacenters: a `.proto` service over plain datagrams.
//!
//! erpc is [eRPC]'s design in Rust. Requests and responses of up to megabytes are sent as
//! datagrams, over UDP without any setup, or over shared memory within a process. Sessions,
//! retransmission and flow control run in user space, at the two ends. By default, a handler runs
//! on the thread that received the packet and reads the bytes in the receive buffer. A small call
//! is two packets.
//!
//! # A service
//!
//! A `.proto` file declares the service:
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
//! The build script compiles it; no `protoc` is needed:
//!
//! ```ignore
//! // build.rs; dependencies: erpc, prost; build-dependencies: erpc-build
//! fn main() -> Result<(), erpc_build::Error> {
//!     erpc_build::compile_protos(&["proto/hello.proto"], &["proto"])
//! }
//! ```
//!
//! Servers implement the generated trait and derive the rest:
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
//! A client calls the service from its own thread:
//!
//! ```ignore
//! let endpoint = erpc::Endpoint::udp()?;
//! let greeter = proto::LocalGreeterClient::connect(&endpoint, "10.0.0.7:31850")?;
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
//! * An [`Endpoint`] belongs to one thread. Its event loop runs in [`Endpoint::block_on`] and
//!   similar functions, and in a [`Server`]'s threads; otherwise it does nothing. A call takes no
//!   lock.
//! * A [`Session`] is a connection to one peer. Its calls complete in any order. Calls beyond its
//!   window wait in a queue.
//! * A call is a future, [`Call`], or takes a callback: `greeter.greet_with(request, |result| ..)`.
//!   The endpoint itself drives the futures, so no async runtime is needed.
//! * A handler runs in the event loop ([`Mode::Dispatch`](service::Mode::Dispatch)), so it should
//!   take only microseconds. Methods that take longer run on worker threads: declare them `WORKER`
//!   in the `.proto` file, or list them in `worker(..)` in the derive's attribute. Methods that
//!   wait, for example for other servers, are declared `ASYNC`; their handlers are `async fn`s on
//!   the loop's own executor. A handler that cannot answer yet calls [`Request::defer`] and answers
//!   later, from any thread.
//! * [`Interceptor`]s run before and after the handler of every call, wherever the handler runs.
//! * A method may stream in one direction or both: [`Incoming`], [`Outgoing`], [`Upload`].
//! * A client calls over a [`Channel`]: one session, or several servers with load balancing. Calls
//!   may have [`CallOptions`]: a deadline, metadata, retries. Dropping a call cancels it.
//! * Tests run services without a network, in virtual time and with simulated faults: [`testing`].
//!
//! The guide in the repository's `docs/` folder covers all of this step by step.
//!
//! # Errors
//!
//! Every call ends exactly once, with the response or a [`CallError`]. The error's variants say
//! whether the handler has run: a [`Status`] from the handler, not executed, maybe executed, or
//! executed with the response lost. A handler runs at most once for one attempt of a call, and only
//! a [`RetryPolicy`] makes further attempts. A dead server is detected within seconds, and its
//! calls fail. Usage errors are typed, and their messages say what to do.
//!
//! # The log
//!
//! erpc reports what operators need to know as [`tracing`] events. Without a subscriber, they cost
//! nothing. No event is emitted per packet or per call. A process emits at most 10 events of a kind
//! per second; the next one has the number of the others in its field `suppressed`. Programs that
//! use the crate `log` get the events as its records if they add `tracing` with its feature `log`
//! to their dependencies.
//!
//! | target | level | message | fields, and what it means |
//! |---|---|---|---|
//! | `erpc::session` | INFO | session opened | `peer`: this process has opened a session to this server |
//! | `erpc::session` | WARN | session not opened | `peer`, `cause` |
//! | `erpc::session` | WARN | session lost | `peer`, `cause`: calls may have failed |
//! | `erpc::session` | INFO | server shuts down | `peer`: the session takes no new calls |
//! | `erpc::session` | DEBUG | session closed | `peer`, `cause`: an end that this process or a drain has begun |
//! | `erpc::session` | INFO | client session opened | `peer`: a client has opened a session |
//! | `erpc::session` | DEBUG | client session closed | `peer`, `cause`: by the client, or by a shutdown |
//! | `erpc::session` | WARN | client session lost | `peer`, `cause`: the client is silent, or does not know the session |
//! | `erpc::channel` | INFO | reconnected | `peer`, `after_ms` since the session ended, `failures`: attempts between |
//! | `erpc::channel` | WARN | names not resolved | `error`, with the name |
//! | `erpc::server` | INFO | handshakes refused | `endpoint`, `reason`: the server shuts down; `count` |
//! | `erpc::server` | WARN | handshakes refused | `endpoint`, `reason`: a limit, or a client that does not fit; `count` |
//! | `erpc::server` | INFO | calls refused | `endpoint`, `reason`: the server shuts down; `count` |
//! | `erpc::server` | WARN | calls refused | `endpoint`, `reason`: a limit of memory; `count` |
//! | `erpc::server` | WARN | calls refused | `endpoint`, `method` of the last one, `reason`, `limit` of calls that run as tasks; `count` |
//! | `erpc::server` | WARN | worker queue full | `endpoint`, `method` of the last call that was refused, `limit`, `count`, `hint` |
//! | `erpc::handler` | ERROR | handler panicked | `method`, `panic`: its text; `hint` if tokio's runtime was missing. Stderr gets the first hint if nothing takes the log |
//! | `erpc::handler` | WARN | event loop held | `endpoint`, `held_ms`, `method`: the last one that the loop had dispatched; `hint`. See [`EndpointConfig::slow_handler`] |
//! | `erpc::handler` | ERROR | event loop stuck | `endpoint`, `thread`, `for_ms`; `hint`. From a server whose thread waits in [`ServerHandle::wait`], [`ServerBuilder::serve`] or a function like these |
//! | `erpc::network` | WARN | receive queue overflowed | `endpoint`, `packets`, `hint`: the socket buffer and the sysctl to raise |
//! | `erpc::network` | WARN | many retransmissions | `endpoint`, `packets` of `sent` ones in `within_ms`, and by cause: `after_gap`, `after_timeout`, `probes`; `hint`. At least 100 per second and a tenth of all packets |
//! | `erpc::network` | WARN | link down | `endpoint`, `count`, `hint`: of a port that DPDK drives; at most a second late |
//! | `erpc::network` | INFO | link up | `endpoint`, `count`: also when the port starts |
//! | `erpc::network` | INFO | unknown link rate | `peer`, `effect`, `hint`: once per process, with Swift |
//! | `erpc::network` | WARN | unknown link rate | `peer`, `effect`, `hint`: once per process, with Timely or DCQCN |
//!
//! `endpoint` is the address of the event loop in this process. `cause` is the text of a [`Cause`].
//! A `count` is that since the last such event of the event loop.
//!
//! [`tracing`]: https://docs.rs/tracing
//!
//! # Below the generated code
//!
//! [`service`] contains the interface of generated code. A [`Method`](service::Method) is all that
//! a call needs, and an encoding other than protocol buffers is an implementation of
//! [`Codec`](service::Codec):
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
//! [`raw`] is the layer below: message buffers, request types as numbers, continuations and one
//! function, [`Rpc::run_once`](raw::Rpc::run_once), for the lowest possible overhead.
//!
//! [eRPC]: https://www.usenix.org/conference/nsdi19/presentation/kalia

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub use erpc_core::calling::{CallOptions, RetryPolicy};
pub use erpc_core::client::{
    BackendStats, Balance, Call, Channel, ChannelBuilder, ChannelStats, ClientThreads,
    ClientThreadsBuilder, ClientThreadsError, Connect, ConnectFailed, ConnectFailure, Disconnect,
    Lookup, Resolver, Session, SharedCall, SharedCallWithMetadata, SharedChannel,
    SharedChannelBuilder, Target, WithMetadata,
};
#[cfg(feature = "tokio")]
pub use erpc_core::endpoint::tokio;
pub use erpc_core::endpoint::{Endpoint, Handle, OpenError, SubmitError, sleep, spawn, timeout};
pub use erpc_core::event_loop::{EndpointStats, IdlePolicy, LoopGaps, MAILBOX_LIMIT};
pub use erpc_core::executor::{Elapsed, JoinAll, JoinHandle, Sleep, join_all};
pub use erpc_core::protocol::{
    CallError, Cause, ConfigError, CongestionControl, ConnectError, DcqcnConfig, EndpointConfig,
    Integrity, NoServer, RejectReason, Retransmissions, SessionStats, SwiftConfig, TimelyConfig,
};
pub use erpc_core::server::{
    DEFAULT_PORT, Listen, Nexus, Seat, ServeError, Server, ServerBuilder, ServerHandle,
    ShutdownSignal, shutdown_signal,
};
pub use erpc_core::service::protobuf;
pub use erpc_core::service::{
    Burst, BurstRequest, CallContext, FixedLayout, Incoming, Interceptor, Metadata, MetadataError,
    MetadataRef, Outgoing, Request, Responder, Response, Service, SharedIncoming, SharedOutgoing,
    SharedRequest, SharedUpload, Upload,
};
pub use erpc_core::serving::WorkerPool;
pub use erpc_core::status::{Code, Status};
pub use erpc_core::transport::udp::{UdpConfig, UdpTransport as Udp};
pub use erpc_core::transport::{NetworkError, Obstacle, Transport};
pub use erpc_core::zerocopy;
pub use erpc_derive::{FixedLayout, Service};
/// The well-known types of protocol buffers, such as `Timestamp`, that generated code uses.
pub use prost_types;

/// Whether a server's services serve: `erpc.health.v1.Health`, which channels can watch.
///
/// The definition, for clients in other languages and for generated clients, is in
/// `proto/erpc/health/v1/health.proto`.
pub mod health {
    pub use erpc_core::health::{
        CHECK, HealthCheckRequest, HealthCheckResponse, HealthReporter, ServingStatus, WATCH,
    };
}

/// The interface of generated code: methods, codecs and the table of a server's methods.
pub mod service {
    pub use erpc_core::service::{
        Borrowed, BufMut, BurstRequests, Codec, DecodeError, Encodes, FieldSink, Fields, Fixed,
        FixedLayout, Method, MethodCollision, MethodOptions, Mode, Prost, Routes, ServiceOptions,
        SharedByThreads, Viewable, encode_view, method_id, view_len,
    };
}

/// Transports, which move datagrams in bursts: the available ones, and the traits for new ones.
///
/// A [`Transport`] is one queue pair of one endpoint. Its halves, [`RxQueue`](transport::RxQueue)
/// and [`TxQueue`](transport::TxQueue), are borrowed at the same time, because packets are handled
/// in the receive buffers.
pub mod transport {
    pub use erpc_core::transport::{
        Arena, Capabilities, ChargeModel, Link, MAX_BURST, MIN_DATAGRAM, NoMarks, Path, QUOTE_LEN,
        Route, RxPacket, RxQueue, TransportStats, TxPacket, TxQueue, Undelivered, Waker,
    };

    /// A transport that drops, duplicates, delays and corrupts packets, for tests.
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

    /// Ports that DPDK drives, without a kernel in the data path. Needs the feature `dpdk`.
    #[cfg(feature = "dpdk")]
    pub mod dpdk {
        pub use erpc_core::transport::dpdk::{
            DpdkConfig, DpdkError, DpdkRx, DpdkTransport, DpdkTx, NotAPort, Steering, init,
            ring_pair,
        };
        pub use erpc_core::transport::frame::{FrameDrop, FrameDrops, Mac, Network, NotAMac};
    }

    /// Network cards that speak verbs: InfiniBand and RoCE. Devices of libibverbs need the feature
    /// `ibverbs`; devices in memory, for tests, need nothing.
    pub mod verbs {
        pub use erpc_core::transport::verbs::{
            AddressHandle, Completion, Device, DeviceInfo, GRH, Gid, Host, NotADevice, Piece,
            Provider, Queue, Rebuilt, RecvRequest, Registration, SendRequest, SoftDevice,
            SoftFabric, VerbsConfig, VerbsError, VerbsRx, VerbsStats, VerbsTransport, VerbsTx,
        };
        #[cfg(feature = "ibverbs")]
        pub use erpc_core::transport::verbs::{IbvDevice, Ibverbs};
    }

    /// Kernel UDP.
    pub mod udp {
        pub use erpc_core::transport::udp::{OVERFLOW_HINT, UdpError, UdpRoute, UdpRx, UdpTx};
    }
}

/// The memory of a store's tables: large arrays, and prefetches for [burst hooks](Burst).
pub mod memory {
    pub use erpc_core::memory::{OutOfMemory, ZeroedArray, prefetch};
}

/// A network in virtual time, for tests of services: simulated faults, and servers that die.
///
/// The guide has a chapter about tests, `docs/10-testing.md`.
pub mod testing {
    pub use erpc_core::testing::{
        VirtualNetwork, VirtualRoute, VirtualRx, VirtualServer, VirtualTransport, VirtualTx,
    };
}

/// The untyped layer that [`Endpoint`] is built on.
pub mod raw {
    pub use erpc_core::buf::{MsgBuf, NoMemory, Pool, PoolStats};
    pub use erpc_core::event_loop::{App, Context, Rpc};
    pub use erpc_core::protocol::{
        Acceptor, Body, ClientId, ClientStats, DropReason, ListenGroup, NewCall, ProtocolStats,
        Rejected, Reply, Request, RequestHandle, ResponseBuffer, SessionAddress, SessionEvent,
        SessionId, UpcomingRequest,
    };
    pub use erpc_core::time::Instant;
}

/// Includes the code that `erpc-build` generated for a package, named as in the `.proto` file.
///
/// ```ignore
/// mod proto {
///     erpc::include_proto!("kv.v1");
/// }
/// ```
///
/// If packages refer to each other, their modules must be nested like the packages:
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
/// The name of a file without a package is `"_"`. Words of a package name that are Rust keywords
/// are written as raw identifiers: `"my.r#type"`. For code that was generated into another folder,
/// use `include!`.
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Wraps the code that `erpc-build` generates. Exempts its items from the lints below, unless the
/// crate forbids one of them. `missing_docs` is not listed, so that crates may forbid it: all
/// generated items have docs. Not for other code.
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
            // Lists only the restriction lints that generated code triggers, because a crate that
            // forbids a listed lint gets an error.
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
            reason = "a crate's lints are for hand-written code"
        )]
        $item
    )*};
}
