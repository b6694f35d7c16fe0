//! Raft, by the crate `raft` of TiKV as it is published.
//!
//! The library keeps the rules of Raft; this module translates. Its messages are protobuf types, but
//! they travel in the layout of [`encode`](Consensus::encode). Protobuf's encoding is used for the data
//! of changes of the members only, because the library itself encodes and decodes these.
//!
//! The library panics if messages contradict what it knows. [`RaftCore::step`] refuses such messages
//! before it passes them on.

mod pacing;
mod window;

use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{
    self, ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, EntryType, MessageType,
};
use raft::{Config, RawNode, SnapshotStatus, StateRole};

use self::pacing::Pacing;
use self::window::Window;
use super::{
    Change, Consensus, Effects, Entry, EntryKind, HardState, MAX_CHANGE, Members, NodeId, Position,
    ProposeError, Role, Snapshot, Start, Status, StepError, Write,
};
use crate::mutants::mutant;
use crate::wire::{self, Reader};

/// Settings of the algorithm.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node.
    pub node: NodeId,
    /// Without a message of the leader for this many ticks, up to twice as many, a node begins an
    /// election.
    pub election_ticks: usize,
    /// Ticks between two heartbeats of the leader. Less than a third of `election_ticks`.
    pub heartbeat_ticks: usize,
    /// Determines the election timeouts.
    pub seed: u64,
}

/// Raft.
pub struct RaftCore {
    raw: RawNode<Window>,
    window: Window,
    pacing: Pacing,
    /// The hard state has changed, but in its commit index only: written with the next write.
    unwritten: Option<HardState>,
    /// Everything up to this index is applied. The library is told when it is persisted, too.
    applied: u64,
}

/// Entries in one message, and in one [`Effects::committed`], in bytes.
const MAX_APPEND: u64 = 256 << 10;
/// Entries that are proposed and not committed, in bytes.
const MAX_UNCOMMITTED: u64 = 32 << 20;
/// Messages with entries on their way to a node.
const MAX_INFLIGHT: usize = 64;
/// The library adds to terms, and does not expect that they overflow.
const MAX_TERM: u64 = u64::MAX / 2;

impl RaftCore {
    /// Begins, or continues from what is on disk.
    ///
    /// # Errors
    /// If the settings or the start contradict themselves; the text says how.
    pub fn new(settings: &Settings, start: &Start) -> Result<Self, String> {
        let config = Config {
            id: settings.node,
            election_tick: settings.election_ticks,
            heartbeat_tick: settings.heartbeat_ticks,
            applied: start.snapshot.at.index,
            max_size_per_msg: MAX_APPEND,
            max_inflight_msgs: MAX_INFLIGHT,
            check_quorum: true,
            pre_vote: true,
            skip_bcast_commit: true,
            batch_append: true,
            max_uncommitted_size: MAX_UNCOMMITTED,
            max_committed_size_per_ready: 4 * MAX_APPEND,
            ..Config::default()
        };
        config.validate().map_err(|error| error.to_string())?;
        let window = Window::new(start);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, window.clone(), &logger);
        let mut core = Self {
            raw: raw.map_err(|error| error.to_string())?,
            window,
            pacing: Pacing::new(settings.seed, settings.node, settings.election_ticks),
            unwritten: None,
            applied: start.snapshot.at.index,
        };
        core.pace();
        Ok(core)
    }

    fn pace(&mut self) {
        let timeout = self.pacing.timeout(self.raw.raft.term);
        self.raw.raft.set_randomized_election_timeout(timeout);
    }

    fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Tells the library what is applied, as far as it is persisted.
    fn tell_applied(&mut self) {
        let log = &self.raw.raft.raft_log;
        let index = self.applied.min(log.committed).min(log.persisted);
        if index > log.applied {
            self.raw.advance_apply_to(index);
        }
    }

    /// Refuses what the library would not survive.
    fn check(&self, message: &eraftpb::Message) -> Result<(), StepError> {
        let raft = &self.raw.raft;
        let last = raft.raft_log.last_index();
        if message.term == 0 {
            return Err(StepError::Wrong("a message has no term"));
        }
        if message.term > MAX_TERM {
            return Err(StepError::Wrong("a term that no cluster reaches"));
        }
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if message.term >= raft.term && message.commit > last => {
                Err(StepError::Lost { commit: message.commit, last })
            }
            MessageType::MsgAppend => check_entries(message),
            MessageType::MsgAppendResponse
                if message.term == raft.term && !message.reject && message.index > last =>
            {
                Err(StepError::Wrong("a node acknowledges entries that were never sent"))
            }
            MessageType::MsgSnapshot => {
                let at = message.get_snapshot().get_metadata();
                let conf = at.get_conf_state();
                if at.index == 0 || at.term == 0 || conf.voters.is_empty() {
                    return Err(StepError::Wrong("a snapshot without place or members"));
                }
                let log = &raft.raft_log;
                if at.index == log.committed && !log.match_term(at.index, at.term) {
                    return Err(StepError::Wrong("a snapshot contradicts a committed entry"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The entries of a message follow each other, and no change is too long.
fn check_entries(message: &eraftpb::Message) -> Result<(), StepError> {
    let (mut index, mut term) = (message.index, message.log_term);
    // To the library, entries beyond the end of its log have the term 0.
    if (term == 0) != (index == 0) {
        return Err(StepError::Wrong("entries follow an entry without a term"));
    }
    for entry in message.get_entries() {
        if Some(entry.index) != index.checked_add(1) || entry.term < term.max(1) {
            return Err(StepError::Wrong("entries do not follow each other"));
        }
        if entry.get_entry_type() != EntryType::EntryNormal {
            change_of(&entry.data)?;
        }
        (index, term) = (entry.index, entry.term);
    }
    if term > message.term {
        return Err(StepError::Wrong("an entry is newer than its leader"));
    }
    Ok(())
}

/// Decodes a change of the members.
fn change_of(data: &[u8]) -> Result<ConfChangeV2, StepError> {
    if data.len() > MAX_CHANGE {
        return Err(StepError::Wrong("a change of the members is too long"));
    }
    let mut change = ConfChangeV2::default();
    let merged = change.merge_from_bytes(data);
    merged.map_err(|_| StepError::Wrong("a change of the members is damaged"))?;
    Ok(change)
}

impl Consensus for RaftCore {
    const NAME: &'static str = "raft";

    type Message = eraftpb::Message;

    fn encode(message: &eraftpb::Message, out: &mut Vec<u8>) {
        out.push(message.get_msg_type() as u8);
        out.push(u8::from(message.reject) | u8::from(message.has_snapshot()) << 1);
        let numbers = [
            message.term,
            message.log_term,
            message.index,
            message.commit,
            message.commit_term,
            message.request_snapshot,
            message.reject_hint,
        ];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        wire::put_bytes(out, &message.context);
        out.extend_from_slice(&(message.entries.len() as u32).to_le_bytes());
        message.entries.iter().for_each(|entry| wire::put_entry(out, &entry_in(entry)));
        if message.has_snapshot() {
            let at = message.get_snapshot().get_metadata();
            out.extend_from_slice(&at.term.to_le_bytes());
            out.extend_from_slice(&at.index.to_le_bytes());
            wire::put_members(out, &members_of(at.get_conf_state()));
        }
    }

    fn decode(bytes: Bytes, data: Option<Bytes>) -> Result<eraftpb::Message, StepError> {
        decode(&bytes, data).ok_or(StepError::Wrong("a message is damaged"))
    }

    fn has_bulk(message: &eraftpb::Message) -> bool {
        message.has_snapshot()
    }

    fn bulk(message: &eraftpb::Message) -> Option<Bytes> {
        message.has_snapshot().then(|| message.get_snapshot().data.clone())
    }

    fn state(message: &eraftpb::Message) -> Option<Bytes> {
        Self::bulk(message)
    }

    fn asks_for_vote(message: &eraftpb::Message) -> bool {
        let kind = message.get_msg_type();
        matches!(kind, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
    }

    fn tick(&mut self) {
        self.raw.tick();
        if !self.leads() && self.raw.raft.election_elapsed == 0 {
            self.pacing.campaigns();
        }
        self.pace();
    }

    fn step(&mut self, from: NodeId, mut message: eraftpb::Message) -> Result<(), StepError> {
        self.check(&message)?;
        message.from = from;
        message.to = self.raw.raft.id;
        let stepped = self.raw.step(message);
        self.pace();
        match stepped {
            // A node that was removed may still send messages.
            Ok(()) | Err(raft::Error::StepPeerNotFound | raft::Error::ProposalDropped) => Ok(()),
            Err(_) => Err(StepError::Wrong("the library refuses a message")),
        }
    }

    fn propose(&mut self, commands: Vec<Bytes>) -> Result<Position, ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        let raft = &self.raw.raft;
        let at = Position { term: raft.term, index: raft.raft_log.last_index() + 1 };
        let mut message = eraftpb::Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = raft.id;
        let entry = |data| eraftpb::Entry { data, ..Default::default() };
        message.set_entries(commands.into_iter().map(entry).collect());
        match self.raw.raft.step(message) {
            Ok(()) => Ok(at),
            // The leader that hands over drops proposals, too.
            Err(_) => Err(ProposeError::Busy),
        }
    }

    fn change(&mut self, change: &Change, context: Bytes) -> Result<Position, ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        let raft = &self.raw.raft;
        if raft.has_pending_conf() || !self.members().outgoing.is_empty() {
            return Err(ProposeError::Busy);
        }
        let single = |kind, node: &NodeId| {
            let mut single = ConfChangeSingle::default();
            single.set_change_type(kind);
            single.node_id = *node;
            single
        };
        let mut encoded = ConfChangeV2::default();
        let voters = change.voters.iter().map(|node| single(ConfChangeType::AddNode, node));
        let learners =
            change.learners.iter().map(|node| single(ConfChangeType::AddLearnerNode, node));
        let removed = change.remove.iter().map(|node| single(ConfChangeType::RemoveNode, node));
        encoded.set_changes(voters.chain(learners).chain(removed).collect());
        let at = Position { term: raft.term, index: raft.raft_log.last_index() + 1 };
        let proposed = self.raw.propose_conf_change(context.to_vec(), encoded);
        proposed.map(|()| at).map_err(|_| ProposeError::Busy)
    }

    fn apply_change(&mut self, entry: &Entry) -> bool {
        // A change that is damaged or that cannot be made is one at all nodes: nothing changes.
        let Ok(change) = change_of(&entry.data) else { return false };
        let is_made = self.raw.apply_conf_change(&change).is_ok();
        // The change may be that of an earlier leader, so this one may be removed by it. The library
        // would go on, and panic when one of its entries is persisted.
        if self.leads() && !self.members().votes(self.raw.raft.id) {
            self.raw.raft.become_follower(self.raw.raft.term, 0);
        }
        self.pace();
        is_made
    }

    fn confirm(&mut self, round: u64) -> Result<(), ProposeError> {
        if !self.status().can_read {
            return Err(ProposeError::NotLeader);
        }
        self.raw.read_index(round.to_le_bytes().to_vec());
        Ok(())
    }

    fn transfer(&mut self, to: NodeId) {
        self.raw.transfer_leader(to);
    }

    fn poll(&mut self, effects: &mut Effects<eraftpb::Message>) -> bool {
        if !self.raw.has_ready() {
            return false;
        }
        let mut ready = self.raw.ready();
        let addressed = |message: eraftpb::Message| (message.to, message);
        effects.messages.extend(ready.take_messages().into_iter().map(addressed));
        effects.after_write.extend(ready.take_persisted_messages().into_iter().map(addressed));
        let mut write = Write { ticket: ready.number(), ..Write::default() };
        if !ready.snapshot().is_empty() {
            let snapshot = snapshot_in(ready.snapshot());
            self.window.install(snapshot.clone());
            write.snapshot = Some(snapshot.clone());
            effects.install = Some(snapshot);
        }
        self.window.append(ready.entries());
        write.entries.extend(ready.entries().iter().map(entry_in));
        if let Some(hard) = ready.hs() {
            self.unwritten =
                Some(HardState { term: hard.term, vote: hard.vote, commit: hard.commit });
        }
        if ready.must_sync() && !mutant!(VoteNotPersisted) {
            write.hard = self.unwritten.take();
        }
        effects.committed.extend(ready.take_committed_entries().iter().map(entry_in));
        let rounds = ready.take_read_states().into_iter().filter_map(|state| {
            let round = state.request_ctx.try_into().ok().map(u64::from_le_bytes)?;
            Some((round, state.index))
        });
        effects.confirmed.extend(rounds);
        effects.write = Some(write);
        self.raw.advance_append_async(ready);
        true
    }

    fn persisted(&mut self, ticket: u64) {
        self.raw.on_persist_ready(ticket);
        self.tell_applied();
    }

    fn applied(&mut self, index: u64) {
        self.applied = index;
        self.tell_applied();
    }

    fn compact(&mut self, snapshot: Snapshot, keep: u64) {
        self.window.compact(snapshot, keep);
    }

    fn wants_snapshot(&mut self) -> bool {
        self.window.wants_snapshot()
    }

    fn unreachable(&mut self, node: NodeId) {
        self.raw.report_unreachable(node);
    }

    fn bulk_sent(&mut self, node: NodeId, arrived: bool) {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.raw.report_snapshot(node, status);
    }

    fn status(&self) -> Status {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        };
        Status {
            role,
            term: raft.term,
            leader: raft.leader_id,
            last: raft.raft_log.last_index(),
            commit: raft.raft_log.committed,
            can_read: role == Role::Leader && raft.commit_to_current_term(),
            is_transferring: raft.lead_transferee.is_some(),
        }
    }

    fn leads_in(&self) -> Option<u64> {
        self.leads().then_some(self.raw.raft.term)
    }

    fn members(&self) -> Members {
        members_of(&self.raw.raft.prs().conf().to_conf_state())
    }

    fn successor(&self) -> Option<NodeId> {
        let raft = &self.raw.raft;
        let voters = self.members().voters;
        let others = raft.prs().iter().filter(|(id, _)| **id != raft.id && voters.contains(id));
        others.max_by_key(|(id, progress)| (progress.matched, **id)).map(|(id, _)| *id)
    }
}

fn decode(bytes: &Bytes, data: Option<Bytes>) -> Option<eraftpb::Message> {
    let mut reader = Reader::new(bytes);
    let mut message = eraftpb::Message::default();
    message.set_msg_type(kind_of(reader.u8()?)?);
    let flags = reader.u8()?;
    if flags > 3 {
        return None;
    }
    message.reject = flags & 1 != 0;
    message.term = reader.u64()?;
    message.log_term = reader.u64()?;
    message.index = reader.u64()?;
    message.commit = reader.u64()?;
    message.commit_term = reader.u64()?;
    message.request_snapshot = reader.u64()?;
    message.reject_hint = reader.u64()?;
    message.context = reader.shared(bytes)?;
    for _ in 0..reader.u32()? {
        message.mut_entries().push(entry_out(&wire::entry(&mut reader, bytes)?));
    }
    let has_snapshot = flags & 2 != 0;
    if has_snapshot {
        let at = Position { term: reader.u64()?, index: reader.u64()? };
        let members = wire::members(&mut reader)?;
        message.set_snapshot(snapshot_out(&Snapshot { at, members, data: data.clone()? }));
    }
    let is_snapshot = message.get_msg_type() == MessageType::MsgSnapshot;
    (reader.is_empty() && has_snapshot == is_snapshot && data.is_some() == is_snapshot)
        .then_some(message)
}

/// The kinds that nodes send each other.
fn kind_of(number: u8) -> Option<MessageType> {
    const KINDS: [MessageType; 10] = [
        MessageType::MsgAppend,
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestVote,
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgSnapshot,
        MessageType::MsgHeartbeat,
        MessageType::MsgHeartbeatResponse,
        MessageType::MsgTimeoutNow,
        MessageType::MsgRequestPreVote,
        MessageType::MsgRequestPreVoteResponse,
    ];
    KINDS.into_iter().find(|kind| *kind as u8 == number)
}

fn entry_in(entry: &eraftpb::Entry) -> Entry {
    let kind = match entry.get_entry_type() {
        EntryType::EntryNormal => EntryKind::Command,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Change,
    };
    let at = Position { term: entry.term, index: entry.index };
    Entry { at, kind, data: entry.data.clone(), context: entry.context.clone() }
}

fn entry_out(entry: &Entry) -> eraftpb::Entry {
    let mut out = eraftpb::Entry::default();
    out.set_entry_type(match entry.kind {
        EntryKind::Command => EntryType::EntryNormal,
        EntryKind::Change => EntryType::EntryConfChangeV2,
    });
    out.term = entry.at.term;
    out.index = entry.at.index;
    out.data = entry.data.clone();
    out.context = entry.context.clone();
    out
}

fn snapshot_in(snapshot: &eraftpb::Snapshot) -> Snapshot {
    let meta = snapshot.get_metadata();
    let at = Position { term: meta.term, index: meta.index };
    Snapshot { at, members: members_of(meta.get_conf_state()), data: snapshot.data.clone() }
}

fn snapshot_out(snapshot: &Snapshot) -> eraftpb::Snapshot {
    let mut out = eraftpb::Snapshot { data: snapshot.data.clone(), ..Default::default() };
    let meta = out.mut_metadata();
    meta.term = snapshot.at.term;
    meta.index = snapshot.at.index;
    meta.set_conf_state(conf_state(&snapshot.members));
    out
}

fn members_of(conf: &ConfState) -> Members {
    Members {
        voters: conf.voters.clone(),
        learners: conf.learners.clone(),
        outgoing: conf.voters_outgoing.clone(),
        learners_next: conf.learners_next.clone(),
        auto_leave: conf.auto_leave,
    }
}

fn conf_state(members: &Members) -> ConfState {
    let mut conf = ConfState::default();
    conf.voters.clone_from(&members.voters);
    conf.learners.clone_from(&members.learners);
    conf.voters_outgoing.clone_from(&members.outgoing);
    conf.learners_next.clone_from(&members.learners_next);
    conf.auto_leave = members.auto_leave;
    conf
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use protobuf::Message as _;
    use raft::eraftpb::{self, ConfChangeSingle, ConfChangeType, ConfChangeV2, MessageType};

    use erpc_test_tools::random::Random;

    use super::{RaftCore, Settings, change_of, entry_out, snapshot_out};
    use crate::consensus::{
        Addresses, Consensus, Entry, EntryKind, MAX_CHANGE, Members, NodeId, Position,
        ProposeError, Snapshot, Start, StepError,
    };

    fn append() -> eraftpb::Message {
        let mut message = eraftpb::Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.term, message.log_term, message.index, message.commit) = (5, 4, 7, 6);
        message.context = "context".into();
        for index in 8..11 {
            let at = Position { term: 5, index };
            let data = vec![index as u8; index as usize].into();
            let entry = Entry { at, kind: EntryKind::Command, data, context: Bytes::new() };
            message.mut_entries().push(entry_out(&entry));
        }
        message
    }

    fn encoded(message: &eraftpb::Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        RaftCore::encode(message, &mut bytes);
        bytes
    }

    fn core() -> RaftCore {
        let addresses = [1, 2, 3].map(|id| (id, id.to_string()));
        let settings = Settings { node: 1, election_ticks: 10, heartbeat_ticks: 3, seed: 1 };
        RaftCore::new(&settings, &Start::first(Addresses(addresses.into()))).expect("it is valid")
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let message = append();
        let bytes = encoded(&message);
        assert_eq!(RaftCore::decode(bytes.clone().into(), None), Ok(message));
        for len in 0..bytes.len() {
            let cut = Bytes::copy_from_slice(&bytes[..len]);
            assert!(RaftCore::decode(cut, None).is_err(), "{len} bytes");
        }
        assert!(RaftCore::decode(bytes.into(), Some(Bytes::new())).is_err(), "it has no snapshot");
    }

    #[test]
    fn local_messages_do_not_come_from_the_network() {
        for kind in [MessageType::MsgHup, MessageType::MsgPropose, MessageType::MsgTransferLeader] {
            let mut message = append();
            message.set_msg_type(kind);
            assert!(RaftCore::decode(encoded(&message).into(), None).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn messages_that_the_library_would_not_survive_are_refused() {
        let mut core = core();
        let mut gap = append();
        gap.mut_entries()[1].index = 99;
        assert!(matches!(core.step(2, gap), Err(StepError::Wrong(_))));
        let mut newer = append();
        newer.mut_entries()[2].term = 6;
        assert!(matches!(core.step(2, newer), Err(StepError::Wrong(_))));
        let mut beyond = append();
        (beyond.log_term, beyond.index) = (0, 7);
        assert!(matches!(core.step(2, beyond), Err(StepError::Wrong(_))));
        let mut hand_over = eraftpb::Message::default();
        hand_over.set_msg_type(MessageType::MsgTimeoutNow);
        hand_over.term = u64::MAX;
        assert!(matches!(core.step(2, hand_over), Err(StepError::Wrong(_))));
        let mut snapshot = eraftpb::Message::default();
        snapshot.set_msg_type(MessageType::MsgSnapshot);
        snapshot.term = 5;
        let (at, members) = (Position { term: 2, index: 1 }, core.members());
        snapshot.set_snapshot(snapshot_out(&Snapshot { at, members, data: Bytes::new() }));
        assert!(matches!(core.step(2, snapshot), Err(StepError::Wrong(_))), "it has term 1 here");
        let mut heartbeat = eraftpb::Message::default();
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        (heartbeat.term, heartbeat.commit) = (5, 9);
        assert_eq!(core.step(2, heartbeat), Err(StepError::Lost { commit: 9, last: 1 }));
    }

    #[test]
    fn snapshots_with_members_that_the_library_would_not_survive_are_refused() {
        let mut random = Random::new(1);
        let mut list = |of: &[NodeId]| -> Vec<NodeId> {
            let len = random.below(4);
            (0..len).map(|_| *random.pick(of)).collect()
        };
        let mut possible = [0; 2];
        for turn in 0..20_000 {
            let voters = list(&[1, 2, 3, 4, 0]);
            let outgoing = if turn % 2 == 0 { Vec::new() } else { list(&[1, 2, 4, 5]) };
            let (learners, learners_next) = (list(&[6, 7, 1]), list(&[4, 5]));
            let learners_next = if turn % 3 == 0 { learners_next } else { Vec::new() };
            let auto_leave = turn % 5 == 0;
            let members = Members { voters, learners, outgoing, learners_next, auto_leave };
            let (at, data) = (Position { term: 5, index: 10 }, Bytes::from_static(b"state"));
            let mut message = eraftpb::Message::default();
            message.set_msg_type(MessageType::MsgSnapshot);
            message.term = 5;
            let snapshot = Snapshot { at, members: members.clone(), data: data.clone() };
            message.set_snapshot(snapshot_out(&snapshot));
            let decoded = RaftCore::decode(encoded(&message).into(), Some(data));
            assert_eq!(decoded.is_ok(), members.are_possible(), "{members:?}");
            if let Ok(message) = decoded {
                possible[usize::from(!members.outgoing.is_empty())] += 1;
                // It panics if the library cannot restore the members.
                let stepped = core().step(2, message);
                assert_eq!(stepped.is_ok(), !members.voters.is_empty(), "{members:?}: {stepped:?}");
            }
        }
        assert!(possible.iter().all(|count| *count > 50), "{possible:?}");
    }

    #[test]
    fn changes_are_bounded_and_damaged_ones_are_refused() {
        assert!(matches!(change_of(&vec![0; MAX_CHANGE + 1]), Err(StepError::Wrong(_))));
        // Groups of unknown fields, as deep as possible: the decoder recurses.
        for byte in 0..=255 {
            drop(change_of(&[byte; MAX_CHANGE]));
        }
        assert!(change_of(&[0xff; 20]).is_err());
        assert!(change_of(&[]).is_ok(), "the end of a joint configuration");
    }

    #[test]
    fn a_change_that_cannot_be_made_changes_nothing() {
        let mut core = core();
        let before = core.members();
        let mut entry = |changes: &[(ConfChangeType, NodeId)]| {
            let mut encoded = ConfChangeV2::default();
            for (kind, node) in changes {
                let mut single = ConfChangeSingle::default();
                single.set_change_type(*kind);
                single.node_id = *node;
                encoded.mut_changes().push(single);
            }
            let data = encoded.write_to_bytes().expect("it is short").into();
            let at = Position { term: 1, index: 2 };
            let entry = Entry { at, kind: EntryKind::Change, data, context: Bytes::new() };
            (core.apply_change(&entry), core.members())
        };
        let all = [1, 2, 3].map(|node| (ConfChangeType::RemoveNode, node));
        assert_eq!(entry(&all), (false, before.clone()), "nobody would have a vote");
        assert_eq!(entry(&[]), (false, before.clone()), "there is no joint configuration to leave");
        let (is_made, after) = entry(&[(ConfChangeType::AddNode, 4)]);
        assert!(is_made && after.votes(4) && !before.votes(4), "{after:?}");
    }

    #[test]
    fn a_follower_accepts_no_proposals() {
        let mut core = core();
        assert_eq!(core.propose(vec!["x".into()]), Err(ProposeError::NotLeader));
        assert_eq!(core.confirm(1), Err(ProposeError::NotLeader));
    }
}
