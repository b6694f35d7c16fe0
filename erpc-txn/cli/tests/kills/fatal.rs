//! The moment at which a process dies.
//!
//! The receiver of a request kills: itself, or the coordinator that has sent it. In both cases the
//! coordinator gets no answer, so it has not begun the next phase for certain.

use std::fmt;
use std::fs;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use erpc::{Request, Response, Status};
use erpc_txn::cluster::NodeId;
use erpc_txn::log::{Coordinator, Record};
use erpc_txn::proto;
use erpc_txn::service::Member;
use erpc_txn::table::Owner;
use rustix::process::{Pid, Signal, getpid, kill_process};

/// A request that members send to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Execute,
    Validate,
    Append,
    CommitBackup,
    CommitPrimary,
    Unlock,
    Finish,
}

impl Method {
    pub(crate) const ALL: [Self; 7] = [
        Self::Execute,
        Self::Validate,
        Self::Append,
        Self::CommitBackup,
        Self::CommitPrimary,
        Self::Unlock,
        Self::Finish,
    ];
}

/// Who dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Victim {
    /// The coordinator of the transaction.
    Sender,
    /// The primary, backup or log replica.
    Receiver,
}

/// Whether the receiver does what the request asks for, before the victim dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    Before,
    After,
}

/// Which request is fatal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shot {
    pub(crate) victim: Victim,
    pub(crate) method: Method,
    pub(crate) moment: Moment,
    /// The how manyth request of this method, from 1.
    pub(crate) count: u32,
}

impl fmt::Display for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { victim, method, moment, count } = self;
        write!(f, "{victim:?} {method:?} {moment:?} {count}")
    }
}

impl FromStr for Shot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let methods = Method::ALL.into_iter();
        let all = methods.flat_map(|method| {
            let victims = [Victim::Sender, Victim::Receiver].into_iter();
            victims.flat_map(move |victim| {
                [Moment::Before, Moment::After].map(|moment| (victim, method, moment))
            })
        });
        let (name, count) = text.rsplit_once(' ').ok_or("no count")?;
        let count = count.parse().map_err(|_| format!("no count: {text}"))?;
        let mut shots = all.map(|(victim, method, moment)| Self { victim, method, moment, count });
        let found =
            shots.find(|shot| shot.to_string().rsplit_once(' ').map(|at| at.0) == Some(name));
        found.ok_or_else(|| format!("no such shot: {text}"))
    }
}

/// What kills, once it is armed.
#[derive(Default)]
pub(crate) struct Trigger(Mutex<Armed>);

#[derive(Default)]
struct Armed {
    shot: Option<Shot>,
    /// The processes of all members, by node.
    processes: Vec<i32>,
}

impl Trigger {
    pub(crate) fn arm(&self, shot: Shot, processes: Vec<i32>) {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *armed = Armed { shot: Some(shot), processes };
    }

    /// The shot, if a request is the fatal one, and the process that it kills.
    fn pull(&self, method: Method, sender: NodeId) -> Option<(Shot, Pid)> {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shot = armed.shot.as_mut().filter(|shot| shot.method == method)?;
        shot.count -= 1;
        if shot.count > 0 {
            return None;
        }
        let shot = armed.shot.take()?;
        let process = *armed.processes.get(usize::from(sender.0))?;
        Some((shot, Pid::from_raw(process)?))
    }
}

/// A member that a request may kill.
#[derive(erpc::Service)]
#[erpc(service = proto::Participant)]
pub(crate) struct Mortal {
    member: Member,
    trigger: Arc<Trigger>,
}

impl Mortal {
    pub(crate) fn new(member: Member, trigger: Arc<Trigger>) -> Self {
        Self { member, trigger }
    }

    /// Does what a request asks for, unless it is fatal.
    fn take<R>(
        &self,
        method: Method,
        transaction: Option<Owner>,
        done: impl FnOnce(&Member) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let sender = transaction.map(|id| NodeId(Coordinator::of(id).0.node));
        let fatal = sender.and_then(|sender| self.trigger.pull(method, sender));
        let Some((shot, process)) = fatal else { return done(&self.member) };
        if shot.moment == Moment::After {
            // The answer never leaves.
            drop(done(&self.member));
        }
        match shot.victim {
            Victim::Receiver => {
                kill_process(getpid(), Signal::KILL).expect("it is this process");
            }
            Victim::Sender => {
                kill_process(process, Signal::KILL).expect("it is of the same user");
                while lives(process) {
                    thread::sleep(Duration::from_micros(100));
                }
            }
        }
        Err(Status::unavailable("nobody waits for this answer"))
    }
}

/// Whether a process still runs, given that its parent has not waited for it: so its number is not
/// used again.
pub(crate) fn lives(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    // The state follows the name, which is in parentheses.
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ").map(|at| at.1.as_bytes()[0]));
    !matches!(state, None | Some(b'Z' | b'X'))
}

fn of_record(record: &[u8]) -> Option<Owner> {
    Record::decode(record).ok().map(|(record, _)| record.transaction)
}

impl proto::Participant for Mortal {
    fn meet(
        &self,
        request: Request<'_, proto::Introduction>,
    ) -> Result<Response<proto::MeetReply>, Status> {
        self.member.meet(request)
    }

    fn execute(
        &self,
        request: Request<'_, proto::ExecuteRequestView<'_>>,
    ) -> Result<Response<proto::ExecuteReply>, Status> {
        let of = Owner::new(request.message().transaction);
        self.take(Method::Execute, of, |member| member.execute(request))
    }

    fn validate(
        &self,
        request: Request<'_, proto::ValidateRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let of = Owner::new(request.message().transaction);
        self.take(Method::Validate, of, |member| member.validate(request))
    }

    fn append(
        &self,
        request: Request<'_, proto::AppendRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let of = of_record(request.message().record);
        self.take(Method::Append, of, |member| member.append(request))
    }

    fn commit_backup(
        &self,
        request: Request<'_, proto::CommitRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let of = of_record(request.message().record);
        self.take(Method::CommitBackup, of, |member| member.commit_backup(request))
    }

    fn commit_primary(
        &self,
        request: Request<'_, proto::CommitRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let of = of_record(request.message().record);
        self.take(Method::CommitPrimary, of, |member| member.commit_primary(request))
    }

    fn unlock(
        &self,
        request: Request<'_, proto::UnlockRequestView<'_>>,
    ) -> Result<Response<proto::Reply>, Status> {
        let of = Owner::new(request.message().transaction);
        self.take(Method::Unlock, of, |member| member.unlock(request))
    }

    fn finish(
        &self,
        request: Request<'_, proto::FinishRequest>,
    ) -> Result<Response<proto::Reply>, Status> {
        let &proto::FinishRequest { node, thread, .. } = request.message();
        let (node, thread) = (node as u16, thread as u16);
        let of = Coordinator { node, thread }.transaction(1);
        self.take(Method::Finish, of, |member| member.finish(request))
    }
}
