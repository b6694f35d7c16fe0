//! The execute phase: reads and locks.

use std::rc::Rc;
use std::time::Duration;

use erpc::{Call, CallError, Endpoint, RejectReason, Transport};
use smallvec::SmallVec;

use super::peers::Peer;
use super::replies::Replies;
use super::transaction::Attempt;
use crate::cluster::NodeId;
use crate::lists::{Outcome, Outcomes, pack};
use crate::participant::{Access, Found, Kind, Place};
use crate::proto::{self, Verdict};
use crate::table::LockError;
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

/// The locks of an attempt, few as a rule.
pub(super) type Locks = SmallVec<[Lock; 3]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockState {
    /// The request was sent, and has no answer.
    Sent,
    Held,
    /// The answer was that it is not locked.
    Free,
}

/// An access, and where it goes.
#[derive(Clone, Copy)]
struct Step {
    /// The primary.
    node: NodeId,
    /// The position in the list of what is wanted.
    wanted: usize,
    /// The position in the list of locks, if the access locks.
    lock: Option<usize>,
}

/// Those of a node are together.
type Steps = SmallVec<[Step; 4]>;

impl<T: Transport> Attempt<T> {
    /// Makes accesses of different keys at once.
    pub(super) async fn make(&self, wanted: &mut [Wanted]) -> Result<(), Abort> {
        if let [one] = wanted {
            return self.make_one(one).await;
        }
        let inner = &self.inner;
        inner.counting.requests(wanted.len());
        let steps = self.steps(wanted)?;
        let mut replies = Replies::new();
        for part in steps.chunk_by(|one, other| one.node == other.node) {
            let Some(peer) = inner.peers.get(&part[0].node) else { continue };
            let access = |step: &Step| wanted[step.wanted].access();
            let accesses: SmallVec<[_; 8]> = part.iter().map(access).collect();
            let call = self.call(peer, &accesses)?;
            // It may leave before the next one is made, and lock.
            self.set_locks(part, |_| LockState::Sent);
            replies.push(part, call);
        }
        let mut failure = None;
        let own = steps.chunk_by(|one, other| one.node == other.node);
        for part in own.filter(|part| part[0].node == inner.me()) {
            let accesses: SmallVec<[_; 8]> =
                part.iter().map(|step| wanted[step.wanted].access()).collect();
            let mut of_part = part.iter();
            let target = inner.participant.target();
            let done = inner.participant.execute(target, self.id, &accesses, |found| {
                let step = of_part.next().expect("each access has one outcome");
                self.answered(&mut wanted[step.wanted], step, found.into(), &mut failure);
            });
            if let Err(refusal) = done {
                failure = Some(inner.refused(refusal));
            }
        }
        if !replies.is_empty() && self.in_time(replies.arrive()).await.is_none() {
            return Err(self.keys.doom(Reason::Deadline));
        }
        if self.keys.is_over() {
            // Another task ended the attempt, and its end unlocks what the calls have locked.
            return Err(Abort::new(Reason::Ended));
        }
        for (part, reply) in replies.take() {
            match self.reply(part, reply) {
                Ok(answers) => {
                    for (step, answer) in part.iter().zip(answers) {
                        self.answered(&mut wanted[step.wanted], step, answer, &mut failure);
                    }
                }
                Err(reason) => failure = failure.or(Some(reason)),
            }
        }
        failure.map_or(Ok(()), |reason| Err(self.keys.doom(reason)))
    }

    /// Reads a key of which the attempt knows nothing, if this node is its primary and nothing is in the
    /// way. The read then needs no future and no list.
    #[inline]
    pub(super) fn read_own(&self, place: Place) -> bool {
        let inner = &self.inner;
        let Some((partition, bucket, read)) = inner.participant.read_own(self.id, place) else {
            return false;
        };
        inner.counting.requests(1);
        self.keys.add_read(place, partition, bucket, read);
        true
    }

    /// Makes a single access. Most transactions make only one, so this does without lists.
    async fn make_one(&self, wanted: &mut Wanted) -> Result<(), Abort> {
        let (inner, keys) = (&self.inner, &self.keys);
        let access = wanted.access();
        let Access { place, kind } = access;
        if !inner.participant.settings().tables.contains_key(&place.table) {
            return Err(keys.doom(Reason::NoTable(place.table)));
        }
        inner.counting.requests(1);
        let (partition, node) = inner.primary(place);
        let answer = match inner.peers.get(&node) {
            None => {
                let target = inner.participant.target();
                let found = inner.participant.execute_one(target, self.id, access);
                let found = found.map_err(|refusal| keys.doom(inner.refused(refusal)))?;
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
        let call = self.call(peer, &[access])?;
        let lock = (access.kind != Kind::Read).then(|| {
            let mut locks = self.locks.borrow_mut();
            locks.push(Lock { node: peer.node, place: access.place, state: LockState::Sent });
            locks.len() - 1
        });
        let part = [Step { node: peer.node, wanted: 0, lock }];
        let doom = |reason| self.keys.doom(reason);
        let reply = self.in_time(call).await.ok_or_else(|| doom(Reason::Deadline))?;
        if self.keys.is_over() {
            // As in `make`.
            return Err(Abort::new(Reason::Ended));
        }
        let mut answers = self.reply(&part, reply).map_err(doom)?;
        let answer = answers.pop().expect("each access has one outcome");
        self.set_locks(&part, |_| state(&answer));
        Ok(answer)
    }

    /// Sends accesses to their primary.
    fn call(
        &self,
        peer: &Rc<Peer<T>>,
        accesses: &[Access],
    ) -> Result<Call<proto::ExecuteReply, T>, Abort> {
        if let Some(reason) = peer.absence() {
            return Err(self.keys.doom(reason));
        }
        let Some(target) = peer.target(&self.inner.participant) else {
            return Err(self.keys.doom(Reason::NotReady(peer.node)));
        };
        if self.time_left().is_zero() {
            return Err(self.keys.doom(Reason::Deadline));
        }
        self.inner.counting.add(|counts| counts.messages += 1);
        Ok(peer.client.execute(proto::ExecuteRequest {
            epoch: target.epoch,
            incarnation: target.incarnation,
            transaction: self.id.get(),
            accesses: pack(accesses),
        }))
    }

    /// The accesses by primary. Their locks are noted as free.
    fn steps(&self, wanted: &[Wanted]) -> Result<Steps, Abort> {
        let tables = &self.inner.participant.settings().tables;
        let mut steps = Steps::with_capacity(wanted.len());
        let mut locks = self.locks.borrow_mut();
        for (at, &Wanted { place, kind, .. }) in wanted.iter().enumerate() {
            if !tables.contains_key(&place.table) {
                return Err(self.keys.doom(Reason::NoTable(place.table)));
            }
            let (_, node) = self.inner.primary(place);
            let lock = (kind != Kind::Read).then_some(locks.len());
            if lock.is_some() {
                locks.push(Lock { node, place, state: LockState::Free });
            }
            steps.push(Step { node, wanted: at, lock });
        }
        steps.sort_by_key(|step| step.node);
        Ok(steps)
    }

    fn set_locks(&self, part: &[Step], state: impl Fn(usize) -> LockState) {
        let mut locks = self.locks.borrow_mut();
        for (at, step) in part.iter().enumerate() {
            if let Some(lock) = step.lock {
                locks[lock].state = state(at);
            }
        }
    }

    /// Waits until the deadline; none if it has passed.
    pub(super) async fn in_time<O>(&self, future: impl Future<Output = O>) -> Option<O> {
        let left = self.time_left();
        if left.is_zero() {
            return None;
        }
        erpc::timeout(left, future).await.ok()
    }

    /// The time until the deadline.
    pub(super) fn time_left(&self) -> Duration {
        let now = Endpoint::<T>::current().map_or(self.deadline, |endpoint| endpoint.now());
        if now < self.deadline { self.deadline - now } else { Duration::ZERO }
    }

    /// The answers in a reply, one per access. If it has none, the locks are known as far as the reply
    /// tells.
    fn reply(
        &self,
        part: &[Step],
        reply: Result<proto::ExecuteReply, CallError>,
    ) -> Result<SmallVec<[Answer; 1]>, Reason> {
        let node = part[0].node;
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                if matches!(
                    error,
                    CallError::NotExecuted(_) | CallError::NoServer(_) | CallError::Rejected(_)
                ) {
                    self.set_locks(part, |_| LockState::Free);
                }
                let peer = &self.inner.peers[&node];
                peer.failed(&self.inner.participant, &error);
                return Err(match error {
                    // Another attempt comes after a pause.
                    CallError::Rejected(RejectReason::QueueFull) => Reason::NotReady(node),
                    CallError::Status(_) | CallError::Rejected(_) | CallError::NoSuchMethod(_) => {
                        Reason::Refused { node, reason: error.to_string() }
                    }
                    _ => peer.absence().unwrap_or(Reason::Unavailable(node)),
                });
            }
        };
        if reply.verdict() == Verdict::Done {
            let answers = Outcomes::new(reply.outcomes).map(|outcome| outcome.map(Answer::from));
            // If it is not one answer per access, all of them may have locked.
            return match answers.collect::<Result<SmallVec<_>, _>>() {
                Ok(answers) if answers.len() == part.len() => Ok(answers),
                _ => Err(Reason::Refused { node, reason: "malformed outcomes".into() }),
            };
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

    /// Takes over the answer to an access. Notes the first failure.
    fn answered(
        &self,
        wanted: &mut Wanted,
        step: &Step,
        answer: Answer,
        failure: &mut Option<Reason>,
    ) {
        self.set_locks(&[*step], |_| state(&answer));
        let (partition, _) = self.inner.primary(wanted.place);
        if let Err(reason) = self.keys.take_over(wanted, partition, answer) {
            failure.get_or_insert(reason);
        }
    }
}

/// What an answer says of the lock, if the access locks.
fn state(answer: &Answer) -> LockState {
    if answer.read.is_ok() { LockState::Held } else { LockState::Free }
}

impl Wanted {
    fn access(&self) -> Access {
        Access { place: self.place, kind: self.kind }
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

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        let Outcome { verdict, bucket, version, value } = outcome;
        let read = match verdict {
            Verdict::Done => Ok((version, value.map(ValueBytes::Remote))),
            Verdict::Absent => Err(Failure::Absent(version)),
            Verdict::Present => Err(Failure::Present),
            Verdict::TableFull => Err(Failure::Full),
            _ => Err(Failure::Conflict),
        };
        Self { bucket, read }
    }
}
