//! HERD's cache and a sequencer over erpc, after chapter 4 of Kalia's thesis (CMU-CS-19-126).
//!
//! ```text
//! client: the key's hash chooses the partition, the session leads to its thread
//!    │
//!    v
//! service   Get, Put: the burst hook prefetches, then the handler reads or writes; Next
//!    │                                                                      │
//!    v                                                                      v
//! cache     index ─> log in a ring                       sequencer ─> file, written ahead
//! ```
//!
//! * [`cache`]: one partition, in memory.
//! * [`sequencer`]: numbers, and the file that keeps a restarted sequencer from giving them again.
//! * [`service`]: both as services.
//! * [`client`]: the partitions of a server, as one cache.
//! * [`program`]: the program `herd`.

#![forbid(unsafe_code)]

pub mod cache;
pub mod client;
pub mod program;
pub mod proto;
pub mod sequencer;
pub mod service;
