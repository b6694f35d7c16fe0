//! Servers: threads, each with an endpoint, behind one address.

#![forbid(unsafe_code)]

mod builder;
pub(crate) mod nexus;

pub use builder::{ServeError, Server, ServerBuilder, ServerHandle};
pub use nexus::{DEFAULT_PORT, Nexus, Seat};
