//! Consensus on a log of commands, without I/O.
//!
//! The store knows a consensus algorithm only by the trait [`Consensus`]. Its functions take what has
//! happened (time, messages, finished writes), and [`Consensus::poll`] returns what is to be done.
//! [`raft`] implements it with the crate `raft`, [`omni`] with the crate `omnipaxos`.

pub mod omni;
pub mod raft;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use crate::machine::Machine;

/// The id of a node, not 0.
pub type NodeId = u64;

/// The longest encoded change of the members, in bytes.
pub const MAX_CHANGE: usize = 4096;

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The term of the leader that has put it there.
    pub term: u64,
    /// Its number, from 1.
    pub index: u64,
}

/// What an entry of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A command for the state machine; without data, nothing.
    Command,
    /// A change of the members, in an encoding of the algorithm.
    Change,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub at: Position,
    /// What it is.
    pub kind: EntryKind,
    /// The command, or the change.
    pub data: Bytes,
    /// Of a change: the addresses of nodes that it adds, see [`Addresses::encode`].
    pub context: Bytes,
}

/// What a node must not forget besides the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The latest term that it has seen.
    pub term: u64,
    /// Of Raft: the node that it has voted for in this term, or 0. Of Omni-Paxos: the term of the leader
    /// whose log it has accepted, or 0.
    pub vote: u64,
    /// A commit index. It may be older than the latest.
    pub commit: u64,
}

/// Who is in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Nodes with a vote.
    pub voters: Vec<NodeId>,
    /// Nodes without a vote.
    pub learners: Vec<NodeId>,
    /// In a joint configuration: nodes whose majority is needed, too.
    pub outgoing: Vec<NodeId>,
    /// In a joint configuration: nodes that lose their vote at its end.
    pub learners_next: Vec<NodeId>,
    /// Whether the joint configuration ends by itself.
    pub auto_leave: bool,
}

impl Members {
    /// Whether a cluster can have these members, or none yet: each node is in a list once, no node is
    /// 0, a node with a vote is no learner, and only a joint configuration has nodes that lose their
    /// vote.
    #[must_use]
    pub fn are_possible(&self) -> bool {
        let Self { voters, learners, outgoing, learners_next, auto_leave } = self;
        let lists = [voters, learners, outgoing, learners_next];
        let is_set = |list: &Vec<NodeId>| {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            sorted.first() != Some(&0) && sorted.windows(2).all(|pair| pair[0] != pair[1])
        };
        let is_joint = !outgoing.is_empty();
        lists.into_iter().all(is_set)
            && (!voters.is_empty() || (learners.is_empty() && !is_joint))
            && learners.iter().all(|node| !voters.contains(node) && !outgoing.contains(node))
            && learners_next.iter().all(|node| outgoing.contains(node) && !voters.contains(node))
            && (!auto_leave || is_joint)
    }
}

/// The addresses of nodes. It is part of the replicated state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses(pub BTreeMap<NodeId, String>);

/// The state of the store up to an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry that it contains.
    pub at: Position,
    /// The members at that entry.
    pub members: Members,
    /// The state, encoded by [`Machine`].
    pub data: Bytes,
}

/// What a node starts from.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The hard state.
    pub hard: HardState,
    /// The last snapshot; at index 0 there is none.
    pub snapshot: Snapshot,
    /// The entries after it.
    pub entries: Vec<Entry>,
}

impl Start {
    /// What every node of a new cluster starts from: a snapshot of an empty store with these members.
    /// Without members, the node waits to be added to a cluster.
    #[must_use]
    pub fn first(addresses: Addresses) -> Self {
        if addresses.0.is_empty() {
            return Self::default();
        }
        let voters = addresses.0.keys().copied().collect();
        let members = Members { voters, ..Members::default() };
        let data = Machine::new(addresses).encode();
        let at = Position { term: 1, index: 1 };
        let hard = HardState { term: 1, vote: 0, commit: 1 };
        Self { hard, snapshot: Snapshot { at, members, data }, entries: Vec::new() }
    }
}

/// What must be on disk before [`Consensus::persisted`] is called with its ticket.
#[derive(Clone, Debug, Default)]
pub struct Write {
    /// Grows by one with each write.
    pub ticket: u64,
    /// A snapshot of another node. The log before it is obsolete.
    pub snapshot: Option<Snapshot>,
    /// The log ends with this index, before `entries`.
    pub end: Option<u64>,
    /// Entries. They replace those at their indices and after.
    pub entries: Vec<Entry>,
    /// The hard state, if it has changed.
    pub hard: Option<HardState>,
}

/// What is to be done. In this order, unless said otherwise.
#[derive(Debug)]
pub struct Effects<M> {
    /// Messages to send now.
    pub messages: Vec<(NodeId, M)>,
    /// What to write. The work may go on meanwhile.
    pub write: Option<Write>,
    /// Messages to send when the write, and all earlier ones, are on disk.
    pub after_write: Vec<(NodeId, M)>,
    /// A snapshot that replaces the state.
    pub install: Option<Snapshot>,
    /// Entries to apply, in their order.
    pub committed: Vec<Entry>,
    /// Rounds of [`Consensus::confirm`] that a majority has answered, with the index that must be
    /// applied before their reads.
    pub confirmed: Vec<(u64, u64)>,
}

impl<M> Default for Effects<M> {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            write: None,
            after_write: Vec::new(),
            install: None,
            committed: Vec::new(),
            confirmed: Vec::new(),
        }
    }
}

/// The part of a node in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It follows a leader, or waits for one.
    Follower,
    /// It wants to become leader.
    Candidate,
    /// It leads.
    Leader,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
        })
    }
}

/// What a node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its role.
    pub role: Role,
    /// The latest term.
    pub term: u64,
    /// The leader of this term, or 0.
    pub leader: NodeId,
    /// The last index of the log.
    pub last: u64,
    /// The commit index.
    pub commit: u64,
    /// Of a leader: whether it knows all that earlier leaders have committed. Before, it must not serve
    /// reads.
    pub can_read: bool,
    /// Of a leader: whether it hands its leadership over.
    pub is_transferring: bool,
}

/// A proposal was not accepted. It has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposeError {
    /// This node does not lead.
    NotLeader,
    /// Too much waits to be committed, or another change of the members is in progress.
    Busy,
    /// This algorithm does not do that here.
    Unsupported,
}

/// A message was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// No node that follows the protocol sends this message; the text says why. It has no effect.
    Wrong(&'static str),
    /// This node has lost entries or votes that it has acknowledged. It must not go on.
    Lost {
        /// The commit index that the leader has proof of.
        commit: u64,
        /// The last index of the log here.
        last: u64,
    },
}

/// A change of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Nodes that get a vote.
    pub voters: Vec<NodeId>,
    /// Nodes that are in the cluster without a vote.
    pub learners: Vec<NodeId>,
    /// Nodes that leave.
    pub remove: Vec<NodeId>,
}

/// A consensus algorithm. See the [module](self).
pub trait Consensus: Sized {
    /// The name of the algorithm. Nodes with different ones are of different clusters.
    const NAME: &'static str;

    /// What nodes send each other.
    type Message;

    /// Appends the encoded message to `out`, without its bulk.
    fn encode(message: &Self::Message, out: &mut Vec<u8>);

    /// Decodes a message. `bulk` is what [`Consensus::bulk`] has returned for it.
    ///
    /// # Errors
    /// [`StepError::Wrong`] if no message has these bytes.
    fn decode(bytes: Bytes, bulk: Option<Bytes>) -> Result<Self::Message, StepError>;

    /// Whether [`Consensus::bulk`] returns something.
    fn has_bulk(message: &Self::Message) -> bool;

    /// The part of a long message that travels in pieces, before the rest; none if it is short. A node
    /// gets one such message at a time. Another one to it is dropped meanwhile, and
    /// [`Consensus::unreachable`] is not called for it.
    fn bulk(message: &Self::Message) -> Option<Bytes>;

    /// The encoded state of the store that the message carries in its bulk, if it carries one.
    fn state(message: &Self::Message) -> Option<Bytes>;

    /// Whether the message asks for a vote.
    fn asks_for_vote(message: &Self::Message) -> bool;

    /// A unit of time has passed.
    fn tick(&mut self);

    /// A message of a node has arrived.
    ///
    /// # Errors
    /// [`StepError`]; only `Lost` has an effect.
    fn step(&mut self, from: NodeId, message: Self::Message) -> Result<(), StepError>;

    /// Proposes commands. On success they will be at this place and the following ones, unless
    /// another node becomes leader.
    ///
    /// # Errors
    /// [`ProposeError`]. Then no command is proposed.
    fn propose(&mut self, commands: Vec<Bytes>) -> Result<Position, ProposeError>;

    /// Proposes a change of the members. `context` comes with its entry.
    ///
    /// # Errors
    /// [`ProposeError`]
    fn change(&mut self, change: &Change, context: Bytes) -> Result<Position, ProposeError>;

    /// Makes a committed change effective. Returns false if it cannot be made: then no node makes it.
    fn apply_change(&mut self, entry: &Entry) -> bool;

    /// Asks a majority whether this node still leads, for reads. The answer is in
    /// [`Effects::confirmed`]. It may not come; then begin another round.
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`] if it does not lead, or [cannot read](Status::can_read) yet.
    fn confirm(&mut self, round: u64) -> Result<(), ProposeError>;

    /// Hands the leadership over.
    fn transfer(&mut self, to: NodeId);

    /// What is to be done; false if nothing is.
    fn poll(&mut self, effects: &mut Effects<Self::Message>) -> bool;

    /// All writes up to this ticket are on disk.
    fn persisted(&mut self, ticket: u64);

    /// Everything up to this index is applied.
    fn applied(&mut self, index: u64);

    /// There is a snapshot. Entries up to it are no longer needed, but `keep` of them are kept for
    /// nodes that are a little behind.
    fn compact(&mut self, snapshot: Snapshot, keep: u64);

    /// Whether a node needs a newer snapshot than the last one of [`Consensus::compact`].
    fn wants_snapshot(&mut self) -> bool;

    /// Messages to a node were lost.
    fn unreachable(&mut self, node: NodeId);

    /// The transfer of a message with a bulk to a node has ended.
    fn bulk_sent(&mut self, node: NodeId, arrived: bool);

    /// What the node knows.
    fn status(&self) -> Status;

    /// The term in which the node leads, as [`Consensus::status`] says; none if it does not lead.
    fn leads_in(&self) -> Option<u64> {
        let Status { role, term, .. } = self.status();
        (role == Role::Leader).then_some(term)
    }

    /// The nodes of the current configuration.
    fn members(&self) -> Members;

    /// The member other than this one with the longest log, as far as a leader knows.
    fn successor(&self) -> Option<NodeId>;
}

impl Write {
    /// Whether there is nothing to write, so that only earlier writes are waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { ticket: _, snapshot, end, entries, hard } = self;
        snapshot.is_none() && end.is_none() && entries.is_empty() && hard.is_none()
    }
}

impl Members {
    /// All nodes, in ascending order.
    #[must_use]
    pub fn all(&self) -> Vec<NodeId> {
        let lists = [&self.voters, &self.learners, &self.outgoing, &self.learners_next];
        let mut all: Vec<_> = lists.into_iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether the node has a vote.
    #[must_use]
    pub fn votes(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.outgoing.contains(&node)
    }
}

impl Addresses {
    /// The bytes: of each node its id, the length of its address, and the address.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (node, address) in &self.0 {
            out.extend_from_slice(&node.to_le_bytes());
            out.extend_from_slice(&(address.len() as u32).to_le_bytes());
            out.extend_from_slice(address.as_bytes());
        }
        out
    }

    /// The addresses with these bytes; none if there are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = crate::wire::Reader::new(bytes);
        let mut addresses = BTreeMap::new();
        while !reader.is_empty() {
            let node = reader.u64()?;
            let len = reader.u32()? as usize;
            let address = std::str::from_utf8(reader.take(len)?).ok()?;
            addresses.insert(node, address.to_owned());
        }
        Some(Self(addresses))
    }
}
