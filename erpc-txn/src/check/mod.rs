//! Checks whether what transactions saw and did was strictly serializable: as if they had run one
//! after the other, each at some time between its begin and its end.
//!
//! There are two checkers. Neither knows anything of the store's code.
//!
//! * [`check`] and [`History`] use the versions that the store reports: transactions record which
//!   version of a bucket they read, and from which version they took it to the next. So nothing has
//!   to be inferred. This is the checker to use.
//! * [`lists`] uses values alone. It is the second opinion, in case versions are wrong.
//!
//! Both build the *direct serialization graph* of the transactions that committed. An edge says that
//! one must come before the other:
//!
//! ```text
//! ww  the second overwrote a version that the first made
//! wr  the second read a version that the first made
//! rw  the second overwrote a version that the first read
//! rt  the first ended before the second began
//! ```
//!
//! A history is strictly serializable exactly if the graph has no cycle, and each read returned what
//! the writers of its version left. A [`Violation`] says which kind of mistake there is, in the terms
//! of Adya, and names the transactions of a shortest cycle.
//!
//! # What is checked, and what not
//!
//! * Locks and versions are those of buckets, and so is the order. If two transactions use different
//!   keys of a bucket, the checker wants what the store promises: an order. So it may refuse a
//!   history that would be serializable key by key.
//! * A read that found no key counts like others. So phantoms are found.
//! * Reads of aborted transactions may be inconsistent, and are not looked at. But no transaction
//!   that committed may have seen the writes of one that aborted.
//! * A transaction with unknown outcome counts as committed if another saw a version that only it can
//!   have made. Otherwise it does not count. If several of them may have made a version, the checker
//!   tries each, a bounded number of times.
//! * Writes that no transaction sees are not missed. So a run should end with transactions that read
//!   everything.
//!
//! # Costs
//!
//! Sorting the accesses dominates: for n accesses, O(n log n) time and O(n) memory, about 200 bytes
//! per access. The edges of real time are O(n) too. `docs/design/txn-check.md` has numbers.
//!
//! # Examples
//!
//! ```
//! use erpc_txn::check::{Class, Item, Observed, Outcome, Transaction, Written, check, fingerprint};
//!
//! let item = Item { table: 1, partition: 0, bucket: 3 };
//! // Both read that key 8 is absent, and insert it.
//! let insert = |id, base, value: &[u8]| Transaction {
//!     id,
//!     began: 0,
//!     ended: 10,
//!     outcome: Outcome::Committed,
//!     reads: vec![Observed { item, key: 8, version: 0, value: None }],
//!     writes: vec![Written { item, base, entries: vec![(8, Some(fingerprint(value)))] }],
//! };
//! let violation = check(&[insert(1, 0, b"one"), insert(2, 1, b"two")]).unwrap_err();
//! assert_eq!(violation.class, Class::LostUpdate);
//! assert_eq!(violation.transactions, [2, 1]);
//! ```
#![forbid(unsafe_code)]

mod buckets;
mod components;
mod cycles;
mod graph;
mod history;
pub mod lists;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;

pub use history::{History, Item, Observed, Outcome, Transaction, Written, fingerprint};
pub use violation::{Class, Summary, Verdict, Violation};

/// Checks that transactions of a store that was empty before are strictly serializable. Use a
/// [`History`] if it was not empty. Their order in the slice has no meaning.
///
/// # Errors
///
/// A [`Violation`] if they are not.
pub fn check(transactions: &[Transaction]) -> Result<Summary, Violation> {
    buckets::check(&BTreeMap::new(), transactions)
}
