//! Which configuration a cluster has, and where its nodes are.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{NodeId, Placement};

/// Where a program learns of the cluster. A [`FixedMembership`] never changes; others may have another
/// [`Placement`] with a higher epoch later.
pub trait Membership: Send + Sync {
    /// The present configuration.
    fn placement(&self) -> Arc<dyn Placement>;

    /// The address at which a node of this configuration serves; none if it is not a member.
    fn address(&self, node: NodeId) -> Option<SocketAddr>;
}

/// A membership that was configured, for example in a file.
#[derive(Clone)]
pub struct FixedMembership {
    placement: Arc<dyn Placement>,
    addresses: BTreeMap<NodeId, SocketAddr>,
}

/// There is no such membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipError {
    /// This node has no address.
    NoAddress(NodeId),
    /// There is an address for this node, which is not in the placement.
    NotMember(NodeId),
    /// Two nodes have this address.
    SharedAddress(SocketAddr),
}

impl FixedMembership {
    /// A placement, and the address of each of its nodes.
    ///
    /// # Errors
    ///
    /// [`MembershipError`] if the addresses are not those of the placement's nodes, or two are equal.
    pub fn new(
        placement: Arc<dyn Placement>,
        addresses: BTreeMap<NodeId, SocketAddr>,
    ) -> Result<Self, MembershipError> {
        if let Some(&node) = placement.nodes().iter().find(|node| !addresses.contains_key(node)) {
            return Err(MembershipError::NoAddress(node));
        }
        if let Some(&node) = addresses.keys().find(|node| !placement.nodes().contains(node)) {
            return Err(MembershipError::NotMember(node));
        }
        let mut all: Vec<_> = addresses.values().collect();
        all.sort_unstable();
        if let Some(pair) = all.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(MembershipError::SharedAddress(*pair[0]));
        }
        Ok(Self { placement, addresses })
    }
}

impl Membership for FixedMembership {
    fn placement(&self) -> Arc<dyn Placement> {
        Arc::clone(&self.placement)
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.get(&node).copied()
    }
}

impl fmt::Debug for FixedMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedMembership")
            .field("epoch", &self.placement.epoch())
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress(node) => write!(f, "node {node} has no address"),
            Self::NotMember(node) => {
                write!(f, "there is an address for node {node}, which is not a member")
            }
            Self::SharedAddress(address) => write!(f, "two nodes have the address {address}"),
        }
    }
}

impl std::error::Error for MembershipError {}
