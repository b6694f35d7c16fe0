//! What has arrived for a node since its last turn.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use erpc::{Endpoint, Responder, Status, Transport};

use crate::consensus::NodeId;
use crate::proto;

/// Calls of each kind that wait for the next turn, at most.
const LIMIT: usize = 1 << 16;

/// The node's mail. Each endpoint has one.
#[derive(Default)]
pub struct Inbox {
    mail: RefCell<Mail>,
    is_woken: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Why there is no node.
    closed: RefCell<Option<String>>,
    is_open: Cell<bool>,
}

/// All that has arrived.
#[derive(Default)]
pub(super) struct Mail {
    pub(super) parcels: Vec<Parcel>,
    pub(super) writes: Vec<(Bytes, Responder<proto::WriteReply>)>,
    pub(super) reads: Vec<Read>,
    pub(super) rare: Vec<Rare>,
}

/// Messages of another node.
pub(super) struct Parcel {
    pub(super) from: NodeId,
    pub(super) letters: Bytes,
    /// The random number of the sender's start.
    pub(super) incarnation: u64,
    /// None if they were the answer to messages of this node.
    pub(super) request: Option<Envelope>,
}

/// Whom a request is for, and its answer.
pub(super) struct Envelope {
    pub(super) cluster: u64,
    pub(super) to: NodeId,
    pub(super) responder: Responder<proto::Letters>,
}

/// A key to read.
pub(super) struct Read {
    pub(super) key: Bytes,
    pub(super) responder: Responder<proto::GetReply>,
}

/// What arrives rarely.
pub(super) enum Rare {
    Open(Responder<proto::OpenReply>),
    Change(proto::ChangeRequest, Responder<proto::ChangeReply>),
    Transfer(NodeId, Responder<proto::TransferReply>),
    Status(Responder<proto::StatusReply>),
    Piece(proto::Piece, Responder<proto::PieceReply>),
    /// A call to a node has failed.
    Unreachable(NodeId),
    /// A call to a node has ended.
    Answered(NodeId),
    /// The transfer of a snapshot has ended.
    Sent(NodeId, bool),
}

impl Inbox {
    /// The inbox of an endpoint.
    pub fn of<T: Transport>(endpoint: &Endpoint<T>) -> Rc<Self> {
        endpoint.local(|_| Self::default())
    }

    pub(super) fn open(&self) {
        self.is_open.set(true);
        self.closed.replace(None);
    }

    /// Refuses everything from now on.
    pub(super) fn close(&self, why: &str) {
        self.is_open.set(false);
        self.closed.replace(Some(why.to_owned()));
        // Responders that are dropped fail their calls.
        drop(self.mail.take());
    }

    /// Lets the node take a turn.
    pub fn wake(&self) {
        self.is_woken.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(super) async fn wait(&self) {
        poll_fn(|cx| {
            if self.is_woken.replace(false) {
                return Poll::Ready(());
            }
            self.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    pub(super) fn take(&self, into: &mut Mail) {
        mem::swap(&mut *self.mail.borrow_mut(), into);
    }

    /// Puts something in. Fails if there is no node, or too much waits.
    pub(super) fn put(&self, put: impl FnOnce(&mut Mail)) -> Result<(), Status> {
        if !self.is_open.get() {
            let why = self.closed.borrow();
            let why = why.as_deref().unwrap_or("it has not started yet");
            return Err(Status::unavailable(format!("the node does not serve: {why}")));
        }
        let mut mail = self.mail.borrow_mut();
        if mail.parcels.len().max(mail.writes.len()).max(mail.reads.len()).max(mail.rare.len())
            >= LIMIT
        {
            return Err(Status::unavailable("too many calls wait for the node"));
        }
        put(&mut mail);
        drop(mail);
        self.wake();
        Ok(())
    }

    /// Puts in what only the node itself knows. Nothing happens if there is no node.
    pub(super) fn note(&self, rare: Rare) {
        if self.is_open.get() {
            self.mail.borrow_mut().rare.push(rare);
            self.wake();
        }
    }
}
