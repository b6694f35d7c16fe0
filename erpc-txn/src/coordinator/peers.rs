//! The other members, as one coordinator sees them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use erpc::{CallError, Channel, Transport};

use super::space::Space;
use crate::cluster::NodeId;
use crate::participant::{Participant, Target};
use crate::proto::{self, LocalParticipantClient, Verdict};
use crate::service;

/// A member to which the coordinator has a session.
pub(super) struct Peer<T: Transport> {
    pub(super) node: NodeId,
    pub(super) client: LocalParticipantClient<T>,
    /// The last call failed, and no introduction has succeeded since; or the member is lost.
    is_down: Cell<bool>,
    /// A task introduces this member to it.
    is_meeting: Cell<bool>,
    /// The incarnation, once they have met.
    incarnation: Cell<Option<u32>>,
    /// Of the log that the member has of this coordinator.
    pub(super) space: Space,
    /// A record has told the member of ended transactions since this was last looked at.
    pub(super) was_told: Cell<bool>,
    /// The last transaction that the member has buried, until it knows that the floor has passed it.
    pub(super) buried: Cell<Option<u64>>,
}

/// The other members by node.
pub(super) type Peers<T> = BTreeMap<NodeId, Rc<Peer<T>>>;

/// Pauses between attempts to reach a member: the first and the longest.
pub(super) const PAUSES: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(200));

impl<T: Transport> Peer<T> {
    pub(super) fn new(node: NodeId, channel: Channel<T>) -> Self {
        Self {
            node,
            client: LocalParticipantClient::new(channel),
            is_down: Cell::new(false),
            is_meeting: Cell::new(false),
            incarnation: Cell::new(None),
            space: Space::default(),
            was_told: Cell::new(false),
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

    pub(super) fn is_down(&self) -> bool {
        self.is_down.get()
    }

    /// The member has lost its memory or its configuration. It does not come back.
    pub(super) fn lose(&self) {
        self.is_down.set(true);
    }

    /// A call failed. The member is down until they have met again, unless the failure was that of
    /// one call only.
    pub(super) fn failed(self: &Rc<Self>, participant: &Arc<Participant>, why: &CallError) {
        let is_one_call = matches!(
            why,
            CallError::Status(_) | CallError::Rejected(_) | CallError::NoSuchMethod(_)
        );
        if !is_one_call {
            self.is_down.set(true);
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
            let (mut pause, longest) = PAUSES;
            while !peer.introduce(&participant).await {
                erpc::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
            peer.is_down.set(false);
            peer.is_meeting.set(false);
        })
    }

    async fn introduce(&self, participant: &Participant) -> bool {
        let message = proto::Introduction::from(participant.introduction());
        let Ok(reply) = self.client.meet(message).await else { return false };
        let Some(member) = &reply.member else { return false };
        let Ok(member) = service::introduction(member) else { return false };
        reply.verdict() == Verdict::Done
            && member.node == self.node
            && participant.accepted(member).is_ok()
    }
}
