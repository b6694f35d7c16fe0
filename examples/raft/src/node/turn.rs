//! One turn of a node.

use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use erpc::{Endpoint, Status, Transport};

use super::inbox::{Inbox, Mail, Parcel, Rare};
use super::peers::{KNOWN, Sender};
use super::reads::{Lease, Reads};
use super::transfer::{self, Arriving};
use super::waiting::{Caller, Waiting};
use super::{Clock, FORGETFUL, NodeError, Parts, Peers, Settings, hash};
use crate::consensus::{
    Addresses, Change, Consensus, Effects, Entry, EntryKind, NodeId, Position, ProposeError, Role,
    Snapshot, StepError,
};
use crate::disk::{Disk, Job};
use crate::machine::{Applied, Machine};
use crate::mutants::mutant;
use crate::proto::{self, Leader, Outcome};

/// Ticks in one turn, at most. After a pause of the process, time has passed that the others could not
/// use either to reach it.
const MAX_TICKS: u32 = 3;

/// The state of a node.
pub(super) struct Turns<C: Consensus, D, T: Transport> {
    settings: Settings,
    cluster: u64,
    core: C,
    machine: Machine,
    disk: D,
    clock: Clock,
    inbox: Rc<Inbox>,
    mail: Mail,
    /// In a box, because it is large and each turn takes it out and puts it back. None during `work`.
    effects: Option<Box<Effects<C::Message>>>,
    peers: Peers<T>,
    waiting: Waiting,
    /// When callers were last checked, the node led in this term; none: it did not lead. All that
    /// waited then had proposed in this term.
    led: Option<u64>,
    reads: Reads,
    lease: Lease,
    arriving: Arriving,
    /// The state of a snapshot that has arrived, before the consensus has accepted it.
    arrived: Option<(Bytes, Machine)>,
    /// Messages that wait for the write with this ticket.
    promises: VecDeque<(u64, NodeId, C::Message)>,
    submitted: u64,
    written: u64,
    /// The last entry that is applied.
    applied: Position,
    /// Of the last snapshot.
    snapshot: u64,
    /// Bytes of commands that were applied since.
    since_snapshot: u64,
    transfers: u64,
    begun: Duration,
    last_tick: Duration,
}

impl<C: Consensus + 'static, D: Disk, T: Transport> Turns<C, D, T> {
    pub(super) fn new(
        endpoint: &Endpoint<T>,
        parts: Parts<C, D, T>,
        inbox: Rc<Inbox>,
    ) -> Result<Self, NodeError> {
        let Parts { settings, core, snapshot, disk, clock, connect, hear } = parts;
        let machine = match snapshot.at.index {
            0 => Machine::default(),
            _ => Machine::decode(&snapshot.data)?,
        };
        let cluster = hash(C::NAME, &settings.cluster);
        let mut peers = Peers::new(&settings, cluster, connect, Rc::clone(&inbox));
        peers.follow(endpoint, machine.addresses());
        let now = clock();
        let waiting = Waiting::new(hear.map(|hear| (Rc::clone(&clock), hear)));
        Ok(Self {
            settings,
            cluster,
            core,
            machine,
            disk,
            clock,
            inbox,
            mail: Mail::default(),
            effects: None,
            peers,
            waiting,
            led: None,
            reads: Reads::default(),
            lease: Lease::default(),
            arriving: Arriving::default(),
            arrived: None,
            promises: VecDeque::new(),
            submitted: 0,
            written: 0,
            applied: snapshot.at,
            snapshot: snapshot.at.index,
            since_snapshot: 0,
            transfers: 0,
            begun: now,
            last_tick: now,
        })
    }

    /// Takes all that has arrived. The work is bounded by what has arrived and what is committed.
    pub(super) fn turn(&mut self) -> Result<(), NodeError> {
        // Ticks first: time before a message of the leader has arrived does not count after it.
        self.tick();
        let mut mail = mem::take(&mut self.mail);
        self.inbox.take(&mut mail);
        for parcel in mail.parcels.drain(..) {
            self.parcel(parcel)?;
        }
        for rare in mail.rare.drain(..) {
            self.rare(rare)?;
        }
        self.propose(&mut mail.writes);
        self.reads.push(&mut mail.reads);
        self.mail = mail;
        self.work()?;
        let has_asked = self.read();
        if has_asked {
            self.work()?;
        }
        self.peers.flush(self.written == self.submitted);
        self.take_snapshot();
        Ok(())
    }

    fn tick(&mut self) {
        let now = (self.clock)();
        let tick = self.settings.tick;
        let passed = now.saturating_sub(self.last_tick);
        if passed < tick {
            return;
        }
        let ticks = (passed.as_nanos() / tick.as_nanos()).min(u32::MAX.into()) as u32;
        self.last_tick = if ticks > MAX_TICKS { now } else { self.last_tick + tick * ticks };
        for _ in 0..ticks.min(MAX_TICKS) {
            self.core.tick();
        }
    }

    fn leader(&self) -> Leader {
        let id = self.core.status().leader;
        let address = self.machine.addresses().0.get(&id).cloned().unwrap_or_default();
        Leader { id, address }
    }

    /// Whether a message is for this node, and from one that may send it.
    fn admit(
        &mut self,
        cluster: u64,
        from: NodeId,
        to: NodeId,
        incarnation: u64,
    ) -> Result<(), Status> {
        let refuse = |text: String| Err(Status::failed_precondition(text));
        if cluster != self.cluster {
            return refuse(format!(
                "this is a node of another cluster: {:?}, with {}",
                self.settings.cluster,
                C::NAME
            ));
        }
        if to != self.settings.id || from == to || from == 0 {
            return refuse(format!("this is node {}, not {to}", self.settings.id));
        }
        match self.peers.meets(from, incarnation) {
            Sender::Known => Ok(()),
            Sender::Restarted => Err(Status::new(
                FORGETFUL,
                format!("node {from} has restarted without its data; add it under another id"),
            )),
            Sender::TooMany => Err(Status::resource_exhausted(format!(
                "node {from} is no member, and this node knows {KNOWN} others or more; add it as a member \
                 first"
            ))),
        }
    }

    fn parcel(&mut self, parcel: Parcel) -> Result<(), NodeError> {
        let Parcel { from, letters, incarnation, request } = parcel;
        if request.is_none() && self.peers.meets(from, incarnation) != Sender::Known {
            return Ok(());
        }
        if let Some(request) = request {
            match self.admit(request.cluster, from, request.to, incarnation) {
                Ok(()) => self.peers.asked(from, request.responder),
                Err(status) => {
                    request.responder.fail(status);
                    return Ok(());
                }
            }
        }
        let mut reader = crate::wire::Reader::new(&letters);
        while !reader.is_empty() {
            // Damaged messages are ignored, as lost ones.
            let Some(letter) = reader.shared(&letters) else { break };
            let Ok(message) = C::decode(letter, None) else { break };
            self.step(from, message)?;
        }
        Ok(())
    }

    fn step(&mut self, from: NodeId, message: C::Message) -> Result<(), NodeError> {
        if self.settings.lease && C::asks_for_vote(&message) && !mutant!(VotesDuringLease) {
            // It may have promised the old leader not to vote, and has forgotten that.
            let wait = self.settings.tick * self.settings.election_ticks;
            if (self.clock)() < self.begun + wait {
                return Ok(());
            }
        }
        match self.core.step(from, message) {
            Ok(()) | Err(StepError::Wrong(_)) => Ok(()),
            Err(StepError::Lost { commit, last }) => Err(NodeError::Lost { commit, last }),
        }
    }

    fn rare(&mut self, rare: Rare) -> Result<(), NodeError> {
        match rare {
            Rare::Open(responder) => {
                let caller = Caller::Open(responder);
                match self.core.propose(vec![crate::machine::Command::Open.encode().into()]) {
                    Ok(at) => self.waiting.push(at, caller),
                    Err(error) => caller.refuse(outcome(error), &self.leader()),
                }
            }
            Rare::Change(request, responder) => self.change(request, responder),
            Rare::Transfer(to, responder) => self.hand_over(to, responder),
            Rare::Status(responder) => responder.send(&self.status()),
            Rare::Piece(piece, responder) => return self.piece(&piece, responder),
            Rare::Unreachable(node) => {
                self.peers.failed(node);
                self.core.unreachable(node);
            }
            Rare::Answered(node) => self.peers.answered(node),
            Rare::Sent(node, arrived) => {
                if let Some(peer) = self.peers.get(node) {
                    peer.gets_bulk = false;
                }
                self.core.bulk_sent(node, arrived);
            }
        }
        Ok(())
    }

    fn propose(&mut self, writes: &mut Vec<(Bytes, erpc::Responder<proto::WriteReply>)>) {
        if writes.is_empty() {
            return;
        }
        let commands = writes.iter().map(|(command, _)| command.clone()).collect();
        match self.core.propose(commands) {
            Ok(mut at) => {
                for (_, responder) in writes.drain(..) {
                    let caller = Caller::Write(responder);
                    if mutant!(AnsweredBeforeCommit) {
                        caller.answer(Applied::Written { swapped: true });
                    } else {
                        self.waiting.push(at, caller);
                    }
                    at.index += 1;
                }
            }
            Err(error) => {
                let leader = self.leader();
                let callers = writes.drain(..).map(|(_, responder)| Caller::Write(responder));
                callers.for_each(|caller| caller.refuse(outcome(error), &leader));
            }
        }
    }

    fn change(
        &mut self,
        request: proto::ChangeRequest,
        responder: erpc::Responder<proto::ChangeReply>,
    ) {
        let mut change = Change { remove: request.remove, ..Change::default() };
        let mut addresses = Addresses::default();
        for member in request.add {
            let list = if member.learner { &mut change.learners } else { &mut change.voters };
            list.push(member.id);
            addresses.0.insert(member.id, member.address);
        }
        // A leader that leaves hands over first; otherwise nobody would answer this call.
        let me = self.settings.id;
        let leaves = change.remove.contains(&me) || change.learners.contains(&me);
        let status = self.core.status();
        if leaves && status.role == Role::Leader && status.is_transferring {
            let busy = Caller::Change(responder);
            return busy.refuse(Outcome::Busy, &self.leader());
        }
        if leaves && status.role == Role::Leader {
            let text = format!("node {me} leads; transfer the leadership first");
            responder.fail(Status::failed_precondition(text));
            return;
        }
        let proposed = self.core.change(&change, addresses.encode().into());
        match proposed {
            Ok(at) => {
                self.lease.wait_for(at.index);
                self.waiting.push(at, Caller::Change(responder));
            }
            Err(ProposeError::Unsupported) => {
                let text = format!("with {}, the members do not change", C::NAME);
                responder.fail(Status::unimplemented(text));
            }
            Err(error) => Caller::Change(responder).refuse(outcome(error), &self.leader()),
        }
    }

    fn hand_over(&mut self, to: NodeId, responder: erpc::Responder<proto::TransferReply>) {
        let leader = Some(self.leader());
        let status = self.core.status();
        let members = self.core.members();
        let leads = status.role == Role::Leader;
        if leads && to != 0 && !members.votes(to) {
            let voters: Vec<_> = members.voters.iter().map(ToString::to_string).collect();
            responder.fail(Status::failed_precondition(format!(
                "node {to} cannot take over, because it has no vote; these have one: {}",
                voters.join(", ")
            )));
            return;
        }
        let to = if to == 0 { self.core.successor() } else { Some(to) };
        let outcome = match to {
            // It may be a repeated call, and this node the one that has taken over.
            Some(to) if leads && to == self.settings.id => Outcome::Done,
            Some(to) if leads => {
                self.lease.give_up(status.term);
                self.core.transfer(to);
                Outcome::Done
            }
            Some(_) => Outcome::NotLeader,
            None => Outcome::Busy,
        };
        responder.send(&proto::TransferReply { outcome: outcome.into(), leader });
    }

    fn piece(
        &mut self,
        piece: &proto::Piece,
        responder: erpc::Responder<proto::PieceReply>,
    ) -> Result<(), NodeError> {
        if let Err(status) = self.admit(piece.cluster, piece.from, piece.to, piece.incarnation) {
            responder.fail(status);
            return Ok(());
        }
        let whole = match self.arriving.piece(piece) {
            Ok(whole) => whole,
            Err(why) => {
                responder.fail(Status::failed_precondition(why));
                return Ok(());
            }
        };
        responder.send(&proto::PieceReply {});
        let Some((data, letter)) = whole else { return Ok(()) };
        let Ok(message) = C::decode(letter, Some(data)) else { return Ok(()) };
        if let Some(state) = C::state(&message) {
            // The consensus must not accept a snapshot that cannot be read.
            let Ok(machine) = Machine::decode(&state) else { return Ok(()) };
            self.arrived = Some((state, machine));
        }
        self.step(piece.from, message)
    }

    /// Does what the consensus asks for, until it asks for nothing.
    fn work(&mut self) -> Result<(), NodeError> {
        let mut effects = self.effects.take().unwrap_or_default();
        loop {
            self.note_written()?;
            if !self.core.poll(&mut effects) {
                break;
            }
            for (to, message) in effects.messages.drain(..) {
                self.send(to, &message);
            }
            let ticket = effects.write.as_ref().map_or(self.submitted, |write| write.ticket);
            for (to, message) in effects.after_write.drain(..) {
                if mutant!(PromisedBeforeWritten) {
                    self.send(to, &message);
                } else {
                    self.promises.push_back((ticket, to, message));
                }
            }
            if let Some(write) = effects.write.take() {
                let is_nothing = write.is_empty() && self.written == self.submitted;
                self.submitted = ticket;
                if is_nothing {
                    self.has_written(ticket);
                } else {
                    self.disk.submit(Job::Write(write));
                }
            }
            if let Some(snapshot) = effects.install.take() {
                self.install(&snapshot)?;
            }
            self.forget_callers();
            let leader = Leader::default();
            for entry in effects.committed.drain(..) {
                self.apply(&entry, &leader);
            }
            self.core.applied(self.applied.index);
            for (round, index) in effects.confirmed.drain(..) {
                if let Some(begun) = self.reads.confirm(round, index) {
                    let term = self.core.status().term;
                    if self.applied.index >= index {
                        self.lease.extend(term, begun, self.lease_len(), self.applied.index);
                    }
                }
            }
        }
        self.effects = Some(effects);
        self.forget_callers();
        Ok(())
    }

    /// For this time after a message of the leader, no node begins or helps an election: the election
    /// time less one tick, which may end at once, less a tenth for clocks that run apart.
    fn lease_len(&self) -> Duration {
        self.settings.tick * (self.settings.election_ticks - 1) * 9 / 10
    }

    fn note_written(&mut self) -> Result<(), NodeError> {
        let written = self.disk.written()?;
        if written > self.written {
            self.has_written(written);
        }
        Ok(())
    }

    fn has_written(&mut self, ticket: u64) {
        self.written = ticket;
        self.core.persisted(ticket);
        while self.promises.front().is_some_and(|(waits, ..)| *waits <= ticket) {
            let Some((_, to, message)) = self.promises.pop_front() else { break };
            self.send(to, &message);
        }
    }

    /// Calls cannot be answered any more if this node does not lead in their term.
    fn forget_callers(&mut self) {
        if self.waiting.is_empty() && self.reads.is_empty() {
            return;
        }
        let term = self.core.leads_in();
        if term.is_some() {
            if term == self.led {
                return;
            }
            // A leader of a later term refuses, too, but need not say that it leads.
            self.waiting.keep(term, &Leader::default());
        } else {
            let leader = self.leader();
            self.waiting.keep(term, &leader);
            self.reads.refuse(&leader);
        }
        self.led = term;
    }

    fn send(&mut self, to: NodeId, message: &C::Message) {
        if !C::has_bulk(message) {
            if !self.peers.push::<C>(to, message) {
                self.inbox.note(Rare::Answered(to));
                self.core.unreachable(to);
            }
            return;
        }
        let client = self.peers.client(to);
        let (Some(client), Some(peer)) = (client, self.peers.get(to)) else {
            self.inbox.note(Rare::Sent(to, false));
            return;
        };
        if peer.gets_bulk {
            return;
        }
        let Some(bulk) = C::bulk(message) else { return };
        peer.gets_bulk = true;
        self.transfers += 1;
        let head = proto::Piece {
            cluster: self.cluster,
            from: self.settings.id,
            to,
            incarnation: self.settings.incarnation,
            transfer: self.transfers,
            ..proto::Piece::default()
        };
        let mut letter = Vec::new();
        C::encode(message, &mut letter);
        let inbox = Rc::downgrade(&self.inbox);
        drop(erpc::spawn(async move {
            let arrived = transfer::send(client, head, bulk, letter.into()).await;
            if let Some(inbox) = inbox.upgrade() {
                inbox.note(Rare::Sent(to, arrived));
            }
        }));
    }

    fn install(&mut self, snapshot: &Snapshot) -> Result<(), NodeError> {
        let arrived = self.arrived.take().filter(|(data, _)| *data == snapshot.data);
        self.machine = match arrived {
            Some((_, machine)) => machine,
            None => Machine::decode(&snapshot.data)?,
        };
        self.applied = snapshot.at;
        self.snapshot = snapshot.at.index;
        self.since_snapshot = 0;
        self.follow();
        Ok(())
    }

    /// Connects to the nodes whose addresses are in the state.
    fn follow(&mut self) {
        if let Some(endpoint) = Endpoint::current() {
            self.peers.follow(&endpoint, self.machine.addresses());
        }
    }

    fn apply(&mut self, entry: &Entry, leader: &Leader) {
        self.applied = entry.at;
        self.since_snapshot += entry.data.len() as u64 + 32;
        let applied = match entry.kind {
            EntryKind::Command => self.machine.apply(entry.at.index, &entry.data),
            EntryKind::Change if self.core.apply_change(entry) => {
                let added = Addresses::decode(&entry.context).unwrap_or_default();
                let members = self.core.members();
                self.machine.set_addresses(added, &members.all());
                self.follow();
                if members.outgoing.is_empty() { Applied::Changed } else { Applied::Changing }
            }
            EntryKind::Change => Applied::Nothing,
        };
        self.waiting.applied(entry.at, applied, leader);
    }

    /// Answers reads, and asks for others whether this node still leads. Returns whether it has asked.
    fn read(&mut self) -> bool {
        // Writes do not pay for the clock.
        let has_asked = !self.reads.is_empty() && self.confirm_reads();
        for read in self.reads.take(self.applied.index) {
            let value = self.machine.get(&read.key);
            read.responder.send(&proto::GetReply {
                outcome: Outcome::Done.into(),
                present: value.is_some(),
                value: value.map(Bytes::copy_from_slice).unwrap_or_default(),
                leader: None,
            });
        }
        has_asked
    }

    /// Confirms the waiting reads if the lease lasts; otherwise asks the other nodes whether this one
    /// still leads. Returns whether it has asked.
    fn confirm_reads(&mut self) -> bool {
        let mut has_asked = false;
        let status = self.core.status();
        // The clock is read after the reads have arrived, and before the values are read: what is read
        // was the state when the lease lasted, even if the process stops in between.
        let now = (self.clock)();
        if mutant!(StaleRead) && status.role == Role::Leader {
            self.reads.confirm_all(0);
        } else if self.settings.lease && status.can_read && self.lease.lasts(status.term, now) {
            self.reads.confirm_all(status.commit);
        } else if status.can_read {
            let election = self.settings.tick * self.settings.election_ticks;
            if let Some(round) = self.reads.ask(now, election) {
                // Fails if the node does not lead any more. Then the reads are refused.
                self.core.confirm(round).unwrap_or_default();
                has_asked = true;
            }
        }
        has_asked
    }

    fn take_snapshot(&mut self) {
        let is_wanted = self.core.wants_snapshot() && self.applied.index > self.snapshot;
        if !is_wanted && self.since_snapshot < self.settings.snapshot_every {
            return;
        }
        self.since_snapshot = 0;
        let (at, members) = (self.applied, self.core.members());
        let snapshot = Snapshot { at, members, data: self.machine.encode() };
        self.snapshot = at.index;
        self.disk.submit(Job::Snapshot(snapshot.clone()));
        self.core.compact(snapshot, self.settings.keep);
    }

    fn status(&self) -> proto::StatusReply {
        let status = self.core.status();
        let members = self.core.members();
        let member = |&id: &NodeId| proto::Member {
            id,
            address: self.machine.addresses().0.get(&id).cloned().unwrap_or_default(),
            learner: !members.votes(id),
        };
        proto::StatusReply {
            id: self.settings.id,
            role: status.role.to_string(),
            term: status.term,
            leader: Some(self.leader()),
            last: status.last,
            commit: status.commit,
            applied: self.applied.index,
            snapshot: self.snapshot,
            members: members.all().iter().map(member).collect(),
            joint: !members.outgoing.is_empty(),
            keys: self.machine.keys() as u64,
            cluster: self.settings.cluster.clone(),
        }
    }
}

fn outcome(error: ProposeError) -> Outcome {
    match error {
        ProposeError::NotLeader => Outcome::NotLeader,
        ProposeError::Busy | ProposeError::Unsupported => Outcome::Busy,
    }
}
