//! Tasks of one thread, their timers, and waiting for them.

#![forbid(unsafe_code)]

pub(crate) mod join;
#[cfg(all(test, loom))]
mod schedules;
#[cfg(feature = "tokio")]
pub(crate) mod standstill;
pub(crate) mod tasks;
pub(crate) mod timers;

pub use join::{JoinAll, JoinHandle, join_all};
pub use timers::{Elapsed, Sleep};
