//! The phases of a commit.

use std::rc::Rc;

use bytes::Bytes;
use erpc::Transport;
use smallvec::SmallVec;

use super::Inner;
use super::deliver::{Doubt, Failure, Message, Messages, in_foreground};
use super::execute::{Lock, Locks};
use super::peers::{PAUSES, Peer};
use super::plan::{Plan, plan};
use super::release::unlocks;
use super::replies::Replies;
use super::space::Space;
use super::transaction::Attempt;
use crate::check::Outcome;
use crate::cluster::NodeId;
use crate::lists::pack;
use crate::log::EncodeError;
use crate::mutants::mutant;
use crate::participant::Seen;
use crate::proto::{self, Verdict};
use crate::table::{Invalid, Owner};
use crate::transaction::accesses::Entry;
use crate::transaction::{Reason, TransactError};

/// How a commit ended.
enum End {
    Committed,
    /// The record is at no node, and the locks are free.
    Aborted(Reason),
    /// A node is lost, or refuses what it must do, so recovery must decide.
    Stuck(NodeId),
}

/// What a commit needs, apart from its node.
struct Work {
    transaction: Owner,
    sequence: u64,
    plan: Box<Plan>,
    locks: Locks,
    doubt: Rc<Doubt>,
}

impl<T: Transport> Attempt<T> {
    /// Commits the attempt if it has read at most one key and locked none. Returns false if there is
    /// more to do.
    #[inline]
    pub(super) fn commit_here(&self) -> bool {
        let is_done = self.locks.borrow().is_empty() && self.keys.end_single_read();
        if is_done {
            self.note(Outcome::Committed);
            self.inner.sequences.end(self.sequence);
        }
        is_done
    }

    /// Commits the attempt, or aborts it.
    pub(super) async fn commit(&self) -> Result<(), TransactError> {
        let planned = match self.keys.close() {
            Ok(()) => self.prepare().await,
            Err(abort) => Err(abort.into_reason()),
        };
        match planned {
            Ok(Some(plan)) => self.write(plan).await,
            Ok(None) => {
                self.end_read_only().await;
                Ok(())
            }
            Err(reason) => {
                self.release().await;
                Err(TransactError::Aborted(reason))
            }
        }
    }

    /// Validates the attempt, and finds room for its record. None if it writes nothing.
    async fn prepare(&self) -> Result<Option<Box<Plan>>, Reason> {
        let inner = &self.inner;
        let placement = inner.participant.placement();
        let planned = self.keys.with(|entries| plan(&**placement, self.id, entries));
        let planned = planned.map_err(|error| match error {
            EncodeError::TooLong(len) => Reason::TooLong(len),
            EncodeError::Inconsistent(rule) => {
                Reason::Refused { node: inner.me(), reason: rule.to_string() }
            }
        })?;
        if let Some(plan) = &planned {
            if plan.record.len() > inner.bounds.bytes {
                return Err(Reason::TooLong(plan.record.len()));
            }
            if inner.needed(plan, |peer| !peer.accepts(plan.record.len())).is_some() {
                return Err(Reason::TooLong(plan.record.len()));
            }
            if let Some(node) = inner.needed(plan, Peer::is_down) {
                let absence = inner.peers.get(&node).and_then(|peer| peer.absence());
                return Err(absence.unwrap_or(Reason::Unavailable(node)));
            }
        }
        self.validate().await?;
        if let Some(plan) = &planned {
            self.take_room(plan.record.len()).await?;
        }
        Ok(planned)
    }

    /// Checks that what was read and not locked still holds.
    async fn validate(&self) -> Result<(), Reason> {
        // A single read of a transaction that locks nothing held at the moment when it was made.
        if self.keys.with(|entries| entries.len()) <= 1 {
            return Ok(());
        }
        let reads = self.keys.with(|entries| self.reads(entries));
        let inner = &self.inner;
        inner.counting.requests(reads.len());
        let mut replies = Replies::new();
        for part in parts(&reads) {
            let (node, first) = part[0];
            let Some(peer) = inner.peers.get(&node) else { continue };
            let target = peer.target(&inner.participant).ok_or(Reason::NotReady(node))?;
            inner.counting.add(|counts| counts.messages += 1);
            let call = peer.client.validate(proto::ValidateRequest {
                epoch: target.epoch,
                incarnation: target.incarnation,
                transaction: self.id.get(),
                reads: pack(part.iter().map(|(_, seen)| seen)),
            });
            replies.push((peer, first.place), call);
        }
        for part in parts(&reads).filter(|part| part[0].0 == inner.me()) {
            let seen: SmallVec<[_; 4]> = part.iter().map(|(_, seen)| *seen).collect();
            let target = inner.participant.target();
            let valid = inner.participant.validate(target, self.id, &seen);
            let valid = valid.map_err(|refusal| inner.refused(refusal))?;
            valid.map_err(|(place, invalid)| match invalid {
                Invalid::Conflict(_) => Reason::Conflict(place),
                Invalid::Changed(_) => Reason::Changed(place),
            })?;
        }
        if replies.is_empty() {
            return Ok(());
        }
        self.in_time(replies.arrive()).await.ok_or(Reason::Deadline)?;
        for ((peer, place), reply) in replies.take() {
            let node = peer.node;
            match reply {
                Ok(reply) => match reply.verdict() {
                    Verdict::Done => {}
                    _ if mutant!(VerdictIgnored) => {}
                    Verdict::Conflict => return Err(Reason::Conflict(place)),
                    Verdict::Changed => return Err(Reason::Changed(place)),
                    Verdict::Restarted | Verdict::Epoch => return Err(Reason::Unavailable(node)),
                    Verdict::NotActive => return Err(Reason::NotReady(node)),
                    _ => return Err(Reason::Refused { node, reason: reply.reason }),
                },
                Err(error) => {
                    peer.failed(&inner.participant, &error);
                    return Err(peer.absence().unwrap_or(Reason::Unavailable(node)));
                }
            }
        }
        Ok(())
    }

    /// The reads to validate, those of a primary together.
    fn reads(&self, entries: &[Entry]) -> Reads {
        let mut reads = Reads::new();
        let is_two = mutant!(TwoReadsUnvalidated) && entries.len() == 2;
        if mutant!(ValidateSkipped) || is_two {
            return reads;
        }
        for entry in entries.iter().filter(|entry| !entry.is_locked) {
            if mutant!(AbsentReadsUnvalidated) && entry.value.is_none() {
                continue;
            }
            let (_, node) = self.inner.primary(entry.place);
            reads.push((node, Seen { place: entry.place, version: entry.version }));
        }
        reads.sort_by_key(|(node, _)| *node);
        reads
    }

    /// Waits for room for a record in all logs.
    async fn take_room(&self, len: usize) -> Result<(), Reason> {
        let inner = &self.inner;
        let spaces = inner.log_nodes.iter().map(|node| &inner.peers[node].space);
        let spaces: SmallVec<[_; 3]> = std::iter::once(&inner.own_space).chain(spaces).collect();
        // If this is dropped while it waits, it gives back what it has.
        let mut room = Room { taken: SmallVec::new(), len };
        for (at, space) in spaces.into_iter().enumerate() {
            let peer = at.checked_sub(1).map(|at| &inner.peers[&inner.log_nodes[at]]);
            while !space.take(len, inner.bounds) {
                if let Some(absence) = peer.and_then(|peer| peer.absence()) {
                    return Err(absence);
                }
                // Records of transactions that have ended are freed with the next record as a rule.
                let change = async {
                    match peer {
                        Some(peer) if space.has_ended() => {
                            // A call may fail at once, and must not be repeated without a pause.
                            if !inner.free_at(peer).await {
                                erpc::sleep(PAUSES.0).await;
                            }
                        }
                        _ => space.change().await,
                    }
                };
                let left = self.time_left();
                if left.is_zero() || erpc::timeout(left, change).await.is_err() {
                    return Err(Reason::Deadline);
                }
            }
            room.taken.push(space);
        }
        // Once the record is sent, the end of the time makes the outcome unknown.
        if self.time_left().is_zero() {
            return Err(Reason::Deadline);
        }
        room.taken.clear();
        Ok(())
    }

    /// Ends a transaction that has changed nothing.
    async fn end_read_only(&self) {
        self.note(Outcome::Committed);
        self.keys.end();
        let messages = unlocks(self.id, &self.locks.borrow());
        if messages.is_empty() {
            self.inner.sequences.end(self.sequence);
            return;
        }
        let (inner, sequence) = (Rc::clone(&self.inner), self.sequence);
        let doubt = Rc::default();
        let end = {
            let doubt = Rc::clone(&doubt);
            async move { inner.end_with(sequence, &messages, &doubt).await }
        };
        in_foreground(&self.inner, Box::pin(end), &doubt, self.time_left()).await;
    }

    /// Makes the writes.
    async fn write(&self, plan: Box<Plan>) -> Result<(), TransactError> {
        let inner = &self.inner;
        inner.counting.requests(inner.log_nodes.len() + plan.backup_writes + plan.writes);
        self.keys.end();
        if let Some(recorder) = &*inner.recorder.borrow() {
            // If the node dies now, the transaction may have committed.
            let began = self.began.as_nanos();
            self.keys.with(|entries| recorder.begin_commit(self.id, began, entries));
        }
        let doubt = Rc::<Doubt>::default();
        let work = Work {
            transaction: self.id,
            sequence: self.sequence,
            plan,
            locks: self.locks.take(),
            doubt: Rc::clone(&doubt),
        };
        let run = Box::pin(Rc::clone(inner).run(work));
        if mutant!(ReportedBeforeStored) {
            erpc::spawn(run);
            self.note(Outcome::Committed);
            return Ok(());
        }
        let end = in_foreground(inner, run, &doubt, self.time_left()).await;
        let is_unknown = end.is_none() && !doubt.is_committed();
        if mutant!(UnknownIsAborted) && is_unknown {
            self.note(Outcome::Aborted);
            return Err(TransactError::Aborted(Reason::Deadline));
        }
        if mutant!(UnknownIsCommitted) && is_unknown {
            self.note(Outcome::Committed);
            return Ok(());
        }
        let (outcome, result) = match end {
            Some(End::Committed) => (Outcome::Committed, Ok(())),
            Some(End::Aborted(reason)) => (Outcome::Aborted, Err(TransactError::Aborted(reason))),
            Some(End::Stuck(_)) | None if doubt.is_committed() => (Outcome::Committed, Ok(())),
            Some(End::Stuck(node)) => (Outcome::Unknown, Err(self.unknown(Some(node)))),
            None => (Outcome::Unknown, Err(self.unknown(doubt.node()))),
        };
        self.note(outcome);
        result
    }

    fn unknown(&self, node: Option<NodeId>) -> TransactError {
        TransactError::Unknown { transaction: Some(self.id), node }
    }
}

impl<T: Transport> Inner<T> {
    /// A node that the commit needs and for which `holds` is true.
    fn needed(&self, plan: &Plan, holds: impl Fn(&Peer<T>) -> bool) -> Option<NodeId> {
        let placement = self.participant.placement();
        let replicas = plan.partitions.iter().flat_map(|&of| placement.replicas(of));
        let mut needed = replicas.chain(&self.log_nodes).copied();
        needed.find(|node| self.peers.get(node).is_some_and(|peer| holds(peer)))
    }

    /// Runs a commit whose record has room in all logs.
    async fn run(self: Rc<Self>, work: Work) -> End {
        let Work { transaction, sequence, mut plan, locks, doubt } = work;
        let len = plan.record.len();
        if let Err(end) = self.append(transaction, sequence, &plan.record, &locks, &doubt).await {
            return end;
        }
        if mutant!(BackupSkipped) {
            plan.backups.pop();
        }
        if mutant!(UnlockedBeforeBackups) {
            let _unlocked = self.deliver(&unlocks(transaction, &locks), &doubt).await;
        }
        if mutant!(PrimariesFirst) {
            let _committed = self.deliver(&plan.primaries, &doubt).await;
        }
        if let Err((node, _)) = self.deliver(&plan.backups, &doubt).await {
            return End::Stuck(node);
        }
        // A crash of f nodes does not lose the transaction any more.
        doubt.commit();
        if !mutant!(UnwrittenLocksStay) {
            plan.primaries.append(&mut plan.unlocks);
        }
        if let Err((node, _)) = self.deliver(&plan.primaries, &doubt).await {
            return End::Stuck(node);
        }
        self.end_record(sequence, len);
        self.sequences.end(sequence);
        End::Committed
    }

    /// Stores the record in all logs, or in none.
    async fn append(
        self: &Rc<Self>,
        transaction: Owner,
        sequence: u64,
        record: &Bytes,
        locks: &[Lock],
        doubt: &Rc<Doubt>,
    ) -> Result<(), End> {
        let message = |node: NodeId| (node, Message::Append(record.clone()));
        // The node's own first: if it is refused, no other node has heard of the transaction.
        let mut appended = self.deliver(&[message(self.me())], doubt).await;
        if appended.is_ok() && !mutant!(LogSkipped) {
            let others: Messages = self.log_nodes.iter().copied().map(message).collect();
            appended = self.deliver(&others, doubt).await;
        }
        let reason = match appended {
            Ok(()) => return Ok(()),
            Err((node, Failure::Lost)) => return Err(End::Stuck(node)),
            Err((node, Failure::Refused(reason))) => Reason::Refused { node, reason },
        };
        // Recovery would commit the transaction if it found the record, so the record goes first.
        let len = record.len();
        let logs = std::iter::once(self.me()).chain(self.log_nodes.iter().copied());
        let discards: Messages =
            logs.map(|node| (node, Message::Discard { sequence, len })).collect();
        if let Err((node, _)) = self.deliver(&discards, doubt).await {
            return Err(End::Stuck(node));
        }
        self.end_with(sequence, &unlocks(transaction, locks), doubt).await;
        Err(End::Aborted(reason))
    }
}

/// Reads to validate, with their primaries.
type Reads = SmallVec<[(NodeId, Seen); 4]>;

/// The reads of each primary.
fn parts(reads: &Reads) -> impl Iterator<Item = &[(NodeId, Seen)]> {
    reads.chunk_by(|(one, _), (other, _)| one == other)
}

/// Room for a record in some logs, given back unless all have it.
struct Room<'a> {
    taken: SmallVec<[&'a Space; 3]>,
    len: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.taken.iter().for_each(|space| space.give_back(&[(0, self.len)]));
    }
}
