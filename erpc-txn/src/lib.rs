//! A transaction store over erpc: serializable, replicated, in memory, after FaSST (Kalia et al.,
//! OSDI'16).
//!
//! The store is in the making. So far it has two parts:
//!
//! * [`table`]: the concurrent hash table of one replica of one partition. It holds values, versions
//!   and the locks of transactions, and knows nothing of messages.
//! * [`log`]: the records of transactions that are about to commit, as bytes and in bounded memory.
#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod log;
mod sync;
pub mod table;
