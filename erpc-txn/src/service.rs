//! The participant as a service, generated from `proto/txn.proto`.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::sync::Arc;

use erpc::{Burst, Request, Response, Status};
use smallvec::SmallVec;

use crate::cluster::NodeId;
use crate::lists::{Item, put_found, unpack};
use crate::log::{Coordinator, LogError};
use crate::participant::{Access, Introduction, Participant, Place, Refusal, Role, Seen, Target};
use crate::proto;
use crate::proto::Verdict;
use crate::table::{Invalid, Owner};

/// Serves a participant. Its handlers run in the event loop.
#[derive(Debug, erpc::Service)]
#[erpc(service = proto::Participant, burst(Execute = look_ahead))]
pub struct Member {
    participant: Arc<Participant>,
}

/// The most bytes of the outcomes of a request before its last one, so that it does not copy more than
/// any message can hold.
const MAX_OUTCOMES: usize = 64 << 20;

/// The most memory for outcomes that a thread keeps from one request to the next, in bytes.
const KEPT_OUTCOMES: usize = 64 << 10;

thread_local! {
    /// The outcomes of the current request.
    static OUTCOMES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a request was not done, in the words of the messages.
pub(crate) struct Failure {
    verdict: Verdict,
    pub(crate) reason: String,
}

impl Member {
    /// Serves this participant, which others may share.
    #[must_use]
    pub fn new(participant: Arc<Participant>) -> Self {
        Self { participant }
    }

    /// Loads the first key of each request of a burst, so that the cache misses of all of them overlap.
    fn look_ahead(&self, burst: Burst<'_, proto::ExecuteRequestView<'_>>) {
        for request in &burst {
            let first = request.message().accesses.get(..Access::LEN);
            if let Some(access) = first.and_then(Access::get) {
                self.participant.prefetch(&access);
            }
        }
    }

    fn reply<D>(&self, done: Result<D, Failure>) -> Result<Response<proto::Reply>, Status> {
        let (verdict, reason) = match done {
            Ok(_) => (Verdict::Done, String::new()),
            Err(failure) => (failure.verdict, failure.reason),
        };
        let epoch = self.participant.epoch();
        Ok(Response::new(proto::Reply { verdict: verdict.into(), reason, epoch }))
    }

    /// Puts the outcomes of the accesses into `outcomes`, which is empty.
    fn try_execute(
        &self,
        request: &proto::ExecuteRequestView<'_>,
        outcomes: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let accesses = list::<Access>(request.accesses)?;
        let me = owner(request.transaction)?;
        let target = target(request.epoch, request.incarnation);
        self.participant.execute(target, me, &accesses, |found| {
            if outcomes.len() <= MAX_OUTCOMES {
                put_found(&found, outcomes);
            }
        })?;
        Ok(())
    }

    /// Answers with the outcomes, which it puts into `outcomes` first.
    fn executed(
        &self,
        request: &Request<'_, proto::ExecuteRequestView<'_>>,
        outcomes: &mut Vec<u8>,
    ) -> Result<Response<proto::ExecuteReply>, Status> {
        let (verdict, reason) = match self.try_execute(request.message(), outcomes) {
            Ok(()) => (Verdict::Done, String::new()),
            Err(failure) => {
                outcomes.clear();
                (failure.verdict, failure.reason)
            }
        };
        if outcomes.len() > MAX_OUTCOMES {
            // Not a verdict: the accesses may have locked.
            return Err(Status::resource_exhausted("the values are too long; read fewer at once"));
        }
        let (verdict, epoch, reason) = (verdict.into(), self.participant.epoch(), &*reason);
        request.answer(&proto::ExecuteReplyView { verdict, reason, epoch, outcomes })
    }

    fn try_validate(&self, request: &proto::ValidateRequestView<'_>) -> Result<(), Failure> {
        let reads = list::<Seen>(request.reads)?;
        let me = owner(request.transaction)?;
        let valid =
            self.participant.validate(target(request.epoch, request.incarnation), me, &reads)?;
        valid.map_err(|(place, why)| Failure {
            verdict: match why {
                Invalid::Conflict(_) => Verdict::Conflict,
                Invalid::Changed(_) => Verdict::Changed,
            },
            reason: format!("key {} of table {}: {why}", place.key, place.table),
        })
    }

    fn try_unlock(&self, request: &proto::UnlockRequestView<'_>) -> Result<(), Failure> {
        let keys = list::<Place>(request.keys)?;
        let me = owner(request.transaction)?;
        let target = target(request.epoch, request.incarnation);
        self.participant.unlock(target, me, &keys, request.bury)?;
        Ok(())
    }

    fn try_finish(&self, request: &proto::FinishRequest) -> Result<(), Failure> {
        let (node, thread) = (short(request.node)?, short(request.thread)?);
        let coordinator = Coordinator { node, thread };
        let target = target(request.epoch, request.incarnation);
        let ended = request.ended.iter().copied();
        Ok(self.participant.finish(target, coordinator, request.floor, ended, request.bury)?)
    }

    fn try_meet(&self, request: &proto::Introduction) -> Result<(), Failure> {
        Ok(self.participant.meet(introduction(request)?)?)
    }

    /// The target of a request whose epoch is in its record.
    fn of_record(&self, incarnation: u32) -> Target {
        target(self.participant.epoch(), incarnation)
    }
}

impl proto::Participant for Member {
    fn meet(
        &self,
        request: Request<'_, proto::Introduction>,
    ) -> Result<Response<proto::MeetReply>, Status> {
        let (verdict, reason) = match self.try_meet(request.message()) {
            Ok(()) => (Verdict::Done, String::new()),
            Err(failure) => (failure.verdict, failure.reason),
        };
        let member = Some(self.participant.introduction().into());
        Ok(Response::new(proto::MeetReply { verdict: verdict.into(), reason, member }))
    }

    fn execute(
        &self,
        request: Request<'_, proto::ExecuteRequestView<'_>>,
    ) -> Result<Response<proto::ExecuteReply>, Status> {
        OUTCOMES.with_borrow_mut(|outcomes| {
            let response = self.executed(&request, outcomes);
            outcomes.clear();
            outcomes.shrink_to(KEPT_OUTCOMES);
            response
        })
    }

    fn validate(
        &self,
        request: Request<'_, proto::ValidateRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        self.reply(self.try_validate(request.message()))
    }

    fn append(
        &self,
        request: Request<'_, proto::AppendRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let request = request.message();
        let target = self.of_record(request.incarnation);
        let (ended, rest) = request.ended.as_chunks();
        if !rest.is_empty() {
            return self.reply::<()>(Err(refused("a sequence number has 8 bytes")));
        }
        let ended = ended.iter().map(|&bytes| u64::from_le_bytes(bytes));
        let appended = self.participant.append(target, request.record, request.floor, ended);
        self.reply(appended.map_err(Failure::from))
    }

    fn commit_backup(
        &self,
        request: Request<'_, proto::CommitRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let proto::CommitRequestView { incarnation, record, .. } = *request.message();
        let applied = self.participant.commit(self.of_record(incarnation), Role::Backup, record);
        self.reply(applied.map_err(Failure::from))
    }

    fn commit_primary(
        &self,
        request: Request<'_, proto::CommitRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let proto::CommitRequestView { incarnation, record, .. } = *request.message();
        let applied = self.participant.commit(self.of_record(incarnation), Role::Primary, record);
        self.reply(applied.map_err(Failure::from))
    }

    fn unlock(
        &self,
        request: Request<'_, proto::UnlockRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        self.reply(self.try_unlock(request.message()))
    }

    fn finish(
        &self,
        request: Request<'_, proto::FinishRequest>,
    ) -> Result<Response<proto::Reply>, Status> {
        self.reply(self.try_finish(request.message()))
    }
}

fn refused(reason: &str) -> Failure {
    Failure { verdict: Verdict::Refused, reason: reason.into() }
}

/// The items of a list, few as a rule.
fn list<I: Item>(bytes: &[u8]) -> Result<SmallVec<[I; 8]>, Failure> {
    unpack(bytes).ok_or_else(|| refused("a list is malformed, see `erpc_txn::lists`"))
}

fn owner(transaction: u64) -> Result<Owner, Failure> {
    Owner::new(transaction).ok_or_else(|| refused("the transaction has no id"))
}

fn short(number: u32) -> Result<u16, Failure> {
    u16::try_from(number).map_err(|_| refused("tables, nodes and threads are below 65,536"))
}

fn target(epoch: u32, incarnation: u32) -> Target {
    Target { epoch, incarnation }
}

/// What a member says of itself, from its message.
pub(crate) fn introduction(message: &proto::Introduction) -> Result<Introduction, Failure> {
    let &proto::Introduction { epoch, incarnation, configuration, version, .. } = message;
    let node = NodeId(short(message.node)?);
    Ok(Introduction { epoch, node, incarnation, configuration, version })
}

impl From<Introduction> for proto::Introduction {
    fn from(of: Introduction) -> Self {
        let Introduction { epoch, node, incarnation, configuration, version } = of;
        Self { epoch, node: node.0.into(), incarnation, configuration, version }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let verdict = match refusal {
            Refusal::Epoch(_) => Verdict::Epoch,
            Refusal::Log(LogError::Full) => Verdict::LogFull,
            Refusal::Incarnation | Refusal::Restarted(_) => Verdict::Restarted,
            Refusal::NotActive => Verdict::NotActive,
            Refusal::Ended => Verdict::Ended,
            _ => Verdict::Refused,
        };
        Self { verdict, reason: refusal.to_string() }
    }
}
