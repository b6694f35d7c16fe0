//! The erpc runtime. Users depend on the `erpc` facade; this crate is where the work is done.
//!
//! A packet's way in, and a call's way out, reads along the modules:
//!
//! ```text
//!   transport  ->  wire  ->  protocol  ->  runtime  ->  service
//!   datagrams      bytes     pure state     threads      generated code
//!   in bursts                machines       and time     and users
//! ```
//!
//! [`stream`] makes streams out of calls, as pure as the protocol; [`buf`] is the memory they share, [`time`] the clock value that they pass along.
//! `ARCHITECTURE.md` in the repository tells the whole story, `WIRE.md` draws the bytes.

pub mod buf;
mod clock;
#[cfg(not(erpc_mutants))]
mod mutants;
#[cfg(erpc_mutants)]
pub mod mutants;
pub mod protocol;
pub mod runtime;
pub mod service;
pub mod status;
pub mod stream;
mod sync;
pub mod time;
pub mod transport;
pub mod wire;

/// What fixed layouts are made of; generated code names it.
pub use zerocopy;
