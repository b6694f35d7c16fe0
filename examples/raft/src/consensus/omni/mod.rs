//! Omni-Paxos (Ng, Haridi, Carbone; EuroSys'23), by the crate `omnipaxos` as it is published.
//!
//! The library keeps the rules of Sequence Paxos and of the election; this module translates, and adds
//! what the store needs and the library does not have:
//!
//! * **Durability.** The library's storage is synchronous; the store's disk is not. The library works on
//!   memory (`log`), and a message that promises something waits until the disk has it. The library's
//!   leader counts its own log as accepted at once. So this module tells it of the acknowledgement of
//!   another node only as far as the entries, and the round in which they were accepted, are on its own
//!   disk.
//! * **Order.** The library expects connections that keep their order. `check` refuses or ignores what
//!   is old, and asks for what is missing.
//! * **Reads.** A leader asks a majority whether it has promised anything higher. A node that answers
//!   helps no other leader for the election time, so leases work as with Raft.
//! * **Hand-over**, and a leader that knows that it has lost its majority.
//! * **Stragglers.** A candidate may crash when it has promised itself its ballot, but nobody has heard of
//!   it. The library's leader would never reach it again, nor a node that has promised a ballot to a
//!   candidate that is gone. Here they say so, and the leader takes a higher ballot.
//!
//! The members are those that the cluster begins with, at least two. The library changes members by
//! ending its log with a stop sign and beginning another one; that is not done here.

mod check;
mod log;
mod message;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use bytes::Bytes;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::{BLEMessage, HeartbeatMsg};
use omnipaxos::messages::sequence_paxos::{Accepted, NotAccepted, PaxosMessage, PaxosMsg};
use omnipaxos::{ClusterConfig, OmniPaxos, OmniPaxosConfig, ServerConfig, messages};

use self::check::{Fate, View};
use self::log::Log;
pub use self::message::Message;
use self::message::{CONFIGURATION, Numbering, term_of};
use super::{
    Change, Consensus, Effects, Entry, EntryKind, Members, NodeId, Position, ProposeError, Role,
    Snapshot, Start, Status, StepError, Write,
};
use crate::mutants::mutant;

/// Settings of the algorithm.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node.
    pub node: NodeId,
    /// For this many ticks after it has confirmed that a leader leads, a node helps no other one. A
    /// leader without a message of a majority for twice as many does not lead. Nodes ask each other
    /// for a sign of life twice in this time; two to three signs that do not come begin an election.
    pub election_ticks: u32,
}

/// Omni-Paxos.
pub struct OmniCore {
    library: OmniPaxos<Entry, Log>,
    log: Log,
    numbering: Numbering,
    members: Members,
    me: u64,
    election_ticks: u64,
    /// Ticks since the start.
    now: u64,
    /// Messages to send now.
    ready: Vec<(NodeId, Message)>,
    /// Messages to send when all that this node has accepted is on disk.
    held: Vec<(NodeId, Message)>,
    from_library: Vec<messages::Message<Entry>>,
    others: BTreeMap<u64, Other>,
    reign: Option<Reign>,
    /// See [`View::synced`].
    synced: (Ballot, u64),
    /// Before this tick, the node helps no other leader than the one it follows.
    loyal_until: u64,
    /// A ballot of this node, and that of the leader who has asked for it.
    handover: Option<(Ballot, Ballot)>,
    /// A message to this leader was lost.
    lost: Option<u64>,
    /// The last message of a leader that the library could not use, because the log with this number
    /// had not arrived: its ballot and that number.
    missed: (Ballot, u64),
    /// Until this tick, the node takes no higher ballot because another one was promised.
    calm_until: u64,
    confirmed: Vec<(u64, u64)>,
    /// Entries up to this index have been in [`Effects::committed`].
    emitted: u64,
    ticket: u64,
}

/// What is known of another node.
#[derive(Default)]
struct Other {
    /// The tick of its last message.
    heard: u64,
    /// The round of its last sign of life.
    beat: u32,
    /// It has accepted the log of this leader up to this index.
    accepted: u64,
    /// Messages to it were lost.
    has_gap: bool,
}

/// The time in which this node leads.
struct Reign {
    ballot: Ballot,
    /// The end of the log at the begin. When it is decided, all that other leaders have decided is known.
    begins_at: u64,
    round: Option<Round>,
    /// Nodes that have confirmed this leader since one said that it had promised a higher ballot. When
    /// they are a majority, the leader takes a higher one.
    challenge: Option<BTreeSet<u64>>,
    /// Bytes that were proposed and are not decided.
    undecided: usize,
    /// Until this tick, another node is to become leader.
    transfers_until: u64,
}

/// A question to all nodes, whether this one still leads.
struct Round {
    number: u64,
    index: u64,
    answers: BTreeSet<u64>,
}

/// The number of a [`Message::Confirm`] that is for no reads. Those begin with 1.
const CHALLENGE: u64 = 0;
/// Entries in one [`Effects::committed`], in bytes.
const MAX_COMMITTED: usize = 1 << 20;
/// Entries in one message of a leader, in bytes; the last may be longer.
const MAX_APPEND: usize = 256 << 10;
/// Entries that are proposed and not decided, in bytes.
const MAX_UNDECIDED: usize = 32 << 20;

impl OmniCore {
    /// Begins, or continues from what is on disk.
    ///
    /// # Errors
    /// If the start has no members, fewer than two, or others than voters; or if the settings or the
    /// start contradict themselves. The text says how.
    pub fn new(settings: &Settings, start: &Start) -> Result<Self, String> {
        let members = start.snapshot.members.clone();
        let nodes = members.voters.clone();
        if members.all().len() != nodes.len() {
            return Err("with Omni-Paxos, all members have a vote".into());
        }
        if nodes.len() < 2 || nodes.len() > 1000 {
            return Err(format!(
                "Omni-Paxos needs 2 to 1000 members from the begin, not {}",
                nodes.len()
            ));
        }
        let numbering = Numbering::new(nodes);
        let me = numbering.pid(settings.node);
        let me = me.ok_or_else(|| format!("node {} is no member", settings.node))?;
        let log = Log::new(start, &numbering)?;
        let election_ticks = u64::from(settings.election_ticks);
        let pids = 1..=numbering.len() as u64;
        let config = OmniPaxosConfig {
            cluster_config: ClusterConfig {
                configuration_id: CONFIGURATION,
                nodes: pids.clone().collect(),
                flexible_quorum: None,
            },
            server_config: ServerConfig {
                pid: me,
                election_tick_timeout: (election_ticks / 2).max(1),
                resend_message_tick_timeout: election_ticks.max(1),
                buffer_size: 64,
                ..ServerConfig::default()
            },
        };
        let library = config.build(log.clone()).map_err(|error| error.to_string())?;
        let others = pids.filter(|pid| *pid != me).map(|pid| (pid, Other::default())).collect();
        Ok(Self {
            library,
            log,
            numbering,
            members,
            me,
            election_ticks,
            now: 0,
            ready: Vec::new(),
            held: Vec::new(),
            from_library: Vec::new(),
            others,
            reign: None,
            synced: (Ballot::default(), 0),
            // It may have confirmed a leader before a restart.
            loyal_until: election_ticks,
            handover: None,
            lost: None,
            missed: (Ballot::default(), 0),
            calm_until: 0,
            confirmed: Vec::new(),
            emitted: start.snapshot.at.index,
            ticket: 0,
        })
    }

    fn majority(&self) -> usize {
        self.numbering.len() / 2 + 1
    }

    fn decided(&self) -> u64 {
        self.library.get_decided_idx() as u64
    }

    /// Whether the node leads and has its log in order, or follows and has that of the leader.
    fn is_in_step(&self) -> bool {
        self.library.get_current_leader().is_some_and(|(_, is_accepted)| is_accepted)
    }

    /// The reign, if a majority was heard lately.
    fn leads(&self) -> Option<&Reign> {
        let reign = self.reign.as_ref()?;
        let heard = self.others.values().filter(|other| self.is_alive(other)).count();
        (heard + 1 >= self.majority()).then_some(reign)
    }

    /// Whether the node has sent a message lately.
    fn is_alive(&self, other: &Other) -> bool {
        self.now - other.heard <= 2 * self.election_ticks
    }

    /// Notes whether the node has begun or ceased to lead. Called after all that the library does.
    fn note(&mut self) {
        let ballot = self.library.get_promise();
        if ballot.pid != self.me || !self.is_in_step() {
            self.reign = None;
        } else if self.reign.as_ref().is_none_or(|reign| reign.ballot != ballot) {
            for other in self.others.values_mut() {
                (other.accepted, other.has_gap, other.heard) = (0, false, self.now);
            }
            self.reign = Some(Reign {
                ballot,
                begins_at: self.log.last(),
                round: None,
                challenge: None,
                undecided: 0,
                transfers_until: 0,
            });
        }
        self.collect();
    }

    /// Takes the messages of the library.
    fn collect(&mut self) {
        let mut messages = mem::take(&mut self.from_library);
        self.library.take_outgoing_messages(&mut messages);
        for message in messages.drain(..) {
            match message {
                messages::Message::BLE(beat) => {
                    self.ready.push((self.numbering.node(beat.to), Message::Heartbeat(beat.msg)));
                }
                messages::Message::SequencePaxos(PaxosMessage { to, msg, .. }) => {
                    self.sort(self.numbering.node(to), msg);
                }
            }
        }
        self.from_library = messages;
    }

    /// What of the library's messages waits for the disk: a candidate must not use a ballot twice, a
    /// promise and an acknowledgement must survive a crash. A leader's entries need not: only their
    /// acknowledgement counts.
    fn sort(&mut self, to: NodeId, message: PaxosMsg<Entry>) {
        let mut agreed = None;
        if let PaxosMsg::Prepare(prepare) = &message {
            agreed = self.handover.filter(|(ballot, _)| *ballot == prepare.n).map(|(_, of)| of);
            // Its own word counts, too. The library sends it again.
            if agreed.is_none() && self.is_loyal() {
                return;
            }
        }
        let promises =
            matches!(message, PaxosMsg::Prepare(_) | PaxosMsg::Promise(_) | PaxosMsg::Accepted(_));
        let queue = if promises { &mut self.held } else { &mut self.ready };
        queue.push((to, Message::Log { message, agreed }));
    }

    fn is_loyal(&self) -> bool {
        self.now < self.loyal_until && !mutant!(VotesDuringLease)
    }

    fn send(&mut self, pid: u64, message: Message) {
        self.ready.push((self.numbering.node(pid), message));
    }

    fn send_all(&mut self, message: &Message) {
        for pid in self.others.keys() {
            self.ready.push((self.numbering.node(*pid), message.clone()));
        }
    }

    fn step_log(
        &mut self,
        from: u64,
        mut message: PaxosMsg<Entry>,
        agreed: Option<Ballot>,
    ) -> Result<(), StepError> {
        let view = View {
            numbering: &self.numbering,
            members: &self.members,
            promise: self.library.get_promise(),
            is_in_step: self.is_in_step(),
            accepted: self.log.accepted(),
            decided: self.decided(),
            last: self.log.last(),
            synced: self.synced,
            me: self.me,
        };
        let fate = view.check(from, &mut message).map_err(StepError::Wrong)?;
        match &message {
            PaxosMsg::AcceptDecide(accept) => self.miss(accept.n, accept.seq_num.session),
            PaxosMsg::Decide(decide) => self.miss(decide.n, decide.seq_num.session),
            _ => {}
        }
        match fate {
            Fate::Pass => {}
            Fate::Ignore => return Ok(()),
            Fate::Gap => {
                self.library.reconnected(from);
                return Ok(());
            }
        }
        let mut syncs = None;
        match &mut message {
            PaxosMsg::Prepare(prepare) => {
                let promise = self.library.get_promise();
                if prepare.n > promise && agreed != Some(promise) && self.is_loyal() {
                    return Ok(());
                }
                if prepare.n == promise && self.is_in_step() {
                    // The leader waits for a promise, because requests of this node have come late. The
                    // library would not answer.
                    self.library.reconnected(from);
                    return Ok(());
                }
                if prepare.n < promise {
                    let message = PaxosMsg::NotAccepted(NotAccepted { n: promise });
                    self.send(from, Message::Log { message, agreed: None });
                    return Ok(());
                }
            }
            PaxosMsg::PrepareReq(request) => {
                self.other(from).has_gap = false;
                let n = request.n;
                self.challenge(n);
            }
            PaxosMsg::NotAccepted(refused) => {
                let n = refused.n;
                self.challenge(n);
                if self.reign.is_none() {
                    // A candidate tries again.
                    return Ok(());
                }
            }
            PaxosMsg::Accepted(accepted) => {
                let index = accepted.accepted_idx as u64;
                let other = self.other(from);
                other.accepted = other.accepted.max(index);
                self.acknowledge();
                return Ok(());
            }
            PaxosMsg::AcceptSync(sync) if sync.n == self.library.get_promise() => {
                syncs = Some((sync.n, sync.seq_num.session));
            }
            _ => {}
        }
        self.pass(from, message);
        if let Some(synced) = syncs.filter(|_| self.is_in_step()) {
            self.synced = synced;
            if self.missed == synced {
                self.library.reconnected(from);
            }
        }
        Ok(())
    }

    /// A message that follows the leader's log with this number has arrived. If the log has not, as it may
    /// travel in pieces, the library ignores the message, and the leader does not send it again.
    fn miss(&mut self, ballot: Ballot, number: u64) {
        if ballot == self.library.get_promise() && !self.is_in_step() {
            self.missed = (ballot, number);
        }
    }

    /// A node has promised a ballot. If it is higher than this leader's, asks whether this node still
    /// leads.
    fn challenge(&mut self, promised: Ballot) {
        if self.now < self.calm_until {
            return;
        }
        if let Some(reign) = self.reign.as_mut().filter(|reign| promised > reign.ballot) {
            reign.challenge.get_or_insert_default();
        }
    }

    fn pass(&mut self, from: u64, msg: PaxosMsg<Entry>) {
        let message = PaxosMessage { from, to: self.me, msg };
        self.library.handle_incoming(messages::Message::SequencePaxos(message));
    }

    /// Tells the library what others have accepted, as far as it is on disk here.
    fn acknowledge(&mut self) {
        let Some(ballot) = self.reign.as_ref().map(|reign| reign.ballot) else { return };
        let durable = self.log.durable();
        let decided = self.decided();
        let news: Vec<_> = self
            .others
            .iter()
            .map(|(pid, other)| (*pid, other.accepted.min(durable)))
            .filter(|(_, index)| *index > decided)
            .collect();
        for (pid, index) in news {
            let accepted = Accepted { n: ballot, accepted_idx: index as usize };
            self.pass(pid, PaxosMsg::Accepted(accepted));
        }
    }

    fn other(&mut self, pid: u64) -> &mut Other {
        self.others.entry(pid).or_default()
    }

    fn beat(&mut self, from: u64, beat: HeartbeatMsg) -> Result<(), StepError> {
        if let HeartbeatMsg::Reply(reply) = &beat {
            let is_member = |ballot: &Ballot| self.numbering.ballot(term_of(ballot)).is_some();
            if reply.ballot.pid != from || !is_member(&reply.ballot) || !is_member(&reply.leader) {
                return Err(StepError::Wrong("a sign of life of another node"));
            }
            // The library counts the replies of a round.
            let other = self.other(from);
            if reply.round <= other.beat {
                return Ok(());
            }
            other.beat = reply.round;
        }
        let message = BLEMessage { from, to: self.me, msg: beat };
        self.library.handle_incoming(messages::Message::BLE(message));
        Ok(())
    }

    /// Takes a higher ballot than that of the leader, who agrees or is this node.
    fn take_over(&mut self) {
        let agreed = self.library.get_promise();
        self.library.try_become_leader();
        self.handover = Some((self.library.get_promise(), agreed));
    }

    /// Another node has confirmed that this one leads.
    fn count(&mut self, from: u64, ballot: Ballot, number: u64) {
        let majority = self.majority();
        let Some(reign) = self.reign.as_mut().filter(|reign| reign.ballot == ballot) else {
            return;
        };
        if let Some(answers) = reign.challenge.as_mut().filter(|_| number == CHALLENGE) {
            answers.insert(from);
            if answers.len() + 1 >= majority {
                self.calm_until = self.now + self.election_ticks;
                self.take_over();
            }
            return;
        }
        let Some(round) = reign.round.as_mut().filter(|round| round.number == number) else {
            return;
        };
        round.answers.insert(from);
        if round.answers.len() + 1 >= majority {
            self.confirmed.push((round.number, round.index));
            reign.round = None;
        }
    }
}

impl Consensus for OmniCore {
    const NAME: &'static str = "omni-paxos";

    type Message = Message;

    fn encode(message: &Message, out: &mut Vec<u8>) {
        message::encode(message, out);
    }

    fn decode(bytes: Bytes, bulk: Option<Bytes>) -> Result<Message, StepError> {
        message::decode(&bytes, bulk.as_ref()).ok_or(StepError::Wrong("a message is damaged"))
    }

    fn has_bulk(message: &Message) -> bool {
        message::has_bulk(message)
    }

    fn bulk(message: &Message) -> Option<Bytes> {
        message::bulk_of(message)
    }

    fn state(message: &Message) -> Option<Bytes> {
        let snapshot = message::log_of(message).and_then(message::snapshot_of)?;
        Some(snapshot.data.clone())
    }

    fn asks_for_vote(message: &Message) -> bool {
        matches!(message, Message::Log { message: PaxosMsg::Prepare(_), .. })
    }

    fn tick(&mut self) {
        self.now += 1;
        self.library.tick();
        self.note();
        if let Some(leader) = self.lost.take()
            && self.library.get_promise().pid == leader
        {
            self.library.reconnected(leader);
            self.note();
        }
        let Some(reign) = &self.reign else { return };
        let ballot = reign.ballot;
        if reign.challenge.is_some() {
            self.send_all(&Message::Confirm(ballot, CHALLENGE));
        }
        let gaps = self.others.iter().filter(|(_, other)| other.has_gap);
        let gaps: Vec<_> = gaps.map(|(pid, _)| *pid).collect();
        gaps.into_iter().for_each(|pid| self.send(pid, Message::Lost(ballot)));
    }

    fn step(&mut self, from: NodeId, message: Message) -> Result<(), StepError> {
        let from = self.numbering.pid(from).filter(|pid| *pid != self.me);
        let from = from.ok_or(StepError::Wrong("a message of no member"))?;
        let now = self.now;
        self.other(from).heard = now;
        let promise = self.library.get_promise();
        let is_of_leader = |ballot: Ballot| ballot == promise && ballot.pid == from;
        let stepped = match message {
            Message::Log { message, agreed } => self.step_log(from, message, agreed),
            Message::Heartbeat(beat) => self.beat(from, beat),
            Message::Confirm(ballot, round) => {
                if is_of_leader(ballot) {
                    self.loyal_until = now + self.election_ticks;
                    self.send(from, Message::Confirmed(ballot, round));
                }
                Ok(())
            }
            Message::Confirmed(ballot, round) => {
                self.count(from, ballot, round);
                Ok(())
            }
            Message::TakeOver(ballot) => {
                if is_of_leader(ballot) {
                    self.take_over();
                }
                Ok(())
            }
            Message::Lost(ballot) => {
                if is_of_leader(ballot) && self.is_in_step() {
                    self.library.reconnected(from);
                }
                Ok(())
            }
        };
        self.note();
        stepped
    }

    fn propose(&mut self, commands: Vec<Bytes>) -> Result<Position, ProposeError> {
        let reign = self.leads().ok_or(ProposeError::NotLeader)?;
        if self.now < reign.transfers_until || reign.undecided > MAX_UNDECIDED {
            return Err(ProposeError::Busy);
        }
        let first = Position { term: term_of(&reign.ballot), index: self.log.last() + 1 };
        let mut at = first;
        let (mut bytes, mut sum) = (0, 0);
        for data in commands {
            sum += data.len();
            bytes += data.len();
            let entry = Entry { at, kind: EntryKind::Command, data, context: Bytes::new() };
            let Ok(()) = self.library.append(entry) else {
                unreachable!("the library refuses entries after a stop sign only");
            };
            at.index += 1;
            if bytes > MAX_APPEND {
                // The library would lengthen the last message.
                self.collect();
                bytes = 0;
            }
        }
        self.collect();
        if let Some(reign) = &mut self.reign {
            reign.undecided += sum;
        }
        Ok(first)
    }

    fn change(&mut self, _: &Change, _: Bytes) -> Result<Position, ProposeError> {
        Err(ProposeError::Unsupported)
    }

    fn apply_change(&mut self, _: &Entry) -> bool {
        false
    }

    fn confirm(&mut self, number: u64) -> Result<(), ProposeError> {
        if !self.status().can_read {
            return Err(ProposeError::NotLeader);
        }
        let index = self.decided();
        let Some(reign) = &mut self.reign else { return Err(ProposeError::NotLeader) };
        if reign.round.as_ref().is_none_or(|round| round.number != number) {
            reign.round = Some(Round { number, index, answers: BTreeSet::new() });
        }
        let ballot = reign.ballot;
        self.send_all(&Message::Confirm(ballot, number));
        Ok(())
    }

    fn transfer(&mut self, to: NodeId) {
        let until = self.now + self.election_ticks;
        let to = self.numbering.pid(to).filter(|pid| *pid != self.me);
        if let (Some(to), Some(reign)) = (to, &mut self.reign) {
            reign.transfers_until = until;
            let ballot = reign.ballot;
            self.send(to, Message::TakeOver(ballot));
        }
    }

    fn poll(&mut self, effects: &mut Effects<Message>) -> bool {
        self.collect();
        effects.messages.append(&mut self.ready);
        effects.after_write.append(&mut self.held);
        effects.confirmed.append(&mut self.confirmed);
        effects.install = self.log.take_install();
        if let Some(snapshot) = &effects.install {
            self.emitted = snapshot.at.index;
        }
        let ticket = self.ticket + 1;
        effects.write = self.log.take_write(ticket);
        if effects.write.is_none() && !effects.after_write.is_empty() {
            effects.write = Some(Write { ticket, ..Write::default() });
        }
        if let Some(write) = &mut effects.write {
            self.ticket = ticket;
            if mutant!(VoteNotPersisted) {
                write.hard = None;
            }
        }
        // What is decided is on the disks of others. It is applied when it is on this one, too, so that a
        // snapshot never is ahead of the log.
        let to = self.decided().min(self.log.durable());
        effects.committed = self.log.read(self.emitted, to, MAX_COMMITTED);
        self.emitted += effects.committed.len() as u64;
        if let Some(reign) = &mut self.reign {
            let bytes: usize = effects.committed.iter().map(|entry| entry.data.len()).sum();
            reign.undecided = reign.undecided.saturating_sub(bytes);
        }
        let Effects { messages, write, install, committed, confirmed, .. } = effects;
        !messages.is_empty()
            || write.is_some()
            || install.is_some()
            || !committed.is_empty()
            || !confirmed.is_empty()
    }

    fn persisted(&mut self, ticket: u64) {
        self.log.persisted(ticket);
        self.acknowledge();
        self.note();
    }

    fn applied(&mut self, _: u64) {}

    fn compact(&mut self, snapshot: Snapshot, keep: u64) {
        let index = snapshot.at.index.saturating_sub(keep);
        // Does nothing if the library has forgotten more. Fails only beyond what is decided.
        self.library.snapshot(Some(index as usize), true).unwrap_or_default();
        self.log.compact(snapshot, index);
    }

    /// Never: entries follow the snapshot.
    fn wants_snapshot(&mut self) -> bool {
        false
    }

    fn unreachable(&mut self, node: NodeId) {
        let Some(pid) = self.numbering.pid(node).filter(|pid| *pid != self.me) else { return };
        // The node asks in the next tick: a message now may be lost in the same way, at once.
        if self.reign.is_some() {
            self.other(pid).has_gap = true;
        } else {
            self.lost = Some(pid);
        }
    }

    fn bulk_sent(&mut self, node: NodeId, arrived: bool) {
        if !arrived {
            self.unreachable(node);
        }
    }

    fn status(&self) -> Status {
        let promise = self.library.get_promise();
        let decided = self.decided();
        let reign = self.leads();
        let (role, leader) = if reign.is_some() {
            (Role::Leader, promise.pid)
        } else if promise.pid == self.me {
            (Role::Candidate, 0)
        } else {
            let leader = self.others.get(&promise.pid).filter(|other| self.is_alive(other));
            (Role::Follower, leader.map_or(0, |_| promise.pid))
        };
        Status {
            role,
            term: self.log.term(),
            leader: self.numbering.node(leader),
            last: self.log.last(),
            commit: decided,
            can_read: reign
                .is_some_and(|reign| decided >= reign.begins_at || mutant!(ReadBeforeOwnLog)),
            is_transferring: reign.is_some_and(|reign| self.now < reign.transfers_until),
        }
    }

    fn members(&self) -> Members {
        self.members.clone()
    }

    fn successor(&self) -> Option<NodeId> {
        let others = self.others.iter().max_by_key(|(pid, other)| (other.accepted, **pid));
        others.map(|(pid, _)| self.numbering.node(*pid))
    }
}
