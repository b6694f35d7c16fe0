//! A replicated key-value store: the Raft library of TiKV, unmodified, over erpc.
//!
//! ```text
//!   clients                                       other nodes
//!      │ Store: Put, Cas, Get                         │ Peer: Deliver, Install
//!      v                                              v
//!   node ── proposals, messages, ticks ──> consensus (no I/O)
//!    │  <── messages, writes, committed entries ──┘
//!    ├── writes ──> disk: a log with checksums, snapshots
//!    └── committed entries ──> machine: keys, sessions
//! ```
//!
//! * [`consensus`]: the trait between the store and an algorithm, and Raft behind it.
//! * [`machine`]: the replicated state. A client's write applies exactly once.
//! * [`disk`]: what survives a restart.
//! * [`node`]: one member, which puts these together in the event loop of an endpoint.
//! * [`client`]: finds the leader, and repeats what was not answered.
//! * [`check`]: whether a history of calls is linearizable.
//! * [`fuzz`]: a member that gets any messages.
//! * [`program`]: the commands.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod check;
pub mod client;
pub mod consensus;
pub mod disk;
pub mod fuzz;
pub mod machine;
#[cfg(erpc_mutants)]
#[doc(hidden)]
pub mod mutants;
#[cfg(not(erpc_mutants))]
mod mutants;
pub mod node;
pub mod program;
pub mod proto;
pub mod wire;
