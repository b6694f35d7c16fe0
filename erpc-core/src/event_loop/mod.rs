//! The event loop: a transport, the protocol on top of it, and the turns that move packets between
//! them.
//!
//! [`Rpc`] is one raw endpoint. [`App`] is its owner's code for requests and replies.

#![forbid(unsafe_code)]

pub(crate) mod bell;
mod doorbell;
pub(crate) mod flush;
pub(crate) mod idle;
pub(crate) mod mailbox;
#[cfg(all(test, loom))]
pub(crate) mod parker;
pub(crate) mod rpc;
#[cfg(all(test, loom))]
mod schedules;
mod totals;
mod turn;
mod unread;
pub(crate) mod wakes;

pub use idle::IdlePolicy;
pub use mailbox::MAILBOX_LIMIT;
pub use rpc::{App, Context, EndpointStats, Rpc};
pub use turn::LoopGaps;
