//! Threads and time: the event loop and what runs on it.
//!
//! [`Rpc`] is one endpoint at its barest, [`App`] what its owner does with what comes in.
//!
//! [`Endpoint`] is the comfortable form: typed calls on [`Session`]s that are awaited or bring callbacks, a
//! local executor for their futures, and typed handlers. [`Server`] runs one per thread behind an address.
//!
//! ```text
//!   Server    threads, pinning, shutdown        server.rs     Nexus    one address, n endpoints   nexus.rs
//!   Endpoint  the loop and its handles          endpoint.rs   Handle   from other threads         handle.rs
//!   Session   calls, connecting                 session.rs    Workers  slow handlers              worker.rs
//!   Shared    between them and the raw Rpc      shared.rs     Mailbox  what threads leave there   mailbox.rs
//!   Dispatch  requests to handlers, replies     dispatch.rs   Executor tasks                      executor.rs
//!   Running   calls of asynchronous handlers    tasks.rs      Timers   sleeping tasks             timers.rs
//!   Calls     those under way, by key           calls.rs      Waiting  callbacks, in used boxes   callback.rs
//!   Channel   several servers as one            channel/      Plan     calls that wait or repeat  plan.rs
//!   Streams   many messages each way, by calls  stream/       Options  of a client's calls        options.rs
//! ```

#![forbid(unsafe_code)]

mod call;
mod callback;
mod calls;
mod channel;
mod dispatch;
mod endpoint;
mod executor;
mod handle;
mod idle;
mod join;
mod link;
mod mailbox;
mod nexus;
mod options;
mod plan;
mod retry;
mod rpc;
#[cfg(all(test, loom))]
mod schedules;
mod server;
mod session;
mod shared;
mod stream;
mod tasks;
mod timers;
#[cfg(feature = "tokio")]
pub mod tokio;
mod totals;
mod turn;
mod worker;

use crate::clock;
pub use crate::protocol::EndpointConfig;
pub use call::{Call, WithMetadata};
pub use channel::{BackendStats, Balance, Channel, ChannelBuilder, ChannelStats, Lookup, Resolver};
pub use endpoint::{Endpoint, OpenError};
pub use handle::{Handle, SubmitError};
pub use idle::IdlePolicy;
pub use join::{JoinAll, JoinHandle, join_all};
pub use mailbox::MAILBOX_LIMIT;
pub use nexus::{DEFAULT_PORT, Nexus, Seat};
pub use options::CallOptions;
pub use retry::RetryPolicy;
pub use rpc::{App, Context, EndpointStats, Rpc};
pub use server::{ServeError, Server, ServerBuilder, ServerHandle};
pub use session::{Connect, ConnectFailed, ConnectFailure, Disconnect, Session, Target};
pub use timers::{Elapsed, Sleep};
pub use worker::WorkerPool;
