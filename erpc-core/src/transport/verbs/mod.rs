//! Endpoints on network cards that speak verbs: InfiniBand, and RoCE over Ethernet. Packets are
//! datagrams of Unreliable Datagram queue pairs, without a kernel in the data path.
//!
//! ```text
//!   VerbsTransport
//!   +-- VerbsRx    the ring of buffers, posted again in place      rx.rs
//!   |   +-- grh        who has sent a datagram                     grh.rs
//!   +-- VerbsTx    chains of requests, few completions             tx.rs
//!   +-- Line       what both halves share                          line.rs
//!       +-- Peers      UDP addresses and queue pairs               peers.rs
//!       +-- Socket     the exchange of addresses, over UDP         exchange/
//!       +-- Slots      registered memory, also for messages        memory.rs
//!       +-- Device     what a device must do: a trait              device.rs
//!
//!   Ibverbs      devices of libibverbs (feature `ibverbs`)         ibverbs/
//!   SoftFabric   devices in memory, for tests                      soft.rs
//! ```
//!
//! Everything but `Ibverbs` is compiled without libibverbs.

mod config;
mod device;
pub mod exchange;
mod grh;
#[cfg(feature = "ibverbs")]
mod ibverbs;
mod line;
mod memory;
mod peers;
mod rx;
mod soft;
#[cfg(any(test, feature = "ibverbs"))]
mod sysfs;
#[cfg(test)]
mod tests;
mod transport;
mod tx;

pub use config::{NotADevice, VerbsConfig, VerbsError};
pub use device::{
    AddressHandle, Completion, Device, DeviceInfo, GRH, Gid, Host, Piece, Provider, Queue, Rebuilt,
    RecvRequest, Registration, SendRequest,
};
#[cfg(feature = "ibverbs")]
pub use ibverbs::{IbvDevice, Ibverbs};
pub use rx::VerbsRx;
pub use soft::{SoftDevice, SoftFabric};
pub use transport::{VerbsStats, VerbsTransport};
pub use tx::VerbsTx;
