//! Requests that an endpoint has received: to their handlers, and answers back to the protocol.

#![forbid(unsafe_code)]

pub(crate) mod dispatch;
#[cfg(all(test, loom))]
mod schedules;
pub(crate) mod stream;
pub(crate) mod tasks;
pub(crate) mod worker;

pub use worker::WorkerPool;
