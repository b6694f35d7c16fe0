//! One member of the cluster.
//!
//! Handlers put what arrives into the [`Inbox`] of their endpoint. A task takes all of it at once, a
//! *turn*: it steps the consensus, proposes all writes together, asks once for all reads, and applies
//! what is committed. So the more arrives, the less a single call costs.
//!
//! * `inbox`, `service`: from packets to the node's task.
//! * `turn`: one turn.
//! * `peers`, `transfer`: messages and snapshots to other nodes.
//! * `waiting`: calls that wait to be committed.
//! * `reads`: calls that wait until they may read.

mod inbox;
mod peers;
mod reads;
mod service;
mod transfer;
mod turn;
mod waiting;

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::time::Duration;

use erpc::{CallError, CallOptions, Code, Endpoint, JoinHandle, RetryPolicy, Transport};
pub use inbox::Inbox;
use peers::Peers;
pub use service::Front;
use turn::Turns;

use crate::consensus::{Consensus, NodeId, Snapshot};
use crate::disk::{Disk, DiskError};
use crate::machine::{ImageError, Machine};
use crate::proto::{self, LocalPeerClient};

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its id, not 0.
    pub id: NodeId,
    /// The name of its cluster. Nodes refuse messages of other clusters.
    pub cluster: String,
    /// A unit of time of the consensus.
    pub tick: Duration,
    /// The least number of ticks without a message of the leader after which a node wants an election.
    pub election_ticks: u32,
    /// Whether the leader reads by its lease, without a round of messages, if the lease lasts. Then
    /// reads are correct only if no node's clock runs more than a tenth faster than another's. All
    /// nodes must have the same setting.
    pub lease: bool,
    /// 0 for a node with a disk. Without one: a random number of this start. Nodes that have met it refuse
    /// it if it comes back with another number, because it has forgotten its votes. Then it stops.
    pub incarnation: u64,
    /// Bytes of commands after which a snapshot is made.
    pub snapshot_every: u64,
    /// Entries that a snapshot leaves in memory, for nodes that are a little behind.
    pub keep: u64,
}

/// A clock that does not go back. Its time also passes while the machine sleeps.
pub type Clock = Rc<dyn Fn() -> Duration>;

/// Makes a client of the node at an address. None if the text is no address. The closure must not keep an
/// endpoint: it would keep itself.
pub type Connect<T> = Box<dyn Fn(&Endpoint<T>, &str) -> Option<LocalPeerClient<T>>>;

/// Hears of each proposal that was applied how long that took: from the proposal until this node has
/// applied it.
pub type Hear = Box<dyn FnMut(Duration)>;

/// The parts of a node.
pub struct Parts<C, D, T: Transport> {
    /// Settings.
    pub settings: Settings,
    /// The consensus.
    pub core: C,
    /// What the node starts from.
    pub snapshot: Snapshot,
    /// Its disk.
    pub disk: D,
    /// Its clock.
    pub clock: Clock,
    /// How it reaches others.
    pub connect: Connect<T>,
    /// Hears of what this node has proposed. Without it, nothing is measured.
    pub hear: Option<Hear>,
}

/// Why a node has stopped. It must not go on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// Its disk fails.
    Disk(DiskError),
    /// A snapshot cannot be read.
    Snapshot(ImageError),
    /// It has lost entries or votes that it has acknowledged.
    Lost {
        /// The commit index that the leader has proof of.
        commit: u64,
        /// The last index of the log here.
        last: u64,
    },
    /// Another node has met it before it restarted, and it keeps nothing on disk.
    Forgetful {
        /// The other node.
        by: NodeId,
        /// What the other node says.
        why: String,
    },
    /// The consensus has found a contradiction. Its text.
    Contradiction(String),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::Snapshot(error) => error.fmt(f),
            Self::Lost { commit, last } => write!(
                f,
                "this node has lost entries that it had acknowledged: its log ends with {last}, but the \
                 leader knows that it had {commit}. Remove it from the cluster, and add a new node with \
                 another id and an empty folder"
            ),
            Self::Forgetful { by, why } => write!(f, "node {by} refuses this node: {why}"),
            Self::Contradiction(text) => {
                write!(f, "the consensus has found a contradiction: {text}")
            }
        }
    }
}

impl Error for NodeError {}

impl From<DiskError> for NodeError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<ImageError> for NodeError {
    fn from(error: ImageError) -> Self {
        Self::Snapshot(error)
    }
}

/// Starts a node on an endpoint that serves [`Front`]. The task ends only if the node must stop. Then
/// the node refuses all calls.
///
/// # Errors
/// [`NodeError::Snapshot`] if the snapshot to start from cannot be read.
pub fn start<C, D, T>(
    endpoint: &Endpoint<T>,
    parts: Parts<C, D, T>,
) -> Result<JoinHandle<NodeError>, NodeError>
where
    C: Consensus + 'static,
    D: Disk + 'static,
    T: Transport,
{
    let inbox = Inbox::of(endpoint);
    let tick = parts.settings.tick;
    let refused = Rc::new(Refused::new(None));
    if parts.settings.incarnation != 0 {
        introduce(endpoint, &parts, &inbox, &refused)?;
    }
    let mut turns = Turns::new(endpoint, parts, Rc::clone(&inbox))?;
    inbox.open();
    let ticks = Rc::downgrade(&inbox);
    drop(endpoint.spawn(async move {
        while let Some(inbox) = ticks.upgrade() {
            inbox.wake();
            drop(inbox);
            erpc::sleep(tick).await;
        }
    }));
    Ok(endpoint.spawn(async move {
        loop {
            inbox.wait().await;
            let error = match refused.take() {
                Some(error) => error,
                // The library panics if messages contradict what it knows.
                None => match catch_unwind(AssertUnwindSafe(|| turns.turn())) {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error,
                    Err(panic) => NodeError::Contradiction(text_of(&*panic)),
                },
            };
            inbox.close(&error.to_string());
            return error;
        }
    }))
}

/// The code with which a node refuses one that has restarted without its data.
const FORGETFUL: Code = Code::DataLoss;

/// Why the node must stop, if another one refuses it. The node's task owns it.
type Refused = Cell<Option<NodeError>>;

/// Introduces a node without a disk to the others that its cluster begins with. If one has met it before,
/// it has restarted, and must not go on: the others drop what it says, so it would follow the leader
/// without a vote, and nobody would notice.
///
/// Each of the others is called until it answers, at most once per election time.
fn introduce<C: Consensus, D, T: Transport>(
    endpoint: &Endpoint<T>,
    parts: &Parts<C, D, T>,
    inbox: &Rc<Inbox>,
    refused: &Rc<Refused>,
) -> Result<(), NodeError> {
    let Settings { id, cluster, tick, election_ticks, incarnation, .. } = &parts.settings;
    let election = *tick * *election_ticks;
    if parts.snapshot.at.index == 0 {
        // It waits to be added, and knows nobody.
        return Ok(());
    }
    let machine = Machine::decode(&parts.snapshot.data)?;
    for (&to, address) in machine.addresses().0.iter().filter(|(other, _)| **other != *id) {
        let Some(client) = (parts.connect)(endpoint, address) else { continue };
        let options = CallOptions::new().deadline(election).retry(RetryPolicy::never());
        let parcel = proto::Parcel {
            cluster: hash(C::NAME, cluster),
            from: *id,
            to,
            incarnation: *incarnation,
            ..proto::Parcel::default()
        };
        let (inbox, refused) = (Rc::clone(inbox), Rc::downgrade(refused));
        drop(endpoint.spawn(async move {
            let why = refusal(client.with(options), parcel, election, (&inbox, &refused)).await;
            if let (Some(why), Some(refused)) = (why, refused.upgrade()) {
                refused.set(Some(NodeError::Forgetful { by: to, why }));
                inbox.wake();
            }
        }));
    }
    Ok(())
}

/// Why a node refuses this one, which it has met before. None if it has not, or if this node has ended.
async fn refusal<T: Transport>(
    client: LocalPeerClient<T>,
    parcel: proto::Parcel,
    pause: Duration,
    (inbox, refused): (&Inbox, &Weak<Refused>),
) -> Option<String> {
    while refused.strong_count() > 0 {
        match client.deliver(parcel.clone()).await {
            Ok(reply) => {
                // The other node may have had messages for this one.
                peers::arrived(inbox, parcel.to, reply.letters, reply.incarnation);
                return None;
            }
            // Other refusals, as that of another cluster, may end when an operator has seen them.
            Err(CallError::Status(status)) if status.code() == FORGETFUL => {
                return Some(status.message().to_owned());
            }
            Err(_) => erpc::sleep(pause).await,
        }
    }
    None
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// The number by which messages name a cluster with this [algorithm](Consensus::NAME).
#[must_use]
pub fn hash(algorithm: &str, cluster: &str) -> u64 {
    use std::hash::Hasher;
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(algorithm.as_bytes());
    hasher.write_u8(0);
    hasher.write(cluster.as_bytes());
    hasher.finish()
}
