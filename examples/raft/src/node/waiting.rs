//! Calls that wait until their entry is committed and applied.

use std::collections::VecDeque;
use std::time::Duration;

use erpc::{Responder, Status};

use super::{Clock, Hear};
use crate::consensus::Position;
use crate::machine::Applied;
use crate::mutants::mutant;
use crate::proto::{self, Leader, Outcome};

/// A call that waits.
pub(super) enum Caller {
    Write(Responder<proto::WriteReply>),
    Open(Responder<proto::OpenReply>),
    Change(Responder<proto::ChangeReply>),
}

/// All that wait, in the order of their entries.
pub(super) struct Waiting {
    /// With the time of the proposal, if it is measured.
    callers: VecDeque<(Position, Caller, Duration)>,
    /// A change of the members that has begun: with its first entry.
    changing: Option<(Position, Caller)>,
    measure: Option<(Clock, Hear)>,
}

impl Waiting {
    pub(super) fn new(measure: Option<(Clock, Hear)>) -> Self {
        Self { callers: VecDeque::new(), changing: None, measure }
    }

    pub(super) fn push(&mut self, at: Position, caller: Caller) {
        let now = self.measure.as_ref().map_or(Duration::ZERO, |(clock, _)| clock());
        self.callers.push_back((at, caller, now));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.callers.is_empty() && self.changing.is_none()
    }

    /// The entry at `at` is applied. Answers its caller; that of a change when the old members are
    /// not needed any more.
    pub(super) fn applied(&mut self, at: Position, applied: Applied, leader: &Leader) {
        if applied == Applied::Changed
            && let Some((_, caller)) = self.changing.take()
        {
            caller.answer(applied);
        }
        while let Some((waits, caller, begun)) = self.pop_if(|waits| waits.index <= at.index) {
            if let Some((clock, hear)) = self.measure.as_mut().filter(|_| waits == at) {
                hear(clock().saturating_sub(begun));
            }
            if waits == at || mutant!(TermNotCompared) && waits.index == at.index {
                match caller {
                    Caller::Change(_) if applied == Applied::Changing => {
                        self.changing = Some((waits, caller));
                    }
                    _ => caller.answer(applied),
                }
            } else {
                // Another leader has put its entry there, or a snapshot has skipped it.
                caller.refuse(Outcome::NotLeader, leader);
            }
        }
    }

    /// The node leads in `term`, or does not (none). Refuses callers whose entries may be replaced.
    pub(super) fn keep(&mut self, term: Option<u64>, leader: &Leader) {
        if mutant!(TermNotCompared) {
            return;
        }
        while let Some((_, caller, _)) = self.pop_if(|waits| Some(waits.term) != term) {
            caller.refuse(Outcome::NotLeader, leader);
        }
        let is_old = |(waits, _): &mut (Position, Caller)| Some(waits.term) != term;
        if let Some((_, caller)) = self.changing.take_if(is_old) {
            caller.refuse(Outcome::NotLeader, leader);
        }
    }

    fn pop_if(
        &mut self,
        wanted: impl Fn(Position) -> bool,
    ) -> Option<(Position, Caller, Duration)> {
        let is_wanted = self.callers.front().is_some_and(|(waits, ..)| wanted(*waits));
        if is_wanted { self.callers.pop_front() } else { None }
    }
}

impl Caller {
    /// The entry was applied.
    pub(super) fn answer(self, applied: Applied) {
        if let (Self::Change(_), Applied::Nothing) = (&self, applied) {
            let text = "the current members do not allow this change; nothing has changed";
            return self.fail(Status::failed_precondition(text));
        }
        let (outcome, swapped) = match applied {
            Applied::Written { swapped } => (Outcome::Done, swapped),
            Applied::Opened(_) | Applied::Changing | Applied::Changed | Applied::Nothing => {
                (Outcome::Done, false)
            }
            Applied::Expired => (Outcome::Expired, false),
            Applied::Stale => (Outcome::Stale, false),
        };
        let session = if let Applied::Opened(session) = applied { session } else { 0 };
        let outcome = outcome.into();
        match self {
            Self::Write(to) => to.send(&proto::WriteReply { outcome, swapped, leader: None }),
            Self::Open(to) => to.send(&proto::OpenReply { outcome, session, leader: None }),
            Self::Change(to) => to.send(&proto::ChangeReply { outcome, leader: None }),
        }
    }

    /// The call is wrong. It has no effect.
    pub(super) fn fail(self, status: Status) {
        match self {
            Self::Write(to) => to.fail(status),
            Self::Open(to) => to.fail(status),
            Self::Change(to) => to.fail(status),
        }
    }

    /// The entry was not applied, or may be applied later.
    pub(super) fn refuse(self, outcome: Outcome, leader: &Leader) {
        let outcome = outcome.into();
        let leader = Some(leader.clone());
        match self {
            Self::Write(to) => to.send(&proto::WriteReply { outcome, swapped: false, leader }),
            Self::Open(to) => to.send(&proto::OpenReply { outcome, session: 0, leader }),
            Self::Change(to) => to.send(&proto::ChangeReply { outcome, leader }),
        }
    }
}
