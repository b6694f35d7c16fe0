//! The erpc runtime. Users depend on the `erpc` facade; this crate is the implementation. Its
//! interface is not stable: the simulator, the fuzzers and the benchmarks use modules that `erpc`
//! does not export.
//!
//! A request passes through the folders of the client from top to bottom, and through those of the
//! server from bottom to top. The response takes the same path back:
//!
//! ```text
//! client/      a session encodes the request    user's handler  decodes it and answers
//! calling/     keeps the call, queues its key   serving/        finds the handler and runs it
//! endpoint/    the turn drains the queue        endpoint/       the turn passes the request on
//! event_loop/  lends core and transmit queue    event_loop/     takes up to 64 packets per turn
//! protocol/    a slot, a credit, the header     protocol/       session, slot, each request once
//! transport/   one doorbell per turn  --------> transport/      a burst of datagrams
//! ```
//!
//! The reply returns to `calling/`, which wakes the task that awaits it or runs its callback. Other
//! modules are [`executor`] (tasks and timers of an endpoint), [`service`] (the types that
//! generated code uses), [`health`] (a service that says whether others serve), [`server`]
//! (threads of a server) and [`testing`] (a network in virtual time, for users' tests).
//!
//! [`stream`] builds streams from calls and, like the protocol, does no input or output. [`buf`] is
//! the memory that all of them share, [`time`] the clock value that they pass along.
//!
//! Modules have an order, and a module imports only from modules before it. `tests/layers.rs`
//! checks that.
//!
//! ```text
//!   time < sync < mutants < clock < random < debug_text < status < wire < memory < buf
//!     < transport < protocol < stream < log < service < health < event_loop < executor < calling < serving
//!     < endpoint < client < server < testing
//! ```
//!
//! `ARCHITECTURE.md` in the repository describes the whole design, `WIRE.md` the wire format.

pub mod buf;
pub mod calling;
pub mod client;
mod clock;
mod debug_text;
pub mod endpoint;
pub mod event_loop;
pub mod executor;
pub mod health;
mod log;
pub mod memory;
#[cfg(not(erpc_mutants))]
mod mutants;
#[cfg(erpc_mutants)]
pub mod mutants;
pub mod protocol;
mod random;
pub mod server;
pub mod service;
pub mod serving;
pub mod status;
pub mod stream;
mod sync;
pub mod testing;
pub mod time;
pub mod transport;
pub mod wire;

/// Re-exported for generated code, which uses it for messages with a fixed layout.
pub use zerocopy;
