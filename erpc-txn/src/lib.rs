//! A transaction store over erpc: serializable, replicated, in memory, after FaSST (Kalia et al.,
//! OSDI'16).
//!
//! The store is in the making. The program `erpc-txn`, in the crate `erpc-txn-cli`, runs and measures it.
//! It has these parts:
//!
//! * [`table`]: the concurrent hash table of one replica of one partition. It holds values, versions
//!   and the locks of transactions, and knows nothing of messages.
//! * [`log`]: the records of transactions that are about to commit, as bytes and in bounded memory.
//! * [`cluster`]: which nodes there are, and which of them hold the replicas of a key.
//! * [`participant`]: what a node does for coordinators in each phase of a commit, without I/O.
//! * [`check`]: whether what transactions saw and did was strictly serializable.
//! * [`service`]: the participant as a service that others call, generated from `proto/txn.proto`;
//!   [`lists`] are parts of its messages.
//! * [`coordinator`]: transactions, which a node runs as tasks of its event loop.
//! * [`transaction`]: a transaction as its closure sees it.
//! * [`gateway`] and [`client`]: transactions of programs outside of the cluster.
//! * [`codec`]: tables with types.
//! * [`workloads`]: the benchmarks of transaction stores.
#![deny(missing_docs)]
#![deny(unsafe_code)]

#[cfg(not(loom))]
pub mod check;
#[cfg(not(loom))]
pub mod client;
pub mod cluster;
#[cfg(not(loom))]
pub mod codec;
#[cfg(not(loom))]
pub mod coordinator;
#[cfg(not(loom))]
pub mod gateway;
#[cfg(not(loom))]
pub mod lists;
pub mod log;
#[cfg(erpc_mutants)]
#[doc(hidden)]
pub mod mutants;
#[cfg(not(erpc_mutants))]
mod mutants;
#[cfg(not(loom))]
pub mod participant;
#[cfg(not(loom))]
pub mod proto;
#[cfg(not(loom))]
mod random;
#[cfg(not(loom))]
pub mod service;
mod sync;
pub mod table;
#[cfg(not(loom))]
pub mod transaction;
#[cfg(not(loom))]
mod waiters;
#[cfg(not(loom))]
pub mod workloads;
