//! The protocol, without input or output (thesis chapter 6).
//!
//! [`Core`] is an endpoint's half of all its sessions; its documentation says how to drive it. The
//! owner passes packets and the time to the core. The core pushes packets into a
//! [`TxQueue`](crate::transport::TxQueue). The core uses no socket, thread or clock.
//!
//! ```text
//! receive(now, .., packet)         ->  at most one Event, passed to the owner's sink at the end
//! call(..) cancel(..) respond(..)  ->  packets into the transmit queue
//! end_of_burst(now)                ->  credit returns, requests for response, calls that waited
//! expire(now)                      ->  paced packets, retransmissions, pings, deadlines
//! pop_notice()                     ->  failed calls, sessions that opened or closed
//! ```
//!
//! Each entry point makes a `Turn`: the time, the transmit queue, and the state that both roles
//! share. The functions inside take the `Turn` as an argument.
//!
//! # Roles
//!
//! `client` holds the sessions that this endpoint opened, `server` the sessions that it accepted.
//! Clients drive the protocol. For a call, a server sends only answers. Without being asked, it
//! sends only pings, and `GoAway` and `Close` when it shuts down. It repeats a response only when a
//! repeated request or a request for response asks for it. It is the client that detects that a
//! server has lost its state.

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
mod flushes;
mod ids;
mod index;
pub mod measurement;
mod padding;
mod proofs;
mod rtt;
mod server;
mod stats;
#[cfg(test)]
mod tests;
mod turn;
mod wheel;

pub use self::core::{Core, EventSink};
pub use config::{ConfigError, DEFAULT_SLOTS, EndpointConfig, Integrity, MAX_SLOTS};
pub use congestion::{CongestionControl, DcqcnConfig, SwiftConfig, TimelyConfig};
pub use endpoint::Local;
pub use error::{CallError, Cause, ConnectError, NoServer, RejectReason, Rejected};
pub use event::{
    Body, ClientId, Event, NewCall, Notice, Reply, Request, RequestHandle, ResponseBuffer,
    SessionAddress, SessionEvent, SessionId, UpcomingRequest,
};
pub use rtt::MAX_RTO;
pub use server::{Acceptor, KEPT_CAPACITY, ListenGroup};
pub use stats::{ClientStats, DropReason, ProtocolStats, Retransmissions, SessionStats};
pub use turn::QueueWait;
pub(crate) use turn::Stage;
pub use wheel::MAX_EXPIRED;
