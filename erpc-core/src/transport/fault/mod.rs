//! A transport that injects faults.
//!
//! [`Faulty`] wraps any transport and loses, repeats, delays and damages packets in both
//! directions, randomly but repeatably: random decisions depend only on the plan's seed and on the
//! order of the packets. Outages depend on the time and on the packet's length. Each fault that
//! acts is counted, so that a test can tell a protocol that survives a fault from a fault that
//! never happened.
//!
//! ```text
//!   Faults     what may happen in one direction      FaultPlan   both directions, a seed plan.rs
//!   Injector   decides for each packet               Fate        its decision            injector.rs
//!   Damage     changes the bytes                                                         damage.rs
//!   Faulty     a transport between two injectors     FaultHandle for other threads       faulty.rs, handle.rs
//! ```
//!
//! The injector reads no clock and holds no packet. A simulator uses the same `Injector` for its
//! links.
//!
//! ```
//! use std::time::Duration;
//! use erpc_core::transport::Transport;
//! use erpc_core::transport::fault::{FaultPlan, Faults, Faulty};
//! use erpc_core::transport::udp::{UdpConfig, UdpTransport};
//!
//! let faults = Faults::none().drop(0.01).reorder(0.05, Duration::from_millis(2));
//! let transport = Faulty::new(UdpTransport::bind(&UdpConfig::new())?, FaultPlan::new(7).both(faults));
//! let handle = transport.handle();
//! // .. run something over the transport, then remove the faults and read the counters:
//! handle.set_plan(FaultPlan::new(7));
//! assert_eq!(handle.stats().rx.dropped, 0);
//! # Ok::<(), erpc_core::transport::udp::UdpError>(())
//! ```

mod chance;
mod damage;
mod faulty;
mod handle;
mod injector;
mod late;
mod line;
mod packets;
mod plan;
#[cfg(test)]
mod tests;

pub use damage::Damage;
pub use faulty::{Faulty, FaultyRx, FaultyTx};
pub use handle::{FaultHandle, FaultStats};
pub use injector::{Fate, FaultCounts, Injector, PacketCopy};
pub use plan::{FaultPlan, Faults, Outage};
