//! One attempt, which a member coordinates.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use erpc::raw::Instant;
use erpc::{CallError, Incoming, Outgoing, RejectReason, Transport, Udp};

use super::Inner;
use crate::cluster::NodeId;
use crate::participant::{Kind, Place};
use crate::proto::{self, Outcome, Why};
use crate::table::{Bucket, Owner, Version};
use crate::transaction::accesses::{Change, Entry};
use crate::transaction::attempts::now_at;
use crate::transaction::bytes::ValueBytes;
use crate::transaction::keys::{Answer, Failure, Keys};
use crate::transaction::{Abort, Backend, Reason, TransactError, Wanted, sealed};
use crate::waiters::Waiters;

/// One attempt of a transaction that a member coordinates for this program.
pub struct Shipped<T: Transport = Udp> {
    inner: Rc<Inner<T>>,
    /// The time that the attempt may take.
    time: Duration,
    deadline: Instant,
    id: Cell<Option<Owner>>,
    keys: Keys,
    state: RefCell<State>,
    /// Steps that wait for the reply of another.
    waiting: Waiters,
}

/// A member that lives says itself that the time is over, and more than its client could. So the
/// client waits longer than the attempt may take.
const GRACE: Duration = Duration::from_millis(50);

struct Stream {
    steps: Outgoing<proto::Step>,
    replies: Incoming<proto::StepReply>,
}

/// Why a step has no reply.
enum Broken {
    /// The step has this many bytes, more than a message can have, and was not sent.
    TooLong(usize),
    /// The step was not sent: the stream was over, or there is no memory.
    Unsent(String),
    /// The stream has ended, and the member may have taken the step.
    Stream(String),
}

enum State {
    /// There is no stream yet.
    New,
    Idle(Stream),
    /// A step waits for its reply.
    Busy,
    Over,
}

impl<T: Transport> Shipped<T> {
    pub(super) fn new(inner: Rc<Inner<T>>, now: Instant, deadline: Instant) -> Self {
        let (id, keys, state) = (Cell::new(None), Keys::default(), RefCell::new(State::New));
        let (time, waiting) = (deadline - now, Waiters::default());
        Self { inner, time, deadline, id, keys, state, waiting }
    }

    /// Makes a step, but does not wait for a member that does not answer. None if it does not.
    async fn step_in_time(&self, step: proto::Step) -> Option<Result<proto::StepReply, Broken>> {
        let left = (self.deadline + GRACE) - now_at::<T>();
        erpc::timeout(left, self.step(step)).await.ok()
    }

    /// Sends a step and waits for its reply. Steps of one attempt wait for each other.
    async fn step(&self, mut step: proto::Step) -> Result<proto::StepReply, Broken> {
        let mut stream = loop {
            match self.state.replace(State::Busy) {
                State::New => {
                    let (steps, replies) = self.inner.client.run();
                    break Stream { steps, replies };
                }
                State::Idle(stream) => break stream,
                State::Busy => self.waiting.wait().await,
                State::Over => {
                    self.set(State::Over);
                    return Err(Broken::Unsent("the attempt is over".into()));
                }
            }
        };
        // If this future is dropped, or the stream breaks, the attempt is over.
        let mut end = StepEnd { attempt: self, next: State::Over };
        step.time_us = u64::try_from(self.time.as_micros()).unwrap_or(u64::MAX);
        let sent = stream.steps.send(step).await;
        // These concern only the step: the stream goes on, and the member has nothing to answer.
        match sent {
            Err(CallError::Rejected(RejectReason::TooLarge { size, .. })) => {
                return Err(Broken::TooLong(size));
            }
            Err(ref error @ CallError::Rejected(RejectReason::NoMemory(_))) => {
                return Err(Broken::Unsent(error.to_string()));
            }
            _ => {}
        }
        // A member that has ended the attempt takes no step any more, but has said why.
        let reply = match (stream.replies.next().await, sent) {
            (Ok(Some(reply)), Ok(())) => reply,
            (Ok(Some(reply)), Err(_)) if reply.ending.is_some() => reply,
            (_, Err(error)) => return Err(Broken::Unsent(error.to_string())),
            (Err(error), Ok(())) => return Err(Broken::Stream(error.to_string())),
            (Ok(None), Ok(())) => {
                return Err(Broken::Stream("the member ended the stream".into()));
            }
        };
        self.id.set(Owner::new(reply.transaction).or(self.id.get()));
        end.next = State::Idle(stream);
        Ok(reply)
    }

    fn set(&self, state: State) {
        self.state.replace(state);
        self.waiting.wake();
    }

    pub(super) async fn commit(&self) -> Result<(), TransactError> {
        if let Err(abort) = self.keys.close() {
            self.give_up();
            return Err(TransactError::Aborted(abort.into_reason()));
        }
        self.keys.end();
        if self.id.get().is_none() {
            // It has accessed nothing.
            return Ok(());
        }
        let changes = self.keys.with(|entries| entries.iter().filter_map(shipped).collect());
        let step = proto::Step { commit: true, changes, ..Default::default() };
        match self.step_in_time(step).await {
            Some(Ok(reply)) => outcome(reply.ending.unwrap_or_default(), self.id.get()),
            Some(Err(Broken::TooLong(len))) => Err(TransactError::Aborted(Reason::TooLong(len))),
            Some(Err(Broken::Unsent(error))) => {
                Err(TransactError::Aborted(Reason::Disconnected(error)))
            }
            // The member may have committed.
            Some(Err(Broken::Stream(_))) | None => {
                Err(TransactError::Unknown { transaction: self.id.get(), node: None })
            }
        }
    }

    /// Ends the stream, so that the member aborts.
    pub(super) fn give_up(&self) {
        self.keys.end();
        self.set(State::Over);
    }
}

/// Ends a step.
struct StepEnd<'a, T: Transport> {
    attempt: &'a Shipped<T>,
    next: State,
}

impl<T: Transport> Drop for StepEnd<'_, T> {
    fn drop(&mut self) {
        let next = std::mem::replace(&mut self.next, State::Over);
        // Without its stream, the member aborts an attempt that has ended meanwhile.
        self.attempt.set(if self.attempt.keys.is_over() { State::Over } else { next });
    }
}

impl<T: Transport> Backend for Shipped<T> {}

impl<T: Transport> sealed::Backend for Shipped<T> {
    fn id(&self) -> Option<Owner> {
        self.id.get()
    }

    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn longest(&self, table: u16) -> Option<usize> {
        self.inner.tables.get(&table).copied()
    }

    async fn execute(&self, wanted: &mut [Wanted]) -> Result<(), Abort> {
        let accesses = wanted.iter().map(|wanted| {
            let Wanted { place, kind, .. } = *wanted;
            proto::Access::from(&crate::participant::Access { place, kind })
        });
        let step = proto::Step { accesses: accesses.collect(), ..Default::default() };
        let reply = match self.step_in_time(step).await {
            Some(Ok(reply)) => reply,
            Some(Err(Broken::Unsent(error) | Broken::Stream(error))) => {
                return Err(self.keys.doom(Reason::Disconnected(error)));
            }
            Some(Err(Broken::TooLong(len))) => return Err(self.keys.doom(Reason::TooLong(len))),
            None => return Err(self.keys.doom(Reason::Deadline)),
        };
        if let Some(ending) = reply.ending {
            let reason = match outcome(ending, self.id.get()) {
                Err(TransactError::Aborted(reason)) => reason,
                _ => Reason::Disconnected("the member ended the attempt without a reason".into()),
            };
            return Err(self.keys.doom(reason));
        }
        if reply.found.len() != wanted.len() {
            let why = "the member did not answer all accesses";
            return Err(self.keys.doom(Reason::Disconnected(why.into())));
        }
        for (wanted, found) in wanted.iter_mut().zip(reply.found) {
            if let Err(reason) = self.keys.take_over(wanted, 0, answer(wanted.kind, found)) {
                return Err(self.keys.doom(reason));
            }
        }
        Ok(())
    }
}

/// The member checks versions and knows the buckets.
fn answer(kind: Kind, found: proto::Found) -> Answer {
    let value = found.present.then_some(ValueBytes::Remote(found.value));
    let read = match kind {
        Kind::Update if !found.locked => Err(Failure::Absent(Version::ZERO)),
        // The member has inserted an empty value, which the commit replaces.
        Kind::Insert => Ok((Version::ZERO, None)),
        Kind::Read | Kind::Update => Ok((Version::ZERO, value)),
    };
    Answer { bucket: Bucket::new(0), read }
}

/// What the member must be told of a key.
fn shipped(entry: &Entry) -> Option<proto::Change> {
    let (delete, value) = match &entry.change {
        Some(Change::Insert(value) | Change::Update(value)) => {
            (false, Bytes::copy_from_slice(value))
        }
        Some(Change::Delete) => (true, Bytes::new()),
        // Inserted and deleted again: the member has the insert.
        None if entry.is_locked && entry.value.is_none() => (true, Bytes::new()),
        None => return None,
    };
    Some(proto::Change { place: Some((&entry.place).into()), delete, value })
}

/// What an ending means.
fn outcome(ending: proto::Ending, transaction: Option<Owner>) -> Result<(), TransactError> {
    let node = ending.node.checked_sub(1).and_then(|node| u16::try_from(node).ok()).map(NodeId);
    let place = ending
        .place
        .and_then(|place| Some(Place { table: u16::try_from(place.table).ok()?, key: place.key }));
    match ending.outcome() {
        Outcome::Committed => return Ok(()),
        Outcome::Aborted => {}
        Outcome::Unknown | Outcome::Unspecified => {
            return Err(TransactError::Unknown { transaction, node });
        }
    }
    let len = usize::try_from(ending.len).unwrap_or(usize::MAX);
    let why = ending.why();
    let other =
        || Reason::Explicit(Arc::from(Box::<dyn Error + Send + Sync>::from(ending.text.clone())));
    let of_place = |reason: fn(Place) -> Reason| place.map_or_else(other, reason);
    let of_node = |reason: fn(NodeId) -> Reason| node.map_or_else(other, reason);
    let reason = match why {
        Why::Unspecified => other(),
        Why::Conflict => of_place(Reason::Conflict),
        Why::Changed => of_place(Reason::Changed),
        Why::Present => of_place(Reason::Present),
        Why::Full => of_place(Reason::Full),
        Why::NotLocked => of_place(Reason::NotLocked),
        Why::NoTable => of_place(|place| Reason::NoTable(place.table)),
        Why::ValueTooLong => place.map_or_else(other, |place| Reason::ValueTooLong { place, len }),
        Why::Unavailable => of_node(Reason::Unavailable),
        Why::NotReady => of_node(Reason::NotReady),
        Why::Deadline => Reason::Deadline,
        Why::TooLong => Reason::TooLong(len),
        Why::TooManyKeys => Reason::TooManyKeys(len),
        Why::Stopping => of_node(Reason::Stopping),
        Why::AnswerTooLong => Reason::AnswerTooLong(len),
        Why::Refused => match node {
            Some(node) => Reason::Refused { node, reason: ending.text.clone() },
            None => other(),
        },
    };
    Err(TransactError::Aborted(reason))
}

impl<T: Transport> fmt::Debug for Shipped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shipped").field("id", &self.id.get()).finish_non_exhaustive()
    }
}
