//! The erpc runtime. Users depend on the `erpc` facade; this crate is where the work is done. Its own surface is not stable:
//! the simulator, the fuzzers and the benchmarks reach into modules that `erpc` does not show.
//!
//! A request goes down the folders of its caller and up those of the server; the response takes the same way
//! back:
//!
//! ```text
//!   client/      a session encodes the request     user's handler    decodes it and answers
//!   calling/     keeps the call, queues its key    serving/          finds the handler and runs it
//!   endpoint/    the turn drains the queue         endpoint/         the turn hands the request on
//!   event_loop/  lends core and transmit queue     event_loop/       takes up to 32 packets per turn
//!   protocol/    a slot, a credit, the header      protocol/         a session, a slot, each request once
//!   transport/   one doorbell per turn  ------------->  transport/   a burst of datagrams
//! ```
//!
//! The reply comes back to `calling/`, which wakes the task that awaits it or runs its callback. Beside this way
//! lie [`executor`] with the tasks and timers of an endpoint, [`service`] with what generated code is made of, and
//! [`server`] with the threads of a server.
//!
//! [`stream`] makes streams out of calls, as pure as the protocol; [`buf`] is the memory they share, [`time`] the clock value that they pass along.
//!
//! Folder order is import order: a module imports only from those before it. `tests/layers.rs` checks that.
//!
//! ```text
//!   time < sync < mutants < clock < random < status < wire < buf < transport < protocol < stream < service
//!     < event_loop < executor < calling < serving < endpoint < client < server
//! ```
//!
//! `ARCHITECTURE.md` in the repository tells the whole story, `WIRE.md` draws the bytes.

pub mod buf;
pub mod calling;
pub mod client;
mod clock;
pub mod endpoint;
pub mod event_loop;
pub mod executor;
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
pub mod time;
pub mod transport;
pub mod wire;

/// What fixed layouts are made of; generated code names it.
pub use zerocopy;
