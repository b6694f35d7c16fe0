//! The erpc runtime. Users depend on the `erpc` facade; this crate is where the work is done.
//!
//! A packet's way in, and a call's way out, reads along the modules:
//!
//! ```text
//!   transport  ->  wire  ->  protocol  ->  event_loop  ->  serving, calling  ->  service
//!   datagrams      bytes     pure state    turns           requests and calls    generated code
//!   in bursts                machines                      of an endpoint        and users
//! ```
//!
//! [`stream`] makes streams out of calls, as pure as the protocol; [`buf`] is the memory they share, [`time`] the clock value that they pass along.
//!
//! Folder order is import order: a module imports only from those before it. `tests/layers.rs` checks that.
//!
//! ```text
//!   time < sync < mutants < clock < status < wire < buf < transport < protocol < stream < service
//!     < executor < event_loop < calling < serving < endpoint < client < server
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
