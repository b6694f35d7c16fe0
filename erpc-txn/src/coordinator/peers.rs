//! The other members, as one coordinator sees them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use erpc::{CallError, Cause, Channel, ConnectError, EndpointConfig, NoServer, Transport};

use super::space::{MAX_TOLD, Space};
use crate::cluster::NodeId;
use crate::participant::{Participant, Target};
use crate::proto::{self, LocalParticipantClient, Verdict};
use crate::service;
use crate::transaction::Reason;
use crate::transaction::attempts::now_at;

/// Whether the other side speaks another version of erpc's protocol.
fn is_other_version(why: &NoServer) -> bool {
    matches!(why.cause(), Cause::Connect(ConnectError::Version(..)))
}

/// A member to which the coordinator has a session.
pub(super) struct Peer<T: Transport> {
    pub(super) node: NodeId,
    pub(super) client: LocalParticipantClient<T>,
    channel: Channel<T>,
    /// The longest request in bytes that it accepts, once this coordinator knows.
    max_request: Cell<Option<u32>>,
    presence: Cell<Presence>,
    /// A task introduces this member to it.
    is_meeting: Cell<bool>,
    /// The incarnation, once they have met.
    incarnation: Cell<Option<u32>>,
    /// Of the log that the member has of this coordinator.
    pub(super) space: Space,
    /// A record has told the member of ended transactions since this was last looked at.
    pub(super) was_told: Cell<bool>,
    /// Why the members do not belong together, since the last introduction.
    refusal: RefCell<Option<String>>,
    /// The last transaction that the member has buried, until it knows that the floor has passed it.
    pub(super) buried: Cell<Option<u64>>,
}

/// A member cannot join the others: they are of different clusters, have different configurations, run
/// different versions, or one of them has restarted and lost its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinError {
    /// The member that is not the expected one, or refuses.
    pub node: NodeId,
    /// Why, for people.
    pub why: String,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at the address of node {}: {}", self.node, self.why)
    }
}

impl Error for JoinError {}

/// How to open the endpoint of a member: with as many slots as a session can have, because one session
/// carries the messages of all transactions to a node, and so that a node is known to be unavailable
/// within a second after it died.
#[must_use]
pub fn endpoint_config() -> EndpointConfig {
    EndpointConfig::new()
        .slots(64)
        .queue_limit(1 << 16)
        .ping_interval(Duration::from_millis(100))
        .liveness_timeout(Duration::from_millis(400))
        .connect_timeout(Duration::from_millis(200))
}

/// Whether a member answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Up,
    /// A call failed, perhaps only because its session had ended meanwhile. The members are about to
    /// introduce themselves again.
    Suspect,
    /// No introduction has succeeded for [`SUSPICION`], or the member is lost.
    Down,
}

/// The other members by node.
pub(super) type Peers<T> = BTreeMap<NodeId, Rc<Peer<T>>>;

/// Pauses between attempts to reach a member: the first and the longest.
pub(super) const PAUSES: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(200));

/// The longest part of a message that is not the record: the ended transactions, with room for
/// the other fields.
const BESIDE_RECORD: usize = 8 * MAX_TOLD + 64;

/// A member that cannot be reached for this time is down. Until then, transactions that need it wait:
/// a session that has ended opens again after a pause.
const SUSPICION: Duration = Duration::from_millis(300);

impl<T: Transport> Peer<T> {
    pub(super) fn new(node: NodeId, channel: Channel<T>) -> Self {
        Self {
            node,
            client: LocalParticipantClient::new(channel.clone()),
            channel,
            max_request: Cell::new(None),
            presence: Cell::new(Presence::Up),
            is_meeting: Cell::new(false),
            incarnation: Cell::new(None),
            space: Space::default(),
            was_told: Cell::new(false),
            refusal: RefCell::new(None),
            buried: Cell::new(None),
        }
    }

    /// How to address requests to it; none if the members have not met.
    pub(super) fn target(&self, participant: &Participant) -> Option<Target> {
        let epoch = participant.epoch();
        if let Some(incarnation) = self.incarnation.get() {
            return Some(Target { epoch, incarnation });
        }
        if participant.has_met(self.node) {
            self.incarnation.set(participant.incarnation_of(self.node));
        }
        self.incarnation.get().map(|incarnation| Target { epoch, incarnation })
    }

    /// Whether the last call failed, and no introduction has succeeded since.
    pub(super) fn is_down(&self) -> bool {
        self.presence.get() != Presence::Up
    }

    /// Why the member must not be called now; none if it may.
    pub(super) fn absence(&self) -> Option<Reason> {
        match self.presence.get() {
            Presence::Up => None,
            Presence::Suspect => Some(Reason::NotReady(self.node)),
            Presence::Down => Some(Reason::Unavailable(self.node)),
        }
    }

    /// The member has lost its memory or its configuration. It does not come back.
    pub(super) fn lose(&self) {
        self.presence.set(Presence::Down);
    }

    /// Whether the member accepts messages with a record of this length. A record that only some
    /// nodes accept could neither be committed nor aborted.
    pub(super) fn accepts(&self, record: usize) -> bool {
        self.max_request.get().is_none_or(|max| record + BESIDE_RECORD <= max as usize)
    }

    /// A call failed. The member is down until they have met again, unless the failure was that of
    /// one call only.
    pub(super) fn failed(self: &Rc<Self>, participant: &Arc<Participant>, why: &CallError) {
        let is_one_call = matches!(
            why,
            CallError::Status(_)
                | CallError::Rejected(_)
                | CallError::NoSuchMethod(_)
                | CallError::NotExecuted(Cause::RequestTooLarge(_))
                | CallError::ResponseLost(Cause::ResponseTooLarge(_) | Cause::Malformed)
        );
        if !is_one_call {
            if !self.is_down() {
                self.presence.set(Presence::Suspect);
            }
            if let Some(meeting) = self.meeting(participant) {
                erpc::spawn(meeting);
            }
        }
    }

    /// Introduces this member to the other one until both have accepted each other. None if a task
    /// does that already.
    pub(super) fn meeting(
        self: &Rc<Self>,
        participant: &Arc<Participant>,
    ) -> Option<impl Future<Output = ()> + use<T>> {
        if self.is_meeting.replace(true) {
            return None;
        }
        let (peer, participant) = (Rc::clone(self), Arc::clone(participant));
        Some(async move {
            let begun = now_at::<T>();
            let (mut pause, longest) = PAUSES;
            while !peer.introduce(&participant).await {
                if peer.is_down() && now_at::<T>() - begun >= SUSPICION {
                    peer.presence.set(Presence::Down);
                }
                erpc::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
            peer.presence.set(Presence::Up);
            peer.is_meeting.set(false);
        })
    }

    async fn introduce(&self, participant: &Participant) -> bool {
        let message = proto::Introduction::from(participant.introduction());
        let met = match self.client.meet(message).await {
            Ok(reply) => self.compare(participant, &reply),
            Err(CallError::NoSuchMethod(_)) => {
                Err("it is no node of a transaction store, or one of another version".into())
            }
            Err(CallError::NoServer(why)) if is_other_version(&why) => Err(why.to_string()),
            Err(_) => return false,
        };
        let limits = self.channel.backends().into_iter().filter_map(|backend| backend.max_request);
        self.max_request.set(limits.min().or(self.max_request.get()));
        let is_met = met.is_ok();
        self.refusal.replace(met.err());
        is_met
    }

    /// Whether the members belong together, or why not.
    fn compare(&self, participant: &Participant, reply: &proto::MeetReply) -> Result<(), String> {
        let me = participant.introduction();
        let member = reply.member.as_ref().map(service::introduction);
        let Some(Ok(member)) = member else { return Err("it does not say who it is".into()) };
        if member.node != self.node {
            return Err(format!("it is node {}; compare the addresses", member.node));
        }
        if member.version != me.version {
            let (theirs, ours) = (member.version, me.version);
            let why =
                format!("it has version {theirs} of the store's messages, and this node {ours}");
            return Err(why + "; run one version of the program on all nodes");
        }
        if member.epoch != me.epoch {
            return Err(format!("it has epoch {}, and this node {}", member.epoch, me.epoch));
        }
        if member.configuration != me.configuration {
            return Err("it is of another cluster, or has another configuration".into());
        }
        if reply.verdict() != Verdict::Done {
            return Err(reply.reason.clone());
        }
        participant.accepted(member).map_err(|refusal| refusal.to_string())
    }

    /// Why the member and this one do not belong together, if they do not.
    pub(super) fn refusal(&self) -> Option<JoinError> {
        let why = self.refusal.borrow().clone()?;
        Some(JoinError { node: self.node, why })
    }
}
