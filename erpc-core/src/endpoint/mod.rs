//! The endpoint that users hold: it owns the event loop, the executor, its calls and its handlers.

#![forbid(unsafe_code)]

mod census;
mod drain;
mod ending;
pub(crate) mod entered;
pub(crate) mod handle;
mod here;
pub(crate) mod open;
pub(crate) mod parts;
pub(crate) mod pin;
mod run;
#[cfg(all(test, loom))]
mod schedules;
#[cfg(feature = "tokio")]
pub mod tokio;
mod turn;
mod watch;

pub use census::{Census, check_invariants};
pub use handle::{Handle, SubmitError};
pub use here::{sleep, spawn, timeout};
pub(crate) use open::WeakEndpoint;
pub use open::{Endpoint, OpenError};
