//! The phases of a commit.

use std::collections::BTreeMap;
use std::rc::Rc;

use erpc::Transport;

use super::Inner;
use super::deliver::{Delivery, Doubt, Message, in_foreground};
use super::plan::{Plan, plan};
use super::space::Space;
use super::transaction::Attempt;
use crate::check::Outcome;
use crate::cluster::NodeId;
use crate::log::EncodeError;
use crate::mutants::mutant;
use crate::participant::{Place, Role, Seen};
use crate::proto::{self, Verdict};
use crate::table::{Invalid, Owner};
use crate::transaction::accesses::Entry;
use crate::transaction::{Reason, TransactError};

/// How a commit ended.
enum End {
    Committed,
    /// The record is at no node, and the locks are free.
    Aborted(Reason),
    /// A node is lost, so recovery must decide.
    Stuck(NodeId),
}

/// What a commit needs, apart from its node.
struct Work {
    transaction: Owner,
    sequence: u64,
    plan: Plan,
    doubt: Rc<Doubt>,
}

impl<T: Transport> Attempt<T> {
    /// Commits the attempt, or aborts it.
    pub(super) async fn commit(&self) -> Result<(), TransactError> {
        let planned = match self.keys.check() {
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
    async fn prepare(&self) -> Result<Option<Plan>, Reason> {
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
            if let Some(node) = inner.unavailable(plan) {
                return Err(Reason::Unavailable(node));
            }
        }
        self.validate().await?;
        if let Some(plan) = &planned {
            self.take_room(plan.record.len()).await?;
        }
        Ok(planned)
    }

    /// Checks that what was read and not locked still holds. A single read of a transaction that
    /// locks nothing held at the moment when it was made.
    async fn validate(&self) -> Result<(), Reason> {
        let parts = self.keys.with(|entries| self.reads(entries));
        let inner = &self.inner;
        inner.counting.requests(parts.values().map(Vec::len).sum());
        let (mut calls, mut called) = (Vec::new(), Vec::new());
        for (&node, reads) in &parts {
            let Some(peer) = inner.peers.get(&node) else { continue };
            let target = peer.target(&inner.participant).ok_or(Reason::NotReady(node))?;
            inner.counting.add(|counts| counts.messages += 1);
            calls.push(peer.client.validate(proto::ValidateRequest {
                epoch: target.epoch,
                incarnation: target.incarnation,
                transaction: self.id.get(),
                reads: reads.iter().map(proto::Seen::from).collect(),
            }));
            called.push((node, reads[0].place));
        }
        if let Some(reads) = parts.get(&inner.me()) {
            let target = inner.participant.target();
            let valid = inner.participant.validate(target, self.id, reads).map_err(|refusal| {
                Reason::Refused { node: inner.me(), reason: refusal.to_string() }
            })?;
            valid.map_err(|(place, invalid)| match invalid {
                Invalid::Conflict(_) => Reason::Conflict(place),
                Invalid::Changed(_) => Reason::Changed(place),
            })?;
        }
        let replies = self.in_time(calls).await.ok_or(Reason::Deadline)?;
        for ((node, place), reply) in called.into_iter().zip(replies) {
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
                    inner.peers[&node].failed(&inner.participant, &error);
                    return Err(Reason::Unavailable(node));
                }
            }
        }
        Ok(())
    }

    /// The reads to validate, by primary.
    fn reads(&self, entries: &[Entry]) -> BTreeMap<NodeId, Vec<Seen>> {
        let mut parts: BTreeMap<NodeId, Vec<Seen>> = BTreeMap::new();
        let is_two = mutant!(TwoReadsUnvalidated) && entries.len() == 2;
        if entries.len() == 1 || mutant!(ValidateSkipped) || is_two {
            return parts;
        }
        for entry in entries.iter().filter(|entry| !entry.is_locked) {
            if mutant!(AbsentReadsUnvalidated) && entry.value.is_none() {
                continue;
            }
            let (_, node) = self.inner.primary(entry.place);
            let seen = Seen { place: entry.place, version: entry.version };
            parts.entry(node).or_default().push(seen);
        }
        parts
    }

    /// Waits for room for a record in all logs.
    async fn take_room(&self, len: usize) -> Result<(), Reason> {
        let inner = &self.inner;
        let spaces = inner.log_nodes.iter().map(|node| &inner.peers[node].space);
        let spaces: Vec<_> = std::iter::once(&inner.own_space).chain(spaces).collect();
        // If this is dropped while it waits, it gives back what it has.
        let mut room = Room { taken: Vec::with_capacity(spaces.len()), len };
        for (at, space) in spaces.into_iter().enumerate() {
            while !space.take(len, inner.bounds) {
                // Records of transactions that have ended are freed with the next record as a rule.
                if at > 0 && space.has_ended() {
                    inner.free_at(&inner.peers[&inner.log_nodes[at - 1]]).await;
                    continue;
                }
                let left = self.time_left();
                if left.is_zero() || erpc::timeout(left, space.change()).await.is_err() {
                    return Err(Reason::Deadline);
                }
            }
            room.taken.push(space);
        }
        room.taken.clear();
        Ok(())
    }

    /// Ends a transaction that has changed nothing.
    async fn end_read_only(&self) {
        self.note(Outcome::Committed);
        self.keys.end();
        let messages = super::release::unlocks(self.id, &self.locks.take());
        if messages.is_empty() {
            self.inner.sequences.end(self.sequence);
            return;
        }
        let (inner, sequence) = (Rc::clone(&self.inner), self.sequence);
        let doubt = Rc::clone(&self.doubt);
        let end = {
            let doubt = Rc::clone(&doubt);
            async move { inner.end_with(sequence, &messages, &doubt).await }
        };
        in_foreground(&self.inner, end, &doubt, self.time_left()).await;
    }

    /// Makes the writes.
    async fn write(&self, plan: Plan) -> Result<(), TransactError> {
        let inner = &self.inner;
        inner.counting.requests(inner.log_nodes.len() + plan.backup_writes + plan.writes);
        self.keys.end();
        if let Some(recorder) = &*inner.recorder.borrow() {
            // If the node dies now, the transaction may have committed.
            let began = self.began.as_nanos();
            self.keys.with(|entries| recorder.begin_commit(self.id, began, entries));
        }
        let work = Work {
            transaction: self.id,
            sequence: self.sequence,
            plan,
            doubt: Rc::clone(&self.doubt),
        };
        let run = Rc::clone(inner).run(work);
        if mutant!(ReportedBeforeStored) {
            erpc::spawn(run);
            self.note(Outcome::Committed);
            return Ok(());
        }
        let end = in_foreground(inner, run, &self.doubt, self.time_left()).await;
        let is_unknown = end.is_none() && !self.doubt.is_committed();
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
            Some(End::Stuck(_)) | None if self.doubt.is_committed() => (Outcome::Committed, Ok(())),
            Some(End::Stuck(node)) => (Outcome::Unknown, Err(self.unknown(Some(node)))),
            None => (Outcome::Unknown, Err(self.unknown(self.doubt.node()))),
        };
        self.note(outcome);
        result
    }

    fn unknown(&self, node: Option<NodeId>) -> TransactError {
        TransactError::Unknown { transaction: Some(self.id), node }
    }
}

impl<T: Transport> Inner<T> {
    /// A node that the commit needs and that does not answer.
    fn unavailable(&self, plan: &Plan) -> Option<NodeId> {
        let placement = self.participant.placement();
        let replicas = plan.partitions.iter().flat_map(|&of| placement.replicas(of));
        let needed = replicas.chain(&self.log_nodes);
        let is_down = |node: &&NodeId| self.peers.get(node).is_some_and(|peer| peer.is_down());
        needed.copied().find(|node| is_down(&node))
    }

    /// Runs a commit whose record has room in all logs.
    async fn run(self: Rc<Self>, work: Work) -> End {
        let Work { transaction, sequence, plan, doubt } = work;
        let len = plan.record.len();
        if let Err(end) = self.append(transaction, sequence, &plan, &doubt).await {
            return end;
        }
        let commit = |role, parts: &[(NodeId, bytes::Bytes)]| -> Vec<(NodeId, Message)> {
            let message = |(node, part): &(NodeId, bytes::Bytes)| {
                (*node, Message::Commit(role, part.clone()))
            };
            parts.iter().map(message).collect()
        };
        let mut backups = commit(Role::Backup, &plan.backups);
        if mutant!(BackupSkipped) {
            backups.pop();
        }
        if mutant!(UnlockedBeforeBackups) {
            let unlock = |(node, places): &(NodeId, Vec<Place>)| {
                (*node, Message::Unlock { transaction, places: places.clone(), bury: false })
            };
            let unlocks: Vec<_> = plan.locked.iter().map(unlock).collect();
            self.deliver(&unlocks, &doubt).await;
        }
        if mutant!(PrimariesFirst) {
            self.deliver(&commit(Role::Primary, &plan.primaries), &doubt).await;
        }
        if let Err(node) = all_done(&backups, &self.deliver(&backups, &doubt).await) {
            return End::Stuck(node);
        }
        // A crash of f nodes does not lose the transaction any more.
        doubt.commit();
        let mut last = commit(Role::Primary, &plan.primaries);
        let unlocks = if mutant!(UnwrittenLocksStay) { Vec::new() } else { plan.unlocks };
        last.extend(
            unlocks
                .into_iter()
                .map(|(node, places)| (node, Message::Unlock { transaction, places, bury: false })),
        );
        if let Err(node) = all_done(&last, &self.deliver(&last, &doubt).await) {
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
        plan: &Plan,
        doubt: &Rc<Doubt>,
    ) -> Result<(), End> {
        let message = |node: NodeId| (node, Message::Append(plan.record.clone()));
        // The node's own first: if it is refused, no other node has heard of the transaction.
        let own = [message(self.me())];
        let mut deliveries = self.deliver(&own, doubt).await;
        if matches!(deliveries[..], [Delivery::Done]) {
            let mut others: Vec<_> = self.log_nodes.iter().copied().map(message).collect();
            if mutant!(LogSkipped) {
                others.clear();
            }
            deliveries = self.deliver(&others, doubt).await;
        }
        let mut refusal = None;
        for (at, delivery) in deliveries.into_iter().enumerate() {
            let node = self.log_nodes.get(at).copied().unwrap_or(self.me());
            match delivery {
                Delivery::Done => {}
                Delivery::Lost => return Err(End::Stuck(node)),
                Delivery::Refused(reason) => refusal = Some(Reason::Refused { node, reason }),
            }
        }
        let Some(reason) = refusal else { return Ok(()) };
        // Recovery would commit the transaction if it found the record, so the record goes first.
        let len = plan.record.len();
        let logs = std::iter::once(self.me()).chain(self.log_nodes.iter().copied());
        let discards: Vec<_> =
            logs.map(|node| (node, Message::Discard { sequence, len })).collect();
        if let Err(node) = all_done(&discards, &self.deliver(&discards, doubt).await) {
            return Err(End::Stuck(node));
        }
        let unlock = |(node, places): (NodeId, Vec<Place>)| {
            (node, Message::Unlock { transaction, places, bury: false })
        };
        let locked: Vec<_> = plan.locked.iter().cloned().map(unlock).collect();
        self.end_with(sequence, &locked, doubt).await;
        Err(End::Aborted(reason))
    }
}

/// Room for a record in some logs, given back unless all have it.
struct Room<'a> {
    taken: Vec<&'a Space>,
    len: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.taken.iter().for_each(|space| space.give_back(&[(0, self.len)]));
    }
}

/// The first node that has not done what it was told.
fn all_done(messages: &[(NodeId, Message)], deliveries: &[Delivery]) -> Result<(), NodeId> {
    let failed = deliveries.iter().position(|delivery| !matches!(delivery, Delivery::Done));
    failed.map_or(Ok(()), |at| Err(messages[at].0))
}

impl From<&Seen> for proto::Seen {
    fn from(seen: &Seen) -> Self {
        let Place { table, key } = seen.place;
        Self { table: table.into(), key, version: seen.version.get() }
    }
}
