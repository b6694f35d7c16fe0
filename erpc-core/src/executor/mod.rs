//! Tasks and timers on an endpoint's thread, and futures that wait for them.

#![forbid(unsafe_code)]

pub(crate) mod join;
pub(crate) mod scheduler;
#[cfg(all(test, loom))]
mod schedules;
pub(crate) mod sleep;
pub(crate) mod standstill;
pub(crate) mod tasks;
pub(crate) mod timers;
pub(crate) mod waiters;

pub use join::{JoinAll, JoinHandle, join_all};
pub use sleep::{Elapsed, Sleep};
