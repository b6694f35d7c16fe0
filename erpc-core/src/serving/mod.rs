//! Serving: passes an endpoint's requests to their handlers, and the answers back to the protocol.

#![forbid(unsafe_code)]

mod answer;
mod dispatch;
mod drain;
mod hooks;
mod methods;
mod port;
pub(crate) mod requests;
mod running;
#[cfg(all(test, loom))]
mod schedules;
mod stream;
pub(crate) mod worker;

pub(crate) use running::RefusedCalls;
pub use worker::{StepWorkers, TakenJob, WorkerPool};
