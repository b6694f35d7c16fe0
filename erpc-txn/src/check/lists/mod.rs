//! Checks histories of lists, without versions: the second opinion.
//!
//! Each key holds a list of numbers. Transactions append elements that are unique for the key, and
//! read whole lists. A list that was read says which elements were appended before it and in which
//! order, so the order of transactions can be inferred, as Elle does (Kingsbury and Alvaro, VLDB'20).
//! All lists are empty when the history begins.
//!
//! What counts, and the classes of violations, are those of the [checker with versions](super). Keys
//! are ordered one by one here. Elements that no transaction read come after those that were read, in
//! an unknown order among themselves.
//!
//! # Examples
//!
//! ```
//! use erpc_txn::check::lists::{Operation, Transaction, check};
//! use erpc_txn::check::{Outcome, Verdict};
//!
//! let transaction = |id, operation| Transaction {
//!     id,
//!     began: 10 * id,
//!     ended: 10 * id + 5,
//!     outcome: Outcome::Committed,
//!     operations: vec![operation],
//! };
//! let append = transaction(1, Operation::Append { key: 7, element: 70 });
//! let read = |list| transaction(2, Operation::Read { key: 7, list });
//! assert!(matches!(check(&[append.clone(), read(vec![70])]), Verdict::Valid(_)));
//! // The append was over when the read began.
//! assert!(matches!(check(&[append.clone(), read(vec![])]), Verdict::Invalid(_)));
//! assert!(matches!(check(&[append]), Verdict::Unknown(_)));
//! ```

mod appends;
mod order;
mod reads;

use super::cycles;
use super::graph::{Builder, Edge, Kind};
use super::{Class, Outcome, Summary, Verdict, Violation};
use appends::Appends;

/// What a transaction did with one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// It appended an element. No element is appended twice to a key in a history.
    Append {
        /// The key.
        key: u64,
        /// The element.
        element: u64,
    },
    /// It read the whole list, including what it had appended itself by then.
    Read {
        /// The key.
        key: u64,
        /// The elements. An absent key is an empty list.
        list: Vec<u64>,
    },
}

/// What one transaction did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Its id. No two transactions of a history have the same.
    pub id: u64,
    /// When its caller began it, in nanoseconds of a clock that all callers share.
    pub began: u64,
    /// When its caller learned the outcome, in nanoseconds of the same clock, not before `began`. Not
    /// looked at if the outcome is unknown: such a transaction never ends.
    pub ended: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in this order. Reads of an aborted transaction are not looked at.
    pub operations: Vec<Operation>,
}

/// Checks that the transactions are strictly serializable. Their order in the slice has no meaning.
///
/// Without reads, nothing is known. Takes time and memory in proportion to the number of operations
/// and the lengths of the lists that were read, and O(t log t) for t transactions.
pub fn check(transactions: &[Transaction]) -> Verdict {
    try_check(transactions).into()
}

fn try_check(transactions: &[Transaction]) -> Result<Summary, Violation> {
    check_form(transactions)?;
    let appends = Appends::new(transactions)?;
    let done = appends.resolve();
    let mut summary = count(transactions, &done);
    let mut builder = Builder::new(transactions.len());
    let keys = reads::collect(&appends, &done)?;
    for (place, (key, reads)) in keys.iter().enumerate() {
        summary.reads += reads.lists.len();
        order::add(&appends, *key, reads, &mut builder, place, &mut summary)?;
    }
    let spans = transactions.iter().enumerate().filter(|(at, _)| done[*at]);
    builder.real_time(
        spans.map(|(at, t)| {
            (at as u32, t.began, (t.outcome != Outcome::Unknown).then_some(t.ended))
        }),
    );
    let Some((class, cycle)) = cycles::find(&builder.build()) else { return Ok(summary) };
    let names: Vec<_> = keys.keys().copied().collect();
    Err(Violation {
        class,
        transactions: cycle.iter().map(|edge| transactions[edge.from as usize].id).collect(),
        because: cycle.iter().map(|edge| explain(transactions, &names, edge)).collect(),
    })
}

fn count(transactions: &[Transaction], done: &[bool]) -> Summary {
    let mut summary = Summary::default();
    for (transaction, &done) in transactions.iter().zip(done) {
        *match (transaction.outcome, done) {
            (Outcome::Committed, _) => &mut summary.committed,
            (Outcome::Aborted, _) => &mut summary.aborted,
            (Outcome::Unknown, true) => &mut summary.unknown_seen,
            (Outcome::Unknown, false) => &mut summary.unknown_unseen,
        } += 1;
    }
    summary
}

/// An edge in words. The version of an edge is a number of elements.
fn explain(transactions: &[Transaction], keys: &[u64], edge: &Edge) -> String {
    let (first, second) = (&transactions[edge.from as usize], &transactions[edge.to as usize]);
    let (from, to, count) = (first.id, second.id, edge.version);
    let key = || keys[edge.place as usize];
    let because = match edge.kind {
        Kind::WriteWrite => {
            format!("{from} appended element {count} of key {}, and {to} a later one", key())
        }
        Kind::WriteRead => {
            format!("{from} appended element {count} of key {}, and {to} read it", key())
        }
        Kind::ReadWrite => {
            format!("{from} read {count} elements of key {}, and {to} appended the next", key())
        }
        Kind::RealTime | Kind::Through => {
            format!("{from} ended at {} ns, and {to} began at {} ns", first.ended, second.began)
        }
    };
    format!("{from} before {to}: {because}")
}

fn check_form(transactions: &[Transaction]) -> Result<(), Violation> {
    let mut ids: Vec<_> = transactions.iter().map(|transaction| transaction.id).collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        let because = format!("there are two transactions {}", pair[0]);
        return Err(violation(Class::Malformed, [pair[0]], because));
    }
    let is_over = |t: &&Transaction| t.outcome != Outcome::Unknown && t.ended < t.began;
    match transactions.iter().find(is_over) {
        None => Ok(()),
        Some(t) => {
            let because = format!("{} ended at {} ns, but began at {} ns", t.id, t.ended, t.began);
            Err(violation(Class::Malformed, [t.id], because))
        }
    }
}

fn violation(
    class: Class,
    transactions: impl IntoIterator<Item = u64>,
    because: String,
) -> Violation {
    let transactions = transactions.into_iter().collect();
    Violation { class, transactions, because: vec![because] }
}
