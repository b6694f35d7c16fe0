//! How transactions end without a commit.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::NodeId;
use crate::participant::Place;
use crate::table::Owner;

/// A transaction did not commit for certain.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransactError {
    /// The transaction has changed nothing, and will not.
    Aborted(Reason),
    /// The transaction's writes are stored at some nodes, but not at all that should have them. It may
    /// commit later, or be aborted by recovery. Its keys stay locked until then.
    Unknown {
        /// The transaction; none if its id is not known.
        transaction: Option<Owner>,
        /// The node that does not answer; none if the deadline passed first, or the member that
        /// coordinates cannot be reached.
        node: Option<NodeId>,
    },
}

/// Why a transaction was aborted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// Another transaction held the lock of the key's bucket at each attempt.
    Conflict(Place),
    /// Another transaction changed the key, or one of its bucket, at each attempt.
    Changed(Place),
    /// The key to insert is present.
    Present(Place),
    /// The table has no room for the key.
    Full(Place),
    /// A node that holds a replica of a key, or stores the coordinator's records, cannot be reached
    /// or has lost its memory.
    Unavailable(NodeId),
    /// A node has not met all members yet, a call to it has just failed and it is not known yet whether
    /// it is there, or too many calls wait for it.
    NotReady(NodeId),
    /// The node that coordinates is about to stop, and begins no transaction any more.
    Stopping(NodeId),
    /// The deadline passed before the commit began.
    Deadline,
    /// The transaction's closure wanted it.
    Explicit(Arc<dyn Error + Send + Sync>),
    /// The table's codec refused a stored value. The tables of two programs differ.
    Value {
        /// The key.
        place: Place,
        /// What the codec says.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// The closure wrote or deleted a key that it had not read for an update or inserted, or that is
    /// absent.
    NotLocked(Place),
    /// No table has this id.
    NoTable(u16),
    /// The value has this many bytes, more than the table allows.
    ValueTooLong {
        /// The key.
        place: Place,
        /// Its length in bytes.
        len: usize,
    },
    /// The writes together have this many bytes, more than the log or a message can hold.
    TooLong(usize),
    /// The values that a program outside of the cluster wants to read at once have this many bytes, more
    /// than the member answers.
    AnswerTooLong(usize),
    /// A program outside of the cluster may access only this many keys in a transaction.
    TooManyKeys(usize),
    /// The closure used the transaction after its end.
    Ended,
    /// The closure gave up an access, or returned while another task made one.
    Unfinished,
    /// The member that coordinates for a program outside of the cluster cannot be reached, or the
    /// endpoint of its node has ended.
    Disconnected(String),
    /// A node refused a request. A fault of the store, or different settings at two nodes.
    Refused {
        /// The node.
        node: NodeId,
        /// What it says.
        reason: String,
    },
}

impl Reason {
    /// Whether another attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Changed(_) | Self::NotReady(_))
    }
}

/// The transaction cannot commit any more. A transaction's closure returns it with `?`. Every error
/// type converts to it, and then is the [reason](Reason::Explicit) of the abort.
#[derive(Debug)]
pub struct Abort(Box<Reason>);

impl Abort {
    pub(crate) fn new(reason: Reason) -> Self {
        Self(Box::new(reason))
    }

    pub(crate) fn into_reason(self) -> Reason {
        *self.0
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.0
    }
}

// `Abort` itself is no `Error`, or this would overlap with the conversion of `Abort` to itself.
impl<E: Error + Send + Sync + 'static> From<E> for Abort {
    fn from(error: E) -> Self {
        Self::new(Reason::Explicit(Arc::new(error)))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(Place { table, key }) => {
                write!(f, "other transactions held the lock of key {key} of table {table}")
            }
            Self::Changed(Place { table, key }) => {
                write!(f, "other transactions changed key {key} of table {table}")
            }
            Self::Present(Place { table, key }) => {
                write!(f, "key {key} of table {table} is present already")
            }
            Self::Full(Place { table, key }) => {
                write!(f, "no room for key {key} of table {table}; configure a larger capacity")
            }
            Self::Unavailable(node) => {
                write!(f, "node {node} cannot be reached or has lost its memory")
            }
            Self::NotReady(node) => write!(f, "node {node} has not met all members yet, or again"),
            Self::Stopping(node) => write!(f, "node {node} is about to stop"),
            Self::Deadline => f.write_str("the deadline passed before the commit began"),
            Self::Explicit(error) => error.fmt(f),
            Self::Value { place: Place { table, key }, error } => {
                write!(f, "the value of key {key} of table {table} cannot be decoded: {error}")
            }
            Self::NotLocked(Place { table, key }) => write!(
                f,
                "key {key} of table {table} was neither read for an update nor inserted, or it is \
                 absent; call read_for_update before a write"
            ),
            Self::NoTable(table) => write!(f, "there is no table {table}"),
            Self::ValueTooLong { place: Place { table, key }, len } => write!(
                f,
                "the value of key {key} of table {table} has {len} bytes, more than the table allows"
            ),
            Self::AnswerTooLong(len) => {
                write!(f, "the values have {len} bytes; read fewer at once")
            }
            Self::TooManyKeys(most) => {
                write!(f, "a program may access at most {most} keys in a transaction; use several")
            }
            Self::TooLong(len) => write!(
                f,
                "the writes have {len} bytes; write less at once, or configure larger logs and messages"
            ),
            Self::Ended => f.write_str("the transaction has ended"),
            Self::Unfinished => f.write_str(
                "an access had no result yet; wait for all accesses before the closure returns",
            ),
            Self::Disconnected(why) => write!(f, "no member coordinates: {why}"),
            Self::Refused { node, reason } => write!(f, "node {node} refused: {reason}"),
        }
    }
}

impl fmt::Display for TransactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted(reason) => write!(f, "aborted: {reason}"),
            Self::Unknown { transaction, node } => {
                f.write_str("unknown: the transaction")?;
                if let Some(transaction) = transaction {
                    write!(f, " {transaction}")?;
                }
                match node {
                    Some(node) => {
                        write!(f, " may commit later, because node {node} does not answer")
                    }
                    None => f.write_str(" may commit later, or has committed"),
                }
            }
        }
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for TransactError {}

/// Limits of a transaction.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The time that the transaction may take with all its attempts. Default: 1 s.
    pub deadline: Duration,
    /// The most attempts. Default: any number until the deadline.
    pub attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(1), attempts: u32::MAX }
    }
}

impl Limits {
    /// The default limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// With at most this many attempts, at least one.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }
}
