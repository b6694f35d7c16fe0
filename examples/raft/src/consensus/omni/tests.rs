//! Three nodes without a network: each test says what arrives, and when a disk is done.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::sequence_paxos::{AcceptSync, PaxosMsg, Prepare};
use omnipaxos::util::{LogSync, SequenceNumber};

use super::{Message, OmniCore, Settings};
use crate::consensus::{
    Addresses, Change, Consensus, Effects, Entry, HardState, NodeId, Position, ProposeError, Role,
    Snapshot, Start, Write,
};

const ELECTION: u32 = 10;

struct Node {
    core: OmniCore,
    /// Writes that are not on disk yet, and the messages that wait for them.
    writes: VecDeque<(Write, Vec<(NodeId, Message)>)>,
    applied: Vec<Entry>,
    installed: u64,
    confirmed: Vec<(u64, u64)>,
    /// Whether its disk works.
    syncs: bool,
}

struct Cluster {
    nodes: BTreeMap<NodeId, Node>,
    /// Messages on their way: from, to, message.
    sent: VecDeque<(NodeId, NodeId, Message)>,
    /// Nodes that hear and say nothing.
    cut: Vec<NodeId>,
}

fn first() -> Start {
    // The library numbers them 1, 2, 3.
    Start::first(Addresses([11, 22, 33].map(|id| (id, id.to_string())).into()))
}

fn node(id: NodeId, start: &Start) -> Node {
    let settings = Settings { node: id, election_ticks: ELECTION };
    let core = OmniCore::new(&settings, start).expect("it is valid");
    Node {
        core,
        writes: VecDeque::new(),
        applied: Vec::new(),
        installed: 0,
        confirmed: Vec::new(),
        syncs: true,
    }
}

impl Cluster {
    fn new() -> Self {
        let nodes = [11, 22, 33].map(|id| (id, node(id, &first())));
        Self { nodes: nodes.into(), sent: VecDeque::new(), cut: Vec::new() }
    }

    fn core(&mut self, id: NodeId) -> &mut OmniCore {
        &mut self.nodes.get_mut(&id).expect("a node").core
    }

    /// Does what a node asks for.
    fn work(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node");
        loop {
            let mut effects = Effects::default();
            let has_work = node.core.poll(&mut effects);
            if let Some(write) = effects.write {
                node.writes.push_back((write, effects.after_write));
            }
            let sent = effects.messages.into_iter();
            self.sent.extend(sent.map(|(to, message)| (id, to, message)));
            if let Some(snapshot) = effects.install {
                node.installed = snapshot.at.index;
            }
            node.applied.extend(effects.committed);
            node.confirmed.extend(effects.confirmed);
            let written = if node.syncs { node.writes.pop_front() } else { None };
            let has_written = written.is_some();
            if let Some((write, messages)) = written {
                node.core.persisted(write.ticket);
                self.sent.extend(messages.into_iter().map(|(to, message)| (id, to, message)));
            }
            if !has_work && !has_written {
                return;
            }
        }
    }

    /// Delivers everything, and what follows from it.
    fn deliver(&mut self) {
        for id in [11, 22, 33] {
            self.work(id);
        }
        while let Some((from, to, message)) = self.sent.pop_front() {
            if self.cut.contains(&from) || self.cut.contains(&to) {
                continue;
            }
            let mut bytes = Vec::new();
            OmniCore::encode(&message, &mut bytes);
            let bulk = OmniCore::bulk(&message);
            let message = OmniCore::decode(bytes.into(), bulk).expect("it was encoded");
            self.core(to).step(from, message).expect("it follows the protocol");
            self.work(to);
        }
    }

    /// Like [`Cluster::deliver`], but the disk of a node stops at the second write that is `wanted`: the
    /// first has its new ballot.
    fn deliver_until_disk(&mut self, id: NodeId, wanted: impl Fn(&Write) -> bool) {
        self.nodes.get_mut(&id).expect("a node").syncs = false;
        self.deliver();
        let node = self.nodes.get_mut(&id).expect("a node");
        let (write, messages) = node.writes.pop_front().expect("its ballot");
        assert!(wanted(&write));
        node.core.persisted(write.ticket);
        self.sent.extend(messages.into_iter().map(|(to, message)| (id, to, message)));
        self.deliver();
    }

    fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            for id in [11, 22, 33] {
                self.core(id).tick();
            }
            self.deliver();
        }
    }

    fn leader(&mut self) -> NodeId {
        for _ in 0..20 {
            self.ticks(ELECTION);
            let cut = &self.cut;
            let mut alive = self.nodes.iter().filter(|(id, _)| !cut.contains(id));
            if let Some((id, _)) = alive.find(|(_, node)| node.core.status().can_read) {
                return *id;
            }
        }
        panic!("no node becomes leader");
    }

    fn applied(&self, id: NodeId) -> Vec<&[u8]> {
        self.nodes[&id].applied.iter().map(|entry| &*entry.data).collect()
    }
}

fn command(text: &'static str) -> Vec<Bytes> {
    vec![Bytes::from_static(text.as_bytes())]
}

#[test]
fn an_entry_is_applied_at_all_nodes() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    let at = cluster.core(leader).propose(command("one")).expect("it leads");
    assert_eq!(at.index, 2);
    cluster.deliver();
    for id in [11, 22, 33] {
        assert_eq!(cluster.applied(id), [b"one"], "node {id}");
        assert_eq!(cluster.nodes[&id].applied[0].at, at);
    }
    let follower = if leader == 11 { 22 } else { 11 };
    assert_eq!(cluster.core(follower).propose(command("two")), Err(ProposeError::NotLeader));
    assert_eq!(cluster.core(follower).status().leader, leader);
}

#[test]
fn a_leader_waits_for_its_own_disk() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    cluster.nodes.get_mut(&leader).expect("a node").syncs = false;
    cluster.core(leader).propose(command("one")).expect("it leads");
    cluster.deliver();
    for id in [11, 22, 33] {
        assert!(
            cluster.applied(id).is_empty(),
            "two disks have it, but the leader's is one of three"
        );
    }
    cluster.nodes.get_mut(&leader).expect("a node").syncs = true;
    cluster.deliver();
    assert_eq!(cluster.applied(leader), [b"one"]);
}

/// An entry of an older round may be on the leader's disk already. It counts only when the disk knows
/// that it was accepted in this round: the round decides whose log is the right one after a crash.
#[test]
fn a_new_leader_waits_until_its_round_is_on_disk() {
    let mut cluster = Cluster::new();
    let old = cluster.leader();
    // Only the leader gets the entry.
    let others: Vec<_> = [11, 22, 33].into_iter().filter(|id| *id != old).collect();
    cluster.cut.clone_from(&others);
    cluster.core(old).propose(command("alone")).expect("it leads");
    cluster.deliver();
    cluster.cut.clear();
    // It leads again, with the entry on its disk and a higher ballot.
    cluster.core(old).take_over();
    cluster.deliver_until_disk(old, |write| !write.entries.is_empty() || write.hard.is_some());
    assert!(cluster.nodes[&old].core.reign.is_some(), "it has the promises of a majority");
    assert!(cluster.applied(old).is_empty(), "its disk does not know the round yet");
    cluster.nodes.get_mut(&old).expect("a node").syncs = true;
    cluster.deliver();
    assert_eq!(cluster.applied(old), [b"alone"]);
}

#[test]
fn a_follower_acknowledges_what_is_on_its_disk() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    for id in [11, 22, 33] {
        cluster.nodes.get_mut(&id).expect("a node").syncs = id == leader;
    }
    cluster.core(leader).propose(command("one")).expect("it leads");
    cluster.deliver();
    assert!(cluster.applied(leader).is_empty(), "one disk of three has it");
    let follower = if leader == 11 { 22 } else { 11 };
    cluster.nodes.get_mut(&follower).expect("a node").syncs = true;
    cluster.deliver();
    assert_eq!(cluster.applied(leader), [b"one"]);
}

#[test]
fn a_candidate_sends_its_ballot_when_it_is_on_disk() {
    let mut node = node(33, &first());
    let is_prepare = |message: &Message| OmniCore::asks_for_vote(message);
    for _ in 0..3 * ELECTION {
        node.core.tick();
        let mut effects = Effects::default();
        node.core.poll(&mut effects);
        assert!(!effects.messages.iter().any(|(_, message)| is_prepare(message)));
        if effects.after_write.iter().any(|(_, message)| is_prepare(message)) {
            return;
        }
    }
    panic!("it never wants to lead");
}

/// What a node has on disk after these writes.
fn restarted(writes: &[Write]) -> Start {
    let mut start = first();
    for write in writes {
        if let Some(end) = write.end {
            start.entries.retain(|entry| entry.at.index <= end);
        }
        for entry in &write.entries {
            start.entries.retain(|old| old.at.index < entry.at.index);
            start.entries.push(entry.clone());
        }
        start.hard = write.hard.unwrap_or(start.hard);
    }
    start
}

#[test]
fn entries_of_a_deposed_leader_are_forgotten_on_disk_too() {
    let mut cluster = Cluster::new();
    let old = cluster.leader();
    cluster.cut.push(old);
    cluster.core(old).propose(command("lost")).expect("it does not know");
    cluster.deliver();
    let new = cluster.leader();
    assert_ne!(new, old);
    cluster.cut.clear();
    // The old leader hears of the new one. Its disk must forget the entry before anything replaces it.
    cluster.nodes.get_mut(&old).expect("a node").syncs = false;
    let mut writes: Vec<Write> = Vec::new();
    for _ in 0..10 * ELECTION {
        cluster.ticks(1);
        let node = cluster.nodes.get_mut(&old).expect("a node");
        while let Some((write, messages)) = node.writes.pop_front() {
            node.core.persisted(write.ticket);
            writes.push(write);
            cluster.sent.extend(messages.into_iter().map(|(to, message)| (old, to, message)));
        }
        cluster.deliver();
    }
    assert_eq!(cluster.core(old).status().last, 1, "it has the log of the new leader");
    assert!(writes.iter().any(|write| write.end == Some(1)), "{writes:?}");
    let entry = Entry {
        at: Position { term: 1 << 16 | 3, index: 2 },
        kind: crate::consensus::EntryKind::Command,
        data: "lost".into(),
        context: Bytes::new(),
    };
    writes.insert(0, Write { entries: vec![entry], ..Write::default() });
    assert!(restarted(&writes).entries.is_empty());
}

#[test]
fn a_node_that_was_away_gets_entries_or_a_snapshot_and_entries() {
    for has_snapshot in [false, true] {
        let mut cluster = Cluster::new();
        let leader = cluster.leader();
        let away = if leader == 11 { 22 } else { 11 };
        cluster.cut.push(away);
        for text in ["a", "b", "c", "d"] {
            cluster.core(leader).propose(command(text)).expect("it leads");
            cluster.deliver();
        }
        if has_snapshot {
            let members = cluster.core(leader).members();
            let at = cluster.nodes[&leader].applied[1].at;
            let data = Bytes::from_static(b"a and b");
            cluster.core(leader).compact(Snapshot { at, members, data }, 0);
        }
        cluster.cut.clear();
        cluster.core(leader).unreachable(away);
        cluster.ticks(3 * ELECTION);
        let node = &cluster.nodes[&away];
        assert_eq!(node.installed, if has_snapshot { 3 } else { 0 });
        let last = node.applied.len().saturating_sub(2);
        let applied = cluster.applied(away);
        assert_eq!(applied[last..], [b"c", b"d"], "snapshot: {has_snapshot}");
        assert_eq!(applied.len(), if has_snapshot { 2 } else { 4 });
    }
}

/// A log that travels in pieces arrives after the entries that follow it.
#[test]
fn entries_that_overtake_their_log_are_asked_for() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    let late = if leader == 11 { 22 } else { 11 };
    cluster.cut.push(late);
    cluster.core(leader).propose(command("missed")).expect("it leads");
    cluster.deliver();
    cluster.cut.clear();
    cluster.core(late).unreachable(leader);
    // The node asks, and promises; then the leader sends its log, and an entry.
    let is_sync = |message: &Message| {
        matches!(message, Message::Log { message: PaxosMsg::AcceptSync(_), .. })
    };
    let mut log = None;
    while log.is_none() {
        for id in [11, 22, 33] {
            cluster.core(id).tick();
            cluster.work(id);
        }
        while let Some((from, to, message)) = cluster.sent.pop_front() {
            if to == late && is_sync(&message) {
                log = Some((from, to, message));
                continue;
            }
            cluster.core(to).step(from, message).expect("it follows the protocol");
            cluster.work(to);
        }
    }
    cluster.core(leader).propose(command("early")).expect("it leads");
    cluster.work(leader);
    let follows = |message: &Message| {
        matches!(message, Message::Log { message: PaxosMsg::AcceptDecide(_), .. })
    };
    let early = cluster.sent.iter().position(|(_, to, message)| *to == late && follows(message));
    let (from, to, early) = early.and_then(|at| cluster.sent.remove(at)).expect("the entry");
    // The word that the entry is decided is lost, so that nothing else shows the gap.
    cluster.cut.push(late);
    cluster.deliver();
    cluster.cut.clear();
    cluster.core(to).step(from, early).expect("it follows the protocol");
    assert!(cluster.applied(late).is_empty());
    cluster.sent.extend(log);
    cluster.deliver();
    assert_eq!(cluster.applied(late), [&b"missed"[..], b"early"]);
}

/// A log that is older than what the node has acknowledged in the same round.
#[test]
fn an_old_log_takes_nothing_back() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    let late = if leader == 11 { 22 } else { 11 };
    cluster.core(leader).propose(command("kept")).expect("it leads");
    cluster.deliver();
    let term = cluster.core(leader).status().term;
    let ballot = Ballot::with(1, (term >> 16) as u32, 0, term & 0xffff);
    // After a restart the node does not know which logs it has had.
    let hard = HardState { term, vote: term, commit: 1 };
    let entries = cluster.nodes[&late].applied.clone();
    cluster.nodes.insert(late, node(late, &Start { hard, entries, ..first() }));
    let prepare = Prepare { n: ballot, decided_idx: 2, n_accepted: ballot, accepted_idx: 2 };
    let old = AcceptSync {
        n: ballot,
        seq_num: SequenceNumber { session: 1, counter: 1 },
        decided_idx: 1,
        log_sync: LogSync {
            decided_snapshot: None,
            suffix: Vec::new(),
            sync_idx: 1,
            stopsign: None,
        },
    };
    for message in [PaxosMsg::Prepare(prepare), PaxosMsg::AcceptSync(old)] {
        let message = Message::Log { message, agreed: None };
        cluster.core(late).step(leader, message).expect("it was sent once");
    }
    assert_eq!(cluster.core(late).status().last, 2);
}

/// A message that cannot be sent must not lead to another one at once.
#[test]
fn a_lost_message_to_the_leader_is_noticed_with_the_next_tick() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    let follower = if leader == 11 { 22 } else { 11 };
    cluster.core(follower).unreachable(leader);
    let mut effects = Effects::default();
    assert!(!cluster.core(follower).poll(&mut effects), "{effects:?}");
    cluster.core(follower).tick();
    let mut effects = Effects::default();
    assert!(cluster.core(follower).poll(&mut effects));
    assert!(effects.messages.iter().any(|(to, _)| *to == leader), "it asks for its log");
}

#[test]
fn a_candidate_that_crashed_with_a_ballot_of_its_own_is_reached_again() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    let lonely = if leader == 11 { 22 } else { 11 };
    let term = cluster.core(leader).status().term;
    // It has promised itself a ballot that is higher than the leader's, and nobody has heard of it.
    let pid = if lonely == 11 { 1 } else { 2 };
    let hard = HardState { term: ((term >> 16) + 3) << 16 | pid, vote: 0, commit: 1 };
    let start = Start { hard, ..first() };
    cluster.nodes.insert(lonely, node(lonely, &start));
    cluster.ticks(10 * ELECTION);
    let now = cluster.leader();
    cluster.core(now).propose(command("for all")).expect("it leads");
    cluster.deliver();
    assert_eq!(cluster.applied(lonely), [b"for all"]);
}

#[test]
fn a_node_that_has_confirmed_a_leader_helps_no_other_for_a_while() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    cluster.core(leader).confirm(7).expect("it can read");
    cluster.deliver();
    assert_eq!(cluster.nodes[&leader].confirmed, [(7, 1)]);
    let others: Vec<_> = [11, 22, 33].into_iter().filter(|id| *id != leader).collect();
    let [voter, candidate] = others[..] else { unreachable!("two of three") };
    let pid = if candidate == 22 { 2 } else { 3 };
    let n = Ballot::with(1, 9, 0, pid);
    let ask = |cluster: &mut Cluster, agreed| {
        let prepare = Prepare { n, decided_idx: 1, n_accepted: Ballot::default(), accepted_idx: 1 };
        let message = PaxosMsg::Prepare(prepare);
        let core = cluster.core(voter);
        core.step(candidate, Message::Log { message, agreed }).expect("it may ask");
        core.status().term == 9 << 16 | pid
    };
    for tick in 0..ELECTION {
        // That an earlier leader has agreed says nothing of this one.
        for agreed in [None, Some(Ballot::with(1, 0, 0, 1))] {
            let promises = ask(&mut cluster, agreed);
            assert!(!promises, "it promises another ballot after {tick} ticks");
        }
        cluster.core(voter).tick();
    }
    assert!(ask(&mut cluster, None), "it has waited long enough");
}

#[test]
fn a_leader_that_hands_over_is_followed_at_once() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    cluster.core(leader).confirm(1).expect("it can read");
    cluster.deliver();
    let next = cluster.core(leader).successor().expect("there are others");
    cluster.core(leader).transfer(next);
    assert_eq!(cluster.core(leader).propose(command("late")), Err(ProposeError::Busy));
    cluster.deliver();
    assert_eq!(cluster.core(next).status().role, Role::Leader, "without an election time");
    assert_eq!(cluster.core(leader).status().leader, next);
}

#[test]
fn a_leader_without_a_majority_says_so() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    cluster.cut.push(leader);
    cluster.ticks(2 * ELECTION + 1);
    assert_ne!(cluster.core(leader).status().role, Role::Leader);
    assert_eq!(cluster.core(leader).propose(command("x")), Err(ProposeError::NotLeader));
    assert_eq!(cluster.core(leader).confirm(1), Err(ProposeError::NotLeader));
}

#[test]
fn what_the_library_cannot_do_is_refused() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    let refused = cluster.core(leader).change(&Change::default(), Bytes::new());
    assert_eq!(refused, Err(ProposeError::Unsupported));
    let new = |node, start: &Start| OmniCore::new(&Settings { node, election_ticks: 10 }, start);
    let error = |node, start: &Start| new(node, start).err().unwrap_or_default();
    let alone = Start::first(Addresses([(1, String::new())].into()));
    assert!(error(1, &alone).contains("needs 2 to 1000 members"), "{}", error(1, &alone));
    assert!(error(1, &Start::default()).contains("not 0"));
    assert!(error(5, &first()).contains("node 5 is no member"));
    let mut learner = first();
    learner.snapshot.members.learners.push(44);
    assert!(error(11, &learner).contains("all members have a vote"));
    let foreign = Start { hard: HardState { term: 5 << 16 | 9, vote: 0, commit: 1 }, ..first() };
    assert!(error(11, &foreign).contains("is of no member"));
}

#[test]
fn a_message_is_read_as_it_was_written() {
    let mut cluster = Cluster::new();
    let leader = cluster.leader();
    let members = cluster.core(leader).members();
    cluster.core(leader).propose(command("one")).expect("it leads");
    // Everything that three nodes say until one of them has got a snapshot.
    let mut kinds = std::collections::BTreeSet::new();
    let mut check = |cluster: &mut Cluster| {
        for id in [11, 22, 33] {
            cluster.work(id);
        }
        for (_, _, message) in &cluster.sent {
            let mut bytes = Vec::new();
            OmniCore::encode(message, &mut bytes);
            let bulk = OmniCore::bulk(message);
            kinds.insert((bytes[0], bulk.is_some()));
            let decoded = OmniCore::decode(bytes.clone().into(), bulk.clone()).expect("encoded");
            let mut again = Vec::new();
            OmniCore::encode(&decoded, &mut again);
            assert_eq!(again, bytes);
            assert_eq!(OmniCore::bulk(&decoded), bulk);
            for len in 0..bytes.len() {
                let cut = Bytes::copy_from_slice(&bytes[..len]);
                assert!(OmniCore::decode(cut, bulk.clone()).is_err(), "{len} bytes of {message:?}");
            }
            let other = if bulk.is_some() { None } else { Some(Bytes::new()) };
            assert!(OmniCore::decode(bytes.into(), other).is_err(), "it has another bulk");
        }
    };
    check(&mut cluster);
    cluster.deliver();
    let away = if leader == 11 { 22 } else { 11 };
    cluster.cut.push(away);
    cluster.core(leader).propose(command("two")).expect("it leads");
    cluster.deliver();
    let at = cluster.nodes[&leader].applied[1].at;
    let data = Bytes::from_static(b"state");
    cluster.core(leader).compact(Snapshot { at, members, data }, 0);
    cluster.cut.clear();
    cluster.core(leader).unreachable(away);
    for _ in 0..40 {
        for id in [11, 22, 33] {
            cluster.core(id).tick();
        }
        check(&mut cluster);
        let Some((from, to, message)) = cluster.sent.pop_front() else { continue };
        cluster.sent.push_front((from, to, message));
        // One hop at a time, so that answers are seen.
        for (from, to, message) in std::mem::take(&mut cluster.sent) {
            cluster.core(to).step(from, message).expect("it follows the protocol");
        }
    }
    // A request for a ballot, a ballot, a promise, a log with a snapshot, entries, an acknowledgement,
    // a sign of life and its answer, and the word that messages were lost.
    for kind in [1, 2, 4, 6, 7, 10, 11, 15] {
        assert!(kinds.contains(&(kind, false)), "no message of kind {kind}: {kinds:?}");
    }
    assert!(kinds.contains(&(5, true)), "no snapshot: {kinds:?}");
}
