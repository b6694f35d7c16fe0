//! Messages that must arrive: each is sent until the node has answered.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use erpc::{Call, CallError, RejectReason, Transport, join_all};

use super::Inner;
use super::peers::{PAUSES, Peer};
use crate::cluster::NodeId;
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
        places: Vec<Place>,
        bury: bool,
    },
    /// Frees the record of an aborted transaction.
    Discard {
        sequence: u64,
        len: usize,
    },
}

/// What became of a message.
#[derive(Debug)]
pub(super) enum Delivery {
    Done,
    /// The node has lost its memory, or has another configuration.
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
    ended: Vec<(u64, usize)>,
}

impl<T: Transport> Inner<T> {
    /// Sends all messages at once, and each again until its node has answered. Returns what became
    /// of them, in their order.
    pub(super) async fn deliver(
        self: &Rc<Self>,
        messages: &[(NodeId, Message)],
        doubt: &Rc<Doubt>,
    ) -> Vec<Delivery> {
        let (mut calls, mut sent, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (node, message)) in messages.iter().enumerate() {
            let Some(peer) = self.peers.get(node) else { continue };
            match self.send(peer, message) {
                Some(Sent { call, ended }) => {
                    calls.push(call);
                    sent.push((at, ended));
                }
                None => again.push(at),
            }
        }
        // The node's own part, while the others work.
        let mut deliveries: Vec<Option<Delivery>> = messages
            .iter()
            .map(|(node, message)| (*node == self.me()).then(|| self.do_here(message)))
            .collect();
        for ((at, ended), reply) in sent.into_iter().zip(join_all(calls).await) {
            let (node, message) = &messages[at];
            deliveries[at] = self.received(&self.peers[node], message, ended, reply);
            if deliveries[at].is_none() {
                again.push(at);
            }
        }
        if !again.is_empty() {
            let task = |at: &usize| {
                let (node, message) = &messages[*at];
                doubt.about(*node);
                Box::pin(self.deliver_again(&self.peers[node], message))
            };
            let done = join_all(again.iter().map(task).collect::<Vec<_>>()).await;
            for (at, delivery) in again.into_iter().zip(done) {
                deliveries[at] = Some(delivery);
            }
        }
        deliveries.into_iter().flatten().collect()
    }

    /// Repeats a message until the node answers.
    async fn deliver_again(self: &Rc<Self>, peer: &Rc<Peer<T>>, message: &Message) -> Delivery {
        let (mut pause, longest) = PAUSES;
        loop {
            erpc::sleep(pause).await;
            pause = (pause * 2).min(longest);
            let Some(sent) = self.send(peer, message) else { continue };
            let reply = sent.call.await;
            if let Some(delivery) = self.received(peer, message, sent.ended, reply) {
                return delivery;
            }
        }
    }

    /// Sends a message. None if the members have not met.
    fn send(&self, peer: &Rc<Peer<T>>, message: &Message) -> Option<Sent<T>> {
        let target = peer.target(&self.participant)?;
        let (epoch, incarnation) = (target.epoch, target.incarnation);
        self.counting.add(|counts| counts.messages += 1);
        let client = &peer.client;
        let mut ended = Vec::new();
        let call = match message {
            Message::Append(record) => {
                ended = peer.space.take_ended();
                peer.was_told.set(true);
                let list: Vec<u8> =
                    ended.iter().flat_map(|(sequence, _)| sequence.to_le_bytes()).collect();
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
                keys: places.iter().map(proto::Place::from).collect(),
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
        ended: Vec<(u64, usize)>,
        reply: Result<proto::Reply, CallError>,
    ) -> Option<Delivery> {
        let delivery = match reply {
            Ok(reply) => match reply.verdict() {
                Verdict::Done => Some(Delivery::Done),
                Verdict::Restarted | Verdict::Epoch => {
                    peer.lose();
                    Some(Delivery::Lost)
                }
                Verdict::NotActive => None,
                _ => Some(Delivery::Refused(reply.reason)),
            },
            Err(_) if mutant!(FailureIsDone) => Some(Delivery::Done),
            // Another try would fail in the same way. Later messages are not longer than the record.
            Err(error @ CallError::Rejected(RejectReason::TooLarge { .. }))
                if matches!(message, Message::Append(_)) =>
            {
                Some(Delivery::Refused(error.to_string()))
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
            Err(Refusal::Epoch(_)) => Delivery::Lost,
            Err(refusal) => Delivery::Refused(refusal.to_string()),
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

/// Waits for `work`, but no longer than it is certain: until a node does not answer, or the time is
/// over. Then the work goes on in the background, and this returns none.
pub(super) async fn in_foreground<T: Transport, O: 'static>(
    inner: &Rc<Inner<T>>,
    work: impl Future<Output = O> + 'static,
    doubt: &Rc<Doubt>,
    within: Duration,
) -> Option<O> {
    let mut work = Background { inner: Rc::clone(inner), work: Some(Box::pin(work)) };
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
        // Without a loop that runs, the node is gone.
        if let (Some(work), Some(endpoint)) = (self.work.take(), self.inner.endpoint()) {
            endpoint.spawn(async move {
                work.await;
            });
        }
    }
}

impl From<&Place> for proto::Place {
    fn from(place: &Place) -> Self {
        Self { table: place.table.into(), key: place.key }
    }
}
