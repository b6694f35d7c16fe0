//! Endpoints on ports that DPDK drives, without a kernel in the data path. Needs the feature
//! `dpdk`.
//!
//! ```text
//!   DpdkTransport
//!   +-- DpdkRx   rte_eth_rx_burst, packets lent from mbufs         rx.rs
//!   +-- DpdkTx   rte_eth_tx_burst of packets in mbufs              tx.rs
//!   |   +-- OpenFrame  frames that grow                          tx.rs
//!   |   +-- Holds      messages that the device reads in place     holds.rs
//!   +-- Device   the started port, shared by a group of endpoints  device.rs
//!       +-- Member     an endpoint's inbox and bell                group.rs
//!       +-- KernelDevice   what AF_PACKET and AF_XDP need         kernel.rs
//!       +-- DpdkArena  memory for such messages                    arena.rs
//!       +-- Mempool    the memory of packets                       pool.rs
//!
//!   eal          DPDK itself, once per process                     eal.rs
//! ```
//!
//! [`ring_pair`] connects two ports within a process, for tests.
//!
//! The frames are real: Ethernet, IPv4 or IPv6, UDP ([`frame`](super::frame)), so switches, RSS and
//! tcpdump understand them. The endpoints of a port have its address, and one UDP port each.

mod arena;
mod bell;
mod config;
mod device;
mod eal;
mod group;
mod holds;
mod inbox;
mod kernel;
mod pool;
mod rings;
mod rx;
#[cfg(test)]
mod tests;
mod transport;
mod tx;

pub use config::{DpdkConfig, DpdkError, NotAPort};
pub use eal::init;
pub use group::Steering;
pub use rings::ring_pair;
pub use rx::DpdkRx;
pub use transport::DpdkTransport;
pub use tx::DpdkTx;
