//! Messages that must arrive: each is sent until the node has answered.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use erpc::{Call, CallError, RejectReason, Transport, join_all};
use smallvec::SmallVec;

use super::Inner;
use super::peers::{PAUSES, Peer};
use super::replies::Replies;
use super::space::Ended;
use crate::cluster::NodeId;
use crate::lists::pack;
use crate::log::Coordinator;
use crate::mutants::mutant;
use crate::participant::{Place, Refusal, Role};
use crate::proto::{self, Verdict};
use crate::table::Owner;

/// What is told to a node.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Append(Bytes),
    Commit(Role, Bytes),
    Unlock {
        transaction: Owner,
        places: Places,
        bury: bool,
    },
    /// Frees the record of an aborted transaction.
    Discard {
        sequence: u64,
        len: usize,
    },
}

/// Keys, few as a rule.
pub(super) type Places = SmallVec<[Place; 2]>;

/// Messages to nodes, few as a rule.
pub(super) type Messages = SmallVec<[(NodeId, Message); 3]>;

/// The most keys in a message that unlocks. A transaction may lock more than a message can hold.
const MAX_UNLOCKED: usize = 1000;

/// What unlocks these keys' buckets at a node.
pub(super) fn unlock(
    node: NodeId,
    transaction: Owner,
    places: &[Place],
    bury: bool,
) -> impl Iterator<Item = (NodeId, Message)> {
    places.chunks(MAX_UNLOCKED).map(move |places| {
        (node, Message::Unlock { transaction, places: SmallVec::from_slice(places), bury })
    })
}

/// What became of a message.
#[derive(Debug)]
enum Delivery {
    Done,
    Failed(Failure),
}

/// Why a node did not do what it was told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It has lost its memory, or has another configuration.
    Lost,
    Refused(String),
}

/// What the work for a transaction tells the task that waits for it.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// A node that did not answer a message.
    node: Cell<Option<NodeId>>,
    /// The transaction is committed, whatever happens now.
    is_committed: Cell<bool>,
}

impl Doubt {
    pub(super) fn node(&self) -> Option<NodeId> {
        self.node.get()
    }

    pub(super) fn about(&self, node: NodeId) {
        self.node.set(Some(node));
    }

    pub(super) fn commit(&self) {
        self.is_committed.set(true);
    }

    pub(super) fn is_committed(&self) -> bool {
        self.is_committed.get()
    }
}

/// A message on its way, and the ended transactions that it names.
struct Sent<T: Transport> {
    call: Call<proto::Reply, T>,
    ended: Ended,
}

impl<T: Transport> Inner<T> {
    /// Sends all messages at once, and each again until its node has answered.
    ///
    /// # Errors
    ///
    /// The first node that is lost, or else the first that refuses.
    pub(super) async fn deliver(
        self: &Rc<Self>,
        messages: &[(NodeId, Message)],
        doubt: &Rc<Doubt>,
    ) -> Result<(), (NodeId, Failure)> {
        let mut replies = Replies::new();
        let mut again: SmallVec<[_; 3]> = SmallVec::new();
        for (node, message) in messages {
            let Some(peer) = self.peers.get(node) else { continue };
            match self.send(peer, message) {
                Some(Sent { call, ended }) => replies.push((peer, message, ended), call),
                None => again.push((peer, message)),
            }
        }
        let mut failures = Failures(None);
        for (node, message) in messages.iter().filter(|(node, _)| *node == self.me()) {
            failures.note(*node, self.do_here(message));
        }
        again.iter().for_each(|(peer, _)| doubt.about(peer.node));
        replies.arrive().await;
        for ((peer, message, ended), reply) in replies.take() {
            let is_busy = is_busy(&reply);
            match self.received(peer, message, ended, reply) {
                Some(delivery) => failures.note(peer.node, delivery),
                None => {
                    if !is_busy {
                        doubt.about(peer.node);
                    }
                    again.push((peer, message));
                }
            }
        }
        if !again.is_empty() {
            let again = again.into_iter().map(|(peer, message)| {
                Box::pin(async { (peer.node, self.deliver_again(peer, message, doubt).await) })
            });
            for (node, delivery) in join_all(again).await {
                failures.note(node, delivery);
            }
        }
        failures.0.map_or(Ok(()), Err)
    }

    /// Repeats a message until the node answers.
    async fn deliver_again(
        self: &Rc<Self>,
        peer: &Rc<Peer<T>>,
        message: &Message,
        doubt: &Rc<Doubt>,
    ) -> Delivery {
        let (mut pause, longest) = PAUSES;
        loop {
            erpc::sleep(pause).await;
            pause = (pause * 2).min(longest);
            let Some(sent) = self.send(peer, message) else { continue };
            let reply = sent.call.await;
            let is_busy = is_busy(&reply);
            if let Some(delivery) = self.received(peer, message, sent.ended, reply) {
                return delivery;
            }
            if !is_busy {
                doubt.about(peer.node);
            }
        }
    }

    /// Sends a message. None if the members have not met.
    fn send(&self, peer: &Rc<Peer<T>>, message: &Message) -> Option<Sent<T>> {
        let target = peer.target(&self.participant)?;
        let (epoch, incarnation) = (target.epoch, target.incarnation);
        self.counting.add(|counts| counts.messages += 1);
        let client = &peer.client;
        let mut ended = Ended::new();
        let call = match message {
            Message::Append(record) => {
                ended = peer.space.take_ended();
                peer.was_told.set(true);
                let mut list = Vec::with_capacity(8 * ended.len());
                for (sequence, _) in &ended {
                    list.extend_from_slice(&sequence.to_le_bytes());
                }
                let floor = self.sequences.floor();
                let (record, ended) = (record.clone(), list.into());
                client.append(proto::AppendRequest { incarnation, record, floor, ended })
            }
            Message::Commit(role, record) => {
                let request = proto::CommitRequest { incarnation, record: record.clone() };
                match role {
                    Role::Backup => client.commit_backup(request),
                    Role::Primary => client.commit_primary(request),
                }
            }
            Message::Unlock { transaction, places, bury } => client.unlock(proto::UnlockRequest {
                epoch,
                incarnation,
                transaction: transaction.get(),
                keys: pack(places),
                bury: *bury,
            }),
            Message::Discard { sequence, .. } => client.finish(proto::FinishRequest {
                epoch,
                incarnation,
                node: self.coordinator.node.into(),
                thread: self.coordinator.thread.into(),
                floor: self.sequences.floor(),
                ended: vec![*sequence],
                bury: true,
            }),
        };
        Some(Sent { call, ended })
    }

    /// What a reply means; none if the message must be sent again.
    fn received(
        self: &Rc<Self>,
        peer: &Rc<Peer<T>>,
        message: &Message,
        ended: Ended,
        reply: Result<proto::Reply, CallError>,
    ) -> Option<Delivery> {
        let delivery = match reply {
            Ok(reply) => match reply.verdict() {
                Verdict::Done => Some(Delivery::Done),
                Verdict::Restarted | Verdict::Epoch => {
                    peer.lose();
                    Some(Delivery::Failed(Failure::Lost))
                }
                Verdict::NotActive => None,
                _ => Some(Delivery::Failed(Failure::Refused(reply.reason))),
            },
            Err(_) if mutant!(FailureIsDone) => Some(Delivery::Done),
            // Another try would fail in the same way. Later messages are not longer than the record.
            Err(error @ CallError::Rejected(RejectReason::TooLarge { .. }))
                if matches!(message, Message::Append(_)) =>
            {
                Some(Delivery::Failed(Failure::Refused(error.to_string())))
            }
            Err(error) => {
                peer.failed(&self.participant, &error);
                None
            }
        };
        if matches!(delivery, Some(Delivery::Done)) {
            peer.space.give_back(&ended);
            match message {
                &Message::Discard { sequence, len } => {
                    peer.space.give_back(&[(sequence, len)]);
                    self.has_buried(peer, sequence);
                }
                Message::Unlock { transaction, bury: true, .. } => {
                    self.has_buried(peer, Coordinator::of(*transaction).1);
                }
                _ => {}
            }
        } else if !ended.is_empty() {
            peer.space.put_back(ended);
        }
        delivery
    }

    /// The node keeps that a transaction has ended, until the floor has passed it.
    fn has_buried(self: &Rc<Self>, peer: &Peer<T>, sequence: u64) {
        peer.buried.set(peer.buried.get().max(Some(sequence)));
        self.start_freeing();
    }

    /// Does here what a message asks for.
    fn do_here(&self, message: &Message) -> Delivery {
        let participant = &self.participant;
        let target = participant.target();
        let done = match message {
            Message::Append(record) => {
                participant.append(target, record, self.sequences.floor(), []).map(drop)
            }
            Message::Commit(role, record) => participant.commit(target, *role, record).map(drop),
            Message::Unlock { transaction, places, bury } => {
                participant.unlock(target, *transaction, places, *bury).map(drop)
            }
            &Message::Discard { sequence, len } => {
                self.free_here(sequence, len);
                Ok(())
            }
        };
        match done {
            Ok(()) => Delivery::Done,
            Err(Refusal::Epoch(_)) => Delivery::Failed(Failure::Lost),
            Err(refusal) => Delivery::Failed(Failure::Refused(refusal.to_string())),
        }
    }

    /// Frees a record in this node's own log.
    pub(super) fn free_here(&self, sequence: u64, len: usize) {
        let (target, floor) = (self.participant.target(), self.sequences.floor());
        let freed = self.participant.finish(target, self.coordinator, floor, [sequence], false);
        debug_assert_eq!(freed, Ok(()));
        self.own_space.give_back(&[(sequence, len)]);
    }
}

/// Whether so many calls wait for the session that this one was not taken. It says nothing of the node.
pub(super) fn is_busy<M>(reply: &Result<M, CallError>) -> bool {
    matches!(reply, Err(CallError::Rejected(RejectReason::QueueFull)))
}

/// The failure that says most of those so far.
struct Failures(Option<(NodeId, Failure)>);

impl Failures {
    fn note(&mut self, node: NodeId, delivery: Delivery) {
        if let Delivery::Failed(failure) = delivery {
            let is_more = match &self.0 {
                None => true,
                Some((_, before)) => *before != Failure::Lost && failure == Failure::Lost,
            };
            if is_more {
                self.0 = Some((node, failure));
            }
        }
    }
}

/// Waits for `work`, but no longer than it is certain: until a node does not answer, or the time is
/// over. Then the work goes on in the background, and this returns none. The work is in a box, because
/// it is large and would be moved several times.
pub(super) async fn in_foreground<T: Transport, O: 'static>(
    inner: &Rc<Inner<T>>,
    work: Pin<Box<impl Future<Output = O> + 'static>>,
    doubt: &Rc<Doubt>,
    within: Duration,
) -> Option<O> {
    let mut work = Background { inner: Rc::clone(inner), work: Some(work) };
    let mut limit = pin!(erpc::sleep(within));
    poll_fn(|cx| {
        let Some(running) = &mut work.work else { return Poll::Ready(None) };
        if let Poll::Ready(output) = running.as_mut().poll(cx) {
            work.work = None;
            return Poll::Ready(Some(output));
        }
        let is_over = doubt.node().is_some() || limit.as_mut().poll(cx).is_ready();
        if is_over { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Work that must not end before its time. If the task that waits for it is dropped, the work becomes
/// a task.
struct Background<T: Transport, F: Future + 'static> {
    inner: Rc<Inner<T>>,
    work: Option<Pin<Box<F>>>,
}

impl<T: Transport, F: Future + 'static> Drop for Background<T, F> {
    fn drop(&mut self) {
        if mutant!(WorkDropped) {
            return;
        }
        if let Some(work) = self.work.take() {
            self.inner.in_background(async move {
                work.await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_keys_are_unlocked_by_several_messages() {
        let places: Vec<_> = (0..2500).map(|key| Place { table: 1, key }).collect();
        let transaction = Owner::new(1).expect("not 0");
        let mut unlocked = Vec::new();
        for (node, message) in unlock(NodeId(3), transaction, &places, true) {
            let Message::Unlock { places, bury: true, .. } = message else { panic!("{message:?}") };
            assert!(node == NodeId(3) && places.len() <= MAX_UNLOCKED);
            unlocked.extend(places);
        }
        assert_eq!(unlocked, places);
        assert_eq!(unlock(NodeId(3), transaction, &[], true).count(), 0);
    }
}
