//! Verdicts, and why a history is not valid.

use std::fmt;

/// What was checked. A history without reads proves nothing, so callers should look at the numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Transactions that were reported as committed.
    pub committed: usize,
    /// Transactions that were reported as aborted.
    pub aborted: usize,
    /// Transactions with unknown outcome whose writes were seen, so that they committed.
    pub unknown_seen: usize,
    /// Transactions with unknown outcome whose writes nobody saw.
    pub unknown_unseen: usize,
    /// Reads of the transactions that committed.
    pub reads: usize,
    /// Versions that transactions made; in histories of lists, elements that were read.
    pub versions: usize,
    /// Orders that follow from one version after another, between different transactions.
    pub write_write: usize,
    /// Orders that follow from a version and its reader, between different transactions.
    pub write_read: usize,
    /// Orders that follow from a reader and the version after the one that it read, between different
    /// transactions.
    pub read_write: usize,
}

/// What kind of mistake a [`Violation`] is. The names with G are those of Adya's thesis (*Weak
/// Consistency: A Generalized Theory and Optimistic Implementations for Distributed Transactions*,
/// MIT 1999), except that items are buckets and the absence of a key is a value like others. So
/// phantoms are [`G2`](Self::G2), or [`GSingle`](Self::GSingle) if there is only one. Their order is the
/// one in which they are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Class {
    /// The history itself is wrong: a mistake of what recorded it.
    Malformed,
    /// There are too many transactions with unknown outcomes that may have made the same versions.
    Undecided,
    /// A key was found in two buckets of its table.
    Misplaced,
    /// Two transactions made the same version of a bucket.
    DuplicateVersion,
    /// A version was seen that no transaction made.
    Gap,
    /// Writes of an aborted transaction were seen.
    G1a,
    /// A value was seen that its transaction replaced before it committed.
    G1b,
    /// A value was seen before the transaction that wrote it had committed: it was read at an
    /// earlier version, or its transaction never committed.
    DirtyRead,
    /// A read at some version returned another value than that version has.
    WrongValue,
    /// A transaction saw two versions of a bucket.
    NonRepeatableRead,
    /// A transaction wrote to a bucket that had changed since the transaction read it.
    LostUpdate,
    /// A cycle of writers, each of which overwrote the previous one.
    G0,
    /// A cycle of writers and readers, each of which saw or overwrote the previous one's writes.
    G1c,
    /// A cycle with one transaction that saw a version which the next one overwrote: a read skew.
    GSingle,
    /// A cycle with several such transactions: a write skew.
    G2,
    /// A transaction read what another had overwritten, although that was over before.
    StaleRead,
    /// The transactions are serializable, but only in an order that contradicts the order in which
    /// they ended and began.
    RealTime,
    /// Lists only: two reads of a list do not agree on the order of its elements.
    IncompatibleOrder,
    /// Lists only: an element is in a list twice.
    DuplicateElement,
    /// Lists only: a transaction did not see its own writes, or saw them too early.
    Internal,
}

/// Why a history is not strictly serializable, by an example that is as short as possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// What kind of mistake it is.
    pub class: Class,
    /// The ids of the transactions of the example. If it is a cycle, each comes before the next one,
    /// and the last before the first.
    pub transactions: Vec<u64>,
    /// What they did, in words. One sentence for each order of a cycle.
    pub because: Vec<String>,
}

/// The result of a check that may also end without one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// The history is strictly serializable.
    Valid(Summary),
    /// It is not.
    Invalid(Violation),
    /// The history does not show it, for this reason. Tests must treat this as a failure.
    Unknown(String),
}

impl From<Result<Summary, Violation>> for Verdict {
    /// Nothing is known of a history that is malformed or undecided, and of one without reads.
    fn from(result: Result<Summary, Violation>) -> Self {
        match result {
            Ok(summary) if summary.reads == 0 => {
                Self::Unknown("no committed transaction read anything".into())
            }
            Ok(summary) => Self::Valid(summary),
            Err(violation) if matches!(violation.class, Class::Malformed | Class::Undecided) => {
                Self::Unknown(violation.to_string())
            }
            Err(violation) => Self::Invalid(violation),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the history is malformed",
            Self::Undecided => "the history is undecided",
            Self::Misplaced => "a key in two buckets",
            Self::DuplicateVersion => "a version that was made twice",
            Self::Gap => "a version without a writer",
            Self::G1a => "G1a, an aborted read",
            Self::G1b => "G1b, an intermediate read",
            Self::DirtyRead => "a dirty read",
            Self::WrongValue => "a wrong value",
            Self::NonRepeatableRead => "a non-repeatable read",
            Self::LostUpdate => "a lost update",
            Self::G0 => "G0, a cycle of writes",
            Self::G1c => "G1c, a cycle of writes and reads",
            Self::GSingle => "G-single, a cycle with one overwritten read",
            Self::G2 => "G2, a cycle with several overwritten reads",
            Self::StaleRead => "a stale read",
            Self::RealTime => "an order against real time",
            Self::IncompatibleOrder => "reads with incompatible orders",
            Self::DuplicateElement => "an element that is there twice",
            Self::Internal => "a transaction that disagrees with its own writes",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, transactions, because } = self;
        write!(f, "{class}; transactions {transactions:?}")?;
        because.iter().try_for_each(|line| write!(f, "\n- {line}"))
    }
}

impl std::error::Error for Violation {}
