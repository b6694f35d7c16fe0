//! Why a participant refuses.

use std::fmt;

use super::Role;
use crate::cluster::Node;
use crate::log::{Coordinator, DecodeError, LogError};
use crate::table::{ConfigError, WriteError};

/// A request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The participant has this epoch, and the request another.
    Epoch(u32),
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
    NotMember(Node),
    /// A table cannot be built.
    Table(ConfigError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch(epoch) => write!(f, "the member has epoch {epoch}; get its configuration"),
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
            Self::Table(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}
impl std::error::Error for BuildError {}
