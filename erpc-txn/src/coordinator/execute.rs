//! The execute phase: reads and locks.

use std::collections::BTreeMap;
use std::time::Duration;

use erpc::{Call, CallError, Endpoint, Transport, join_all};

use super::accesses::Entry;
use super::batch::Wanted;
use super::bytes::ValueBytes;
use super::errors::{Abort, Reason};
use super::transaction::Attempt;
use crate::cluster::NodeId;
use crate::mutants::mutant;
use crate::participant::{Access, Found, Kind, Place};
use crate::proto::{self, Verdict};
use crate::table::{Bucket, LockError, Version};

/// A bucket that the transaction may have locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    /// The primary.
    pub(super) node: NodeId,
    /// A key of the bucket.
    pub(super) place: Place,
    pub(super) state: LockState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockState {
    /// The request was sent, and has no answer.
    Sent,
    Held,
    /// The answer was that it is not locked.
    Free,
}

/// The answer to one access.
struct Answer {
    bucket: Bucket,
    read: Result<(Version, Option<ValueBytes>), Failure>,
}

enum Failure {
    Conflict,
    Absent(Version),
    Present,
    Full,
}

/// Accesses of one node.
#[derive(Default)]
struct Part {
    /// Positions in the list of what is wanted.
    wanted: Vec<usize>,
    /// Positions in the list of locks, for those accesses that lock.
    locks: Vec<Option<usize>>,
    accesses: Vec<Access>,
}

impl<T: Transport> Attempt<T> {
    /// Makes accesses, those of different keys at once.
    pub(super) async fn access(&self, mut wanted: Vec<Wanted>) -> Result<(), Abort> {
        while !wanted.is_empty() {
            self.check()?;
            let (mut now, mut later) = (Vec::new(), Vec::new());
            for wanted in wanted {
                if now.iter().any(|other: &Wanted| other.place == wanted.place) {
                    later.push(wanted);
                } else if let Some(wanted) = self.needed(wanted)? {
                    now.push(wanted);
                }
            }
            if !now.is_empty() {
                self.execute(now).await?;
            }
            wanted = later;
        }
        self.check()
    }

    /// The access, if what the transaction knows is not enough.
    fn needed(&self, mut wanted: Wanted) -> Result<Option<Wanted>, Abort> {
        let place = wanted.place;
        let mut accesses = self.accesses.borrow_mut();
        let Some(entry) = accesses.find_mut(place) else { return Ok(Some(wanted)) };
        let is_enough = match wanted.kind {
            Kind::Read => true,
            // The commit checks that an absent key is still absent.
            Kind::Update => entry.is_locked || entry.value.is_none(),
            Kind::Insert => {
                if entry.current().is_some() {
                    return Err(self.doom(Reason::Present(place)));
                }
                if entry.is_locked {
                    entry.put(wanted.value.take().unwrap_or_default());
                }
                entry.is_locked
            }
        };
        Ok((!is_enough).then_some(wanted))
    }

    async fn execute(&self, mut wanted: Vec<Wanted>) -> Result<(), Abort> {
        let inner = &self.inner;
        inner.counting.requests(wanted.len());
        let parts = self.parts(&wanted)?;
        let (mut calls, mut called) = (Vec::new(), Vec::new());
        for (&node, part) in &parts {
            if let Some(peer) = inner.peers.get(&node) {
                if peer.is_down() {
                    return Err(self.doom(Reason::Unavailable(node)));
                }
                let Some(target) = peer.target(&inner.participant) else {
                    return Err(self.doom(Reason::NotReady(node)));
                };
                let request = proto::ExecuteRequest {
                    epoch: target.epoch,
                    incarnation: target.incarnation,
                    transaction: self.id.get(),
                    accesses: part.accesses.iter().map(proto::Access::from).collect(),
                };
                inner.counting.add(|counts| counts.messages += 1);
                calls.push(peer.client.execute(request));
                called.push(node);
            }
        }
        // From here on, the calls may lock.
        for (node, part) in &parts {
            if called.contains(node) {
                self.set_locks(part, |_| LockState::Sent);
            }
        }
        let mut failure = None;
        if let Some(part) = parts.get(&inner.me()) {
            let target = inner.participant.target();
            match inner.participant.execute(target, self.id, &part.accesses) {
                Ok(found) => {
                    let answers = found.into_iter().map(Answer::from).collect();
                    self.answered(&mut wanted, part, answers, &mut failure);
                }
                Err(refusal) => {
                    let reason = refusal.to_string();
                    failure = Some(Reason::Refused { node: inner.me(), reason });
                }
            }
        }
        let Some(replies) = self.in_time(calls).await else {
            return Err(self.doom(Reason::Deadline));
        };
        for (node, reply) in called.into_iter().zip(replies) {
            let part = &parts[&node];
            match self.reply(node, part, reply) {
                Ok(answers) => self.answered(&mut wanted, part, answers, &mut failure),
                Err(reason) => failure = failure.or(Some(reason)),
            }
        }
        failure.map_or(Ok(()), |reason| Err(self.doom(reason)))
    }

    /// The accesses by primary. Their locks are noted as free.
    fn parts(&self, wanted: &[Wanted]) -> Result<BTreeMap<NodeId, Part>, Abort> {
        let tables = &self.inner.participant.settings().tables;
        let mut parts: BTreeMap<NodeId, Part> = BTreeMap::new();
        let mut locks = self.locks.borrow_mut();
        for (at, &Wanted { place, kind, .. }) in wanted.iter().enumerate() {
            if !tables.contains_key(&place.table) {
                return Err(self.doom(Reason::NoTable(place.table)));
            }
            let (_, node) = self.inner.primary(place);
            let part = parts.entry(node).or_default();
            part.wanted.push(at);
            part.accesses.push(Access { place, kind });
            part.locks.push((kind != Kind::Read).then_some(locks.len()));
            if kind != Kind::Read {
                locks.push(Lock { node, place, state: LockState::Free });
            }
        }
        Ok(parts)
    }

    fn set_locks(&self, part: &Part, state: impl Fn(usize) -> LockState) {
        let mut locks = self.locks.borrow_mut();
        for (at, lock) in part.locks.iter().enumerate() {
            if let Some(lock) = lock {
                locks[*lock].state = state(at);
            }
        }
    }

    /// Waits for replies until the deadline.
    pub(super) async fn in_time<M: Unpin + 'static>(
        &self,
        calls: Vec<Call<M, T>>,
    ) -> Option<Vec<Result<M, CallError>>> {
        if calls.is_empty() {
            return Some(Vec::new());
        }
        let left = self.time_left();
        if left.is_zero() {
            return None;
        }
        erpc::timeout(left, join_all(calls)).await.ok()
    }

    /// The time until the deadline.
    pub(super) fn time_left(&self) -> Duration {
        let now = Endpoint::<T>::current().map_or(self.deadline, |endpoint| endpoint.now());
        if now < self.deadline { self.deadline - now } else { Duration::ZERO }
    }

    /// The answers in a reply. If it has none, the locks are known as far as the reply tells.
    fn reply(
        &self,
        node: NodeId,
        part: &Part,
        reply: Result<proto::ExecuteReply, CallError>,
    ) -> Result<Vec<Answer>, Reason> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                if matches!(
                    error,
                    CallError::NotExecuted(_) | CallError::NoServer(_) | CallError::Rejected(_)
                ) {
                    self.set_locks(part, |_| LockState::Free);
                }
                self.inner.peers[&node].failed(&self.inner.participant, &error);
                return Err(match error {
                    CallError::Status(_) | CallError::Rejected(_) | CallError::NoSuchMethod(_) => {
                        Reason::Refused { node, reason: error.to_string() }
                    }
                    _ => Reason::Unavailable(node),
                });
            }
        };
        if reply.verdict() == Verdict::Done && reply.accesses.len() == part.accesses.len() {
            return Ok(reply.accesses.into_iter().map(Answer::from).collect());
        }
        // Refused as a whole, so nothing is locked.
        self.set_locks(part, |_| LockState::Free);
        Err(match reply.verdict() {
            Verdict::Restarted | Verdict::Epoch => Reason::Unavailable(node),
            Verdict::NotActive => Reason::NotReady(node),
            _ => Reason::Refused { node, reason: reply.reason },
        })
    }

    /// Takes over the answers of one node. Notes the first failure.
    fn answered(
        &self,
        wanted: &mut [Wanted],
        part: &Part,
        answers: Vec<Answer>,
        failure: &mut Option<Reason>,
    ) {
        let state = |answer: &Answer| match answer.read {
            Ok(_) => LockState::Held,
            Err(_) => LockState::Free,
        };
        self.set_locks(part, |at| state(&answers[at]));
        for (&at, answer) in part.wanted.iter().zip(answers) {
            if let Err(reason) = self.take_over(&mut wanted[at], answer) {
                failure.get_or_insert(reason);
            }
        }
    }

    fn take_over(&self, wanted: &mut Wanted, answer: Answer) -> Result<(), Reason> {
        let place = wanted.place;
        let mut accesses = self.accesses.borrow_mut();
        let known = accesses.find_mut(place);
        let (version, value, is_locked) = match answer.read {
            Ok((version, value)) => (version, value, wanted.kind != Kind::Read),
            Err(Failure::Absent(version)) => (version, None, false),
            Err(Failure::Conflict) => return Err(Reason::Conflict(place)),
            // The transaction has read that the key is absent.
            Err(Failure::Present) if known.is_some() => return Err(Reason::Changed(place)),
            Err(Failure::Present) => return Err(Reason::Present(place)),
            Err(Failure::Full) => return Err(Reason::Full(place)),
        };
        match known {
            Some(entry) if entry.version != version && !mutant!(UpgradeUnchecked) => {
                return Err(Reason::Changed(place));
            }
            Some(entry) => entry.is_locked |= is_locked,
            None => {
                let (partition, bucket) = (self.inner.primary(place).0, answer.bucket);
                let change = None;
                accesses.add(Entry { place, partition, bucket, version, is_locked, value, change });
            }
        }
        if let (Some(value), Some(entry)) = (wanted.value.take(), accesses.find_mut(place)) {
            entry.put(value);
        }
        Ok(())
    }
}

impl From<Found> for Answer {
    fn from(found: Found) -> Self {
        let read = match found.read {
            Ok(read) => Ok((read.version, read.value.map(ValueBytes::Local))),
            Err(LockError::Conflict(_)) => Err(Failure::Conflict),
            Err(LockError::Absent(version)) => Err(Failure::Absent(version)),
            Err(LockError::Present(_)) => Err(Failure::Present),
            Err(LockError::Full(_)) => Err(Failure::Full),
        };
        Self { bucket: found.bucket, read }
    }
}

impl From<proto::AccessReply> for Answer {
    fn from(reply: proto::AccessReply) -> Self {
        let version = Version::new(reply.version).unwrap_or_default();
        let read = match reply.verdict() {
            Verdict::Done => {
                Ok((version, reply.present.then_some(ValueBytes::Remote(reply.value))))
            }
            Verdict::Absent => Err(Failure::Absent(version)),
            Verdict::Present => Err(Failure::Present),
            Verdict::TableFull => Err(Failure::Full),
            _ => Err(Failure::Conflict),
        };
        Self { bucket: Bucket::new(reply.bucket), read }
    }
}

impl From<&Access> for proto::Access {
    fn from(access: &Access) -> Self {
        let kind = match access.kind {
            Kind::Read => proto::Kind::Read,
            Kind::Update => proto::Kind::Update,
            Kind::Insert => proto::Kind::Insert,
        };
        let Place { table, key } = access.place;
        Self { table: table.into(), key, kind: kind.into() }
    }
}
