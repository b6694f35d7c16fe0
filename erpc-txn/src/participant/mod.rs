//! What a node does for coordinators in each phase of a commit, at the replicas that it holds.
//!
//! Each method is one request. It depends only on the participant's state and its arguments: nothing
//! here does I/O, waits or knows the time. A method that comes twice changes nothing the second time.
//! A request of another epoch, for an unknown table, or for a partition that the node does not hold in
//! this role is refused as a whole, before anything is changed.
//!
//! * `members`: members meet before they serve, so that a member that lost its memory is noticed.
//! * `phases`: the phases of a transaction.
//! * `coordinators`: what is kept for each coordinator: its records, and which transactions have
//!   ended.
#![forbid(unsafe_code)]

mod coordinators;
mod errors;
mod members;
mod phases;
mod replicas;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use coordinators::Coordinators;
pub use coordinators::LogRef;
pub use errors::{BuildError, Refusal};
use members::Members;
pub use members::{Introduction, VERSION};
use replicas::Replicas;

use crate::cluster::{NodeId, Placement};
use crate::table::{Bucket, Config, LockError, Owner, Read, Table, Version};

/// What a participant holds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tables by id, and how each replica of a partition of them is built. The same at all nodes.
    pub tables: BTreeMap<u16, Config>,
    /// Coordinating threads of each node, numbered from 0: 1 to
    /// [`MAX_THREADS`](crate::log::MAX_THREADS).
    pub threads: u16,
    /// Bytes of the log of one coordinator.
    pub log_bytes: usize,
    /// Records of the log of one coordinator.
    pub log_records: usize,
}

/// The replicas and logs of one node. It is shared by the node's threads.
pub struct Participant {
    node: NodeId,
    incarnation: u32,
    placement: Arc<dyn Placement>,
    settings: Settings,
    replicas: Replicas,
    coordinators: Coordinators,
    members: Mutex<Members>,
    /// All other members have met this one.
    is_active: AtomicBool,
}

/// The member that a request is for: it refuses the requests for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The epoch of the sender's configuration.
    pub epoch: u32,
    /// The member's incarnation, as it told the sender when they met.
    pub incarnation: u32,
}

/// A key of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The table.
    pub table: u16,
    /// The key.
    pub key: u64,
}

/// What to do with a key in the execute phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read it.
    Read,
    /// Read it and lock its bucket, to update or delete it.
    Update,
    /// Lock its bucket, to insert it.
    Insert,
}

/// A key to read or lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The key.
    pub place: Place,
    /// What to do with it.
    pub kind: Kind,
}

/// What an access found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The bucket of the key.
    pub bucket: Bucket,
    /// Its version and value, or why it was not read or locked. No value is read for an insert.
    pub read: Result<Read, LockError>,
}

/// A read to validate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The key.
    pub place: Place,
    /// The version at which it was read.
    pub version: Version,
}

/// A replica's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has the locks.
    Primary,
    /// It follows the primary.
    Backup,
}

impl Participant {
    /// The participant of `node`, with empty tables and logs. `incarnation` is a random number that
    /// tells this start of the node's process from others.
    ///
    /// # Errors
    ///
    /// If the node is not a member, there are no or too many threads, or a table cannot be built.
    pub fn new(
        node: NodeId,
        incarnation: u32,
        placement: Arc<dyn Placement>,
        settings: Settings,
    ) -> Result<Self, BuildError> {
        if !placement.nodes().contains(&node) {
            return Err(BuildError::NotMember(node));
        }
        let threads = 0..settings.threads;
        if threads.is_empty() || settings.threads > crate::log::MAX_THREADS {
            return Err(BuildError::Threads(settings.threads));
        }
        let replicas = Replicas::new(node, &*placement, &settings.tables)?;
        let coordinators = Coordinators::new(node, &*placement, &settings);
        let members = Mutex::new(Members::new(node, incarnation));
        let is_active = AtomicBool::new(placement.nodes().len() == 1);
        Ok(Self {
            node,
            incarnation,
            placement,
            settings,
            replicas,
            coordinators,
            members,
            is_active,
        })
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.placement.epoch()
    }

    /// How requests for this participant are addressed.
    #[must_use]
    pub fn target(&self) -> Target {
        Target { epoch: self.epoch(), incarnation: self.incarnation }
    }

    /// The configuration.
    #[must_use]
    pub fn placement(&self) -> &Arc<dyn Placement> {
        &self.placement
    }

    /// What it holds.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The replica of a table's partition, if the node holds it.
    #[must_use]
    pub fn replica(&self, table: u16, partition: u16) -> Option<&Table> {
        self.replicas.get(table, partition)
    }

    /// All replicas that the node holds: table, partition and contents.
    pub fn replicas(&self) -> impl Iterator<Item = (u16, u16, &Table)> {
        self.replicas.iter()
    }

    /// The locks that transactions hold here: table, partition, bucket and owner. Looks at every
    /// bucket of every table.
    #[must_use]
    pub fn locks(&self) -> Vec<(u16, u16, Bucket, Owner)> {
        let of = |(table, partition, replica): (u16, u16, &Table)| {
            replica.locks().map(|(bucket, owner)| (table, partition, bucket, owner)).collect()
        };
        self.replicas().flat_map(|replica| -> Vec<_> { of(replica) }).collect()
    }

    /// Refuses requests for others, and all requests while not all members have met this one.
    fn check(&self, target: Target) -> Result<(), Refusal> {
        if target.epoch != self.epoch() {
            return Err(Refusal::Epoch(self.epoch()));
        }
        if target.incarnation != self.incarnation {
            return Err(Refusal::Incarnation);
        }
        if !self.is_active.load(Ordering::Acquire) {
            return Err(Refusal::NotActive);
        }
        Ok(())
    }
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant")
            .field("node", &self.node)
            .field("epoch", &self.epoch())
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}
