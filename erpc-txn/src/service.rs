//! The participant as a service, generated from `proto/txn.proto`.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use erpc::{Request, Response, Status};

use crate::log::{Coordinator, Index, LogError};
use crate::participant::{Access, Found, Kind, Participant, Place, Refusal, Role, Seen};
use crate::proto;
use crate::proto::Verdict;
use crate::table::{Invalid, LockError, Owner, Version};

/// Serves a participant. Its handlers run in the event loop.
#[derive(Debug, erpc::Service)]
#[erpc(service = proto::Participant)]
pub struct Member {
    participant: Arc<Participant>,
}

/// Why a request was not done, in the words of the messages.
struct Failure {
    verdict: Verdict,
    reason: String,
}

impl Member {
    /// Serves this participant, which others may share.
    #[must_use]
    pub fn new(participant: Arc<Participant>) -> Self {
        Self { participant }
    }

    fn reply<D>(&self, done: Result<D, Failure>) -> Result<Response<proto::Reply>, Status> {
        let (verdict, reason) = match done {
            Ok(_) => (Verdict::Done, String::new()),
            Err(failure) => (failure.verdict, failure.reason),
        };
        let epoch = self.participant.epoch();
        Ok(Response::new(proto::Reply { verdict: verdict.into(), reason, epoch }))
    }

    fn try_execute(
        &self,
        request: &proto::ExecuteRequest,
    ) -> Result<Vec<proto::AccessReply>, Failure> {
        let accesses: Vec<_> = request.accesses.iter().map(access).collect::<Result<_, _>>()?;
        let me = owner(request.transaction)?;
        let found = self.participant.execute(request.epoch, me, &accesses)?;
        Ok(found.into_iter().map(access_reply).collect())
    }

    fn try_validate(&self, request: &proto::ValidateRequest) -> Result<(), Failure> {
        let seen = |seen: &proto::Seen| {
            let version =
                Version::new(seen.version).ok_or_else(|| refused("there is no such version"))?;
            Ok::<_, Failure>(Seen { place: place(seen.table, seen.key)?, version })
        };
        let reads: Vec<_> = request.reads.iter().map(seen).collect::<Result<_, _>>()?;
        let me = owner(request.transaction)?;
        let valid = self.participant.validate(request.epoch, me, &reads)?;
        valid.map_err(|(place, why)| Failure {
            verdict: match why {
                Invalid::Conflict(_) => Verdict::Conflict,
                Invalid::Changed(_) => Verdict::Changed,
            },
            reason: format!("key {} of table {}: {why}", place.key, place.table),
        })
    }

    fn try_unlock(&self, request: &proto::UnlockRequest) -> Result<(), Failure> {
        let keys: Vec<_> =
            request.keys.iter().map(|at| place(at.table, at.key)).collect::<Result<_, _>>()?;
        let me = owner(request.transaction)?;
        self.participant.unlock(request.epoch, me, &keys)?;
        Ok(())
    }

    fn try_acknowledge(&self, request: &proto::AcknowledgeRequest) -> Result<(), Failure> {
        let number = |number: u32| {
            u16::try_from(number).map_err(|_| refused("nodes and threads are below 65,536"))
        };
        let (node, thread) = (number(request.node)?, number(request.thread)?);
        let coordinator = Coordinator { node, thread };
        self.participant.acknowledge(request.epoch, coordinator, Index(request.next))?;
        Ok(())
    }
}

impl proto::Participant for Member {
    fn execute(
        &self,
        request: Request<'_, proto::ExecuteRequest>,
    ) -> Result<Response<proto::ExecuteReply>, Status> {
        let (verdict, reason, accesses) = match self.try_execute(request.message()) {
            Ok(accesses) => (Verdict::Done, String::new(), accesses),
            Err(failure) => (failure.verdict, failure.reason, Vec::new()),
        };
        let (verdict, epoch) = (verdict.into(), self.participant.epoch());
        Ok(Response::new(proto::ExecuteReply { verdict, reason, epoch, accesses }))
    }

    fn validate(
        &self,
        request: Request<'_, proto::ValidateRequest>,
    ) -> Result<Response<proto::Reply>, Status> {
        self.reply(self.try_validate(request.message()))
    }

    fn append(
        &self,
        request: Request<'_, proto::AppendRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let proto::AppendRequestView { index, record, .. } = *request.message();
        self.reply(self.participant.append(Index(index), record).map_err(Failure::from))
    }

    fn commit_backup(
        &self,
        request: Request<'_, proto::CommitRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let record = request.message().record;
        self.reply(self.participant.commit(Role::Backup, record).map_err(Failure::from))
    }

    fn commit_primary(
        &self,
        request: Request<'_, proto::CommitRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let record = request.message().record;
        self.reply(self.participant.commit(Role::Primary, record).map_err(Failure::from))
    }

    fn unlock(
        &self,
        request: Request<'_, proto::UnlockRequest>,
    ) -> Result<Response<proto::Reply>, Status> {
        self.reply(self.try_unlock(request.message()))
    }

    fn acknowledge(
        &self,
        request: Request<'_, proto::AcknowledgeRequest>,
    ) -> Result<Response<proto::Reply>, Status> {
        self.reply(self.try_acknowledge(request.message()))
    }
}

fn refused(reason: &str) -> Failure {
    Failure { verdict: Verdict::Refused, reason: reason.into() }
}

fn owner(transaction: u64) -> Result<Owner, Failure> {
    Owner::new(transaction).ok_or_else(|| refused("the transaction has no id"))
}

fn place(table: u32, key: u64) -> Result<Place, Failure> {
    let table = u16::try_from(table).map_err(|_| refused("tables are below 65,536"))?;
    Ok(Place { table, key })
}

fn access(access: &proto::Access) -> Result<Access, Failure> {
    let kind = match proto::Kind::try_from(access.kind) {
        Ok(proto::Kind::Read) => Kind::Read,
        Ok(proto::Kind::Update) => Kind::Update,
        Ok(proto::Kind::Insert) => Kind::Insert,
        Ok(proto::Kind::Unspecified) | Err(_) => return Err(refused("an access has no kind")),
    };
    Ok(Access { place: place(access.table, access.key)?, kind })
}

fn access_reply(found: Result<Found, LockError>) -> proto::AccessReply {
    let (verdict, version) = match found {
        Ok(Found { bucket, read }) => {
            return proto::AccessReply {
                verdict: Verdict::Done.into(),
                version: read.version.get(),
                bucket: bucket.index(),
                present: read.value.is_some(),
                value: read.value.map_or_else(Bytes::new, |value| Bytes::copy_from_slice(&value)),
            };
        }
        Err(LockError::Conflict(_)) => (Verdict::Conflict, 0),
        Err(LockError::Absent(version)) => (Verdict::Absent, version.get()),
        Err(LockError::Present(version)) => (Verdict::Present, version.get()),
        Err(LockError::Full(_)) => (Verdict::TableFull, 0),
    };
    proto::AccessReply { verdict: verdict.into(), version, ..Default::default() }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let verdict = match refusal {
            Refusal::Epoch(_) => Verdict::Epoch,
            Refusal::Log(LogError::Full) => Verdict::LogFull,
            _ => Verdict::Refused,
        };
        Self { verdict, reason: refusal.to_string() }
    }
}
