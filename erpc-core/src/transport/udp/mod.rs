//! Kernel UDP: works on every host, without privileges, over IPv4 and IPv6.
//!
//! ```text
//!   UdpTransport
//!   +-- UdpRx   recvmsg / recvmmsg, 32 buffers, GRO      rx.rs
//!   +-- UdpTx   sendto / sendmmsg, staging area, GSO     tx.rs
//!   |     +-- OpenBundle  datagrams that grow            bundle.rs
//!   |     +-- Run     packets for one kernel message     run.rs
//!   |     +-- Pieces  their memory                       pieces.rs
//!   +-- Poller  ppoll on socket and eventfd              poller.rs
//!   +-- Reports packets that were not delivered          reports.rs
//! ```
//!
//! System calls dominate the cost, so this code makes as few of them as possible.
//! Several endpoints can share one port ([`UdpTransport::bind_group`]); the kernel then runs a
//! small program that selects the endpoint by a packet's first byte.

mod bundle;
mod config;
mod egress;
mod nic;
mod path;
mod pieces;
mod poller;
mod reports;
mod route;
mod run;
mod rx;
mod socket;
mod steer;
mod stray;
mod sys;
#[cfg(test)]
mod tests;
mod transport;
mod tx;

pub use config::{MAX_DATAGRAM, UdpConfig, UdpError};
pub(in crate::transport) use poller::Poller;
pub use route::UdpRoute;
pub use rx::UdpRx;
pub use transport::{OVERFLOW_HINT, UdpTransport};
pub use tx::UdpTx;
