//! A transport that misbehaves on purpose.
//!
//! [`Faulty`] wraps any transport and loses, repeats, delays and damages packets in both directions,
//! by chance but repeatably: the decisions depend on the plan's seed and on the packets' order, those of
//! outages also on the time, on nothing else. Each fault that acted is counted, so that a test can tell
//! a protocol that survived from a fault that never happened.
//!
//! ```text
//!   Faults     what may happen in one direction      FaultPlan   both, and a seed        plan.rs
//!   Injector   decides, packet by packet             Fate        what it decided         injector.rs
//!   Damage     does it to bytes                                                          damage.rs
//!   Faulty     a transport between two injectors     FaultHandle for other threads       faulty.rs, handle.rs
//! ```
//!
//! The injector asks no clock and holds no packet. A simulator uses the same one for its links.
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
//! // .. run something over the transport, then heal the network and look back:
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
