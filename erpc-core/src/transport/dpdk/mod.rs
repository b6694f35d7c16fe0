//! Endpoints on ports that DPDK drives, without a kernel in the data path. Needs the feature
//! `dpdk`.
//!
//! ```text
//!   DpdkTransport
//!   +-- DpdkRx   rte_eth_rx_burst, packets lent from mbufs         rx.rs
//!   +-- DpdkTx   packets copied to mbufs, rte_eth_tx_burst         tx.rs
//!   +-- Device   the started port and its mempools                 device.rs
//!   +-- eal      DPDK itself, once per process                     eal.rs
//! ```
//!
//! [`ring_pair`] connects two ports within a process, for tests.
//!
//! The frames are real: Ethernet, IPv4 or IPv6, UDP ([`frame`](super::frame)), so switches, RSS and
//! tcpdump understand them. An endpoint has a port of its own, and the port's address belongs to
//! the endpoint.

mod bell;
mod config;
mod device;
mod eal;

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
