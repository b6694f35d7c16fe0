//! A transaction store over erpc: serializable, replicated, in memory, after FaSST (Kalia et al.,
//! OSDI'16).
//!
//! Programs read and write keys of several tables in one transaction, whichever nodes hold them:
//!
//! ```no_run
//! use erpc::{Channel, Endpoint};
//! use erpc_txn::{Cluster, TypedTable};
//!
//! const BALANCES: TypedTable<u64, i64> = TypedTable::new(1);
//!
//! let endpoint = Endpoint::udp()?;
//! let channel = Channel::connect(&endpoint, "10.0.0.1:31850")?;
//! let cluster = endpoint.block_on(Cluster::connect(channel))?;
//! endpoint.block_on(cluster.transact(async |tx| {
//!     let balance = tx.read_for_update(BALANCES, 7).await?;
//!     let balance = balance.ok_or_else(|| tx.abort("no such account"))?;
//!     tx.write(BALANCES, 7, &(balance + 100))
//! }))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The program `erpc-txn`, in the crate `erpc-txn-cli`, runs the nodes. The guide builds a bank in its
//! chapter 11, `docs/11-transactions.md`.
//!
//! # Guarantees
//!
//! * **Strictly serializable.** Committed transactions have an order in which each sees all before it.
//!   A transaction that begins after another was reported as committed comes after it. This holds
//!   for read-only transactions too. Inside the closure, before the commit has checked it, reads of
//!   different moments may be seen: see [`Transaction`].
//! * **All or nothing.** A transaction's writes appear at once, at all nodes, or never.
//! * **Three outcomes.** `Ok`: it has committed, and all backups have its writes. A primary that
//!   does not answer gets them later; until then its keys are locked.
//!   [`TransactError::Aborted`]: it has changed nothing, and will not. [`TransactError::Unknown`]: it
//!   may have committed, may commit later, or never.
//! * **Replicated.** Each partition has up to two backups (`f` = 0, 1 or 2). What is reported as
//!   committed is in the memory of `f + 1` nodes.
//! * **No stuck locks of programs.** A program outside of the cluster holds no lock. If it dies, the
//!   member that coordinates for it aborts.
//!
//! # Costs
//!
//! A transaction that reads `R` keys and locks `W` others makes these requests, of which those to one
//! node share a message per phase, and those to the coordinator's own node are function calls:
//!
//! | phase | requests |
//! |---|---|
//! | execute: read, and lock what is read for an update or inserted | `R + W` |
//! | validate: what was read is unchanged; not if the transaction reads one key and locks none | `R` |
//! | log, if something is written | `f` to other nodes |
//! | commit at backups | `f W` |
//! | commit at primaries, which unlocks | `W` |
//!
//! So a read of one key is one round trip, a read of several keys two, and an update of keys that are
//! read in one [batch](transaction::Batch) four, or two without backups, each to the slowest node. A
//! program outside of the cluster adds a round trip to a member per step of the closure, and one for
//! the commit.
//!
//! Nothing waits for a lock: who finds one aborts, and tries again after a short random pause, until
//! the transaction's deadline ([`Limits`]). Locks and versions are those of buckets of about five
//! keys, so neighbours in a bucket conflict although their keys differ.
//!
//! Tables do not grow: their memory is taken when they are built, for their capacity. An entry costs in
//! each of its `f + 1` replicas, by the inline length of the table's values:
//!
//! ```
//! use erpc_txn::table::Config;
//!
//! let bytes_per_record = |inline| {
//!     let table = Config::new(1_000_000).inline(inline).build().unwrap();
//!     table.footprint() / 1_000_000
//! };
//! assert_eq!([8, 40, 64].map(bytes_per_record), [49, 98, 148]);
//! ```
//!
//! A value that is longer than the inline length has an allocation of its own. Each coordinating
//! thread has a log at `f + 1` nodes, of [`Settings::log_bytes`](participant::Settings::log_bytes).
//!
//! # What is not there
//!
//! * **Recovery.** If a node dies, transactions that need it are aborted as unavailable or become
//!   unknown, and their keys stay locked, until the whole cluster is restarted, empty. The replicas
//!   do not take over yet.
//! * **Disks.** All data is in memory. A node that restarts has lost it and is refused by the others.
//! * **Members that come and go.** The nodes are fixed when the cluster starts.
//! * **An ordered index.** Keys are 64 bits and hashed: no scans, ranges or secondary indices.
//! * **Blind writes.** A key is read and locked, or inserted, before it is written.
//! * **Encryption and authentication**, as in all of erpc.
//!
//! # Parts
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
mod random;
#[cfg(not(loom))]
pub mod service;
#[cfg(not(loom))]
mod steps;
mod sync;
pub mod table;
#[cfg(not(loom))]
pub mod transaction;
#[cfg(not(loom))]
mod waiters;
#[cfg(not(loom))]
pub mod workloads;

#[cfg(not(loom))]
pub use client::Cluster;
#[cfg(not(loom))]
pub use codec::TypedTable;
#[cfg(not(loom))]
pub use transaction::{Abort, Limits, Reason, TransactError, Transaction};
