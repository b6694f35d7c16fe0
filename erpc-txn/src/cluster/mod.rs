//! The nodes of a cluster, and where the replicas of a key are.
//!
//! Keys are in partitions by their hash. Rows with equal keys are in the same partition, whatever
//! their table is. Each partition has a primary and `f` backups. A [`Placement`] says which nodes
//! these are, for one epoch. [`Ring`] is a placement that does not change. A [`Membership`] has the
//! placement and the addresses of its nodes.
#![forbid(unsafe_code)]

mod membership;
#[cfg(test)]
mod tests;

use std::fmt;

pub use membership::{FixedMembership, Membership, MembershipError};

use crate::random::mix;

/// The number of a member of the cluster, below [`MAX_NODES`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId(pub u16);

/// The highest number of nodes. The ids of transactions have ten bits for their node.
pub const MAX_NODES: u16 = 1 << 10;

/// The nodes of one configuration, and what each of them holds. It never changes: another
/// configuration is another placement with a higher epoch.
pub trait Placement: Send + Sync {
    /// The number of the configuration.
    fn epoch(&self) -> u32;

    /// The nodes, ascending, each once.
    fn nodes(&self) -> &[NodeId];

    /// The number of partitions, at least one.
    fn partitions(&self) -> u16;

    /// The nodes that hold a partition: the primary, then the backups, each once. Empty if there is
    /// no such partition.
    fn replicas(&self, partition: u16) -> &[NodeId];

    /// The nodes that store the records of a coordinator on `node`: itself, then `f` others. Empty if
    /// it is not a member.
    fn log_replicas(&self, node: NodeId) -> &[NodeId];

    /// The partition of a key. All members must agree on it, so only a new configuration may change
    /// it.
    fn partition_of(&self, key: u64) -> u16 {
        // Independent of the hash that finds a key's bucket, so that the keys of a partition fill all
        // buckets of its tables.
        let hash = mix(key);
        // The high half of the product is below the number of partitions.
        ((u128::from(hash) * u128::from(self.partitions())) >> 64) as u16
    }
}

/// One partition per node, with its backups on the next `f` nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    epoch: u32,
    nodes: Vec<NodeId>,
    /// For each node, itself and the `f` next ones.
    successors: Vec<Vec<NodeId>>,
}

/// There is no such ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// There are no nodes.
    Empty,
    /// This node's number is not below [`MAX_NODES`].
    TooHigh(NodeId),
    /// This node is there twice.
    Repeated(NodeId),
    /// `f` is above 2, or not below the number of nodes.
    Backups(usize),
}

impl Ring {
    /// A ring of these nodes in ascending order, in which each partition has `f` backups, 0 to 2.
    ///
    /// # Errors
    ///
    /// [`RingError`] if a node is there twice, or there are too few, or its
    /// number is too high.
    pub fn new(
        epoch: u32,
        nodes: impl IntoIterator<Item = NodeId>,
        f: usize,
    ) -> Result<Self, RingError> {
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        nodes.sort_unstable();
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(RingError::Repeated(pair[0]));
        }
        if nodes.is_empty() {
            return Err(RingError::Empty);
        }
        if let Some(&last) = nodes.last().filter(|last| last.0 >= MAX_NODES) {
            return Err(RingError::TooHigh(last));
        }
        if f > 2 || f >= nodes.len() {
            return Err(RingError::Backups(f));
        }
        let next = |at: usize| nodes.iter().cycle().skip(at).take(f + 1).copied().collect();
        let successors = (0..nodes.len()).map(next).collect();
        Ok(Self { epoch, nodes, successors })
    }
}

impl Placement for Ring {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    fn partitions(&self) -> u16 {
        self.nodes.len() as u16
    }

    fn replicas(&self, partition: u16) -> &[NodeId] {
        self.successors.get(usize::from(partition)).map_or(&[], Vec::as_slice)
    }

    fn log_replicas(&self, node: NodeId) -> &[NodeId] {
        self.nodes.binary_search(&node).map_or(&[], |at| self.successors[at].as_slice())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there are no nodes"),
            Self::TooHigh(node) => {
                write!(f, "node {node}; the numbers of nodes are below {MAX_NODES}")
            }
            Self::Repeated(node) => write!(f, "node {node} is there twice"),
            Self::Backups(count) => {
                write!(f, "{count} backups; at most 2, and fewer than there are nodes")
            }
        }
    }
}

impl std::error::Error for RingError {}
