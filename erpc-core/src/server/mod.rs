//! Servers: threads, each with an endpoint, behind one address.

#![forbid(unsafe_code)]

mod builder;
mod error;
mod handle;
mod listen;
mod nexus;
mod signals;
mod thread;
mod watch;

pub use builder::{Server, ServerBuilder};
pub use error::ServeError;
pub use handle::ServerHandle;
pub use listen::Listen;
pub use nexus::{DEFAULT_PORT, Nexus, Seat};
pub use signals::{ShutdownSignal, shutdown_signal};
