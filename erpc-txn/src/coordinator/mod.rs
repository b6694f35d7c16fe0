//! Transactions: what a node does to run them.
//!
//! A [`Node`] is one thread of a member. It coordinates transactions, which are tasks of the thread's
//! event loop: while one waits for messages, others run.
//!
//! ```text
//! transact ─> Transaction ─> execute ──────────> participants (own one: a function call)
//!    │            │ reads, locks, changes
//!    │            v
//!    └──────> commit: validate, append, back up, commit ──> participants
//!                 │ fails before the append            │ a node does not answer
//!                 v                                    v
//!             release: unlock                      goes on in the background: `Unknown`
//! ```
//!
//! * `transaction`: attempts. Their keys are in [`transaction`](crate::transaction).
//! * `execute`: reads and locks.
//! * `commit`: the phases of the commit. `plan` says which writes go where.
//! * `deliver`: one message to several nodes, until each has answered.
//! * `release`: the end of an aborted transaction.
//! * `replies`: the replies to messages that were sent together.
//! * `background`: work that goes on without the task that waited for it.
//! * `running`: the calls of `transact` that have not returned.
//! * `peers`, `space`, `sequence`: the other members, room in their logs, transactions that are
//!   active.
#![forbid(unsafe_code)]

mod background;
mod commit;
mod counts;
mod deliver;
mod execute;
mod freeing;
mod handle;
mod peers;
mod plan;
mod recorder;
mod release;
mod replies;
mod running;
mod sequence;
mod space;
mod transaction;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

pub use crate::transaction::{Abort, Batch, Limits, Reason, Results, Ticket, TransactError};
use background::Left;
use counts::Counting;
pub use counts::Counts;
use erpc::{Channel, Endpoint, Handle, Transport, Udp};
pub use handle::NodeHandle;
pub use peers::{JoinError, endpoint_config};
use peers::{Peer, Peers};
pub use recorder::Recorder;
use running::Running;
use sequence::Sequences;
use space::{Bounds, Space};
pub use transaction::{Attempt, Transaction};

use crate::cluster::NodeId;
use crate::log::{Coordinator, MAX_RECORD};
use crate::participant::{Participant, Place, Refusal};

/// One thread of a member: it coordinates transactions. Clones are the same thread.
///
/// Its transactions run on the endpoint of this thread, which also serves the member's
/// [`service`](crate::service::Member) as a rule.
pub struct Node<T: Transport = Udp> {
    inner: Rc<Inner<T>>,
}

struct Inner<T: Transport> {
    participant: Arc<Participant>,
    coordinator: Coordinator,
    peers: Peers<T>,
    /// The nodes other than this one that store this coordinator's records.
    log_nodes: Vec<NodeId>,
    /// Of this node's own log.
    own_space: Space,
    bounds: Bounds,
    sequences: Sequences,
    counting: Counting,
    /// The number of calls of `transact`.
    transacted: Cell<u64>,
    /// A task frees records, see `freeing`.
    is_freeing: Cell<bool>,
    /// No transaction begins any more.
    is_draining: Cell<bool>,
    /// Calls of `transact` that have not returned. Between two attempts, none is active.
    running: Running,
    /// For pauses between attempts.
    random: Cell<u64>,
    recorder: RefCell<Option<Recorder>>,
    handle: Handle<T>,
    left: Weak<Left>,
    /// The endpoint's own, to know it again.
    home: Weak<Home<T>>,
}

/// A value of which each endpoint has one: the node that was opened on it last.
struct Home<T: Transport>(RefCell<Option<Rc<Inner<T>>>>);

/// A coordinator was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The settings have fewer threads.
    Thread(u16),
    /// A `Node` of this thread was opened before. The ids of its transactions must not come again.
    Opened(u16),
    /// There is no channel to this member.
    NoChannel(NodeId),
}

impl<T: Transport> Node<T> {
    /// Thread `thread` of the member that `participant` is. `channels` are its channels to the other
    /// members, all of the endpoint `on`. It begins to introduce the member to them.
    ///
    /// # Errors
    ///
    /// If there is no such thread, it was opened before, or a channel is missing.
    pub fn open(
        on: &Endpoint<T>,
        participant: Arc<Participant>,
        thread: u16,
        channels: impl IntoIterator<Item = (NodeId, Channel<T>)>,
    ) -> Result<Self, OpenError> {
        let settings = participant.settings();
        if thread >= settings.threads {
            return Err(OpenError::Thread(thread));
        }
        let me = participant.node();
        let mut channels: BTreeMap<_, _> = channels.into_iter().collect();
        let placement = participant.placement();
        let mut peers = Peers::new();
        for &node in placement.nodes().iter().filter(|&&node| node != me) {
            let channel = channels.remove(&node).ok_or(OpenError::NoChannel(node))?;
            peers.insert(node, Rc::new(Peer::new(node, channel)));
        }
        let log_nodes = placement.log_replicas(me).iter().copied().filter(|&of| of != me).collect();
        if !participant.open_thread(thread) {
            return Err(OpenError::Opened(thread));
        }
        let bounds =
            Bounds { bytes: settings.log_bytes.min(MAX_RECORD), records: settings.log_records };
        let coordinator = Coordinator { node: me.0, thread };
        let random = u64::from(me.0) << 32 | u64::from(thread) << 16 | 1;
        let left = Rc::new(Left::default());
        let inner = Rc::new(Inner {
            coordinator,
            peers,
            log_nodes,
            own_space: Space::default(),
            bounds,
            sequences: Sequences::new(),
            counting: Counting::default(),
            transacted: Cell::new(0),
            is_freeing: Cell::new(false),
            is_draining: Cell::new(false),
            running: Running::default(),
            random: Cell::new(random),
            recorder: RefCell::default(),
            handle: on.handle(),
            left: Rc::downgrade(&left),
            home: Rc::downgrade(&home(on)),
            participant,
        });
        home(on).0.replace(Some(Rc::clone(&inner)));
        on.spawn(left.run());
        for peer in inner.peers.values() {
            if let Some(meeting) = peer.meeting(&inner.participant) {
                on.spawn(meeting);
            }
        }
        Ok(Self { inner })
    }

    /// The node that was opened on an endpoint, the last one if there were several.
    #[must_use]
    pub fn on(endpoint: &Endpoint<T>) -> Option<Self> {
        let inner = home(endpoint).0.borrow().clone()?;
        Some(Self { inner })
    }

    /// The member.
    #[must_use]
    pub fn participant(&self) -> &Arc<Participant> {
        &self.inner.participant
    }

    /// Starts to load keys into the processor's cache, before the transactions that read them: the
    /// first 64 of which this node is the primary. It ignores all others.
    ///
    /// If the tables are larger than the caches, a read of a local key waits for two cache lines, one
    /// after the other. This is half the time of a transaction with one read. A program that knows the
    /// keys of several transactions before the first of them begins, for example in a [burst
    /// hook](erpc::Burst), can let their cache misses overlap.
    ///
    /// ```
    /// # use erpc_txn::{codec::TypedTable, coordinator::Node};
    /// const BALANCES: TypedTable<u64, u64> = TypedTable::new(1);
    ///
    /// async fn sum(node: &Node, accounts: &[u64]) -> Result<u64, Box<dyn std::error::Error>> {
    ///     node.prefetch(&accounts.iter().map(|&account| BALANCES.place(account)).collect::<Vec<_>>());
    ///     let mut sum = 0;
    ///     for &account in accounts {
    ///         let balance = node.transact(async |tx| tx.read(BALANCES, account).await).await?;
    ///         sum += balance.unwrap_or(0);
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub fn prefetch(&self, places: &[Place]) {
        self.inner.participant.prefetch_reads(places);
    }

    /// What this thread has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner.counting.get()
    }

    /// The number of transactions that have not ended. After its outcome was returned, a transaction
    /// ends when its locks are released.
    #[must_use]
    pub fn active(&self) -> usize {
        self.inner.sequences.active()
    }

    /// The number of records of this coordinator in the logs of all nodes, as far as it knows.
    #[must_use]
    pub fn records(&self) -> usize {
        let others = self.inner.peers.values().map(|peer| peer.space.records());
        self.inner.own_space.records() + others.sum::<usize>()
    }

    /// The members that this thread cannot reach: they have not met this one, or a call failed, and no
    /// introduction has succeeded since.
    #[must_use]
    pub fn unreachable(&self) -> Vec<NodeId> {
        let participant = &self.inner.participant;
        let is_out_of_reach =
            |peer: &&Rc<Peer<T>>| peer.is_down() || !participant.has_met(peer.node);
        self.inner.peers.values().filter(is_out_of_reach).map(|peer| peer.node).collect()
    }

    /// Records all further attempts, for the checker of serializability.
    pub fn record(&self, recorder: &Recorder) {
        self.inner.recorder.replace(Some(recorder.clone()));
    }

    /// Waits until all members have accepted this one, so that it serves.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if a member refuses this one, or is another than expected. It will not change.
    pub async fn ready(&self) -> Result<(), JoinError> {
        let (mut pause, longest) = peers::PAUSES;
        while !self.inner.participant.is_active() {
            if let Some(error) = self.inner.peers.values().find_map(|peer| peer.refusal()) {
                return Err(error);
            }
            erpc::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
        Ok(())
    }

    /// Begins no transaction any more, also none of programs outside of the cluster, and waits until
    /// those that have begun have ended. A transaction that waits for a node which does not answer may
    /// never end, so limit the wait. The node goes on to serve the others, until its endpoint ends.
    pub async fn drain(&self) {
        self.inner.is_draining.set(true);
        self.inner.running.idle().await;
        self.inner.sequences.idle().await;
    }

    /// Why no transaction may begin now.
    pub(crate) fn stopping(&self) -> Option<Reason> {
        self.inner.is_draining.get().then(|| Reason::Stopping(self.inner.me()))
    }
}

impl<T: Transport> Inner<T> {
    /// The node's endpoint, if its loop runs now.
    fn endpoint(&self) -> Option<Endpoint<T>> {
        Endpoint::current().filter(|running| Rc::as_ptr(&home(running)) == self.home.as_ptr())
    }

    fn me(&self) -> NodeId {
        self.participant.node()
    }

    /// Why this node's own participant refuses a request.
    fn refused(&self, refusal: Refusal) -> Reason {
        let node = self.me();
        match refusal {
            Refusal::NotActive => Reason::NotReady(node),
            _ => Reason::Refused { node, reason: refusal.to_string() },
        }
    }

    /// The partition of a key and its primary.
    fn primary(&self, place: Place) -> (u16, NodeId) {
        let placement = self.participant.placement();
        let partition = placement.partition_of(place.key);
        let primary = placement.replicas(partition).first().copied();
        (partition, primary.expect("each partition has a primary"))
    }

    /// A random number below `bound`, which is not 0.
    fn random(&self, bound: u64) -> u64 {
        crate::random::below(&self.random, bound)
    }
}

fn home<T: Transport>(endpoint: &Endpoint<T>) -> Rc<Home<T>> {
    endpoint.local(|_| Home(RefCell::default()))
}

impl<T: Transport> Clone for Node<T> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

impl<T: Transport> fmt::Debug for Node<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("coordinator", &self.inner.coordinator)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(thread) => {
                write!(f, "thread {thread}; configure more threads, which are numbered from 0")
            }
            Self::Opened(thread) => {
                write!(f, "thread {thread} was opened before; give each endpoint another thread")
            }
            Self::NoChannel(node) => write!(f, "there is no channel to node {node}"),
        }
    }
}

impl std::error::Error for OpenError {}
