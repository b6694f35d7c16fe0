//! How members meet.
//!
//! A member that restarts has lost its replicas, and must not serve under the same configuration: it
//! would answer that keys are absent. So each start of a process has its own number, its
//! *incarnation*. Members tell each other theirs before they serve:
//!
//! * A member remembers the first incarnation of each other one, and refuses later ones.
//! * A member serves only when all others have accepted it. So a restarted member is refused by each
//!   member that had met it before, and never serves.
//! * Each request names the incarnation of the member that it is for. So a coordinator whose session
//!   is connected again to a restarted member changes and reads nothing there.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use siphasher::sip::SipHasher13;

use super::{Participant, Refusal};
use crate::cluster::NodeId;
use crate::mutants::mutant;

/// The version of the messages between members and of their records. Members of different versions
/// refuse each other. A change of either needs another number.
pub const VERSION: u32 = 1;

/// What a member says of itself when it meets another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// The epoch of its configuration.
    pub epoch: u32,
    /// The member.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u32,
    /// A hash of its configuration: the placement of partitions and the settings of the tables.
    pub configuration: u64,
    /// Its [`VERSION`].
    pub version: u32,
}

/// What a member knows of the others.
#[derive(Debug)]
pub(super) struct Members {
    /// The first incarnation of each member that it has met, and its own.
    incarnations: BTreeMap<NodeId, u32>,
    /// The members that have accepted it.
    accepted_by: BTreeSet<NodeId>,
}

impl Members {
    pub(super) fn new(node: NodeId, incarnation: u32) -> Self {
        Self { incarnations: [(node, incarnation)].into(), accepted_by: [node].into() }
    }
}

impl Participant {
    /// What this member says of itself.
    #[must_use]
    pub fn introduction(&self) -> Introduction {
        Introduction {
            epoch: self.epoch(),
            node: self.node,
            incarnation: self.incarnation,
            configuration: self.configuration(),
            version: VERSION,
        }
    }

    /// Accepts another member, or refuses it.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it has another version or configuration, is no member, or has restarted.
    pub fn meet(&self, other: Introduction) -> Result<(), Refusal> {
        if other.version != VERSION {
            return Err(Refusal::Version { node: other.node, version: other.version });
        }
        if other.epoch != self.epoch() {
            return Err(Refusal::Epoch(self.epoch()));
        }
        if !self.placement.nodes().contains(&other.node) {
            return Err(Refusal::NotMember(other.node));
        }
        if other.configuration != self.configuration() {
            return Err(Refusal::Configuration(other.node));
        }
        let mut members = self.members();
        let known = members.incarnations.entry(other.node).or_insert(other.incarnation);
        if mutant!(RestartAccepted) {
            *known = other.incarnation;
        }
        if *known == other.incarnation { Ok(()) } else { Err(Refusal::Restarted(other.node)) }
    }

    /// Notes that another member has accepted this one, and accepts that member.
    ///
    /// # Errors
    ///
    /// As [`meet`](Self::meet).
    pub fn accepted(&self, by: Introduction) -> Result<(), Refusal> {
        self.meet(by)?;
        let mut members = self.members();
        members.accepted_by.insert(by.node);
        if members.accepted_by.len() == self.placement.nodes().len() {
            self.is_active.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The incarnation of a member that this one has met.
    #[must_use]
    pub fn incarnation_of(&self, node: NodeId) -> Option<u32> {
        self.members().incarnations.get(&node).copied()
    }

    /// Whether this member has accepted `node`, and `node` has accepted it.
    #[must_use]
    pub fn has_met(&self, node: NodeId) -> bool {
        self.members().accepted_by.contains(&node)
    }

    /// Whether all members have accepted this one, so that it serves.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// A hash of all that must be equal at all members. It does not depend on the build.
    fn configuration(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        let placement = &self.placement;
        placement.nodes().hash(&mut hasher);
        for partition in 0..placement.partitions() {
            placement.replicas(partition).hash(&mut hasher);
        }
        for &node in placement.nodes() {
            placement.log_replicas(node).hash(&mut hasher);
        }
        let settings = &self.settings;
        settings.tables.hash(&mut hasher);
        (settings.threads, settings.log_bytes, settings.log_records).hash(&mut hasher);
        hasher.finish()
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // The sets have no invariant that a panic could break.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
