//! The execute phase: reads and locks.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use erpc::{Call, CallError, Endpoint, Transport, join_all};

use super::peers::Peer;
use super::transaction::Attempt;
use crate::cluster::NodeId;
use crate::participant::{Access, Found, Kind, Place};
use crate::proto::{self, Verdict};
use crate::table::{Bucket, LockError, Version};
use crate::transaction::bytes::ValueBytes;
use crate::transaction::keys::{Answer, Failure};
use crate::transaction::{Abort, Reason, Wanted};

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
    /// Makes accesses of different keys at once.
    pub(super) async fn make(&self, mut wanted: Vec<Wanted>) -> Result<(), Abort> {
        if let [one] = &mut wanted[..] {
            return self.make_one(one).await;
        }
        let inner = &self.inner;
        inner.counting.requests(wanted.len());
        let parts = self.parts(&wanted)?;
        let (mut calls, mut called) = (Vec::new(), Vec::new());
        for (&node, part) in &parts {
            if let Some(peer) = inner.peers.get(&node) {
                if peer.is_down() {
                    return Err(self.keys.doom(Reason::Unavailable(node)));
                }
                let Some(target) = peer.target(&inner.participant) else {
                    return Err(self.keys.doom(Reason::NotReady(node)));
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
            return Err(self.keys.doom(Reason::Deadline));
        };
        for (node, reply) in called.into_iter().zip(replies) {
            let part = &parts[&node];
            match self.reply(node, part, reply) {
                Ok(answers) => self.answered(&mut wanted, part, answers, &mut failure),
                Err(reason) => failure = failure.or(Some(reason)),
            }
        }
        failure.map_or(Ok(()), |reason| Err(self.keys.doom(reason)))
    }

    /// Makes a single access. Most transactions make only one, so this does without lists.
    async fn make_one(&self, wanted: &mut Wanted) -> Result<(), Abort> {
        let (inner, keys) = (&self.inner, &self.keys);
        let Wanted { place, kind, .. } = *wanted;
        if !inner.participant.settings().tables.contains_key(&place.table) {
            return Err(keys.doom(Reason::NoTable(place.table)));
        }
        inner.counting.requests(1);
        let (partition, node) = inner.primary(place);
        let access = Access { place, kind };
        let answer = match inner.peers.get(&node) {
            None => {
                let target = inner.participant.target();
                let found = inner.participant.execute_one(target, self.id, access);
                let found = found.map_err(|refusal| {
                    keys.doom(Reason::Refused { node, reason: refusal.to_string() })
                })?;
                if kind != Kind::Read && found.read.is_ok() {
                    self.locks.borrow_mut().push(Lock { node, place, state: LockState::Held });
                }
                Answer::from(found)
            }
            Some(peer) => self.ask_one(peer, access).await?,
        };
        keys.take_over(wanted, partition, answer).map_err(|reason| keys.doom(reason))
    }

    /// Makes a single access at another node.
    async fn ask_one(&self, peer: &Rc<Peer<T>>, access: Access) -> Result<Answer, Abort> {
        let (inner, keys, node) = (&self.inner, &self.keys, peer.node);
        let doom = |reason| keys.doom(reason);
        if peer.is_down() {
            return Err(doom(Reason::Unavailable(node)));
        }
        let target = peer.target(&inner.participant).ok_or_else(|| doom(Reason::NotReady(node)))?;
        let request = proto::ExecuteRequest {
            epoch: target.epoch,
            incarnation: target.incarnation,
            transaction: self.id.get(),
            accesses: vec![proto::Access::from(&access)],
        };
        let left = self.time_left();
        if left.is_zero() {
            return Err(doom(Reason::Deadline));
        }
        inner.counting.add(|counts| counts.messages += 1);
        let call = peer.client.execute(request);
        let mut part = Part { wanted: vec![0], accesses: vec![access], locks: vec![None] };
        if access.kind != Kind::Read {
            let mut locks = self.locks.borrow_mut();
            part.locks[0] = Some(locks.len());
            locks.push(Lock { node, place: access.place, state: LockState::Sent });
        }
        let reply = erpc::timeout(left, call).await.map_err(|_| doom(Reason::Deadline))?;
        let mut answers = self.reply(node, &part, reply).map_err(doom)?;
        // `reply` has checked their number.
        let answer = answers.remove(0);
        if answer.read.is_ok() {
            self.set_locks(&part, |_| LockState::Held);
        } else {
            self.set_locks(&part, |_| LockState::Free);
        }
        Ok(answer)
    }

    /// The accesses by primary. Their locks are noted as free.
    fn parts(&self, wanted: &[Wanted]) -> Result<BTreeMap<NodeId, Part>, Abort> {
        let tables = &self.inner.participant.settings().tables;
        let mut parts: BTreeMap<NodeId, Part> = BTreeMap::new();
        let mut locks = self.locks.borrow_mut();
        for (at, &Wanted { place, kind, .. }) in wanted.iter().enumerate() {
            if !tables.contains_key(&place.table) {
                return Err(self.keys.doom(Reason::NoTable(place.table)));
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
            Verdict::Restarted | Verdict::Epoch => {
                self.inner.peers[&node].lose();
                Reason::Unavailable(node)
            }
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
            let wanted = &mut wanted[at];
            let (partition, _) = self.inner.primary(wanted.place);
            if let Err(reason) = self.keys.take_over(wanted, partition, answer) {
                failure.get_or_insert(reason);
            }
        }
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
