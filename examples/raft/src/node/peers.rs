//! Messages to other nodes.
//!
//! Messages to a node wait in its outbox until the end of the turn. They travel as the answer to a request
//! of that node, if one waits, and otherwise as a request. So an acknowledgement of entries is the answer
//! to the call that has brought them.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use erpc::{CallOptions, Endpoint, Responder, RetryPolicy, Transport};

use super::inbox::{Inbox, Parcel, Rare};
use super::{Connect, Settings};
use crate::consensus::{Addresses, Consensus, NodeId};
use crate::proto::{self, LocalPeerClient};

/// Calls to a node at a time. Further messages wait in the outbox.
const CALLS: usize = 16;
/// Bytes in an outbox, after which messages are dropped.
const OUTBOX: usize = 4 << 20;
/// The first allocation of an outbox, in bytes: enough for a few short messages.
const FIRST: usize = 512;
/// The most memory that an empty outbox keeps, in bytes.
const KEPT: usize = 64 << 10;
/// Bytes in one call: below the limit of a session's messages.
const PARCEL: usize = 2 << 20;
/// Most nodes that are known, members included. Members may become more; other nodes are refused then.
pub(super) const KNOWN: usize = 64;

/// All other nodes that this one has messages for.
pub(super) struct Peers<T: Transport> {
    peers: BTreeMap<NodeId, Peer<T>>,
    connect: Connect<T>,
    inbox: Rc<Inbox>,
    id: NodeId,
    cluster: u64,
    incarnation: u64,
    deadline: Duration,
}

pub(super) struct Peer<T: Transport> {
    address: String,
    /// None if its address is not known. It is answered nevertheless.
    client: Option<LocalPeerClient<T>>,
    /// Messages that wait, one after another, each with its length.
    outbox: Vec<u8>,
    /// The ends of the messages in the outbox.
    ends: VecDeque<usize>,
    requests: VecDeque<Responder<proto::Letters>>,
    calls: usize,
    /// The random number of its start.
    incarnation: u64,
    pub(super) gets_bulk: bool,
}

/// A node that sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sender {
    /// It is the one that was met before, or is new.
    Known,
    /// It has restarted. A node without a disk has forgotten its votes when it comes back.
    Restarted,
    /// It is no member, and there is no place for it.
    TooMany,
}

impl<T: Transport> Peers<T> {
    pub(super) fn new(
        settings: &Settings,
        cluster: u64,
        connect: Connect<T>,
        inbox: Rc<Inbox>,
    ) -> Self {
        Self {
            peers: BTreeMap::new(),
            connect,
            inbox,
            id: settings.id,
            cluster,
            incarnation: settings.incarnation,
            deadline: settings.tick * settings.election_ticks,
        }
    }

    /// Connects to new nodes and forgets those that have left.
    pub(super) fn follow(&mut self, endpoint: &Endpoint<T>, addresses: &Addresses) {
        for (&node, address) in addresses.0.iter().filter(|(node, _)| **node != self.id) {
            let peer = self.peers.entry(node).or_insert_with(Peer::new);
            if peer.client.is_none() || peer.address != *address {
                let options =
                    CallOptions::new().deadline(self.deadline).retry(RetryPolicy::never());
                peer.client = (self.connect)(endpoint, address).map(|client| client.with(options));
                peer.address.clone_from(address);
            }
        }
        for (node, peer) in &mut self.peers {
            if !addresses.0.contains_key(node) {
                peer.client = None;
            }
        }
    }

    /// A node with this random number has sent something.
    pub(super) fn meets(&mut self, node: NodeId, incarnation: u64) -> Sender {
        let Some(peer) = self.entry(node) else { return Sender::TooMany };
        if peer.incarnation == 0 {
            peer.incarnation = incarnation;
        }
        if peer.incarnation == incarnation { Sender::Known } else { Sender::Restarted }
    }

    /// A request of a node waits for an answer.
    pub(super) fn asked(&mut self, node: NodeId, responder: Responder<proto::Letters>) {
        match self.entry(node) {
            Some(peer) => peer.requests.push_back(responder),
            None => responder.send(&proto::Letters::default()),
        }
    }

    fn entry(&mut self, node: NodeId) -> Option<&mut Peer<T>> {
        if !self.peers.contains_key(&node) && self.peers.len() >= KNOWN {
            return None;
        }
        Some(self.peers.entry(node).or_insert_with(Peer::new))
    }

    /// Puts a message into the outbox of a node. False if it is dropped.
    pub(super) fn push<C: Consensus>(&mut self, node: NodeId, message: &C::Message) -> bool {
        let Some(peer) = self.peers.get_mut(&node) else { return false };
        if peer.outbox.len() > OUTBOX {
            return false;
        }
        let begin = peer.outbox.len();
        if begin == 0 {
            peer.outbox.reserve(FIRST);
        }
        peer.outbox.extend_from_slice(&[0; 4]);
        C::encode(message, &mut peer.outbox);
        let len = (peer.outbox.len() - begin - 4) as u32;
        peer.outbox[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
        peer.ends.push_back(peer.outbox.len());
        true
    }

    pub(super) fn get(&mut self, node: NodeId) -> Option<&mut Peer<T>> {
        self.peers.get_mut(&node)
    }

    /// A client of a node, for the transfer of a snapshot.
    pub(super) fn client(&self, node: NodeId) -> Option<LocalPeerClient<T>> {
        self.peers.get(&node)?.client.clone()
    }

    /// A call to a node has ended.
    pub(super) fn answered(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.calls = peer.calls.saturating_sub(1);
        }
    }

    /// A call to a node has failed. What waits for it is old when it comes back.
    pub(super) fn failed(&mut self, node: NodeId) {
        self.answered(node);
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.clear();
        }
    }

    /// Sends what waits. `is_done`: nothing more will come for the requests of this turn, so they are
    /// answered even if there is nothing to say.
    pub(super) fn flush(&mut self, is_done: bool) {
        let (inbox, id, cluster) = (&self.inbox, self.id, self.cluster);
        let incarnation = self.incarnation;
        let mut has_strangers = false;
        for (&node, peer) in &mut self.peers {
            while let Some(len) = peer.parcel() {
                let letters = &peer.outbox[..len];
                if let Some(request) = peer.requests.pop_front() {
                    request.send_view(&proto::LettersView { letters, incarnation });
                } else {
                    let Some(client) = peer.client.as_ref().filter(|_| peer.calls < CALLS) else {
                        break;
                    };
                    peer.calls += 1;
                    let parcel =
                        proto::ParcelView { cluster, from: id, to: node, incarnation, letters };
                    let inbox = Rc::clone(inbox);
                    client.deliver_with(parcel, move |reply| received(&inbox, node, reply));
                }
                peer.sent(len);
            }
            if is_done {
                let empty = proto::Letters { incarnation, ..proto::Letters::default() };
                peer.requests.drain(..).for_each(|request| request.send(&empty));
            }
            if peer.client.is_none() && peer.requests.is_empty() {
                peer.clear();
            }
            has_strangers |= peer.is_forgettable();
        }
        if has_strangers {
            self.peers.retain(|_, peer| !peer.is_forgettable());
        }
    }
}

/// The answer to a call has come, or will not.
fn received(inbox: &Inbox, node: NodeId, reply: Result<proto::LettersView<'_>, erpc::CallError>) {
    match reply {
        Ok(proto::LettersView { letters, incarnation, .. }) => {
            arrived(inbox, node, Bytes::copy_from_slice(letters), incarnation);
            inbox.note(Rare::Answered(node));
        }
        Err(_) => inbox.note(Rare::Unreachable(node)),
    }
}

/// Messages of another node have come as the answer to a call.
pub(super) fn arrived(inbox: &Inbox, node: NodeId, letters: Bytes, incarnation: u64) {
    if !letters.is_empty() {
        let parcel = Parcel { from: node, letters, incarnation, request: None };
        // Fails if the node has stopped.
        inbox.put(|mail| mail.parcels.push(parcel)).unwrap_or_default();
    }
}

impl<T: Transport> Peer<T> {
    fn new() -> Self {
        Self {
            address: String::new(),
            client: None,
            outbox: Vec::new(),
            ends: VecDeque::new(),
            requests: VecDeque::new(),
            calls: 0,
            incarnation: 0,
            gets_bulk: false,
        }
    }

    /// Whether nothing is known of the node, and nothing waits for it.
    fn is_forgettable(&self) -> bool {
        self.client.is_none() && self.requests.is_empty() && self.incarnation == 0
    }

    /// The length of the messages for the next call; none if there are no messages.
    fn parcel(&self) -> Option<usize> {
        let fitting = self.ends.iter().take_while(|end| **end <= PARCEL).last();
        fitting.or(self.ends.front()).copied()
    }

    /// The first messages, of this length, are on their way.
    fn sent(&mut self, len: usize) {
        self.ends.retain(|end| *end > len);
        self.ends.iter_mut().for_each(|end| *end -= len);
        self.outbox.drain(..len);
        if self.outbox.is_empty() {
            self.outbox.shrink_to(KEPT);
        }
    }

    /// Drops the messages that wait.
    fn clear(&mut self) {
        self.ends.clear();
        self.outbox.clear();
        self.outbox.shrink_to(KEPT);
    }
}
