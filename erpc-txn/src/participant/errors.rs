//! Why a participant refuses.

use std::fmt;

use super::{Role, VERSION};
use crate::cluster::NodeId;
use crate::log::{Coordinator, DecodeError, LogError, MAX_THREADS};
use crate::table::{ConfigError, WriteError};

/// A request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The participant has this epoch, and the request another.
    Epoch(u32),
    /// The request is for another incarnation: the participant has restarted since the sender met it.
    Incarnation,
    /// Not all members have accepted the participant yet.
    NotActive,
    /// This node is not a member.
    NotMember(NodeId),
    /// This node has other settings of tables, or places partitions elsewhere.
    Configuration(NodeId),
    /// The other node has another [version](super::VERSION).
    Version {
        /// The other node.
        node: NodeId,
        /// Its version.
        version: u32,
    },
    /// This node has restarted, and so has lost its replicas.
    Restarted(NodeId),
    /// The transaction has ended.
    Ended,
    /// There is no such table.
    Table(u16),
    /// The node does not hold the partition in this role.
    Role {
        /// The partition.
        partition: u16,
        /// The role.
        role: Role,
    },
    /// The key is in another partition than the record says.
    Partition {
        /// The key.
        key: u64,
        /// Its partition.
        partition: u16,
    },
    /// The node does not store this coordinator's records.
    Coordinator(Coordinator),
    /// The bytes are not a record.
    Record(DecodeError),
    /// The bytes go on after the record.
    Trailing,
    /// The log refused the record.
    Log(LogError),
    /// A table refused the writes.
    Write(WriteError),
}

/// A participant was not built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The node is not a member.
    NotMember(NodeId),
    /// Not 1 to [`MAX_THREADS`](crate::log::MAX_THREADS) threads.
    Threads(u16),
    /// A table cannot be built.
    Table(ConfigError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch(epoch) => write!(f, "the member has epoch {epoch}; get its configuration"),
            Self::Incarnation => f.write_str("the member has restarted; restart the whole cluster"),
            Self::NotActive => f.write_str("not all members have accepted this one yet; try again"),
            Self::NotMember(node) => write!(f, "node {node} is not in the configuration"),
            Self::Configuration(node) => {
                write!(
                    f,
                    "node {node} has another configuration; start all nodes with the same one"
                )
            }
            Self::Version { node, version } => write!(
                f,
                "node {node} has version {version} of the store's messages, and the member {VERSION}; run \
                 one version of the program on all nodes"
            ),
            Self::Restarted(node) => write!(
                f,
                "node {node} has restarted and lost its replicas; restart the whole cluster"
            ),
            Self::Ended => f.write_str("the transaction has ended"),
            Self::Table(table) => write!(f, "there is no table {table}"),
            Self::Role { partition, role: Role::Primary } => {
                write!(f, "the member is not the primary of partition {partition}")
            }
            Self::Role { partition, role: Role::Backup } => {
                write!(f, "the member is not a backup of partition {partition}")
            }
            Self::Partition { key, partition } => {
                write!(f, "key {key} is in partition {partition}, not where the record says")
            }
            Self::Coordinator(Coordinator { node, thread }) => {
                write!(f, "the member has no log of thread {thread} of node {node}")
            }
            Self::Record(error) => error.fmt(f),
            Self::Trailing => f.write_str("bytes follow the record"),
            Self::Log(error) => error.fmt(f),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMember(node) => write!(f, "node {node} is not in the configuration"),
            Self::Threads(threads) => {
                write!(f, "{threads} threads; a node has 1 to {MAX_THREADS}")
            }
            Self::Table(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}
impl std::error::Error for BuildError {}
