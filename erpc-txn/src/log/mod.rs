//! The log of transactions: what a coordinator stores at its log replicas before it commits.
//!
//! A [`Record`] describes one transaction completely: where it ran, what it writes, and from which
//! version to which. So replicas can be rebuilt from their contents at some time and the records
//! after it: each group of writes goes to [`Table::apply`](crate::table::Table::apply), in any order
//! that respects the versions. Records are checked by a checksum.
//!
//! A [`Log`] holds the records of one coordinator at one node, in bounded memory. When all replicas of
//! a transaction's tables have applied it, its record is [freed](Log::free).
//!
//! Nothing here does I/O or knows the time.
#![forbid(unsafe_code)]

mod codec;
mod record;
mod store;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub(crate) use codec::buckets;
pub use codec::{DecodeError, EncodeError, MAX_RECORD, Rule};
pub use record::{
    Coordinator, Entries, Entry, Group, Groups, MAX_SEQUENCE, MAX_THREADS, Operation, Partitions,
    Record,
};
pub use store::{Appended, Log, LogError};
