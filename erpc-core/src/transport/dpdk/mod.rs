//! Endpoints on ports that DPDK drives, without a kernel in the data path. Needs the feature
//! `dpdk`.
//!
//! ```text
//!   DpdkTransport
//!   +-- DpdkRx   rte_eth_rx_burst, packets lent from mbufs         rx.rs
//!   +-- DpdkTx   packets copied to mbufs, rte_eth_tx_burst         tx.rs
//!   +-- Seat     the endpoint's queues, neighbours, control frames device.rs
//!   +-- Device   the started port and its mempool                  device.rs
//!   +-- Inbox    packets that arrived at a sibling's queue         inbox.rs
//!   +-- eal      DPDK itself, once per process                     eal.rs
//! ```
//!
//! [`ring_pair`] connects two ports within a process, for tests.
//!
//! The frames are real: Ethernet, IPv4 or IPv6, UDP ([`frame`](super::frame)), so switches, RSS and
//! tcpdump understand them. The endpoints of a port share its address, and have UDP ports of their
//! own.

mod bell;
mod config;
mod device;
mod eal;
mod inbox;

mod rings;
mod rx;
mod transport;
mod tx;

pub use config::{DpdkConfig, DpdkError, NotAPort};
pub use eal::init;
pub use rings::ring_pair;
pub use rx::DpdkRx;
pub use transport::DpdkTransport;
pub use tx::DpdkTx;
