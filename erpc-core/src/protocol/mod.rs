//! The protocol, without input or output (thesis chapter 6).
//!
//! [`Core`] is an endpoint's half of every session it takes part in. It is fed packets and the time and
//! pushes packets into a [`TxQueue`](crate::transport::TxQueue); it knows no socket, thread or clock.
//!
//! ```text
//!             receive(now, route, bytes)  ->  Event: a request to handle or to drop, a reply to deliver
//!   call(..) cancel(..) respond(..)       ->  packets into the transmit queue
//!             end_of_burst(now)           ->  credit returns, requests for response, what had to wait
//!             expire(now)                 ->  what is paced, retransmissions, pings, calls that are too late
//!             pop_notice()                ->  calls that failed, sessions that opened or closed, clients
//!                                             that are gone
//! ```
//!
//! # Contract
//!
//! `now` never runs backwards. After a burst of [`Core::receive`] comes one [`Core::end_of_burst`].
//! [`Core::expire`] is called at [`Core::next_deadline`] or later, and notices are popped after either.
//!
//! # Roles
//!
//! `client` holds the sessions this endpoint opened, `server` those it accepted. Clients drive:
//! every packet of a server answers one of its client's, retransmission is the client's alone, and a
//! server that loses its state loses nothing that a client cannot find out.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod assembly;
mod client;
mod config;
mod congestion;
mod cookie;
mod core;
mod endpoint;
mod error;
mod error_status;
mod event;
mod ids;
mod index;
pub mod measurement;
mod rtt;
mod server;
mod stats;
#[cfg(test)]
mod tests;
mod turn;
mod wheel;

pub use self::core::{Core, MAX_EXPIRED};
pub use config::{ConfigError, EndpointConfig, Integrity, WINDOW};
pub use congestion::{CongestionControl, DcqcnConfig, TimelyConfig};
pub use endpoint::Local;
pub use error::{CallError, Cause, ConnectError, RejectReason, Rejected};
pub use event::{
    Body, ClientId, Event, NewCall, Notice, Reply, Request, RequestHandle, SessionEvent, SessionId,
};
pub use rtt::MAX_RTO;
pub use server::{Acceptor, KEPT_CAPACITY, ListenGroup};
pub use stats::{ClientStats, DropReason, ProtocolStats, SessionStats};
pub use turn::QueueWait;
